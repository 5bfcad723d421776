//! A session that is up: frames in, frames out, no more of either than a turn and the memory take.
//!
//! What is to be sent waits in one buffer until the socket takes it. A message has left when its
//! last byte lies in the kernel: [`Event::Sent`] counts those, and the mind holds back by it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};

use super::tls::Tls;
use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::io::log::Limit;
use crate::limits::{
    CLOUD_BUFFER_KEPT_BYTES, CLOUD_OUTPUT_BYTES_MAX, CLOUD_TURN_BYTES, CLOUD_TURN_MESSAGES,
    MESSAGE_BYTES_MAX,
};
use crate::model::link::Session as Name;
use crate::model::message::Message;
use crate::wire::edge;
use crate::wire::ws::{self, Incoming, Kind, Receiver};

/// Both ways of one websocket.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) name: Name,
    pub(super) tls: Tls,
    receiver: Receiver,
    /// Came, and was not taken apart in its turn.
    pending: Vec<u8>,
    out: Vec<u8>,
    /// So much of it was handed to TLS, which may hold some of it back.
    given: usize,
    /// Where in `out` each message ends.
    ends: VecDeque<usize>,
    /// Since when something waits and nothing leaves.
    stuck_since: Option<Instant>,
    limit: Limit,
}

/// Why a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// Of the connection under it.
    Io(std::io::Error),
    /// Of its own.
    Said(String),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl Session {
    /// `tail`: what came behind the upgrade.
    pub(super) fn new(name: Name, tls: Tls, tail: Vec<u8>) -> Self {
        Self {
            name,
            tls,
            receiver: Receiver::new(MESSAGE_BYTES_MAX),
            pending: tail,
            out: Vec::new(),
            given: 0,
            ends: VecDeque::new(),
            stuck_since: None,
            limit: Limit::default(),
        }
    }

    /// Puts a message behind what waits.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), End> {
        self.put(Kind::Text, &edge::encode(message))?;
        self.ends.push_back(self.out.len());
        Ok(())
    }

    /// Asks for a sign of life.
    pub(super) fn ping(&mut self) -> Result<(), End> {
        self.put(Kind::Ping, b"")
    }

    fn put(&mut self, kind: Kind, payload: &[u8]) -> Result<(), End> {
        let waits = self.out.len() - self.given;
        if waits + payload.len() > CLOUD_OUTPUT_BYTES_MAX {
            return Err(End::Said(format!(
                "the cloud takes nothing: {waits} bytes wait, {CLOUD_OUTPUT_BYTES_MAX} at most may"
            )));
        }
        ws::write(kind, payload, mask(), &mut self.out);
        Ok(())
    }

    /// Reads as much as a turn may. `true`: there is more.
    pub(super) fn read(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<bool, End> {
        let mut turn = Turn { bytes: 0, messages: 0 };
        let first = events.len();
        let done = self.read_on(now, &mut turn, events);
        if std::mem::take(&mut self.tls.heard) {
            events.insert(first, Event::Heard(self.name));
        }
        done
    }

    fn read_on(
        &mut self,
        now: Instant,
        turn: &mut Turn,
        events: &mut Vec<Event>,
    ) -> Result<bool, End> {
        self.tls.begin_turn();
        let pending = std::mem::take(&mut self.pending);
        self.take_apart(&pending, now, turn, events)?;
        let mut buffer = [0; READ_BYTES];
        while self.pending.is_empty() && turn.bytes < CLOUD_TURN_BYTES {
            match self.tls.read(&mut buffer) {
                Ok(0) => return Err(End::Said("the cloud hung up".to_owned())),
                Ok(count) => {
                    turn.bytes += count;
                    self.take_apart(&buffer[..count], now, turn, events)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(self.tls.more),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn take_apart(
        &mut self,
        bytes: &[u8],
        now: Instant,
        turn: &mut Turn,
        events: &mut Vec<Event>,
    ) -> Result<(), End> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if turn.messages >= CLOUD_TURN_MESSAGES {
                self.pending = rest.to_vec();
                break;
            }
            let (taken, incoming) =
                self.receiver.receive(rest).map_err(|why| End::Said(why.to_string()))?;
            rest = &rest[taken..];
            let Some(incoming) = incoming else { continue };
            turn.messages += 1;
            match incoming {
                Incoming::Message(bytes) => self.message(&bytes, now, events),
                Incoming::TooLarge(size) => {
                    self.dropped(
                        now,
                        &format!("got {size} bytes, expected {MESSAGE_BYTES_MAX} at most"),
                    );
                }
                Incoming::Ping(payload) => self.put(Kind::Pong, &payload)?,
                Incoming::Pong => {}
                Incoming::Close(code, reason) => {
                    let code = code.map_or_else(String::new, |code| format!(" ({code})"));
                    let why = format!("the cloud closed the connection{code}: {reason:?}");
                    return Err(End::Said(why));
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, bytes: &[u8], now: Instant, events: &mut Vec<Event>) {
        match edge::decode(bytes) {
            Ok(message) => events.push(Event::Cloud(self.name, Box::new(message))),
            Err(why) => self.dropped(now, &format!("{why}; {}", excerpt(bytes))),
        }
    }

    /// A message that cannot be read costs itself, not the link: the cloud would send it again
    /// over the next one.
    fn dropped(&mut self, now: Instant, why: &str) {
        if let Some(kept) = self.limit.pass(now) {
            log::warn!("a message of the cloud's is dropped: {why}; repeats={kept}");
        }
    }

    /// Writes what waits, as far as the socket takes it.
    pub(super) fn write(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<(), End> {
        let written = self.tls.written;
        let mut gone = 0;
        loop {
            if !self.tls.push_all()? {
                break;
            }
            gone = self.given;
            if gone == self.out.len() {
                break;
            }
            let end = self.out.len().min(gone + WRITE_BYTES);
            match self.tls.write(&self.out[gone..end]) {
                Ok(count) => self.given += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.stuck_since = match self.stuck_since {
            _ if gone == self.out.len() => None,
            Some(since) if self.tls.written == written => Some(since),
            _ => Some(now),
        };
        self.forget(gone, events);
        Ok(())
    }

    /// So many bytes have left.
    fn forget(&mut self, gone: usize, events: &mut Vec<Event>) {
        let sent = self.ends.iter().take_while(|end| **end <= gone).count();
        self.ends.drain(..sent);
        if sent > 0 {
            events.push(Event::Sent(self.name, sent));
        }
        if gone == self.out.len() || gone >= CLOUD_BUFFER_KEPT_BYTES {
            self.out.drain(..gone);
            self.given -= gone;
            for end in &mut self.ends {
                *end -= gone;
            }
            self.out.shrink_to(CLOUD_BUFFER_KEPT_BYTES);
        }
    }

    /// Since when something waits and nothing leaves.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        self.stuck_since
    }

    /// Takes leave, as far as the socket takes it.
    pub(super) fn farewell(&mut self) {
        if self.out.len() == self.given {
            let mut bye = Vec::new();
            ws::write(Kind::Close, &NORMAL.to_be_bytes(), mask(), &mut bye);
            let _ = self.tls.write(&bye);
        }
        self.tls.farewell();
    }
}

#[derive(Debug)]
struct Turn {
    bytes: usize,
    messages: usize,
}

/// Unpredictable: what is sent must not look like a request to some proxy (RFC 6455, 10.3).
fn mask() -> [u8; 4] {
    let random = ring::rand::SystemRandom::new();
    ring::rand::generate(&random).expect("the kernel has randomness").expose()
}

/// The beginning of what cannot be read. Contents may be secrets, and stand behind the header.
fn excerpt(bytes: &[u8]) -> String {
    let size = bytes.len();
    let head = &bytes[..size.min(EXCERPT_BYTES)];
    format!("it has {size} bytes and begins {:?}", String::from_utf8_lossy(head))
}

/// On the stack.
const READ_BYTES: usize = 4 << 10;
/// One record of TLS: what is in there waits for the socket twice.
const WRITE_BYTES: usize = 8 << 10;
/// An id of a message and no more.
const EXCERPT_BYTES: usize = 64;
/// Section 7.4.1.
const NORMAL: u16 = 1000;
