//! Stores records as KubeEdge does: an ObjectSync for each node and object (wire spec section 8.2).
//! Any CloudCore, and any other controller at the same API server, can continue from them.
//!
//! Records written by others are accepted for nodes that are not connected here.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::ack_log::Line;
use super::cache::{Cache, Live};
use super::closed::Shown;
use super::event::Out;
use super::key::{Key, NodeId, is_computed};
use super::node::{Node, Record};
use super::nullable::Nullable;
use super::time::Instant;
use crate::model::api::{Call, CallError, CallResult, Kind, PatchType, Subresource, Verb};
use crate::model::error::{Peer, System};
use crate::model::raw;
use crate::model::sync;

#[derive(Deserialize)]
struct ObjectSync {
    metadata: Metadata,
    #[serde(default)]
    spec: Nullable<Spec>,
    #[serde(default)]
    status: Nullable<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Box<str>,
    #[serde(default)]
    namespace: Nullable<Box<str>>,
    resource_version: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    object_kind: Nullable<Box<str>>,
    object_name: Nullable<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    object_resource_version: Nullable<Box<str>>,
}

/// Parses an ObjectSync into a record, and its own `resourceVersion`; the record is `None` if its
/// kind is not sent here.
pub(super) fn read(raw: &RawValue) -> Result<(Option<sync::Record>, u64), Peer> {
    let object_sync: ObjectSync =
        serde_json::from_str(raw.get()).map_err(|error| Peer::new(error.to_string()))?;
    let name = object_sync.metadata.name.rsplit_once('.');
    let (node, uid) = name.ok_or_else(|| Peer::new("got no <node>.<uid>"))?;
    let sent = [
        Kind::Node,
        Kind::ConfigMap,
        Kind::Secret,
        Kind::ServiceAccountAccess,
        Kind::Pod,
        Kind::DeviceModel,
        Kind::Device,
    ];
    let kind = sent.into_iter().find(|kind| kind.name() == &**object_sync.spec.object_kind);
    let record = kind.map(|kind| sync::Record {
        node: node.into(),
        kind,
        namespace: object_sync.metadata.namespace.0.clone(),
        name: object_sync.spec.object_name.0.clone(),
        uid: uid.into(),
        version: object_sync.status.object_resource_version.parse().unwrap_or(0),
    });
    let version = object_sync.metadata.resource_version.parse();
    Ok((record, version.map_err(|_| Peer::new("got no number for resourceVersion"))?))
}

impl Cache {
    /// A list of this round names a record, which was written in this version.
    pub(super) fn adopt_listed(&mut self, row: &sync::Record, at: u64, round: u32) {
        let key = Key::new(row.kind, &row.namespace, &row.name);
        if self.closed.is_past(&shown(row, &key, at), round) {
            return;
        }
        self.take_row(row, &key, at, false);
        let id = self.node(&row.node);
        let record = self.at(id).records.get_mut(&key);
        if let Some(record) = record.filter(|record| *record.uid == *row.uid) {
            record.round = round;
        }
    }

    /// The list of this round and version is complete: records that it does not name were deleted
    /// by others while the watch was behind. Those of nodes that are connected here are our own.
    pub(super) fn sweep_records(&mut self, kind: Kind, round: u32, version: u64) {
        let is_of_kind = |key: &Key| key.namespace.is_empty() == (kind == Kind::ClusterObjectSync);
        let mut unnamed = Vec::new();
        for (id, node) in self.nodes.iter().filter(|(_, node)| node.link.is_none()) {
            let records = node.records.iter().filter(|(key, record)| {
                is_of_kind(key)
                    && record.round != round
                    && record.is_stored
                    // A newer record is left to the watch.
                    && record.object_sync_version <= version
                    && self.ack_log.is_saved(*id, key)
            });
            unnamed
                .extend(records.map(|(key, record)| (*id, key.clone(), record.to_row(node, key))));
        }
        self.closed.listed(kind, round);
        for (id, key, row) in unnamed {
            self.record_removed(id, &row, &key, version);
        }
    }

