//! Mounts that nobody waits for any more: where a pod ends while one of its volumes is still being
//! brought about, the job is given up, or the pod could not go before the job's deadline. A server
//! that does not answer is the usual reason.
//!
//! The answer of a job that was given up comes all the same, and counts: until then nothing of the
//! pod's folder is removed. If we crash here: jobs die with us.

use std::collections::BTreeSet;

use super::{Phase, Pod};
use crate::agent::event::{Action, JobId, Out};
use crate::model::job::{JobError, JobSpec};

/// Jobs that were given up and are not answered.
#[derive(Debug, Default)]
pub(super) struct AbandonedJobs(BTreeSet<JobId>);

impl Pod {
    /// A job that keeps the pod from ending, and is not given up yet.
    pub(super) fn abandoned_job(&self) -> Option<JobId> {
        if self.phase < Phase::Terminating {
            return None;
        }
        let is_mount =
            |spec: &JobSpec| matches!(spec, JobSpec::SetUpVolume(_) | JobSpec::BindSubPath(_));
        let mut mounts = self.jobs.iter().filter(|(_, spec)| is_mount(spec));
        mounts.find(|(job, _)| !self.abandoned.0.contains(job)).map(|(job, _)| *job)
    }

    /// Gives it up.
    pub(super) fn give_up_job(&mut self, job: JobId, out: &mut Out) {
        self.abandoned.0.insert(job);
        out.push(Action::KillJob(job));
    }

    /// It is answered. Says whether it failed for no other reason.
    pub(super) fn ended_abandoned(&mut self, job: JobId, result: &Result<(), JobError>) -> bool {
        self.abandoned.0.remove(&job) && result.is_err()
    }
}
