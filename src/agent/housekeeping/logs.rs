//! Log rotation: container logs are rotated before they fill the flash (spec section 11).
//!
//! ```text
//!  sizes, every 10 s ─▶ too large ─▶ RotateLog ─▶ ReopenContainerLog ─▶ CompressLogs (a child)
//!                   └▶ absent ─▶ ReopenContainerLog      └ refused ─▶ RestoreLog
//! ```
//!
//! One log at a time. Between the rename and the reopening the runtime continues to write into the
//! renamed file, so that no line is lost or doubled. A runtime that cannot reopen logs rotates them
//! itself, and its logs are not touched until its next start.
//!
//! If we crash here: a log that was renamed and not reopened is missing under its name; the next
//! start detects that and reopens it.

use std::collections::VecDeque;

use super::{HousekeepingContext, MeasurePlan, Periodic};
use crate::agent::calls::CallTask;
use crate::agent::event::{Action, Severity};
use crate::agent::jobs::JobTask;
use crate::agent::pod::next::log_link;
use crate::agent::time::{Instant, Now};
use crate::limits;
use crate::model::cri::{CallError, Code, ContainerId, ContainerState, Reply};
use crate::model::housekeeping::{HousekeepingCall, LogPolicy, Measures};
use crate::model::job::{JobError, JobSpec, LogLink};

/// The log rotation.
#[derive(Debug)]
pub struct Logs {
    policy: LogPolicy,
    size_check: Periodic,
    /// Pending rotations, at most [`limits::LOGS_QUEUE_MAX`]; the others are found again.
    queue: VecDeque<(LogLink, Need)>,
    current: Option<Rotation>,
    /// The runtime rotates its logs itself.
    refused: bool,
    pending_lines: Vec<String>,
}

/// Why a log has to be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// It is too large.
    Rotation,
    /// The file is missing: the runtime writes elsewhere.
    Reopening,
}

#[derive(Debug)]
enum Rotation {
    Rotate(LogLink),
    /// `renamed`: the old file exists and can be restored.
    Reopen {
        requested: bool,
        log: LogLink,
        renamed: bool,
    },
    /// To be renamed back.
    Restore {
        requested: bool,
        log: LogLink,
    },
    Compress {
        requested: bool,
        log: LogLink,
    },
}

impl Logs {
    /// Measures with the first step.
    pub fn new(policy: LogPolicy, now: Instant) -> Self {
        Self {
            size_check: Periodic::new(policy.period_ms, now),
            policy,
            queue: VecDeque::new(),
            current: None,
            refused: false,
            pending_lines: Vec::new(),
        }
    }

    /// The runtime is back, and may be another: its calls were answered before.
    pub fn up(&mut self) {
        self.refused = false;
    }

    /// Takes the sizes of logs.
    pub fn measured(&mut self, measures: &Measures) {
        let Some(size_max) = self.policy.size_max else { return };
        for (log, size) in &measures.logs {
            let need = match size {
                None => Need::Reopening,
                Some(size) if *size >= size_max => Need::Rotation,
                Some(_) => continue,
            };
            let known = self.queue.iter().any(|(other, _)| other == log);
            if !known && self.queue.len() < limits::LOGS_QUEUE_MAX {
                self.queue.push_back((log.clone(), need));
            }
        }
    }

    /// Takes the answer to the call that reopens the log.
    pub fn answer(&mut self, result: &Result<Reply, CallError>) {
        let Some(Rotation::Reopen { log, renamed, .. }) = self.current.take() else {
            let result = result.as_ref().map(Reply::kind);
            panic!("no log is being reopened, answered by {result:?}")
        };
        self.current = match result {
            Ok(_) => renamed.then_some(Rotation::Compress { requested: false, log }),
            Err(error) => {
                let refused = matches!(error, CallError::Refused { code: Code::Unimplemented, .. });
                self.refused |= refused;
                if refused {
                    self.queue.clear();
                }
                self.pending_lines.push(format!("container={} log not reopened: {error}", log.id));
                renamed.then_some(Rotation::Restore { requested: false, log })
            }
        };
    }

    /// Takes the result of the job of the rotation under way.
    pub fn job_done(&mut self, result: &Result<(), JobError>) {
        let rotation = self.current.take().expect("a log is being rotated");
        let (Rotation::Rotate(log)
        | Rotation::Restore { log, .. }
        | Rotation::Compress { log, .. }
        | Rotation::Reopen { log, .. }) = &rotation;
        if let Err(error) = result {
            self.pending_lines.push(format!("container={} log not rotated: {error}", log.id));
        }
        self.current = match rotation {
            // A job that failed half-way may have renamed the file: then it is missing, which is
            // detected.
            Rotation::Rotate(log) => {
                let reopen = Rotation::Reopen { requested: false, log, renamed: true };
                result.is_ok().then_some(reopen)
            }
            Rotation::Restore { .. } | Rotation::Compress { .. } => None,
            Rotation::Reopen { .. } => panic!("a log is reopened by a call, not by a job"),
        };
    }

