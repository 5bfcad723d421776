//! The connection to another broker: name, TCP, TLS, CONNECT, and again after a loss.
//!
//! ```text
//!  Waiting ─due─▶ Naming ─▶ Connecting ─▶ Open: TLS, CONNECT, up
//!     ▲   1 s, doubling to 30 s │             │
//!     └─────────────────────────┴── failed ◀──┘
//! ```
//!
//! Nothing waits for the broker. The log has a line when the state changes, and the cause when it
//! is another one, each at most once a minute: a warning, unless nobody has asked for a broker. By
//! KubeEdge's defaults a node without a word about MQTT dials loopback, where mostly none listens.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;

use mio::event::Event as Ready;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::transport::{Came, Transport, client_config};
use crate::agent::time::{Backoff, BackoffBounds, Instant, Now, Rng};
use crate::io::cloud::dial::is_connected;
use crate::io::cloud::names::Lookup;
use crate::io::log::Limit;
use crate::io::socket::Stream;
use crate::io::tls::Tls;
use crate::limits::{
    CLOUD_ADDRESS_MS, CLOUD_LOOKUPS_MAX, LINK_CALM_MS, MQTT_BACKOFF_MAX_MS, MQTT_BACKOFF_MIN_MS,
    MQTT_DIAL_MS, MQTT_TURN_BYTES,
};
use crate::model::settings::MqttClientSettings;
use crate::wire::mqtt::client::{Client, ClientEvent, End, Identity};

#[derive(Debug)]
pub(super) struct Link {
    settings: MqttClientSettings,
    /// The program that children run.
    program: PathBuf,
    /// Of the connection; the next one is that of the lookup.
    first: Token,
    pub(super) client: Client,
    stage: Stage,
    backoff: Backoff,
    rng: Rng,
    /// The result of the last lookup.
    known: Vec<SocketAddr>,
    /// Children of finished lookups, until they have ended.
    children: Vec<Child>,
    /// Something is to be done that epoll does not report.
    busy: bool,
    is_up: bool,
    /// The last dial was refused by this machine: nobody listens.
    is_refused_here: bool,
    /// The last cause, for the log and for the status.
    cause: String,
    up_limit: Limit,
    down_limit: Limit,
    other_limit: Limit,
}

#[derive(Debug)]
enum Stage {
    Waiting {
        until: Instant,
    },
    Naming {
        lookup: Lookup,
        deadline: Instant,
    },
    Connecting {
        socket: TcpStream,
        to: SocketAddr,
        since: Instant,
        /// Addresses that are not tried yet.
        rest: VecDeque<SocketAddr>,
        deadline: Instant,
    },
    Open {
        transport: Transport,
        to: SocketAddr,
        /// CONNECT was sent.
        is_opened: bool,
        deadline: Instant,
    },
}

/// What the owner gets.
pub(super) enum LinkEvent {
    Client(ClientEvent),
    /// Once for each loss, and if a dial fails for another cause than the one before.
    Down(String),
}

impl Link {
    pub(super) fn new(
        settings: MqttClientSettings,
        program: PathBuf,
        first: Token,
        seed: u64,
    ) -> Self {
        let client = Client::new(Identity {
            client_id: settings.client_id.as_str().into(),
            user: settings.user.as_str().into(),
            password: settings.password.clone(),
        });
        Self {
            settings,
            program,
            first,
            client,
            stage: Stage::Waiting { until: Instant(0) },
            backoff: Backoff::default(),
            rng: Rng::new(seed),
            known: Vec::new(),
            children: Vec::new(),
            busy: true,
            is_up: false,
            is_refused_here: false,
            cause: String::new(),
            up_limit: Limit::default(),
            down_limit: Limit::default(),
            other_limit: Limit::default(),
        }
    }

    pub(super) fn owns(&self, token: Token) -> bool {
        token == self.first || token == self.lookup_token()
    }

    fn lookup_token(&self) -> Token {
        Token(self.first.0 + 1)
    }

    pub(super) fn ready(&mut self, ready: &Ready) {
        self.busy |= self.owns(ready.token());
    }

    /// The owner has used [`Link::client`]: bytes may wait to be sent or to be read.
    pub(super) fn touch(&mut self) {
        self.busy = true;
    }

