//! Garbage that must not accumulate on flash: dead containers, images, logs.

use std::fs;
use std::path::PathBuf;

use edged::wire::cri::image::{ImageSpec, ListImagesRequest, RemoveImageRequest};

use crate::World;
use crate::support::agent::{KEEP_ALL, Pod, Site, entries, manifest, sleeper};
use crate::support::cri::Cri;
use crate::support::wait::{until, until_in};

crate::tests![
    dead_containers_of_a_crashing_pod_are_as_many_as_the_policy_keeps,
    logs_and_links_of_pods_that_nobody_knows_go,
    an_image_goes_when_the_disk_is_full_and_those_that_are_needed_stay,
    a_log_is_rotated_while_it_is_written_and_no_line_is_lost_or_doubled,
];

fn dead_containers_of_a_crashing_pod_are_as_many_as_the_policy_keeps(world: &World) {
    let site = world.site("garbage-dead");
    site.set(
        "maxPerPodContainerCount: 2",
        &format!("{KEEP_ALL}crashLoopBackOff: {{maxContainerRestartPeriod: 1s}}"),
    );
    let agent = site.start();
    let crash = "    command: [sh, -c, 'echo once; exit 1']\n";
    site.put("crash.yaml", &manifest("crash", "  hostNetwork: true\n", crash));
    let pod = site.wait("crash", "restarted five times", |pod| pod.restarts("main") >= 5);
    until("two dead containers are left", || {
        let state = site.runtime_state().of(pod.uid());
        let dead = state.containers.len() - state.running("main").len();
        if dead == 2 { Ok(()) } else { Err(state.short()) }
    });
    let logs = entries(site.log_file(&pod, "main", 0).parent().expect("it has one"));
    assert!(logs.len() <= 3, "{logs:?}");
    // An agent that keeps one finds two.
    agent.kill();
    site.set(
        "maxPerPodContainerCount: 1",
        &format!("{KEEP_ALL}crashLoopBackOff: {{maxContainerRestartPeriod: 300s}}"),
    );
    let _agent = site.start();
    until("one dead container is left", || {
        let state = site.runtime_state().of(pod.uid());
        let dead = state.containers.len() - state.running("main").len();
        if dead <= 1 { Ok(()) } else { Err(state.short()) }
    });
    site.take("crash.yaml");
    site.wait_empty();
}

fn logs_and_links_of_pods_that_nobody_knows_go(world: &World) {
    let site = world.site("garbage-logs");
    let left = site.pod_logs.join("default_gone-gw_0123456789abcdef");
    fs::create_dir_all(left.join("main")).expect("a folder of ours");
    fs::write(left.join("main/0.log"), "x\n").expect("a file of ours");
    let folder = site.root.join("pods/fedcba9876543210");
    let volume = folder.join("volumes/kubernetes.io~empty-dir/v");
    fs::create_dir_all(&volume).expect("a folder of ours");
    fs::write(volume.join("f"), "x\n").expect("a file of ours");
    let strange = site.pod_logs.join("not-a-pod");
    fs::create_dir_all(&strange).expect("a folder of ours");
    let link = site.container_logs.join("gone-gw_default_main-0123.log");
    std::os::unix::fs::symlink(left.join("main/1.log"), &link).expect("a link of ours");
    let theirs = site.container_logs.join("theirs_default_main-0123.log");
    std::os::unix::fs::symlink("/nowhere/0.log", &theirs).expect("a link of ours");
    let _agent = site.start();
    site.put("stays.yaml", &sleeper("stays"));
    let pod = site.wait_running("stays");
    until("unknown ones are removed", || {
        let folder = left.exists() || folder.exists();
        let link = link.symlink_metadata().is_ok();
        if folder || link { Err(format!("folder: {folder}, link: {link}")) } else { Ok(()) }
    });
    assert!(site.log_file(&pod, "main", 0).exists(), "a known pod's log stays");
    assert!(strange.is_dir(), "a folder without a pod's name stays");
    assert!(theirs.symlink_metadata().is_ok(), "a link to another place stays");
    fs::remove_dir(&strange).expect("it is empty");
    fs::remove_file(&theirs).expect("it is a link");
    site.take("stays.yaml");
    site.wait_empty();
}

fn images(site: &Site) -> Vec<String> {
    let mut cri = Cri::connect(&site.runtime).expect("it listens");
    let images = cri.call(&ListImagesRequest { filter: None }).expect("a list").images;
    images.into_iter().flat_map(|image| image.repo_tags).collect()
}

fn an_image_goes_when_the_disk_is_full_and_those_that_are_needed_stay(world: &World) {
    let site = world.site("garbage-images");
    // Every disk is fuller than that. The age counts from the first list.
    let full = "imageGCHighThresholdPercent: 0\nimageGCLowThresholdPercent: 0\n\
                imageMinimumGCAge: 0s\nimageGCPeriod: 1s\nevictionHard: {}";
    site.set("", full);
    site.put("uses.yaml", &sleeper("uses"));
    let wants = manifest("wants", "  hostNetwork: true\n", "    imagePullPolicy: Never\n")
        .replace("edged-demo:1", "wanted:1");
    site.put("wants.yaml", &wants);
    let agent = site.start();
    site.wait_running("uses");
    // Each with a different layer, so that each is an image of its own.
    let made = ["unused", "wanted"];
    for name in made {
        own_image(world, name);
    }
    until("the unused image is removed", || {
        let images = images(&site);
        let has = |name: &str| images.iter().any(|image| image == &format!("localhost/{name}:1"));
        if has("unused") { Err(format!("{images:?}")) } else { Ok(()) }
    });
    let left = images(&site);
    for name in ["localhost/edged-demo:1", "localhost/pause:1", "localhost/wanted:1"] {
        assert!(left.iter().any(|image| image == name), "{name} in {left:?}");
    }
    site.take("uses.yaml");
    site.take("wants.yaml");
    site.wait_empty();
    agent.kill();
    let mut cri = Cri::connect(&site.runtime).expect("it listens");
    for name in made {
        let image = ImageSpec { image: format!("localhost/{name}:1"), ..ImageSpec::default() };
        let _ = cri.call(&RemoveImageRequest { image: Some(image) });
    }
    // The other tests need their images again.
    world.containerd.import_images();
}

