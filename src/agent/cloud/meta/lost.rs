//! A store that does not know all pods of the cloud that run here, because it was new or lost.
//!
//! Pods that run and are not in the store are left alone, also after a restart, until a relist of
//! the runtime finds none, or the list of all pods of this node is stored. Pods that the cloud
//! deletes end all the same: the deletion is stored before it is acknowledged, because the cloud
//! sends it only once.
//!
//! If we crash here: the row [`MARK`] says that the store is still incomplete.

use std::collections::BTreeSet;

use super::queue::PendingChange;
use super::stored::Version;
use crate::agent::cloud::rows::{self, StoredObject};
use crate::limits::UNSAVED_TOMBSTONES_MAX;
use crate::model::message::Resource;
use crate::model::meta::{Change, Row, StoreOrigin};

/// The row that says that the store may not know all pods of the cloud that run here, and which of
/// them the cloud has deleted.
pub(super) const MARK: &str = "edged/store/incomplete";

/// Whether the store is complete, and deletions of pods that are not in it.
#[derive(Debug, Default)]
pub(super) struct Completeness {
    /// `None`: the store is not read yet.
    origin: Option<StoreOrigin>,
    /// Uids of pods that the cloud has deleted; durable.
    tombstones: BTreeSet<Box<str>>,
    /// The same, with those that are not durable yet.
    received: BTreeSet<Box<str>>,
}

/// What a deletion means for the row [`MARK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tombstone {
    /// No pod is deleted that may run here and is not in the store.
    NotNeeded,
    /// The row has it, or will have it with the next save, or has no room for it.
    Known,
    /// The row has to be written.
    New,
}

impl Completeness {
    /// Whether the store was new, lost or complete at the start; `None`: it is not read yet.
    pub(super) fn origin(&self) -> Option<&StoreOrigin> {
        self.origin.as_ref()
    }

    /// The store is read.
    pub(super) fn set_origin(&mut self, origin: StoreOrigin) {
        self.origin = Some(origin);
    }

    /// Whether pods of the cloud may run here that the store does not know.
    pub(super) fn is_incomplete(&self) -> bool {
        matches!(self.origin, Some(StoreOrigin::New | StoreOrigin::Lost(_)))
    }

    /// Uids of pods that end although the store does not know them.
    pub(super) fn tombstones(&self) -> &BTreeSet<Box<str>> {
        &self.tombstones
    }

    /// Takes a row of the store at the start.
    pub(super) fn load(&mut self, key: &str, value: &str) {
        if key == MARK {
            self.received = rows::uids_of_lost_mark(value);
            self.tombstones.clone_from(&self.received);
        }
    }

    /// The store knows every pod of the cloud that runs here. Returns the deletion of the row.
    pub(super) fn complete(&mut self) -> Option<PendingChange> {
        if !self.is_incomplete() {
            return None;
        }
        self.origin = Some(StoreOrigin::Kept);
        Some(PendingChange::deletion(MARK, None))
    }

    /// The cloud has deleted an object.
    pub(super) fn deleted(&mut self, key: &str, uid: &str) -> Tombstone {
        let is_pod = Resource::parse(key).is_some_and(|resource| resource.kind == "pod");
        if !self.is_incomplete() || !is_pod || uid.is_empty() {
            return Tombstone::NotNeeded;
        }
        let known = self.received.contains(uid);
        if !known && self.received.len() < UNSAVED_TOMBSTONES_MAX {
            self.received.insert(uid.into());
            return Tombstone::New;
        }
        Tombstone::Known
    }

    /// The row with its new content; it is not acknowledged to anybody.
    pub(super) fn mark(&self) -> PendingChange {
        let value = rows::lost_mark(self.received.clone()).into();
        let row = Row { key: MARK.into(), kind: "edged".into(), value };
        PendingChange {
            key: MARK.into(),
            version: Some(Version::default()),
            object: StoredObject::Other,
            bytes: 0,
            change: Some(Change::Put(row)),
            ack: None,
        }
    }

    /// A change of the row is durable.
    pub(super) fn saved(&mut self, change: &Change) {
        if let Change::Put(row) = change {
            self.tombstones = rows::uids_of_lost_mark(&row.value);
        } else {
            (self.tombstones, self.received) = (BTreeSet::new(), BTreeSet::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> Completeness {
        let mut completeness = Completeness::default();
        completeness.set_origin(StoreOrigin::New);
        completeness
    }

    #[test]
    fn a_deletion_counts_once_it_is_durable_and_until_the_store_is_complete() {
        let mut it = lost();
        for (key, uid, expected) in [
            ("n/configmap/a", "u", Tombstone::NotNeeded),
            ("n/pod/a", "", Tombstone::NotNeeded),
            ("n/pod/a", "u", Tombstone::New),
            ("n/pod/a", "u", Tombstone::Known),
        ] {
            assert_eq!(it.deleted(key, uid), expected, "{key} {uid}");
        }
        assert!(it.tombstones().is_empty(), "it is not durable");
        it.saved(&it.mark().change.expect("it is written"));
        assert!(it.tombstones().contains("u"));
        let deletion = it.complete().expect("the row is deleted");
        assert!(it.complete().is_none() && !it.is_incomplete());
        it.saved(&deletion.change.expect("it is written"));
        assert!(it.tombstones().is_empty());
        assert_eq!(it.deleted("n/pod/a", "u"), Tombstone::NotNeeded);
    }

    #[test]
    fn the_row_has_a_limit() {
        let mut it = lost();
        for n in 0..UNSAVED_TOMBSTONES_MAX {
            assert_eq!(it.deleted("n/pod/a", &n.to_string()), Tombstone::New);
        }
        assert_eq!(it.deleted("n/pod/a", "more"), Tombstone::Known);
    }
}
