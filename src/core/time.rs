//! Time and randomness for the cores: passed as arguments, never read from the system.

/// Milliseconds since boot on a clock that neither jumps nor stops in suspend (`CLOCK_BOOTTIME`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    /// This moment, so much later.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to here; 0 if it is not earlier.
    pub fn since_ms(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The earlier of two optional moments.
pub fn sooner(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Milliseconds since 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wall(pub i64);

/// The moment of a call to the core. Durations use `boot`; `wall` is only for what users and the
/// API read, and is unknown until it is plausible: gateways without a clock chip start in 1970.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For every duration.
    pub boot: Instant,
    /// For timestamps.
    pub wall: Option<Wall>,
}

impl Now {
    /// In the format of the API.
    pub fn timestamp(self) -> Option<crate::model::time::Timestamp> {
        self.wall.map(|wall| crate::model::time::Timestamp(wall.0.div_euclid(1000)))
    }
}

/// A delay that doubles with each failure, and starts again after a calm time.
///
/// The kubelet's rule for crashing containers and failing pulls (spec: 10 s doubling to 300 s, as
/// new after 600 s).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// The current delay; `None`: no failure yet.
    delay_ms: Option<u64>,
    used_at: Instant,
}

impl Backoff {
    /// The current delay, milliseconds.
    pub fn delay_ms(&self) -> u64 {
        self.delay_ms.unwrap_or(0)
    }

    /// When the current delay is over.
    pub fn over_at(&self) -> Instant {
        self.used_at.plus_ms(self.delay_ms())
    }

    /// Whether a failure whose cause began at `failed_at` counts as the first.
    pub fn is_calm(&self, failed_at: Instant, calm_ms: u64) -> bool {
        failed_at.since_ms(self.used_at) > calm_ms
    }

    /// Counts one more failure, whose cause began at `failed_at`.
    pub fn grow(&mut self, now: Instant, failed_at: Instant, bounds: BackoffBounds) {
        let calm = self.is_calm(failed_at, bounds.calm_ms);
        self.delay_ms = Some(match self.delay_ms {
            Some(delay_ms) if !calm => (delay_ms * 2).min(bounds.max_ms),
            _ => bounds.min_ms,
        });
        self.used_at = now;
    }

    /// Counts one more failure; returns when to retry. Only a success resets it.
    pub fn retry_at(&mut self, now: Instant, min_ms: u64, max_ms: u64) -> Instant {
        self.grow(now, now, BackoffBounds { min_ms, max_ms, calm_ms: u64::MAX });
        now.plus_ms(self.delay_ms())
    }
}

/// The bounds of a [`Backoff`].
#[derive(Clone, Copy, Debug)]
pub struct BackoffBounds {
    /// The first delay.
    pub min_ms: u64,
    /// The longest delay.
    pub max_ms: u64,
    /// After so long without a failure, the next delay is the first again.
    pub calm_ms: u64,
}

/// A small random number generator (SplitMix64): good enough to spread retries; the same seed gives
/// the same numbers. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform from 0 to `end`, exclusive; `end` is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "nothing lies below 0");
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// Uniform from `ms` to 1.5 `ms`: the kubelet's jitter of retries.
    pub fn jitter_ms(&mut self, ms: u64) -> u64 {
        ms + self.below(ms / 2 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: BackoffBounds = BackoffBounds { min_ms: 10, max_ms: 300, calm_ms: 600 };

    #[test]
    fn a_backoff_doubles_to_its_bound_and_forgets_after_calm() {
        let mut backoff = Backoff::default();
        let mut now = Instant(0);
        let mut delays = Vec::new();
        for _ in 0..7 {
            delays.push(backoff.delay_ms());
            backoff.grow(now, now, BOUNDS);
            now = now.plus_ms(backoff.delay_ms());
        }
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300]);
        let later = now.plus_ms(601);
        backoff.grow(later, later, BOUNDS);
        assert_eq!(backoff.delay_ms(), 10);
    }

    #[test]
    fn chance_is_the_same_for_the_same_seed_and_stays_below_its_end() {
        let (mut one, mut two) = (Rng::new(7), Rng::new(7));
        for end in 1..1000 {
            let number = one.below(end);
            assert!(number < end);
            assert_eq!(number, two.below(end));
        }
    }
}
