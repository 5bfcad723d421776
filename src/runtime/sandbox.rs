//! One sandbox: what there is of it, what calls want of it, and from both its next piece of work.
//!
//! ```text
//!  record Making saved → namespaces, network → Ready in RUN, saved soon → [containers end]
//!  Stopping saved → network and mounts taken down → NotReady saved → [containers removed] → erased
//! ```
//!
//! If the server dies here, the record's phase says where to go on: one that is still `Making` is
//! undone. That it is ready need not survive a power cut, because nothing of it does.

use std::sync::Arc;

use super::context::{Context, Retry};
use super::event::CallId;
use super::jobs::Owner;
use super::kept::Kept;
use super::refusal::{not_saved, of_job, refusal};
use crate::core::time::Instant;
use crate::limits::RUNTIME_SANDBOX_MS;
use crate::model::runtime::{
    Code, EventKind, Job, JobFault, JobReply, Refusal, Reply, SandboxPhase, SandboxRecord,
};

#[derive(Debug)]
pub struct Sandbox {
    pub kept: Kept<SandboxRecord>,
    task: Task,
    /// Namespaces, mounts or a network may be left.
    is_left: bool,
    stops: Vec<CallId>,
    removes: Vec<CallId>,
    is_stopping: bool,
    is_leaving: bool,
    /// Nothing can be started in it any more: it is stopped without being asked for.
    is_lost: bool,
    /// It could not be made, or is no client's: it is taken down and erased.
    is_undone: bool,
    /// Why it could not be made.
    why_undone: Option<Refusal>,
    retry: Retry,
}

/// The job under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    None,
    Make,
    End,
}

/// The containers of a sandbox together.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// How many there are.
    pub count: usize,
    /// How many have a process, or what was made for one.
    pub live: usize,
    /// How many are not to be removed.
    pub staying: usize,
    /// Why one of them could not be ended or removed.
    pub fault: Option<Refusal>,
}

impl Sandbox {
    /// A sandbox that a client runs.
    pub fn new(record: SandboxRecord, call: CallId) -> Self {
        Self::with(Kept::new(record, call))
    }

    /// A record with what is found: all that is in RUN of this boot (`is_whole`), or anything; and
    /// whether there are records of containers in it (`is_used`).
    pub fn stored(
        mut record: SandboxRecord,
        is_whole: bool,
        is_found: bool,
        is_used: bool,
    ) -> Self {
        let is_over = match record.phase {
            SandboxPhase::Ready => !is_whole,
            // A power cut came before it was saved that it had become ready.
            SandboxPhase::Making => is_used,
            SandboxPhase::Stopping | SandboxPhase::NotReady => false,
        };
        if is_over {
            // Not saved: the next start would say the same.
            record.phase = SandboxPhase::Stopping;
        }
        let phase = record.phase;
        let is_undone = phase == SandboxPhase::Making;
        let is_left = phase != SandboxPhase::NotReady || is_found;
        let mut kept = Kept::stored(record);
        kept.is_visible = !is_undone;
        Self { is_left, is_undone, ..Self::with(kept) }
    }

    /// What is found without a record: it is taken down.
    pub fn orphan(record: SandboxRecord) -> Self {
        Self { is_left: true, is_undone: true, ..Self::with(Kept::stored(record)) }
    }

    fn with(kept: Kept<SandboxRecord>) -> Self {
        Self {
            kept,
            task: Task::None,
            is_left: false,
            stops: Vec::new(),
            removes: Vec::new(),
            is_stopping: false,
            is_leaving: false,
            is_lost: false,
            is_undone: false,
            why_undone: None,
            retry: Retry::default(),
        }
    }

    pub fn record(&self) -> &Arc<SandboxRecord> {
        self.kept.shown()
    }

    /// Containers may be created and started in it.
    pub fn is_open(&self) -> bool {
        self.kept.is_visible && self.record().is_ready() && !self.is_stopping && !self.is_leaving
    }

    /// Its containers are to have ended.
    pub fn is_closing(&self) -> bool {
        self.kept.is_visible && !self.is_open()
    }

    pub fn stop(&mut self, call: CallId) {
        self.is_stopping = true;
        self.stops.push(call);
        self.retry.now();
    }

    /// Its process namespace has ended.
    pub fn lost(&mut self) {
        self.is_lost = true;
        self.is_stopping = true;
    }

