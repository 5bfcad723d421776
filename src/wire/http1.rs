//! HTTP/1.1 as far as a local, read-only API needs it (RFC 9110, RFC 9112).
//!
//! One request per connection, `GET` or `HEAD`, without a body, and every answer has `Connection:
//! close`: clients of this API send few requests, and a server that keeps no idle connections need
//! not limit them. Chunked bodies and pipelining are therefore absent. `POST` is for commands in
//! containers; after the request's head such a connection belongs to [`crate::io::streams`].
//!
//! A request from a web page must not get through: its `Host` must be a loopback name or the
//! address of the listener, so that a name which an attacker points at 127.0.0.1 is refused; and so
//! must its `Origin`, if there is one.

#[cfg(any(feature = "controller", feature = "metaserver", feature = "servicebus"))]
pub mod call;
#[cfg(any(
    feature = "controller",
    feature = "metaserver",
    feature = "servicebus",
    feature = "streams"
))]
pub mod query;
#[cfg(any(feature = "api", feature = "probes"))]
pub mod response;

use core::net::{IpAddr, SocketAddr};
use std::fmt::Write;

use httparse::{EMPTY_HEADER, Error, Status as Parsed};

use crate::limits::{HTTP_HEAD_BYTES_MAX, HTTP_HEADERS_MAX, HTTP_TARGET_BYTES_MAX};

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whether the body is wanted.
    pub method: Method,
    /// The target's path, without the query: `/pods`.
    pub path: String,
    /// The part after the question mark.
    pub query: String,
    /// The first requested byte (`Range: bytes=N-`).
    pub from: u64,
    /// The headers that concern an upgrade, as they were sent.
    pub upgrade: Vec<(String, String)>,
    /// Of `Authorization: Bearer`.
    pub bearer: Option<String>,
    /// The length of the head.
    pub head_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Head and body.
    Get,
    /// The head alone.
    Head,
    /// A command in a container; nothing else has it.
    Post,
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
        }
    }
}

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok,
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    ContentTooLarge,
    UriTooLong,
    HeaderFieldsTooLarge,
    ServiceUnavailable,
    VersionNotSupported,
}

impl Status {
    /// The status line's code and reason.
    pub fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::RequestTimeout => "408 Request Timeout",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::UriTooLong => "414 URI Too Long",
            Self::HeaderFieldsTooLarge => "431 Request Header Fields Too Large",

            Self::ServiceUnavailable => "503 Service Unavailable",
            Self::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// Why a request cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// For the client's program.
    pub status: Status,
    /// One line for the operator.
    pub why: String,
}

/// The request in the bytes read so far; `None`: its head is incomplete.
///
/// `bound` is the listener's address.
pub fn request(bytes: &[u8], bound: SocketAddr) -> Result<Option<Request>, Bad> {
    let mut headers = [EMPTY_HEADER; HTTP_HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let complete = match request.parse(bytes) {
        Ok(Parsed::Complete(length)) => Some(length),
        Ok(Parsed::Partial) => None,
        Err(error) => return Err(refused(error)),
    };
    let target = request.path.unwrap_or_default();
    let first_line_open = !bytes.trim_ascii_start().contains(&b'\n');
    if target.len() > HTTP_TARGET_BYTES_MAX || first_line_open && bytes.len() > LINE_BYTES_MAX {
        let why = format!("expected a target of at most {HTTP_TARGET_BYTES_MAX} bytes");
        return Err(Bad { status: Status::UriTooLong, why });
    }
    if complete.unwrap_or(bytes.len()) > HTTP_HEAD_BYTES_MAX {
        let why = format!("expected a head of at most {HTTP_HEAD_BYTES_MAX} bytes");
        return Err(Bad { status: Status::HeaderFieldsTooLarge, why });
    }
    let Some(head_bytes) = complete else { return Ok(None) };
    let method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        Some("POST") if cfg!(feature = "streams") && takes_post(target) => Method::Post,
        Some("POST") if cfg!(feature = "node-jobs") && target == CONFIRM_UPGRADE => Method::Post,
        _ => {
            let why = "this API is read only: expected GET or HEAD".to_owned();
            return Err(Bad { status: Status::MethodNotAllowed, why });
        }
    };
    check_headers(&request, bound)?;
    // The form for a proxy: `http://localhost:10350/pods`.
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let path = path.split('#').next().unwrap_or_default();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    let bearer = header(&request, "authorization")
        .and_then(|value| value.strip_prefix("Bearer "))
        .map(|token| token.trim().to_owned());
    let from = range(&request);
    let upgrade = upgrade(&request);
    Ok(Some(Request { method, path, query, from, upgrade, bearer, head_bytes }))
}

/// Commands in containers, and what is connected to them.
fn takes_post(target: &str) -> bool {
    ["/exec/", "/attach/", "/portForward/", "/run/"].iter().any(|path| target.starts_with(path))
}

/// Somebody at the node confirms an upgrade that waits for it.
pub const CONFIRM_UPGRADE: &str = "/edged/upgrade/confirm";

