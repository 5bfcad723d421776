//! Connections to ports of a pod: which ones its client opens, and their bytes.
//!
//! Over SPDY each connection has two streams, one for data and one for the reason of a failure,
//! with the same `requestid`. Over WebSocket each port of the call has one connection and two
//! channels, which end with the WebSocket.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::upgrade::Protocol;
use super::{Message, Received, Violation, WebSocket};
use crate::limits::SESSION_CONNECTIONS_MAX;
use crate::model::map::Map;
use crate::wire::spdy::server::{Headers, Incoming as Spdy};

/// A client.
#[derive(Debug)]
pub struct Forward {
    line: Line,
    /// Of connections that were opened and not told of.
    opened: VecDeque<(u32, u16)>,
}

type Line = super::Line<Streams, Ports>;

#[derive(Debug, Default)]
struct Streams {
    /// Streams whose other one has not come, by `requestid`.
    halves: Map<String, (Half, u32)>,
    /// From the data stream of a connection to its other one.
    pairs: Map<u32, u32>,
}

/// How many ports the call has.
#[derive(Debug)]
struct Ports(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Data,
    Error,
}

/// What the client did with a connection, which has a number of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// It wants one to this port.
    Open(u32, u16),
    Data(u32, Cow<'a, [u8]>),
    /// It sends no more.
    End(u32),
    /// It gives it up.
    Cancel(u32),
    /// It is done with all.
    Left,
}

impl Forward {
    /// A client; `ports` are those of the call, which only WebSocket uses.
    pub fn new(protocol: Protocol, ports: &[u16]) -> Self {
        let mut opened = VecDeque::new();
        let line = match protocol {
            Protocol::Spdy(_) => Line::Spdy(Box::default(), Streams::default()),
            Protocol::WebSocket(_) => {
                let ports = &ports[..ports.len().min(WEB_SOCKET_PORTS_MAX)];
                let mut socket = WebSocket::default();
                for (at, port) in (0_u8..).zip(ports) {
                    // Each channel begins with its port.
                    socket.send(2 * at, &port.to_le_bytes());
                    socket.send(2 * at + 1, &port.to_le_bytes());
                    opened.push_back((at.into(), *port));
                }
                Line::WebSocket(socket, Ports(ports.len()))
            }
        };
        Self { line, opened }
    }

    /// Takes these bytes up to the end of what they complete. Returns how many it took, and what
    /// they completed; call again with the rest, until all are taken and nothing comes.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(usize, Option<Incoming<'a>>), Violation> {
        if let Some((connection, port)) = self.opened.pop_front() {
            return Ok((0, Some(Incoming::Open(connection, port))));
        }
        let mut taken = 0;
        loop {
            let (count, received) = self.line.receive(&bytes[taken..])?;
            taken += count;
            let incoming = match received {
                None => return Ok((taken, None)),
                Some(Received::Spdy(incoming)) => self.of_spdy(incoming),
                Some(Received::WebSocket(message)) => self.of_message(message),
            };
            if incoming.is_some() {
                return Ok((taken, incoming));
            }
        }
    }

    fn of_spdy<'a>(&mut self, came: Spdy<'a>) -> Option<Incoming<'a>> {
        let Line::Spdy(server, Streams { halves, pairs }) = &mut self.line else { return None };
        match came {
            Spdy::Open(id, headers) => {
                let has_room = halves.len() + pairs.len() < SESSION_CONNECTIONS_MAX;
                let pair = if has_room || halves.contains_key(headers.get("requestid")) {
                    opened(halves, id, &headers)
                } else {
                    None
                };
                let Some(pair) = pair else {
                    server.refuse(id);
                    return None;
                };
                server.accept(id);
                let (data, error, port) = pair?;
                pairs.insert(data, error);
                Some(Incoming::Open(data, port))
            }
            Spdy::Data(id, bytes) => {
                pairs.contains_key(&id).then(|| Incoming::Data(id, bytes.into()))
            }
            Spdy::End(id) => pairs.contains_key(&id).then_some(Incoming::End(id)),
            Spdy::Reset(id) => {
                halves.retain(|_, (_, other)| *other != id);
                let of_it = |(data, error): &(&u32, &u32)| **data == id || **error == id;
                let data = *pairs.iter().find(of_it)?.0;
                pairs.remove(&data);
                Some(Incoming::Cancel(data))
            }
        }
    }

    fn of_message<'a>(&self, message: Message) -> Option<Incoming<'a>> {
        let Line::WebSocket(_, Ports(ports)) = self.line else { return None };
        match message {
            Message::Of(channel, bytes) => {
                let connection = u32::from(channel / 2);
                let is_data = channel % 2 == 0 && (connection as usize) < ports;
                is_data.then(|| Incoming::Data(connection, bytes.into()))
            }
            Message::Close => Some(Incoming::Left),
        }
    }

    /// Sends what has come from the pod.
    pub fn data(&mut self, connection: u32, bytes: &[u8]) {
        match &mut self.line {
            Line::Spdy(server, _) => server.data(connection, bytes),
            Line::WebSocket(socket, _) => socket.send(2 * connection as u8, bytes),
        }
    }

    /// Sends that the pod sends no more.
    pub fn end(&mut self, connection: u32) {
        if let Line::Spdy(server, _) = &mut self.line {
            server.end(connection);
        }
    }

    /// Forgets a connection whose two directions have ended. `why`: it has failed.
    pub fn close(&mut self, connection: u32, why: Option<&str>) {
        match &mut self.line {
            Line::Spdy(server, streams) => {
                let Some(error) = streams.pairs.remove(&connection) else { return };
                server.data(error, why.unwrap_or_default().as_bytes());
                server.end(error);
                if why.is_some() {
                    server.end(connection);
                }
            }
            Line::WebSocket(socket, _) => {
                if let Some(why) = why {
                    socket.send(2 * connection as u8 + 1, why.as_bytes());
                }
            }
        }
    }

    /// Sends that all is done.
    pub fn finish(&mut self) {
        self.line.finish();
    }

    /// The bytes that are to be sent.
    pub fn pending(&self) -> &[u8] {
        self.line.pending()
    }

    /// So many of them were sent.
    pub fn sent(&mut self, count: usize) {
        self.line.sent(count);
    }
}

/// Data, error and port of a connection.
type Pair = (u32, u32, u16);

/// A stream was opened. `None`: it is none of a connection; `Some(None)`: the other one of its
/// connection is to come.
#[expect(clippy::option_option, reason = "said above")]
fn opened(
    halves: &mut Map<String, (Half, u32)>,
    id: u32,
    headers: &Headers,
) -> Option<Option<Pair>> {
    let half = match headers.get("streamtype") {
        "data" => Half::Data,
        "error" => Half::Error,
        _ => return None,
    };
    let port = headers.get("port").parse().ok().filter(|port| *port > 0)?;
    let request = headers.get("requestid");
    match halves.get(request) {
        None => {
            halves.insert(request.to_owned(), (half, id));
            Some(None)
        }
        Some((other, _)) if *other == half => None,
        Some((_, other)) => {
            let other = *other;
            halves.remove(request);
            let (data, error) = if half == Half::Data { (id, other) } else { (other, id) };
            Some(Some((data, error, port)))
        }
    }
}

/// Of each the numbers of its two channels have room in a byte.
const WEB_SOCKET_PORTS_MAX: usize = 127;
