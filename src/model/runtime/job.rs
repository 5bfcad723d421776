//! The work that the built-in runtime's core gives away: jobs, and one monitor for each container.

use serde::{Deserialize, Serialize};

use super::{
    ContainerId, ContainerRecord, DiffId, ImageRecord, Process, RegistryAuth, Resources, SandboxId,
    SandboxRecord,
};
use crate::model::cri::Pipes;

/// One job. Each can be done again after a crash at any moment of the first time: what is there
/// already is kept, what is half made is made anew. Those that end something succeed where nothing
/// is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Job {
    /// Namespaces, `/dev/shm`, the three files of `/etc`, sysctls, the cgroup parent, CNI ADD. A
    /// failure leaves nothing. → [`JobReply::Network`]
    MakeSandbox(Box<SandboxRecord>),
    /// CNI DEL, the mounts and the folder in `/run`.
    EndSandbox(Box<SandboxRecord>),
    /// The container's folders, its users, its `config.json`. → [`JobReply::Done`]
    MakeContainer {
        sandbox: Box<SandboxRecord>,
        container: Box<ContainerRecord>,
        image: Box<ImageRecord>,
    },
    /// Kills what is left in its cgroup, deletes it from the OCI runtime, takes down its mounts and
    /// its folder in `/run`; its own layer stays.
    EndContainer(ContainerFolder),
    /// Removes its own layer.
    RemoveContainer(ContainerId),
    /// Changes the cgroup of a running container. → [`JobReply::Done`]
    Update { container: ContainerFolder, resources: Box<Resources> },
    /// Runs a command in a running container. → [`JobReply::Exec`]
    Exec {
        container: ContainerFolder,
        command: Vec<String>,
        /// Seconds; 0: no limit.
        timeout_s: u32,
    },
    /// Opens a session, which is a process of its own from then on. → [`JobReply::Url`]
    Open(Session),
    /// → [`JobReply::Image`]
    Pull { image: Box<str>, auth: Option<RegistryAuth> },
    /// → [`JobReply::Images`]
    Import { path: Box<str> },
    /// Removes layers that no image and no container needs.
    RemoveLayers {
        layers: Vec<DiffId>,
        /// Downloads that were broken off, too. No pull may be under way.
        downloads: bool,
    },
    /// Measures cgroups and, where asked for, what containers have written. → [`JobReply::Stats`]
    Stats(Vec<StatsOf>),
}

impl Job {
    /// The OCI runtime's program that it calls: [`SandboxRecord::program`]. Empty where it calls
    /// none, too.
    pub fn program(&self) -> &str {
        match self {
            Self::MakeSandbox(sandbox)
            | Self::EndSandbox(sandbox)
            | Self::MakeContainer { sandbox, .. } => &sandbox.program,
            Self::EndContainer(container)
            | Self::Update { container, .. }
            | Self::Exec { container, .. }
            | Self::Open(Session::Exec { container, .. } | Session::Attach { container, .. }) => {
                &container.program
            }
            Self::Open(Session::PortForward { .. })
            | Self::RemoveContainer(_)
            | Self::Pull { .. }
            | Self::Import { .. }
            | Self::RemoveLayers { .. }
            | Self::Stats(_) => "",
        }
    }
}

/// Where a container's things are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerFolder {
    pub id: ContainerId,
    /// Absolute in each hierarchy.
    pub cgroup: Box<str>,
    /// [`SandboxRecord::program`]
    pub program: Box<str>,
}

/// What the client of a session gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Session {
    /// A command in a running container.
    Exec { container: ContainerFolder, command: Vec<String>, pipes: Pipes },
    /// The streams of the container itself. `stdin_once`: the end of the client's input is that of
    /// the container's.
    Attach { container: ContainerFolder, pipes: Pipes, stdin_once: bool },
    /// Ports of a sandbox; WebSocket has one connection to each of `ports`.
    PortForward { sandbox: SandboxId, own_network: bool, ports: Vec<u16> },
}

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsOf {
    /// Absolute in each hierarchy: of a container, or of a pod.
    pub cgroup: Box<str>,
    /// Count bytes and inodes of this container's own layer.
    pub layer_of: Option<ContainerId>,
    /// Read the counters of this sandbox's network.
    pub network_of: Option<SandboxId>,
}

