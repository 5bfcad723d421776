//! The client of another broker: one connection at a time, sans-IO.
//!
//! ```text
//!  Down ──open──▶ Connecting ──CONNACK 0──▶ Up ──ping each 30 s──▶ Up
//!   ▲                 │ refused, silent      │ violation, no PINGRESP, lost
//!   └─────────────────┴───────close──────────┘
//! ```
//!
//! The session is persistent: the client id is stable and the session never clean, so that the
//! broker keeps the messages of QoS 1 that are published meanwhile. Each CONNACK is followed by one
//! SUBSCRIBE of all filters, whatever the broker says of its session, and by the publications that
//! were not acknowledged, with DUP.
//!
//! mosquitto drops acknowledgements if its queue for a slow client is full. A publication that is
//! the oldest without one at two pings in a row ends the connection, so that it is sent again: else
//! [`crate::limits::MQTT_UNACKNOWLEDGED_MAX`] of them would stop all publications for good.
//!
//! No more is read while that many messages wait for the owner; a PINGRESP may then be late. A
//! message that is too large is skipped, acknowledged and reported: the broker would send it again
//! after each reconnection. Not here: when to dial again.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::inbound::Inbound;
use super::inbox::{Inbox, Incoming, Oversize};
use super::outbound::{Bounds, Outbound, Outgoing};
use super::packet::{
    ACCEPTED, Connect, Delivery, Filters, Kind, Packet, PacketId, Problem, Publish,
    SUBSCRIPTION_REFUSED, Violation, encode, filter_list, refusal,
};
use super::rules::{WhileAway, while_away};
use super::{Message, MessageId, QoS, Unsubscribable, checked_filter};
use crate::limits::{
    MQTT_KEEP_ALIVE_S, MQTT_OUTPUT_BYTES_MAX, MQTT_PACKET_BYTES_MAX, MQTT_PING_MS,
    MQTT_QUEUE_BYTES_MAX, MQTT_QUEUE_MAX, MQTT_SUBSCRIPTIONS_MAX,
};
use crate::model::settings::Secret;
use crate::wire::output::Output;

/// Who the client is to the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The same for each connection.
    pub client_id: Box<str>,
    /// Empty: neither a user nor a password is sent.
    pub user: Box<str>,
    pub password: Secret,
}

/// What the client has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The broker has accepted the connection.
    Up { session_present: bool },
    Received {
        /// To be acknowledged; `None`: QoS 0.
        id: Option<MessageId>,
        topic: Box<str>,
        payload: Box<[u8]>,
    },
    /// A publication is with the broker; of QoS 0, on its way.
    Published(u64),
    /// A publication is lost: too many wait, or it is of no use later.
    Dropped(u64),
    /// The broker does not allow this subscription.
    SubscriptionRefused(Box<str>),
    /// A message of so many bytes was skipped.
    Skipped { bytes: usize },
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Violation(Violation),
    /// By the code of CONNACK.
    Refused(u8),
    /// No answer to CONNECT.
    NoConnAck,
    /// No answer to a ping.
    NoPingResp,
    /// No answer to a publication.
    NoPubAck,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Violation(violation) => write!(f, "it broke the protocol: {violation}"),
            Self::Refused(code) => write!(f, "{} (CONNACK {code})", refusal(*code)),
            Self::NoConnAck => f.write_str("it does not answer the CONNECT: is it MQTT?"),
            Self::NoPingResp => f.write_str("it does not answer a ping"),
            Self::NoPubAck => f.write_str("it does not acknowledge a publication"),
        }
    }
}

impl std::error::Error for End {}

/// See the module for its contract.
#[derive(Debug)]
pub struct Client {
    identity: Identity,
    filters: BTreeSet<Box<str>>,
    /// Filters that the broker may still have.
    unsubscribed: BTreeSet<Box<str>>,
    state: State,
    inbox: Inbox,
    output: Output,
    inbound: Inbound,
    outbound: Outbound,
    last_message: u64,
    last_publication: u64,
}

#[derive(Debug)]
enum State {
    Down,
    Connecting {
        deadline_ms: u64,
    },
    Up {
        ping_at_ms: u64,
        /// When the answer to a ping is late.
        answer_by_ms: Option<u64>,
        /// The oldest publication without an answer at the last ping.
        unanswered: Option<PacketId>,
        /// SUBSCRIBEs without an answer, with their filters.
        subscribing: VecDeque<(PacketId, Vec<Box<str>>)>,
    },
}

