//! Sends to each node the objects that it lacks, one after another.
//!
//! ```text
//!  watch ─▶ Cache: nodes that want it ─▶ dirty ─▶ due? ─▶ record stored ─▶ Send ─▶ ack ─▶ record
//!                                          ▲                                        │
//!                                          └───────────── changed meanwhile ◀───────┘
//! ```

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::Counters;
use super::cache::{Cache, Due};
use super::event::Out;
use super::key::{Key, NodeId, is_computed, is_of_devices};
use super::outbound::{self, Origin};
use super::session::{AckEffect, InFlight, Link, RequestedObject};
use super::time::{Instant, Now, Rng};
use crate::model::api::Kind;
use crate::model::cloud_message::{CloudMessage, Content, Failure};

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
        self.tell_members(id, &mut link, context);
        while let Some((rule, is_on)) = link.next_rule() {
            let message = outbound::rule(context.rng, context.now, &rule, is_on);
            link.send_now(message, context.counters, context.out);
        }
        link.flush(context.now, context.counters, context.out);
        while let Some(message) = link.next_confirmation() {
            let confirmation = outbound::confirmation(context.rng, context.now, message);
            link.send_now(confirmation, context.counters, context.out);
        }
        if link.is_free()
            && let Some(in_flight) = self.next_message(id, &mut link, context)
        {
            link.send_reliably(context.now, in_flight, context.counters, context.out);
        }
        self.at(id).link = Some(link);
    }

    fn next_message(
        &mut self,
        id: NodeId,
        link: &mut Link,
        context: &mut NodeContext<'_>,
    ) -> Option<InFlight> {
        // The node waits for these answers.
        let mut at = 0;
        while let Some(requested) = link.answers.get_mut(at) {
            let key = requested.key.clone();
            if !self.refresh(id, requested) {
                let requested = link.answers.remove(at).expect("just checked");
                link.reply(not_found(&requested.origin, context));
                self.ready.insert(id);
                continue;
            }
            let uid = Arc::clone(&requested.uid);
            if self.open_record(id, &key, &uid) {
                let requested = link.answers.remove(at).expect("just checked");
                return Some(answer(requested, context));
            }
            at += 1;
        }
        let mut cursor = link.last.clone();
        for _ in 0..link.dirty.len() {
            let key = following(&link.dirty, cursor.as_ref())?;
            match self.message_for(id, link, &key, context) {
                Next::Nothing => {
                    link.dirty.remove(&key);
                    link.clear_postponed(&key);
                }
                Next::Unacknowledged => drop(link.dirty.remove(&key)),
                Next::Later => {}
                Next::Now(in_flight) => {
                    link.dirty.remove(&key);
                    link.last = Some(key);
                    return Some(*in_flight);
                }
            }
            cursor = Some(key);
        }
        None
    }

    /// A requested object has waited: it is sent as it is now. Returns `false` if it does not exist
    /// any more, or the node must not have it.
    fn refresh(&self, id: NodeId, requested: &mut RequestedObject) -> bool {
        let wanted = self.nodes[&id].wanted.contains(&requested.key);
        let Some(object) = self.object(&requested.key).filter(|_| wanted) else { return false };
        if object.uid != requested.uid || object.version > requested.version {
            (requested.uid, requested.content) =
                (Arc::clone(&object.uid), Arc::clone(&object.json));
            (requested.version, requested.digest) = (object.version, object.digest);
        }
        true
    }

    fn message_for(
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
                self.confirm_version(id, key, &uid, version, digest);
                Next::Nothing
            }
            Due::Put => self.update_message(id, link, key, context),
            Due::Delete => {
                let record = &self.at(id).records[key];
                let (uid, is_stored) = (Arc::clone(&record.uid), record.is_stored);
                let was_sent = record.was_sent;
                if link.is_postponed(key, 0) {
                    return Next::Unacknowledged;
                }
                if self.has_devices_to_delete(context.now.boot, id, link, key) {
                    return Next::Later;
                }
                if !is_stored {
                    if was_sent {
                        return Next::Later;
                    }
                    // It was never sent.
                    self.close_record(id, key, &uid);
                    return self.message_for(id, link, key, context);
                }
                let content = self.deletion(key, &uid);
                let mut in_flight = InFlight::new(
                    outbound::new_id(context.rng),
                    key.clone(),
                    uid,
                    content,
                    context.now,
                );
                in_flight.effect = AckEffect::Deletion;
                in_flight.operation = "delete";
                Next::Now(Box::new(in_flight))
            }
        }
    }

    fn deletion(&self, key: &Key, uid: &Arc<str>) -> Content {
        // EdgeCore finds the mapper by the protocol of the deleted device.
        if let Some(whole) = self.last_object(key, uid) {
            return Content::Object(Arc::clone(&whole.json));
        }
        // What exists is removed for want of use: it may come again, in this version.
        let existing = self.object(key).filter(|it| it.uid == *uid && !is_computed(key.kind));
        let version = existing.map_or(0, |object| object.version);
        outbound::tombstone(key, uid, version)
    }

    fn update_message(
        &mut self,
        id: NodeId,
        link: &Link,
        key: &Key,
        context: &mut NodeContext<'_>,
    ) -> Next {
        let object = self.object(key).expect("it is there");
        if link.is_postponed(key, object.version) {
            return Next::Unacknowledged;
        }
        let uid = Arc::clone(&object.uid);
        let content = Content::Object(Arc::clone(&object.json));
        let (version, digest, is_ending) = (object.version, object.digest, object.is_ending);
        let model = object.device.as_ref().and_then(|device| device.needs.first().cloned());
        if model.is_some_and(|model| self.is_sent_before(context.now.boot, id, link, &model)) {
            return Next::Later;
        }
        if key.kind == Kind::DeviceModel && !self.let_devices_follow(id, key) {
            return Next::Later;
        }
        if !self.open_record(id, key, &uid) {
            return Next::Later;
        }
        let record = self.at(id).records.get_mut(key).expect("just opened");
        let was_sent = std::mem::replace(&mut record.was_sent, true);
        let is_inserted = is_of_devices(key.kind)
            || is_computed(key.kind)
            || matches!(key.kind, Kind::Pod | Kind::ConfigMap);
        let is_new = !was_sent && !is_ending && is_inserted;
        let mut in_flight =
            InFlight::new(outbound::new_id(context.rng), key.clone(), uid, content, context.now);
        (in_flight.version, in_flight.digest) = (version, digest);
        in_flight.operation = if is_new { "insert" } else { "update" };
        Next::Now(Box::new(in_flight))
    }

    /// A model is about to be sent: the devices of it that the node has acknowledged count as not
    /// acknowledged, so that they are sent after it, whatever happens to us in between. EdgeCore
    /// uses a model only when a device of it comes. Returns whether that is stored.
    fn let_devices_follow(&mut self, id: NodeId, model: &Key) -> bool {
        let from = Key::new(Kind::Device, "", "");
        let devices = self.nodes[&id].records.range(from..).map(|(key, _)| key);
        let devices = devices.take_while(|key| key.kind == Kind::Device).filter(|key| {
            let object = self.object(key).and_then(|object| object.device.as_ref());
            object.is_some_and(|device| device.needs.contains(model))
        });
        let mut is_stored = true;
        for key in devices.cloned().collect::<Vec<Key>>() {
            let record = self.at(id).records.get_mut(&key).expect("just found");
            if record.version > 0 {
                (record.version, record.digest) = (0, 0);
                let uid = Arc::clone(&record.uid);
                self.ack_log.mark_changed(id, &key, &uid);
            }
            is_stored &= self.ack_log.is_saved(id, &key);
        }
        is_stored
    }

    /// Whether a model is about to be sent to the node: its devices wait for it. A model that does
    /// not exist, cannot be read, or is not acknowledged holds nobody up.
    fn is_sent_before(&mut self, now: Instant, id: NodeId, link: &Link, model: &Key) -> bool {
        if self.is_awaited(model) {
            return true;
        }
        let version = self.object(model).map_or(0, |object| object.version);
        link.dirty.contains(model)
            && !link.is_postponed(model, version)
            && self.due(now, id, model) == Due::Put
    }

    /// Whether devices are about to be deleted at the node: a model waits for them.
    fn has_devices_to_delete(
        &mut self,
        now: Instant,
        id: NodeId,
        link: &Link,
        model: &Key,
    ) -> bool {
        let from = Key::new(Kind::Device, "", "");
        let devices = link.dirty.range(from..).take_while(|key| key.kind == Kind::Device);
        model.kind == Kind::DeviceModel
            && devices.into_iter().any(|device| {
                !link.is_postponed(device, 0) && self.due(now, id, device) == Due::Delete
            })
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
        let Some(in_flight) = link.take_acknowledged(message) else { return };
        counters.ack_latency.observe_ms(now.boot.since_ms(in_flight.first_at));
        match in_flight.effect {
            AckEffect::Object | AckEffect::Answer(_) => {
                self.confirm_version(
                    id,
                    &in_flight.key,
                    &in_flight.uid,
                    in_flight.version,
                    in_flight.digest,
                );
                if in_flight.key.kind == Kind::DeviceModel {
                    self.at(id).mark_devices_dirty();
                }
            }
            AckEffect::Deletion => self.close_record(id, &in_flight.key, &in_flight.uid),
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
    Now(Box<InFlight>),
}

/// The first key after this one, or the first of all.
fn following(keys: &BTreeSet<Key>, key: Option<&Key>) -> Option<Key> {
    let behind = key.and_then(|key| keys.range((Bound::Excluded(key), Bound::Unbounded)).next());
    behind.or_else(|| keys.first()).cloned()
}

fn answer(requested: RequestedObject, context: &mut NodeContext<'_>) -> InFlight {
    let (id, content) = (outbound::new_id(context.rng), Content::Object(requested.content));
    let mut in_flight = InFlight::new(id, requested.key, requested.uid, content, context.now);
    (in_flight.version, in_flight.digest) = (requested.version, requested.digest);
    in_flight.effect = AckEffect::Answer(requested.origin);
    in_flight.operation = "response";
    in_flight
}

/// The answer to a request for an object that existed then and does not exist any more.
fn not_found(origin: &Origin, context: &mut NodeContext<'_>) -> Box<CloudMessage> {
    let content = Content::Failure(Failure::new(404, "NotFound", "it does not exist any more"));
    outbound::response(context.rng, context.now, origin, 0, content)
}
