//! The actions of an upgrade of edged itself (spec `servicebus-router-tasks` sections 18 and 21).
//!
//! ```text
//!  Check:    usage ─▶ slots: nothing is tried, there is room ─▶ image pulled
//!  Upgrade:  image pulled ─▶ its digests ─▶ program taken, signature verified ─▶ row ─saved─▶
//!            trial begun ─▶ edged ends; what runs then goes on here:
//!            slots ─▶ this program, tried ─▶ looked at again
//!                  ├▶ this program, trusted ─▶ done
//!                  └▶ another program ─▶ failed, with the reason of `edged-run`
//! ```
//!
//! Which program runs is known by its digest, never by its version. If we crash here: before the
//! row is saved the action begins again; afterwards the slots say what has become of the trial.

use super::JobsContext;
use super::pull::{Check, End, Pull, StepEnd};
use crate::agent::calls::{Class, Owner};
use crate::agent::event::{Action, CallId, JobId};
use crate::agent::jobs::JobOwner;
use crate::agent::time::{Instant, Now};
use crate::limits::{
    UPGRADE_LOOK_MS, UPGRADE_LOOKS_MAX, UPGRADE_RESTART_MS, UPGRADE_RETRIES, UPGRADE_SPACE_PROGRAMS,
};
use crate::model::cri::{CallError, Image, Reply, Request};
use crate::model::image::{ImageName, is_sha256};
use crate::model::job::{JobError, JobReply, JobSpec, Slots, Trial, UpgradeReply, UpgradeStep};
use crate::model::node_job::{JobDetail, PrePullSpec, UpgradeProgress, UpgradeSpec};

/// The version of this edged, as reports name it.
pub(super) const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// The image of an upgrade, if this node takes it: by digest, or of one of these repositories.
pub(super) fn image_of(spec: &UpgradeSpec, repositories: &[Box<str>]) -> Result<Box<str>, String> {
    let UpgradeSpec { version, image, digests, image_digest, .. } = spec;
    if !is_version(version) {
        return Err(format!("got the version {version:?}, expected one such as v1.2.3"));
    }
    if image.is_empty() {
        return Err("got no image, expected the repository of edged's images".to_owned());
    }
    let wrong = |why: &dyn std::fmt::Display| format!("got the image {image:?}: {why}");
    let name = ImageName::parse(image).map_err(|why| wrong(&why))?;
    let of_machine = if cfg!(target_arch = "x86_64") {
        &digests.amd64
    } else if cfg!(target_arch = "aarch64") {
        &digests.arm64
    } else {
        image_digest
    };
    let given = [name.digest.as_ref(), Some(of_machine), Some(image_digest)];
    let digest = given.into_iter().flatten().find(|digest| !digest.is_empty());
    let repository = name.repository();
    if let Some(digest) = digest {
        if !is_sha256(digest) {
            return Err(wrong(&format_args!("got the digest {digest:?}, expected sha256:…")));
        }
        return Ok(format!("{repository}@{digest}").into());
    }
    let is_allowed = |allowed: &str| {
        ImageName::parse(allowed).is_ok_and(|allowed| allowed.repository() == repository)
    };
    if !repositories.iter().any(|it| is_allowed(it)) {
        return Err(wrong(
            &"expected a digest, or a repository of modules.taskManager.upgradeRepositories of \
              this node's edgecore.yaml",
        ));
    }
    let tag = name.tag.as_deref().unwrap_or(version);
    Ok(format!("{repository}:{tag}").into())
}

/// `vN.N.N`, and perhaps `-` with letters, digits, `_`, `.` and `-` (KubeEdge 1.23.1).
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else { return false };
    let (numbers, suffix) = rest.split_once('-').unwrap_or((rest, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    let is_of_suffix = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'.' | b'-');
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && !suffix.is_empty()
        && suffix.bytes().all(is_of_suffix)
}

fn pull(now: Now, image: &str) -> Pull {
    let images = vec![image.into()];
    let retry_times = UPGRADE_RETRIES;
    Pull::new(now, &PrePullSpec { images, retry_times, ..PrePullSpec::default() })
}

/// A job on the system.
#[derive(Debug, Default)]
struct Work {
    job: Option<JobId>,
    result: Option<Result<JobReply, JobError>>,
}

