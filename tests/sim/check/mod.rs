//! The rules, and the true state by which they are judged.
//!
//! The true state is kept apart from the agent: what the agent received, what it requested, and
//! what happened in the runtime. Each rule has a name in brackets, with which the report of a
//! failing seed begins.
//!
//! | when | file |
//! |---|---|
//! | the agent requests something | `requests.rs`, `stops.rs` |
//! | something changes in the runtime | `effects.rs` |
//! | the agent has taken a step | `statuses.rs`, `admission.rs`, `evict.rs` |
//! | the faults are over | `crate::ends` |

mod admission;
mod calls;
mod cloud;
mod effects;
pub mod events;
pub mod evict;
mod garbage;
mod instances;
mod observation;
mod pods;
pub mod probes;
mod reported;
mod requests;
mod statuses;
mod stops;
mod watchdog;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use edged::agent::Config;
use edged::agent::event::JobId;
use edged::agent::image::Settings;
use edged::model::job::ContainerFiles;
use edged::model::pod::{self as api, RestartPolicy};

use crate::rule::judge;
use crate::runtime::{ContainerNo, SandboxNo};

/// Six containers that crash as fast as possible need half of it.
const REQUESTS_A_MINUTE_MAX: u32 = 800;

/// The state of the rules, in parts: each owns its fields, and answers or judges.
pub struct Check {
    /// The node's addresses as the agent received them.
    pub addresses: Vec<String>,
    pods: pods::Pods,
    /// Garbage collection.
    pub garbage: garbage::Garbage,
    cloud: cloud::Cloud,
    /// Eviction.
    pub evict: evict::Evictions,
    pub instances: instances::Instances,
    manifests: events::Manifests,
    /// Requested files of containers, and files that are made and not used yet.
    files_requested: BTreeMap<JobId, ContainerFiles>,
    files_made: BTreeSet<(Box<str>, Box<str>, u32)>,
    calls: calls::Calls,
    connection: calls::Connection,
    pub relist: calls::Relist,
    last_job: JobId,
    /// Pods whose status may be visible.
    watched: Vec<usize>,
    /// Pods that were removed since the last step.
    newly_gone: Vec<usize>,
    review: statuses::Review,
    backoff_max_ms: u64,
    probed: probes::Probed,
    pub watchdog: watchdog::Watchdog,
    /// The number of pods that the node admits.
    pods_max: usize,
    /// When this life of the agent began.
    life_began_at: u64,
    pulls: Settings,
}

/// The true state of one pod.
pub struct Pod {
    pub uid: Box<str>,
    /// Its manifest as the agent last received it; `None`: no source wants it, as far as the agent
    /// knows.
    pub desired: Option<Rc<api::Pod>>,
    /// The last manifest, in this life.
    spec_was: Option<Rc<api::Pod>>,
    /// When it was delivered, if that was the first delivery of a source in this life.
    delivered_first: Option<u64>,
    /// When it was delivered, or began again, in this life.
    pub delivered_at: u64,
    /// When it was delivered for the first time in any life.
    first_delivered_at: u64,
    /// When the agent took a step while no source wanted it.
    pub gone_at: Option<u64>,
    /// It came back after that: the old run must end first.
    pub came_back: bool,
    /// Living processes.
    pub alive: u32,
    /// Sandboxes that are ready.
    pub ready_sandboxes: u32,
    /// All its sandboxes.
    pub sandboxes: u32,
    /// It came from the cloud.
    pub of_cloud: bool,
    /// The stored state says that it has ended, whatever is left in the runtime.
    pub ended_before: bool,
    /// The cloud has requested its end in this life.
    cloud_ends: bool,
    /// Its end was reported to the cloud.
    over: bool,
    /// The store that had it was lost while it ran, and it was not delivered since.
    unstored: bool,
    /// The agent began a life in which it could not know the pod: nothing of it was in the runtime.
    pub forgotten: bool,
    /// Something of it was removed behind the agent's back.
    pub lost: bool,
    /// When it last changed in the runtime.
    pub changed_at: u64,
    /// When the agent last requested a change of it.
    pub requested_at: u64,
    /// The requests for it in the minute that began then.
    minute: (u64, u32),
    /// When the agent last requested a stop of something of it.
    pub stop_requested_at: u64,
    /// When its sandboxes were last not as they should be.
    sandbox_trouble_at: Option<u64>,
    pub observation: observation::Observation,
    slots: Vec<Slot>,
    reported: reported::Reported,
    /// The longest grace period of all its manifests, milliseconds.
    grace_ms_max: u64,
    /// When its end was first requested, and the grace period that was left then, milliseconds.
    ending: Option<(u64, u64)>,
}

/// One container of a pod's spec.
#[derive(Default)]
pub struct Slot {
    name: Box<str>,
    alive: u32,
    /// The sandbox in which it last ended with success, as an init container must.
    done_in: Option<SandboxNo>,
    /// The sandbox in which it last ran.
    ran_in: Option<SandboxNo>,
    last_end: Option<End>,
    /// An instance of it ended in this run, or could not be started.
    has_ended: bool,
    backoff: Option<Backoff>,
    /// The highest attempt number in this run.
    attempt_max: u32,
    /// Attempts that were requested in this life, and when the last one was.
    requested: Vec<u32>,
    requested_at: u64,
    /// Instances that were stopped to be restarted, whatever the restart policy: the spec changed,
    /// or a probe failed.
    to_restart: Vec<ContainerNo>,
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

/// The role of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the main ones.
    Init,
    /// Starts before the main ones and runs beside them.
    Sidecar,
    /// A regular container.
    Main,
}