/// What was measured; `None`: not to be had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Nanoseconds since 1970.
    pub at: i64,
    /// Nanoseconds of all processors.
    pub cpu_ns: Option<u64>,
    pub memory_usage: Option<u64>,
    /// Usage without inactive pages of files.
    pub memory_working_set: Option<u64>,
    pub memory_rss: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    /// Limit, if there is one.
    pub memory_limit: Option<u64>,
    pub processes: Option<u64>,
    /// Bytes and inodes of its own layer.
    pub layer: Option<(u64, u64)>,
    /// `eth0`: bytes and errors received, bytes and errors sent.
    pub network: Option<[u64; 4]>,
}

/// What a job came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobReply {
    Done,
    /// Addresses of the sandbox; none on the host's network.
    Network(Vec<Box<str>>),
    Exec(ExecOutput),
    /// `unix://PATH`: a socket that takes one connection.
    Url(Box<str>),
    Image(Box<ImageRecord>),
    Images(Vec<ImageRecord>),
    /// In the order of the request.
    Stats(Vec<Usage>),
}

/// What a command wrote, as much of it as is kept, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit_code: i32,
}

/// Why a job came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobFault {
    /// The request cannot be fulfilled as it is (CRI: `InvalidArgument`).
    Invalid(String),
    /// What it names does not exist (CRI: `NotFound`).
    NotFound(String),
    /// A registry refused (CRI: `PermissionDenied`).
    Denied(String),
    /// There are too many of it (CRI: `ResourceExhausted`).
    Exhausted(String),
    /// The command's own time is over (CRI: `DeadlineExceeded`).
    TimedOut(String),
    /// Everything else: the text of the system, the plugin or the OCI runtime (CRI: `Unknown`).
    Failed(String),
    /// The job itself was killed or died: it may have done anything.
    Died(String),
    /// The process namespace of the sandbox has ended: nothing can be started in it (CRI:
    /// `Unknown`).
    SandboxLost(String),
}

impl JobFault {
    /// Its reason.
    pub fn text(&self) -> &str {
        match self {
            Self::Invalid(text)
            | Self::NotFound(text)
            | Self::Denied(text)
            | Self::Exhausted(text)
            | Self::TimedOut(text)
            | Self::Failed(text)
            | Self::Died(text)
            | Self::SandboxLost(text) => text,
        }
    }
}

/// What a monitor is started with: the file `start` in the container's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorStart {
    pub id: ContainerId,
    /// Absolute; empty: output is read and dropped.
    pub log: Box<str>,
    /// `stdin`: keep standard input open.
    pub stdin: bool,
    /// `tty`
    pub tty: bool,
    /// Absolute in each hierarchy.
    pub cgroup: Box<str>,
    /// [`SandboxRecord::program`]
    pub program: Box<str>,
    /// The process runs already and has no monitor: take over its streams.
    pub adopt: Option<Process>,
}

/// What a monitor tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MonitorFact {
    /// The container's process runs.
    Started {
        process: Process,
        /// Nanoseconds since 1970.
        at: i64,
    },
    /// It could not be started: the OCI runtime's text. The monitor ends.
    Failed(String),
    /// The container's process has ended. The monitor ends.
    Exited {
        /// As the shell counts: 128 and the number for a signal.
        code: i32,
        oom_killed: bool,
        /// Nanoseconds since 1970.
        at: i64,
    },
    /// The log is open again under its name, or why not.
    Reopened(Result<(), String>),
    /// The monitor is gone without a word; the process of the container may live.
    Gone,
}
