//! ureq's connections, over our own sockets and TLS, for processes that may block: ureq implements
//! HTTP, and its own TLS supports neither a clock in 1970 nor our verifiers.
//!
//! Each request has a connection of its own. Its URL's scheme says whether it is one with TLS.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Error, StreamOwned};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use crate::agent::time::Instant;
use crate::io::clock;

/// How to connect.
pub(in crate::io) struct Connect {
    /// For the connection itself.
    pub(in crate::io) dial_patience: Duration,
    /// For each read and write.
    pub(in crate::io) patience: Duration,
    /// Of the whole request, however steadily bytes come.
    pub(in crate::io) deadline: Instant,
    /// Called for each connection with TLS.
    pub(in crate::io) tls: Box<MakeTls>,
    /// Replaces an error by one with a text for the user, which ureq does not take for its own
    /// timeout.
    pub(in crate::io) explain: Arc<Explain>,
}

pub(in crate::io) type MakeTls = dyn Fn() -> io::Result<Arc<ClientConfig>> + Send + Sync;
pub(in crate::io) type Explain = dyn Fn(io::Error) -> io::Error + Send + Sync;

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connect")
    }
}

/// Sends requests through such connections. Every status is an answer, a redirect too.
pub(in crate::io) fn agent(connect: Connect) -> ureq::Agent {
    // ureq checks it between two reads; [`Socket`] enforces it within them.
    let deadline = connect.deadline;
    let timeout = (deadline < Instant(u64::MAX)).then(|| left(deadline));
    let config = ureq::Agent::config_builder()
        // Proxy variables of the environment are for browsers: EdgeCore ignores them.
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(0)
        .timeout_global(timeout)
        .user_agent(concat!("edged/", env!("CARGO_PKG_VERSION")))
        .build();
    ureq::Agent::with_parts(config, connect, DefaultResolver::default())
}

impl Connector for Connect {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Connection>, ureq::Error> {
        let mut failures = Vec::new();
        let socket = details.addrs.iter().find_map(|to| {
            let connected = Socket::connect(to, self);
            connected.map_err(|error| failures.push(format!("{to}: {error}"))).ok()
        });
        let socket = socket
            .ok_or_else(|| io::Error::other(format!("cannot connect: {}", failures.join(", "))))?;
        let stream = if details.uri.scheme_str() == Some("https") {
            let host = details.uri.host().unwrap_or_default();
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            let connection = ClientConnection::new((self.tls)()?, name);
            let connection = connection.map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(connection, socket);
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock).map_err(|it| (self.explain)(it))?;
            }
            Stream::Tls(Box::new(stream))
        } else {
            Stream::Plain(socket)
        };
        let buffers = LazyBuffers::new(BUFFER_BYTES, BUFFER_BYTES);
        Ok(Some(Connection { stream, buffers, explain: Arc::clone(&self.explain) }))
    }
}

/// Room for the head of an answer, and for a certificate.
const BUFFER_BYTES: usize = 16 << 10;

pub(in crate::io) struct Connection {
    stream: Stream,
    buffers: LazyBuffers,
    explain: Arc<Explain>,
}

enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Prefers the alert of the server, which may say why it closed.
    fn reason(&mut self, error: io::Error) -> io::Error {
        let Stream::Tls(tls) = &mut self.stream else { return error };
        match tls.read(&mut [0]) {
            Err(alert)
                if alert
                    .get_ref()
                    .is_some_and(<dyn std::error::Error + Send + Sync>::is::<Error>) =>
            {
                alert
            }
            _ => error,
        }
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        let output = &self.buffers.output()[..amount];
        let wrote = match &mut self.stream {
            Stream::Plain(socket) => socket.write_all(output),
            Stream::Tls(tls) => tls.write_all(output).and_then(|()| tls.flush()),
        };
        let reason = wrote.map_err(|error| self.reason(error));
        reason.map_err(|error| (self.explain)(error).into())
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        let input = self.buffers.input_append_buf();
        let read = match &mut self.stream {
            Stream::Plain(socket) => socket.read(input),
            Stream::Tls(tls) => tls.read(input),
        };
        let count = match read {
            Ok(count) => count,
            // Go does not send close_notify: whoever reads compares the length.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err((self.explain)(error).into()),
        };
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        false
    }

    fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }
}

/// A socket with a timeout per read and write, and a deadline for the whole request, however
/// steadily bytes come.
struct Socket {
    stream: TcpStream,
    patience: Duration,
    deadline: Instant,
}

impl Socket {
    fn connect(to: &SocketAddr, by: &Connect) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(to, wait(by.dial_patience, by.deadline)?)?;
        Ok(Self { stream, patience: by.patience, deadline: by.deadline })
    }
}

impl Read for Socket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(wait(self.patience, self.deadline)?))?;
        let read = self.stream.read(to);
        read.map_err(|error| late(error, self.deadline))
    }
}

impl Write for Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(wait(self.patience, self.deadline)?))?;
        let written = self.stream.write(from);
        written.map_err(|error| late(error, self.deadline))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// How long to wait for the socket now.
fn wait(patience: Duration, deadline: Instant) -> io::Result<Duration> {
    let left = left(deadline);
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(patience.min(left)) }
}

/// Replaces the error if the deadline of the whole request has passed.
fn late(error: io::Error, deadline: Instant) -> io::Error {
    let is_over = error.kind() == ErrorKind::WouldBlock && left(deadline).is_zero();
    if is_over { ErrorKind::TimedOut.into() } else { error }
}

fn left(deadline: Instant) -> Duration {
    Duration::from_millis(deadline.since_ms(clock::boot()))
}
