//! The agent's requests to the runtime and their replies (CRI), without protobuf.
//!
//! Only the fields that the core reads are here; the wire's full messages are in
//! [`crate::wire::cri`]. Field meanings are those of CRI v1; times are wall-clock nanoseconds since
//! 1970, as in the CRI.

mod config;
mod security;
#[cfg(feature = "streams")]
mod streaming;

use std::fmt;
use std::sync::Arc;

pub use super::cgroup::CgroupDriver;
use super::housekeeping::{HousekeepingCall, HousekeepingReply};
pub use super::ids::{ContainerId, SandboxId};
use super::pod::ContainerPort;
use super::probe::Handler;
use super::time::Timestamp;

pub use config::{
    ContainerConfig, Device, Dns, Mount, PortMapping, Propagation, Protocol, Resources,
    SandboxConfig, Terminal,
};
pub use security::{
    ContainerSecurity, IpcNamespace, Namespaces, PidNamespace, Profile, SandboxSecurity, Selinux,
    User, UserRange,
};
#[cfg(feature = "streams")]
pub use streaming::{Pipes, StreamingCall};

/// One call. Each variant is the CRI RPC of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `Version`
    Version,
    /// `Status`, not verbose.
    Status,
    /// `ListPodSandbox` without a filter: all states.
    ListPodSandbox,
    /// `ListContainers` without a filter: all states.
    ListContainers,
    /// `RuntimeConfig`
    RuntimeConfig,
    /// `GetContainerEvents`: a stream that ends only by failure.
    GetContainerEvents,
    /// `RunPodSandbox`
    RunPodSandbox(Box<SandboxConfig>),
    /// `StopPodSandbox`
    StopPodSandbox(SandboxId),
    /// `RemovePodSandbox`
    RemovePodSandbox(SandboxId),
    /// `PodSandboxStatus`
    PodSandboxStatus(SandboxId),
    /// `CreateContainer`
    CreateContainer {
        /// Its sandbox.
        sandbox: SandboxId,
        /// Its configuration.
        config: Box<ContainerConfig>,
        /// The same configuration that the sandbox was made with.
        sandbox_config: Box<SandboxConfig>,
    },
    /// `StartContainer`
    StartContainer(ContainerId),
    /// `StopContainer`
    StopContainer {
        id: ContainerId,
        /// Seconds between the stop signal and SIGKILL.
        grace_s: i64,
    },
    /// `RemoveContainer`
    RemoveContainer(ContainerId),
    /// Ends what containerd holds below a container: not a CRI call.
    Task {
        id: ContainerId,
        /// Which step.
        end: TaskEnd,
    },
    /// `ContainerStatus`
    ContainerStatus(ContainerId),
    /// `ExecSync`
    ExecSync {
        id: ContainerId,
        /// Program and arguments.
        command: Vec<String>,
        /// Seconds until the runtime kills it; 0: never.
        timeout_s: u32,
        /// Decides which limit of calls applies.
        purpose: ExecPurpose,
    },
    /// `ImageStatus` of an image by the name that the pod spec uses.
    ImageStatus(Box<str>),
    /// `PullImage`
    PullImage {
        /// The name that the pod spec uses.
        image: Box<str>,
        /// The credentials; `None`: anonymous.
        auth: Option<Auth>,
        /// The pod's sandbox: runtimes may pull inside the pod's context.
        sandbox_config: Box<SandboxConfig>,
    },
    /// A housekeeping call, of no pod.
    HousekeepingCall(HousekeepingCall),
    /// A call for a person.
    #[cfg(feature = "streams")]
    Streaming(StreamingCall),
}

