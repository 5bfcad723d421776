//! Custom messages between applications of the cloud and of nodes, as edgecontroller's router
//! carries them (spec `servicebus-router-tasks`, part B).
//!
//! ```text
//!  rest → eventbus, servicebus:  client ─RouterEvent::Request─▶ core ─message─▶ node
//!                                client ◀─RouterAction::Answer─ core ◀─answer── node
//!  eventbus, servicebus → rest:  node ─upload─▶ core ─RouterAction::Post─▶ REST endpoint
//!                                node ◀─answer─ core ◀─RouterEvent::Posted─┘
//! ```

use core::fmt;

use super::error::Input;
use super::service_bus::ServiceAnswer;

/// Identifies a request to the REST entry. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RestId(pub u64);

/// Identifies a request to a REST endpoint. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PostId(pub u64);

/// A request to the REST entry: `/<node>/<namespace>/<path>[?<query>]`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RestRequest {
    pub node: Box<str>,
    pub namespace: Box<str>,
    /// What follows the namespace, as it was sent, without the slash at its beginning.
    pub path: Box<str>,
    /// Empty: none.
    pub query: Box<str>,
    /// `GET`, `POST` …
    pub method: Box<str>,
    /// Those that are passed on.
    pub headers: Vec<(Box<str>, Box<str>)>,
    pub body: Vec<u8>,
}

/// Headers and bodies may have secrets.
impl fmt::Debug for RestRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, namespace, path, method, body, .. } = self;
        write!(f, "{method} /{node}/{namespace}/{path} ({} bytes)", body.len())
    }
}

/// A request to a REST endpoint: always a POST.
#[derive(Clone, PartialEq, Eq)]
pub struct Post {
    pub url: RestUrl,
    pub headers: Vec<(Box<str>, Box<str>)>,
    pub body: Vec<u8>,
    /// Bytes of the answer's body that are wanted; 0: none of it is.
    pub answer_bytes_max: usize,
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "POST {} ({} bytes)", self.url.authority(), self.body.len())
    }
}

/// The answer of a REST endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostAnswer {
    /// 200–999
    pub status: u16,
    /// As far as it is wanted.
    pub body: Vec<u8>,
}

/// The URL of a REST endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestUrl {
    /// `https`
    pub is_tls: bool,
    /// A name or an address, without brackets.
    pub host: Box<str>,
    pub port: u16,
    /// Path and query: `/orders?x=1`.
    pub target: Box<str>,
}

impl RestUrl {
    /// Reads `http://host[:port][/path][?query]`, or the same with https.
    pub fn parse(text: &str) -> Result<Self, Input> {
        let wrong = || Input::quoted(text, "http://host[:port]/path, or https");
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong());
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let is_tls = match &*scheme.to_ascii_lowercase() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(wrong)?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => Some(if is_tls { 443 } else { 80 }),
            Some(port) => port.parse().ok().filter(|port| *port != 0),
            None => None,
        };
        let is_host = !host.is_empty() && !host.contains(['@', '[', '\\', '"', '<', '>']);
        let port = port.filter(|_| is_host).ok_or_else(wrong)?;
        let slash = if target.starts_with('/') { "" } else { "/" };
        let target = format!("{slash}{target}").into();
        Ok(Self { is_tls, host: host.into(), port, target })
    }

    /// `host[:port]`, as in the header `Host`.
    pub fn authority(&self) -> String {
        let Self { is_tls, host, port, .. } = self;
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
        match (is_tls, port) {
            (false, 80) | (true, 443) => host,
            _ => format!("{host}:{port}"),
        }
    }
}

/// What a node is told of a rule: it does not forget it by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeRule {
    /// Subscribe to this filter, and upload what is published there: `<namespace>/<topic>`.
    Topic(Box<str>),
    /// Applications of the node may use this URL.
    Url(Box<str>),
}

/// A row of the store: the node was told of a rule, or may have been.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeRuleRow {
    pub node: Box<str>,
    pub rule: NodeRule,
}

/// An input of the core.
#[derive(Clone, Debug)]
pub enum RouterEvent {
    /// All rows of the store: at the start, before anything else of the router.
    Loaded(Vec<NodeRuleRow>),
    /// A request to the REST entry. Exactly one [`RouterAction::Answer`] follows, unless its client
    /// is gone before.
    Request(RestId, Box<RestRequest>),
    /// The client of this request is gone.
    Gone(RestId),
    /// The answer to a [`RouterAction::Post`]: exactly one each. The error says why there is none.
    Posted(PostId, Result<PostAnswer, Box<str>>),
}

/// A request of the core.
#[derive(Clone, Debug)]
pub enum RouterAction {
    /// The answer to a [`RouterEvent::Request`].
    Answer(RestId, ServiceAnswer),
    /// Make this request. It is not repeated.
    Post(PostId, Box<Post>),
    /// From now on there is this row, or there is none. It is durable before a node is told of
    /// anything later.
    Keep(NodeRuleRow, bool),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_what_is_none_is_refused() {
        for (text, authority, is_tls, target) in [
            ("http://a.example", "a.example", false, "/"),
            ("HTTP://a.example:80/x", "a.example", false, "/x"),
            ("https://a.example?x=1", "a.example", true, "/?x=1"),
            ("https://10.0.0.7:8443/a/b?c=d#e", "10.0.0.7:8443", true, "/a/b?c=d"),
            ("http://[2001:db8::1]:8080/", "[2001:db8::1]:8080", false, "/"),
            ("http://[::1]/", "[::1]", false, "/"),
        ] {
            let url = RestUrl::parse(text).expect(text);
            let got = (&*url.authority(), url.is_tls, &*url.target);
            assert_eq!(got, (authority, is_tls, target), "{text}");
        }
        for text in [
            "",
            "a.example/x",
            "ftp://a/",
            "http://",
            "http:///x",
            "http://:80/",
            "http://a:0/",
            "http://a:x/",
            "http://a:70000/",
            "http://u:p@a/",
            "http://[::1",
            "http://[::1]x/",
            "http://a/ b",
            "http://a/\r\nX: y",
            "http://ä/",
        ] {
            let why = RestUrl::parse(text).expect_err(text).to_string();
            assert!(why.contains("expected http://host"), "{why}");
        }
    }
}
