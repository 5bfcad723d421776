//! The connections of probes and hooks: connect, write, read, and stop at their deadlines.
//!
//! ```text
//!  start ─▶ connecting ─▶ (TLS) ─▶ exchange ─▶ Event::Probe
//!              ▲                    │
//!              └──── a redirect ────┘            at the deadline, wherever it is: Event::Probe
//! ```
//!
//! [`crate::wire::probe`] knows the protocol; the core decides when to probe, and what follows.
//! Every query gets exactly one answer, or none if it is cancelled. Most peers are on this machine,
//! so most connections are established immediately: whatever is possible at once is done in the
//! same turn.
//!
//! **`SO_LINGER` is not set**, though the kubelet sets it: with it, closing waits for the peer, and
//! a peer that is gone would block the loop for a second. No data that is sent here can be lost,
//! and the kernel bounds the number of sockets in TIME_WAIT.
//!
//! **If we crash here** the kernel closes the sockets; after a restart the probes run again.

#[cfg(feature = "probe-https")]
mod tls;
#[cfg(not(feature = "probe-https"))]
#[path = "probe/plain.rs"]
mod tls;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use mio::event::Event as Ready;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::probe_results::ResultsFile;
use crate::agent::event::{Event, ProbeId};
use crate::agent::time::Instant;
use crate::limits::{PROBE_CONNECTIONS_MAX, PROBE_TURN_BYTES};
use crate::model::cri::ContainerId;
use crate::model::map::{Map, Set};
use crate::model::net::{Finding, Query};
use crate::model::probe::ProbeResults;
use crate::wire::probe::{self as wire, Exchange, Outcome, Peer};
use tls::Tls;

/// All connections of probes and hooks.
#[derive(Debug)]
pub struct Probes {
    /// The token of the first slot.
    first: Token,
    slots: Vec<Option<ProbeId>>,
    open: Map<ProbeId, Connection>,
    deadlines: Set<(Instant, ProbeId)>,
    /// Connections that can continue now.
    busy: Set<ProbeId>,
    /// Where results are saved for the agent's next start; `None`: nowhere.
    pub(super) results: Option<ResultsFile>,
}

#[derive(Debug)]
struct Connection {
    query: Query,
    exchange: Exchange,
    peer: Peer,
    socket: TcpStream,
    tls: Option<Tls>,
    slot: usize,
    deadline: Instant,
    stands: bool,
    /// There may be bytes to read that epoll will not report again.
    readable: bool,
}

impl Probes {
    /// `first`: the tokens from here on are ours, one per possible connection.
    pub fn new(first: Token) -> Self {
        Self {
            first,
            slots: Vec::new(),
            open: Map::new(),
            deadlines: Set::new(),
            busy: Set::new(),
            results: None,
        }
    }

