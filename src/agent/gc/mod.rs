//! Garbage collection: unused images, dead containers beyond the configured number, and log
//! directories and links of removed pods (spec section 8).
//!
//! Not here: containers of ending pods, which are removed with their pods; directories of volumes.

mod container;
mod image;
mod orphans;
#[cfg(feature = "eviction")]
mod reclaim;

use super::event::{CallId, JobId};
use super::housekeeping::{HousekeepingContext, MeasurePlan};
use super::pleg::List;
use super::pods::Pods;
use super::time::{Instant, Now};
use crate::model::cri::{CallError, Reply};
use crate::model::housekeeping::{Measures, Settings};
use crate::model::job::JobError;

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

    /// Takes the answer to a call. `false`: it is none of these.
    pub fn answer(
        &mut self,
        now: Instant,
        call: CallId,
        result: &Result<Reply, CallError>,
    ) -> bool {
        self.images.answer(now, call, result)
    }

    /// Takes the answer to a job. `false`: it is none of these.
    pub fn job_done(&mut self, job: JobId, result: &Result<(), JobError>) -> bool {
        self.orphans.job_done(job, result)
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
