//! One pod: the desired state, the observed state, and the next step between them.
//!
//! A pod is made of parts, each with a state that only its own file writes: `lifecycle` (wanted,
//! phase, verdict), `observation` (what the runtime showed, and how far it can be believed),
//! `runner` (calls and jobs under way, retries), `record` (what is remembered of its containers),
//! `schedule` (when it is stepped), `status`, `events`, `files`, `volumes`, `cgroup`, `image`,
//! `retention`, `probe` and `hooks`. [`Pod`] routes between them.
//!
//! There is no state per runtime call: the pure function [`next::next`] derives one step from
//! desired × observed × now. After a crash, a lost answer or a restart of the runtime, the pod is
//! listed again and continues from what exists.
//!
//! Intended behaviour: one runtime call at a time, except that several containers are stopped
//! together. A success takes effect in the model at once; a failure requires a new list first
//! (rules R1–R3).
//!
//! If we crash here: the next start reads the manifests and the runtime's lists and recognises the
//! pod by its labels. Back-offs are lost, and so is what was known of removed containers.

pub mod cgroup;
pub mod config;
mod context;
mod cri_request;
pub mod dns;
pub mod env;
mod events;
mod files;
pub mod hash;
#[cfg(feature = "probes")]
mod hooks;
#[cfg(not(feature = "probes"))]
#[path = "hooks/absent.rs"]
mod hooks;
mod image;
mod learn;
mod lifecycle;
pub mod names;
pub mod next;
mod observation;
pub mod observed;
mod phase;
mod plan;
#[cfg(feature = "probes")]
mod probe;
#[cfg(not(feature = "probes"))]
#[path = "probe/absent.rs"]
mod probe;
mod record;
mod resources;
#[cfg(feature = "metaserver")]
mod restart;
mod retention;
mod runner;
mod schedule;
pub mod security;
#[cfg(feature = "services")]
mod service_links;
mod status;
mod step;
mod users;
mod volumes;

use std::sync::Arc;

use super::calls::Uid;
use super::objects::Key;
pub use super::objects::Origin;
use super::requests;
use super::time::{Instant, Now, sooner};
use crate::model::cri::{Container, PodRef, Sandbox, UserRange};
use crate::model::pod as api;
use crate::model::status::{ContainerStatus, PodStatus};
use observation::{ListOutcome, Observation};
use observed::Observed;
use volumes::Volumes;

pub use context::PodContext;
pub use learn::Answer;
use lifecycle::Lifecycle;
pub use lifecycle::{DISRUPTED, Eviction, Phase, Refused, Verdict, Wanted, overrules};
pub use plan::{NodeView, Step, StopReason};
pub use resources::{burstable_milli, memory_limit, qos_class};
pub use status::{HostAddresses, HostInfo};
pub use users::LentUsers;

/// What `EdgeCore` says of a pod that is held.
const HELD: &str = "Upgrade is currently held due to edge-hold-upgrade annotation";

