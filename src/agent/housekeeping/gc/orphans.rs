//! Orphaned directories, links and cgroups (spec sections 1.12 and 8.3): log directories, pod
//! directories below the kubelet's root, and cgroups in which nothing runs any more. An agent that
//! was killed between two steps, or another agent before us, left them.
//!
//! A directory or cgroup whose pod is neither wanted nor in the runtime is added as an orphan of
//! which only that is left, and which ends as every pod does. So a pod that is wanted again while
//! its old logs are being removed waits, and its new files are not removed. Nothing is done before
//! every source has delivered and the runtime was listed completely.

use crate::agent::housekeeping::{HousekeepingContext, MeasurePlan, Periodic};
use crate::agent::jobs::JobTask;
use crate::agent::pod::cgroup::are_ours;
use crate::agent::time::{Instant, Now};
use crate::limits;
use crate::model::cri::ContainerState;
use crate::model::job::{JobSpec, LogDir};

/// The garbage collector of orphaned directories, links and cgroups.
#[derive(Debug)]
pub struct OrphanCollector {
    period: Periodic,
    found: Vec<LogDir>,
    /// Links are being removed.
    sweeping: bool,
}

impl OrphanCollector {
    /// Begins as soon as everything is known.
    pub fn new(now: Instant) -> Self {
        Self { period: Periodic::new(limits::GARBAGE_MS, now), found: Vec::new(), sweeping: false }
    }

    /// Takes the existing directories.
    pub fn measured(&mut self, log_dirs: Option<&[LogDir]>) {
        self.found.extend_from_slice(log_dirs.unwrap_or_default());
    }

    /// The removal of links is over; a link that could not be removed is found again.
    pub fn links_swept(&mut self) {
        assert!(std::mem::take(&mut self.sweeping), "no link is being removed");
    }

    /// Requests what is due.
    pub fn step(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        measure_plan: &mut MeasurePlan,
    ) {
        let known = context.sources.are_whole() && context.pods.is_complete();
        for dir in self.found.drain(..) {
            if known && context.pods.get(&dir.uid).is_none() {
                context.pods.adopt_dirs(now, &dir);
            }
        }
        if !self.period.is_due(now.boot) || self.sweeping {
            return;
        }
        if !known {
            self.period.put_off(now.boot.plus_ms(limits::HOUSEKEEPING_EARLY_MS));
            return;
        }
        let Some(request) = measure_plan.fields() else { return };
        request.log_dirs = true;
        let known = || context.pods.iter().map(|pod| pod.uid().clone()).collect();
        request.cgroups_but = are_ours(context.config, context.driver).then(known);
        self.period.done(now.boot);
        let observed = context.pods.iter().flat_map(|pod| &pod.observed().containers);
        let living = observed.filter(|it| it.state != ContainerState::Exited);
        let living = living.map(|it| it.id.0.clone()).collect();
        context.job(now, JobTask::Orphans, JobSpec::SweepLinks { living });
        self.sweeping = true;
    }

    /// When something is due.
    pub fn due_at(&self) -> Instant {
        self.period.due_at()
    }
}
