//! One container: what there is of it, what calls want of it, and from both its next piece of work.
//!
//! ```text
//!  record saved → made → [monitor] starting → running → exit saved → ended
//!  → own layer removed → erased
//! ```
//!
//! Each step forward is taken only where it is wanted; an exited container is always ended. If the
//! server dies here, the record and what is found in RUN say where to go on.

mod found;
mod update;

use std::collections::VecDeque;
use std::sync::Arc;

use super::context::{Context, Retry};
use super::event::{Action, CallId};
use super::exit::{exited, start_error, unknown};
use super::jobs::Owner;
use super::kept::Kept;
use super::refusal::{not_found, not_saved, of_job, refusal};
use crate::core::time::{Instant, sooner};
use crate::limits::{RUNTIME_JOB_MS, RUNTIME_KILL_AGAIN_MS, RUNTIME_REOPEN_MS};
use crate::model::cri::Resources;
use crate::model::runtime::{
    Code, ContainerFolder, ContainerPhase, ContainerRecord, EventKind, Exit, ImageRecord, Job,
    JobFault, JobReply, MonitorFact, MonitorStart, Process, Refusal, Reply, SandboxRecord,
};

pub use found::Remains;
use update::Updating;

/// SIGKILL
const KILL: i32 = 9;

#[derive(Debug)]
pub struct Container {
    pub kept: Kept<ContainerRecord>,
    /// Absolute in each hierarchy.
    cgroup: Box<str>,
    /// [`SandboxRecord::program`]
    program: Box<str>,
    life: Life,
    task: Task,
    rest: Rest,
    starts: Vec<CallId>,
    stops: Vec<CallId>,
    removes: Vec<CallId>,
    reopens: VecDeque<Reopen>,
    updates: VecDeque<(CallId, Resources)>,
    /// How far the first of them is.
    updating: Option<Updating>,
    /// It is to be stopped: SIGKILL at this moment.
    kill_at: Option<Instant>,
    /// It is to be removed.
    is_leaving: bool,
    /// Why it could not be created; everything is undone.
    undone: Option<Refusal>,
    /// Why the last try to end or remove it failed.
    fault: Option<Refusal>,
    retry: Retry,
    /// What it has written, and when that was counted.
    pub written: Option<(Instant, (u64, u64))>,
}

#[derive(Debug)]
enum Life {
    /// Not started. `made`: its folders and `config.json` are whole.
    Created {
        made: bool,
    },
    /// Its monitor was requested.
    Starting,
    Running {
        process: Process,
        monitor: Monitor,
        killing: Killing,
    },
    /// `error`: the text if it could not be started.
    Exited {
        is_saved: bool,
        error: Option<Box<str>>,
    },
}

/// The monitor of a running container.
#[derive(Debug, Default)]
struct Monitor {
    /// It is gone; else it was requested, or answers.
    is_lost: bool,
    /// When the next one is requested.
    retry: Retry,
}

/// How far a running container is stopped.
#[derive(Clone, Copy, Debug)]
enum Killing {
    No,
    StopSignal,
    /// SIGKILL was sent at this moment.
    Killed(Instant),
}

/// The job under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    None,
    Make,
    End,
    Remove,
}

/// What may be left of it beside its record.
#[derive(Clone, Copy, Debug)]
struct Rest {
    run: bool,
    data: bool,
}

#[derive(Debug)]
struct Reopen {
    call: CallId,
    late_at: Instant,
}

impl Container {
    /// A container that a client creates.
    pub fn new(record: ContainerRecord, sandbox: &SandboxRecord, call: CallId) -> Self {
        let rest = Rest { run: false, data: false };
        let life = Life::Created { made: false };
        Self::with(Kept::new(record, call), Some(sandbox), life, rest)
    }

