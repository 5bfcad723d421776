//! What the eviction wants of the collector: all that can go, whatever the policies.

use super::Gc;
use super::image::Place;
use crate::agent::housekeeping::HousekeepingContext;
use crate::agent::time::Now;
use crate::model::housekeeping::HousekeepingCall;

impl Gc {
    /// Dead containers go, as many as no pod is known by.
    pub fn press_containers(&mut self) {
        self.containers.pressed = true;
    }

    /// Images that nothing uses and nobody wants go.
    pub fn press_images(&mut self) {
        self.images.pressed = true;
    }

    /// Whether that is still under way. The pods say themselves whether containers are left.
    pub fn is_pressed(&self) -> bool {
        self.containers.pressed || self.images.is_pressed()
    }

    /// Where the images lie, as far as the runtime says it.
    pub fn image_place(&self) -> Option<&str> {
        self.images.place()
    }

    /// Asks where the images lie, unless it is known or `asked` before in vain. `false`: it will be
    /// known soon.
    pub fn find_place(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        asked: bool,
    ) -> bool {
        match self.images.place {
            Place::Known(_) => true,
            Place::Asked(_) => false,
            Place::Unknown if asked => true,
            Place::Unknown => {
                if let Some(call) = context.call(now, HousekeepingCall::ImageFsInfo) {
                    self.images.place = Place::Asked(call);
                }
                false
            }
        }
    }
}
