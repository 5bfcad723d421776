//! A node's session: the message in flight and the two queues.
//!
//! Two queues, as in KubeEdge (wire spec section 2.6). The reliable one is serial: one message at a
//! time, sent again until it is acknowledged, and postponed when that does not help. Only the name
//! of an object waits; its content is read when it is sent, so the newest version wins and the
//! queue is bounded by the number of the node's objects. Messages without an acknowledgement bypass
//! it.
//!
//! Back-pressure: beyond [`EDGE_UNSENT_BYTES_MAX`] nothing more is handed to the event loop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::event::{Action, Out, Peer};
use super::key::{Key, is_computed};
use super::outbound::{self, Membership, Origin};
use super::requests::PendingRequests;
use super::time::{Instant, Now};
use super::{Counters, Session};
use crate::limits::{
    ACK_MS, ACK_TRIES, DEVICE_CONFIRMATIONS_MAX, EDGE_ANSWERS_BYTES_MAX, EDGE_ANSWERS_MAX,
    EDGE_CALLS_MAX, EDGE_REPLACED_MAX, EDGE_REPLACED_MS, EDGE_UNSENT_BYTES_MAX,
    REFUSED_RETRY_MAX_MS, REFUSED_RETRY_MIN_MS, ROUTER_MESSAGE_BYTES_MAX, ROUTER_NODE_MESSAGES_MAX,
};
use crate::model::cloud_message::{CloudMessage, Content};
use crate::model::router::NodeRule;

/// An open session.
pub(super) struct Link {
    pub(super) session: Session,
    /// The session ends if nothing is received until then.
    pub(super) silent_at: Instant,
    /// Bytes that have not left.
    unsent: usize,
    /// Messages without an acknowledgement.
    unacknowledged: VecDeque<Box<CloudMessage>>,
    unacknowledged_bytes: usize,
    /// Messages of the router.
    routed: VecDeque<Box<CloudMessage>>,
    routed_bytes: usize,
    /// Rules that the node has to be told of, and whether they are in force.
    pub(super) rules: BTreeMap<NodeRule, bool>,
    /// Answers that the node acknowledges.
    pub(super) answers: VecDeque<RequestedObject>,
    /// Objects to be checked.
    pub(super) dirty: BTreeSet<Key>,
    /// The object checked last: the next one follows it in order, so that none starves.
    pub(super) last: Option<Key>,
    postponed: BTreeMap<Key, Postponed>,
    in_flight: Option<InFlight>,
    pub(super) requests: PendingRequests,
    pub(super) offences: u32,
    /// An error of the node was logged.
    pub(super) is_error_logged: bool,
    pub(super) owner: SessionOwner,
    /// Devices that the node has to be told of.
    pub(super) members: BTreeMap<Key, Membership>,
    /// Messages about devices that are done, by their ids.
    confirmations: VecDeque<Box<str>>,
    /// The node has requested the list of its devices: that message's id.
    pub(super) detail: Option<Box<str>>,
    /// The node has registered; it is answered when all that it may have lost is recorded.
    pub(super) registration_answers: RegistrationAnswers,
}

/// The answers to registrations.
#[derive(Default)]
pub(super) struct RegistrationAnswers {
    pub(super) messages: VecDeque<Box<CloudMessage>>,
    /// Objects that the node may have lost, and whose records are not stored yet.
    pub(super) uncertain: BTreeSet<Key>,
}

/// The credentials of a session, and whether other sessions use them too.
pub(super) struct SessionOwner {
    /// When the certificate was made, seconds since 1970.
    pub(super) made_s: i64,
    /// The peer's address.
    pub(super) address: Box<str>,
    /// Sessions of this node that replaced each other since then.
    replaced: u32,
    since: Instant,
}

impl SessionOwner {
    pub(super) fn new(peer: &Peer) -> Self {
        let address = (*peer.address).into();
        Self { made_s: peer.made_s, address, replaced: 0, since: Instant(0) }
    }

    /// This session replaces the old one. Returns how many were replaced so far.
    pub(super) fn replaces(&mut self, old: &Self, now: Instant) -> u32 {
        let goes_on = old.replaced > 0 && now.since_ms(old.since) < EDGE_REPLACED_MS;
        (self.replaced, self.since) =
            if goes_on { (old.replaced + 1, old.since) } else { (1, now) };
        self.replaced
    }

    /// Whether so many sessions were replaced in a short time that the next one has to wait:
    /// otherwise two gateways with one certificate would end each other's sessions for ever.
    pub(super) fn is_contested(&self, now: Instant) -> bool {
        self.replaced >= EDGE_REPLACED_MAX && now.since_ms(self.since) < EDGE_REPLACED_MS
    }
}

