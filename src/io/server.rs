//! The local HTTP API: accepts a connection, reads one request, writes the answer, closes.
//!
//! Pods must never wait for it. So everything has a bound: the number of connections, bytes of a
//! request, bytes of unsent answers, the time that a client may take to send and to read, and the
//! work of one turn. A client that is too slow or sends too much is disconnected. A port that is in
//! use is logged once and tried again; the agent continues without it.
//!
//! Any user of this machine can connect to the port, so its answers hide values that may be secret
//! ([`redact`]). Only root can use the unix socket, which shows everything and for which some
//! connections are reserved.
//!
//! **If we crash here** the clients see a reset and send their request again; nothing is stored.

mod answer;
mod connection;
#[cfg(feature = "devices")]
mod devices;
#[cfg(feature = "streams")]
mod people;
mod process;
pub(super) mod redact;

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use super::socket::{Access, Address, Listener, Stream};
use super::streams::Handover;
#[cfg(feature = "streams")]
use super::transport::Transport;
use crate::agent::Agent;
use crate::agent::event::Event;
use crate::agent::time::{Instant, Now};
use crate::limits::{
    HTTP_ACCEPTS_PER_TURN, HTTP_CONNECTIONS_MAX, HTTP_PROTECTED_MIN, HTTP_UNSENT_BYTES_MAX,
};
use crate::wire::http1::{Method, Request, Response, Status};
use connection::{Connection, Next};

/// The listeners of the API and their connections.
#[derive(Debug)]
pub struct Server {
    /// The address of the port; for the `Host` of requests.
    address: SocketAddr,
    /// The port and the unix socket; empty: the API is off.
    listeners: Vec<Listener>,
    /// The port's token. Connection `n` has the token `n + 1` after it, the unix socket the last.
    first: Token,
    connections: [Option<Connection>; HTTP_CONNECTIONS_MAX],
    /// Of requests of people: see [`people`].
    #[cfg(feature = "streams")]
    is_open: bool,
    #[cfg(feature = "streams")]
    token: std::path::PathBuf,
}

impl Server {
    /// [`Server::tick`] opens the listeners. Port 0: neither of them is opened.
    pub fn new(address: SocketAddr, socket: &Path, first: Token) -> Self {
        let last = Token(first.0 + 1 + HTTP_CONNECTIONS_MAX);
        let mut listeners = Vec::new();
        if address.port() != 0 {
            let name = "the HTTP API";
            listeners.push(Listener::new(Address::Port(address), name, first));
            listeners.push(Listener::new(Address::Socket(socket.to_owned()), name, last));
        }
        Self {
            address,
            listeners,
            first,
            connections: [const { None }; HTTP_CONNECTIONS_MAX],
            #[cfg(feature = "streams")]
            is_open: false,
            #[cfg(feature = "streams")]
            token: socket.with_file_name(people::TOKEN),
        }
    }

    /// Whether requests of people may come through the port without a token.
    #[cfg(feature = "streams")]
    #[must_use]
    pub fn open_to_all(self, is_open: bool) -> Self {
        Self { is_open, ..self }
    }

