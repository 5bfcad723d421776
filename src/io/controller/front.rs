//! The controller's own API, for people and scrapers on this machine: plain HTTP on loopback, one
//! request a connection, no authentication.
//!
//! Reads one request and hands it up, writes the answer, hangs up. Everything has a bound, as in
//! [`crate::io::server`]; what the agent's reading API does not take, a body, is taken here.
//! **If we crash here** the clients see a reset.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};

use mio::event::Event as Ready;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use crate::controller::time::Instant;
use crate::io::log::Limit;
use crate::limits::{
    FRONT_BODY_BYTES_MAX, FRONT_CONNECTIONS_MAX, HTTP_ANSWER_MS, HTTP_ASK_MS, HTTP_HEAD_BYTES_MAX,
    HTTP_LEAVE_MS, HTTP_LISTEN_RETRY_MS,
};
use crate::wire::http1::call::{self, Call};

/// The listener and its connections.
#[derive(Debug)]
pub struct Front {
    address: SocketAddr,
    listener: Option<TcpListener>,
    retry_at: Instant,
    limit: Limit,
    first: Token,
    connections: [Option<Connection>; FRONT_CONNECTIONS_MAX],
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    state: State,
    deadline: Instant,
}

#[derive(Debug)]
enum State {
    Asking(Vec<u8>),
    Telling(Vec<u8>, usize),
    Leaving,
}

enum Next {
    Wait,
    Answer(Box<Call>),
    End,
}

impl Front {
    /// Listens nowhere yet; [`Front::tick`] does. Port 0: it never will.
    pub fn new(address: SocketAddr, first: Token) -> Self {
        let connections = [const { None }; FRONT_CONNECTIONS_MAX];
        let (listener, retry_at, limit) = (None, Instant(0), Limit::default());
        Self { address, listener, retry_at, limit, first, connections }
    }

    /// Whether the token is the listener's or a connection's.
    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..=self.first.0 + FRONT_CONNECTIONS_MAX).contains(&token.0)
    }

    /// Sockets are few: all are looked at.
    pub fn ready(&mut self, _ready: &Ready) {}

    /// Takes connections and goes on with them; `answer` makes the bytes of an answer.
    pub fn tick(
        &mut self,
        now: Instant,
        registry: &Registry,
        mut answer: impl FnMut(&Call) -> Vec<u8>,
    ) {
        self.listen(now, registry);
        self.accept(now, registry);
        for slot in &mut self.connections {
            let Some(connection) = slot else { continue };
            let mut next = connection.turn(now);
            if let Next::Answer(call) = next {
                let bytes = if call::is_local(&call, self.address) {
                    answer(&call)
                } else {
                    call::answer(403, "text/plain", b"expected the Host of this machine\n")
                };
                connection.tell(bytes, now);
                next = connection.turn(now);
            }
            if let Next::End = next {
                *slot = None;
            }
        }
    }

    /// When to call [`Front::tick`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        let retry = (self.listener.is_none() && self.address.port() != 0).then_some(self.retry_at);
        self.connections.iter().flatten().map(|it| it.deadline).chain(retry).min()
    }

    fn listen(&mut self, now: Instant, registry: &Registry) {
        if self.listener.is_some() || now < self.retry_at || self.address.port() == 0 {
            return;
        }
        self.retry_at = now.plus_ms(HTTP_LISTEN_RETRY_MS);
        let opened = TcpListener::bind(self.address).and_then(|mut listener| {
            registry.register(&mut listener, self.first, Interest::READABLE)?;
            Ok(listener)
        });
        match opened {
            Ok(listener) => {
                log::info!("the controller's API listens on {}", self.address);
                self.listener = Some(listener);
            }
            Err(error) => {
                if let Some(kept) = self.limit.pass(now) {
                    let address = self.address;
                    log::warn!("no API: cannot listen on {address}: {error}; repeats={kept}");
                }
            }
        }
    }

    fn accept(&mut self, now: Instant, registry: &Registry) {
        let Some(listener) = &self.listener else { return };
        while let Some(at) = self.connections.iter().position(Option::is_none) {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    log::debug!("a connection of the API's was not taken: {error}");
                    return;
                }
            };
            let token = Token(self.first.0 + 1 + at);
            let both = Interest::READABLE | Interest::WRITABLE;
            if registry.register(&mut stream, token, both).is_ok() {
                let (state, deadline) = (State::Asking(Vec::new()), now.plus_ms(HTTP_ASK_MS));
                self.connections[at] = Some(Connection { stream, state, deadline });
            }
        }
    }
}

impl Connection {
    fn tell(&mut self, bytes: Vec<u8>, now: Instant) {
        self.state = State::Telling(bytes, 0);
        self.deadline = now.plus_ms(HTTP_ANSWER_MS);
    }

    fn turn(&mut self, now: Instant) -> Next {
        if self.deadline <= now {
            return Next::End;
        }
        let mut buffer = [0; READ_BYTES];
        loop {
            match &mut self.state {
                State::Asking(request) => match self.stream.read(&mut buffer) {
                    Ok(0) => return Next::End,
                    Ok(count) => {
                        request.extend_from_slice(&buffer[..count]);
                        match call::call(request, FRONT_BODY_BYTES_MAX) {
                            Ok(Some((call, _))) => return Next::Answer(Box::new(call)),
                            Ok(None) if request.len() > REQUEST_BYTES_MAX => return Next::End,
                            Ok(None) => {}
                            Err(refused) => {
                                let why = format!("{}\n", refused.why);
                                let bytes =
                                    call::answer(refused.status, "text/plain", why.as_bytes());
                                self.tell(bytes, now);
                            }
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Wait,
                    Err(_) => return Next::End,
                },
                State::Telling(bytes, sent) if *sent < bytes.len() => {
                    match self.stream.write(&bytes[*sent..]) {
                        Ok(count) => *sent += count,
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Wait,
                        Err(_) => return Next::End,
                    }
                }
                State::Telling(..) => {
                    let _ = self.stream.shutdown(Shutdown::Write);
                    self.state = State::Leaving;
                    self.deadline = now.plus_ms(HTTP_LEAVE_MS);
                }
                // A socket that is closed with unread bytes in it resets the connection.
                State::Leaving => match self.stream.read(&mut buffer) {
                    Ok(1..) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Wait,
                    Ok(0) | Err(_) => return Next::End,
                },
            }
        }
    }
}

/// On the stack.
const READ_BYTES: usize = 8 << 10;
const REQUEST_BYTES_MAX: usize = FRONT_BODY_BYTES_MAX + HTTP_HEAD_BYTES_MAX + READ_BYTES;
