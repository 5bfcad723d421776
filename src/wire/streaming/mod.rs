//! The server's end of CRI's `Exec`, `Attach` and `PortForward`: what a client connects to at the
//! URL that these calls return. The client speaks SPDY/3.1 or WebSocket; here is what both mean.
//!
//! ```text
//!  bytes ─▶ upgrade ─▶ spdy, ws ─▶ command: input, its end, sizes     (exec, attach)
//!                              └─▶ forward: connections and their bytes
//! ```
//!
//! Subprotocols: `v4.channel.k8s.io` and older ones over SPDY, `v5` and `v4.channel.k8s.io` over
//! WebSocket, for port forwarding `portforward.k8s.io` and `v4.channel.k8s.io`. Not here: sockets,
//! processes, and when to read no more: neither protocol has flow control, so whoever owns the
//! socket stops reading it.

pub mod command;
pub mod forward;
pub mod upgrade;

use std::fmt;

use crate::limits::STREAM_MESSAGE_BYTES_MAX;
use crate::wire::spdy::server::{self, Server};
use crate::wire::{spdy, ws};

/// A violation of the protocol: the connection is unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<spdy::Violation> for Violation {
    fn from(why: spdy::Violation) -> Self {
        Self(why.to_string())
    }
}

/// A connection in one of the two protocols, and what its user keeps beside it.
#[derive(Debug)]
enum Line<S, W> {
    Spdy(Box<Server>, S),
    WebSocket(WebSocket, W),
}

/// What came over it.
enum Received<'a> {
    Spdy(server::Incoming<'a>),
    WebSocket(Message),
}

impl<S, W> Line<S, W> {
    /// Takes these bytes up to the end of what they complete.
    fn receive<'a>(&mut self, bytes: &'a [u8]) -> Result<(usize, Option<Received<'a>>), Violation> {
        Ok(match self {
            Self::Spdy(server, _) => {
                let (taken, incoming) = server.receive(bytes)?;
                (taken, incoming.map(Received::Spdy))
            }
            Self::WebSocket(socket, _) => {
                let (taken, message) = socket.receive(bytes)?;
                (taken, message.map(Received::WebSocket))
            }
        })
    }

    /// Sends that all is done.
    fn finish(&mut self) {
        match self {
            Self::Spdy(server, _) => server.go_away(),
            Self::WebSocket(socket, _) => socket.close(),
        }
    }

    fn pending(&self) -> &[u8] {
        match self {
            Self::Spdy(server, _) => server.output(),
            Self::WebSocket(socket, _) => &socket.output,
        }
    }

    fn sent(&mut self, count: usize) {
        match self {
            Self::Spdy(server, _) => server.sent(count),
            Self::WebSocket(socket, _) => drop(socket.output.drain(..count)),
        }
    }
}

/// Messages of a channel and its bytes.
#[derive(Debug)]
struct WebSocket {
    receiver: ws::Receiver,
    output: Vec<u8>,
}

/// A message of a client.
enum Message {
    /// Of this channel, with these bytes.
    Of(u8, Vec<u8>),
    /// The client closes; that is answered.
    Close,
}

impl Default for WebSocket {
    fn default() -> Self {
        let receiver = ws::Receiver::of_client(STREAM_MESSAGE_BYTES_MAX);
        Self { receiver, output: Vec::new() }
    }
}

impl WebSocket {
    /// Takes these bytes up to the end of what they complete.
    fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Option<Message>), Violation> {
        let mut taken = 0;
        loop {
            let received = self.receiver.receive(&bytes[taken..]);
            let (count, incoming) = received.map_err(|why| Violation(why.to_string()))?;
            taken += count;
            let Some(incoming) = incoming else { return Ok((taken, None)) };
            match incoming {
                ws::Incoming::Message(mut message) if !message.is_empty() => {
                    let channel = message.remove(0);
                    return Ok((taken, Some(Message::Of(channel, message))));
                }
                ws::Incoming::Message(_) | ws::Incoming::Pong => {}
                // What a command was sent must not have a gap.
                ws::Incoming::TooLarge(size) => {
                    return Err(Violation(format!(
                        "websocket: got a message of {size} bytes, expected \
                         {STREAM_MESSAGE_BYTES_MAX} at most"
                    )));
                }
                ws::Incoming::Ping(payload) => {
                    ws::write_plain(ws::Kind::Pong, &payload, &mut self.output);
                }
                ws::Incoming::Close(..) => {
                    self.close();
                    return Ok((taken, Some(Message::Close)));
                }
            }
        }
    }

    fn send(&mut self, channel: u8, bytes: &[u8]) {
        ws::write_channel(channel, bytes, &mut self.output);
    }

    fn close(&mut self) {
        ws::write_plain(ws::Kind::Close, &NORMAL.to_be_bytes(), &mut self.output);
    }
}

/// RFC 6455 section 7.4.1.
const NORMAL: u16 = 1_000;
