//! Images: those that are present, and those that a registry offers.

use std::collections::{BTreeMap, BTreeSet};

use edged::model::cri::{CallError, Code, Image, ImageUser, Reply};

use super::quirks::refused;
use crate::chance::Chance;
use crate::faults::Faults;

/// The image store and the registry behind it.
pub struct Registry {
    here: BTreeSet<Box<str>>,
    /// Images that are present or were.
    been: BTreeSet<Box<str>>,
    /// The images that can be pulled: milliseconds of a pull on a calm line.
    offered: BTreeMap<Box<str>, u64>,
}

impl Registry {
    /// Empty; with these images on offer.
    pub fn new(offered: BTreeMap<Box<str>, u64>) -> Self {
        Self { here: BTreeSet::new(), been: BTreeSet::new(), offered }
    }

    /// The registry offers one more.
    pub fn offer(&mut self, image: Box<str>, ms: u64) {
        self.offered.insert(image, ms);
    }

    /// Whether it is present or was.
    #[cfg_attr(not(feature = "node-jobs"), expect(dead_code, reason = "no job pulls images"))]
    pub fn has_been_here(&self, image: &str) -> bool {
        self.been.contains(image)
    }

    /// As if it had been pulled before.
    pub fn preload(&mut self, image: &str) {
        self.here.insert(image.into());
        self.been.insert(image.into());
    }

    /// The image is removed by hand.
    pub fn forget(&mut self, image: &str) {
        self.here.remove(image);
    }

    /// Whether the registry has it.
    pub fn offers(&self, image: &str) -> bool {
        self.offered.contains_key(image)
    }

    /// All images that are present.
    pub fn names(&self) -> impl Iterator<Item = &Box<str>> {
        self.here.iter()
    }

    /// Whether it is present.
    pub fn has(&self, image: &str) -> bool {
        self.here.contains(image)
    }

    /// Whether an image reference that was returned before still names a present image.
    pub fn resolves(&self, image_ref: &str) -> bool {
        image_ref.strip_prefix("sha256:").is_some_and(|image| self.here.contains(image))
    }

    pub(super) fn status(&self, image: &str) -> Option<Box<Image>> {
        let here = self.here.contains(image);
        here.then(|| {
            Box::new(Image {
                id: format!("sha256:{image}").into(),
                size: 1 << 20,
                digests: Vec::new(),
                user: ImageUser::Unset,
            })
        })
    }

    /// Duration of a pull; `None`: it hangs.
    pub(super) fn pull_ms(&self, image: &str, faults: &Faults, chance: &mut Chance) -> Option<u64> {
        if chance.percent(faults.pull_hang_pct) {
            return None;
        }
        let calm_ms = self.offered.get(image).copied().unwrap_or(300);
        Some(calm_ms + chance.spread(faults.pull_ms))
    }

    pub(super) fn pull(
        &mut self,
        image: &str,
        faults: &Faults,
        chance: &mut Chance,
    ) -> Result<Reply, CallError> {
        if !self.offered.contains_key(image) {
            let message = format!("failed to resolve reference {image:?}: not found");
            return Err(refused(Code::NotFound, message));
        }
        if chance.percent(faults.pull_fail_pct) {
            let message = format!("failed to pull {image:?}: connection reset by peer");
            return Err(refused(Code::Unknown, message));
        }
        self.here.insert(image.into());
        self.been.insert(image.into());
        Ok(Reply::Pulled(format!("sha256:{image}").into()))
    }
}
