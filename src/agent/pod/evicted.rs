//! Pods that were evicted (spec section 9.4). An evicted pod stays as Failed while its source wants
//! it; its objects in the runtime are removed.
//!
//! Also pods that the cloud ends: if the phase of a running pod is set to Failed or Succeeded
//! there, as users and controllers do who give up a pod, the pod is ended, as by every kubelet
//! (`pod_workers.go`).

use std::collections::BTreeMap;

use super::{Phase, Pod, Verdict, volumes};
use crate::model::status::PodStatus;

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

impl Eviction {
    /// It exceeded a limit.
    pub fn at_once(message: String) -> Self {
        Self { message, grace_s: 1, ..Self::default() }
    }
}

impl Pod {
    /// The pod ends as Failed.
    pub fn evict(&mut self, eviction: Eviction) {
        assert!(self.phase == Phase::Syncing, "pod {} ends already", self.uid);
        let verdict = Verdict { reason: EVICTED, message: eviction.message.clone() };
        self.eviction = Some(eviction);
        self.refuse(verdict);
    }

    /// Whether nothing of it is left that takes room: no container and no volume.
    pub fn is_cleaned_up(&self) -> bool {
        self.phase >= Phase::Terminated && self.observed.is_empty() && volumes::are_down(self)
    }

    /// Annotations of its event.
    pub(super) fn annotations(&self, reason: &str) -> BTreeMap<&'static str, String> {
        let eviction = self.eviction.as_ref().filter(|_| reason == EVICTED);
        eviction.map(|eviction| eviction.annotations.clone()).unwrap_or_default()
    }
}

/// Whether the cloud's status of a pod ends it. The node itself knows better whether the pod runs;
/// its end is final, whoever reported it.
pub fn overrules(ours: &PodStatus, remote: &PodStatus) -> bool {
    remote.phase.is_terminal() && !ours.phase.is_terminal()
}

const EVICTED: &str = "Evicted";
/// The reason of the condition `DisruptionTarget` that a node sets.
pub const DISRUPTED: &str = "TerminationByKubelet";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::status::Phase;

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
