//! How often the agent turns: one that wakes without end uses up a processor unnoticed.

use crate::rule::judge;

/// At one moment.
const AT_ONCE_MAX: u32 = 40;
/// In one second without an input: a tenth of what a wake in every millisecond makes.
const IDLE_MAX: u32 = 100;

/// The counts.
#[derive(Debug, Default)]
pub struct Turns {
    last: u64,
    at_once: u32,
    idle_since: u64,
    idle: u32,
}

impl Turns {
    /// Counts a turn. `has_input`: it had an input.
    pub fn count(&mut self, now: u64, has_input: bool) {
        if now == self.last {
            self.at_once += 1;
            judge!(self.at_once <= AT_ONCE_MAX, "[busy loop] {AT_ONCE_MAX} turns at one moment");
        } else {
            (self.last, self.at_once) = (now, 0);
        }
        if has_input || now >= self.idle_since + 1_000 {
            (self.idle_since, self.idle) = (now, 0);
        }
        self.idle += 1;
        judge!(
            self.idle <= IDLE_MAX,
            "[idle loop] {IDLE_MAX} turns within a second in which nothing happened"
        );
    }
}
