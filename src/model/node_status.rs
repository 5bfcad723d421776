//! The status of a node (core/v1 `NodeStatus`): the node's own, the cloud's, and the difference.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::status_patch::{self, StatusPatch};
use super::time::Timestamp;
use crate::limits::NODE_STATUS_BYTES_MAX;

/// What a node says about itself.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnStatus {
    /// Amounts by resource.
    pub capacity: BTreeMap<String, String>,
    /// Amounts by resource.
    pub allocatable: BTreeMap<String, String>,
    pub addresses: Vec<NodeAddress>,
    pub node_info: NodeInfo,
    #[serde(skip)]
    pub conditions: Vec<Condition>,
}

/// core/v1 `NodeAddress`
#[derive(Clone, Debug, Serialize)]
pub struct NodeAddress {
    /// `InternalIP` or `Hostname`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub address: Box<str>,
}

/// core/v1 `NodeSystemInfo`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    #[serde(rename = "machineID")]
    pub machine_id: Box<str>,
    #[serde(rename = "systemUUID")]
    pub system_uuid: Box<str>,
    #[serde(rename = "bootID")]
    pub boot_id: Box<str>,
    pub kernel_version: Box<str>,
    pub os_image: Box<str>,
    /// `containerd://1.6.20`; empty: not known.
    pub container_runtime_version: String,
    pub kubelet_version: &'static str,
    /// Empty: there is none.
    pub kube_proxy_version: &'static str,
    pub operating_system: &'static str,
    pub architecture: Box<str>,
}

/// A condition of the node (core/v1 `NodeCondition`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub kind: &'static str,
    pub is_true: bool,
    pub reason: &'static str,
    pub message: String,
}

/// Which heartbeat times are new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Of all conditions.
    New,
    /// Of conditions that have changed.
    WithChanges,
}

/// core/v1 `ContainerImage`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeImage {
    pub names: Vec<Box<str>>,
    pub size_bytes: u64,
}

/// A status as JSON: what others have set stays.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct NodeStatus(Value);

impl NodeStatus {
    /// The whole status, with all times new. Of `remote` only the conditions are used. `port`: of
    /// the node's API.
    pub fn whole(own: &OwnStatus, remote: Option<&Self>, at: Option<Timestamp>, port: u16) -> Self {
        let mut status = serde_json::to_value(own).expect("plain data");
        let remote = remote.map_or(&[][..], Self::conditions);
        status["conditions"] = over_conditions(remote, &own.conditions, at, Beat::New);
        status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
        Self(status)
    }

    /// The patch that turns it into the node's own, over what others have set; `None`: no
    /// difference. `images`: the list to report, if it is to be reported.
    pub fn patch_to(
        &self,
        own: &OwnStatus,
        images: Option<&[NodeImage]>,
        at: Option<Timestamp>,
        beat: Beat,
    ) -> Option<StatusPatch> {
        let mut status = over(&self.0, serde_json::to_value(own).expect("plain data"));
        status["conditions"] = over_conditions(self.conditions(), &own.conditions, at, beat);
        let mut difference = status_patch::diff(&self.0, &status);
        if let Some(images) = images {
            let images = serde_json::to_value(images).expect("plain data");
            difference.get_or_insert_with(|| json!({}))["images"] = images;
        }
        difference.as_ref().map(StatusPatch::new)
    }

    /// Whether the node is ready in it.
    pub fn is_ready(&self) -> bool {
        self.conditions().iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
    }

    /// Whether it has the condition at all.
    pub fn has_condition(&self, kind: &str) -> bool {
        self.conditions().iter().any(|it| it["type"] == kind)
    }

