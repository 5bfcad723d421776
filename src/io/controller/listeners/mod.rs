//! The ports for nodes: for websockets, for certificates, for stream tunnels; and the one for
//! kube-apiserver, which takes it for those of kubelets.
//!
//! ```text
//!  10000  TLS, certificate required ─▶ head ─▶ EdgeUp ─▶ Accept ─▶ EdgeMessage*, EdgeDrained*
//!                                                   └──▶ Refuse ─▶ the answer, and gone
//!  10002  TLS, certificate optional ─▶ request ─▶ Asked ─▶ Answer ─▶ gone
//!  10004  TLS, certificate required ─▶ head ─▶ TunnelUp ─▶ AcceptTunnel ─▶ handed over
//!                                                   └──▶ RefuseTunnel ─▶ the answer, and gone
//!  10003  TLS, certificate optional ─▶ request ─▶ handed over, or an answer, and gone
//! ```
//!
//! Thousands of connections share one turn, so a turn serves a bounded number of them, each for a
//! bounded amount; the others wait in a queue for the next turn. A peer that is slow to shake
//! hands, to send or to read is disconnected, and does not affect others. An idle connection has no
//! buffer of ours. The core decides what a peer may do.
//!
//! **If we crash here** every node connects again.

mod ask;
mod connection;
mod strangers;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use mio::event::Event as Ready;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use rustls::{ServerConfig, ServerConnection};

use super::authority::Authority;
use super::callers::Callers;
use super::client::{Asked, Client};
use crate::controller::event::{Answer, Event, Exchange, Refusal, Tunnel};
use crate::controller::time::{Instant, Now};
use crate::io::controller::keepalive;
use crate::io::log::Limit;
use crate::io::tls::Tls;
use crate::limits::{
    EDGE_ACCEPTS_PER_TURN, EDGE_CONNECTIONS_MAX, EDGE_CONNECTIONS_PER_TURN,
    EDGE_HTTPS_CONNECTIONS_MAX, EDGE_LISTEN_RETRY_MS,
};
use crate::model::cloud_message::CloudMessage;
use crate::model::link::Session;
use crate::wire::http1::call::Call;
use connection::{Connection, Next};
use strangers::{RefusalReason, Room, Strangers};
use waiting::Waiting;

/// The port of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Websockets.
    Hub,
    /// Certificates.
    Https,
    /// Stream tunnels.
    Tunnel,
    /// Requests of kube-apiserver to kubelets.
    ApiServer,
}

/// A connection whose upgrade to a stream tunnel was granted. It is not registered any more.
#[derive(Debug)]
pub(in crate::io) struct Upgraded {
    pub(in crate::io) tls: Tls,
    /// The answer to the upgrade, which was not sent.
    pub(in crate::io) grant: Vec<u8>,
    /// What was received after the request.
    pub(in crate::io) tail: Vec<u8>,
}

/// Whom the ports trust.
#[derive(Clone, Copy, Debug)]
pub struct Trust<'a> {
    /// Of nodes.
    pub authority: &'a Authority,
    /// In the place of kube-apiserver.
    pub callers: &'a Callers,
}

#[derive(Debug)]
pub struct Ports {
    hub: Listener,
    https: Listener,
    /// `None`: it is off.
    tunnel: Option<Listener>,
    /// `None`: it is off.
    api_server: Option<Listener>,
    /// kube-apiserver's requests, until they are taken.
    asked: Vec<Asked>,
    first: Token,
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// The slot of each session and each exchange.
    sessions: BTreeMap<Session, usize>,
    exchanges: BTreeMap<Exchange, usize>,
    /// The slot of each connection that waits for a tunnel.
    tunnels: BTreeMap<Tunnel, usize>,
    /// The next name of a session, an exchange or a tunnel: never used twice.
    next_name: u64,
    /// Connections with something to do, in order of their events; each is in it once.
    busy: VecDeque<usize>,
    due: BTreeSet<(Instant, usize)>,
    strangers: Strangers,
    /// The number of connections of the certificate port.
    https_connections: usize,
}

#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    socket: Option<TcpListener>,
    /// There may be connections that epoll will not report again.
    waiting: bool,
    retry_at: Instant,
    limit: Limit,
    /// Accepted connections that wait for a slot.
    queue: Waiting<TcpStream>,
}

