//! The harness of the stories: the core, a clock, and a simulated runtime.

use std::collections::BTreeSet;

pub use crate::named::name;
use crate::named::{is_list, shared};
use edged::agent::event::{Action, CallId, Event, Out, ProbeId, Severity};
use edged::agent::time::{Instant, Now, Wall};
use edged::agent::{Agent, Config, Machine};
use edged::limits;
use edged::model::cri::{
    CallError, CgroupDriver, Code, Container, ContainerId, ContainerState, ContainerStatus, Exec,
    Image, ImageUser, Network, Reply, Request, RuntimeStatus, Sandbox, SandboxId, SandboxStatus,
    Version,
};
use edged::model::error::Refusal;
use edged::model::housekeeping::{HousekeepingCall, Measures, StoredImage};
use edged::model::job::{JobError, JobSpec, LastWords};
use edged::model::manifest::{File, Folder};
use edged::model::map::Map;
use edged::model::net::{Finding, Query};
use edged::model::pod::{Pod, SOURCE};
use edged::model::probe::ProbeResults;
#[cfg(feature = "streams")]
use edged::model::stream::{StreamAnswer, StreamId};

use crate::node::{Taken, is_of_the_node};

pub struct Harness {
    pub agent: Agent,
    pub now: Now,
    out: Out,
    /// Requested and not yet answered.
    pub open: Vec<(CallId, Request)>,
    /// All calls by operation, without lists.
    pub trace: Vec<String>,
    pub cancelled: Vec<CallId>,
    /// Queries over the network that are not yet answered.
    pub queries: Vec<(ProbeId, Query)>,
    pub events: Vec<String>,
    /// The field paths of the pods' events.
    pub fields: BTreeSet<String>,
    /// The kinds of the events' objects.
    pub kinds: BTreeSet<&'static str>,
    /// The last probe results that the agent saved.
    pub saved_results: Option<Map<ContainerId, ProbeResults>>,
    /// The objects that lists contain.
    pub sandboxes: Vec<Sandbox>,
    pub containers: Vec<Container>,
    pub exit_codes: Vec<(Box<str>, i32)>,
    pub images: Vec<&'static str>,
    /// The answers to the steps of an upgrade; the last one is given again and again.
    #[cfg(feature = "node-jobs")]
    pub upgrade: std::cell::RefCell<std::collections::VecDeque<edged::model::job::UpgradeReply>>,
    /// The default user of images.
    pub image_user: ImageUser,
    /// The runtime's version and status.
    pub runtime: RuntimeStatus,
    /// The network of the sandbox that was created last.
    network: Network,
    /// The termination message of ended containers.
    pub last_words: String,
    /// Requests for termination messages.
    pub reads: Vec<LastWords>,
    /// The requested jobs.
    pub specs: Vec<JobSpec>,
    pub exited: bool,
    /// The tables of Services that were given out.
    #[cfg(feature = "services")]
    pub services: Vec<edged::agent::services::Table>,
    /// How often the watchdog was fed.
    #[cfg(feature = "watchdog")]
    pub watchdog_feeds: u32,
    /// Requests to the link and the store.
    #[cfg(feature = "cloud")]
    pub cloud: Vec<Action>,
    /// The answers to people.
    #[cfg(feature = "streams")]
    pub people: Vec<(StreamId, StreamAnswer)>,
    /// The log lines.
    pub log: Vec<String>,
    /// Those of them that are warnings or errors.
    pub warnings: Vec<String>,
    /// The runtime's cgroup driver; `None`: the call is not supported.
    driver: Option<CgroupDriver>,
    /// No cgroup can be created or removed.
    pub bad_cgroups: bool,
    /// The runtime has an event stream.
    pub evented: bool,
    /// Logs can be created and not removed.
    pub read_only: bool,
    /// The number of jobs so far, without those of the node.
    pub jobs: u32,
    /// The images of the runtime, and the measurements of the machine.
    pub stored: Vec<StoredImage>,
    pub machine: Measures,
    pub taken: Taken,
    /// The jobs about volumes.
    pub volume_jobs: Vec<String>,
    /// Jobs about this volume fail.
    pub bad_volume: Option<&'static str>,
    /// Jobs of the node.
    pub node_jobs: Vec<JobSpec>,
    pub reopening: Option<CallId>,
    /// The newest attempt with a log, of any container.
    pub newest_log: Option<u32>,
    /// The number of ids given out.
    pub made: u32,
}

