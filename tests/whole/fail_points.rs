//! The built-in runtime is killed at each of its steps in turn (`io::builtin::fail_point`), by
//! itself or with all that depends on it; its client goes on as an agent would, and reaches what it
//! wants. Exit codes are kept, no line is missing from a log, and in the end nothing is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use edged::io::builtin::fail_point::{FAIL, FAILED};
use edged::wire::cri::container::{
    Container, ContainerConfig, ContainerMetadata, ContainerState, ContainerStatus,
    ContainerStatusRequest, CreateContainerRequest, LinuxContainerConfig, ListContainersRequest,
    RemoveContainerRequest, StartContainerRequest, StopContainerRequest,
};
use edged::wire::cri::image::ImageSpec;
use edged::wire::cri::sandbox::{
    LinuxPodSandboxConfig, ListPodSandboxRequest, PodSandbox, PodSandboxConfig, PodSandboxMetadata,
    PodSandboxState, PortMapping, RemovePodSandboxRequest, RunPodSandboxRequest,
    StopPodSandboxRequest,
};
use edged::wire::cri::security::{
    LinuxContainerSecurityContext, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption,
};
use edged::wire::cri::{Request, Rpc};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::World;
use crate::builtin::monitors;
use crate::support::containerd::{Containerd, Kind};
use crate::support::cri::{Cri, Refusal};
use crate::support::wait::until_in;
use crate::support::{cgroup, guard, port, process, program};

crate::tests!(
    a_server_that_is_killed_at_any_step_goes_on_where_it_was,
    a_power_cut_at_any_step_leaves_what_can_be_removed,
    a_job_that_is_killed_at_any_step_is_done_again,
    a_monitor_that_is_killed_at_any_step_loses_nothing,
    an_oci_runtime_that_is_killed_at_any_call_leaves_what_can_be_removed,
);

/// What else ends when the server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum With {
    Nothing,
    Monitors,
    Power,
}

/// With its monitors at every other step. A run takes one half, the next run the other.
fn a_server_that_is_killed_at_any_step_goes_on_where_it_was(world: &World) {
    let first = turn();
    let mut course = Course::new(world, "fs", With::Nothing, Network::Host);
    walk(&mut course, |course, step| {
        course.with = if (step + first).is_multiple_of(2) { With::Monitors } else { With::Nothing };
        format!("server {step}")
    });
}

/// A run takes every other step.
fn a_power_cut_at_any_step_leaves_what_can_be_removed(world: &World) {
    let first = turn() % 2 + 1;
    let mut course = Course::new(world, "fp", With::Power, Network::Pod);
    walk(&mut course, |_, at| format!("server {}", 2 * at - first % 2));
}

/// `SIM_FIRST`, which `make test` takes from the commit.
fn turn() -> usize {
    let first = std::env::var("SIM_FIRST").ok().and_then(|text| text.parse().ok());
    first.unwrap_or(0)
}

fn a_job_that_is_killed_at_any_step_is_done_again(world: &World) {
    let mut course = Course::new(world, "fj", With::Nothing, Network::Pod);
    walk(&mut course, |_, step| format!("job {step}"));
}

fn a_monitor_that_is_killed_at_any_step_loses_nothing(world: &World) {
    let mut course = Course::new(world, "fo", With::Nothing, Network::Host);
    walk(&mut course, |_, step| format!("monitor {step}"));
}

fn an_oci_runtime_that_is_killed_at_any_call_leaves_what_can_be_removed(world: &World) {
    let mut course = Course::new(world, "fc", With::Nothing, Network::Host);
    course.wrap_oci();
    for how in ["before", "midway", "after"] {
        walk(&mut course, |_, call| format!("oci {call} {how}"));
    }
}

