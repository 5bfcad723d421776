//! What is asked of a pod from outside: its names, how far it is, and when to step it again.

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

    /// The pod's uid.
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// Spec and status.
    pub fn api(&self) -> &api::Pod {
        &self.api
    }

    /// Whether it says how much of the disk it may take.
    pub fn bounds_disk(&self) -> bool {
        self.bounds_disk
    }

    /// Where it comes from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// What the sources say of it.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What the runtime last told of it.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// May still hold what it uses of the node: its ports, its memory. One that is said to have
    /// ended, be it in an earlier life, was seen to hold nothing.
    pub fn is_active(&self) -> bool {
        let over = self.api.status.phase.is_terminal();
        self.phase < Phase::Terminated && self.verdict.is_none() && !over
    }

    /// Nothing is left of it in the runtime and on the disk, and nothing is under way.
    pub fn is_finished(&self) -> bool {
        let idle = || self.pending_calls.is_empty() && self.no_probe_running() && self.no_hook_running();
        let open = || !self.jobs.is_empty() || !self.message_reads.is_empty();
        self.phase == Phase::Finished && idle() && !open()
    }

    /// Something was learnt since it last came to rest, or its time has come.
    pub fn needs_step(&self, now: Now) -> bool {
        self.needs_plan || self.wake_at.is_some_and(|at| at <= now.boot) || self.lacks_time(now)
    }

    /// The clock was set after all was quiet.
    pub(super) fn lacks_time(&self, now: Now) -> bool {
        self.fully_observed && self.api.status.start_time.is_none() && now.wall.is_some()
    }

    /// All its containers have been inspected since the agent's start, or the pod is ending.
    #[cfg(feature = "probes")]
    pub fn is_fully_observed(&self) -> bool {
        self.fully_observed || self.phase > Phase::Syncing
    }

    /// Something was learnt: the pod has to be stepped, and its status may differ.
    pub fn mark_dirty(&mut self) {
        self.needs_plan = true;
        self.dirty = true;
    }

    /// Once, when all containers of a pod that this agent started run: milliseconds from its
    /// arrival, and the same without pulls; the latter not for pods with init containers.
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

    /// Nothing is there of it, and nothing was begun.
    pub fn is_untouched(&self) -> bool {
        self.observed.is_empty() && self.pending_calls.is_empty() && self.jobs.is_empty()
    }

    /// Its status begins behind this revision.
    pub fn status_revision_from(&mut self, revision: u64) {
        self.status_revision = revision;
    }

    /// Grows with each change of the status.
    pub fn status_revision(&self) -> u64 {
        self.status_revision
    }

    /// The status tells what is, not what is not known yet: all of the pod was looked at.
    pub fn is_inspected(&self) -> bool {
        !self.needs_relist && super::next::inspection(self).is_none()
    }

    /// Its source wants it gone, nothing of it runs or is mounted any more, and its cgroup is gone.
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

    /// Turns a finished pod into its own successor, if it was wanted again.
    pub fn successor(&mut self) -> Option<(Origin, api::Pod)> {
        assert!(self.is_finished(), "pod {} has not finished", self.uid);
        match std::mem::replace(&mut self.wanted, Wanted::No) {
            Wanted::Recreated(origin, api) => Some((origin, *api)),
            Wanted::Yes | Wanted::No => None,
        }
    }
}
