//! One pod: what is wanted, what was seen, and the next thing to do about it.
//!
//! ```text
//!  Syncing ──removed│deleted│refused│all done──▶ Terminating
//!                                                    │ a fresh look: nothing runs
//!               no source wants it,                  ▼
//!  Finished ◀── and nothing is left ──────────── Terminated
//! ```
//!
//! Phases only move forward, in [`Pod::enter`]. There is no state per runtime call: the pure
//! [`next::next`] names one step out of wanted × seen × now, so that after a crash, a lost answer
//! or a restart of the runtime the pod is looked at and goes on from what is there.
//!
//! Intended behaviour: one runtime call at a time, but stops of several containers together; a
//! success is believed at once, a failure makes blind until the next look (rules R1–R3).
//!
//! If we crash here: the next life reads the manifests and the runtime's lists and finds the pod
//! again by its labels. What is lost: back-offs, and what was known of containers that are gone.

mod abandoned_jobs;
pub mod cgroup;
mod class;
pub mod config;
mod config_error;
mod crash_backoff;
mod cri_request;
mod deadline;
pub mod dns;
pub mod downward;
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
use super::eviction;
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
pub use status::{HostAddresses, Place};
pub use step::{PodContext, Step};
pub use stopping::StopReason;
pub use verdict::Verdict;

/// One pod.
#[derive(Debug)]
pub struct Pod {
    uid: Uid,
    /// Spec as admitted, status as computed.
    api: Box<api::Pod>,
    /// The spec says how much of the disk it may take: asked at each step.
    bounds_disk: bool,
    origin: Origin,
    wanted: Wanted,
    phase: Phase,
    /// Refused or failed as a whole.
    verdict: Option<Verdict>,
    /// It had to go for the node's sake.
    eviction: Option<Eviction>,
    /// From [`Phase::Terminating`] on.
    ending: Option<Ending>,
    seen: Observed,
    /// What the look at hand found so far.
    found: Found,
    /// Must look before acting: at first, and after a failure.
    blind: bool,
    /// Looked at since the last call ended.
    fresh: bool,
    /// A look was too old to believe, and none has come since.
    missed: bool,
    /// All of it was looked at in this life.
    known: bool,
    /// Looks with this serial number and below are too old to believe (rule R3).
    stale_looks: u64,
    doing: Vec<PendingCall>,
    #[cfg(feature = "probes")]
    probes: probe::Probes,
    #[cfg(feature = "probes")]
    hooks: hooks::Hooks,
    jobs: BTreeMap<JobId, JobSpec>,
    vain: abandoned_jobs::AbandonedJobs,
    log_dirs: LogDirs,
    cgroup: cgroup::Cgroup,
    volumes: Volumes,
    /// The pod is gone, and its folder below the kubelet's root is removed.
    dir_removed: bool,
    /// The pod's runtime handler supports recursive read-only mounts.
    recursive: bool,
    /// Ended containers whose logs are removed.
    cleared: Vec<ContainerId>,
    keep: retention::Retention,
    memory: BTreeMap<Box<str>, ContainerMemory>,
    /// By image name: pulls that failed.
    pulls: BTreeMap<Box<str>, FailedPull>,
    /// No sandbox made, stopped or removed before.
    retry_at: Option<Instant>,
    /// No logs removed before.
    clear_at: Option<Instant>,
    /// Questions about a sandbox or a container that the runtime did not answer.
    questions: Backoff,
    /// The next sandbox's attempt number at the least.
    attempt_floor: u32,
    /// Sandbox names in a row that the runtime called taken.
    taken: u32,
    /// A container that was not removed, and what is done to its task before the next try.
    left_task: Option<(ContainerId, Option<TaskEnd>)>,
    /// Started containers whose logs are to be linked.
    to_link: Vec<ContainerId>,
    /// Ended containers whose last words are to be read.
    to_read: Vec<ContainerId>,
    /// Whose last words are being read.
    reads: BTreeMap<JobId, ContainerId>,
    /// What stood in the way when it was last said.
    blocked: Option<Box<str>>,
    /// To be said at the next step.
    news: Vec<PendingEvent>,
    /// Something was learnt since `next` was last asked.
    restless: bool,
    /// Something was learnt since the status was computed.
    dirty: bool,
    /// Counts the changes of the status.
    status_revision: u64,
    wake_at: Option<Instant>,
    arrived_at: Instant,
    /// Milliseconds from its start time to its arrival, as soon as both are known.
    active_before_ms: Option<u64>,
    timing: Timing,
}

