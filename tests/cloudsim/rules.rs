//! The rules' names.

/// All of them, by where they are judged.
#[rustfmt::skip]
pub const NAMES: &[&str] = &[
    // What a node is sent.
    "not again", "on record", "one answer", "own objects", "predecessor first",
    // What the API server is asked for.
    "leader cleans", "stays its own",
    // Sessions.
    "revoked", "signs of life", "silence",
    // The controller's steps.
    "bounded step", "exit", "one leader", "one save", "wake later",
    // The end.
    "answered", "converges", "quiet", "records gone",
];
