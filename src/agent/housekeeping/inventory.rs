//! The image list in the node's status (`nodeStatusMaxImages`), for a scheduler that prefers nodes
//! with the image.
//!
//! Intended behaviour: if no images are to be listed, which is KubeEdge's default, nothing is
//! requested and nothing is kept. Otherwise the images are listed every few minutes, and the
//! largest ones are reported, with at most five names each, as by the kubelet.
//!
//! If we crash here: the next start lists the images at once.

use std::cmp::Reverse;

use super::{HousekeepingContext, Periodic};
use crate::agent::Config;
use crate::agent::calls::CallTask;
use crate::agent::time::{Instant, Now};
use crate::limits;
use crate::model::cri::{CallError, Reply};
use crate::model::housekeeping::{HousekeepingCall, HousekeepingReply, StoredImage};

/// The images for the node's status.
#[derive(Debug)]
pub struct Inventory {
    /// The maximum number; 0: nothing is requested.
    images_max: usize,
    list: Periodic,
    /// They are being listed.
    listing: bool,
    /// The largest first; `None`: not known yet.
    images: Option<Vec<StoredImage>>,
}

impl Inventory {
    /// Nothing known.
    pub fn new(config: &Config, now: Instant) -> Self {
        let images_max = config.cloud.as_ref().map(|cloud| cloud.status_images_max);
        let images_max =
            images_max.map_or(0, |max| max.unwrap_or(usize::MAX).min(limits::NODE_IMAGES_MAX));
        let list = Periodic::new(limits::IMAGES_LIST_MS, now);
        // If none are to be listed, the list is known.
        Self { images_max, list, listing: false, images: (images_max == 0).then(Vec::new) }
    }

    /// The runtime is back, and may be another: calls under way were answered before.
    pub fn up(&mut self) {
        self.listing = false;
        self.list = Periodic::new(limits::IMAGES_LIST_MS, Instant(0));
    }

    /// Takes the answer to its call.
    pub fn answer(&mut self, result: &Result<Reply, CallError>) {
        self.listing = false;
        match result {
            Ok(Reply::HousekeepingCall(HousekeepingReply::Images(images))) => {
                self.images = Some(largest(images, self.images_max));
            }
            Ok(other) => panic!("ListImages cannot answer {}", other.kind()),
            // The last list stays; it is requested again after its period.
            Err(_) => {}
        }
    }

    /// Requests what is due.
    pub fn step(&mut self, now: Now, context: &mut HousekeepingContext<'_>) {
        if self.images_max == 0 || self.listing || !self.list.is_due(now.boot) {
            return;
        }
        self.listing = context.call(now, CallTask::Inventory, HousekeepingCall::ListImages);
        if self.listing {
            self.list.done(now.boot);
        }
    }

    /// When something is due.
    pub fn due_at(&self) -> Option<Instant> {
        (self.images_max > 0 && !self.listing).then(|| self.list.due_at())
    }

    /// The images to report, the largest first; `None`: not known yet.
    pub fn images(&self) -> Option<&[StoredImage]> {
        self.images.as_deref()
    }
}

/// By size, and by id if equal: the runtime's own order might change each time.
fn largest(images: &[StoredImage], images_max: usize) -> Vec<StoredImage> {
    let mut images: Vec<&StoredImage> =
        images.iter().filter(|image| !image.names.is_empty()).collect();
    images
        .sort_by(|one, other| (Reverse(one.size), &one.id).cmp(&(Reverse(other.size), &other.id)));
    let named = images.into_iter().take(images_max).map(|image| {
        let mut names = image.names.clone();
        // Digests first, as in the kubelet.
        names.sort_by_key(|name| (!name.contains('@'), name.clone()));
        names.truncate(limits::NODE_IMAGE_NAMES_MAX);
        StoredImage { names, ..image.clone() }
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, size: u64, names: &[&str]) -> StoredImage {
        let names = names.iter().map(|name| (*name).into()).collect();
        StoredImage { id: id.into(), names, size, pinned: false }
    }

    #[test]
    fn the_largest_are_named_with_their_digests_first() {
        let names_max = limits::NODE_IMAGE_NAMES_MAX;
        let many = ["x:6", "x:5", "x:4", "x:3", "x:2", "x@sha256:1"];
        let images = [
            image("b", 5, &["b:1"]),
            image("nameless", 9, &[]),
            image("x", 7, &many),
            image("a", 5, &["a:1"]),
        ];
        let listed = largest(&images, 2);
        assert_eq!((many.len(), listed[0].names.len()), (names_max + 1, names_max));
        let ids: Vec<&str> = listed.iter().map(|image| &*image.id).collect();
        assert_eq!(ids, ["x", "a"]);
        let names: Vec<&str> = listed[0].names.iter().map(|name| &**name).collect();
        assert_eq!(names, ["x@sha256:1", "x:2", "x:3", "x:4", "x:5"]);
        assert_eq!(largest(&images, 0), []);
        assert_eq!(largest(&images, 9).len(), 3);
    }
}
