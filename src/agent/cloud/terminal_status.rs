//! That a pod has ended: kept before the cloud is told of it.
//!
//! A pod that was said to have ended must never run again, and what shows that it has ended may be
//! gone with the next reboot: its containers, and the cloud's echo that never came. The row is the
//! one in which `EdgeCore` keeps its patches (wire spec section 6.3), `default/podpatch/web`, with
//! as much of the status as the next life needs.
//!
//! If we crash here: what was not kept was not told.

use std::collections::BTreeSet;

use serde_json::json;

use super::content::StoredObject;
use super::meta::{ChangeOutcome, Meta};
use super::talk::of_pod;
use crate::agent::calls::Uid;
use crate::agent::pod::{Origin, Pod, Wanted};
use crate::agent::pods::Pods;
use crate::model::message::Resource;

/// What keeps account of it.
#[derive(Debug, Default)]
pub(super) struct TerminalStatuses {
    /// The pods' revision when all that have ended were seen to.
    seen: Option<u64>,
    /// There is no room for these: the cloud is told all the same, or they could not be deleted.
    refused: BTreeSet<Uid>,
}

impl TerminalStatuses {
    /// Sees to it that what has ended is kept, with a link or without. Says whether it had to look.
    pub(super) fn step(&mut self, pods: &Pods, meta: &mut Meta) -> bool {
        if self.seen == Some(pods.revision()) {
            return false;
        }
        self.seen = Some(pods.revision());
        self.refused.retain(|uid| pods.get(uid).is_some());
        let ours = |pod: &&Pod| {
            pod.origin() == Origin::Cloud
                && *pod.wanted() == Wanted::Yes
                && pod.api().status.phase.is_terminal()
        };
        for pod in pods.iter().filter(ours) {
            // Of one that is about to go, or whose place another has taken, nobody asks any more.
            let is_past = !meta.is_latest(&of_pod(pod, "pod"), pod.uid());
            if is_past || self.is_kept(meta, pod) || meta.awaits(&of_pod(pod, KIND)) {
                continue;
            }
            match meta.put(&of_pod(pod, KIND), KIND, &value(pod), None) {
                ChangeOutcome::Waits | ChangeOutcome::Settled => {}
                // Too much waits to be kept: it is tried again when some of it is.
                ChangeOutcome::Dropped => self.seen = None,
                ChangeOutcome::Refused(_) => {
                    self.refused.insert(pod.uid().clone());
                }
            }
        }
        true
    }

    /// Whether the cloud may be told of the pod as it is.
    pub(super) fn is_kept(&self, meta: &Meta, pod: &Pod) -> bool {
        let api = pod.api();
        let phase = api.status.phase;
        if !phase.is_terminal() || self.refused.contains(pod.uid()) {
            return true;
        }
        let by_us = || match meta.thing(&of_pod(pod, KIND)) {
            Some(StoredObject::TerminalStatuses(uid, status)) => {
                *uid == *pod.uid() && status.phase == phase
            }
            _ => false,
        };
        let by_the_cloud = || match meta.thing(&of_pod(pod, "pod")) {
            Some(StoredObject::Pod(kept)) => {
                kept.metadata.uid == api.metadata.uid && kept.status.phase == phase
            }
            _ => false,
        };
        by_us() || by_the_cloud()
    }
}

/// Something was heard of a pod: what was kept of the end of another of its name goes.
pub(super) fn tidy(meta: &mut Meta, resource: Resource<'_>) {
    let word = Resource { kind: KIND, ..resource }.to_string();
    let Some(StoredObject::TerminalStatuses(uid, _)) = meta.thing(&word) else { return };
    let uid = uid.clone();
    if !meta.is_latest(&resource.to_string(), &uid) {
        let _ = meta.delete(&word, &uid, None);
    }
}

/// The kind of the rows.
pub(super) const KIND: &str = "podpatch";

fn value(pod: &Pod) -> String {
    let api = pod.api();
    let status = &api.status;
    let value = json!({"metadata": {"uid": api.metadata.uid}, "status": {
        "phase": status.phase, "reason": status.reason, "message": status.message,
        "startTime": status.start_time, "conditions": status.conditions,
    }});
    value.to_string()
}