/// Duration of a job.
fn job_ms(spec: &JobSpec) -> u64 {
    #[cfg(feature = "cloud")]
    if matches!(spec, JobSpec::Enrol { .. }) {
        return limits::ENROL_MS;
    }
    let _ = spec;
    limits::JOB_DEADLINE_MS
}

pub use super::props::{MAIN, START, UID, container, pod, sandbox};

const WALL: i64 = 1_800_000_000_000;

impl Harness {
    /// The agent has booted, the runtime is up and ready; no pod is desired yet.
    pub fn new() -> Self {
        Self::with_stream(false)
    }

    /// As [`Harness::new`], for a runtime with or without an event stream.
    pub fn with_stream(evented: bool) -> Self {
        let mut harness = Self::booted(|_| ());
        harness.evented = evented;
        harness.greet();
        harness
    }

    /// As [`Harness::new`], for an agent with other settings.
    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut harness = Self::booted(change);
        harness.greet();
        harness
    }

    /// As [`Harness::with`], for a runtime that reports this driver, or none.
    pub fn booted_with(
        driver: impl Into<Option<CgroupDriver>>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut harness = Self::booted(change);
        harness.driver = driver.into();
        harness.greet();
        harness
    }

    /// As [`Harness::with`], for a runtime that leaves some requests unanswered.
    pub fn hiding(change: impl FnOnce(&mut Config), taken: Taken) -> Self {
        let mut harness = Self::booted(change);
        harness.taken = taken;
        harness.greet();
        harness
    }

    /// As [`Harness::with`], for a runtime with an event stream: the agent wakes rarely.
    pub fn streaming(change: impl FnOnce(&mut Config)) -> Self {
        let mut harness = Self::booted(change);
        harness.evented = true;
        harness.greet();
        harness
    }

    fn greet(&mut self) {
        self.deliver(Event::Addresses(vec!["192.0.2.1".to_owned()]));
        self.deliver(Event::RuntimeUp);
    }

    fn booted(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            node_name: "gw".to_owned(),
            root: "/var/lib/kubelet".to_owned(),
            pod_logs: "/var/log/pods".to_owned(),
            machine: Machine {
                memory_bytes: 1 << 30,
                huge_pages: [(2 << 20, 64 << 20)].into(),
                cpu_milli: 2000,
                kernel: (6, 1),
                ..Machine::default()
            },
            pods_max: 110,
            crash_backoff_max_ms: 300_000,
            ..Config::default()
        };
        change(&mut config);
        let now = Now { boot: Instant(1_000), wall: Some(Wall(WALL)) };
        Self {
            agent: Agent::boot(config, now, 1),
            now,
            out: Out::default(),
            open: Vec::new(),
            trace: Vec::new(),
            cancelled: Vec::new(),
            queries: Vec::new(),
            events: Vec::new(),
            fields: BTreeSet::new(),
            kinds: BTreeSet::new(),
            saved_results: None,
            sandboxes: Vec::new(),
            containers: Vec::new(),
            exit_codes: Vec::new(),
            images: vec!["i:1", "i:2"],
            #[cfg(feature = "node-jobs")]
            upgrade: std::cell::RefCell::default(),
            image_user: ImageUser::Unset,
            runtime: RuntimeStatus::of(Ok(()), Ok(())),
            network: Network::Pod,
            last_words: String::new(),
            reads: Vec::new(),
            specs: Vec::new(),
            exited: false,
            #[cfg(feature = "services")]
            services: Vec::new(),
            #[cfg(feature = "watchdog")]
            watchdog_feeds: 0,
            #[cfg(feature = "cloud")]
            cloud: Vec::new(),
            #[cfg(feature = "streams")]
            people: Vec::new(),
            log: Vec::new(),
            warnings: Vec::new(),
            driver: Some(CgroupDriver::Cgroupfs),
            bad_cgroups: false,
            evented: false,
            read_only: false,
            jobs: 0,
            stored: Vec::new(),
            machine: Measures::default(),
            taken: Taken::default(),
            volume_jobs: Vec::new(),
            bad_volume: None,
            node_jobs: Vec::new(),
            reopening: None,
            newest_log: None,
            made: 0,
        }
    }

    fn image(&self) -> Image {
        let user = self.image_user.clone();
        Image { id: "sha256:1".into(), size: 5, digests: Vec::new(), user }
    }

    /// Delivers one event, then takes one step. Lists and status requests are answered at once; a
    /// relist that something waits for comes after the gap between relists.
    pub fn deliver(&mut self, event: Event) {
        self.agent.handle(self.now, event);
        self.step();
        if self.open_calls().is_empty() {
            self.pass(limits::RELIST_GAP_MAX_MS);
        }
    }

    fn logged(&mut self, severity: Severity, line: String) {
        if matches!(severity, Severity::Warn | Severity::Error) {
            self.warnings.push(line.clone());
        }
        self.log.push(line);
    }

    pub fn step(&mut self) {
        self.agent.step(self.now, &mut self.out);
        let mut learnt = false;
        for action in std::mem::take(&mut self.out.actions) {
            match action {
                Action::Cri { call, request, deadline } => {
                    assert!(deadline > self.now.boot, "{request:?} has no time left");
                    self.record_call(call, request);
                }
                Action::CancelCri(call) => {
                    self.cancelled.push(call);
                    self.open.retain(|(open, _)| *open != call);
                }
                Action::Job { job, spec, deadline } => {
                    assert_eq!(deadline, self.now.boot.plus_ms(job_ms(&spec)), "{spec:?}");
                    if is_of_the_node(&spec) {
                        self.node_jobs.push(spec.clone());
                    } else {
                        self.jobs += 1;
                    }
                    self.specs.push(spec.clone());
                    let makes = matches!(
                        spec,
                        JobSpec::MakePodDirs { .. } | JobSpec::MakeContainerFiles(_)
                    );
                    let fails = self.read_only && !makes;
                    let why = JobError::Failed("Read-only file system".to_owned());
                    let result = if fails { Err(why) } else { self.volume_job(&spec) };
                    learnt |= self.finish_job(job, spec, result);
                }
                Action::KillJob(job) => learnt |= self.kill_job(job),
                Action::Measure(ask) => {
                    let measures = self.measure(&ask);
                    self.agent.handle(self.now, Event::Measured(Box::new(measures)));
                    learnt = true;
                }
                Action::Probe { probe, query, deadline } => {
                    assert!(deadline > self.now.boot, "{query:?} has no time");
                    self.queries.push((probe, query));
                }
                Action::SaveProbeResults(results) => self.saved_results = Some(results),
                Action::CancelProbe(probe) => self.queries.retain(|(open, _)| *open != probe),
                Action::Read { job, message } => learnt |= self.finish_read(job, message),
                Action::RecordedEvent(note) => {
                    self.fields.insert(note.involved_object.field_path.clone());
                    self.kinds.insert(note.involved_object.kind);
                    self.events.push(format!("{} {}", note.reason, note.message));
                }
                Action::Log(severity, line) => self.logged(severity, line),
                Action::Exit => self.exited = true,
                #[cfg(feature = "streams")]
                Action::Stream(id, answer) => self.people.push((id, answer)),
                #[cfg(feature = "services")]
                Action::Services(table) => self.services.push(table),
                #[cfg(feature = "watchdog")]
                Action::Feed => self.watchdog_feeds += 1,
                #[cfg(feature = "cloud")]
                other => self.cloud.push(other),
            }
        }
        let looks = self.open.iter().any(|(_, request)| self.answers(request));
        if looks || learnt {
            self.answer_relists();
            self.step();
        } else if !self.exited && self.agent.wake_at().is_some_and(|at| at <= self.now.boot) {
            panic!("a wake that is not later than now");
        }
    }

    fn record_call(&mut self, call: CallId, request: Request) {
        if !is_list(&request) && request != Request::GetContainerEvents {
            self.trace.push(name(&request));
            assert!(self.trace.len() < 10_000, "the story does not end: {request:?}");
        }
        self.open.push((call, request));
    }

    /// Whether the harness answers the request itself.
    fn answers(&self, request: &Request) -> bool {
        (is_list(request) && !self.taken.hides(request))
            || (*request == Request::GetContainerEvents && !self.evented)
    }

    fn answer_relists(&mut self) {
        let open = std::mem::take(&mut self.open);
        let (looks, rest): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|(_, request)| self.answers(request));
        self.open = rest;
        for (call, request) in looks {
            let reply = match request {
                Request::Version => Reply::Version(Version {
                    runtime_name: "containerd".to_owned(),
                    runtime_version: "1".to_owned(),
                }),
                Request::RuntimeConfig if self.driver.is_some() => Reply::CgroupDriver(self.driver),
                Request::Status => Reply::Status(self.runtime.clone()),
                Request::ListPodSandbox => Reply::Sandboxes(shared(&self.sandboxes)),
                Request::ListContainers => Reply::Containers(shared(&self.containers)),
                Request::HousekeepingCall(housekeeping) => {
                    Reply::HousekeepingCall(self.node_reply(&housekeeping))
                }
                Request::GetContainerEvents | Request::RuntimeConfig => {
                    let message = "unknown method".to_owned();
                    let error = CallError::Refused { code: Code::Unimplemented, message };
                    self.agent.handle(self.now, Event::Cri(call, Err(error)));
                    continue;
                }
                other => panic!("{other:?} is no list"),
            };
            self.agent.handle(self.now, Event::Cri(call, Ok(reply)));
        }
    }

    /// The manifest folder now contains these pods, one per file.
    pub fn manifests(&mut self, pods: &[&str]) {
        self.deliver(Self::folder(pods));
    }

    /// The event for such a folder.
    pub fn folder(pods: &[&str]) -> Event {
        let files = pods.iter().enumerate().map(|(n, json)| File {
            path: format!("/m/{n}").into(),
            changed_ns: 0,
            content: Ok(vec![serde_json::from_str::<Pod>(json).expect("a pod")].into()),
        });
        Event::Manifests(Folder { trouble: None, files: files.collect() })
    }

    /// The manifest of the only pod cannot be read.
    pub fn broken_manifest(&mut self) {
        let refusal = Refusal { line: 1, column: 1, why: "bad".to_owned() };
        let file = File { path: "/m/0".into(), changed_ns: 0, content: Err(refusal) };
        self.deliver(Event::Manifests(Folder { trouble: None, files: vec![file] }));
    }

    /// Answers the only open call, which must have this name, with success.
    #[track_caller]
    pub fn does(&mut self, expected: &str) {
        let (call, request) = self.take(expected);
        let reply = self.perform(&request);
        self.deliver(Event::Cri(call, Ok(reply)));
    }

    #[track_caller]
    pub fn does_all(&mut self, expected: &[&str]) {
        for name in expected {
            self.does(name);
        }
    }

    #[track_caller]
    pub fn refuses(&mut self, expected: &str, code: Code, message: &str) {
        let (call, _) = self.take(expected);
        let error = CallError::Refused { code, message: message.to_owned() };
        self.deliver(Event::Cri(call, Err(error)));
    }

    /// Answers the first open query.
    #[cfg_attr(not(feature = "probes"), expect(dead_code, reason = "nothing asks"))]
    #[track_caller]
    pub fn finds(&mut self, finding: Finding) {
        assert!(!self.queries.is_empty(), "no query is open");
        let (probe, _) = self.queries.remove(0);
        self.deliver(Event::Probe(probe, finding));
    }

    /// Answers an open command with this exit code and output.
    #[cfg_attr(
        not(any(feature = "probes", feature = "streams")),
        expect(dead_code, reason = "nothing asks")
    )]
    #[track_caller]
    pub fn exec(&mut self, expected: &str, exit_code: i32, output: &str) {
        let (call, _) = self.take(&format!("exec_sync {expected}"));
        let errors_at = output.len();
        let is_cut = errors_at >= limits::COMMAND_OUTPUT_BYTES_MAX;
        let exec = Exec { exit_code, output: output.into(), errors_at, is_cut };
        self.deliver(Event::Cri(call, Ok(Reply::Exec(Box::new(exec)))));
    }

    /// Removes the first open call of this name.
    #[track_caller]
    pub fn take(&mut self, expected: &str) -> (CallId, Request) {
        let at = self.open.iter().position(|(_, request)| name(request) == expected);
        let at = at.unwrap_or_else(|| panic!("no {expected} among {:?}", self.open_calls()));
        let (call, request) = self.open.remove(at);
        if matches!(request, Request::HousekeepingCall(HousekeepingCall::ReopenContainerLog(_))) {
            self.reopening = Some(call);
        }
        (call, request)
    }

    /// The names of the open calls.
    pub fn open_calls(&self) -> Vec<String> {
        let open = self.open.iter().filter(|(_, request)| *request != Request::GetContainerEvents);
        open.map(|(_, request)| name(request)).collect()
    }

    /// Performs a request as a runtime does.
    pub fn perform(&mut self, request: &Request) -> Reply {
        match request {
            Request::RunPodSandbox(config) => {
                let id = self.id("s");
                self.network = config.namespaces.network;
                let sandbox = sandbox(&id, config.attempt, true);
                let pod = Some(config.pod.clone());
                let first_user = config.namespaces.users.map(|users| users.first);
                let source = config.annotations.get(SOURCE);
                let source = source.map(|it| it.as_str().into());
                self.sandboxes.push(Sandbox { pod, first_user, source, ..sandbox });
                Reply::Sandbox(SandboxId(id))
            }
            Request::PodSandboxStatus(_) => Reply::SandboxStatus(Box::new(SandboxStatus {
                ready: true,
                created_at: 1,
                network: self.network,
                ips: self.addresses(),
            })),
            Request::StopPodSandbox(id) => {
                for sandbox in self.sandboxes.iter_mut().filter(|sandbox| sandbox.id == *id) {
                    sandbox.ready = false;
                }
                Reply::Done
            }
            Request::RemovePodSandbox(id) => {
                self.sandboxes.retain(|sandbox| sandbox.id != *id);
                Reply::Done
            }
            Request::ImageStatus(image) => {
                let here = self.images.contains(&&**image);
                Reply::Image(here.then(|| Box::new(self.image())))
            }
            Request::PullImage { .. } => Reply::Pulled("sha256:2".into()),
            Request::CreateContainer { sandbox, config, .. } => {
                let id = self.id("c");
                let mut made = container(&id, &config.name, ContainerState::Created);
                made.attempt = config.attempt;
                made.sandbox = sandbox.clone();
                let home = self.sandboxes.iter().find(|home| home.id == *sandbox);
                made.pod.clone_from(&home.expect("created in an existing one").pod);
                made.image = config.image.clone();
                made.image_id = config.image_ref.clone();
                made.hash =
                    Some(config.annotations["io.kubernetes.container.hash"].as_str().into());
                self.containers.push(made);
                Reply::Container(ContainerId(id))
            }
            Request::StartContainer(id) => self.turn(id, ContainerState::Running),
            Request::StopContainer { id, .. } => {
                self.exit_codes.push((id.0.clone(), 137));
                self.turn(id, ContainerState::Exited)
            }
            Request::RemoveContainer(id) => {
                self.containers.retain(|container| container.id != *id);
                Reply::Done
            }
            Request::Task { .. } => Reply::Done,
            Request::ContainerStatus(id) => self.inspect(id),
            Request::HousekeepingCall(HousekeepingCall::RemoveImage(id)) => {
                self.stored.retain(|image| image.id != *id);
                Reply::Done
            }
            other => panic!("{other:?} is answered elsewhere"),
        }
    }

    fn turn(&mut self, id: &ContainerId, state: ContainerState) -> Reply {
        let began_at = self.now.wall.map_or(1, |wall| wall.0 * 1_000_000);
        for container in self.containers.iter_mut().filter(|container| container.id == *id) {
            container.state = state;
            if state == ContainerState::Running {
                container.created_at = began_at;
            }
        }
        Reply::Done
    }

    fn inspect(&self, id: &ContainerId) -> Reply {
        let observed =
            self.containers.iter().find(|observed| observed.id == *id).expect("it is there");
        let exit_code = self.exit_codes.iter().find(|(exited, _)| *exited == id.0);
        let exit_code = exit_code.map_or(0, |(_, code)| *code);
        Reply::ContainerStatus(Box::new(ContainerStatus {
            state: observed.state,
            started_at: observed.created_at.max(WALL * 1_000_000),
            finished_at: if observed.state == ContainerState::Exited {
                WALL * 1_000_001
            } else {
                0
            },
            exit_code,
            reason: "".into(),
            message: "".into(),
            image: observed.image.clone(),
            image_ref: "sha256:1".into(),
            message_file: Some(
                format!("/var/lib/kubelet/pods/{UID}/containers/{}/f", observed.name).into(),
            ),
            message_from_log: false,
        }))
    }

    /// The addresses of a sandbox.
    fn addresses(&self) -> Vec<Box<str>> {
        (self.network == Network::Pod).then(|| "10.0.0.5".into()).into_iter().collect()
    }

    /// The newest instance of a container ends, and a relist finds it.
    pub fn exits(&mut self, name: &str, exit_code: i32) {
        let newest = self.containers.iter_mut().filter(|observed| &*observed.name == name);
        let newest = newest.max_by_key(|observed| observed.attempt).expect("it was made");
        newest.state = ContainerState::Exited;
        self.exit_codes.push((newest.id.0.clone(), exit_code));
        self.pass(1_000);
    }

    fn id(&mut self, kind: &str) -> Box<str> {
        self.made += 1;
        format!("{kind}{}", self.made).into()
    }
}
