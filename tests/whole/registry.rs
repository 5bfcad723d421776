//! Images from registries: logins, and parallel pulls; and images from files, which the agent's own
//! registry serves.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::World;
use crate::support::agent::{KEEP_ALL, Site, binary, endpoint, sleeper};
use crate::support::containerd::{Kind, kind};
use crate::support::port::free_port;
use crate::support::process::children;
use crate::support::registry::{Gate, Registry, archive};
use crate::support::wait::until;
use crate::support::{containerd, process, top};

crate::tests![
    a_private_image_is_pulled_with_the_secret_that_is_let_in,
    a_private_image_is_pulled_with_the_nodes_own_credentials,
    pulls_keep_their_bound,
    images_in_a_folder_are_pulled_from_the_agents_own_registry,
    an_archive_is_brought_in_by_command,
];

/// A pod of the demo image under this name.
fn pod(name: &str, image: &str, secrets: &[&str]) -> String {
    let named: Vec<String> = secrets.iter().map(|name| format!("{{name: {name}}}")).collect();
    let secrets = format!("spec:\n  imagePullSecrets: [{}]\n", named.join(", "));
    let text = sleeper(name).replace("localhost/edged-demo:1", image);
    text.replacen("spec:\n", &secrets, 1)
}

fn secret(name: &str, registry: &str, user: &str, word: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/dockerconfigjson\nmetadata: {{name: \
         {name}}}\nstringData:\n  .dockerconfigjson: '{{\"auths\": {{\"{registry}\": \
         {{\"username\": \"{user}\", \"password\": \"{word}\"}}}}}}'\n"
    )
}

fn is_refused(site: &Site, name: &str) {
    let pod = site.wait(name, "its pull is refused", |pod| {
        ["ErrImagePull", "ImagePullBackOff"].contains(&pod.waits_for("main"))
    });
    let message = pod.container("main")["state"]["waiting"]["message"].to_string();
    // containerd 1.6 shows the registry's answer; later ones their own message.
    let refused = message.contains("401 Unauthorized") || message.contains("pull access denied");
    assert!(refused, "{message}");
}

fn demo_images(dir: &Path) -> Registry {
    let folder = dir.join("images");
    fs::create_dir_all(&folder).expect("a folder of ours");
    for version in [1, 2] {
        let file = format!("edged-demo-{version}.tar");
        fs::copy(top().join("target/images").join(&file), folder.join(&file)).expect("built");
    }
    Registry::start(&folder)
}

fn a_private_image_is_pulled_with_the_secret_that_is_let_in(world: &World) {
    let site = world.site("registry-private");
    let registry = demo_images(&site.dir);
    let gate = Gate::before(registry.address, Some(("me", "right")), Duration::ZERO);
    let host = gate.address.to_string();
    let image = format!("{host}/localhost/edged-demo:1");
    let _agent = site.start();
    site.put("right.yaml", &secret("right", &host, "me", "right"));
    site.put("wrong.yaml", &secret("wrong", &host, "me", "wrong"));
    site.put("none.yaml", &pod("none", &image, &[]));
    is_refused(&site, "none");
    site.put("bad.yaml", &pod("bad", &image, &["wrong"]));
    is_refused(&site, "bad");
    site.put("lost.yaml", &pod("lost", &image, &["nowhere"]));
    is_refused(&site, "lost");
    let expected = "Unable to retrieve some image pull secrets (nowhere); attempting to pull";
    assert!(site.log().contains(expected), "{}", site.log_tail());
    // The wrong one is tried first, and then the right one.
    site.put("good.yaml", &pod("good", &image, &["wrong", "right"]));
    let good = site.wait_running("good");
    assert_eq!(good.restarts("main"), 0);
    for secret in ["right", "wrong"] {
        assert!(!site.log().contains(&format!("\"{secret}\"")), "no word of a secret in the log");
    }
    for file in ["none.yaml", "bad.yaml", "lost.yaml", "good.yaml"] {
        site.take(file);
    }
    site.wait_empty();
    world.containerd.untag(&image);
}

