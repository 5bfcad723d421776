//! Quotas of what nodes may store. Each object that a node writes has limits, each node has a
//! quota, and there is a total: no node can use up the memory or the disk of the others.
//!
//! Only growth is refused. A node may always write its Node and its Lease of a normal size, and
//! objects of an older version that exceed the limits are trimmed at the start, so that no node is
//! locked out.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::calls::refused;
use super::{Key, Object, Objects};
use crate::limits::{
    LOCAL_ANNOTATIONS_BYTES_MAX, LOCAL_BYTES_MAX, LOCAL_DEPTH_MAX, LOCAL_LIST_MAX,
    LOCAL_NODE_BYTES_MAX, LOCAL_NODE_PODS, LOCAL_NODE_PODS_MAX, LOCAL_NODE_RESERVE_BYTES,
    LOCAL_NODES_MAX, LOCAL_OBJECT_BYTES_MAX, LOCAL_OBJECTS_MAX,
};
use crate::model::api::{CallError, EDGE_LABEL, Kind, Subresource};

/// What is stored, without Events.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) bytes: usize,
    nodes: BTreeMap<Box<str>, Share>,
}

/// What one node has stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) bytes: usize,
    pub(super) mirrors: usize,
}

impl Usage {
    pub(super) fn add(&mut self, object: &Object) {
        let bytes = object.row.text.len();
        self.bytes += bytes;
        if let Some(owner) = &object.owner {
            let share = self.nodes.entry(owner.clone()).or_default();
            share.bytes += bytes;
            share.mirrors += usize::from(object.is_mirror);
        }
    }

    pub(super) fn remove(&mut self, object: &Object) {
        let bytes = object.row.text.len();
        self.bytes -= bytes;
        let Some(owner) = &object.owner else { return };
        let share = self.nodes.get_mut(owner).expect("it was added");
        share.bytes -= bytes;
        share.mirrors -= usize::from(object.is_mirror);
        if *share == Share::default() {
            self.nodes.remove(owner);
        }
    }

    pub(super) fn of(&self, node: &str) -> Share {
        self.nodes.get(node).copied().unwrap_or_default()
    }
}

/// The node whose quota an object counts for; `None`: none.
pub(super) fn owner(key: &Key, value: &Value) -> Option<Box<str>> {
    match key.kind {
        Kind::Node => Some(key.name.clone()),
        Kind::Lease if *key.namespace == *LEASES => Some(key.name.clone()),
        Kind::Pod => value["spec"]["nodeName"].as_str().filter(|it| !it.is_empty()).map(Into::into),
        _ => None,
    }
}

/// Whether this is the mirror pod of a node.
pub(super) fn is_mirror(key: &Key, value: &Value) -> bool {
    key.kind == Kind::Pod && value["metadata"]["annotations"][MIRROR].is_string()
}

impl Objects {
    /// Whether an object may become this; `part`: the part of it that is written.
    pub(super) fn admit(
        &self,
        key: &Key,
        new: &Value,
        part: Option<Subresource>,
    ) -> Result<(), CallError> {
        let old = self.rows.get(key);
        for (name, value) in new.as_object().into_iter().flatten() {
            let is_status = name == "status";
            if old.is_none() || is_status == (part == Some(Subresource::Status)) {
                shape(value, 2)
                    .map_err(|why| refused(422, "Invalid", key, &format!("{name}: {why}")))?;
            }
        }
        self.admit_metadata(key, &new["metadata"])?;
        let (bytes, old_bytes) = (new.to_string().len(), old.map_or(0, |it| it.row.text.len()));
        if old.is_some() && bytes <= old_bytes {
            return Ok(());
        }
        if bytes > LOCAL_OBJECT_BYTES_MAX {
            let why = format!("got {bytes} bytes, expected at most {LOCAL_OBJECT_BYTES_MAX}");
            return Err(refused(413, "RequestEntityTooLarge", key, &why));
        }
        if key.kind == Kind::Event {
            return Ok(());
        }
        let full = |why: String| Err(refused(429, "TooManyRequests", key, &why));
        let is_node = matches!(key.kind, Kind::Node | Kind::Lease);
        let most = LOCAL_OBJECTS_MAX + if is_node { LOCAL_NODES_MAX } else { 0 };
        if old.is_none() && self.rows.len() >= most {
            return full(format!("got more than {most} objects"));
        }
        if is_node && bytes <= LOCAL_NODE_RESERVE_BYTES {
            return Ok(());
        }
        let grown = bytes - old_bytes;
        if self.usage.bytes + grown > LOCAL_BYTES_MAX {
            return full(format!("got more than {LOCAL_BYTES_MAX} bytes of all objects"));
        }
        let Some(node) = owner(key, new) else { return Ok(()) };
        let share = self.usage.of(&node);
        if share.bytes + grown > LOCAL_NODE_BYTES_MAX {
            return full(format!("got more than {LOCAL_NODE_BYTES_MAX} bytes of node {node}"));
        }
        let most = self.mirrors_max(&node);
        if old.is_none() && is_mirror(key, new) && share.mirrors >= most {
            return full(format!("got more than {most} mirror pods of node {node}"));
        }
        Ok(())
    }