impl Request {
    /// The RPC's name in snake case, as the kubelet's metric `kubelet_runtime_operations_total`
    /// labels it.
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Status => "status",
            Self::RuntimeConfig => "runtime_config",
            Self::ListPodSandbox => "list_podsandbox",
            Self::ListContainers => "list_containers",
            Self::GetContainerEvents => "get_container_events",
            Self::RunPodSandbox(_) => "run_podsandbox",
            Self::StopPodSandbox(_) => "stop_podsandbox",
            Self::RemovePodSandbox(_) => "remove_podsandbox",
            Self::PodSandboxStatus(_) => "podsandbox_status",
            Self::CreateContainer { .. } => "create_container",
            Self::StartContainer(_) => "start_container",
            Self::StopContainer { .. } => "stop_container",
            Self::RemoveContainer(_) => "remove_container",
            Self::Task { end: TaskEnd::Kill, .. } => "kill_task",
            Self::Task { end: TaskEnd::Delete, .. } => "delete_task",
            Self::ContainerStatus(_) => "container_status",
            Self::ExecSync { .. } => "exec_sync",
            Self::ImageStatus(_) => "image_status",
            Self::PullImage { .. } => "pull_image",
            Self::HousekeepingCall(housekeeping) => housekeeping.operation(),
            #[cfg(feature = "streams")]
            Self::Streaming(call) => call.operation(),
        }
    }
}

/// An operation on a task, which is containerd's term for the processes of a container. A start
/// whose caller closed the connection may leave one below a container that has ended for CRI, and
/// then the container cannot be removed before its task is (containerd's issue 11037).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// SIGKILL for its processes.
    Kill,
    /// Removes it, once they have ended.
    Delete,
}

/// Why a command is run in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecPurpose {
    /// A probe: it ends within its timeout.
    Probe,
    /// A hook: its duration is not limited.
    Hook,
    /// A person asks for it.
    #[cfg(feature = "streams")]
    Person,
}

/// `AuthConfig`, as far as it is used. Its `Debug` shows no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    /// `username`
    pub username: Box<str>,
    /// `password`
    pub password: Box<str>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("username", &self.username).finish_non_exhaustive()
    }
}

/// The answer to a [`Request`], by the request's kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To `Version`.
    Version(Version),
    /// To `Status`.
    Status(RuntimeStatus),
    /// To `RuntimeConfig`; `None`: not reported.
    CgroupDriver(Option<CgroupDriver>),
    /// To `ListPodSandbox`. Shared: nearly all are as they were a second ago.
    Sandboxes(Vec<Arc<Sandbox>>),
    /// To `ListContainers`.
    Containers(Vec<Arc<Container>>),
    /// To `RunPodSandbox`.
    Sandbox(SandboxId),
    /// To `PodSandboxStatus`.
    SandboxStatus(Box<SandboxStatus>),
    /// To `CreateContainer`.
    Container(ContainerId),
    /// To `ContainerStatus`.
    ContainerStatus(Box<ContainerStatus>),
    /// To `ExecSync`.
    Exec(Box<Exec>),
    /// To `ImageStatus`; `None`: the image is absent.
    Image(Option<Box<Image>>),
    /// To `PullImage`: `image_ref`.
    Pulled(Box<str>),
    /// To a [`HousekeepingCall`] with a reply.
    HousekeepingCall(HousekeepingReply),
    /// To a streaming call.
    #[cfg(feature = "streams")]
    Url(Box<str>),
    /// To calls without a reply.
    Done,
}

impl Reply {
    /// The variant's name. A message about a bug says only that: the content may be a list of all
    /// containers, and what prints it would be in the program for nothing else.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Version(_) => "Version",
            Self::Status(_) => "Status",
            Self::CgroupDriver(_) => "CgroupDriver",
            Self::Sandboxes(_) => "Sandboxes",
            Self::Containers(_) => "Containers",
            Self::Sandbox(_) => "Sandbox",
            Self::SandboxStatus(_) => "SandboxStatus",
            Self::Container(_) => "Container",
            Self::ContainerStatus(_) => "ContainerStatus",
            Self::Exec(_) => "Exec",
            Self::Image(_) => "Image",
            Self::Pulled(_) => "Pulled",
            Self::HousekeepingCall(_) => "HousekeepingCall",
            #[cfg(feature = "streams")]
            Self::Url(_) => "Url",
            Self::Done => "Done",
        }
    }
}

/// Why a call brought no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The runtime refused.
    Refused {
        /// gRPC's status code.
        code: Code,
        /// The runtime's own text.
        message: String,
    },
    /// No answer: the call may have taken effect, may do so later, or never.
    Lost(Lost),
}