/// An object that the node requested.
pub(super) struct RequestedObject {
    pub(super) origin: Origin,
    pub(super) key: Key,
    pub(super) uid: Arc<str>,
    pub(super) version: u64,
    pub(super) digest: u64,
    pub(super) content: Arc<RawValue>,
}

/// An object that was never acknowledged.
struct Postponed {
    /// `None`: it is due.
    due_at: Option<Instant>,
    delay_ms: u64,
    /// Another version is tried at once.
    version: u64,
}

/// The message that waits for its acknowledgement.
pub(super) struct InFlight {
    pub(super) id: Box<str>,
    pub(super) key: Key,
    pub(super) uid: Arc<str>,
    pub(super) version: u64,
    pub(super) digest: u64,
    pub(super) effect: AckEffect,
    pub(super) operation: &'static str,
    pub(super) content: Content,
    pub(super) first_at: Instant,
    tries: u32,
    resend_at: Instant,
}

/// What its acknowledgement means.
#[derive(Clone, Debug)]
pub(super) enum AckEffect {
    /// The node has the object.
    Object,
    /// The node has the object, and requested it.
    Answer(Origin),
    /// The node has deleted the object.
    Deletion,
}

impl InFlight {
    pub(super) fn new(id: Box<str>, key: Key, uid: Arc<str>, content: Content, now: Now) -> Self {
        Self {
            id,
            key,
            uid,
            version: 0,
            digest: 0,
            effect: AckEffect::Object,
            operation: "update",
            content,
            first_at: now.boot,
            tries: 0,
            resend_at: now.boot,
        }
    }

    fn message(&self, now: Now) -> Box<CloudMessage> {
        let name = self.key.to_string();
        let (parent, resource) = match &self.effect {
            AckEffect::Answer(origin) => (origin.id.clone(), origin.resource.clone()),
            AckEffect::Object | AckEffect::Deletion => (Box::default(), name.into()),
        };
        Box::new(CloudMessage {
            id: self.id.clone(),
            parent,
            timestamp_ms: now.wall.map_or(0, |wall| wall.0),
            version: if is_computed(self.key.kind) { 0 } else { self.version },
            source: outbound::source_of(self.key.kind),
            group: outbound::GROUP,
            operation: self.operation,
            resource,
            content: self.content.clone(),
        })
    }
}

impl Link {
    pub(super) fn new(session: Session, silent_at: Instant, owner: SessionOwner) -> Self {
        Self {
            session,
            silent_at,
            unsent: 0,
            unacknowledged: VecDeque::new(),
            unacknowledged_bytes: 0,
            routed: VecDeque::new(),
            routed_bytes: 0,
            rules: BTreeMap::new(),
            answers: VecDeque::new(),
            dirty: BTreeSet::new(),
            last: None,
            postponed: BTreeMap::new(),
            in_flight: None,
            requests: PendingRequests::default(),
            offences: 0,
            is_error_logged: false,
            owner,
            members: BTreeMap::new(),
            confirmations: VecDeque::new(),
            detail: None,
            registration_answers: RegistrationAnswers::default(),
        }
    }

    /// So many bytes have not left.
    pub(super) fn drained(&mut self, unsent: usize) {
        self.unsent = unsent;
    }

    pub(super) fn has_room(&self) -> bool {
        self.unsent < EDGE_UNSENT_BYTES_MAX
    }

    /// Whether the reliable queue may send the next message.
    pub(super) fn is_free(&self) -> bool {
        self.in_flight.is_none() && self.has_room()
    }

    /// Objects and answers that wait.
    pub(super) fn queued(&self) -> usize {
        let in_flight = usize::from(self.in_flight.is_some());
        // A postponed object that is due again is in `dirty`, or needs nothing any more.
        let postponed = self.postponed.values().filter(|it| it.due_at.is_some()).count();
        let messages = self.unacknowledged.len() + self.routed.len() + in_flight;
        self.dirty.len() + postponed + self.answers.len() + messages
    }

    /// Answers a registration when all that the node may have lost is recorded. If the node
    /// registers too often, the oldest answers are dropped.
    pub(super) fn answer_registration_later(
        &mut self,
        message: Box<CloudMessage>,
        uncertain: BTreeSet<Key>,
    ) {
        if self.registration_answers.messages.len() >= EDGE_CALLS_MAX {
            self.registration_answers.messages.pop_front();
        }
        self.registration_answers.messages.push_back(message);
        self.registration_answers.uncertain.extend(uncertain);
    }

