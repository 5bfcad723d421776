//! The port of MetaServer: accepts connections, reads one request from each, and writes answers and
//! the events of watches as its client takes them.
//!
//! Everything has a bound: connections, bytes of requests, what waits for a client, and the time
//! that a client may take. A client that does not keep up is disconnected, and lists again.
//!
//! Any user of this machine can connect, so only a read-only part of the API without secrets is
//! served, unless the operator has said otherwise. A request from a web page does not get through
//! (`wire/http1`). With the feature gate `requireAuthorization` all of it is HTTPS, also on an
//! address that pods reach, and each client shows the token of a service account.
//!
//! **If we crash here** clients see a reset, and connect again.

mod connection;
#[cfg(feature = "metaserver-auth")]
mod secure;
#[cfg(not(feature = "metaserver-auth"))]
#[path = "secure/absent.rs"]
mod secure;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use super::socket::{Address, Listener, Stream};
#[cfg(feature = "streams")]
use super::streams::{Handover, Opening};
use super::transport::Transport;
use crate::agent::event::Event;
use crate::agent::time::{Instant, Now};
use crate::config::Config;
use crate::limits::{
    METASERVER_ADDRESS_MAX, METASERVER_CLIENTS_MAX, METASERVER_QUEUES_MAX,
    METASERVER_READING_BYTES_MAX, METASERVER_SIDE_MIN, METASERVER_TURN_ACCEPTS,
};
use crate::model::metaserver::{Call, Caller, ClientId, MetaServerSettings, Reply};
#[cfg(feature = "streams")]
use crate::model::stream::StreamRequest;
use crate::wire::http1::call::Call as HttpCall;
#[cfg(feature = "streams")]
use crate::wire::http1::is_of_upgrade;
#[cfg(feature = "streams")]
use crate::wire::metaserver::people;
use crate::wire::metaserver::reply::{self, Piece};
use crate::wire::metaserver::request::{self, Asked};
use connection::{Connection, Next, Side};
use secure::Secure;
pub use secure::trouble_of_keys;

/// The listeners and their connections.
#[derive(Debug)]
pub struct MetaServer {
    settings: MetaServerSettings,
    /// `None`: it is switched off.
    listener: Option<Listener>,
    /// What the authenticated form needs; `None`: nobody is asked who he is.
    secure: Option<Secure>,
    /// Its token; connection `n` has the token `n + 1` after it.
    first: Token,
    connections: Vec<Option<Connection>>,
    /// Requests since the start: parts of their ids.
    requests: u64,
}

