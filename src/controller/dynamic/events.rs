//! Tells nodes of the objects that their listeners select: what a node lacks follows from the
//! object as it is now and from what the node has of it.

use std::sync::Arc;

use super::super::Controller;
use super::super::event::Out;
use super::super::key::NodeId;
use super::super::outbound;
use super::super::session::Link;
use super::super::time::{Instant, Now};
use super::object::{AnyObject, ObjectName, Topology, is_of_addresses, skeleton};
use super::resources::{Entry, Held, Place, Resource};
use super::subscriber::{InFlight, NodeEvent, PendingAnswer, Subscriber, Unacknowledged};
use crate::controller::Counters;
use crate::core::time::sooner;
use crate::limits::{DYNAMIC_COMPARED_MAX, DYNAMIC_EVENTS_MAX, LISTENER_GRACE_MS, NODES_PER_STEP};
use crate::model::cloud_message::{CloudMessage, Content};

/// What a node needs of an object.
enum Due {
    Nothing,
    /// Only this is noted.
    Note(Held),
    /// The object. The node has this after it.
    Put(Held, NodeEvent),
    Delete(NodeEvent),
}

/// What is compared for one node.
struct Comparison<'a> {
    id: NodeId,
    node: &'a str,
    resource: &'a Resource,
    subscriber: &'a Subscriber,
    topology: &'a Topology<'a>,
}

impl Comparison<'_> {
    fn due(&self, place: &Place) -> Due {
        let Some(entry) = self.resource.objects.get(&place.name) else { return Due::Nothing };
        let live = entry.live.as_ref();
        let held = entry.holders.get(&self.id);
        if held.is_some_and(|held| !self.resource.knows(live, held.shown)) {
            // An answer has shown the node what the watch will bring.
            return Due::Nothing;
        }
        match (live, held) {
            (None, None) => Due::Nothing,
            (None, Some(held)) => Due::Delete(self.deletion(entry, &place.name, held)),
            (Some(object), Some(held)) if object.uid != held.uid => {
                Due::Delete(self.deletion(entry, &place.name, held))
            }
            (Some(object), held) => self.compared(place, object, held),
        }
    }

    fn compared(&self, place: &Place, object: &AnyObject, held: Option<&Held>) -> Due {
        // The node gets its own pods as pods, and must not get an older state of one from here.
        let is_own_pod = self.resource.name.is("", "pods") && *object.node_name == *self.node;
        let is_selected =
            !is_own_pod && self.subscriber.selects(place.resource, &place.name, object);
        let filtered = self.topology.filtered(&self.resource.name, &place.name, object);
        let (digest, json) = match &filtered {
            Some((digest, json)) => (*digest, json),
            None => (object.version, &object.json),
        };
        let generation = self.subscriber.generation;
        let after = Held {
            uid: Arc::clone(&object.uid),
            sent: object.version,
            shown: held.map_or(0, |held| held.shown),
            digest,
            unselected_by: (!is_selected).then_some(generation),
        };
        // What it has may be selected, although the object is not.
        let may_match = held.is_some_and(|held| held.unselected_by != Some(generation));
        // An answer has shown it as it is, and nothing else of it was sent.
        let is_shown = held.is_some_and(|held| held.sent == 0 && held.shown == object.version);
        let event = |operation| NodeEvent {
            operation,
            kind: object.kind.to_ascii_lowercase().into(),
            version: object.version,
            content: Content::Object(Arc::clone(json)),
        };
        match (is_selected, held) {
            (_, Some(_)) if is_own_pod && may_match => Due::Note(after),
            (false, None) => Due::Nothing,
            (true, None) => Due::Put(after, event("insert")),
            // It was never acknowledged, or may be lost: the node may not have it.
            (true, Some(held)) if held.digest == 0 => Due::Put(after, event("insert")),
            (true, Some(held)) if held.digest != digest => Due::Put(after, event("update")),
            // It has left the selector: the node compares the selector itself, and sees that.
            (false, Some(held)) if may_match && held.digest != digest && !is_shown => {
                Due::Put(after, event("update"))
            }
            (true, Some(held)) if held.unselected_by.is_some() => Due::Note(after),
            (false, Some(_)) if may_match => Due::Note(after),
            (_, Some(_)) => Due::Nothing,
        }
    }

    fn deletion(&self, entry: &Entry, name: &Arc<ObjectName>, held: &Held) -> NodeEvent {
        let gone = entry.gone.as_ref().filter(|(object, _)| object.uid == held.uid);
        let kind = &self.resource.kind;
        // Whole: the node compares its selectors with it.
        let whole = gone.map(|(it, version)| (&it.kind, *version, it.at_version(*version)));
        let (kind, version, content) = whole
            .unwrap_or_else(|| (kind, 0, skeleton(kind, &self.resource.name, name, &held.uid)));
        NodeEvent {
            operation: "delete",
            kind: kind.to_ascii_lowercase().into(),
            version,
            content: Content::Object(content),
        }
    }
}

