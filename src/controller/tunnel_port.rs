//! The port by which kube-apiserver reaches this replica, as CloudCore agrees on it (edgestream.md,
//! section 6.2): a record in the ConfigMap `tunnelport` names a port for the address of each
//! replica. Nobody opens that port: KubeEdge's iptables manager beside the API server turns it into
//! ours at that address.
//!
//! ```text
//!  Read ──it has our address──▶ known, read again every CHECK
//!   ▲ └──it has not────▶ Write ──▶ known
//!   └── conflict, trouble: after RETRY ─┘
//! ```
//!
//! A write names the version that was read, so of two replicas that take a port at once one fails
//! and reads again. Ports are never freed: what is unknown in the record stays as it is.
//!
//! If we crash here: the next run has another address, or finds its own.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::event::{Action, Out, Severity};
use super::time::Instant;
use crate::limits::{TUNNEL_PORT_CHECK_MS, TUNNEL_PORT_RETRY_MS};
use crate::model::api::{Call, CallError, CallResult, Kind, Verb};
use crate::model::raw;

/// Where the record is, and who we are in it.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The address at which kube-apiserver's requests reach us.
    pub address: String,
    /// The namespace of the ConfigMap.
    pub namespace: String,
}

/// What is known of the record.
pub(super) struct TunnelPort {
    /// `None`: kube-apiserver does not reach us.
    replica: Option<Replica>,
    port: Option<u16>,
    in_flight: Option<Step>,
    next_at: Instant,
    /// The trouble was logged.
    is_trouble_logged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Read,
    /// Create or update the ConfigMap with this port.
    Write(u16),
}

/// CloudCore's name of the ConfigMap.
const NAME: &str = "tunnelport";
const ANNOTATION: &str = "tunnelportrecord.kubeedge.io";
/// The kubelet's port on the nodes; those of replicas follow it.
pub(super) const KUBELET_PORT: u16 = 10_350;

impl TunnelPort {
    pub(super) fn new(replica: Option<Replica>) -> Self {
        let (port, in_flight, next_at) = (None, None, Instant(0));
        Self { replica, port, in_flight, next_at, is_trouble_logged: false }
    }

    /// Whether kube-apiserver is to reach this replica.
    pub(super) fn is_used(&self) -> bool {
        self.replica.is_some()
    }

    /// The port of this replica; `None`: not known, or it has none.
    pub(super) fn port(&self) -> Option<u16> {
        self.port
    }

    /// The call that is due now.
    pub(super) fn step(&mut self, now: Instant) -> Option<Call> {
        let replica = self.replica.as_ref()?;
        if self.in_flight.is_some() || now < self.next_at {
            return None;
        }
        self.in_flight = Some(Step::Read);
        Some(replica.call(Verb::Get, None))
    }

    /// Takes the API server's answer. Returns the next call, if there is one.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        result: CallResult,
        out: &mut Out,
    ) -> Option<Call> {
        let replica = self.replica.as_ref().expect("only a replica makes calls");
        let step = self.in_flight.take().expect("a call is under way");
        self.next_at = now.plus_ms(TUNNEL_PORT_RETRY_MS);
        let old = match (step, result) {
            (Step::Write(port), Ok(_)) => {
                self.becomes_known(now, port, out);
                return None;
            }
            (Step::Read, Ok(raw)) => serde_json::from_str(raw.get()).unwrap_or_default(),
            (Step::Read, Err(CallError::Refused { code: 404, .. })) => replica.config_map(),
            // Another replica was faster.
            (Step::Write(_), Err(CallError::Refused { code: 409, .. })) => return None,
            (_, Err(error)) => {
                self.log(&trouble(&error), out);
                return None;
            }
        };
        match replica.record(&old) {
            Ok(Found::Ours(port)) => {
                self.becomes_known(now, port, out);
                None
            }
            Ok(Found::New(port, config_map)) => {
                let exists = config_map["metadata"]["resourceVersion"].is_string();
                let verb = if exists { Verb::Update } else { Verb::Create };
                let call = replica.call(verb, Some(&config_map));
                self.in_flight = Some(Step::Write(port));
                Some(call)
            }
            Err(why) => {
                self.log(&why, out);
                None
            }
        }
    }

    fn becomes_known(&mut self, now: Instant, port: u16, out: &mut Out) {
        self.next_at = now.plus_ms(TUNNEL_PORT_CHECK_MS);
        self.is_trouble_logged = false;
        if self.port.replace(port) != Some(port) {
            let address = self.replica.as_ref().map_or("", |replica| &replica.address);
            let line = format!("tunnelport: kube-apiserver reaches {address} by port {port}");
            out.push(Action::Log(Severity::Info, line));
        }
    }

    fn log(&mut self, why: &str, out: &mut Out) {
        if !std::mem::replace(&mut self.is_trouble_logged, true) {
            let line = format!("tunnelport: kubectl logs and exec may not reach nodes: {why}");
            out.push(Action::Log(Severity::Warn, line));
        }
    }

    /// When the next call is due, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.replica.as_ref()?;
        self.in_flight.is_none().then_some(self.next_at)
    }
}

/// What the record says of us.
enum Found {
    Ours(u16),
    /// The first free port, and the ConfigMap with it.
    New(u16, Value),
}

