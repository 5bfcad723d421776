//! The stream tunnel to the cloud: one websocket that carries many requests (edgestream.md,
//! sections 3, 4 and 14).
//!
//! Here are the connection and its messages. A request that comes through it becomes a
//! [`Session`](super::session::Session) like one of the HTTP API, and is known by the number that
//! the cloud gave it.

use std::path::PathBuf;

use mio::{Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::{Instant, Now};
use crate::io::cloud::connector::{Connected, Connector};
use crate::io::cloud::dial::Endpoint;
use crate::io::cloud::tls::explain;
use crate::io::log::Limit;
use crate::io::tls::Tls;
use crate::io::websocket::{Bounds, End, Received, Role, Websocket};
use crate::limits::{TUNNEL_DATA_BYTES_MAX, TUNNEL_UNSENT_BYTES_MAX};
use crate::model::link::{Cause, Session as Name};
use crate::model::settings::CloudLink;
use crate::wire::tunnel::{Connect, Kind, Message};

#[derive(Debug)]
pub(super) struct Tunnel {
    connector: Connector,
    first: Token,
    up: Option<Up>,
    /// Of messages that are not understood.
    limit: Limit,
}

#[derive(Debug)]
struct Up {
    name: Name,
    socket: Websocket,
    /// There may be bytes to read that epoll will not report again.
    unread: bool,
    to: String,
}

impl Up {
    fn new(name: Name, tls: Tls, tail: Vec<u8>, to: String) -> Self {
        let bounds = Bounds {
            message_bytes_max: TUNNEL_DATA_BYTES_MAX + NUMBERS_BYTES_MAX,
            out_bytes_max: 2 * TUNNEL_UNSENT_BYTES_MAX,
        };
        let socket = Websocket::new(tls, tail, Role::Client, bounds);
        Self { name, socket, unread: true, to }
    }
}

/// What the cloud wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// A request begins; `id` is that of its messages.
    Open { id: u64, kind: Kind, connect: Box<Connect> },
    /// A request that cannot be read.
    Bad { id: u64 },
    /// Bytes for a request.
    Data { id: u64, bytes: Vec<u8> },
    /// A request ends.
    Remove { id: u64 },
}

impl Tunnel {
    /// `first`: this token and the next are ours.
    pub(super) fn new(link: Option<CloudLink>, program: PathBuf, first: Token) -> Self {
        let connector = Connector::new(link, program, first);
        Self { connector, first, up: None, limit: Limit::default() }
    }

    /// As if it had been dialled.
    #[cfg(test)]
    pub(super) fn stands(&mut self, tls: Tls) {
        self.up = Some(Up::new(Name(1), tls, Vec::new(), String::new()));
    }

    #[cfg(test)]
    pub(super) fn unsent(&self) -> usize {
        self.up.as_ref().map_or(0, |up| up.socket.unsent_bytes())
    }

    pub(super) fn owns(&self, token: Token) -> bool {
        self.connector.owns(token)
    }

    pub(super) fn ready(&mut self, token: Token) {
        self.connector.ready();
        if let Some(up) = &mut self.up {
            up.unread |= token == self.first;
        }
    }

    pub(super) fn reap(&mut self) {
        self.connector.reap();
    }

    pub(super) fn dial(
        &mut self,
        name: Name,
        ip: String,
        deadline: Instant,
        now: Now,
        registry: &Registry,
        events: &mut Vec<Event>,
    ) {
        self.hang_up();
        let endpoint = Endpoint::Tunnel { ip };
        if let Err(cause) = self.connector.dial(name, endpoint, deadline, now, registry) {
            events.push(Event::TunnelDown(name, cause));
        }
    }

    pub(super) fn ping(&mut self) {
        if let Some(up) = &mut self.up {
            // If there is no room, the socket is stuck, and the missing answer says so.
            let _ = up.socket.ping();
        }
    }

