//! Requests to REST endpoints: one connection each, over HTTP or over TLS with a certificate that
//! is verified.
//!
//! ```text
//!  Looking (a child process) ─▶ Connecting ─an address after the other─▶ Open ─▶ the answer
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;

use mio::event::Event as Ready;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::super::client::Client;
use crate::controller::event::Event;
use crate::controller::time::Instant;
use crate::io::cloud::names::Lookup;
use crate::io::socket::Stream;
use crate::io::tls::Tls;
use crate::limits::{
    API_LOOKUPS_MAX, ROUTER_NAME_MS, ROUTER_POST_MS, ROUTER_POSTS_MAX, ROUTER_TURN_BYTES,
};
use crate::model::error::{Error, Input, System};
use crate::model::router::{Post, PostAnswer, PostId, RestUrl, RouterEvent};
use crate::wire::http1::response::{Piece, Reader};
use crate::wire::router::post;
use crate::wire::x509::pem;

/// The requests under way.
#[derive(Debug)]
pub(super) struct Posts {
    first: Token,
    /// Looks up names, as `PROGRAM job resolve`.
    program: PathBuf,
    /// The file with the CAs; `None`: the system's.
    authorities: Option<PathBuf>,
    /// Made for the first URL that needs it.
    tls: Option<Arc<ClientConfig>>,
    slots: Vec<Option<Job>>,
    /// The addresses of names, and until when they are used.
    pub(super) names: BTreeMap<(Box<str>, u16), (Vec<SocketAddr>, Instant)>,
    /// Lookups that were killed and have not ended yet.
    children: Vec<Child>,
}

#[derive(Debug)]
struct Job {
    id: PostId,
    url: RestUrl,
    tls: Option<Arc<ClientConfig>>,
    stage: Stage,
    /// Those that were not tried.
    addresses: VecDeque<SocketAddr>,
    request: Vec<u8>,
    sent: usize,
    reader: Reader,
    answer: Option<PostAnswer>,
    answer_bytes_max: usize,
    deadline: Instant,
    is_ready: bool,
}

#[derive(Debug)]
enum Stage {
    Looking(Box<Lookup>),
    Connecting(TcpStream),
    Open(Client),
    Gone,
}

/// How a request stands.
enum Progress {
    Wait,
    /// There may be more that epoll will not report again.
    More,
    Done(Result<PostAnswer, String>),
}

impl Posts {
    pub(super) const TOKENS: usize = ROUTER_POSTS_MAX;

    pub(super) fn new(program: PathBuf, authorities: Option<PathBuf>, first: Token) -> Self {
        let slots = std::iter::repeat_with(|| None).take(ROUTER_POSTS_MAX).collect();
        let (tls, names, children) = (None, BTreeMap::new(), Vec::new());
        Self { first, program, authorities, tls, slots, names, children }
    }

    pub(super) fn ready(&mut self, ready: &Ready) {
        if let Some(Some(job)) = self.slots.get_mut(ready.token().0 - self.first.0) {
            job.is_ready = true;
        }
    }

    /// Begins a request.
    pub(super) fn start(
        &mut self,
        now: Instant,
        id: PostId,
        of: &Post,
        registry: &Registry,
        events: &mut Vec<Event>,
    ) {
        if let Err(why) = self.begin(now, id, of, registry) {
            events.push(posted(id, &of.url, Err(why.to_string())));
        }
    }

    fn begin(
        &mut self,
        now: Instant,
        id: PostId,
        of: &Post,
        registry: &Registry,
    ) -> Result<(), Error> {
        let slot = self.slots.iter().position(Option::is_none);
        let slot = slot.expect("the core makes so many requests at once");
        let tls = if of.url.is_tls { Some(self.client_config()?) } else { None };
        let name = (of.url.host.clone(), of.url.port);
        let known = self.names.get(&name).filter(|(_, until)| now < *until);
        let (stage, addresses) = if let Ok(ip) = of.url.host.parse::<IpAddr>() {
            (Stage::Gone, VecDeque::from([SocketAddr::new(ip, of.url.port)]))
        } else if let Some((addresses, _)) = known {
            (Stage::Gone, addresses.iter().copied().collect())
        } else if self.children.len() >= API_LOOKUPS_MAX {
            return Err(System::new("too many look-ups of names do not end").into());
        } else {
            let at = Token(self.first.0 + slot);
            let lookup = Lookup::start(&self.program, (&name.0, name.1), at, registry)?;
            (Stage::Looking(Box::new(lookup)), VecDeque::new())
        };
        self.slots[slot] = Some(Job {
            id,
            url: of.url.clone(),
            tls,
            stage,
            addresses,
            request: post(of),
            sent: 0,
            reader: Reader::single(),
            answer: None,
            answer_bytes_max: of.answer_bytes_max,
            deadline: now.plus_ms(ROUTER_POST_MS),
            is_ready: true,
        });
        Ok(())
    }

