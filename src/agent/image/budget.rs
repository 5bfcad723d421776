//! How many pulls may begin: so many a second in the long run, and a few at once after a quiet time
//! (`registryPullQPS`, `registryBurst`). What is beyond is not put off but fails, as the kubelet's
//! does: its pod has a back-off of its own.

use super::Settings;
use crate::agent::time::Instant;

#[derive(Debug)]
pub(super) struct Budget {
    settings: Settings,
    /// Thousandths of a pull.
    left: u64,
    at: Instant,
}

impl Budget {
    pub(super) fn new(settings: Settings, now: Instant) -> Self {
        Self { settings, left: 1000 * u64::from(settings.burst), at: now }
    }

    /// Takes one, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let Settings { per_second, burst, .. } = self.settings;
        if per_second == 0 {
            return true;
        }
        let grown = now.since_ms(self.at).saturating_mul(per_second.into());
        self.left = self.left.saturating_add(grown).min(1000 * u64::from(burst));
        self.at = now;
        let granted = self.left >= 1000;
        if granted {
            self.left -= 1000;
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
    fn a_burst_and_then_so_many_a_second() {
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
