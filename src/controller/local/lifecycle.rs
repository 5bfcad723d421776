//! Nodes that give no sign of life, as kube-controller-manager's node lifecycle controller has it:
//! their conditions become `Unknown` and their pods not ready; what the node says later counts.
//!
//! ```text
//!  Lease or Node written ──▶ seen ──40 s of silence──▶ lost ──▶ Node: Unknown, pods: not Ready
//!                             ▲                         │
//!                             └── written again ────────┘ pods: as their containers are
//! ```
//!
//! The Node itself becomes ready again by the node's own words. Nobody is evicted: no other node
//! runs the pods of a folder. The kubelet's clock does not matter, only when its words came.
//!
//! Pods that wait for the end of a node that is no more go, as do what it showed of its own.
//!
//! If we crash here: all nodes have a new time to dial, and what was lost is known by its Node.

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

/// Who is there.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    /// When each node gave its last sign of life.
    seen: BTreeMap<Box<str>, Instant>,
    /// Nodes that give none.
    lost: BTreeSet<Box<str>>,
    /// Nodes whose pods are to be looked at: lost, back, or no more.
    changed: BTreeSet<Box<str>>,
    /// Nodes and pods to be marked.
    pending: BTreeSet<Key>,
    looked_at: Option<Instant>,
}

impl Lifecycle {
    /// An object as it was kept.
    pub(super) fn load(&mut self, key: &Key, value: &Value) {
        let conditions = value["status"]["conditions"].as_array();
        let is_ours = |it: &Value| it["type"] == "Ready" && it["status"] == "Unknown";
        if key.kind == Kind::Node && conditions.into_iter().flatten().any(is_ours) {
            self.lost.insert(key.name.clone());
        }
    }

    /// A Node is no more.
    pub(super) fn removed(&mut self, node: &str) {
        self.seen.remove(node);
        self.lost.remove(node);
        self.changed.insert(node.into());
    }
}

impl Objects {
    /// The node has written its Lease or its Node.
    pub fn node_seen(&mut self, node: &str, now: Instant) {
        self.lifecycle.seen.insert(node.into(), now);
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

    /// Looks who gives no sign of life, and marks some of those and of their pods. `at`: what the
    /// clock shows. Returns what is to be said.
    pub fn monitor(&mut self, now: Instant, at: Option<Timestamp>) -> Vec<String> {
        let last = self.lifecycle.looked_at;
        let mut said = Vec::new();
        if last.is_none_or(|last| now.since_ms(last) >= NODE_MONITOR_MS) {
            self.lifecycle.looked_at = Some(now);
            // At our own start, and where this machine stood still, nobody could be heard.
            let was_away = last.is_none_or(|last| now.since_ms(last) >= NODE_MONITOR_AWAY_MS);
            said = self.look(now, was_away);
            self.gather(last.is_none());
        }
        for _ in 0..NODE_MONITOR_PER_TURN {
            let Some(key) = self.lifecycle.pending.pop_first() else { break };
            self.mark(&key, at);
        }
        said
    }

    fn look(&mut self, now: Instant, was_away: bool) -> Vec<String> {
        let nodes = self.rows.keys().take_while(|key| key.kind == Kind::Node);
        let lifecycle = &mut self.lifecycle;
        let mut silent = Vec::new();
        for Key { name, .. } in nodes {
            let seen_at = lifecycle.seen.entry(name.clone()).or_insert(now);
            if was_away {
                *seen_at = now.plus_ms(NODE_STARTUP_GRACE_MS - NODE_MONITOR_GRACE_MS);
            }
            let is_silent = now.since_ms(*seen_at) >= NODE_MONITOR_GRACE_MS;
            if is_silent && lifecycle.lost.insert(name.clone()) {
                lifecycle.changed.insert(name.clone());
                silent.push(name);
            }
        }
        let mut said: Vec<String> = silent
            .iter()
            .take(NODE_MONITOR_LINES_MAX)
            .map(|name| {
                let grace_s = NODE_MONITOR_GRACE_MS / 1_000;
                format!("node={name}: no sign of life for {grace_s} s: its state is unknown")
            })
            .collect();
        if silent.len() > said.len() {
            let more = silent.len() - said.len();
            said.push(format!("{more} more nodes give no sign of life: their state is unknown"));
        }
        said
    }

    /// Finds what is to be marked, in one walk. `all`: of nodes that are no more as well.
    fn gather(&mut self, all: bool) {
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

/// A node tells what has changed there; that we took its word back it does not know.
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

/// Of a pod's condition: its node's, and not its own.
const NODE_NOT_READY: &str = "NodeNotReady";
