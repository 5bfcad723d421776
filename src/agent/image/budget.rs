//! The rate limit of pulls: so many per second in the long run, and a burst after a quiet time
//! (`registryPullQPS`, `registryBurst`). A pull beyond the limit is not delayed but fails, as in
//! the kubelet: its pod has a back-off of its own.

use super::Settings;
use crate::agent::rate::Rate;
use crate::agent::time::Instant;

#[derive(Debug)]
pub(super) struct Budget(Rate);

impl Budget {
    pub(super) fn new(settings: Settings, now: Instant) -> Self {
        Self(Rate::new(settings.per_second, settings.burst, now))
    }

    /// Takes one, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let granted = self.0.has(now);
        if granted {
            self.0.take(now);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(budget: &mut Budget, at_ms: u64) -> usize {
        (0..100).filter(|_| budget.take(Instant(at_ms))).count()
    }

    #[test]
    fn a_burst_then_the_long_run_rate() {
        let settings = Settings { parallel_max: 1, per_second: 5, burst: 10 };
        let mut budget = Budget::new(settings, Instant(0));
        assert_eq!(granted(&mut budget, 0), 10);
        assert_eq!(granted(&mut budget, 199), 0);
        assert_eq!(granted(&mut budget, 200), 1);
        assert_eq!(granted(&mut budget, 1_200), 5);
        assert_eq!(granted(&mut budget, 3_600_000), 10, "never more than the burst");
        let mut unbounded = Budget::new(Settings { per_second: 0, ..settings }, Instant(0));
        assert_eq!(granted(&mut unbounded, 0), 100);
    }
}
