//! The broker inside: many connections by number, their sessions, and the agent itself, sans-IO.
//!
//! ```text
//!  open ─▶ Opening ──CONNECT──▶ Open ──DISCONNECT, violation, silence, take-over──▶ Ended ─close─▶
//!                                │                                        (output is still sent)
//!                     session by client id ◀── stays, if it is persistent
//! ```
//!
//! **Who gets what.** A message goes to each session with a filter that matches, once, with the
//! lower of both QoS; and to the owner as [`BrokerEvent::Received`], if one of the owner's filters
//! matches. Its PUBACK waits until the owner has acknowledged it. Not every topic may be published
//! by clients (a function that is handed in); what is refused is acknowledged, dropped and counted,
//! because MQTT 3.1.1 has no other answer.
//!
//! **Bounds and what gives way.** Messages of QoS 1 wait in the session, and the oldest is dropped;
//! a message of QoS 0 is dropped if the output is full. A client that takes no bytes for
//! [`limits::MQTT_STALL_MS`] is cut. Sessions, filters, retained messages, incomplete packets and
//! the sums of all these have limits, too.
//!
//! **If we crash here** sessions and retained messages are lost; nothing of the broker is on disk.

mod connect;
mod retained;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::inbound::Inbound;
use super::inbox::{Inbox, Incoming, Oversize};
use super::outbound::{Bounds, Outbound, Outgoing};
use super::packet::{
    Delivery, Filters, Packet, PacketId, Problem, Publish, SUBSCRIPTION_REFUSED, Violation, encode,
    refusal,
};
use super::{Message, MessageId, QoS, Unsubscribable, checked_filter, topic};
use crate::limits::{
    self, MQTT_CONNECT_BYTES_MAX, MQTT_CONNECT_MS, MQTT_INPUT_TOTAL_BYTES_MAX,
    MQTT_OUTPUT_BYTES_MAX, MQTT_OUTPUT_TOTAL_BYTES_MAX, MQTT_PACKET_BYTES_MAX, MQTT_PACKET_MS,
    MQTT_SESSION_BYTES_MAX, MQTT_STALL_MS, MQTT_STORED_BYTES_MAX, MQTT_SUBSCRIPTIONS_MAX,
};
use crate::model::settings::Secret;
use crate::wire::output::Output;
use retained::Retained;

/// What the broker is set to.
#[derive(Clone, Debug)]
pub struct Config {
    /// Empty: any client may connect.
    pub user: Box<str>,
    pub password: Secret,
    /// Messages that wait for one client.
    pub session_messages_max: usize,
    /// Whether a client may publish to a topic.
    pub may_publish: fn(&str) -> bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            user: Box::default(),
            password: Secret::default(),
            session_messages_max: limits::MQTT_SESSION_MESSAGES_MAX,
            may_publish: super::rules::may_publish,
        }
    }
}

/// A connection; the owner gives the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Whether a client must name user and password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// If they are set.
    Password,
    /// Not: the mode of the unix socket's file says who may connect.
    Socket,
}

/// What the broker has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerEvent {
    /// A client published what the owner has subscribed to.
    Received {
        /// To be acknowledged; `None`: QoS 0, or a last will.
        id: Option<MessageId>,
        topic: Box<str>,
        payload: Box<[u8]>,
    },
    Connected {
        client_id: Box<str>,
    },
    Disconnected {
        client_id: Box<str>,
        end: End,
    },
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client said so.
    Disconnect,
    /// The socket was closed without it.
    Lost,
    Violation(Violation),
    /// The code of CONNACK.
    Refused(u8),
    /// Another connection has the same client id.
    TakenOver,
    /// No packet for one and a half times its keep-alive.
    KeepAlive,
    /// No CONNECT in time.
    NoConnect,
    /// A packet did not become complete in time.
    Incomplete,
    /// All incomplete packets together are too large.
    InputFull,
    /// It took no bytes for too long.
    NotReading,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnect => f.write_str("it disconnected"),
            Self::Lost => f.write_str("it closed the connection without DISCONNECT"),
            Self::Violation(violation) => violation.fmt(f),
            Self::Refused(code) => write!(f, "{} (CONNACK {code})", refusal(*code)),
            Self::TakenOver => f.write_str("another connection has its client id"),
            Self::KeepAlive => f.write_str("it was silent for longer than its keep-alive"),
            Self::NoConnect => write!(f, "got no CONNECT for {} s", MQTT_CONNECT_MS / 1_000),
            Self::Incomplete => {
                write!(f, "got an incomplete packet for {} s", MQTT_PACKET_MS / 1_000)
            }
            Self::InputFull => {
                let max = MQTT_INPUT_TOTAL_BYTES_MAX;
                write!(f, "incomplete packets have more bytes than expected: {max} at most")
            }
            Self::NotReading => write!(f, "it read nothing for {} s", MQTT_STALL_MS / 1_000),
        }
    }
}

