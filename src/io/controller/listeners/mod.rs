//! The two ports that nodes dial: websockets on the one, certificates on the other.
//!
//! ```text
//!  10000  TLS, certificate required ─▶ head ─▶ EdgeUp ─▶ Accept ─▶ EdgeMessage*, EdgeDrained*
//!                                                   └──▶ Refuse ─▶ the answer, and gone
//!  10002  TLS, certificate asked for ─▶ request ─▶ Asked ─▶ Answer ─▶ gone
//! ```
//!
//! Thousands of connections share one turn, so a turn works at a bounded number of them, each a
//! bounded part; the others wait in a queue for the next. Who is slow to shake hands, to ask or to
//! take what is sent is cut off, and harms nobody else. An idle connection has no buffer of ours.
//! Who may do what is the mind's to say.
//!
//! **If we crash here** every node dials again.

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
use crate::controller::event::{Answer, Event, Exchange, Refusal};
use crate::controller::time::{Instant, Now};
use crate::io::log::Limit;
use crate::io::tls::Tls;
use crate::limits::{
    EDGE_ACCEPTS_PER_TURN, EDGE_CONNECTIONS_MAX, EDGE_CONNECTIONS_PER_TURN,
    EDGE_HTTPS_CONNECTIONS_MAX, EDGE_LISTEN_RETRY_MS,
};
use crate::model::link::Session;
use crate::model::message::Message;
use connection::{Connection, Next};
use strangers::{Nonsense, Room, Strangers};
use waiting::Waiting;

/// Which port a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Websockets.
    Hub,
    /// Certificates.
    Https,
}

/// Both ports and all their connections.
#[derive(Debug)]
pub struct Ports {
    hub: Listener,
    https: Listener,
    first: Token,
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Where each session and each exchange is.
    sessions: BTreeMap<Session, usize>,
    exchanges: BTreeMap<Exchange, usize>,
    /// Names of both: never used twice.
    next_name: u64,
    /// Those with something to do, in the order in which it came up; each stands there once.
    busy: VecDeque<usize>,
    due: BTreeSet<(Instant, usize)>,
    strangers: Strangers,
    /// Connections of the port of certificates.
    desk_connections: usize,
}

#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    socket: Option<TcpListener>,
    /// There may be connections that no edge will tell of.
    waiting: bool,
    retry_at: Instant,
    limit: Limit,
    /// Those that came and have no place yet.
    queue: Waiting<TcpStream>,
}

impl Listener {
    fn new(address: SocketAddr, tls: Arc<ServerConfig>) -> Self {
        let (socket, retry_at, limit) = (None, Instant(0), Limit::default());
        Self { address, tls, socket, waiting: false, retry_at, limit, queue: Waiting::default() }
    }

    /// The next that the kernel has; `None`: there is none now.
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
                // No descriptors, most likely: the others are not given up for that.
                Err(error) => {
                    if let Some(kept) = self.limit.pass(now) {
                        log::error!("cannot take a connection: {error}; repeats={kept}");
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
                if let Some(kept) = self.limit.pass(now) {
                    log::error!("cannot listen on {}: {error}; repeats={kept}", self.address);
                }
            }
        }
    }
}

impl Ports {
    /// Listens nowhere yet; [`Ports::tick`] does. This token and all after it are ours.
    pub fn new(
        hub: (SocketAddr, Arc<ServerConfig>),
        https: (SocketAddr, Arc<ServerConfig>),
        first: Token,
    ) -> Self {
        Self {
            hub: Listener::new(hub.0, hub.1),
            https: Listener::new(https.0, https.1),
            first,
            slots: Vec::new(),
            free: Vec::new(),
            sessions: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            next_name: 1,
            busy: VecDeque::new(),
            due: BTreeSet::new(),
            strangers: Strangers::default(),
            desk_connections: 0,
        }
    }

