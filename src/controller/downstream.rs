//! Sends to each node the objects that it lacks, one after another.
//!
//! ```text
//!  watch ─▶ Cache: who wants it? ─▶ dirty ─▶ due? ─▶ record stored ─▶ Send ─▶ ack ─▶ record
//!                                     ▲                                        │
//!                                     └───────────── changed meanwhile ◀───────┘
//! ```

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use serde_json::json;

use super::Counters;
use super::cache::{Cache, Due};
use super::calls;
use super::event::Out;
use super::key::{Key, NodeId};
use super::requests::Form;
use super::say::{self, Origin};
use super::session::{AckEffect, Flight, Given, Link};
use super::time::{Now, Rng};
use crate::model::api::Kind;
use crate::model::message::Message;

/// What is needed while a node is served.
pub(super) struct NodeContext<'a> {
    pub(super) now: Now,
    pub(super) rng: &'a mut Rng,
    pub(super) counters: &'a mut Counters,
    pub(super) out: &'a mut Out,
}

impl Cache {
    /// Sends a node what may be sent now.
    pub(super) fn serve(&mut self, id: NodeId, context: &mut NodeContext<'_>) {
        let Some(mut link) = self.at(id).link.take() else { return };
        link.flush(context.now, context.counters, context.out);
        if link.is_free()
            && let Some(flight) = self.next_flight(id, &mut link, context)
        {
            link.fly(context.now, flight, context.counters, context.out);
        }
        self.at(id).link = Some(link);
    }

    fn next_flight(
        &mut self,
        id: NodeId,
        link: &mut Link,
        context: &mut NodeContext<'_>,
    ) -> Option<Flight> {
        // The node waits for these answers.
        let mut at = 0;
        while let Some(given) = link.answers.get_mut(at) {
            let key = given.key.clone();
            if !self.freshen(id, given) {
                let given = link.answers.remove(at).expect("just seen");
                link.reply(gone(&given.origin, context));
                self.ready.insert(id);
                continue;
            }
            let uid = Arc::clone(&given.uid);
            if self.open(id, &key, &uid) {
                let given = link.answers.remove(at).expect("just seen");
                return Some(answer(given, context));
            }
            at += 1;
        }
        let mut cursor = link.last.clone();
        for _ in 0..link.dirty.len() {
            let key = following(&link.dirty, cursor.as_ref())?;
            match self.flight_of(id, link, &key, context) {
                Next::Nothing => {
                    link.dirty.remove(&key);
                    link.forgive(&key);
                }
                Next::Unacknowledged => drop(link.dirty.remove(&key)),
                Next::Later => {}
                Next::Now(flight) => {
                    link.dirty.remove(&key);
                    link.last = Some(key);
                    return Some(*flight);
                }
            }
            cursor = Some(key);
        }
        None
    }

    /// A requested object has waited: it is sent as it is now. Returns `false` if it does not exist
    /// any more, or the node must not have it.
    fn freshen(&self, id: NodeId, given: &mut Given) -> bool {
        let wanted = self.nodes[&id].wanted.contains(&given.key);
        let Some(object) = self.object(&given.key).filter(|_| wanted) else { return false };
        if object.uid != given.uid || object.version > given.version {
            (given.uid, given.content) = (Arc::clone(&object.uid), Arc::clone(&object.json));
            (given.version, given.digest) = (object.version, object.digest);
        }
        true
    }

    fn flight_of(
        &mut self,
        id: NodeId,
        link: &Link,
        key: &Key,
        context: &mut NodeContext<'_>,
    ) -> Next {
        match self.due(context.now.boot, id, key) {
            Due::Nothing => Next::Nothing,
            Due::Learn => {
                let object = self.object(key).expect("it is there");
                let (uid, version) = (Arc::clone(&object.uid), object.version);
                let digest = object.digest;
                self.has(id, key, &uid, version, digest);
                Next::Nothing
            }
            Due::Put => self.put_flight(id, link, key, context),
            Due::Delete => {
                let record = &self.at(id).records[key];
                let uid = Arc::clone(&record.uid);
                if link.is_put_off(key, 0) {
                    return Next::Unacknowledged;
                }
                if !record.is_stored {
                    if record.was_sent {
                        return Next::Later;
                    }
                    // It was never sent.
                    self.rid(id, key, &uid);
                    return self.flight_of(id, link, key, context);
                }
                let content = Arc::from(skeleton(key, &uid));
                let mut flight =
                    Flight::new(say::new_id(context.rng), key.clone(), uid, content, context.now);
                flight.cargo = AckEffect::Deletion;
                flight.operation = "delete";
                Next::Now(Box::new(flight))
            }
        }
    }

