//! Connects to the cloud, from a name to a websocket: name lookup, TCP to one address after the
//! other, TLS, the upgrade. Each step continues when its socket is ready, and each error names it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tungstenite::handshake::client::{Response, generate_key, generate_request};
use tungstenite::handshake::derive_accept_key;
use tungstenite::handshake::machine::{HandshakeMachine, RoundResult, StageResult};
use tungstenite::http::{Request, StatusCode, header};

use super::names::Lookup;
use super::tls::{Credentials, explain};
use crate::agent::time::Instant;
use crate::io::tls::Tls;
use crate::limits::{CLOUD_ADDRESS_MS, REFUSAL_BYTES_MAX};
use crate::model::error::{Input, Peer};
use crate::model::link::{Cause, Session, Validity};
use crate::model::settings::CloudLink;

/// A connection attempt in progress.
#[derive(Debug)]
pub(super) struct Dial {
    pub(super) name: Session,
    pub(super) deadline: Instant,
    pub(super) validity: Validity,
    config: Arc<ClientConfig>,
    host: String,
    port: u16,
    /// Addresses that are not tried yet.
    addresses: VecDeque<SocketAddr>,
    /// The errors of the addresses that were tried.
    failures: Vec<String>,
    /// All of them refused the connection at once.
    is_refused: bool,
    stage: Stage,
    /// The child of the lookup: it has answered, but may not have ended yet.
    child: Option<Child>,
}

#[derive(Debug)]
enum Stage {
    Naming(Lookup),
    Connecting {
        socket: TcpStream,
        to: SocketAddr,
        since: Instant,
    },
    Tls(Box<Tls>),
    Upgrade(Box<Upgrade>),
    /// Between two stages.
    Moving,
}

#[derive(Debug)]
struct Upgrade {
    machine: HandshakeMachine<Tls>,
    accept: String,
}

/// The result of a step.
pub(super) enum Outcome {
    Waiting,
    /// There are bytes to read that epoll will not report again.
    Busy,
    /// The connection, and the bytes after the upgrade.
    Up(Box<Tls>, Vec<u8>),
}

/// What is behind the port of the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::io) enum Endpoint {
    /// CloudHub: KubeEdge's messages.
    Hub,
    /// CloudStream: the tunnel for logs and commands (edgestream.md, section 2.1).
    #[cfg(feature = "streams")]
    Tunnel {
        /// The node's internal address; empty: the cloud takes that of the connection.
        ip: String,
    },
}

impl Endpoint {
    /// The path and the headers of the upgrade.
    fn request(&self, link: &CloudLink) -> (String, Vec<(&'static str, String)>) {
        let CloudLink { project_id, node_name, .. } = link;
        match self {
            Self::Hub => {
                let headers = vec![
                    ("node_id", node_name.clone()),
                    ("project_id", project_id.clone()),
                    // Without this header the cloud accepts the connection and never reads from it.
                    ("ConnectionUse", "msg".to_owned()),
                ];
                (format!("/{project_id}/{node_name}/events"), headers)
            }
            #[cfg(feature = "streams")]
            Self::Tunnel { ip } => {
                let headers = vec![
                    ("SessionHostNameOverride", node_name.clone()),
                    ("SessionInternalIP", ip.clone()),
                ];
                ("/v1/kubeedge/connect".to_owned(), headers)
            }
        }
    }
}

/// The parts of the event loop that a connection attempt needs.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) link: &'a CloudLink,
    pub(super) endpoint: &'a Endpoint,
    pub(super) program: &'a Path,
    pub(super) socket: Token,
    pub(super) lookup: Token,
    pub(super) registry: &'a Registry,
}

impl Dial {
    /// Starts. `known`: an address that worked before, in case the lookup fails.
    pub(super) fn start(
        name: Session,
        deadline: Instant,
        credentials: Credentials,
        place: Place<'_>,
        now: Instant,
    ) -> Result<Self, Cause> {
        let (host, port) =
            host_and_port(&place.link.server).map_err(|wrong| Cause::Link(wrong.to_string()))?;
        let Credentials { validity, config } = credentials;
        let mut dial = Self {
            name,
            deadline,
            validity,
            config,
            host,
            port,
            addresses: VecDeque::new(),
            failures: Vec::new(),
            is_refused: true,
            stage: Stage::Moving,
            child: None,
        };
        if let Ok(ip) = dial.host.parse::<IpAddr>() {
            dial.addresses.push_back(SocketAddr::new(ip, dial.port));
            dial.connect(place, now)?;
        } else {
            let query = (&*dial.host, dial.port);
            let lookup = Lookup::start(place.program, query, place.lookup, place.registry);
            let failed = |error| Cause::Link(format!("cannot look up {:?}: {error}", query.0));
            dial.stage = Stage::Naming(lookup.map_err(failed)?);
        }
        Ok(dial)
    }