    /// The watch shows that a record was written, or deleted, in this version.
    pub(super) fn adopt(&mut self, row: &sync::Record, at: u64, is_deleted: bool) {
        let key = Key::new(row.kind, &row.namespace, &row.name);
        if self.closed.is_past(&shown(row, &key, at), 0) {
            return;
        }
        if is_deleted {
            self.closed.deletion_seen(&shown(row, &key, at));
        }
        self.take_row(row, &key, at, is_deleted);
    }

    /// The same of a record that is not from before a deletion of our own.
    fn take_row(&mut self, row: &sync::Record, key: &Key, at: u64, is_deleted: bool) {
        let id = self.node(&row.node);
        // For a node that is connected here our own state is newer: our own writes come back late,
        // and describe records that were created again since.
        if self.at(id).link.is_some() || self.ack_log.is_pending(id, key) {
            return;
        }
        let node = self.at(id);
        if let Some(record) = node.records.get_mut(key) {
            let is_other = *record.uid != *row.uid;
            if is_other && is_deleted {
                record.predecessors.retain(|uid| **uid != *row.uid);
                return;
            }
            // A predecessor may still be written while it is being deleted.
            let is_known = record.predecessors.iter().any(|uid| **uid == *row.uid);
            if record.object_sync_version > at || is_known {
                // A record of the time before the object was created again. Of two of one name the
                // later wins: it was written when the other was to be deleted. Only if one of them
                // is known to exist, the other is known not to: calls may overtake each other, and
                // our watch may be behind.
                if is_other {
                    record.add_predecessor(&row.uid);
                    self.settle_records(id, key);
                }
                return;
            }
        }
        let has = node.records.get(key).map(|record| (*record.uid == *row.uid, record.version));
        match has {
            Some((true, _)) if is_deleted => self.record_removed(id, row, key, at),
            Some((true, version)) if version == row.version => {}
            None | Some(_) if is_deleted => {}
            None | Some(_) => {
                let mut record = Record { object_sync_version: at, ..Record::from_row(row) };
                if let Some(before) = node.records.remove(key) {
                    record.predecessors = before.predecessors;
                    record.predecessors.retain(|uid| **uid != *row.uid);
                    if *before.uid != *row.uid {
                        record.add_predecessor(&before.uid);
                    }
                }
                node.records.insert(key.clone(), record);
                node.mark_dirty(key);
                let entry = self.objects.entry(key.clone()).or_default();
                entry.held.insert(id);
                if matches!(entry.live, Live::Unknown) {
                    // Unless a list is about to show it.
                    self.find_out(key);
                }
                self.settle_records(id, key);
                self.ready.insert(id);
                self.suspect(id);
            }
        }
    }

    /// The latest record of its name was deleted by somebody else: the node gets the object again.
    fn record_removed(&mut self, id: NodeId, row: &sync::Record, key: &Key, at: u64) {
        let node = self.at(id);
        let mut record = node.records.remove(key).expect("it was just looked at");
        node.mark_dirty(key);
        self.ready.insert(id);
        if let Some(uid) = record.predecessors.pop() {
            // The record of its predecessor still exists, and is deleted separately.
            let before = sync::Record { uid: (*uid).into(), version: 0, ..row.clone() };
            let predecessors = record.predecessors;
            let record =
                Record { object_sync_version: at, predecessors, ..Record::from_row(&before) };
            self.at(id).records.insert(key.clone(), record);
            self.settle_records(id, key);
            return;
        }
        if let Some(entry) = self.objects.get_mut(key) {
            entry.held.remove(&id);
            self.drop_if_idle(key);
        }
        self.remove_if_idle(id);
    }

