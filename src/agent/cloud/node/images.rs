//! The images in the node's status (core/v1 `ContainerImage`), reported only if the cloud has
//! another list.

use super::NodeInputs;
use crate::model::node_status::{NodeImage, RemoteNode, images_digest};

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
    pub(super) fn learn(&mut self, node: &RemoteNode) {
        self.remote_digest = Some(node.images_digest);
    }

    /// The last report was not accepted.
    pub(super) fn discard_report(&mut self) {
        self.reported_digest = None;
    }

    /// The list, if the cloud has another one.
    pub(super) fn changed_list(&mut self, inputs: &NodeInputs<'_>) -> Option<Vec<NodeImage>> {
        let remote = self.remote_digest?;
        let images = inputs.images?.iter();
        let list: Vec<NodeImage> = images
            .map(|image| NodeImage { names: image.names.clone(), size_bytes: image.size })
            .collect();
        let ours = images_digest(&list);
        let is_news = ours != remote && self.reported_digest != Some(ours);
        is_news.then(|| {
            self.reported_digest = Some(ours);
            list
        })
    }
}
