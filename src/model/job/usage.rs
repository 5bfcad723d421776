//! How much of the disk some folders take.

use serde::{Deserialize, Serialize};

use super::LogDir;

/// Folders that are to be walked through.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Walk {
    /// What they are.
    pub kind: FolderKind,
    /// Which. All of them fit into one message: see [`Walk::push`].
    pub places: Vec<Place>,
}

/// What a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FolderKind {
    /// A volume on the disk, `emptyDir`: the place's name is the volume's.
    Volume,
    /// The logs of a container, whose name is the place's.
    Logs,
}

/// One folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Whose.
    pub pod: LogDir,
    /// Of what.
    pub name: Box<str>,
}

/// What a folder takes, as `du` counts: blocks in use, each file once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Of the disk.
    pub bytes: u64,
    /// Files and folders.
    pub inodes: u64,
}

impl Used {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

impl Walk {
    /// Nothing to walk through yet.
    pub fn new(kind: FolderKind) -> Self {
        Self { kind, places: Vec::new() }
    }

    /// Adds a folder, unless the message would be too long: gives it back then.
    pub fn push(&mut self, place: Place) -> Result<(), Place> {
        let bytes: usize = self.places.iter().map(Place::bytes).sum();
        if bytes + place.bytes() > crate::limits::WALK_BYTES_MAX {
            return Err(place);
        }
        self.places.push(place);
        Ok(())
    }
}

impl Place {
    /// No fewer than it takes in a message, its answer included.
    fn bytes(&self) -> usize {
        let LogDir { namespace, name, uid } = &self.pod;
        namespace.len() + name.len() + uid.len() + self.name.len() + 32
    }
}
