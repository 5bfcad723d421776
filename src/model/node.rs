//! The node's own conditions in its status (core/v1 `NodeCondition`).

use super::time::Timestamp;

/// A shortage of the node: a condition of its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// `MemoryPressure`
    Memory,
    /// `DiskPressure`
    Disk,
    /// `PIDPressure`
    Pid,
}

impl Pressure {
    /// In the order of statuses.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::Pid];

    /// `NodeCondition.type`
    pub fn kind(self) -> &'static str {
        match self {
            Self::Memory => "MemoryPressure",
            Self::Disk => "DiskPressure",
            Self::Pid => "PIDPressure",
        }
    }

    /// `NodeCondition.reason` and `message` (spec section 9.2).
    pub fn reason_and_message(self, status: bool) -> (&'static str, &'static str) {
        match (self, status) {
            (Self::Memory, true) => {
                ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available")
            }
            (Self::Memory, false) => {
                ("KubeletHasSufficientMemory", "kubelet has sufficient memory available")
            }
            (Self::Disk, true) => ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            (Self::Disk, false) => ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            (Self::Pid, true) => {
                ("KubeletHasInsufficientPID", "kubelet has insufficient PID available")
            }
            (Self::Pid, false) => {
                ("KubeletHasSufficientPID", "kubelet has sufficient PID available")
            }
        }
    }

    /// The reason of the event for a change.
    pub fn change(self, status: bool) -> &'static str {
        match (self, status) {
            (Self::Memory, true) => "NodeHasInsufficientMemory",
            (Self::Memory, false) => "NodeHasSufficientMemory",
            (Self::Disk, true) => "NodeHasDiskPressure",
            (Self::Disk, false) => "NodeHasNoDiskPressure",
            (Self::Pid, true) => "NodeHasInsufficientPID",
            (Self::Pid, false) => "NodeHasSufficientPID",
        }
    }
}

/// core/v1 `NodeCondition`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `type`
    pub kind: &'static str,
    /// `status`: `"True"` or `"False"`.
    pub status: bool,
    /// For programs.
    pub reason: &'static str,
    /// For the operator.
    pub message: &'static str,
    /// When it was last computed.
    pub last_heartbeat_time: Option<Timestamp>,
    /// When `status` last changed.
    pub last_transition_time: Option<Timestamp>,
}
