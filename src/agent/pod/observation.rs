//! What the runtime showed of a pod, and how far it can be believed (rules R2 and R3).
//!
//! ```text
//!              a list                  a call that changes something ends
//!  Unknown ───────────────▶ Fresh ──────────────────────────────▶ Stale
//!     ▲                      ▲ │                                    │ │
//!     │                      │ └──── a call fails ────┐   a list ───┘ │
//!     └──────────────────────┴────────────────────────┴───────────────┘
//! ```
//!
//! The effect of a call that succeeded is entered at once, so `Stale` is good enough for nearly all
//! steps. A list that began before the pod's last call ended is not believed.
//!
//! If we crash here: the next start lists the runtime.

use std::ops::Deref;
use std::sync::Arc;

use super::observed::{Observed, ObservedContainer, ObservedSandbox};
use crate::agent::time::{Backoff, Instant};
use crate::limits;
use crate::model::cri::{
    Container, ContainerId, ContainerState, ContainerStatus, Sandbox, SandboxId, SandboxStatus,
    UserRange,
};

/// The objects can be read by everybody, and are written here only.
#[derive(Debug, Default)]
pub(super) struct Observation {
    objects: Observed,
    trust: Trust,
    /// What the current relist has listed of the pod so far.
    listed_sandboxes: Vec<Arc<Sandbox>>,
    listed_containers: Vec<Arc<Container>>,
    /// Lists with this serial number or a smaller one are too old and are discarded.
    stale_relists: u64,
    /// The last list was too old and was discarded, and none has come since.
    is_list_missed: bool,
    /// All containers of the pod were inspected since the agent's start.
    is_complete: bool,
    /// Of inspections of a sandbox or a container that the runtime did not answer.
    inspections: Backoff,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trust {
    /// The runtime must be listed before the next step: at first, and after a failure.
    #[default]
    Unknown,
    /// What is known includes the effects of our calls, and no list has confirmed them.
    Stale,
    /// The runtime was listed since the last call ended.
    Fresh,
}

/// What became of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListOutcome {
    /// It is too old.
    Discarded,
    /// Nothing differs, and this was known.
    Confirmed,
    /// Nothing differs from what was expected.
    Expected,
    Changed,
}

impl Deref for Observation {
    type Target = Observed;

    fn deref(&self) -> &Observed {
        &self.objects
    }
}

impl Observation {
    // ---- lists ----

    /// The runtime must be listed before the next step.
    pub(super) fn is_unknown(&self) -> bool {
        self.trust == Trust::Unknown
    }

    /// The runtime was listed since the last call ended.
    pub(super) fn is_fresh(&self) -> bool {
        self.trust == Trust::Fresh
    }

