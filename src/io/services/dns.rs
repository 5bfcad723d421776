//! The DNS responder: UDP and TCP on the address of the link (edgemesh.md, section 14.2).
//!
//! Questions about Services are answered at once out of the table. All others are forwarded: over
//! UDP first, with a socket and an id of their own, and over TCP where the answer is truncated and
//! the client uses TCP itself. A server that does not answer is asked once more, or the next one
//! is; then the client gets SERVFAIL.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use mio::event::Event as Ready;
use mio::net::{TcpListener, TcpStream, UdpSocket};
use mio::{Interest, Registry, Token};

use super::protocol::Settings;
use super::upstream::Upstream;
use crate::agent::services::names::Zone;
use crate::agent::time::Instant;
use crate::io::clock;
use crate::limits::{
    DNS_CLIENT_IDLE_MS, DNS_CLIENTS_MAX, DNS_FORWARD_MS, DNS_FORWARD_TRIES, DNS_FORWARDS_MAX,
    DNS_TCP_BYTES_MAX, SERVICE_TURN_DATAGRAMS,
};
use crate::model::dns::{Answer, Rcode, Record, Resolution};
use crate::model::service::{ServiceEntry, ServicesReport};
use crate::wire::dns::{self, OwnQuery, Query, Refusal};

const PORT: u16 = 53;

#[derive(Debug)]
pub(super) struct Responder {
    /// Of the UDP socket; the listener, its clients and the forwarded queries have the next ones.
    first: Token,
    domain: String,
    address: Option<Ipv4Addr>,
    udp: Option<UdpSocket>,
    listener: Option<TcpListener>,
    clients: Vec<Option<Client>>,
    forwards: Vec<Option<Forward>>,
    upstream: Upstream,
    /// More may wait at the UDP socket, at the listener.
    more: (bool, bool),
    turn: usize,
    /// Clients so far: tells those with one place apart.
    serial: u64,
    queries: u64,
    forwarded: u64,
    unanswered: u64,
    buffer: Vec<u8>,
}

/// Why it does not listen.
#[derive(Debug)]
pub(super) struct NotListening {
    /// Another program does.
    pub(super) is_taken: bool,
    pub(super) why: String,
}

/// A client over TCP. Its queries are answered one after the other.
#[derive(Debug)]
struct Client {
    serial: u64,
    stream: TcpStream,
    read: Vec<u8>,
    unsent: Vec<u8>,
    /// A query is being forwarded.
    waits: bool,
    idle_at: Instant,
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug)]
enum ReplyTo {
    Udp(SocketAddr),
    /// The place among the clients, and its serial.
    Tcp(usize, u64),
}

/// A query at another server.
#[derive(Debug)]
struct Forward {
    to: ReplyTo,
    query: Query,
    what: What,
    id: u16,
    socket: Socket,
    tries: usize,
    deadline: Instant,
}

#[derive(Clone, Debug)]
enum What {
    /// The client's message.
    Whole(Vec<u8>),
    /// What an alias stands for.
    Alias(Record, OwnQuery),
}

#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    Tcp { stream: TcpStream, unsent: Vec<u8>, read: Vec<u8> },
}

/// Tokens of one responder.
pub(super) const TOKENS: usize = 2 + DNS_CLIENTS_MAX + DNS_FORWARDS_MAX;

impl Responder {
    pub(super) fn new(first: Token) -> Self {
        Self {
            first,
            domain: String::new(),
            address: None,
            udp: None,
            listener: None,
            clients: (0..DNS_CLIENTS_MAX).map(|_| None).collect(),
            forwards: (0..DNS_FORWARDS_MAX).map(|_| None).collect(),
            upstream: Upstream::default(),
            more: (false, false),
            turn: 0,
            serial: 0,
            queries: 0,
            forwarded: 0,
            unanswered: 0,
            buffer: vec![0; 64 << 10],
        }
    }

    pub(super) fn set(&mut self, settings: &Settings) {
        self.domain.clone_from(&settings.domain);
        self.upstream.set(settings);
        if self.address != Some(settings.address) {
            self.address = Some(settings.address);
            (self.udp, self.listener) = (None, None);
        }
    }

