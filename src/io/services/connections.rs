//! TCP connections through Services: accepted, an endpoint dialled, and bytes moved both ways.
//!
//! An endpoint that does not take the connection is replaced by the next one, four in all; then the
//! client is reset. Both ends may close their direction by themselves. Nothing ends a connection
//! that is silent: its ends do, or TCP's keepalive where one of them is gone.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::AsFd;

use mio::event::Event as Ready;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::{setsockopt, sockopt};

use super::ports::Target;
use super::splice::{Half, Moved, Pipes};
use crate::agent::services::balance::Balance;
use crate::agent::time::Instant;
use crate::limits::{
    SERVICE_CONNECTIONS_EACH_MAX, SERVICE_CONNECTIONS_MAX, SERVICE_DIAL_MS, SERVICE_DIALS_MAX,
    SERVICE_TURN_ACCEPTS, SERVICE_TURN_MOVES,
};

#[derive(Debug)]
pub(super) struct Connections {
    /// Of the first client; its server has the next token.
    first: Token,
    all: Vec<Option<Box<Connection>>>,
    pipes: Pipes,
    accepted: u64,
    failed: u64,
}

#[derive(Debug)]
struct Connection {
    target: Target,
    client: End,
    server: End,
    state: State,
    /// From the client, from the server.
    up: Half,
    down: Half,
    /// It was the others' turn.
    more: bool,
}

#[derive(Debug)]
struct End {
    stream: TcpStream,
    readable: bool,
    writable: bool,
}

#[derive(Debug)]
enum State {
    Dialing {
        from: Ipv4Addr,
        /// The one that is dialled is the last of them.
        tried: Vec<Ipv4Addr>,
        deadline: Instant,
    },
    Open,
}

/// Tokens of all connections.
pub(super) const TOKENS: usize = 2 * SERVICE_CONNECTIONS_MAX;

impl Connections {
    pub(super) fn new(first: Token) -> Self {
        let (all, pipes) = ((0..SERVICE_CONNECTIONS_MAX).map(|_| None).collect(), Pipes::default());
        Self { first, all, pipes, accepted: 0, failed: 0 }
    }

    pub(super) fn owns(&self, token: Token) -> bool {
        (self.first.0..self.first.0 + TOKENS).contains(&token.0)
    }

    pub(super) fn open(&self) -> usize {
        self.all.iter().flatten().count()
    }

