//! The sockets of the broker inside: a port, loopback by default, and a unix socket for pods.
//!
//! Everything has a bound: connections, bytes of one turn, and what [`Broker`] limits. A port that
//! is in use is logged once and tried again. Clients that come and go are logged at debug level;
//! those that are ended by us with a line at most once a minute.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use mio::event::Event as Ready;
use mio::{Registry, Token};
use rustls::{ServerConfig, ServerConnection};

use super::transport::{Came, Transport, server_config};
use crate::agent::time::{Instant, sooner};
use crate::io::log::Limit;
use crate::io::socket::{Access, Address, Listener, Stream};
use crate::io::tls::Tls;
use crate::limits::{HTTP_ACCEPTS_PER_TURN, MQTT_CONNECTIONS_MAX, MQTT_TURN_BYTES};
use crate::model::error::Error;
use crate::model::settings::MqttBrokerSettings;
use crate::wire::mqtt::broker::{Broker, BrokerEvent, Config, ConnectionId, End, Trust};
use crate::wire::mqtt::rules;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) broker: Broker,
    listeners: Vec<Listener>,
    tls: Option<Arc<ServerConfig>>,
    /// Of the port; the next is the unix socket's, then those of the connections.
    first: Token,
    connections: [Option<Connection>; MQTT_CONNECTIONS_MAX],
    last_id: u64,
    limit: Limit,
}

#[derive(Debug)]
struct Connection {
    id: ConnectionId,
    transport: Transport,
    /// There may be bytes to read that epoll will not report again.
    readable: bool,
    /// The handshake of TLS is complete.
    is_open: bool,
}

impl Server {
    /// The number of tokens that it uses.
    pub(super) const TOKENS: usize = 2 + MQTT_CONNECTIONS_MAX;

    pub(super) fn new(settings: &MqttBrokerSettings, first: Token) -> Result<Self, Error> {
        let address = settings.address().map_err(|wrong| wrong.at("mqttServerInternal"))?;
        let tls = if settings.server.is_tls { Some(server_config(settings)?) } else { None };
        let mut listeners = vec![Listener::new(Address::Port(address), NAME, first)];
        if !settings.socket.is_empty() {
            let path = PathBuf::from(&settings.socket);
            listeners.push(Listener::new(Address::Socket(path), NAME, Token(first.0 + 1)));
        }
        let config = Config {
            user: settings.user.as_str().into(),
            password: settings.password.clone(),
            session_messages_max: settings.session_messages_max.max(1),
            may_publish: rules::may_publish,
        };
        Ok(Self {
            broker: Broker::new(config),
            listeners,
            tls,
            first,
            connections: [const { None }; MQTT_CONNECTIONS_MAX],
            last_id: 0,
            limit: Limit::default(),
        })
    }

    pub(super) fn owns(&self, token: Token) -> bool {
        (self.first.0..self.first.0 + Self::TOKENS).contains(&token.0)
    }

    /// The address of the port, once it listens.
    pub(super) fn bound(&self) -> Option<std::net::SocketAddr> {
        self.listeners.iter().find_map(Listener::bound)
    }

    pub(super) fn ready(&mut self, ready: &Ready) {
        let at = ready.token().0 - self.first.0;
        if let Some(listener) = self.listeners.get_mut(at).filter(|_| at < 2) {
            listener.ready();
        } else if let Some(Some(connection)) =
            at.checked_sub(2).and_then(|at| self.connections.get_mut(at))
        {
            connection.readable |=
                ready.is_readable() || ready.is_read_closed() || ready.is_error();
        }
    }