    /// The call that writes this record to the API server.
    pub(super) fn record_call(&self, (id, key, uid): &Line) -> Call {
        let node = self.nodes.get(id).expect("a node with unsaved records exists");
        let cluster = key.namespace.is_empty();
        let kind = if cluster { Kind::ClusterObjectSync } else { Kind::ObjectSync };
        let name = format!("{}.{uid}", node.name);
        let record = node.records.get(key).filter(|record| record.uid == *uid);
        let (verb, subresource, body) = match record {
            None => (Verb::Delete, None, None),
            Some(record) if record.is_stored => {
                let status = json!({"objectResourceVersion": record.version.to_string()});
                let body = raw::json(&json!({"status": status}));
                (Verb::Patch(PatchType::Merge), Some(Subresource::Status), Some(body))
            }
            Some(_) => {
                let mut metadata = json!({"name": name});
                if !cluster {
                    metadata["namespace"] = json!(&*key.namespace);
                }
                let body = raw::json(&json!({
                    "kind": kind.name(), "apiVersion": kind.api_version(), "metadata": metadata,
                    "spec": {"objectAPIVersion": version_in_records(key.kind),
                        "objectKind": key.kind.name(), "objectName": &*key.name},
                    "status": {"objectResourceVersion": "0"},
                }));
                (Verb::Create, None, Some(body))
            }
        };
        let (namespace, name) = (key.namespace.as_ref().into(), name.into());
        Call { verb, kind, namespace, name, subresource, body }
    }

    /// Takes the API server's answer.
    pub(super) fn recorded(
        &mut self,
        now: Instant,
        line: &Line,
        verb: Verb,
        result: CallResult,
        out: &mut Out,
    ) {
        let (id, key, uid) = line;
        let object_sync_version =
            result.as_ref().ok().and_then(|raw| read(raw).ok()).map_or(0, |(_, at)| at);
        let has_no_version = object_sync_version == 0;
        let result = match (verb, result) {
            (_, Ok(_)) => Ok(()),
            // The record exists, or does not exist, as it should.
            (Verb::Create, Err(CallError::Refused { code: 409, .. }))
            | (Verb::Delete, Err(CallError::Refused { code: 404, .. })) => Ok(()),
            (_, Err(CallError::Refused { code: 404, .. })) => {
                self.unstored(line);
                Err(System::new("the ObjectSync is gone"))
            }
            (_, Err(CallError::Refused { code, status })) => Err(System::at(code, status)),
            (_, Err(CallError::Lost(why))) => Err(System::new(why)),
        };
        let is_saved = result.is_ok();
        if let Some(node) = self.nodes.get(id) {
            self.closed.written(&Shown { node: &node.name, key, uid, at: object_sync_version });
        }
        self.ack_log.settled(now, line, result, out);
        if !is_saved {
            return;
        }
        let record = self.nodes.get_mut(id).and_then(|node| node.records.get_mut(key));
        let record = record.map(|record| {
            if record.uid == *uid {
                record.object_sync_version = record.object_sync_version.max(object_sync_version);
            }
            &*record
        });
        let own = record.filter(|record| record.uid == *uid);
        if verb == Verb::Create && own.is_some_and(|record| has_no_version || record.version > 0) {
            // It was acknowledged meanwhile; or the record existed, with another content and in a
            // version that is not known.
            self.ack_log.mark_changed(*id, key, uid);
        }
        // A record that was opened again while its predecessor was deleted does not exist yet.
        if record.is_none() || (own.is_some() && verb != Verb::Delete) {
            self.stored(*id, key);
        }
        if self.ack_log.is_saved(*id, key) {
            self.record_saved(*id, key);
        }
    }

    /// This record was deleted by somebody else. A record of the same name that replaced it is not
    /// affected.
    fn unstored(&mut self, (id, key, uid): &Line) {
        let record = self.nodes.get_mut(id).and_then(|node| node.records.get_mut(key));
        if let Some(record) = record.filter(|record| record.uid == *uid) {
            record.is_stored = false;
        }
    }
}

fn shown<'a>(row: &'a sync::Record, key: &'a Key, at: u64) -> Shown<'a> {
    Shown { node: &row.node, key, uid: &row.uid, at }
}

impl Record {
    fn to_row(&self, node: &Node, key: &Key) -> sync::Record {
        sync::Record {
            node: node.name.as_ref().into(),
            kind: key.kind,
            namespace: key.namespace.as_ref().into(),
            name: key.name.as_ref().into(),
            uid: self.uid.as_ref().into(),
            version: self.version,
        }
    }

