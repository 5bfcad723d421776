//! Usage of containers and sandboxes: one job for each call measures all cgroups.

use std::sync::Arc;

use super::context::Context;
use super::event::CallId;
use super::jobs::Owner;
use super::refusal::of_job;
use crate::limits::RUNTIME_JOB_MS;
use crate::model::map::Map;
use crate::model::runtime::{
    ContainerId, ContainerRecord, Job, JobFault, JobReply, Reply, SandboxRecord, StatsOf, Usage,
};

#[derive(Debug, Default)]
pub struct Measures {
    open: Map<CallId, Targets>,
}

/// What one call measures, in the order of its job.
#[derive(Debug)]
pub enum Targets {
    Containers(Vec<Target>),
    Sandboxes(Vec<Arc<SandboxRecord>>),
}

/// A container, with what it has written where that is remembered.
pub type Target = (Arc<ContainerRecord>, Option<(u64, u64)>);

impl Measures {
    pub fn begin(&mut self, call: CallId, targets: Targets, of: Vec<StatsOf>, ctx: &mut Context) {
        if of.is_empty() {
            return ctx.calls.answer(call, Ok(targets.reply(Vec::new())));
        }
        self.open.insert(call, targets);
        ctx.jobs.add(Owner::Measure(call), Job::Stats(of), RUNTIME_JOB_MS);
    }

    /// Returns what containers have written, where it was counted.
    pub fn done(
        &mut self,
        call: CallId,
        result: Result<JobReply, JobFault>,
        ctx: &mut Context,
    ) -> Vec<(ContainerId, (u64, u64))> {
        let targets = self.open.remove(&call).expect("its job was under way");
        let usages = match result {
            Ok(JobReply::Stats(usages)) => usages,
            Ok(
                JobReply::Done
                | JobReply::Network(_)
                | JobReply::Exec(_)
                | JobReply::Url(_)
                | JobReply::Image(_)
                | JobReply::Images(_),
            ) => Vec::new(),
            Err(fault) => {
                ctx.calls.answer(call, Err(of_job(fault)));
                return Vec::new();
            }
        };
        let counted = match &targets {
            Targets::Containers(all) => {
                let both = all.iter().zip(&usages);
                both.filter_map(|((record, _), usage)| Some((record.id.clone(), usage.layer?)))
                    .collect()
            }
            Targets::Sandboxes(_) => Vec::new(),
        };
        ctx.calls.answer(call, Ok(targets.reply(usages)));
        counted
    }
}

impl Targets {
    fn reply(self, usages: Vec<Usage>) -> Reply {
        match self {
            Self::Containers(all) => {
                let both = all.into_iter().zip(usages);
                let filled = both.map(|((record, written), mut usage)| {
                    usage.layer = usage.layer.or(written);
                    (record, usage)
                });
                Reply::ContainerStats(filled.collect())
            }
            Self::Sandboxes(all) => Reply::SandboxStats(all.into_iter().zip(usages).collect()),
        }
    }
}