    /// Listens where it does not yet; the error says why it cannot.
    pub(super) fn listen(&mut self, registry: &Registry) -> Result<(), NotListening> {
        let Some(ip) = self.address else { return Ok(()) };
        let address = SocketAddr::new(ip.into(), PORT);
        let failed = |protocol: &str, error: &io::Error| {
            let is_taken = error.kind() == ErrorKind::AddrInUse;
            let why = if is_taken {
                format!("another program answers DNS on {address}/{protocol}: is it EdgeMesh?")
            } else {
                format!("cannot listen on {address}/{protocol}: {error}")
            };
            NotListening { is_taken, why }
        };
        if self.udp.is_none() {
            let mut udp = UdpSocket::bind(address).map_err(|error| failed("udp", &error))?;
            let registered = registry.register(&mut udp, self.first, Interest::READABLE);
            registered.map_err(|error| failed("udp", &error))?;
            (self.udp, self.more.0) = (Some(udp), true);
        }
        if self.listener.is_none() {
            let mut listener = TcpListener::bind(address).map_err(|error| failed("tcp", &error))?;
            let token = Token(self.first.0 + 1);
            let registered = registry.register(&mut listener, token, Interest::READABLE);
            registered.map_err(|error| failed("tcp", &error))?;
            (self.listener, self.more.1) = (Some(listener), true);
        }
        Ok(())
    }

    /// Another process takes over.
    pub(super) fn close(&mut self) {
        (self.address, self.udp, self.listener) = (None, None, None);
        self.clients.iter_mut().for_each(|it| *it = None);
        self.forwards.iter_mut().for_each(|it| *it = None);
    }

    pub(super) fn owns(&self, token: Token) -> bool {
        (self.first.0..self.first.0 + TOKENS).contains(&token.0)
    }

    pub(super) fn ready(
        &mut self,
        ready: &Ready,
        now: Instant,
        registry: &Registry,
        table: &[Arc<ServiceEntry>],
    ) {
        match ready.token().0 - self.first.0 {
            0 => self.more.0 = true,
            1 => self.more.1 = true,
            at if at < 2 + DNS_CLIENTS_MAX => self.serve(at - 2, now, registry, table),
            at => self.answered(at - 2 - DNS_CLIENTS_MAX, now, registry),
        }
    }