    /// A record that was stored before.
    pub(super) fn from_row(row: &sync::Record) -> Self {
        Self {
            uid: Arc::from(&*row.uid),
            version: row.version,
            digest: 0,
            is_stored: true,
            was_sent: true,
            round: 0,
            unused_since: None,
            object_sync_version: 0,
            predecessors: Vec::new(),
        }
    }
}

/// `objectAPIVersion` of the records of a kind.
///
/// CloudCore watches what a record names. Rules of service accounts are not in the API server: it
/// would send their deletion, maybe after rules of its own, or wait for ever if it may not list
/// them. A resource that does not exist it passes over, without a call in a group that it knows.
fn version_in_records(kind: Kind) -> &'static str {
    if is_computed(kind) { "v1" } else { kind.api_version() }
}

#[cfg(test)]
mod tests {
    use super::super::cache::From;
    use super::super::object::Object;
    use super::super::session::{Link, SessionOwner};
    use super::*;
    use crate::limits::PREDECESSORS_MAX;
    use crate::model::link::Session;

    #[test]
    fn of_two_of_one_name_only_the_one_that_is_surely_gone_is_removed() {
        // By the time when they were written, and the one that exists.
        for (first, second, live, removed) in [
            ("old", "new", "new", Some("old")),
            ("new", "old", "new", None),
            ("old", "new", "old", None),
        ] {
            let mut cache = Cache::default();
            let id = cache.node("e1");
            let key = Key::new(Kind::ConfigMap, "n", "m");
            let map = json!({"metadata": {"name": "m", "namespace": "n", "uid": live,
                "resourceVersion": "9"}});
            cache.adopt(&row(first), 4, false);
            let read = Object::read(Kind::ConfigMap, &raw::json(&map)).expect("a map");
            cache.put(Instant(1), read, From::Watch);
            cache.adopt(&row(second), 5, false);
            // A record that is being deleted is written once more.
            cache.adopt(&row(first), 6, false);
            assert_eq!(&*cache.nodes[&id].records[&key].uid, second, "it came later");
            let lines: Vec<Line> = std::iter::from_fn(|| cache.ack_log.next(Instant(1))).collect();
            let uids: Vec<&str> = lines.iter().map(|(.., uid)| &**uid).collect();
            assert_eq!(uids, removed.as_slice(), "{first}, {second}, {live}");
        }
    }

    fn link() -> Link {
        let peer = super::super::event::Peer::default();
        Link::new(Session(1), Instant(u64::MAX), SessionOwner::new(&peer))
    }

    /// A record as the API server has it.
    fn row(uid: &str) -> sync::Record {
        let (node, kind, version) = ("e1".into(), Kind::ConfigMap, 1);
        sync::Record {
            node,
            kind,
            namespace: "n".into(),
            name: "m".into(),
            uid: uid.into(),
            version,
        }
    }

    /// The uids of the records that are written next.
    fn written(cache: &mut Cache) -> Vec<Arc<str>> {
        std::iter::from_fn(|| cache.ack_log.next(Instant(1))).map(|(.., uid)| uid).collect()
    }

    #[test]
    fn when_a_node_is_rid_of_an_object_all_records_of_its_name_go() {
        // In whichever order they are read.
        for uids in [["first", "second"], ["second", "first"]] {
            let mut cache = Cache::default();
            let id = cache.node("e1");
            let key = Key::new(Kind::ConfigMap, "n", "m");
            for uid in uids {
                cache.adopt(&row(uid), if uid == "first" { 4 } else { 5 }, false);
            }
            assert!(written(&mut cache).is_empty(), "nobody knows which of them there is");
            cache.close_record(id, &key, "second");
            assert_eq!(written(&mut cache), [Arc::from("first"), Arc::from("second")]);
        }
    }

    /// The answer to a call that has written an ObjectSync in this version.
    fn answered(version: &str) -> Box<RawValue> {
        raw::json(&json!({"metadata": {"name": "e1.first", "namespace": "n",
            "resourceVersion": version}}))
    }

