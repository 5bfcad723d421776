//! The world's time, and the machine's clocks by it.

use edged::agent::time::{Instant, Now, Wall};

use crate::chance::Chance;
use crate::runtime;

/// 2025-11-20, in milliseconds since 1970.
pub const TODAY_MS: i64 = 1_763_600_000_000;
/// Before this the wall clock is not plausible: 2024.
const PLAUSIBLE_MS: i64 = 1_704_067_200_000;
/// On the kernel's clock.
const BOOTED_MS: u64 = 3_000;

/// The time.
pub struct Clocks {
    /// Milliseconds since the world began.
    now: u64,
    /// World time of the machine's last start.
    booted_at: u64,
    /// How far the wall clock is ahead of the kernel's, milliseconds.
    wall_offset_ms: i64,
}

impl Clocks {
    /// The machine has just started, some without a clock chip.
    pub fn draw(chance: &mut Chance) -> Self {
        let wall_offset_ms = if chance.percent(60) { TODAY_MS } else { 0 };
        Self { now: 0, booted_at: 0, wall_offset_ms }
    }

    /// Milliseconds since the world began.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Time passes up to `at`, unless it has already.
    pub fn advance(&mut self, at: u64) {
        self.now = self.now.max(at);
    }

    /// The current time of the agent.
    pub fn agent(&self) -> Now {
        let wall_ms = self.wall_ms();
        let wall = (wall_ms >= PLAUSIBLE_MS).then_some(Wall(wall_ms));
        Now { boot: Instant(self.now - self.booted_at + BOOTED_MS), wall }
    }

    /// The current time of the runtime.
    pub fn runtime(&self) -> runtime::Clock {
        runtime::Clock { now: self.now, nanos: self.wall_ms() * 1_000_000 }
    }

    /// The agent's time as world time.
    pub fn world_time(&self, at: Instant) -> u64 {
        (at.0 + self.booted_at).saturating_sub(BOOTED_MS)
    }

    /// The machine starts again.
    pub fn reboot(&mut self, wall_kept: bool) {
        self.booted_at = self.now;
        self.wall_offset_ms = if wall_kept { TODAY_MS + self.now as i64 } else { 0 };
    }

    /// The wall clock jumps, though not before 1970: Linux has no such time.
    pub fn jump(&mut self, ms: i64) {
        self.wall_offset_ms += ms.max(-self.wall_ms());
    }

    /// The wall clock is set from the network.
    pub fn set(&mut self) {
        self.wall_offset_ms = TODAY_MS + self.booted_at as i64;
    }

    /// Whether the wall clock was ever set.
    pub fn is_set(&self) -> bool {
        self.wall_offset_ms != 0
    }

    fn wall_ms(&self) -> i64 {
        (self.now - self.booted_at) as i64 + self.wall_offset_ms
    }
}