/// What was counted since the start, and what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages of clients.
    pub received: u64,
    /// Of them, those to topics that clients may not publish to, or too long.
    pub refused: u64,
    /// Messages for clients that were dropped: too many waited.
    pub dropped: u64,
    /// Messages that were not retained, for want of room.
    pub not_retained: u64,
    pub clients: usize,
    pub sessions: usize,
    pub retained: usize,
}

/// See the module for its contract.
#[derive(Debug)]
pub struct Broker {
    config: Config,
    /// The owner's.
    filters: BTreeSet<Box<str>>,
    connections: BTreeMap<ConnectionId, Connection>,
    /// By client id.
    sessions: BTreeMap<Box<str>, Session>,
    retained: Retained,
    counts: Counts,
    last_message: u64,
    /// Numbers ended connections, and generated client ids.
    last_serial: u64,
    /// Some session has messages that found no room in the sum of all outputs.
    is_short: bool,
}

#[derive(Debug)]
struct Connection {
    trust: Trust,
    state: State,
    inbox: Inbox,
    output: Output,
    /// When the packet that has begun must be complete.
    packet_by_ms: Option<u64>,
    /// When a client that takes no bytes is cut.
    read_by_ms: Option<u64>,
    /// Reading has stopped, because too many messages wait for the owner.
    is_held: bool,
}

#[derive(Debug)]
enum State {
    Opening { deadline_ms: u64 },
    Open(Box<Open>),
    Ended(End),
}

#[derive(Debug)]
struct Open {
    client_id: Box<str>,
    /// One and a half times what the client said; `None`: it may be silent for ever.
    silence_ms: Option<u64>,
    last_packet_ms: u64,
    will: Option<Will>,
}

#[derive(Debug)]
struct Will {
    message: Arc<Message>,
    qos: QoS,
    retain: bool,
}

#[derive(Debug)]
struct Session {
    is_clean: bool,
    connection: Option<ConnectionId>,
    /// Those that left first have the lowest.
    left: u64,
    /// With 0 or 1.
    subscriptions: BTreeMap<Box<str>, QoS>,
    inbound: Inbound,
    outbound: Outbound,
}

