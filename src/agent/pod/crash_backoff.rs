//! Back-off of containers that crash repeatedly (spec section 2.4), one for each definition:
//! another image is another container. If a manifest goes back to an earlier image, that image's
//! old back-off applies.

use crate::agent::time::{Backoff, BackoffBounds, Instant};
use crate::limits;

/// The back-offs of one container of the spec.
#[derive(Clone, Debug, Default)]
pub(super) struct CrashBackoff(Vec<(Box<str>, Backoff)>);

impl CrashBackoff {
    /// Milliseconds from the newest end, at `exited_at`, to the next start, if it was ever
    /// restarted and has not run for long since.
    pub(super) fn delay_ms(&self, image: &str, exited_at: Instant) -> Option<u64> {
        let (_, backoff) = self.0.iter().find(|(of, _)| **of == *image)?;
        let calm = backoff.is_calm(exited_at, limits::BACKOFF_CALM_MS);
        (!calm).then(|| backoff.delay_ms())
    }

    /// It is restarted after it ended at `exited_at`.
    pub(super) fn count(
        &mut self,
        image: &str,
        now: Instant,
        exited_at: Instant,
        bounds: BackoffBounds,
    ) {
        let at = self.0.iter().position(|(of, _)| **of == *image);
        let known = at.map(|at| self.0.remove(at));
        let (image, mut backoff) = known.unwrap_or_else(|| (image.into(), Backoff::default()));
        backoff.grow(now, exited_at, bounds);
        if self.0.len() >= limits::CRASHES_MAX {
            self.0.remove(0);
        }
        self.0.push((image, backoff));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{BACKOFF_CALM_MS, BACKOFF_MAX_MS, BACKOFF_MIN_MS, CRASHES_MAX};

    const BOUNDS: BackoffBounds =
        BackoffBounds { min_ms: BACKOFF_MIN_MS, max_ms: BACKOFF_MAX_MS, calm_ms: BACKOFF_CALM_MS };

    #[test]
    fn a_long_run_resets_the_back_off() {
        let began = Instant(1_000);
        let mut crashes = CrashBackoff::default();
        crashes.count("i:1", began, began, BOUNDS);
        let ended = began.plus_ms(BACKOFF_CALM_MS);
        assert_eq!(crashes.delay_ms("i:1", ended), Some(BACKOFF_MIN_MS));
        assert_eq!(crashes.delay_ms("i:1", ended.plus_ms(1)), None);
        let mut calm = crashes.clone();
        calm.count("i:1", ended, ended.plus_ms(1), BOUNDS);
        assert_eq!(calm.delay_ms("i:1", ended), Some(BACKOFF_MIN_MS));
        crashes.count("i:1", ended, ended, BOUNDS);
        assert_eq!(crashes.delay_ms("i:1", ended), Some(2 * BACKOFF_MIN_MS));
    }

    #[test]
    fn the_oldest_definition_is_dropped_for_a_new_one() {
        let at = Instant(1_000);
        let mut crashes = CrashBackoff::default();
        let mut count = |image: usize| crashes.count(&format!("i:{image}"), at, at, BOUNDS);
        (0..CRASHES_MAX).for_each(&mut count);
        // It crashes again: from now on another one is the oldest.
        count(0);
        count(CRASHES_MAX);
        let known = |image: usize| crashes.delay_ms(&format!("i:{image}"), at);
        assert_eq!(known(0), Some(2 * BACKOFF_MIN_MS));
        assert_eq!(known(1), None);
        let rest = 2..=CRASHES_MAX;
        assert!(rest.clone().all(|image| known(image) == Some(BACKOFF_MIN_MS)), "{crashes:?}");
        assert_eq!(crashes.0.len(), CRASHES_MAX);
    }
}