fn a_private_image_is_pulled_with_the_nodes_own_credentials(world: &World) {
    let site = world.site("registry-node");
    let registry = demo_images(&site.dir);
    let gate = Gate::before(registry.address, Some(("me", "right")), Duration::ZERO);
    let host = gate.address.to_string();
    let image = format!("{host}/localhost/edged-demo:1");
    fs::create_dir_all(&site.root).expect("a folder of ours");
    let entry = format!(r#"{{"auths": {{"{host}": {{"username": "me", "password": "right"}}}}}}"#);
    fs::write(site.root.join("config.json"), entry).expect("a file of ours");
    let _agent = site.start();
    site.put("plain.yaml", &pod("plain", &image, &[]));
    site.wait_running("plain");
    assert!(!site.log().contains("\"right\""), "no word of it in the log");
    site.take("plain.yaml");
    site.wait_empty();
    world.containerd.untag(&image);
}

fn pulls_keep_their_bound(world: &World) {
    for (name, keys, most) in [
        ("serial", "serializeImagePulls: true\n", 1),
        ("parallel", "serializeImagePulls: false\nmaxParallelImagePulls: 2\n", 2),
    ] {
        let site = world.site(&format!("registry-{name}"));
        site.set("", &format!("{KEEP_ALL}{keys}"));
        let registry = demo_images(&site.dir);
        let gate = Gate::before(registry.address, None, Duration::from_millis(200));
        let host = gate.address;
        let images =
            ["localhost/edged-demo:1", "edged-demo:2"].map(|image| format!("{host}/{image}"));
        let _agent = site.start();
        for (n, image) in images.iter().enumerate() {
            site.put(&format!("{n}.yaml"), &pod(&format!("p{n}"), image, &[]));
        }
        for n in 0..images.len() {
            site.wait_running(&format!("p{n}"));
        }
        // RUNTIME_PULLS_MAX, whatever it is asked.
        let most = if kind() == Kind::Builtin { 1 } else { most };
        assert_eq!(gate.most_at_once(), most, "{name}");
        for (n, image) in images.iter().enumerate() {
            site.take(&format!("{n}.yaml"));
            world.containerd.untag(image);
        }
        site.wait_empty();
    }
}

fn images_in_a_folder_are_pulled_from_the_agents_own_registry(world: &World) {
    let site = world.site("registry-own");
    let (port, stick) = (free_port(), site.dir.join("stick"));
    let keys = format!("imageMirrorPort: {port}\nimageFolders: [{}]\n", stick.display());
    site.set(&keys, KEEP_ALL);
    let agent = site.start();
    // The USB stick is not plugged in yet.
    let image = format!("127.0.0.1:{port}/localhost/stick:1");
    site.put("pod.yaml", &pod("pod", &image, &[]));
    site.wait("pod", "its pull fails", |pod| {
        ["ErrImagePull", "ImagePullBackOff"].contains(&pod.waits_for("main"))
    });
    let made = archive(&site.dir, "stick", "[]", "[\"/bin/sh\"]");
    fs::rename(made, &stick).expect("folders of ours");
    let running = site.wait_running("pod");
    assert_eq!(running.restarts("main"), 0);
    // The registry's process dies, and is restarted.
    let served = children(agent.pid()).iter().map(|(pid, _)| *pid).next().expect("a registry");
    process::signal(served, nix::sys::signal::Signal::SIGKILL);
    until("another registry's process", || {
        let now = children(agent.pid());
        let other = now.iter().any(|(pid, state)| *pid != served && *state != 'Z');
        if other { Ok(()) } else { Err(format!("{now:?}")) }
    });
    world.containerd.untag(&image);
    let second = format!("127.0.0.1:{port}/stick:1");
    site.put("again.yaml", &pod("again", &second, &[]));
    site.wait_running("again");
    for file in ["pod.yaml", "again.yaml"] {
        site.take(file);
    }
    site.wait_empty();
    world.containerd.untag(&second);
}

fn an_archive_is_brought_in_by_command(world: &World) {
    let site = world.site("registry-import");
    let folder = archive(&site.dir, "brought", "[]", "[\"/bin/sh\"]");
    let edged = |arguments: &[&str]| {
        let mut command = std::process::Command::new(binary());
        let output = command.args(arguments).env("PATH", containerd::path()).output();
        let output = output.expect("the binary was built beside this test");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let file = folder.join("brought.tar").display().to_string();
    let (_, listed, _) = edged(&["images", "list", &folder.display().to_string()]);
    assert!(listed.contains("localhost/brought:1"), "{listed}");
    let runtime = endpoint(&world.socket());
    let (done, out, why) = edged(&["images", "import", &file, "--runtime", &runtime]);
    assert!(done && out == "localhost/brought:1\n", "{out}{why}");
    let _agent = site.start();
    let text = pod("brought", "localhost/brought:1", &[]);
    site.put(
        "pod.yaml",
        &text.replace("  - name: main", "  - imagePullPolicy: Never\n    name: main"),
    );
    site.wait_running("brought");
    let packed = format!("{file}.gz");
    fs::write(&packed, [0x1f, 0x8b, 8, 0].repeat(300)).expect("a file of ours");
    let (done, _, why) = edged(&["images", "import", &packed, "--runtime", &runtime]);
    // The built-in runtime would take it, if it were one.
    let expected = match kind() {
        Kind::Containerd => "got a compressed archive, expected a plain one",
        Kind::Builtin => "brought.tar.gz: ",
    };
    assert!(!done && why.contains(expected), "{why}");
    site.take("pod.yaml");
    site.wait_empty();
    world.containerd.untag("localhost/brought:1");
}
