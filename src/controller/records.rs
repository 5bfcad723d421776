//! The records of what each node has: created before the first message, and updated by what nodes
//! acknowledge.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::cache::{Cache, Live};
use super::closed::Shown;
use super::key::{Key, NodeId, is_computed};
use super::node::Record;
use crate::limits::NODE_ROWS_MAX;
use crate::model::cloud_message::CloudMessage;
use crate::model::link::Session;
use crate::model::sync::{self, Change};

impl Cache {
    /// Takes the content of the store.
    pub(super) fn load(&mut self, rows: Vec<sync::Record>) {
        for row in rows {
            let id = self.node(&row.node);
            let key = Key::new(row.kind, &row.namespace, &row.name);
            let record = Record::from_row(&row);
            self.objects.entry(key.clone()).or_default().held.insert(id);
            if is_computed(key.kind) {
                // No list brings it.
                self.find_out(&key);
            }
            self.at(id).records.insert(key, record);
            self.suspect(id);
        }
    }

    /// The store has a record of this object.
    pub(super) fn stored(&mut self, id: NodeId, key: &Key) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        match node.records.get_mut(key) {
            Some(record) => {
                record.is_stored = true;
                self.ready.insert(id);
            }
            None => self.remove_if_idle(id),
        }
    }

    /// The row to store for the node's record of this object.
    pub(super) fn row(&self, id: NodeId, key: &Key) -> Change {
        let node = self.nodes.get(&id).expect("a node with unsaved records exists");
        let (name, namespace) = (key.name.as_ref().into(), key.namespace.as_ref().into());
        let (kind, of) = (key.kind, node.name.as_ref().into());
        match node.records.get(key) {
            Some(record) => Change::Put(sync::Record {
                node: of,
                kind,
                namespace,
                name,
                uid: record.uid.as_ref().into(),
                version: record.version,
            }),
            None => Change::Delete { node: of, kind, namespace, name },
        }
    }

    /// The node is about to get this object: there is a record from now on. Returns whether the
    /// store has it.
    pub(super) fn open_record(&mut self, id: NodeId, key: &Key, uid: &Arc<str>) -> bool {
        let node = self.nodes.get_mut(&id).expect("a node with an id exists");
        if let Some(record) = node.records.get(key) {
            return record.is_stored && record.uid == *uid;
        }
        let record = Record {
            uid: Arc::clone(uid),
            version: 0,
            digest: 0,
            is_stored: false,
            was_sent: false,
            round: 0,
            unused_since: None,
            object_sync_version: 0,
            predecessors: Vec::new(),
        };
        node.records.insert(key.clone(), record);
        self.closed.open(&Shown { node: &node.name, key, uid, at: 0 });
        self.objects.entry(key.clone()).or_default().held.insert(id);
        self.ack_log.mark_changed(id, key, uid);
        false
    }

    /// The node has this version of this object.
    pub(super) fn confirm_version(
        &mut self,
        id: NodeId,
        key: &Key,
        uid: &str,
        version: u64,
        digest: u64,
    ) {
        let Some(record) = self.at(id).records.get_mut(key) else { return };
        let is_news = if is_computed(key.kind) {
            version != record.version
        } else {
            version > record.version
        };
        if *record.uid == *uid && is_news {
            (record.version, record.digest) = (version, digest);
            let uid = Arc::clone(&record.uid);
            self.ack_log.mark_changed(id, key, &uid);
        }
    }

    /// The node has deleted this object.
    pub(super) fn close_record(&mut self, id: NodeId, key: &Key, uid: &str) {
        let node = self.at(id);
        if node.records.get(key).is_none_or(|record| *record.uid != *uid) {
            return;
        }
        let record = node.records.remove(key).expect("just found");
        node.mark_dirty(key);
        self.remove_record(id, key, record);
    }

    /// Deletes a record that was just taken from the node, and its predecessors.
    pub(super) fn remove_record(&mut self, id: NodeId, key: &Key, record: Record) {
        let (at, round) = (record.object_sync_version, record.round);
        let predecessors = record.predecessors;
        self.delete_stored(id, key, &record.uid, at, round);
        self.remove_predecessors(id, key, predecessors, at);
        if let Some(entry) = self.objects.get_mut(key) {
            entry.held.remove(&id);
            self.drop_if_idle(key);
        }
    }

    /// Deletes these records: the node has another object of this name, or none. `at`: they were
    /// written before this version.
    fn remove_predecessors(&mut self, id: NodeId, key: &Key, uids: Vec<Arc<str>>, at: u64) {
        for uid in uids {
            self.delete_stored(id, key, &uid, at, 0);
        }
    }

    fn delete_stored(&mut self, id: NodeId, key: &Key, uid: &Arc<str>, at: u64, round: u32) {
        let node = &self.nodes.get(&id).expect("a node with an id exists").name;
        self.closed.close(&Shown { node, key, uid, at }, round);
        self.ack_log.mark_changed(id, key, uid);
    }

    /// If the record is of the object that exists, its predecessors are deleted.
    pub(super) fn settle_records(&mut self, id: NodeId, key: &Key) {
        let Some(live) = self.object(key).map(|object| Arc::clone(&object.uid)) else { return };
        let record = self.nodes.get_mut(&id).and_then(|node| node.records.get_mut(key));
        if let Some(record) = record.filter(|record| record.uid == live) {
            let predecessors = std::mem::take(&mut record.predecessors);
            let at = record.object_sync_version;
            self.remove_predecessors(id, key, predecessors, at);
        }
    }

    /// The node has this object and must delete it. Whether an object of this name exists elsewhere
    /// is looked up: another node may be about to want it.
    pub(super) fn request_deletion(&mut self, id: NodeId, key: &Key, uid: &str) {
        let node = self.at(id);
        if uid.is_empty() || node.records.contains_key(key) || node.records.len() >= NODE_ROWS_MAX {
            return;
        }
        let uid = Arc::from(uid);
        if matches!(self.objects.entry(key.clone()).or_default().live, Live::Unknown) {
            self.fetch.insert(key.clone());
        }
        self.open_record(id, key, &uid);
        let node = self.at(id);
        node.records.get_mut(key).expect("just opened").was_sent = true;
        if node.mark_dirty(key) {
            self.ready.insert(id);
        }
    }

    /// The node may have lost all that it had, but may also have kept it: it gets it again, and
    /// still gets the deletions.
    pub(super) fn mark_uncertain(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a node with an id exists");
        for (key, record) in &mut node.records {
            if record.version > 0 {
                (record.version, record.digest) = (0, 0);
                self.ack_log.mark_changed(id, key, &record.uid);
            }
        }
        self.registered.insert(id);
        self.restarted.insert(id);
        self.arrived.insert(id, true);
        self.check_all(id);
    }

    /// Answers a node that has registered. It does not register again, so what it may have lost is
    /// recorded first: if we crash before, it registers once more.
    pub(super) fn answer_registration(
        &mut self,
        id: NodeId,
        session: Session,
        message: Box<CloudMessage>,
    ) {
        let Some(node) = self.nodes.get(&id) else { return };
        let uncertain: BTreeSet<Key> = node
            .records
            .iter()
            .filter(|(key, record)| record.version == 0 && !self.ack_log.is_saved(id, key))
            .map(|(key, _)| key.clone())
            .collect();
        if uncertain.is_empty() {
            return self.answer(id, session, message);
        }
        if let Some(link) = self.at(id).link.as_mut().filter(|link| link.session == session) {
            link.answer_registration_later(message, uncertain);
        }
    }

    /// The record is stored as it is now. A node that has registered is answered when that was the
    /// last record it waited for.
    pub(super) fn record_saved(&mut self, id: NodeId, key: &Key) {
        let Some(link) = self.nodes.get_mut(&id).and_then(|node| node.link.as_mut()) else {
            return;
        };
        if !link.registration_answers.uncertain.remove(key)
            || !link.registration_answers.uncertain.is_empty()
        {
            return;
        }
        for message in std::mem::take(&mut link.registration_answers.messages) {
            link.reply(message);
        }
        self.ready.insert(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::api::Kind;

    #[test]
    fn unknown_objects_of_a_node_have_a_limit() {
        let mut cache = Cache::default();
        let id = cache.node("e1");
        let pod = |at: usize| Key::new(Kind::Pod, "n", &at.to_string());
        for at in 0..=NODE_ROWS_MAX {
            cache.request_deletion(id, &pod(at), "u");
        }
        assert_eq!(cache.at(id).records.len(), NODE_ROWS_MAX);
        assert!(!cache.at(id).records.contains_key(&pod(NODE_ROWS_MAX)), "the newest is left");
        // It has deleted one, and confirms what it has.
        cache.close_record(id, &pod(0), "u");
        cache.request_deletion(id, &pod(NODE_ROWS_MAX), "u");
        assert!(cache.at(id).records.contains_key(&pod(NODE_ROWS_MAX)));
    }
}