    /// Requests what is due.
    pub fn step(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        measure_plan: &mut MeasurePlan,
    ) {
        for line in self.pending_lines.drain(..) {
            context.out.push(Action::Log(Severity::Warn, line));
        }
        if self.is_off() {
            // A rotation under way is completed.
            self.continue_rotation(now, context);
            return;
        }
        while self.current.is_none()
            && let Some((log, need)) = self.queue.pop_front()
        {
            // The container may have ended since: its logs are removed with it.
            if running(context).any(|other| other == log) {
                self.current = Some(self.begin(now, context, log, need));
            }
        }
        self.continue_rotation(now, context);
        if self.current.is_none() && self.size_check.is_due(now.boot) {
            self.request_sizes(now, context, measure_plan);
        }
    }

    fn request_sizes(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        measure_plan: &mut MeasurePlan,
    ) {
        let Some(request_sizes) = measure_plan.fields() else { return };
        request_sizes.logs = running(context).collect();
        self.size_check.done(now.boot);
    }

    fn begin(
        &self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        log: LogLink,
        need: Need,
    ) -> Rotation {
        match need {
            Need::Reopening => Rotation::Reopen { requested: false, log, renamed: false },
            Need::Rotation => {
                let spec = JobSpec::RotateLog {
                    log: log.clone(),
                    files_max: self.policy.files_max,
                    // Without a clock the job continues the numbers of the existing files.
                    at_s: now.timestamp().map_or(0, |at| at.0),
                };
                context.job(now, JobTask::Logs, spec);
                Rotation::Rotate(log)
            }
        }
    }

    /// The next step of the rotation under way.
    fn continue_rotation(&mut self, now: Now, context: &mut HousekeepingContext<'_>) {
        match &mut self.current {
            Some(Rotation::Reopen { requested: requested @ false, log, .. }) => {
                let reopen = HousekeepingCall::ReopenContainerLog(ContainerId(log.id.clone()));
                *requested = context.call(now, CallTask::Logs, reopen);
            }
            Some(Rotation::Restore { requested: requested @ false, log }) => {
                context.job(now, JobTask::Logs, JobSpec::RestoreLog(log.clone()));
                *requested = true;
            }
            Some(Rotation::Compress { requested: requested @ false, log }) => {
                context.job(now, JobTask::Logs, JobSpec::CompressLogs(log.clone()));
                *requested = true;
            }
            Some(
                Rotation::Rotate(..)
                | Rotation::Reopen { .. }
                | Rotation::Restore { .. }
                | Rotation::Compress { .. },
            )
            | None => {}
        }
    }

    fn is_off(&self) -> bool {
        self.policy.size_max.is_none() || self.refused
    }

    /// When something is due.
    pub fn due_at(&self) -> Option<Instant> {
        (!self.is_off()).then(|| self.size_check.due_at())
    }
}

/// The logs of all running containers.
fn running(context: &HousekeepingContext<'_>) -> impl Iterator<Item = LogLink> {
    context.pods.iter().flat_map(|pod| {
        let runs = |it: &&crate::agent::pod::observed::ObservedContainer| {
            it.state == ContainerState::Running
        };
        pod.observed().containers.iter().filter(runs).map(|it| log_link(pod, it))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LOGS_QUEUE_MAX;
    use crate::model::job::LogDir;

    #[test]
    fn logs_beyond_the_queue_are_found_again() {
        let log = |attempt| LogLink {
            pod: LogDir { namespace: "ns".into(), name: "p".into(), uid: "u".into() },
            container: "m".into(),
            attempt,
            id: "c".into(),
        };
        let all = LOGS_QUEUE_MAX as u32 + 1;
        let logs = (0..all).map(|attempt| (log(attempt), Some(u64::MAX))).collect();
        let measures = Measures { logs, ..Measures::default() };
        let mut rotation = Logs::new(LogPolicy::default(), Instant(1));
        rotation.measured(&measures);
        assert_eq!(rotation.queue.len(), LOGS_QUEUE_MAX);
        rotation.queue.pop_front();
        rotation.measured(&measures);
        assert_eq!(rotation.queue.len(), LOGS_QUEUE_MAX);
        assert_eq!(rotation.queue.back(), Some(&(log(0), Need::Rotation)), "the first one found");
    }
}