    /// Whether the token is one of ours.
    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..self.first.0 + PROBE_CONNECTIONS_MAX).contains(&token.0)
    }

    pub fn start(
        &mut self,
        probe: ProbeId,
        query: Query,
        deadline: Instant,
        registry: &Registry,
        events: &mut Vec<Event>,
    ) {
        log::debug!("probe={} {query:?}", probe.0);
        let Some(exchange) = Exchange::new(&query) else {
            let why = format!("not built into this edged: what {query:?} needs");
            events.push(Event::Probe(probe, Finding::Bad(why)));
            return;
        };
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        assert!(slot < PROBE_CONNECTIONS_MAX, "{probe:?} is beyond the bound of the core");
        match Connection::dial(
            query,
            exchange,
            slot,
            deadline,
            Token(self.first.0 + slot),
            registry,
        ) {
            Ok(connection) => {
                if slot == self.slots.len() {
                    self.slots.push(None);
                }
                self.slots[slot] = Some(probe);
                self.deadlines.insert((deadline, probe));
                self.open.insert(probe, connection);
                self.advance(probe, registry, events);
            }
            Err(finding) => events.push(Event::Probe(probe, finding)),
        }
    }

    pub fn cancel(&mut self, probe: ProbeId) {
        self.forget(probe);
    }

    pub fn ready(&mut self, ready: &Ready) {
        let slot = ready.token().0 - self.first.0;
        let Some(probe) = self.slots.get(slot).copied().flatten() else { return };
        if let Some(connection) = self.open.get_mut(&probe) {
            connection.readable |=
                ready.is_readable() || ready.is_read_closed() || ready.is_error();
            self.busy.insert(probe);
        }
    }

    /// Continues ready connections, and ends those that are past their deadline.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        for probe in std::mem::take(&mut self.busy) {
            self.advance(probe, registry, events);
        }
        while let Some(&(deadline, probe)) = self.deadlines.first()
            && deadline <= now
        {
            let connection = self.forget(probe).expect("every connection has a deadline");
            let request = connection.exchange.current_query();
            let finding = wire::timed_out(&connection.query, request, connection.stands);
            events.push(Event::Probe(probe, finding));
        }
    }

    /// Saves results for the next agent with this root directory, and passes on those that the one
    /// before has saved.
    #[must_use]
    pub fn saving_results(mut self, root: &Path, events: &mut Vec<Event>) -> Self {
        let results = ResultsFile::of(root);
        events.push(Event::SavedProbeResults(results.load()));
        self.results = Some(results);
        self
    }

    /// Saves these results.
    pub fn save_results(&self, all: &Map<ContainerId, ProbeResults>) {
        if let Some(results) = &self.results {
            results.save(all);
        }
    }

    /// When to call [`Probes::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        if self.busy.is_empty() {
            self.deadlines.first().map(|(deadline, _)| *deadline)
        } else {
            Some(Instant(0))
        }
    }

    fn advance(&mut self, probe: ProbeId, registry: &Registry, events: &mut Vec<Event>) {
        let Some(connection) = self.open.get_mut(&probe) else { return };
        let finding = match connection.advance() {
            None => {
                if connection.readable && connection.stands {
                    self.busy.insert(probe);
                }
                return;
            }
            Some(Outcome::Done(finding)) => finding,
            Some(Outcome::Follow(query)) => {
                let exchange = connection.exchange.follow(query);
                let (query, slot) = (connection.query.clone(), connection.slot);
                let token = Token(self.first.0 + slot);
                let deadline = connection.deadline;
                match Connection::dial(query, exchange, slot, deadline, token, registry) {
                    Ok(next) => {
                        *connection = next;
                        self.busy.insert(probe);
                        return;
                    }
                    Err(finding) => finding,
                }
            }
        };
        self.forget(probe);
        events.push(Event::Probe(probe, finding));
    }

    fn forget(&mut self, probe: ProbeId) -> Option<Connection> {
        let connection = self.open.remove(&probe)?;
        self.slots[connection.slot] = None;
        self.busy.remove(&probe);
        let listed = self.deadlines.remove(&(connection.deadline, probe));
        assert!(listed, "every connection has a deadline");
        Some(connection)
    }
}

impl Connection {
    fn dial(
        query: Query,
        exchange: Exchange,
        slot: usize,
        deadline: Instant,
        token: Token,
        registry: &Registry,
    ) -> Result<Self, Finding> {
        let peer = exchange.peer(&query);
        let failed = |why: &str| wire::dial_failed(&query, exchange.current_query(), why);
        let ip = address(&peer.host).map_err(|why| failed(&why))?;
        let tls = if peer.tls {
            Some(Tls::new(ip).ok_or_else(|| failed("not built into this edged: probe-https"))?)
        } else {
            None
        };
        let connected =
            TcpStream::connect(SocketAddr::new(ip, peer.port)).and_then(|mut socket| {
                let both = Interest::READABLE | Interest::WRITABLE;
                registry.register(&mut socket, token, both).map(|()| socket)
            });
        let socket = connected.map_err(|error| failed(&format!("connect: {}", go_text(&error))))?;
        Ok(Self {
            query,
            exchange,
            peer,
            socket,
            tls,
            slot,
            deadline,
            stands: false,
            readable: false,
        })
    }