    fn client_config(&mut self) -> Result<Arc<ClientConfig>, Error> {
        if let Some(tls) = &self.tls {
            return Ok(Arc::clone(tls));
        }
        let tls = Arc::new(client_config(self.authorities.as_deref())?);
        Ok(Arc::clone(self.tls.insert(tls)))
    }

    pub(super) fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        for at in 0..self.slots.len() {
            let Some(job) = &mut self.slots[at] else { continue };
            let progress = if job.deadline <= now {
                let seconds = ROUTER_POST_MS / 1_000;
                Progress::Done(Err(format!("no answer for {seconds} s")))
            } else if std::mem::take(&mut job.is_ready) {
                self.advance(at, now, registry)
            } else {
                Progress::Wait
            };
            let Some(job) = &mut self.slots[at] else { continue };
            match progress {
                Progress::Wait => {}
                Progress::More => job.is_ready = true,
                Progress::Done(result) => {
                    events.push(posted(job.id, &job.url, result));
                    if let Stage::Looking(lookup) = &mut job.stage {
                        self.children.extend(lookup.end());
                    }
                    self.slots[at] = None;
                }
            }
        }
    }

    fn advance(&mut self, at: usize, now: Instant, registry: &Registry) -> Progress {
        let Some(job) = &mut self.slots[at] else { return Progress::Wait };
        if let Stage::Looking(lookup) = &mut job.stage {
            let Some(found) = lookup.advance() else { return Progress::Wait };
            self.children.extend(lookup.end());
            job.stage = Stage::Gone;
            match found {
                Ok(addresses) => {
                    job.addresses = addresses.iter().copied().collect();
                    self.names.retain(|_, (_, until)| now < *until);
                    let name = (job.url.host.clone(), job.url.port);
                    self.names.insert(name, (addresses, now.plus_ms(ROUTER_NAME_MS)));
                }
                Err(why) => return Progress::Done(Err(why)),
            }
        }
        job.advance(Token(self.first.0 + at), registry)
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let jobs = self.slots.iter().flatten();
        jobs.map(|job| if job.is_ready { Instant(0) } else { job.deadline }).min()
    }
}

impl Drop for Posts {
    fn drop(&mut self) {
        for job in self.slots.iter_mut().flatten() {
            if let Stage::Looking(lookup) = &mut job.stage {
                drop(lookup.end());
            }
        }
    }
}

fn posted(id: PostId, url: &RestUrl, result: Result<PostAnswer, String>) -> Event {
    let result = result.map_err(|why| format!("{}: {why}", url.authority()).into());
    Event::Router(Box::new(RouterEvent::Posted(id, result)))
}

impl Job {
    fn advance(&mut self, token: Token, registry: &Registry) -> Progress {
        let mut why = "its name has no address".to_owned();
        // Each address is tried once.
        loop {
            if matches!(self.stage, Stage::Gone) {
                let Some(to) = self.addresses.pop_front() else {
                    return Progress::Done(Err(why));
                };
                match connect(to, token, registry) {
                    Ok(socket) => self.stage = Stage::Connecting(socket),
                    Err(error) => {
                        why = error.to_string();
                        continue;
                    }
                }
            }
            match self.connected() {
                Ok(true) => break,
                Ok(false) => return Progress::Wait,
                Err(error) => (self.stage, why) = (Stage::Gone, error.to_string()),
            }
        }
        match self.exchange() {
            Ok(progress) => progress,
            Err(error) => Progress::Done(Err(error.to_string())),
        }
    }