impl Client {
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            filters: BTreeSet::new(),
            unsubscribed: BTreeSet::new(),
            state: State::Down,
            inbox: Inbox::default(),
            output: Output::default(),
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            last_message: 0,
            last_publication: 0,
        }
    }

    /// The connection stands: asks the broker to accept it by the deadline.
    pub fn open(&mut self, deadline_ms: u64) {
        assert!(matches!(self.state, State::Down), "one connection at a time");
        let Identity { client_id, user, password } = &self.identity;
        let has_user = !user.is_empty();
        let connect = Connect {
            is_v31: false,
            client_id,
            clean_session: false,
            keep_alive_s: MQTT_KEEP_ALIVE_S,
            will: None,
            user: has_user.then_some(&**user),
            password: (has_user && !password.is_empty()).then(|| password.reveal().as_bytes()),
        };
        encode(&Packet::Connect(connect), self.output.tail());
        self.state = State::Connecting { deadline_ms };
    }

    /// The connection has ended.
    pub fn close(&mut self, events: &mut Vec<ClientEvent>) {
        self.state = State::Down;
        self.inbox = Inbox::default();
        self.output = Output::default();
        self.inbound.disconnect();
        self.outbound.remove(|outgoing| {
            let is_over = while_away(&outgoing.message.topic) == WhileAway::Drop;
            if is_over {
                events.push(ClientEvent::Dropped(outgoing.number));
            }
            is_over
        });
    }

    /// Whether bytes of the connection can be taken now.
    pub fn wants_input(&self) -> bool {
        !self.inbound.is_full()
    }

    /// Takes bytes of the connection.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now_ms: u64,
        events: &mut Vec<ClientEvent>,
    ) -> Result<(), End> {
        if self.inbound.is_full() {
            self.inbox.hold(bytes);
            return Ok(());
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut refused = None;
        let received =
            inbox.receive(bytes, MQTT_PACKET_BYTES_MAX, Oversize::Skip, &mut |incoming, _| {
                match incoming {
                    Incoming::Packet(Packet::ConnAck { code, .. })
                        if code != ACCEPTED && matches!(self.state, State::Connecting { .. }) =>
                    {
                        refused = Some(End::Refused(code));
                        return Ok(ControlFlow::Break(()));
                    }
                    Incoming::Packet(packet) => {
                        self.handle(&packet, now_ms, events).map_err(|problem| Violation {
                            packet: Some(packet.kind()),
                            problem,
                        })?;
                    }
                    Incoming::TooLarge { bytes, delivery } => {
                        self.skip(bytes, delivery, events).map_err(|problem| Violation {
                            packet: Some(Kind::Publish),
                            problem,
                        })?;
                    }
                }
                let is_full = self.inbound.is_full();
                Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            });
        self.inbox = inbox;
        received.map_err(End::Violation)?;
        self.pump(events);
        refused.map_or(Ok(()), Err)
    }

    fn handle(
        &mut self,
        packet: &Packet<'_>,
        now_ms: u64,
        events: &mut Vec<ClientEvent>,
    ) -> Result<(), Problem> {
        match (packet, &mut self.state) {
            (Packet::ConnAck { session_present, .. }, State::Connecting { .. }) => {
                self.begin(now_ms);
                events.push(ClientEvent::Up { session_present: *session_present });
            }
            (_, State::Connecting { .. } | State::Down) => return Err(Problem::Unexpected),
            (Packet::Publish(publish), State::Up { .. }) => self.deliver(publish, events)?,
            (Packet::PubAck(id), State::Up { .. }) => {
                let published = self.outbound.acknowledge(*id);
                events.extend(published.map(|it| ClientEvent::Published(it.number)));
            }
            (Packet::PubRel(id), State::Up { .. }) => {
                self.inbound.release(*id, self.output.tail());
            }
            (Packet::SubAck { id, codes }, State::Up { subscribing, .. }) => {
                let at = subscribing.iter().position(|(other, _)| other == id);
                let Some((_, filters)) = at.and_then(|at| subscribing.remove(at)) else {
                    return Ok(());
                };
                if filters.len() != codes.len() {
                    return Err(Problem::Unexpected);
                }
                let refused = filters
                    .into_iter()
                    .zip(*codes)
                    .filter(|(_, code)| **code == SUBSCRIPTION_REFUSED);
                events.extend(refused.map(|(filter, _)| ClientEvent::SubscriptionRefused(filter)));
            }
            (Packet::UnsubAck(_), State::Up { .. }) => {}
            (Packet::PingResp, State::Up { answer_by_ms, .. }) => *answer_by_ms = None,
            _ => return Err(Problem::Unexpected),
        }
        Ok(())
    }

    /// The broker has accepted the connection.
    fn begin(&mut self, now_ms: u64) {
        let ping_at_ms = now_ms.saturating_add(KEEP_ALIVE_MS);
        let subscribing = VecDeque::new();
        self.state = State::Up { ping_at_ms, answer_by_ms: None, unanswered: None, subscribing };
        self.outbound.resend(&mut self.output);
        let filters: Vec<_> = self.filters.iter().cloned().collect();
        self.send_subscribe(filters);
        let unsubscribed = std::mem::take(&mut self.unsubscribed);
        if !unsubscribed.is_empty() {
            self.send_unsubscribe(unsubscribed.iter().map(|filter| &**filter));
        }
    }

    fn deliver(
        &mut self,
        publish: &Publish<'_>,
        events: &mut Vec<ClientEvent>,
    ) -> Result<(), Problem> {
        let id = match publish.delivery {
            Delivery::AtMostOnce => None,
            Delivery::AtLeastOnce(_) | Delivery::ExactlyOnce(_) => {
                self.last_message += 1;
                Some(MessageId(self.last_message))
            }
        };
        if self.inbound.publish(publish.delivery, id)? {
            let (topic, payload) = (publish.topic.into(), publish.payload.into());
            events.push(ClientEvent::Received { id, topic, payload });
        }
        self.inbound.flush(self.output.tail());
        Ok(())
    }

    fn skip(
        &mut self,
        bytes: usize,
        delivery: Delivery,
        events: &mut Vec<ClientEvent>,
    ) -> Result<(), Problem> {
        if !matches!(self.state, State::Up { .. }) {
            return Err(Problem::Unexpected);
        }
        self.inbound.publish(delivery, None)?;
        self.inbound.flush(self.output.tail());
        events.push(ClientEvent::Skipped { bytes });
        Ok(())
    }

    /// The effect of a received message is durable. One of a connection before is ignored: the
    /// broker sends it again.
    pub fn acknowledge(&mut self, id: MessageId) {
        if self.inbound.acknowledge(id) && matches!(self.state, State::Up { .. }) {
            self.inbound.flush(self.output.tail());
        }
    }

    /// Sends a message, now or when the broker is there. Returns the number that
    /// [`ClientEvent::Published`] or [`ClientEvent::Dropped`] will name.
    pub fn publish(
        &mut self,
        message: Arc<Message>,
        qos: QoS,
        retain: bool,
        events: &mut Vec<ClientEvent>,
    ) -> u64 {
        self.last_publication += 1;
        let number = self.last_publication;
        if !matches!(self.state, State::Up { .. }) {
            match while_away(&message.topic) {
                WhileAway::Drop => {
                    events.push(ClientEvent::Dropped(number));
                    return number;
                }
                WhileAway::Latest => self.outbound.remove(|other| {
                    let is_older = other.message.topic == message.topic;
                    if is_older {
                        events.push(ClientEvent::Dropped(other.number));
                    }
                    is_older
                }),
                WhileAway::Queue => {}
            }
        }
        let bounds = Bounds { messages_max: MQTT_QUEUE_MAX, bytes_max: MQTT_QUEUE_BYTES_MAX };
        self.outbound.push(Outgoing { message, qos, retain, number }, bounds, &mut |oldest| {
            events.push(ClientEvent::Dropped(oldest.number));
        });
        self.pump(events);
        number
    }

    /// Adds a filter for good, with QoS 1.
    pub fn subscribe(&mut self, filter: &str) -> Result<(), Unsubscribable> {
        checked_filter(filter)?;
        if self.filters.contains(filter) {
            return Ok(());
        }
        if self.filters.len() >= MQTT_SUBSCRIPTIONS_MAX {
            return Err(Unsubscribable::TooMany);
        }
        self.filters.insert(filter.into());
        self.unsubscribed.remove(filter);
        if matches!(self.state, State::Up { .. }) {
            self.send_subscribe(vec![filter.into()]);
        }
        Ok(())
    }

    /// Removes a filter, also from the broker's session.
    pub fn unsubscribe(&mut self, filter: &str) {
        if !self.filters.remove(filter) {
            return;
        }
        if matches!(self.state, State::Up { .. }) {
            self.send_unsubscribe([filter].into_iter());
        } else if self.unsubscribed.len() < MQTT_SUBSCRIPTIONS_MAX {
            self.unsubscribed.insert(filter.into());
        }
    }

    fn send_subscribe(&mut self, filters: Vec<Box<str>>) {
        let State::Up { subscribing, .. } = &mut self.state else { return };
        if filters.is_empty() {
            return;
        }
        let id = self.outbound.next_id();
        let qos = Some(QoS::AtLeastOnce);
        let list = filter_list(filters.iter().map(|filter| &**filter), qos);
        let filters_of = Filters::with_qos(&list);
        encode(&Packet::Subscribe { id, filters: filters_of }, self.output.tail());
        // Of a broker that does not answer, the oldest are forgotten.
        subscribing.truncate(MQTT_SUBSCRIPTIONS_MAX - 1);
        subscribing.push_front((id, filters));
    }

    fn send_unsubscribe<'f>(&mut self, filters: impl Iterator<Item = &'f str>) {
        let id = self.outbound.next_id();
        let list = filter_list(filters, None);
        let filters = Filters::without_qos(&list);
        encode(&Packet::Unsubscribe { id, filters }, self.output.tail());
    }

    /// Pings the broker, and ends a connection that does not answer.
    pub fn tick(&mut self, now_ms: u64) -> Result<(), End> {
        let is_full = self.inbound.is_full();
        match &mut self.state {
            State::Connecting { deadline_ms } if *deadline_ms <= now_ms => Err(End::NoConnAck),
            State::Down | State::Connecting { .. } => Ok(()),
            State::Up { ping_at_ms, answer_by_ms, unanswered, .. } => {
                if answer_by_ms.is_some_and(|by| by <= now_ms) {
                    // Nothing is read until the owner has acknowledged.
                    if !is_full {
                        return Err(End::NoPingResp);
                    }
                    *answer_by_ms = Some(now_ms.saturating_add(MQTT_PING_MS));
                }
                if *ping_at_ms <= now_ms {
                    let oldest = self.outbound.oldest().filter(|_| !is_full);
                    if oldest.is_some() && oldest == *unanswered {
                        return Err(End::NoPubAck);
                    }
                    *unanswered = oldest;
                    *ping_at_ms = now_ms.saturating_add(KEEP_ALIVE_MS);
                    answer_by_ms.get_or_insert(now_ms.saturating_add(MQTT_PING_MS));
                    encode(&Packet::PingReq, self.output.tail());
                }
                Ok(())
            }
        }
    }

    /// When to call [`Client::tick`].
    pub fn wake_at_ms(&self) -> Option<u64> {
        match &self.state {
            State::Down => None,
            State::Connecting { deadline_ms } => Some(*deadline_ms),
            State::Up { ping_at_ms, answer_by_ms, .. } => {
                Some(answer_by_ms.unwrap_or(u64::MAX).min(*ping_at_ms))
            }
        }
    }

    /// The bytes to be sent.
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }

    /// So many of them were sent.
    pub fn sent(&mut self, count: usize, events: &mut Vec<ClientEvent>) {
        self.output.sent(count);
        self.pump(events);
    }

    /// Publications that are not with the broker.
    pub fn waiting(&self) -> usize {
        self.outbound.len()
    }

    fn pump(&mut self, events: &mut Vec<ClientEvent>) {
        if matches!(self.state, State::Up { .. }) {
            self.outbound.pump(&mut self.output, MQTT_OUTPUT_BYTES_MAX, &mut |sent| {
                events.push(ClientEvent::Published(sent.number));
            });
        }
    }
}

const KEEP_ALIVE_MS: u64 = MQTT_KEEP_ALIVE_S as u64 * 1_000;

#[cfg(test)]
mod tests;