impl Work {
    /// Begins it unless it is begun; returns its result once.
    fn step(
        &mut self,
        now: Now,
        step: impl FnOnce() -> UpgradeStep,
        context: &mut JobsContext<'_>,
    ) -> Option<Result<UpgradeReply, String>> {
        if self.job.is_none() {
            let spec = JobSpec::Upgrade(step());
            self.job = Some(context.jobs.begin(now, JobOwner::NodeJobs, spec, context.out));
        }
        let result = self.result.take()?;
        *self = Self::default();
        Some(match result {
            Ok(JobReply::Upgrade(reply)) => Ok(reply),
            Ok(other) => panic!("a step of an upgrade cannot answer {other:?}"),
            Err(why) => Err(why.to_string()),
        })
    }

    fn done(&mut self, job: JobId, result: Result<JobReply, JobError>) {
        if self.job == Some(job) {
            self.result = Some(result);
        }
    }

    fn give_up(&self, context: &mut JobsContext<'_>) {
        if let Some(job) = self.job.filter(|_| self.result.is_none()) {
            context.out.push(Action::KillJob(job));
        }
    }
}

fn slots(reply: UpgradeReply) -> Slots {
    match reply {
        UpgradeReply::Slots(slots) => slots,
        other => panic!("a look at the slots cannot answer {other:?}"),
    }
}

// ---- Check ----

/// Whether the node can be upgraded.
#[derive(Debug)]
pub(super) struct Readiness {
    /// `None`: there is nothing to be checked, or it was.
    usage: Option<Check>,
    look: Work,
    /// The slots are as they must be.
    is_ready: bool,
    pub(super) pull: Box<Pull>,
}

impl Readiness {
    pub(super) fn new(now: Now, usage: Option<Check>, image: &str) -> Self {
        Self { usage, look: Work::default(), is_ready: false, pull: Box::new(pull(now, image)) }
    }

    pub(super) fn step(&mut self, now: Now, context: &mut JobsContext<'_>) -> Option<End> {
        if let Some(usage) = &mut self.usage {
            let (result, _) = usage.step(now, context)?;
            self.usage = None;
            if result.is_err() {
                return Some((result, JobDetail::Nothing));
            }
        }
        if !self.is_ready {
            let result = match self.look.step(now, || UpgradeStep::Look, context)? {
                Ok(reply) => is_ready(&slots(reply)),
                Err(why) => Err(why),
            };
            if result.is_err() {
                return Some((result, JobDetail::Nothing));
            }
            self.is_ready = true;
        }
        let (result, _) = self.pull.step(now, context)?;
        Some((result, JobDetail::Nothing))
    }

    pub(super) fn job_done(&mut self, job: JobId, result: Result<JobReply, JobError>) {
        match &mut self.usage {
            Some(usage) => usage.job_done(job, result),
            None => self.look.done(job, result),
        }
    }

    pub(super) fn give_up(&self, now: Now, context: &mut JobsContext<'_>) {
        self.usage.iter().for_each(|usage| usage.give_up(context));
        self.look.give_up(context);
        self.pull.give_up(now, context);
    }
}

fn is_ready(slots: &Slots) -> Result<(), String> {
    if slots.trial != Trial::None {
        return Err("another upgrade is tried: wait until it is trusted or left".to_owned());
    }
    let (free, expected) = (slots.free_bytes, UPGRADE_SPACE_PROGRAMS * slots.program_bytes);
    if free < expected {
        return Err(format!(
            "got {free} bytes free where edged-run has its slots, expected {expected}"
        ));
    }
    Ok(())
}

// ---- Upgrade ----

/// The upgrade itself.
#[derive(Debug)]
pub(super) struct Upgrade {
    image: Box<str>,
    /// The version that it leads to.
    to: Box<str>,
    /// The version that it comes from.
    from: Box<str>,
    state: State,
}

#[derive(Debug)]
enum State {
    Pull(Box<Pull>),
    Find(Option<CallId>),
    Found(Result<Box<Image>, String>),
    Take(Box<Image>, Work),
    /// To see whether the program that was taken runs already.
    Compare(Box<str>, Work),
    /// The row is to name the program before its trial begins.
    Announced(Box<str>),
    Begin(Box<str>, Work),
    Trial(Box<TrialWatch>),
}

