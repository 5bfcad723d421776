//! What the agent has to say: its events and lines, and turns of the loop that took too long.
//!
//! The mind decides what is said and how often; here it only gets its form. Nothing is kept.

use log::Level;

use super::clock;
use crate::agent::event::Severity;
use crate::limits::TURN_MS_MAX;
use crate::model::note::{Note, NoteKind};

/// Writes one event with the keys that scripts look for.
pub(super) fn note(note: &Note) {
    let level = match note.kind {
        NoteKind::Normal => Level::Info,
        NoteKind::Warning => Level::Warn,
    };
    let object = &note.involved_object;
    let kind = object.kind.to_ascii_lowercase();
    let slash = if object.namespace.is_empty() { "" } else { "/" };
    log::log!(
        target: "event",
        level,
        "event={} kind={:?} {kind}={}{slash}{}{} count={} message={:?}",
        note.reason, note.kind, object.namespace, object.name, Container(&object.field_path),
        note.count, note.message,
    );
}

/// ` container=web` out of `spec.containers{web}`; nothing for the whole object.
struct Container<'a>(&'a str);

impl std::fmt::Display for Container<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.0.split_once('{').and_then(|(_, rest)| rest.strip_suffix('}'));
        name.map_or(Ok(()), |name| write!(f, " container={name}"))
    }
}

/// Writes one line of the mind.
pub(super) fn line(target: &str, severity: Severity, text: &str) {
    let level = match severity {
        Severity::Debug => Level::Debug,
        Severity::Info => Level::Info,
        Severity::Warn => Level::Warn,
        Severity::Error => Level::Error,
    };
    log::log!(target: target, level, "{text}");
}

/// Watches one turn: which part of it took longest.
#[derive(Debug)]
pub(super) struct Turn {
    began_ms: u64,
    lap_ms: u64,
    longest: (&'static str, u64),
}

impl Turn {
    /// The turn begins.
    pub(super) fn begin() -> Self {
        let began_ms = clock::coarse_ms();
        Self { began_ms, lap_ms: began_ms, longest: ("nothing", 0) }
    }

    /// `part` has just been done.
    pub(super) fn lap(&mut self, part: &'static str) {
        let now_ms = clock::coarse_ms();
        let took_ms = now_ms.saturating_sub(self.lap_ms);
        self.lap_ms = now_ms;
        if took_ms > self.longest.1 {
            self.longest = (part, took_ms);
        }
    }

    /// The turn ends.
    pub(super) fn end(self) {
        let took_ms = self.lap_ms.saturating_sub(self.began_ms);
        if took_ms > TURN_MS_MAX {
            let (part, part_ms) = self.longest;
            log::warn!("a turn took {took_ms} ms, {part_ms} of them for {part}");
        }
    }
}
