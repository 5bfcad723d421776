//! An upgrade of edged by a job of its cloud: our controller, `edged-run`, a registry, and the real
//! edged, which takes the next one out of an image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use edged::wire::oci::sha256;
use nix::sys::signal::Signal;
use serde_json::json;

use super::World;
use super::support::agent::{NODE, Site, binary};
use super::support::containerd::run;
use super::support::controller::{self, Cloud};
use super::support::registry::Registry;
use super::support::wait::until;
use super::support::{guard, process, top};

crate::tests!(an_upgrade_by_a_job_is_kept_if_it_holds_and_left_if_it_does_not);

/// `edged-run` with the flags of a site, and its slots.
struct Keeper {
    child: Child,
    home: PathBuf,
}

impl Keeper {
    fn start(site: &Site, key: &Path) -> Self {
        let home = site.dir.join("home");
        let edged = site.command();
        let flags: Vec<_> = edged.get_args().skip(1).map(|it| it.to_string_lossy()).collect();
        let log = fs::File::create(site.dir.join("edged.log")).expect("a file of ours");
        let child = Command::new("sh")
            .arg(top().join("config/init/edged-run"))
            .env("EDGED_DEFAULTS", "/nowhere")
            .env("EDGED_HOME", &home)
            .env("EDGED_RUN", site.dir.join("run"))
            .env("EDGED_FACTORY", binary())
            .env("EDGED_FLAGS", flags.join(" "))
            .env("EDGED_LOG", "stderr")
            .env("EDGED_TRIAL_S", "3")
            .env("EDGED_RELEASE_KEY", key)
            .env("EDGED_MEMORY_KB", "unlimited")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("there is a shell");
        guard::keep(guard::Left::Process(child.id()));
        Self { child, home }
    }

    fn current(&self) -> String {
        fs::read_to_string(self.home.join("current")).unwrap_or_default().trim().to_owned()
    }

    fn is_trusted(&self) -> bool {
        !self.home.join("trial").exists()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        process::signal(self.child.id(), Signal::SIGTERM);
        let _ = self.child.wait();
        guard::gone(&guard::Left::Process(self.child.id()));
    }
}

fn release(args: &[&str], files: &[&Path]) {
    run(Command::new(top().join("scripts/release")).args(args).args(files));
}

/// An image `localhost/NAME:v9.9.9` in `folder`, with this program and its signature.
fn image(folder: &Path, name: &str, program: &[u8], key: &Path) {
    let work = folder.with_file_name(format!("make-{name}"));
    fs::create_dir_all(&work).expect("a folder of ours");
    fs::write(work.join("edged"), program).expect("a file of ours");
    release(&["--sign"], &[key, &work.join("edged")]);
    let tar = |from: &Path, to: &Path, files: &[&str]| {
        run(Command::new("tar")
            .arg("--create")
            .arg("--file")
            .arg(to)
            .arg("--directory")
            .arg(from)
            .args(files));
    };
    tar(&work, &work.join("layer.tar"), &["./edged", "./edged.sig"]);
    let layer = fs::read(work.join("layer.tar")).expect("just made");
    let architecture = edged::io::sys::image_machine().architecture;
    let config = json!({
        "architecture": architecture, "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [sha256(&layer)]},
    });
    let manifest = json!([{
        "Config": "config.json", "RepoTags": [format!("localhost/{name}:v9.9.9")],
        "Layers": ["layer.tar"],
    }]);
    for (file, text) in [("config.json", config), ("manifest.json", manifest)] {
        fs::write(work.join(file), text.to_string()).expect("a file of ours");
    }
    fs::create_dir_all(folder).expect("a folder of ours");
    let files = ["manifest.json", "config.json", "layer.tar"];
    tar(&work, &folder.join(format!("{name}.tar")), &files);
}

