//! Jobs of the cloud for the node itself: images are pulled before a pod needs them (spec
//! `servicebus-router-tasks`, part C).
//!
//! ```text
//!  request ─▶ row ─saved─▶ Check ─▶ row ─saved─▶ Pull ─▶ row ─saved─▶ Finished
//!                            └─ report ─────────────┴─ report ──▶ cloud
//! ```
//!
//! Intended behaviour: an action begins once its request is durable, and its report is sent once
//! that is durable too, so after a power cut an action is done again but never reported with two
//! results. Nobody answers a report: it counts as received once a request that was sent after it is
//! answered, and is sent again over the next link otherwise. The reports of a job have a pause
//! between them: CloudCore takes those that come together in any order, and shows the last one that
//! it has taken. One job works at a time. Pods come first: a job gives its pull up if a pod waits
//! for the room. The images of a job stay until a container has used them, or for some days.
//!
//! The cloud of v1alpha2 sends one message and gets a report of each action; that of v1alpha1 asks
//! for each stage. What is asked for twice is done once and reported twice.
//!
//! If we crash here: the rows are read, and the action under way begins again.

mod pull;
mod run;
mod upgrade;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::calls::Calls;
use super::event::{Action, CallId, JobId, Out, Severity};
use super::image::Images;
use super::jobs::Jobs;
use super::objects::Objects;
use super::recorder::Recorder;
use super::time::{Instant, Now};
use crate::limits::{
    NODE_JOB_KEPT_MS, NODE_JOB_REASON_BYTES_MAX, NODE_JOB_REPORT_MS, NODE_JOBS_MAX,
};
use crate::model::cri::{CallError, Reply};
use crate::model::job::{JobError, JobReply};
use crate::model::node_job::{
    Generation, ImageResult, JobAction, JobDetail, JobKey, JobKind, JobMetrics, JobOverview,
    JobReport, JobRequest, JobSpec, JobStage, PrePullSpec, StoredJob, UpgradeProgress, UpgradeSpec,
};
use crate::model::recorded_event::{EventType, Object};
use pull::StepEnd;
use run::Run;

/// All jobs of the node.
#[derive(Debug)]
pub struct NodeJobs {
    node: Box<str>,
    /// Repositories of the images of upgrades that need no digest.
    upgrade_repositories: Vec<Box<str>>,
    /// In the order of their arrival.
    jobs: Vec<Job>,
    /// The work on the job that is under way.
    run: Option<Run>,
    /// Rows to be deleted.
    removed: VecDeque<JobKey>,
    /// For the next step: log lines, and events of the node.
    messages: Vec<Message>,
    /// The images to be kept have changed.
    is_kept_stale: bool,
    /// Numbers the runs of jobs.
    last_run: u64,
    metrics: JobMetrics,
}

#[derive(Debug)]
struct Job {
    stored: StoredJob,
    /// Of this run: another request of the same name is another run.
    run: u64,
    row: Row,
    /// Reports that were handed over in this session, and the session's number of the last one.
    sent: usize,
    last_sent: u64,
    /// When the next report may be handed over.
    report_at: Instant,
    /// When it was received or read from the store.
    since: Instant,
}

/// Whether a job's row is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Due,
    BeingSaved,
    Saved,
}

#[derive(Debug)]
struct Message {
    severity: Severity,
    /// For an event of the node.
    reason: Option<&'static str>,
    text: String,
}

/// What the work on jobs needs.
pub struct JobsContext<'a> {
    pub calls: &'a mut Calls,
    pub images: &'a mut Images,
    /// Those of the cloud.
    pub objects: &'a Objects,
    pub jobs: &'a mut Jobs,
    pub recorder: &'a mut Recorder,
    /// The path of the runtime's images, if it is known.
    pub image_fs: Option<&'a str>,
    pub out: &'a mut Out,
}

/// What the work on jobs has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// There is nothing to do now.
    Waits,
    /// An action has ended.
    Ended,
    /// A pull was given up for a pod.
    GaveWay,
}

/// Why a row was not taken into the store.
#[derive(Debug)]
pub enum NotSaved {
    /// To be tried again.
    Later,
    Refused(String),
}