    /// Answers the node. If it does not read its answers, the session ends.
    pub(super) fn reply(&mut self, message: Box<CloudMessage>) {
        if !self.queue(message) {
            self.offences = u32::MAX;
        }
    }

    /// Whether an answer of so many bytes may be queued, with as many bytes left for others.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.unacknowledged.len() < EDGE_ANSWERS_MAX / 2
            && self.unacknowledged_bytes + bytes <= EDGE_ANSWERS_BYTES_MAX - EDGE_UNSENT_BYTES_MAX
    }

    /// Sends a message when there is room, without an acknowledgement. Returns `false` if the node
    /// does not read its answers.
    fn queue(&mut self, message: Box<CloudMessage>) -> bool {
        self.unacknowledged_bytes += message.bytes();
        self.unacknowledged.push_back(message);
        self.unacknowledged.len() <= EDGE_ANSWERS_MAX
            && self.unacknowledged_bytes <= EDGE_ANSWERS_BYTES_MAX
    }

    /// Sends a message of the router when there is room. Returns `false` if too much waits.
    pub(super) fn offer(&mut self, message: Box<CloudMessage>) -> bool {
        let bytes = self.routed_bytes + message.bytes();
        let fits =
            self.routed.len() < ROUTER_NODE_MESSAGES_MAX && bytes <= ROUTER_MESSAGE_BYTES_MAX;
        if fits {
            self.routed_bytes = bytes;
            self.routed.push_back(message);
        }
        fits
    }

    /// The next rule that the node is told of, if there is room.
    pub(super) fn next_rule(&mut self) -> Option<(NodeRule, bool)> {
        if self.has_room() { self.rules.pop_first() } else { None }
    }

    /// A message about devices is done: the node is told when there is room. If there are too many
    /// the oldest is dropped: the node sends it again.
    pub(super) fn confirm(&mut self, message: Box<str>) {
        if self.confirmations.len() >= DEVICE_CONFIRMATIONS_MAX {
            self.confirmations.pop_front();
        }
        self.confirmations.push_back(message);
    }

    /// The next message that is confirmed, if there is room.
    pub(super) fn next_confirmation(&mut self) -> Option<Box<str>> {
        if self.has_room() { self.confirmations.pop_front() } else { None }
    }

    /// Sends a message at once, without an acknowledgement.
    pub(super) fn send_now(
        &mut self,
        message: Box<CloudMessage>,
        counters: &mut Counters,
        out: &mut Out,
    ) {
        self.send(message, counters, out);
    }

    /// Queues an object until it is acknowledged. If the queue is full the request is not answered:
    /// the node repeats it.
    pub(super) fn queue_object(&mut self, requested: RequestedObject) {
        if self.answers.len() < EDGE_ANSWERS_MAX {
            self.answers.push_back(requested);
        }
    }

    /// Sends what is due by time, and the messages without an acknowledgement.
    pub(super) fn flush(&mut self, now: Now, counters: &mut Counters, out: &mut Out) {
        self.resend(now, counters, out);
        for (key, postponed) in &mut self.postponed {
            if postponed.due_at.take_if(|due_at| *due_at <= now.boot).is_some() {
                self.dirty.insert(key.clone());
            }
        }
        let _ = self.send_answers(counters, out);
    }

    /// Sends the messages without an acknowledgement, as far as there is room. Returns whether none
    /// is left.
    pub(super) fn send_answers(&mut self, counters: &mut Counters, out: &mut Out) -> bool {
        while self.has_room()
            && let Some(message) = self.unacknowledged.pop_front()
        {
            self.unacknowledged_bytes -= message.bytes();
            self.send(message, counters, out);
        }
        while self.has_room()
            && let Some(message) = self.routed.pop_front()
        {
            self.routed_bytes -= message.bytes();
            self.send(message, counters, out);
        }
        self.unacknowledged.is_empty()
    }

    /// Sends again what was not acknowledged in time.
    fn resend(&mut self, now: Now, counters: &mut Counters, out: &mut Out) {
        let room = self.has_room();
        let Some(in_flight) = &mut self.in_flight else { return };
        if now.boot < in_flight.resend_at {
            return;
        }
        if !room {
            // It has not left yet.
            in_flight.resend_at = now.boot.plus_ms(ACK_MS);
        } else if in_flight.tries < ACK_TRIES {
            in_flight.tries += 1;
            in_flight.resend_at = now.boot.plus_ms(ACK_MS);
            counters.resends += 1;
            let message = in_flight.message(now);
            self.send(message, counters, out);
        } else {
            let in_flight = self.in_flight.take().expect("just checked");
            if matches!(in_flight.effect, AckEffect::Answer(_)) {
                return;
            }
            let before = self.postponed.get(&in_flight.key);
            let delay_ms = before.map_or(REFUSED_RETRY_MIN_MS, |postponed| postponed.delay_ms * 2);
            let delay_ms = delay_ms.min(REFUSED_RETRY_MAX_MS);
            let (due_at, version) = (Some(now.boot.plus_ms(delay_ms)), in_flight.version);
            self.postponed.insert(in_flight.key, Postponed { due_at, delay_ms, version });
        }
    }

    /// Whether this version of the object must not be tried now.
    pub(super) fn is_postponed(&self, key: &Key, version: u64) -> bool {
        let postponed = self.postponed.get(key);
        postponed
            .is_some_and(|postponed| postponed.version == version && postponed.due_at.is_some())
    }

    /// The node lacks nothing of this object, so it is not postponed any more.
    pub(super) fn clear_postponed(&mut self, key: &Key) {
        self.postponed.remove(key);
    }

    /// Sends a message and waits for its acknowledgement.
    pub(super) fn send_reliably(
        &mut self,
        now: Now,
        mut in_flight: InFlight,
        counters: &mut Counters,
        out: &mut Out,
    ) {
        assert!(self.in_flight.is_none(), "one at a time");
        in_flight.tries = 1;
        in_flight.resend_at = now.boot.plus_ms(ACK_MS);
        let message = in_flight.message(now);
        self.in_flight = Some(in_flight);
        self.send(message, counters, out);
    }

    /// The node has acknowledged this message; returns it if it was in flight.
    pub(super) fn take_acknowledged(&mut self, id: &str) -> Option<InFlight> {
        let in_flight = self.in_flight.take_if(|in_flight| *in_flight.id == *id)?;
        self.postponed.remove(&in_flight.key);
        Some(in_flight)
    }

    /// The object whose message with this id waits for its acknowledgement.
    pub(super) fn awaits(&self, id: &str) -> Option<&Key> {
        self.in_flight
            .as_ref()
            .filter(|in_flight| *in_flight.id == *id)
            .map(|in_flight| &in_flight.key)
    }

    fn send(&mut self, message: Box<CloudMessage>, counters: &mut Counters, out: &mut Out) {
        let bytes = message.bytes();
        self.unsent += bytes;
        counters.messages_down += 1;
        counters.bytes_down += bytes as u64;
        out.push(Action::Send(self.session, message));
    }

    /// When the session is due, if nothing happens before.
    pub(super) fn wake_at(&self) -> Instant {
        let in_flight = self.in_flight.as_ref().map(|in_flight| in_flight.resend_at);
        let postponed = self.postponed.values().filter_map(|postponed| postponed.due_at);
        in_flight.into_iter().chain(postponed).fold(self.silent_at, Instant::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::Rng;
    use crate::model::api::Kind;

    fn at(ms: u64) -> Now {
        Now { boot: Instant(ms), wall: None }
    }

    fn link() -> Link {
        Link::new(Session(1), Instant(u64::MAX), SessionOwner::new(&Peer::default()))
    }

    fn text(bytes: usize) -> Box<RawValue> {
        RawValue::from_string(format!("\"{}\"", "x".repeat(bytes - 2))).expect("JSON")
    }

    /// A message of this size.
    fn message(bytes: usize) -> Box<CloudMessage> {
        let (mut rng, now) = (Rng::new(1), at(1));
        let origin = Origin { id: "q".into(), resource: "r".into() };
        let mut message = outbound::response(&mut rng, now, &origin, 0, Content::Done);
        if bytes > message.bytes() {
            message.content = Content::Object(text(bytes - message.bytes()).into());
        }
        message
    }

    fn requested() -> RequestedObject {
        let origin = Origin { id: "q".into(), resource: "n/configmap/m".into() };
        let key = Key::new(Kind::ConfigMap, "n", "m");
        let (uid, content) = (Arc::from("u"), Arc::from(text(2)));
        RequestedObject { origin, key, uid, version: 1, digest: 1, content }
    }

    /// How many messages leave at this moment.
    fn flush(link: &mut Link, now: Now) -> usize {
        let mut out = Out::default();
        link.flush(now, &mut Counters::default(), &mut out);
        out.actions.len()
    }

    #[test]
    fn unsent_bytes_have_a_limit() {
        let mut link = link();
        for _ in 0..3 {
            link.queue(message(EDGE_UNSENT_BYTES_MAX - 1));
        }
        assert_eq!(flush(&mut link, at(1)), 2, "one byte short of it the next may be larger");
        for (unsent, count) in [(EDGE_UNSENT_BYTES_MAX, 0), (EDGE_UNSENT_BYTES_MAX - 1, 1)] {
            link.drained(unsent);
            assert_eq!(link.has_room(), count == 1);
            assert_eq!(flush(&mut link, at(1)), count);
        }
    }

    #[test]
    fn unread_answers_have_a_limit() {
        let mut link = link();
        for at in 0..EDGE_ANSWERS_MAX {
            assert!(link.queue(message(0)), "{at}");
        }
        assert!(!link.queue(message(0)));
    }

    #[test]
    fn bytes_of_unread_answers_have_a_limit() {
        let mut link = link();
        assert!(link.queue(message(EDGE_ANSWERS_BYTES_MAX - message(0).bytes())));
        assert!(link.queue(message(0)));
        assert!(!link.queue(message(0)));
    }

    #[test]
    fn messages_of_the_router_have_a_limit_and_wait_for_room() {
        let mut link = link();
        assert!(link.offer(message(ROUTER_MESSAGE_BYTES_MAX)));
        assert!(!link.offer(message(0)), "its bytes");
        link.drained(EDGE_UNSENT_BYTES_MAX);
        assert_eq!(flush(&mut link, at(1)), 0);
        link.drained(0);
        assert_eq!(flush(&mut link, at(1)), 1);
        link.drained(EDGE_UNSENT_BYTES_MAX);
        for at in 0..ROUTER_NODE_MESSAGES_MAX {
            assert!(link.offer(message(0)), "{at}");
        }
        assert!(!link.offer(message(0)) && link.offences == 0, "and the session goes on");
        link.rules.insert(NodeRule::Url("u".into()), true);
        assert_eq!(link.next_rule(), None, "there is no room");
        link.drained(0);
        assert!(link.next_rule().is_some());
    }

    #[test]
    fn confirmations_have_a_limit_and_the_oldest_is_dropped() {
        let mut link = link();
        for at in 0..=DEVICE_CONFIRMATIONS_MAX {
            link.confirm(at.to_string().into());
        }
        link.drained(EDGE_UNSENT_BYTES_MAX);
        assert_eq!(link.next_confirmation(), None, "there is no room");
        link.drained(0);
        let left: Vec<Box<str>> = std::iter::from_fn(|| link.next_confirmation()).collect();
        assert_eq!((left.len(), &*left[0]), (DEVICE_CONFIRMATIONS_MAX, "1"));
    }

    #[test]
    fn requested_objects_have_a_limit_and_the_newest_is_dropped() {
        let mut link = link();
        for at in 0..=EDGE_ANSWERS_MAX as u64 {
            link.queue_object(RequestedObject { version: at, ..requested() });
        }
        let versions: Vec<u64> = link.answers.iter().map(|requested| requested.version).collect();
        assert_eq!(versions, (0..EDGE_ANSWERS_MAX as u64).collect::<Vec<_>>());
    }

    /// Sends an object that is never acknowledged. Returns when it is postponed.
    fn send_without_ack(link: &mut Link, mut now: Now) -> Now {
        let RequestedObject { key, uid, content, .. } = requested();
        let in_flight = InFlight::new("m".into(), key, uid, Content::Object(content), now);
        link.send_reliably(now, in_flight, &mut Counters::default(), &mut Out::default());
        for _ in 1..ACK_TRIES {
            now.boot = now.boot.plus_ms(ACK_MS);
            assert_eq!(flush(link, Now { boot: Instant(now.boot.0 - 1), ..now }), 0, "not before");
            assert_eq!(flush(link, now), 1, "it is sent again");
        }
        now.boot = now.boot.plus_ms(ACK_MS);
        assert!(!link.is_free());
        assert_eq!(flush(link, now), 0, "the next has its turn");
        assert!(link.is_free());
        now
    }

    #[test]
    fn messages_without_acknowledgement_back_off() {
        let mut link = link();
        let mut now = at(1);
        for n in 0..8 {
            now = send_without_ack(&mut link, now);
            let delay_ms = (REFUSED_RETRY_MIN_MS << n).min(REFUSED_RETRY_MAX_MS);
            now.boot = now.boot.plus_ms(delay_ms);
            flush(&mut link, Now { boot: Instant(now.boot.0 - 1), ..now });
            assert!(link.is_postponed(&requested().key, 0) && link.dirty.is_empty(), "{n}");
            flush(&mut link, now);
            assert!(
                link.dirty.remove(&requested().key) && !link.is_postponed(&requested().key, 0),
                "{n}"
            );
        }
    }
}