/// The trial of this program is watched.
#[derive(Debug)]
struct TrialWatch {
    program: Box<str>,
    look: Work,
    /// When the slots are looked at again.
    look_at: Instant,
    /// When edged is told to end once more if another program is to run.
    restart_at: Instant,
    /// The slots could not be read so many times.
    failures: u32,
    /// Why the trial could not be begun, as far as is known.
    trouble: Option<String>,
    /// The next job tells edged to end.
    is_restart: bool,
}

impl Upgrade {
    pub(super) fn new(now: Now, image: &str, to: &str, progress: &UpgradeProgress) -> Self {
        let UpgradeProgress { program, from, .. } = progress;
        let (state, from) = if program.is_empty() {
            (State::Pull(Box::new(pull(now, image))), VERSION.into())
        } else {
            let watch = TrialWatch::new(now.boot, program.clone(), None);
            (State::Trial(Box::new(watch)), from.clone())
        };
        Self { image: image.into(), to: to.into(), from, state }
    }

    /// The pull under way.
    pub(super) fn pull(&mut self) -> Option<&mut Pull> {
        match &mut self.state {
            State::Pull(pull) => Some(pull),
            _ => None,
        }
    }

    /// `is_saved`: the row is as it was announced.
    pub(super) fn step(
        &mut self,
        now: Now,
        is_saved: bool,
        context: &mut JobsContext<'_>,
    ) -> Option<StepEnd> {
        loop {
            let next = match &mut self.state {
                State::Pull(pull) => match pull.step(now, context)?.0 {
                    Ok(()) => State::Find(None),
                    Err(why) => return Some(self.failed(why)),
                },
                State::Find(Some(_)) => return None,
                State::Find(call @ None) => {
                    if !context.calls.has_room(Class::Work) {
                        return None;
                    }
                    let request = Request::ImageStatus(self.image.clone());
                    *call = Some(context.calls.begin(now, Owner::NodeJobs, request, context.out));
                    return None;
                }
                State::Found(Ok(image)) => State::Take(image.clone(), Work::default()),
                State::Found(Err(why)) => {
                    let why = std::mem::take(why);
                    return Some(self.failed(why));
                }
                State::Take(image, work) => match take(now, image, work, context)? {
                    Ok(program) => State::Compare(program, Work::default()),
                    Err(why) => return Some(self.failed(why)),
                },
                State::Compare(program, work) => {
                    match work.step(now, || UpgradeStep::Look, context)?.map(slots) {
                        Ok(slots) if slots.program == *program => return Some(self.done()),
                        Ok(slots) if slots.trial != Trial::None => {
                            return Some(self.failed("another upgrade is tried".to_owned()));
                        }
                        Ok(_) => {
                            let program = program.clone();
                            self.state = State::Announced(program.clone());
                            return Some(StepEnd::Announced(program));
                        }
                        Err(why) => return Some(self.failed(why)),
                    }
                }
                State::Announced(_) if !is_saved => return None,
                State::Announced(program) => State::Begin(std::mem::take(program), Work::default()),
                State::Begin(program, work) => {
                    let step = || UpgradeStep::Try { program: program.clone() };
                    let trouble = work.step(now, step, context)?.err();
                    let program = std::mem::take(program);
                    // Whatever it says, the slots say what is true.
                    State::Trial(Box::new(TrialWatch::new(now.boot, program, trouble)))
                }
                State::Trial(watch) => {
                    let result = watch.step(now, context)?;
                    return Some(match result {
                        Ok(()) => self.done(),
                        Err(why) => self.failed(why),
                    });
                }
            };
            self.state = next;
        }
    }

    fn versions(&self) -> JobDetail {
        JobDetail::Versions { from: self.from.clone(), to: self.to.clone() }
    }

    fn done(&self) -> StepEnd {
        StepEnd::Ended(Ok(()), self.versions())
    }

    fn failed(&self, why: String) -> StepEnd {
        StepEnd::Ended(Err(why), self.versions())
    }

    pub(super) fn answer(&mut self, now: Instant, call: CallId, result: Result<Reply, CallError>) {
        match &mut self.state {
            State::Pull(pull) => pull.answer(now, call, result),
            State::Find(Some(own)) if *own == call => {
                let image = &self.image;
                self.state = State::Found(match result {
                    Ok(Reply::Image(Some(image))) => Ok(image),
                    Ok(Reply::Image(None)) => Err(format!("{image} was removed again")),
                    Ok(other) => panic!("ImageStatus cannot answer {}", other.kind()),
                    Err(why) => Err(format!("{image}: {why}")),
                });
            }
            _ => {}
        }
    }

