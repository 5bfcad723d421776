//! Deletes the records of deleted nodes (wire spec section 8.3): such a node will never acknowledge
//! a deletion.
//!
//! A node that has records, but neither a Node object nor a session here, is a suspect. A while
//! later the leader asks the API server itself: the watch may be behind, a node that registers
//! again keeps its records, and a node that has only lost the label of edge nodes still exists.
//!
//! Records of deleted objects are no garbage while their node exists: the node gets the deletion
//! first.

use std::collections::{BTreeMap, BTreeSet};

use super::Counters;
use super::cache::Cache;
use super::key::NodeId;
use super::time::Instant;
use crate::limits::{GONE_NODE_MS, NODES_PER_STEP};
use crate::model::api::{Call, CallError, CallResult, Kind, Verb};

/// Nodes that may be deleted.
#[derive(Default)]
pub(super) struct Garbage {
    /// When each of them is checked.
    queue: BTreeSet<(Instant, NodeId)>,
    /// The same, by node.
    due: BTreeMap<NodeId, Instant>,
    /// The node for which a call is under way.
    in_flight: Option<NodeId>,
}

impl Garbage {
    /// The call that is due now.
    pub(super) fn step(&mut self, now: Instant, leads: bool, cache: &mut Cache) -> Option<Call> {
        for id in std::mem::take(&mut cache.suspects) {
            self.schedule(now, id);
        }
        for _ in 0..NODES_PER_STEP {
            if self.in_flight.is_some() {
                return None;
            }
            let (at, id) = *self.queue.first().filter(|(at, _)| *at <= now)?;
            self.queue.remove(&(at, id));
            self.due.remove(&id);
            let Some(node) = cache.nodes.get(&id) else { continue };
            if node.is_edge() || node.records.is_empty() {
                continue;
            }
            if !leads {
                self.schedule(now, id);
                continue;
            }
            self.in_flight = Some(id);
            return Some(Call {
                verb: Verb::Get,
                kind: Kind::Node,
                namespace: "".into(),
                name: (&*node.name).into(),
                subresource: None,
                body: None,
            });
        }
        None
    }

    /// The API server has answered whether the node exists.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        result: &CallResult,
        leads: bool,
        cache: &mut Cache,
        counters: &mut Counters,
    ) {
        let id = self.in_flight.take().expect("a call is under way");
        let Some(node) = cache.nodes.get(&id) else { return };
        if node.is_edge() {
            return;
        }
        match result {
            Err(CallError::Refused { code: 404, .. }) if leads => {
                counters.records_removed += cache.remove_all_records(id);
            }
            // It exists; or the call is repeated.
            Ok(_) | Err(_) => self.schedule(now, id),
        }
    }

    /// The node may be deleted since now.
    fn schedule(&mut self, now: Instant, id: NodeId) {
        let at = now.plus_ms(GONE_NODE_MS);
        if let Some(before) = self.due.insert(id, at) {
            self.queue.remove(&(before, id));
        }
        self.queue.insert((at, id));
    }

    /// When the next call is due, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.queue.first().filter(|_| self.in_flight.is_none()).map(|(at, _)| *at)
    }
}

impl Cache {
    /// A node may be deleted.
    pub(super) fn suspect(&mut self, id: NodeId) {
        let node = self.nodes.get(&id);
        if node.is_some_and(|node| !node.is_edge() && !node.records.is_empty()) {
            self.suspects.insert(id);
        }
    }

    /// Forgets all records of a node. Returns how many there were.
    fn remove_all_records(&mut self, id: NodeId) -> u64 {
        let records = std::mem::take(&mut self.at(id).records);
        let count = records.len();
        for (key, record) in records {
            self.remove_record(id, &key, record);
        }
        count as u64
    }
}
