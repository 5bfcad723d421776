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
mod identity;
mod keys;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use mio::event::Event as Ready;
use mio::{Registry, Token};
use rustls::ServerConnection;

use super::link::{self, Link};
use super::socket::{Address, Listener, Stream};
#[cfg(feature = "streams")]
use super::streams::{Handover, Opening};
use super::tls::Tls;
use super::transport::Transport;
use crate::agent::event::Event;
use crate::agent::time::{Instant, Now, sooner};
use crate::config::Config;
use crate::limits::{
    HTTP_LISTEN_RETRY_MS, METASERVER_ADDRESS_MAX, METASERVER_CLIENTS_MAX, METASERVER_LINK_MS,
    METASERVER_QUEUES_MAX, METASERVER_READING_BYTES_MAX, METASERVER_SIDE_MIN,
    METASERVER_TURN_ACCEPTS,
};
use crate::model::metaserver::{
    Authorization, Call, Caller, ClientId, InCluster, MetaServerSettings, Reply,
};
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
use identity::Identity;
use keys::Keys;

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

/// The authenticated form.
#[derive(Debug)]
struct Secure {
    identity: Option<Identity>,
    keys: Keys,
    link: Link,
    /// Where pods reach it, once the link holds its address; its token is the last one.
    for_pods: Listener,
    /// The link holds the address.
    is_held: bool,
    /// When what has failed is tried again.
    retry_at: Instant,
    logged: Option<String>,
    /// What the core knows of it.
    reported: bool,
    folder: std::path::PathBuf,
}

impl Secure {
    fn new(settings: &MetaServerSettings, folder: &Path, first: Token) -> Self {
        let token = Token(first.0 + 1 + METASERVER_CLIENTS_MAX);
        let address = Address::Port(settings.authorization.dummy);
        Self {
            identity: None,
            keys: Keys::read(&settings.authorization),
            link: Link::new(link::METASERVER),
            for_pods: Listener::new(address, "MetaServer for pods", token),
            is_held: false,
            retry_at: Instant(0),
            logged: None,
            reported: false,
            folder: folder.to_owned(),
        }
    }

    /// Makes the certificate and the link, if they are missing.
    fn prepare(&mut self, now: Instant, settings: &MetaServerSettings) {
        if now < self.retry_at {
            return;
        }
        let (server, dummy) = (settings.server.ip(), settings.authorization.dummy.ip());
        let mut trouble = None;
        if self.identity.is_none() {
            match Identity::open(&self.folder, &[server, dummy]) {
                Ok(identity) => self.identity = Some(identity),
                Err(why) => trouble = Some(why.to_string()),
            }
        }
        if let IpAddr::V4(dummy) = dummy {
            match self.link.hold(&[dummy].into_iter().collect()) {
                Ok(()) => self.is_held = true,
                Err(fault) => {
                    self.is_held = false;
                    trouble = Some(fault.to_string());
                }
            }
        }
        let wait_ms = if trouble.is_some() { HTTP_LISTEN_RETRY_MS } else { METASERVER_LINK_MS };
        self.retry_at = now.plus_ms(wait_ms);
        if let Some(why) = trouble.as_ref().filter(|_| trouble != self.logged) {
            log::warn!("MetaServer cannot serve pods: {why}");
        }
        self.logged = trouble;
    }

    /// `has_room`: there is room for one more connection.
    fn wake_at(&self, has_room: bool) -> Option<Instant> {
        let is_ready = self.identity.is_some() && self.is_held && has_room;
        let listener = self.for_pods.wake_at().filter(|_| is_ready);
        sooner(Some(self.retry_at), listener)
    }

    /// Tells the core where pods reach it, when that has changed.
    fn report(&mut self, events: &mut Vec<Event>) {
        let bound = self.for_pods.bound().filter(|_| self.is_held);
        let place = bound.zip(self.identity.as_ref());
        if place.is_some() != self.reported {
            self.reported = place.is_some();
            let place = place.map(|(address, identity)| {
                Box::new(InCluster { address, certificate: identity.certificate.clone() })
            });
            events.push(Event::InCluster(place));
        }
    }
}

impl MetaServer {
    pub fn new(config: &Config, first: Token) -> Self {
        let settings = config.metaserver.settings().filter(|_| config.cloud.is_configured());
        let listener = settings
            .map(|settings| Listener::new(Address::Port(settings.server), "MetaServer", first));
        let count = if listener.is_some() { METASERVER_CLIENTS_MAX } else { 0 };
        let secure = settings.filter(|settings| settings.requires_authorization).map(|settings| {
            let link = config.link();
            let folder = Path::new(&link.cert_file).parent().unwrap_or(Path::new("/"));
            Secure::new(settings, folder, first)
        });
        if secure.is_none()
            && let Err(why) = Link::new(link::METASERVER).remove()
        {
            log::debug!("the link of an earlier MetaServer: {why}");
        }
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
        if let Some(secure) = &mut self.secure {
            secure.for_pods.retry();
            secure.retry_at = Instant(0);
        }
    }

    pub fn ready(&mut self, ready: &Ready) {
        let at = ready.token().0 - self.first.0;
        if at == 0 {
            self.listener.iter_mut().for_each(Listener::ready);
        } else if at == METASERVER_CLIENTS_MAX + 1 {
            self.secure.iter_mut().for_each(|secure| secure.for_pods.ready());
        } else if let Some(Some(connection)) = self.connections.get_mut(at - 1) {
            connection.ready(ready);
        }
    }

    /// Listens, accepts, and reads requests.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let Some(listener) = &mut self.listener else { return };
        if let Some(secure) = &mut self.secure {
            secure.prepare(now, &self.settings);
            if secure.identity.is_some() && secure.is_held {
                secure.for_pods.listen(
                    now,
                    registry,
                    |_, _| "choose another with modules.metaManager.metaServer.dummyServer",
                );
            }
            secure.report(events);
        }
        if self.secure.as_ref().is_none_or(|secure| secure.identity.is_some()) {
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
                    Some(secure) if connection.is_tls() => secure.keys.caller(call),
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
        let listener = &mut self.secure.as_mut().filter(|_| for_pods)?.for_pods;
        loop {
            let stream = listener.accept(now)?;
            let Stream::Port(socket) = &stream else { continue };
            // One that has left again has no address any more.
            let Ok(peer) = socket.peer_addr() else { continue };
            return Some((stream, Side::Pods(peer.ip().to_canonical())));
        }
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
        let Some(secure) = &self.secure else { return Some(Transport::Plain(stream)) };
        let config = secure.identity.as_ref()?.config.clone();
        let Stream::Port(socket) = stream else { return None };
        match ServerConnection::new(config) {
            Ok(connection) => Some(Transport::Tls(Box::new(Tls::new(connection, socket)))),
            Err(error) => {
                log::warn!("MetaServer cannot begin TLS: {error}");
                None
            }
        }
    }

    /// When to call [`MetaServer::tick`] and [`MetaServer::flush`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        let (loopback_has_room, pods_have_room) = self.room();
        let is_ready = self.secure.as_ref().is_none_or(|secure| secure.identity.is_some());
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

/// The files of keys that cannot be read, and why.
pub fn trouble_of_keys(settings: &Authorization) -> Vec<String> {
    Keys::read_all(settings).1
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