    pub(super) fn hang_up(&mut self) {
        self.connector.abort();
        if let Some(mut up) = self.up.take() {
            up.socket.send_close();
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.is_some()
    }

    /// Continues the attempt, or reads a bounded amount unless that would be too much for a
    /// request. Returns the cloud's orders.
    pub(super) fn read(
        &mut self,
        now: Instant,
        registry: &Registry,
        is_blocked: bool,
        events: &mut Vec<Event>,
    ) -> Vec<Order> {
        self.advance(now, registry, events);
        let Some(up) = &mut self.up else { return Vec::new() };
        if is_blocked || !up.unread {
            return Vec::new();
        }
        let (mut orders, mut closed) = (Vec::new(), None);
        let limit = &mut self.limit;
        let read = up.socket.read(&mut |received| match received {
            Received::Message(bytes) => match order(&bytes) {
                Ok(Some(order)) => orders.push(order),
                Ok(None) => {}
                Err(Fault::Refused(id, why)) => {
                    ignored(limit, now, &why);
                    orders.push(Order::Bad { id });
                }
                Err(Fault::Closed(why)) => closed = Some(format!("closes it: {why}")),
                Err(Fault::Bad(why)) => ignored(limit, now, &why),
            },
            Received::TooLarge(size) => {
                // Bytes of some request are lost.
                closed =
                    Some(format!("got {size} bytes, expected {TUNNEL_DATA_BYTES_MAX} at most"));
            }
        });
        if up.socket.take_received() {
            events.push(Event::TunnelActive(up.name));
        }
        match (read, closed) {
            (_, Some(why)) => self.end(&End::Peer(why), events),
            (Ok(more), None) => up.unread = more,
            (Err(end), None) => self.end(&end, events),
        }
        orders
    }

    /// How many bytes may still be sent now.
    pub(super) fn room(&self) -> usize {
        let unsent = self.up.as_ref().map(|up| up.socket.unsent_bytes());
        unsent.map_or(0, |unsent| TUNNEL_UNSENT_BYTES_MAX.saturating_sub(unsent))
    }

    pub(super) fn send(&mut self, id: u64, kind: Kind, data: &[u8], events: &mut Vec<Event>) {
        let Some(up) = &mut self.up else { return };
        let mut message = Vec::with_capacity(NUMBERS_BYTES_MAX + data.len());
        Message { id, kind, data }.encode(&mut message);
        if let Err(end) = up.socket.send(&message) {
            self.end(&end, events);
        }
    }

    /// Writes as much as the socket takes.
    pub(super) fn write(&mut self, now: Instant, events: &mut Vec<Event>) {
        let Some(up) = &mut self.up else { return };
        if let Err(end) = up.socket.write(now) {
            self.end(&end, events);
        }
    }

    /// When to read. `is_blocked`: as for [`Tunnel::read`].
    pub(super) fn wake_at(&self, is_blocked: bool) -> Option<Instant> {
        let Some(up) = &self.up else { return self.connector.wake_at() };
        (up.unread && !is_blocked).then_some(Instant(0))
    }

    fn advance(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        match self.connector.advance(now, registry) {
            None => {}
            Some((_, Ok(Connected { name, tls, tail, .. }))) => {
                let to = self.connector.link().map(|link| link.server.clone()).unwrap_or_default();
                self.up = Some(Up::new(name, *tls, tail, to));
                events.push(Event::TunnelUp(name));
            }
            Some((name, Err(cause))) => events.push(Event::TunnelDown(name, cause)),
        }
    }

    fn end(&mut self, end: &End, events: &mut Vec<Event>) {
        let Some(up) = &self.up else { return };
        let to = &up.to;
        let cause = match (end, self.connector.link()) {
            (End::Io(error), Some(link)) => explain(error, link, to),
            (End::Io(error), None) => Cause::Link(error.to_string()),
            (End::Peer(why), _) => Cause::Link(format!("{to}: the cloud {why}")),
        };
        events.push(Event::TunnelDown(up.name, cause));
        self.hang_up();
    }
}

/// The two numbers before the data.
const NUMBERS_BYTES_MAX: usize = 20;

enum Fault {
    /// The cloud gives the tunnel up.
    Closed(String),
    /// A request that cannot be read, and its number.
    Refused(u64, String),
    /// Not a message.
    Bad(String),
}

/// `None`: for a later version.
fn order(bytes: &[u8]) -> Result<Option<Order>, Fault> {
    let message = Message::decode(bytes).map_err(|why| Fault::Bad(why.to_string()))?;
    let id = message.id;
    Ok(match message.kind {
        Kind::Logs | Kind::Exec | Kind::Attach | Kind::Metrics => {
            let connect =
                Connect::decode(message.data).map_err(|why| Fault::Refused(id, why.to_string()))?;
            Some(Order::Open { id, kind: message.kind, connect: Box::new(connect) })
        }
        Kind::Data => Some(Order::Data { id, bytes: message.data.to_vec() }),
        Kind::Remove => Some(Order::Remove { id }),
        Kind::Close => {
            let why = String::from_utf8_lossy(message.data).into_owned();
            return Err(Fault::Closed(why));
        }
        Kind::Unknown(_) => None,
    })
}

fn ignored(limit: &mut Limit, now: Instant, why: &str) {
    if let Some(repeats) = limit.pass(now) {
        log::warn!("a message of the stream tunnel is ignored: {why}; repeats={repeats}");
    }
}