impl Job {
    fn new(stored: StoredJob, run: u64, row: Row, now: Instant) -> Self {
        Self { stored, run, row, sent: 0, last_sent: 0, report_at: now, since: now }
    }

    fn doing(&self) -> Option<JobAction> {
        match self.stored.stage {
            JobStage::Doing(action) => Some(action),
            JobStage::Waiting | JobStage::Finished(_) => None,
        }
    }

    fn is_finished(&self) -> bool {
        matches!(self.stored.stage, JobStage::Finished(_))
    }

    fn is_confirmed(&self) -> bool {
        self.stored.confirmed == self.stored.reports.len()
    }

    fn awaits_confirmation(&self) -> bool {
        let StoredJob { spec: JobSpec::Upgrade(spec), stage, upgrade, reports, .. } = &self.stored
        else {
            return false;
        };
        // That of v1alpha1 also waits between two stages.
        let is_asked = reports.last().is_some_and(|it| it.action == JobAction::WaitingConfirmation);
        *stage == JobStage::Waiting
            && spec.require_confirmation
            && !upgrade.is_confirmed
            && is_asked
    }

    /// The trial of its program has begun, or is about to.
    fn is_tried(&self) -> bool {
        !self.stored.upgrade.program.is_empty() && !self.is_finished()
    }

    /// The reports from this one on are sent again.
    fn repeat_from(&mut self, index: usize) {
        self.sent = self.sent.min(index);
        self.stored.confirmed = self.stored.confirmed.min(index);
    }

    /// Nothing else is done with it, and its images need not be kept any longer.
    fn is_over(&self, now: Now) -> bool {
        let is_old = now.boot.since_ms(self.since) > NODE_JOB_KEPT_MS;
        match self.stored.stage {
            JobStage::Doing(_) => false,
            JobStage::Waiting => is_old,
            JobStage::Finished(at) => {
                let age_s = now.timestamp().zip(at).map_or(0, |(now, at)| now.0 - at.0);
                self.is_confirmed() && (is_old || age_s > (NODE_JOB_KEPT_MS / 1_000) as i64)
            }
        }
    }
}

impl NodeJobs {
    /// `upgrade_repositories`: `modules.taskManager.upgradeRepositories`.
    pub fn new(node: &str, upgrade_repositories: &[Box<str>]) -> Self {
        Self {
            node: node.into(),
            upgrade_repositories: upgrade_repositories.to_vec(),
            jobs: Vec::new(),
            run: None,
            removed: VecDeque::new(),
            messages: Vec::new(),
            is_kept_stale: false,
            last_run: 0,
            metrics: JobMetrics::default(),
        }
    }

    /// Takes the jobs of the store.
    pub fn load(&mut self, now: Instant, stored: impl Iterator<Item = StoredJob>) {
        for stored in stored.filter(|it| it.key.node == self.node).take(NODE_JOBS_MAX) {
            self.last_run += 1;
            self.jobs.push(Job::new(stored, self.last_run, Row::Saved, now));
        }
        self.is_kept_stale = true;
    }

    // ---- requests ----

    /// Takes a request of the cloud; returns the answer if it is refused.
    pub fn request(&mut self, now: Now, request: JobRequest) -> Option<JobReport> {
        let JobRequest { key, action, spec } = request;
        let spec = match spec {
            Ok(spec) => spec,
            Err(why) => return Some(self.refuse(now, key, action, &why)),
        };
        if key.node != self.node {
            let why = format!("this node is {}", self.node);
            return Some(self.refuse(now, key, action, &why));
        }
        if let Some(why) = unsupported(key.kind) {
            return Some(self.refuse(now, key, action, why));
        }
        // The flow of an upgrade has one beginning, whatever the cloud of v1alpha2 asks for.
        let action = match (key.generation, key.kind) {
            (Generation::V1Alpha2, JobKind::Upgrade) => JobAction::Check,
            _ => action,
        };
        let index = self.jobs.iter().position(|job| job.stored.key == key);
        let spec = match index {
            Some(index) => completed(&self.jobs[index].stored.spec, spec),
            None => spec,
        };
        if key.kind == JobKind::Upgrade {
            self.replace_waiting(now, &key);
        }
        match index {
            Some(index) if self.is_repeated(index, action, &spec) => {}
            Some(index) => self.begin_again(now, index, action, spec),
            None => {
                if !self.make_room() {
                    let why = format!("got more than {NODE_JOBS_MAX} jobs at a time");
                    return Some(self.refuse(now, key, action, &why));
                }
                let (stage, reports) = (JobStage::Doing(action), Vec::new());
                let upgrade = UpgradeProgress::default();
                let stored = StoredJob { key, spec, stage, reports, confirmed: 0, upgrade };
                self.last_run += 1;
                self.log(Severity::Info, &stored.key, action.name());
                self.jobs.push(Job::new(stored, self.last_run, Row::Due, now.boot));
                self.is_kept_stale = true;
            }
        }
        None
    }