#[derive(Debug)]
pub struct Pod {
    uid: Uid,
    /// Spec as admitted, status as computed.
    api: Box<api::Pod>,
    /// The spec limits the pod's disk usage; read at each step.
    bounds_disk: bool,
    origin: Origin,
    /// It does not begin before somebody on the node releases it.
    is_held: bool,
    /// The users of the host that it was lent for a sandbox.
    lent: Option<UserRange>,
    lifecycle: Lifecycle,
    observed: Observation,
    runner: runner::Runner,
    #[cfg(feature = "probes")]
    probes: probe::Probes,
    #[cfg(feature = "probes")]
    hooks: hooks::Hooks,
    files: files::Files,
    cgroup: cgroup::Cgroup,
    volumes: Volumes,
    retention: retention::Retention,
    records: record::Records,
    pulls: image::Pulls,
    events: events::PodEvents,
    schedule: schedule::Schedule,
    status_cache: status::StatusCache,
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
            is_held: false,
            lent: None,
            lifecycle: Lifecycle::new(wanted, now.boot),
            observed: Observation::default(),
            runner: runner::Runner::default(),
            #[cfg(feature = "probes")]
            probes: probe::Probes::default(),
            #[cfg(feature = "probes")]
            hooks: hooks::Hooks::default(),
            files: files::Files::default(),
            cgroup: cgroup::Cgroup::default(),
            volumes: Volumes::default(),
            retention: retention::Retention::default(),
            records: record::Records::default(),
            pulls: image::Pulls::default(),
            events: events::PodEvents::default(),
            schedule: schedule::Schedule::default(),
            status_cache: status::StatusCache::default(),
        };
        if let Some(verdict) = verdict {
            pod.refuse(verdict);
        }
        pod
    }

    /// A source has the pod or has changed it.
    pub fn want(&mut self, api: api::Pod, origin: Origin) {
        if self.is_wanted() {
            self.update(api);
        } else {
            self.lifecycle.set_wanted(Wanted::Recreated(origin, Box::new(api)));
        }
        self.volumes.mark_dirty();
        self.mark_dirty();
    }

    fn update(&mut self, api: api::Pod) {
        let grace_s = api.metadata.deletion_grace_period_seconds;
        let deleted = |pod: &api::Pod| pod.metadata.deletion_timestamp.is_some();
        let shrinks = grace_s.is_some_and(|grace_s| self.lifecycle.shrink_grace(grace_s));
        if shrinks || (deleted(&api) && !deleted(&self.api)) {
            self.observed.stop_at_once();
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

    /// Sets whether it may not begin yet. What has begun goes on.
    pub fn set_held(&mut self, is_held: bool) {
        if self.is_held != is_held {
            self.is_held = is_held;
            self.mark_dirty();
        }
    }

    /// Whether it only waits for somebody to release it.
    pub fn is_held(&self) -> bool {
        let has_begun = self.observed.is_unknown() || !self.is_unseen();
        self.is_held && !has_begun && self.phase() == Phase::Syncing && self.is_active()
    }

    /// The same; somebody is told why it does not start.
    pub fn waits_for_release(&mut self) -> bool {
        if self.is_held() {
            self.events.warn_blocked("HeldUpgrade", HELD.to_owned());
        }
        self.is_held()
    }

    /// The runtime has nothing of it.
    pub fn is_unseen(&self) -> bool {
        self.observed.sandboxes.is_empty() && self.observed.containers.is_empty()
    }

    /// Whether the pod can use this object: it is in the pod's namespace, or has none.
    pub fn may_use(&self, key: &Key) -> bool {
        key.namespace.is_empty() || *key.namespace == *self.api.metadata.namespace
    }

    /// An object that it may use was added, removed or changed.
    pub fn objects_changed(&mut self) {
        self.records.retry_configuration();
        self.volumes.mark_dirty();
        self.mark_dirty();
    }

    /// No source has the pod any more.
    pub fn mark_unwanted(&mut self, now: Now) {
        self.lifecycle.set_wanted(Wanted::No);
        self.observed.stop_at_once();
        self.mark_dirty();
        let grace_s = lifecycle::grace_s(&self.api.spec);
        let metadata = &mut self.api.metadata;
        let at = || now.timestamp().unwrap_or_default().to_string();
        metadata.deletion_timestamp.get_or_insert_with(at);
        metadata.deletion_grace_period_seconds.get_or_insert(grace_s);
    }

    /// The pod may not run here: it fails as a whole.
    pub fn refuse(&mut self, verdict: Verdict) {
        self.events.warn(verdict.reason, verdict.message.clone());
        self.lifecycle.fail(verdict);
        self.mark_dirty();
    }

    /// The last list, from before the pod was added, has nothing of it.
    pub fn observe_nothing(&mut self) {
        assert!(!self.runner.has_calls(), "pod {} has calls", self.uid);
        self.observed.observe_nothing();
    }

    /// A list contains this sandbox of the pod.
    pub fn add_listed_sandbox(&mut self, sandbox: Arc<Sandbox>) {
        self.observed.add_listed_sandbox(sandbox);
    }

    /// A list contains this container of the pod.
    pub fn add_listed_container(&mut self, container: Arc<Container>) {
        self.observed.add_listed_container(container);
    }

    /// Applies the list, unless it is too old (rule R3). All of the pod's objects in it have been
    /// added.
    pub fn take_list(&mut self, now: Now, serial: u64) {
        self.restore_hooks();
        let changing = self.runner.is_changing();
        let outcome = self.observed.take_list(now.boot, serial, changing);
        if outcome == ListOutcome::Discarded {
            self.schedule.mark_dirty();
            return;
        }
        if outcome == ListOutcome::Changed {
            self.records.observe(&self.observed.containers);
        }
        let Self { observed, records, .. } = self;
        records.forgive_tries(|id| observed.sandbox_of(id).is_none_or(|sandbox| !sandbox.ready));
        if outcome != ListOutcome::Confirmed {
            self.mark_dirty();
        }
        let Self { files, observed, .. } = self;
        files.keep_known(|id| observed.container(id).is_some());
    }

    fn enter(&mut self, now: Instant, phase: Phase) {
        let grace_s = match self.origin {
            Origin::Runtime => crate::limits::GRACE_ORPHAN_S,
            Origin::File | Origin::Cloud => {
                let deletion = self.api.metadata.deletion_grace_period_seconds;
                deletion.unwrap_or_else(|| lifecycle::grace_s(&self.api.spec))
            }
        };
        self.lifecycle.enter(now, phase, grace_s);
        if phase == Phase::Terminating {
            self.observed.stop_at_once();
        }
        self.mark_dirty();
    }

    /// Namespace and name.
    pub fn name(&self) -> (Box<str>, Box<str>) {
        let metadata = &self.api.metadata;
        (metadata.namespace.as_str().into(), metadata.name.as_str().into())
    }

    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// Spec and status.
    pub fn api(&self) -> &api::Pod {
        &self.api
    }

    /// Whether the spec limits the pod's disk usage.
    pub fn bounds_disk(&self) -> bool {
        self.bounds_disk
    }

    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether the sources want it.
    pub fn wanted(&self) -> &Wanted {
        self.lifecycle.wanted()
    }

    pub fn phase(&self) -> Phase {
        self.lifecycle.phase()
    }

    /// What the runtime last reported of it.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// Whether it may still hold resources of the node, such as ports and memory. A pod that is
    /// reported as ended, even by an earlier start of the agent, was observed to hold nothing.
    pub fn is_active(&self) -> bool {
        let over = self.api.status.phase.is_terminal();
        self.phase() < Phase::Terminated && self.lifecycle.verdict().is_none() && !over
    }

    /// Whether nothing of it is left in the runtime and on the disk, and nothing is under way.
    pub fn is_finished(&self) -> bool {
        let idle = || !self.runner.has_calls() && self.no_probe_running() && self.no_hook_running();
        let open = || self.runner.has_jobs() || self.files.is_reading();
        self.phase() == Phase::Finished && idle() && !open()
    }

    /// Whether something changed since its last step, or its wake-up time has come.
    pub fn needs_step(&self, now: Now) -> bool {
        self.schedule.is_due(now.boot) || self.lacks_time(now)
    }

    /// Whether the clock was set after the last change.
    pub(super) fn lacks_time(&self, now: Now) -> bool {
        self.observed.is_complete() && self.api.status.start_time.is_none() && now.wall.is_some()
    }

    /// Whether all its containers have been inspected since the agent's start, or the pod is
    /// ending.
    #[cfg(any(feature = "probes", feature = "services"))]
    pub fn is_fully_observed(&self) -> bool {
        self.observed.is_complete() || self.phase() > Phase::Syncing
    }

    /// Something changed: the pod has to be stepped, and its status may differ.
    pub fn mark_dirty(&mut self) {
        self.schedule.mark_dirty();
        self.status_cache.mark_stale();
    }

    /// Once, when all containers of a pod that this agent started run: milliseconds from its
    /// arrival, and the same without pulls (not for pods with init containers).
    pub fn take_start(&mut self, now: Now) -> Option<(u64, Option<u64>)> {
        let mut statuses = self.api.status.container_statuses.iter();
        if !statuses.all(ContainerStatus::has_started) {
            return None;
        }
        let took =
            self.lifecycle.take_start(now.boot).filter(|_| self.origin != Origin::Runtime)?;
        let plain = self.api.spec.init_containers.is_empty();
        Some((took.all_ms, plain.then(|| took.all_ms.saturating_sub(took.pulls_ms))))
    }

    /// Whether nothing of it exists and nothing was started.
    pub fn is_untouched(&self) -> bool {
        self.observed.is_empty() && !self.runner.has_calls() && !self.runner.has_jobs()
    }

    /// Whether the status is based on a complete inspection of the pod.
    pub fn is_inspected(&self) -> bool {
        !self.observed.is_unknown() && next::inspection(self).is_none()
    }

    /// Whether its source has deleted it, nothing of it runs or is mounted any more, and its cgroup
    /// is gone.
    pub fn is_cleared(&self) -> bool {
        self.phase() == Phase::Terminated
            && self.api.metadata.deletion_timestamp.is_some()
            && !self.runner.has_calls()
            && !self.runner.has_jobs()
            && volumes::are_gone(self)
            && cgroup::is_gone(self)
    }

    /// When to step it again if nothing happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        sooner(self.schedule.wake_at(), self.probes_wake_at())
    }

    /// Returns the pod that replaces this finished one under its uid, if it came back.
    pub fn successor(&mut self) -> Option<(Origin, api::Pod)> {
        assert!(self.is_finished(), "pod {} has not finished", self.uid);
        match self.lifecycle.set_wanted(Wanted::No) {
            Wanted::Recreated(origin, api) => Some((origin, *api)),
            Wanted::Yes | Wanted::No => None,
        }
    }
}
