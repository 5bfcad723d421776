//! Calls that serve people. The answer of most is a URL of the runtime's streaming server, which is
//! valid once, for a minute.

use super::{ContainerId, SandboxId};

/// Each is the CRI RPC of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamingCall {
    Exec {
        container: ContainerId,
        command: Vec<String>,
        pipes: Pipes,
    },
    Attach {
        container: ContainerId,
        pipes: Pipes,
    },
    /// `ports` only for websockets: SPDY names the port of each connection.
    PortForward {
        sandbox: SandboxId,
        ports: Vec<u16>,
    },
    ListContainerStats,
}

/// The standard streams that a client wants. With a terminal there is no `stderr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "runtime", derive(serde::Serialize, serde::Deserialize))]
pub struct Pipes {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

impl StreamingCall {
    /// As [`super::Request::operation`].
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Exec { .. } => "exec",
            Self::Attach { .. } => "attach",
            Self::PortForward { .. } => "port_forward",
            Self::ListContainerStats => "list_container_stats",
        }
    }
}
