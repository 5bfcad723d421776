//! Results of startup and readiness probes across a restart of the agent: containers keep running
//! meanwhile, and stay started and ready in their status (as with the kubelet since 1.35).
//!
//! Results belong to one container ID, so that they never count for another container. Loaded
//! results are kept for pods that have not been inspected yet, until a probe of the container takes
//! them over. They are saved in memory that survives the process, not on flash: after a reboot none
//! of these containers runs.
//!
//! If we crash here: the next start loads what was saved last.

use super::Pods;
use super::event::{Action, Out};
use crate::model::cri::ContainerId;
use crate::model::map::Map;
use crate::model::probe::ProbeResults;

/// The results that are saved, and those that were loaded at start.
#[derive(Debug, Default)]
pub(super) struct SavedResults {
    /// From before the restart, of containers that no probe is attached to yet; empty once all pods
    /// have been inspected.
    loaded: Map<ContainerId, ProbeResults>,
    /// As they are saved now.
    saved: Map<ContainerId, ProbeResults>,
    /// The pods' revision when they were saved.
    revision: Option<u64>,
}

impl SavedResults {
    /// Takes what was saved before the restart.
    pub(super) fn load(&mut self, saved: Map<ContainerId, ProbeResults>) {
        self.saved.clone_from(&saved);
        self.loaded = saved;
    }

    /// Results from before the restart, until all pods have been inspected.
    pub(super) fn loaded(&self) -> &Map<ContainerId, ProbeResults> {
        &self.loaded
    }

    /// Saves the results if they have changed.
    pub(super) fn step(&mut self, pods: &Pods, out: &mut Out) {
        let revision = Some(pods.revision());
        if self.revision == revision && self.loaded.is_empty() {
            return;
        }
        self.revision = revision;
        if pods.is_complete() && pods.iter().all(super::pod::Pod::is_fully_observed) {
            self.loaded.clear();
        }
        // The results of a container with a probe attached are the probe's own from then on.
        for id in pods.iter().flat_map(super::pod::Pod::probed_containers) {
            self.loaded.remove(id);
        }
        let loaded = self.loaded.iter().map(|(id, results)| (id, *results));
        let mut results: Map<&ContainerId, ProbeResults> = loaded.collect();
        for pod in pods.iter() {
            if pod.is_fully_observed() {
                for observed in &pod.observed().containers {
                    results.remove(&observed.id);
                }
            }
            results.extend(pod.probe_results());
        }
        let saved = self.saved.iter().map(|(id, results)| (id, *results));
        if !saved.eq(results.iter().map(|(id, results)| (*id, *results))) {
            self.saved = results.into_iter().map(|(id, results)| (id.clone(), results)).collect();
            out.push(Action::SaveProbeResults(self.saved.clone()));
        }
    }
}
