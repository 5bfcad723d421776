//! The local HTTP API: takes connections, reads one request from each, writes the answer, hangs up.
//!
//! It must never be what the pods wait for. So everything has a bound: connections at once, bytes
//! of a request, bytes of unsent answers, the time a client may take to ask and to read, and what
//! one turn may spend on it. Whoever is slow or too much is cut. A port that is taken is said once
//! and tried again; the agent goes on without.
//!
//! **If we crash here** the clients see a reset and ask again; nothing is kept.

mod answer;
mod connection;
#[cfg(feature = "metrics")]
mod process;

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;

use mio::event::Event as Ready;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use crate::agent::Agent;
use crate::agent::time::{Instant, Now};
use crate::limits::{
    HTTP_ACCEPTS_PER_TURN, HTTP_CONNECTIONS_MAX, HTTP_LISTEN_RETRY_MS, HTTP_UNSENT_BYTES_MAX,
};
use crate::wire::http1::{Method, Response, Status};
use connection::{Connection, Next};

/// The API's listener and its connections.
#[derive(Debug)]
pub struct Server {
    /// `None`: there is no API.
    address: Option<SocketAddr>,
    listener: Option<TcpListener>,
    /// When to try again to listen.
    retry_at: Instant,
    /// Why listening failed, as it was said.
    said: Option<String>,
    /// There may be connections that no edge will tell of.
    waiting: bool,
    /// The listener's token; connection `n` has the one `n + 1` after it.
    first: Token,
    connections: [Option<Connection>; HTTP_CONNECTIONS_MAX],
}

impl Server {
    /// Listens nowhere yet; [`Server::tick`] does. Port 0: it never will.
    pub fn new(address: SocketAddr, first: Token) -> Self {
        Self {
            address: Some(address).filter(|address| address.port() != 0),
            listener: None,
            retry_at: Instant(0),
            said: None,
            waiting: false,
            first,
            connections: [const { None }; HTTP_CONNECTIONS_MAX],
        }
    }

    /// Whether the token is the listener's or a connection's.
    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..=self.first.0 + HTTP_CONNECTIONS_MAX).contains(&token.0)
    }

    /// Tries at once what failed before: the configuration was read again.
    pub fn retry(&mut self) {
        self.retry_at = Instant(0);
    }

    /// A socket is ready for something.
    pub fn ready(&mut self, ready: &Ready) {
        match ready.token().0 - self.first.0 {
            0 => self.waiting = true,
            at => {
                if let Some(connection) = &mut self.connections[at - 1] {
                    connection.ready(ready);
                }
            }
        }
    }

    /// Listens, takes connections, answers and gives up, as far as each is due.
    pub fn tick(&mut self, now: Now, registry: &Registry, agent: &Agent) {
        self.listen(now.boot, registry);
        if self.waiting {
            self.accept(now.boot, registry);
        }
        let Some(bound) = self.address else { return };
        for at in 0..HTTP_CONNECTIONS_MAX {
            let unsent = self.unsent_bytes();
            let Some(connection) = &mut self.connections[at] else { continue };
            let ended = match connection.turn(now.boot, bound) {
                Next::Wait => false,
                Next::End => true,
                Next::Answer(request) => {
                    let bytes = if unsent >= HTTP_UNSENT_BYTES_MAX {
                        busy().bytes(request.method)
                    } else {
                        answer::to(&request, now, agent).bytes(request.method)
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
        if self.waiting && self.listener.is_some() {
            return Some(Instant(0));
        }
        let retry_at = (self.listener.is_none() && self.address.is_some()).then_some(self.retry_at);
        self.connections.iter().flatten().map(Connection::wake_at).chain(retry_at).min()
    }

    /// Where it listens; the port is the kernel's choice if it was asked for one.
    pub fn bound(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    fn unsent_bytes(&self) -> usize {
        self.connections.iter().flatten().map(Connection::unsent_bytes).sum()
    }

    fn listen(&mut self, now: Instant, registry: &Registry) {
        let Some(address) = self.address else { return };
        if self.listener.is_some() || now < self.retry_at {
            return;
        }
        self.retry_at = now.plus_ms(HTTP_LISTEN_RETRY_MS);
        let opened = TcpListener::bind(address).and_then(|mut listener| {
            registry.register(&mut listener, self.first, Interest::READABLE)?;
            Ok(listener)
        });
        match opened {
            Ok(listener) => {
                log::info!("the HTTP API listens on {address}");
                (self.listener, self.waiting, self.said) = (Some(listener), true, None);
            }
            Err(error) => {
                let why = refused(address, &error);
                if self.said.as_ref() != Some(&why) {
                    log::warn!("{why}");
                    self.said = Some(why);
                }
            }
        }
    }

    fn accept(&mut self, now: Instant, registry: &Registry) {
        let Some(listener) = &self.listener else { return };
        for _ in 0..HTTP_ACCEPTS_PER_TURN {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.waiting = false;
                    return;
                }
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                // No descriptors, most likely: the others are not given up for that.
                Err(error) => {
                    log::warn!("the HTTP API cannot take a connection: {error}");
                    self.listener = None;
                    self.retry_at = now.plus_ms(HTTP_LISTEN_RETRY_MS);
                    return;
                }
            };
            let Some(at) = self.connections.iter().position(Option::is_none) else {
                turn_away(&mut stream);
                continue;
            };
            let token = Token(self.first.0 + 1 + at);
            let both = Interest::READABLE | Interest::WRITABLE;
            match registry.register(&mut stream, token, both) {
                Ok(()) => self.connections[at] = Some(Connection::new(stream, now)),
                Err(error) => log::warn!("the HTTP API cannot watch a connection: {error}"),
            }
        }
    }
}

fn refused(address: SocketAddr, error: &io::Error) -> String {
    let remedy = match error.kind() {
        ErrorKind::AddrInUse => {
            "another program listens there (a second edged, or KubeEdge's edgecore?): stop it, or \
             give another with --listen"
        }
        ErrorKind::PermissionDenied => "ports below 1024 are root's: give another with --listen",
        ErrorKind::AddrNotAvailable => "no interface has this address: give another with --listen",
        _ => "give another with --listen",
    };
    format!("no HTTP API: cannot listen on {address}: {error}; {remedy}; the pods do not need it")
}

fn busy() -> Response {
    Response::text(Status::ServiceUnavailable, "too many connections: try again")
}

/// Says so if that fits into the socket's buffer, as it does.
fn turn_away(stream: &mut TcpStream) {
    let _ = stream.write(&busy().bytes(Method::Get));
}