    /// When to call [`Server::tick`].
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let is_readable = |connection: &Connection| {
            connection.readable && (!connection.is_open || self.broker.wants_input(connection.id))
        };
        if self.connections.iter().flatten().any(is_readable) {
            return Some(Instant(0));
        }
        let listeners = self.listeners.iter().filter_map(Listener::wake_at).min();
        sooner(self.broker.wake_at_ms().map(Instant), listeners)
    }

    /// Listens, accepts, reads, and ends what has ended.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        registry: &Registry,
        events: &mut Vec<BrokerEvent>,
    ) {
        for at in 0..self.listeners.len() {
            self.listeners[at].listen(now, registry, remedy);
            self.accept(at, now, registry);
        }
        let first = events.len();
        self.broker.tick(now.0, events);
        for slot in &mut self.connections {
            let Some(connection) = slot else { continue };
            if let Err(error) = connection.read(&mut self.broker, now, events) {
                log::debug!("an MQTT client's connection failed: {error}");
                self.broker.close(connection.id, events);
                *slot = None;
            }
        }
        self.log(now, &events[first..]);
        self.flush(now, events);
    }

    /// Writes what waits, and closes what has ended.
    pub(super) fn flush(&mut self, now: Instant, events: &mut Vec<BrokerEvent>) {
        let first = events.len();
        for slot in &mut self.connections {
            let Some(connection) = slot else { continue };
            let wrote = connection.write(&mut self.broker, now);
            if let Err(error) = &wrote {
                log::debug!("an MQTT client's connection failed: {error}");
            }
            if wrote.is_err() || self.broker.ended(connection.id).is_some() {
                connection.transport.send_close();
                self.broker.close(connection.id, events);
                *slot = None;
            }
        }
        self.log(now, &events[first..]);
    }

    fn accept(&mut self, listener: usize, now: Instant, registry: &Registry) {
        for _ in 0..HTTP_ACCEPTS_PER_TURN {
            let access = self.listeners[listener].access();
            let Some(stream) = self.listeners[listener].accept(now) else { return };
            let Some(at) = self.connections.iter().position(Option::is_none) else {
                if let Some(repeats) = self.limit.pass(now) {
                    log::warn!(
                        "{NAME} has {MQTT_CONNECTIONS_MAX} clients, which is the most: another is \
                         turned away; repeats={repeats}"
                    );
                }
                continue;
            };
            match self.admit(stream, access, Token(self.first.0 + 2 + at), registry) {
                Ok(connection) => {
                    let trust = match access {
                        Access::Public => Trust::Password,
                        Access::Protected => Trust::Socket,
                    };
                    self.broker.open(connection.id, trust, now.0);
                    self.connections[at] = Some(connection);
                }
                Err(error) => log::warn!("{NAME} cannot take a connection: {error}"),
            }
        }
    }

    fn admit(
        &mut self,
        mut stream: Stream,
        access: Access,
        token: Token,
        registry: &Registry,
    ) -> io::Result<Connection> {
        stream.register(registry, token)?;
        self.last_id += 1;
        let id = ConnectionId(self.last_id);
        let transport = match (stream, &self.tls) {
            (Stream::Port(socket), Some(config)) if access == Access::Public => {
                let _ = socket.set_nodelay(true);
                let tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                Transport::Tls(Box::new(Tls::new(tls, socket)))
            }
            (stream, _) => {
                if let Stream::Port(socket) = &stream {
                    let _ = socket.set_nodelay(true);
                }
                Transport::Plain(stream)
            }
        };
        Ok(Connection { id, transport, readable: true, is_open: false })
    }

    fn log(&mut self, now: Instant, events: &[BrokerEvent]) {
        for event in events {
            match event {
                BrokerEvent::Received { .. } => {}
                BrokerEvent::Connected { client_id } => {
                    log::debug!("MQTT client={client_id:?} connected");
                }
                BrokerEvent::Disconnected {
                    client_id,
                    end: end @ (End::Disconnect | End::Lost),
                } => {
                    log::debug!("MQTT client={client_id:?}: {end}");
                }
                BrokerEvent::Disconnected { client_id, end } => {
                    if let Some(repeats) = self.limit.pass(now) {
                        log::warn!("MQTT client={client_id:?} is cut: {end}; repeats={repeats}");
                    }
                }
            }
        }
    }
}

impl Connection {
    /// Reads a bounded amount, unless the broker wants no more now.
    fn read(
        &mut self,
        broker: &mut Broker,
        now: Instant,
        events: &mut Vec<BrokerEvent>,
    ) -> io::Result<()> {
        if !self.readable || (self.is_open && !broker.wants_input(self.id)) {
            return Ok(());
        }
        self.is_open = self.transport.begin_turn()?;
        let (mut buffer, mut count) = ([0; READ_BYTES], 0);
        while self.is_open && broker.wants_input(self.id) && count < MQTT_TURN_BYTES {
            match self.transport.read(&mut buffer)? {
                Came::Bytes(came) => {
                    count += came;
                    broker.receive(self.id, &buffer[..came], now.0, events);
                }
                Came::Nothing(more) => {
                    self.readable = more;
                    return Ok(());
                }
                Came::End => return Err(ErrorKind::UnexpectedEof.into()),
            }
        }
        self.readable = self.is_open || self.transport.has_more();
        Ok(())
    }

    fn write(&mut self, broker: &mut Broker, now: Instant) -> io::Result<()> {
        loop {
            let waits = broker.output(self.id);
            if waits.is_empty() {
                return Ok(());
            }
            let count = self.transport.write(waits)?;
            broker.sent(self.id, count, now.0);
            if count == 0 {
                return Ok(());
            }
        }
    }
}

fn remedy(address: &Address, error: &io::Error) -> &'static str {
    match (address, error.kind()) {
        (Address::Port(_), ErrorKind::AddrInUse) => {
            "another program listens there (mosquitto, or KubeEdge's edgecore?): stop it, or \
             choose another with mqttServerInternal"
        }
        (Address::Port(_) | Address::Socket(_), _) => "the cloud and the pods do not need it",
    }
}

const NAME: &str = "the MQTT broker";
/// On the stack.
const READ_BYTES: usize = 4 << 10;
