//! Garbage collection for eviction: everything that can be removed, whatever the policies say.

use super::Gc;
use super::image::ImagePath;
use crate::agent::housekeeping::HousekeepingContext;
use crate::agent::time::Now;
use crate::model::housekeeping::HousekeepingCall;

impl Gc {
    /// Requests the removal of dead containers, except those that prove that a pod has run.
    pub fn reclaim_containers(&mut self) {
        self.containers.reclaim_requested = true;
    }

    /// Requests the removal of images that nothing uses and no pod wants.
    pub fn reclaim_images(&mut self) {
        self.images.reclaim_requested = true;
    }

    /// Whether that is still under way. The pods themselves know whether containers are left.
    pub fn is_reclaiming(&self) -> bool {
        self.containers.reclaim_requested || self.images.is_reclaiming()
    }

    /// The path of the images, as far as the runtime reports it.
    pub fn image_path(&self) -> Option<&str> {
        self.images.path()
    }

    /// Requests the path of the images, unless it is known or was `requested` before without
    /// success. `false`: it will be known soon.
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
