//! A container runtime with the rules of real ones, and without processes.
//!
//! It leaves its outputs in [`Outputs`]: effects for the checks, timers for the queue, answers to
//! pending calls. An operation that takes time holds its name from its start, as containerd does,
//! and shows its result at its end.

mod container;
mod exec;
mod image;
mod outage;
mod quirks;
mod sandbox;
#[cfg(feature = "streams")]
mod streaming;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edged::model::cri::{
    self, CallError, Code, ContainerConfig, Reply, Request, RuntimeHandler, RuntimeStatus,
    SandboxConfig,
};

use crate::chance::Chance;
use crate::faults::Faults;
use crate::program::Program;
use crate::rule::judge;
pub use image::Registry;
pub use outage::Left;
pub use quirks::Quirks;
pub use quirks::refused;

/// Identifies one call in the whole run, across the agent's lives.
pub type Serial = u64;
/// The number in a sandbox's id.
pub type SandboxNo = u32;
/// The number in a container's id.
pub type ContainerNo = u32;

/// The runtime.
pub struct Runtime {
    /// Its behaviour.
    pub quirks: Quirks,
    /// All that exist, by number, thus by age.
    pub sandboxes: BTreeMap<SandboxNo, Sandbox>,
    /// All that exist, by number, thus by age.
    pub containers: BTreeMap<ContainerNo, Container>,
    /// Images that are present, and those of the registry.
    pub registry: Registry,
    /// What the condition `NetworkReady` says.
    pub network_ready: bool,
    /// What the condition `RuntimeReady` says.
    pub is_ready: bool,
    /// Before this time every call is refused: the daemon has just started.
    pub ready_at: u64,
    /// Its outputs for the world.
    pub outputs: Outputs,
    is_down: bool,
    names: BTreeMap<String, Holder>,
    operations: BTreeMap<Serial, Operation>,
    numbers: u32,
}

/// A sandbox.
pub struct Sandbox {
    /// As lists show it.
    pub listed: Arc<cri::Sandbox>,
    /// Its address on the pod network, if it has one.
    pub ip: Option<Box<str>>,
    /// On the host's network.
    pub host_network: bool,
    /// Below the root of the logs.
    pub log_directory: String,
    /// The parent of its containers' cgroups; empty: the runtime's choice.
    pub cgroup_parent: String,
    name: String,
}

/// A container.
pub struct Container {
    /// As lists show it.
    pub listed: Arc<cri::Container>,
    /// As its status shows it, without the state.
    pub status: cri::ContainerStatus,
    /// Its sandbox.
    pub sandbox: SandboxNo,
    /// Has a living process, whatever the runtime knows of it.
    pub alive: bool,
    /// The behaviour of its process.
    pub program: Program,
    /// World time.
    pub made_at: u64,
    /// The daemon once lost track of it.
    pub was_unknown: bool,
    /// When its process began, world time.
    pub began_at: u64,
    /// When its process ended, world time.
    pub ended_at: u64,
    /// Below the sandbox's log directory.
    pub log_path: String,
    name: String,
    stops: Vec<Serial>,
    /// Ended while the daemon was down; the state in which the daemon will find it.
    found_ended: bool,
    /// What a failed start has left behind.
    task: Option<Task>,
}

/// Processes of a container that has ended, as far as the CRI shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Waits,
    Killed,
}

/// The holder of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Sandbox(SandboxNo),
    Container(ContainerNo),
    /// An operation that has not ended, or never will: the name is held until this time.
    Operation(Serial),
    Leaked {
        until: u64,
    },
}

/// A call in progress.
enum Operation {
    RunSandbox { config: Box<SandboxConfig>, name: String },
    Create { sandbox: SandboxNo, config: Box<ContainerConfig>, name: String },
    Pull { image: Box<str> },
    Stop(ContainerNo),
    Exec { number: ContainerNo, probes: bool, fails: bool, late: bool },
    Events,
}

/// The current time, as the runtime needs it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// World time, milliseconds.
    pub now: u64,
    /// Wall-clock time as this machine believes it, nanoseconds since 1970.
    pub nanos: i64,
}

/// The result of the start of a call.
pub enum Begun {
    /// Its answer.
    Answer(Result<Reply, CallError>),
    /// It ends by [`Runtime::finish`] after this many milliseconds.
    Takes(u64),
    /// It ends when another event happens.
    Waits,
}