    /// The cloud has asked for this before, and gets the reports again if there are any.
    fn is_repeated(&mut self, index: usize, action: JobAction, spec: &JobSpec) -> bool {
        let job = &mut self.jobs[index];
        if job.is_tried() {
            // Nothing changes what runs already.
            if job.stored.key.generation == Generation::V1Alpha2 {
                job.repeat_from(0);
            }
            return true;
        }
        if job.is_finished() && job.is_confirmed() || job.stored.spec != *spec {
            return false;
        }
        match job.stored.key.generation {
            Generation::V1Alpha2 => {
                job.repeat_from(0);
                true
            }
            Generation::V1Alpha1 => {
                let reported = job.stored.reports.iter().position(|it| it.action == action);
                if let Some(reported) = reported {
                    job.repeat_from(reported);
                }
                reported.is_some() || job.stored.stage == JobStage::Doing(action)
            }
        }
    }

    /// Another run, or the next stage of v1alpha1.
    fn begin_again(&mut self, now: Now, index: usize, action: JobAction, spec: JobSpec) {
        self.last_run += 1;
        let job = &mut self.jobs[index];
        let is_next_stage =
            job.stored.key.generation == Generation::V1Alpha1 && action != JobAction::Init;
        if !is_next_stage || job.stored.reports.iter().any(|it| it.action == action) {
            job.stored.reports.clear();
            (job.stored.confirmed, job.sent) = (0, 0);
        }
        if !is_next_stage {
            job.stored.upgrade = UpgradeProgress::default();
        }
        job.stored.spec = spec;
        job.stored.stage = JobStage::Doing(action);
        (job.run, job.row, job.since) = (self.last_run, Row::Due, now.boot);
        let key = job.stored.key.clone();
        self.log(Severity::Info, &key, action.name());
        self.is_kept_stale = true;
    }

    /// A node has one upgrade at a time that waits for somebody: a newer one replaces it.
    fn replace_waiting(&mut self, now: Now, by: &JobKey) {
        let is_replaced = |job: &&mut Job| {
            let StoredJob { key, stage, .. } = &job.stored;
            key.kind == JobKind::Upgrade && *stage == JobStage::Waiting && key != by
        };
        for job in self.jobs.iter_mut().filter(is_replaced) {
            let key = job.stored.key.clone();
            let text = format!("job={key} is replaced by {by}");
            let why = format!("replaced by {by}");
            job.stored.stage = JobStage::Finished(now.timestamp());
            job.stored.reports.push(refusal(now, key, JobAction::BackUp, &why));
            job.row = Row::Due;
            self.metrics.failed += 1;
            self.messages.push(Message { severity: Severity::Info, reason: None, text });
        }
    }

    /// Somebody at the node confirms the upgrade that waits for it, if there is one.
    pub fn confirm_upgrade(&mut self) {
        let waits = self.jobs.iter_mut().find(|job| job.awaits_confirmation());
        let Some(job) = waits else { return };
        job.stored.upgrade.is_confirmed = true;
        job.stored.stage = JobStage::Doing(match job.stored.key.generation {
            Generation::V1Alpha2 => JobAction::BackUp,
            // Its cloud asks for the next stage once the first one has succeeded.
            Generation::V1Alpha1 => JobAction::Init,
        });
        job.row = Row::Due;
        let key = job.stored.key.clone();
        self.log(Severity::Info, &key, "confirmed");
    }

