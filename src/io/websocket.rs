//! One websocket over one TLS connection, for either end: sends and receives frames, bounded per
//! turn and in memory.
//!
//! Outgoing bytes wait in one buffer until the socket takes them. A message is sent when its last
//! byte is in the kernel: [`Websocket::write`] counts these messages, so that the sender can limit
//! itself. Not here: the upgrade, and what a message means.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};

use super::tls::Tls;
use crate::agent::time::Instant;
use crate::limits::{CLOUD_BUFFER_KEPT_BYTES, CLOUD_TURN_BYTES, CLOUD_TURN_MESSAGES};
use crate::wire::ws::{self, Incoming, Kind, Receiver};

#[derive(Debug)]
pub(in crate::io) struct Websocket {
    tls: Tls,
    role: Role,
    receiver: Receiver,
    /// Received, but not parsed in its turn.
    pending: Vec<u8>,
    out: Vec<u8>,
    /// Limit of the bytes in `out`.
    out_bytes_max: usize,
    /// How many bytes of it were passed to TLS, which may hold some of them back.
    given: usize,
    /// Where in `out` each message ends.
    ends: VecDeque<usize>,
    /// Since when bytes wait and none is sent.
    blocked_since: Option<Instant>,
}

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) enum Role {
    /// Ours is the client: outgoing frames are masked.
    Client,
    /// Ours is the server: incoming frames are masked.
    Server,
}

/// Limits of a received message and of the outgoing buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) struct Bounds {
    /// Larger messages are skipped.
    pub(in crate::io) message_bytes_max: usize,
    /// Bytes that wait to be sent.
    pub(in crate::io) out_bytes_max: usize,
}

/// Why a websocket ended.
#[derive(Debug)]
pub(in crate::io) enum End {
    /// An error of the connection below it.
    Io(std::io::Error),
    /// What the other end did.
    Peer(String),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Received from the other end.
#[derive(Debug)]
pub(in crate::io) enum Received {
    /// A whole message.
    Message(Vec<u8>),
    /// A message of this many bytes was skipped.
    TooLarge(u64),
}

impl Websocket {
    /// `tail`: the bytes after the upgrade.
    pub(in crate::io) fn new(tls: Tls, tail: Vec<u8>, role: Role, bounds: Bounds) -> Self {
        let Bounds { message_bytes_max, out_bytes_max } = bounds;
        let receiver = match role {
            Role::Client => Receiver::new(message_bytes_max),
            Role::Server => Receiver::of_client(message_bytes_max),
        };
        Self {
            tls,
            role,
            receiver,
            pending: tail,
            out: Vec::new(),
            out_bytes_max,
            given: 0,
            ends: VecDeque::new(),
            blocked_since: None,
        }
    }

    /// Queues a message.
    pub(in crate::io) fn send(&mut self, message: &[u8]) -> Result<(), End> {
        self.put(Kind::Text, message)?;
        self.ends.push_back(self.out.len());
        Ok(())
    }

    /// Queues bytes before all frames: the answer to the upgrade.
    #[cfg(feature = "controller")]
    pub(in crate::io) fn put_head(&mut self, head: &[u8]) {
        assert!(self.out.is_empty(), "nothing was sent before the upgrade was answered");
        self.out.extend_from_slice(head);
    }

    /// Bytes that are queued and not sent.
    #[cfg(any(feature = "controller", feature = "streams"))]
    pub(in crate::io) fn unsent_bytes(&self) -> usize {
        self.out.len() - self.given
    }

    /// Queues a ping.
    pub(in crate::io) fn ping(&mut self) -> Result<(), End> {
        self.put(Kind::Ping, b"")
    }

    fn put(&mut self, kind: Kind, payload: &[u8]) -> Result<(), End> {
        let (waits, max) = (self.out.len() - self.given, self.out_bytes_max);
        if waits + payload.len() > max {
            return Err(End::Peer(format!(
                "does not read: {waits} bytes wait to be sent, expected {max} at most"
            )));
        }
        self.frame(kind, payload);
        Ok(())
    }

    fn frame(&mut self, kind: Kind, payload: &[u8]) {
        match self.role {
            Role::Client => ws::write(kind, payload, mask(), &mut self.out),
            Role::Server => ws::write_plain(kind, payload, &mut self.out),
        }
    }

