//! Jobs of an upgrade of edged itself, and what `edged-run` says of its slots.

use serde::{Deserialize, Serialize};

/// A step of an upgrade. Each takes a while: all run in a child.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UpgradeStep {
    /// Read the slots. → [`UpgradeReply::Slots`]
    Look,
    /// Take the program and its signature out of an image, and verify the one by the other. →
    /// [`UpgradeReply::Taken`]
    Take {
        /// Absolute path of the runtime's images, from `ImageFsInfo`.
        image_fs: Box<str>,
        /// `id` of the image.
        image: Box<str>,
        /// Its `repo_digests`.
        digests: Vec<Box<str>>,
    },
    /// Begin the trial of the program that was taken, if it still has this digest.
    /// → [`UpgradeReply::Begun`], after which the agent is told to end.
    Try { program: Box<str> },
    /// Tell the agent to end: the next one runs from the slot that is tried.
    /// → [`UpgradeReply::Begun`]
    Restart,
}

/// The reply to an [`UpgradeStep`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpgradeReply {
    Slots(Slots),
    /// The program's digest, `sha256:` and 64 hex digits.
    Taken {
        program: Box<str>,
    },
    Begun,
}

/// The slots of `edged-run`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// The digest of the program that runs, `sha256:` and 64 hex digits.
    pub program: Box<str>,
    /// Bytes of it.
    pub program_bytes: u64,
    /// Bytes that are free in the slots' file system.
    pub free_bytes: u64,
    pub trial: Trial,
    /// Why the last upgrade was left; empty: it was not.
    pub left: Box<str>,
}

/// Which program is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trial {
    /// None: what runs is trusted.
    #[default]
    None,
    /// The one that runs.
    Running,
    /// One that runs as soon as the agent is started again.
    Next,
}
