//! HTTP requests to registries and token servers.
//!
//! Servers are verified with the CAs of the system and of the operator, which are read at the first
//! connection that needs them; [`crate::io::cloud::tls`] allows for a clock that is not set yet. A
//! connection that is silent for [`REGISTRY_SILENCE_MS`] has failed; how long a download takes in
//! all is bounded by the job's own deadline.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use ureq::Body;
use ureq::http::Response;

use crate::agent::time::Instant;
use crate::io::cloud::tls::{Trust, builder};
use crate::io::cloud::transport::{Connect, agent};
use crate::io::{clock, crypto};
use crate::limits::{REGISTRY_CONNECT_MS, REGISTRY_SILENCE_MS};
use crate::wire::x509::pem;

/// Sends requests, each over a connection of its own. Clones share the CAs.
#[derive(Clone, Debug)]
pub(super) struct Client {
    agent: ureq::Agent,
}

impl Client {
    /// With the CAs of the system, and those of this file unless it is empty.
    pub(super) fn new(ca_file: &str) -> Self {
        let (known, ca_file) = (OnceLock::<Arc<ClientConfig>>::new(), ca_file.to_owned());
        Self::with(move || {
            if let Some(config) = known.get() {
                return Ok(Arc::clone(config));
            }
            let config = trusting(&ca_file)?;
            Ok(Arc::clone(known.get_or_init(|| config)))
        })
    }

    fn with(tls: impl Fn() -> io::Result<Arc<ClientConfig>> + Send + Sync + 'static) -> Self {
        Self {
            agent: agent(Connect {
                dial_patience: Duration::from_millis(REGISTRY_CONNECT_MS),
                patience: Duration::from_millis(REGISTRY_SILENCE_MS),
                deadline: Instant(u64::MAX),
                tls: Box::new(tls),
                explain: Arc::new(explain),
            }),
        }
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

/// Trusts the CAs of the system and of this file.
fn trusting(ca_file: &str) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let system = CA_FILES.into_iter().find(|path| Path::new(path).exists());
    for path in system.into_iter().chain((!ca_file.is_empty()).then_some(ca_file)) {
        add(path, &mut roots).map_err(|why| io::Error::other(format!("{path}: {why}")))?;
    }
    if roots.is_empty() {
        let files = CA_FILES.join(", ");
        let why = format!("no CAs to verify a server with: expected {files}, or registryCAFile");
        return Err(io::Error::other(why));
    }
    let provider = Arc::new(crypto::provider());
    let trust = Trust::of(roots, clock::now().wall, &provider);
    Ok(Arc::new(builder(provider, trust).with_no_client_auth()))
}

fn add(path: &str, roots: &mut RootCertStore) -> io::Result<()> {
    let mut text = String::new();
    File::open(path)?.take(CA_BYTES_MAX).read_to_string(&mut text)?;
    let blocks = pem::decode(&text).map_err(|error| io::Error::other(error.to_string()))?;
    let certificates = blocks.into_iter().map(|block| CertificateDer::from(block.der));
    match roots.add_parsable_certificates(certificates) {
        (0, _) => Err(io::Error::other("got no certificate, expected CAs")),
        _ => Ok(()),
    }
}

/// The CAs of Debian and Alpine, of Fedora, and of other distributions.
const CA_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// Twenty times what distributions have.
const CA_BYTES_MAX: u64 = 4 << 20;

fn explain(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => {
            io::Error::other(format!("no answer in {} s", REGISTRY_SILENCE_MS / 1_000))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::io::tls::loopback;

    /// A server for one request.
    fn serve() -> (String, Arc<ClientConfig>) {
        loopback::serve_once(|mut stream| {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            // The client that does not trust it has hung up.
            let _ = stream.write_all(answer).and_then(|()| stream.flush());
        })
    }

    #[test]
    fn a_server_is_verified() {
        let (url, trusting) = serve();
        let client = Client::with(move || Ok(Arc::clone(&trusting)));
        let mut answer = client.send(&url, &[], None).expect("it is trusted");
        assert_eq!(answer.body_mut().read_to_string().expect("a text"), "ok");
        // Nobody of the system's CAs knows it.
        let (url, _) = serve();
        let why = Client::new("").send(&url, &[], None).expect_err("it is a stranger").to_string();
        assert!(why.contains("UnknownIssuer"), "{why}");
    }

    #[test]
    fn a_silent_server_is_given_up() {
        let why = explain(ErrorKind::WouldBlock.into()).to_string();
        assert_eq!(why, format!("no answer in {} s", REGISTRY_SILENCE_MS / 1_000));
        // The third SYN is sent after 3 s, the fourth after 7.
        const { assert!(REGISTRY_CONNECT_MS > 7_000 && REGISTRY_CONNECT_MS < REGISTRY_SILENCE_MS) }
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