impl Listener {
    fn new(address: SocketAddr, tls: Arc<ServerConfig>) -> Self {
        let (socket, retry_at, limit) = (None, Instant(0), Limit::default());
        Self { address, tls, socket, waiting: false, retry_at, limit, queue: Waiting::default() }
    }

    /// The next connection from the kernel, if there is one.
    fn take(&mut self, now: Instant) -> Option<(TcpStream, SocketAddr)> {
        let socket = self.socket.as_ref().filter(|_| self.waiting)?;
        loop {
            match socket.accept() {
                Ok(accepted) => return Some(accepted),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.waiting = false;
                    return None;
                }
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                // Most likely there are no descriptors: the open connections stay.
                Err(error) => {
                    if let Some(repeats) = self.limit.pass(now) {
                        log::error!("cannot accept a connection: {error}; repeats={repeats}");
                    }
                    (self.socket, self.waiting) = (None, false);
                    self.retry_at = now.plus_ms(EDGE_LISTEN_RETRY_MS);
                    return None;
                }
            }
        }
    }

    fn listen(&mut self, token: Token, now: Instant, registry: &Registry) {
        if self.socket.is_some() || now < self.retry_at {
            return;
        }
        self.retry_at = now.plus_ms(EDGE_LISTEN_RETRY_MS);
        let opened = TcpListener::bind(self.address).and_then(|mut listener| {
            registry.register(&mut listener, token, Interest::READABLE)?;
            Ok(listener)
        });
        match opened {
            Ok(listener) => {
                log::info!("listening on {}", listener.local_addr().unwrap_or(self.address));
                (self.socket, self.waiting) = (Some(listener), true);
            }
            Err(error) => {
                if let Some(repeats) = self.limit.pass(now) {
                    log::error!("cannot listen on {}: {error}; repeats={repeats}", self.address);
                }
            }
        }
    }
}

impl Ports {
    /// [`Ports::tick`] listens. This token and all after it are ours.
    pub fn new(
        hub: (SocketAddr, Arc<ServerConfig>),
        https: (SocketAddr, Arc<ServerConfig>),
        tunnel: Option<(SocketAddr, Arc<ServerConfig>)>,
        api_server: Option<(SocketAddr, Arc<ServerConfig>)>,
        first: Token,
    ) -> Self {
        let listener = |(address, tls)| Listener::new(address, tls);
        Self {
            hub: Listener::new(hub.0, hub.1),
            https: Listener::new(https.0, https.1),
            tunnel: tunnel.map(listener),
            api_server: api_server.map(listener),
            asked: Vec::new(),
            first,
            slots: Vec::new(),
            free: Vec::new(),
            sessions: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            tunnels: BTreeMap::new(),
            next_name: 1,
            busy: VecDeque::new(),
            due: BTreeSet::new(),
            strangers: Strangers::default(),
            https_connections: 0,
        }
    }

    pub fn ready(&mut self, ready: &Ready) {
        match ready.token().0 - self.first.0 {
            0 => self.hub.waiting = true,
            1 => self.https.waiting = true,
            2 => {
                if let Some(listener) = &mut self.tunnel {
                    listener.waiting = true;
                }
            }
            3 => {
                if let Some(listener) = &mut self.api_server {
                    listener.waiting = true;
                }
            }
            slot => self.rouse(slot - LISTENERS),
        }
    }

