//! A store that does not know all pods of the cloud that run here, because it was new or lost.
//!
//! Pods that run and are not in the store are left alone, also after a restart, until a relist of
//! the runtime finds none, or the list of all pods of this node is stored. Pods that the cloud
//! deletes end all the same: the deletion is stored before it is acknowledged, because the cloud
//! sends it only once.
//!
//! If we crash here: the row [`MARK`] says that the store is still incomplete.

use std::collections::BTreeSet;

use super::{Meta, PendingChange, StoredObject, Version};
use crate::agent::cloud::rows;
use crate::limits::UNSAVED_TOMBSTONES_MAX;
use crate::model::message::Resource;
use crate::model::meta::{Change, Row, StoreOrigin};

/// The row that says that the store may not know all pods of the cloud that run here, and which of
/// them the cloud has deleted.
pub(super) const MARK: &str = "edged/store/incomplete";

/// Deletions of pods that are not in the store.
#[derive(Debug, Default)]
pub(super) struct UnsavedPods {
    /// Uids of pods that the cloud has deleted; durable.
    tombstones: BTreeSet<Box<str>>,
    /// The same, with those that are not durable yet.
    received: BTreeSet<Box<str>>,
}

impl UnsavedPods {
    /// Takes a row of the store at the start.
    pub(super) fn load(&mut self, key: &str, value: &str) {
        if key == MARK {
            self.received = rows::uids_of_lost_mark(value);
            self.tombstones.clone_from(&self.received);
        }
    }

    /// A change is durable. Returns whether the pods have to be planned again.
    pub(super) fn saved(&mut self, key: &str, change: Option<&Change>) -> bool {
        if key != MARK {
            return false;
        }
        match change {
            Some(Change::Put(row)) => self.tombstones = rows::uids_of_lost_mark(&row.value),
            Some(Change::Delete { .. }) => *self = Self::default(),
            None => return false,
        }
        true
    }
}

impl Meta {
    /// Whether pods of the cloud may run here that the store does not know.
    pub(in crate::agent::cloud) fn is_incomplete(&self) -> bool {
        matches!(self.origin, Some(StoreOrigin::New | StoreOrigin::Lost(_)))
    }

    /// The store is complete: it knows every pod of the cloud that runs here.
    pub(in crate::agent::cloud) fn set_complete(&mut self) {
        if self.is_incomplete() {
            self.origin = Some(StoreOrigin::Kept);
            self.waiting.retain(|pending| *pending.key != *MARK || pending.ack.is_some());
            let change = Some(Change::Delete { key: MARK.into() });
            self.queue_mark(None, change);
        }
    }

    /// Uids of pods that end although the store does not know them.
    pub(in crate::agent::cloud) fn tombstones(&self) -> &BTreeSet<Box<str>> {
        &self.unsaved_pods.tombstones
    }

    /// The cloud has deleted an object. Returns whether it is a pod that may run here; then the
    /// next save stores the deletion.
    pub(super) fn add_tombstone(&mut self, key: &str, uid: &str) -> bool {
        let is_pod = Resource::parse(key).is_some_and(|resource| resource.kind == "pod");
        if !self.is_incomplete() || !is_pod || uid.is_empty() {
            return false;
        }
        let known = self.unsaved_pods.received.contains(uid);
        if !known && self.unsaved_pods.received.len() < UNSAVED_TOMBSTONES_MAX {
            self.unsaved_pods.received.insert(uid.into());
            self.mark();
        }
        true
    }

    /// Queues the row with its new content, in place of one that is not written yet.
    pub(super) fn mark(&mut self) {
        let gone = self.unsaved_pods.received.clone();
        let value = rows::lost_mark(gone).into();
        let row = Row { key: MARK.into(), kind: "edged".into(), value };
        self.waiting.retain(|pending| *pending.key != *MARK || pending.ack.is_some());
        self.queue_mark(Some(Version::default()), Some(Change::Put(row)));
    }

    /// Queues a change of the row, which is not acknowledged to anybody.
    fn queue_mark(&mut self, version: Option<Version>, change: Option<Change>) {
        let (key, object) = (MARK.into(), StoredObject::Other);
        self.waiting.push(PendingChange { key, version, object, bytes: 0, change, ack: None });
    }
}