/// A request line: the target and the words around it.
const LINE_BYTES_MAX: usize = HTTP_TARGET_BYTES_MAX + 32;

fn refused(error: Error) -> Bad {
    let status = match error {
        Error::TooManyHeaders => Status::HeaderFieldsTooLarge,
        Error::Version => Status::VersionNotSupported,
        _ => Status::BadRequest,
    };
    Bad { status, why: format!("expected an HTTP/1.1 request: {error}") }
}

fn check_headers(request: &httparse::Request<'_, '_>, bound: SocketAddr) -> Result<(), Bad> {
    let bad = |why: &str| Err(Bad { status: Status::BadRequest, why: why.to_owned() });
    let mut host = None;
    for header in request.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("host") {
            if host.is_some() {
                return bad("expected one Host");
            }
            host = Some(header.value);
        }
        if is("origin") && !is_our_origin(header.value, bound) {
            let why = "expected no Origin, or that of this machine".to_owned();
            return Err(Bad { status: Status::Forbidden, why });
        }
        let body = is("content-length") && header.value.trim_ascii() != b"0";
        if body || is("transfer-encoding") {
            let why = "expected a request without a body".to_owned();
            return Err(Bad { status: Status::ContentTooLarge, why });
        }
    }
    match host {
        // Browsers never send HTTP/1.0 without it.
        None if request.version == Some(0) => Ok(()),
        None => bad("expected a Host"),
        Some(host) if is_ours(host, bound) => Ok(()),
        Some(_) => {
            let why = format!("expected the Host {bound} or localhost");
            Err(Bad { status: Status::Forbidden, why })
        }
    }
}

fn header<'a>(request: &'a httparse::Request<'_, '_>, name: &str) -> Option<&'a str> {
    let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    found.and_then(|header| core::str::from_utf8(header.value).ok())
}

/// Whether a header is passed on to the runtime's streaming server (edgestream.md, section 14.1).
pub fn is_of_upgrade(name: &str) -> bool {
    let begins = |prefix: &str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    is("connection")
        || is("upgrade")
        || is("content-length")
        || is("x-stream-protocol-version")
        || begins("sec-websocket-")
}

fn upgrade(request: &httparse::Request<'_, '_>) -> Vec<(String, String)> {
    let ours = request.headers.iter().filter(|header| is_of_upgrade(header.name));
    ours.filter_map(|header| {
        let value = core::str::from_utf8(header.value).ok()?;
        Some((header.name.to_owned(), value.to_owned()))
    })
    .collect()
}

/// Ranges other than a start offset are ignored, as RFC 9110 section 14.2 allows.
fn range(request: &httparse::Request<'_, '_>) -> u64 {
    let text = header(request, "range");
    let from = text.and_then(|text| text.trim().strip_prefix("bytes=")?.strip_suffix('-'));
    from.and_then(|from| from.parse().ok()).unwrap_or(0)
}

/// Whether a `Host` names this machine in a way that no name server can forge.
fn is_ours(host: &[u8], bound: SocketAddr) -> bool {
    let Ok(host) = core::str::from_utf8(host) else { return false };
    let host = host.trim();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let address = name.parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.is_loopback() || address == bound.ip())
}

/// The same for an `Origin`; `null` is that of a page without one.
fn is_our_origin(origin: &[u8], bound: SocketAddr) -> bool {
    let host = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    host.is_some_and(|host| is_ours(host, bound))
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: Status,
    pub content_type: &'static str,
    /// Further lines of the head with their ends.
    pub more: &'static str,
    pub body: Vec<u8>,
}

impl Response {
    /// A line of text.
    pub fn text(status: Status, line: &str) -> Self {
        let not_allowed = status == Status::MethodNotAllowed;
        let more = if not_allowed { "Allow: GET, HEAD\r\n" } else { "" };
        let content_type = "text/plain; charset=utf-8";
        Self { status, content_type, more, body: format!("{line}\n").into() }
    }

    /// Head and body as sent; for `HEAD` the head alone.
    pub fn bytes(self, method: Method) -> Vec<u8> {
        let mut bytes = head(self.status.line(), self.more, self.content_type, self.body.len());
        if method != Method::Head {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// The head of an answer after which the connection ends. `more`: further lines with their ends.
fn head(status: &str, more: &str, content_type: &str, length: usize) -> Vec<u8> {
    let mut head = String::with_capacity(256);
    write!(
        head,
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{more}Content-Length: \
         {length}\r\n{LAST_HEADERS}\r\n"
    )
    .expect("memory takes what is written");
    head.into_bytes()
}

/// An answer after which the connection ends. `more`: further lines of its head with their ends.
#[cfg(any(
    feature = "controller",
    feature = "metaserver",
    feature = "servicebus",
    feature = "streams"
))]
pub fn answer(status: &str, more: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = head(status, more, content_type, body.len());
    bytes.extend_from_slice(body);
    bytes
}

/// Of every answer.
pub const LAST_HEADERS: &str =
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n";

impl From<Bad> for Response {
    fn from(bad: Bad) -> Self {
        Self::text(bad.status, &bad.why)
    }
}
