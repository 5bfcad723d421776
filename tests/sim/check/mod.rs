//! The rules, and the truth they are judged by.
//!
//! The truth is kept apart from the agent: what it was told, what it asked for, and what became of
//! the runtime. Each rule has a name in brackets, which the report of a failing seed begins with.
//!
//! | when | file |
//! |---|---|
//! | the agent asks for something | `requests.rs`, `stops.rs` |
//! | something changes in the runtime | `effects.rs` |
//! | the agent has taken a step | `statuses.rs`, `admission.rs`, `evict.rs` |
//! | the faults are over | `crate::ends` |

mod admission;
mod effects;
pub mod evict;
mod garbage;
pub mod probes;
mod requests;
mod sky;
mod statuses;
mod stops;
pub mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use edged::agent::Config;
use edged::agent::event::{Action, CallId, JobId};
use edged::agent::image::Settings;
use edged::agent::time::Instant;
use edged::model::cri::PodRef;
use edged::model::job::ContainerFiles;
use edged::model::pod::{self as api, RestartPolicy};
use edged::model::status::{Phase, PodStatus};
use edged::model::time::Timestamp;

use crate::rule::judge;
use crate::runtime::{ContainerNo, SandboxNo};

/// Six containers that crash as fast as they may ask for half of it.
const REQUESTS_A_MINUTE_MAX: u32 = 800;

/// The rules' memory.
pub struct Check {
    /// The node's addresses as the agent was told.
    pub addresses: Vec<String>,
    /// Every pod that was ever heard of.
    pub pods: Vec<Pod>,
    /// What the node parts with.
    pub garbage: garbage::Garbage,
    cloud: sky::Cloud,
    /// Who has to go.
    pub evict: evict::Evictions,
    by_uid: BTreeMap<Box<str>, usize>,
    /// Pods by namespace and name.
    by_name: BTreeMap<(Box<str>, Box<str>), Vec<usize>>,
    sandboxes: BTreeMap<SandboxNo, Sandbox>,
    containers: BTreeMap<ContainerNo, Container>,
    /// The pod of each container that ever was; `None`: no pod's.
    owners: BTreeMap<ContainerNo, Option<usize>>,
    /// What each manifest said when it was last good, in this life.
    files: BTreeMap<Box<str>, Vec<Rc<api::Pod>>>,
    /// Files of containers that were asked for, and those that are made and not used yet.
    files_asked: BTreeMap<JobId, ContainerFiles>,
    files_made: BTreeSet<(Box<str>, Box<str>, u32)>,
    /// The folder was told in this life.
    delivered: bool,
    /// The connection as it was told in this life.
    connected: bool,
    /// When the runtime last said that it is ready.
    ready_told_at: Option<u64>,
    open: BTreeMap<CallId, Open>,
    counts: [usize; 7],
    last_call: CallId,
    last_job: JobId,
    look: Look,
    /// When the last look was asked for that came whole.
    pub looked_at: u64,
    /// Pods whose status may be seen.
    watched: Vec<usize>,
    /// Pods that are gone since the last step.
    newly_gone: Vec<usize>,
    /// The agent's revision that was judged last; `None`: what it is judged by is another since.
    judged: Option<u64>,
    /// The agent's revision when its statuses were last looked at, in this life.
    revision: Option<u64>,
    /// Its steps, and in which of them all statuses are looked at.
    steps: u64,
    sample_every: u64,
    backoff_max_ms: u64,
    probed: probes::Probed,
    /// So often the machine's watchdog is to be fed, if there is one; and when it was, in this
    /// life, by the agent's clock.
    meals_ms: Option<u64>,
    fed_at: Option<Instant>,
    /// So many pods the node takes.
    pods_max: usize,
    /// When this life of the agent began.
    born_at: u64,
    pulls: Settings,
}

