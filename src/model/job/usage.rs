//! The disk usage of folders.

use serde::{Deserialize, Serialize};

use super::LogDir;

/// Folders to measure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Walk {
    pub kind: FolderKind,
    /// All of them fit into one message: see [`Walk::push`].
    pub places: Vec<Place>,
}

/// The kind of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FolderKind {
    /// A volume on the disk, `emptyDir`: the place has the volume's name.
    Volume,
    /// The logs of a container; the place has its name.
    Logs,
}

/// One folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub pod: LogDir,
    pub name: Box<str>,
}

/// The usage of a folder, as `du` counts: blocks in use, each file once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Of the disk.
    pub bytes: u64,
    /// Files and folders.
    pub inodes: u64,
}

impl Used {
    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

impl Walk {
    /// Without folders.
    pub fn new(kind: FolderKind) -> Self {
        Self { kind, places: Vec::new() }
    }

    /// Adds a folder, unless the message would be too long: then it is returned.
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
    /// At least its size in a message, with its answer.
    fn bytes(&self) -> usize {
        let LogDir { namespace, name, uid } = &self.pod;
        namespace.len() + name.len() + uid.len() + self.name.len() + 32
    }
}
