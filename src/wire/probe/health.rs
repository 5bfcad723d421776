//! `grpc.health.v1.Health/Check` (the gRPC health checking protocol), as a client.

use super::url::host_port;
use crate::limits::PROBE_GRPC_WINDOW_BYTES;
use crate::model::net::{Finding, KUBERNETES_VERSION, Query};
use crate::wire::grpc::{CallKey, Client, Code, Event, Names, Status};
use crate::wire::h2;

const PATH: &str = "/grpc.health.v1.Health/Check";
const CALL: CallKey = CallKey(0);

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

/// `HealthCheckResponse.ServingStatus`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

/// One health check on one connection.
#[derive(Debug)]
pub(super) struct Health {
    client: Client,
    timeout_s: u64,
}

impl Health {
    pub(super) fn new(query: &Query) -> Self {
        let Query::Grpc { host, port, service, timeout_s } = query else {
            unreachable!("asked for a query over gRPC, got {query:?}");
        };
        let config = h2::Config {
            stream_window_bytes: PROBE_GRPC_WINDOW_BYTES,
            connection_window_bytes: PROBE_GRPC_WINDOW_BYTES,
            ..h2::Config::default()
        };
        let names = Names {
            authority: host_port(host, *port).into(),
            user_agent: format!("kube-probe/{KUBERNETES_VERSION}").into(),
        };
        let mut client = Client::named(config, names);
        let request = HealthCheckRequest { service: service.to_string() };
        let message = prost::Message::encode_to_vec(&request);
        client.unary(CALL, PATH, &message).expect("a fresh connection takes a call");
        Self { client, timeout_s: *timeout_s }
    }

    /// Moves the output.
    pub(super) fn take_output(&mut self, output: &mut Vec<u8>) {
        while !self.client.output().is_empty() {
            output.extend_from_slice(self.client.output());
            let count = self.client.output().len();
            self.client.sent(count);
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) -> Option<Finding> {
        // An error loses the call, which is reported below.
        let _ = self.client.receive(bytes);
        self.found()
    }

    pub(super) fn ended(&mut self, why: &str) -> Finding {
        self.client.hangup(why);
        self.found().unwrap_or_else(|| failed(why))
    }

    fn found(&mut self) -> Option<Finding> {
        let event = self.client.poll_event()?;
        Some(match event {
            Event::Reply(_, message) => judge(&message),
            Event::Failed(_, status) => self.refused(&status),
            Event::Lost(_, lost) => failed(&lost.why),
            Event::Message(..) | Event::Done(_) => unreachable!("the call is unary"),
        })
    }

    fn refused(&self, status: &Status) -> Finding {
        match status.code {
            Code::Unimplemented => Finding::Bad(format!(
                "error: this server does not implement the grpc health protocol \
                 (grpc.health.v1.Health): {}",
                status.message
            )),
            Code::DeadlineExceeded => {
                let seconds = self.timeout_s;
                Finding::Bad(format!("timeout: health rpc did not complete within {seconds}s"))
            }
            code => failed(&format!("rpc error: code = {code:?} desc = {}", status.message)),
        }
    }
}

fn judge(message: &[u8]) -> Finding {
    let status = match <HealthCheckResponse as prost::Message>::decode(message) {
        Ok(response) => response.status(),
        Err(error) => return failed(&format!("got a reply that is no answer: {error}")),
    };
    match status {
        ServingStatus::Serving => Finding::Good,
        other => {
            let name = match other {
                ServingStatus::NotServing => "NOT_SERVING",
                ServingStatus::ServiceUnknown => "SERVICE_UNKNOWN",
                ServingStatus::Serving | ServingStatus::Unknown => "UNKNOWN",
            };
            Finding::Bad(format!("service unhealthy (responded with {name:?})"))
        }
    }
}

fn failed(why: &str) -> Finding {
    Finding::Bad(format!("error: health rpc probe failed: {why}"))
}