/// Where a pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The manifest folder.
    File,
    /// The cloud.
    Cloud,
    /// Only the runtime knows it.
    Runtime,
}

/// What the sources say of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// A source has it.
    Yes,
    /// No source has it.
    No,
    /// It went and came back, from this source: to start anew once the old run is finished.
    Again(Origin, Box<api::Pod>),
}

/// Moves forward only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Containers are started and kept running.
    Syncing,
    /// No container starts any more; those that run are being stopped.
    Terminating,
    /// Nothing runs. Kept for its logs and status while a source wants it, else being removed.
    Terminated,
    /// Nothing is left.
    Finished,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    since: Instant,
    /// Only shrinks, never below 1.
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
    /// The way has failed; no new try before.
    Failed {
        retry_at: Instant,
    },
    /// The pod is gone and so are they.
    Removed,
}

/// What is remembered of one container of the spec, beyond what the runtime shows.
#[derive(Clone, Debug, Default)]
struct ContainerMemory {
    /// Why it does not run: `state.waiting`. Gone with the next start.
    failure: Option<Waiting>,
    /// Not tried again before.
    hold_until: Option<Instant>,
    crashes: crash_backoff::CrashBackoff,
    image: Image,
    /// When the image that is to be pulled was first found absent, in this try.
    absent_since: Option<Instant>,
    /// The next attempt's number at the least: containers that are removed count on.
    attempt_floor: u32,
    /// The instance that we stopped to start another, whatever the restart policy.
    restart_due: Option<ContainerId>,
    /// The attempt that the agent's own files are made for, and that is not made yet.
    files: Option<u32>,
    tried: tries::Try,
}

/// An event to be told.
#[derive(Clone, Debug)]
struct PendingEvent {
    kind: EventType,
    /// Name in the spec; `None`: about the pod.
    container: Option<Box<str>>,
    reason: &'static str,
    message: String,
}

/// For `kubelet_pod_start_sli_duration_seconds`.
#[derive(Clone, Copy, Debug, Default)]
struct Timing {
    started: bool,
    pulling_ms: u64,
    told: bool,
}

impl Pod {
    /// A pod that a source wants.
    pub fn new(api: api::Pod, origin: Origin, verdict: Option<Verdict>, now: Now) -> Self {
        Self::with(api, origin, Wanted::Yes, verdict, now)
    }

    /// A pod that only the runtime knows: it is to end.
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
            bounds_disk: eviction::bounds_disk(&api),
            api: Box::new(api),
            origin,
            wanted,
            phase: Phase::Syncing,
            verdict: None,
            eviction: None,
            ending: None,
            seen: Observed::default(),
            found: Found::default(),
            blind: true,
            fresh: false,
            missed: false,
            known: false,
            stale_looks: 0,
            doing: Vec::new(),
            #[cfg(feature = "probes")]
            probes: probe::Probes::default(),
            #[cfg(feature = "probes")]
            hooks: hooks::Hooks::default(),
            jobs: BTreeMap::new(),
            vain: abandoned_jobs::AbandonedJobs::default(),
            log_dirs: LogDirs::Unknown,
            cgroup: cgroup::Cgroup::default(),
            volumes: Volumes::default(),
            dir_removed: false,
            recursive: false,
            cleared: Vec::new(),
            keep: retention::Retention::default(),
            memory: BTreeMap::new(),
            pulls: BTreeMap::new(),
            retry_at: None,
            clear_at: None,
            questions: Backoff::default(),
            attempt_floor: 0,
            taken: 0,
            left_task: None,
            to_link: Vec::new(),
            to_read: Vec::new(),
            reads: BTreeMap::new(),
            blocked: None,
            news: Vec::new(),
            restless: true,
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