    pub(super) fn job_done(&mut self, job: JobId, result: Result<JobReply, JobError>) {
        match &mut self.state {
            State::Take(_, work) | State::Compare(_, work) | State::Begin(_, work) => {
                work.done(job, result);
            }
            State::Trial(watch) => watch.look.done(job, result),
            State::Pull(_) | State::Find(_) | State::Found(_) | State::Announced(_) => {}
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        match &self.state {
            State::Pull(pull) => pull.wake_at(),
            State::Trial(watch) => watch.look.job.is_none().then_some(watch.look_at),
            _ => None,
        }
    }

    /// What it waits for.
    pub(super) fn trouble(&self) -> Option<String> {
        match &self.state {
            State::Pull(pull) => pull.trouble(),
            State::Trial(_) => Some("its trial goes on".to_owned()),
            _ => None,
        }
    }

    pub(super) fn give_up(&self, now: Now, context: &mut JobsContext<'_>) {
        match &self.state {
            State::Pull(pull) => pull.give_up(now, context),
            State::Find(Some(call)) => context.calls.cancel(now, *call, context.out),
            State::Take(_, work) | State::Compare(_, work) => work.give_up(context),
            State::Trial(watch) => watch.look.give_up(context),
            // A trial that begins is not broken off: nobody would know what runs next.
            State::Begin(..) | State::Find(None) | State::Found(_) | State::Announced(_) => {}
        }
    }
}

/// The digest of the program, once it is taken out of the image.
fn take(
    now: Now,
    image: &Image,
    work: &mut Work,
    context: &mut JobsContext<'_>,
) -> Option<Result<Box<str>, String>> {
    let Some(image_fs) = context.image_fs else {
        return Some(Err("the runtime has not said where its images are".to_owned()));
    };
    let step = || UpgradeStep::Take {
        image_fs: image_fs.into(),
        image: image.id.clone(),
        digests: image.digests.clone(),
    };
    Some(work.step(now, step, context)?.map(|reply| match reply {
        UpgradeReply::Taken { program } => program,
        other => panic!("a program that is taken cannot be {other:?}"),
    }))
}

impl TrialWatch {
    fn new(now: Instant, program: Box<str>, trouble: Option<String>) -> Self {
        Self {
            program,
            look: Work::default(),
            look_at: now,
            restart_at: now.plus_ms(UPGRADE_RESTART_MS),
            failures: 0,
            trouble,
            is_restart: false,
        }
    }

    /// Returns what has become of the trial, once it is over.
    fn step(&mut self, now: Now, context: &mut JobsContext<'_>) -> Option<Result<(), String>> {
        if self.look.job.is_none() && now.boot < self.look_at {
            return None;
        }
        let is_restart = self.is_restart;
        let step = || if is_restart { UpgradeStep::Restart } else { UpgradeStep::Look };
        let reply = self.look.step(now, step, context)?;
        self.look_at = now.boot.plus_ms(UPGRADE_LOOK_MS);
        if std::mem::take(&mut self.is_restart) {
            return None;
        }
        match reply.map(slots) {
            Ok(slots) => {
                self.failures = 0;
                self.judge(now.boot, &slots)
            }
            Err(why) => {
                self.failures += 1;
                let is_over = self.failures > UPGRADE_LOOKS_MAX;
                is_over.then(|| Err(format!("what runs cannot be read: {why}")))
            }
        }
    }

    fn judge(&mut self, now: Instant, slots: &Slots) -> Option<Result<(), String>> {
        match (slots.program == self.program, slots.trial) {
            (true, Trial::Running) => None,
            (true, Trial::None | Trial::Next) => Some(Ok(())),
            // It ends as soon as it is told to; that it was told may have been lost.
            (false, Trial::Next) => {
                if now >= self.restart_at {
                    self.restart_at = now.plus_ms(UPGRADE_RESTART_MS);
                    (self.is_restart, self.look_at) = (true, now);
                }
                None
            }
            (false, Trial::None | Trial::Running) => {
                let left = Some(slots.left.to_string()).filter(|left| !left.is_empty());
                let why = self.trouble.take().or(left);
                Some(Err(why.unwrap_or_else(|| "the trial did not begin: power failed".to_owned())))
            }
        }
    }
}
