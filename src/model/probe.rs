//! Probes and lifecycle hooks as a manifest writes them (core/v1 `Probe`, `Lifecycle`).

use std::fmt;

use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use super::pod::{Rest, is_default};

/// core/v1 `Probe`. Zero stands for the default, as in the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
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

/// core/v1 `ProbeHandler` and `LifecycleHandler`: which fields may be set depends on where it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
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

/// core/v1 `ExecAction`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exec {
    /// Program and arguments; no shell.
    pub command: Vec<String>,
}

/// core/v1 `HTTPGetAction`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
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

/// core/v1 `HTTPHeader`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpHeader {
    /// Any spelling of case.
    pub name: String,
    /// May be empty.
    pub value: String,
}

/// core/v1 `TCPSocketAction`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpSocket {
    /// Where.
    pub port: Port,
    /// Empty: the pod's address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
}

/// core/v1 `GRPCAction`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grpc {
    /// A number: names are not allowed here.
    pub port: i32,
    /// As `HealthCheckRequest` has it; empty: the server as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service: String,
}

/// core/v1 `SleepAction`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sleep {
    /// How long.
    pub seconds: i64,
}

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

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Written)
    }
}

struct Written;

impl Visitor<'_> for Written {
    type Value = Port;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port's number or name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Port, E> {
        Ok(Port::Name(name.to_owned()))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Port, E> {
        Ok(Port::Number(number))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Port, E> {
        // What does not fit is out of range in any case.
        Ok(Port::Number(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Port, E> {
        Ok(Port::default())
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