    /// Accepts connections and continues those with something to do.
    pub fn tick(
        &mut self,
        now: Now,
        registry: &Registry,
        trust: Trust<'_>,
        events: &mut Vec<Event>,
    ) {
        self.strangers.begin_turn(now.boot);
        self.hub.listen(self.first, now.boot, registry);
        self.https.listen(Token(self.first.0 + 1), now.boot, registry);
        if let Some(listener) = &mut self.tunnel {
            listener.listen(Token(self.first.0 + 2), now.boot, registry);
        }
        if let Some(listener) = &mut self.api_server {
            listener.listen(Token(self.first.0 + 3), now.boot, registry);
        }
        for door in self.doors() {
            self.accept(door, now.boot, registry, events);
        }
        while let Some((_, slot)) = self.due.first().filter(|(at, _)| *at <= now.boot).copied() {
            self.settle(slot, None);
            self.rouse(slot);
        }
        for _ in 0..self.busy.len().min(EDGE_CONNECTIONS_PER_TURN) {
            let Some(slot) = self.busy.pop_front() else { break };
            let Some(connection) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
                continue;
            };
            connection.queued = false;
            let next = connection.turn(now, trust, &mut self.next_name, events);
            if let Next::Asked(tls, call, rest) = next {
                self.take_asked(slot, (*tls, *call, rest), registry);
            } else {
                self.follow(slot, next, events);
            }
        }
    }

    /// Writes queued messages, at the end of a turn. For connections that cannot take more now,
    /// an event follows when they can.
    pub fn flush(&mut self, now: Instant, dirty: &mut Vec<Session>, events: &mut Vec<Event>) {
        dirty.sort_unstable();
        dirty.dedup();
        for session in dirty.drain(..) {
            let Some(slot) = self.sessions.get(&session).copied() else { continue };
            let Some(connection) = &mut self.slots[slot] else { continue };
            let next = connection.flush(now, events);
            self.follow(slot, next, events);
        }
    }

    /// When to call [`Ports::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        let waits = |listener: &Listener| listener.waiting && listener.socket.is_some();
        let listeners = || {
            let both = [(Door::Hub, &self.hub), (Door::Https, &self.https)];
            let tunnel = self.tunnel.as_ref().map(|it| (Door::Tunnel, it));
            let api_server = self.api_server.as_ref().map(|it| (Door::ApiServer, it));
            both.into_iter().chain(tunnel).chain(api_server)
        };
        if !self.busy.is_empty() || listeners().any(|(_, listener)| waits(listener)) {
            return Some(Instant(0));
        }
        let retry = listeners()
            .filter(|(_, listener)| listener.socket.is_none())
            .map(|(_, listener)| listener.retry_at);
        let room_at = listeners().filter_map(|(door, listener)| {
            let (_, end_at) = listener.queue.first()?;
            Some(end_at.min(self.strangers.room_at(door)))
        });
        self.due.first().map(|(at, _)| *at).into_iter().chain(retry).chain(room_at).min()
    }

    pub fn accept_session(&mut self, session: Session) {
        self.with_session(session, Connection::accept);
    }

    /// Answers the upgrade with this refusal and closes.
    pub fn refuse(&mut self, session: Session, refusal: &Refusal) {
        let answer = ask::refusal(refusal.status, &refusal.body);
        self.with_session(session, |connection| connection.answer(answer));
        self.sessions.remove(&session);
    }

    /// Queues a message.
    pub fn send(&mut self, session: Session, message: &CloudMessage, events: &mut Vec<Event>) {
        let Some(slot) = self.sessions.get(&session).copied() else { return };
        let Some(connection) = &mut self.slots[slot] else { return };
        if let Err(end) = connection.send(message) {
            self.follow(slot, Next::End(connection::end_reason(end)), events);
        }
    }

    /// Ends a session without an event.
    pub fn close(&mut self, session: Session, why: &str) {
        let Some(slot) = self.sessions.remove(&session) else { return };
        log::debug!("session={} closed: {why}", session.0);
        if let Some(mut connection) = self.release(slot) {
            connection.send_close();
        }
    }

    /// Answers a request on the HTTPS port.
    pub fn answer(&mut self, exchange: Exchange, answer: &Answer) {
        let Some(slot) = self.exchanges.remove(&exchange) else { return };
        let Some(connection) = &mut self.slots[slot] else { return };
        connection.answer(ask::answer(answer.status, &answer.body));
        self.rouse(slot);
    }

    /// Answers the upgrade to a tunnel with this refusal and closes.
    pub fn refuse_tunnel(&mut self, tunnel: Tunnel, refusal: &Refusal) {
        let Some(slot) = self.tunnels.remove(&tunnel) else { return };
        let Some(connection) = &mut self.slots[slot] else { return };
        connection.answer(ask::refusal(refusal.status, &refusal.body));
        self.rouse(slot);
    }

    /// Hands a connection over that waits for a tunnel; `None`: it has ended.
    pub(in crate::io) fn hand_over(
        &mut self,
        tunnel: Tunnel,
        registry: &Registry,
    ) -> Option<Upgraded> {
        let slot = self.tunnels.remove(&tunnel)?;
        let mut upgraded = self.release(slot)?.into_upgraded()?;
        upgraded.tls.deregister(registry).ok()?;
        Some(upgraded)
    }

    /// The requests of kube-apiserver since the last call.
    pub(in crate::io) fn asked(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked)
    }

    fn take_asked(&mut self, slot: usize, asked: (Tls, Call, Vec<u8>), registry: &Registry) {
        let (mut tls, call, rest) = asked;
        drop(self.release(slot));
        match tls.deregister(registry) {
            Ok(()) => {
                let client = Client::ApiServer(Box::new(tls));
                self.asked.push(Asked { client, call, rest });
            }
            Err(error) => log::warn!("cannot hand a connection over: {error}"),
        }
    }

    /// Ends all sessions, and accepts no more connections.
    pub fn shut(&mut self) {
        for slot in std::mem::take(&mut self.slots).into_iter().flatten() {
            let mut connection = slot;
            connection.send_close();
        }
        (self.hub.socket, self.https.socket) = (None, None);
        (self.tunnel, self.api_server) = (None, None);
    }

    /// The current number of connections of all ports, without tunnels.
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Connections that were refused before authentication: the reason, and their number.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.strangers.counts()
    }

    fn with_session(&mut self, session: Session, act: impl FnOnce(&mut Connection)) {
        let Some(slot) = self.sessions.get(&session).copied() else { return };
        let Some(connection) = &mut self.slots[slot] else { return };
        act(connection);
        self.rouse(slot);
    }

    fn rouse(&mut self, slot: usize) {
        if let Some(Some(connection)) = self.slots.get_mut(slot)
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.busy.push_back(slot);
        }
    }

    /// Handles the result of a connection's turn.
    fn follow(&mut self, slot: usize, next: Next, events: &mut Vec<Event>) {
        let due = self.slots[slot].as_ref().and_then(Connection::wake_at);
        if let Some(connection) = &mut self.slots[slot] {
            if !connection.is_stranger() {
                self.strangers.left(connection.door, connection.came_at, slot);
            } else if connection.has_received {
                self.strangers.received(connection.door, connection.came_at, slot);
            }
            if let Some(why) = connection.refused.take() {
                self.strangers.refused(RefusalReason::Request, connection.peer, &why);
            }
        }
        match next {
            Next::Wait => self.settle(slot, due),
            Next::More => {
                self.settle(slot, due);
                self.rouse(slot);
            }
            Next::Session(session) => {
                self.sessions.insert(session, slot);
                self.settle(slot, due);
            }
            Next::Exchange(exchange) => {
                self.exchanges.insert(exchange, slot);
                self.settle(slot, due);
            }
            Next::Tunnel(tunnel) => {
                self.tunnels.insert(tunnel, slot);
                self.settle(slot, due);
            }
            Next::Asked(..) => unreachable!("only a turn brings one, and it was handed over"),
            Next::End(why) => {
                let Some(mut connection) = self.release(slot) else { return };
                log::debug!("peer={} is gone: {why}", connection.peer);
                if let Some(session) = connection.session()
                    && self.sessions.remove(&session).is_some()
                {
                    events.push(Event::EdgeDown(session, why.clone()));
                }
                if let Some(exchange) = connection.exchange() {
                    self.exchanges.remove(&exchange);
                }
                if let Some(tunnel) = connection.tunnel()
                    && self.tunnels.remove(&tunnel).is_some()
                {
                    events.push(Event::TunnelDown(tunnel, why));
                }
                connection.send_close();
            }
            Next::Refused(kind, why) => {
                let Some(mut connection) = self.release(slot) else { return };
                self.strangers.refused(kind, connection.peer, &why);
                connection.send_close();
            }
        }
    }

    /// Stores when a connection is due.
    fn settle(&mut self, slot: usize, due: Option<Instant>) {
        let Some(connection) = &mut self.slots[slot] else { return };
        if connection.due == due {
            return;
        }
        if let Some(before) = std::mem::replace(&mut connection.due, due) {
            self.due.remove(&(before, slot));
        }
        self.due.extend(due.map(|at| (at, slot)));
    }

    fn release(&mut self, slot: usize) -> Option<Connection> {
        self.settle(slot, None);
        let connection = self.slots[slot].take()?;
        self.strangers.left(connection.door, connection.came_at, slot);
        self.https_connections -= usize::from(connection.door == Door::Https);
        self.free.push(slot);
        Some(connection)
    }

    /// Gives slots to connections that wait for one, then to new ones.
    fn accept(&mut self, door: Door, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        for _ in 0..EDGE_ACCEPTS_PER_TURN {
            let Some((peer, end_at)) = self.listener(door).queue.first() else { break };
            let is_late = end_at <= now;
            if !is_late && !self.make_room(door, peer, events) {
                break;
            }
            let Some((stream, peer)) = self.listener(door).queue.pop() else { break };
            if is_late {
                let why = "too many connections wait before it";
                self.strangers.refused(RefusalReason::Crowded, peer, why);
            } else {
                self.admit(door, stream, peer, now, registry);
            }
        }
        for _ in 0..EDGE_ACCEPTS_PER_TURN {
            let Some((stream, peer)) = self.listener(door).take(now) else { return };
            if self.make_room(door, peer, events) {
                self.admit(door, stream, peer, now, registry);
            } else if !self.listener(door).queue.push(stream, peer, now) {
                let why = "too many connections from its address wait";
                self.strangers.refused(RefusalReason::Crowded, peer, why);
            }
        }
    }

    /// Whether a connection from this peer gets a slot; another one may have to go for it.
    fn make_room(&mut self, door: Door, peer: SocketAddr, events: &mut Vec<Event>) -> bool {
        match self.strangers.room(door, peer) {
            Room::Free => true,
            Room::Instead(slot) => {
                let why = "others wait, and it has sent nothing".to_owned();
                self.follow(slot, Next::Refused(RefusalReason::Crowded, why), events);
                true
            }
            Room::None => false,
        }
    }

    fn admit(
        &mut self,
        door: Door,
        stream: TcpStream,
        peer: SocketAddr,
        now: Instant,
        registry: &Registry,
    ) {
        let limit = match door {
            Door::Hub | Door::Tunnel | Door::ApiServer => EDGE_CONNECTIONS_MAX,
            Door::Https => EDGE_HTTPS_CONNECTIONS_MAX,
        };
        let is_full = self.connections() >= EDGE_CONNECTIONS_MAX;
        if is_full || door == Door::Https && self.https_connections >= limit {
            self.strangers.refused(
                RefusalReason::Full,
                peer,
                &format!("there are {limit} connections"),
            );
            return;
        }
        let tls = Arc::clone(&self.listener(door).tls);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let token = Token(self.first.0 + LISTENERS + slot);
        match open(stream, token, (door, tls), registry) {
            Ok(tls) => {
                self.slots[slot] = Some(Connection::new(door, peer, tls, now));
                self.https_connections += usize::from(door == Door::Https);
                self.strangers.came(door, peer, now, slot);
                self.rouse(slot);
            }
            Err(error) => {
                self.free.push(slot);
                log::warn!("peer={peer} cannot be served: {error}");
            }
        }
    }

    fn listener(&mut self, door: Door) -> &mut Listener {
        match door {
            Door::Hub => &mut self.hub,
            Door::Https => &mut self.https,
            Door::Tunnel => self.tunnel.as_mut().expect(OFF),
            Door::ApiServer => self.api_server.as_mut().expect(OFF),
        }
    }

    fn doors(&self) -> impl Iterator<Item = Door> + use<> {
        let tunnel = self.tunnel.is_some().then_some(Door::Tunnel);
        let api_server = self.api_server.is_some().then_some(Door::ApiServer);
        [Door::Hub, Door::Https].into_iter().chain(tunnel).chain(api_server)
    }
}

fn open(
    mut stream: TcpStream,
    token: Token,
    (door, tls): (Door, Arc<ServerConfig>),
    registry: &Registry,
) -> io::Result<Tls> {
    // Messages are small, and each is answered separately.
    let _ = stream.set_nodelay(true);
    // A followed log may be silent for days, and its reader gone. Nodes send pings of their own.
    if door == Door::ApiServer {
        keepalive::probe(&stream)?;
    }
    registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
    let connection = ServerConnection::new(tls).map_err(io::Error::other)?;
    Ok(Tls::new(connection, stream))
}

/// The number of tokens before those of the slots.
const LISTENERS: usize = 4;
const OFF: &str = "a port that is off has no connections";

#[cfg(test)]
mod tests;
