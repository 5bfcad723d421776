//! The JSON that opens a request of the tunnel: method, URL and headers of an HTTP request, as Go's
//! encoder writes `url.URL` and `http.Header`.
//!
//! Read by the rules of Go's decoder: keys of the two structs match in any case, unknown ones are
//! ignored, and what is missing or `null` is empty. It is stricter in two things, because the other
//! end is only as trustworthy as its certificate: a key must not occur twice, and what would end up
//! in the head of an HTTP request must not contain the end of a line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use serde::Serialize;

use super::Kind;
use crate::limits::{TUNNEL_CONNECT_BYTES_MAX, TUNNEL_CONNECT_VALUES_MAX};
use crate::model::tree::{self, Fault, Node, Read, Shape, Value};
use crate::wire::edge;

/// The HTTP request that the other end wants to be answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connect {
    /// The id of the message as its data repeats it. KubeEdge's edge uses it for what it sends.
    pub id: u64,
    /// `GET` where the message has none.
    pub method: String,
    /// Decoded: `/exec/default/p3/main`.
    pub path: String,
    /// The same path as it was asked for, percent-encoded.
    pub raw_path: String,
    /// The part after the question mark, encoded; empty: none.
    pub query: String,
    /// Each value with its name, sorted by names. There is neither `Host` nor `Transfer-Encoding`.
    pub headers: Vec<(String, String)>,
}

/// Why the data of a message is not a [`Connect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// More bytes than [`TUNNEL_CONNECT_BYTES_MAX`].
    Size(usize),
    /// More values than [`TUNNEL_CONNECT_VALUES_MAX`].
    Values(usize),
    /// Not JSON, or of another structure.
    Json(String),
    /// Not the name of a method.
    Method(String),
    /// A control character or a blank in the query.
    Query(u8),
    /// Not the name of a header.
    HeaderName(String),
    /// A CR, LF or NUL in the value of this header.
    HeaderValue(String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tunnel request: ")?;
        match self {
            Self::Size(got) => {
                write!(f, "got {got} bytes, expected at most {TUNNEL_CONNECT_BYTES_MAX}")
            }
            Self::Values(got) => {
                write!(f, "got {got} values, expected at most {TUNNEL_CONNECT_VALUES_MAX}")
            }
            Self::Json(why) => f.write_str(why),
            Self::Method(got) => write!(f, "got the method {:?}", tree::shorten(got)),
            Self::Query(byte) => {
                write!(f, "got the byte {byte:#04x} in the query, expected it percent-encoded")
            }
            Self::HeaderName(got) => write!(f, "got the header name {:?}", tree::shorten(got)),
            Self::HeaderValue(name) => {
                let name = tree::shorten(name);
                write!(f, "got CR, LF or NUL in the header {name}, expected one line")
            }
        }
    }
}

impl Connect {
    /// Path and query as in a request line.
    pub fn target(&self) -> String {
        let path = if self.raw_path.is_empty() { "/" } else { &self.raw_path };
        if self.query.is_empty() { path.to_owned() } else { format!("{path}?{}", self.query) }
    }

    /// Reads the data of a message of the kinds that open a request.
    pub fn decode(data: &[u8]) -> Result<Self, ConnectError> {
        if data.len() > TUNNEL_CONNECT_BYTES_MAX {
            return Err(ConnectError::Size(data.len()));
        }
        let text = str::from_utf8(data)
            .map_err(|error| ConnectError::Json(format!("got no UTF-8: {error}")))?;
        let values = Shape::of(text).values;
        if values > TUNNEL_CONNECT_VALUES_MAX {
            return Err(ConnectError::Values(values));
        }
        let got: Received =
            tree::of_json(text).map_err(|fault| ConnectError::Json(fault.to_string()))?;
        let method = if got.method.is_empty() { "GET".to_owned() } else { got.method };
        if !is_token(&method) {
            return Err(ConnectError::Method(method));
        }
        let query = got.url.raw_query;
        if let Some(byte) = query.bytes().find(|byte| *byte <= b' ' || *byte == 0x7f) {
            return Err(ConnectError::Query(byte));
        }
        let mut headers = Vec::new();
        for (name, values) in got.header {
            if !is_token(&name) {
                return Err(ConnectError::HeaderName(name));
            }
            for value in values {
                if value.contains(['\r', '\n', '\0']) {
                    return Err(ConnectError::HeaderValue(name));
                }
                headers.push((name.clone(), value));
            }
        }
        let raw_path = match got.url.raw_path {
            raw if is_encoding_of(&raw, &got.url.path) => raw,
            _ => encode_path(&got.url.path),
        };
        Ok(Self { id: got.id, method, path: got.url.path, raw_path, query, headers })
    }

