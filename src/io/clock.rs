//! The clock and the random seed: read here, passed to all other code as [`Now`] and a number.
//!
//! The core sees one time per turn. Nothing is stored; a crash here loses nothing.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::agent::time::{Instant, Now, Wall};
use crate::limits::CLOCK_PLAUSIBLE_MS;

pub fn now() -> Now {
    let wall_ms = read_ms(ClockId::CLOCK_REALTIME) as i64;
    Now { boot: boot(), wall: plausible(wall_ms) }
}

/// The wall clock, or `None` if it is not set.
fn plausible(wall_ms: i64) -> Option<Wall> {
    (wall_ms >= CLOCK_PLAUSIBLE_MS).then_some(Wall(wall_ms))
}

/// Milliseconds since boot, including suspend.
pub fn boot() -> Instant {
    Instant(read_ms(ClockId::CLOCK_BOOTTIME))
}

/// A time for measuring how long something takes.
#[cfg(any(feature = "runtime", feature = "streams"))]
pub(super) fn precise() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every kernel has this clock");
    Duration::from(time)
}

/// The wall clock as the CRI has times: nanoseconds since 1970.
#[cfg(feature = "runtime")]
pub(super) fn wall_ns() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_REALTIME).expect("every kernel has this clock");
    if time.tv_sec() < 0 { 0 } else { Duration::from(time).as_nanos() as i64 }
}

/// Milliseconds of a clock that is cheap and coarse by some milliseconds: for measuring the parts
/// of a long turn, not for decisions.
pub(super) fn coarse_ms() -> u64 {
    read_ms(ClockId::CLOCK_MONOTONIC_COARSE)
}

fn read_ms(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("kernels since 2.6.39 have these clocks");
    // A time before 1970 is as implausible as 1970.
    if time.tv_sec() < 0 { 0 } else { Duration::from(time).as_millis() as u64 }
}

/// 64 bits that differ from start to start. The standard library gets its hash keys from the
/// kernel; the hash of nothing with new keys is the simplest safe way to random bits.
pub fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_nobody_has_set_tells_nothing() {
        assert_eq!(plausible(0), None);
        assert_eq!(plausible(CLOCK_PLAUSIBLE_MS - 1), None);
        assert_eq!(plausible(CLOCK_PLAUSIBLE_MS), Some(Wall(CLOCK_PLAUSIBLE_MS)));
    }

    #[test]
    fn time_goes_on_and_seeds_differ() {
        let (one, two) = (now(), now());
        assert!(two.boot >= one.boot);
        assert!(one.boot.0 > 0);
        assert_ne!(seed(), seed());
    }
}
