//! The work of one pod: its calls and jobs under way, and when the next may begin (rules R1, R6 to
//! R8).
//!
//! One runtime call at a time, except that several containers are stopped together. Beside it runs
//! any number of different jobs.
//!
//! **Leftover tasks**: after a start whose caller disconnected, processes may remain below a
//! container that has ended as far as CRI can see. containerd refuses to remove such a container
//! while its task exists, and no CRI call ends the task. So a call of containerd's own API ends it
//! before the removal is retried.
//!
//! **Cancelled mounts**: if a pod ends while one of its volumes is still being set up, the job is
//! cancelled; otherwise the pod could not end before the job's deadline. The usual reason is a
//! server that does not answer. The answer of a cancelled job still comes, and counts: until then
//! nothing of the pod's directory is removed.
//!
//! If we crash here: jobs die with us, calls may still take effect, and refusals come again.

use super::plan::Step;
use crate::agent::event::{CallId, JobId};
use crate::agent::time::Instant;
use crate::limits;
use crate::model::cri::{CallError, Code, ContainerId, TaskEnd};
use crate::model::job::{JobError, JobSpec};
use crate::model::map::{Map, Set};

#[derive(Debug, Default)]
pub(super) struct Runner {
    calls: Vec<(CallId, Step)>,
    jobs: Map<JobId, JobSpec>,
    /// Of these the cancelled ones.
    cancelled_jobs: Set<JobId>,
    /// No sandbox is created, stopped or removed before this time.
    retry_at: Option<Instant>,
    /// No logs are removed before this time.
    cleanup_at: Option<Instant>,
    /// The smallest attempt number of the next sandbox.
    attempt_floor: u32,
    /// How many sandbox names in a row the runtime reported as taken.
    names_taken: u32,
    /// A container whose removal failed, and the action on its task before the next try.
    leftover_task: Option<(ContainerId, Option<TaskEnd>)>,
}

impl Runner {
    // ---- calls ----

    pub(super) fn begin_call(&mut self, call: CallId, step: Step) {
        self.calls.push((call, step));
    }

    /// The call is answered. Returns its step.
    pub(super) fn end_call(&mut self, call: CallId) -> Step {
        let at = self.calls.iter().position(|(pending, _)| *pending == call);
        self.calls.remove(at.expect("the call belongs to this pod")).1
    }

    /// The call is cancelled: its answer is not waited for.
    pub(super) fn forget_call(&mut self, call: CallId) {
        self.calls.retain(|(pending, _)| *pending != call);
    }

    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// A call other than a stop is under way: no other may begin.
    pub(super) fn is_busy(&self) -> bool {
        self.calls.iter().any(|(_, step)| !step.is_stop())
    }

    /// A call is under way that makes a list wrong.
    pub(super) fn is_changing(&self) -> bool {
        self.calls.iter().any(|(_, step)| step.is_change())
    }

    /// The first call that fits.
    pub(super) fn find_call(&self, fits: impl Fn(&Step) -> bool) -> Option<CallId> {
        self.calls.iter().find(|(_, step)| fits(step)).map(|(call, _)| *call)
    }

    /// The containers that are being stopped.
    pub(super) fn stopping(&self) -> Set<&ContainerId> {
        let stops = self.calls.iter().filter_map(|(_, step)| match step {
            Step::Stop { id, .. } => Some(id),
            _ => None,
        });
        stops.collect()
    }

    // ---- jobs ----

    pub(super) fn begin_job(&mut self, job: JobId, spec: JobSpec) {
        self.jobs.insert(job, spec);
    }

    /// Takes the answer of a job of this pod. Returns its specification, and whether it failed only
    /// because it was cancelled.
    pub(super) fn end_job(&mut self, job: JobId, result: &Result<(), JobError>) -> (JobSpec, bool) {
        let spec = self.jobs.remove(&job).expect("the pod requested the job");
        let is_cancelled = self.cancelled_jobs.remove(&job) && result.is_err();
        (spec, is_cancelled)
    }

    pub(super) fn job(&self, job: JobId) -> Option<&JobSpec> {
        self.jobs.get(&job)
    }