impl Broker {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            filters: BTreeSet::new(),
            connections: BTreeMap::new(),
            sessions: BTreeMap::new(),
            retained: Retained::default(),
            counts: Counts::default(),
            last_message: 0,
            last_serial: 0,
            is_short: false,
        }
    }

    /// Adds a filter of the owner.
    pub fn subscribe(&mut self, filter: &str) -> Result<(), Unsubscribable> {
        checked_filter(filter)?;
        if self.filters.len() >= MQTT_SUBSCRIPTIONS_MAX && !self.filters.contains(filter) {
            return Err(Unsubscribable::TooMany);
        }
        self.filters.insert(filter.into());
        Ok(())
    }

    /// Removes a filter of the owner.
    pub fn unsubscribe(&mut self, filter: &str) {
        self.filters.remove(filter);
    }

    /// A client has connected.
    pub fn open(&mut self, id: ConnectionId, trust: Trust, now_ms: u64) {
        let connection = Connection {
            trust,
            state: State::Opening { deadline_ms: now_ms.saturating_add(MQTT_CONNECT_MS) },
            inbox: Inbox::default(),
            output: Output::default(),
            packet_by_ms: None,
            read_by_ms: None,
            is_held: false,
        };
        let old = self.connections.insert(id, connection);
        assert!(old.is_none(), "the number of a connection is used once at a time");
    }

    /// The socket is closed.
    pub fn close(&mut self, id: ConnectionId, events: &mut Vec<BrokerEvent>) {
        self.end(id, End::Lost, events);
        self.connections.remove(&id);
    }

    /// Why the connection has ended. It is to be closed once its output is sent.
    pub fn ended(&self, id: ConnectionId) -> Option<End> {
        match self.connections.get(&id)?.state {
            State::Ended(end) => Some(end),
            State::Opening { .. } | State::Open(_) => None,
        }
    }

    /// Whether bytes of the connection can be taken now.
    pub fn wants_input(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|connection| {
            !connection.is_held && !matches!(connection.state, State::Ended(_))
        })
    }

    /// Takes bytes of a connection.
    pub fn receive(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        now_ms: u64,
        events: &mut Vec<BrokerEvent>,
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let bytes_max = match connection.state {
            State::Opening { .. } => MQTT_CONNECT_BYTES_MAX,
            State::Open(_) => MQTT_PACKET_BYTES_MAX,
            State::Ended(_) => return,
        };
        if connection.is_held && !self.can_go_on(id) {
            let connection = self.connections.get_mut(&id).expect("it was looked at");
            return connection.inbox.hold(bytes);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.is_held = false;
        let mut inbox = std::mem::take(&mut connection.inbox);
        let mut is_progress = false;
        let received =
            inbox.receive(bytes, bytes_max, Oversize::Refuse, &mut |incoming, bytes_max| {
                let Incoming::Packet(packet) = incoming else { unreachable!("it is refused") };
                is_progress = true;
                *bytes_max = MQTT_PACKET_BYTES_MAX;
                self.handle(id, &packet, now_ms, events)
                    .map_err(|problem| Violation { packet: Some(packet.kind()), problem })
            });
        if let Err(violation) = received {
            return self.end(id, End::Violation(violation), events);
        }
        let kept: usize = self.connections.values().map(|other| other.inbox.len()).sum();
        if kept + inbox.len() > MQTT_INPUT_TOTAL_BYTES_MAX {
            return self.end(id, End::InputFull, events);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if matches!(connection.state, State::Ended(_)) {
            return;
        }
        let begun = connection.packet_by_ms.filter(|_| !is_progress);
        let is_waiting = inbox.is_incomplete() && !connection.is_held;
        connection.packet_by_ms =
            is_waiting.then(|| begun.unwrap_or(now_ms.saturating_add(MQTT_PACKET_MS)));
        connection.inbox = inbox;
    }

    fn handle(
        &mut self,
        id: ConnectionId,
        packet: &Packet<'_>,
        now_ms: u64,
        events: &mut Vec<BrokerEvent>,
    ) -> Result<ControlFlow<()>, Problem> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(ControlFlow::Break(()));
        };
        let open = match (&mut connection.state, packet) {
            (State::Opening { .. }, Packet::Connect(_) | Packet::OtherVersion(_)) => {
                self.connect(id, packet, now_ms, events);
                return Ok(match self.ended(id) {
                    None => ControlFlow::Continue(()),
                    Some(_) => ControlFlow::Break(()),
                });
            }
            (State::Opening { .. }, _) => return Err(Problem::Unexpected),
            (State::Ended(_), _) => return Ok(ControlFlow::Break(())),
            (State::Open(open), _) => open,
        };
        open.last_packet_ms = now_ms;
        let session = self.sessions.get_mut(&open.client_id).expect("an open client has a session");
        let out = &mut connection.output;
        match packet {
            Packet::Publish(publish) => {
                let publish = *publish;
                self.take_message(id, &publish, events)?;
            }
            Packet::PubAck(packet) => {
                session.outbound.acknowledge(*packet);
                self.pump(id);
            }
            Packet::PubRel(packet) => session.inbound.release(*packet, out.tail()),
            Packet::Subscribe { id: packet, filters } => {
                let granted = session.subscribe(*packet, *filters, out);
                self.send_retained(id, &granted);
            }
            Packet::Unsubscribe { id: packet, filters } => {
                for (filter, _) in filters.iter() {
                    session.subscriptions.remove(filter);
                }
                encode(&Packet::UnsubAck(*packet), out.tail());
            }
            Packet::PingReq => encode(&Packet::PingResp, out.tail()),
            Packet::Disconnect => {
                self.end(id, End::Disconnect, events);
                return Ok(ControlFlow::Break(()));
            }
            _ => return Err(Problem::Unexpected),
        }
        Ok(self.flow(id, events))
    }

    /// Whether to handle the next packet; a client that asks and does not read is cut.
    fn flow(&mut self, id: ConnectionId, events: &mut Vec<BrokerEvent>) -> ControlFlow<()> {
        let Some(connection) = self.connections.get(&id) else { return ControlFlow::Break(()) };
        if connection.output.len() > ANSWERS_BYTES_MAX {
            self.end(id, End::NotReading, events);
            return ControlFlow::Break(());
        }
        if connection.is_held { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// A client publishes.
    fn take_message(
        &mut self,
        id: ConnectionId,
        publish: &Publish<'_>,
        events: &mut Vec<BrokerEvent>,
    ) -> Result<(), Problem> {
        let Publish { topic, payload, delivery, retain, .. } = *publish;
        let is_allowed = topic::fits(topic) && (self.config.may_publish)(topic);
        let qos = match delivery {
            Delivery::AtMostOnce => QoS::AtMostOnce,
            Delivery::AtLeastOnce(_) | Delivery::ExactlyOnce(_) => QoS::AtLeastOnce,
        };
        let awaits = (is_allowed && qos > QoS::AtMostOnce && self.is_for_owner(topic))
            .then(|| MessageId(self.last_message + 1));
        let Some((session, connection)) = self.parties(id) else { return Ok(()) };
        let is_new = session.inbound.publish(delivery, awaits)?;
        session.inbound.flush(connection.output.tail());
        connection.is_held = session.inbound.is_full();
        if !is_new {
            return Ok(());
        }
        self.counts.received += 1;
        if !is_allowed {
            self.counts.refused += 1;
            return Ok(());
        }
        self.last_message += 1;
        self.route(&Message::new(topic, payload), qos, retain, awaits, events);
        Ok(())
    }

    fn is_for_owner(&self, topic: &str) -> bool {
        self.filters.iter().any(|filter| topic::matches(filter, topic))
    }

    /// A message of a client goes to the owner and to the others.
    fn route(
        &mut self,
        message: &Arc<Message>,
        qos: QoS,
        retain: bool,
        id: Option<MessageId>,
        events: &mut Vec<BrokerEvent>,
    ) {
        if self.is_for_owner(&message.topic) {
            let (topic, payload) = (message.topic.clone(), message.payload.clone());
            events.push(BrokerEvent::Received { id, topic, payload });
        }
        self.publish(message, qos, retain);
    }

    /// The owner publishes.
    pub fn publish(&mut self, message: &Arc<Message>, qos: QoS, retain: bool) {
        if retain && !self.retained.set(message, qos) {
            self.counts.not_retained += 1;
        }
        let mut sums = self.sums();
        let session_messages_max = self.config.session_messages_max;
        let Self { sessions, connections, counts, is_short, .. } = self;
        for session in sessions.values_mut() {
            let filters = session.subscriptions.iter();
            let granted = filters
                .filter(|(filter, _)| topic::matches(filter, &message.topic))
                .map(|(_, granted)| *granted);
            let Some(granted) = granted.max() else { continue };
            let message = Arc::clone(message);
            let outgoing = Outgoing { message, qos: qos.min(granted), retain: false, number: 0 };
            let connection = session.connection.and_then(|id| connections.get_mut(&id));
            counts.dropped +=
                session.deliver(outgoing, connection, &mut sums, session_messages_max);
        }
        *is_short |= sums.is_short;
    }

    /// What the new subscriptions of a client match (section 3.3.1.3).
    fn send_retained(&mut self, id: ConnectionId, granted: &[(Box<str>, QoS)]) {
        let mut sums = self.sums();
        let session_messages_max = self.config.session_messages_max;
        let mut dropped = 0;
        for (filter, granted) in granted {
            let matching: Vec<_> = self.retained.matching(filter).collect();
            let Some((session, connection)) = self.parties(id) else { return };
            for (message, qos) in matching {
                let qos = qos.min(*granted);
                let outgoing = Outgoing { message, qos, retain: true, number: 0 };
                let to = Some(&mut *connection);
                dropped += session.deliver(outgoing, to, &mut sums, session_messages_max);
            }
        }
        self.counts.dropped += dropped;
        self.is_short |= sums.is_short;
    }

    /// The effect of a received message is durable.
    pub fn acknowledge(&mut self, id: MessageId) {
        let Self { sessions, connections, .. } = self;
        let Some(session) = sessions.values_mut().find_map(|session| {
            let is_its = session.inbound.acknowledge(id);
            is_its.then_some(session)
        }) else {
            return;
        };
        if let Some(connection) = session.connection.and_then(|id| connections.get_mut(&id)) {
            session.inbound.flush(connection.output.tail());
        }
    }

    /// The bytes to be sent.
    pub fn output(&self, id: ConnectionId) -> &[u8] {
        self.connections.get(&id).map_or(&[], |connection| connection.output.pending())
    }

    /// So many of them were sent just now; to be called also if none was.
    pub fn sent(&mut self, id: ConnectionId, count: usize, now_ms: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.output.sent(count);
        if count > 0 {
            self.pump(id);
            if self.is_short {
                self.is_short = false;
                let all: Vec<_> = self.connections.keys().copied().collect();
                for id in all {
                    self.pump(id);
                }
            }
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.output.len() == 0 {
            // Most connections are idle.
            (connection.output, connection.read_by_ms) = (Output::default(), None);
        } else if count > 0 || connection.read_by_ms.is_none() {
            connection.read_by_ms = Some(now_ms.saturating_add(MQTT_STALL_MS));
        }
    }

    /// Ends the connections that are late, and goes on with those that waited for the owner.
    pub fn tick(&mut self, now_ms: u64, events: &mut Vec<BrokerEvent>) {
        let ids: Vec<_> = self.connections.keys().copied().collect();
        for id in ids {
            if self.can_go_on(id) {
                self.receive(id, &[], now_ms, events);
            }
            let late = self.connections.get(&id).and_then(Connection::deadline);
            if let Some((_, end)) = late.filter(|(at_ms, _)| *at_ms <= now_ms) {
                self.end(id, end, events);
            }
        }
    }

    /// When to call [`Broker::tick`]; 0: at once.
    pub fn wake_at_ms(&self) -> Option<u64> {
        if self.connections.keys().any(|id| self.can_go_on(*id)) {
            return Some(0);
        }
        let deadlines = self.connections.values().filter_map(Connection::deadline);
        deadlines.map(|(at_ms, _)| at_ms).min()
    }

    /// Whether reading has stopped, and the owner has acknowledged meanwhile.
    fn can_go_on(&self, id: ConnectionId) -> bool {
        let Some(Connection { is_held: true, state: State::Open(open), .. }) =
            self.connections.get(&id)
        else {
            return false;
        };
        self.sessions.get(&open.client_id).is_some_and(|session| !session.inbound.is_full())
    }

    pub fn counts(&self) -> Counts {
        let clients = self.sessions.values().filter(|session| session.connection.is_some());
        Counts {
            clients: clients.count(),
            sessions: self.sessions.len(),
            retained: self.retained.len(),
            ..self.counts
        }
    }

    /// The session of a connection that is open, and the connection.
    fn parties(&mut self, id: ConnectionId) -> Option<(&mut Session, &mut Connection)> {
        let connection = self.connections.get_mut(&id)?;
        let State::Open(open) = &connection.state else { return None };
        Some((self.sessions.get_mut(&open.client_id)?, connection))
    }

    fn pump(&mut self, id: ConnectionId) {
        let mut sums = self.sums();
        if let Some((session, connection)) = self.parties(id) {
            session.pump(connection, &mut sums);
        }
        self.is_short |= sums.is_short;
    }

    fn sums(&self) -> Sums {
        Sums {
            output: self.connections.values().map(|connection| connection.output.len()).sum(),
            stored: self.sessions.values().map(|session| session.outbound.bytes()).sum(),
            is_short: false,
        }
    }

    /// Ends a connection, unless it has ended before; a lost client's will is published.
    fn end(&mut self, id: ConnectionId, end: End, events: &mut Vec<BrokerEvent>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if matches!(connection.state, State::Ended(_)) {
            return;
        }
        connection.inbox = Inbox::default();
        let State::Open(open) = std::mem::replace(&mut connection.state, State::Ended(end)) else {
            return;
        };
        let Open { client_id, will, .. } = *open;
        self.last_serial += 1;
        if let Some(session) = self.sessions.get_mut(&client_id) {
            if session.is_clean {
                self.sessions.remove(&client_id);
            } else {
                (session.connection, session.left) = (None, self.last_serial);
                session.inbound.disconnect();
            }
        }
        events.push(BrokerEvent::Disconnected { client_id, end });
        if let Some(Will { message, qos, retain }) = will.filter(|_| end != End::Disconnect) {
            self.route(&message, qos, retain, None, events);
        }
    }
}

impl Connection {
    /// When it is ended, and why.
    fn deadline(&self) -> Option<(u64, End)> {
        let silence = match &self.state {
            State::Ended(_) => return None,
            State::Opening { deadline_ms } => Some((*deadline_ms, End::NoConnect)),
            // What it sent is not read.
            State::Open(_) if self.is_held => None,
            State::Open(open) => {
                open.silence_ms.map(|ms| (open.last_packet_ms.saturating_add(ms), End::KeepAlive))
            }
        };
        let incomplete = self.packet_by_ms.map(|at_ms| (at_ms, End::Incomplete));
        let unread = self.read_by_ms.map(|at_ms| (at_ms, End::NotReading));
        [silence, incomplete, unread].into_iter().flatten().min_by_key(|(at_ms, _)| *at_ms)
    }
}

/// Bytes of all outputs, and of all that waits in sessions.
struct Sums {
    output: usize,
    stored: usize,
    /// Something found no room in the output.
    is_short: bool,
}

impl Session {
    /// Answers, and returns the filters that are granted.
    fn subscribe(
        &mut self,
        id: PacketId,
        filters: Filters<'_>,
        output: &mut Output,
    ) -> Vec<(Box<str>, QoS)> {
        let (mut codes, mut granted) = (Vec::new(), Vec::new());
        for (filter, qos) in filters.iter() {
            let is_known = self.subscriptions.contains_key(filter);
            let has_room = is_known || self.subscriptions.len() < MQTT_SUBSCRIPTIONS_MAX;
            if !has_room || !topic::fits(filter) {
                codes.push(SUBSCRIPTION_REFUSED);
                continue;
            }
            let qos = qos.min(QoS::AtLeastOnce);
            codes.push(u8::from(qos == QoS::AtLeastOnce));
            self.subscriptions.insert(filter.into(), qos);
            if granted.len() < MQTT_SUBSCRIPTIONS_MAX {
                granted.push((filter.into(), qos));
            }
        }
        encode(&Packet::SubAck { id, codes: &codes }, output.tail());
        granted
    }

    /// Returns how many messages were dropped.
    fn deliver(
        &mut self,
        outgoing: Outgoing,
        connection: Option<&mut Connection>,
        sums: &mut Sums,
        messages_max: usize,
    ) -> u64 {
        let is_now = outgoing.qos == QoS::AtMostOnce;
        let bytes = outgoing.message.bytes();
        let has_room = match &connection {
            // Nobody waits for it.
            None if is_now => return 0,
            Some(to) if is_now && self.outbound.len() == 0 => {
                let is_free = to.output.len() == 0;
                (is_free || to.output.len() + bytes < MQTT_OUTPUT_BYTES_MAX)
                    && sums.output + bytes < MQTT_OUTPUT_TOTAL_BYTES_MAX
            }
            Some(_) | None => sums.stored + bytes < MQTT_STORED_BYTES_MAX,
        };
        if !has_room {
            return 1;
        }
        let before = self.outbound.bytes();
        let mut dropped = 0;
        let bounds = Bounds { messages_max, bytes_max: MQTT_SESSION_BYTES_MAX };
        self.outbound.push(outgoing, bounds, &mut |_| dropped += 1);
        if let Some(connection) = connection {
            self.pump(connection, sums);
        }
        sums.stored = (sums.stored + self.outbound.bytes()).saturating_sub(before);
        dropped
    }

    fn pump(&mut self, connection: &mut Connection, sums: &mut Sums) {
        let before = connection.output.len();
        if sums.output >= MQTT_OUTPUT_TOTAL_BYTES_MAX {
            sums.is_short |= self.outbound.len() > 0;
            return;
        }
        self.outbound.pump(&mut connection.output, MQTT_OUTPUT_BYTES_MAX, &mut |_| ());
        sums.output += connection.output.len() - before;
    }
}

/// Answers may stand behind the largest packet.
const ANSWERS_BYTES_MAX: usize = MQTT_OUTPUT_BYTES_MAX + MQTT_PACKET_BYTES_MAX;

#[cfg(test)]
mod tests;
