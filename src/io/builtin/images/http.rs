//! HTTP requests to registries and token servers: ureq, over our own sockets and TLS.
//!
//! Servers are verified with the CAs of the system, which are read at the first connection that
//! needs them; [`crate::io::cloud::tls`] allows for a clock that is not set yet. Plain HTTP is for
//! loopback alone. A connection that is silent for [`REGISTRY_SILENCE_MS`] has failed; how long a
//! download takes in all is bounded by the job's own deadline.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use ureq::Body;
use ureq::http::Response;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use crate::agent::time::Instant;
use crate::io::cloud::https::Socket;
use crate::io::cloud::tls::{Trust, builder};
use crate::io::{clock, crypto};
use crate::limits::REGISTRY_SILENCE_MS;
use crate::wire::x509::pem;

/// Sends requests, each over a connection of its own.
#[derive(Debug)]
pub(super) struct Client {
    agent: ureq::Agent,
}

impl Client {
    /// With the CAs of the system.
    pub(super) fn new() -> Self {
        Self::with(Connect::default())
    }

    fn with(connect: Connect) -> Self {
        let config = ureq::Agent::config_builder()
            // As the rest of the program: proxy variables are for browsers.
            .proxy(None)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(0)
            .user_agent(concat!("edged/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: ureq::Agent::with_parts(config, connect, DefaultResolver::default()) }
    }

    /// `GET`, or with a form `POST`. Redirects are not followed.
    pub(super) fn send(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        form: Option<&str>,
    ) -> io::Result<Response<Body>> {
        let answer = match form {
            None => {
                let request = self.agent.get(url);
                headers.iter().fold(request, |it, (name, value)| it.header(*name, *value)).call()
            }
            Some(form) => {
                let request = self.agent.post(url);
                let request =
                    headers.iter().fold(request, |it, (name, value)| it.header(*name, *value));
                request.content_type("application/x-www-form-urlencoded").send(form)
            }
        };
        answer.map_err(|error| match error {
            ureq::Error::Io(error) => error,
            // Its text contains no header.
            other => io::Error::other(other.to_string()),
        })
    }
}

/// Scheme, host and port of a URL: `https://registry.example:5000`. `None`: it is no URL of HTTP.
pub(super) fn origin(url: &str) -> Option<&str> {
    let scheme = ["https://", "http://"].into_iter().find(|scheme| url.starts_with(scheme))?;
    let authority = &url[scheme.len()..];
    let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    // Names and passwords in a URL have no place here.
    let is_plain = end > 0 && !authority[..end].contains('@');
    is_plain.then(|| &url[..scheme.len() + end])
}

/// Whether a host, perhaps with a port, is this machine: `localhost`, `127.…`, `[::1]`.
pub(super) fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Connects, for `https` with TLS.
#[derive(Default)]
struct Connect {
    tls: OnceLock<Arc<ClientConfig>>,
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connect")
    }
}

impl Connector for Connect {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Connection>, ureq::Error> {
        let patience = Duration::from_millis(REGISTRY_SILENCE_MS);
        let never = Instant(u64::MAX);
        let mut failures = Vec::new();
        let socket = details.addrs.iter().find_map(|to| {
            let connected = Socket::connect(to, patience, never);
            connected.map_err(|error| failures.push(format!("{to}: {error}"))).ok()
        });
        let socket = socket
            .ok_or_else(|| io::Error::other(format!("cannot connect: {}", failures.join(", "))))?;
        let stream = if details.uri.scheme_str() == Some("https") {
            let host = details.uri.host().unwrap_or_default();
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            let config = if let Some(config) = self.tls.get() {
                config
            } else {
                let config = system()?;
                self.tls.get_or_init(|| config)
            };
            let connection = ClientConnection::new(Arc::clone(config), name);
            let connection = connection.map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(connection, socket);
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock).map_err(describe)?;
            }
            Stream::Tls(Box::new(stream))
        } else {
            Stream::Plain(socket)
        };
        let buffers = LazyBuffers::new(BUFFER_BYTES, BUFFER_BYTES);
        Ok(Some(Connection { stream, buffers }))
    }
}

