//! Setting up the volumes of a pod on the file system.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One volume to set up, whatever exists of it already.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeSetUp {
    /// The pod's uid.
    pub uid: Box<str>,
    /// Its name in the pod.
    pub volume: Box<str>,
    /// The name of its folder: the same, but for a persistent volume that one's name.
    pub folder: Box<str>,
    pub source: Source,
    /// Group that owns it.
    pub fs_group: Option<u32>,
    /// Folders to make in it, because other volumes are mounted there; relative.
    pub nested: Vec<Box<str>>,
}

/// The content of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// Initially empty.
    EmptyDir(Medium),
    /// A path of the node, which is not changed, only checked.
    HostPath {
        /// Absolute.
        path: Box<str>,
        /// The required type.
        kind: HostPathKind,
    },
    /// These files, and no others.
    Files(Files),
    /// A folder of the node, bind-mounted below the pod's.
    Local {
        /// Absolute.
        path: Box<str>,
        /// The group gets it only if its root does not belong to the group yet.
        if_needed: bool,
    },
    /// A folder of another machine: only a child process accesses it.
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

/// The medium of an emptyDir.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Medium {
    /// On the disk of the kubelet's root.
    Disk,
    /// In memory.
    Memory {
        /// Its maximum size; 0: half of the machine's memory, the kernel's default.
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

/// Files that are replaced atomically when they change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Files {
    /// The kind of volume.
    pub plugin: FilesPlugin,
    /// The size of a file system in memory for it; `None`: they are on the disk.
    pub memory_bytes: Option<u64>,
    /// By their paths below the volume; the later of two with one path counts.
    pub files: Vec<FileEntry>,
}

/// A kind of volume that consists of files.
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
    pub content: FileContent,
}

/// The content of a file; its `Debug` shows only the size.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileContent(pub Arc<[u8]>);

/// A part of a volume that is mounted separately (subPath).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubPath {
    /// The pod's uid.
    pub uid: Box<str>,
    /// The container that gets it.
    pub container: Box<str>,
    /// The index of the container's mount.
    pub index: u32,
    /// The volume's name in the pod.
    pub volume: Box<str>,
    /// The path of the volume; absolute.
    pub volume_path: Box<str>,
    /// The part: relative, without `..`. Created as a folder if it does not exist.
    pub path: Box<str>,
    /// The volume may be on another machine: only a child process accesses it.
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