impl Replica {
    fn call(&self, verb: Verb, body: Option<&Value>) -> Call {
        let (namespace, body) = (self.namespace.as_str().into(), body.map(raw::json));
        let (kind, name) = (Kind::ConfigMap, NAME.into());
        Call { verb, kind, namespace, name, subresource: None, body }
    }

    fn config_map(&self) -> Value {
        json!({
            "kind": Kind::ConfigMap.name(), "apiVersion": Kind::ConfigMap.api_version(),
            "metadata": {"name": NAME, "namespace": self.namespace},
        })
    }

    /// Reads the record of a ConfigMap. One that is malformed is left to a person: it may have the
    /// ports of other replicas.
    fn record(&self, config_map: &Value) -> Result<Found, String> {
        let text = config_map["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or("{}");
        let malformed = |why: &dyn std::fmt::Display| {
            let got: String = text.chars().take(64).collect();
            format!("the annotation {ANNOTATION} of the ConfigMap {NAME}: got {got:?}: {why}")
        };
        let mut record: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| malformed(&error))?;
        let mut take = |key: &str| match record.remove(key) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(map)) => Ok(map),
            Some(_) => Err(malformed(&format_args!("expected a map in {key}"))),
        };
        let (mut addresses, mut ports) = (take("ipTunnelPort")?, take("port")?);
        let number = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok());
        match addresses.get(&self.address) {
            None => {}
            Some(port) => {
                let port = number(port).filter(|port| *port > 0);
                let expected = || malformed(&format_args!("expected a port of {}", self.address));
                return Ok(Found::Ours(port.ok_or_else(expected)?));
            }
        }
        let taken: BTreeSet<u16> = addresses.values().filter_map(number).collect();
        let is_free = |port: &u16| !ports.contains_key(&port.to_string());
        let port = (KUBELET_PORT + 1..=u16::MAX)
            .find(|port| is_free(port) && !taken.contains(port))
            .ok_or_else(|| malformed(&"all ports are taken"))?;
        addresses.insert(self.address.clone(), json!(port));
        ports.insert(port.to_string(), json!(true));
        record.insert("ipTunnelPort".to_owned(), Value::Object(addresses));
        record.insert("port".to_owned(), Value::Object(ports));
        let mut config_map = config_map.clone();
        if !config_map["metadata"]["annotations"].is_object() {
            config_map["metadata"]["annotations"] = json!({});
        }
        config_map["metadata"]["annotations"][ANNOTATION] = json!(json!(record).to_string());
        Ok(Found::New(port, config_map))
    }
}

fn trouble(error: &CallError) -> String {
    match error {
        CallError::Refused { code, status } => format!("{code}: {status}"),
        CallError::Lost(why) => why.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(address: &str) -> Replica {
        Replica { address: address.to_owned(), namespace: "k".to_owned() }
    }

    fn with(record: &str) -> Value {
        json!({"metadata": {"resourceVersion": "7", "annotations": {ANNOTATION: record}}})
    }

    fn found(address: &str, config_map: &Value) -> (u16, Option<String>) {
        match replica(address).record(config_map).expect("a record") {
            Found::Ours(port) => (port, None),
            Found::New(port, written) => {
                let text = written["metadata"]["annotations"][ANNOTATION].as_str();
                (port, text.map(str::to_owned))
            }
        }
    }

    #[test]
    fn the_record_has_the_form_of_cloudcore() {
        let (port, first) = found("10.98.0.1", &replica("").config_map());
        let first = first.expect("it is written");
        assert_eq!(port, 10_351);
        assert_eq!(first, r#"{"ipTunnelPort":{"10.98.0.1":10351},"port":{"10351":true}}"#);
        assert_eq!(found("10.98.0.1", &with(&first)), (10_351, None));
        let (port, second) = found("10.98.0.2", &with(&first));
        let expected = json!({
            "ipTunnelPort": {"10.98.0.1": 10_351, "10.98.0.2": 10_352},
            "port": {"10351": true, "10352": true},
        });
        assert_eq!((port, second), (10_352, Some(expected.to_string())));
        let none = json!({"metadata": {"resourceVersion": "7"}, "data": {"a": "b"}});
        assert_eq!(found("10.98.0.1", &none).0, 10_351);
    }

    #[test]
    fn a_port_of_a_replica_that_is_gone_is_not_taken_again() {
        let record = r#"{"ipTunnelPort":{"10.98.0.9":10353},"port":{"10351":true},"more":1}"#;
        let (port, written) = found("10.98.0.1", &with(record));
        assert_eq!(port, 10_352);
        assert!(written.expect("it is written").contains("\"more\":1"), "it is somebody's");
        let (port, _) = found("10.98.0.1", &with(r#"{"ipTunnelPort":{"a":10351}}"#));
        assert_eq!(port, 10_352, "an address has it");
    }

    #[test]
    fn what_cannot_be_read_is_not_overwritten() {
        let full: Map<String, Value> =
            (10_351..=65_535).map(|port| (port.to_string(), json!(true))).collect();
        let full = json!({"port": full}).to_string();
        for text in [
            "",
            "[]",
            "{",
            r#"{"port":[]}"#,
            r#"{"ipTunnelPort":{"a":0}}"#,
            r#"{"ipTunnelPort":{"a":65536}}"#,
            &full,
        ] {
            let why = replica("a").record(&with(text)).err().unwrap_or_default();
            assert!(why.contains("of the ConfigMap tunnelport: got "), "{text}: {why}");
        }
    }
}
