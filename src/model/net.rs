//! Network queries of probes and hooks, and their results.

/// The version of Kubernetes in the user agent of probes and hooks.
pub const KUBERNETES_VERSION: &str = "1.32";

/// One query to an address, which is resolved already: the pod's address is filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Whether the port accepts a connection.
    Tcp {
        /// An address, or a name.
        host: Box<str>,
        /// 1–65535
        port: u16,
    },
    /// A GET.
    Http(Box<HttpQuery>),
    /// `grpc.health.v1.Health/Check`, without TLS.
    Grpc {
        /// An address.
        host: Box<str>,
        /// 1–65535
        port: u16,
        /// Empty: the server as a whole.
        service: Box<str>,
        /// For messages: the timeout of the whole query, seconds.
        timeout_s: u64,
    },
}

/// A GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpQuery {
    /// Over TLS, without verification of the other end.
    pub tls: bool,
    /// An address, or a name.
    pub host: Box<str>,
    /// 1–65535
    pub port: u16,
    /// Begins with `/`; may have a query.
    pub target: String,
    /// All headers except `Connection` and, unless it is among them, `Host`.
    pub headers: Vec<(String, String)>,
    pub expects: Expects,
}

/// Which answers to a GET are a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    /// 200–399, as of a probe.
    Success,
    /// Anything, as of a hook.
    Answer,
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Success.
    Good,
    /// Success with a warning: a redirect that was not followed.
    Warning(String),
    /// Failure, in the kubelet's words.
    Bad(String),
    /// TLS was requested, and the other end speaks plain HTTP.
    NotTls(String),
}