    /// Takes what waits, and ends what is late. Whether there is more.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        registry: &Registry,
        table: &[Arc<ServiceEntry>],
    ) -> bool {
        self.receive(now, registry, table);
        self.accept(now, registry, table);
        for at in 0..self.forwards.len() {
            if self.forwards[at].as_ref().is_some_and(|it| it.deadline <= now) {
                self.again(at, now, registry);
            }
        }
        for client in &mut self.clients {
            client.take_if(|it| it.idle_at <= now && !it.waits);
        }
        self.more.0 || self.more.1
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let forwards = self.forwards.iter().flatten().map(|it| it.deadline);
        let clients = self.clients.iter().flatten().filter(|it| !it.waits);
        forwards.chain(clients.map(|it| it.idle_at)).min()
    }

    pub(super) fn report(&self, report: &mut ServicesReport) {
        report.queries = self.queries;
        report.forwarded = self.forwarded;
        report.unanswered = self.unanswered;
        report.trouble.extend(self.upstream.trouble());
    }

    fn receive(&mut self, now: Instant, registry: &Registry, table: &[Arc<ServiceEntry>]) {
        if !self.more.0 {
            return;
        }
        for _ in 0..SERVICE_TURN_DATAGRAMS {
            let Some(udp) = &self.udp else { break };
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = udp.recv_from(&mut buffer);
            match &received {
                Ok((bytes, from)) => {
                    let to = ReplyTo::Udp(*from);
                    self.query(&buffer[..*bytes], to, now, registry, table);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.more.0 = error.kind() != ErrorKind::WouldBlock,
            }
            self.buffer = buffer;
            if !self.more.0 || received.is_err() {
                return;
            }
        }
    }

    fn query(
        &mut self,
        bytes: &[u8],
        to: ReplyTo,
        now: Instant,
        registry: &Registry,
        table: &[Arc<ServiceEntry>],
    ) {
        let query = match dns::parse(bytes) {
            Ok(query) => query,
            Err(Refusal::Drop) => return,
            Err(Refusal::Answer(answer)) => return self.send(to, &answer),
        };
        self.turn = self.turn.wrapping_add(1);
        let zone = Zone { domain: &self.domain, table, turn: self.turn };
        match zone.resolve(&query.question) {
            Resolution::Answer(answer) => {
                self.queries += 1;
                self.reply(to, &query, &answer);
            }
            Resolution::Alias(alias, target) => {
                self.queries += 1;
                let own = OwnQuery::new(0, &target, query.question.kind);
                self.forward(to, query, What::Alias(alias, own), now, registry);
            }
            Resolution::Forward if self.upstream.is_probe(&query.question.name) => {}
            Resolution::Forward => {
                self.forward(to, query, What::Whole(bytes.to_vec()), now, registry);
            }
        }
    }

    fn reply(&mut self, to: ReplyTo, query: &Query, answer: &Answer) {
        let bytes_max = match to {
            ReplyTo::Udp(_) => query.udp_bytes_max(),
            ReplyTo::Tcp(..) => DNS_TCP_BYTES_MAX,
        };
        self.send(to, &query.answer(answer, bytes_max));
    }

    fn send(&mut self, to: ReplyTo, bytes: &[u8]) {
        match to {
            ReplyTo::Udp(address) => {
                // A client that misses the answer asks again.
                let _ = self.udp.as_ref().map(|udp| udp.send_to(bytes, address));
            }
            ReplyTo::Tcp(at, serial) => {
                let client = self.clients.get_mut(at).and_then(Option::as_mut);
                if let Some(client) = client.filter(|it| it.serial == serial) {
                    client.waits = false;
                    client.unsent.extend((bytes.len() as u16).to_be_bytes());
                    client.unsent.extend_from_slice(bytes);
                    if !client.flush() {
                        self.clients[at] = None;
                    }
                }
            }
        }
    }

    // ---- clients over TCP ----

    fn accept(&mut self, now: Instant, registry: &Registry, table: &[Arc<ServiceEntry>]) {
        while self.more.1 {
            let Some(listener) = &self.listener else { return };
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => {
                    self.more.1 = false;
                    return;
                }
            };
            // The client that was silent longest makes room.
            let free = self.clients.iter().position(Option::is_none);
            let oldest = || {
                (0..self.clients.len())
                    .min_by_key(|at| self.clients[*at].as_ref().map(|it| it.idle_at))
            };
            let Some(at) = free.or_else(oldest) else { return };
            let token = Token(self.first.0 + 2 + at);
            self.clients[at] = None;
            let both = Interest::READABLE | Interest::WRITABLE;
            if registry.register(&mut stream, token, both).is_err() {
                continue;
            }
            self.serial += 1;
            self.clients[at] = Some(Client {
                serial: self.serial,
                stream,
                read: Vec::new(),
                unsent: Vec::new(),
                waits: false,
                idle_at: now.plus_ms(DNS_CLIENT_IDLE_MS),
            });
            self.serve(at, now, registry, table);
        }
    }

    fn serve(&mut self, at: usize, now: Instant, registry: &Registry, table: &[Arc<ServiceEntry>]) {
        let Some(client) = self.clients[at].as_mut() else { return };
        if !client.flush() || !client.fill() {
            self.clients[at] = None;
            return;
        }
        while let Some(client) = self.clients[at].as_mut().filter(|it| !it.waits) {
            let Some(message) = client.next() else { return };
            client.idle_at = now.plus_ms(DNS_CLIENT_IDLE_MS);
            let to = ReplyTo::Tcp(at, client.serial);
            self.query(&message, to, now, registry, table);
        }
    }

    // ---- other servers ----

    fn forward(
        &mut self,
        to: ReplyTo,
        query: Query,
        what: What,
        now: Instant,
        registry: &Registry,
    ) {
        self.forwarded += 1;
        let Some(at) = self.forwards.iter().position(Option::is_none) else {
            return self.give_up(to, &query);
        };
        self.ask(at, to, query, what, 1, now, registry);
    }

    #[expect(clippy::too_many_arguments, reason = "each is a part of one question")]
    fn ask(
        &mut self,
        at: usize,
        to: ReplyTo,
        query: Query,
        mut what: What,
        tries: usize,
        now: Instant,
        registry: &Registry,
    ) {
        let id = clock::seed() as u16;
        let bytes = what.with_id(id);
        let token = Token(self.first.0 + 2 + DNS_CLIENTS_MAX + at);
        let opened = self.upstream.next(now).map(|server| open_udp(server, bytes, registry, token));
        match opened {
            Some(Ok(socket)) => {
                if let ReplyTo::Tcp(client, serial) = to
                    && let Some(client) = self.clients[client].as_mut()
                    && client.serial == serial
                {
                    client.waits = true;
                }
                let deadline = now.plus_ms(DNS_FORWARD_MS);
                let socket = Socket::Udp(socket);
                self.forwards[at] = Some(Forward { to, query, what, id, socket, tries, deadline });
            }
            // Nobody to ask, or no network.
            None | Some(Err(_)) => self.give_up(to, &query),
        }
    }

    fn give_up(&mut self, to: ReplyTo, query: &Query) {
        self.unanswered += 1;
        let answer = Answer { rcode: Rcode::ServFail, ..Answer::default() };
        self.reply(to, query, &answer);
    }

    /// This try has failed.
    fn again(&mut self, at: usize, now: Instant, registry: &Registry) {
        let Some(forward) = self.forwards[at].take() else { return };
        self.upstream.failed();
        if forward.tries >= DNS_FORWARD_TRIES {
            return self.give_up(forward.to, &forward.query);
        }
        let Forward { to, query, what, tries, .. } = forward;
        self.ask(at, to, query, what, tries + 1, now, registry);
    }

    /// Something came from another server.
    fn answered(&mut self, at: usize, now: Instant, registry: &Registry) {
        let Some(forward) = self.forwards[at].as_mut() else { return };
        let (id, query) = (forward.id, &forward.query);
        let got = loop {
            match forward.socket.receive(&mut self.buffer) {
                Ok(Some(bytes)) => {
                    let answer = &self.buffer[..bytes];
                    let is_it = match &forward.what {
                        What::Whole(_) => query.is_answered_by(id, answer),
                        What::Alias(_, own) => own.is_answered_by(id, answer),
                    };
                    // Anything else is not its answer: that may still come.
                    if is_it {
                        break bytes;
                    }
                }
                Ok(None) => return,
                // Refused: there is no server.
                Err(_) => return self.again(at, now, registry),
            }
        };
        let answer = &mut self.buffer[..got];
        let over_tcp =
            matches!(forward.to, ReplyTo::Tcp(..)) || matches!(forward.what, What::Alias(..));
        if dns::is_truncated(answer) && over_tcp && matches!(forward.socket, Socket::Udp(_)) {
            return self.dial(at, registry);
        }
        let Some(forward) = self.forwards[at].take() else { return };
        match forward.what {
            What::Whole(_) => {
                dns::set_id(answer, forward.query.id);
                let bytes = answer.to_vec();
                self.send(forward.to, &bytes);
            }
            What::Alias(alias, _) => match dns::records(answer) {
                Some((rcode, records)) => {
                    let answers = std::iter::once(alias).chain(records).collect();
                    let answer = Answer { rcode, answers, ..Answer::default() };
                    self.reply(forward.to, &forward.query, &answer);
                }
                None => self.give_up(forward.to, &forward.query),
            },
        }
    }

    /// The same question over TCP, as its answer is too long for UDP.
    fn dial(&mut self, at: usize, registry: &Registry) {
        let token = Token(self.first.0 + 2 + DNS_CLIENTS_MAX + at);
        let Some(forward) = self.forwards[at].as_mut() else { return };
        let Socket::Udp(udp) = &forward.socket else { return };
        let opened = udp.peer_addr().and_then(|server| {
            let mut stream = TcpStream::connect(server)?;
            registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
            Ok(stream)
        });
        let bytes = forward.what.with_id(forward.id);
        let mut unsent = (bytes.len() as u16).to_be_bytes().to_vec();
        unsent.extend_from_slice(bytes);
        match opened {
            Ok(stream) => forward.socket = Socket::Tcp { stream, unsent, read: Vec::new() },
            Err(_) => {
                if let Some(forward) = self.forwards[at].take() {
                    self.give_up(forward.to, &forward.query);
                }
            }
        }
    }
}