    /// A socket has news.
    pub fn ready(&mut self, ready: &Ready) {
        match ready.token().0 - self.first.0 {
            0 => self.hub.waiting = true,
            1 => self.https.waiting = true,
            slot => self.rouse(slot - LISTENERS),
        }
    }

    /// Takes connections and goes on with those that have something to do.
    pub fn tick(
        &mut self,
        now: Now,
        registry: &Registry,
        authority: &Authority,
        events: &mut Vec<Event>,
    ) {
        self.strangers.begin_turn(now.boot);
        self.hub.listen(self.first, now.boot, registry);
        self.https.listen(Token(self.first.0 + 1), now.boot, registry);
        for door in [Door::Hub, Door::Https] {
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
            let next = connection.turn(now, authority, &mut self.next_name, events);
            self.follow(slot, next, events);
        }
    }

    /// Writes what was asked to be sent; the last thing in a turn. Connections that take no more
    /// now are told of when they do.
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
        if !self.busy.is_empty() || waits(&self.hub) || waits(&self.https) {
            return Some(Instant(0));
        }
        let retry = [&self.hub, &self.https]
            .into_iter()
            .filter(|listener| listener.socket.is_none())
            .map(|listener| listener.retry_at);
        let queued = [(Door::Hub, &self.hub), (Door::Https, &self.https)];
        let room_at = queued.into_iter().filter_map(|(door, listener)| {
            let (_, end_at) = listener.queue.first()?;
            Some(end_at.min(self.strangers.room_at(door)))
        });
        self.due.first().map(|(at, _)| *at).into_iter().chain(retry).chain(room_at).min()
    }

    /// Finishes the upgrade.
    pub fn accept_session(&mut self, session: Session) {
        self.with_session(session, Connection::accept);
    }

    /// Answers the upgrade by this and closes.
    pub fn refuse(&mut self, session: Session, refusal: &Refusal) {
        let answer = ask::refusal(refusal.status, &refusal.body);
        self.with_session(session, |connection| connection.answer(answer));
        self.sessions.remove(&session);
    }

    /// Puts a message behind those that wait.
    pub fn send(&mut self, session: Session, message: &Message, events: &mut Vec<Event>) {
        let Some(slot) = self.sessions.get(&session).copied() else { return };
        let Some(connection) = &mut self.slots[slot] else { return };
        if let Err(why) = connection.send(message) {
            self.follow(slot, Next::End(why), events);
        }
    }

    /// Ends a session; nothing is told of it.
    pub fn close(&mut self, session: Session, why: &str) {
        let Some(slot) = self.sessions.remove(&session) else { return };
        log::debug!("session={} closed: {why}", session.0);
        if let Some(mut connection) = self.release(slot) {
            connection.farewell();
        }
    }

    /// Answers a request on the HTTPS port.
    pub fn answer(&mut self, exchange: Exchange, answer: &Answer) {
        let Some(slot) = self.exchanges.remove(&exchange) else { return };
        let Some(connection) = &mut self.slots[slot] else { return };
        connection.answer(ask::answer(answer.status, &answer.body));
        self.rouse(slot);
    }

    /// Ends all sessions, and takes no more connections.
    pub fn shut(&mut self) {
        for slot in std::mem::take(&mut self.slots).into_iter().flatten() {
            let mut connection = slot;
            connection.farewell();
        }
        (self.hub.socket, self.https.socket) = (None, None);
    }

    /// Connections of both ports at the moment.
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Connections that were refused before anybody asked who it is: why, and how many.
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

    /// What comes of a connection's turn.
    fn follow(&mut self, slot: usize, next: Next, events: &mut Vec<Event>) {
        let due = self.slots[slot].as_ref().and_then(Connection::wake_at);
        if let Some(connection) = &mut self.slots[slot] {
            if !connection.is_stranger() {
                self.strangers.left(connection.door, connection.came_at, slot);
            } else if connection.is_heard {
                self.strangers.spoke(connection.door, connection.came_at, slot);
            }
            if let Some(why) = connection.refused.take() {
                self.strangers.refused(Nonsense::Request, connection.peer, &why);
            }
        }
        match next {
            Next::Wait => self.settle(slot, due),
            Next::Again => {
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
            Next::End(why) => {
                let Some(mut connection) = self.release(slot) else { return };
                log::debug!("peer={} is gone: {why}", connection.peer);
                if let Some(session) = connection.session()
                    && self.sessions.remove(&session).is_some()
                {
                    events.push(Event::EdgeDown(session, why));
                }
                if let Some(exchange) = connection.exchange() {
                    self.exchanges.remove(&exchange);
                }
                connection.farewell();
            }
            Next::Nonsense(kind, why) => {
                let Some(mut connection) = self.release(slot) else { return };
                self.strangers.refused(kind, connection.peer, &why);
                connection.farewell();
            }
        }
    }

    /// Remembers when a connection is due.
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
        self.desk_connections -= usize::from(connection.door == Door::Https);
        self.free.push(slot);
        Some(connection)
    }

    /// Gives those a place who wait for one, then those who have just come.
    fn accept(&mut self, door: Door, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        for _ in 0..EDGE_ACCEPTS_PER_TURN {
            let Some((peer, end_at)) = self.listener(door).queue.first() else { break };
            let is_late = end_at <= now;
            if !is_late && !self.make_room(door, peer, events) {
                break;
            }
            let Some((stream, peer)) = self.listener(door).queue.pop() else { break };
            if is_late {
                self.strangers.refused(Nonsense::Crowded, peer, "others were before it");
            } else {
                self.admit(door, stream, peer, now, registry);
            }
        }
        for _ in 0..EDGE_ACCEPTS_PER_TURN {
            let Some((stream, peer)) = self.listener(door).take(now) else { return };
            if self.make_room(door, peer, events) {
                self.admit(door, stream, peer, now, registry);
            } else if !self.listener(door).queue.push(stream, peer, now) {
                let why = "too many from its address wait";
                self.strangers.refused(Nonsense::Crowded, peer, why);
            }
        }
    }

    /// Whether one more from there has a place, for which another may have had to go.
    fn make_room(&mut self, door: Door, peer: SocketAddr, events: &mut Vec<Event>) -> bool {
        match self.strangers.room(door, peer) {
            Room::Free => true,
            Room::Instead(slot) => {
                let why = "others wait, and it has said nothing".to_owned();
                self.follow(slot, Next::Nonsense(Nonsense::Crowded, why), events);
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
        let most = match door {
            Door::Hub => EDGE_CONNECTIONS_MAX,
            Door::Https => EDGE_HTTPS_CONNECTIONS_MAX,
        };
        let is_full = self.connections() >= EDGE_CONNECTIONS_MAX;
        if is_full || door == Door::Https && self.desk_connections >= most {
            self.strangers.refused(Nonsense::Full, peer, &format!("there are {most} connections"));
            return;
        }
        let tls = Arc::clone(&self.listener(door).tls);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let token = Token(self.first.0 + LISTENERS + slot);
        match open(stream, token, tls, registry) {
            Ok(tls) => {
                self.slots[slot] = Some(Connection::new(door, peer, tls, now));
                self.desk_connections += usize::from(door == Door::Https);
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
        }
    }
}

fn open(
    mut stream: TcpStream,
    token: Token,
    tls: Arc<ServerConfig>,
    registry: &Registry,
) -> io::Result<Tls> {
    // Messages are small, and answered one by one.
    let _ = stream.set_nodelay(true);
    registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
    let connection = ServerConnection::new(tls).map_err(io::Error::other)?;
    Ok(Tls::new(connection, stream))
}

/// The tokens before those of the slots.
const LISTENERS: usize = 2;

#[cfg(test)]
mod tests;
