//! What is asked of the file system and of child processes: postcard on the pipe to `edged job`.

mod usage;
mod volume;

use serde::{Deserialize, Serialize};

use super::cgroup::{PodCgroup, QosCgroups};

pub use usage::{FolderKind, Place, Used, Walk};
pub use volume::{
    FileContent, FileEntry, Files, FilesPlugin, HostPathKind, Medium, Source, SubPath, VolumeSetUp,
};

/// One job. Paths are made by the hands out of these checked parts, never handed over whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum JobSpec {
    /// Make the pod's log folder and its folder below the kubelet's root, and in each of them one
    /// folder for each container; modes 0755 and 0750. Tells which logs are there already.
    MakePodDirs {
        /// Whose.
        pod: LogDir,
        /// Container names.
        containers: Vec<Box<str>>,
    },
    /// Make the link in `/var/log/containers` that log collectors follow.
    LinkLog(LogLink),
    /// Make the files that a container is given: quick.
    MakeContainerFiles(Box<ContainerFiles>),
    /// Remove the log files of one ended container, rotated ones included, and its link.
    RemoveLog(LogLink),
    /// Rename the log of a container that runs, after the oldest of its rotated ones are gone.
    RotateLog {
        /// Which.
        log: LogLink,
        /// So many files stay, the new one that is to come included; 2 or more.
        files_max: usize,
        /// Seconds since 1970, for its name; 0: not known.
        at_s: i64,
    },
    /// Give the newest rotated log its name back, unless there is a new one.
    RestoreLog(LogLink),
    /// Compress the rotated logs but the newest. Takes long: runs in a child.
    CompressLogs(LogLink),
    /// Remove links to logs that lead nowhere, unless the container lives: its log is just being
    /// rotated.
    SweepLinks {
        /// Ids of containers that have not ended.
        living: Vec<Box<str>>,
    },
    /// Remove the pod's log folder with all in it. May take long: runs in a child.
    RemoveLogDir(LogDir),
    /// Make the pod's cgroup, or change its values: quick.
    MakePodCgroup(Box<PodCgroup>),
    /// Kill what is left in the pod's cgroup, whatever its class, and remove it: quick.
    RemovePodCgroup(Box<str>),
    /// Make the cgroups that those of pods lie below, or change their values: quick.
    SetQosCgroups(Box<QosCgroups>),
    /// Bring one volume about.
    SetUpVolume(Box<VolumeSetUp>),
    /// Mount a part of a volume by itself, for a container.
    BindSubPath(Box<SubPath>),
    /// Unmount and remove all volumes of the pod. May take long: runs in a child.
    TearDownVolumes(LogDir),
    /// Unmount what is mounted in the pod's folder below the kubelet's root, and remove the folder
    /// with all in it. May take long: runs in a child.
    RemovePodDir(LogDir),
    /// Apply to the cloud for the node's certificate and keep it, with its key and the cloud's CA,
    /// where the next [`crate::agent::event::Action::Dial`] finds them. Runs in a child.
    #[cfg(feature = "cloud")]
    Enrol {
        /// By the certificate that there is, not by the token.
        renew: bool,
    },
    /// Tell how much of the disk these folders take. May take long: runs in a child.
    Measure(Walk),
}

/// What a job that succeeded answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobReply {
    /// Nothing more.
    Done,
    /// To [`JobSpec::Measure`]: of each place in their order; `None`: it is not there.
    Used(Vec<Option<Used>>),
    /// To [`JobSpec::MakePodDirs`]: of each container in their order the newest attempt that left a
    /// log; `None`: none did.
    Attempts(Vec<Option<u32>>),
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
    /// In the place of a namespace and of a name that are not known.
    pub const NAMELESS: &str = "unknown";

    /// Of a pod of which only the uid is known.
    pub fn nameless(uid: &str) -> Self {
        Self { namespace: Self::NAMELESS.into(), name: Self::NAMELESS.into(), uid: uid.into() }
    }
}

/// The agent's own files of one container, below the pod's folder in the kubelet's root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContainerFiles {
    /// Whose.
    pub pod: LogDir,
    /// The container's name.
    pub container: Box<str>,
    /// Which instance they are for.
    pub attempt: u32,
    /// `containers/<container>/<this>`: for its last words; empty, mode 0666.
    pub message: Box<str>,
    /// Such a file that nobody needs any more.
    pub old: Option<Box<str>>,
    /// `etc-hosts`, mode 0644; `None`: it stays as it is.
    pub hosts: Option<Hosts>,
}

/// What `etc-hosts` holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Hosts {
    /// This.
    Own {
        /// The whole of it.
        text: String,
    },
    /// A line that says so, the node's own, and this.
    Nodes {
        /// Behind the rest.
        aliases: String,
    },
}

/// Where a container may have left word of why it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastWords {
    /// Whose.
    pub pod: LogDir,
    /// The container's name.
    pub container: Box<str>,
    /// Its file `containers/<container>/<this>`.
    pub file: Option<Box<str>>,
    /// Where that is empty or not there: the end of the log of this attempt.
    pub log: Option<u32>,
}

/// Names one container's log and its link
/// `<container logs>/<pod>_<namespace>_<container>-<id>.log`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogLink {
    /// Whose.
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
    /// It tried, and the system said no.
    Failed(String),
    /// The child did not answer by its deadline and was killed.
    Deadline,
    /// The child ended without an answer.
    Died(String),
    /// Nobody wanted it any more; the child was killed, or had not begun.
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
