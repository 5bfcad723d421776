//! The runtime and the manifest folder appear late, disappear and return; and objects in the
//! runtime that are not the agent's.

use std::os::unix::fs::symlink;
use std::path::Path;

use edged::wire::cri::sandbox::{
    LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest,
};
use edged::wire::cri::security::{LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption};
use serde_json::Value;

use crate::World;
use crate::support::agent::sleeper;
use crate::support::containerd::{Containerd, Kind, kind};
use crate::support::cri::Cri;
use crate::support::wait::until;
use crate::support::{http, process, runtime_state};

crate::tests![
    pods_live_through_a_restart_of_the_runtime_and_new_ones_start_after_it,
    a_runtime_that_appears_late_is_used_once_it_is_there,
    a_manifest_folder_that_appears_late_is_read_once_it_is_there,
    a_pod_that_no_manifest_names_is_removed_and_strangers_are_left_alone,
    what_stops_the_runtime_removes_the_sockets_of_its_shims,
];

fn pods_live_through_a_restart_of_the_runtime_and_new_ones_start_after_it(world: &World) {
    let site = world.site("runtime-restart");
    let mut agent = site.start();
    let names = ["one", "two", "three"];
    for name in names {
        site.put(&format!("{name}.yaml"), &sleeper(name));
    }
    let before: Vec<_> = names.iter().map(|name| site.wait_running(name)).collect();
    let pids: Vec<u32> = before
        .iter()
        .map(|pod| runtime_state::pid_of(&site.runtime, &pod.container_id("main")))
        .collect();
    world.containerd.kill();
    site.wait_trouble("it is away", Value::is_string);
    // Desired while it cannot be started.
    site.put("new.yaml", &sleeper("new"));
    site.wait("new", "known, and Pending", |pod| pod.phase() == "Pending");
    world.containerd.start_daemon();
    site.wait_running("new");
    assert!(agent.lives(), "{}", site.log_tail());
    for ((name, before), pid) in names.iter().zip(&before).zip(pids) {
        let after = site.wait_running(name);
        assert_eq!(after.container_id("main"), before.container_id("main"), "{name}");
        assert_eq!(after.restarts("main"), 0, "{name}");
        assert!(process::lives(pid), "{name}");
    }
    site.wait_trouble("nothing, it is back", Value::is_null);
    for name in names.iter().chain(&["new"]) {
        site.take(&format!("{name}.yaml"));
    }
    site.wait_empty();
}

fn a_runtime_that_appears_late_is_used_once_it_is_there(world: &World) {
    let mut site = world.site("runtime-late");
    // The built-in runtime's is known by its path.
    let name = if kind() == Kind::Builtin { "rt/sock" } else { "late.sock" };
    site.runtime = site.dir.join(name);
    std::fs::create_dir_all(site.runtime.parent().expect("a folder")).expect("a folder of ours");
    site.put("early.yaml", &sleeper("early"));
    let mut agent = site.start();
    let pod = site.wait("early", "known, and Pending", |pod| pod.phase() == "Pending");
    assert_eq!(pod.waits_for("main"), "ContainerCreating", "{}", pod.0["status"]);
    let names_it = |trouble: &Value| trouble.as_str().is_some_and(|it| it.contains(name));
    site.wait_trouble("it names what is missing", names_it);
    // The agent itself is healthy: a restart of it would not help.
    assert_eq!(http::get(site.api, "/healthz").map(|answer| answer.code).ok(), Some(200));
    assert!(agent.lives());
    symlink(world.socket(), &site.runtime).expect("a link of ours");
    site.wait_running("early");
    site.take("early.yaml");
    site.wait_empty();
}

fn a_manifest_folder_that_appears_late_is_read_once_it_is_there(world: &World) {
    let site = world.site("runtime-folder");
    let away = site.dir.join("away");
    std::fs::rename(&site.manifests, &away).expect("a folder of ours");
    std::fs::write(away.join("one.yaml"), sleeper("one")).expect("a file of ours");
    let mut agent = site.start();
    agent.wait_listening();
    assert!(agent.lives(), "{}", site.log_tail());
    std::fs::rename(&away, &site.manifests).expect("a folder of ours");
    site.wait_running("one");
    site.put("two.yaml", &sleeper("two"));
    site.wait_running("two");
    site.take("one.yaml");
    site.take("two.yaml");
    site.wait_empty();
}

