//! CloudHub and the synchroniser: what they sent to a node, and what the node acknowledged.
//!
//! One message that needs an acknowledgement is under way at a time. It is sent again every 5 s,
//! five times in all, and then queued again. Acknowledged versions are recorded, and the records
//! outlive connections; the queue does not. An object that is newer than its record is sent as an
//! `update` within 5 s, or as a `delete` with only names in it.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use edged::model::message::{Header, Message, Route};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::Due;
use super::api::{Api, Change, ChangeKind, Object};

/// Between two transmissions of a message.
const AGAIN_MS: u64 = 5_000;
const WRITES_MAX: u32 = 5;

/// The node's part of CloudHub.
#[derive(Default)]
pub struct Hub {
    /// The connection that the session is on.
    pub conn: Option<u64>,
    /// Acknowledged versions, by uid; version 0: nothing acknowledged yet.
    records: BTreeMap<Box<str>, Record>,
    queue: VecDeque<Box<str>>,
    latest: BTreeMap<Box<str>, Outgoing>,
    flight: Option<Flight>,
    /// Every message that was ever sent for an acknowledgement, by message id.
    pub sent: BTreeMap<Box<str>, Rc<Sent>>,
    /// Messages sent over this connection, the newest last.
    pub history: VecDeque<(Rc<Message>, Rc<Sent>)>,
    /// When the node last sent something.
    pub alive_at: u64,
    /// Written and not yet passed to the link.
    pub written: Vec<Message>,
    /// Timers: due in so many milliseconds.
    pub timers: Vec<(u64, Due)>,
    ids: u64,
    flights: u64,
}

/// ObjectSync.
#[derive(Clone, Debug)]
pub struct Record {
    pub key: Box<str>,
    /// The acknowledged version.
    pub version: u64,
}

/// The object and version that a message carries.
#[derive(Debug)]
pub struct Sent {
    pub key: Box<str>,
    /// Of this incarnation; empty: not included.
    pub uid: Box<str>,
    /// Its `resourceVersion`; 0: not included.
    pub version: u64,
    /// It is deleted.
    pub gone: bool,
    /// A hash of all that makes a difference to a node.
    pub essence: u64,
    /// The message is unintelligible.
    pub nonsense: bool,
    /// It comes by a watch, and is listed again in each connection: it need not be durable.
    pub is_cached: bool,
}

/// Why a message is sent.
#[derive(Clone, Copy, Debug)]
pub enum Cause<'a> {
    /// An object of the node has changed.
    Change,
    /// The node watches it through MetaServer.
    #[cfg_attr(not(feature = "metaserver"), expect(dead_code, reason = "nobody watches"))]
    Watch,
    /// It answers this message, about this resource.
    Answer(&'a str, &'a str),
}

#[derive(Clone)]
struct Outgoing {
    sent: Rc<Sent>,
    message: Rc<Message>,
}

struct Flight {
    serial: u64,
    uid: Box<str>,
    outgoing: Outgoing,
    writes: u32,
}

impl Hub {
    pub fn id(&mut self) -> Box<str> {
        self.ids += 1;
        format!("cloud-{}", self.ids).into()
    }

    /// The node is connected: the queue is empty.
    pub fn connect(&mut self, now: u64, conn: u64) {
        self.disconnect();
        self.conn = Some(conn);
        self.alive_at = now;
    }

    /// The session is over.
    pub fn disconnect(&mut self) {
        self.conn = None;
        self.queue.clear();
        self.latest.clear();
        self.flight = None;
        self.history.clear();
    }

    /// CloudCore forgets what the node acknowledged, and begins again. It would never report
    /// deleted objects then, so those stay.
    pub fn forget(&mut self, api: &Api) {
        let is_there = |uid: &str, key: &str| api.get(key).is_some_and(|it| *it.uid == *uid);
        self.records.retain(|uid, record| !is_there(uid, &record.key));
    }