/// One pod as it really is.
pub struct Pod {
    /// Its uid.
    pub uid: Box<str>,
    /// Its manifest as the agent was last told; `None`: no source wants it, as far as it knows.
    pub told: Option<Rc<api::Pod>>,
    /// The last one, in this life.
    spec_was: Option<Rc<api::Pod>>,
    /// When it was told, if that was a source's first word in this life.
    told_first: Option<u64>,
    /// When it was told of, or begun anew, in this life.
    pub told_at: u64,
    /// When it was told of in whichever life.
    first_told_at: u64,
    /// The agent took a step while no source wanted it.
    pub gone_at: Option<u64>,
    /// It came back after that: the old run has to end first.
    pub again: bool,
    /// Living processes.
    pub alive: u32,
    /// Sandboxes that are ready.
    pub ready_sandboxes: u32,
    /// All its sandboxes.
    pub sandboxes: u32,
    /// It came from a cloud.
    pub of_cloud: bool,
    /// What was kept of it says that it has ended, whatever is left in the runtime.
    pub ended_before: bool,
    /// In this life the cloud was heard to want its end.
    cloud_ends: bool,
    /// The cloud was told that it has ended.
    over: bool,
    /// The store that knew of it was lost while it was there, and it was not told of since.
    unstored: bool,
    /// The agent began a life that could not know of it: nothing of it was in the runtime.
    pub forgotten: bool,
    /// Something of it was taken away behind the agent's back.
    pub lost: bool,
    /// The last change of it in the runtime.
    pub changed_at: u64,
    /// The last request that was to change something of it.
    pub asked_at: u64,
    /// What was asked for it in the minute that began then.
    minute: (u64, u32),
    /// The last such request that was to stop something.
    pub stop_asked_at: u64,
    /// The last time that its sandboxes were not as they should be.
    sandbox_trouble_at: Option<u64>,
    /// As of when the agent knows it: the time of the last look that it must have believed.
    known_at: u64,
    /// When the look was asked for that tells what is known.
    known_asked_at: u64,
    last_call_ended_at: u64,
    /// The last call that brought no answer: what was known before does not count.
    last_failed_at: u64,
    open: Vec<(CallId, Kind)>,
    /// Questions under way about an image that it has, and when the last of them was over.
    image_questions: usize,
    image_answered_at: u64,
    slots: Vec<Slot>,
    /// What its status said, in this life and run.
    said: Said,
    /// Its status as it was last seen in this life, and the status revision.
    shown: Option<(u64, PodStatus)>,
    /// The longest grace that a manifest of it ever named, milliseconds.
    grace_ms_max: u64,
    /// When its end was first asked for, and the grace that was left then, milliseconds.
    ending: Option<(u64, u64)>,
}

/// One container of a pod's spec.
#[derive(Default)]
pub struct Slot {
    name: Box<str>,
    alive: u32,
    /// The sandbox in which it last ended with success, as an init container has to.
    done_in: Option<SandboxNo>,
    /// The sandbox in which it last ran.
    ran_in: Option<SandboxNo>,
    last_end: Option<End>,
    backoff: Option<Backoff>,
    /// The highest number of an instance in this run.
    attempt_max: u32,
    /// Attempts that were asked for in this life.
    asked: Vec<u32>,
    /// Instances that were stopped to be run again, whatever the restart policy: the spec changed,
    /// or a probe failed.
    to_run_again: Vec<ContainerNo>,
}

#[derive(Clone)]
struct End {
    number: ContainerNo,
    at: u64,
    image: Box<str>,
}

#[derive(Clone, Copy)]
struct Backoff {
    delay_ms: u64,
    used_at: u64,
}

/// What the status of a pod said.
#[derive(Default)]
struct Said {
    phase: Option<Phase>,
    terminal: Option<Phase>,
    /// When that was said first.
    ended_at: u64,
    /// Refused because the node holds no more.
    no_room: bool,
    /// Gone for the node's sake, or not taken in for it.
    evicted: bool,
    start_time: Option<Timestamp>,
    /// The same, by an earlier life.
    started_before: Option<Timestamp>,
    restarts: Vec<u32>,
}

/// One sandbox as it really is.
struct Sandbox {
    /// `None`: no pod's.
    pod: Option<usize>,
    made_at: u64,
    down_at: Option<u64>,
    has_ip: bool,
    seen_at: Option<Timestamp>,
}

/// One container as it really is.
struct Container {
    /// The pod and its slot; `None`: no pod's.
    place: Option<(usize, usize)>,
    sandbox: SandboxNo,
    image: Box<str>,
    alive: bool,
    began_at: u64,
    /// The last grace it was asked to stop with, in this life.
    grace_s: Option<i64>,
}

struct Open {
    class: Class,
    pod: Option<usize>,
    kind: Kind,
    asked_at: u64,
    /// Pods that the question about an image may be for.
    has_image: Vec<usize>,
}

/// Calls with a bound of their own, as `edged::limits` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Look,
    Stop,
    Pull,
    Work,
    Exec,
    Hook,
    HousekeepingCall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ListSandboxes,
    ListContainers,
    Status,
    StopContainer,
    Pull,
    ImageStatus,
    Change,
    Question,
    Exec,
    Other,
}

