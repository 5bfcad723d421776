//! Folders, links and cgroups that nobody answers for (spec sections 1.12 and 8.3): of logs, below
//! the kubelet's root, and where nothing runs any more: left by an agent that was killed between
//! two steps, or by another before us.
//!
//! A folder or cgroup whose pod is neither wanted nor in the runtime becomes a pod of which only
//! that is left, and ends as every pod does: so one that is wanted again while its old logs go
//! waits, and nothing is removed under its feet. Nothing is done before every source has delivered
//! and the runtime was looked at whole.

use crate::agent::event::JobId;
use crate::agent::housekeeping::{Asking, HousekeepingContext, Periodic};
use crate::agent::pod::cgroup::are_ours;
use crate::agent::time::{Instant, Now};
use crate::limits;
use crate::model::cri::ContainerState;
use crate::model::job::{JobError, JobSpec, LogDir};

/// The collector of what is left.
#[derive(Debug)]
pub struct OrphanCollector {
    regular: Periodic,
    found: Vec<LogDir>,
    sweep: Option<JobId>,
}

impl OrphanCollector {
    /// Begins as soon as all is known.
    pub fn new(now: Instant) -> Self {
        Self { regular: Periodic::new(limits::GARBAGE_MS, now), found: Vec::new(), sweep: None }
    }

    /// Takes the folders that there are.
    pub fn measured(&mut self, log_dirs: Option<&[LogDir]>) {
        self.found.extend_from_slice(log_dirs.unwrap_or_default());
    }

    /// Takes the answer to a job. `false`: it is none of these.
    pub fn job_done(&mut self, job: JobId, _result: &Result<(), JobError>) -> bool {
        // A link that could not be removed is found again.
        self.sweep.take_if(|sweep| *sweep == job).is_some()
    }

    /// Asks for what is due.
    pub fn step(&mut self, now: Now, context: &mut HousekeepingContext<'_>, asking: &mut Asking) {
        let known = context.sources.are_whole() && context.pods.is_complete();
        for dir in self.found.drain(..) {
            if known && context.pods.get(&dir.uid).is_none() {
                context.pods.adopt_logs(now, &dir);
            }
        }
        if !self.regular.is_due(now.boot) || self.sweep.is_some() {
            return;
        }
        if !known {
            self.regular.put_off(now.boot.plus_ms(limits::HOUSEKEEPING_EARLY_MS));
            return;
        }
        let Some(ask) = asking.want() else { return };
        ask.log_dirs = true;
        let known = || context.pods.iter().map(|pod| pod.uid().clone()).collect();
        ask.cgroups_but = are_ours(context.config, context.driver).then(known);
        self.regular.done(now.boot);
        let seen = context.pods.iter().flat_map(|pod| &pod.seen().containers);
        let living = seen.filter(|it| it.state != ContainerState::Exited);
        let living = living.map(|it| it.id.0.clone()).collect();
        self.sweep = Some(context.job(now, JobSpec::SweepLinks { living }));
    }

    /// When something is due.
    pub fn due_at(&self) -> Instant {
        self.regular.due_at()
    }
}