impl Check {
    pub fn new(config: &Config, sample_every: u64) -> Self {
        Self {
            addresses: Vec::new(),
            pods: pods::Pods::default(),
            garbage: garbage::Garbage::new(&config.housekeeping),
            cloud: cloud::Cloud::default(),
            evict: evict::Evictions::new(&config.housekeeping.eviction),
            instances: instances::Instances::default(),
            manifests: events::Manifests::default(),
            files_requested: BTreeMap::new(),
            files_made: BTreeSet::new(),
            calls: calls::Calls::new(),
            connection: calls::Connection::default(),
            relist: calls::Relist::default(),
            last_job: JobId(0),
            watched: Vec::new(),
            newly_gone: Vec::new(),
            review: statuses::Review::new(sample_every),
            backoff_max_ms: config.crash_backoff_max_ms,
            probed: probes::Probed::default(),
            watchdog: watchdog::Watchdog::new(config),
            pods_max: config.pods_max,
            life_began_at: 0,
            pulls: config.pulls,
        }
    }

    /// The agent begins a new life.
    pub fn begin_life(&mut self, now: u64) {
        self.life_began_at = now;
        self.watchdog.begin_life();
        self.addresses.clear();
        self.garbage.begin_life();
        self.evict.begin_life();
        self.manifests = events::Manifests::default();
        self.cloud = cloud::Cloud::default();
        self.files_requested.clear();
        self.files_made.clear();
        self.calls = calls::Calls::new();
        self.connection = calls::Connection::default();
        self.relist.begin_life();
        self.last_job = JobId(0);
        self.newly_gone.clear();
        self.review.begin_life();
        self.probed.begin_life();
        self.watched.clear();
        for pod in self.pods.iter_mut() {
            pod.begin_life();
        }
        self.instances.begin_life();
    }

    /// The longest back-off of a crashing container.
    pub fn backoff_max_ms(&self) -> u64 {
        self.backoff_max_ms
    }

    /// The pod with this uid, if it was ever known.
    pub fn pod(&self, uid: &str) -> Option<&Pod> {
        self.pods.find(uid).map(|at| &self.pods[at])
    }
}

impl Pod {
    fn new(uid: &str) -> Self {
        Self {
            uid: uid.into(),
            desired: None,
            spec_was: None,
            delivered_first: None,
            delivered_at: 0,
            first_delivered_at: u64::MAX,
            gone_at: None,
            came_back: false,
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
            requested_at: 0,
            minute: (0, 0),
            stop_requested_at: 0,
            sandbox_trouble_at: None,
            observation: observation::Observation::default(),
            slots: Vec::new(),
            reported: reported::Reported::default(),
            grace_ms_max: 0,
            ending: None,
        }
    }

    fn begin_life(&mut self) {
        self.desired = None;
        self.spec_was = None;
        self.ended_before = false;
        self.cloud_ends = false;
        self.gone_at = None;
        self.came_back = false;
        self.forgotten |= self.sandboxes == 0;
        self.observation = observation::Observation::default();
        self.reported.begin_life();
        self.ending = None;
        for slot in &mut self.slots {
            slot.backoff = None;
            slot.to_restart.clear();
            slot.requested.clear();
        }
    }

    fn slot_at(&mut self, name: &str) -> usize {
        if let Some(at) = self.slots.iter().position(|slot| &*slot.name == name) {
            return at;
        }
        self.slots.push(Slot { name: name.into(), ..Slot::default() });
        self.slots.len() - 1
    }

    /// Counts a request about the pod: many of them in a minute are a loop.
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

    /// The role of a container by the manifest; `None`: the manifest does not have it.
    pub fn role(&self, name: &str) -> Option<Role> {
        role(&self.desired.as_ref()?.spec, name)
    }

    /// Whether an instance of the container ended in this run, or could not be started.
    pub fn has_ended(&self, name: &str) -> bool {
        self.slots.iter().any(|slot| &*slot.name == name && slot.has_ended)
    }

    /// The highest attempt number of a container in this run.
    pub fn attempt_max(&self, name: &str) -> u32 {
        let slot = self.slots.iter().find(|slot| &*slot.name == name);
        slot.map_or(0, |slot| slot.attempt_max)
    }

    /// Whether an instance was stopped to be restarted.
    pub fn is_to_restart(&self, number: ContainerNo) -> bool {
        self.slots.iter().any(|slot| slot.to_restart.contains(&number))
    }

    /// The container's part of the manifest.
    fn spec_of(&self, name: &str) -> Option<&api::Container> {
        let spec = &self.desired.as_ref()?.spec;
        spec.init_containers.iter().chain(&spec.containers).find(|it| &*it.name == name)
    }
}

/// The role of a container by the spec.
pub fn role(spec: &api::PodSpec, name: &str) -> Option<Role> {
    if spec.containers.iter().any(|main| &*main.name == name) {
        return Some(Role::Main);
    }
    let init = spec.init_containers.iter().find(|init| &*init.name == name)?;
    let sidecar = init.restart_policy == Some(RestartPolicy::Always);
    Some(if sidecar { Role::Sidecar } else { Role::Init })
}