    #[test]
    fn a_watch_that_is_behind_brings_back_nothing_that_was_deleted_here() {
        let mut cache = Cache::default();
        let (id, key) = (cache.node("e1"), Key::new(Kind::ConfigMap, "n", "m"));
        cache.link_up(id, Box::new(link()));
        cache.open_record(id, &key, &Arc::from("first"));
        let line = cache.ack_log.next(Instant(1)).expect("it is created");
        let mut out = Out::default();
        cache.recorded(Instant(1), &line, Verb::Create, Ok(answered("4")), &mut out);
        cache.close_record(id, &key, "first");
        let line = cache.ack_log.next(Instant(1)).expect("it is deleted");
        cache.recorded(Instant(1), &line, Verb::Delete, Ok(answered("4")), &mut out);
        cache.at(id).link = None;
        let records = |cache: &Cache| cache.find("e1").map_or(0, |node| node.records.len());
        cache.adopt(&row("first"), 4, false);
        assert_eq!(records(&cache), 0, "the watch");
        cache.adopt_listed(&row("first"), 4, 1);
        assert_eq!(records(&cache), 0, "a list");
        cache.adopt(&row("first"), 6, false);
        assert_eq!(records(&cache), 1, "another controller has made it again");
        cache.adopt(&row("first"), 7, true);
        assert_eq!(records(&cache), 0);
    }

    #[test]
    fn a_record_that_existed_is_written_until_its_version_is_known() {
        let mut cache = Cache::default();
        let (id, key) = (cache.node("e1"), Key::new(Kind::ConfigMap, "n", "m"));
        cache.open_record(id, &key, &Arc::from("first"));
        let line = cache.ack_log.next(Instant(1)).expect("it is created");
        let status = raw::json(&json!({"reason": "AlreadyExists", "code": 409}));
        let exists = Err(CallError::Refused { code: 409, status });
        let mut out = Out::default();
        cache.recorded(Instant(1), &line, Verb::Create, exists, &mut out);
        cache.adopt(&row("first"), 4, true);
        assert_eq!(cache.nodes[&id].records.len(), 1, "that was an earlier one");
        let line = cache.ack_log.next(Instant(1)).expect("it is written");
        let verb = cache.record_call(&line).verb;
        assert_eq!(verb, Verb::Patch(PatchType::Merge));
        cache.recorded(Instant(1), &line, verb, Ok(answered("6")), &mut out);
        cache.adopt(&row("first"), 5, true);
        assert_eq!(cache.nodes[&id].records.len(), 1);
        cache.adopt(&row("first"), 7, true);
        assert!(!cache.nodes.contains_key(&id), "another controller");
    }

    #[test]
    fn a_record_deleted_by_others_is_not_deleted_again() {
        let mut cache = Cache::default();
        let id = cache.node("e1");
        cache.adopt(&row("first"), 4, false);
        cache.adopt(&row("second"), 5, false);
        cache.adopt(&row("first"), 6, true);
        cache.close_record(id, &Key::new(Kind::ConfigMap, "n", "m"), "second");
        assert_eq!(written(&mut cache), [Arc::from("second")]);
    }

    #[test]
    fn where_the_record_of_the_later_goes_that_of_the_earlier_is_left() {
        let mut cache = Cache::default();
        let id = cache.node("e1");
        let key = Key::new(Kind::ConfigMap, "n", "m");
        cache.adopt(&row("first"), 4, false);
        cache.adopt(&row("second"), 5, false);
        cache.adopt(&row("second"), 6, true);
        assert_eq!(&*cache.nodes[&id].records[&key].uid, "first");
        cache.adopt(&row("first"), 7, true);
        assert!(!cache.nodes.contains_key(&id), "it has nothing left");
        assert!(written(&mut cache).is_empty(), "others have done it");
    }

