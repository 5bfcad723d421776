//! A session that is connected: receives and sends messages, and reports both to the core.

use super::super::websocket::{Bounds, Received, Role, Websocket};
use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::io::log::Limit;
use crate::io::tls::Tls;
pub(super) use crate::io::websocket::End;
use crate::limits::{Budget, CLOUD_OUTPUT_BYTES_MAX};
use crate::model::link::Session as Name;
use crate::model::upstream::Upstream;
use crate::wire::{edge, kubeedge};

#[derive(Debug)]
pub(super) struct Session {
    pub(super) name: Name,
    socket: Websocket,
    limit: Limit,
    budget: Budget,
}

impl Session {
    /// `tail`: the bytes after the upgrade.
    pub(super) fn new(name: Name, tls: Tls, tail: Vec<u8>, budget: Budget) -> Self {
        let message_bytes_max = budget.message_bytes_max;
        let bounds = Bounds { message_bytes_max, out_bytes_max: CLOUD_OUTPUT_BYTES_MAX };
        let socket = Websocket::new(tls, tail, Role::Client, bounds);
        Self { name, socket, limit: Limit::default(), budget }
    }

    /// Queues a message.
    pub(super) fn send(&mut self, message: &Upstream) -> Result<(), End> {
        self.socket.send(&edge::encode(&kubeedge::encode(message)))
    }

    /// Sends a ping.
    pub(super) fn ping(&mut self) -> Result<(), End> {
        self.socket.ping()
    }

    /// Reads a bounded amount. `true`: there is more.
    pub(super) fn read(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<bool, End> {
        let (name, limit, first) = (self.name, &mut self.limit, events.len());
        let budget = self.budget;
        let done = self.socket.read(&mut |came| match came {
            Received::Message(bytes) => match edge::decode(&bytes) {
                Ok(message) => {
                    let message = kubeedge::decode(&message, &budget);
                    events.push(Event::Cloud(name, Box::new(message)));
                }
                Err(why) => dropped(limit, now, &format!("{why}; {}", excerpt(&bytes))),
            },
            Received::TooLarge(size) => {
                let (max, because) = (budget.message_bytes_max, budget.why());
                let why = format!("got {size} bytes, expected {max} at most{because}");
                dropped(limit, now, &why);
            }
        });
        if self.socket.take_received() {
            events.insert(first, Event::LinkActive(name));
        }
        done
    }

    /// Writes queued messages, as far as the socket takes them.
    pub(super) fn write(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<(), End> {
        let sent = self.socket.write(now)?;
        if sent > 0 {
            events.push(Event::Sent(self.name, sent));
        }
        Ok(())
    }

    /// Since when bytes wait and none is sent.
    pub(super) fn blocked_since(&self) -> Option<Instant> {
        self.socket.blocked_since()
    }

    /// Sends a close frame, as far as the socket takes it.
    pub(super) fn send_close(&mut self) {
        self.socket.send_close();
    }
}

/// An unreadable message is dropped and does not end the link: the cloud would send it again over
/// the next one.
fn dropped(limit: &mut Limit, now: Instant, why: &str) {
    if let Some(repeats) = limit.pass(now) {
        log::warn!("a message from the cloud is dropped: {why}; repeats={repeats}");
    }
}

/// The beginning of an unreadable message. Contents may be secrets, and come after the header.
fn excerpt(bytes: &[u8]) -> String {
    let size = bytes.len();
    let head = &bytes[..size.min(EXCERPT_BYTES)];
    format!("it has {size} bytes and starts with {:?}", String::from_utf8_lossy(head))
}

/// Only the id of a message.
const EXCERPT_BYTES: usize = 64;
