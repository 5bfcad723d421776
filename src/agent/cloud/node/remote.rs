//! The node object as the cloud has it: the parts that are read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::limits::NODE_STATUS_BYTES_MAX;

/// The parts of a node object that matter here.
#[derive(Deserialize)]
pub(super) struct RemoteNode<'a> {
    pub metadata: Names,
    #[serde(borrow, default)]
    status: Parts<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Names {
    pub name: Box<str>,
    pub uid: Box<str>,
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

impl<'a> RemoteNode<'a> {
    /// Parses JSON; `None`: it is not a node.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// `resourceVersion`; 0: not given.
    pub(super) fn version(&self) -> u64 {
        self.metadata.resource_version.parse().unwrap_or(0)
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(|value| &**value)
    }

    /// The list of images, JSON.
    pub(super) fn images(&self) -> Option<&str> {
        self.status.images.map(RawValue::get).filter(|text| *text != "null")
    }

    /// The parts of its status that are ours, except the images: these can be many.
    pub(super) fn status(&self) -> Value {
        let parts = [
            ("capacity", self.status.capacity),
            ("allocatable", self.status.allocatable),
            ("conditions", self.status.conditions),
            ("addresses", self.status.addresses),
            ("nodeInfo", self.status.node_info),
        ];
        let present = || parts.iter().filter_map(|(key, raw)| Some((*key, (*raw)?.get())));
        let bytes: usize = present().map(|(_, text)| text.len()).sum();
        let read =
            |(key, text): (&str, &str)| Some((key.to_owned(), serde_json::from_str(text).ok()?));
        let fits = bytes <= NODE_STATUS_BYTES_MAX;
        Value::Object(present().filter(|_| fits).filter_map(read).collect())
    }
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
            let node = RemoteNode::read(&text).expect("a node");
            assert_eq!(node.status()["capacity"]["cpu"] == "2", is_known, "{more}");
            assert_eq!(node.status().as_object().is_some_and(serde_json::Map::is_empty), !is_known);
        }
    }
}