    fn conditions(&self) -> &[Value] {
        self.0["conditions"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// The status as the cloud has it, with ours over it: what others have set stays.
fn over(base: &Value, ours: Value) -> Value {
    match (base, ours) {
        (Value::Object(base), Value::Object(mut ours)) => {
            let mut all = Map::new();
            for (key, old) in base {
                let value = ours.remove(key).map_or_else(|| old.clone(), |value| over(old, value));
                all.insert(key.clone(), value);
            }
            all.extend(ours);
            Value::Object(all)
        }
        (_, ours) => ours,
    }
}

/// The conditions: ours, and those of others that the cloud has, in the order of the cloud.
fn over_conditions(
    remote: &[Value],
    own: &[Condition],
    at: Option<Timestamp>,
    beat: Beat,
) -> Value {
    let is_known = |kind: &str| remote.iter().any(|it| it["type"] == kind);
    let own_of = |it: &Value| own.iter().find(|own| it["type"] == own.kind);
    let updated =
        remote.iter().map(|it| own_of(it).map_or(it.clone(), |own| own.over(it, at, beat)));
    let new = own.iter().filter(|own| !is_known(own.kind));
    updated.chain(new.map(|own| own.over(&Value::Null, at, beat))).collect()
}

impl Condition {
    /// The condition to report, where the cloud has `remote`; `null`: it has none.
    fn over(&self, remote: &Value, now: Option<Timestamp>, beat: Beat) -> Value {
        let status = if self.is_true { "True" } else { "False" };
        let same = remote["status"] == status;
        let unchanged =
            same && remote["reason"] == self.reason && remote["message"] == self.message.as_str();
        let at = || now.map_or(Value::Null, |at| json!(at));
        let remote_or_now =
            |key: &str| if remote[key].is_null() { at() } else { remote[key].clone() };
        let beat_at = match beat {
            Beat::WithChanges if unchanged => remote_or_now("lastHeartbeatTime"),
            Beat::New | Beat::WithChanges => at(),
        };
        let changed_at = if same { remote_or_now("lastTransitionTime") } else { at() };
        let mut condition = json!({
            "type": self.kind,
            "status": status,
            "reason": self.reason,
            "message": self.message,
        });
        for (key, at) in [("lastHeartbeatTime", beat_at), ("lastTransitionTime", changed_at)] {
            if !at.is_null() {
                condition[key] = at;
            }
        }
        condition
    }
}

/// The node object as the cloud has it: the parts that are read.
#[derive(Clone, Debug)]
pub struct RemoteNode {
    pub name: Box<str>,
    /// Empty: not given.
    pub uid: Box<str>,
    /// `resourceVersion`; 0: not given.
    pub version: u64,
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// The parts of its status that are ours, except the images: these can be many.
    pub status: NodeStatus,
    /// As of [`images_digest`].
    pub images_digest: u64,
}

#[derive(Deserialize)]
struct Object<'a> {
    metadata: Names,
    #[serde(borrow, default)]
    status: Parts<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Names {
    name: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
}

/// The parts of a status that we write: volumes can be many, and belong to others.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Parts<'a> {
    #[serde(borrow)]
    capacity: Option<&'a RawValue>,
    #[serde(borrow)]
    allocatable: Option<&'a RawValue>,
    #[serde(borrow)]
    conditions: Option<&'a RawValue>,
    #[serde(borrow)]
    addresses: Option<&'a RawValue>,
    #[serde(borrow)]
    node_info: Option<&'a RawValue>,
    #[serde(borrow)]
    images: Option<&'a RawValue>,
}

impl RemoteNode {
    /// From the JSON of a node; `None`: it is not one.
    pub fn read(text: &str) -> Option<Self> {
        let Object { metadata, status } = serde_json::from_str(text).ok()?;
        Some(Self {
            name: metadata.name,
            uid: metadata.uid,
            version: metadata.resource_version.parse().unwrap_or(0),
            labels: metadata.labels.unwrap_or_default(),
            images_digest: digest(&status.images()),
            status: status.ours(),
        })
    }
}

impl Parts<'_> {
    fn images(&self) -> Value {
        let text = self.images.map(RawValue::get).filter(|text| *text != "null");
        let text = text.filter(|text| text.len() <= NODE_STATUS_BYTES_MAX);
        text.map_or_else(|| json!([]), |text| serde_json::from_str(text).unwrap_or_default())
    }

    fn ours(&self) -> NodeStatus {
        let parts = [
            ("capacity", self.capacity),
            ("allocatable", self.allocatable),
            ("conditions", self.conditions),
            ("addresses", self.addresses),
            ("nodeInfo", self.node_info),
        ];
        let present = || parts.iter().filter_map(|(key, raw)| Some((*key, (*raw)?.get())));
        let bytes: usize = present().map(|(_, text)| text.len()).sum();
        let read =
            |(key, text): (&str, &str)| Some((key.to_owned(), serde_json::from_str(text).ok()?));
        let fits = bytes <= NODE_STATUS_BYTES_MAX;
        NodeStatus(Value::Object(present().filter(|_| fits).filter_map(read).collect()))
    }
}

/// The digest of a list of images: the list is replaced as a whole, so that is enough to compare.
pub fn images_digest(list: &[NodeImage]) -> u64 {
    digest(&serde_json::to_value(list).expect("plain data"))
}

fn digest(list: &Value) -> u64 {
    let mut to = DefaultHasher::new();
    // The keys of the JSON are in order.
    list.to_string().hash(&mut to);
    to.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_is_too_large_is_ignored() {
        for (more, is_known) in [(0, true), (1, false)] {
            let capacity = r#"{"cpu":"2"}"#;
            let text = "x".repeat(NODE_STATUS_BYTES_MAX - capacity.len() - 2 + more);
            // Parts that are not ours may be of any size.
            let text = serde_json::json!({"metadata": {"name": "gw"}, "status": {
                "capacity": {"cpu": "2"}, "nodeInfo": text, "volumesInUse": text,
            }});
            let text = text.to_string();
            assert!(text.contains(capacity));
            let NodeStatus(status) = RemoteNode::read(&text).expect("a node").status;
            assert_eq!(status["capacity"]["cpu"] == "2", is_known, "{more}");
            assert_eq!(status.as_object().is_some_and(Map::is_empty), !is_known);
        }
    }
}
