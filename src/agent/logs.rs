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

use super::event::{Action, CallId, JobId, Severity};
use super::housekeeping::{HousekeepingContext, MeasurePlan, Periodic};
use super::pod::next::log_link;
use super::time::{Instant, Now};
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
    Rotate(JobId, LogLink),
    /// `renamed`: the old file exists and can be restored.
    Reopen {
        call: Option<CallId>,
        log: LogLink,
        renamed: bool,
    },
    /// To be renamed back.
    Restore(Option<JobId>, LogLink),
    Compress(Option<JobId>, LogLink),
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

    /// Takes the answer to a call. `false`: it is none of these.
    pub fn answer(&mut self, call: CallId, result: &Result<Reply, CallError>) -> bool {
        let Some(Rotation::Reopen { call: Some(pending), log, renamed }) = &self.current else {
            return false;
        };
        if *pending != call {
            return false;
        }
        let (log, renamed) = (log.clone(), *renamed);
        self.current = match (result, renamed) {
            (Ok(_), true) => Some(Rotation::Compress(None, log)),
            (Ok(_), false) => None,
            (Err(error), renamed) => {
                let refused = matches!(error, CallError::Refused { code: Code::Unimplemented, .. });
                self.refused |= refused;
                if refused {
                    self.queue.clear();
                }
                self.pending_lines.push(format!("container={} log not reopened: {error}", log.id));
                renamed.then_some(Rotation::Restore(None, log))
            }
        };
        true
    }

    /// Takes the answer to a job. `false`: it is none of these.
    pub fn job_done(&mut self, job: JobId, result: &Result<(), JobError>) -> bool {
        let (log, next) = match &self.current {
            Some(Rotation::Rotate(pending, log)) if *pending == job => {
                let reopen = Rotation::Reopen { call: None, log: log.clone(), renamed: true };
                // A job that failed half-way may have renamed the file: then it is missing, which
                // is detected.
                (log.clone(), result.is_ok().then_some(reopen))
            }
            Some(
                Rotation::Restore(Some(pending), log) | Rotation::Compress(Some(pending), log),
            ) if *pending == job => (log.clone(), None),
            _ => return false,
        };
        if let Err(error) = result {
            self.pending_lines.push(format!("container={} log not rotated: {error}", log.id));
        }
        self.current = next;
        true
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
            Need::Reopening => Rotation::Reopen { call: None, log, renamed: false },
            Need::Rotation => {
                let spec = JobSpec::RotateLog {
                    log: log.clone(),
                    files_max: self.policy.files_max,
                    // Without a clock the job continues the numbers of the existing files.
                    at_s: now.timestamp().map_or(0, |at| at.0),
                };
                Rotation::Rotate(context.job(now, spec), log)
            }
        }
    }

    /// The next step of the rotation under way.
    fn continue_rotation(&mut self, now: Now, context: &mut HousekeepingContext<'_>) {
        match &mut self.current {
            Some(Rotation::Reopen { call: call @ None, log, .. }) => {
                let id = ContainerId(log.id.clone());
                *call = context.call(now, HousekeepingCall::ReopenContainerLog(id));
            }
            Some(Rotation::Restore(job @ None, log)) => {
                *job = Some(context.job(now, JobSpec::RestoreLog(log.clone())));
            }
            Some(Rotation::Compress(job @ None, log)) => {
                *job = Some(context.job(now, JobSpec::CompressLogs(log.clone())));
            }
            Some(
                Rotation::Rotate(..)
                | Rotation::Reopen { .. }
                | Rotation::Restore(..)
                | Rotation::Compress(..),
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
        let runs =
            |it: &&super::pod::observed::ObservedContainer| it.state == ContainerState::Running;
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
