//! Detects lost nodes, as the node lifecycle controller of kube-controller-manager does: the
//! conditions of a node without heartbeats become `Unknown` and its pods not ready; later reports
//! of the node win.
//!
//! ```text
//!  Lease or Node written ──▶ live ──40 s of silence──▶ lost ──▶ Node: Unknown, pods: not Ready
//!                             ▲                         │
//!                             └── written again ────────┘ pods: as their containers are
//! ```
//!
//! The Node becomes ready again by the node's own report. No pod is evicted: no other node runs the
//! pods of a folder. The kubelet's clock does not matter, only the time when its reports arrived.
//!
//! Pods that wait for the confirmation of a deleted node are deleted, and so are its mirror pods.
//!
//! If we crash here: all nodes get a new grace period, and lost nodes are known by their Node
//! objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Key, Objects};
use crate::controller::time::Instant;
use crate::limits::{
    NODE_MONITOR_AWAY_MS, NODE_MONITOR_GRACE_MS, NODE_MONITOR_LINES_MAX, NODE_MONITOR_MS,
    NODE_MONITOR_PER_TURN, NODE_STARTUP_GRACE_MS,
};
use crate::model::api::Kind;
use crate::model::time::Timestamp;

/// Which nodes are alive.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    /// When each node sent its last heartbeat.
    heartbeats: BTreeMap<Box<str>, Instant>,
    /// Nodes without heartbeats.
    lost: BTreeSet<Box<str>>,
    /// Nodes whose pods have to be checked: lost, back, or deleted.
    changed: BTreeSet<Box<str>>,
    /// Nodes and pods to be marked.
    pending: BTreeSet<Key>,
    looked_at: Option<Instant>,
}

impl Lifecycle {
    /// An object from the store.
    pub(super) fn load(&mut self, key: &Key, value: &Value) {
        let conditions = value["status"]["conditions"].as_array();
        let is_ours = |it: &Value| it["type"] == "Ready" && it["status"] == "Unknown";
        if key.kind == Kind::Node && conditions.into_iter().flatten().any(is_ours) {
            self.lost.insert(key.name.clone());
        }
    }

    /// A Node was deleted.
    pub(super) fn removed(&mut self, node: &str) {
        self.heartbeats.remove(node);
        self.lost.remove(node);
        self.changed.insert(node.into());
    }
}

impl Objects {
    /// The node has written its Lease or its Node.
    pub fn node_heartbeat(&mut self, node: &str, now: Instant) {
        self.lifecycle.heartbeats.insert(node.into(), now);
        if self.lifecycle.lost.remove(node) {
            self.lifecycle.changed.insert(node.into());
        }
    }

    /// When to call [`Objects::monitor`] next.
    pub fn monitor_at(&self) -> Instant {
        let Lifecycle { pending, looked_at, .. } = &self.lifecycle;
        let next = looked_at.map_or(Instant(0), |at| at.plus_ms(NODE_MONITOR_MS));
        if pending.is_empty() { next } else { Instant(0) }
    }

    /// Finds nodes without heartbeats, and marks some of them and of their pods. `at`: the wall
    /// clock. Returns log lines.
    pub fn monitor(&mut self, now: Instant, at: Option<Timestamp>) -> Vec<String> {
        let last = self.lifecycle.looked_at;
        let mut lines = Vec::new();
        if last.is_none_or(|last| now.since_ms(last) >= NODE_MONITOR_MS) {
            self.lifecycle.looked_at = Some(now);
            // After our own start, and after a suspend of this machine, no heartbeat could arrive.
            let was_away = last.is_none_or(|last| now.since_ms(last) >= NODE_MONITOR_AWAY_MS);
            lines = self.find_silent(now, was_away);
            self.collect(last.is_none());
        }
        for _ in 0..NODE_MONITOR_PER_TURN {
            let Some(key) = self.lifecycle.pending.pop_first() else { break };
            self.mark(&key, at);
        }
        lines
    }

    fn find_silent(&mut self, now: Instant, was_away: bool) -> Vec<String> {
        let nodes = self.rows.keys().take_while(|key| key.kind == Kind::Node);
        let lifecycle = &mut self.lifecycle;
        let mut silent = Vec::new();
        for Key { name, .. } in nodes {
            let heartbeat_at = lifecycle.heartbeats.entry(name.clone()).or_insert(now);
            if was_away {
                *heartbeat_at = now.plus_ms(NODE_STARTUP_GRACE_MS - NODE_MONITOR_GRACE_MS);
            }
            let is_silent = now.since_ms(*heartbeat_at) >= NODE_MONITOR_GRACE_MS;
            if is_silent && lifecycle.lost.insert(name.clone()) {
                lifecycle.changed.insert(name.clone());
                silent.push(name);
            }
        }
        let mut lines: Vec<String> = silent
            .iter()
            .take(NODE_MONITOR_LINES_MAX)
            .map(|name| {
                let grace_s = NODE_MONITOR_GRACE_MS / 1_000;
                format!("node={name}: no sign of life for {grace_s} s: its state is unknown")
            })
            .collect();
        if silent.len() > lines.len() {
            let more = silent.len() - lines.len();
            lines.push(format!("{more} more nodes give no sign of life: their state is unknown"));
        }
        lines
    }

