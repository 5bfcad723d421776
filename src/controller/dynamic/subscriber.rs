//! What one node listens to, and the events that wait for its acknowledgement. What it has of an
//! object stands with the object ([`super::resources::Entry`]).
//!
//! Of an object only its name waits, and its content is read when it is sent: the newest version
//! wins. There is no record of it beyond memory. KubeEdge stores one in the API server for each
//! node and object, which floods it (spec `metaserver`, section 13). Here a node whose session ends
//! keeps what it has for a while; after that, or when we have restarted, it gets every object that
//! its listeners select. A deletion that it missed then is found by the node: `edged` lists its
//! watches after each connection, and EdgeCore asks the API server for each list while it is
//! connected.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::super::Session;
use super::super::outbound::Origin;
use super::super::time::Instant;
use super::object::{AnyObject, ObjectName, Shown};
use super::resources::{Held, Place, Resource, ResourceId};
use crate::limits::{
    ACK_MS, ACK_TRIES, APPLICATIONS_BYTES_MAX, APPLICATIONS_MAX, REFUSED_RETRY_MAX_MS,
    REFUSED_RETRY_MIN_MS,
};
use crate::model::any_api::AnyCall;
use crate::model::cloud_message::Content;
use crate::model::edge_message::WatchRequest;

/// One node.
#[derive(Default)]
pub(super) struct Subscriber {
    /// By the ids of their Applications.
    pub(super) listeners: BTreeMap<Box<str>, Listener>,
    /// Grows with each new listener: one that is new may select what the others do not.
    pub(super) generation: u32,
    /// Objects to be compared.
    pub(super) dirty: BTreeSet<Place>,
    /// Resources of which all objects are to be compared, and how far that is done.
    pub(super) scans: BTreeMap<ResourceId, Option<Arc<ObjectName>>>,
    /// Resources whose objects wait for the Services that limit them.
    pub(super) held_back: BTreeSet<ResourceId>,
    /// By the ids of the messages.
    pub(super) in_flight: BTreeMap<Box<str>, InFlight>,
    /// When an object that was never acknowledged is due again, and the delay until then.
    postponed: BTreeMap<Place, (Option<Instant>, u64)>,
    pub(super) requests: VecDeque<Request>,
    requests_bytes: usize,
    /// Calls under way.
    pub(super) running: usize,
    /// Since when the node has no session.
    pub(super) gone_since: Option<Instant>,
    /// When it is served next, if nothing happens before.
    pub(super) timer: Option<Instant>,
}

/// A watch of a node's.
pub(super) struct Listener {
    pub(super) resource: ResourceId,
    pub(super) request: WatchRequest,
    /// The session in which it was requested last.
    pub(super) session: Session,
    /// It is not answered yet.
    pub(super) answer: Option<PendingAnswer>,
}

/// An answer that waits for the resource's first list.
pub(super) struct PendingAnswer {
    pub(super) origin: Origin,
    /// The request, JSON.
    pub(super) request: Box<str>,
    pub(super) until: Instant,
}

/// A message that waits for its acknowledgement.
pub(super) struct InFlight {
    pub(super) place: Place,
    /// What the node has after it; `None`: nothing.
    pub(super) after: Option<Held>,
    pub(super) event: NodeEvent,
    /// An answer has shown the node another state after it.
    pub(super) is_overtaken: bool,
    pub(super) first_at: Instant,
    tries: u32,
    resend_at: Instant,
}

/// What a node is told of an object.
#[derive(Clone, Debug)]
pub(super) struct NodeEvent {
    /// `insert`, `update` or `delete`.
    pub(super) operation: &'static str,
    /// Lower case: `service`.
    pub(super) kind: Box<str>,
    pub(super) version: u64,
    pub(super) content: Content,
}

/// A request that waits for the API server.
pub(super) struct Request {
    pub(super) origin: Origin,
    pub(super) call: Box<AnyCall>,
    pub(super) then: Then,
}

