//! The clock of the harness.

use edged::agent::time::{Instant, Now, Wall};

use crate::harness::Harness;

impl Harness {
    /// Time passes; the agent is woken at the times it requested.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now.boot.plus_ms(ms);
        let mut steps = 0;
        while let Some(at) = self.agent.wake_at().filter(|&at| at <= end && !self.exited) {
            self.set_clock(at);
            self.step();
            steps += 1;
            assert!(steps <= ms / 4 + 50, "{steps} wakes in {ms} ms in which nothing happens");
        }
        self.set_clock(end);
    }

    fn set_clock(&mut self, to: Instant) {
        let ms = to.since_ms(self.now.boot) as i64;
        self.now = Now { boot: to, wall: self.now.wall.map(|wall| Wall(wall.0 + ms)) };
    }
}
