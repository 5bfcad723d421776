//! Whether a pod is to run, and how far its end has come.
//!
//! ```text
//!  Syncing ──removed│deleted│refused│evicted│all done──▶ Terminating
//!                                                            │ a fresh list: nothing runs
//!                       no source wants it,                  ▼
//!  Finished ◀────────── and nothing is left ──────────── Terminated
//! ```
//!
//! Phases only move forward, in [`Lifecycle::enter`], and the grace period only shrinks, never
//! below one second (rule R4).
//!
//! A pod that has failed as a whole has a [`Verdict`]. An **evicted** pod (spec section 9.4) stays
//! as Failed while its source wants it; its objects in the runtime are removed. The **cloud** can
//! end a pod as well: if the phase of a running pod is set to Failed or Succeeded there, as users
//! and controllers do who give up a pod, the pod is ended, as by every kubelet (`pod_workers.go`).
//! `activeDeadlineSeconds` counts from the pod's `startTime`, across restarts of the agent.

use std::collections::BTreeMap;

use super::{Origin, Pod, volumes};
use crate::agent::time::{Instant, Now};
use crate::limits::{CLOCK_PLAUSIBLE_MS, GRACE_DEFAULT_S};
use crate::model::pod::{self as api, PodSpec};
use crate::model::status::PodStatus;

/// What the sources want, what the pod as a whole has come to, and its phase.
#[derive(Debug)]
pub(super) struct Lifecycle {
    wanted: Wanted,
    phase: Phase,
    /// Set when the pod was refused or failed as a whole.
    verdict: Option<Verdict>,
    /// Set when the node evicted the pod.
    eviction: Option<Eviction>,
    /// Set from [`Phase::Terminating`] on.
    ending: Option<Ending>,
    arrived_at: Instant,
    /// Milliseconds from the pod's start time to its arrival, as soon as both are known.
    active_before_ms: Option<u64>,
    start: Start,
}

/// How the pod has started, for `kubelet_pod_start_sli_duration_seconds`.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    /// This agent has started a container.
    is_ours: bool,
    pulls_ms: u64,
    is_reported: bool,
}

/// How long a pod took to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartTook {
    /// Milliseconds since its arrival.
    pub all_ms: u64,
    /// Milliseconds of its pulls.
    pub pulls_ms: u64,
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

/// The grace period of a pod that ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) since: Instant,
    /// At least 1.
    pub(super) grace_s: i64,
}

/// Why a pod cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// `status.reason`
    pub reason: &'static str,
    /// Names every field concerned.
    pub message: String,
}

/// `status.reason` and `status.message` of the failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `UnsupportedFeature`, `NodePorts`, `DeadlineExceeded` …
    pub reason: &'static str,
    /// For the user.
    pub message: String,
}

/// Why and how the pod is evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eviction {
    /// `status.message` and the message of the event.
    pub message: String,
    /// The longest grace period of its containers in seconds; the pod's own may be shorter.
    pub grace_s: i64,
    /// Annotations of the event.
    pub annotations: BTreeMap<&'static str, String>,
    /// The node was under pressure, so the pod gets the condition `DisruptionTarget`; not if the
    /// pod exceeded a limit of its own.
    pub disrupted: bool,
}

const EVICTED: &str = "Evicted";
/// The reason of the condition `DisruptionTarget` that a node sets.
pub const DISRUPTED: &str = "TerminationByKubelet";

impl Verdict {
    /// It may not run here.
    pub fn rejected(refused: &Refused) -> Self {
        let message = format!("Pod was rejected: {}", refused.message);
        Self { reason: refused.reason, message }
    }
}

impl Eviction {
    /// It exceeded a limit.
    pub fn at_once(message: String) -> Self {
        Self { message, grace_s: 1, ..Self::default() }
    }
}

impl Ending {
    /// When the grace period is over.
    pub(super) fn end(self) -> Instant {
        self.since.plus_ms(self.grace_s.unsigned_abs().saturating_mul(1000))
    }
}

impl Lifecycle {
    pub(super) fn new(wanted: Wanted, now: Instant) -> Self {
        Self {
            wanted,
            phase: Phase::Syncing,
            verdict: None,
            eviction: None,
            ending: None,
            arrived_at: now,
            active_before_ms: None,
            start: Start::default(),
        }
    }

