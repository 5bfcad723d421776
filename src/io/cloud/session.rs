//! A session that is up: messages in, messages out, and the mind told of both.

use super::super::websocket::{Bounds, Came, Role, Websocket};
use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::io::log::Limit;
use crate::io::tls::Tls;
pub(super) use crate::io::websocket::End;
use crate::limits::{Budget, CLOUD_OUTPUT_BYTES_MAX};
use crate::model::link::Session as Name;
use crate::model::message::Message;
use crate::wire::edge;

/// Both ways of one websocket.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) name: Name,
    socket: Websocket,
    limit: Limit,
    budget: Budget,
}

impl Session {
    /// `tail`: what came behind the upgrade.
    pub(super) fn new(name: Name, tls: Tls, tail: Vec<u8>, budget: Budget) -> Self {
        let message_bytes_max = budget.message_bytes_max;
        let bounds = Bounds { message_bytes_max, out_bytes_max: CLOUD_OUTPUT_BYTES_MAX };
        let socket = Websocket::new(tls, tail, Role::Client, bounds);
        Self { name, socket, limit: Limit::default(), budget }
    }

    /// Puts a message behind what waits.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), End> {
        self.socket.send(&edge::encode(message))
    }

    /// Asks for a sign of life.
    pub(super) fn ping(&mut self) -> Result<(), End> {
        self.socket.ping()
    }

    /// Reads as much as a turn may. `true`: there is more.
    pub(super) fn read(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<bool, End> {
        let (name, limit, first) = (self.name, &mut self.limit, events.len());
        let budget = self.budget;
        let done = self.socket.read(&mut |came| match came {
            Came::Message(bytes) => match edge::decode(&bytes) {
                Ok(message) => events.push(Event::Cloud(name, Box::new(message))),
                Err(why) => dropped(limit, now, &format!("{why}; {}", excerpt(&bytes))),
            },
            Came::TooLarge(size) => {
                let (max, because) = (budget.message_bytes_max, budget.why());
                let why = format!("got {size} bytes, expected {max} at most{because}");
                dropped(limit, now, &why);
            }
        });
        if self.socket.heard() {
            events.insert(first, Event::LinkActive(name));
        }
        done
    }

    /// Writes what waits, as far as the socket takes it.
    pub(super) fn write(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<(), End> {
        let sent = self.socket.write(now)?;
        if sent > 0 {
            events.push(Event::Sent(self.name, sent));
        }
        Ok(())
    }

    /// Since when something waits and nothing leaves.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        self.socket.stuck_since()
    }

    /// Takes leave, as far as the socket takes it.
    pub(super) fn farewell(&mut self) {
        self.socket.farewell();
    }
}

/// A message that cannot be read costs itself, not the link: the cloud would send it again over
/// the next one.
fn dropped(limit: &mut Limit, now: Instant, why: &str) {
    if let Some(kept) = limit.pass(now) {
        log::warn!("a message of the cloud's is dropped: {why}; repeats={kept}");
    }
}

/// The beginning of what cannot be read. Contents may be secrets, and stand behind the header.
fn excerpt(bytes: &[u8]) -> String {
    let size = bytes.len();
    let head = &bytes[..size.min(EXCERPT_BYTES)];
    format!("it has {size} bytes and begins {:?}", String::from_utf8_lossy(head))
}

/// An id of a message and no more.
const EXCERPT_BYTES: usize = 64;
