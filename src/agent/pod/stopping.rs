//! Why containers are stopped, and the event of a stop.

use super::Pod;
use crate::model::cri::ContainerId;
use crate::model::pod::RestartPolicy;
use crate::model::probe::ProbeKind;
use crate::model::recorded_event::EventType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The pod ends, or its sandbox is replaced.
    Ending,
    /// The spec names another image.
    Changed,
    /// This probe of it failed too often.
    Probe(ProbeKind),
    /// Its postStart hook failed.
    PostStart,
    /// The runtime lost track of it.
    Unknown,
}

impl Pod {
    /// Records the start of a stop; some stops are followed by another start.
    pub(super) fn record_stop(&mut self, id: &ContainerId, why: StopReason) {
        let Some(observed) = self.observed.container(id) else { return };
        let name = observed.name.clone();
        let is_init = self.api.spec.init_containers.iter().any(|init| init.name == name);
        let message = match why {
            StopReason::Ending => format!("Stopping container {name}"),
            StopReason::Changed if is_init => {
                format!("Init container {name} definition changed")
            }
            StopReason::Changed => {
                format!("Container {name} definition changed, will be restarted")
            }
            StopReason::Probe(kind) => {
                let kind = kind.title().to_lowercase();
                let what = if is_init { "Init container" } else { "Container" };
                let never = self.api.spec.restart_policy == RestartPolicy::Never;
                let then = if is_init || never { "" } else { ", will be restarted" };
                format!("{what} {name} failed {kind} probe{then}")
            }
            StopReason::PostStart => "FailedPostStartHook".to_owned(),
            StopReason::Unknown => {
                "Container is in \"unknown\" state, try killing it before restart".to_owned()
            }
        };
        let again = match why {
            StopReason::Changed => true,
            StopReason::Probe(_) => self.api.spec.restart_policy != RestartPolicy::Never,
            StopReason::Ending | StopReason::PostStart | StopReason::Unknown => false,
        };
        if again {
            self.records.of(&name).restart_after(id.clone());
        }
        self.record_event(&name, EventType::Normal, "Killing", message);
    }
}
