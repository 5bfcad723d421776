//! What the node keeps of a pod while the pod stays: dead containers and old sandboxes (spec
//! sections 8.1 and 8.2), images.

use super::next::remove_container;
use super::observed::{ObservedContainer, ObservedSandbox};
use super::plan::{Next, Step};
use super::{Pod, Wanted};
use crate::agent::time::Instant;
use crate::model::cri::{ContainerId, ContainerState, SandboxId};
use crate::model::housekeeping::ContainerPolicy;
use crate::model::map::{Map, Set};

/// What a pod may keep.
#[derive(Debug)]
pub(super) struct Retention {
    /// Dead instances of each container that are kept, for their logs and for `lastState`.
    dead_max: usize,
    /// Dead containers that have to be removed, because the node has no room for them.
    garbage: Set<ContainerId>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { dead_max: 1, garbage: Set::new() }
    }
}

impl Pod {
    /// Sets how many dead instances of each container are kept; at least one, once the pod waits.
    pub(super) fn keep_dead(&mut self, policy: &ContainerPolicy) {
        self.retention.dead_max = policy.per_container_max.map_or(1, |most| most.max(1));
    }

    /// Whether a source wants the pod: then only garbage of it is removed, not the pod.
    pub(super) fn is_wanted(&self) -> bool {
        self.lifecycle.is_wanted()
    }

    pub(super) fn dead_max(&self) -> usize {
        self.retention.dead_max
    }

    /// The node has no room for these of its dead containers.
    pub fn mark_garbage(&mut self, ids: Vec<ContainerId>) {
        let ids: Set<ContainerId> = ids.into_iter().collect();
        if self.retention.garbage != ids {
            self.retention.garbage = ids;
            self.mark_dirty();
        }
    }

    /// Whether garbage of the pod is still there.
    pub fn has_garbage(&self) -> bool {
        self.retention.garbage.iter().any(|id| self.observed.container(id).is_some())
    }

    /// Images that it needs to start again, as its manifest names them.
    pub fn images_wanted(&self) -> impl Iterator<Item = &str> {
        let spec = match self.lifecycle.wanted() {
            Wanted::Yes => Some(&self.api.spec),
            Wanted::Recreated(_, again) => Some(&again.spec),
            Wanted::No => None,
        };
        let containers =
            spec.into_iter().flat_map(|it| it.init_containers.iter().chain(&it.containers));
        containers.map(|container| &*container.image)
    }

    /// The next dead container or old sandbox to remove, while the pod waits.
    pub(super) fn next_removal(&self, now: Instant) -> Option<Next> {
        if let Some(container) = self.surplus() {
            return Some(remove_container(self, container, now));
        }
        let sandbox = self.old_sandbox()?;
        let (id, at) = (sandbox.id.clone(), self.runner.held_until(now));
        Some(match at {
            Some(at) => Next::Until(at),
            None if sandbox.stopped => Next::Call(Step::RemoveSandbox(id)),
            None => Next::Call(Step::StopSandbox(id)),
        })
    }

    /// While the pod waits, garbage is removed.
    pub(super) fn meanwhile(&self, next: Next, now: Instant) -> Next {
        let waits = matches!(next, Next::Rest | Next::Until(_));
        let removal = if waits && !self.runner.has_calls() { self.next_removal(now) } else { None };
        match (removal, next) {
            (Some(Next::Until(at)), Next::Until(other)) => Next::Until(at.min(other)),
            (None | Some(Next::Rest), next) => next,
            (Some(removal), _) => removal,
        }
    }

    /// Instances that were created and never started are removed as soon as there is a newer one.
    fn surplus(&self) -> Option<&ObservedContainer> {
        // For each name: how many newer instances there are, and how many of these have ended.
        let mut counts: Map<&str, (usize, usize)> = Map::new();
        self.observed.containers.iter().find(|container| {
            let count = counts.entry(&container.name).or_default();
            let (newer, dead) = *count;
            let has_ended = container.state == ContainerState::Exited;
            *count = (newer + 1, dead + usize::from(has_ended));
            let garbage = || self.retention.garbage.contains(&container.id);
            match container.state {
                ContainerState::Running | ContainerState::Unknown => false,
                ContainerState::Created | ContainerState::Exited
                    if self.lifecycle.eviction().is_some() =>
                {
                    true
                }
                ContainerState::Created => newer > 0,
                ContainerState::Exited => {
                    dead >= self.retention.dead_max || (newer > 0 && garbage())
                }
            }
        })
    }

    /// A sandbox that was replaced and has no containers any more.
    fn old_sandbox(&self) -> Option<&ObservedSandbox> {
        // Nothing is kept of an evicted pod.
        let kept = usize::from(self.lifecycle.eviction().is_none());
        let mut old = self.observed.sandboxes.iter().skip(kept).filter(|it| !it.ready).peekable();
        old.peek()?;
        let holders = self.observed.containers.iter();
        let holding: Set<&SandboxId> = holders.map(|container| &container.sandbox).collect();
        old.find(|it| !holding.contains(&it.id))
    }
}