/// Trusts the CAs of the system.
fn system() -> io::Result<Arc<ClientConfig>> {
    let mut text = String::new();
    let path = CA_FILES.into_iter().find(|path| std::fs::metadata(path).is_ok());
    let Some(path) = path else {
        let files = CA_FILES.join(", ");
        return Err(io::Error::other(format!("no CAs to verify a server with: expected {files}")));
    };
    let failed = |error: &dyn fmt::Display| io::Error::other(format!("{path}: {error}"));
    let file = File::open(path).map_err(|error| failed(&error))?;
    file.take(CA_BYTES_MAX).read_to_string(&mut text).map_err(|error| failed(&error))?;
    let blocks = pem::decode(&text).map_err(|error| failed(&error))?;
    let mut roots = RootCertStore::empty();
    roots
        .add_parsable_certificates(blocks.into_iter().map(|block| CertificateDer::from(block.der)));
    if roots.is_empty() {
        return Err(failed(&"got no certificate, expected CAs"));
    }
    let provider = Arc::new(crypto::provider());
    let trust = Trust::of(roots, clock::now().wall, &provider);
    Ok(Arc::new(builder(provider, trust).with_no_client_auth()))
}

/// The CAs of Debian and Alpine, of Fedora, and of other distributions.
const CA_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// Twenty times what distributions have.
const CA_BYTES_MAX: u64 = 4 << 20;
/// Room for the head of an answer.
const BUFFER_BYTES: usize = 16 << 10;

fn describe(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => {
            io::Error::other(format!("no answer in {} s", REGISTRY_SILENCE_MS / 1_000))
        }
        _ => error,
    }
}

struct Connection {
    stream: Stream,
    buffers: LazyBuffers,
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
        wrote.map_err(|error| describe(error).into())
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        let input = self.buffers.input_append_buf();
        let read = match &mut self.stream {
            Stream::Plain(socket) => socket.read(input),
            Stream::Tls(tls) => tls.read(input),
        };
        let count = match read {
            Ok(count) => count,
            // Without close_notify: every length is compared with that of the manifest.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err(describe(error).into()),
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

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the other end lives beside the test")]

    use std::net::TcpListener;

    use rustls::{ServerConfig, ServerConnection};

    use super::*;
    use crate::io::tls::loopback;

    /// A server for one request.
    fn serve() -> (String, Arc<ClientConfig>) {
        let (client, server): (_, Arc<ServerConfig>) = loopback::configs();
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let url = format!("https://{}/v2/", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            let (socket, _) = listener.accept().expect("it is dialled");
            let connection = ServerConnection::new(server).expect("a server");
            let mut stream = StreamOwned::new(connection, socket);
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|it| it == 1) {
                head.push(byte[0]);
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            // The client that does not trust it has hung up.
            let _ = stream.write_all(answer).and_then(|()| stream.flush());
        });
        (url, client)
    }

    #[test]
    fn a_server_is_verified() {
        let (url, trusting) = serve();
        let client = Client::with(Connect { tls: OnceLock::from(trusting) });
        let mut answer = client.send(&url, &[], None).expect("it is trusted");
        assert_eq!(answer.body_mut().read_to_string().expect("a text"), "ok");
        // Nobody of the system's CAs knows it.
        let (url, _) = serve();
        let why = Client::new().send(&url, &[], None).expect_err("it is a stranger").to_string();
        assert!(why.contains("UnknownIssuer"), "{why}");
    }

    #[test]
    fn a_silent_server_is_given_up() {
        let why = describe(ErrorKind::WouldBlock.into()).to_string();
        assert_eq!(why, format!("no answer in {} s", REGISTRY_SILENCE_MS / 1_000));
    }

    #[test]
    fn loopback_is_known_by_its_names() {
        for host in ["localhost", "localhost:5000", "127.0.0.1", "127.8.0.1:1", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example", "127.0.0.1.example:1", "10.0.0.1", "[fe80::1]:1", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_url_has_an_origin() {
        for (url, want) in [
            ("https://a.example/b?c", Some("https://a.example")),
            ("http://127.0.0.1:5000", Some("http://127.0.0.1:5000")),
            ("https://a.example?b=https://c", Some("https://a.example")),
            ("https://user:word@a.example/", None),
            ("https://", None),
            ("ftp://a.example/", None),
            ("//a.example", None),
        ] {
            assert_eq!(origin(url), want, "{url}");
        }
    }
}