/// The outputs of the runtime.
#[derive(Default)]
pub struct Outputs {
    /// The changes.
    pub effects: Vec<Effect>,
    /// Timers for [`Runtime::fire`], and when they are due.
    pub timers: Vec<(u64, Timer)>,
    /// Answers to pending calls.
    pub answers: Vec<(Serial, Result<Reply, CallError>)>,
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A sandbox exists.
    SandboxMade(SandboxNo),
    /// A sandbox is no longer ready.
    SandboxDown(SandboxNo),
    /// A sandbox is about to be removed.
    SandboxGone(SandboxNo),
    /// A container exists.
    Made(ContainerNo),
    /// Its process runs.
    Started(ContainerNo),
    /// Its log was opened anew.
    Reopened(ContainerNo),
    /// Its process has ended, or could not begin.
    Ended(ContainerNo, End),
    /// A container is about to be removed.
    Gone(ContainerNo),
    /// A container is about to be removed because another one gets its name.
    Displaced(ContainerNo),
}

/// How a process ended, as the runtime reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With 0, and not for lack of memory.
    Well,
    /// In any other way.
    Badly,
}

/// A later event inside the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A process ends by itself.
    Ends(ContainerNo, i32),
    /// The grace period of a stop is over.
    Kill(ContainerNo, Serial),
}

impl Runtime {
    pub fn new(quirks: Quirks, registry: Registry) -> Self {
        Self {
            quirks,
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            registry,
            network_ready: true,
            is_ready: true,
            ready_at: 0,
            outputs: Outputs::default(),
            is_down: false,
            names: BTreeMap::new(),
            operations: BTreeMap::new(),
            numbers: 0,
        }
    }

    /// Takes up a call.
    pub fn begin(
        &mut self,
        clock: Clock,
        serial: Serial,
        request: &Request,
        log_dirs: &BTreeSet<String>,
        world: (&Faults, &mut Chance),
    ) -> Begun {
        let (faults, chance) = world;
        if clock.now < self.ready_at {
            let message = "server is not initialized yet".to_owned();
            return Begun::Answer(Err(refused(Code::Unknown, message)));
        }
        let answer = match request {
            Request::Version => Ok(Reply::Version(cri::Version {
                runtime_name: self.quirks.name.to_owned(),
                runtime_version: self.quirks.version.to_owned(),
            })),
            Request::RuntimeConfig => self.quirks.runtime_config(),
            Request::Status => Ok(Reply::Status(self.status())),
            Request::ListPodSandbox => Ok(Reply::Sandboxes(self.list_sandboxes())),
            Request::ListContainers => Ok(Reply::Containers(self.list_containers())),
            Request::GetContainerEvents => return self.open_events(serial),
            Request::RunPodSandbox(config) => {
                return self.begin_sandbox(clock, serial, config, faults, chance);
            }
            Request::StopPodSandbox(id) => {
                let fails = chance.percent(faults.teardown_fail_pct);
                self.stop_sandbox(clock, &id.0, fails)
            }
            Request::RemovePodSandbox(id) => self.remove_sandbox(clock, &id.0),
            Request::PodSandboxStatus(id) => self.sandbox_status(&id.0),
            Request::CreateContainer { sandbox, config, sandbox_config } => {
                judge!(
                    self.is_made_with(&sandbox.0, sandbox_config),
                    "[sandbox config] {sandbox} was made with another {sandbox_config:?}"
                );
                return self.begin_container(clock, serial, &sandbox.0, config, faults, chance);
            }
            Request::StartContainer(id) => {
                let fails = chance.percent(faults.start_fail_pct);
                self.start_container(clock, &id.0, log_dirs, fails)
            }
            Request::StopContainer { id, grace_s } => {
                return self.stop_container(clock, serial, &id.0, *grace_s);
            }
            Request::RemoveContainer(id) => self.remove_container(clock, &id.0),
            Request::Task { id, end } => self.end_task(&id.0, *end),
            Request::ContainerStatus(id) => self.container_status(&id.0),
            Request::ExecSync { id, command, timeout_s, .. } => {
                return self.begin_exec(serial, (&id.0, command, *timeout_s), (faults, chance));
            }
            Request::ImageStatus(image) => Ok(Reply::Image(self.registry.status(image))),
            Request::HousekeepingCall(housekeeping) => self.housekeeping(housekeeping),
            #[cfg(feature = "streams")]
            Request::Streaming(call) => self.streaming(call),
            Request::PullImage { image, .. } => {
                self.operations.insert(serial, Operation::Pull { image: image.clone() });
                return match self.registry.pull_ms(image, faults, chance) {
                    Some(ms) => Begun::Takes(ms),
                    None => Begun::Waits,
                };
            }
        };
        Begun::Answer(answer)
    }