    /// Whether the token belongs to a listener or a connection.
    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..=self.first.0 + 1 + HTTP_CONNECTIONS_MAX).contains(&token.0)
    }

    /// Retries at once what failed before: the configuration was reloaded.
    pub fn retry(&mut self) {
        self.listeners.iter_mut().for_each(Listener::retry);
    }

    pub fn ready(&mut self, ready: &Ready) {
        let at = ready.token().0 - self.first.0;
        if at.is_multiple_of(HTTP_CONNECTIONS_MAX + 1) {
            if let Some(listener) = self.listeners.get_mut(at.min(1)) {
                listener.ready();
            }
        } else if let Some(connection) = &mut self.connections[at - 1] {
            connection.ready(ready);
        }
    }

    /// Listens, accepts connections, answers and closes, as far as each is due. Returns the
    /// connections that are for [`super::streams`].
    pub fn tick(
        &mut self,
        now: Now,
        registry: &Registry,
        agent: &Agent,
        events: &mut Vec<Event>,
    ) -> Vec<Handover> {
        for at in 0..self.listeners.len() {
            self.listeners[at].listen(now.boot, registry, remedy);
            self.accept(at, now.boot, registry);
        }
        let mut handovers = Vec::new();
        for at in 0..HTTP_CONNECTIONS_MAX {
            let unsent = self.unsent_bytes();
            let Some(connection) = &mut self.connections[at] else { continue };
            let ended = match connection.turn(now.boot, self.address) {
                Next::Wait => false,
                Next::End => true,
                Next::Answer(request) => {
                    let bytes = match self.for_people(&request, at, registry) {
                        Some(Ok(handover)) => {
                            handovers.push(handover);
                            continue;
                        }
                        Some(Err(refusal)) => refusal,
                        None if request.method == Method::Post => {
                            let access = self.connections[at].as_ref().map(Connection::access);
                            let answer = match access {
                                Some(access) => post(&request.path, access, agent, events),
                                None => unknown(),
                            };
                            answer.bytes(Method::Post)
                        }
                        None if unsent >= HTTP_UNSENT_BYTES_MAX => busy().bytes(request.method),
                        None => {
                            let access = self.connections[at].as_ref().map(Connection::access);
                            let access = access.unwrap_or(Access::Public);
                            answer::to(&request.path, access, now, agent).bytes(request.method)
                        }
                    };
                    let connection = self.connections[at].as_mut();
                    connection.is_none_or(|connection| connection.answer(now.boot, bytes))
                }
            };
            if ended && let Some(mut connection) = self.connections[at].take() {
                connection.leave(registry);
            }
        }
        handovers
    }

    /// The connection of a request of a person, or the bytes of its refusal; `None`: it is another.
    #[cfg(feature = "streams")]
    fn for_people(
        &mut self,
        request: &Request,
        at: usize,
        registry: &Registry,
    ) -> Option<Result<Handover, Vec<u8>>> {
        let connection = self.connections[at].as_ref()?;
        let door = people::Door { is_open: self.is_open, token: &self.token };
        let rest = connection.rest(request.head_bytes);
        match people::opening(request, rest, connection.access(), &door)? {
            Ok(opening) => {
                let mut connection = self.connections[at].take()?;
                connection.leave(registry);
                let stream = Transport::Plain(connection.into_stream());
                Some(Ok(Handover { stream, opening }))
            }
            Err(refusal) => Some(Err(crate::wire::kubelet::answer::refusal(&refusal))),
        }
    }

    #[cfg(not(feature = "streams"))]
    #[expect(clippy::unused_self, reason = "as where they are built in")]
    fn for_people(
        &mut self,
        _: &Request,
        _: usize,
        _: &Registry,
    ) -> Option<Result<Handover, Vec<u8>>> {
        None
    }

    /// When to call [`Server::tick`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        let listeners = self.listeners.iter().filter_map(Listener::wake_at);
        self.connections.iter().flatten().map(Connection::wake_at).chain(listeners).min()
    }

    /// The address of the port, once it listens.
    pub fn bound(&self) -> Option<SocketAddr> {
        self.listeners.iter().find_map(Listener::bound)
    }

    fn unsent_bytes(&self) -> usize {
        self.connections.iter().flatten().map(Connection::unsent_bytes).sum()
    }

    fn accept(&mut self, listener: usize, now: Instant, registry: &Registry) {
        for _ in 0..HTTP_ACCEPTS_PER_TURN {
            let access = self.listeners[listener].access();
            let Some(mut stream) = self.listeners[listener].accept(now) else { return };
            let Some(at) = self.free(access) else {
                turn_away(&mut stream);
                continue;
            };
            match stream.register(registry, Token(self.first.0 + 1 + at)) {
                Ok(()) => self.connections[at] = Some(Connection::new(stream, access, now)),
                Err(error) => log::warn!("the HTTP API cannot register a connection: {error}"),
            }
        }
    }

    /// A free slot for a connection with this access, if there is one.
    fn free(&self, access: Access) -> Option<usize> {
        let public = |it: &&Connection| it.access() == Access::Public;
        let taken = self.connections.iter().flatten().filter(public).count();
        let full = taken >= HTTP_CONNECTIONS_MAX - HTTP_PROTECTED_MIN;
        let free = self.connections.iter().position(Option::is_none);
        free.filter(|_| access == Access::Protected || !full)
    }
}

fn remedy(address: &Address, error: &io::Error) -> &'static str {
    match (address, error.kind()) {
        (Address::Socket(_), _) => {
            "commands ask the port, which hides values of variables; the pods do not need it"
        }
        (Address::Port(_), ErrorKind::AddrInUse) => {
            "another program listens there (a second edged, or KubeEdge's edgecore?): stop it, or \
             choose another with --listen; the pods do not need it"
        }
        (Address::Port(_), ErrorKind::PermissionDenied) => {
            "only root may use ports below 1024: choose another with --listen; the pods do not \
             need it"
        }
        (Address::Port(_), ErrorKind::AddrNotAvailable) => {
            "no interface has this address: choose another with --listen; the pods do not need it"
        }
        (Address::Port(_), _) => "choose another with --listen; the pods do not need it",
    }
}

/// The answer to a request that came through the tunnel: the cloud may see everything.
#[cfg(feature = "streams")]
pub(super) fn answer(path: &str, now: Now, agent: &Agent) -> Response {
    answer::to(path, Access::Protected, now, agent)
}

/// The answer to what changes something.
#[cfg(feature = "node-jobs")]
fn post(path: &str, access: Access, agent: &Agent, events: &mut Vec<Event>) -> Response {
    if path != crate::wire::http1::CONFIRM_UPGRADE {
        return unknown();
    }
    if access != Access::Protected {
        let why = "only root may confirm an upgrade: through ROOTDIR/edged.sock";
        return Response::text(Status::Forbidden, why);
    }
    match agent.awaits_confirmation() {
        Some(job) => {
            events.push(Event::ConfirmUpgrade);
            Response::text(Status::Ok, &format!("{job} is confirmed"))
        }
        None => Response::text(Status::NotFound, "no upgrade waits for a confirmation"),
    }
}

#[cfg(not(feature = "node-jobs"))]
fn post(_: &str, _: Access, _: &Agent, _: &mut Vec<Event>) -> Response {
    unknown()
}

fn unknown() -> Response {
    Response::text(Status::NotFound, "got a path that is none of the kubelet's for commands")
}

fn busy() -> Response {
    Response::text(Status::ServiceUnavailable, "too many connections: try again")
}

/// Sends an error to the client; it fits into the socket's buffer.
fn turn_away(stream: &mut Stream) {
    let _ = stream.write(&busy().bytes(Method::Get));
}