    /// Where its sandbox is lost, its cgroup and its program are guessed.
    fn with(
        kept: Kept<ContainerRecord>,
        sandbox: Option<&SandboxRecord>,
        life: Life,
        rest: Rest,
    ) -> Self {
        let id = &kept.shown().id;
        let guessed = || format!("/edged/{id}");
        Self {
            cgroup: sandbox.map_or_else(guessed, |sandbox| sandbox.cgroup(id)).into(),
            program: sandbox.map_or_else(Box::default, |sandbox| sandbox.program.clone()),
            kept,
            life,
            task: Task::None,
            rest,
            starts: Vec::new(),
            stops: Vec::new(),
            removes: Vec::new(),
            reopens: VecDeque::new(),
            updates: VecDeque::new(),
            updating: None,
            kill_at: None,
            is_leaving: false,
            undone: None,
            fault: None,
            retry: Retry::default(),
            written: None,
        }
    }

    pub fn record(&self) -> &Arc<ContainerRecord> {
        self.kept.shown()
    }

    pub fn is_starting(&self) -> bool {
        matches!(self.life, Life::Starting)
    }

    pub fn is_running(&self) -> bool {
        matches!(self.life, Life::Running { .. })
    }

    pub fn folder(&self) -> ContainerFolder {
        ContainerFolder {
            id: self.record().id.clone(),
            cgroup: self.cgroup.clone(),
            program: self.program.clone(),
        }
    }

    /// No process is left, nor what was made for one.
    pub fn is_at_rest(&self) -> bool {
        match self.life {
            // What was made of it holds nothing of the sandbox.
            Life::Created { .. } => self.task != Task::Make && self.kept.maker.is_none(),
            Life::Starting | Life::Running { .. } => false,
            Life::Exited { is_saved, .. } => is_saved && !self.rest.run,
        }
    }

    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Why the last try to end or remove it failed.
    pub fn fault(&self) -> Option<&Refusal> {
        self.fault.as_ref()
    }

    // ---- calls ----

    pub fn start(&mut self, call: CallId) -> Result<(), Refusal> {
        match self.life {
            Life::Created { .. } | Life::Starting if !self.is_leaving => {
                self.starts.push(call);
                Ok(())
            }
            Life::Created { .. } | Life::Starting => {
                let id = &self.record().id;
                Err(refusal(Code::FailedPrecondition, format!("container {id} is being removed")))
            }
            Life::Running { .. } | Life::Exited { .. } => Err(self.wrong_state()),
        }
    }

    /// `CONTAINER_…`: the state in the words that clients match on.
    pub fn wrong_state(&self) -> Refusal {
        let state = match self.life {
            Life::Created { .. } | Life::Starting => "CREATED",
            Life::Running { .. } => "RUNNING",
            Life::Exited { .. } => "EXITED",
        };
        refusal(Code::Unknown, format!("container is in CONTAINER_{state} state"))
    }

    /// A grace period only shrinks.
    pub fn stop(&mut self, call: CallId, now: Instant, grace_s: i64) {
        self.kill_by(now.plus_ms(u64::try_from(grace_s).unwrap_or(0).saturating_mul(1_000)));
        self.stops.push(call);
        self.hurry();
    }

    pub fn remove(&mut self, call: CallId, now: Instant) {
        self.leave(now);
        self.removes.push(call);
    }

    /// Its sandbox is removed.
    pub fn leave(&mut self, now: Instant) {
        self.is_leaving = true;
        self.kill_by(now);
        self.hurry();
    }

    /// Its sandbox is stopped.
    pub fn kill(&mut self, now: Instant) {
        self.kill_by(now);
        self.hurry();
    }

    fn kill_by(&mut self, at: Instant) {
        self.kill_at = Some(self.kill_at.map_or(at, |old| old.min(at)));
    }

    fn hurry(&mut self) {
        self.fault = None;
        self.retry.now();
    }

    pub fn reopen(&mut self, call: CallId, ctx: &mut Context) -> Result<(), Refusal> {
        let Life::Running { monitor, .. } = &self.life else { return Err(not_running()) };
        // A new monitor opens the log anyway.
        if !monitor.is_lost {
            ctx.out.push(Action::Reopen(self.record().id.clone()));
        }
        let late_at = ctx.now.boot.plus_ms(RUNTIME_REOPEN_MS);
        self.reopens.push_back(Reopen { call, late_at });
        Ok(())
    }

