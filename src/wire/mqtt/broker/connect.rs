//! CONNECT: who may come in, and which session the client gets (MQTT 3.1.1, sections 3.1 and 3.2).

use super::{Broker, BrokerEvent, ConnectionId, End, Open, Session, State, Trust, Will};
use crate::limits::{MQTT_CLIENT_ID_BYTES_MAX, MQTT_PERSISTENT_SESSIONS_MAX};
use crate::wire::mqtt::inbound::Inbound;
use crate::wire::mqtt::outbound::Outbound;
use crate::wire::mqtt::packet::{
    ACCEPTED, BAD_CLIENT_ID, BAD_PASSWORD, BAD_VERSION, Connect, NOT_AUTHORIZED, Packet,
    UNAVAILABLE, encode,
};
use crate::wire::mqtt::{Message, topic};

impl Broker {
    /// Answers a CONNECT, or one of another version.
    pub(super) fn connect(
        &mut self,
        id: ConnectionId,
        packet: &Packet<'_>,
        now_ms: u64,
        events: &mut Vec<BrokerEvent>,
    ) {
        let accepted = match packet {
            Packet::Connect(connect) => {
                self.check(id, connect).and_then(|()| self.session_of(id, connect, events))
            }
            _ => Err(BAD_VERSION),
        };
        let (code, session_present) = match &accepted {
            Ok((_, session_present)) => (ACCEPTED, *session_present),
            Err(code) => (*code, false),
        };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        encode(&Packet::ConnAck { session_present, code }, connection.output.tail());
        let (Ok((client_id, _)), Packet::Connect(connect)) = (accepted, packet) else {
            return self.end(id, End::Refused(code), events);
        };
        let silence_ms = u64::from(connect.keep_alive_s) * 1_500;
        connection.state = State::Open(Box::new(Open {
            client_id: client_id.clone(),
            silence_ms: (silence_ms > 0).then_some(silence_ms),
            last_packet_ms: now_ms,
            will: connect.will.map(|will| Will {
                message: Message::new(will.topic, will.payload),
                qos: will.qos,
                retain: will.retain,
            }),
        }));
        if let Some(session) = self.sessions.get(&client_id) {
            session.outbound.resend(&mut connection.output);
        }
        events.push(BrokerEvent::Connected { client_id });
        self.pump(id);
    }

    /// Whether the client may come in, or the code of the refusal.
    fn check(&self, id: ConnectionId, connect: &Connect<'_>) -> Result<(), u8> {
        let trust = self.connections.get(&id).map_or(Trust::Password, |it| it.trust);
        if trust == Trust::Password && !self.config.user.is_empty() {
            let (user, password) = (connect.user, connect.password);
            let (Some(user), Some(password)) = (user, password) else {
                return Err(NOT_AUTHORIZED);
            };
            let is_user = is_same(user.as_bytes(), self.config.user.as_bytes());
            let is_password = is_same(password, self.config.password.reveal().as_bytes());
            if !(is_user & is_password) {
                return Err(BAD_PASSWORD);
            }
        }
        let is_anonymous = connect.client_id.is_empty() && !connect.clean_session;
        if is_anonymous || connect.client_id.len() > MQTT_CLIENT_ID_BYTES_MAX {
            return Err(BAD_CLIENT_ID);
        }
        let may_publish = |to: &str| topic::fits(to) && (self.config.may_publish)(to);
        match connect.will {
            Some(will) if !may_publish(will.topic) => Err(NOT_AUTHORIZED),
            Some(_) | None => Ok(()),
        }
    }

    /// Gives the client its session; the connection that had it ends. Returns the client's id, and
    /// whether the session was there.
    fn session_of(
        &mut self,
        id: ConnectionId,
        connect: &Connect<'_>,
        events: &mut Vec<BrokerEvent>,
    ) -> Result<(Box<str>, bool), u8> {
        let client_id: Box<str> = match connect.client_id {
            "" => self.generated_id(),
            client_id => client_id.into(),
        };
        let current = self.sessions.get(&client_id).and_then(|session| session.connection);
        if let Some(other) = current {
            self.end(other, End::TakenOver, events);
        }
        if connect.clean_session {
            self.sessions.remove(&client_id);
        } else if let Some(session) = self.sessions.get_mut(&client_id) {
            session.connection = Some(id);
            // MQTT 3.1 has no such flag.
            return Ok((client_id, !connect.is_v31));
        } else {
            self.make_room()?;
        }
        let session = Session {
            is_clean: connect.clean_session,
            connection: Some(id),
            left: 0,
            subscriptions: std::collections::BTreeMap::new(),
            inbound: Inbound::default(),
            outbound: Outbound::default(),
        };
        self.sessions.insert(client_id.clone(), session);
        Ok((client_id, false))
    }

    /// Room for one more persistent session.
    fn make_room(&mut self) -> Result<(), u8> {
        let persistent = self.sessions.iter().filter(|(_, session)| !session.is_clean);
        if persistent.clone().count() < MQTT_PERSISTENT_SESSIONS_MAX {
            return Ok(());
        }
        let away = persistent.filter(|(_, session)| session.connection.is_none());
        let first = away.min_by_key(|(_, session)| session.left).map(|(name, _)| name.clone());
        let first = first.ok_or(UNAVAILABLE)?;
        self.sessions.remove(&first);
        Ok(())
    }

    fn generated_id(&mut self) -> Box<str> {
        loop {
            self.last_serial += 1;
            let name = format!("auto-{}", self.last_serial);
            if !self.sessions.contains_key(&*name) {
                return name.into();
            }
        }
    }
}

/// Takes as long whatever the first difference.
fn is_same(got: &[u8], expected: &[u8]) -> bool {
    let differs = got.iter().zip(expected).fold(0, |differs, (one, other)| differs | (one ^ other));
    got.len() == expected.len() && differs == 0
}
