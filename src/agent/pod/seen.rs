//! What the runtime last told of one pod: its sandboxes and containers, the newest first.
//!
//! A list tells what there is and in which state; the calls that answer for one object tell the
//! rest, and their answer is kept for as long as the state they told of holds. What a call of ours
//! did is entered at once (rule R2), so the next step need not wait for a list.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::agent::time::{Backoff, Instant};
use crate::model::cri::{
    Container, ContainerId, ContainerState, ContainerStatus, Sandbox, SandboxId, SandboxStatus,
};
use crate::model::time::Timestamp;

/// One pod in the runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// The newest first.
    pub sandboxes: Vec<SandboxSeen>,
    /// The newest first, of all names.
    pub containers: Vec<ContainerSeen>,
}

/// One sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxSeen {
    /// The runtime's name of it.
    pub id: SandboxId,
    /// Counts from 0.
    pub attempt: u32,
    /// Can hold containers.
    pub ready: bool,
    /// Nanoseconds since 1970; 0: made by us, not yet listed.
    pub created_at: i64,
    /// When an agent first saw the pod, as it noted there.
    pub seen_at: Option<Timestamp>,
    /// As of when it was ready; `None`: not yet asked.
    pub status: Option<SandboxStatus>,
    /// `StopPodSandbox` succeeded in this life of the agent.
    pub stopped: bool,
}

/// One container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSeen {
    /// The runtime's name of it.
    pub id: ContainerId,
    /// As in the pod spec.
    pub name: Box<str>,
    /// Where it lives.
    pub sandbox: SandboxId,
    /// Counts from 0: the restart count.
    pub attempt: u32,
    /// As last listed or done.
    pub state: ContainerState,
    /// Nanoseconds since 1970; 0: made by us, not yet listed.
    pub created_at: i64,
    /// As the pod spec wrote it.
    pub image: Box<str>,
    /// As annotated.
    pub hash: Option<Box<str>>,
    /// As annotated, seconds.
    pub grace_s: Option<i64>,
    /// Of the present state; `None`: not yet asked.
    pub status: Option<Box<ContainerStatus>>,
    /// When we first saw that it ran; `None`: it did when we first saw it.
    pub began_at: Option<Instant>,
    /// When we first saw that it had ended.
    pub exited_at: Option<Instant>,
    /// Stops of it that the runtime refused.
    pub stops: Backoff,
}

impl SandboxSeen {
    /// Just made by us: ready, nothing else known.
    pub fn made(id: SandboxId, attempt: u32) -> Self {
        Self {
            id,
            attempt,
            ready: true,
            created_at: 0,
            seen_at: None,
            status: None,
            stopped: false,
        }
    }

    /// Takes the answer of `PodSandboxStatus`. `false`: a look has overtaken it, as none that is
    /// down comes up again; nothing is learnt.
    pub fn inspect(&mut self, status: SandboxStatus) -> bool {
        if status.ready && !self.ready {
            return false;
        }
        self.ready = status.ready;
        self.status = Some(status);
        true
    }

    fn is_as_listed(&self, listed: &Sandbox) -> bool {
        self.ready == listed.ready
            && self.created_at == listed.created_at
            && !(self.ready && self.stopped)
    }

    fn from_list(known: Option<Self>, listed: &Sandbox) -> Self {
        let &Sandbox { ref id, attempt, ready, created_at, seen_at, .. } = listed;
        let stopped = !ready && known.as_ref().is_some_and(|known| known.stopped);
        let same = known.filter(|known| known.ready == ready);
        let status = same.and_then(|known| known.status);
        Self { id: id.clone(), attempt, ready, created_at, seen_at, status, stopped }
    }
}

impl ContainerSeen {
    fn is_as_listed(&self, listed: &Container) -> bool {
        self.state == listed.state
            && self.created_at == listed.created_at
            && self.exited_at.is_some() == (self.state == ContainerState::Exited)
    }

    fn from_list(now: Instant, known: Option<Self>, listed: &Container) -> Self {
        let ended = listed.state == ContainerState::Exited;
        let seen_at = known.as_ref().and_then(|known| known.exited_at).unwrap_or(now);
        let began = |known: &Self| {
            let begins = known.state != listed.state && listed.state == ContainerState::Running;
            known.began_at.or(begins.then_some(now))
        };
        let began_at = known.as_ref().and_then(began);
        let stops = known.as_ref().map(|known| known.stops.clone()).unwrap_or_default();
        let same = known.filter(|known| known.state == listed.state);
        Self {
            status: same.and_then(|known| known.status),
            began_at,
            exited_at: ended.then_some(seen_at),
            id: listed.id.clone(),
            name: listed.name.clone(),
            sandbox: listed.sandbox.clone(),
            attempt: listed.attempt,
            state: listed.state,
            created_at: listed.created_at,
            image: listed.image.clone(),
            hash: listed.hash.clone(),
            grace_s: listed.grace_s,
            stops,
        }
    }

    /// May have a living process.
    pub fn may_run(&self) -> bool {
        matches!(self.state, ContainerState::Running | ContainerState::Unknown)
    }

