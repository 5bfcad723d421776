//! Requests on the ports for nodes, and their HTTP answers (wire spec 1.4 to 1.6, 2.1).

use std::net::SocketAddr;

use rustls::pki_types::CertificateDer;
use tungstenite::handshake::derive_accept_key;

use super::super::authority::{Authority, read_application};
use crate::controller::event::{Credential, HttpRequest, Peer, Request};
use crate::controller::time::Now;
use crate::wire::http1::call::{self, Call};
use crate::wire::http1::query::unescaped;
use crate::wire::x509;
use crate::wire::x509::issue::Subject;

/// The result of a request.
pub(super) enum Outcome {
    /// A request to the core for a session; the bytes are the answer if it is granted.
    Session(Box<Peer>, Vec<u8>),
    /// A request to the core for a stream tunnel; the bytes are the answer if it is granted.
    Tunnel(Box<Peer>, Vec<u8>),
    /// A request to the core.
    Exchange(Box<HttpRequest>),
    /// The answer, without the core.
    Nothing(Vec<u8>),
    /// An error: a status, and a line for the user.
    Refused(u16, &'static str),
}

/// A request on the websocket port (RFC 6455, section 4.2). KubeEdge ignores the path.
pub(super) fn websocket(
    call: &Call,
    certificate: Option<&CertificateDer<'_>>,
    address: SocketAddr,
) -> Outcome {
    let upgrade = call.has_word("upgrade", "websocket") && call.has_word("connection", "upgrade");
    let key = call.header("sec-websocket-key");
    if call.method != "GET" || !upgrade {
        return Outcome::Refused(426, "expected an upgrade to a websocket");
    }
    if call.header("sec-websocket-version") != "13" || key.is_empty() {
        return Outcome::Refused(400, "expected Sec-WebSocket-Version 13 and a key");
    }
    let peer = Peer {
        node_id: call.header("node_id").to_owned(),
        project_id: call.header("project_id").to_owned(),
        usage: call.header("connectionuse").to_owned(),
        ..peer(certificate, address)
    };
    Outcome::Session(Box::new(peer), grant(key))
}

/// A request on the port for stream tunnels. KubeEdge up to 1.6 misspells the header with the name
/// of the node, and 1.7 sends both.
pub(super) fn tunnel(
    call: &Call,
    certificate: Option<&CertificateDer<'_>>,
    address: SocketAddr,
) -> Outcome {
    if !matches!(&*call.path, "/v1/kubeedge/connect" | "/v1/kubeedge/connect/") {
        return Outcome::Refused(404, "not here: there is /v1/kubeedge/connect");
    }
    let upgrade = call.has_word("upgrade", "websocket") && call.has_word("connection", "upgrade");
    let key = call.header("sec-websocket-key");
    if call.method != "GET" || !upgrade {
        return Outcome::Refused(400, "expected an upgrade to a websocket");
    }
    if call.header("sec-websocket-version") != "13" || key.is_empty() {
        return Outcome::Refused(400, "expected Sec-WebSocket-Version 13 and a key");
    }
    let names = ["sessionhostnameoverride", "sessionhostnameoveride"].map(|name| call.header(name));
    let node_id = match names {
        [name, other] if name == other || other.is_empty() => name,
        ["", name] => name,
        _ => return Outcome::Refused(403, "got two names of one node"),
    };
    let peer = Peer { node_id: node_id.to_owned(), ..peer(certificate, address) };
    Outcome::Tunnel(Box::new(peer), grant(key))
}

/// What the certificate says of a peer.
fn peer(certificate: Option<&CertificateDer<'_>>, address: SocketAddr) -> Peer {
    let subject = certificate.and_then(|der| Subject::of(der).ok()).unwrap_or_default();
    Peer {
        common_name: subject.common_name,
        organization: subject.organisations.into_iter().next().unwrap_or_default(),
        made_s: certificate.map_or(0, made_s),
        address: address.to_string(),
        ..Peer::default()
    }
}

fn grant(key: &str) -> Vec<u8> {
    let accept = derive_accept_key(key.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
    .into_bytes()
}

/// A request on the certificate port.
pub(super) fn https(
    call: &Call,
    certificate: Option<&CertificateDer<'_>>,
    address: SocketAddr,
    (authority, now): (&Authority, Now),
) -> Outcome {
    let by = || credential(call, certificate, authority, now);
    match (&*call.method, &*call.path) {
        ("GET", "/ca.crt") => Outcome::Exchange(Box::new(HttpRequest::Authority)),
        ("GET", "/edge.crt") => {
            let request = read_application(&call.body).map(|application| Request {
                der: call.body.clone().into(),
                common_name: application.common_name,
                organization: application.organisations.into_iter().next().unwrap_or_default(),
            });
            let node = call.header("nodename").to_owned();
            let address = address.to_string();
            Outcome::Exchange(Box::new(HttpRequest::Certificate {
                node,
                by: by(),
                request,
                address,
            }))
        }
        ("GET", path) => match path.strip_prefix("/node/").filter(|name| !name.contains('/')) {
            Some(name) => {
                Outcome::Exchange(Box::new(HttpRequest::Node { name: unescaped(name), by: by() }))
            }
            None => Outcome::Refused(404, "not here: there are /ca.crt /edge.crt /node/…"),
        },
        // Reports of KubeEdge's node jobs, which are not supported here; the reporter is not told
        // so.
        ("POST", path) if path == "/nodeupgrade" || path.starts_with("/task/") => match by() {
            Credential::Certificate { .. } => Outcome::Nothing(answer(200, b"ok")),
            _ => Outcome::Refused(401, "expected a client certificate"),
        },
        _ => Outcome::Refused(405, "expected GET"),
    }
}

fn credential(
    call: &Call,
    certificate: Option<&CertificateDer<'_>>,
    authority: &Authority,
    now: Now,
) -> Credential {
    if let Some(der) = certificate {
        let Some(now) = now.timestamp() else {
            return Credential::BadCertificate("the server's clock is not set".to_owned());
        };
        return match (authority.trusts_client(der, now.0), Subject::of(der)) {
            (Ok(()), Ok(subject)) => Credential::Certificate {
                common_name: subject.common_name,
                organization: subject.organisations.into_iter().next().unwrap_or_default(),
                made_s: made_s(der),
            },
            (Err(why), _) => Credential::BadCertificate(why.to_string()),
            (Ok(()), Err(fault)) => Credential::BadCertificate(fault.to_string()),
        };
    }
    let bearer = call.header("authorization").split_once(' ');
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    bearer.map_or(Credential::None, |(_, token)| Credential::Bearer(token.trim().to_owned()))
}

/// When it was issued; a certificate that TLS accepted can be parsed.
fn made_s(certificate: &CertificateDer<'_>) -> i64 {
    x509::read(certificate).map_or(0, |about| about.validity.not_before_s)
}

/// An answer of the certificate port: text or DER.
pub(super) fn answer(status: u16, body: &[u8]) -> Vec<u8> {
    let kind = if status == 200 { "application/octet-stream" } else { TEXT };
    call::answer(status, kind, body)
}

/// A line for the user.
pub(super) fn refusal(status: u16, text: &str) -> Vec<u8> {
    call::answer(status, TEXT, format!("{text}\n").as_bytes())
}

const TEXT: &str = "text/plain; charset=utf-8";
