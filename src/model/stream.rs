//! What a kubelet serves for people: logs, `exec`, `attach`, port forwarding, `run`, and usage
//! (edgestream.md, section 7). The requests as the core gets them, and its answers.

use super::cri::{Exec, Pipes};
use super::housekeeping::ContainerUsage;
use super::job::LogDir;
use super::time::Timestamp;

/// Identifies one request from its arrival to its end. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// A request of a person, from the HTTP API or from the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamRequest {
    /// `GET /containerLogs/{namespace}/{pod}/{container}`
    Logs { pod: PodName, container: Box<str>, options: LogOptions },
    /// `/exec/{namespace}/{pod}[/{uid}]/{container}`
    Exec { pod: PodName, container: Box<str>, command: Vec<String>, pipes: Pipes },
    /// `/attach/{namespace}/{pod}[/{uid}]/{container}`; its `tty` is the container's own.
    Attach { pod: PodName, container: Box<str>, pipes: Pipes },
    /// `/portForward/{namespace}/{pod}[/{uid}]`; the ports of a websocket's query.
    PortForward { pod: PodName, ports: Vec<u16> },
    /// `POST /run/{namespace}/{pod}[/{uid}]/{container}`
    Run { pod: PodName, container: Box<str>, command: Vec<String> },
    /// A command that ends within seconds, with its output and its errors apart.
    Command { pod: PodName, container: Box<str>, command: Vec<String> },
    /// `/stats/summary`, `/metrics/resource`: the usage of all containers.
    Usage,
}

impl StreamRequest {
    /// The pod that is meant; `None`: all.
    pub fn pod(&self) -> Option<&PodName> {
        match self {
            Self::Logs { pod, .. }
            | Self::Exec { pod, .. }
            | Self::Attach { pod, .. }
            | Self::PortForward { pod, .. }
            | Self::Run { pod, .. }
            | Self::Command { pod, .. } => Some(pod),
            Self::Usage => None,
        }
    }

    /// The container that is meant; `None`: the pod.
    pub fn container_mut(&mut self) -> Option<&mut Box<str>> {
        match self {
            Self::Logs { container, .. }
            | Self::Exec { container, .. }
            | Self::Attach { container, .. }
            | Self::Run { container, .. }
            | Self::Command { container, .. } => Some(container),
            Self::PortForward { .. } | Self::Usage => None,
        }
    }
}

/// A pod by its name, of which one instance runs and others may still end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    pub namespace: Box<str>,
    pub name: Box<str>,
    /// If it is given, the pod must have it.
    pub uid: Option<Box<str>>,
}

/// core/v1 `PodLogOptions`, as far as a kubelet reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Continue until the container ends.
    pub follow: bool,
    /// The log of the instance before.
    pub previous: bool,
    /// Only so many lines at the end.
    pub tail: Option<u64>,
    /// Only lines that are not older.
    pub since: Option<Since>,
    /// Begin each line with its time.
    pub timestamps: bool,
    /// At most so many bytes of output.
    pub limit_bytes: Option<u64>,
}

/// The age from which lines of a log are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So many seconds before the request.
    Seconds(u64),
    /// A time.
    Time(Timestamp),
}

/// The core's answer to a [`StreamRequest`].
#[derive(Clone, Debug, PartialEq)]
pub enum StreamAnswer {
    /// An error, and nothing else.
    Refused(Refusal),
    /// The log of this container. `running`: [`Self::LogsEnd`] follows if the client waits.
    Logs { file: LogFile, running: bool },
    /// The container whose log is followed has ended: no line will be added.
    LogsEnd,
    /// Everything else is between the client and the runtime's server at this URL.
    Relay(Box<str>),
    /// The output of a command.
    Output(Box<str>),
    /// What has become of a [`StreamRequest::Command`].
    Command(Box<Exec>),
    /// The usage of all containers, to be shown in the form that was requested.
    Usage(Vec<StreamUsage>),
}

/// The log of one instance of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    pub pod: LogDir,
    pub container: Box<str>,
    pub attempt: u32,
}

/// Why a request is refused: an HTTP status, and the text of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    pub text: String,
}

/// The statuses of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// 400
    BadRequest,
    /// 401
    Unauthorized,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 422
    Invalid,
    /// 429: with `Retry-After`.
    TooMany,
    /// 500
    Internal,
    /// 503
    Unavailable,
}

impl Refusal {
    pub fn new(kind: RefusalKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// The usage of one container. Times in nanoseconds since 1970; `None`: not reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamUsage {
    pub namespace: Box<str>,
    pub pod: Box<str>,
    pub uid: Box<str>,
    /// The pod's start.
    pub pod_started_at: Option<Timestamp>,
    pub usage: ContainerUsage,
    /// The container's start.
    pub started_at: Option<Timestamp>,
}