    /// The current step, for the error after a timeout.
    pub(super) fn step(&self) -> String {
        let peer = self.peer();
        match &self.stage {
            Stage::Naming(_) => format!("no answer to the lookup of {:?}", self.host),
            Stage::Connecting { to, .. } => format!("no answer to a TCP connect to {peer} ({to})"),
            Stage::Tls(_) => format!("{peer} accepts TCP connections but does not answer in TLS"),
            Stage::Upgrade(_) => format!("{peer} does not answer the websocket upgrade"),
            Stage::Moving => unreachable!("a dial that has failed is gone"),
        }
    }

    /// The child of an unfinished lookup; the caller must wait for its end.
    pub(super) fn end(&mut self) -> Option<Child> {
        match &mut self.stage {
            Stage::Naming(lookup) => lookup.end(),
            _ => self.child.take(),
        }
    }

    /// The child of a finished lookup, likewise.
    pub(super) fn done(&mut self) -> Option<Child> {
        self.child.take()
    }

    /// The address of the current connection.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match &self.stage {
            Stage::Connecting { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// When [`Dial::advance`] must be called even if nothing is ready.
    pub(super) fn wake_at(&self) -> Instant {
        match &self.stage {
            Stage::Connecting { since, .. } if !self.addresses.is_empty() => {
                self.deadline.min(since.plus_ms(CLOUD_ADDRESS_MS))
            }
            _ => self.deadline,
        }
    }

    /// Continues as far as possible. `known`: the result of the last successful lookup.
    pub(super) fn advance(
        &mut self,
        place: Place<'_>,
        known: &mut Vec<SocketAddr>,
        now: Instant,
    ) -> Result<Outcome, Cause> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Moving) {
                Stage::Naming(mut lookup) => match lookup.advance() {
                    None => {
                        self.stage = Stage::Naming(lookup);
                        return Ok(Outcome::Waiting);
                    }
                    Some(found) => {
                        self.child = lookup.end();
                        self.named(found, known)?;
                        self.connect(place, now)?;
                    }
                },
                Stage::Connecting { socket, to, since } => match is_connected(&socket) {
                    Ok(true) => self.start_tls(socket, to)?,
                    Ok(false) if self.wake_at_of(since) > now => {
                        self.stage = Stage::Connecting { socket, to, since };
                        return Ok(Outcome::Waiting);
                    }
                    Ok(false) => {
                        drop(socket);
                        self.is_refused = false;
                        self.failures.push(format!("{to}: no answer"));
                        self.connect(place, now)?;
                    }
                    Err(error) => {
                        drop(socket);
                        self.failed(to, &error);
                        self.connect(place, now)?;
                    }
                },
                Stage::Tls(mut tls) => {
                    tls.begin_turn();
                    let done = tls.handshake();
                    if done.map_err(|error| self.explain(&error, place.link))? {
                        let upgrade = self.request(*tls, place)?;
                        self.stage = Stage::Upgrade(Box::new(upgrade));
                    } else {
                        let more = tls.more;
                        self.stage = Stage::Tls(tls);
                        return Ok(if more { Outcome::Busy } else { Outcome::Waiting });
                    }
                }
                Stage::Upgrade(upgrade) => return self.upgrade(*upgrade, place.link),
                Stage::Moving => unreachable!("a dial that has failed is gone"),
            }
        }
    }

    fn wake_at_of(&self, since: Instant) -> Instant {
        if self.addresses.is_empty() { self.deadline } else { since.plus_ms(CLOUD_ADDRESS_MS) }
    }

    fn named(
        &mut self,
        found: Result<Vec<SocketAddr>, String>,
        known: &mut Vec<SocketAddr>,
    ) -> Result<(), Cause> {
        match found {
            Ok(found) if !found.is_empty() => {
                // The address that worked last is tried first.
                let last = known.first().copied();
                *known = found;
                known.sort_by_key(|address| Some(*address) != last);
            }
            Ok(_) if !known.is_empty() => {}
            Err(why) if !known.is_empty() => {
                log::debug!(
                    "{:?} cannot be looked up, using the earlier addresses: {why}",
                    self.host
                );
            }
            Ok(_) => return Err(Cause::Link(format!("{:?} has no address", self.host))),
            Err(why) => {
                return Err(Cause::Link(format!("cannot look up {:?}: {why}", self.host)));
            }
        }
        self.addresses = known.iter().copied().collect();
        Ok(())
    }

    /// Starts to connect to the next address.
    fn connect(&mut self, place: Place<'_>, now: Instant) -> Result<(), Cause> {
        while let Some(to) = self.addresses.pop_front() {
            let both = Interest::READABLE | Interest::WRITABLE;
            let connected = TcpStream::connect(to).and_then(|mut socket| {
                place.registry.register(&mut socket, place.socket, both).map(|()| socket)
            });
            match connected {
                Ok(socket) => {
                    self.stage = Stage::Connecting { socket, to, since: now };
                    return Ok(());
                }
                Err(error) => self.failed(to, &error),
            }
        }
        let why = self.failures.join(", ");
        let why = format!("cannot connect to {}: {why}", self.peer());
        Err(if self.is_refused { Cause::Refused(why) } else { Cause::Link(why) })
    }

    fn failed(&mut self, to: SocketAddr, error: &io::Error) {
        self.is_refused &= matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::NetworkUnreachable
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkDown
        );
        self.failures.push(format!("{to}: {error}"));
    }

    fn start_tls(&mut self, socket: TcpStream, to: SocketAddr) -> Result<(), Cause> {
        log::debug!("session={} connected to {to}", self.name.0);
        // Messages are small, and each is answered separately.
        let _ = socket.set_nodelay(true);
        let failed = |why: &dyn std::fmt::Display| Cause::Link(format!("TLS with {to}: {why}"));
        let name = ServerName::try_from(self.host.clone()).map_err(|error| failed(&error))?;
        let connection = ClientConnection::new(Arc::clone(&self.config), name);
        let connection = connection.map_err(|error| failed(&error))?;
        self.stage = Stage::Tls(Box::new(Tls::new(connection, socket)));
        Ok(())
    }

    fn request(&self, tls: Tls, place: Place<'_>) -> Result<Upgrade, Cause> {
        let link = place.link;
        let key = generate_key();
        let peer = self.peer();
        let (path, headers) = place.endpoint.request(link);
        let request = Request::get(format!("wss://{peer}{path}"))
            .header(header::HOST, &peer)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, &key);
        let request =
            headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let request = request.body(());
        let bad = |why: &dyn std::fmt::Display| {
            let (project, node) = (&link.project_id, &link.node_name);
            Cause::Link(format!(
                "project {project:?}, node {node:?}: cannot make the request: {why}"
            ))
        };
        let request = request.map_err(|error| bad(&error))?;
        let (bytes, key) = generate_request(request).map_err(|error| bad(&error))?;
        let accept = derive_accept_key(key.as_bytes());
        Ok(Upgrade { machine: HandshakeMachine::start_write(tls, bytes), accept })
    }

    fn upgrade(&mut self, upgrade: Upgrade, link: &CloudLink) -> Result<Outcome, Cause> {
        let Upgrade { mut machine, accept } = upgrade;
        machine.get_mut().begin_turn();
        loop {
            let round = machine.single_round::<Response>();
            machine = match round.map_err(|error| self.not_upgraded(error, link))? {
                RoundResult::Incomplete(machine) => machine,
                RoundResult::StageFinished(StageResult::DoneWriting(tls)) => {
                    HandshakeMachine::start_read(tls)
                }
                RoundResult::StageFinished(StageResult::DoneReading { result, stream, tail }) => {
                    accepts(&result, &accept).map_err(|why| {
                        let message = first_line(&tail);
                        Cause::Link(format!("{}: {why}{message}", self.peer()))
                    })?;
                    return Ok(Outcome::Up(Box::new(stream), tail));
                }
                RoundResult::WouldBlock(mut machine) => {
                    let more = machine.get_mut().more;
                    self.stage = Stage::Upgrade(Box::new(Upgrade { machine, accept }));
                    return Ok(if more { Outcome::Busy } else { Outcome::Waiting });
                }
            };
        }
    }

    fn not_upgraded(&self, error: tungstenite::Error, link: &CloudLink) -> Cause {
        match error {
            tungstenite::Error::Io(error) => self.explain(&error, link),
            other => Cause::Link(format!("{} is not a websocket: {other}", self.peer())),
        }
    }

    fn explain(&self, error: &io::Error, link: &CloudLink) -> Cause {
        explain(error, link, &self.peer())
    }

    /// As configured.
    fn peer(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// `host:port`, `192.0.2.1:10000` or `[2001:db8::1]:10000`.
pub(super) fn host_and_port(server: &str) -> Result<(String, u16), Input> {
    let parts = server.rsplit_once(':').and_then(|(host, port)| {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        // Without brackets the end of an IPv6 address is ambiguous.
        let sound = bare.is_some() || !host.contains([':', '[', ']']);
        let host = bare.unwrap_or(host).to_owned();
        (sound && !host.is_empty()).then_some((host, port.parse().ok()?))
    });
    parts.ok_or_else(|| Input::quoted(server, "host:port").at("the cloud's address"))
}

/// Whether the connection is established.
pub(in crate::io) fn is_connected(socket: &TcpStream) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

/// The first line of a refusal's body, for the user.
fn first_line(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(REFUSAL_BYTES_MAX)]);
    let line = text.lines().next().unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    if line.is_empty() { line } else { format!("; it answers {line:?}") }
}

