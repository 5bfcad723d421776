//! What is said of volumes that cannot be brought about.
//!
//! Objects of the cloud's pods are asked for when the pod has come, and are there a moment later:
//! that they are missing is said when they have had the time.

use super::Pod;
use crate::agent::pod::{Origin, PendingEvent};
use crate::agent::time::Instant;
use crate::limits::OBJECT_WAIT_MS;
use crate::model::recorded_event::EventType;

impl Pod {
    /// When there is something to say, if that is not now.
    pub(super) fn troubles_at(&self) -> Option<Instant> {
        let is_patient = self.origin == Origin::Cloud;
        let since = self.volumes.waits_since.filter(|_| is_patient)?;
        let unreported = self.volumes.each.values().any(|state| state.trouble.is_some() && !state.reported);
        unreported.then(|| since.plus_ms(OBJECT_WAIT_MS))
    }

    /// Says what is wrong, once each.
    pub(super) fn report_troubles(&mut self, now: Instant) {
        if self.troubles_at().is_some_and(|at| at > now) {
            return;
        }
        let mut troubles = Vec::new();
        for (name, state) in &mut self.volumes.each {
            if let Some(why) = state.trouble.as_ref().filter(|_| !state.reported) {
                troubles.push((name.clone(), why.clone()));
                state.reported = true;
            }
        }
        for (name, why) in troubles {
            self.cannot_mount(&name, &why);
        }
    }

    pub(super) fn cannot_mount(&mut self, volume: &str, why: &str) {
        let message = format!("MountVolume.SetUp failed for volume {volume:?} : {why}");
        self.pending_events.push(PendingEvent {
            kind: EventType::Warning,
            container: None,
            reason: "FailedMount",
            message,
        });
    }
}
