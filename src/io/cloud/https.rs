//! HTTPS requests to the cloud, in a process that may block: ureq, over our own TLS.
//!
//! ureq implements HTTP; [`super::tls`] verifies the server, as for the websocket: ureq's own TLS
//! supports neither a clock in 1970 nor a certificate that only its hash identifies, and includes
//! the CAs of the web.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use super::tls::explain;
use crate::agent::time::Instant;
use crate::io::clock;
use crate::limits::{CREDENTIALS_BYTES_MAX, ENROL_REQUEST_MS};
use crate::model::error::{self, Input, System};
use crate::model::settings::CloudLink;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// The text of an error from the cloud, for the user.
    pub(super) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        text.trim().chars().take(TEXT_CHARS_MAX).collect()
    }
}

/// `GET <http_server><path>` with these headers, and an optional body: KubeEdge receives
/// certificate requests in this way.
pub(super) fn get(
    link: &CloudLink,
    tls: Arc<ClientConfig>,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
) -> Result<Answer, error::Error> {
    get_until(deadline(clock::boot()), link, tls, path, headers, body)
}

/// The deadline of a request that begins now.
fn deadline(now: Instant) -> Instant {
    now.plus_ms(ENROL_REQUEST_MS)
}

fn get_until(
    deadline: Instant,
    link: &CloudLink,
    tls: Arc<ClientConfig>,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
) -> Result<Answer, error::Error> {
    let base = link.http_server.trim_end_matches('/');
    if !base.starts_with("https://") {
        return Err(Input::quoted(base, "https://host:port").at("httpServer").into());
    }
    let url = format!("{base}{path}");
    let config = ureq::Agent::config_builder()
        // Proxy variables of the environment are for browsers: EdgeCore ignores them.
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(0)
        // ureq checks it between two reads; [`Socket`] enforces it within them.
        .timeout_global(Some(left(deadline)))
        .user_agent(concat!("edged/", env!("CARGO_PKG_VERSION")))
        .build();
    let connector = Tls { config: tls, link: link.clone(), deadline };
    let agent = ureq::Agent::with_parts(config, connector, DefaultResolver::default());
    let mut request = agent.get(&url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = match body {
        Some(body) => request.force_send_body().send(body),
        None => request.call(),
    };
    // The error's own text contains no header.
    let failed = |error: ureq::Error| System::at(&url, words(&error));
    let mut answer = answer.map_err(failed)?;
    // ureq accepts less than its limit.
    let limit = CREDENTIALS_BYTES_MAX + 1;
    let body = answer.body_mut().with_config().limit(limit).read_to_vec();
    Ok(Answer { status: answer.status().as_u16(), body: body.map_err(failed)? })
}

fn words(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::Timeout(_) => LATE.to_owned(),
        other => other.to_string(),
    }
}

fn left(deadline: Instant) -> Duration {
    Duration::from_millis(deadline.since_ms(clock::boot()))
}

/// A socket with a timeout per read and write, and a deadline for the whole request, however
/// steadily bytes come.
pub(in crate::io) struct Socket {
    stream: TcpStream,
    patience: Duration,
    deadline: Instant,
}

