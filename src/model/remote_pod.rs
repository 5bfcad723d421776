//! A pod's status as the cloud has it, and what of it differs from the node's.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::status::{ConditionKind, PodStatus};
use super::status_patch::{self, StatusPatch};

/// The part of a pod's message that is about its status.
#[derive(Clone, Debug)]
pub struct RemotePod {
    pub uid: Box<str>,
    /// `resourceVersion`; 0: not given.
    pub version: u64,
    pub status: RemotePodStatus,
}

/// A `status` as it came: others may have set fields that are not known here.
#[derive(Clone, Debug)]
pub struct RemotePodStatus(Box<str>);

/// The same, parsed.
#[derive(Clone, Debug)]
pub struct ParsedPodStatus(Value);

#[derive(Deserialize)]
struct Pod<'a> {
    metadata: Names,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Names {
    uid: Box<str>,
    resource_version: Box<str>,
}

impl RemotePod {
    /// From the JSON of a pod; `None`: it is not one.
    pub fn read(text: &str) -> Option<Self> {
        let Pod { metadata, status } = serde_json::from_str(text).ok()?;
        Some(Self {
            uid: metadata.uid,
            version: metadata.resource_version.parse().unwrap_or(0),
            status: RemotePodStatus(status.map_or("{}", RawValue::get).into()),
        })
    }
}

impl RemotePodStatus {
    /// `None`: it has numbers or a depth that cannot be read.
    pub fn parse(&self) -> Option<ParsedPodStatus> {
        serde_json::from_str(&self.0).ok().map(ParsedPodStatus)
    }
}

impl ParsedPodStatus {
    pub fn is_terminal(&self) -> bool {
        matches!(self.0["phase"].as_str(), Some("Succeeded" | "Failed"))
    }

    /// The patch that turns the part that the node owns into `status`: others set conditions of
    /// their own, and some of these kinds. `None`: no difference.
    pub fn patch_to(
        mut self,
        status: &PodStatus,
        owns: impl Fn(ConditionKind) -> bool,
    ) -> Option<StatusPatch> {
        if let Some(remote) = self.0.as_object_mut() {
            remote.remove("qosClass");
        }
        let is_ours = |condition: &Value| {
            condition["type"].as_str().and_then(ConditionKind::parse).is_some_and(&owns)
        };
        if let Some(conditions) = self.0.get_mut("conditions").and_then(Value::as_array_mut) {
            conditions.retain(is_ours);
        }
        let difference = status_patch::diff(&self.0, &without_class(status))?;
        Some(StatusPatch::new(&difference))
    }
}

/// The whole status as a patch to an unknown one: merged lists are replaced, except conditions,
/// because others may have set some. `reason` and `message` may be left from an earlier process and
/// are cleared.
pub fn whole(status: &PodStatus) -> StatusPatch {
    let mut status = without_class(status);
    for key in ["reason", "message"] {
        if status.get(key).is_none() {
            status[key] = Value::Null;
        }
    }
    for list in ["podIPs", "hostIPs"] {
        if let Some(list) = status.get_mut(list).and_then(Value::as_array_mut) {
            list.insert(0, json!({"$patch": "replace"}));
        }
    }
    StatusPatch::new(&status)
}

/// Without `qosClass`, which is set when the pod is created and never changes.
fn without_class(status: &PodStatus) -> Value {
    let mut status = serde_json::to_value(status).expect("plain data");
    if let Some(status) = status.as_object_mut() {
        status.remove("qosClass");
    }
    status
}