    // ---- facts ----

    pub fn monitor_said(&mut self, fact: MonitorFact, ctx: &mut Context) {
        match (&mut self.life, fact) {
            (Life::Starting, MonitorFact::Started { process, at }) => {
                self.started(process, at, ctx);
            }
            (Life::Starting, MonitorFact::Failed(text)) => self.not_started(ctx, &text),
            (Life::Starting, MonitorFact::Exited { code, oom_killed, at }) => {
                self.answer_starts(ctx, &Ok(Reply::Done));
                self.exit(exited(code, oom_killed, (at, at)), None);
            }
            (Life::Starting, MonitorFact::Gone) => {
                self.not_started(ctx, "its monitor ended while it was starting");
            }
            (Life::Running { monitor, .. }, MonitorFact::Started { .. }) => {
                *monitor = Monitor::default();
                self.answer_reopens(ctx, &Ok(Reply::Done));
            }
            (Life::Running { .. }, MonitorFact::Failed(_)) => {
                self.exit(unknown(self.started_at(), ctx.now), None);
            }
            (Life::Running { .. }, MonitorFact::Exited { code, oom_killed, at }) => {
                self.exit(exited(code, oom_killed, (self.started_at(), at)), None);
            }
            (Life::Running { monitor, .. }, MonitorFact::Gone) => monitor.is_lost = true,
            (Life::Running { .. }, MonitorFact::Reopened(result)) => {
                if let Some(reopen) = self.reopens.pop_front() {
                    let answer = result.map(|()| Reply::Done);
                    ctx.calls
                        .answer(reopen.call, answer.map_err(|text| refusal(Code::Unknown, text)));
                }
            }
            // Late words of a monitor whose container is not started, or counts as ended.
            (Life::Created { .. } | Life::Exited { .. }, _)
            | (Life::Starting, MonitorFact::Reopened(_)) => {}
        }
        if !self.is_starting() {
            ctx.jobs.start_over(&self.kept.shown().id);
        }
        if !self.is_running() {
            self.answer_reopens(ctx, &Err(not_running()));
        }
    }

    fn started(&mut self, process: Process, at: i64, ctx: &mut Context) {
        let mut record = ContainerRecord::clone(self.record());
        record.phase = ContainerPhase::Running { started_at: at, process: process.clone() };
        ctx.note(EventKind::Started, &record.id.0, &record.sandbox);
        self.kept.save_lazily(record, &mut ctx.out);
        self.life = Life::Running { process, monitor: Monitor::default(), killing: Killing::No };
        self.answer_starts(ctx, &Ok(Reply::Done));
    }

    /// Its monitor has said nothing for too long.
    pub fn start_is_late(&mut self, ctx: &mut Context) {
        if self.is_starting() {
            let text = format!("it has not started within {} s", RUNTIME_JOB_MS / 1_000);
            self.not_started(ctx, &text);
        }
    }

    fn not_started(&mut self, ctx: &mut Context, text: &str) {
        self.exit(start_error(ctx.now, text), Some(text.into()));
    }

    /// It has ended: from now on only its exit is to be saved.
    fn exit(&mut self, exit: Exit, error: Option<Box<str>>) {
        let mut record = ContainerRecord::clone(self.record());
        record.phase = ContainerPhase::Exited(exit);
        self.kept.save(record);
        self.life = Life::Exited { is_saved: false, error };
    }

    pub fn job_done(&mut self, result: Result<JobReply, JobFault>, ctx: &mut Context) {
        let task = std::mem::replace(&mut self.task, Task::None);
        let fault = match result {
            Ok(_) => {
                match task {
                    Task::Make => self.life = Life::Created { made: true },
                    Task::End => self.rest.run = false,
                    Task::Remove => self.rest.data = false,
                    Task::None => panic!("the job of a container without a task has ended"),
                }
                return self.retry.succeeded();
            }
            Err(fault) => of_job(fault),
        };
        if task == Task::Make && self.kept.maker.is_some() {
            self.undone = Some(fault);
            self.is_leaving = true;
        } else if task == Task::Make {
            self.answer_starts(ctx, &Err(fault));
        } else {
            self.not_ended(fault, ctx);
        }
    }