    /// Processes a change from an informer.
    pub fn informed(&mut self, api: &Api, change: &Change, echoes: bool) {
        let Change { action, key, object } = change;
        let kind = key.split('/').nth(1).unwrap_or_default();
        let concerns = match kind {
            "pod" | "node" | "device" | "devicemodel" => true,
            _ => self.records.contains_key(&object.uid) || api.is_used(key),
        };
        let operation = match action {
            _ if is_unwatched(kind) || !concerns => return,
            ChangeKind::Reported if !echoes => return,
            ChangeKind::Deleted => "delete",
            ChangeKind::Added if kind != "secret" && kind != "node" => "insert",
            ChangeKind::Added | ChangeKind::Changed | ChangeKind::Reported => "update",
        };
        self.line_up(operation, key, object, Cause::Change);
    }

    /// Compares the objects with the records.
    pub fn synchronise(&mut self, api: &Api) {
        let records: Vec<(Box<str>, Record)> =
            self.records.iter().map(|(uid, record)| (uid.clone(), record.clone())).collect();
        for (uid, record) in records {
            match api.get(&record.key).filter(|object| object.uid == uid) {
                Some(object) if object.version > record.version => {
                    let object = object.clone();
                    self.line_up("update", &record.key, &object, Cause::Change);
                }
                Some(_) => {}
                None => {
                    let mut parts = record.key.split('/');
                    let (namespace, name) = (parts.next(), parts.nth(1));
                    let value =
                        json!({"metadata": {"name": name, "namespace": namespace, "uid": uid}});
                    let object = Object::new(uid, 0, value, None);
                    self.line_up("delete", &record.key, &object, Cause::Change);
                }
            }
        }
    }

    /// Queues a message.
    pub fn line_up(&mut self, operation: &str, key: &str, object: &Object, cause: Cause<'_>) {
        let uid = object.uid.clone();
        let fresh = Record { key: key.into(), version: 0 };
        let record = self.records.entry(uid.clone()).or_insert(fresh).version;
        if self.conn.is_none() {
            return;
        }
        let ends = object.value()["metadata"].get("deletionTimestamp").is_some();
        let is_answer = matches!(cause, Cause::Answer(..));
        let always = ends || is_answer || operation == "delete";
        let known = self.latest.get(&uid).map_or(record, |it| it.sent.version);
        if !always && object.version <= known {
            return;
        }
        let (parent, resource) = match cause {
            Cause::Answer(parent, resource) => (parent, resource),
            Cause::Change | Cause::Watch => ("", key),
        };
        let (mut message, mut sent) = self.compose(operation, resource, object, parent);
        if matches!(cause, Cause::Watch) {
            message.route.source = "dynamiccontroller".into();
            sent = Rc::new(Sent {
                is_cached: true,
                key: sent.key.clone(),
                uid: sent.uid.clone(),
                ..*sent
            });
            self.sent.insert(message.header.id.clone(), sent.clone());
        }
        self.latest.insert(uid.clone(), Outgoing { sent, message: Rc::new(message) });
        if !self.queue.contains(&uid) {
            self.queue.push_back(uid);
        }
        self.pump();
    }

    /// A message about an object.
    pub fn compose(
        &mut self,
        operation: &str,
        resource: &str,
        object: &Object,
        parent: &str,
    ) -> (Message, Rc<Sent>) {
        let sent = Rc::new(Sent {
            key: resource.into(),
            uid: object.uid.clone(),
            version: object.version,
            gone: operation == "delete",
            essence: object.essence(),
            nonsense: false,
            is_cached: false,
        });
        let mut message = self.about(operation, resource, parent, object.text().to_owned());
        if object.version > 0 {
            message.header.resource_version = object.version.to_string().into();
        }
        self.sent.insert(message.header.id.clone(), sent.clone());
        (message, sent)
    }

    pub fn message(
        &mut self,
        operation: &str,
        resource: &str,
        parent: &str,
        content: &Value,
    ) -> Message {
        self.about(operation, resource, parent, to_raw_value(content).expect("JSON"))
    }

    /// A message whose content is JSON already.
    pub fn about(
        &mut self,
        operation: &str,
        resource: &str,
        parent: &str,
        content: Box<RawValue>,
    ) -> Message {
        let id = self.id();
        let header = Header { id, parent_id: parent.into(), ..Header::default() };
        let route = Route {
            source: source_of(operation, resource).into(),
            group: "resource".into(),
            operation: operation.into(),
            resource: resource.into(),
        };
        Message { header, route, content: Some(content) }
    }