    pub fn remove(&mut self, call: CallId) {
        self.is_stopping = true;
        self.is_leaving = true;
        self.removes.push(call);
        self.retry.now();
    }

    pub fn job_done(&mut self, result: Result<JobReply, JobFault>, ctx: &mut Context) {
        let task = std::mem::replace(&mut self.task, Task::None);
        match (task, result) {
            (Task::Make, Ok(reply)) => {
                let ips = match reply {
                    JobReply::Network(ips) => ips,
                    JobReply::Done
                    | JobReply::Exec(_)
                    | JobReply::Url(_)
                    | JobReply::Image(_)
                    | JobReply::Images(_)
                    | JobReply::Stats(_) => Vec::new(),
                };
                self.kept.save_in_run(self.in_phase(SandboxPhase::Ready, ips), &mut ctx.out);
            }
            (Task::Make, Err(fault)) => {
                // What was killed may have done anything; all else leaves nothing.
                self.is_left = matches!(fault, JobFault::Died(_));
                self.is_undone = true;
                self.why_undone = Some(of_job(fault));
            }
            (Task::End, Ok(_)) => {
                self.is_left = false;
                self.retry.succeeded();
            }
            (Task::End, Err(fault)) => self.not_ended(&of_job(fault), ctx),
            (Task::None, _) => panic!("the job of a sandbox without a task has ended"),
        }
    }

    /// Who waits for its end is refused. Unless a client asks again, it is tried later.
    fn not_ended(&mut self, fault: &Refusal, ctx: &mut Context) {
        self.retry.failed(ctx.now.boot);
        self.refuse(fault, ctx);
    }

    fn refuse(&mut self, fault: &Refusal, ctx: &mut Context) {
        let answer = Err(fault.clone());
        ctx.calls.answer_all(&mut self.stops, &answer);
        ctx.calls.answer_all(&mut self.removes, &answer);
        if let Some(call) = self.kept.maker.take() {
            let why = self.why_undone.clone().unwrap_or_else(|| fault.clone());
            ctx.calls.answer(call, Err(why));
            // Its id is what a client can end the rest by.
            self.kept.is_visible = self.is_left;
        }
        self.is_stopping = self.is_lost;
        self.is_leaving = false;
    }

    fn in_phase(&self, phase: SandboxPhase, ips: Vec<Box<str>>) -> SandboxRecord {
        SandboxRecord { phase, ips, ..SandboxRecord::clone(self.record()) }
    }

    // ---- the next step ----

    /// Whether [`Self::advance`] needs to know the containers.
    pub fn needs_members(&self) -> bool {
        let is_settled = self.record().phase == SandboxPhase::NotReady && !self.is_leaving;
        self.is_closing() && !is_settled && !self.kept.is_pending() && self.task == Task::None
    }

    /// Does one thing that is to be done now. `false`: there is none.
    pub fn advance(&mut self, members: &Members, ctx: &mut Context) -> bool {
        if self.kept.is_pending() || self.task != Task::None || self.kept.is_erased() {
            return false;
        }
        if let Some((why, next)) = self.kept.take_failure() {
            self.record_not_saved(&why, next.as_deref(), ctx);
            return true;
        }
        if self.is_undone {
            return self.advance_undoing(ctx);
        }
        match self.record().phase {
            SandboxPhase::Making => {
                let record = Box::new(SandboxRecord::clone(self.record()));
                let owner = Owner::Sandbox(record.id.clone());
                ctx.jobs.add(owner, Job::MakeSandbox(record), RUNTIME_SANDBOX_MS);
                self.task = Task::Make;
                self.is_left = true;
                true
            }
            SandboxPhase::Ready => self.advance_ready(ctx),
            SandboxPhase::Stopping => self.advance_stopping(members, ctx),
            SandboxPhase::NotReady => self.advance_stopped(members, ctx),
        }
    }

    /// It is erased: answers all that wait.
    pub fn farewell(&mut self, ctx: &mut Context) {
        let record = Arc::clone(self.record());
        if self.kept.is_visible {
            ctx.note(EventKind::Deleted, &record.id.0, &record.id);
        }
        if let Some(call) = self.kept.maker.take() {
            let removed = || refusal(Code::Cancelled, "the sandbox is being removed");
            ctx.calls.answer(call, Err(self.why_undone.take().unwrap_or_else(removed)));
        }
        ctx.calls.answer_all(&mut self.stops, &Ok(Reply::Done));
        ctx.calls.answer_all(&mut self.removes, &Ok(Reply::Done));
    }