/// Tries the first step, the second and so on, until the whole course has fewer. `FAIL_STEP=n`
/// tries the n-th alone.
fn walk(course: &mut Course, order: impl Fn(&mut Course, usize) -> String) {
    if let Some(step) = std::env::var("FAIL_STEP").ok().and_then(|text| text.parse().ok()) {
        let order = order(course, step);
        course.order(&order);
        course.run();
        println!("{order}: {:?}", course.failed());
        return;
    }
    let mut steps = Vec::new();
    loop {
        let order = order(course, steps.len() + 1);
        course.order(&order);
        course.run();
        match course.failed() {
            Some(step) => steps.push(step),
            None => break,
        }
    }
    let few = steps.len() < STEPS_MIN;
    assert!(!few, "there is no way to do it in so few steps: {steps:?}");
}

/// An OCI runtime has three calls: create, start, delete.
const STEPS_MIN: usize = 3;
/// How often a call is made until its effect must be there.
const TRIES_MAX: usize = 60;
const LINES_MIN: usize = 3;
/// What the container ends with when it is told to.
pub(crate) const CODE: i32 = 42;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Host,
    /// With a port of the host.
    Pod,
}

/// A pod with one container: run, stopped and removed.
pub(crate) struct Course {
    pub(crate) runtime: Containerd,
    with: With,
    network: Network,
    host_port: u16,
    logs: PathBuf,
    /// How many sandboxes and containers there were.
    attempts: u32,
    /// The order of this round.
    order: String,
    /// What the last call was refused with.
    pub(crate) refusal: String,
    /// The container may have ended when nobody was there who could learn its exit code.
    is_unseen: bool,
    /// The log of the container that was seen to run.
    log: PathBuf,
}

impl Course {
    pub(crate) fn new(world: &World, name: &str, with: With, network: Network) -> Self {
        let dir = world.folder(name);
        let runtime = Containerd::start_kind(dir.join("c"), Kind::Builtin);
        let logs = dir.join("logs");
        fs::create_dir_all(&logs).expect("a folder of ours");
        Self {
            runtime,
            with,
            network,
            host_port: port::free_port(),
            logs,
            attempts: 0,
            order: String::new(),
            refusal: String::new(),
            is_unseen: false,
            log: PathBuf::new(),
        }
    }

    fn rt(&self, name: &str) -> PathBuf {
        self.runtime.dir().join("rt").join(name)
    }

    /// From now on the server calls a script in the place of crun or runc.
    fn wrap_oci(&mut self) {
        let log = fs::read_to_string(self.runtime.log()).expect("it has started");
        let real = log.rsplit_once(" oci=").expect("it says so").1.split(' ').next();
        let real = Path::new(real.expect("a path"));
        let script = self.runtime.dir().join(real.file_name().expect("a program"));
        let text = WRAPPER.replace("REAL", &real.to_string_lossy());
        program::write(&script, text.as_bytes());
        self.runtime.kill();
        self.runtime.use_oci(script);
        self.runtime.start_daemon();
    }

    fn order(&mut self, order: &str) {
        order.clone_into(&mut self.order);
        self.is_unseen = false;
        fs::write(self.rt(FAIL), order).expect("RUN is ours");
    }

    /// The step at which something was killed. `None`: the course has no such step.
    fn failed(&self) -> Option<String> {
        let _ = fs::remove_file(self.rt(FAIL));
        let file = self.runtime.dir().join(FAILED);
        let step = fs::read_to_string(&file).ok().or_else(|| {
            let text = fs::read_to_string(self.rt(FAILED)).ok();
            let _ = fs::remove_file(self.rt(FAILED));
            text
        });
        let _ = fs::remove_file(file);
        step
    }

    /// For messages.
    fn place(&self) -> String {
        let step = fs::read_to_string(self.rt(FAILED)).unwrap_or_default();
        let Self { order, with, refusal, .. } = self;
        format!("{order:?} ({step}), with {with:?}; the last refusal is {refusal:?}")
    }

    pub(crate) fn run(&mut self) {
        let id = self.start();
        let log = self.log.clone();
        until_in(Duration::from_secs(20), "the container writes", || match numbers(&log).len() {
            LINES_MIN.. => Ok(()),
            count => Err(format!("{count} lines; {}", self.place())),
        });
        self.stop(&id);
        self.remove(&id);
        self.until_nothing_is_left();
    }

