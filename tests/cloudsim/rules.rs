//! The rules' names.

/// All of them, by where they are judged.
#[rustfmt::skip]
pub const NAMES: &[&str] = &[
    // Messages to nodes.
    "not again", "on record", "one answer", "own objects", "predecessor first",
    "recorded first",
    "asked once", "own job",
    // Requests to the API server.
    "forward", "leader cleans", "no older value", "own report", "own value", "slots",
    "stays its own",
    // Sessions.
    "revoked", "signs of life", "silence",
    // The controller's steps.
    "bounded step", "exit", "one leader", "one save", "wake later",
    // The end of a run.
    "answered", "converges", "own port", "quiet", "records gone",
];
