//! A pod that had to go for the node's sake (spec section 9.4). It stays as Failed while its source
//! wants it; what it left in the runtime goes.
//!
//! Or for the cloud's: whoever sets the phase of a pod that runs to Failed or Succeeded there, as
//! people and controllers do who give a pod up, ends it, as every kubelet does (`pod_workers.go`).

use std::collections::BTreeMap;

use super::{Phase, Pod, Verdict, volumes};
use crate::model::status::PodStatus;

/// Why and how it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eviction {
    /// `status.message`, and the event's.
    pub message: String,
    /// Seconds that its containers have at the most; the pod's own grace period may be shorter.
    pub grace_s: i64,
    /// Of the event.
    pub annotations: BTreeMap<&'static str, String>,
    /// The node ran short, and it has the condition `DisruptionTarget` for it; not where it passed
    /// a limit of its own.
    pub disrupted: bool,
}

impl Eviction {
    /// It took more than it may.
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

    /// What its event carries beyond the message.
    pub(super) fn annotations(&self, reason: &str) -> BTreeMap<&'static str, String> {
        let eviction = self.eviction.as_ref().filter(|_| reason == EVICTED);
        eviction.map(|eviction| eviction.annotations.clone()).unwrap_or_default()
    }
}

/// Whether what the cloud tells of a pod's status ends it. That it runs the node knows better; that
/// it has ended is final, whoever said it.
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
    fn the_cloud_ends_a_pod_that_has_not_ended_and_says_nothing_else_of_it() {
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