    /// The data of a message of this kind, byte for byte as CloudCore writes it.
    pub fn encode(&self, kind: Kind) -> Vec<u8> {
        let raw_path = if self.raw_path == encode_path(&self.path) { "" } else { &*self.raw_path };
        let mut header: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, value) in &self.headers {
            header.entry(canonical(name)).or_default().push(value);
        }
        let method = match kind {
            Kind::Exec | Kind::Attach => Some(&*self.method),
            Kind::Logs
            | Kind::Metrics
            | Kind::Data
            | Kind::Remove
            | Kind::Close
            | Kind::Unknown(_) => None,
        };
        let url = SentUrl {
            host: KUBELET,
            path: &self.path,
            raw_path,
            raw_query: &self.query,
            scheme: "http",
            ..SentUrl::default()
        };
        let sent = Sent { id: self.id, url, header, method };
        edge::content(&sent).get().as_bytes().to_vec()
    }
}

// ---- reading ----

#[derive(Default)]
struct Received {
    id: u64,
    url: ReceivedUrl,
    header: BTreeMap<String, Vec<String>>,
    method: String,
}

#[derive(Default)]
struct ReceivedUrl {
    path: String,
    raw_path: String,
    raw_query: String,
}

impl Read for Received {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        each_in_any_case(node, &mut |key, node| match key {
            "messid" => read_id(&mut self.id, node),
            "url" => self.url.read(node),
            "header" => self.header.read(node),
            "method" => self.method.read(node),
            _ => Ok(()),
        })
    }
}

impl Read for ReceivedUrl {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        each_in_any_case(node, &mut |key, node| match key {
            "path" => self.path.read(node),
            "rawpath" => self.raw_path.read(node),
            "rawquery" => self.raw_query.read(node),
            _ => Ok(()),
        })
    }
}

/// Calls a function for the entries of a map, with their keys in lower case.
fn each_in_any_case(
    node: &Node,
    take: &mut dyn FnMut(&str, &Node) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut keys = BTreeSet::new();
    tree::each(node, &mut |key, node| {
        let lower = key.to_ascii_lowercase();
        if keys.contains(&lower) {
            let why = format!("got the key {:?} twice, expected it once", tree::shorten(key));
            return Err(Fault::bare(why));
        }
        take(&lower, node)?;
        keys.insert(lower);
        Ok(())
    })
}

fn read_id(id: &mut u64, node: &Node) -> Result<(), Fault> {
    *id = match &node.value {
        Value::Null => 0,
        Value::Int(value) if *value >= 0 => *value as u64,
        Value::Big(value) => *value,
        _ => return Err(Fault::unlike(node, "a whole number of 64 bits")),
    };
    Ok(())
}

// ---- paths and names ----

/// Whether `raw` is a way to encode this path (`URL.EscapedPath`); others are not to be believed.
fn is_encoding_of(raw: &str, path: &str) -> bool {
    let is_legal = |byte: u8| is_unreserved(byte) || b"%!'()*[]".contains(&byte);
    !raw.is_empty()
        && raw.bytes().all(is_legal)
        && decoded(raw).is_some_and(|it| it == path.as_bytes())
}

/// The bytes of a percent-encoded path; `None`: an escape that is none.
fn decoded(raw: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
            bytes.push((digit(0)? << 4 | digit(1)?) as u8);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    Some(bytes)
}

/// As Go encodes a path by default.
fn encode_path(path: &str) -> String {
    let mut raw = String::with_capacity(path.len());
    for byte in path.bytes() {
        if is_unreserved(byte) {
            raw.push(char::from(byte));
        } else {
            write!(raw, "%{byte:02X}").expect("memory takes what is written");
        }
    }
    raw
}