impl Client {
    /// Writes what it can. `false`: the client is gone, or does not read.
    fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return false,
                Ok(bytes) => drop(self.unsent.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Reads what there is. `false`: the client has closed, or sends what is too long.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 1_024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(bytes) => self.read.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
            if self.read.len() > DNS_TCP_BYTES_MAX {
                return false;
            }
        }
    }

    /// The next whole message.
    fn next(&mut self) -> Option<Vec<u8>> {
        take_message(&mut self.read)
    }
}

/// A message with its length before it, off the front.
fn take_message(read: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_be_bytes([*read.first()?, *read.get(1)?]));
    let message = read.get(2..2 + length)?.to_vec();
    read.drain(..2 + length);
    Some(message)
}

impl What {
    fn with_id(&mut self, id: u16) -> &[u8] {
        let bytes = match self {
            Self::Whole(bytes) => bytes,
            Self::Alias(_, own) => &mut own.bytes,
        };
        dns::set_id(bytes, id);
        bytes
    }
}

impl Socket {
    /// The next message into the buffer.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let (stream, unsent, read) = match self {
            Self::Udp(udp) => return would_block(udp.recv(buffer)),
            Self::Tcp { stream, unsent, read } => (stream, unsent, read),
        };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        while !unsent.is_empty() {
            match stream.write(unsent) {
                Ok(bytes) => drop(unsent.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(None),
                Err(error) => return would_block(Err(error)),
            }
        }
        loop {
            if let Some(message) = take_message(read) {
                let bytes = message.len().min(buffer.len());
                buffer[..bytes].copy_from_slice(&message[..bytes]);
                return Ok(Some(bytes));
            }
            match would_block(stream.read(buffer))? {
                None => return Ok(None),
                Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Some(bytes) => read.extend_from_slice(&buffer[..bytes]),
            }
        }
    }
}

fn would_block(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn open_udp(
    server: SocketAddr,
    bytes: &[u8],
    registry: &Registry,
    token: Token,
) -> io::Result<UdpSocket> {
    let any: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    // The kernel draws the port.
    let mut udp = UdpSocket::bind(any)?;
    udp.connect(server)?;
    registry.register(&mut udp, token, Interest::READABLE)?;
    udp.send(bytes)?;
    Ok(udp)
}