    /// Who waits for its end is refused. Unless a client asks again, it is tried later.
    fn not_ended(&mut self, fault: Refusal, ctx: &mut Context) {
        self.retry.failed(ctx.now.boot);
        let answer = Err(fault.clone());
        ctx.calls.answer_all(&mut self.stops, &answer);
        ctx.calls.answer_all(&mut self.removes, &answer);
        self.answer_starts(ctx, &answer);
        if let Some(call) = self.kept.maker.take() {
            let why = self.undone.clone().unwrap_or_else(|| fault.clone());
            ctx.calls.answer(call, Err(why));
        }
        // What no client sees is removed in the end.
        self.is_leaving &= !self.kept.is_visible;
        self.fault = Some(fault);
    }

    // ---- the next step ----

    /// Does one thing that is to be done now. `false`: there is none.
    pub fn advance(
        &mut self,
        sandbox: Option<&SandboxRecord>,
        image: Option<&Arc<ImageRecord>>,
        ctx: &mut Context,
    ) -> bool {
        if self.kept.is_pending() || self.task != Task::None || self.kept.is_erased() {
            return false;
        }
        if let Some((why, next)) = self.kept.take_failure() {
            self.record_not_saved(&why, next, ctx);
            return true;
        }
        if self.advance_update(ctx) {
            return true;
        }
        match &self.life {
            Life::Created { .. } if self.is_leaving => self.advance_removal(ctx),
            Life::Created { made } => {
                let made = *made;
                self.advance_created(made, sandbox, image, ctx)
            }
            Life::Starting => false,
            Life::Running { .. } => self.advance_running(ctx),
            Life::Exited { .. } => self.advance_exited(ctx),
        }
    }

    /// It is erased: answers all that wait.
    pub fn farewell(&mut self, ctx: &mut Context) {
        let record = Arc::clone(self.record());
        if self.kept.is_visible {
            ctx.note(EventKind::Deleted, &record.id.0, &record.sandbox);
        }
        if let Some(call) = self.kept.maker.take() {
            let removed = || refusal(Code::Cancelled, "the container is being removed");
            ctx.calls.answer(call, Err(self.undone.take().unwrap_or_else(removed)));
        }
        ctx.calls.answer_all(&mut self.stops, &Ok(Reply::Done));
        ctx.calls.answer_all(&mut self.removes, &Ok(Reply::Done));
        let gone = Err(not_found("container", &record.id.0));
        self.answer_starts(ctx, &gone);
        for (call, _) in self.updates.drain(..) {
            ctx.calls.answer(call, gone.clone());
        }
    }

    fn record_not_saved(
        &mut self,
        why: &str,
        next: Option<Arc<ContainerRecord>>,
        ctx: &mut Context,
    ) {
        let fault = not_saved(why);
        if self.update_not_saved(&fault, ctx) {
            return;
        }
        if self.kept.maker.is_some() && self.undone.is_none() {
            self.undone = Some(fault);
            self.is_leaving = true;
            return;
        }
        if let Some(exited) = next {
            self.kept.show(exited);
        }
        self.not_ended(fault, ctx);
    }