/// The message of an event.
fn message(now: Now, id: &str, name: &ObjectName, event: &NodeEvent) -> Box<CloudMessage> {
    let namespace = if name.namespace.is_empty() { "null" } else { &name.namespace };
    Box::new(CloudMessage {
        id: id.into(),
        parent: Box::default(),
        timestamp_ms: now.wall.map_or(0, |wall| wall.0),
        version: event.version,
        source: outbound::DYNAMIC,
        group: outbound::GROUP,
        operation: event.operation,
        resource: format!("{namespace}/{}/{}", event.kind, name.name).into(),
        content: event.content.clone(),
    })
}

/// What is needed to send events to one node.
struct Sending<'a> {
    now: Now,
    link: &'a mut Link,
    counters: &'a mut Counters,
    out: &'a mut Out,
}

impl Sending<'_> {
    fn send(&mut self, id: &str, name: &ObjectName, event: &NodeEvent) {
        self.link.send_now(message(self.now, id, name, event), self.counters, self.out);
    }

    /// Sends again what was not acknowledged in time, or postpones it.
    fn resend(&mut self, subscriber: &mut Subscriber) {
        for (id, what) in subscriber.overdue(self.now.boot, self.link.has_room()) {
            match what {
                Unacknowledged::Resend => {
                    self.counters.resends += 1;
                    let flight = &subscriber.in_flight[&id];
                    let (name, event) = (Arc::clone(&flight.place.name), flight.event.clone());
                    self.send(&id, &name, &event);
                }
                Unacknowledged::GiveUp => subscriber.postpone(self.now.boot, &id),
            }
        }
    }
}

impl Controller {
    /// Serves some of the nodes that have something to do.
    pub(super) fn serve_listeners(&mut self, now: Now) {
        for _ in 0..NODES_PER_STEP {
            let Some(id) = self.dynamic.ready.pop_first() else { break };
            self.serve_listener(now, id);
        }
    }

    fn serve_listener(&mut self, now: Now, id: NodeId) {
        self.answer_late(now, id);
        let Some(mut subscriber) = self.dynamic.nodes.remove(&id) else { return };
        let node = self.cache.nodes.get_mut(&id);
        if subscriber.is_idle() {
            return;
        }
        let mut next_at = None;
        if let Some((link, name)) =
            node.and_then(|node| Some((node.link.take()?, Arc::clone(&node.name))))
        {
            let mut link = link;
            self.send_events(now, id, (&name, &mut link), &mut subscriber);
            self.cache.nodes.get_mut(&id).expect("just seen").link = Some(link);
            let services_until = self.dynamic.resources.services_until(now.boot);
            let services_until = services_until.filter(|_| !subscriber.held_back.is_empty());
            next_at = sooner(subscriber.wake_at(), services_until);
        } else {
            let since = *subscriber.gone_since.get_or_insert(now.boot);
            let until = since.plus_ms(LISTENER_GRACE_MS);
            if until <= now.boot {
                self.dynamic.nodes.insert(id, subscriber);
                return self.forget_listeners(now.boot, id);
            }
            next_at = next_at.or(Some(until));
        }
        if let Some(at) = next_at
            && subscriber.timer.is_none_or(|timer| at < timer)
        {
            if let Some(timer) = subscriber.timer.replace(at) {
                self.dynamic.timers.remove(&(timer, id));
            }
            self.dynamic.timers.insert((at, id));
        }
        self.dynamic.nodes.insert(id, subscriber);
    }

