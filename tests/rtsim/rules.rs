//! The rules' names.

/// All of them, by where they are judged.
#[rustfmt::skip]
pub const NAMES: &[&str] = &[
    // Calls.
    "one answer", "durable answer", "ended answer", "true exit", "limits", "lost sandbox",
    // Jobs and monitors.
    "on record", "one process", "bounded", "own layers", "needed layers", "one save",
    // The core's steps.
    "wake later",
    // The end of a run.
    "answered", "nothing left", "quiet",
];
