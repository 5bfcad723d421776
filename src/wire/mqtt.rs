//! MQTT 3.1.1 (OASIS), both ends on one codec, sans-IO: the client of another broker, and the
//! broker inside.
//!
//! ```text
//!  socket ──bytes──▶ inbox ──packet──▶ client ─▶ ClientEvent    (one connection, to a broker)
//!  socket ◀──output─────────────────── client ◀─ publish, acknowledge
//!
//!  sockets ─bytes──▶ inbox ──packet──▶ broker ─▶ Received       (many, by the number of each)
//!  sockets ◀─output─────────────────── broker ◀─ publish, acknowledge
//! ```
//!
//! **Intended behaviour.** `receive` takes bytes split anywhere. A message of QoS 1 is acknowledged
//! to its sender only when the owner has acknowledged it, that is when its effect is durable;
//! PUBACK and PUBREC leave in the order of the messages (section 4.6). Received messages of QoS 2
//! are handled exactly once; what is sent has QoS 0 or 1, and a subscription with 2 is granted 1.
//! Up to [`limits::MQTT_UNACKNOWLEDGED_MAX`] messages are under way in each direction; after a
//! reconnection they are sent again with DUP.
//!
//! **What is not here.** MQTT 5 (a CONNECT of it gets the answer 1, on which clients fall back),
//! bridges, `$SYS` topics, a tree of topics: with the few sessions and filters that the limits
//! allow, comparing each filter costs less. No clock: times are milliseconds since boot.
//!
//! **Errors.** A [`Violation`] ends the connection that it came from.
//!
//! **If we crash here** the sockets close, and the sessions of the broker are gone: clients
//! subscribe again when they reconnect. Another broker sends again what was not acknowledged.
//!
//! [`limits::MQTT_UNACKNOWLEDGED_MAX`]: crate::limits::MQTT_UNACKNOWLEDGED_MAX

pub mod broker;
pub mod client;
mod inbound;
mod inbox;
mod outbound;
pub mod packet;
pub mod rules;

use std::fmt;
use std::sync::Arc;

use crate::limits::{
    MQTT_PACKET_BYTES_MAX, MQTT_SUBSCRIPTIONS_MAX, MQTT_TOPIC_BYTES_MAX, MQTT_TOPIC_LEVELS_MAX,
};
pub use crate::model::topic;
pub use inbound::MessageId;
pub use packet::{PacketId, QoS, Violation};

/// A message to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub topic: Box<str>,
    pub payload: Box<[u8]>,
}

/// Why the agent cannot publish a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpublishable {
    Topic(topic::Fault),
    TopicTooLong,
    TooLarge { got_bytes: usize },
}

impl fmt::Display for Unpublishable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(fault) => fault.fmt(f),
            Self::TopicTooLong => write!(
                f,
                "got a longer topic, expected at most {MQTT_TOPIC_BYTES_MAX} bytes and \
                 {MQTT_TOPIC_LEVELS_MAX} levels"
            ),
            Self::TooLarge { got_bytes } => {
                write!(f, "got {got_bytes} bytes, expected {MQTT_PACKET_BYTES_MAX} at most")
            }
        }
    }
}

impl std::error::Error for Unpublishable {}

/// Why the owner cannot subscribe to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsubscribable {
    Filter(topic::Fault),
    TooLong,
    TooMany,
}

impl fmt::Display for Unsubscribable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filter(fault) => fault.fmt(f),
            Self::TooLong => f.write_str("got a filter with too many bytes or levels"),
            Self::TooMany => {
                write!(f, "got another filter, expected {MQTT_SUBSCRIPTIONS_MAX} at most")
            }
        }
    }
}

impl std::error::Error for Unsubscribable {}

fn checked_filter(filter: &str) -> Result<(), Unsubscribable> {
    topic::check_filter(filter).map_err(Unsubscribable::Filter)?;
    if topic::fits(filter) { Ok(()) } else { Err(Unsubscribable::TooLong) }
}

impl Message {
    pub fn new(topic: &str, payload: &[u8]) -> Arc<Self> {
        Arc::new(Self { topic: topic.into(), payload: payload.into() })
    }

    /// One that the agent publishes: the cloud may have named any topic.
    pub fn checked(topic: &str, payload: &[u8]) -> Result<Arc<Self>, Unpublishable> {
        topic::check_name(topic).map_err(Unpublishable::Topic)?;
        if !topic::fits(topic) {
            return Err(Unpublishable::TopicTooLong);
        }
        let got_bytes = topic.len() + payload.len() + outbound::HEAD_BYTES_MAX;
        if got_bytes > MQTT_PACKET_BYTES_MAX {
            return Err(Unpublishable::TooLarge { got_bytes });
        }
        Ok(Self::new(topic, payload))
    }

    /// What it takes of a queue's bound.
    fn bytes(&self) -> usize {
        self.topic.len() + self.payload.len()
    }
}
