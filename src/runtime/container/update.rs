//! Changes of a container's resources while it exists (`UpdateContainerResources`).
//!
//! The record is changed first. Of a container that runs its cgroup follows, by a job of its own:
//! stopping does not wait for it. Where the OCI runtime refuses, the record gets back what it had.
//! **If we crash here** the record may say what the cgroup does not have, until the next change.

use super::{Container, Life};
use crate::limits::RUNTIME_JOB_MS;
use crate::model::cri::Resources;
use crate::model::runtime::{Code, ContainerRecord, Job, JobFault, JobReply, Refusal, Reply};
use crate::runtime::context::Context;
use crate::runtime::event::CallId;
use crate::runtime::jobs::Owner;
use crate::runtime::refusal::{of_job, refusal};

/// The first change under way.
#[derive(Debug)]
pub enum Updating {
    /// Its record is being saved.
    Saving,
    /// Its job runs; until then it had these.
    Running(Box<Resources>),
}

impl Container {
    /// Zero and empty leave a value as it is.
    pub fn update(&mut self, call: CallId, wanted: Resources) -> Result<(), Refusal> {
        let has = &self.record().config.resources;
        let same_score = [0, has.oom_score_adj].contains(&wanted.oom_score_adj);
        let same_pages = wanted.hugepages.iter().all(|page| has.hugepages.contains(page));
        let refused = |field: &str| {
            let why = format!("{field}: got another value, expected that of CreateContainer");
            Err(refusal(Code::InvalidArgument, why))
        };
        // No OCI runtime changes them.
        match (same_score, same_pages) {
            (false, _) => refused("oom_score_adj"),
            (_, false) => refused("hugepage_limits"),
            (true, true) => {
                self.updates.push_back((call, wanted));
                Ok(())
            }
        }
    }

    /// Goes on with the first change. `false`: there is nothing to do now.
    pub(super) fn advance_update(&mut self, ctx: &mut Context) -> bool {
        match self.updating {
            Some(Updating::Saving) => {
                self.updated(&Ok(Reply::Done), ctx);
                return true;
            }
            Some(Updating::Running(_)) => return false,
            None => {}
        }
        let Some((_, wanted)) = self.updates.front() else { return false };
        if self.is_leaving || self.kept.maker.is_some() {
            return false;
        }
        let mut record = ContainerRecord::clone(self.record());
        let before = std::mem::take(&mut record.config.resources);
        record.config.resources = merged(&before, wanted);
        match self.life {
            Life::Created { .. } => {
                // It is made anew with its new resources.
                self.life = Life::Created { made: false };
                self.kept.save(record);
                self.updating = Some(Updating::Saving);
            }
            Life::Exited { is_saved: true, .. } => {
                self.kept.save(record);
                self.updating = Some(Updating::Saving);
            }
            Life::Running { .. } => {
                let resources = Box::new(record.config.resources.clone());
                self.kept.save_lazily(record, &mut ctx.out);
                let job = Job::Update { container: self.folder(), resources };
                ctx.jobs.add(Owner::Update(self.record().id.clone()), job, RUNTIME_JOB_MS);
                self.updating = Some(Updating::Running(Box::new(before)));
            }
            Life::Starting | Life::Exited { is_saved: false, .. } => return false,
        }
        true
    }

    pub fn update_done(&mut self, result: Result<JobReply, JobFault>, ctx: &mut Context) {
        let before = match self.updating.take() {
            Some(Updating::Running(before)) => before,
            Some(Updating::Saving) | None => panic!("the job of no update has ended"),
        };
        let answer = match result {
            Err(fault) if self.is_running() => {
                let mut record = ContainerRecord::clone(self.record());
                record.config.resources = *before;
                self.kept.save_lazily(record, &mut ctx.out);
                Err(of_job(fault))
            }
            // Of one that has ended the record counts.
            Ok(_) | Err(_) => Ok(Reply::Done),
        };
        self.updated(&answer, ctx);
    }

    /// The record of a change could not be saved. `false`: it was not that of a change.
    pub(super) fn update_not_saved(&mut self, fault: &Refusal, ctx: &mut Context) -> bool {
        let is_it = matches!(self.updating, Some(Updating::Saving));
        if is_it {
            self.updated(&Err(fault.clone()), ctx);
        }
        is_it
    }

    fn updated(&mut self, answer: &Result<Reply, Refusal>, ctx: &mut Context) {
        self.updating = None;
        if let Some((call, _)) = self.updates.pop_front() {
            ctx.calls.answer(call, answer.clone());
        }
    }
}

fn merged(has: &Resources, wanted: &Resources) -> Resources {
    let number = |new: i64, old: i64| if new == 0 { old } else { new };
    let text = |new: &str, old: &str| if new.is_empty() { old } else { new }.to_owned();
    let mut unified = has.unified.clone();
    unified.extend(wanted.unified.clone());
    Resources {
        cpu_period: number(wanted.cpu_period, has.cpu_period),
        cpu_quota: number(wanted.cpu_quota, has.cpu_quota),
        cpu_shares: number(wanted.cpu_shares, has.cpu_shares),
        memory_limit: number(wanted.memory_limit, has.memory_limit),
        memory_swap_limit: number(wanted.memory_swap_limit, has.memory_swap_limit),
        oom_score_adj: has.oom_score_adj,
        hugepages: has.hugepages.clone(),
        unified,
        cpuset_cpus: text(&wanted.cpuset_cpus, &has.cpuset_cpus),
        cpuset_mems: text(&wanted.cpuset_mems, &has.cpuset_mems),
    }
}
