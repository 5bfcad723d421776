//! One pod: the desired state, the observed state, and the next step between them.
//!
//! ```text
//!  Syncing ──removed│deleted│refused│all done──▶ Terminating
//!                                                    │ a fresh list: nothing runs
//!               no source wants it,                  ▼
//!  Finished ◀── and nothing is left ──────────── Terminated
//! ```
//!
//! Phases only move forward, in [`Pod::enter`]. There is no state per runtime call: the pure
//! function [`next::next`] derives one step from desired × observed × now. After a crash, a lost
//! answer or a restart of the runtime, the pod is listed again and continues from what exists.
//!
//! Intended behaviour: one runtime call at a time, except that several containers are stopped
//! together. A success takes effect in the model at once; a failure requires a new list first
//! (rules R1–R3).
//!
//! If we crash here: the next start reads the manifests and the runtime's lists and recognises the
//! pod by its labels. Back-offs are lost, and so is what was known of removed containers.

mod abandoned_jobs;
pub mod cgroup;
mod class;
pub mod config;
mod config_error;
mod crash_backoff;
mod cri_request;
mod deadline;
pub mod dns;
pub mod env;
mod ephemeral;
mod evicted;
mod facts;
mod files;
pub mod hash;
#[cfg(feature = "probes")]
mod hooks;
#[cfg(not(feature = "probes"))]
#[path = "hooks/absent.rs"]
mod hooks;
mod image;
mod learn;
mod leftover_task;
mod mounts;
pub mod next;
pub mod observed;
mod phase;
#[cfg(feature = "probes")]
mod probe;
#[cfg(not(feature = "probes"))]
#[path = "probe/absent.rs"]
mod probe;
mod resources;
mod retention;
mod retry;
pub mod security;
mod status;
mod step;
mod stopping;
mod tries;
mod verdict;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::calls::Uid;
use super::event::{CallId, JobId};
pub use super::objects::Origin;
use super::requests;
use super::time::{Backoff, Instant, Now};
use crate::model::cri::{Container, ContainerId, PodRef, Sandbox, TaskEnd};
use crate::model::job::JobSpec;
use crate::model::pod as api;
use crate::model::recorded_event::EventType;
use crate::model::status::{PodStatus, Waiting};
use image::{FailedPull, Image};
use observed::Observed;
use volumes::Volumes;

pub use evicted::{DISRUPTED, Eviction, overrules};
pub use learn::Answer;
pub use resources::{burstable_milli, memory_limit, qos_class};
pub use status::{HostAddresses, HostInfo};
pub use step::{PodContext, Step};
pub use stopping::StopReason;
pub use verdict::{Refused, Verdict};

