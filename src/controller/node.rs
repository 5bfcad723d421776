//! One node: its session, what it is to have, and what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::key::Key;
use super::session::Link;
use super::time::Instant;
use crate::limits::PREDECESSORS_MAX;

/// One node.
pub(super) struct Node {
    pub(super) name: Arc<str>,
    pub(super) link: Option<Box<Link>>,
    /// The API server has it, with the label of the edge.
    pub(super) is_known: bool,
    /// Bound to it, and in which list each was seen last.
    pub(super) pods: BTreeMap<Key, u32>,
    /// All that it is to have.
    pub(super) wanted: BTreeSet<Key>,
    /// All that it has or may have.
    pub(super) records: BTreeMap<Key, Record>,
    /// When it is looked at next, if nothing happens before.
    pub(super) timer: Option<Instant>,
}

/// What a node has of an object.
pub(super) struct Record {
    pub(super) uid: Arc<str>,
    /// Acknowledged; 0: only sent.
    pub(super) version: u64,
    /// Of what was acknowledged; 0: not known.
    pub(super) digest: u64,
    /// The store has a record of it, be it an older one: only now it may be sent.
    pub(super) is_stored: bool,
    /// It was on its way before: it goes as an update from now on.
    pub(super) was_sent: bool,
    /// Since when none of the node's pods uses it.
    pub(super) unused_since: Option<Instant>,
    /// `resourceVersion` of the ObjectSync that holds it, as far as known; 0 in a table.
    pub(super) kept_at: u64,
    /// Other objects of this name of which the API server has a record too: it took their place.
    pub(super) predecessors: Vec<Arc<str>>,
}

impl Record {
    /// There is a record of another object of this name. Of so many that the oldest is forgotten:
    /// its record stays until the next controller reads it.
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
            pods: BTreeMap::new(),
            wanted: BTreeSet::new(),
            records: BTreeMap::new(),
            timer: None,
        }
    }

    /// Whether it is one of the edge: only those are taken care of.
    pub(super) fn is_edge(&self) -> bool {
        self.is_known || self.link.is_some()
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.is_edge() && self.pods.is_empty() && self.records.is_empty()
    }

    /// Something about this object is to be looked at. Whether anybody will.
    pub(super) fn stir(&mut self, key: &Key) -> bool {
        let Some(link) = &mut self.link else { return false };
        link.dirty.insert(key.clone())
    }
}
