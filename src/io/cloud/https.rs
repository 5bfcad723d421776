//! HTTPS requests to the cloud, in a process that may block: [`super::transport`] connects, and
//! [`super::tls`] verifies the server, as for the websocket.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::tls::explain;
use super::transport::{Connect, agent};
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
    let patience = Duration::from_millis(link.handshake_timeout_ms.max(1));
    let agent = agent(Connect {
        dial_patience: patience,
        patience,
        deadline,
        tls: Box::new(move || Ok(Arc::clone(&tls))),
        explain: {
            let link = link.clone();
            Arc::new(move |error| describe(&error, &link))
        },
    });
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

/// Our own error text, with nothing that ureq would take for its own timeout.
fn describe(error: &io::Error, link: &CloudLink) -> io::Error {
    let why = match error.kind() {
        ErrorKind::WouldBlock => format!("no answer in {} s", link.handshake_timeout_ms / 1_000),
        ErrorKind::TimedOut => LATE.to_owned(),
        _ => explain(error, link, "the cloud").to_string(),
    };
    io::Error::other(why)
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

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the other end lives beside the test")]

    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use rustls::{ServerConnection, StreamOwned};

    use super::*;
    use crate::io::tls::loopback;
    use crate::limits::ENROL_MS;

    type Stream = StreamOwned<ServerConnection, TcpStream>;

    /// Between two bytes: much less than a socket's timeout.
    const PACE: Duration = Duration::from_millis(5);

    /// A server for one request, and the configuration to reach it.
    fn serve(answer: impl FnOnce(Stream) + Send + 'static) -> (CloudLink, Arc<ClientConfig>) {
        let (http_server, client) = loopback::serve_once(answer);
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
