//! The rules' names.

/// All of them, by where they are judged.
#[rustfmt::skip]
pub const NAMES: &[&str] = &[
    // Messages to nodes.
    "not again", "on record", "one answer", "own objects", "predecessor first",
    "recorded first",
    // Requests to the API server.
    "leader cleans", "no older value", "own value", "stays its own",
    // Sessions.
    "revoked", "signs of life", "silence",
    // The controller's steps.
    "bounded step", "exit", "one leader", "one save", "wake later",
    // The end of a run.
    "answered", "converges", "own port", "quiet", "records gone",
];
