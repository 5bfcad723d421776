//! What is asked over the network for probes and hooks, and what came of it.

/// The version of Kubernetes that probes and hooks say they belong to.
pub const KUBERNETES_VERSION: &str = "1.32";

/// One question to an address. Whom it asks is written out: the pod's address is filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Whether anybody accepts a connection.
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
        /// For the texts: how long the whole may take, seconds.
        timeout_s: u64,
    },
}

/// A GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpQuery {
    /// Over TLS, whoever the other end says it is.
    pub tls: bool,
    /// An address, or a name.
    pub host: Box<str>,
    /// 1–65535
    pub port: u16,
    /// Begins with `/`; may have a query.
    pub target: String,
    /// All that are sent but `Connection` and, unless it is among them, `Host`.
    pub headers: Vec<(String, String)>,
    /// What counts.
    pub expects: Expects,
}

/// Which answers to a GET are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    /// 200–399, as of a probe.
    Success,
    /// Anything, as of a hook.
    Answer,
}

/// What came of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// As it should be.
    Good,
    /// As it should be, and somebody should know: a redirect that was not followed.
    Warning(String),
    /// Not as it should be, in the kubelet's words.
    Bad(String),
    /// TLS was asked for, and the other end speaks plain HTTP.
    NotTls(String),
}