/// A sandbox of another tool.
fn run_sandbox(cri: &mut Cri, name: &str, labels: &[(&str, &str)]) -> String {
    let node = NamespaceOption {
        network: NamespaceMode::Node as i32,
        pid: NamespaceMode::Container as i32,
        ..NamespaceOption::default()
    };
    let security = LinuxSandboxSecurityContext {
        namespace_options: Some(node),
        ..LinuxSandboxSecurityContext::default()
    };
    let config = PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("{name}-uid"),
            namespace: "elsewhere".to_owned(),
            attempt: 0,
        }),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        linux: Some(LinuxPodSandboxConfig {
            security_context: Some(security),
            ..LinuxPodSandboxConfig::default()
        }),
        ..PodSandboxConfig::default()
    };
    let request = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    cri.call(&request).expect("a sandbox").pod_sandbox_id
}

fn a_pod_that_no_manifest_names_is_removed_and_strangers_are_left_alone(world: &World) {
    let site = world.site("runtime-orphans");
    let mut cri = Cri::connect(&site.runtime).expect("it listens");
    let stranger = run_sandbox(&mut cri, "stranger", &[("app", "not of Kubernetes")]);
    let orphan = run_sandbox(
        &mut cri,
        "orphan",
        &[
            ("io.kubernetes.pod.name", "orphan"),
            ("io.kubernetes.pod.namespace", "elsewhere"),
            ("io.kubernetes.pod.uid", "orphan-uid"),
        ],
    );
    let bare = (kind() == Kind::Containerd).then(|| Bare::run(&world.containerd));
    let _agent = site.start();
    site.put("own.yaml", &sleeper("own"));
    site.wait_running("own");
    let gone = || {
        let state = site.runtime_state();
        let left = state.sandboxes.iter().any(|one| one.id == orphan);
        if left { Err(format!("{}\n{}", state.short(), site.log_tail())) } else { Ok(()) }
    };
    until("the orphan is removed", gone);
    // A later one is treated the same.
    let late = run_sandbox(&mut cri, "late", &[("io.kubernetes.pod.uid", "late-uid")]);
    site.take("own.yaml");
    until("the pod is gone", || {
        let state = site.runtime_state();
        let own = state.sandboxes.iter().filter(|one| one.id != stranger && one.id != late).count();
        if own == 0 { Ok(()) } else { Err(state.short()) }
    });
    let state = site.runtime_state();
    let ready: Vec<&str> = state.ready().iter().map(|one| one.id.as_str()).collect();
    assert!(ready.contains(&stranger.as_str()), "{}", state.short());
    if let Some(bare) = bare {
        bare.end();
    }
}

/// A container without a sandbox, which only `ctr` makes.
struct Bare<'a>(&'a Containerd);

impl<'a> Bare<'a> {
    const NAME: &'static str = "edged-whole-bare";

    fn run(containerd: &'a Containerd) -> Self {
        let (image, command) = ("localhost/edged-demo:1", ["sleep", "100000"]);
        let run = ["run", "--detach", "--net-host", image, Self::NAME];
        containerd.ctr(&[&run[..], &command].concat());
        Self(containerd)
    }

    fn runs(&self) -> bool {
        let tasks = self.0.ctr(&["tasks", "ls"]);
        tasks.lines().any(|line| line.starts_with(Self::NAME) && line.contains("RUNNING"))
    }

    fn end(self) {
        assert!(self.runs(), "it was left alone");
        self.0.ctr(&["tasks", "kill", "--signal", "SIGKILL", Self::NAME]);
        until("the bare container has ended", || {
            if self.runs() { Err("it runs".to_owned()) } else { Ok(()) }
        });
        self.0.ctr(&["tasks", "rm", Self::NAME]);
        self.0.ctr(&["containers", "rm", Self::NAME]);
    }
}

/// `scripts/containerd stop`: they are in a folder that all containerds of the machine share.
fn what_stops_the_runtime_removes_the_sockets_of_its_shims(world: &World) {
    let mut cri = Cri::connect(&world.socket()).expect("it listens");
    let id = run_sandbox(&mut cri, "cut", &[("app", "not of Kubernetes")]);
    let bundle = format!("state/io.containerd.runtime.v2.task/k8s.io/{id}");
    let bundle = world.containerd.dir().join(bundle);
    let files = ["address", "bootstrap.json"].map(|name| bundle.join(name));
    let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
    let text = text.expect("the shim's address");
    let hash = text.split_once("/run/containerd/s/").expect("a socket's path").1;
    let end = hash.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(hash.len());
    let socket = Path::new("/run/containerd/s").join(&hash[..end]);
    assert!(socket.exists(), "{}", socket.display());
    world.containerd.cut();
    assert!(!socket.exists(), "{}", socket.display());
    world.containerd.start_daemon();
}