/// How an answer was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The deadline passed.
    Deadline,
    /// The connection broke, or there was none.
    Connection,
    /// The runtime itself timed out or lost the connection to another service.
    Runtime {
        /// [`Code::Cancelled`], [`Code::DeadlineExceeded`] or [`Code::Unavailable`].
        code: Code,
        /// The runtime's own text.
        message: String,
    },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The kubelet's own form, which tools match on.
            Self::Refused { code, message } | Self::Lost(Lost::Runtime { code, message }) => {
                write!(f, "rpc error: code = {code:?} desc = {message}")
            }
            Self::Lost(Lost::Deadline) => f.write_str("no answer from the runtime in time"),
            Self::Lost(Lost::Connection) => f.write_str("the connection to the runtime was lost"),
        }
    }
}

/// gRPC status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

/// `VersionResponse`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The scheme of container ids in the API: `containerd`, `cri-o`, `docker`.
    pub runtime_name: String,
    /// As the runtime writes it: `1.6.20~ds1`.
    pub runtime_version: String,
}

/// A runtime handler (`RuntimeHandler`), and its features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeHandler {
    /// Empty: the default one.
    pub name: Box<str>,
    /// `features.recursive_read_only_mounts`
    pub recursive_read_only_mounts: bool,
    /// `features.user_namespaces`
    pub user_namespaces: bool,
}

/// `StatusResponse`. Of the two conditions, `Err` carries the reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Condition `RuntimeReady`.
    pub runtime: Result<(), String>,
    /// Condition `NetworkReady`; pods on the host's network do not need it.
    pub network: Result<(), String>,
    /// `runtime_handlers`; runtimes before containerd 2.0 and CRI-O 1.31 report none.
    pub handlers: Vec<RuntimeHandler>,
    /// `features.supplemental_groups_policy`
    pub strict_groups: bool,
}

impl RuntimeStatus {
    /// For a runtime that reports nothing else.
    pub fn of(runtime: Result<(), String>, network: Result<(), String>) -> Self {
        Self { runtime, network, handlers: Vec::new(), strict_groups: false }
    }
}

/// The network namespace of a sandbox (`NamespaceMode` of `NamespaceOption.network`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Its own.
    #[default]
    Pod,
    /// The host's.
    Node,
}

/// A sandbox in `ListPodSandboxResponse`, as far as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    pub id: SandboxId,
    /// Its pod, from the kubelet's labels. `None`: not a Kubernetes pod, never to be changed.
    pub pod: Option<PodRef>,
    /// `metadata.attempt`
    pub attempt: u32,
    /// `SANDBOX_READY`
    pub ready: bool,
    /// Nanoseconds since 1970.
    pub created_at: i64,
    /// Annotation `kubernetes.io/config.source`: `file` or `api`.
    pub source: Option<Box<str>>,
    /// The annotation [`SEEN`](super::pod::SEEN): when an agent first observed its pod.
    pub seen_at: Option<Timestamp>,
    /// The annotation [`FIRST_USER`](super::pod::FIRST_USER).
    pub first_user: Option<u32>,
}

/// The pod that the labels of sandboxes and containers name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Label `io.kubernetes.pod.uid`.
    pub uid: Box<str>,
    /// Label `io.kubernetes.pod.namespace`.
    pub namespace: Box<str>,
    /// Label `io.kubernetes.pod.name`.
    pub name: Box<str>,
}

/// A container in `ListContainersResponse`, as far as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub id: ContainerId,
    /// Its pod; `None` as for [`Sandbox::pod`].
    pub pod: Option<PodRef>,
    /// Label `io.kubernetes.container.name`.
    pub name: Box<str>,
    /// Its sandbox.
    pub sandbox: SandboxId,
    /// `metadata.attempt`
    pub attempt: u32,
    pub state: ContainerState,
    /// Nanoseconds since 1970.
    pub created_at: i64,
    /// `image.user_specified_image`: as the pod spec wrote it; where not kept, `image.image`.
    pub image: Box<str>,
    /// `image_id`: of its image; if the runtime does not report it, `image_ref`.
    pub image_id: Box<str>,
    /// Annotation `io.kubernetes.container.hash`, as written.
    pub hash: Option<Box<str>>,
    /// Annotation `io.kubernetes.pod.terminationGracePeriod`, seconds.
    pub grace_s: Option<i64>,
    /// The hook to run before its stop.
    pub pre_stop: Option<Box<PreStop>>,
}