    /// Ends an operation whose time is over; `None`: it was aborted.
    pub fn finish(
        &mut self,
        clock: Clock,
        serial: Serial,
        world: (&Faults, &mut Chance),
    ) -> Option<Result<Reply, CallError>> {
        let (faults, chance) = world;
        match self.operations.remove(&serial)? {
            Operation::RunSandbox { config, name } => {
                Some(self.finish_sandbox(clock, *config, name, faults, chance))
            }
            Operation::Create { sandbox, config, name } => {
                Some(self.finish_container(clock, sandbox, *config, name))
            }
            Operation::Exec { number, probes, fails, late } => {
                Some(self.finish_exec(clock, number, (probes, fails, late)))
            }
            Operation::Pull { image } => Some(self.registry.pull(&image, faults, chance)),
            Operation::Stop(_) | Operation::Events => panic!("{serial} has no timer"),
        }
    }

    /// The caller of an operation has gone: it is aborted, or goes on without it. Returns whether
    /// it goes on.
    pub fn abandon(&mut self, serial: Serial, chance: &mut Chance) -> bool {
        let goes_on = match self.operations.get(&serial) {
            None | Some(Operation::Events | Operation::Exec { .. }) => false,
            Some(Operation::Stop(_)) => self.quirks.stop_outlives_client,
            Some(_) => chance.percent(40),
        };
        if !goes_on {
            self.abort(serial);
        }
        goes_on
    }

    /// An operation will never end.
    pub fn abort(&mut self, serial: Serial) {
        match self.operations.remove(&serial) {
            Some(Operation::RunSandbox { name, .. } | Operation::Create { name, .. }) => {
                self.names.remove(&name);
            }
            Some(Operation::Stop(number)) => {
                if let Some(container) = self.containers.get_mut(&number) {
                    container.stops.retain(|&stop| stop != serial);
                }
            }
            Some(Operation::Pull { .. } | Operation::Exec { .. } | Operation::Events) | None => {}
        }
    }

    /// A timer has run out.
    pub fn fire(&mut self, clock: Clock, timer: Timer) {
        match timer {
            Timer::Ends(number, code) => self.end(clock, number, code, ""),
            Timer::Kill(number, serial) => {
                let stopping = matches!(self.operations.get(&serial), Some(Operation::Stop(_)));
                if stopping {
                    self.end(clock, number, 137, "");
                }
            }
        }
    }

    /// The open event streams.
    pub fn streams(&self) -> impl Iterator<Item = Serial> {
        let events = |operation: &Operation| matches!(operation, Operation::Events);
        self.operations.iter().filter(move |(_, op)| events(op)).map(|(&serial, _)| serial)
    }

    /// A change in a line.
    pub fn describe(&self, effect: Effect) -> String {
        let (Effect::Made(number) | Effect::Started(number) | Effect::Ended(number, _)) = effect
        else {
            return format!("{effect:?}");
        };
        match self.containers.get(&number) {
            Some(it) => format!("{effect:?} {} exit={}", it.name, it.status.exit_code),
            None => format!("{effect:?}"),
        }
    }

    fn open_events(&mut self, serial: Serial) -> Begun {
        if !self.quirks.events {
            let message = "unknown method GetContainerEvents".to_owned();
            return Begun::Answer(Err(refused(Code::Unimplemented, message)));
        }
        self.operations.insert(serial, Operation::Events);
        Begun::Waits
    }

    fn status(&self) -> RuntimeStatus {
        let condition = |ready: bool, what: &str| {
            if ready { Ok(()) } else { Err(format!("{what}NotReady: out of order")) }
        };
        let ready = condition(self.is_ready, "Runtime");
        let network = condition(self.network_ready, "Network");
        let handler = RuntimeHandler { user_namespaces: true, ..RuntimeHandler::default() };
        RuntimeStatus { handlers: vec![handler], ..RuntimeStatus::of(ready, network) }
    }

    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// The current holder of a name.
    fn holder(&mut self, now: u64, name: &str) -> Option<Holder> {
        match self.names.get(name) {
            Some(Holder::Leaked { until }) if *until <= now => {
                self.names.remove(name);
                None
            }
            held => held.copied(),
        }
    }
}

/// The number in an id: `c17` → 17.
pub fn number_of(id: &str) -> u32 {
    let digits = id.get(1..).unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("[ids] {id:?} is no id of this runtime"))
}
