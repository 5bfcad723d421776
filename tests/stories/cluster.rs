//! The API server behind the cloud, as far as it knows nodes and leases.

use edged::model::message::Message;
use edged::wire::edge::encode;
use serde_json::{Map, Value, json};

use crate::cloud_harness::{CloudHarness, content, patch};

/// What it has.
#[derive(Default)]
pub struct Cluster {
    pub node: Option<Value>,
    pub lease: Option<Value>,
    /// It does not answer what KubeEdge up to 1.11 does not know.
    pub is_old: bool,
    /// What it was told: operation, kind and content, the oldest first.
    pub told: Vec<(String, Value)>,
    /// Bytes on the wire of all that was told, those of the frames included, down and up.
    pub up_bytes: usize,
    pub down_bytes: usize,
    /// The last `resourceVersion`.
    pub version: u64,
    made: u32,
}

impl Cluster {
    /// Answers all that was said of the node and its lease.
    pub fn serve(&mut self, cloud: &mut CloudHarness) {
        loop {
            let sent = std::mem::take(&mut cloud.sent);
            let (ours, rest): (Vec<_>, Vec<_>) = sent.into_iter().partition(Self::is_ours);
            for message in rest.iter().chain(&ours) {
                self.up_bytes += frame_bytes(encode(message).len()) + 4;
            }
            if ours.is_empty() {
                // Keepalives are of no more interest.
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

    /// Some time passes; the link shows signs of life.
    pub fn pass(&mut self, cloud: &mut CloudHarness, ms: u64) {
        let end = cloud.harness.now.boot.plus_ms(ms);
        while cloud.harness.now.boot < end {
            cloud.pass(end.since_ms(cloud.harness.now.boot).min(1_000));
            cloud.hear();
            self.serve(cloud);
        }
    }

    /// What was told since the last call, by operation and kind.
    pub fn heard(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told).into_iter().map(|(what, _)| what).collect()
    }

    /// Of what was told since the last call, the contents of these.
    pub fn contents(&mut self, what: &str) -> Vec<Value> {
        let told = std::mem::take(&mut self.told).into_iter();
        told.filter(|(told, _)| told == what).map(|(_, content)| content).collect()
    }

    /// Somebody else changes the node's status; nobody tells the node.
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
        let told = match &*kind {
            "nodepatch" => patch(message),
            _ => content(message),
        };
        self.told.push((format!("{operation} {kind}"), told.clone()));
        self.version += 1;
        let version = self.version.to_string();
        match (operation, &*kind) {
            ("insert" | "update", "nodestatus") => {
                self.is_old.then(|| self.node = Some(told));
                return Some(json!("OK"));
            }
            _ if self.is_old => return None,
            ("insert", "node") if self.node.is_some() => {
                return Some(refusal("AlreadyExists", 409));
            }
            ("insert", "node") => {
                self.made += 1;
                self.node = Some(told);
                let node = self.node.as_mut().expect("just made");
                node["metadata"]["uid"] = format!("node-{}", self.made).into();
            }
            // Its labels.
            ("update", "node") => {
                let node = self.node.as_mut().expect("a node");
                apply(&mut node["metadata"], &told["metadata"]);
                return Some(json!("OK"));
            }
            ("patch", "nodepatch") => {
                let Some(node) = &mut self.node else { return Some(refusal("NotFound", 404)) };
                apply(node, &told);
            }
            ("query", "lease") => return Some(self.lease_as_told()),
            ("insert", "lease") if self.lease.is_some() => {
                return Some(refusal("AlreadyExists", 409));
            }
            ("insert", "lease") => self.lease = Some(told),
            ("update", "lease") => {
                let Some(lease) = &mut self.lease else { return Some(refusal("NotFound", 404)) };
                let known = &lease["metadata"]["resourceVersion"];
                if told["metadata"]["resourceVersion"] != *known {
                    return Some(refusal("Conflict", 409));
                }
                *lease = told;
            }
            other => panic!("{other:?} is not asked of a cloud"),
        }
        let object = if kind == "lease" { &mut self.lease } else { &mut self.node };
        let object = object.as_mut().expect("just changed");
        object["metadata"]["resourceVersion"] = version.into();
        Some(json!({"Object": object, "Err": null}))
    }

    fn lease_as_told(&self) -> Value {
        match &self.lease {
            Some(lease) => json!({"Object": lease, "Err": null}),
            None => refusal("NotFound", 404),
        }
    }
}

/// As clouds refuse.
pub fn refusal(reason: &str, code: u16) -> Value {
    let why = json!({"metadata": {}, "status": "Failure", "reason": reason, "code": code,
        "message": format!("it is {reason}")});
    json!({"Object": null, "Err": {"ErrStatus": why}})
}

/// Of a message of so many bytes: a frame's head, without a mask.
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
        assert!(element["$patch"].is_null(), "nobody takes from a node what others set");
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