    /// Finds all objects to be marked, in one walk. `all`: also those of deleted nodes.
    fn collect(&mut self, all: bool) {
        let changed = std::mem::take(&mut self.lifecycle.changed);
        if changed.is_empty() && !all {
            return;
        }
        let node = |name: &str| Key { kind: Kind::Node, namespace: "".into(), name: name.into() };
        let found = self.rows.iter().filter(|(key, object)| {
            let owner = object.owner.as_deref();
            matches!(key.kind, Kind::Node | Kind::Pod)
                && owner.is_some_and(|owner| {
                    changed.contains(owner) || all && !self.rows.contains_key(&node(owner))
                })
        });
        let found: Vec<Key> = found.map(|(key, _)| key.clone()).collect();
        self.lifecycle.pending.extend(found);
    }

    fn mark(&mut self, key: &Key, at: Option<Timestamp>) {
        let Some(object) = self.rows.get(key) else { return };
        let (made_of, is_mirror) = (object.row.made_of, object.is_mirror);
        let is_lost = object.owner.as_ref().is_some_and(|it| self.lifecycle.lost.contains(it));
        let Some(old) = self.value(key) else { return };
        if key.kind == Kind::Pod && !self.has_node(key) {
            if is_mirror || old["metadata"].get("deletionTimestamp").is_some() {
                self.remove(key);
            }
            return;
        }
        let mut new = old.clone();
        if !new["status"].is_object() {
            // A node may write anything.
            new["status"] = json!({});
        }
        let conditions = &mut new["status"]["conditions"];
        match (key.kind, is_lost) {
            (Kind::Node, true) => node_is_unknown(conditions, &old, at),
            (Kind::Pod, true) => pod_is_not_ready(conditions, at),
            (Kind::Pod, false) => pod_is_as_its_containers(conditions, at),
            _ => return,
        }
        let is_new = old["status"]["conditions"] != new["status"]["conditions"];
        if is_new {
            self.put(key.clone(), new, made_of);
        }
    }
}

fn node_is_unknown(conditions: &mut Value, node: &Value, at: Option<Timestamp>) {
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let list = conditions.as_array_mut().expect("made one just now");
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        if let Some(condition) = list.iter_mut().find(|condition| condition["type"] == kind) {
            if condition["status"] != "Unknown" {
                condition["status"] = "Unknown".into();
                condition["reason"] = "NodeStatusUnknown".into();
                condition["message"] = "Kubelet stopped posting node status.".into();
                transition(condition, at);
            }
            continue;
        }
        let mut condition = json!({
            "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
            "message": "Kubelet never posted node status.",
            "lastHeartbeatTime": node["metadata"]["creationTimestamp"],
        });
        transition(&mut condition, at);
        list.push(condition);
    }
}

fn pod_is_not_ready(conditions: &mut Value, at: Option<Timestamp>) {
    if let Some(ready) = find(conditions, "Ready").filter(|ready| ready["status"] != "False") {
        ready["status"] = "False".into();
        ready["reason"] = NODE_NOT_READY.into();
        ready["message"] = "Node is not ready".into();
        transition(ready, at);
    }
}

/// A node reports only changes; it does not know that we have overwritten its report.
fn pod_is_as_its_containers(conditions: &mut Value, at: Option<Timestamp>) {
    let containers = find(conditions, "ContainersReady").map(|it| it["status"].clone());
    let Some(ready) = find(conditions, "Ready").filter(|it| it["reason"] == NODE_NOT_READY) else {
        return;
    };
    if let Some(ready) = ready.as_object_mut() {
        ready.remove("reason");
        ready.remove("message");
    }
    if ready["status"] == "False" {
        ready["status"] = containers.unwrap_or_else(|| "True".into());
        transition(ready, at);
    }
}

fn find<'a>(conditions: &'a mut Value, kind: &str) -> Option<&'a mut Value> {
    conditions.as_array_mut()?.iter_mut().find(|condition| condition["type"] == kind)
}

fn transition(condition: &mut Value, at: Option<Timestamp>) {
    if let Some(at) = at {
        condition["lastTransitionTime"] = at.to_string().into();
    }
}

/// The reason of a pod's condition: the node is not ready, not the pod.
const NODE_NOT_READY: &str = "NodeNotReady";