    /// Whether the TCP connection is established.
    fn connected(&mut self) -> Result<bool, Error> {
        let stage = std::mem::replace(&mut self.stage, Stage::Gone);
        let Stage::Connecting(socket) = stage else {
            self.stage = stage;
            return Ok(true);
        };
        if let Some(error) = socket.take_error()? {
            return Err(error.into());
        }
        match socket.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected => {
                self.stage = Stage::Connecting(socket);
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        let _ = socket.set_nodelay(true);
        self.stage = Stage::Open(match &self.tls {
            None => Client::Local(Stream::Port(socket)),
            Some(tls) => {
                let name = ServerName::try_from(self.url.host.to_string());
                let name = name.map_err(|error| System::new(error.to_string()))?;
                let connection = ClientConnection::new(Arc::clone(tls), name);
                let connection = connection.map_err(|error| System::new(error.to_string()))?;
                Client::ApiServer(Box::new(Tls::new(connection, socket)))
            }
        });
        Ok(true)
    }

    /// Writes the request and reads the answer, within a turn's bytes.
    fn exchange(&mut self) -> Result<Progress, Error> {
        let Stage::Open(client) = &mut self.stage else { return Ok(Progress::Wait) };
        client.begin_turn();
        if let Client::ApiServer(tls) = client
            && !tls.handshake()?
        {
            return Ok(if tls.more { Progress::More } else { Progress::Wait });
        }
        let mut left = ROUTER_TURN_BYTES;
        while self.sent < self.request.len() && left > 0 {
            let end = self.request.len().min(self.sent + left);
            match client.write(&self.request[self.sent..end]) {
                Ok(count) => (self.sent, left) = (self.sent + count, left - count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The answer may have come before: 413 for a body that is not wanted.
                Err(_) => self.sent = self.request.len(),
            }
        }
        let _ = client.push();
        let is_blocked = self.sent < self.request.len() && left == 0;
        let mut left = ROUTER_TURN_BYTES;
        let mut buffer = [0; READ_BYTES];
        while left > 0 {
            let Stage::Open(client) = &mut self.stage else { break };
            let count = match client.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let more = is_blocked || client.has_more();
                    return Ok(if more { Progress::More } else { Progress::Wait });
                }
                Err(error) => return Err(error.into()),
            };
            if count == 0 {
                let whole = self.answer.take().filter(|_| self.reader.closed());
                let cut_off = || "it has closed the connection".to_owned();
                return Ok(Progress::Done(whole.ok_or_else(cut_off)));
            }
            left = left.saturating_sub(count);
            if let Some(result) = self.take(&buffer[..count]) {
                return Ok(Progress::Done(result));
            }
        }
        Ok(Progress::More)
    }

    /// Takes received bytes; returns the answer when it is whole, or as far as it is wanted.
    fn take(&mut self, bytes: &[u8]) -> Option<Result<PostAnswer, String>> {
        self.reader.receive(bytes);
        loop {
            match self.reader.piece() {
                Err(fault) => return Some(Err(fault.to_string())),
                Ok(None) => return None,
                Ok(Some(Piece::Head(head))) => {
                    let answer = PostAnswer { status: head.status, body: Vec::new() };
                    if self.answer_bytes_max == 0 {
                        return Some(Ok(answer));
                    }
                    self.answer = Some(answer);
                }
                Ok(Some(Piece::Body(piece))) => {
                    let answer = self.answer.as_mut().expect("a body follows a head");
                    if answer.body.len() + piece.len() > self.answer_bytes_max {
                        let most = self.answer_bytes_max;
                        let why = format!("got a longer answer, expected {most} bytes at most");
                        return Some(Err(why));
                    }
                    answer.body.extend_from_slice(piece);
                }
                Ok(Some(Piece::End)) => return self.answer.take().map(Ok),
            }
        }
    }
}

fn connect(to: SocketAddr, token: Token, registry: &Registry) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(to)?;
    registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
    Ok(socket)
}

/// Trusts the CAs in this file, or the system's.
pub(super) fn client_config(authorities: Option<&Path>) -> Result<ClientConfig, Error> {
    let system = || SYSTEM_CAS.iter().map(Path::new).find(|path| path.exists());
    let path = authorities.or_else(system).ok_or_else(|| {
        let all = SYSTEM_CAS.join(", ");
        Input::other(format!("got none of {all}, expected one, or --rest-ca FILE"))
    })?;
    let place = path.display();
    let mut text = String::new();
    let file = File::open(path).and_then(|it| it.take(CAS_BYTES_MAX).read_to_string(&mut text));
    file.map_err(|error| System::at(&place, error))?;
    let mut roots = RootCertStore::empty();
    let blocks = pem::decode(&text).map_err(|fault| Input::other(fault.to_string()).at(&place))?;
    for block in blocks.into_iter().filter(|block| block.label == "CERTIFICATE") {
        // A system has CAs of forms that nobody here knows.
        let _ = roots.add(CertificateDer::from(block.der));
    }
    if roots.is_empty() {
        return Err(Input::other("got no certificate of a CA, expected some").at(place).into());
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for these versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(ROUTER_POSTS_MAX);
    Ok(config)
}

/// Debian and Alpine; Fedora; others.
const SYSTEM_CAS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// A system's CAs have some 250 KiB.
const CAS_BYTES_MAX: u64 = 4 << 20;
const READ_BYTES: usize = 16 << 10;
