//! Differences between runtimes, as far as the agent can see them.

use edged::model::cri::{CallError, CgroupDriver, Code, Reply};

use crate::chance::Chance;

/// The behaviour of one runtime.
#[derive(Clone, Copy, Debug)]
pub struct Quirks {
    /// `runtime_name` of `Version`.
    pub name: &'static str,
    /// `runtime_version` of `Version`.
    pub version: &'static str,
    /// Has `GetContainerEvents`.
    pub events: bool,
    /// What happens when a name is requested again.
    pub taken: Taken,
    /// What happens when the program does not exist.
    pub missing_program: MissingProgram,
    /// The code for the status of a missing object.
    pub missing: Code,
    /// Stopping a missing object succeeds.
    pub stop_missing_is_done: bool,
    /// `RemovePodSandbox` of a ready one stops it first; otherwise it is refused.
    pub removes_ready: bool,
    /// `StopContainer` continues to SIGKILL when its client has gone.
    pub stop_outlives_client: bool,
    /// The state of a container that ended while the daemon was down.
    pub ended_while_down: EndedWhileDown,
    /// Containers die with their sandbox's own process.
    pub dies_with_sandbox: bool,
}

/// What happens when a requested name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Refused with this code.
    Refused(Code),
    /// The holder is returned.
    Existing,
    /// Refused, and a container that holds it is removed, running or not.
    Removed,
}

/// When a missing program is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingProgram {
    /// `CreateContainer` is refused.
    AtCreate,
    /// `StartContainer` is refused, and the container has exited with this code and reason.
    AtStart(i32, &'static str),
}

/// How a daemon finds a container that ended while it was down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedWhileDown {
    /// Exited, with its code.
    Kept,
    /// Exited, 255.
    Lost,
    /// In state unknown, until it is stopped.
    Unknown,
}

impl Quirks {
    /// The cgroup driver; older ones do not know the request.
    pub fn runtime_config(&self) -> Result<Reply, CallError> {
        match (self.name, self.events) {
            ("containerd", true) => Ok(Reply::CgroupDriver(Some(CgroupDriver::Cgroupfs))),
            ("cri-o", _) => Ok(Reply::CgroupDriver(Some(CgroupDriver::Systemd))),
            _ => Err(refused(Code::Unimplemented, "unknown method RuntimeConfig".to_owned())),
        }
    }

    /// A failed start may leave processes that only the runtime's own service can end.
    pub fn leaves_tasks(&self) -> bool {
        self.name == "containerd"
    }

    /// Draws a runtime.
    pub fn draw(chance: &mut Chance) -> Self {
        match chance.below(5) {
            0 => Self::containerd_1_6(),
            1 => Self::containerd_1_7(),
            2 => Self::containerd_2(),
            3 => Self::cri_o(),
            _ => Self::cri_dockerd(),
        }
    }

    fn containerd_1_6() -> Self {
        Self {
            name: "containerd",
            version: "1.6.20~ds1",
            events: false,
            taken: Taken::Refused(Code::Unknown),
            missing_program: MissingProgram::AtStart(128, "StartError"),
            missing: Code::NotFound,
            stop_missing_is_done: false,
            removes_ready: false,
            stop_outlives_client: false,
            ended_while_down: EndedWhileDown::Kept,
            dies_with_sandbox: false,
        }
    }

    fn containerd_1_7() -> Self {
        Self {
            version: "1.7.34",
            events: true,
            stop_missing_is_done: true,
            removes_ready: true,
            ended_while_down: EndedWhileDown::Unknown,
            ..Self::containerd_1_6()
        }
    }

    fn containerd_2() -> Self {
        Self {
            version: "2.3.4",
            taken: Taken::Refused(Code::FailedPrecondition),
            ended_while_down: EndedWhileDown::Lost,
            dies_with_sandbox: true,
            ..Self::containerd_1_7()
        }
    }

    fn cri_o() -> Self {
        Self {
            name: "cri-o",
            version: "1.36.0",
            events: true,
            taken: Taken::Existing,
            missing_program: MissingProgram::AtCreate,
            stop_missing_is_done: true,
            removes_ready: true,
            stop_outlives_client: true,
            ended_while_down: EndedWhileDown::Kept,
            dies_with_sandbox: true,
            ..Self::containerd_1_6()
        }
    }

    fn cri_dockerd() -> Self {
        Self {
            name: "docker",
            version: "0.3.25",
            events: false,
            taken: Taken::Removed,
            missing_program: MissingProgram::AtStart(127, "ContainerCannotRun"),
            missing: Code::Unknown,
            stop_missing_is_done: false,
            removes_ready: true,
            stop_outlives_client: true,
            ended_while_down: EndedWhileDown::Kept,
            ..Self::containerd_1_6()
        }
    }

    /// The answer to a request about a missing object.
    pub fn not_found(&self, id: &str) -> CallError {
        refused(self.missing, format!("an error occurred when try to find {id:?}: not found"))
    }
}

/// A refusal.
pub fn refused(code: Code, message: String) -> CallError {
    CallError::Refused { code, message }
}