/// What Go leaves as it is in a path.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

/// A method or the name of a header (RFC 9110, section 5.6.2).
fn is_token(text: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_legal)
}

/// The name of a header in Go's spelling: `X-Stream-Protocol-Version`.
fn canonical(name: &str) -> String {
    let mut upper = true;
    let spell = |c: char| {
        let spelt = if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        upper = c == '-';
        spelt
    };
    name.chars().map(spell).collect()
}

// ---- writing ----

#[derive(Serialize)]
struct Sent<'a> {
    #[serde(rename = "MessID")]
    id: u64,
    url: SentUrl<'a>,
    header: BTreeMap<String, Vec<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
}

/// Go's `url.URL`, with its fields in their order.
#[derive(Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct SentUrl<'a> {
    scheme: &'a str,
    opaque: &'a str,
    user: Option<()>,
    host: &'a str,
    path: &'a str,
    raw_path: &'a str,
    omit_host: bool,
    force_query: bool,
    raw_query: &'a str,
    fragment: &'a str,
    raw_fragment: &'a str,
}

/// Where CloudCore believes the kubelet's port of every node to be. EdgeCore dials it.
const KUBELET: &str = "127.0.0.1:10350";

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(json: &str) -> Result<Connect, ConnectError> {
        Connect::decode(json.as_bytes())
    }

    fn url(fields: &str) -> Connect {
        decode(&format!("{{\"url\":{{{fields}}}}}")).expect(fields)
    }

    #[test]
    fn what_is_missing_or_null_is_empty_and_keys_match_in_any_case() {
        let empty = Connect { method: "GET".to_owned(), ..Connect::default() };
        let nulls = r#"{"MessID":null,"url":null,"header":null,"method":null}"#;
        for json in ["{}", "null", nulls, r#"{"url":{"Path":null,"User":{}},"More":[{}]}"#] {
            assert_eq!(decode(json), Ok(empty.clone()), "{json}");
        }
        assert_eq!(empty.target(), "/");
        let json = r#"{"messid":18446744073709551615,"URL":{"path":"/a","RAWQUERY":"b=1"},
            "Header":{"A":null,"B":["1",null],"b":["2"]},"METHOD":"POST"}"#;
        let got = decode(json).expect("a request");
        assert_eq!((got.id, &*got.method, &*got.target()), (u64::MAX, "POST", "/a?b=1"));
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(got.headers, [header("B", "1"), header("B", ""), header("b", "2")]);
    }

    #[test]
    fn the_raw_path_counts_where_it_is_an_encoding_of_the_path() {
        for (path, raw, expected) in [
            ("/a/b", "", "/a/b"),
            ("/a b/é?#%", "", "/a%20b/%C3%A9%3F%23%25"),
            ("/a/b", "/a%2Fb", "/a%2Fb"),
            ("/a(b)", "/a(b)", "/a(b)"),
            ("/a(b)", "", "/a%28b%29"),
            ("/é", "/%c3%a9", "/%c3%a9"),
            // Not an encoding, not of this path, or not legal in a request line.
            ("/a", "/b", "/a"),
            ("/a", "/%6", "/a"),
            ("/a", "/%6g", "/a"),
            ("/a\r\nb", "/a\r\nb", "/a%0D%0Ab"),
            ("/a?b", "/a?b", "/a%3Fb"),
            ("/é", "/é", "/%C3%A9"),
        ] {
            let text = |text: &str| serde_json::to_string(text).expect("a text");
            let got = url(&format!("\"Path\":{},\"RawPath\":{}", text(path), text(raw)));
            assert_eq!((&*got.path, &*got.raw_path), (path, expected), "{path} {raw}");
            let again = Connect::decode(&got.encode(Kind::Exec)).expect("our own");
            assert_eq!(again, got, "{path} {raw}");
        }
    }

    #[test]
    fn whatever_could_forge_a_request_is_refused() {
        let header = |name: &str, value: &str| format!(r#"{{"header":{{"{name}":["{value}"]}}}}"#);
        let value = |name: &str| Err(ConnectError::HeaderValue(name.to_owned()));
        for end in [r"\r\n", r"\n", r"\u0000"] {
            assert_eq!(decode(&header("A", &format!("b{end}C: d"))), value("A"), "{end}");
            let name = decode(&header(&format!("A{end}B"), ""));
            assert!(matches!(name, Err(ConnectError::HeaderName(_))), "{end}: {name:?}");
            let query = decode(&format!(r#"{{"url":{{"RawQuery":"a{end}b"}}}}"#));
            assert!(matches!(query, Err(ConnectError::Query(_))), "{end}: {query:?}");
            let method = decode(&format!(r#"{{"method":"GET{end}"}}"#));
            assert!(matches!(method, Err(ConnectError::Method(_))), "{end}: {method:?}");
        }
        assert!(matches!(decode(&header("", "a")), Err(ConnectError::HeaderName(_))));
        assert!(matches!(decode(&header("A:", "a")), Err(ConnectError::HeaderName(_))));
        assert!(matches!(decode(r#"{"method":"GET /a"}"#), Err(ConnectError::Method(_))));
    }

    #[test]
    fn another_structure_is_refused_with_its_place() {
        for (json, why) in [
            (r#"{"MessID":-1}"#, "MessID: got -1, expected a whole number of 64 bits"),
            (r#"{"MessID":1.5}"#, "MessID: got 1.5, expected a whole number of 64 bits"),
            (r#"{"MessID":18446744073709551616}"#, "MessID: got 18446744073709552000, expected"),
            (r#"{"url":"a"}"#, "url: got \"a\", expected a map"),
            (r#"{"url":{"Path":1}}"#, "url.Path: got 1, expected text"),
            (r#"{"header":{"A":"b"}}"#, "header.A: got \"b\", expected a list"),
            (r#"{"header":{"A":[1]}}"#, "header.A[0]: got 1, expected text"),
            (r#"{"url":{},"URL":{}}"#, "url: got the key \"url\" twice"),
            (r#"{"url":{},"url":{}}"#, "got the key \"url\" twice"),
            ("[]", "got a list, expected a map"),
            ("{} {}", "trailing characters"),
        ] {
            let Err(ConnectError::Json(got)) = decode(json) else { panic!("{json}") };
            assert!(got.starts_with(why), "{json}: {got}");
        }
        let Err(ConnectError::Json(got)) = Connect::decode(b"\xff") else { panic!("no UTF-8") };
        assert!(got.starts_with("got no UTF-8"), "{got}");
    }

    #[test]
    fn a_request_has_bounds() {
        let long = |bytes: usize| format!(r#"{{"url":{{"RawQuery":"{}"}}}}"#, "a".repeat(bytes));
        let fits = TUNNEL_CONNECT_BYTES_MAX - long(0).len();
        let got = decode(&long(fits)).expect("as long as may be");
        assert_eq!(got.query.len(), fits);
        let size = ConnectError::Size(TUNNEL_CONNECT_BYTES_MAX + 1);
        assert_eq!(decode(&long(fits + 1)), Err(size));
        let many = |values: usize| format!(r#"{{"a":[{}]}}"#, vec!["0"; values].join(","));
        // Two values are the map and the list, and the first element is counted by its list.
        decode(&many(TUNNEL_CONNECT_VALUES_MAX - 1)).expect("as many as may be");
        let values = ConnectError::Values(TUNNEL_CONNECT_VALUES_MAX + 1);
        assert_eq!(decode(&many(TUNNEL_CONNECT_VALUES_MAX)), Err(values));
    }

    #[test]
    fn headers_are_written_in_gos_spelling_and_order() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = vec![
            header("x-stream-protocol-version", "v4.channel.k8s.io"),
            header("connection", "Upgrade"),
            header("X-STREAM-Protocol-Version", "channel.k8s.io"),
        ];
        let connect = Connect { headers, ..Connect::default() };
        let text = String::from_utf8(connect.encode(Kind::Logs)).expect("JSON");
        let versions = r#""X-Stream-Protocol-Version":["v4.channel.k8s.io","channel.k8s.io"]"#;
        let headers = format!(r#""header":{{"Connection":["Upgrade"],{versions}}}}}"#);
        assert!(text.ends_with(&headers), "{text}");
    }
}
