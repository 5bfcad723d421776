//! The request of a client for SPDY or WebSocket, and its answer (RFC 9110 section 7.8, RFC 6455
//! section 4). Refusals have the texts of Kubernetes' own servers.

use httparse::{EMPTY_HEADER, Header, Status};

use crate::limits::{HTTP_HEAD_BYTES_MAX, HTTP_HEADERS_MAX};
use crate::wire::http1;

/// What the client is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `Exec`, `Attach`
    Command,
    /// `PortForward`
    Forward,
}

/// What is spoken from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// SPDY/3.1 with this version of the channels: 4 to 1; 1 for port forwarding.
    Spdy(u8),
    /// WebSocket with this version of the channels: 5 or 4.
    WebSocket(u8),
}

/// A request that is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    pub protocol: Protocol,
    /// Bytes of the request; what follows is of the protocol.
    pub head_bytes: usize,
    /// To be sent.
    pub answer: String,
}

/// Makes `Sec-WebSocket-Accept` of a client's key (RFC 6455 section 4.2.2).
pub type Accept = fn(&[u8]) -> String;

/// Reads a request; `None`: it is incomplete. An error is the whole answer, after which the
/// connection ends.
pub fn upgrade(bytes: &[u8], purpose: Purpose, accept: Accept) -> Result<Option<Upgrade>, Vec<u8>> {
    let mut headers = [EMPTY_HEADER; HTTP_HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let head_bytes = match request.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if bytes.len() < HTTP_HEAD_BYTES_MAX => return Ok(None),
        Ok(Status::Partial) => {
            let why = format!("expected a head of at most {HTTP_HEAD_BYTES_MAX} bytes");
            return Err(refused("431 Request Header Fields Too Large", &why));
        }
        Err(error) => {
            let why = format!("expected an HTTP/1.1 request: {error}");
            return Err(refused("400 Bad Request", &why));
        }
    };
    let headers = Headers(request.headers);
    let is_upgrade = headers.words("connection").any(|word| word.eq_ignore_ascii_case("upgrade"));
    let to = headers.words("upgrade").next().unwrap_or_default();
    let granted = if is_upgrade && to.eq_ignore_ascii_case("SPDY/3.1") {
        spdy(&headers, purpose)?
    } else if is_upgrade && to.eq_ignore_ascii_case("websocket") {
        web_socket(&headers, purpose, accept)?
    } else {
        let why = format!("unable to upgrade: missing upgrade headers in request: got {to:?}");
        return Err(refused("400 Bad Request", &why));
    };
    let (protocol, more) = granted;
    let answer = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{more}\r\n");
    Ok(Some(Upgrade { protocol, head_bytes, answer }))
}

struct Headers<'a>(&'a [Header<'a>]);

impl<'a> Headers<'a> {
    /// The words of all headers of this name.
    fn words(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let of_name = self.0.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        let texts = of_name.filter_map(|header| str::from_utf8(header.value).ok());
        texts.flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty())
    }
}

/// The subprotocols by their version, the newest first.
type Versions = &'static [(&'static str, u8)];

const FORWARD: Versions = &[("portforward.k8s.io", 1)];
const COMMAND: Versions = &[
    ("v4.channel.k8s.io", 4),
    ("v3.channel.k8s.io", 3),
    ("v2.channel.k8s.io", 2),
    ("channel.k8s.io", 1),
];
const FORWARD_WS: Versions = &[("v4.channel.k8s.io", 4)];
const COMMAND_WS: Versions = &[("v5.channel.k8s.io", 5), ("v4.channel.k8s.io", 4)];

type Granted = (Protocol, String);

fn spdy(headers: &Headers<'_>, purpose: Purpose) -> Result<Granted, Vec<u8>> {
    let name = "X-Stream-Protocol-Version";
    let accepted = if purpose == Purpose::Forward { FORWARD } else { COMMAND };
    let (protocol, version) = negotiated(headers, name, accepted)?;
    let more = format!("Upgrade: SPDY/3.1\r\n{name}: {protocol}\r\n");
    Ok((Protocol::Spdy(version), more))
}

fn web_socket(headers: &Headers<'_>, purpose: Purpose, accept: Accept) -> Result<Granted, Vec<u8>> {
    let name = "Sec-WebSocket-Protocol";
    let accepted = if purpose == Purpose::Forward { FORWARD_WS } else { COMMAND_WS };
    let (protocol, version) = negotiated(headers, name, accepted)?;
    let Some(key) = headers.words("sec-websocket-key").next() else {
        return Err(refused("400 Bad Request", "unable to upgrade: no Sec-WebSocket-Key"));
    };
    let accept = accept(key.as_bytes());
    let more =
        format!("Upgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n{name}: {protocol}\r\n");
    Ok((Protocol::WebSocket(version), more))
}

/// The first of the client's that is accepted.
fn negotiated(
    headers: &Headers<'_>,
    name: &str,
    accepted: Versions,
) -> Result<(&'static str, u8), Vec<u8>> {
    let of = |word: &str| accepted.iter().find(|(name, _)| *name == word);
    if let Some(found) = headers.words(name).find_map(of) {
        return Ok(*found);
    }
    let offered: Vec<_> = headers.words(name).collect();
    if offered.is_empty() {
        return Err(refused("400 Bad Request", &format!("unable to upgrade: {name} is required")));
    }
    let accepted: Vec<_> = accepted.iter().map(|(name, _)| *name).collect();
    let why = format!(
        "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts \
         [{}]",
        offered.join(" "),
        accepted.join(" ")
    );
    Err(refused("403 Forbidden", &why))
}

fn refused(status: &str, why: &str) -> Vec<u8> {
    http1::answer(status, "", "text/plain; charset=utf-8", format!("{why}\n").as_bytes())
}
