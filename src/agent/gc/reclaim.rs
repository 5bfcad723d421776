//! What the eviction wants of the collector: all that can go, whatever the policies.

use super::Gc;
use super::image::ImagePath;
use crate::agent::housekeeping::HousekeepingContext;
use crate::agent::time::Now;
use crate::model::housekeeping::HousekeepingCall;

impl Gc {
    /// Dead containers go, as many as no pod is known by.
    pub fn reclaim_containers(&mut self) {
        self.containers.reclaim_requested = true;
    }

    /// Images that nothing uses and nobody wants go.
    pub fn reclaim_images(&mut self) {
        self.images.reclaim_requested = true;
    }

    /// Whether that is still under way. The pods say themselves whether containers are left.
    pub fn is_reclaiming(&self) -> bool {
        self.containers.reclaim_requested || self.images.is_reclaiming()
    }

    /// Where the images lie, as far as the runtime says it.
    pub fn image_path(&self) -> Option<&str> {
        self.images.path()
    }

    /// Asks where the images lie, unless it is known or `requested` before in vain. `false`: it will be
    /// known soon.
    pub fn find_image_path(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        requested: bool,
    ) -> bool {
        match self.images.path {
            ImagePath::Known(_) => true,
            ImagePath::Pending(_) => false,
            ImagePath::Unknown if requested => true,
            ImagePath::Unknown => {
                if let Some(call) = context.call(now, HousekeepingCall::ImageFsInfo) {
                    self.images.path = ImagePath::Pending(call);
                }
                false
            }
        }
    }
}
