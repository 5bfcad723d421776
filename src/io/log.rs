//! The log: one plain line per record on standard error, `LEVEL place message`.
//!
//! No time: whoever collects standard error (init, `logger`, journald, the console) writes it, and
//! a gateway's clock is wrong for its first minutes anyway. Not the agent's events: those are
//! written by [`super::journal`], through here. A crash loses at most the line being written.

use std::borrow::Cow;
use std::io::Write;

use log::LevelFilter;

pub use crate::mind::rate::Limit;

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
        // One record is one line, whatever a runtime, a peer or a manifest put into it.
        writeln!(to, "{:5} {place} {}", record.level(), printable(&text))
    });
    // A second set-up in one process only happens in tests.
    if builder.try_init().is_ok() && fixed.is_none() {
        log::set_max_level(level);
    }
}

/// The text with its control characters escaped: those that end a line, command a terminal (ESC,
/// the C1 controls) or turn the direction of what follows them (U+202E and its like).
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    Cow::Owned(escaped)
}

fn is_control(c: char) -> bool {
    let is_bidi = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}');
    // U+2028 and U+2029 end a line for some who read the log.
    c.is_control() || is_bidi || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Changes the level while the agent runs; returns whether it did: not where `RUST_LOG` decides.
pub fn change(level: LevelFilter) -> bool {
    let free = std::env::var("RUST_LOG").map_or(true, |filters| filters.is_empty());
    if free {
        log::set_max_level(level);
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_commands_a_terminal_or_begins_a_line() {
        for (text, expected) in [
            ("pod=web: \u{fc}ber \u{1f600}", "pod=web: \u{fc}ber \u{1f600}"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[2J\u{7}\u{7f}", "\\u{1b}[2J\\u{7}\\u{7f}"),
            ("\u{9b}31m \u{85}", "\\u{9b}31m \\u{85}"),
            ("a\u{202e}b\u{2066}c\u{200f}\u{2028}", "a\\u{202e}b\\u{2066}c\\u{200f}\\u{2028}"),
        ] {
            assert_eq!(printable(text), expected);
        }
    }
}
