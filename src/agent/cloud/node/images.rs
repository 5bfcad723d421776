//! The images in the node's status (core/v1 `ContainerImage`): told only where the cloud has
//! others.
//!
//! The list is replaced as a whole, so of what the cloud has a digest is enough.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use super::remote::RemoteNode;
use super::status::Seen;
use crate::limits::NODE_STATUS_BYTES_MAX;

/// What the cloud has of them.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// Of its list; `None`: not known.
    had: Option<u64>,
    /// Of what was told over this link: where it has another all the same, it is not told again.
    told: Option<u64>,
}

impl Images {
    /// The cloud told of the node.
    pub(super) fn learn(&mut self, told: &RemoteNode<'_>) {
        let text = told.images().filter(|text| text.len() <= NODE_STATUS_BYTES_MAX);
        let list =
            text.map_or_else(|| json!([]), |text| serde_json::from_str(text).unwrap_or_default());
        self.had = Some(digest(&list));
    }

    /// What was told last was not taken.
    pub(super) fn untell(&mut self) {
        self.told = None;
    }

    /// The list, if the cloud has another.
    pub(super) fn news(&mut self, seen: &Seen<'_>) -> Option<Value> {
        let had = self.had?;
        let list: Value = seen
            .images?
            .iter()
            .map(|image| json!({"names": image.names, "sizeBytes": image.size}))
            .collect();
        let ours = digest(&list);
        let is_news = ours != had && self.told != Some(ours);
        is_news.then(|| {
            self.told = Some(ours);
            list
        })
    }
}

fn digest(list: &Value) -> u64 {
    let mut to = DefaultHasher::new();
    // Its keys are in order.
    list.to_string().hash(&mut to);
    to.finish()
}
