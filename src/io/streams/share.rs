//! The processor's time for requests of people while objects of pods are being made or removed: a
//! log at full speed would take a core from the runtime that starts the pod.

use crate::agent::time::Instant;
use crate::limits::STREAM_SHARE_BESIDE_PODS;

/// Rests after each piece of work, so that the work is one part in so many of the time.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Objects of pods are being made or removed.
    limited: bool,
    /// No bytes are moved until then.
    rests_until: Option<Instant>,
    /// Microseconds of rest that are owed beyond that.
    owed_us: u64,
}

impl Share {
    /// Whether bytes may be moved now.
    pub(super) fn is_ours(&self, now: Instant) -> bool {
        self.rests_until.is_none_or(|at| at <= now)
    }

    /// Moving bytes took so long beside the work of pods.
    pub(super) fn took(&mut self, now: Instant, us: u64) {
        self.owed_us += us.saturating_mul(STREAM_SHARE_BESIDE_PODS - 1);
        self.rests_until = Some(now.plus_ms(self.owed_us / 1_000));
        self.owed_us %= 1_000;
    }

    /// Whether there is a limit from now on. Without one nothing is owed.
    pub(super) fn limit(&mut self, limited: bool) {
        if limited {
            self.limited = true;
        } else {
            *self = Self::default();
        }
    }

    /// Whether work is to be measured and told by [`Share::took`].
    pub(super) fn is_limited(&self) -> bool {
        self.limited
    }

    /// When bytes may be moved that could be moved at this time otherwise.
    pub(super) fn delay(&self, at: Instant) -> Instant {
        self.rests_until.map_or(at, |rests_until| at.max(rests_until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_one_part_in_so_many_of_the_time() {
        let (mut share, mut now, mut worked_us) = (Share::default(), Instant(1_000), 0);
        for us in [3, 70, 999, 1_000, 40, 2_500].into_iter().cycle().take(6_000) {
            assert!(share.is_ours(now));
            share.took(now, us);
            worked_us += us;
            let next = share.delay(Instant(0));
            assert_eq!(share.is_ours(now), next == now);
            now = next;
        }
        let all_us = (now.0 - 1_000) * 1_000 + worked_us;
        let parts = all_us as f64 / worked_us as f64;
        assert!((parts - STREAM_SHARE_BESIDE_PODS as f64).abs() < 0.01, "one part in {parts}");
        share.limit(true);
        assert!(share.is_limited() && !share.is_ours(Instant(0)), "what is owed stays");
        share.limit(false);
        assert!(!share.is_limited() && share.is_ours(Instant(0)));
        assert_eq!(share.delay(Instant(7)), Instant(7));
    }
}
