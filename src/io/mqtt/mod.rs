//! MQTT for devices: the client of another broker, the broker inside, or both, by the mode.
//!
//! ```text
//!  other broker ◀─tcp, TLS─▶ link   (wire/mqtt/client) ──┐
//!                                                        ├─▶ Event: Received, Up, Down …
//!  clients, pods ─tcp, unix─▶ server (wire/mqtt/broker) ─┘◀─ publish, acknowledge
//! ```
//!
//! The owner learns of messages on the topics of [`rules::FILTERS`] and on those that it subscribes
//! to, and acknowledges each that has an id once its effect is durable. What it publishes goes to
//! both brokers; a message that a client sends to one is not passed to the other.
//!
//! Nothing here blocks, and nobody waits for a broker. **If we crash here** the other broker keeps
//! what it has not handed over, and the sessions of the broker inside are lost.

mod link;
mod server;
mod transport;

use std::net::SocketAddr;
use std::path::PathBuf;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::time::{Instant, Now, sooner};
use crate::model::error::Error;
use crate::model::settings::{MqttMode, MqttSettings};
use crate::wire::mqtt::broker::{BrokerEvent, Counts};
use crate::wire::mqtt::client::ClientEvent;
use crate::wire::mqtt::{Message, MessageId, QoS, Unpublishable, Unsubscribable, rules};
use link::{Link, LinkEvent};
use server::Server;

/// Both ends of MQTT.
#[derive(Debug)]
pub struct Mqtt {
    /// `None`: there is no other broker.
    link: Option<Link>,
    /// `None`: there is no broker inside.
    server: Option<Server>,
    last_publication: u64,
}

/// What the owner gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The other broker has accepted the connection.
    Up,
    /// It is lost, or was never reached, and why. Dials go on.
    Down(String),
    Received {
        /// To be acknowledged; `None`: QoS 0.
        id: Option<ReceivedId>,
        topic: Box<str>,
        payload: Box<[u8]>,
    },
    /// The publication of this number is with the other broker, or was handed to the clients.
    Published(u64),
    /// It is lost: the other broker was away for too long.
    Dropped(u64),
    /// A client of the broker inside came or left.
    Clients,
}

/// Names a received message until it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReceivedId {
    is_inside: bool,
    message: MessageId,
}

/// For `edged status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The other broker's URL, and why it is not connected.
    pub client: Option<(String, Result<(), String>)>,
    /// Publications that are not with it.
    pub waiting: usize,
    /// The address of the broker inside, once it listens.
    pub broker: Option<SocketAddr>,
    pub counts: Counts,
}

impl Mqtt {
    /// The number of tokens that it uses, from `first` on.
    pub const TOKENS: usize = LINK_TOKENS + Server::TOKENS;

    /// `program`: see [`crate::io::job::Jobs::new`]. An error is one of the settings, or of the
    /// files that they name.
    pub fn new(
        settings: &MqttSettings,
        program: PathBuf,
        first: Token,
        seed: u64,
    ) -> Result<Self, Error> {
        let (has_link, has_server) = match settings.mode {
            MqttMode::Internal => (false, true),
            MqttMode::Both => (true, true),
            MqttMode::External => (true, false),
        };
        let link = has_link.then(|| Link::new(settings.client.clone(), program, first, seed));
        let server = if has_server {
            Some(Server::new(&settings.broker, Token(first.0 + LINK_TOKENS))?)
        } else {
            None
        };
        let mut mqtt = Self { link, server, last_publication: 0 };
        for filter in rules::FILTERS {
            mqtt.subscribe(filter).expect("these are valid, and few");
        }
        Ok(mqtt)
    }

    /// Whether the token is one of ours.
    pub fn owns(&self, token: Token) -> bool {
        self.link.as_ref().is_some_and(|link| link.owns(token))
            || self.server.as_ref().is_some_and(|server| server.owns(token))
    }

    pub fn ready(&mut self, ready: &Ready) {
        match (&mut self.link, &mut self.server) {
            (Some(link), _) if link.owns(ready.token()) => link.ready(ready),
            (_, Some(server)) if server.owns(ready.token()) => server.ready(ready),
            _ => {}
        }
    }

    /// Dials, reads, writes, and ends what is late, a bounded amount of each.
    pub fn tick(&mut self, now: Now, registry: &Registry, events: &mut Vec<Event>) {
        if let Some(link) = &mut self.link
            && link.wake_at().is_some_and(|at| at <= now.boot)
        {
            let mut found = Vec::new();
            link.tick(now, registry, &mut found);
            events.extend(found.into_iter().filter_map(of_link));
        }
        if let Some(server) = &mut self.server {
            let mut found = Vec::new();
            server.tick(now.boot, registry, &mut found);
            events.extend(found.into_iter().map(of_broker));
        }
    }

