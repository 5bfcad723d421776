//! What probes have found, kept for the agent's next life: containers go on while it restarts, and
//! so does what was said of them (the kubelet since 1.35).
//!
//! Of each instance by its id, so that nothing is believed of another one. What an earlier life has
//! left holds for pods that were not looked at yet. It is kept in memory that outlasts the process,
//! not on flash: after a restart of the machine nothing runs of which it could tell.
//!
//! If we crash here the next life goes by what was kept last: not later than the status that was
//! told.

use std::collections::BTreeMap;

use super::Pods;
use super::event::{Action, Out};
use crate::model::cri::ContainerId;
use crate::model::probe::Proven;

/// What is kept, and what of it is of an earlier life.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Of an earlier life; empty once all pods were looked at.
    recalled: BTreeMap<ContainerId, Proven>,
    /// As it is kept.
    kept: BTreeMap<ContainerId, Proven>,
    /// The pods' then.
    revision: Option<u64>,
}

impl Memory {
    /// An earlier life left this.
    pub(super) fn recall(&mut self, left: BTreeMap<ContainerId, Proven>) {
        self.kept.clone_from(&left);
        self.recalled = left;
    }

    /// What an earlier life left of containers that this one has not looked at.
    pub(super) fn recalled(&self) -> &BTreeMap<ContainerId, Proven> {
        &self.recalled
    }

    /// Asks for what differs to be kept.
    pub(super) fn step(&mut self, pods: &Pods, out: &mut Out) {
        let revision = Some(pods.revision());
        if self.revision == revision && self.recalled.is_empty() {
            return;
        }
        self.revision = revision;
        if pods.is_complete() && pods.iter().all(super::pod::Pod::is_known) {
            self.recalled.clear();
        }
        let mut found = self.recalled.clone();
        for pod in pods.iter().filter(|pod| pod.is_known()) {
            for seen in &pod.seen().containers {
                found.remove(&seen.id);
            }
            found.extend(pod.proven().map(|(id, proven)| (id.clone(), proven)));
        }
        if found != self.kept {
            self.kept.clone_from(&found);
            out.push(Action::Remember(found));
        }
    }
}
