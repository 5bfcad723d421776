//! `activeDeadlineSeconds`: counted from the pod's `startTime`, across restarts of the agent.

use super::Pod;
use crate::agent::time::{Instant, Now};
use crate::limits::CLOCK_PLAUSIBLE_MS;

impl Pod {
    /// When it has been active for too long.
    pub(super) fn deadline_at(&self) -> Option<Instant> {
        let seconds = u64::try_from(self.api.spec.active_deadline_seconds?).ok()?;
        let before_ms = self.active_before_ms.unwrap_or(0);
        Some(self.arrived_at.plus_ms(seconds.saturating_mul(1000).saturating_sub(before_ms)))
    }

    /// Computes once how long it was active before the agent's start, as soon as the clock is set
    /// and the runtime was listed. Later jumps of the clock change nothing, nor does a start time
    /// in 1970.
    pub(super) fn count_active(&mut self, now: Now) {
        let has_deadline = self.api.spec.active_deadline_seconds.is_some();
        if self.active_before_ms.is_some() || !has_deadline || self.needs_relist {
            return;
        }
        let reported = self.api.status.start_time.map(|at| at.0.saturating_mul(1000));
        let made = self.observed.sandboxes.iter().map(|sandbox| sandbox.created_at / 1_000_000);
        let plausible = |&at: &i64| at >= CLOCK_PLAUSIBLE_MS;
        let started_ms = made.chain(reported).filter(plausible).min();
        let (Some(wall), Some(started_ms)) = (now.wall, started_ms) else { return };
        let active_ms = u64::try_from(wall.0.saturating_sub(started_ms)).unwrap_or(0);
        let here_ms = now.boot.since_ms(self.arrived_at);
        self.active_before_ms = Some(active_ms.saturating_sub(here_ms));
    }
}