    fn send_events(
        &mut self,
        now: Now,
        id: NodeId,
        (node, link): (&str, &mut Link),
        subscriber: &mut Subscriber,
    ) {
        let Self { dynamic, cache, counters, pending: out, rng, .. } = self;
        let mut sending = Sending { now, link, counters, out };
        // An answer shows an older state than the events that follow from what came after it.
        if !sending.link.send_answers(sending.counters, sending.out) {
            return;
        }
        sending.resend(subscriber);
        let is_held_back = dynamic.resources.services_until(now.boot).is_some();
        if !is_held_back {
            let held_back = std::mem::take(&mut subscriber.held_back);
            subscriber.scans.extend(held_back.into_iter().map(|resource| (resource, None)));
        }
        let mut compared = 0;
        while sending.link.has_room() && subscriber.in_flight.len() < DYNAMIC_EVENTS_MAX {
            if compared == DYNAMIC_COMPARED_MAX {
                if subscriber.has_work() {
                    dynamic.ready.insert(id);
                }
                return;
            }
            compared += 1;
            let Some(place) = subscriber.next_place(&dynamic.resources.all) else { return };
            let Some(resource) = dynamic.resources.all.get(&place.resource) else { continue };
            if is_held_back && is_of_addresses(&resource.name) {
                subscriber.scans.remove(&place.resource);
                subscriber.held_back.insert(place.resource);
                continue;
            }
            let is_near = |other: &str| cache.is_near(node, other);
            let topology = Topology { limited: &dynamic.resources.limited, is_near: &is_near };
            let comparison =
                Comparison { id, node, resource, subscriber: &*subscriber, topology: &topology };
            let (after, event) = match comparison.due(&place) {
                Due::Nothing => continue,
                Due::Note(held) => {
                    dynamic.resources.hold(&place, id, held);
                    continue;
                }
                Due::Put(after, event) => (Some(after), event),
                Due::Delete(event) => (None, event),
            };
            if let Some(after) = &after {
                // From now on it may have it.
                let unknown = Held { digest: 0, unselected_by: None, ..after.clone() };
                dynamic.resources.hold(&place, id, unknown);
            }
            let message = outbound::new_id(rng);
            sending.send(&message, &place.name, &event);
            sending.counters.dynamic_events += 1;
            subscriber.in_flight.insert(message, InFlight::new(place, after, event, now.boot));
        }
    }

    /// Answers watches whose resource is not listed in time: they are held.
    fn answer_late(&mut self, now: Now, id: NodeId) {
        let Some(subscriber) = self.dynamic.nodes.get_mut(&id) else { return };
        let resources = &self.dynamic.resources.all;
        let mut answers = Vec::new();
        for listener in subscriber.listeners.values_mut() {
            let is_synced = resources[&listener.resource].is_synced();
            let due = |answer: &mut PendingAnswer| is_synced || answer.until <= now.boot;
            answers.extend(listener.answer.take_if(due));
        }
        for PendingAnswer { origin, request, .. } in answers {
            self.answer_application(now, id, &origin, request, Ok(Box::default()));
        }
    }

    /// The node has acknowledged an event.
    pub(in crate::controller) fn event_acknowledged(&mut self, now: Now, id: NodeId, parent: &str) {
        let Some(subscriber) = self.dynamic.nodes.get_mut(&id) else { return };
        let Some(flight) = subscriber.acknowledged(parent) else { return };
        self.counters.ack_latency.observe_ms(now.boot.since_ms(flight.first_at));
        let InFlight { place, after, is_overtaken, .. } = flight;
        match after {
            // It is compared again.
            _ if is_overtaken => {}
            Some(after) => self.dynamic.resources.hold(&place, id, after),
            None => self.dynamic.resources.released(&place, id),
        }
        self.dynamic.ready.insert(id);
    }

    /// The node has not come back in time.
    fn forget_listeners(&mut self, now: Instant, id: NodeId) {
        let Some(subscriber) = self.dynamic.nodes.get(&id) else { return };
        for application in subscriber.listeners.keys().cloned().collect::<Vec<_>>() {
            self.end_listener(now, id, &application);
        }
        self.dynamic.nodes.remove(&id);
    }
}
