//! Writes the agent's events and log lines.
//!
//! The core decides what is logged and how often; this module formats it. Nothing is stored.

use log::Level;

use crate::agent::event::Severity;
use crate::model::recorded_event::{EventType, RecordedEvent};

/// Writes one event with the keys that scripts search for.
pub(super) fn note(note: &RecordedEvent) {
    let level = match note.kind {
        EventType::Normal => Level::Info,
        EventType::Warning => Level::Warn,
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

/// ` container=web` from `spec.containers{web}`; empty for the whole object.
struct Container<'a>(&'a str);

impl std::fmt::Display for Container<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.0.split_once('{').and_then(|(_, rest)| rest.strip_suffix('}'));
        name.map_or(Ok(()), |name| write!(f, " container={name}"))
    }
}

/// Writes one log line of the core.
pub(super) fn line(target: &str, severity: Severity, text: &str) {
    let level = match severity {
        Severity::Debug => Level::Debug,
        Severity::Info => Level::Info,
        Severity::Warn => Level::Warn,
        Severity::Error => Level::Error,
    };
    log::log!(target: target, level, "{text}");
}