/// The checks of a client, RFC 6455, section 4.1.
fn accepts(response: &Response, accept: &str) -> Result<(), Peer> {
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return Err(Peer::new(format!(
            "got the answer {status}, expected 101 Switching Protocols"
        )));
    }
    let says = |name: header::HeaderName, expected: &str| {
        let got = response.headers().get(&name).and_then(|value| value.to_str().ok());
        let got = got.unwrap_or_default();
        let same = got.split(',').any(|part| part.trim().eq_ignore_ascii_case(expected));
        let why = || Peer::at(name, format_args!("got {got:?}, expected {expected:?}"));
        if same { Ok(()) } else { Err(why()) }
    };
    says(header::UPGRADE, "websocket")?;
    says(header::CONNECTION, "Upgrade")?;
    // Base64 is case-sensitive, but ignoring the case does not make it easier to guess.
    says(header::SEC_WEBSOCKET_ACCEPT, accept)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use mio::Poll;
    use nix::sys::socket::{Backlog, listen};

    use super::*;
    use crate::io::tls::loopback;

    #[test]
    fn an_address_has_its_time_while_there_is_another() {
        // The kernel accepts one connection for it, and no more: later ones get no answer.
        let deaf = TcpListener::bind("127.0.0.1:0").expect("loopback");
        listen(&deaf, Backlog::new(0).expect("a number")).expect("it listens already");
        let deaf = (deaf.local_addr().expect("an address"), deaf);
        let _first = std::net::TcpStream::connect(deaf.0).expect("there is room for one");
        let other = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let link = CloudLink { server: deaf.0.to_string(), ..CloudLink::default() };
        let (poll, program) = (Poll::new().expect("a poll"), Path::new("/nowhere/edged"));
        let (socket, lookup) = (Token(1), Token(2));
        let (registry, endpoint) = (poll.registry(), &Endpoint::Hub);
        let place = Place { link: &link, endpoint, program, socket, lookup, registry };
        let at = |ms: u64| Instant(1_000 + ms);
        for more in [vec![other.local_addr().expect("an address")], Vec::new()] {
            let validity = Validity { not_before_s: 0, not_after_s: 1 };
            let credentials = Credentials { validity, config: loopback::configs().0 };
            let deadline = at(10 * CLOUD_ADDRESS_MS);
            let mut dial = Dial::start(Session(1), deadline, credentials, place, at(0));
            let dial = dial.as_mut().unwrap_or_else(|cause| panic!("{cause}"));
            let is_last = more.is_empty();
            dial.addresses.extend(more);
            let expected = if is_last { deadline } else { at(CLOUD_ADDRESS_MS) };
            assert_eq!(dial.wake_at(), expected);
            for (ms, waits) in [(CLOUD_ADDRESS_MS - 1, true), (CLOUD_ADDRESS_MS, is_last)] {
                let done = dial.advance(place, &mut Vec::new(), at(ms));
                assert!(matches!(done, Ok(Outcome::Waiting | Outcome::Busy)));
                assert_eq!(dial.address() == Some(deaf.0), waits, "{ms}: {}", dial.step());
            }
        }
    }

    #[test]
    fn a_refusal_is_shown_up_to_its_bound() {
        for more in [0, 1, 1_000] {
            let body = "x".repeat(REFUSAL_BYTES_MAX + more);
            let expected = format!("; it answers {:?}", &body[..REFUSAL_BYTES_MAX]);
            assert_eq!(first_line(body.as_bytes()), expected);
        }
    }
}
