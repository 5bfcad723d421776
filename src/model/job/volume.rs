//! What a pod's volumes need of the file system.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One volume that is to be there, whatever there is of it by now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeSetUp {
    /// The pod's uid.
    pub uid: Box<str>,
    /// Its name in the pod.
    pub volume: Box<str>,
    /// Its folder's name: the same, but of a persistent volume that one's.
    pub folder: Box<str>,
    /// What is in it.
    pub source: Source,
    /// Group that owns it.
    pub fs_group: Option<u32>,
    /// Folders to be made in it, since other volumes are mounted there; relative.
    pub nested: Vec<Box<str>>,
}

/// What is in a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// Nothing at first.
    EmptyDir(Medium),
    /// Something of the node, which stays where it is and is only looked at.
    HostPath {
        /// Absolute.
        path: Box<str>,
        /// What must be there.
        kind: HostPathKind,
    },
    /// These files, and no others.
    Files(Files),
    /// A folder of the node, shown below the pod's.
    Local {
        /// Absolute.
        path: Box<str>,
        /// Given to the pod's group only where its root is not the group's yet.
        if_needed: bool,
    },
    /// A folder of another machine: nothing of it is touched but in a child.
    Nfs {
        /// Name or address.
        server: Box<str>,
        /// Absolute, there.
        path: Box<str>,
        /// Mounted read-only.
        read_only: bool,
        /// For mount(8).
        options: Vec<Box<str>>,
    },
}

/// Where an emptyDir lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Medium {
    /// On the disk of the kubelet's root.
    Disk,
    /// In memory.
    Memory {
        /// It may hold so much; 0: half of the machine's memory, as the kernel has it.
        size_bytes: u64,
    },
}

/// `HostPathVolumeSource.type`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HostPathKind {
    Unset,
    DirectoryOrCreate,
    Directory,
    FileOrCreate,
    File,
    Socket,
    CharDevice,
    BlockDevice,
}

/// Files that are replaced all at once when they change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Files {
    /// What kind of volume they are.
    pub plugin: FilesPlugin,
    /// Bytes that a file system in memory for it may hold; `None`: they lie on the disk.
    pub memory_bytes: Option<u64>,
    /// By their paths below the volume; of two of one path the later counts.
    pub files: Vec<FileEntry>,
}

/// A kind of volume that is made of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FilesPlugin {
    ConfigMap,
    Secret,
    DownwardApi,
    Projected,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileEntry {
    /// Relative, without `..`.
    pub path: Box<str>,
    /// Permission bits.
    pub mode: u32,
    /// What is in it.
    pub content: FileContent,
}

/// What is in a file; its `Debug` tells only how much.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileContent(pub Arc<[u8]>);

/// A part of a volume that is to be mounted by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubPath {
    /// The pod's uid.
    pub uid: Box<str>,
    /// The container that is to see it.
    pub container: Box<str>,
    /// Which of the container's mounts.
    pub index: u32,
    /// The volume's name in the pod.
    pub volume: Box<str>,
    /// Where the volume is; absolute.
    pub volume_path: Box<str>,
    /// What of it: relative, without `..`. Made as a folder if it is not there.
    pub path: Box<str>,
    /// The volume may be on another machine: nothing of it is touched but in a child.
    pub remote: bool,
}

impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for FileContent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for FileContent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::<u8>::deserialize(from).map(|bytes| Self(bytes.into()))
    }
}

impl FilesPlugin {
    /// The folder of its volumes.
    pub fn folder(self) -> &'static str {
        match self {
            Self::ConfigMap => "kubernetes.io~configmap",
            Self::Secret => "kubernetes.io~secret",
            Self::DownwardApi => "kubernetes.io~downward-api",
            Self::Projected => "kubernetes.io~projected",
        }
    }
}
