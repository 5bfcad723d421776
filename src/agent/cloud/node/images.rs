//! The images in the node's status (core/v1 `ContainerImage`), reported only if the cloud has
//! another list.
//!
//! The list is replaced as a whole, so a digest of the cloud's list is enough.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use super::remote::RemoteNode;
use super::status::NodeInputs;
use crate::limits::NODE_STATUS_BYTES_MAX;

/// What the cloud has of the images.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// Digest of the cloud's list; `None`: not known.
    remote_digest: Option<u64>,
    /// Digest of the list reported in this session: if the cloud still has another one, it is not
    /// reported again.
    reported_digest: Option<u64>,
}

impl Images {
    /// The cloud sent the node.
    pub(super) fn learn(&mut self, node: &RemoteNode<'_>) {
        let text = node.images().filter(|text| text.len() <= NODE_STATUS_BYTES_MAX);
        let list =
            text.map_or_else(|| json!([]), |text| serde_json::from_str(text).unwrap_or_default());
        self.remote_digest = Some(digest(&list));
    }

    /// The last report was not accepted.
    pub(super) fn discard_report(&mut self) {
        self.reported_digest = None;
    }

    /// The list, if the cloud has another one.
    pub(super) fn changed_list(&mut self, inputs: &NodeInputs<'_>) -> Option<Value> {
        let remote = self.remote_digest?;
        let list: Value = inputs
            .images?
            .iter()
            .map(|image| json!({"names": image.names, "sizeBytes": image.size}))
            .collect();
        let ours = digest(&list);
        let is_news = ours != remote && self.reported_digest != Some(ours);
        is_news.then(|| {
            self.reported_digest = Some(ours);
            list
        })
    }
}

fn digest(list: &Value) -> u64 {
    let mut to = DefaultHasher::new();
    // The keys of the JSON are in order.
    list.to_string().hash(&mut to);
    to.finish()
}
