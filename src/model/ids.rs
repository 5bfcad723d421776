//! The runtime's ids.

use std::fmt;

/// The runtime's id of a sandbox (64 hex digits with containerd).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "runtime", derive(serde::Serialize, serde::Deserialize))]
pub struct SandboxId(pub Box<str>);

/// The runtime's id of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "runtime", derive(serde::Serialize, serde::Deserialize))]
pub struct ContainerId(pub Box<str>);

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