    /// One call. `None`: no answer; a server that is dead is started again.
    pub(crate) fn call<R: Request>(&mut self, request: &R) -> Option<R::Reply> {
        let refusal = match Cri::connect(&self.runtime.socket()).map(|mut cri| cri.call(request)) {
            Ok(Ok(reply)) => return Some(reply),
            Ok(Err(refusal)) => refusal,
            Err(error) => Refusal { code: None, why: error.to_string() },
        };
        self.refusal = format!("{refusal:?}");
        if refusal.code.is_some() {
            return None;
        }
        until_in(Duration::from_secs(10), "a server that does not answer is dead", || {
            if process::lives(self.runtime.pid()) { Err(self.place()) } else { Ok(()) }
        });
        match self.with {
            With::Nothing => {}
            With::Monitors => {
                // It was told to end, and init is its parent by now.
                self.is_unseen |= R::RPC == Rpc::StopContainer;
                monitors(self.runtime.dir()).into_iter().for_each(end);
            }
            With::Power => {
                // It is in RUN.
                let _ = fs::copy(self.rt(FAILED), self.runtime.dir().join(FAILED));
                self.cut();
                self.is_unseen = true;
            }
        }
        self.runtime.start_daemon();
        None
    }

    /// Ends everything, and empties RUN; what is on the disk stays.
    fn cut(&self) {
        let dir = self.runtime.dir();
        let folders = || cgroup::all(&self.cgroup()).into_iter();
        until_in(Duration::from_secs(10), "everything has ended", || {
            let mut left = programs(dir);
            for folder in
                folders().flat_map(|all| names(&all).into_iter().map(move |one| all.join(one)))
            {
                let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
                left.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
            }
            left.iter().copied().for_each(end);
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
        for folder in folders() {
            for name in names(&folder) {
                let _ = fs::remove_dir(folder.join(name));
            }
        }
        guard::unmount_below(&dir.join("rt"));
        fs::remove_dir_all(dir.join("rt")).expect("nothing is mounted in it");
    }

    pub(crate) fn lists(&mut self) -> Option<(Vec<PodSandbox>, Vec<Container>)> {
        let sandboxes = self.call(&ListPodSandboxRequest { filter: None })?.items;
        let containers = self.call(&ListContainersRequest { filter: None })?.containers;
        Some((sandboxes, containers))
    }

    /// Until the container runs: in three calls, or else by looking what there is before each.
    fn start(&mut self) -> String {
        let begun = self.run_sandbox().and_then(|sandbox| self.create(&sandbox));
        if let Some(container_id) = begun {
            self.call(&StartContainerRequest { container_id });
        }
        for _ in 0..TRIES_MAX {
            let Some((sandboxes, containers)) = self.lists() else { continue };
            if let Some(id) = self.further(&sandboxes, &containers) {
                return id;
            }
        }
        panic!("the container does not run: {}", self.place());
    }

    /// One call that brings it further. The container, if it runs.
    fn further(&mut self, sandboxes: &[PodSandbox], containers: &[Container]) -> Option<String> {
        if let Some(old) = sandboxes.iter().find(|one| one.state() != PodSandboxState::Ready) {
            self.call(&RemovePodSandboxRequest { pod_sandbox_id: old.id.clone() });
            return None;
        }
        let Some(container) = containers.first() else {
            let _ = match sandboxes.first() {
                Some(sandbox) => self.create(&sandbox.id),
                None => self.run_sandbox(),
            };
            return None;
        };
        let container_id = container.id.clone();
        match container.state() {
            ContainerState::Running => {
                let metadata = container.metadata.clone().unwrap_or_default();
                self.log = self.logs.join(format!("{}.log", metadata.attempt));
                return Some(container_id);
            }
            ContainerState::Created => {
                self.call(&StartContainerRequest { container_id });
            }
            ContainerState::Exited | ContainerState::Unknown => {
                self.call(&RemoveContainerRequest { container_id });
            }
        }
        None
    }

    pub(crate) fn run_sandbox(&mut self) -> Option<String> {
        self.attempts += 1;
        let config = Some(self.sandbox());
        let request = RunPodSandboxRequest { config, runtime_handler: String::new() };
        Some(self.call(&request)?.pod_sandbox_id)
    }

    pub(crate) fn create(&mut self, sandbox: &str) -> Option<String> {
        self.attempts += 1;
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(self.container()),
            sandbox_config: Some(self.sandbox()),
        };
        Some(self.call(&request)?.container_id)
    }

    /// Ends it in order, and looks at how it has ended.
    fn stop(&mut self, id: &str) {
        for _ in 0..TRIES_MAX {
            let stop = StopContainerRequest { container_id: id.to_owned(), timeout: 30 };
            if self.call(&stop).is_none() {
                continue;
            }
            let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
            let Some(status) = self.call(&request).and_then(|reply| reply.status) else { continue };
            return self.check_end(&status);
        }
        panic!("the container does not stop: {}", self.place());
    }

    fn check_end(&self, status: &ContainerStatus) {
        // That it was started need not have been on the disk.
        if self.is_unseen && status.state == ContainerState::Created as i32 {
            return;
        }
        assert_eq!(status.state, ContainerState::Exited as i32, "{}", self.place());
        let is_known = status.exit_code == CODE || self.is_unseen && status.exit_code == 255;
        assert!(is_known, "{}: {}: {}", self.place(), status.exit_code, status.message);
        assert!(status.finished_at >= status.started_at, "{}: {status:?}", self.place());
        let numbers = numbers(&self.log);
        let expected: Vec<u64> = (0..numbers.len() as u64).collect();
        assert_eq!(numbers, expected, "{}: lines are missing or doubled", self.place());
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.call(&RemoveContainerRequest { container_id: id.to_owned() });
        for _ in 0..TRIES_MAX {
            let Some((sandboxes, containers)) = self.lists() else { continue };
            if let Some(container) = containers.first() {
                self.call(&RemoveContainerRequest { container_id: container.id.clone() });
            } else if let Some(sandbox) = sandboxes.first() {
                let pod_sandbox_id = sandbox.id.clone();
                let stop = StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
                if sandbox.state() != PodSandboxState::Ready || self.call(&stop).is_some() {
                    self.call(&RemovePodSandboxRequest { pod_sandbox_id });
                }
            } else {
                return;
            }
        }
        panic!("it is not removed: {}", self.place());
    }

    pub(crate) fn until_nothing_is_left(&mut self) {
        until_in(Duration::from_secs(20), "nothing is left", || {
            // Also restarts a server that has died after its last answer.
            self.lists().ok_or_else(|| "no lists".to_owned())?;
            match self.left() {
                left if left.is_empty() => Ok(()),
                left => Err(format!("{}: {left:?}", self.place())),
            }
        });
    }

    fn left(&self) -> Vec<String> {
        let dir = self.runtime.dir();
        let mut left: Vec<String> =
            FOLDERS.iter().flat_map(|name| names(&dir.join(name))).collect();
        let net = fs::read_to_string(dir.join("net")).expect("it has a number");
        let net = net.trim();
        let leases = names(&dir.join("ipam").join(format!("edged{net}")));
        left.extend(leases.into_iter().filter(|name| name.starts_with("10.")));
        left.extend(names(Path::new(&format!("/sys/class/net/edged{net}/brif"))));
        left.extend(self.runtime.pod_mounts());
        left.extend(monitors(dir).into_iter().map(|pid| format!("monitor {pid}")));
        for parent in cgroup::all(&self.cgroup()) {
            let inside = fs::read_dir(&parent).into_iter().flatten().flatten();
            let folders = inside.map(|entry| entry.path()).filter(|path| path.is_dir());
            left.extend(folders.map(|path| path.display().to_string()));
        }
        if self.network == Network::Pod {
            let rules = std::process::Command::new("iptables-save").args(["-t", "nat"]).output();
            let rules =
                String::from_utf8_lossy(&rules.expect("it is installed").stdout).into_owned();
            let own = format!("dport {} ", self.host_port);
            left.extend(rules.lines().filter(|line| line.contains(&own)).map(str::to_owned));
        }
        left
    }

    /// Below that of this run.
    fn cgroup(&self) -> String {
        let name = self.runtime.dir().parent().and_then(Path::file_name).expect("a name");
        format!("fail-{}", name.to_string_lossy())
    }

    fn namespaces(&self) -> NamespaceOption {
        let network = match self.network {
            Network::Host => NamespaceMode::Node,
            Network::Pod => NamespaceMode::Pod,
        };
        NamespaceOption {
            network: network as i32,
            pid: NamespaceMode::Container as i32,
            ..NamespaceOption::default()
        }
    }

    fn sandbox(&self) -> PodSandboxConfig {
        let mapping = PortMapping {
            container_port: 80,
            host_port: self.host_port.into(),
            ..PortMapping::default()
        };
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: "fail".to_owned(),
                uid: "fail-uid".to_owned(),
                namespace: "default".to_owned(),
                attempt: self.attempts,
            }),
            log_directory: self.logs.to_string_lossy().into_owned(),
            port_mappings: match self.network {
                Network::Host => Vec::new(),
                Network::Pod => vec![mapping],
            },
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{}", cgroup::root(), self.cgroup()),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(self.namespaces()),
                    ..LinuxSandboxSecurityContext::default()
                }),
                ..LinuxPodSandboxConfig::default()
            }),
            labels: BTreeMap::new(),
            ..PodSandboxConfig::default()
        }
    }

    fn container(&self) -> ContainerConfig {
        let script = format!(
            "trap 'exit {CODE}' TERM; i=0; while :; do echo line $i; i=$((i+1)); sleep 0.02; done"
        );
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt: self.attempts }),
            image: Some(ImageSpec {
                image: "localhost/edged-demo:1".to_owned(),
                ..ImageSpec::default()
            }),
            command: vec!["/bin/sh".to_owned(), "-c".to_owned(), script],
            log_path: format!("{}.log", self.attempts),
            linux: Some(LinuxContainerConfig {
                security_context: Some(LinuxContainerSecurityContext {
                    namespace_options: Some(self.namespaces()),
                    ..LinuxContainerSecurityContext::default()
                }),
                ..LinuxContainerConfig::default()
            }),
            ..ContainerConfig::default()
        }
    }
}

