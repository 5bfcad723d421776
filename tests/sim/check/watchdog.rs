//! The machine's watchdog: it must be fed when that is due, because every request of the agent is
//! answered in time here.

use edged::agent::Config;
use edged::agent::event::Action;
use edged::agent::time::Instant;

use crate::rule::judge;

/// When it is fed.
pub struct Watchdog {
    /// Milliseconds; `None`: there is no watchdog.
    interval_ms: Option<u64>,
    /// In this life, by the agent's clock.
    fed_at: Option<Instant>,
}

impl Watchdog {
    pub fn new(config: &Config) -> Self {
        Self { interval_ms: interval_ms(config), fed_at: None }
    }

    pub fn begin_life(&mut self) {
        self.fed_at = None;
    }

    /// The agent has taken a step.
    pub fn stepped(&mut self, actions: &[Action], now: Instant, leaving: bool) {
        let Some(each_ms) = self.interval_ms else { return };
        #[cfg(feature = "watchdog")]
        let fed = actions.iter().any(|action| matches!(action, Action::Feed));
        #[cfg(not(feature = "watchdog"))]
        let fed = actions.is_empty();
        let due = self.fed_at.is_none_or(|at| now >= at.plus_ms(each_ms));
        judge!(
            fed || leaving || !due || cfg!(not(feature = "watchdog")),
            "[watchdog] fed last at {:?}, and not at {now:?}",
            self.fed_at
        );
        if fed {
            self.fed_at = Some(now);
        }
    }
}

#[cfg(feature = "watchdog")]
fn interval_ms(config: &Config) -> Option<u64> {
    let timeout_ms = u64::from(config.watchdog.timeout_s) * 1_000;
    let is_fed = !config.watchdog.device.is_empty();
    is_fed.then_some(timeout_ms / edged::limits::WATCHDOG_PINGS)
}

#[cfg(not(feature = "watchdog"))]
fn interval_ms(_: &Config) -> Option<u64> {
    None
}