    /// The upgrade that waits for somebody to confirm it.
    pub fn awaits_confirmation(&self) -> Option<&JobKey> {
        Some(&self.jobs.iter().find(|job| job.awaits_confirmation())?.stored.key)
    }

    /// Removes the oldest finished job if there are too many.
    fn make_room(&mut self) -> bool {
        if self.jobs.len() < NODE_JOBS_MAX {
            return true;
        }
        let is_done = |job: &Job| job.is_finished() && job.is_confirmed();
        let Some(index) = self.jobs.iter().position(is_done) else { return false };
        self.remove(index);
        true
    }

    fn remove(&mut self, index: usize) {
        let job = self.jobs.remove(index);
        self.removed.push_back(job.stored.key);
        self.is_kept_stale = true;
    }

    fn refuse(&mut self, now: Now, key: JobKey, action: JobAction, why: &str) -> JobReport {
        self.metrics.refused += 1;
        let text = format!("job={key} refused: {why}");
        self.messages.push(Message {
            severity: Severity::Warn,
            reason: Some("NodeJobRefused"),
            text,
        });
        refusal(now, key, action, why)
    }

    fn log(&mut self, severity: Severity, key: &JobKey, what: &str) {
        let text = format!("job={key} {what}");
        self.messages.push(Message { severity, reason: None, text });
    }

    // ---- rows ----

    /// Calls `save` for each row that is due; it may be called again before it is durable.
    pub fn save_rows(
        &mut self,
        now: Now,
        mut save: impl FnMut(&StoredJob) -> Result<(), NotSaved>,
    ) -> Vec<JobReport> {
        let mut refused = Vec::new();
        for job in self.jobs.iter_mut().filter(|job| job.row == Row::Due) {
            match save(&job.stored) {
                Ok(()) => job.row = Row::BeingSaved,
                Err(NotSaved::Later) => {}
                Err(NotSaved::Refused(why)) => refused.push((job.run, why)),
            }
        }
        // Without a row it would be lost with the next power cut.
        let mut reports = Vec::new();
        for (run, why) in refused {
            let index = self.jobs.iter().position(|job| job.run == run).expect("just seen");
            let StoredJob { key, stage, .. } = self.jobs[index].stored.clone();
            let action = match stage {
                JobStage::Doing(action) => action,
                JobStage::Waiting | JobStage::Finished(_) => last_action(key.kind),
            };
            self.remove(index);
            let why = format!("it cannot be stored: {why}");
            reports.push(self.refuse(now, key, action, &why));
        }
        reports
    }

    /// Calls `delete` for each row that is to be deleted, until it returns `false`.
    pub fn delete_rows(&mut self, mut delete: impl FnMut(&JobKey) -> bool) {
        while let Some(key) = self.removed.front() {
            // A new job of the same name has the row.
            let is_used = self.jobs.iter().any(|job| job.stored.key == *key);
            if !is_used && !delete(key) {
                return;
            }
            self.removed.pop_front();
        }
    }

    /// A save has ended: the rows that are not `pending` are durable. Returns whether there are
    /// any.
    pub fn rows_saved(&mut self, pending: impl Fn(&JobKey) -> bool) -> bool {
        let mut any = false;
        for job in self.jobs.iter_mut().filter(|job| job.row == Row::BeingSaved) {
            if !pending(&job.stored.key) {
                job.row = Row::Saved;
                any = true;
            }
        }
        any
    }

    // ---- reports ----

    /// The next report that may be sent, and the run that it belongs to.
    pub fn next_report(&self, now: Now) -> Option<(u64, JobReport)> {
        let mut reports = self.jobs.iter().filter(|job| job.report_at <= now.boot);
        reports.find_map(|job| Some((job.run, report_of(job, now)?)))
    }

