//! Accessors of a pod: its names, its phase, and when to step it again.

use super::{Observed, Origin, Phase, Pod, Wanted};
use crate::agent::calls::Uid;
use crate::agent::time::{Instant, Now, sooner};
use crate::model::pod as api;
use crate::model::status::ContainerStatus;

impl Pod {
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
        &self.wanted
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What the runtime last reported of it.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// Whether it may still hold resources of the node, such as ports and memory. A pod that is
    /// reported as ended, even by an earlier start of the agent, was observed to hold nothing.
    pub fn is_active(&self) -> bool {
        let over = self.api.status.phase.is_terminal();
        self.phase < Phase::Terminated && self.verdict.is_none() && !over
    }

    /// Whether nothing of it is left in the runtime and on the disk, and nothing is under way.
    pub fn is_finished(&self) -> bool {
        let idle =
            || self.pending_calls.is_empty() && self.no_probe_running() && self.no_hook_running();
        let open = || !self.jobs.is_empty() || !self.message_reads.is_empty();
        self.phase == Phase::Finished && idle() && !open()
    }

    /// Whether something changed since its last step, or its wake-up time has come.
    pub fn needs_step(&self, now: Now) -> bool {
        self.needs_plan || self.wake_at.is_some_and(|at| at <= now.boot) || self.lacks_time(now)
    }

    /// Whether the clock was set after the last change.
    pub(super) fn lacks_time(&self, now: Now) -> bool {
        self.fully_observed && self.api.status.start_time.is_none() && now.wall.is_some()
    }

    /// Whether all its containers have been inspected since the agent's start, or the pod is
    /// ending.
    #[cfg(feature = "probes")]
    pub fn is_fully_observed(&self) -> bool {
        self.fully_observed || self.phase > Phase::Syncing
    }

    /// Something changed: the pod has to be stepped, and its status may differ.
    pub fn mark_dirty(&mut self) {
        self.needs_plan = true;
        self.dirty = true;
    }

    /// Once, when all containers of a pod that this agent started run: milliseconds from its
    /// arrival, and the same without pulls (not for pods with init containers).
    pub fn take_start(&mut self, now: Now) -> Option<(u64, Option<u64>)> {
        let mut statuses = self.api.status.container_statuses.iter();
        if self.timing.reported || !statuses.all(ContainerStatus::has_started) {
            return None;
        }
        self.timing.reported = true;
        let took_ms = now.boot.since_ms(self.arrived_at);
        let plain = self.api.spec.init_containers.is_empty();
        let ours = self.timing.started && self.origin != Origin::Runtime;
        ours.then(|| (took_ms, plain.then(|| took_ms.saturating_sub(self.timing.pulling_ms))))
    }

    /// Whether nothing of it exists and nothing was started.
    pub fn is_untouched(&self) -> bool {
        self.observed.is_empty() && self.pending_calls.is_empty() && self.jobs.is_empty()
    }

    /// Sets the first revision of its status.
    pub fn status_revision_from(&mut self, revision: u64) {
        self.status_revision = revision;
    }

    /// Grows with each change of the status.
    pub fn status_revision(&self) -> u64 {
        self.status_revision
    }

    /// Whether the status is based on a complete inspection of the pod.
    pub fn is_inspected(&self) -> bool {
        !self.needs_relist && super::next::inspection(self).is_none()
    }

    /// Whether its source has deleted it, nothing of it runs or is mounted any more, and its cgroup
    /// is gone.
    pub fn is_cleared(&self) -> bool {
        self.phase == Phase::Terminated
            && self.api.metadata.deletion_timestamp.is_some()
            && self.pending_calls.is_empty()
            && self.jobs.is_empty()
            && super::volumes::are_gone(self)
            && super::cgroup::is_gone(self)
    }

    /// When to step it again if nothing happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        sooner(self.wake_at, self.probes_wake_at())
    }

    /// Returns the pod that replaces this finished one under its uid, if it came back.
    pub fn successor(&mut self) -> Option<(Origin, api::Pod)> {
        assert!(self.is_finished(), "pod {} has not finished", self.uid);
        match std::mem::replace(&mut self.wanted, Wanted::No) {
            Wanted::Recreated(origin, api) => Some((origin, *api)),
            Wanted::Yes | Wanted::No => None,
        }
    }
}
