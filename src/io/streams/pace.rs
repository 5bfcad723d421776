//! Whether one end takes enough of what waits for it, while others have to wait for that.

use crate::agent::time::Instant;

/// Bytes that must be taken in so many milliseconds.
#[derive(Clone, Copy, Debug)]
pub(in crate::io) struct Least {
    pub bytes: usize,
    pub ms: u64,
}

#[derive(Debug)]
pub(in crate::io) struct Pace {
    least: Least,
    taken: u64,
    /// Since when others wait, and what was taken until then.
    full: Option<(Instant, u64)>,
}

impl Pace {
    pub(in crate::io) fn new(least: Least) -> Self {
        Self { least, taken: 0, full: None }
    }

    pub(in crate::io) fn took(&mut self, count: usize) {
        self.taken += count as u64;
    }

    /// Nobody waits any more.
    #[cfg(feature = "controller")]
    pub(in crate::io) fn stop(&mut self) {
        self.full = None;
    }

    /// Others wait, or did a moment ago.
    #[cfg(feature = "controller")]
    pub(in crate::io) fn is_watched(&self) -> bool {
        self.full.is_some()
    }

    /// Whether it has taken too little. `is_full`: others wait now.
    pub(in crate::io) fn is_slow(&mut self, is_full: bool, now: Instant) -> bool {
        let begin = is_full.then_some((now, self.taken));
        let Some((since, taken)) = self.full else {
            self.full = begin;
            return false;
        };
        if self.taken - taken >= self.least.bytes as u64 {
            self.full = begin;
        } else if since.plus_ms(self.least.ms) <= now {
            self.full = None;
            return is_full;
        }
        false
    }

    /// When to ask [`Pace::is_slow`] at the latest.
    pub(in crate::io) fn due_at(&self) -> Option<Instant> {
        self.full.map(|(since, _)| since.plus_ms(self.least.ms))
    }
}