    /// The next report of this run was handed over, as this message of the session.
    pub fn sent(&mut self, now: Instant, run: u64, number: u64) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.run == run) {
            job.sent += 1;
            job.last_sent = number;
            job.report_at = now.plus_ms(NODE_JOB_REPORT_MS);
        }
    }

    /// There is another session: what is not confirmed is sent again.
    pub fn link_up(&mut self) {
        for job in &mut self.jobs {
            job.sent = job.stored.confirmed;
        }
    }

    /// The cloud has answered this message of the session, so it has got all before it.
    pub fn confirm(&mut self, number: u64) {
        for job in self.jobs.iter_mut().filter(|job| job.sent > job.stored.confirmed) {
            if job.last_sent < number {
                (job.stored.confirmed, job.row) = (job.sent, Row::Due);
            }
        }
    }

    // ---- work ----

    /// Does what can be done now. Returns whether it gave up a pull for a pod that waits for room.
    pub fn step(&mut self, now: Now, context: &mut JobsContext<'_>) -> bool {
        while let Some(index) = self.jobs.iter().position(|job| job.is_over(now)) {
            self.remove(index);
        }
        // Where an action has ended, the one of another job may begin.
        let mut progress = self.step_run(now, context);
        while progress == Progress::Ended {
            progress = self.step_run(now, context);
        }
        for Message { severity, reason, text } in std::mem::take(&mut self.messages) {
            if let Some(reason) = reason {
                let kind = match severity {
                    Severity::Warn | Severity::Error => EventType::Warning,
                    Severity::Debug | Severity::Info => EventType::Normal,
                };
                let node = Object::node(&self.node);
                context.recorder.add(now, node, kind, reason, text.clone(), context.out);
            }
            context.out.push(Action::Log(severity, text));
        }
        progress == Progress::GaveWay
    }

    fn step_run(&mut self, now: Now, context: &mut JobsContext<'_>) -> Progress {
        let is_current = |run: &Run| {
            let job = self.jobs.iter().find(|job| job.run == run.number());
            job.is_some_and(|job| matches!(job.stored.stage, JobStage::Doing(_)))
        };
        if let Some(mut run) = self.run.take_if(|run| !is_current(run)) {
            run.give_up(now, context);
        }
        if self.run.is_none() {
            let due = |job: &&Job| job.row == Row::Saved && job.doing().is_some();
            // What has become of a trial is known at once.
            let tried = self.jobs.iter().filter(due).find(|job| job.is_tried());
            let Some(job) = tried.or_else(|| self.jobs.iter().find(due)) else {
                return Progress::Waits;
            };
            let action = job.doing().expect("it is due");
            let repositories = &self.upgrade_repositories;
            self.run = Some(Run::begin(now, job.run, action, &job.stored, repositories));
        }
        let run = self.run.as_mut().expect("just begun");
        if run.give_way(now, context) {
            return Progress::GaveWay;
        }
        let number = run.number();
        let is_saved = self.jobs.iter().any(|job| job.run == number && job.row == Row::Saved);
        match run.step(now, is_saved, context) {
            None => Progress::Waits,
            Some(StepEnd::Announced(program)) => {
                let job = self.jobs.iter_mut().find(|job| job.run == number);
                let job = job.expect("it is current");
                job.stored.upgrade.program = program;
                job.stored.upgrade.from = upgrade::VERSION.into();
                job.row = Row::Due;
                let key = job.stored.key.clone();
                self.log(Severity::Info, &key, "its trial begins");
                Progress::Waits
            }
            Some(StepEnd::Ended(result, detail)) => {
                self.run = None;
                self.end_action(now, number, result, detail);
                Progress::Ended
            }
        }
    }

    /// The action of this run has ended.
    fn end_action(&mut self, now: Now, number: u64, result: Result<(), String>, detail: JobDetail) {
        let job = self.jobs.iter_mut().find(|job| job.run == number).expect("it is current");
        let JobStage::Doing(action) = job.stored.stage else { panic!("only actions are run") };
        let key = job.stored.key.clone();
        let action = match &job.stored.spec {
            JobSpec::Upgrade(spec)
                if action == JobAction::Init
                    && spec.require_confirmation
                    && !job.stored.upgrade.is_confirmed =>
            {
                JobAction::WaitingConfirmation
            }
            _ => action,
        };
        job.stored.stage = match next_stage(&job.stored, action, result.is_ok()) {
            JobStage::Finished(_) => JobStage::Finished(now.timestamp()),
            next => next,
        };
        let is_finished = job.is_finished();
        let result = result.map_err(|why| cut(&why));
        let outcome = result.as_ref().map_or_else(|why| format!("failed: {why}"), |()| "ok".into());
        let (is_ok, at) = (result.is_ok(), now.timestamp());
        job.stored.reports.push(JobReport { key: key.clone(), action, result, at, detail });
        job.row = Row::Due;
        let (severity, reason) = match (is_ok, is_finished) {
            (false, _) => (Severity::Warn, Some("NodeJobFailed")),
            (true, true) => (Severity::Info, Some("NodeJobCompleted")),
            (true, false) => (Severity::Info, None),
        };
        self.metrics.failed += u64::from(is_finished && !is_ok);
        self.metrics.succeeded += u64::from(is_finished && is_ok);
        let text = format!("job={key} {}: {outcome}", action.name());
        self.messages.push(Message { severity, reason, text });
    }

    /// Takes the answer to a call.
    pub fn answer(&mut self, now: Instant, call: CallId, result: Result<Reply, CallError>) {
        if let Some(run) = &mut self.run {
            run.answer(now, call, result);
        }
    }

    /// Takes the result of a job on the system.
    pub fn job_done(&mut self, job: JobId, result: Result<JobReply, JobError>) {
        if let Some(run) = &mut self.run {
            run.job_done(job, result);
        }
    }

    /// When the work goes on if nothing happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        self.run.as_ref().and_then(Run::wake_at)
    }

    /// When the next report may be sent.
    pub fn report_at(&self, now: Now) -> Option<Instant> {
        let jobs = self.jobs.iter().filter(|job| report_of(job, now).is_some());
        jobs.map(|job| job.report_at.max(now.boot)).min()
    }

    // ---- for others ----

    /// Secrets that unfinished jobs name, as `namespace/name`.
    pub fn image_secret(spec: &StoredJob) -> Option<(&str, &str)> {
        match (&spec.spec, spec.stage) {
            (JobSpec::PrePull(pull), JobStage::Doing(_) | JobStage::Waiting) => {
                pull.image_secret.split_once('/')
            }
            _ => None,
        }
    }

    /// The images that must not be collected unless they were used since; `None`: as before.
    pub fn take_kept_images(&mut self) -> Option<Vec<(Box<str>, Instant)>> {
        if !std::mem::take(&mut self.is_kept_stale) {
            return None;
        }
        let images = self.jobs.iter().filter_map(|job| match &job.stored.spec {
            JobSpec::PrePull(spec) => {
                Some(spec.images.iter().map(|name| (name.clone(), job.since)))
            }
            JobSpec::Upgrade(_) | JobSpec::Checks(_) | JobSpec::ConfigUpdate => None,
        });
        Some(images.flatten().collect())
    }

    /// Whether a job is known that upgrades edged: its program comes out of the runtime's images.
    pub fn has_upgrade(&self) -> bool {
        self.jobs.iter().any(|job| matches!(job.stored.spec, JobSpec::Upgrade(_)))
    }

    /// All jobs in short.
    pub fn overview(&self) -> Vec<JobOverview> {
        self.jobs.iter().map(|job| self.overview_of(job)).collect()
    }

    fn overview_of(&self, job: &Job) -> JobOverview {
        let StoredJob { key, spec, stage, reports, confirmed, .. } = &job.stored;
        let run = self.run.as_ref().filter(|run| run.number() == job.run);
        let stage = match stage {
            JobStage::Waiting => "waiting",
            JobStage::Doing(action) => action.name(),
            JobStage::Finished(_) => "finished",
        };
        let all = match spec {
            JobSpec::PrePull(spec) => spec.images.len(),
            JobSpec::Upgrade(_) | JobSpec::Checks(_) | JobSpec::ConfigUpdate => 0,
        };
        let reported = reports.iter().rev().find_map(|report| match &report.detail {
            JobDetail::Images(images) => Some(done(images)),
            JobDetail::Nothing | JobDetail::Versions { .. } => None,
        });
        let confirmation = job
            .awaits_confirmation()
            .then(|| "waits for somebody to confirm it: edged upgrade confirm".to_owned());
        let failure = reports.last().and_then(|report| report.result.as_ref().err());
        JobOverview {
            name: key.to_string(),
            stage: stage.to_owned(),
            images: (run.map(Run::done).or(reported).unwrap_or(0), all),
            trouble: run
                .and_then(Run::trouble)
                .or(confirmation)
                .or(failure.map(ToString::to_string))
                .unwrap_or_default(),
            unconfirmed: reports.len() - confirmed,
        }
    }

    pub fn metrics(&self) -> JobMetrics {
        let open = self.jobs.iter().filter(|job| !job.is_finished()).count() as u64;
        JobMetrics { open, ..self.metrics }
    }
}