    pub(super) fn jobs(&self) -> impl Iterator<Item = &JobSpec> {
        self.jobs.values()
    }

    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    pub(super) fn has_job(&self, spec: &JobSpec) -> bool {
        self.jobs().any(|job| job == spec)
    }

    /// A mount that is being made and not cancelled yet.
    pub(super) fn mount_under_way(&self) -> Option<JobId> {
        let is_mount =
            |spec: &JobSpec| matches!(spec, JobSpec::SetUpVolume(_) | JobSpec::BindSubPath(_));
        let mut mounts = self.jobs.iter().filter(|(_, spec)| is_mount(spec));
        mounts.find(|(job, _)| !self.cancelled_jobs.contains(job)).map(|(job, _)| *job)
    }

    /// The job is cancelled.
    pub(super) fn cancel_job(&mut self, job: JobId) {
        self.cancelled_jobs.insert(job);
    }

    // ---- retries ----

    /// Until when no sandbox is created, stopped or removed.
    pub(super) fn held_until(&self, now: Instant) -> Option<Instant> {
        self.retry_at.filter(|&at| at > now)
    }

    pub(super) fn hold(&mut self, until: Instant) {
        self.retry_at = Some(until);
    }

    /// Until when no logs are removed.
    pub(super) fn cleanup_held_until(&self, now: Instant) -> Option<Instant> {
        self.cleanup_at.filter(|&at| at > now)
    }

    pub(super) fn hold_cleanup(&mut self, until: Instant) {
        self.cleanup_at = Some(until);
    }

    // ---- sandboxes ----

    pub(super) fn sandbox_made(&mut self) {
        self.names_taken = 0;
        self.retry_at = None;
    }

    pub(super) fn sandbox_removed(&mut self, attempt: u32) {
        self.attempt_floor = self.attempt_floor.max(attempt + 1);
    }

    /// The attempt number of the next sandbox; `newest`: the greatest observed one (rule R7).
    pub(super) fn next_attempt(&self, newest: Option<u32>) -> u32 {
        newest.map_or(0, |newest| newest + 1).max(self.attempt_floor)
    }

    /// The name of the sandbox is taken: a pending call holds it and will soon end, or it is left
    /// over for good.
    pub(super) fn name_taken(&mut self, now: Instant, attempt: u32, retry_at: Instant) {
        self.names_taken += 1;
        let taken = self.names_taken.min(limits::NAME_TAKEN_MAX);
        let soon_ms = limits::RETRY_TAKEN_MS << taken;
        self.retry_at = Some(retry_at.min(now.plus_ms(soon_ms)));
        if self.names_taken >= limits::NAME_TAKEN_MAX {
            self.attempt_floor = attempt + 1;
            self.names_taken = 0;
        }
    }

    // ---- leftover tasks ----

    /// The step that removes a container, or the step that has to come before it.
    pub(super) fn removal(&self, id: &ContainerId) -> Step {
        match &self.leftover_task {
            Some((left, Some(end))) if left == id => Step::EndTask { id: id.clone(), end: *end },
            _ => Step::RemoveContainer(id.clone()),
        }
    }

    /// The runtime did not remove a container: returns whether an immediate retry is worthwhile,
    /// because its task has not been ended yet. A runtime other than containerd has no tasks, and
    /// refuses the call.
    pub(super) fn removal_failed(&mut self, id: &ContainerId, error: &CallError) -> bool {
        let CallError::Refused { code: Code::FailedPrecondition, .. } = error else { return false };
        let tried = matches!(&self.leftover_task, Some((left, None)) if left == id);
        self.leftover_task = Some((id.clone(), Some(TaskEnd::Kill)));
        !tried
    }

    /// Done or refused: if it had no effect, the next removal fails.
    pub(super) fn task_ended(&mut self, now: Instant, id: ContainerId, end: TaskEnd) {
        let then = match end {
            TaskEnd::Kill => {
                // containerd has to receive the exit event of the processes it killed.
                let received_at = Some(now.plus_ms(limits::TASK_END_MS));
                (self.retry_at, self.cleanup_at) = (received_at, received_at);
                Some(TaskEnd::Delete)
            }
            TaskEnd::Delete => None,
        };
        self.leftover_task = Some((id, then));
    }
}
