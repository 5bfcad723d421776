//! The REST entry: where clients in the cloud request something of nodes. One request for each
//! connection, over TLS, with a bearer token.
//!
//! ```text
//!  Reading ─head: token? room?─▶ Reading ─body─▶ Waiting ─the core's answer─▶ Writing ─▶ Closing
//!                    └── refused ──────────────────┴── the client leaves ──▶ gone
//! ```
//!
//! A connection that has not shown the token makes room for the next one, so that nobody without it
//! keeps others out.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use mio::event::Event as Ready;
use mio::{Registry, Token};
use rustls::{ServerConfig, ServerConnection};

use super::super::client::Client;
use crate::controller::event::Event;
use crate::controller::time::Instant;
use crate::io::socket::{Address, Listener, Stream};
use crate::io::tls::Tls;
use crate::io::token;
use crate::limits::{
    HTTP_CLOSE_BYTES_MAX, HTTP_CLOSE_MS, ROUTER_BODIES_BYTES_MAX, ROUTER_BODY_BYTES_MAX,
    ROUTER_CLIENT_MS, ROUTER_CONNECTIONS_MAX, ROUTER_HEAD_MS, ROUTER_STRANGER_MS,
    ROUTER_TURN_BYTES,
};
use crate::model::router::{RestId, RestRequest, RouterEvent};
use crate::model::service_bus::ServiceAnswer;
use crate::wire::http1::call::{Refused, head};
use crate::wire::router::{answer, bearer, read_request};

/// The port, and who may use it.
#[derive(Debug)]
pub(in super::super) struct Gate {
    pub(in super::super) address: SocketAddr,
    /// `None`: plain HTTP.
    pub(in super::super) tls: Option<Arc<ServerConfig>>,
    /// The file with the token.
    pub(in super::super) token: PathBuf,
}

/// The listener and its connections.
#[derive(Debug)]
pub(super) struct Entry {
    first: Token,
    gate: Gate,
    listener: Listener,
    slots: Vec<Option<Connection>>,
    /// Bytes of the bodies of all requests.
    held: usize,
    last: u64,
}

#[derive(Debug)]
struct Connection {
    client: Client,
    state: State,
    came_at: Instant,
    /// Then the connection is closed; while the core has the request it decides.
    deadline: Instant,
    is_ready: bool,
    /// Bytes of its body, which count until it is closed.
    held: usize,
    /// The answer has no body.
    is_head: bool,
}

#[derive(Debug)]
enum State {
    /// What was received, and what is known of the request.
    Reading(Vec<u8>, Option<Pending>),
    /// The core answers. How many bytes came that nobody wants.
    Waiting(RestId, usize),
    /// The answer, and how much of it was sent.
    Writing(Vec<u8>, usize),
    /// What the client sends beyond its request is read and dropped: a reset could overtake the
    /// answer. How many bytes.
    Closing(usize),
    Over,
}

/// A request whose body is read.
#[derive(Debug)]
struct Pending {
    request: Box<RestRequest>,
    head_bytes: usize,
    body_bytes: usize,
}

/// What a connection may use of the whole entry.
struct Context<'a> {
    now: Instant,
    gate: &'a Gate,
    held: usize,
    last: &'a mut u64,
    events: &'a mut Vec<Event>,
}

impl Entry {
    /// One for the listener, one for each connection.
    pub(super) const TOKENS: usize = 1 + ROUTER_CONNECTIONS_MAX;

    pub(super) fn new(gate: Gate, first: Token) -> Self {
        let listener = Listener::new(Address::Port(gate.address), "the REST entry", first);
        let slots = std::iter::repeat_with(|| None).take(ROUTER_CONNECTIONS_MAX).collect();
        Self { first, gate, listener, slots, held: 0, last: 0 }
    }

    pub(super) fn ready(&mut self, ready: &Ready) {
        match ready.token().0 - self.first.0 {
            0 => self.listener.ready(),
            number => {
                if let Some(Some(connection)) = self.slots.get_mut(number - 1) {
                    connection.is_ready = true;
                }
            }
        }
    }

    pub(super) fn answer(&mut self, now: Instant, id: RestId, of: &ServiceAnswer) {
        let waits =
            |it: &&mut Connection| matches!(it.state, State::Waiting(known, _) if known == id);
        // The client may have left.
        if let Some(connection) = self.slots.iter_mut().flatten().find(waits) {
            let bytes = answer(of, !connection.is_head);
            connection.write(now, bytes);
        }
    }

