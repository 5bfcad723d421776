//! What the controller's page shows: some of the nodes, or one with its pods. It is shown through
//! the unix socket, and through the port to who has the token; nothing else of the objects is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Answer, HttpContext, JSON, text};
use crate::controller::local::{Key, Objects};
use crate::io::page::{self, Shown};
use crate::io::server::redact::redact;
use crate::io::socket::Access;
use crate::io::token;
use crate::limits::PAGE_NODES_MAX;
use crate::model::api::Kind;
use crate::wire::http1::Method;
use crate::wire::http1::call::Call;
use crate::wire::http1::query::unescaped_path;
use crate::wire::kubelet::answer;

const NODES: &str = "/edgecontroller/nodes";

/// Whether who has the token may send it through the port.
fn is_shown(call: &Call) -> bool {
    let below = |path: &str| call.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    call.method == "GET" && (call.path == NODES || below(NODES) || below("/containerLogs"))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Node {
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Option<Vec<Condition>>,
}

/// core/v1 `NodeCondition`
#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    message: Option<String>,
    last_heartbeat_time: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Lease {
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec {
    renew_time: Option<String>,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    conditions: Vec<Condition>,
    connected: bool,
    tunnel: bool,
    /// When the node last reported, by its own clock.
    seen: Option<String>,
    pods: usize,
    devices: usize,
}

/// What is shown of a device: the configuration of its protocol may have passwords.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Device {
    spec: DeviceSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeviceSpec {
    protocol: Protocol,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Protocol {
    protocol_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Recorded {
    status: serde_json::Value,
}

#[derive(Serialize)]
struct JobRow<'a> {
    /// With its kind: `imageprepulljob/nightly`.
    name: String,
    phase: &'static str,
    reason: &'a str,
}

#[derive(Serialize)]
struct DeviceRow<'a> {
    namespace: &'a str,
    name: &'a str,
    protocol: Option<String>,
    /// Of its DeviceStatus; `null`: nothing was reported.
    status: serde_json::Value,
}

impl HttpContext<'_> {
    /// A file of the page, or the refusal of what is shown only to who has the token.
    pub(super) fn page(&self, call: &Call, access: Access) -> Option<Vec<u8>> {
        if call.method == "GET"
            && let Some(file) = page::file(&call.path, Shown::Controller)
        {
            return Some(file.bytes(Method::Get));
        }
        let is_refused = access == Access::Public && is_shown(call) && !self.has_token(call);
        is_refused.then(|| answer::refusal(&token::refusal(self.token)))
    }

    /// Whether a request may be answered beyond health and metrics.
    pub(in crate::io::controller) fn admits(&self, call: &Call, access: Access) -> bool {
        access == Access::Protected || is_shown(call) && self.has_token(call)
    }

    fn has_token(&self, call: &Call) -> bool {
        let bearer = call.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
        token::is_valid(self.token, bearer.trim())
    }

    /// `None`: the path is another's.
    pub(super) fn nodes(&self, call: &Call, access: Access) -> Option<Answer> {
        let rest = call.path.strip_prefix(NODES)?;
        if rest.is_empty() {
            let wanted = call.query_value("match").unwrap_or_default();
            return Some(self.some_nodes(&wanted));
        }
        rest.strip_prefix('/').map(|name| self.one_node(&unescaped_path(name), access))
    }

    fn stored(&self) -> &Objects {
        &self.local.as_deref().expect("looked at before").objects
    }

    fn some_nodes(&self, wanted: &str) -> Answer {
        let all = self.stored().keyed(Kind::Node).map(|(key, _)| &*key.name);
        let names: Vec<&str> = all.filter(|name| name.contains(wanted)).collect();
        let shown = names.iter().take(PAGE_NODES_MAX);
        let rows: Vec<Row<'_>> = shown.map(|name| self.row(name)).collect();
        let body = serde_json::json!({ "total": names.len(), "nodes": rows });
        (200, JSON, format!("{body}\n").into_bytes())
    }

    fn row<'a>(&self, name: &'a str) -> Row<'a> {
        let text = |kind, namespace| self.stored().text(&key(kind, namespace, name));
        let node = text(Kind::Node, "").unwrap_or_default();
        let node: Node = serde_json::from_str(node).unwrap_or_default();
        let lease = text(Kind::Lease, "kube-node-lease").unwrap_or_default();
        let lease: Lease = serde_json::from_str(lease).unwrap_or_default();
        let conditions = node.status.conditions.unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.kind == "Ready");
        let reported = ready.and_then(|ready| ready.last_heartbeat_time.clone());
        Row {
            name,
            connected: self.controller.is_connected(name),
            tunnel: self.controller.tunnel_of(name).is_ok(),
            // Both are of one form: the greater text is the later time, to the second.
            seen: lease.spec.renew_time.max(reported),
            pods: self.controller.pods_of(name).count(),
            devices: self.controller.devices_of(name).count(),
            conditions,
        }
    }

    fn device<'a>(&self, namespace: &'a str, name: &'a str) -> DeviceRow<'a> {
        let text = |kind| self.stored().text(&key(kind, namespace, name)).unwrap_or_default();
        let device: Device = serde_json::from_str(text(Kind::Device)).unwrap_or_default();
        let recorded: Recorded = serde_json::from_str(text(Kind::DeviceStatus)).unwrap_or_default();
        let protocol = device.spec.protocol.protocol_name;
        DeviceRow { namespace, name, protocol, status: recorded.status }
    }

    fn one_node(&self, name: &str, access: Access) -> Answer {
        let Some(node) = self.stored().text(&key(Kind::Node, "", name)) else {
            return text(404, &format!("node {name:?} does not exist"));
        };
        let names: BTreeSet<(&str, &str)> = self.controller.pods_of(name).collect();
        let pods = names
            .iter()
            .filter_map(|(namespace, pod)| self.stored().text(&key(Kind::Pod, namespace, pod)));
        let devices = self.controller.devices_of(name);
        let devices = devices.map(|(namespace, device)| self.device(namespace, device));
        let devices = serde_json::to_string(&devices.collect::<Vec<_>>()).expect("plain data");
        let jobs = self.controller.jobs_of(name).map(|job| {
            let name = format!("{}/{}", job.kind.resource(), job.name);
            JobRow { name, phase: job.phase, reason: job.reason }
        });
        let jobs = serde_json::to_string(&jobs.collect::<Vec<_>>()).expect("plain data");
        let events = self.stored().keyed(Kind::Event).filter(|(key, _)| {
            // As client-go names them: that of the object, a dot, and a number.
            let about = key.name.rsplit_once('.').map_or("", |(about, _)| about);
            about == name || names.contains(&(&*key.namespace, about))
        });
        // As the agent's own port does it.
        let shown = |text: &str| match access {
            Access::Protected => text.to_owned(),
            Access::Public => redacted(text),
        };
        let (node, pods) = (shown(node), pods.map(shown).collect::<Vec<_>>());
        let events: Vec<&str> = events.map(|(_, text)| text).collect();
        let row = serde_json::to_string(&self.row(name)).expect("plain data");
        let (pods, events) = (pods.join(","), events.join(","));
        let body = format!(
            "{{\"row\":{row},\"node\":{node},\"pods\":[{pods}],\"devices\":{devices},\
             \"jobs\":{jobs},\"events\":[{events}]}}\n"
        );
        (200, JSON, body.into_bytes())
    }
}

/// The object without values that may be secret.
fn redacted(text: &str) -> String {
    let mut object: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    redact(&mut object);
    object.to_string()
}

fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    Key { kind, namespace: namespace.into(), name: name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_shows_nodes_and_logs_alone() {
        let is_shown = |method: &str, path: &str| {
            is_shown(&Call { method: method.into(), path: path.into(), ..Call::default() })
        };
        for path in [NODES, "/edgecontroller/nodes/gw", "/containerLogs/default/web/c"] {
            assert!(is_shown("GET", path), "{path}");
            assert!(!is_shown("POST", path) && !is_shown("DELETE", path), "{path}");
        }
        for path in [
            "/",
            "/api/v1/secrets",
            "/api/v1/nodes",
            "/api/v1/namespaces/default/pods/web",
            "/exec/default/web/c",
            "/attach/default/web/c",
            "/portForward/default/web",
            "/nodes/gw/stats/summary",
            "//containerLogs/default/web/c",
            "/containerLogsX/a/b/c",
            "/edgecontroller/nodesX",
            "/edgecontroller",
        ] {
            assert!(!is_shown("GET", path), "{path}");
        }
    }
}