    pub(super) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Whether a source wants the pod: then only garbage of it is removed, not the pod.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted == Wanted::Yes
    }

    pub(super) fn set_wanted(&mut self, wanted: Wanted) -> Wanted {
        std::mem::replace(&mut self.wanted, wanted)
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    pub(super) fn eviction(&self) -> Option<&Eviction> {
        self.eviction.as_ref()
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// A container of the pod was started.
    pub(super) fn container_started(&mut self) {
        self.start.is_ours = true;
    }

    pub(super) fn pull_took(&mut self, ms: u64) {
        self.start.pulls_ms += ms;
    }

    /// All containers run. Returns how long that took; `None`: it was returned before, or an
    /// earlier start of the agent has started them.
    pub(super) fn take_start(&mut self, now: Instant) -> Option<StartTook> {
        let is_new = !std::mem::replace(&mut self.start.is_reported, true);
        let Start { is_ours, pulls_ms, .. } = self.start;
        (is_new && is_ours).then(|| StartTook { all_ms: now.since_ms(self.arrived_at), pulls_ms })
    }

    /// The pod as a whole has failed.
    pub(super) fn fail(&mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
    }

    /// Enters a later phase. `grace_s`: the grace period of the pod's own, if the phase is
    /// Terminating.
    pub(super) fn enter(&mut self, now: Instant, phase: Phase, grace_s: i64) {
        assert!(phase > self.phase, "a pod cannot go from {:?} to {phase:?}", self.phase);
        if phase == Phase::Terminating {
            let grace_s = self.eviction.as_ref().map_or(grace_s, |it| grace_s.min(it.grace_s));
            self.ending = Some(Ending { since: now, grace_s: grace_s.max(1) });
        }
        self.phase = phase;
    }

    /// The pod ends already and has less time from now on, if that is less. Returns whether it is.
    pub(super) fn shrink_grace(&mut self, grace_s: i64) -> bool {
        let shrinks = self.ending.is_some_and(|ending| grace_s.max(1) < ending.grace_s);
        if let Some(ending) = self.ending.as_mut().filter(|_| shrinks) {
            ending.grace_s = grace_s.max(1);
        }
        shrinks
    }

    /// When a pod that may be active for so many seconds has been so for too long.
    pub(super) fn deadline_at(&self, active_s: u64) -> Instant {
        let before_ms = self.active_before_ms.unwrap_or(0);
        self.arrived_at.plus_ms(active_s.saturating_mul(1000).saturating_sub(before_ms))
    }

    /// Computes once how long the pod was active before the agent's start. `started_ms`: its start
    /// times, since 1970. Later jumps of the clock change nothing, nor does a start time in 1970.
    fn count_active(&mut self, now: Now, started_ms: impl Iterator<Item = i64>) {
        let started_ms = started_ms.filter(|&at| at >= CLOCK_PLAUSIBLE_MS).min();
        let (Some(wall), Some(started_ms)) = (now.wall, started_ms) else { return };
        let active_ms = u64::try_from(wall.0.saturating_sub(started_ms)).unwrap_or(0);
        let here_ms = now.boot.since_ms(self.arrived_at);
        self.active_before_ms = Some(active_ms.saturating_sub(here_ms));
    }
}

impl Pod {
    /// The pod ends as Failed.
    pub fn evict(&mut self, eviction: Eviction) {
        assert!(self.phase() == Phase::Syncing, "pod {} ends already", self.uid);
        let verdict = Verdict { reason: EVICTED, message: eviction.message.clone() };
        self.lifecycle.eviction = Some(eviction);
        self.refuse(verdict);
    }

    /// Whether nothing of it is left that takes room: no container and no volume.
    pub fn is_cleaned_up(&self) -> bool {
        self.phase() >= Phase::Terminated && self.observed.is_empty() && volumes::are_down(self)
    }

    /// Annotations of its event.
    pub(super) fn annotations(&self, reason: &str) -> BTreeMap<&'static str, String> {
        let eviction = self.lifecycle.eviction().filter(|_| reason == EVICTED);
        eviction.map(|eviction| eviction.annotations.clone()).unwrap_or_default()
    }

    /// When it has been active for too long.
    pub(super) fn deadline_at(&self) -> Option<Instant> {
        let active_s = u64::try_from(self.api.spec.active_deadline_seconds?).ok()?;
        Some(self.lifecycle.deadline_at(active_s))
    }

    /// Counts the time before the agent's start, as soon as the clock is set and the runtime was
    /// listed.
    pub(super) fn count_active(&mut self, now: Now) {
        let has_deadline = self.api.spec.active_deadline_seconds.is_some();
        let is_counted = self.lifecycle.active_before_ms.is_some();
        if is_counted || !has_deadline || self.observed.is_unknown() {
            return;
        }
        let reported = self.api.status.start_time.map(|at| at.0.saturating_mul(1000));
        let made = self.observed.sandboxes.iter().map(|sandbox| sandbox.created_at / 1_000_000);
        self.lifecycle.count_active(now, made.chain(reported));
    }
}

/// Whether the cloud's status of a pod ends it. The node itself knows better whether the pod runs;
/// its end is final, whoever reported it.
pub fn overrules(ours: &PodStatus, remote: &PodStatus) -> bool {
    remote.phase.is_terminal() && !ours.phase.is_terminal()
}

/// Seconds between the stop signal and SIGKILL, as the pod requests.
pub(super) fn grace_s(spec: &PodSpec) -> i64 {
    spec.termination_grace_period_seconds.unwrap_or(GRACE_DEFAULT_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::status::Phase;

    #[test]
    fn a_start_is_reported_once_and_only_if_it_was_ours() {
        let mut lifecycle = Lifecycle::new(Wanted::Yes, Instant(1_000));
        lifecycle.pull_took(30);
        lifecycle.container_started();
        let took = StartTook { all_ms: 500, pulls_ms: 30 };
        assert_eq!(lifecycle.take_start(Instant(1_500)), Some(took));
        assert_eq!(lifecycle.take_start(Instant(1_600)), None);
        let mut earlier = Lifecycle::new(Wanted::Yes, Instant(1_000));
        assert_eq!(earlier.take_start(Instant(1_500)), None);
    }

    #[test]
    fn the_cloud_can_only_end_a_pod_that_has_not_ended() {
        let status = |phase| PodStatus { phase, ..PodStatus::default() };
        for (ours, remote, ends) in [
            (Phase::Running, Phase::Failed, true),
            (Phase::Pending, Phase::Succeeded, true),
            (Phase::Running, Phase::Pending, false),
            (Phase::Succeeded, Phase::Failed, false),
            (Phase::Failed, Phase::Running, false),
        ] {
            assert_eq!(overrules(&status(ours), &status(remote)), ends, "{ours:?} {remote:?}");
        }
    }
}