    fn record_not_saved(&mut self, why: &str, next: Option<&SandboxRecord>, ctx: &mut Context) {
        let fault = not_saved(why);
        let was_making = !self.is_undone && self.record().phase == SandboxPhase::Making;
        if was_making {
            self.is_undone = true;
            self.why_undone = Some(fault);
        } else {
            // A phase `NotReady` that is not on the disk only costs another EndSandbox.
            if next.is_some_and(|next| next.phase == SandboxPhase::NotReady) {
                self.is_left = true;
            }
            self.not_ended(&fault, ctx);
        }
    }

    fn advance_undoing(&mut self, ctx: &mut Context) -> bool {
        if !self.retry.is_due(ctx.now.boot) {
            return false;
        }
        if self.is_left {
            self.end(ctx);
        } else {
            self.kept.erase();
        }
        true
    }

    fn advance_ready(&mut self, ctx: &mut Context) -> bool {
        if let Some(call) = self.kept.maker.take() {
            let id = self.record().id.clone();
            ctx.calls.answer(call, Ok(Reply::Sandbox(id.clone())));
            ctx.note(EventKind::Created, &id.0, &id);
            ctx.note(EventKind::Started, &id.0, &id);
            self.kept.is_visible = true;
            return true;
        }
        if !self.is_stopping || !self.retry.is_due(ctx.now.boot) {
            return false;
        }
        self.retry.now();
        // Saved before anything is taken down: one that is shown as ready is whole.
        let ips = self.record().ips.clone();
        self.kept.save(self.in_phase(SandboxPhase::Stopping, ips));
        true
    }

    fn advance_stopping(&mut self, members: &Members, ctx: &mut Context) -> bool {
        if self.is_waiting_for(members.live, members, ctx) {
            return false;
        }
        if !self.retry.is_due(ctx.now.boot) {
            return false;
        }
        if self.is_left {
            self.end(ctx);
        } else {
            self.kept.save(self.in_phase(SandboxPhase::NotReady, Vec::new()));
        }
        true
    }

    fn advance_stopped(&mut self, members: &Members, ctx: &mut Context) -> bool {
        if self.is_left && self.retry.is_due(ctx.now.boot) {
            self.end(ctx);
            return true;
        }
        if !self.stops.is_empty() {
            ctx.calls.answer_all(&mut self.stops, &Ok(Reply::Done));
            return true;
        }
        if !self.is_leaving || self.is_waiting_for(members.count, members, ctx) {
            return false;
        }
        if !self.retry.is_due(ctx.now.boot) {
            return false;
        }
        self.kept.erase();
        true
    }

    /// Whether it has to wait for `count` of its containers. If one of them has failed, who waits
    /// is refused.
    fn is_waiting_for(&mut self, count: usize, members: &Members, ctx: &mut Context) -> bool {
        let calls = !self.stops.is_empty() || !self.removes.is_empty();
        // Its removal had failed, and its fault was forgotten with a later call.
        let has_failed = members.fault.is_some() || self.is_leaving && members.staying > 0;
        if count > 0 && calls && has_failed {
            let unnamed = || refusal(Code::Unknown, "a container of the sandbox was not removed");
            self.refuse(&members.fault.clone().unwrap_or_else(unnamed), ctx);
        }
        count > 0
    }

    fn end(&mut self, ctx: &mut Context) {
        let record = Box::new(SandboxRecord::clone(self.record()));
        let owner = Owner::Sandbox(record.id.clone());
        ctx.jobs.add(owner, Job::EndSandbox(record), RUNTIME_SANDBOX_MS);
        self.task = Task::End;
    }

    /// When to look again if nothing happens.
    pub fn wake_at(&self) -> Option<Instant> {
        let is_open = self.is_undone || self.is_left || self.is_leaving;
        let is_idle = self.kept.is_pending() || self.task != Task::None;
        let is_ready = self.record().phase == SandboxPhase::Ready;
        let is_resting = !self.is_undone && is_ready && !self.is_stopping;
        self.retry.at().filter(|_| is_open && !is_idle && !is_resting)
    }
}