#[derive(Debug)]
pub struct Pod {
    uid: Uid,
    /// Spec as admitted, status as computed.
    api: Box<api::Pod>,
    /// The spec limits the pod's disk usage; read at each step.
    bounds_disk: bool,
    origin: Origin,
    wanted: Wanted,
    phase: Phase,
    /// Set when the pod was refused or failed as a whole.
    verdict: Option<Verdict>,
    /// Set when the node evicted the pod.
    eviction: Option<Eviction>,
    /// Set from [`Phase::Terminating`] on.
    ending: Option<Ending>,
    observed: Observed,
    /// What the current relist has listed of the pod so far.
    listed: Listed,
    /// The runtime must be listed before the next step: at first, and after a failure.
    needs_relist: bool,
    /// The runtime was listed since the last call ended.
    fresh: bool,
    /// The last list was too old and was discarded, and none has come since.
    relist_missed: bool,
    /// All containers of the pod were inspected since the agent's start.
    fully_observed: bool,
    /// Lists with this serial number or a smaller one are too old and are discarded (rule R3).
    stale_relists: u64,
    pending_calls: Vec<PendingCall>,
    #[cfg(feature = "probes")]
    probes: probe::Probes,
    #[cfg(feature = "probes")]
    hooks: hooks::Hooks,
    jobs: BTreeMap<JobId, JobSpec>,
    abandoned: abandoned_jobs::AbandonedJobs,
    log_dirs: LogDirs,
    cgroup: cgroup::Cgroup,
    volumes: Volumes,
    /// The pod has ended, and its directory below the kubelet's root is removed.
    dir_removed: bool,
    /// The pod's runtime handler supports recursive read-only mounts.
    recursive: bool,
    /// Ended containers whose logs are removed.
    logs_removed: Vec<ContainerId>,
    retention: retention::Retention,
    records: BTreeMap<Box<str>, ContainerRecord>,
    /// Failed pulls, by image name.
    pulls: BTreeMap<Box<str>, FailedPull>,
    /// No sandbox is created, stopped or removed before this time.
    retry_at: Option<Instant>,
    /// No logs are removed before this time.
    cleanup_at: Option<Instant>,
    /// Back-off of inspections of a sandbox or a container that the runtime did not answer.
    inspect_backoff: Backoff,
    /// The smallest attempt number of the next sandbox.
    attempt_floor: u32,
    /// How many sandbox names in a row the runtime reported as taken.
    names_taken: u32,
    /// A container whose removal failed, and the action on its task before the next try.
    leftover_task: Option<(ContainerId, Option<TaskEnd>)>,
    /// Started containers whose logs have to be linked.
    logs_to_link: Vec<ContainerId>,
    /// Ended containers whose termination messages have to be read.
    messages_to_read: Vec<ContainerId>,
    /// Termination messages that are being read.
    message_reads: BTreeMap<JobId, ContainerId>,
    /// The last reported reason that blocked the pod.
    last_blocked: Option<Box<str>>,
    /// Events to record at the next step.
    pending_events: Vec<PendingEvent>,
    /// Something changed since `next` was called last.
    needs_plan: bool,
    /// Something changed since the status was computed.
    dirty: bool,
    /// Counts the changes of the status.
    status_revision: u64,
    wake_at: Option<Instant>,
    arrived_at: Instant,
    /// Milliseconds from the pod's start time to its arrival, as soon as both are known.
    active_before_ms: Option<u64>,
    timing: Timing,
}

/// Whether the sources want a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// A source has it.
    Yes,
    /// No source has it.
    No,
    /// It disappeared and came back, from this source: it starts again once the old run has
    /// finished.
    Recreated(Origin, Box<api::Pod>),
}

/// Phases only move forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Containers are started and kept running.
    Syncing,
    /// No container is started any more; running containers are being stopped.
    Terminating,
    /// Nothing runs. The pod is kept for its logs and status while a source wants it; otherwise it
    /// is being removed.
    Terminated,
    /// Nothing is left.
    Finished,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    since: Instant,
    /// It only shrinks, never below 1.
    grace_s: i64,
}

/// A runtime call under way.
#[derive(Clone, Debug)]
struct PendingCall {
    call: CallId,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogDirs {
    Unknown,
    Made,
    /// Creating them failed; no retry before this time.
    Failed {
        retry_at: Instant,
    },
    /// The pod has ended, and its log directories are removed.
    Removed,
}

/// State of one container of the spec beyond what the runtime reports.
#[derive(Clone, Debug, Default)]
struct ContainerRecord {
    /// Why it does not run: `state.waiting`. Cleared by the next start.
    failure: Option<Waiting>,
    /// No retry before this time.
    hold_until: Option<Instant>,
    crashes: crash_backoff::CrashBackoff,
    image: Image,
    /// When the image to pull was first found absent, in this try.
    absent_since: Option<Instant>,
    /// The smallest attempt number of the next instance: numbers of removed containers are not
    /// reused.
    attempt_floor: u32,
    /// The instance that was stopped in order to start another, whatever the restart policy says.
    restart_due: Option<ContainerId>,
    /// The attempt for which the agent's own files exist and whose container is not created yet.
    files: Option<u32>,
    tried: tries::Try,
}

/// An event to record.
#[derive(Clone, Debug)]
struct PendingEvent {
    kind: EventType,
    /// Name in the spec; `None`: the event is about the pod.
    container: Option<Box<str>>,
    reason: &'static str,
    message: String,
}

/// For `kubelet_pod_start_sli_duration_seconds`.
#[derive(Clone, Copy, Debug, Default)]
struct Timing {
    started: bool,
    pulling_ms: u64,
    reported: bool,
}

impl Pod {
    /// Creates a pod that a source wants.
    pub fn new(api: api::Pod, origin: Origin, verdict: Option<Verdict>, now: Now) -> Self {
        Self::with(api, origin, Wanted::Yes, verdict, now)
    }