    /// A source has the pod, or has it changed.
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
                self.images_change(&api.spec);
                let mut status = std::mem::take(&mut self.api.status);
                self.bounds_disk = eviction::bounds_disk(&api);
                *self.api = api;
                let told = std::mem::take(&mut self.api.status);
                if overrules(&status, &told) {
                    let PodStatus { phase, message, reason, .. } = told;
                    status = PodStatus { phase, message, reason, ..status };
                }
                self.api.status = status;
                self.replan_cgroup();
            }
            Wanted::No | Wanted::Again(..) => {
                self.wanted = Wanted::Again(origin, Box::new(api));
            }
        }
        self.volumes.stir();
        self.stir();
    }

    /// No source has the pod any more.
    pub fn unwant(&mut self, now: Now) {
        self.wanted = Wanted::No;
        self.stop_now();
        self.stir();
        let grace_s = config::grace_s(&self.api.spec);
        let metadata = &mut self.api.metadata;
        let at = || now.timestamp().unwrap_or_default().to_string();
        metadata.deletion_timestamp.get_or_insert_with(at);
        metadata.deletion_grace_period_seconds.get_or_insert(grace_s);
    }

    /// The pod may not run here: it fails as a whole.
    pub fn refuse(&mut self, verdict: Verdict) {
        self.news.push(PendingEvent {
            kind: EventType::Warning,
            container: None,
            reason: verdict.reason,
            message: verdict.message.clone(),
        });
        self.verdict = Some(verdict);
        self.stir();
    }

    /// Tells of the pod as a whole.
    pub fn warn(&mut self, reason: &'static str, message: String) {
        let kind = EventType::Warning;
        self.news.push(PendingEvent { kind, container: None, reason, message });
        self.stir();
    }

    /// The last look found nothing of a pod that was not known then.
    pub fn found_nothing(&mut self) {
        assert!(self.seen.is_empty() && self.doing.is_empty(), "pod {} is known", self.uid);
        self.blind = false;
        self.fresh = true;
    }

    /// A look found this sandbox of the pod.
    pub fn find_sandbox(&mut self, sandbox: Arc<Sandbox>) {
        self.found.sandboxes.push(sandbox);
    }

    /// A look found this container of the pod.
    pub fn find_container(&mut self, container: Arc<Container>) {
        self.found.containers.push(container);
    }

    /// All that the look found of the pod is told: takes it, unless it is too old (rule R3).
    pub fn look(&mut self, now: Now, serial: u64) {
        self.restore_hooks();
        let Self { found, seen, memory, .. } = self;
        if serial <= self.stale_looks || self.doing.iter().any(|doing| doing.step.is_change()) {
            found.sandboxes.clear();
            found.containers.clear();
            self.miss_look();
            return;
        }
        let changed = seen.take(now.boot, &mut found.sandboxes, &mut found.containers);
        if changed {
            // Whatever becomes of them, their numbers are taken.
            for container in &seen.containers {
                let memory = memory.entry(container.name.clone()).or_default();
                memory.attempt_floor = memory.attempt_floor.max(container.attempt + 1);
            }
        }
        self.forgive_tries();
        if changed || self.blind || !self.fresh {
            self.stir();
        }
        self.blind = false;
        self.fresh = true;
        self.missed = false;
        let Self { cleared, seen, .. } = self;
        cleared.retain(|id| seen.container(id).is_some());
    }

    /// The only way from one phase to another.
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
        self.stir();
    }
}

/// What a look found of one pod.
#[derive(Debug, Default)]
struct Found {
    sandboxes: Vec<Arc<Sandbox>>,
    containers: Vec<Arc<Container>>,
}
