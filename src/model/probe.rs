//! Probes and lifecycle hooks as a manifest writes them (core/v1 `Probe`, `Lifecycle`).

use serde::Serialize;

use super::pod::{Rest, is_default};
use super::tree::{self, Fault, Node, Read, Value, by_tree, fields};

/// core/v1 `Probe`. Zero stands for the default, as in the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// What is done. Exactly one of the handler's fields.
    #[serde(flatten)]
    pub handler: Handler,
    /// Seconds from the container's start in which nothing is done.
    #[serde(skip_serializing_if = "is_default")]
    pub initial_delay_seconds: i32,
    /// Seconds; default 1.
    #[serde(skip_serializing_if = "is_default")]
    pub timeout_seconds: i32,
    /// Seconds from one to the next; default 10.
    #[serde(skip_serializing_if = "is_default")]
    pub period_seconds: i32,
    /// Successes in a row that count; default 1.
    #[serde(skip_serializing_if = "is_default")]
    pub success_threshold: i32,
    /// Failures in a row that count; default 3.
    #[serde(skip_serializing_if = "is_default")]
    pub failure_threshold: i32,
    /// Stands over the pod's when this probe is why the container is stopped.
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
/// says otherwise, across a restart of the agent too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeResults {
    /// The startup probe has succeeded, if there is one.
    pub started: bool,
    /// So has the readiness probe, if there is one.
    pub ready: bool,
}

/// What a probe decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Whether the container has started; before that the others are not asked.
    Startup,
    /// Whether it is ready to serve.
    Readiness,
    /// Whether it may go on.
    Liveness,
}

impl ProbeKind {
    /// As events begin with it.
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
    /// Before the container is told to stop.
    PreStop,
}

/// core/v1 `Lifecycle`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Done once the container has started; what follows waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_start: Option<Handler>,
    /// Done before the container is told to stop.
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

/// core/v1 `ProbeHandler` and `LifecycleHandler`: which fields may be set depends on where it is.
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
    /// A question to `grpc.health.v1.Health`. Of probes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<Grpc>,
    /// Nothing for a while. Of hooks only.
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
    /// Where.
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
    /// Any spelling of case.
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
    /// Where.
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
    /// As `HealthCheckRequest` has it; empty: the server as a whole.
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
    /// How long.
    pub seconds: i64,
}

fields!(Sleep {
    "seconds" => seconds,
});

/// A port by number, or by the name that the container gives it (`IntOrString`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Port {
    /// As written; 1–65535 make sense.
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
            // What does not fit is out of range in any case.
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

/// What a probe does stands beside when it does it.
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
