//! The API server behind the cloud, as far as nodes and leases are concerned.

use edged::model::message::Message;
use edged::wire::edge::encode;
use serde_json::{Map, Value, json};

use crate::cloud_harness::{CloudHarness, content, patch};

/// Its objects.
#[derive(Default)]
pub struct Cluster {
    pub node: Option<Value>,
    pub lease: Option<Value>,
    /// It does not answer requests that KubeEdge up to 1.11 does not support.
    pub is_old: bool,
    /// Received messages: operation, kind and content, the oldest first.
    pub received: Vec<(String, Value)>,
    /// Bytes on the wire, with the frames' heads, to the node and from it.
    pub up_bytes: usize,
    pub down_bytes: usize,
    /// The last `resourceVersion`.
    pub version: u64,
    made: u32,
}

impl Cluster {
    /// Answers all messages about the node and its lease.
    pub fn serve(&mut self, cloud: &mut CloudHarness) {
        loop {
            let sent = std::mem::take(&mut cloud.sent);
            let (ours, rest): (Vec<_>, Vec<_>) = sent.into_iter().partition(Self::is_ours);
            for message in rest.iter().chain(&ours) {
                self.up_bytes += frame_bytes(encode(message).len()) + 4;
            }
            if ours.is_empty() {
                // Keepalives are ignored.
                return;
            }
            for message in ours {
                if let Some(answer) = self.answer(&message) {
                    self.down_bytes += frame_bytes(answer.to_string().len() + 250);
                    cloud.answer(&message, &answer);
                }
            }
        }
    }

    /// Time passes; the link delivers signs of life.
    pub fn pass(&mut self, cloud: &mut CloudHarness, ms: u64) {
        let end = cloud.harness.now.boot.plus_ms(ms);
        while cloud.harness.now.boot < end {
            cloud.pass(end.since_ms(cloud.harness.now.boot).min(1_000));
            cloud.sign_of_life();
            self.serve(cloud);
        }
    }

    /// Messages received since the last call, by operation and kind.
    pub fn take_received(&mut self) -> Vec<String> {
        std::mem::take(&mut self.received).into_iter().map(|(what, _)| what).collect()
    }

    /// The contents of such messages received since the last call.
    pub fn contents(&mut self, what: &str) -> Vec<Value> {
        let received = std::mem::take(&mut self.received).into_iter();
        received.filter(|(received, _)| received == what).map(|(_, content)| content).collect()
    }

    /// Another writer changes the node's status; the node is not informed.
    pub fn change(&mut self, change: impl FnOnce(&mut Value)) {
        self.version += 1;
        let node = self.node.as_mut().expect("a node");
        change(&mut node["status"]);
        node["metadata"]["resourceVersion"] = self.version.to_string().into();
    }

    fn is_ours(message: &Message) -> bool {
        let kinds = ["node", "nodepatch", "nodestatus", "lease"];
        let kind = message.route.resource.split('/').nth(1).unwrap_or_default();
        message.header.parent_id.is_empty() && kinds.contains(&kind)
    }

    fn answer(&mut self, message: &Message) -> Option<Value> {
        let operation = &*message.route.operation;
        let kind = message.route.resource.split('/').nth(1).expect("a kind").to_owned();
        let received = match &*kind {
            "nodepatch" => patch(message),
            _ => content(message),
        };
        self.received.push((format!("{operation} {kind}"), received.clone()));
        self.version += 1;
        let version = self.version.to_string();
        match (operation, &*kind) {
            ("insert" | "update", "nodestatus") => {
                self.is_old.then(|| self.node = Some(received));
                return Some(json!("OK"));
            }
            _ if self.is_old => return None,
            ("insert", "node") if self.node.is_some() => {
                return Some(refusal("AlreadyExists", 409));
            }
            ("insert", "node") => {
                self.made += 1;
                self.node = Some(received);
                let node = self.node.as_mut().expect("just made");
                node["metadata"]["uid"] = format!("node-{}", self.made).into();
            }
            // The labels of the node.
            ("update", "node") => {
                let node = self.node.as_mut().expect("a node");
                apply(&mut node["metadata"], &received["metadata"]);
                return Some(json!("OK"));
            }
            ("patch", "nodepatch") => {
                let Some(node) = &mut self.node else { return Some(refusal("NotFound", 404)) };
                apply(node, &received);
            }
            ("query", "lease") => return Some(self.stored_lease()),
            ("insert", "lease") if self.lease.is_some() => {
                return Some(refusal("AlreadyExists", 409));
            }
            ("insert", "lease") => self.lease = Some(received),
            ("update", "lease") => {
                let Some(lease) = &mut self.lease else { return Some(refusal("NotFound", 404)) };
                let known = &lease["metadata"]["resourceVersion"];
                if received["metadata"]["resourceVersion"] != *known {
                    return Some(refusal("Conflict", 409));
                }
                *lease = received;
            }
            other => panic!("{other:?} is not asked of a cloud"),
        }
        let object = if kind == "lease" { &mut self.lease } else { &mut self.node };
        let object = object.as_mut().expect("just changed");
        object["metadata"]["resourceVersion"] = version.into();
        Some(json!({"Object": object, "Err": null}))
    }

    fn stored_lease(&self) -> Value {
        match &self.lease {
            Some(lease) => json!({"Object": lease, "Err": null}),
            None => refusal("NotFound", 404),
        }
    }
}

/// A refusal in the form of clouds.
pub fn refusal(reason: &str, code: u16) -> Value {
    let why = json!({"metadata": {}, "status": "Failure", "reason": reason, "code": code,
        "message": format!("it is {reason}")});
    json!({"Object": null, "Err": {"ErrStatus": why}})
}

/// The size of a message with a frame's head, without a mask.
fn frame_bytes(bytes: usize) -> usize {
    bytes + if bytes < 126 { 2 } else { 4 }
}

/// A strategic merge patch, as far as those of a node need it.
fn apply(to: &mut Value, patch: &Value) {
    let (Value::Object(to), Value::Object(patch)) = (to, patch) else { panic!("no maps") };
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        match (to.get_mut(key), value) {
            (_, Value::Null) => drop(to.remove(key)),
            (Some(old @ Value::Object(_)), Value::Object(_)) => apply(old, value),
            (Some(Value::Array(old)), Value::Array(list)) if key != "images" => merge(old, list),
            (_, value) => drop(to.insert(key.clone(), value.clone())),
        }
    }
}

fn merge(old: &mut Vec<Value>, list: &[Value]) {
    if list.iter().any(|element| element["$patch"] == "replace") {
        *old = list.iter().filter(|element| element["$patch"].is_null()).cloned().collect();
        return;
    }
    for element in list {
        assert!(element["$patch"].is_null(), "a node keeps what others set");
        match old.iter_mut().find(|old| old["type"] == element["type"]) {
            Some(old) => apply(old, element),
            None => old.push(element.clone()),
        }
    }
}

/// A condition of a node's status.
pub fn condition<'a>(status: &'a Value, kind: &str) -> &'a Map<String, Value> {
    let all = status["conditions"].as_array().expect("a list");
    let found = all.iter().find(|condition| condition["type"] == kind);
    found.and_then(Value::as_object).unwrap_or_else(|| panic!("{kind} in {status}"))
}