    /// All containers of the pod were inspected since the agent's start.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn set_complete(&mut self) {
        self.is_complete = true;
    }

    /// A list from before the pod was added has nothing of it.
    pub(super) fn observe_nothing(&mut self) {
        assert!(self.objects.is_empty(), "the pod is known");
        self.trust = Trust::Fresh;
    }

    pub(super) fn add_listed_sandbox(&mut self, sandbox: Arc<Sandbox>) {
        self.listed_sandboxes.push(sandbox);
    }

    pub(super) fn add_listed_container(&mut self, container: Arc<Container>) {
        self.listed_containers.push(container);
    }

    /// What the current relist has listed of the pod so far.
    #[cfg(feature = "probes")]
    pub(super) fn listed_containers(&self) -> &[Arc<Container>] {
        &self.listed_containers
    }

    /// Applies the list of this serial number, unless it is too old or a call is `changing` the
    /// pod.
    pub(super) fn take_list(&mut self, now: Instant, serial: u64, changing: bool) -> ListOutcome {
        if serial <= self.stale_relists || changing {
            self.listed_sandboxes.clear();
            self.listed_containers.clear();
            self.is_list_missed = true;
            return ListOutcome::Discarded;
        }
        let Self { objects, listed_sandboxes, listed_containers, .. } = self;
        let changed = objects.take(now, listed_sandboxes, listed_containers);
        self.is_list_missed = false;
        match (changed, std::mem::replace(&mut self.trust, Trust::Fresh)) {
            (true, _) => ListOutcome::Changed,
            (false, Trust::Fresh) => ListOutcome::Confirmed,
            (false, Trust::Stale | Trust::Unknown) => ListOutcome::Expected,
        }
    }

    /// Whether a list was discarded since this was called last.
    pub(super) fn take_missed_list(&mut self) -> bool {
        std::mem::take(&mut self.is_list_missed)
    }

    // ---- calls ----

    /// A call of the pod has ended. `relists_begun`: relists that began before that. `changes`: a
    /// list differs after it.
    pub(super) fn call_ended(&mut self, relists_begun: u64, changes: bool) {
        self.stale_relists = relists_begun;
        if changes && self.trust == Trust::Fresh {
            self.trust = Trust::Stale;
        }
    }

    /// A call has failed that may have changed something.
    pub(super) fn call_failed(&mut self) {
        self.trust = Trust::Unknown;
    }

    /// When the next inspection may be made.
    pub(super) fn inspect_at(&self) -> Instant {
        self.inspections.over_at()
    }

    /// The runtime did not answer an inspection.
    pub(super) fn inspection_failed(&mut self, now: Instant) {
        self.inspections.retry_at(now, limits::RETRY_MIN_MS, limits::RETRY_MS);
    }

    pub(super) fn add_sandbox(&mut self, id: SandboxId, attempt: u32, users: Option<UserRange>) {
        self.objects.add_sandbox(ObservedSandbox::made(id, attempt, users));
    }

    pub(super) fn inspect_sandbox(&mut self, id: &SandboxId, status: SandboxStatus) {
        self.inspections = Backoff::default();
        if let Some(sandbox) = self.objects.sandbox_mut(id) {
            sandbox.inspect(status);
        }
    }

    /// `StopPodSandbox` kills the processes in it.
    pub(super) fn sandbox_stopped(&mut self, now: Instant, id: &SandboxId) {
        if let Some(sandbox) = self.objects.sandbox_mut(id) {
            sandbox.ready = false;
            sandbox.stopped = true;
        }
        for container in self.objects.containers.iter_mut().filter(|it| it.sandbox == *id) {
            if container.may_run() {
                container.turn(now, ContainerState::Exited);
            }
        }
    }

    /// The sandbox and its containers are removed. Returns its attempt number.
    pub(super) fn sandbox_removed(&mut self, id: &SandboxId) -> Option<u32> {
        let attempt = self.objects.sandbox_mut(id).map(|sandbox| sandbox.attempt);
        self.objects.sandboxes.retain(|sandbox| sandbox.id != *id);
        self.objects.containers.retain(|container| container.sandbox != *id);
        attempt
    }

    /// Enters a container that was created in the newest sandbox.
    pub(super) fn add_container(
        &mut self,
        id: ContainerId,
        name: &str,
        attempt: u32,
        image: Box<str>,
    ) {
        let sandbox = self.objects.sandbox().expect("created in a known sandbox").id.clone();
        self.objects.add_container(ObservedContainer {
            id,
            name: name.into(),
            sandbox,
            attempt,
            state: ContainerState::Created,
            created_at: 0,
            hash: Some(super::hash::container_hash(name, &image)),
            image,
            grace_s: None,
            status: None,
            began_at: None,
            exited_at: None,
            stops: Backoff::default(),
        });
    }

    /// The container is in this state by our call.
    pub(super) fn turn(&mut self, now: Instant, id: &ContainerId, state: ContainerState) {
        if let Some(container) = self.objects.container_mut(id) {
            container.turn(now, state);
        }
    }

    /// Takes the answer of an inspection. One that is older than what is known is ignored; usually
    /// the next one is not, and a runtime that always answers so is asked less and less often.
    pub(super) fn inspect_container(
        &mut self,
        now: Instant,
        id: &ContainerId,
        status: Box<ContainerStatus>,
    ) {
        let container = self.objects.container_mut(id);
        if container.is_none_or(|container| container.inspect(now, status)) {
            self.inspections = Backoff::default();
        } else {
            self.inspections.retry_at(now, limits::OLD_ANSWER_MS, limits::RETRY_MS);
        }
    }

    /// Adds the termination message to what the runtime says. Returns whether that differs.
    pub(super) fn add_message(&mut self, id: &ContainerId, text: &str) -> bool {
        let container = self.objects.container_mut(id).filter(|_| !text.is_empty());
        let Some(status) = container.and_then(|container| container.status.as_mut()) else {
            return false;
        };
        let message = match &*status.message {
            "" => text.to_owned(),
            runtimes => format!("{runtimes}: {text}"),
        };
        status.message = message.into();
        true
    }

    pub(super) fn container_removed(&mut self, id: &ContainerId) {
        self.objects.containers.retain(|container| container.id != *id);
    }

    /// The runtime did not stop the container.
    pub(super) fn stop_failed(&mut self, now: Instant, id: &ContainerId) {
        if let Some(container) = self.objects.container_mut(id) {
            container.stops.retry_at(now, limits::RETRY_MIN_MS, limits::RETRY_MS);
        }
    }

    /// The containers have to be stopped for another reason or in less time: tried at once.
    pub(super) fn stop_at_once(&mut self) {
        for container in &mut self.objects.containers {
            container.stops = Backoff::default();
        }
    }
}
