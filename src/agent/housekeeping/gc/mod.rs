//! Garbage collection: unused images, dead containers beyond the configured number, and log
//! directories and links of removed pods (spec section 8).
//!
//! Not here: containers of ending pods, which are removed with their pods; directories of volumes.

mod container;
mod image;
mod orphans;

use super::{HousekeepingContext, MeasurePlan};
use crate::agent::pleg::List;
use crate::agent::pods::Pods;
use crate::agent::time::{Instant, Now};
use crate::model::cri::{CallError, Reply};
use crate::model::housekeeping::{Measures, Settings};

use container::Containers;
use image::Images;
use orphans::OrphanCollector;

/// The garbage collector.
#[derive(Debug)]
pub struct Gc {
    images: Images,
    containers: Containers,
    orphans: OrphanCollector,
}

impl Gc {
    /// Nothing known yet.
    pub fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            images: Images::new(settings.images.clone(), now),
            containers: Containers::new(settings.containers.clone(), now),
            orphans: OrphanCollector::new(now),
        }
    }

    /// The runtime is back, and may be another.
    pub fn up(&mut self) {
        self.images.up();
    }

    /// Takes the result of a relist.
    pub fn take_list(&mut self, now: Instant, list: &List, pods: &Pods) {
        self.images.take_list(now, list, pods);
    }

    /// Takes the machine's measurements; `of_images`: the file system of the images was requested.
    pub fn measured(&mut self, now: Instant, measures: &Measures, of_images: bool) {
        self.images.measured(now, measures.image_fs, of_images);
        self.orphans.measured(measures.log_dirs.as_deref());
    }

    /// Takes the answer to the call for the path of the images.
    pub fn image_path_answer(&mut self, now: Instant, result: &Result<Reply, CallError>) {
        self.images.path_answer(now, result);
    }

    /// Takes the answer to a list or a removal of images.
    pub fn images_answer(&mut self, now: Instant, result: &Result<Reply, CallError>) {
        self.images.answer(now, result);
    }

    /// The removal of dangling links is over.
    pub fn links_swept(&mut self) {
        self.orphans.links_swept();
    }

    /// These images are not collected, unless a container has used them since.
    #[cfg(feature = "node-jobs")]
    pub fn keep_images(&mut self, kept: Vec<(Box<str>, Instant)>) {
        self.images.keep(kept);
    }

    /// The path of the images is asked for, also where none are collected.
    #[cfg(feature = "node-jobs")]
    pub fn want_image_path(&mut self) {
        self.images.want_path();
    }

    /// The path of the images, as far as the runtime reports it.
    #[cfg(any(feature = "eviction", feature = "node-jobs"))]
    pub fn image_path(&self) -> Option<&str> {
        self.images.path()
    }

    /// Requests what is due.
    pub fn step(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        measure_plan: &mut MeasurePlan,
    ) {
        self.containers.step(now, context.pods);
        self.orphans.step(now, context, measure_plan);
        self.images.step(now, context, measure_plan);
    }

    /// When something is due.
    pub fn due_at(&self) -> Option<Instant> {
        let all = [self.containers.due_at(), self.images.due_at(), Some(self.orphans.due_at())];
        all.into_iter().flatten().min()
    }
}

/// For eviction: everything that can be removed, whatever the policies say.
#[cfg(feature = "eviction")]
impl Gc {
    /// Requests the removal of dead containers, except those that prove that a pod has run.
    pub fn reclaim_containers(&mut self) {
        self.containers.reclaim();
    }

    /// Requests the removal of images that nothing uses and no pod wants.
    pub fn reclaim_images(&mut self) {
        self.images.reclaim();
    }

    /// Whether that is still under way. The pods themselves know whether containers are left.
    pub fn is_reclaiming(&self) -> bool {
        self.containers.is_reclaiming() || self.images.is_reclaiming()
    }

    /// Requests the path of the images, unless it is known or was `requested` before without
    /// success. `false`: it will be known soon.
    pub fn find_image_path(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        requested: bool,
    ) -> bool {
        self.images.find_path(now, context, requested)
    }
}