    /// Reads a bounded amount. `true`: there is more.
    pub(in crate::io) fn read(&mut self, each: &mut dyn FnMut(Received)) -> Result<bool, End> {
        let (mut bytes, mut messages) = (0, 0);
        self.tls.begin_turn();
        let pending = std::mem::take(&mut self.pending);
        self.take_apart(&pending, &mut messages, each)?;
        let mut buffer = [0; READ_BYTES];
        while self.pending.is_empty() && bytes < CLOUD_TURN_BYTES {
            match self.tls.read(&mut buffer) {
                Ok(0) => return Err(End::Peer("closed the connection".to_owned())),
                Ok(count) => {
                    bytes += count;
                    self.take_apart(&buffer[..count], &mut messages, each)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(self.tls.more),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Whether anything was received since the last call, even if only a part of a record.
    pub(in crate::io) fn take_received(&mut self) -> bool {
        std::mem::take(&mut self.tls.received)
    }

    fn take_apart(
        &mut self,
        bytes: &[u8],
        messages: &mut usize,
        each: &mut dyn FnMut(Received),
    ) -> Result<(), End> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if *messages >= CLOUD_TURN_MESSAGES {
                self.pending = rest.to_vec();
                break;
            }
            let (taken, incoming) = self
                .receiver
                .receive(rest)
                .map_err(|why| End::Peer(format!("broke the protocol: {why}")))?;
            rest = &rest[taken..];
            let Some(incoming) = incoming else { continue };
            *messages += 1;
            match incoming {
                Incoming::Message(bytes) => each(Received::Message(bytes)),
                Incoming::TooLarge(size) => each(Received::TooLarge(size)),
                Incoming::Ping(payload) => self.put(Kind::Pong, &payload)?,
                Incoming::Pong => {}
                Incoming::Close(code, reason) => {
                    let code = code.map_or_else(String::new, |code| format!(" ({code})"));
                    return Err(End::Peer(format!("closed the connection{code}: {reason:?}")));
                }
            }
        }
        Ok(())
    }

    /// Writes queued bytes, as far as the socket takes them. Returns the number of messages sent.
    pub(in crate::io) fn write(&mut self, now: Instant) -> Result<usize, End> {
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
        self.blocked_since = match self.blocked_since {
            _ if gone == self.out.len() => None,
            Some(since) if self.tls.written == written => Some(since),
            _ => Some(now),
        };
        Ok(self.forget(gone))
    }

    /// This many bytes were sent.
    fn forget(&mut self, gone: usize) -> usize {
        let sent = self.ends.iter().take_while(|end| **end <= gone).count();
        self.ends.drain(..sent);
        if self.ends.is_empty() && self.role == Role::Server {
            self.ends = VecDeque::new();
        }
        if gone == self.out.len() || gone >= CLOUD_BUFFER_KEPT_BYTES {
            self.out.drain(..gone);
            self.given -= gone;
            for end in &mut self.ends {
                *end -= gone;
            }
            // A server has thousands of connections, and most are idle.
            let capacity = if self.role == Role::Client { CLOUD_BUFFER_KEPT_BYTES } else { 0 };
            self.out.shrink_to(capacity);
        }
        sent
    }

    /// Since when bytes wait and none is sent.
    pub(in crate::io) fn blocked_since(&self) -> Option<Instant> {
        self.blocked_since
    }

    /// Sends a close frame, as far as the socket takes it.
    pub(in crate::io) fn send_close(&mut self) {
        if self.out.len() == self.given {
            let from = self.out.len();
            self.frame(Kind::Close, &NORMAL.to_be_bytes());
            let _ = self.tls.write(&self.out[from..]);
        }
        self.tls.send_close();
    }
}

/// Unpredictable: frames must not look like a request to a proxy (RFC 6455, 10.3).
fn mask() -> [u8; 4] {
    let random = ring::rand::SystemRandom::new();
    ring::rand::generate(&random).expect("the kernel has randomness").expose()
}

/// On the stack.
const READ_BYTES: usize = 4 << 10;
/// One record of TLS: what is in there waits for the socket twice.
const WRITE_BYTES: usize = 8 << 10;
/// Section 7.4.1.
const NORMAL: u16 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::tls::loopback;

    const BOUNDS: Bounds = Bounds { message_bytes_max: 1 << 20, out_bytes_max: 8 << 20 };

    #[test]
    fn a_turn_takes_so_many_bytes_and_the_next_one_the_rest() {
        let (near, mut far) = loopback::pair();
        let mut socket = Websocket::new(near, Vec::new(), Role::Client, BOUNDS);
        let mut frame = Vec::new();
        ws::write_plain(Kind::Text, &[b'x'; 16 << 10], &mut frame);
        let fit = CLOUD_TURN_BYTES / frame.len();
        assert!(fit + 2 < CLOUD_TURN_MESSAGES, "their number is another bound");
        let (mut rest, mut full_turns) = (&frame[..], 0);
        for _ in 0..1_000 {
            while let Ok(count) = far.write(rest) {
                rest = &rest[count..];
                if rest.is_empty() {
                    rest = &frame;
                }
            }
            let mut came = 0;
            let more = socket.read(&mut |_| came += 1).expect("it stands");
            // One may have come in part in the turn before.
            assert!(came <= fit + 1, "{came} messages of {} bytes", frame.len());
            full_turns += usize::from(came >= fit && more);
        }
        assert!(full_turns > 0, "no turn took as much as it may");
    }

    #[test]
    fn of_what_has_left_little_is_kept() {
        for (role, kept) in [(Role::Client, CLOUD_BUFFER_KEPT_BYTES), (Role::Server, 0)] {
            let (near, mut far) = loopback::pair();
            let mut socket = Websocket::new(near, Vec::new(), role, BOUNDS);
            let message = vec![b'x'; 1 << 20];
            for _ in 0..6 {
                socket.send(&message).expect("there is room");
            }
            let before = socket.out.len();
            socket.write(Instant(0)).expect("it stands");
            assert!(socket.out.len() < before, "nothing has left");
            assert!(socket.given < CLOUD_BUFFER_KEPT_BYTES + WRITE_BYTES, "{}", socket.given);
            while !socket.out.is_empty() {
                loopback::came(&mut far).expect("it stands");
                socket.write(Instant(0)).expect("it stands");
            }
            assert!(socket.out.capacity() <= kept, "{role:?}: {}", socket.out.capacity());
            assert_eq!(socket.out.capacity() > 0, role == Role::Client, "it is of use again");
        }
    }
}