impl Socket {
    pub(in crate::io) fn connect(
        to: &SocketAddr,
        patience: Duration,
        deadline: Instant,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(to, wait(patience, deadline)?)?;
        Ok(Self { stream, patience, deadline })
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

/// Connects and performs the handshake.
struct Tls {
    config: Arc<ClientConfig>,
    link: CloudLink,
    deadline: Instant,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Connector for Tls {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Connection>, ureq::Error> {
        let host = details.uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let timeout = Duration::from_millis(self.link.handshake_timeout_ms.max(1));
        let mut failures = Vec::new();
        let socket = details.addrs.iter().find_map(|to| {
            let connected = Socket::connect(to, timeout, self.deadline);
            connected.map_err(|error| failures.push(format!("{to}: {error}"))).ok()
        });
        let socket = socket
            .ok_or_else(|| io::Error::other(format!("cannot connect: {}", failures.join(", "))))?;
        let connection = ClientConnection::new(Arc::clone(&self.config), name);
        let connection = connection.map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).map_err(|error| self.describe(&error))?;
        }
        let buffers = LazyBuffers::new(BUFFER_BYTES, BUFFER_BYTES);
        Ok(Some(Connection { stream, buffers, link: self.link.clone() }))
    }
}

impl Tls {
    fn describe(&self, error: &io::Error) -> io::Error {
        describe(error, &self.link)
    }
}

/// Our own error text, with nothing that ureq would take for its own timeout.
fn describe(error: &io::Error, link: &CloudLink) -> io::Error {
    let why = match error.kind() {
        ErrorKind::WouldBlock => format!("no answer in {} s", link.handshake_timeout_ms / 1_000),
        ErrorKind::TimedOut => LATE.to_owned(),
        _ => explain(error, link, "the cloud").to_string(),
    };
    io::Error::other(why)
}

struct Connection {
    stream: StreamOwned<ClientConnection, Socket>,
    buffers: LazyBuffers,
    link: CloudLink,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Prefers the alert of the cloud, which may say why it closed.
    fn reason(&mut self, error: io::Error) -> io::Error {
        match self.stream.read(&mut [0]) {
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
        let wrote = self.stream.write_all(output).and_then(|()| self.stream.flush());
        wrote.map_err(|error| describe(&self.reason(error), &self.link).into())
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        let input = self.buffers.input_append_buf();
        let count = match self.stream.read(input) {
            Ok(count) => count,
            // Go does not send close_notify; the length of an HTTP answer is known.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err(describe(&error, &self.link).into()),
        };
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    /// Every request has its own connection.
    fn is_open(&mut self) -> bool {
        false
    }

    fn is_tls(&self) -> bool {
        true
    }
}

/// Trusts any server: for the one answer that its hash verifies.
#[derive(Debug)]
pub(super) struct Anybody(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

const LATE: &str = "no complete answer in time";
/// The part of an answer that is shown.
const TEXT_CHARS_MAX: usize = 200;
/// Room for a certificate and the header.
const BUFFER_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the other end lives beside the test")]

    use std::net::TcpListener;

    use rustls::{ServerConfig, ServerConnection};

    use super::*;
    use crate::io::tls::loopback;
    use crate::limits::ENROL_MS;

    type Stream = StreamOwned<ServerConnection, TcpStream>;

    /// Between two bytes: much less than a socket's timeout.
    const PACE: Duration = Duration::from_millis(5);

    /// A server for one request, and the configuration to reach it.
    fn serve(serve: impl Fn(Stream) + Send + 'static) -> (CloudLink, Arc<ClientConfig>) {
        let (client, server): (_, Arc<ServerConfig>) = loopback::configs();
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let http_server = format!("https://{}", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            let (socket, _) = listener.accept().expect("it is dialled");
            let connection = ServerConnection::new(server).expect("a server");
            let mut stream = StreamOwned::new(connection, socket);
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|it| it == 1) {
                head.push(byte[0]);
            }
            serve(stream);
        });
        (CloudLink { http_server, handshake_timeout_ms: 5_000, ..CloudLink::default() }, client)
    }

    #[test]
    fn an_answer_has_a_bound() {
        for (bytes, fits) in [(CREDENTIALS_BYTES_MAX, true), (CREDENTIALS_BYTES_MAX + 1, false)] {
            let (link, tls) = serve(move |mut stream| {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
                let answer = [head.as_bytes(), &vec![b'x'; bytes as usize]].concat();
                // It may close the connection before it has read everything.
                let _ = stream.write_all(&answer).and_then(|()| stream.flush());
            });
            let done = get(&link, tls, "/ca.crt", &[], None).map(|answer| answer.body.len() as u64);
            assert_eq!(done.as_ref().ok(), fits.then_some(&bytes), "{done:?}");
        }
    }

    #[test]
    fn what_comes_byte_by_byte_ends_at_the_deadline() {
        // A handshake record with 16 KiB.
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let http_server = format!("https://{}", listener.local_addr().expect("an address"));
        let dripped = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("it is dialled");
            socket.set_read_timeout(Some(PACE)).expect("it can");
            let begun = socket.write_all(&[0x16, 3, 3, 0x40, 0]);
            begun.expect("it is taken");
            while socket.write_all(b"x").is_ok() {
                // Only the greeting comes, so this read waits.
                let _ = socket.read(&mut [0; 4 << 10]);
            }
        });
        let record = CloudLink { http_server, handshake_timeout_ms: 5_000, ..Default::default() };
        let (head, tls) = serve(|mut stream| {
            stream.sock.set_read_timeout(Some(PACE)).expect("it can");
            stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").expect("it is taken");
            while stream.write_all(b"X").and_then(|()| stream.flush()).is_ok() {
                let _ = stream.sock.read(&mut [0; 4 << 10]);
            }
        });
        for link in [record, head] {
            let deadline = clock::boot().plus_ms(300);
            let done = get_until(deadline, &link, Arc::clone(&tls), "/ca.crt", &[], None);
            let why = done.expect_err("there is no whole answer").to_string();
            assert!(why.ends_with(LATE), "{why}");
        }
        dripped.join().expect("it was hung up on");
    }

    #[test]
    fn two_requests_fit_into_one_application() {
        let end = deadline(deadline(Instant(0)));
        assert!(end == Instant(2 * ENROL_REQUEST_MS) && end <= Instant(ENROL_MS), "{end:?}");
    }
}
