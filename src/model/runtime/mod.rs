//! The built-in runtime: what it is asked for and what it answers (CRI), the records that it keeps,
//! and the work that it gives to jobs and monitors.
//!
//! The agent knows another half of the CRI, [`super::cri`], with the fields that it reads. Here are
//! all fields that a client may rely on; configurations are the same types.

mod job;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use super::cri::{
    Auth, Code, ContainerConfig, ContainerId, ContainerState, ImageUser, Pipes, Resources,
    SandboxConfig, SandboxId,
};
pub use job::{
    ContainerFolder, ExecOutput, Job, JobFault, JobReply, MonitorFact, MonitorStart, Session,
    StatsOf, Usage,
};
pub use record::{
    BootId, ContainerPhase, ContainerRecord, DiffId, Exit, ExitReason, ImageConfig, ImageId,
    ImageRecord, Process, Record, RecordKey, SandboxPhase, SandboxRecord,
};

/// A call to the runtime service or the image service, each the CRI RPC of the same name. Ids are
/// as the client wrote them: a unique prefix of an id is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Version,
    Status,
    RuntimeConfig,
    RunPodSandbox(Box<SandboxConfig>),
    StopPodSandbox(Box<str>),
    RemovePodSandbox(Box<str>),
    PodSandboxStatus(Box<str>),
    ListPodSandbox(SandboxFilter),
    /// The sandbox's own configuration is known from `RunPodSandbox`; what comes again is not read.
    CreateContainer {
        sandbox: Box<str>,
        config: Box<ContainerConfig>,
    },
    StartContainer(Box<str>),
    StopContainer {
        id: Box<str>,
        /// Seconds between the stop signal and SIGKILL; 0 or less: SIGKILL at once.
        grace_s: i64,
    },
    RemoveContainer(Box<str>),
    ContainerStatus(Box<str>),
    ListContainers(ContainerFilter),
    ReopenContainerLog(Box<str>),
    /// Zero and empty leave a value as it is.
    UpdateContainerResources {
        id: Box<str>,
        resources: Box<Resources>,
    },
    ExecSync {
        id: Box<str>,
        command: Vec<String>,
        /// Seconds; 0 or less: no limit.
        timeout_s: i64,
    },
    Exec {
        id: Box<str>,
        command: Vec<String>,
        pipes: Pipes,
    },
    Attach {
        id: Box<str>,
        pipes: Pipes,
    },
    PortForward {
        sandbox: Box<str>,
        /// For WebSocket: SPDY names the port of each connection.
        ports: Vec<u16>,
    },
    ListContainerStats(ContainerFilter),
    ListPodSandboxStats(SandboxFilter),
    /// A stream that ends only with the connection, or when the client falls behind.
    GetContainerEvents,
    /// All, or those that this name stands for.
    ListImages(Option<Box<str>>),
    ImageStatus(Box<str>),
    PullImage {
        image: Box<str>,
        auth: Option<RegistryAuth>,
    },
    RemoveImage(Box<str>),
    ImageFsInfo,
    /// Not CRI: every image of an OCI layout, an archive of one, or the output of `docker save`.
    ImportImages {
        /// Absolute, on the host.
        path: Box<str>,
    },
}

/// `AuthConfig`. Its `Debug` shows no secret.
#[derive(Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RegistryAuth {
    /// `username` and `password`, or both out of `auth` (base64 of `username:password`).
    pub basic: Option<(Box<str>, Box<str>)>,
    /// `identity_token`: exchanged at the registry's token server.
    pub identity_token: Option<Box<str>>,
    /// `registry_token`: a bearer token as it is.
    pub registry_token: Option<Box<str>>,
}

impl std::fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = self.basic.as_ref().map(|(user, _)| user);
        f.debug_struct("RegistryAuth").field("user", &user).finish_non_exhaustive()
    }
}

/// `PodSandboxFilter`: all that are set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxFilter {
    /// A prefix; empty: any.
    pub id: Box<str>,
    pub ready: Option<bool>,
    /// Labels that must have these values.
    pub labels: BTreeMap<String, String>,
}

/// `ContainerFilter`: all that are set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFilter {
    /// A prefix; empty: any.
    pub id: Box<str>,
    /// A prefix of the sandbox's id; empty: any.
    pub sandbox: Box<str>,
    pub state: Option<ContainerState>,
    /// Labels that must have these values.
    pub labels: BTreeMap<String, String>,
}

/// The answer to a [`Request`], by its kind. Records are shared: a list is made each second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Version,
    Status(Conditions),
    RuntimeConfig,
    /// To `RunPodSandbox`.
    Sandbox(SandboxId),
    SandboxStatus(Arc<SandboxRecord>),
    Sandboxes(Vec<Arc<SandboxRecord>>),
    /// To `CreateContainer`.
    Container(ContainerId),
    ContainerStatus(Arc<ContainerRecord>, Option<Arc<ImageRecord>>),
    Containers(Vec<(Arc<ContainerRecord>, Option<Arc<ImageRecord>>)>),
    Exec(Box<ExecOutput>),
    /// To `Exec`, `Attach` and `PortForward`: `unix://PATH`, a socket that takes one connection.
    Url(Box<str>),
    ContainerStats(Vec<(Arc<ContainerRecord>, Usage)>),
    SandboxStats(Vec<(Arc<SandboxRecord>, Usage)>),
    Images(Vec<Arc<ImageRecord>>),
    /// To `ImageStatus`; `None`: absent, which is no error.
    Image(Option<Arc<ImageRecord>>),
    /// To `PullImage`.
    Pulled(ImageId),
    ImageFs {
        /// Bytes of all layers.
        used_bytes: u64,
    },
    /// To `ImportImages`: the names that the images have now.
    Imported(Vec<Box<str>>),
    /// To calls without a reply.
    Done,
}

/// What runs the containers of the sandboxes that name it: `RuntimeHandler`, and the `handler` of a
/// RuntimeClass.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Handler {
    /// Empty: that of sandboxes which name none.
    pub name: Box<str>,
    /// The OCI runtime's program, absolute.
    pub program: Box<str>,
    /// `recursive_read_only_mounts`: the program and the kernel can make them.
    pub recursive_read_only: bool,
    /// `user_namespaces`: the kernel can make them, and map the files of images.
    pub user_namespaces: bool,
}

/// The two conditions of `Status`; `Err` has the reason (one word) and the message. And its
/// handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// `RuntimeReady`
    pub runtime: Result<(), (Box<str>, Box<str>)>,
    /// `NetworkReady`; pods on the host's network do not need it.
    pub network: Result<(), (Box<str>, Box<str>)>,
    /// `runtime_handlers`
    pub handlers: Vec<Handler>,
}

/// Why a call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: Code,
    pub message: String,
}

/// `ContainerEventResponse`: something changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// Of the container, or of the sandbox itself.
    pub id: Box<str>,
    pub kind: EventKind,
    /// Nanoseconds since 1970.
    pub at: i64,
    /// `None`: it is gone.
    pub sandbox: Option<Arc<SandboxRecord>>,
    /// Those of the sandbox.
    pub containers: Vec<(Arc<ContainerRecord>, Option<Arc<ImageRecord>>)>,
}

/// `ContainerEventType`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Created,
    Started,
    Stopped,
    Deleted,
}