/// The report of this job that is to be sent next.
fn report_of(job: &Job, now: Now) -> Option<JobReport> {
    let report = job.stored.reports.get(job.sent).filter(|_| job.row == Row::Saved)?;
    // Without a clock it waits: the cloud would take 1970 for a timeout.
    let at = Some(report.at.or(now.timestamp())?);
    Some(JobReport { at, ..report.clone() })
}

fn done(images: &[ImageResult]) -> usize {
    images.iter().filter(|image| image.result.is_ok()).count()
}

/// The cloud of v1alpha1 says at the first stage what is to be done, and not with the checks that
/// follow: the job still has it.
fn completed(known: &JobSpec, spec: JobSpec) -> JobSpec {
    match (known, spec) {
        (JobSpec::PrePull(known), JobSpec::Checks(check_items)) => {
            JobSpec::PrePull(PrePullSpec { check_items, ..known.clone() })
        }
        (JobSpec::Upgrade(known), JobSpec::Checks(check_items)) => {
            JobSpec::Upgrade(UpgradeSpec { check_items, ..known.clone() })
        }
        (_, spec) => spec,
    }
}

/// The report of a refusal.
pub fn refusal(now: Now, key: JobKey, action: JobAction, why: &str) -> JobReport {
    let (result, at) = (Err(cut(why)), Some(now.timestamp().unwrap_or_default()));
    JobReport { key, action, result, at, detail: JobDetail::Nothing }
}