    fn put_flight(
        &mut self,
        id: NodeId,
        link: &Link,
        key: &Key,
        context: &mut NodeContext<'_>,
    ) -> Next {
        let object = self.object(key).expect("it is there");
        if link.is_put_off(key, object.version) {
            return Next::Unacknowledged;
        }
        let (uid, content) = (Arc::clone(&object.uid), Arc::clone(&object.json));
        let (version, digest, is_ending) = (object.version, object.digest, object.is_ending);
        if !self.open(id, key, &uid) {
            return Next::Later;
        }
        let record = self.at(id).records.get_mut(key).expect("just opened");
        let was_sent = std::mem::replace(&mut record.was_sent, true);
        let is_new = !was_sent && !is_ending && matches!(key.kind, Kind::Pod | Kind::ConfigMap);
        let mut flight =
            Flight::new(say::new_id(context.rng), key.clone(), uid, content, context.now);
        (flight.version, flight.digest) = (version, digest);
        flight.operation = if is_new { "insert" } else { "update" };
        Next::Now(Box::new(flight))
    }

    /// The node has acknowledged a message.
    pub(super) fn acknowledged(
        &mut self,
        now: Now,
        id: NodeId,
        message: &str,
        counters: &mut Counters,
    ) {
        let Some(link) = &mut self.at(id).link else { return };
        let Some(flight) = link.landed(message) else { return };
        counters.ack_latency.observe_ms(now.boot.since_ms(flight.first_at));
        match flight.cargo {
            AckEffect::Object | AckEffect::Answer(_) => {
                self.has(id, &flight.key, &flight.uid, flight.version, flight.digest);
            }
            AckEffect::Deletion => self.rid(id, &flight.key, &flight.uid),
        }
        self.ready.insert(id);
    }
}

enum Next {
    /// Nothing to do.
    Nothing,
    /// It was not acknowledged: it is tried later.
    Unacknowledged,
    /// It waits for the store.
    Later,
    Now(Box<Flight>),
}

/// The first key after this one, or the first of all.
fn following(keys: &BTreeSet<Key>, key: Option<&Key>) -> Option<Key> {
    let behind = key.and_then(|key| keys.range((Bound::Excluded(key), Bound::Unbounded)).next());
    behind.or_else(|| keys.first()).cloned()
}

fn answer(given: Given, context: &mut NodeContext<'_>) -> Flight {
    let id = say::new_id(context.rng);
    let mut flight = Flight::new(id, given.key, given.uid, given.content, context.now);
    (flight.version, flight.digest) = (given.version, given.digest);
    flight.cargo = AckEffect::Answer(given.origin);
    flight.operation = "response";
    flight
}

/// The answer to a request for an object that existed then and does not exist any more.
fn gone(origin: &Origin, context: &mut NodeContext<'_>) -> Box<Message> {
    let status = say::status(404, "NotFound", "it is gone by now");
    let content = calls::content(Form::Object, &Err((404, status)));
    say::response(context.rng, context.now, origin, 0, content)
}

/// All that is known of a deleted object.
fn skeleton(key: &Key, uid: &str) -> Box<serde_json::value::RawValue> {
    let mut metadata = json!({"name": &*key.name, "uid": uid});
    if !key.namespace.is_empty() {
        metadata["namespace"] = json!(&*key.namespace);
    }
    let kind = key.kind;
    say::json(&json!({
        "kind": kind.name(), "apiVersion": kind.api_version(), "metadata": metadata,
    }))
}