/// What follows from the answer.
pub(super) enum Then {
    /// It is sent to the node: the request, JSON.
    Answer(Box<str>),
    /// The node may list what it wants to watch: it listens. The id and the request of the
    /// Application; `None`: it was named in a sync, which is answered.
    Listen(Box<str>, Box<WatchRequest>, Option<Box<str>>),
}

impl InFlight {
    pub(super) fn new(place: Place, after: Option<Held>, event: NodeEvent, now: Instant) -> Self {
        let (first_at, resend_at) = (now, now.plus_ms(ACK_MS));
        Self { place, after, event, is_overtaken: false, first_at, tries: 1, resend_at }
    }
}

/// What to do with a message that was not acknowledged in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unacknowledged {
    /// It is sent again.
    Resend,
    /// It was sent often enough: others have their turn.
    GiveUp,
}

impl Subscriber {
    /// Whether nothing is left of it.
    pub(super) fn is_idle(&self) -> bool {
        self.listeners.is_empty() && self.requests.is_empty() && self.running == 0
    }

    /// Whether one of its listeners selects this object.
    pub(super) fn selects(&self, id: ResourceId, name: &ObjectName, object: &AnyObject) -> bool {
        let of_it = self.listeners.values().filter(|listener| listener.resource == id);
        of_it.map(|listener| &listener.request).any(|request| {
            is_named(request, name)
                && request.labels.matches(&object.labels)
                && request.fields.matches(&object.fields(name))
        })
    }

    /// Whether one of its listeners may select an object of this name.
    pub(super) fn may_select(&self, id: ResourceId, name: &ObjectName) -> bool {
        let of_it = self.listeners.values().filter(|listener| listener.resource == id);
        of_it.map(|listener| &listener.request).any(|request| is_named(request, name))
    }

    /// An answer has shown objects of a resource: what an event under way leads to is not what the
    /// node has then.
    pub(super) fn overtake(&mut self, id: ResourceId, shown: &BTreeMap<ObjectName, Shown>) {
        for flight in self.in_flight.values_mut().filter(|flight| flight.place.resource == id) {
            let shown = shown.get(&*flight.place.name);
            flight.is_overtaken |= shown.is_some_and(|shown| match &flight.after {
                Some(after) => shown.version > after.sent,
                None => true,
            });
        }
    }

    /// Queues a request. Returns `false` if there are too many.
    #[must_use]
    pub(super) fn add(&mut self, request: Request) -> bool {
        let bytes = bytes(&request);
        let fits = self.requests.len() < APPLICATIONS_MAX
            && self.requests_bytes + bytes <= APPLICATIONS_BYTES_MAX;
        if fits {
            self.requests_bytes += bytes;
            self.requests.push_back(request);
        }
        fits
    }

