//! What is asked on the two ports, and the answers in HTTP's words (wire spec 1.4 to 1.6, 2.1).

use std::net::SocketAddr;

use rustls::pki_types::CertificateDer;
use tungstenite::handshake::derive_accept_key;

use super::super::authority::{Authority, read_application};
use crate::controller::event::{Credential, HttpRequest, Peer, Request};
use crate::controller::time::Now;
use crate::wire::http1::call::{self, Call, unescaped};
use crate::wire::x509;
use crate::wire::x509::issue::Subject;

/// What a request comes to.
pub(super) enum Asked {
    /// The mind is asked for a session; this grants it.
    Session(Box<Peer>, Vec<u8>),
    /// The mind is asked.
    Exchange(Box<HttpRequest>),
    /// It needs no mind: this is the answer.
    Nothing(Vec<u8>),
    /// Nobody serves this: a status, and a line for people.
    Refused(u16, &'static str),
}

/// A request on the port of websockets (RFC 6455, section 4.2). KubeEdge ignores the path.
pub(super) fn websocket(
    call: &Call,
    certificate: Option<&CertificateDer<'_>>,
    address: SocketAddr,
) -> Asked {
    let upgrade = call.has_word("upgrade", "websocket") && call.has_word("connection", "upgrade");
    let key = call.header("sec-websocket-key");
    if call.method != "GET" || !upgrade {
        return Asked::Refused(426, "expected an upgrade to a websocket");
    }
    if call.header("sec-websocket-version") != "13" || key.is_empty() {
        return Asked::Refused(400, "expected Sec-WebSocket-Version 13 and a key");
    }
    let subject = certificate.and_then(|der| Subject::of(der).ok()).unwrap_or_default();
    let peer = Peer {
        common_name: subject.common_name,
        organization: subject.organisations.into_iter().next().unwrap_or_default(),
        node_id: call.header("node_id").to_owned(),
        project_id: call.header("project_id").to_owned(),
        usage: call.header("connectionuse").to_owned(),
        made_s: certificate.map_or(0, made_s),
        address: address.to_string(),
    };
    let accept = derive_accept_key(key.as_bytes());
    let grant = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    Asked::Session(Box::new(peer), grant.into_bytes())
}

/// A request on the port of certificates.
pub(super) fn https(
    call: &Call,
    certificate: Option<&CertificateDer<'_>>,
    address: SocketAddr,
    (authority, now): (&Authority, Now),
) -> Asked {
    let by = || credential(call, certificate, authority, now);
    match (&*call.method, &*call.path) {
        ("GET", "/ca.crt") => Asked::Exchange(Box::new(HttpRequest::Authority)),
        ("GET", "/edge.crt") => {
            let request = read_application(&call.body).map(|application| Request {
                der: call.body.clone().into(),
                common_name: application.common_name,
                organization: application.organisations.into_iter().next().unwrap_or_default(),
            });
            let node = call.header("nodename").to_owned();
            let address = address.to_string();
            Asked::Exchange(Box::new(HttpRequest::Certificate { node, by: by(), request, address }))
        }
        ("GET", path) => match path.strip_prefix("/node/").filter(|name| !name.contains('/')) {
            Some(name) => {
                Asked::Exchange(Box::new(HttpRequest::Node { name: unescaped(name), by: by() }))
            }
            None => Asked::Refused(404, "not here: there are /ca.crt /edge.crt /node/…"),
        },
        // Reports of KubeEdge's node jobs: there are none here, and who reports is not told so.
        ("POST", path) if path == "/nodeupgrade" || path.starts_with("/task/") => match by() {
            Credential::Certificate { .. } => Asked::Nothing(answer(200, b"ok")),
            _ => Asked::Refused(401, "expected a client certificate"),
        },
        _ => Asked::Refused(405, "expected GET"),
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
            return Credential::BadCertificate("the time is not known here".to_owned());
        };
        return match (authority.vouches_for_client(der, now.0), Subject::of(der)) {
            (Ok(()), Ok(subject)) => Credential::Certificate {
                common_name: subject.common_name,
                organization: subject.organisations.into_iter().next().unwrap_or_default(),
                made_s: made_s(der),
            },
            (Err(why), _) => Credential::BadCertificate(why),
            (Ok(()), Err(fault)) => Credential::BadCertificate(fault.to_string()),
        };
    }
    let bearer = call.header("authorization").split_once(' ');
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    bearer.map_or(Credential::None, |(_, token)| Credential::Bearer(token.trim().to_owned()))
}

/// When it was made; one that TLS takes can be read.
fn made_s(certificate: &CertificateDer<'_>) -> i64 {
    x509::read(certificate).map_or(0, |about| about.validity.not_before_s)
}

/// An answer of the port of certificates: text or DER.
pub(super) fn answer(status: u16, body: &[u8]) -> Vec<u8> {
    let kind = if status == 200 { "application/octet-stream" } else { TEXT };
    call::answer(status, kind, body)
}

/// A line for people.
pub(super) fn refusal(status: u16, words: &str) -> Vec<u8> {
    call::answer(status, TEXT, format!("{words}\n").as_bytes())
}

const TEXT: &str = "text/plain; charset=utf-8";