    #[test]
    fn what_a_new_list_does_not_name_was_deleted_by_others() {
        let mut cache = Cache::default();
        let (id, key) = (cache.node("e1"), Key::new(Kind::ConfigMap, "n", "m"));
        let connected = cache.node("e2");
        cache.at(connected).link = Some(Box::new(link()));
        for (node, at) in [("e1", 4), ("e2", 5)] {
            cache.adopt_listed(&sync::Record { node: node.into(), ..row("first") }, at, 1);
        }
        cache.open_record(connected, &key, &Arc::from("first"));
        cache.stored(connected, &key);
        cache.sweep_records(Kind::ObjectSync, 1, 6);
        cache.sweep_records(Kind::ClusterObjectSync, 2, 7);
        assert_eq!(cache.nodes[&id].records.len(), 1, "it is named, and not of the other kind");
        cache.sweep_records(Kind::ObjectSync, 2, 3);
        assert_eq!(cache.nodes[&id].records.len(), 1, "it is newer than the list");
        cache.adopt_listed(&row("first"), 4, 2);
        cache.sweep_records(Kind::ObjectSync, 2, 7);
        assert_eq!(cache.nodes[&id].records.len(), 1, "it is named once more");
        cache.sweep_records(Kind::ObjectSync, 3, 8);
        assert!(!cache.nodes.contains_key(&id), "it has nothing left");
        assert_eq!(cache.nodes[&connected].records.len(), 1, "our own are newer");
    }

    #[test]
    fn a_new_list_says_nothing_of_a_record_that_is_being_written() {
        let mut cache = Cache::default();
        let (id, key) = (cache.node("e1"), Key::new(Kind::ConfigMap, "n", "m"));
        cache.open_record(id, &key, &Arc::from("first"));
        cache.sweep_records(Kind::ObjectSync, 1, 9);
        assert_eq!(cache.nodes[&id].records.len(), 1, "it is not stored yet");
        let line = cache.ack_log.next(Instant(1)).expect("it is to be created");
        cache.stored(id, &key);
        cache.sweep_records(Kind::ObjectSync, 2, 9);
        assert_eq!(cache.nodes[&id].records.len(), 1, "the answer is not there");
        cache.ack_log.settled(Instant(1), &line, Ok(()), &mut Out::default());
        cache.sweep_records(Kind::ObjectSync, 3, 9);
        assert!(!cache.nodes.contains_key(&id));
    }

    #[test]
    fn once_it_is_known_which_object_there_is_the_records_of_the_others_go() {
        let mut cache = Cache::default();
        cache.node("e1");
        for at in 1..=PREDECESSORS_MAX as u64 + 2 {
            cache.adopt(&row(&at.to_string()), at, false);
        }
        let last = PREDECESSORS_MAX + 2;
        let map = json!({"metadata": {"name": "m", "namespace": "n", "uid": last.to_string(),
            "resourceVersion": "9"}});
        let read = Object::read(Kind::ConfigMap, &raw::json(&map)).expect("a map");
        cache.put(Instant(1), read, From::Watch);
        // So many are remembered, and the oldest was forgotten.
        let mut expected: Vec<Arc<str>> = (2..last).map(|at| at.to_string().into()).collect();
        expected.sort();
        assert_eq!(written(&mut cache), expected);
    }

    #[test]
    fn that_a_record_is_gone_says_nothing_of_its_successor() {
        let mut cache = Cache::default();
        let id = cache.node("e1");
        let key = Key::node("e1");
        let not_found = || {
            let status = raw::json(&json!({"reason": "NotFound", "code": 404}));
            Err(CallError::Refused { code: 404, status })
        };
        let patch = Verb::Patch(PatchType::Merge);
        let line = |uid: &str| (id, key.clone(), Arc::from(uid));
        let is_stored = |cache: &Cache| cache.nodes[&id].records[&key].is_stored;
        cache.open_record(id, &key, &Arc::from("first"));
        cache.close_record(id, &key, "first");
        cache.open_record(id, &key, &Arc::from("second"));
        cache.stored(id, &key);
        cache.recorded(Instant(1), &line("first"), patch, not_found(), &mut Out::default());
        assert!(is_stored(&cache), "of its predecessor");
        cache.recorded(Instant(1), &line("second"), patch, not_found(), &mut Out::default());
        assert!(!is_stored(&cache));
        assert!(cache.ack_log.is_pending(id, &key), "it is made anew");
    }
}