/// Runs `edgecontroller`. Returns the exit code and what it prints.
fn edgecontroller(cloud: &Cloud, command: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let server = format!("unix://{}", cloud.socket().display());
    let mut process = Command::new(controller::binary());
    process.arg(command).args(arguments).args(["--server", &server]);
    let output = process.output().expect("it was built beside this test");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// Runs `edged upgrade confirm`.
fn confirm(site: &Site) -> std::process::Output {
    let socket = format!("unix://{}", site.root.join("edged.sock").display());
    let mut command = Command::new(binary());
    command.args(["upgrade", "confirm", "--server", &socket]).output().expect("it is built")
}

/// The node does jobs, and takes upgrades from these repositories.
fn with_jobs(site: &Site, repositories: &[String]) {
    let path = site.config.as_ref().expect("it was welcomed");
    let mut text = fs::read_to_string(path).expect("a file of ours");
    let list = repositories.join("\", \"");
    let lines = ["  taskManager:", "    enable: true", "    upgradeRepositories: [\"", &list];
    text.push_str(&lines.join("\n").replace("[\"\n", "[\""));
    text.push_str("\"]\n");
    fs::write(path, text).expect("a file of ours");
}

fn an_upgrade_by_a_job_is_kept_if_it_holds_and_left_if_it_does_not(world: &World) {
    let cloud = Cloud::new(world.folder("upgrade-cloud"));
    let controller = cloud.start();
    let mut site = world.site("upgrade");
    let key = site.dir.join("release.key");
    release(&["--new-key"], &[&key]);
    let images = site.dir.join("images");
    // Another program by its bytes, and the same by what it does.
    let own = fs::read(binary()).expect("it was built beside this test");
    image(&images, "holds", &[&own[..], b"\0"].concat(), &key);
    let broken = "#!/bin/sh\ncase $1 in version) echo edged 9.9.9 ;; *) exit 1 ;; esac\n";
    image(&images, "ends", broken.as_bytes(), &key);
    let registry = Registry::start(&images);
    let host = registry.address;

    cloud.welcome(&mut site, cloud.hub);
    with_jobs(&site, &["holds", "ends"].map(|name| format!("{host}/localhost/{name}")));
    let keeper = Keeper::start(&site, &key.with_extension("key.pub"));
    until("the node is ready", || {
        let (_, text) = edgecontroller(&cloud, "get", &["nodes"]);
        if text.contains(" Ready ") { Ok(()) } else { Err(format!("{text}\n{}", site.log_tail())) }
    });
    let logs = || format!("{}\n{}", cloud.log_tail(), site.log_tail());
    let upgrade = |name: &str, more: &[&str]| {
        let image = format!("{host}/localhost/{name}");
        let mut arguments = vec![NODE, "--image", &image, "--version", "v9.9.9", "--name", name];
        arguments.extend(more);
        edgecontroller(&cloud, "upgrade", &arguments)
    };

    let (code, text) = upgrade("ends", &[]);
    assert_eq!(code, Some(1), "{text}\n{}", logs());
    assert!(text.contains("Upgrade failed"), "{text}\n{}", logs());
    assert!(text.contains("did not hold") && text.contains("back on v"), "{text}\n{}", logs());
    assert_eq!(keeper.current(), "", "the first edged runs again");

    // Somebody at the node confirms the next one.
    let (code, text) = upgrade("holds", &["--confirm", "--no-wait"]);
    assert_eq!(code, Some(0), "{text}");
    until("the upgrade waits for somebody", || {
        let status = site.status()?;
        let text = status["nodeJobs"].to_string();
        if text.contains("edged upgrade confirm") { Ok(()) } else { Err(text) }
    });
    let done = confirm(&site);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "nodeupgradejob/holds is confirmed\n");
    until("the job is done", || {
        let (_, text) = edgecontroller(&cloud, "get", &["jobs"]);
        let row = text.lines().find(|line| line.starts_with("holds")).unwrap_or_default();
        if row.contains("Completed") { Ok(()) } else { Err(format!("{text}\n{}", logs())) }
    });
    assert!(keeper.is_trusted(), "it is reported once its trial is won");
    let slot = keeper.home.join(keeper.current()).join("edged");
    assert_eq!(fs::read(slot).expect("a slot").len(), own.len() + 1);
    assert!(!confirm(&site).status.success(), "nothing waits");
    drop(keeper);
    controller.terminate();
    for name in ["holds", "ends"] {
        world.containerd.untag(&format!("{host}/localhost/{name}:v9.9.9"));
    }
}
