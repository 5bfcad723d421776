//! Jobs on the file system and in child processes: postcard on the pipe to `edged job`.

#[cfg(feature = "node-jobs")]
mod upgrade;
mod usage;
mod volume;

use serde::{Deserialize, Serialize};

use super::cgroup::{PodCgroup, QosCgroups};

#[cfg(feature = "node-jobs")]
pub use upgrade::{Slots, Trial, UpgradeReply, UpgradeStep};
pub use usage::{FolderKind, Place, Used, Walk};
pub use volume::{
    FileContent, FileEntry, Files, FilesPlugin, HostPathKind, Medium, Source, SubPath, VolumeSetUp,
};

/// One job. The event loop makes paths from these checked parts; whole paths are never passed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum JobSpec {
    /// Make the pod's log folder and its folder below the kubelet's root, and in each of them one
    /// folder for each container; modes 0755 and 0750. Returns which logs exist already.
    MakePodDirs {
        pod: LogDir,
        /// Container names.
        containers: Vec<Box<str>>,
    },
    /// Make the link in `/var/log/containers` for log collectors.
    LinkLog(LogLink),
    /// Make the files of a container: quick.
    MakeContainerFiles(Box<ContainerFiles>),
    /// Remove the log files of one ended container, with rotated ones, and its link.
    RemoveLog(LogLink),
    /// Rename the log of a running container, after the oldest rotated ones are removed.
    RotateLog {
        log: LogLink,
        /// This many files stay, with the new one that follows; 2 or more.
        files_max: usize,
        /// Seconds since 1970, for its name; 0: not known.
        at_s: i64,
    },
    /// Rename the newest rotated log back, unless there is a new one.
    RestoreLog(LogLink),
    /// Compress the rotated logs except the newest. Takes long: runs in a child.
    CompressLogs(LogLink),
    /// Remove dangling links to logs, unless the container lives: then its log is being rotated.
    SweepLinks {
        /// Ids of containers that have not ended.
        living: Vec<Box<str>>,
    },
    /// Remove the pod's log folder with its contents. May take long: runs in a child.
    RemoveLogDir(LogDir),
    /// Make the pod's cgroup, or change its values: quick.
    MakePodCgroup(Box<PodCgroup>),
    /// Kill the remaining processes of the pod's cgroup, whatever its class, and remove it: quick.
    RemovePodCgroup(Box<str>),
    /// Make the parent cgroups of pods, or change their values: quick.
    SetQosCgroups(Box<QosCgroups>),
    /// Set up one volume.
    SetUpVolume(Box<VolumeSetUp>),
    /// Mount a part of a volume separately, for a container.
    BindSubPath(Box<SubPath>),
    /// Unmount and remove all volumes of the pod. May take long: runs in a child.
    TearDownVolumes(LogDir),
    /// Unmount everything in the pod's folder below the kubelet's root, and remove the folder with
    /// its contents. May take long: runs in a child.
    RemovePodDir(LogDir),
    /// Request the node's certificate from the cloud and store it, with its key and the cloud's CA,
    /// for the next [`crate::agent::event::Action::Dial`]. Runs in a child.
    #[cfg(feature = "cloud")]
    Enrol {
        /// With the existing certificate, not with the token.
        renew: bool,
    },
    /// Measure the disk usage of these folders. May take long: runs in a child.
    Measure(Walk),
    /// Measure how much of the node is in use. Takes a while: runs in a child.
    #[cfg(feature = "node-jobs")]
    MeasureNode {
        /// Absolute path of the runtime's images; `None`: not known.
        image_fs: Option<Box<str>>,
    },
    /// A step of an upgrade of edged itself. Takes a while: runs in a child.
    #[cfg(feature = "node-jobs")]
    Upgrade(UpgradeStep),
}

