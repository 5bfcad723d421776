//! Where a container runtime listens.

use std::fmt;
use std::path::Path;

/// The built-in runtime's socket, unless it is configured otherwise.
pub const BUILTIN: &str = "/run/edged/rt/sock";

/// A socket and what is spoken there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeEndpoint {
    pub framing: Framing,
    /// Absolute.
    pub socket: String,
}

/// How calls are carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// `unix://`: containerd, CRI-O.
    #[default]
    Grpc,
    /// `ttrpc://`: the built-in runtime.
    #[cfg(feature = "runtime")]
    Ttrpc,
}

impl RuntimeEndpoint {
    /// A runtime that speaks gRPC.
    pub fn grpc(socket: impl Into<String>) -> Self {
        Self { framing: Framing::Grpc, socket: socket.into() }
    }

    /// The built-in runtime; `None`: it is not built in.
    #[cfg(feature = "runtime")]
    pub fn ttrpc(socket: String) -> Option<Self> {
        Some(Self { framing: Framing::Ttrpc, socket })
    }

    /// The built-in runtime; `None`: it is not built in.
    #[cfg(not(feature = "runtime"))]
    pub fn ttrpc(_: String) -> Option<Self> {
        None
    }

    pub fn path(&self) -> &Path {
        Path::new(&self.socket)
    }
}

/// As edgecore.yaml has it.
impl fmt::Display for RuntimeEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.framing {
            Framing::Grpc => "unix",
            #[cfg(feature = "runtime")]
            Framing::Ttrpc => "ttrpc",
        };
        write!(f, "{scheme}://{}", self.socket)
    }
}
