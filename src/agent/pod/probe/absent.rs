//! Probes are not built in: admission refuses a pod that has any, so a running container is started
//! and ready.
#![expect(clippy::unused_self, reason = "same interface as the full version")]

use super::observed::ObservedContainer;
use super::{Pod, PodContext};
use crate::agent::event::{CallId, ProbeId};
use crate::agent::time::{Instant, Now};
use crate::model::cri::{CallError, ContainerState, Reply};
use crate::model::net::Finding;
use crate::model::probe::ProbeKind;

/// Never constructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeVerdict {
    pub kind: ProbeKind,
    pub grace_s: Option<i64>,
}

impl Pod {
    pub fn is_probe_due(&self, _: Now) -> bool {
        false
    }

    pub(super) fn probes_wake_at(&self) -> Option<Instant> {
        None
    }

    pub(super) fn no_probe_running(&self) -> bool {
        true
    }

    /// Only passes the pending events to the recorder.
    pub fn probe(&mut self, now: Now, context: &mut PodContext<'_>) -> bool {
        self.flush_events(now, context);
        false
    }

    pub(super) fn end_probes(&mut self, _: Now, _: &mut PodContext<'_>) {}

    pub fn probe_exec_done(&mut self, _: Now, call: CallId, _: Result<Reply, CallError>) {
        unreachable!("{call:?} of a probe in a build without probes");
    }

    pub fn probe_query_done(&mut self, _: Now, probe: ProbeId, _: Finding) {
        unreachable!("{probe:?} of a probe in a build without probes");
    }

    pub(super) fn is_started(&self, observed: &ObservedContainer) -> bool {
        observed.state == ContainerState::Running && !self.is_starting(observed)
    }

    pub(super) fn is_ready(&self, observed: &ObservedContainer) -> bool {
        self.is_started(observed)
    }

    pub(super) fn failed_probe(&self, _: &ObservedContainer) -> Option<ProbeVerdict> {
        None
    }
}