    pub(super) fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        self.listener.listen(now, registry, |_, error| match error.kind() {
            ErrorKind::AddrInUse => "another program has that port",
            _ => "see --listen-router",
        });
        self.accept(now, registry);
        for at in 0..self.slots.len() {
            let Some(connection) = &mut self.slots[at] else { continue };
            let is_late =
                connection.deadline <= now && !matches!(connection.state, State::Waiting(..));
            let held_before = connection.held;
            if !is_late && std::mem::take(&mut connection.is_ready) {
                let (gate, held, last) = (&self.gate, self.held, &mut self.last);
                connection.advance(&mut Context { now, gate, held, last, events });
            }
            self.held += connection.held - held_before;
            if is_late || matches!(connection.state, State::Over) {
                self.close(at);
            }
        }
    }

    fn close(&mut self, at: usize) {
        if let Some(connection) = self.slots[at].take() {
            self.held -= connection.held;
        }
    }

    /// A slot for the next connection. One without a request makes room.
    fn slot(&mut self, now: Instant) -> Option<usize> {
        if let Some(free) = self.slots.iter().position(Option::is_none) {
            return Some(free);
        }
        let (came_at, slot) = self.oldest_stranger()?;
        if came_at.plus_ms(ROUTER_STRANGER_MS) > now {
            return None;
        }
        self.close(slot);
        Some(slot)
    }

    fn oldest_stranger(&self) -> Option<(Instant, usize)> {
        let all = self.slots.iter().enumerate();
        let strangers = all.filter_map(|(at, slot)| {
            let connection = slot.as_ref()?;
            matches!(connection.state, State::Reading(_, None)).then_some((connection.came_at, at))
        });
        strangers.min()
    }

    fn accept(&mut self, now: Instant, registry: &Registry) {
        while let Some(slot) = self.slot(now) {
            let Some(Stream::Port(socket)) = self.listener.accept(now) else { return };
            let _ = socket.set_nodelay(true);
            let connection = match &self.gate.tls {
                None => Ok(Client::Local(Stream::Port(socket))),
                Some(tls) => ServerConnection::new(Arc::clone(tls))
                    .map(|server| Client::ApiServer(Box::new(Tls::new(server, socket)))),
            };
            let token = Token(self.first.0 + 1 + slot);
            let opened = connection.map_err(|error| error.to_string()).and_then(|mut client| {
                let registered = client.register(registry, token);
                registered.map(|()| client).map_err(|error| error.to_string())
            });
            match opened {
                Ok(client) => self.slots[slot] = Some(Connection::new(client, now)),
                Err(error) => log::warn!("router: a connection cannot be served: {error}"),
            }
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let connections = self.slots.iter().flatten().filter_map(|it| match it.state {
            _ if it.is_ready => Some(Instant(0)),
            State::Waiting(..) => None,
            _ => Some(it.deadline),
        });
        let is_full = self.slots.iter().all(Option::is_some);
        let listener_at = match self.listener.wake_at() {
            Some(at) if is_full => {
                let room_at = self.oldest_stranger().map(|(at, _)| at.plus_ms(ROUTER_STRANGER_MS));
                room_at.map(|room_at| room_at.max(at))
            }
            at => at,
        };
        connections.chain(listener_at).min()
    }
}

impl Connection {
    fn new(client: Client, now: Instant) -> Self {
        Self {
            client,
            state: State::Reading(Vec::new(), None),
            came_at: now,
            deadline: now.plus_ms(ROUTER_HEAD_MS),
            is_ready: true,
            held: 0,
            is_head: false,
        }
    }

    fn advance(&mut self, context: &mut Context<'_>) {
        self.client.begin_turn();
        match &mut self.state {
            State::Reading(..) => self.read(context),
            State::Waiting(..) => self.watch(context.events),
            State::Writing(..) => self.send(context.now),
            State::Closing(_) => self.drain(),
            State::Over => {}
        }
    }