    /// Does what is possible now.
    fn advance(&mut self) -> Option<Outcome> {
        if !self.stands {
            match self.socket.take_error() {
                Ok(None) => {}
                Ok(Some(error)) | Err(error) => return Some(self.not_dialled(&error)),
            }
            match self.socket.peer_addr() {
                Ok(_) => self.stands = true,
                Err(error) if error.kind() == ErrorKind::NotConnected => return None,
                Err(error) => return Some(self.not_dialled(&error)),
            }
            // An answer may have come before the socket was registered.
            self.readable = true;
            if let Some(outcome) = self.exchange.connected() {
                return Some(outcome);
            }
        }
        match self.talk() {
            Ok(outcome) => outcome,
            Err(error) => {
                let why = match (self.tls.as_ref().and_then(Tls::trouble), &error) {
                    (Some(trouble), _) => trouble,
                    (None, error) if error.kind() == ErrorKind::UnexpectedEof => "EOF".to_owned(),
                    (None, error) => format!("read tcp {}: read: {}", self.ends(), go_text(error)),
                };
                if self.tls.as_ref().is_some_and(Tls::is_plain_http) {
                    let query = self.exchange.current_query().expect("only GETs go over TLS");
                    return Some(Outcome::Done(wire::not_tls(query)));
                }
                Some(self.exchange.ended(&why))
            }
        }
    }

    fn not_dialled(&self, error: &io::Error) -> Outcome {
        let why = format!("connect: {}", go_text(error));
        Outcome::Done(wire::dial_failed(&self.query, self.exchange.current_query(), &why))
    }

    /// `10.0.0.1:40000->10.0.0.5:80`
    fn ends(&self) -> String {
        let ours = self.socket.local_addr().map(|ours| ours.to_string()).unwrap_or_default();
        let theirs = self.socket.peer_addr().map(|theirs| theirs.to_string());
        let theirs = theirs.unwrap_or_else(|_| format!("{}:{}", self.peer.host, self.peer.port));
        format!("{ours}->{theirs}")
    }

    /// Writes and reads until the socket has no more, or the turn's limit is reached.
    fn talk(&mut self) -> io::Result<Option<Outcome>> {
        self.write()?;
        let mut buffer = [0; READ_BYTES];
        let mut read = 0;
        while self.readable && read < PROBE_TURN_BYTES {
            let got = match &mut self.tls {
                Some(tls) => tls.read(&mut self.socket, &mut buffer),
                None => self.socket.read(&mut buffer),
            };
            match got {
                Ok(0) => {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                Ok(count) => {
                    read += count;
                    if let Some(outcome) = self.exchange.receive(&buffer[..count]) {
                        return Ok(Some(outcome));
                    }
                    self.write()?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    // A handshake that continued may have something to send.
                    self.write()?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn write(&mut self) -> io::Result<()> {
        loop {
            let output = self.exchange.output();
            let wrote = match &mut self.tls {
                Some(tls) => tls.write(&mut self.socket, output),
                None if output.is_empty() => return Ok(()),
                None => self.socket.write(output),
            };
            match wrote {
                Ok(0) => return Ok(()),
                Ok(count) => self.exchange.sent(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The address of a host; names other than localhost are not looked up.
fn address(host: &str) -> Result<IpAddr, String> {
    match host.parse() {
        Ok(address) => Ok(address),
        Err(_) if host.eq_ignore_ascii_case("localhost") => Ok(Ipv4Addr::LOCALHOST.into()),
        Err(_) => Err(format!("lookup {host}: no such host")),
    }
}

/// An error as Go says it: `connection refused`.
fn go_text(error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else { return error.to_string() };
    let text = nix::errno::Errno::from_raw(number).desc();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// On the stack: a connection has no buffer of its own.
const READ_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests;
