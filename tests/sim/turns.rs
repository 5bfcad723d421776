//! How often the agent turns: one that wakes without end uses up a processor, and nobody sees it.

use crate::rule::judge;

/// At one moment.
const AT_ONCE_MAX: u32 = 40;
/// In one second in which nothing was handed in: a tenth of what a wake in every millisecond makes.
const IDLE_MAX: u32 = 100;

/// What was counted.
#[derive(Debug, Default)]
pub struct Turns {
    last: u64,
    at_once: u32,
    idle_since: u64,
    idle: u32,
}

impl Turns {
    /// One more. `told`: something was handed in.
    pub fn count(&mut self, now: u64, told: bool) {
        if now == self.last {
            self.at_once += 1;
            judge!(self.at_once <= AT_ONCE_MAX, "[busy loop] {AT_ONCE_MAX} turns at one moment");
        } else {
            (self.last, self.at_once) = (now, 0);
        }
        if told || now >= self.idle_since + 1_000 {
            (self.idle_since, self.idle) = (now, 0);
        }
        self.idle += 1;
        judge!(
            self.idle <= IDLE_MAX,
            "[idle loop] {IDLE_MAX} turns within a second in which nothing happened"
        );
    }
}
