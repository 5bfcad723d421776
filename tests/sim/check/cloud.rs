//! What the agent knows of the cloud's pods, and which of them it must not end.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use edged::agent::Agent;
use edged::model::cri::{PodRef, Request};
use edged::model::pod as api;
use edged::model::status::Phase;

use super::Check;
use crate::rule::judge;

/// The state of the rules about the cloud.
#[derive(Default)]
pub struct Cloud {
    /// The store was read in this life, and nothing was received since.
    fresh: bool,
    /// Pods that are being deleted, as far as the agent knows: they take room until they have
    /// ended.
    pub(super) ending: usize,
    /// The pods that are held: the agent knows them, and may begin nothing of them.
    pub(super) held: BTreeSet<Box<str>>,
    /// The pods that are desired, as far as the agent knows.
    pub(super) pods: BTreeMap<Box<str>, Rc<api::Pod>>,
}

#[cfg_attr(not(feature = "cloud"), expect(dead_code, reason = "no world has a cloud"))]
impl Check {
    pub fn cloud_read(&mut self) {
        self.cloud.fresh = true;
    }

    /// The store is lost: what was reported to the cloud is no longer known.
    pub fn cloud_lost(&mut self) {
        for pod in self.pods.iter_mut() {
            pod.over = false;
            pod.unstored = pod.of_cloud && pod.sandboxes > 0;
        }
    }

    /// A pod that is deleted in the cloud may be ended here, whether the store has it or not.
    pub fn cloud_has(&mut self, has: impl Fn(&str) -> bool) {
        for pod in self.pods.iter_mut().filter(|pod| pod.unstored) {
            pod.unstored = has(&pod.uid);
        }
    }

    /// The end of the pod was reported to the cloud.
    pub fn cloud_knows_end(&mut self, uid: &str) {
        if let Some(at) = self.pods.find(uid) {
            self.pods[at].over = true;
        }
    }

    /// These pods are held, and no others. Their active time counts.
    pub fn hold(&mut self, now: u64, pods: &[Rc<api::Pod>]) {
        self.cloud.held.clear();
        for pod in pods {
            let of = pod_ref(pod);
            let at = self.pods.index_or_add(&of);
            let pod = &mut self.pods[at];
            pod.of_cloud = true;
            pod.first_delivered_at = pod.first_delivered_at.min(now);
            self.cloud.held.insert(of.uid);
        }
    }

    /// These pods of the cloud are durable in the store, and not held.
    pub fn received_cloud(&mut self, now: u64, pods: Vec<Rc<api::Pod>>, agent: &Agent) {
        let first = std::mem::take(&mut self.cloud.fresh);
        self.cloud.pods.clear();
        self.cloud.ending = 0;
        for pod in pods {
            let metadata = &pod.metadata;
            let of = pod_ref(&pod);
            let at = self.pods.index_or_add(&of);
            let known = &mut self.pods[at];
            known.of_cloud = true;
            known.unstored = false;
            known.ended_before |= is_over(&pod);
            known.over |= is_over(&pod);
            let spec_s = pod.spec.termination_grace_period_seconds.unwrap_or(30);
            let grace_s = metadata.deletion_grace_period_seconds.unwrap_or(0).max(spec_s);
            known.grace_ms_max = known.grace_ms_max.max(grace_s.unsigned_abs() * 1000);
            if metadata.deletion_timestamp.is_none() {
                self.cloud.pods.insert(of.uid, pod);
            } else {
                known.cloud_ends = true;
                self.cloud.ending += 1;
            }
        }
        self.set_desired(now, first.then_some(now), agent);
    }

    /// In no life is a pod of the cloud ended as unknown while there is a reason for not knowing
    /// it.
    pub(super) fn check_orphan(&self, at: usize, request: &Request) {
        let pod = &self.pods[at];
        let known = pod.desired.is_some() || pod.spec_was.is_some() || pod.cloud_ends;
        let replaced =
            || self.pods.namesakes(at).any(|other| other.spec_was.is_some() || other.cloud_ends);
        judge!(
            known || !pod.unstored || replaced(),
            "[lost store] {request:?}: pod {} of the cloud is ended, and the store was lost",
            pod.uid
        );
    }
}

fn pod_ref(pod: &api::Pod) -> PodRef {
    let api::Metadata { uid, namespace, name, .. } = &pod.metadata;
    let [uid, namespace, name] = [uid, namespace, name].map(|text| text.as_str().into());
    PodRef { uid, namespace, name }
}

fn is_over(pod: &api::Pod) -> bool {
    matches!(pod.status.phase, Phase::Succeeded | Phase::Failed)
}