/// Why such a job cannot be done here.
fn unsupported(kind: JobKind) -> Option<&'static str> {
    match kind {
        JobKind::PrePull | JobKind::Upgrade => None,
        JobKind::ConfigUpdate => Some(
            "edged does not change its configuration by jobs: write edgecore.yaml on the node and \
             restart edged",
        ),
    }
}

/// The action of which the report ends a job.
fn last_action(kind: JobKind) -> JobAction {
    match kind {
        JobKind::PrePull => JobAction::Pull,
        JobKind::Upgrade => JobAction::Upgrade,
        JobKind::ConfigUpdate => JobAction::Update,
    }
}

/// What follows an action. The cloud of v1alpha1 asks for the next stage by itself.
fn next_stage(job: &StoredJob, action: JobAction, is_ok: bool) -> JobStage {
    let StoredJob { key, spec, .. } = job;
    if key.generation == Generation::V1Alpha2 && action == JobAction::Upgrade && !is_ok {
        return JobStage::Doing(JobAction::RollBack);
    }
    if !is_ok || action == last_action(key.kind) {
        return JobStage::Finished(None);
    }
    match (key.generation, key.kind) {
        (Generation::V1Alpha1, _) => JobStage::Waiting,
        (Generation::V1Alpha2, JobKind::PrePull) => JobStage::Doing(JobAction::Pull),
        (Generation::V1Alpha2, JobKind::Upgrade) => match (action, spec) {
            (JobAction::Check, _) => JobStage::Doing(JobAction::WaitingConfirmation),
            (JobAction::WaitingConfirmation, JobSpec::Upgrade(spec))
                if spec.require_confirmation =>
            {
                JobStage::Waiting
            }
            (JobAction::WaitingConfirmation, _) => JobStage::Doing(JobAction::BackUp),
            (JobAction::BackUp, _) => JobStage::Doing(JobAction::Upgrade),
            _ => JobStage::Finished(None),
        },
        (Generation::V1Alpha2, JobKind::ConfigUpdate) => JobStage::Finished(None),
    }
}

/// A reason that fits into a report.
fn cut(why: &str) -> Box<str> {
    let mut end = why.len().min(NODE_JOB_REASON_BYTES_MAX);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    why[..end].into()
}
