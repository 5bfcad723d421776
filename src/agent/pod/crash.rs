//! Back-offs of a container that ends again and again (spec section 2.4), one for each definition:
//! another image is another container. The image that a manifest goes back to has its old back-off.

use crate::agent::time::{Backoff, BackoffBounds, Instant};
use crate::limits;

/// Of one container of the spec.
#[derive(Clone, Debug, Default)]
pub(super) struct Crashes(Vec<(Box<str>, Backoff)>);

impl Crashes {
    /// Milliseconds from the newest end, at `exited_at`, to the next start, if it was ever started
    /// again and did not run for long since.
    pub(super) fn delay_ms(&self, image: &str, exited_at: Instant) -> Option<u64> {
        let (_, backoff) = self.0.iter().find(|(of, _)| **of == *image)?;
        let calm = backoff.is_calm(exited_at, limits::BACKOFF_CALM_MS);
        (!calm).then(|| backoff.delay_ms())
    }

    /// It is started again after it ended at `exited_at`.
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
