//! Stores the terminal status of a pod before it is reported to the cloud.
//!
//! A pod that was reported as ended must never run again, but the evidence may disappear with the
//! next reboot: its containers, or the cloud's echo that never came. The row is the one in which
//! `EdgeCore` stores its patches (wire spec section 6.3), `default/podpatch/web`, with the part of
//! the status that a restarted process needs.
//!
//! If we crash here: what was not stored was not reported.

use std::collections::BTreeSet;

use super::meta::{ChangeOutcome, Meta};
use super::rows::{self, StoredObject, TERMINAL_STATUS, pod_key};
use crate::agent::calls::Uid;
use crate::agent::pod::{Origin, Pod, Wanted};
use crate::agent::pods::Pods;

/// Which terminal statuses were stored.
#[derive(Debug, Default)]
pub(super) struct TerminalStatuses {
    /// The pods' revision at which all terminal statuses were handled.
    handled_revision: Option<u64>,
    /// Pods whose row has no room: they are reported all the same, otherwise they could not be
    /// deleted.
    refused: BTreeSet<Uid>,
}

/// What a step has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Found {
    /// The pods are as they were when all was handled.
    Nothing,
    /// The pods have changed, or a status did not have room before: others may be reported now.
    Changes,
}

impl TerminalStatuses {
    /// Stores the terminal statuses, with a link or without.
    pub(super) fn step(&mut self, pods: &Pods, meta: &mut Meta) -> Found {
        if self.handled_revision == Some(pods.revision()) {
            return Found::Nothing;
        }
        self.handled_revision = Some(pods.revision());
        self.refused.retain(|uid| pods.get(uid).is_some());
        let ours = |pod: &&Pod| {
            pod.origin() == Origin::Cloud
                && *pod.wanted() == Wanted::Yes
                && pod.api().status.phase.is_terminal()
        };
        for pod in pods.iter().filter(ours) {
            // A pod that is about to be removed, or was replaced by another one, needs no row any
            // more.
            let is_past = !meta.is_latest(&pod_key(pod, "pod"), pod.uid());
            if is_past
                || self.is_stored(meta, pod)
                || meta.is_pending(&pod_key(pod, TERMINAL_STATUS))
            {
                continue;
            }
            match meta.put(
                &pod_key(pod, TERMINAL_STATUS),
                TERMINAL_STATUS,
                &rows::terminal_status(pod.api()),
                None,
            ) {
                ChangeOutcome::Queued | ChangeOutcome::Unchanged => {}
                // The queue is full: it is retried when there is room.
                ChangeOutcome::Dropped => self.handled_revision = None,
                ChangeOutcome::Refused(_) => {
                    self.refused.insert(pod.uid().clone());
                }
            }
        }
        Found::Changes
    }

    /// Whether the pod's current status may be reported to the cloud.
    pub(super) fn is_stored(&self, meta: &Meta, pod: &Pod) -> bool {
        let api = pod.api();
        let phase = api.status.phase;
        if !phase.is_terminal() || self.refused.contains(pod.uid()) {
            return true;
        }
        let in_own_row = || match meta.stored_object(&pod_key(pod, TERMINAL_STATUS)) {
            Some(StoredObject::TerminalStatuses(uid, status)) => {
                *uid == *pod.uid() && status.phase == phase
            }
            _ => false,
        };
        let in_pod = || match meta.stored_object(&pod_key(pod, "pod")) {
            Some(StoredObject::Pod(stored)) => {
                stored.metadata.uid == api.metadata.uid && stored.status.phase == phase
            }
            _ => false,
        };
        in_own_row() || in_pod()
    }
}
