//! One action of one job, step by step.

use super::JobsContext;
use super::pull::{Check, Pull, StepEnd};
use super::upgrade::{Readiness, Upgrade, VERSION, image_of};
use crate::agent::event::{CallId, JobId};
use crate::agent::time::{Instant, Now};
use crate::model::cri::{CallError, Reply};
use crate::model::job::{JobError, JobReply};
use crate::model::node_job::{JobAction, JobDetail, JobSpec, PrePullSpec, StoredJob, UpgradeSpec};

/// The action under way.
#[derive(Debug)]
pub(super) struct Run {
    number: u64,
    task: Task,
}

#[derive(Debug)]
enum Task {
    /// There is nothing to do.
    Nothing(Result<(), String>, JobDetail),
    Check(Check),
    Pull(Box<Pull>),
    /// The check of an upgrade.
    Readiness(Box<Readiness>),
    Upgrade(Box<Upgrade>),
}

impl Run {
    /// `repositories`: those of images of upgrades without a digest.
    pub(super) fn begin(
        now: Now,
        number: u64,
        action: JobAction,
        job: &StoredJob,
        repositories: &[Box<str>],
    ) -> Self {
        let task = match (action, &job.spec) {
            (JobAction::Init | JobAction::WaitingConfirmation, JobSpec::Upgrade(_)) => {
                Task::nothing(Ok(()))
            }
            (action, JobSpec::Upgrade(spec)) => {
                Task::of_upgrade(now, action, spec, job, repositories)
            }
            (
                JobAction::Check,
                JobSpec::PrePull(PrePullSpec { check_items: items, .. }) | JobSpec::Checks(items),
            ) => Task::check(items),
            (JobAction::Pull, JobSpec::PrePull(spec)) => Task::Pull(Box::new(Pull::new(now, spec))),
            (JobAction::Init, _) => Task::nothing(Ok(())),
            (action, _) => Task::unknown(action),
        };
        Self { number, task }
    }

    /// The number of the job's run.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Nobody wants the result.
    pub(super) fn give_up(&mut self, now: Now, context: &mut JobsContext<'_>) {
        match &self.task {
            Task::Nothing(..) => {}
            Task::Check(check) => check.give_up(context),
            Task::Pull(pull) => pull.give_up(now, context),
            Task::Readiness(readiness) => readiness.give_up(now, context),
            Task::Upgrade(upgrade) => upgrade.give_up(now, context),
        }
    }

    /// Gives up the pull under way if a pod waits for the room. What was pulled of it, the runtime
    /// need not fetch again.
    pub(super) fn give_way(&mut self, now: Now, context: &mut JobsContext<'_>) -> bool {
        let Some(pull) = self.task.pull() else { return false };
        pull.give_way(now, context)
    }

    /// Requests what can be requested; returns the result once there is one.
    /// `is_saved`: the row of the job is durable.
    pub(super) fn step(
        &mut self,
        now: Now,
        is_saved: bool,
        context: &mut JobsContext<'_>,
    ) -> Option<StepEnd> {
        let (result, detail) = match &mut self.task {
            Task::Nothing(result, detail) => (result.clone(), detail.clone()),
            Task::Check(check) => check.step(now, context)?,
            Task::Pull(pull) => pull.step(now, context)?,
            Task::Readiness(readiness) => readiness.step(now, context)?,
            Task::Upgrade(upgrade) => return upgrade.step(now, is_saved, context),
        };
        Some(StepEnd::Ended(result, detail))
    }

    pub(super) fn answer(&mut self, now: Instant, call: CallId, result: Result<Reply, CallError>) {
        match &mut self.task {
            Task::Upgrade(upgrade) => upgrade.answer(now, call, result),
            task => {
                if let Some(pull) = task.pull() {
                    pull.answer(now, call, result);
                }
            }
        }
    }