    /// Reads what has come, within a turn's bytes; `None`: the client has left.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let (mut bytes, mut buffer) = (Vec::new(), [0; READ_BYTES]);
        while bytes.len() < ROUTER_TURN_BYTES {
            match self.client.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_ready = self.client.has_more();
                    return Some(bytes);
                }
                Err(_) => return None,
            }
        }
        self.is_ready = true;
        Some(bytes)
    }

    fn read(&mut self, context: &mut Context<'_>) {
        let Some(more) = self.receive() else { return self.state = State::Over };
        // The handshake may have an answer.
        if self.client.push().is_err() {
            return self.state = State::Over;
        }
        let State::Reading(bytes, pending) = &mut self.state else { return };
        bytes.extend_from_slice(&more);
        if pending.is_none() {
            let (known, max) = (context.held, ROUTER_BODIES_BYTES_MAX);
            match admit(bytes, context.gate, max - known) {
                Ok(None) => return,
                Ok(Some((admitted, continues))) => {
                    self.held = admitted.body_bytes;
                    self.is_head = &*admitted.request.method == "HEAD";
                    self.deadline = context.now.plus_ms(ROUTER_CLIENT_MS);
                    *pending = Some(admitted);
                    if continues {
                        // It fits into the socket's buffer.
                        let _ = self.client.write(b"HTTP/1.1 100 Continue\r\n\r\n");
                        let _ = self.client.push();
                    }
                }
                Err(Refused { status, why }) => {
                    return self.write(context.now, answer(&refusal(status, &why), true));
                }
            }
        }
        let State::Reading(bytes, Some(pending)) = &mut self.state else { return };
        let end = pending.head_bytes + pending.body_bytes;
        if bytes.len() < end {
            return;
        }
        bytes.truncate(end);
        let mut request = std::mem::take(&mut *pending.request);
        request.body = bytes.split_off(pending.head_bytes);
        *context.last += 1;
        let id = RestId(*context.last);
        self.state = State::Waiting(id, 0);
        let event = RouterEvent::Request(id, Box::new(request));
        context.events.push(Event::Router(Box::new(event)));
    }

    /// The core has the request: whether the client is still there.
    fn watch(&mut self, events: &mut Vec<Event>) {
        let more = self.receive();
        let State::Waiting(id, count) = &mut self.state else { return };
        let stays = more.is_some_and(|more| {
            *count += more.len();
            *count <= HTTP_CLOSE_BYTES_MAX
        });
        if !stays {
            events.push(Event::Router(Box::new(RouterEvent::Gone(*id))));
            self.state = State::Over;
        }
    }

    fn write(&mut self, now: Instant, bytes: Vec<u8>) {
        self.state = State::Writing(bytes, 0);
        self.deadline = now.plus_ms(ROUTER_CLIENT_MS);
        self.is_ready = true;
    }

    fn send(&mut self, now: Instant) {
        let State::Writing(bytes, sent) = &mut self.state else { return };
        let mut left = ROUTER_TURN_BYTES;
        while *sent < bytes.len() {
            if left == 0 {
                return self.is_ready = true;
            }
            let end = bytes.len().min(*sent + left);
            match self.client.write(&bytes[*sent..end]) {
                Ok(count) => (*sent, left) = (*sent + count, left - count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.state = State::Over,
            }
        }
        match self.client.push() {
            Ok(true) if self.client.shutdown_write().is_ok() => {}
            Ok(false) => return,
            Ok(true) | Err(_) => return self.state = State::Over,
        }
        (self.state, self.is_ready) = (State::Closing(0), true);
        self.deadline = now.plus_ms(HTTP_CLOSE_MS);
    }

    fn drain(&mut self) {
        let more = self.receive();
        let State::Closing(count) = &mut self.state else { return };
        let goes_on = more.is_some_and(|more| {
            *count += more.len();
            *count <= HTTP_CLOSE_BYTES_MAX
        });
        if !goes_on {
            self.state = State::Over;
        }
    }
}

/// The request whose head is there, if it may be made; and whether its client waits to be told to
/// send the body. `room`: bytes that its body may have.
fn admit(bytes: &[u8], gate: &Gate, room: usize) -> Result<Option<(Pending, bool)>, Refused> {
    let Some((call, head_bytes, body_bytes)) = head(bytes, ROUTER_BODY_BYTES_MAX)? else {
        return Ok(None);
    };
    let refused = |status, why: &str| Refused { status, why: why.to_owned() };
    if !token::is_valid(&gate.token, bearer(&call)) {
        return Err(refused(401, "got no valid token, expected Authorization: Bearer TOKEN"));
    }
    if body_bytes > room {
        return Err(refused(503, "the bodies of all requests have too many bytes: try again"));
    }
    let request = Box::new(read_request(&call)?);
    let continues =
        call.has_word("expect", "100-continue") && bytes.len() < head_bytes + body_bytes;
    Ok(Some((Pending { request, head_bytes, body_bytes }, continues)))
}

/// An answer of the entry itself: one line of text.
fn refusal(status: u16, why: &str) -> ServiceAnswer {
    let mut headers = vec![
        ("Content-Type".into(), "text/plain; charset=utf-8".into()),
        ("Server".into(), "edgecontroller".into()),
    ];
    if status == 401 {
        headers.push(("WWW-Authenticate".into(), "Bearer".into()));
    }
    ServiceAnswer { status, headers, body: why.as_bytes().to_vec() }
}

const READ_BYTES: usize = 16 << 10;