/// The two lists that are believed together.
#[derive(Clone, Copy, Default)]
struct Look {
    sandboxes: Half,
    containers: Half,
}

#[derive(Clone, Copy, Default)]
struct Half {
    asked: Option<(CallId, u64)>,
    taken_at: u64,
    /// When the list that arrived last was asked for and taken.
    told: Option<(u64, u64)>,
}

/// What a container is to its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the main ones.
    Init,
    /// Begins before the main ones and runs beside them.
    Sidecar,
    /// What the pod is for.
    Main,
}

impl Check {
    /// Knows nothing.
    pub fn new(config: &Config, sample_every: u64) -> Self {
        Self {
            addresses: Vec::new(),
            pods: Vec::new(),
            garbage: garbage::Garbage::new(&config.housekeeping),
            cloud: sky::Cloud::default(),
            evict: evict::Evictions::new(&config.housekeeping.eviction),
            by_uid: BTreeMap::new(),
            by_name: BTreeMap::new(),
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            owners: BTreeMap::new(),
            files: BTreeMap::new(),
            files_asked: BTreeMap::new(),
            files_made: BTreeSet::new(),
            delivered: false,
            connected: false,
            ready_told_at: None,
            open: BTreeMap::new(),
            counts: [0; 7],
            last_call: CallId(0),
            last_job: JobId(0),
            look: Look::default(),
            looked_at: 0,
            watched: Vec::new(),
            newly_gone: Vec::new(),
            judged: None,
            revision: None,
            steps: 0,
            sample_every,
            backoff_max_ms: config.crash_backoff_max_ms,
            probed: probes::Probed::default(),
            meals_ms: meals_ms(config),
            fed_at: None,
            pods_max: config.pods_max,
            born_at: 0,
            pulls: config.pulls,
        }
    }

    /// The agent begins a new life and knows nothing.
    pub fn be_born(&mut self, now: u64) {
        self.born_at = now;
        self.fed_at = None;
        self.addresses.clear();
        self.garbage.be_born();
        self.evict.be_born();
        self.files.clear();
        self.cloud = sky::Cloud::default();
        self.files_asked.clear();
        self.files_made.clear();
        self.delivered = false;
        self.connected = false;
        self.ready_told_at = None;
        self.open.clear();
        self.counts = [0; 7];
        self.last_call = CallId(0);
        self.last_job = JobId(0);
        self.look = Look::default();
        self.newly_gone.clear();
        self.judged = None;
        self.revision = None;
        self.probed.be_born();
        self.watched.clear();
        for pod in &mut self.pods {
            pod.be_born();
        }
        for container in self.containers.values_mut() {
            container.grace_s = None;
        }
    }

    /// The agent has taken a step: the machine's watchdog is fed when that is due, for all that the
    /// agent asks for is answered in time here.
    pub fn meal(&mut self, actions: &[Action], now: Instant, leaving: bool) {
        let Some(each_ms) = self.meals_ms else { return };
        #[cfg(feature = "watchdog")]
        let fed = actions.iter().any(|action| matches!(action, Action::Feed));
        #[cfg(not(feature = "watchdog"))]
        let fed = actions.is_empty();
        let due = self.fed_at.is_none_or(|at| now >= at.plus_ms(each_ms));
        judge!(
            fed || leaving || !due || cfg!(not(feature = "watchdog")),
            "[watchdog] fed last at {:?}, and not at {now:?}",
            self.fed_at
        );
        if fed {
            self.fed_at = Some(now);
        }
    }

    /// The longest wait of a crashing container.
    pub fn backoff_max_ms(&self) -> u64 {
        self.backoff_max_ms
    }

    /// The pod with this uid, if it was ever heard of.
    pub fn pod(&self, uid: &str) -> Option<&Pod> {
        self.by_uid.get(uid).map(|&at| &self.pods[at])
    }

    fn pod_at(&mut self, pod: &PodRef) -> usize {
        if let Some(&at) = self.by_uid.get(&pod.uid) {
            return at;
        }
        let at = self.pods.len();
        self.pods.push(Pod::new(&pod.uid));
        self.by_uid.insert(pod.uid.clone(), at);
        let name = (pod.namespace.clone(), pod.name.clone());
        self.by_name.entry(name).or_default().push(at);
        at
    }
}

