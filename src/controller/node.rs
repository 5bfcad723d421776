//! One node: its session, the objects that it needs, and the objects that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::key::Key;
use super::outbound::Membership;
use super::session::Link;
use super::time::Instant;
use crate::limits::PREDECESSORS_MAX;
use crate::model::api::Kind;

pub(super) struct Node {
    pub(super) name: Arc<str>,
    pub(super) link: Option<Box<Link>>,
    /// The API server has it, with the label of edge nodes.
    pub(super) is_known: bool,
    /// The pods and devices bound to it, with the last list in which each was seen.
    pub(super) bound: BTreeMap<Key, u32>,
    /// The objects that it needs.
    pub(super) wanted: BTreeSet<Key>,
    /// The objects that it has or may have.
    pub(super) records: BTreeMap<Key, Record>,
    /// When it is served next, if nothing happens before.
    pub(super) timer: Option<Instant>,
}

/// What a node has of an object.
pub(super) struct Record {
    pub(super) uid: Arc<str>,
    /// The acknowledged version; 0: only sent.
    pub(super) version: u64,
    /// Digest of the acknowledged version; 0: not known.
    pub(super) digest: u64,
    /// The store has a record of it, maybe an older one: only then it may be sent.
    pub(super) is_stored: bool,
    /// It was sent before: from now on it is sent as an update.
    pub(super) was_sent: bool,
    /// The last list of ObjectSyncs that named it; 0: none.
    pub(super) round: u32,
    /// Since when none of the node's pods uses it.
    pub(super) unused_since: Option<Instant>,
    /// `resourceVersion` of the ObjectSync that stores it, as far as known; 0 in a table.
    pub(super) object_sync_version: u64,
    /// Earlier objects of this name, which it replaced, and which have a record in the API server
    /// too.
    pub(super) predecessors: Vec<Arc<str>>,
}

impl Record {
    /// There is a record of another object of this name. If there are too many the oldest is
    /// forgotten: its record stays until the next controller reads it.
    pub(super) fn add_predecessor(&mut self, uid: &str) {
        if self.predecessors.iter().any(|it| **it == *uid) {
            return;
        }
        if self.predecessors.len() >= PREDECESSORS_MAX {
            self.predecessors.remove(0);
        }
        self.predecessors.push(uid.into());
    }
}

impl Node {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            link: None,
            is_known: false,
            bound: BTreeMap::new(),
            wanted: BTreeSet::new(),
            records: BTreeMap::new(),
            timer: None,
        }
    }

    /// Whether it is an edge node: only those are served.
    pub(super) fn is_edge(&self) -> bool {
        self.is_known || self.link.is_some()
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.is_edge() && self.bound.is_empty() && self.records.is_empty()
    }

    /// Marks an object to be checked. Returns whether the node is to be served for it.
    pub(super) fn mark_dirty(&mut self, key: &Key) -> bool {
        let Some(link) = &mut self.link else { return false };
        link.dirty.insert(key.clone())
    }

    /// Marks all its devices to be checked.
    pub(super) fn mark_devices_dirty(&mut self) {
        let Some(link) = &mut self.link else { return };
        let from = Key::new(Kind::Device, "", "");
        let devices = self.wanted.range(from..).take_while(|key| key.kind == Kind::Device);
        link.dirty.extend(devices.cloned());
    }

    /// A device is bound to it, or is not any more: it is told, if it is connected.
    pub(super) fn member_changed(&mut self, key: &Key, membership: Membership) {
        if key.kind == Kind::Device
            && let Some(link) = &mut self.link
        {
            link.members.insert(key.clone(), membership);
        }
    }
}