/// A hook as stored in a container's annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreStop {
    /// Annotation `io.kubernetes.container.preStopHandler`: a `LifecycleHandler` in JSON.
    pub handler: Box<str>,
    /// Annotation `io.kubernetes.container.ports`: a list of `ContainerPort` in JSON, or empty.
    pub ports: Box<str>,
}

impl PreStop {
    /// Writes what a container has of both; an empty text stands for none.
    pub fn write(hook: Option<&Handler>, ports: &[ContainerPort]) -> Self {
        let hook = hook.map(|hook| serde_json::to_string(hook).expect("a handler is plain data"));
        let some = (!ports.is_empty()).then_some(ports);
        let ports = some.map(|all| serde_json::to_string(all).expect("ports are plain data"));
        Self { handler: hook.unwrap_or_default().into(), ports: ports.unwrap_or_default().into() }
    }

    /// Reads both. `None`: one of them is invalid.
    pub fn read(&self) -> Option<(Handler, Vec<ContainerPort>)> {
        let ports = match &*self.ports {
            "" => Vec::new(),
            ports => serde_json::from_str(ports).ok()?,
        };
        Some((serde_json::from_str(&self.handler).ok()?, ports))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Created, not started.
    Created,
    /// Its process lives.
    Running,
    /// Its process ended.
    Exited,
    /// The runtime lost track: it may still run.
    Unknown,
}

/// `PodSandboxStatus`, as far as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// `SANDBOX_READY`
    pub ready: bool,
    /// Nanoseconds since 1970.
    pub created_at: i64,
    /// `linux.namespaces.options.network`
    pub network: Network,
    /// `network.ip` and `additional_ips`: empty on the host's network.
    pub ips: Vec<Box<str>>,
}

/// `ContainerStatus`, as far as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    pub state: ContainerState,
    /// Nanoseconds since 1970; 0: not yet.
    pub started_at: i64,
    /// Nanoseconds since 1970; 0: not yet. May precede `started_at`.
    pub finished_at: i64,
    /// Of an exited container.
    pub exit_code: i32,
    /// `Completed`, `Error`, `OOMKilled`, `StartError` …
    pub reason: Box<str>,
    /// The runtime's message.
    pub message: Box<str>,
    /// `image.image`: the image's name as the runtime has it.
    pub image: Box<str>,
    /// `image_ref`
    pub image_ref: Box<str>,
    /// Host path of the file that is mounted at its `terminationMessagePath`.
    pub message_file: Option<Box<str>>,
    /// Its `terminationMessagePolicy` is `FallbackToLogsOnError`.
    pub message_from_log: bool,
}

/// `ExecSyncResponse`, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exec {
    /// Of the command; CRI-O returns −1 if it was killed at its timeout.
    pub exit_code: i32,
    /// Standard output, then standard error, lossily as text; only the beginning.
    pub output: Box<str>,
    /// Where standard error begins in it.
    pub errors_at: usize,
    /// The command has written more than that.
    pub is_cut: bool,
}

impl Exec {
    /// The first bytes of the output, no more than so many.
    pub fn beginning(&self, bytes_max: usize) -> &str {
        let mut end = bytes_max.min(self.output.len());
        while !self.output.is_char_boundary(end) {
            end -= 1;
        }
        &self.output[..end]
    }
}

/// `Image` of `ImageStatusResponse`, as far as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// `id`
    pub id: Box<str>,
    /// Bytes.
    pub size: u64,
    /// `repo_digests`: `registry.example/app@sha256:…`, as far as they are read.
    pub digests: Vec<Box<str>>,
    /// The default user of its containers.
    pub user: ImageUser,
}

/// `uid` and `username` of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ImageUser {
    /// Neither is set: root.
    #[default]
    Unset,
    /// `uid`
    Uid(i64),
    /// `username`: a name that only the image itself can resolve to an id.
    Name(Box<str>),
}
