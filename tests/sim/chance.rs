//! The random numbers of a seed: every draw of a run comes from here, so the seed is the run.

use edged::agent::time::Rng;

/// Draws in the forms that the simulator needs.
pub struct Chance(Rng);

impl Chance {
    /// The same seed gives the same draws.
    pub fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// Evenly from 0 up to, not including, `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.0.below(end) }
    }

    /// Evenly from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An index into something of this length, which is not empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.0.below(len as u64) as usize
    }

    /// True with this probability in percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        percent > 0 && self.0.below(100) < percent
    }

    /// True with this probability in parts per million.
    pub fn ppm(&mut self, ppm: u64) -> bool {
        ppm > 0 && self.0.below(1_000_000) < ppm
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// Zero in two of five runs, otherwise uniform up to `max`: some runs have all faults, some a
    /// single kind.
    pub fn rate(&mut self, max: u64) -> u64 {
        if self.percent(40) { 0 } else { self.below(max + 1) }
    }

    /// Mostly small, rarely up to `max`: a duration over all its orders of magnitude.
    pub fn spread(&mut self, max: u64) -> u64 {
        let bound = max >> self.below(10);
        self.below(bound + 1)
    }
}