    /// The next request.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        let request = self.requests.pop_front()?;
        self.requests_bytes -= bytes(&request);
        Some(request)
    }

    /// The session is over: what is under way may have arrived or not.
    pub(super) fn disconnected(&mut self, now: Instant) {
        for flight in std::mem::take(&mut self.in_flight).into_values() {
            self.dirty.insert(flight.place);
        }
        for (place, _) in std::mem::take(&mut self.postponed) {
            self.dirty.insert(place);
        }
        for listener in self.listeners.values_mut() {
            listener.answer = None;
        }
        self.requests.clear();
        self.requests_bytes = 0;
        self.gone_since = Some(now);
    }

    /// It listens to a resource no more.
    pub(super) fn forget(&mut self, id: ResourceId) {
        self.scans.remove(&id);
        self.held_back.remove(&id);
        self.in_flight.retain(|_, flight| flight.place.resource != id);
        self.postponed.retain(|place, _| place.resource != id);
        self.dirty.retain(|place| place.resource != id);
    }

    /// The object that is compared next, if there is one.
    pub(super) fn next_place(
        &mut self,
        resources: &BTreeMap<ResourceId, Resource>,
    ) -> Option<Place> {
        let is_free = |place: &&Place| !is_under_way(&self.in_flight, place);
        // At most as many are passed over as are under way. One that was postponed has changed.
        if let Some(place) = self.dirty.iter().find(is_free).cloned() {
            self.dirty.remove(&place);
            return Some(place);
        }
        while let Some((id, from)) = self.scans.first_key_value() {
            let (id, from) = (*id, from.clone());
            let behind = match &from {
                Some(name) => (Bound::Excluded(name), Bound::Unbounded),
                None => (Bound::Unbounded, Bound::Unbounded),
            };
            let objects = resources.get(&id).map(|resource| &resource.objects);
            let next =
                objects.and_then(|objects| objects.range::<Arc<ObjectName>, _>(behind).next());
            let Some((name, _)) = next else {
                self.scans.remove(&id);
                continue;
            };
            self.scans.insert(id, Some(Arc::clone(name)));
            let place = Place { resource: id, name: Arc::clone(name) };
            if is_under_way(&self.in_flight, &place) {
                // It is compared again when it is acknowledged.
                continue;
            }
            return Some(place);
        }
        None
    }

    /// Whether something is to be compared.
    pub(super) fn has_work(&self) -> bool {
        !self.dirty.is_empty() || !self.scans.is_empty()
    }

    /// A message was acknowledged, or is not needed any more.
    pub(super) fn acknowledged(&mut self, id: &str) -> Option<InFlight> {
        let flight = self.in_flight.remove(id)?;
        self.postponed.remove(&flight.place);
        self.dirty.insert(flight.place.clone());
        Some(flight)
    }

    /// The messages that were not acknowledged in time, and what is done with each. Objects that
    /// were postponed until now are to be compared.
    pub(super) fn overdue(&mut self, now: Instant, room: bool) -> Vec<(Box<str>, Unacknowledged)> {
        let mut overdue = Vec::new();
        for (id, flight) in &mut self.in_flight {
            if now < flight.resend_at {
                continue;
            }
            flight.resend_at = now.plus_ms(ACK_MS);
            if !room {
                // It has not left yet.
            } else if flight.tries < ACK_TRIES {
                flight.tries += 1;
                overdue.push((id.clone(), Unacknowledged::Resend));
            } else {
                overdue.push((id.clone(), Unacknowledged::GiveUp));
            }
        }
        for (place, (due_at, _)) in &mut self.postponed {
            if due_at.take_if(|due_at| *due_at <= now).is_some() {
                self.dirty.insert(place.clone());
            }
        }
        overdue
    }

    /// A message was sent often enough: its object is tried again later.
    pub(super) fn postpone(&mut self, now: Instant, id: &str) {
        let Some(flight) = self.in_flight.remove(id) else { return };
        let before = self.postponed.get(&flight.place).map(|(_, delay_ms)| *delay_ms);
        let delay_ms = before.map_or(REFUSED_RETRY_MIN_MS, |delay_ms| delay_ms * 2);
        let delay_ms = delay_ms.min(REFUSED_RETRY_MAX_MS);
        self.postponed.insert(flight.place, (Some(now.plus_ms(delay_ms)), delay_ms));
    }

    /// When it is served, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let in_flight = self.in_flight.values().map(|flight| flight.resend_at);
        let postponed = self.postponed.values().filter_map(|(due_at, _)| *due_at);
        let answers = self.listeners.values().filter_map(|it| Some(it.answer.as_ref()?.until));
        in_flight.chain(postponed).chain(answers).min()
    }
}

fn is_named(request: &WatchRequest, name: &ObjectName) -> bool {
    (request.namespace.is_empty() || request.namespace == name.namespace)
        && (request.name.is_empty() || request.name == name.name)
}

fn is_under_way(in_flight: &BTreeMap<Box<str>, InFlight>, place: &Place) -> bool {
    in_flight.values().any(|flight| flight.place == *place)
}

/// Its size in memory, about.
fn bytes(request: &Request) -> usize {
    request.call.bytes()
        + match &request.then {
            Then::Answer(request) => request.len(),
            Then::Listen(id, _, request) => id.len() + request.as_ref().map_or(0, |it| it.len()),
        }
}
