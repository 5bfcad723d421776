//! The records that were deleted here and whose deletion the watch has not shown yet.
//!
//! Of a node that is connected here the watch says nothing new. When the node has left, others may
//! write its records, and the watch counts again. It may be behind: it still shows what was written
//! before the deletion, as if it existed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::key::Key;
use crate::limits::CLOSED_RECORDS_MAX;
use crate::model::api::Kind;

#[derive(Default)]
pub(super) struct ClosedRecords {
    records: BTreeMap<Name, Closed>,
    /// The latest `resourceVersion` that the API server has given to an ObjectSync of ours.
    written: u64,
}

/// A record: the node's name, the object and its uid.
type Name = (Arc<str>, Key, Arc<str>);

struct Closed {
    /// What the watch shows of this version or an earlier one was written before the deletion.
    version: u64,
    /// The last list of ObjectSyncs that named it; 0: none.
    round: u32,
}

/// The record of a change that a list or a watch shows.
pub(super) struct Shown<'a> {
    pub(super) node: &'a str,
    pub(super) key: &'a Key,
    pub(super) uid: &'a str,
    /// Version of the ObjectSync in this change.
    pub(super) at: u64,
}

impl Shown<'_> {
    fn name(&self) -> Name {
        (self.node.into(), self.key.clone(), self.uid.into())
    }
}

impl ClosedRecords {
    /// This record is deleted: the list of this round had named it, and it was written in this
    /// version or earlier.
    pub(super) fn close(&mut self, record: &Shown<'_>, round: u32) {
        let version = self.written.max(record.at);
        if version == 0 {
            // Nothing is stored in ObjectSyncs.
            return;
        }
        if self.records.len() >= CLOSED_RECORDS_MAX {
            // Its node may get a deletion once more, if it comes back before the watch shows this.
            self.records.pop_first();
        }
        self.records.insert(record.name(), Closed { version, round });
    }

    /// There is a record again: it knows by itself in which version it was written.
    pub(super) fn open(&mut self, record: &Shown<'_>) {
        if !self.records.is_empty() {
            self.records.remove(&record.name());
        }
    }

    /// The API server has written an ObjectSync in this version.
    pub(super) fn written(&mut self, record: &Shown<'_>) {
        self.written = self.written.max(record.at);
        if !self.records.is_empty()
            && let Some(closed) = self.records.get_mut(&record.name())
        {
            closed.version = closed.version.max(record.at);
        }
    }

    /// Whether this was written before the record was deleted here. `round`: of the list that names
    /// it; 0: the watch does.
    pub(super) fn is_past(&mut self, shown: &Shown<'_>, round: u32) -> bool {
        if self.records.is_empty() {
            return false;
        }
        let Some(closed) = self.records.get_mut(&shown.name()) else { return false };
        closed.round = closed.round.max(round);
        shown.at <= closed.version
    }

    /// The watch has shown a deletion.
    pub(super) fn deletion_seen(&mut self, shown: &Shown<'_>) {
        if self.records.is_empty() {
            return;
        }
        let name = shown.name();
        if self.records.get(&name).is_some_and(|closed| closed.version < shown.at) {
            self.records.remove(&name);
        }
    }

    /// The list of this round is complete: no deletion follows of what it does not name.
    pub(super) fn listed(&mut self, kind: Kind, round: u32) {
        self.records.retain(|(_, key, _), closed| {
            key.namespace.is_empty() != (kind == Kind::ClusterObjectSync) || closed.round == round
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(Kind::Pod, "n", name)
    }

    fn shown(key: &Key, at: u64) -> Shown<'_> {
        Shown { node: "e1", key, uid: "u", at }
    }

    #[test]
    fn a_record_is_closed_until_its_deletion_is_seen() {
        let (mut closed, web) = (ClosedRecords::default(), key("web"));
        closed.written(&shown(&key("other"), 7));
        closed.close(&shown(&web, 5), 0);
        assert!(closed.is_past(&shown(&web, 7), 0), "what is later than all that was written here");
        assert!(!closed.is_past(&shown(&web, 8), 0), "somebody has made it again");
        assert!(!closed.is_past(&shown(&key("other"), 7), 0));
        closed.deletion_seen(&shown(&web, 6));
        assert!(closed.is_past(&shown(&web, 7), 0), "that was an earlier one of this name");
        closed.written(&shown(&web, 9));
        assert!(closed.is_past(&shown(&web, 9), 0), "a call that was answered late");
        closed.deletion_seen(&shown(&web, 10));
        assert!(!closed.is_past(&shown(&web, 9), 0));
        closed.close(&shown(&web, 12), 0);
        closed.open(&shown(&web, 0));
        assert!(!closed.is_past(&shown(&web, 12), 0), "it was made again here");
    }

    #[test]
    fn a_list_ends_all_that_it_does_not_name() {
        let mut closed = ClosedRecords::default();
        let node = Key::node("e1");
        for key in [&key("web"), &key("other"), &key("early"), &node] {
            closed.close(&shown(key, 5), if *key.name == *"early" { 3 } else { 0 });
        }
        assert!(closed.is_past(&shown(&key("web"), 4), 3));
        closed.listed(Kind::ObjectSync, 3);
        assert!(closed.is_past(&shown(&key("web"), 4), 0), "named after it was closed");
        assert!(closed.is_past(&shown(&key("early"), 4), 0), "named before");
        assert!(!closed.is_past(&shown(&key("other"), 4), 0));
        assert!(closed.is_past(&shown(&node, 4), 0), "it is of another list");
        closed.listed(Kind::ClusterObjectSync, 1);
        assert!(!closed.is_past(&shown(&node, 4), 0));
    }

    #[test]
    fn closed_records_have_a_limit() {
        let mut closed = ClosedRecords::default();
        for at in 0..=CLOSED_RECORDS_MAX {
            closed.close(&shown(&key(&at.to_string()), 5), 0);
        }
        assert_eq!(closed.records.len(), CLOSED_RECORDS_MAX);
    }

    #[test]
    fn a_table_needs_none() {
        let mut closed = ClosedRecords::default();
        closed.close(&shown(&key("web"), 0), 0);
        assert!(closed.records.is_empty());
    }
}
