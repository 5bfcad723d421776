//! The local HTTP API: takes connections, reads one request from each, writes the answer, hangs up.
//!
//! It must never be what the pods wait for. So everything has a bound: connections at once, bytes
//! of a request, bytes of unsent answers, the time a client may take to ask and to read, and what
//! one turn may spend on it. Whoever is slow or too much is cut. A port that is taken is said once
//! and tried again; the agent goes on without.
//!
//! Any user of this machine can ask the port, so its answers hide what may be a secret
//! ([`redact`]). Root asks the unix socket beside it, which shows everything and for which some
//! connections are kept free.
//!
//! **If we crash here** the clients see a reset and ask again; nothing is kept.

mod answer;
mod connection;
mod process;
mod redact;

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use super::socket::{Access, Address, Listener, Stream};
use crate::agent::Agent;
use crate::agent::time::{Instant, Now};
use crate::limits::{
    HTTP_ACCEPTS_PER_TURN, HTTP_CONNECTIONS_MAX, HTTP_PROTECTED_MIN, HTTP_UNSENT_BYTES_MAX,
};
use crate::wire::http1::{Method, Response, Status};
use connection::{Connection, Next};

/// The API's listeners and their connections.
#[derive(Debug)]
pub struct Server {
    /// Of the port; for the `Host` of requests.
    address: SocketAddr,
    /// The port and the unix socket; none: there is no API.
    listeners: Vec<Listener>,
    /// The port's token. Connection `n` has the one `n + 1` after it, the unix socket the last.
    first: Token,
    connections: [Option<Connection>; HTTP_CONNECTIONS_MAX],
}

impl Server {
    /// Listens nowhere yet; [`Server::tick`] does. Port 0: it never will, nor on the unix socket.
    pub fn new(address: SocketAddr, socket: &Path, first: Token) -> Self {
        let last = Token(first.0 + 1 + HTTP_CONNECTIONS_MAX);
        let mut listeners = Vec::new();
        if address.port() != 0 {
            let name = "the HTTP API";
            listeners.push(Listener::new(Address::Port(address), name, first));
            listeners.push(Listener::new(Address::Socket(socket.to_owned()), name, last));
        }
        Self { address, listeners, first, connections: [const { None }; HTTP_CONNECTIONS_MAX] }
    }

    /// Whether the token is a listener's or a connection's.
    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..=self.first.0 + 1 + HTTP_CONNECTIONS_MAX).contains(&token.0)
    }

    /// Tries at once what failed before: the configuration was read again.
    pub fn retry(&mut self) {
        self.listeners.iter_mut().for_each(Listener::retry);
    }

    /// A socket is ready for something.
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

    /// Listens, takes connections, answers and gives up, as far as each is due.
    pub fn tick(&mut self, now: Now, registry: &Registry, agent: &Agent) {
        for at in 0..self.listeners.len() {
            self.listeners[at].listen(now.boot, registry, remedy);
            self.accept(at, now.boot, registry);
        }
        for at in 0..HTTP_CONNECTIONS_MAX {
            let unsent = self.unsent_bytes();
            let Some(connection) = &mut self.connections[at] else { continue };
            let ended = match connection.turn(now.boot, self.address) {
                Next::Wait => false,
                Next::End => true,
                Next::Answer(request) => {
                    let bytes = if unsent >= HTTP_UNSENT_BYTES_MAX {
                        busy().bytes(request.method)
                    } else {
                        let answer = answer::to(&request, connection.access(), now, agent);
                        answer.bytes(request.method)
                    };
                    connection.answer(now.boot, bytes)
                }
            };
            if ended && let Some(mut connection) = self.connections[at].take() {
                connection.leave(registry);
            }
        }
    }

    /// When to call [`Server::tick`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        let listeners = self.listeners.iter().filter_map(Listener::wake_at);
        self.connections.iter().flatten().map(Connection::wake_at).chain(listeners).min()
    }

    /// The port on which it listens.
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
                Err(error) => log::warn!("the HTTP API cannot watch a connection: {error}"),
            }
        }
    }

    /// The place of the next connection, if there is one for such.
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
             give another with --listen; the pods do not need it"
        }
        (Address::Port(_), ErrorKind::PermissionDenied) => {
            "ports below 1024 are root's: give another with --listen; the pods do not need it"
        }
        (Address::Port(_), ErrorKind::AddrNotAvailable) => {
            "no interface has this address: give another with --listen; the pods do not need it"
        }
        (Address::Port(_), _) => "give another with --listen; the pods do not need it",
    }
}

fn busy() -> Response {
    Response::text(Status::ServiceUnavailable, "too many connections: try again")
}

/// Says so if that fits into the socket's buffer, as it does.
fn turn_away(stream: &mut Stream) {
    let _ = stream.write(&busy().bytes(Method::Get));
}