/// An image with its own configuration, and so its own id.
fn own_image(world: &World, name: &str) {
    let dir = world.socket().parent().expect("it is in a folder").join(format!("own-{name}"));
    fs::create_dir_all(&dir).expect("a folder of ours");
    let archive = archive(&dir, name);
    world.containerd.import(&archive);
    fs::remove_dir_all(&dir).expect("it is ours");
}

/// A docker-archive of one empty layer.
fn archive(dir: &std::path::Path, name: &str) -> PathBuf {
    use crate::support::containerd::run;
    use std::process::Command;
    fs::write(dir.join("name"), name).expect("a file of ours");
    let tar = |to: &str, files: &[&str]| {
        run(Command::new("tar")
            .arg("--create")
            .arg("--directory")
            .arg(dir)
            .arg("--file")
            .arg(dir.join(to))
            .args(files));
    };
    tar("layer.tar", &["name"]);
    let sum = run(Command::new("sha256sum").arg(dir.join("layer.tar")));
    let sum = sum.split(' ').next().expect("a sum");
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = format!(
        r#"{{"architecture":"{machine}","os":"linux","config":{{"Cmd":["/{name}"]}},
            "rootfs":{{"type":"layers","diff_ids":["sha256:{sum}"]}}}}"#
    );
    fs::write(dir.join("config.json"), config).expect("a file of ours");
    let list = format!(
        r#"[{{"Config":"config.json","RepoTags":["localhost/{name}:1"],"Layers":["layer.tar"]}}]"#
    );
    fs::write(dir.join("manifest.json"), list).expect("a file of ours");
    tar("image.tar", &["manifest.json", "config.json", "layer.tar"]);
    dir.join("image.tar")
}

/// By the end of its name.
fn is_kind(name: &str, kind: &str) -> bool {
    name.as_bytes().ends_with(kind.as_bytes())
}

/// Everything that the container wrote, over all its logs, the oldest first.
fn written(site: &Site, pod: &Pod) -> Result<Vec<u64>, String> {
    let current = site.log_file(pod, "main", 0);
    let folder = current.parent().expect("it has one");
    let mut names: Vec<String> = entries(folder);
    names.retain(|name| !is_kind(name, ".tmp"));
    // `0.log` is the newest.
    names.sort_by_key(|name| (name == "0.log", name.clone()));
    let mut numbers = Vec::new();
    for name in &names {
        let path = folder.join(name);
        let bytes = if is_kind(name, ".gz") {
            let unpacked = std::process::Command::new("gzip")
                .args(["--decompress", "--stdout"])
                .arg(&path)
                .output()
                .map_err(|error| error.to_string())?;
            if !unpacked.status.success() {
                return Err(format!("{name}: {}", String::from_utf8_lossy(&unpacked.stderr)));
            }
            unpacked.stdout
        } else {
            fs::read(&path).map_err(|error| format!("{name}: {error}"))?
        };
        let text = String::from_utf8_lossy(&bytes);
        numbers
            .extend(text.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()));
    }
    Ok(numbers)
}

fn a_log_is_rotated_while_it_is_written_and_no_line_is_lost_or_doubled(world: &World) {
    let site = world.site("garbage-rotation");
    let policy = "containerLogMaxSize: 64Ki\ncontainerLogMaxFiles: 200\n\
                  containerLogMonitorInterval: 3s\n";
    site.set("", &format!("{KEEP_ALL}{policy}"));
    let agent = site.start();
    let script = "    command: [sh, -c, 'trap \"exit 0\" TERM; n=0; while [ $n -lt 60000 ]; do \
                  n=$((n+1)); echo line number $n; [ $((n % 200)) -ne 0 ] || sleep 0.05; done; \
                  sleep 100000 & wait']\n";
    site.put("writes.yaml", &manifest("writes", "  hostNetwork: true\n", script));
    let pod = site.wait_running("writes");
    let folder = site.log_file(&pod, "main", 0).parent().expect("it has one").to_owned();
    let packed = |names: &[String]| names.iter().filter(|name| is_kind(name, ".gz")).count();
    let wait_rotated = |count: usize| {
        until_in(crate::support::wait::BOUND * 2, "the log is rotated and compressed", || {
            let names = entries(&folder);
            if packed(&names) >= count { Ok(()) } else { Err(format!("{names:?}")) }
        });
    };
    wait_rotated(1);
    // The next agent continues where this one was killed.
    agent.kill();
    let _agent = site.start();
    wait_rotated(3);
    let last = 60_000;
    until_in(crate::support::wait::BOUND * 2, "all is written", || {
        let numbers = written(&site, &pod)?;
        match numbers.last() {
            Some(&number) if number == last => Ok(()),
            other => Err(format!("{other:?} of {}", numbers.len())),
        }
    });
    let numbers = until("every line is there once", || {
        // Read again where a compression was under way.
        let numbers = written(&site, &pod)?;
        if numbers.len() as u64 == last { Ok(numbers) } else { Err(numbers.len().to_string()) }
    });
    assert!(numbers.iter().copied().eq(1..=last), "in order, each once");
    site.take("writes.yaml");
    site.wait_empty();
}
