//! Rate limits: so many times a second on average, with a burst after a quiet time.

use crate::core::time::Instant;
use crate::limits::LOG_REPEAT_MS;

/// A token bucket.
#[derive(Debug)]
pub struct Rate {
    per_second: u64,
    /// Capacity, in thousandths of a token.
    left_max: u64,
    left: u64,
    at: Instant,
}

/// A token, in thousandths.
const ONE: u64 = 1000;

impl Rate {
    /// `per_second` 0: no limit.
    pub fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let left_max = ONE * u64::from(burst.max(1));
        Self { per_second: per_second.into(), left_max, left: left_max, at: now }
    }

    fn grow(&mut self, now: Instant) {
        let grown = now.since_ms(self.at).saturating_mul(self.per_second);
        self.left = self.left.saturating_add(grown).min(self.left_max);
        self.at = now;
    }

    /// Whether a token is available now.
    pub fn has(&mut self, now: Instant) -> bool {
        self.grow(now);
        self.per_second == 0 || self.left >= ONE
    }

    /// Takes one token.
    pub fn take(&mut self, now: Instant) {
        self.grow(now);
        self.left = self.left.saturating_sub(ONE);
    }

    /// When a token is available: the time of the last call if there was one left.
    pub fn wake_at(&self) -> Instant {
        let missing = ONE.saturating_sub(self.left);
        match self.per_second {
            0 => self.at,
            per_second => self.at.plus_ms(missing.div_ceil(per_second)),
        }
    }
}

/// Limits a repeating log line: lets the first through, then one per [`LOG_REPEAT_MS`].
#[derive(Debug, Default)]
pub struct Limit {
    told_at: Option<Instant>,
    suppressed: u32,
}

impl Limit {
    /// Whether to write the line now, and how many were suppressed since the last one.
    pub fn pass(&mut self, now: Instant) -> Option<u32> {
        if self.told_at.is_some_and(|at| now.since_ms(at) < LOG_REPEAT_MS) {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(rate: &mut Rate, at_ms: u64) -> usize {
        let now = Instant(at_ms);
        (0..100)
            .filter(|_| {
                let has = rate.has(now);
                if has {
                    rate.take(now);
                }
                has
            })
            .count()
    }

    #[test]
    fn a_burst_and_then_so_many_a_second() {
        let mut rate = Rate::new(30, 60, Instant(0));
        assert_eq!(sent(&mut rate, 0), 60);
        assert_eq!(rate.wake_at(), Instant(34));
        assert_eq!(sent(&mut rate, 33), 0);
        assert_eq!(sent(&mut rate, 34), 1);
        assert_eq!(sent(&mut rate, 1_034), 30);
        assert_eq!(sent(&mut rate, 3_600_000), 60, "never more than the burst");
        assert_eq!(sent(&mut Rate::new(0, 1, Instant(0)), 0), 100);
    }

    #[test]
    fn a_repeating_line_is_told_once_a_minute_with_its_count() {
        let mut limit = Limit::default();
        assert_eq!(limit.pass(Instant(5)), Some(0));
        assert_eq!(limit.pass(Instant(6)), None);
        assert_eq!(limit.pass(Instant(LOG_REPEAT_MS)), None);
        assert_eq!(limit.pass(Instant(LOG_REPEAT_MS + 5)), Some(2));
        assert_eq!(limit.pass(Instant(2 * LOG_REPEAT_MS + 5)), Some(0));
    }
}