    fn advance_created(
        &mut self,
        made: bool,
        sandbox: Option<&SandboxRecord>,
        image: Option<&Arc<ImageRecord>>,
        ctx: &mut Context,
    ) -> bool {
        if made && let Some(call) = self.kept.maker.take() {
            let record = self.record();
            ctx.calls.answer(call, Ok(Reply::Container(record.id.clone())));
            ctx.note(EventKind::Created, &record.id.0, &record.sandbox);
            self.kept.is_visible = true;
            return true;
        }
        if !self.stops.is_empty() {
            ctx.calls.answer_all(&mut self.stops, &Ok(Reply::Done));
            return true;
        }
        self.kill_at = None;
        if self.kept.maker.is_none() && self.starts.is_empty() {
            return false;
        }
        let refusal = match (sandbox, image, made) {
            (None, _, _) => sandbox_not_ready(),
            (Some(_), _, true) => {
                self.start_monitor(ctx);
                return true;
            }
            (Some(_), None, false) => image_not_found(&self.record().config.image_ref),
            // What an earlier life of the server has left of it is not known to be whole.
            (Some(_), Some(_), false) if self.rest.run => {
                self.end(ctx);
                return true;
            }
            (Some(sandbox), Some(image), false) => {
                self.make(sandbox, image, ctx);
                return true;
            }
        };
        self.answer_starts(ctx, &Err(refusal.clone()));
        if self.kept.maker.is_some() {
            self.undone = Some(refusal);
            self.is_leaving = true;
        }
        true
    }

    fn make(&mut self, sandbox: &SandboxRecord, image: &ImageRecord, ctx: &mut Context) {
        let job = Job::MakeContainer {
            sandbox: Box::new(sandbox.clone()),
            container: Box::new(ContainerRecord::clone(self.record())),
            image: Box::new(image.clone()),
        };
        ctx.jobs.add(Owner::Container(self.record().id.clone()), job, RUNTIME_JOB_MS);
        self.task = Task::Make;
        self.rest = Rest { run: true, data: true };
    }

    fn end(&mut self, ctx: &mut Context) {
        let folder = self.folder();
        let job = Job::EndContainer(folder.clone());
        ctx.jobs.add(Owner::Container(folder.id), job, RUNTIME_JOB_MS);
        self.begin_end(Task::End);
    }

    /// Whatever becomes of it: it is not whole any more.
    fn begin_end(&mut self, task: Task) {
        self.task = task;
        if let Life::Created { made } = &mut self.life {
            *made = false;
        }
    }

    fn start_monitor(&mut self, ctx: &mut Context) {
        let mut record = ContainerRecord::clone(self.record());
        record.phase = ContainerPhase::Starting(ctx.boot.clone());
        self.kept.save_lazily(record, &mut ctx.out);
        ctx.jobs.add_start(self.monitor(None));
        self.life = Life::Starting;
    }

    fn monitor(&self, adopt: Option<Process>) -> MonitorStart {
        let record = self.record();
        MonitorStart {
            id: record.id.clone(),
            log: record.log.clone(),
            stdin: record.config.terminal.stdin,
            tty: record.config.terminal.tty,
            cgroup: self.cgroup.clone(),
            program: self.program.clone(),
            adopt,
        }
    }

    fn advance_running(&mut self, ctx: &mut Context) -> bool {
        let now = ctx.now.boot;
        if self.reopens.front().is_some_and(|reopen| reopen.late_at <= now) {
            let text = "its monitor has not opened the log anew in time";
            let reopen = self.reopens.pop_front().expect("just seen");
            ctx.calls.answer(reopen.call, Err(refusal(Code::Unknown, text)));
            return true;
        }
        let Life::Running { process, monitor, .. } = &mut self.life else { return false };
        if monitor.is_lost && monitor.retry.is_due(now) {
            monitor.is_lost = false;
            monitor.retry.failed(now);
            let process = process.clone();
            ctx.out.push(Action::Monitor(Box::new(self.monitor(Some(process)))));
            return true;
        }
        let Some(signal) = self.due_signal(now) else { return false };
        let Life::Running { process, killing, .. } = &mut self.life else { return false };
        *killing = if signal == KILL { Killing::Killed(now) } else { Killing::StopSignal };
        ctx.out.push(Action::Signal(self.kept.shown().id.clone(), process.clone(), signal));
        true
    }

    fn due_signal(&self, now: Instant) -> Option<i32> {
        let (Life::Running { killing, .. }, Some(kill_at)) = (&self.life, self.kill_at) else {
            return None;
        };
        match killing {
            Killing::No if now < kill_at => Some(self.record().stop_signal),
            Killing::No | Killing::StopSignal => (now >= kill_at).then_some(KILL),
            Killing::Killed(at) => (now >= at.plus_ms(RUNTIME_KILL_AGAIN_MS)).then_some(KILL),
        }
    }

