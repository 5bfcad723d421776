//! Cancels mounts of ending pods: if a pod ends while one of its volumes is still being set up, the
//! job is cancelled; otherwise the pod could not end before the job's deadline. The usual reason is
//! a server that does not answer.
//!
//! The answer of a cancelled job still comes, and counts: until then nothing of the pod's directory
//! is removed. If we crash here: jobs die with us.

use std::collections::BTreeSet;

use super::{Phase, Pod};
use crate::agent::event::{Action, JobId, Out};
use crate::model::job::{JobError, JobSpec};

/// Jobs that were cancelled and are not answered yet.
#[derive(Debug, Default)]
pub(super) struct AbandonedJobs(BTreeSet<JobId>);

impl Pod {
    /// A job that keeps the pod from ending, and is not cancelled yet.
    pub(super) fn abandoned_job(&self) -> Option<JobId> {
        if self.phase < Phase::Terminating {
            return None;
        }
        let is_mount =
            |spec: &JobSpec| matches!(spec, JobSpec::SetUpVolume(_) | JobSpec::BindSubPath(_));
        let mut mounts = self.jobs.iter().filter(|(_, spec)| is_mount(spec));
        mounts.find(|(job, _)| !self.abandoned.0.contains(job)).map(|(job, _)| *job)
    }

    pub(super) fn give_up_job(&mut self, job: JobId, out: &mut Out) {
        self.abandoned.0.insert(job);
        out.push(Action::KillJob(job));
    }

    /// Takes the answer. Returns whether the job failed only because it was cancelled.
    pub(super) fn ended_abandoned(&mut self, job: JobId, result: &Result<(), JobError>) -> bool {
        self.abandoned.0.remove(&job) && result.is_err()
    }
}