impl Pod {
    fn new(uid: &str) -> Self {
        Self {
            uid: uid.into(),
            told: None,
            spec_was: None,
            told_first: None,
            told_at: 0,
            first_told_at: u64::MAX,
            gone_at: None,
            again: false,
            alive: 0,
            ready_sandboxes: 0,
            sandboxes: 0,
            of_cloud: false,
            ended_before: false,
            cloud_ends: false,
            over: false,
            unstored: false,
            forgotten: false,
            lost: false,
            changed_at: 0,
            asked_at: 0,
            minute: (0, 0),
            stop_asked_at: 0,
            sandbox_trouble_at: None,
            known_at: 0,
            known_asked_at: 0,
            last_call_ended_at: 0,
            last_failed_at: 0,
            open: Vec::new(),
            image_questions: 0,
            image_answered_at: 0,
            slots: Vec::new(),
            said: Said::default(),
            shown: None,
            grace_ms_max: 0,
            ending: None,
        }
    }

    fn be_born(&mut self) {
        self.told = None;
        self.spec_was = None;
        self.ended_before = false;
        self.cloud_ends = false;
        self.gone_at = None;
        self.again = false;
        self.forgotten |= self.sandboxes == 0;
        self.known_at = 0;
        self.known_asked_at = 0;
        self.last_call_ended_at = 0;
        self.last_failed_at = 0;
        self.open.clear();
        self.image_questions = 0;
        self.image_answered_at = 0;
        self.shown = None;
        self.unsay();
        self.ending = None;
        for slot in &mut self.slots {
            slot.backoff = None;
            slot.to_run_again.clear();
            slot.asked.clear();
        }
    }

    fn slot_at(&mut self, name: &str) -> usize {
        if let Some(at) = self.slots.iter().position(|slot| &*slot.name == name) {
            return at;
        }
        self.slots.push(Slot { name: name.into(), ..Slot::default() });
        self.slots.len() - 1
    }

    /// One more request about the pod: many of them in a minute are a loop.
    fn count_request(&mut self, now: u64) {
        if now - self.minute.0 >= 60_000 {
            self.minute = (now, 0);
        }
        self.minute.1 += 1;
        judge!(
            self.minute.1 <= REQUESTS_A_MINUTE_MAX,
            "[retries] pod {}: {REQUESTS_A_MINUTE_MAX} requests within a minute",
            self.uid
        );
    }

    /// What a container is by the manifest; `None`: the manifest does not know it.
    pub fn role(&self, name: &str) -> Option<Role> {
        role(&self.told.as_ref()?.spec, name)
    }

    /// Whether a stop of one of its containers is under way.
    pub fn is_stopping(&self) -> bool {
        self.open.iter().any(|&(_, kind)| kind == Kind::StopContainer)
    }

    /// Whether the answer to something asked for it is still due: it may be found lost by then.
    pub fn is_waited_for(&self) -> bool {
        !self.open.is_empty()
    }

    /// The highest number that an instance of a container had in this run.
    pub fn attempt_max(&self, name: &str) -> u32 {
        let slot = self.slots.iter().find(|slot| &*slot.name == name);
        slot.map_or(0, |slot| slot.attempt_max)
    }

    /// Whether an instance was stopped to be run again.
    pub fn is_to_run_again(&self, number: ContainerNo) -> bool {
        self.slots.iter().any(|slot| slot.to_run_again.contains(&number))
    }

    /// The container's part of the manifest.
    fn spec_of(&self, name: &str) -> Option<&api::Container> {
        let spec = &self.told.as_ref()?.spec;
        spec.init_containers.iter().chain(&spec.containers).find(|it| &*it.name == name)
    }
}

/// What a container is by the spec.
pub fn role(spec: &api::PodSpec, name: &str) -> Option<Role> {
    if spec.containers.iter().any(|main| &*main.name == name) {
        return Some(Role::Main);
    }
    let init = spec.init_containers.iter().find(|init| &*init.name == name)?;
    let sidecar = init.restart_policy == Some(RestartPolicy::Always);
    Some(if sidecar { Role::Sidecar } else { Role::Init })
}

/// Milliseconds from one meal of the watchdog to the next; `None`: nobody feeds it.
#[cfg(feature = "watchdog")]
fn meals_ms(config: &Config) -> Option<u64> {
    let timeout_ms = u64::from(config.watchdog.timeout_s) * 1_000;
    let is_fed = !config.watchdog.device.is_empty();
    is_fed.then_some(timeout_ms / edged::limits::WATCHDOG_PINGS)
}

#[cfg(not(feature = "watchdog"))]
fn meals_ms(_: &Config) -> Option<u64> {
    None
}
