//! Probes and lifecycle hooks as a manifest defines them (core/v1 `Probe`, `Lifecycle`).

use serde::Serialize;

use super::tree::{self, Fault, Node, Read, Value, by_tree, fields};
use super::untyped::{Rest, is_default};

/// core/v1 `Probe`. Zero stands for the default, as in the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Exactly one of the handler's fields is set.
    #[serde(flatten)]
    pub handler: Handler,
    /// Seconds after the container's start without probes.
    #[serde(skip_serializing_if = "is_default")]
    pub initial_delay_seconds: i32,
    /// Seconds; default 1.
    #[serde(skip_serializing_if = "is_default")]
    pub timeout_seconds: i32,
    /// Seconds from one to the next; default 10.
    #[serde(skip_serializing_if = "is_default")]
    pub period_seconds: i32,
    /// Successes in a row for a success; default 1.
    #[serde(skip_serializing_if = "is_default")]
    pub success_threshold: i32,
    /// Failures in a row for a failure; default 3.
    #[serde(skip_serializing_if = "is_default")]
    pub failure_threshold: i32,
    /// Overrides the pod's if this probe is the reason of the container's stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
}

fields!(Probe {
    "initialDelaySeconds" => initial_delay_seconds,
    "timeoutSeconds" => timeout_seconds,
    "periodSeconds" => period_seconds,
    "successThreshold" => success_threshold,
    "failureThreshold" => failure_threshold,
    "terminationGracePeriodSeconds" => termination_grace_period_seconds,
} rest handler);

/// Results of the startup and readiness probes of one running container. They hold until a probe
/// changes them, across a restart of the agent too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeResults {
    /// The startup probe has succeeded, or there is none.
    pub started: bool,
    /// The readiness probe has succeeded, or there is none.
    pub ready: bool,
}

/// The purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Detects the end of the start; the other probes wait for it.
    Startup,
    /// Detects readiness.
    Readiness,
    /// Detects that a restart is needed.
    Liveness,
}

impl ProbeKind {
    /// The beginning of event messages.
    pub fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// When a hook is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookKind {
    /// Right after the container's start.
    PostStart,
    /// Before the container's stop.
    PreStop,
}

/// core/v1 `Lifecycle`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Runs once the container has started; the next containers wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_start: Option<Handler>,
    /// Runs before the container's stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<Handler>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(Lifecycle {
    "postStart" => post_start,
    "preStop" => pre_stop,
} rest rest);

/// core/v1 `ProbeHandler` and `LifecycleHandler`: the allowed fields depend on the use.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Handler {
    /// A command in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<Exec>,
    /// A request over HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGet>,
    /// A connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocket>,
    /// A call of `grpc.health.v1.Health`. Only for probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<Grpc>,
    /// Waits. Only for hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep: Option<Sleep>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(Handler {
    "exec" => exec,
    "httpGet" => http_get,
    "tcpSocket" => tcp_socket,
    "grpc" => grpc,
    "sleep" => sleep,
} rest rest);

/// core/v1 `ExecAction`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exec {
    /// Program and arguments; no shell.
    pub command: Vec<String>,
}

fields!(Exec {
    "command" => command,
});

/// core/v1 `HTTPGetAction`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    /// May have a query; empty: `/`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    pub port: Port,
    /// Empty: the pod's address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// `HTTP` or `HTTPS`; empty: `HTTP`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheme: String,
    /// In order; names may repeat.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http_headers: Vec<HttpHeader>,
}

fields!(HttpGet {
    "path" => path,
    "port" => port,
    "host" => host,
    "scheme" => scheme,
    "httpHeaders" => http_headers,
});

/// core/v1 `HTTPHeader`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HttpHeader {
    /// In any case.
    pub name: String,
    /// May be empty.
    pub value: String,
}

fields!(HttpHeader {
    "name" => name,
    "value" => value,
});

/// core/v1 `TCPSocketAction`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpSocket {
    pub port: Port,
    /// Empty: the pod's address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
}

fields!(TcpSocket {
    "port" => port,
    "host" => host,
});

/// core/v1 `GRPCAction`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Grpc {
    /// A number: names are not allowed here.
    pub port: i32,
    /// For `HealthCheckRequest`; empty: the server as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service: String,
}

fields!(Grpc {
    "port" => port,
    "service" => service,
});

/// core/v1 `SleepAction`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sleep {
    pub seconds: i64,
}

fields!(Sleep {
    "seconds" => seconds,
});

/// A port by number, or by the container's name for it (`IntOrString`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Port {
    /// As written; only 1–65535 are valid.
    Number(i64),
    /// A name of the container's ports, or digits.
    Name(String),
}

impl Default for Port {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Read for Port {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        *self = match &node.value {
            Value::Null => Self::default(),
            Value::Int(number) => Self::Number(*number),
            // Such a number is out of range in any case.
            Value::Big(_) => Self::Number(i64::MAX),
            Value::Text(name) => Self::Name(name.to_string()),
            _ => return Err(Fault::unlike(node, "a port's number or name")),
        };
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Name(name) => name.heap_bytes(),
        }
    }
}

by_tree!(Port);

/// The handler's fields are among the probe's own.
impl tree::Rest for Handler {
    fn other(&mut self, key: &str, node: &Node) -> Result<(), Fault> {
        self.field(key, node)
    }

    fn rest_bytes(&self) -> usize {
        self.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_reads_as_kubernetes_writes_it_and_loses_nothing() {
        let text = r#"{"httpGet":{"path":"/healthz","port":"web","scheme":"HTTPS",
            "httpHeaders":[{"name":"X","value":"1"}]},"initialDelaySeconds":3,
            "terminationGracePeriodSeconds":5,"newer":1}"#;
        let probe: Probe = serde_json::from_str(text).expect("a probe");
        let get = probe.handler.http_get.as_ref().expect("a GET");
        assert_eq!(get.port, Port::Name("web".to_owned()));
        assert_eq!((probe.initial_delay_seconds, probe.period_seconds), (3, 0));
        assert_eq!(probe.handler.rest.keys().collect::<Vec<_>>(), ["newer"]);
        let again = serde_json::to_value(&probe).expect("plain data");
        assert_eq!(again, serde_json::from_str::<serde_json::Value>(text).expect("JSON"));
    }

    #[test]
    fn ports_are_numbers_or_names_and_nothing_else() {
        for (text, port) in [
            ("8080", Port::Number(8080)),
            ("-1", Port::Number(-1)),
            (r#""web""#, Port::Name("web".to_owned())),
            (r#""80""#, Port::Name("80".to_owned())),
        ] {
            assert_eq!(serde_json::from_str::<Port>(text).expect(text), port);
        }
        for text in ["1.5", "true", "[]", "{}"] {
            let error = serde_json::from_str::<Port>(text).expect_err(text).to_string();
            assert!(error.contains("a port's number or name"), "{error}");
        }
    }
}