    /// Moves to another state: what was known of the old one no longer counts.
    pub fn turn(&mut self, now: Instant, state: ContainerState) {
        if self.state != state {
            self.state = state;
            self.status = None;
            self.began_at = self.began_at.or((state == ContainerState::Running).then_some(now));
        }
        if state == ContainerState::Exited && self.exited_at.is_none() {
            self.exited_at = Some(now);
        }
    }

    /// Takes the answer of `ContainerStatus`. `false`: a look has overtaken it, as nothing that has
    /// ended runs again; nothing is learnt.
    pub fn inspect(&mut self, now: Instant, status: Box<ContainerStatus>) -> bool {
        let ended = ContainerState::Exited;
        if self.state == ended && status.state != ended {
            return false;
        }
        self.turn(now, status.state);
        self.status = Some(status);
        true
    }

    /// Ended with success. Some runtimes report 0 for an init container that ran out of memory.
    pub fn succeeded(&self) -> bool {
        self.state == ContainerState::Exited
            && self
                .status
                .as_ref()
                .is_some_and(|status| status.exit_code == 0 && &*status.reason != "OOMKilled")
    }
}

impl Seen {
    /// Takes what a list tells of the pod, in any order. Says whether anything differs.
    ///
    /// This happens each second for every pod, and nearly always nothing does.
    pub fn take(
        &mut self,
        now: Instant,
        sandboxes: &mut Vec<Arc<Sandbox>>,
        containers: &mut Vec<Arc<Container>>,
    ) -> bool {
        if self.is_as_listed(sandboxes, containers) {
            sandboxes.clear();
            containers.clear();
            return false;
        }
        let Self { sandboxes: old_sandboxes, containers: old_containers } = std::mem::take(self);
        let mut known: BTreeMap<SandboxId, SandboxSeen> =
            old_sandboxes.into_iter().map(|old| (old.id.clone(), old)).collect();
        for listed in sandboxes.drain(..) {
            let known = known.remove(&listed.id);
            self.sandboxes.push(SandboxSeen::from_list(known, &listed));
        }
        let mut known: BTreeMap<ContainerId, ContainerSeen> =
            old_containers.into_iter().map(|old| (old.id.clone(), old)).collect();
        for listed in containers.drain(..) {
            let known = known.remove(&listed.id);
            self.containers.push(ContainerSeen::from_list(now, known, &listed));
        }
        self.sort();
        true
    }

    fn is_as_listed(&self, sandboxes: &[Arc<Sandbox>], containers: &[Arc<Container>]) -> bool {
        // Lists name each object once, so that equal counts make it the same objects.
        if self.sandboxes.len() != sandboxes.len() || self.containers.len() != containers.len() {
            return false;
        }
        let by_id: BTreeMap<&SandboxId, &SandboxSeen> =
            self.sandboxes.iter().map(|known| (&known.id, known)).collect();
        let same = |listed: &Arc<Sandbox>| {
            by_id.get(&listed.id).is_some_and(|known| known.is_as_listed(listed))
        };
        if !sandboxes.iter().all(same) {
            return false;
        }
        let by_id: BTreeMap<&ContainerId, &ContainerSeen> =
            self.containers.iter().map(|known| (&known.id, known)).collect();
        containers
            .iter()
            .all(|listed| by_id.get(&listed.id).is_some_and(|known| known.is_as_listed(listed)))
    }

    /// Attempts only grow, whatever the clock of the runtime does; it decides between equals.
    fn sort(&mut self) {
        self.sandboxes.sort_by(|a, b| {
            (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id))
        });
        self.containers.sort_by(|a, b| {
            (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id))
        });
    }

    /// Enters a sandbox that we made.
    pub fn add_sandbox(&mut self, sandbox: SandboxSeen) {
        self.sandboxes.insert(0, sandbox);
        self.sort();
    }

    /// Enters a container that we made.
    pub fn add_container(&mut self, container: ContainerSeen) {
        self.containers.insert(0, container);
        self.sort();
    }

    /// The newest sandbox.
    pub fn sandbox(&self) -> Option<&SandboxSeen> {
        self.sandboxes.first()
    }

    /// One sandbox.
    pub fn sandbox_mut(&mut self, id: &SandboxId) -> Option<&mut SandboxSeen> {
        self.sandboxes.iter_mut().find(|sandbox| sandbox.id == *id)
    }

    /// One container.
    pub fn container(&self, id: &ContainerId) -> Option<&ContainerSeen> {
        self.containers.iter().find(|container| container.id == *id)
    }

    /// One container.
    pub fn container_mut(&mut self, id: &ContainerId) -> Option<&mut ContainerSeen> {
        self.containers.iter_mut().find(|container| container.id == *id)
    }

    /// All instances of one container of the spec, the newest first.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ContainerSeen> + 'a {
        self.containers.iter().filter(move |container| &*container.name == name)
    }

    /// The newest instance of one container of the spec.
    pub fn newest(&self, name: &str) -> Option<&ContainerSeen> {
        self.containers.iter().find(|container| &*container.name == name)
    }

    /// Whether a process of the pod may live.
    pub fn may_run(&self) -> bool {
        self.containers.iter().any(ContainerSeen::may_run)
    }

    /// Whether the runtime has nothing of the pod.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}
