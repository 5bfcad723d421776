//! The log: one plain line per record on standard error, `TIME LEVEL place message`.
//!
//! The time is UTC. While the clock is not set, as in a gateway's first minutes, it is the time
//! since boot (`boot+12.345s`), as in the kernel's log, and not a wrong date. journald adds its own
//! time to each line: there ours is omitted. Not here: the agent's events; [`super::turn_log`]
//! writes them through this log. A crash loses at most the line that is being written.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use log::LevelFilter;

use super::clock;
use crate::agent::time::{Now, Wall};
pub use crate::core::rate::Limit;
use crate::model::time::Timestamp;

/// Whether `RUST_LOG` sets the levels.
static FIXED: AtomicBool = AtomicBool::new(false);

/// Sets the log up, once per process. `RUST_LOG`, if set, overrides `level` and allows a level
/// per module (`info,edged::io=debug`). An invalid one is reported and ignored.
pub fn open(level: LevelFilter) {
    let filters = std::env::var("RUST_LOG").ok().filter(|filters| !filters.is_empty());
    let mistake = filters.as_deref().and_then(mistake);
    let fixed = filters.filter(|_| mistake.is_none());
    let mut builder = builder(fixed.as_deref());
    let timed = !collector_adds_time();
    builder.format(move |to, record| {
        if timed {
            write!(to, "{} ", moment(clock::now()))?;
        }
        let place = record.target().trim_start_matches("edged::");
        let text = record.args().to_string();
        // One record is one line, whatever a runtime, a peer or a manifest wrote into it.
        writeln!(to, "{:5} {place} {}", record.level(), printable(&text))
    });
    // A second set-up in one process happens in tests only.
    if builder.try_init().is_err() {
        return;
    }
    FIXED.store(fixed.is_some(), Ordering::Relaxed);
    if fixed.is_none() {
        log::set_max_level(level);
    }
    if let Some(word) = mistake {
        log::warn!(
            "RUST_LOG: got {word:?}, expected levels such as debug or info,edged::io=debug; it is \
             ignored"
        );
    }
}

fn builder(fixed: Option<&str>) -> env_logger::Builder {
    let mut builder = env_logger::Builder::new();
    match fixed {
        // Modules that are not named still log their errors.
        Some(filters) => builder.filter_level(LevelFilter::Error).parse_filters(filters),
        // The level is enforced by `log`'s own maximum, which can change at runtime.
        None => builder.filter_level(LevelFilter::Trace),
    };
    builder
}

/// The first part of `RUST_LOG` that is neither a level nor a module with or without a level. A
/// single word would count as a module, so a word that is no module of ours is a wrong level.
fn mistake(filters: &str) -> Option<String> {
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let makes_sense = |part: &str| match part.split_once('=') {
        Some((place, level)) => !place.is_empty() && is_level(level.trim()),
        None => is_level(part) || part.starts_with("edged"),
    };
    let mut parts = filters.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.find(|part| !makes_sense(part)).map(str::to_owned)
}

/// Whether standard error goes to journald: systemd names its device and inode.
fn collector_adds_time() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let own = std::io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let about = own.and_then(|file| file.metadata());
    about.is_ok_and(|about| stream == format!("{}:{}", about.dev(), about.ino()))
}

fn moment(now: Now) -> String {
    match now.wall {
        Some(Wall(ms)) => {
            let seconds = Timestamp(ms.div_euclid(1000)).to_string();
            format!("{}.{:03}Z", seconds.trim_end_matches('Z'), ms.rem_euclid(1000))
        }
        None => format!("boot+{}.{:03}s", now.boot.0 / 1000, now.boot.0 % 1000),
    }
}

/// The text with its control characters escaped: those that end a line, control a terminal (ESC,
/// the C1 controls) or change the direction of the text after them (U+202E and similar).
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
    // Some log readers treat U+2028 and U+2029 as the end of a line.
    c.is_control() || is_bidi || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Changes the level at runtime; returns false if `RUST_LOG` sets it.
pub fn change(level: LevelFilter) -> bool {
    let free = !FIXED.load(Ordering::Relaxed);
    if free {
        log::set_max_level(level);
    }
    free
}

#[cfg(test)]
mod tests {
    use log::{Level, Log, Metadata};

    use crate::agent::time::Instant;

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

    #[test]
    fn a_line_has_the_time_or_that_since_boot() {
        let now = |wall| Now { boot: Instant(12_345), wall };
        let wall = Some(Wall(1_763_666_956_007));
        assert_eq!(moment(now(wall)), "2025-11-20T19:29:16.007Z");
        assert_eq!(moment(now(None)), "boot+12.345s");
    }

    #[test]
    fn no_filter_silences_errors_by_mistake() {
        for (filters, wrong) in [
            ("blah", Some("blah")),
            ("info,debgu", Some("debgu")),
            ("edged::io=debgu", Some("edged::io=debgu")),
            ("=debug", Some("=debug")),
            ("info, edged::io=debug", None),
            ("edged::agent", None),
            ("OFF", None),
        ] {
            assert_eq!(mistake(filters).as_deref(), wrong, "{filters}");
        }
        let enabled = |filters, level, target| {
            let about = Metadata::builder().level(level).target(target).build();
            builder(Some(filters)).build().enabled(&about)
        };
        assert!(enabled("edged::io=debug", Level::Error, "event"));
        assert!(!enabled("edged::io=debug", Level::Warn, "event"));
        assert!(enabled("edged::io=debug", Level::Debug, "edged::io"));
        assert!(enabled("info", Level::Info, "event"));
        assert!(!enabled("off", Level::Error, "event"));
    }
}
