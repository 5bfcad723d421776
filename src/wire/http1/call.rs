//! Requests with headers and a body, and answers to them, for the controller's ports; the read-only
//! API of the agent ([`super::request`]) accepts less (RFC 9110, RFC 9112).
//!
//! One request per connection; a body has a `Content-Length`, chunks are refused. KubeEdge requests
//! certificates with a GET that has a body.

use httparse::{EMPTY_HEADER, Error, Status as Parsed};

use super::query::unescaped;
use crate::limits::{HTTP_HEAD_BYTES_MAX, HTTP_HEADERS_MAX};

/// A whole request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// `GET`, `PATCH` …
    pub method: String,
    /// The target without the query, as it was sent: `/node/edge-1`.
    pub path: String,
    /// The part after the question mark.
    pub query: String,
    /// Names in lower case; values as far as they are text.
    pub headers: Vec<(String, String)>,
    /// The bytes after the head.
    pub body: Vec<u8>,
}

impl Call {
    /// A header by its name in lower case, the first of that name; empty where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Whether a header that is a list of words contains this one, in any case.
    pub fn has_word(&self, name: &str, word: &str) -> bool {
        self.header(name).split(',').any(|part| part.trim().eq_ignore_ascii_case(word))
    }

    /// The decoded value of a key of the query.
    pub fn query_value(&self, key: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(name, _)| *name == key).map(|(_, value)| unescaped(value))
    }
}

/// Why a request cannot be served: a status, and one line for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    /// «got X, expected Y».
    pub why: String,
}

fn refused<T>(status: u16, why: String) -> Result<T, Refused> {
    Err(Refused { status, why })
}

/// The request in the bytes read so far, and its length; `None`: it is incomplete.
pub fn call(bytes: &[u8], body_bytes_max: usize) -> Result<Option<(Call, usize)>, Refused> {
    let Some((mut call, head, length)) = head(bytes, body_bytes_max)? else { return Ok(None) };
    let Some(body) = bytes.get(head..head + length) else { return Ok(None) };
    call.body = body.to_vec();
    Ok(Some((call, head + length)))
}

/// The request without its body, the length of its head, and that of its body; `None`: the head is
/// incomplete.
pub fn head(bytes: &[u8], body_bytes_max: usize) -> Result<Option<(Call, usize, usize)>, Refused> {
    let mut headers = [EMPTY_HEADER; HTTP_HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(bytes) {
        Ok(Parsed::Complete(length)) => length,
        Ok(Parsed::Partial) if bytes.len() > HTTP_HEAD_BYTES_MAX => {
            return refused(431, format!("expected a head of {HTTP_HEAD_BYTES_MAX} bytes at most"));
        }
        Ok(Parsed::Partial) => return Ok(None),
        Err(Error::TooManyHeaders) => {
            return refused(431, format!("expected {HTTP_HEADERS_MAX} header fields at most"));
        }
        Err(error) => return refused(400, format!("expected an HTTP/1.1 request: {error}")),
    };
    if head > HTTP_HEAD_BYTES_MAX {
        return refused(431, format!("expected a head of {HTTP_HEAD_BYTES_MAX} bytes at most"));
    }
    let mut call =
        Call { method: request.method.unwrap_or_default().to_owned(), ..Call::default() };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    (call.path, call.query) = (path.to_owned(), query.to_owned());
    for header in request.headers.iter() {
        let value = String::from_utf8_lossy(header.value).trim().to_owned();
        call.headers.push((header.name.to_ascii_lowercase(), value));
    }
    if !call.header("transfer-encoding").is_empty() {
        return refused(411, "got a body in chunks, expected a Content-Length".to_owned());
    }
    let lengths: Vec<&str> = call
        .headers
        .iter()
        .filter(|(name, _)| name == "content-length")
        .map(|(_, value)| value.as_str())
        .collect();
    let length = match lengths[..] {
        [] => 0,
        [one] if !one.is_empty() && one.bytes().all(|byte| byte.is_ascii_digit()) => {
            one.parse::<usize>().unwrap_or(usize::MAX)
        }
        _ => return refused(400, format!("got the Content-Length {lengths:?}, expected one")),
    };
    if length > body_bytes_max {
        return refused(413, format!("got {length} bytes, expected {body_bytes_max} at most"));
    }
    Ok(Some((call, head, length)))
}

/// Headers of one connection (RFC 9110, section 7.6.1), and those that its ends set themselves.
pub fn is_hop_by_hop(name: &str) -> bool {
    [
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
    .iter()
    .any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether it is a `token` of RFC 9110.
pub fn is_header_name(name: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_name)
}

/// Whether a request to a port on loopback comes from this machine, and not from a web page through
/// a forged name: by the rules of [`super::request`].
pub fn is_local(call: &Call, bound: core::net::SocketAddr) -> bool {
    let values = |name: &'static str| {
        let named = call.headers.iter().filter(move |(known, _)| known == name);
        named.map(|(_, value)| value.as_bytes())
    };
    values("host").count() == 1
        && values("host").all(|host| super::is_ours(host, bound))
        && values("origin").all(|origin| super::is_our_origin(origin, bound))
}

/// An answer after which the connection ends.
pub fn answer(status: u16, content_type: &str, body: &[u8]) -> Vec<u8> {
    super::answer(&format!("{status} {}", reason(status)), "", content_type, body)
}

/// RFC 9110's reason phrase of a status.
pub fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPLICATION: &[u8] = b"GET /edge.crt?x=a%2Fb HTTP/1.1\r\nHost: c:10002\r\nNodeName: \
                                 edge-1\r\nConnection: keep-alive, Upgrade\r\nContent-Length: \
                                 4\r\n\r\n0\x8201";

    #[test]
    fn a_request_is_there_when_its_body_is() {
        for end in 0..APPLICATION.len() {
            assert_eq!(call(&APPLICATION[..end], 9), Ok(None), "{end}");
        }
        let more = [APPLICATION, b"next"].concat();
        let (request, length) = call(&more, 9).expect("a request").expect("all of it");
        assert_eq!(length, APPLICATION.len());
        assert_eq!((&*request.method, &*request.path), ("GET", "/edge.crt"));
        assert_eq!((request.header("nodename"), request.header("none")), ("edge-1", ""));
        assert_eq!(request.query_value("x").as_deref(), Some("a/b"));
        assert!(
            request.has_word("connection", "upgrade") && !request.has_word("connection", "close")
        );
        assert_eq!(request.body, b"0\x8201");
    }

    #[test]
    fn what_is_too_much_or_nonsense_is_refused_with_its_status() {
        let with = |header: &str| format!("GET / HTTP/1.1\r\n{header}\r\n\r\n");
        for (text, status) in [
            (with("Content-Length: 10"), 413),
            (with("Content-Length: 99999999999999999999999"), 413),
            (with("Content-Length: -1"), 400),
            (with("Content-Length: 1\r\nContent-Length: 2"), 400),
            (with("Transfer-Encoding: chunked"), 411),
            (with(&"A: b\r\n".repeat(HTTP_HEADERS_MAX + 1)), 431),
            (with(&format!("A: {}", "b".repeat(HTTP_HEAD_BYTES_MAX))), 431),
            ("SSH-2.0-OpenSSH\r\n".to_owned(), 400),
        ] {
            let refused = call(text.as_bytes(), 9).expect_err(&text);
            assert_eq!(refused.status, status, "{text}");
        }
        let endless = format!("GET /{}", "a".repeat(HTTP_HEAD_BYTES_MAX));
        assert_eq!(call(endless.as_bytes(), 9).expect_err("endless").status, 431);
    }
}