/// Processes of this runtime: monitors, and calls of the OCI runtime and of plugins.
fn programs(dir: &Path) -> Vec<u32> {
    let rt = format!("{}/rt/", dir.display()).into_bytes();
    let is_one = |pid: &u32| {
        ["cmdline", "environ"].iter().any(|name| {
            let text = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            text.windows(rt.len()).any(|part| part == rt)
        })
    };
    names(Path::new("/proc")).iter().filter_map(|name| name.parse().ok()).filter(is_one).collect()
}

/// It may have ended by itself.
fn end(pid: u32) {
    let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
}

/// Of the runtime, which has nothing in them without a pod.
const FOLDERS: [&str; 7] = ["rt/c", "rt/sb", "rt/oci", "data/c", "data/sb", "data/cni", "data/tmp"];

/// Entries of a folder that may be absent.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn numbers(log: &Path) -> Vec<u64> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let number = |line: &str| line.rsplit_once(" F line ").and_then(|(_, n)| n.parse().ok());
    text.lines().filter_map(number).collect()
}

/// Calls the OCI runtime, and is killed before, during or after one of the calls.
const WRAPPER: &str = r#"#!/bin/sh
run=${2%/oci}
how=
if [ -f "$run/fail" ]; then
    read -r who count how <"$run/fail"
    if [ "$who" != oci ]; then
        how=
    elif [ "$count" -gt 1 ]; then
        echo "oci $((count - 1)) $how" >"$run/fail"
        how=
    else
        rm "$run/fail"
        echo "oci, killed $how: $*" >"$run/failed"
    fi
fi
case $how in
'') exec REAL "$@" ;;
before) kill -KILL $$ ;;
midway)
    REAL "$@" &
    sleep 0.02
    kill -KILL $! $$
    ;;
after)
    REAL "$@"
    kill -KILL $$
    ;;
esac
"#;