    /// Creates a pod that only the runtime knows: it has to end.
    pub fn orphan(pod: &PodRef, now: Now) -> Self {
        let mut api = api::Pod::default();
        api.metadata.uid = pod.uid.clone().into();
        api.metadata.namespace = pod.namespace.clone().into();
        api.metadata.name = pod.name.clone().into();
        Self::with(api, Origin::Runtime, Wanted::No, None, now)
    }

    fn with(
        api: api::Pod,
        origin: Origin,
        wanted: Wanted,
        verdict: Option<Verdict>,
        now: Now,
    ) -> Self {
        let mut pod = Self {
            uid: api.metadata.uid.as_str().into(),
            bounds_disk: requests::bounds_disk(&api),
            api: Box::new(api),
            origin,
            wanted,
            phase: Phase::Syncing,
            verdict: None,
            eviction: None,
            ending: None,
            observed: Observed::default(),
            listed: Listed::default(),
            needs_relist: true,
            fresh: false,
            relist_missed: false,
            fully_observed: false,
            stale_relists: 0,
            pending_calls: Vec::new(),
            #[cfg(feature = "probes")]
            probes: probe::Probes::default(),
            #[cfg(feature = "probes")]
            hooks: hooks::Hooks::default(),
            jobs: BTreeMap::new(),
            abandoned: abandoned_jobs::AbandonedJobs::default(),
            log_dirs: LogDirs::Unknown,
            cgroup: cgroup::Cgroup::default(),
            volumes: Volumes::default(),
            dir_removed: false,
            recursive: false,
            logs_removed: Vec::new(),
            retention: retention::Retention::default(),
            records: BTreeMap::new(),
            pulls: BTreeMap::new(),
            retry_at: None,
            cleanup_at: None,
            inspect_backoff: Backoff::default(),
            attempt_floor: 0,
            names_taken: 0,
            leftover_task: None,
            logs_to_link: Vec::new(),
            messages_to_read: Vec::new(),
            message_reads: BTreeMap::new(),
            last_blocked: None,
            pending_events: Vec::new(),
            needs_plan: true,
            dirty: true,
            status_revision: 0,
            wake_at: None,
            arrived_at: now.boot,
            active_before_ms: None,
            timing: Timing::default(),
        };
        if let Some(verdict) = verdict {
            pod.refuse(verdict);
        }
        pod
    }

    /// A source has the pod or has changed it.
    pub fn want(&mut self, api: api::Pod, origin: Origin) {
        match &mut self.wanted {
            Wanted::Yes => {
                let grace_s = api.metadata.deletion_grace_period_seconds;
                if let (Some(ending), Some(grace_s)) = (&mut self.ending, grace_s)
                    && grace_s.max(1) < ending.grace_s
                {
                    ending.grace_s = grace_s.max(1);
                    self.stop_now();
                }
                let deleted = |pod: &api::Pod| pod.metadata.deletion_timestamp.is_some();
                if deleted(&api) && !deleted(&self.api) {
                    self.stop_now();
                }
                self.forget_changed_images(&api.spec);
                let mut status = std::mem::take(&mut self.api.status);
                self.bounds_disk = requests::bounds_disk(&api);
                *self.api = api;
                let reported = std::mem::take(&mut self.api.status);
                if overrules(&status, &reported) {
                    let PodStatus { phase, message, reason, .. } = reported;
                    status = PodStatus { phase, message, reason, ..status };
                }
                self.api.status = status;
                self.replan_cgroup();
            }
            Wanted::No | Wanted::Recreated(..) => {
                self.wanted = Wanted::Recreated(origin, Box::new(api));
            }
        }
        self.volumes.mark_dirty();
        self.mark_dirty();
    }