impl MetaServer {
    pub fn new(config: &Config, first: Token) -> Self {
        let settings = config.metaserver.settings().filter(|_| config.cloud.is_configured());
        let listener = settings
            .map(|settings| Listener::new(Address::Port(settings.server), "MetaServer", first));
        let count = if listener.is_some() { METASERVER_CLIENTS_MAX } else { 0 };
        let secure = Secure::open(config, settings, first);
        Self {
            settings: settings.cloned().unwrap_or_default(),
            listener,
            secure,
            first,
            connections: std::iter::repeat_with(|| None).take(count).collect(),
            requests: 0,
        }
    }

    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..=self.first.0 + METASERVER_CLIENTS_MAX + 1).contains(&token.0)
    }

    /// Retries at once what failed before.
    pub fn retry(&mut self) {
        self.listener.iter_mut().for_each(Listener::retry);
        self.secure.iter_mut().for_each(Secure::retry);
    }

    pub fn ready(&mut self, ready: &Ready) {
        let at = ready.token().0 - self.first.0;
        if at == 0 {
            self.listener.iter_mut().for_each(Listener::ready);
        } else if at == METASERVER_CLIENTS_MAX + 1 {
            self.secure.iter_mut().for_each(Secure::ready);
        } else if let Some(Some(connection)) = self.connections.get_mut(at - 1) {
            connection.ready(ready);
        }
    }

    /// Listens, accepts, and reads requests.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let Some(listener) = &mut self.listener else { return };
        if let Some(secure) = &mut self.secure {
            secure.tick(now, &self.settings, registry, events);
        }
        if self.secure.as_ref().is_none_or(Secure::has_identity) {
            listener.listen(now, registry, |_, _| {
                "choose another with modules.metaManager.metaServer.server; the pods do not need it"
            });
        }
        let bound = listener.bound().unwrap_or(self.settings.server);
        self.accept(now, registry);
        let mut reading: usize =
            self.connections.iter().flatten().map(Connection::read_bytes).sum();
        for at in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[at] else { continue };
            let before = connection.read_bytes();
            let next = connection.read(
                now,
                bound,
                METASERVER_READING_BYTES_MAX - reading.min(METASERVER_READING_BYTES_MAX),
            );
            reading = reading + connection.read_bytes() - before;
            match next {
                Next::Wait => {}
                Next::End => self.end(at, registry, events),
                Next::Request(call, rest) => self.request(at, now, (&call, rest), events),
            }
        }
    }

    fn request(
        &mut self,
        at: usize,
        now: Instant,
        (call, rest): (&HttpCall, Vec<u8>),
        events: &mut Vec<Event>,
    ) {
        let Some(connection) = &mut self.connections[at] else { return };
        match request::read(call, &self.settings) {
            Ok(Asked::Known(kind, body)) => {
                connection.push(now, reply::whole(200, kind, "", &body));
            }
            Ok(Asked::Call(asked)) => {
                let caller = match &self.secure {
                    Some(secure) if connection.is_tls() => secure.caller(call),
                    Some(_) => Ok(Caller::Anonymous),
                    None => Ok(Caller::Local),
                };
                let caller = match caller {
                    Ok(caller) => caller,
                    Err(failure) => return connection.push(now, reply::refusal(&failure)),
                };
                self.requests += 1;
                let id = self.requests * METASERVER_CLIENTS_MAX as u64 + at as u64;
                connection.waits(ClientId(id));
                #[cfg(feature = "streams")]
                if let Call::Stream(request) = &asked {
                    connection.keep(opening(call, request, rest));
                }
                #[cfg(not(feature = "streams"))]
                drop(rest);
                events.push(opened(ClientId(id), asked, caller));
            }
            Err(failure) => connection.push(now, reply::refusal(&failure)),
        }
    }

    /// Takes a reply for a client; one that has left is ignored.
    pub fn reply(&mut self, now: Instant, id: ClientId, reply: Reply) {
        let at = (id.0 % METASERVER_CLIENTS_MAX as u64) as usize;
        let found = self.connections.get_mut(at).and_then(Option::as_mut);
        if let Some(connection) = found.filter(|it| it.client() == Some(id)) {
            connection.push(now, reply::pieces(reply));
        }
    }

    /// Gives away the connection of a client that may have what it asks for; `None`: it has left.
    #[cfg(feature = "streams")]
    pub fn hand_over(
        &mut self,
        id: ClientId,
        request: StreamRequest,
        registry: &Registry,
    ) -> Option<Handover> {
        let at = (id.0 % METASERVER_CLIENTS_MAX as u64) as usize;
        let slot = self.connections.get_mut(at)?;
        let mut connection = slot.take_if(|it| it.client() == Some(id))?;
        connection.leave(registry);
        let (stream, opening) = connection.give_away()?;
        Some(Handover { stream, opening: Opening { request, ..opening } })
    }

    /// Writes what clients take. `now`: its wall clock gives the ages in tables.
    pub fn flush(&mut self, now: Now, registry: &Registry, events: &mut Vec<Event>) {
        let now_s = now.wall.map(|wall| wall.0.div_euclid(1_000));
        let mut queued: usize = self.connections.iter().flatten().map(Connection::queued).sum();
        for at in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[at] else { continue };
            let before = connection.queued();
            let is_over = connection.write(now.boot, now_s);
            queued = queued - before + connection.queued();
            if is_over {
                queued -= connection.queued();
                self.end(at, registry, events);
            }
        }
        while queued > METASERVER_QUEUES_MAX {
            // The one that is furthest behind: it lists again.
            let length = |at: &usize| self.connections[*at].as_ref().map_or(0, Connection::queued);
            let Some(at) = (0..self.connections.len()).max_by_key(length) else { return };
            queued = queued.saturating_sub(length(&at).max(1));
            self.end(at, registry, events);
        }
    }

    fn end(&mut self, at: usize, registry: &Registry, events: &mut Vec<Event>) {
        let Some(mut connection) = self.connections[at].take() else { return };
        connection.leave(registry);
        if let Some(id) = connection.client() {
            events.push(closed(id));
        }
    }

    fn accept(&mut self, now: Instant, registry: &Registry) {
        for _ in 0..METASERVER_TURN_ACCEPTS {
            let Some(at) = self.connections.iter().position(Option::is_none) else {
                // The kernel keeps a few more until one ends.
                return;
            };
            let Some((stream, side)) = self.next_stream(now) else { return };
            if self.count(|it| it == side) >= METASERVER_ADDRESS_MAX && side != Side::Loopback {
                // Its own connections are in its way, and those of others are not in theirs.
                log::debug!("MetaServer closes a connection: {side:?} has as many as it may have");
                continue;
            }
            let Some(mut transport) = self.transport(stream) else { continue };
            match transport.register(registry, Token(self.first.0 + 1 + at)) {
                Ok(()) => self.connections[at] = Some(Connection::new(transport, side, now)),
                Err(error) => log::warn!("MetaServer cannot register a connection: {error}"),
            }
        }
    }

    /// The next connection of a side that has room.
    fn next_stream(&mut self, now: Instant) -> Option<(Stream, Side)> {
        let (for_loopback, for_pods) = self.room();
        if for_loopback && let Some(stream) = self.listener.as_mut()?.accept(now) {
            return Some((stream, Side::Loopback));
        }
        let (stream, ip) = self.secure.as_mut().filter(|_| for_pods)?.accept(now)?;
        Some((stream, Side::Pods(ip)))
    }

    /// Whether loopback, and pods, may have one more connection.
    fn room(&self) -> (bool, bool) {
        let is_full = self.connections.iter().all(Option::is_some);
        let most = if self.secure.is_some() {
            METASERVER_CLIENTS_MAX - METASERVER_SIDE_MIN
        } else {
            METASERVER_CLIENTS_MAX
        };
        let loopback = self.count(|side| side == Side::Loopback);
        let pods = self.count(|side| side != Side::Loopback);
        (!is_full && loopback < most, !is_full && pods < most)
    }

    fn count(&self, is_it: impl Fn(Side) -> bool) -> usize {
        self.connections.iter().flatten().filter(|it| is_it(it.side)).count()
    }

    /// `None`: it is not served.
    fn transport(&self, stream: Stream) -> Option<Transport> {
        match &self.secure {
            Some(secure) => secure.transport(stream),
            None => Some(Transport::Plain(stream)),
        }
    }

    /// When to call [`MetaServer::tick`] and [`MetaServer::flush`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        let (loopback_has_room, pods_have_room) = self.room();
        let is_ready = self.secure.as_ref().is_none_or(Secure::has_identity);
        let listener = self.listener.as_ref().filter(|_| is_ready && loopback_has_room);
        let listener = listener.and_then(Listener::wake_at);
        let secure = self.secure.as_ref();
        let for_pods = secure.and_then(|secure| secure.wake_at(pods_have_room));
        let listeners = listener.into_iter().chain(for_pods);
        self.connections.iter().flatten().map(Connection::wake_at).chain(listeners).min()
    }

    /// The address of the port, once it listens.
    pub fn bound(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(Listener::bound)
    }
}

/// What the streams of people need of a request.
#[cfg(feature = "streams")]
fn opening(call: &HttpCall, request: &StreamRequest, input: Vec<u8>) -> Opening {
    let headers = call.headers.iter().filter(|(name, _)| is_of_upgrade(name));
    Opening {
        request: request.clone(),
        form: people::form(request),
        method: call.method.clone(),
        headers: headers.cloned().collect(),
        input,
    }
}

fn opened(id: ClientId, call: Call, caller: Caller) -> Event {
    Event::MetaServerOpened(id, Box::new(call), caller)
}

fn closed(id: ClientId) -> Event {
    Event::MetaServerClosed(id)
}

/// The pieces of a connection's answer.
type Pieces = std::collections::VecDeque<Piece>;