    pub(super) fn job_done(&mut self, job: JobId, result: Result<JobReply, JobError>) {
        match &mut self.task {
            Task::Check(check) => check.job_done(job, result),
            Task::Readiness(readiness) => readiness.job_done(job, result),
            Task::Upgrade(upgrade) => upgrade.job_done(job, result),
            Task::Nothing(..) | Task::Pull(_) => {}
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        match &self.task {
            Task::Pull(pull) => pull.wake_at(),
            Task::Readiness(readiness) => readiness.pull.wake_at(),
            Task::Upgrade(upgrade) => upgrade.wake_at(),
            Task::Nothing(..) | Task::Check(_) => None,
        }
    }

    /// Images that are on the node.
    pub(super) fn done(&self) -> usize {
        match &self.task {
            Task::Pull(pull) => pull.done(),
            Task::Nothing(..) | Task::Check(_) | Task::Readiness(_) | Task::Upgrade(_) => 0,
        }
    }

    /// What it waits for, or the last failure.
    pub(super) fn trouble(&self) -> Option<String> {
        match &self.task {
            Task::Pull(pull) => pull.trouble(),
            Task::Readiness(readiness) => readiness.pull.trouble(),
            Task::Upgrade(upgrade) => upgrade.trouble(),
            Task::Nothing(..) | Task::Check(_) => None,
        }
    }
}

impl Task {
    fn nothing(result: Result<(), String>) -> Self {
        Self::Nothing(result, JobDetail::Nothing)
    }

    fn unknown(action: JobAction) -> Self {
        let action = action.name();
        Self::nothing(Err(format!("got the action {action}, which such jobs do not have")))
    }

    fn check(items: &[Box<str>]) -> Self {
        match Check::new(items) {
            Err(why) => Self::nothing(Err(why)),
            Ok(None) => Self::nothing(Ok(())),
            Ok(Some(check)) => Self::Check(check),
        }
    }

    /// `EdgeCore`'s actions: nothing is copied before an upgrade, because the slot that runs stays.
    fn of_upgrade(
        now: Now,
        action: JobAction,
        spec: &UpgradeSpec,
        job: &StoredJob,
        repositories: &[Box<str>],
    ) -> Self {
        let versions =
            |from: &str, to: &str| JobDetail::Versions { from: from.into(), to: to.into() };
        let progress = &job.upgrade;
        match action {
            JobAction::Check => {
                let ready = image_of(spec, repositories)
                    .and_then(|image| Ok((Check::new(&spec.check_items)?, image)));
                match ready {
                    Ok((usage, image)) => {
                        Self::Readiness(Box::new(Readiness::new(now, usage, &image)))
                    }
                    Err(why) => Self::nothing(Err(why)),
                }
            }
            JobAction::BackUp => Self::Nothing(Ok(()), versions(VERSION, VERSION)),
            JobAction::Upgrade => {
                let image = match image_of(spec, repositories) {
                    // What is tried already needs no image.
                    Err(why) if progress.program.is_empty() => {
                        return Self::Nothing(Err(why), versions(VERSION, &spec.version));
                    }
                    image => image.unwrap_or_default(),
                };
                Self::Upgrade(Box::new(Upgrade::new(now, &image, &spec.version, progress)))
            }
            // It went back by itself; a success would be shown as one of the whole upgrade.
            JobAction::RollBack => {
                let why = if progress.program.is_empty() {
                    format!("still on {VERSION}: no trial has begun")
                } else {
                    format!("back on {VERSION}")
                };
                Self::Nothing(Err(why), versions(&spec.version, VERSION))
            }
            JobAction::Init
            | JobAction::WaitingConfirmation
            | JobAction::Pull
            | JobAction::Update => Self::unknown(action),
        }
    }

    /// The pull under way.
    fn pull(&mut self) -> Option<&mut Pull> {
        match self {
            Self::Pull(pull) => Some(pull),
            Self::Readiness(readiness) => Some(&mut readiness.pull),
            Self::Upgrade(upgrade) => upgrade.pull(),
            Self::Nothing(..) | Self::Check(_) => None,
        }
    }
}