impl JobSpec {
    /// The variant's name, for a message about a bug.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::MakePodDirs { .. } => "MakePodDirs",
            Self::LinkLog(_) => "LinkLog",
            Self::MakeContainerFiles(_) => "MakeContainerFiles",
            Self::RemoveLog(_) => "RemoveLog",
            Self::RotateLog { .. } => "RotateLog",
            Self::RestoreLog(_) => "RestoreLog",
            Self::CompressLogs(_) => "CompressLogs",
            Self::SweepLinks { .. } => "SweepLinks",
            Self::RemoveLogDir(_) => "RemoveLogDir",
            Self::MakePodCgroup(_) => "MakePodCgroup",
            Self::RemovePodCgroup(_) => "RemovePodCgroup",
            Self::SetQosCgroups(_) => "SetQosCgroups",
            Self::SetUpVolume(_) => "SetUpVolume",
            Self::BindSubPath(_) => "BindSubPath",
            Self::TearDownVolumes(_) => "TearDownVolumes",
            Self::RemovePodDir(_) => "RemovePodDir",
            #[cfg(feature = "cloud")]
            Self::Enrol { .. } => "Enrol",
            Self::Measure(_) => "Measure",
            #[cfg(feature = "node-jobs")]
            Self::MeasureNode { .. } => "MeasureNode",
            #[cfg(feature = "node-jobs")]
            Self::Upgrade(_) => "Upgrade",
        }
    }
}

/// The reply of a job that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobReply {
    /// No data.
    Done,
    /// To [`JobSpec::Measure`]: for each place in order; `None`: it does not exist.
    Used(Vec<Option<Used>>),
    /// To [`JobSpec::MakePodDirs`]: for each container in order the newest attempt with a log;
    /// `None`: there is none.
    Attempts(Vec<Option<u32>>),
    /// To [`JobSpec::MeasureNode`].
    #[cfg(feature = "node-jobs")]
    NodeUsage(NodeUsage),
    /// To [`JobSpec::Upgrade`].
    #[cfg(feature = "node-jobs")]
    Upgrade(UpgradeReply),
}

/// How much of the node is in use, in hundredths of a per cent. `None`: it could not be read.
#[cfg(feature = "node-jobs")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUsage {
    /// Of all processors together.
    pub cpu: Option<u32>,
    /// As the kubelet counts it: without what the kernel can free.
    pub memory: Option<u32>,
    /// Of the fuller one of the file systems of images and of pods.
    pub disk: Option<u32>,
}

/// Names `<pod logs>/<namespace>_<name>_<uid>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogDir {
    /// DNS label.
    pub namespace: Box<str>,
    /// DNS subdomain.
    pub name: Box<str>,
    /// `[0-9a-z-]{1,64}`
    pub uid: Box<str>,
}

impl LogDir {
    /// Stands for an unknown namespace and name.
    pub const NAMELESS: &str = "unknown";

    /// For a pod of which only the uid is known.
    pub fn nameless(uid: &str) -> Self {
        Self { namespace: Self::NAMELESS.into(), name: Self::NAMELESS.into(), uid: uid.into() }
    }
}

/// The agent's own files of one container, below the pod's folder in the kubelet's root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContainerFiles {
    pub pod: LogDir,
    /// The container's name.
    pub container: Box<str>,
    /// The attempt of the container.
    pub attempt: u32,
    /// `containers/<container>/<this>`: for its termination message; empty, mode 0666.
    pub message: Box<str>,
    /// An older such file that is not needed any more.
    pub old: Option<Box<str>>,
    /// `etc-hosts`, mode 0644; `None`: it is not changed.
    pub hosts: Option<Hosts>,
}

/// The content of `etc-hosts`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Hosts {
    /// This text.
    Own {
        /// The whole content.
        text: String,
    },
    /// A header line, the node's own lines, and these.
    Nodes {
        /// After the node's lines.
        aliases: String,
    },
}

/// Where the termination message of a container may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastWords {
    pub pod: LogDir,
    /// The container's name.
    pub container: Box<str>,
    /// Its file `containers/<container>/<this>`.
    pub file: Option<Box<str>>,
    /// If that is empty or missing: the end of the log of this attempt.
    pub log: Option<u32>,
}

/// Names one container's log and its link
/// `<container logs>/<pod>_<namespace>_<container>-<id>.log`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogLink {
    pub pod: LogDir,
    /// The container's name.
    pub container: Box<str>,
    /// The log is `<container>/<attempt>.log`.
    pub attempt: u32,
    /// The runtime's id of it.
    pub id: Box<str>,
}

/// Why a job failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobError {
    /// The job failed with a system error.
    Failed(String),
    /// The child did not answer before its deadline and was killed.
    Deadline,
    /// The child ended without an answer.
    Died(String),
    /// It was cancelled; the child was killed, or had not begun.
    Killed,
}

impl std::fmt::Display for JobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(why) => f.write_str(why),
            Self::Deadline => f.write_str("not done in time, the child was killed"),
            Self::Killed => f.write_str("given up, the child was killed"),
            Self::Died(how) => write!(f, "the child ended without an answer: {how}"),
        }
    }
}