    /// Whether the broker has accepted us; if not, why.
    pub(super) fn state(&self) -> Result<(), &str> {
        if self.is_up { Ok(()) } else { Err(&self.cause) }
    }

    pub(super) fn server(&self) -> String {
        self.settings.server.to_string()
    }

    /// A child of the process has ended, perhaps one of ours.
    pub(super) fn reap(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// When to call [`Link::tick`].
    pub(super) fn wake_at(&self) -> Option<Instant> {
        if self.busy && !matches!(self.stage, Stage::Waiting { .. }) {
            return Some(Instant(0));
        }
        match &self.stage {
            Stage::Waiting { until } => Some(*until),
            Stage::Naming { deadline, .. } => Some(*deadline),
            Stage::Connecting { since, rest, deadline, .. } => {
                Some(address_by(*since, rest, *deadline))
            }
            Stage::Open { is_opened: false, deadline, .. } => Some(*deadline),
            Stage::Open { is_opened: true, .. } => self.client.wake_at_ms().map(Instant),
        }
    }

    /// Does what is possible now.
    pub(super) fn tick(&mut self, now: Now, registry: &Registry, events: &mut Vec<LinkEvent>) {
        self.busy = false;
        let mut found = Vec::new();
        let done = self.advance(now, registry, &mut found);
        self.pass_on(found, now.boot, events);
        if let Err(why) = done {
            self.fail(why, now.boot, events);
        }
    }

    /// Goes from stage to stage. An error says why the connection, or the attempt, is over.
    fn advance(
        &mut self,
        now: Now,
        registry: &Registry,
        found: &mut Vec<ClientEvent>,
    ) -> Result<(), String> {
        loop {
            let until = Instant(u64::MAX);
            match std::mem::replace(&mut self.stage, Stage::Waiting { until }) {
                Stage::Waiting { until } if now.boot < until => {
                    self.stage = Stage::Waiting { until };
                    return Ok(());
                }
                Stage::Waiting { .. } => self.start(now.boot, registry)?,
                Stage::Naming { mut lookup, deadline } => match lookup.advance() {
                    None if now.boot >= deadline => {
                        self.children.extend(lookup.end());
                        return Err(format!("no answer to the lookup of {:?}", self.host()));
                    }
                    None => {
                        self.stage = Stage::Naming { lookup, deadline };
                        return Ok(());
                    }
                    Some(answer) => {
                        self.children.extend(lookup.end());
                        self.named(answer)?;
                        let all = self.known.iter().copied().collect();
                        self.connect(all, deadline, now.boot, registry)?;
                    }
                },
                Stage::Connecting { socket, to, since, rest, deadline } => {
                    let late = now.boot >= address_by(since, &rest, deadline);
                    match is_connected(&socket) {
                        Ok(true) => self.open(socket, to, deadline, now)?,
                        Ok(false) if !late => {
                            self.stage = Stage::Connecting { socket, to, since, rest, deadline };
                            return Ok(());
                        }
                        Ok(false) if rest.is_empty() => {
                            return Err(format!("no answer to a TCP connect to {to}"));
                        }
                        Err(error) if rest.is_empty() => {
                            return Err(self.refused(to, &error));
                        }
                        Ok(false) | Err(_) => self.connect(rest, deadline, now.boot, registry)?,
                    }
                }
                Stage::Open { transport, to, is_opened, deadline } => {
                    return self.serve(transport, to, is_opened, deadline, now.boot, found);
                }
            }
        }
    }

    fn host(&self) -> &str {
        &self.settings.server.host
    }

    fn start(&mut self, now: Instant, registry: &Registry) -> Result<(), String> {
        self.is_refused_here = false;
        let deadline = now.plus_ms(MQTT_DIAL_MS);
        let (host, port) = (self.settings.server.host.clone(), self.settings.server.port);
        if let Ok(ip) = host.parse::<IpAddr>() {
            let address = SocketAddr::new(ip, port);
            return self.connect([address].into(), deadline, now, registry);
        }
        if self.children.len() >= CLOUD_LOOKUPS_MAX {
            let count = self.children.len();
            return Err(format!("{count} name lookups hang and cannot be killed"));
        }
        let lookup = Lookup::start(&self.program, (&host, port), self.lookup_token(), registry);
        let lookup = lookup.map_err(|error| format!("cannot look up {host:?}: {error}"))?;
        self.stage = Stage::Naming { lookup, deadline };
        Ok(())
    }

    /// If the lookup fails, the addresses of the one before are tried.
    fn named(&mut self, answer: Result<Vec<SocketAddr>, String>) -> Result<(), String> {
        match answer {
            Ok(found) if !found.is_empty() => self.known = found,
            Ok(_) | Err(_) if !self.known.is_empty() => {}
            Ok(_) => return Err(format!("{:?} has no address", self.host())),
            Err(why) => return Err(format!("cannot look up {:?}: {why}", self.host())),
        }
        Ok(())
    }

    /// Starts to connect to the next address.
    fn connect(
        &mut self,
        mut rest: VecDeque<SocketAddr>,
        deadline: Instant,
        now: Instant,
        registry: &Registry,
    ) -> Result<(), String> {
        let mut why = "no address is left".to_owned();
        while let Some(to) = rest.pop_front() {
            let both = Interest::READABLE | Interest::WRITABLE;
            let connected = TcpStream::connect(to).and_then(|mut socket| {
                registry.register(&mut socket, self.first, both).map(|()| socket)
            });
            match connected {
                Ok(socket) => {
                    self.stage = Stage::Connecting { socket, to, since: now, rest, deadline };
                    return Ok(());
                }
                Err(error) => why = self.refused(to, &error),
            }
        }
        Err(why)
    }

    /// The text for the error of a dial.
    fn refused(&mut self, to: SocketAddr, error: &Error) -> String {
        let is_refused = error.kind() == ErrorKind::ConnectionRefused;
        self.is_refused_here = is_refused && to.ip().is_loopback();
        format!("{to}: {error}")
    }

    fn open(
        &mut self,
        socket: TcpStream,
        to: SocketAddr,
        deadline: Instant,
        now: Now,
    ) -> Result<(), String> {
        // Packets are small, and many are answered one by one.
        let _ = socket.set_nodelay(true);
        let transport = if self.settings.server.is_tls {
            let failed = |why: &dyn std::fmt::Display| format!("TLS with {to}: {why}");
            let config = client_config(&self.settings, now.wall).map_err(|why| failed(&why))?;
            let name = ServerName::try_from(self.host().to_owned());
            let name = name.map_err(|why| failed(&why))?;
            let tls = ClientConnection::new(Arc::clone(&config), name);
            Transport::Tls(Box::new(Tls::new(tls.map_err(|why| failed(&why))?, socket)))
        } else {
            Transport::Plain(Stream::Port(socket))
        };
        self.stage = Stage::Open { transport, to, is_opened: false, deadline };
        Ok(())
    }

    /// Continues an open connection: TLS, then MQTT.
    fn serve(
        &mut self,
        mut transport: Transport,
        to: SocketAddr,
        mut is_opened: bool,
        deadline: Instant,
        now: Instant,
        found: &mut Vec<ClientEvent>,
    ) -> Result<(), String> {
        let failed = |why: &dyn std::fmt::Display| format!("{to}: {why}");
        let is_ready = transport.begin_turn().map_err(|error| failed(&error))?;
        if is_ready && !is_opened {
            self.client.open(deadline.0);
            is_opened = true;
        }
        if !is_opened && now >= deadline {
            return Err(failed(&"it accepts TCP connections but does not answer in TLS"));
        }
        if is_opened {
            self.exchange(&mut transport, now, found).map_err(|why| failed(&why))?;
        }
        self.busy |= transport.has_more();
        self.stage = Stage::Open { transport, to, is_opened, deadline };
        Ok(())
    }

    fn exchange(
        &mut self,
        transport: &mut Transport,
        now: Instant,
        found: &mut Vec<ClientEvent>,
    ) -> Result<(), String> {
        let said = |end: End| end.to_string();
        // What was held back until the owner has acknowledged.
        self.client.receive(&[], now.0, found).map_err(said)?;
        let (mut buffer, mut count) = ([0; READ_BYTES], 0);
        while self.client.wants_input() {
            if count >= MQTT_TURN_BYTES {
                self.busy = true;
                break;
            }
            match transport.read(&mut buffer).map_err(|error| error.to_string())? {
                Came::Bytes(came) => {
                    count += came;
                    self.client.receive(&buffer[..came], now.0, found).map_err(said)?;
                }
                Came::Nothing(_) => break,
                Came::End => return Err("it closed the connection".to_owned()),
            }
        }
        self.client.tick(now.0).map_err(said)?;
        write(&mut self.client, transport, found)
    }

    /// Writes what waits, at the end of a turn.
    pub(super) fn flush(&mut self, now: Instant, events: &mut Vec<LinkEvent>) {
        let Stage::Open { transport, to, is_opened: true, .. } = &mut self.stage else { return };
        let mut found = Vec::new();
        let done = write(&mut self.client, transport, &mut found);
        let done = done.map_err(|why| format!("{to}: {why}"));
        self.pass_on(found, now, events);
        if let Err(why) = done {
            self.fail(why, now, events);
        }
    }

    fn pass_on(&mut self, found: Vec<ClientEvent>, now: Instant, events: &mut Vec<LinkEvent>) {
        for event in found {
            match &event {
                ClientEvent::Up { .. } => {
                    self.is_up = true;
                    if let Some(repeats) = self.up_limit.pass(now) {
                        let server = &self.settings.server;
                        log::info!("the MQTT broker {server} is connected; repeats={repeats}");
                    }
                }
                ClientEvent::SubscriptionRefused(filter) => {
                    self.warn(now, &format!("it refuses the subscription to {filter:?}"));
                }
                ClientEvent::Skipped { bytes } => {
                    self.warn(now, &format!("its message of {bytes} bytes is skipped"));
                }
                ClientEvent::Received { .. }
                | ClientEvent::Published(_)
                | ClientEvent::Dropped(_) => {}
            }
            events.push(LinkEvent::Client(event));
        }
    }

    fn warn(&mut self, now: Instant, what: &str) {
        if let Some(repeats) = self.other_limit.pass(now) {
            let server = &self.settings.server;
            log::warn!("the MQTT broker {server}: {what}; repeats={repeats}");
        }
    }

    /// Whether a failure now is one that somebody has to know of.
    pub(super) fn is_trouble(&self) -> bool {
        self.settings.is_written || self.is_up || !self.is_refused_here
    }

    fn fail(&mut self, why: String, now: Instant, events: &mut Vec<LinkEvent>) {
        let is_news = self.is_up || self.cause != why;
        let server = &self.settings.server;
        let is_trouble = self.is_trouble();
        match is_news.then(|| self.down_limit.pass(now)).flatten() {
            Some(repeats) if is_trouble => log::warn!(
                "the MQTT broker {server} is not connected, and dialled again: {why}; \
                 repeats={repeats}"
            ),
            Some(repeats) => log::info!(
                "no MQTT broker listens on {server}, KubeEdge's default; it is dialled again, \
                 and modules.eventBus.enable: false ends that; repeats={repeats}"
            ),
            None => log::debug!("the MQTT broker {server}: {why}"),
        }
        let mut found = Vec::new();
        self.client.close(&mut found);
        events.extend(found.into_iter().map(LinkEvent::Client));
        if is_news {
            events.push(LinkEvent::Down(why.clone()));
        }
        (self.is_up, self.cause) = (false, why);
        let (min_ms, max_ms) = (MQTT_BACKOFF_MIN_MS, MQTT_BACKOFF_MAX_MS);
        self.backoff.grow(now, now, BackoffBounds { min_ms, max_ms, calm_ms: LINK_CALM_MS });
        let until = now.plus_ms(self.rng.jitter_ms(self.backoff.delay_ms()));
        self.stage = Stage::Waiting { until };
    }
}

fn write(
    client: &mut Client,
    transport: &mut Transport,
    found: &mut Vec<ClientEvent>,
) -> Result<(), String> {
    while !client.output().is_empty() {
        let count = transport.write(client.output()).map_err(|error| error.to_string())?;
        if count == 0 {
            break;
        }
        client.sent(count, found);
    }
    Ok(())
}

fn address_by(since: Instant, rest: &VecDeque<SocketAddr>, deadline: Instant) -> Instant {
    if rest.is_empty() { deadline } else { deadline.min(since.plus_ms(CLOUD_ADDRESS_MS)) }
}

/// On the stack.
const READ_BYTES: usize = 4 << 10;