    /// Nodes add annotations and labels to the existing ones.
    fn admit_metadata(&self, key: &Key, new: &Value) -> Result<(), CallError> {
        let total = |name: &str| bytes_of(&new[name]);
        let too_many = |name: &&str| total(name) > LOCAL_ANNOTATIONS_BYTES_MAX;
        let Some(name) = ["annotations", "labels"].into_iter().find(too_many) else {
            return Ok(());
        };
        let old = self.value(key).map_or(0, |old| bytes_of(&old["metadata"][name]));
        if total(name) <= old {
            return Ok(());
        }
        let most = LOCAL_ANNOTATIONS_BYTES_MAX;
        let why = format!("metadata.{name}: got {} bytes, expected at most {most}", total(name));
        Err(refused(422, "Invalid", key, &why))
    }

    /// Twice the pods that the node accepts: its own ones, and those that are being replaced.
    pub(super) fn mirrors_max(&self, node: &str) -> usize {
        let key = Key { kind: Kind::Node, namespace: "".into(), name: node.into() };
        let capacity = self.value(&key).unwrap_or_default();
        let capacity = &capacity["status"]["capacity"]["pods"];
        let text = capacity.as_str().map_or_else(|| capacity.to_string(), ToOwned::to_owned);
        2 * text.parse().unwrap_or(LOCAL_NODE_PODS).min(LOCAL_NODE_PODS_MAX)
    }

    /// Mirror pods beyond the limit, which an older version has stored.
    pub(super) fn surplus_mirrors(&self) -> Vec<Key> {
        let mut left: BTreeMap<&str, usize> = BTreeMap::new();
        let mut surplus = Vec::new();
        for (key, object) in self.rows.iter().filter(|(_, object)| object.is_mirror) {
            let Some(owner) = object.owner.as_deref() else { continue };
            let left = left.entry(owner).or_insert_with(|| self.mirrors_max(owner));
            if *left == 0 {
                surplus.push(key.clone());
            }
            *left = left.saturating_sub(1);
        }
        surplus
    }
}

/// Removes from an object of an older version what exceeds the limits; its node reports most of it
/// again. Returns whether there was any.
pub(super) fn trim(key: &Key, value: &mut Value, bytes: usize) -> bool {
    let mut trimmed = false;
    let status = &value["status"];
    let is_large = bytes > LOCAL_OBJECT_BYTES_MAX;
    if shape(status, 2).is_err() || is_large && 2 * status.to_string().len() > bytes {
        match key.kind {
            Kind::Pod => value["status"] = json!({"phase": "Unknown"}),
            _ => drop(value.as_object_mut().map(|value| value.remove("status"))),
        }
        trimmed = true;
    }
    if !matches!(key.kind, Kind::Node | Kind::Lease) {
        return trimmed;
    }
    for map in ["annotations", "labels"] {
        if bytes_of(&value["metadata"][map]) > LOCAL_ANNOTATIONS_BYTES_MAX {
            let map = value["metadata"][map].as_object_mut().expect("it has elements");
            map.retain(|key, _| key == EDGE_LABEL);
            trimmed = true;
        }
    }
    if is_large && value["spec"].to_string().len() > LOCAL_OBJECT_BYTES_MAX / 2
        || shape(&value["spec"], 2).is_err()
    {
        value["spec"] = json!({});
        trimmed = true;
    }
    trimmed
}

/// Bytes of the keys and values of a map.
fn bytes_of(map: &Value) -> usize {
    let map = map.as_object().into_iter().flatten();
    map.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

/// Checks how deep a value nests, and how long its lists are. `depth`: that of the value itself.
fn shape(value: &Value, depth: usize) -> Result<(), String> {
    let too_deep = || {
        let most = LOCAL_DEPTH_MAX;
        (depth > most).then(|| format!("got values nested deeper than {most}, expected less"))
    };
    match value {
        Value::Array(list) => {
            if list.len() > LOCAL_LIST_MAX {
                let got = list.len();
                return Err(format!("got a list of {got}, expected at most {LOCAL_LIST_MAX}"));
            }
            too_deep().map_or(Ok(()), Err)?;
            list.iter().try_for_each(|value| shape(value, depth + 1))
        }
        Value::Object(map) => {
            too_deep().map_or(Ok(()), Err)?;
            map.values().try_for_each(|value| shape(value, depth + 1))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// The namespace of the nodes' leases.
pub(super) const LEASES: &str = "kube-node-lease";
const MIRROR: &str = "kubernetes.io/config.mirror";