    /// Sends the next one if none is under way.
    pub fn pump(&mut self) {
        let Some(conn) = self.conn.filter(|_| self.flight.is_none()) else { return };
        let Some(uid) = self.queue.pop_front() else { return };
        let Some(outgoing) = self.latest.get(&uid).cloned() else { return };
        self.flights += 1;
        let serial = self.flights;
        if self.history.len() == 32 {
            self.history.pop_front();
        }
        self.history.push_back((outgoing.message.clone(), outgoing.sent.clone()));
        self.written.push((*outgoing.message).clone());
        self.flight = Some(Flight { serial, uid, outgoing, writes: 1 });
        self.timers.push((AGAIN_MS, Due::Retransmit(conn, serial)));
    }

    /// No acknowledgement came in time: sends again or queues again.
    pub fn retransmit(&mut self, conn: u64, serial: u64) {
        if self.conn != Some(conn) {
            return;
        }
        let Some(flight) = self.flight.as_mut().filter(|it| it.serial == serial) else { return };
        if flight.writes < WRITES_MAX {
            flight.writes += 1;
            self.written.push((*flight.outgoing.message).clone());
            self.timers.push((AGAIN_MS, Due::Retransmit(conn, serial)));
            return;
        }
        let flight = self.flight.take().expect("just seen");
        if !self.queue.contains(&flight.uid) {
            self.queue.push_back(flight.uid);
        }
        self.pump();
    }

    /// The node has acknowledged a message.
    pub fn acknowledged(&mut self, parent: &str) {
        let is_it = |it: &mut Flight| *it.outgoing.message.header.id == *parent;
        let Some(Flight { uid, outgoing, .. }) = self.flight.take_if(is_it) else { return };
        let Sent { ref key, version, gone, .. } = *outgoing.sent;
        if gone {
            self.records.remove(&uid);
        } else {
            let record =
                self.records.entry(uid).or_insert_with(|| Record { key: key.clone(), version });
            record.version = version;
        }
        self.pump();
    }

    /// Whether nothing is under way or queued.
    pub fn is_idle(&self) -> bool {
        self.flight.is_none() && self.queue.is_empty()
    }

    /// What is under way, for the trace.
    pub fn under_way(&self) -> Option<&Sent> {
        self.flight.as_ref().map(|flight| &*flight.outgoing.sent)
    }

    /// What was sent to the node, with the acknowledged versions.
    pub fn records(&self) -> impl Iterator<Item = (&Box<str>, &Record)> {
        self.records.iter()
    }
}

/// A hash of all that makes a difference to a node: without the status, unless the pod has ended,
/// and without `managedFields`.
pub fn essence(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (key, part) in value.as_object().into_iter().flatten() {
        match key.as_str() {
            "metadata" => {
                for (key, part) in part.as_object().into_iter().flatten() {
                    if key != "managedFields" && key != "resourceVersion" {
                        (key, part).hash(&mut hasher);
                    }
                }
            }
            "status" => {
                let phase = part["phase"].as_str().unwrap_or_default();
                phase.chars().filter(|_| is_over(phase)).for_each(|char| char.hash(&mut hasher));
            }
            // Objects in answers do not include it.
            "kind" | "apiVersion" => {}
            _ => (key, part).hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// Objects of devices come from their own controller when they are new, and from the synchroniser
/// under the other name.
fn source_of(operation: &str, resource: &str) -> &'static str {
    let is_device = resource.contains("/device/") || resource.contains("/devicemodel/");
    if is_device && operation == "insert" { "devicecontroller" } else { "edgecontroller" }
}

/// `CloudCore` has no informer for these.
fn is_unwatched(kind: &str) -> bool {
    matches!(kind, "lease" | "persistentvolume" | "persistentvolumeclaim" | "endpoints" | "site")
}

/// A pod of this phase has ended.
pub fn is_over(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}