    /// Writes what was published and acknowledged in this turn, at its end.
    pub fn flush(&mut self, now: Instant, events: &mut Vec<Event>) {
        if let Some(link) = &mut self.link {
            let mut found = Vec::new();
            link.flush(now, &mut found);
            events.extend(found.into_iter().filter_map(of_link));
        }
        if let Some(server) = &mut self.server {
            let mut found = Vec::new();
            server.flush(now, &mut found);
            events.extend(found.into_iter().map(of_broker));
        }
    }

    /// When to call [`Mqtt::tick`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        let link = self.link.as_ref().and_then(Link::wake_at);
        sooner(link, self.server.as_ref().and_then(Server::wake_at))
    }

    /// A child of the process has ended, perhaps one of ours.
    pub fn reap(&mut self) {
        if let Some(link) = &mut self.link {
            link.reap();
        }
    }

    /// Publishes to both brokers; [`Mqtt::flush`] writes it. Returns the number that
    /// [`Event::Published`] or [`Event::Dropped`] will name.
    pub fn publish(
        &mut self,
        topic: &str,
        payload: &[u8],
        qos: QoS,
        retain: bool,
        events: &mut Vec<Event>,
    ) -> Result<u64, Unpublishable> {
        let message = Message::checked(topic, payload)?;
        if let Some(server) = &mut self.server {
            server.broker.publish(&message, qos, retain);
        }
        let Some(link) = &mut self.link else {
            self.last_publication += 1;
            events.push(Event::Published(self.last_publication));
            return Ok(self.last_publication);
        };
        let mut found = Vec::new();
        let number = link.client.publish(message, qos, retain, &mut found);
        events.extend(found.into_iter().map(LinkEvent::Client).filter_map(of_link));
        Ok(number)
    }

    /// The effect of a received message is durable.
    pub fn acknowledge(&mut self, id: ReceivedId) {
        match (&mut self.link, &mut self.server) {
            (_, Some(server)) if id.is_inside => server.broker.acknowledge(id.message),
            (Some(link), _) if !id.is_inside => {
                link.client.acknowledge(id.message);
                link.touch();
            }
            _ => {}
        }
    }

    /// Adds a filter for good: that of a rule of the cloud.
    pub fn subscribe(&mut self, filter: &str) -> Result<(), Unsubscribable> {
        if let Some(link) = &mut self.link {
            link.client.subscribe(filter)?;
        }
        if let Some(server) = &mut self.server {
            server.broker.subscribe(filter)?;
        }
        Ok(())
    }

    /// Removes a filter.
    pub fn unsubscribe(&mut self, filter: &str) {
        if let Some(link) = &mut self.link {
            link.client.unsubscribe(filter);
        }
        if let Some(server) = &mut self.server {
            server.broker.unsubscribe(filter);
        }
    }

    /// The address of the broker inside, once it listens.
    pub fn bound(&self) -> Option<SocketAddr> {
        self.server.as_ref().and_then(Server::bound)
    }

    pub fn status(&self) -> Status {
        let link = self.link.as_ref();
        let server = self.server.as_ref();
        Status {
            client: link.map(|link| (link.server(), link.state().map_err(str::to_owned))),
            waiting: link.map_or(0, |link| link.client.waiting()),
            broker: self.bound(),
            counts: server.map(|server| server.broker.counts()).unwrap_or_default(),
        }
    }
}

/// The connection and the lookup.
const LINK_TOKENS: usize = 2;

fn of_link(event: LinkEvent) -> Option<Event> {
    Some(match event {
        LinkEvent::Down(why) => Event::Down(why),
        LinkEvent::Client(ClientEvent::Up { .. }) => Event::Up,
        LinkEvent::Client(ClientEvent::Received { id, topic, payload }) => {
            let id = id.map(|message| ReceivedId { is_inside: false, message });
            Event::Received { id, topic, payload }
        }
        LinkEvent::Client(ClientEvent::Published(number)) => Event::Published(number),
        LinkEvent::Client(ClientEvent::Dropped(number)) => Event::Dropped(number),
        // These two are for the log, where they are already.
        LinkEvent::Client(ClientEvent::SubscriptionRefused(_) | ClientEvent::Skipped { .. }) => {
            return None;
        }
    })
}

fn of_broker(event: BrokerEvent) -> Event {
    match event {
        BrokerEvent::Received { id, topic, payload } => {
            let id = id.map(|message| ReceivedId { is_inside: true, message });
            Event::Received { id, topic, payload }
        }
        BrokerEvent::Connected { .. } | BrokerEvent::Disconnected { .. } => Event::Clients,
    }
}

#[cfg(test)]
mod tests;