    /// No source has the pod any more.
    pub fn mark_unwanted(&mut self, now: Now) {
        self.wanted = Wanted::No;
        self.stop_now();
        self.mark_dirty();
        let grace_s = config::grace_s(&self.api.spec);
        let metadata = &mut self.api.metadata;
        let at = || now.timestamp().unwrap_or_default().to_string();
        metadata.deletion_timestamp.get_or_insert_with(at);
        metadata.deletion_grace_period_seconds.get_or_insert(grace_s);
    }

    /// The pod may not run here: it fails as a whole.
    pub fn refuse(&mut self, verdict: Verdict) {
        self.pending_events.push(PendingEvent {
            kind: EventType::Warning,
            container: None,
            reason: verdict.reason,
            message: verdict.message.clone(),
        });
        self.verdict = Some(verdict);
        self.mark_dirty();
    }

    /// Records a warning about the pod as a whole.
    pub fn warn(&mut self, reason: &'static str, message: String) {
        let kind = EventType::Warning;
        self.pending_events.push(PendingEvent { kind, container: None, reason, message });
        self.mark_dirty();
    }

    /// The last list, from before the pod was added, has nothing of it.
    pub fn observe_nothing(&mut self) {
        assert!(
            self.observed.is_empty() && self.pending_calls.is_empty(),
            "pod {} is known",
            self.uid
        );
        self.needs_relist = false;
        self.fresh = true;
    }

    /// A list contains this sandbox of the pod.
    pub fn add_listed_sandbox(&mut self, sandbox: Arc<Sandbox>) {
        self.listed.sandboxes.push(sandbox);
    }

    /// A list contains this container of the pod.
    pub fn add_listed_container(&mut self, container: Arc<Container>) {
        self.listed.containers.push(container);
    }

    /// Applies the list, unless it is too old (rule R3). All of the pod's objects in it have been
    /// added.
    pub fn take_list(&mut self, now: Now, serial: u64) {
        self.restore_hooks();
        let Self { listed, observed, records, .. } = self;
        if serial <= self.stale_relists
            || self.pending_calls.iter().any(|pending| pending.step.is_change())
        {
            listed.sandboxes.clear();
            listed.containers.clear();
            self.miss_relist();
            return;
        }
        let changed = observed.take(now.boot, &mut listed.sandboxes, &mut listed.containers);
        if changed {
            // Their attempt numbers are taken, whatever happens to them.
            for container in &observed.containers {
                let record = records.entry(container.name.clone()).or_default();
                record.attempt_floor = record.attempt_floor.max(container.attempt + 1);
            }
        }
        self.forgive_tries();
        if changed || self.needs_relist || !self.fresh {
            self.mark_dirty();
        }
        self.needs_relist = false;
        self.fresh = true;
        self.relist_missed = false;
        let Self { logs_removed, observed, .. } = self;
        logs_removed.retain(|id| observed.container(id).is_some());
    }

    /// The only function that changes the phase.
    fn enter(&mut self, now: Instant, phase: Phase) {
        assert!(
            phase > self.phase,
            "pod {} cannot go from {:?} to {phase:?}",
            self.uid,
            self.phase
        );
        if phase == Phase::Terminating {
            self.stop_now();
            let asked = match self.origin {
                Origin::Runtime => crate::limits::GRACE_ORPHAN_S,
                Origin::File | Origin::Cloud => {
                    let deletion = self.api.metadata.deletion_grace_period_seconds;
                    deletion.unwrap_or_else(|| config::grace_s(&self.api.spec))
                }
            };
            let asked = self.eviction.as_ref().map_or(asked, |it| asked.min(it.grace_s));
            self.ending = Some(Ending { since: now, grace_s: asked.max(1) });
        }
        self.phase = phase;
        self.mark_dirty();
    }
}

/// What a list contains of one pod.
#[derive(Debug, Default)]
struct Listed {
    sandboxes: Vec<Arc<Sandbox>>,
    containers: Vec<Arc<Container>>,
}
