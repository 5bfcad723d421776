//! Reports volumes that cannot be set up.
//!
//! Objects of the cloud's pods are requested when the pod arrives, and come a moment later: missing
//! ones are reported only after a delay.

use super::Pod;
use crate::agent::pod::Origin;
use crate::agent::time::Instant;
use crate::limits::OBJECT_WAIT_MS;

impl Pod {
    /// When there is something to report, if that is not now.
    pub(super) fn troubles_at(&self) -> Option<Instant> {
        let is_patient = self.origin == Origin::Cloud;
        let since = self.volumes.waits_since.filter(|_| is_patient)?;
        let unreported =
            self.volumes.each.values().any(|state| state.trouble.is_some() && !state.reported);
        unreported.then(|| since.plus_ms(OBJECT_WAIT_MS))
    }

    /// Reports each trouble once.
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
        self.events.warn("FailedMount", message);
    }
}
