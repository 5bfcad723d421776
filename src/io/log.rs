//! The log: one plain line per record on standard error, `LEVEL place message`.
//!
//! No time: whoever collects standard error (init, `logger`, journald, the console) writes it, and
//! a gateway's clock is wrong for its first minutes anyway. Not the agent's events: those are
//! written by [`super::journal`], through here. A crash loses at most the line being written.

use std::io::Write;

use log::LevelFilter;

use crate::agent::time::Instant;
use crate::limits::LOG_REPEAT_MS;

/// Sets the log up, once per process. `RUST_LOG`, where set, wins over `level` and allows a level
/// per place (`info,edged::io=debug`).
pub fn open(level: LevelFilter) {
    let mut builder = env_logger::Builder::new();
    let fixed = std::env::var("RUST_LOG").ok().filter(|filters| !filters.is_empty());
    match &fixed {
        Some(filters) => builder.parse_filters(filters),
        // What is wanted is held by `log`'s own maximum, which can change while we run.
        None => builder.filter_level(LevelFilter::Trace),
    };
    builder.format(|to, record| {
        let place = record.target().trim_start_matches("edged::");
        let text = record.args().to_string();
        // One record is one line, whatever a runtime or a manifest put into it.
        let text = text.replace('\n', "\\n").replace('\r', "\\r");
        writeln!(to, "{:5} {place} {text}", record.level())
    });
    // A second set-up in one process only happens in tests.
    if builder.try_init().is_ok() && fixed.is_none() {
        log::set_max_level(level);
    }
}

/// Changes the level while the agent runs; returns whether it did: not where `RUST_LOG` decides.
pub fn change(level: LevelFilter) -> bool {
    let free = std::env::var("RUST_LOG").map_or(true, |filters| filters.is_empty());
    if free {
        log::set_max_level(level);
    }
    free
}

/// Lets the first of a repeating line through, then one per [`LOG_REPEAT_MS`].
#[derive(Debug, Default)]
pub struct Limit {
    told_at: Option<Instant>,
    kept: u32,
}

impl Limit {
    /// Whether to write the line now, and how many were kept back since the last one.
    pub fn pass(&mut self, now: Instant) -> Option<u32> {
        if self.told_at.is_some_and(|at| now.since_ms(at) < LOG_REPEAT_MS) {
            self.kept = self.kept.saturating_add(1);
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeating_line_is_told_once_a_minute_with_its_count() {
        let mut limit = Limit::default();
        assert_eq!(limit.pass(Instant(5)), Some(0));
        assert_eq!(limit.pass(Instant(6)), None);
        assert_eq!(limit.pass(Instant(LOG_REPEAT_MS)), None);
        assert_eq!(limit.pass(Instant(LOG_REPEAT_MS + 5)), Some(2));
        assert_eq!(limit.pass(Instant(2 * LOG_REPEAT_MS + 5)), Some(0));
    }
}