    fn advance_exited(&mut self, ctx: &mut Context) -> bool {
        let Life::Exited { is_saved, error } = &mut self.life else { return false };
        if !*is_saved {
            if !self.kept.is_ahead() {
                *is_saved = true;
                let answer = match error.take() {
                    Some(text) => Err(refusal(Code::Unknown, text)),
                    None => Ok(Reply::Done),
                };
                let record = self.kept.shown();
                ctx.note(EventKind::Stopped, &record.id.0, &record.sandbox);
                self.answer_starts(ctx, &answer);
                return true;
            }
            if self.retry.is_due(ctx.now.boot) {
                let record = ContainerRecord::clone(self.record());
                self.kept.save(record);
                return true;
            }
            return false;
        }
        if self.rest.run {
            if self.retry.is_due(ctx.now.boot) {
                self.end(ctx);
                return true;
            }
            return false;
        }
        if !self.stops.is_empty() {
            ctx.calls.answer_all(&mut self.stops, &Ok(Reply::Done));
            return true;
        }
        self.is_leaving && self.advance_removal(ctx)
    }

    /// No process of it is left, and it is to be removed. The record goes last: it names all else.
    fn advance_removal(&mut self, ctx: &mut Context) -> bool {
        if !self.retry.is_due(ctx.now.boot) {
            return false;
        }
        if self.rest.run {
            self.end(ctx);
        } else if self.rest.data {
            let id = self.record().id.clone();
            let job = Job::RemoveContainer(id.clone());
            ctx.jobs.add(Owner::Container(id), job, RUNTIME_JOB_MS);
            self.begin_end(Task::Remove);
        } else {
            self.kept.erase();
        }
        true
    }

    /// When to look again if nothing happens.
    pub fn wake_at(&self) -> Option<Instant> {
        if self.kept.is_pending() || self.task != Task::None {
            return None;
        }
        match &self.life {
            Life::Created { .. } => self.retry.at().filter(|_| self.is_leaving),
            Life::Starting => None,
            Life::Running { monitor, killing, .. } => {
                let kill_at = self.kill_at.map(|at| match killing {
                    Killing::No | Killing::StopSignal => at,
                    Killing::Killed(at) => at.plus_ms(RUNTIME_KILL_AGAIN_MS),
                });
                let adopt_at = monitor.retry.at().filter(|_| monitor.is_lost);
                let reopen_at = self.reopens.front().map(|reopen| reopen.late_at);
                sooner(sooner(kill_at, adopt_at), reopen_at)
            }
            Life::Exited { is_saved, .. } => {
                let is_open = !is_saved || self.rest.run || self.is_leaving;
                self.retry.at().filter(|_| is_open)
            }
        }
    }

    fn started_at(&self) -> i64 {
        match &self.record().phase {
            ContainerPhase::Running { started_at, .. } => *started_at,
            ContainerPhase::Created | ContainerPhase::Starting(_) | ContainerPhase::Exited(_) => 0,
        }
    }

    fn answer_starts(&mut self, ctx: &mut Context, answer: &Result<Reply, Refusal>) {
        ctx.calls.answer_all(&mut self.starts, answer);
    }

    fn answer_reopens(&mut self, ctx: &mut Context, answer: &Result<Reply, Refusal>) {
        for reopen in self.reopens.drain(..) {
            ctx.calls.answer(reopen.call, answer.clone());
        }
    }
}

pub fn image_not_found(image: &str) -> Refusal {
    refusal(Code::NotFound, format!("failed to resolve image {image:?}: not found"))
}

pub fn sandbox_not_ready() -> Refusal {
    refusal(Code::FailedPrecondition, "the sandbox is not ready: it was stopped")
}

fn not_running() -> Refusal {
    refusal(Code::Unknown, "container is not running")
}