    /// Accepted since the start, and those of them that no endpoint took.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.accepted, self.failed)
    }

    /// Takes what waits at a listener. Whether there may be more.
    pub(super) fn accept(
        &mut self,
        listener: &TcpListener,
        target: &Target,
        now: Instant,
        balance: &mut Balance,
        registry: &Registry,
    ) -> bool {
        for _ in 0..SERVICE_TURN_ACCEPTS {
            match listener.accept() {
                Ok((stream, SocketAddr::V4(from))) => {
                    self.accepted += 1;
                    self.begin(stream, *from.ip(), target, now, balance, registry);
                }
                Ok((_, SocketAddr::V6(_))) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn begin(
        &mut self,
        client: TcpStream,
        from: Ipv4Addr,
        target: &Target,
        now: Instant,
        balance: &mut Balance,
        registry: &Registry,
    ) {
        let of_service = self.all.iter().flatten().filter(|it| it.target.is_of(target)).count();
        let free = self.all.iter().position(Option::is_none);
        let Some(at) = free.filter(|_| of_service < SERVICE_CONNECTIONS_EACH_MAX) else {
            self.failed += 1;
            return reset(&client);
        };
        let mut client = End { stream: client, readable: true, writable: true };
        let Some((server, tried)) = self.dial(at, from, Vec::new(), target, now, balance, registry)
        else {
            self.failed += 1;
            return reset(&client.stream);
        };
        settle(&client.stream);
        let both = Interest::READABLE | Interest::WRITABLE;
        if registry.register(&mut client.stream, Token(self.first.0 + 2 * at), both).is_err() {
            self.failed += 1;
            return;
        }
        let deadline = now.plus_ms(SERVICE_DIAL_MS);
        self.all[at] = Some(Box::new(Connection {
            target: target.clone(),
            client,
            server,
            state: State::Dialing { from, tried, deadline },
            up: Half::default(),
            down: Half::default(),
            more: false,
        }));
    }

    /// Begins to connect to an endpoint that was not tried yet.
    #[expect(clippy::too_many_arguments, reason = "each is a part of one connection")]
    fn dial(
        &mut self,
        at: usize,
        from: Ipv4Addr,
        mut tried: Vec<Ipv4Addr>,
        target: &Target,
        now: Instant,
        balance: &mut Balance,
        registry: &Registry,
    ) -> Option<(End, Vec<Ipv4Addr>)> {
        while tried.len() < SERVICE_DIALS_MAX {
            let (ip, port) = balance.choose(now, &target.service, target.port, from, &tried)?;
            tried.push(ip);
            let address = SocketAddr::new(IpAddr::V4(ip), port);
            let connected = TcpStream::connect(address).and_then(|mut stream| {
                let token = Token(self.first.0 + 2 * at + 1);
                registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
                settle(&stream);
                Ok(stream)
            });
            if let Ok(stream) = connected {
                return Some((End { stream, readable: false, writable: false }, tried));
            }
        }
        None
    }

    pub(super) fn ready(
        &mut self,
        ready: &Ready,
        now: Instant,
        balance: &mut Balance,
        registry: &Registry,
    ) {
        let place = ready.token().0 - self.first.0;
        let at = place / 2;
        let Some(connection) = self.all[at].as_mut() else { return };
        let end =
            if place.is_multiple_of(2) { &mut connection.client } else { &mut connection.server };
        end.readable |= ready.is_readable() || ready.is_read_closed() || ready.is_error();
        end.writable |= ready.is_writable() || ready.is_write_closed() || ready.is_error();
        self.advance(at, now, balance, registry);
    }

    /// Ends late dials, and goes on where it was the others' turn. Whether there is more.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        balance: &mut Balance,
        registry: &Registry,
    ) -> bool {
        for at in 0..self.all.len() {
            let Some(connection) = self.all[at].as_ref() else { continue };
            match &connection.state {
                State::Dialing { deadline, .. } if *deadline <= now => {
                    self.again(at, now, balance, registry);
                }
                State::Open if connection.more => self.advance(at, now, balance, registry),
                State::Dialing { .. } | State::Open => {}
            }
        }
        self.all.iter().flatten().any(|it| it.more)
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let deadline = |it: &Connection| match &it.state {
            State::Dialing { deadline, .. } => Some(*deadline),
            State::Open => None,
        };
        self.all.iter().flatten().filter_map(|it| deadline(it)).min()
    }

    fn advance(&mut self, at: usize, now: Instant, balance: &mut Balance, registry: &Registry) {
        let Some(connection) = self.all[at].as_mut() else { return };
        if let State::Dialing { .. } = connection.state {
            match connection.server.connected() {
                Ok(false) => return,
                Ok(true) => connection.state = State::Open,
                Err(_) => return self.again(at, now, balance, registry),
            }
        }
        match connection.pump(&mut self.pipes) {
            Ok(false) => {}
            Ok(true) => self.all[at] = None,
            Err(_) => {
                // The other end learns that it did not end well.
                reset(&connection.client.stream);
                reset(&connection.server.stream);
                self.all[at] = None;
            }
        }
    }

    /// The endpoint did not take the connection.
    fn again(&mut self, at: usize, now: Instant, balance: &mut Balance, registry: &Registry) {
        let Some(mut connection) = self.all[at].take() else { return };
        let State::Dialing { from, tried, .. } = &mut connection.state else { return };
        let (from, tried) = (*from, std::mem::take(tried));
        let target = connection.target.clone();
        let dialled = self.dial(at, from, tried, &target, now, balance, registry);
        let Some((server, tried)) = dialled else {
            self.failed += 1;
            return reset(&connection.client.stream);
        };
        connection.server = server;
        let deadline = now.plus_ms(SERVICE_DIAL_MS);
        connection.state = State::Dialing { from, tried, deadline };
        self.all[at] = Some(connection);
    }
}

impl Connection {
    /// Moves what there is. `true`: both directions are over.
    fn pump(&mut self, pipes: &mut Pipes) -> io::Result<bool> {
        self.more = pump(&mut self.up, &mut self.client, &mut self.server, pipes)?;
        self.more |= pump(&mut self.down, &mut self.server, &mut self.client, pipes)?;
        Ok(self.up.is_over() && self.down.is_over())
    }
}

fn pump(half: &mut Half, from: &mut End, to: &mut End, pipes: &mut Pipes) -> io::Result<bool> {
    if !from.readable || !to.writable {
        return Ok(false);
    }
    match half.pump(from.stream.as_fd(), to.stream.as_fd(), pipes, SERVICE_TURN_MOVES)? {
        Moved::Drained => from.readable = false,
        Moved::Blocked => to.writable = false,
        Moved::Turn => return Ok(true),
        Moved::Ended => {
            // The other end may have closed meanwhile: then there is nothing to tell it.
            let _ = to.stream.shutdown(Shutdown::Write);
        }
        Moved::Over => {}
    }
    Ok(false)
}

impl End {
    fn connected(&self) -> io::Result<bool> {
        if !self.writable {
            return Ok(false);
        }
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Bytes go on at once, and an end that is gone is noticed some day. Neither is refused.
fn settle(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
}

/// The close that follows is a reset.
fn reset(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let _ = setsockopt(stream, sockopt::Linger, &linger);
}
