//! What a pod may do next: the calls with their purposes, and the decisions of [`super::next`].

use super::{Phase, Verdict};
use crate::agent::calls::Class;
use crate::agent::event::{CallId, JobId};
use crate::agent::time::Instant;
use crate::model::cri::{ContainerId, RuntimeStatus, SandboxId, TaskEnd};
use crate::model::job::JobSpec;
use crate::model::probe::{HookKind, ProbeKind};

/// One runtime call and its purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    RunSandbox {
        /// Attempt number.
        attempt: u32,
    },
    /// Read its network.
    InspectSandbox(SandboxId),
    /// Kill its processes, and tear down its network.
    StopSandbox(SandboxId),
    RemoveSandbox(SandboxId),
    /// Look up the image of the container.
    ImageStatus {
        /// Name in the spec.
        container: Box<str>,
        /// The image as the spec names it at that time.
        image: Box<str>,
    },
    Pull {
        /// Name in the spec.
        container: Box<str>,
        /// The image as the spec names it at that time.
        image: Box<str>,
    },
    Create {
        /// Name in the spec.
        container: Box<str>,
        /// The attempt number: the restart count.
        attempt: u32,
        /// The image as the spec names it now: when the answer comes, the spec may name another.
        image: Box<str>,
        /// What the image's name resolves to.
        image_ref: Box<str>,
    },
    Start {
        id: ContainerId,
        /// Name in the spec.
        container: Box<str>,
    },
    /// Read its exit code and times.
    InspectContainer(ContainerId),
    Stop {
        id: ContainerId,
        /// Seconds from the signal to SIGKILL.
        grace_s: i64,
        /// When SIGKILL is sent at the latest.
        kill_at: Instant,
        /// For the event.
        why: StopReason,
    },
    RemoveContainer(ContainerId),
    /// End a task that the runtime holds below it and CRI does not show.
    EndTask {
        id: ContainerId,
        end: TaskEnd,
    },
}

impl Step {
    /// Whether it changes what the runtime lists, so that a list begun before its end may be wrong.
    pub(super) fn is_change(&self) -> bool {
        match self {
            Self::RunSandbox { .. }
            | Self::StopSandbox(_)
            | Self::RemoveSandbox(_)
            | Self::Create { .. }
            | Self::Start { .. }
            | Self::RemoveContainer(_) => true,
            Self::InspectSandbox(_)
            | Self::InspectContainer(_)
            | Self::ImageStatus { .. }
            | Self::Pull { .. }
            | Self::Stop { .. }
            | Self::EndTask { .. } => false,
        }
    }

    /// The class of calls that it counts as: [`Class::of`] its request.
    pub(super) fn class(&self) -> Class {
        match self {
            Self::Stop { .. } | Self::StopSandbox(_) => Class::Stop,
            Self::Pull { .. } => Class::Pull,
            Self::RunSandbox { .. }
            | Self::InspectSandbox(_)
            | Self::RemoveSandbox(_)
            | Self::ImageStatus { .. }
            | Self::Create { .. }
            | Self::Start { .. }
            | Self::InspectContainer(_)
            | Self::RemoveContainer(_)
            | Self::EndTask { .. } => Class::Work,
        }
    }

    /// Whether several may run in parallel: stops of different containers.
    pub(super) fn is_stop(&self) -> bool {
        matches!(self, Self::Stop { .. })
    }
}

/// Why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The pod ends, or its sandbox is replaced.
    Ending,
    /// The spec names another image.
    Changed,
    /// Somebody on the node wants it to start anew.
    Restart,
    /// This probe of it failed too often.
    Probe(ProbeKind),
    /// Its postStart hook failed.
    PostStart,
    /// The runtime lost track of it.
    Unknown,
}

/// What `next` decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make this call; wait if its class has no room.
    Call(Step),
    /// Cancel this call: the stop under way has a longer grace period than is left, or the image
    /// being pulled is no longer wanted.
    GiveUp(CallId),
    /// Start this hook of an instance; wait if there is no room.
    Hook(ContainerId, HookKind, StopReason),
    /// Cancel this instance's preStop hook: its time is over.
    GiveUpHook(ContainerId),
    /// Start this job on the file system.
    Job(JobSpec),
    /// Cancel this job.
    GiveUpJob(JobId),
    /// Enter this phase.
    Enter(Phase),
    /// The pod as a whole has failed.
    Fail(Verdict),
    /// The pod has been active for as long as it may: this is no warning.
    FailByDeadline(Verdict),
    /// List the runtime first.
    Relist,
    /// Something outside of the pod blocks it; try again at the next step.
    Blocked(&'static str),
    /// Nothing before this time.
    Until(Instant),
    /// Nothing.
    Rest,
}

/// The next step, and the containers that are put off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub next: Next,
    /// Containers that are not started yet, and why.
    pub holds: Vec<Hold>,
}

/// A container that is not started before a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Name in the spec.
    pub container: Box<str>,
    /// For its status.
    pub why: HoldReason,
    /// No start before this time.
    pub until: Instant,
}

/// Why a container is put off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// It ended too soon after its last start.
    CrashLoop {
        /// Milliseconds of the back-off in force.
        delay_ms: u64,
    },
    /// Its image could not be pulled.
    ImagePull {
        /// The last error.
        why: String,
    },
    /// Its image is not a valid image name.
    ImageName {
        /// What is wrong with it.
        why: String,
    },
}

/// The state of the node that a pod's next step depends on.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    /// The runtime's last reported status.
    pub runtime: Option<&'a RuntimeStatus>,
    /// An earlier pod of the same name has to end first.
    pub predecessor: bool,
}

impl NodeView<'_> {
    /// Why pods on the pod network cannot start.
    pub fn network_trouble(&self) -> Option<&str> {
        self.runtime?.network.as_ref().err().map(String::as_str)
    }
}

impl Plan {
    pub(super) fn only(next: Next) -> Self {
        Self { next, holds: Vec::new() }
    }
}
