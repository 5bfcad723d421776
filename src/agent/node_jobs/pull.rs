//! What the actions of jobs are made of: the check of the node's usage, and pulls of images.
//!
//! ```text
//!  Check: the usage of the node is measured, if anything is to be checked
//!  Pull:  for each image: ImageStatus ─present─▶ done
//!                             └─absent─▶ PullImage, with one credential after another ─▶ done
//!         those that failed once more, after a while, as often as the job says
//! ```

use super::JobsContext;
use crate::agent::calls::{Class, Owner};
use crate::agent::event::{Action, CallId, JobId};
use crate::agent::image::joined;
use crate::agent::jobs::JobOwner;
use crate::agent::time::{Instant, Now};
use crate::limits::{
    NODE_JOB_BUDGET_MS, NODE_JOB_RETRIES_MAX, NODE_JOB_RETRY_MS, NODE_JOB_SECRET_MS,
    NODE_JOB_USAGE_MAX,
};
use crate::model::cri::{Auth, CallError, Code, Lost, Reply, Request, SandboxConfig};
use crate::model::image::{ImageName, with_tag};
use crate::model::job::{JobError, JobReply, JobSpec as SystemJob, NodeUsage};
use crate::model::node_job::{ImageResult, JobDetail, PrePullSpec};

/// The result of an action.
pub(super) type End = (Result<(), String>, JobDetail);

/// What a step has come to.
#[derive(Debug)]
pub(super) enum StepEnd {
    /// The trial of this program, by its digest, is about to begin: it goes on once the row says
    /// so.
    Announced(Box<str>),
    /// The action has ended.
    Ended(Result<(), String>, JobDetail),
}

#[derive(Debug)]
pub(super) struct Check {
    items: Vec<Box<str>>,
    /// The measurement; `None`: it is not requested yet.
    job: Option<JobId>,
    usage: Option<Result<NodeUsage, JobError>>,
}

#[derive(Debug)]
pub(super) struct Pull {
    /// `namespace/name`; empty: none.
    secret: Box<str>,
    /// Until then the secret may come.
    secret_by: Instant,
    images: Vec<Image>,
    /// The image that it is at.
    at: usize,
    /// Rounds that may follow this one.
    rounds_left: u32,
    state: State,
}

#[derive(Debug)]
struct Image {
    /// As the job names it.
    name: Box<str>,
    /// `None`: not tried in this round.
    result: Option<Result<(), String>>,
}

/// How far the image is that it is at.
#[derive(Debug)]
enum State {
    /// Whether it is present is to be asked.
    Look,
    Looking(CallId),
    /// Absent. With these credentials, the next one last, and the errors of those before.
    ToPull(Vec<Option<Auth>>, Vec<String>),
    /// Before it is pulled by these.
    Pulling {
        call: CallId,
        left: Vec<Option<Auth>>,
        errors: Vec<String>,
    },
    /// Absent, and its credentials are not known yet.
    Absent,
    Rest(Instant),
}

impl Check {
    /// `None`: there is nothing to be checked.
    pub(super) fn new(items: &[Box<str>]) -> Result<Option<Self>, String> {
        let unknown = items.iter().find(|item| !matches!(&***item, "cpu" | "mem" | "disk"));
        match unknown {
            Some(item) => Err(format!("check item {item} not support")),
            None if items.is_empty() => Ok(None),
            None => Ok(Some(Self { items: items.to_vec(), job: None, usage: None })),
        }
    }

    pub(super) fn give_up(&self, context: &mut JobsContext<'_>) {
        if let Some(job) = self.job.filter(|_| self.usage.is_none()) {
            context.out.push(Action::KillJob(job));
        }
    }

    pub(super) fn job_done(&mut self, job: JobId, result: Result<JobReply, JobError>) {
        if self.job == Some(job) {
            self.usage = Some(match result {
                Ok(JobReply::NodeUsage(usage)) => Ok(usage),
                Ok(other) => panic!("a measurement of the node cannot answer {other:?}"),
                Err(why) => Err(why),
            });
        }
    }

    pub(super) fn step(&mut self, now: Now, context: &mut JobsContext<'_>) -> Option<End> {
        if self.job.is_none() {
            let image_fs = context.image_fs.map(Box::from);
            let spec = SystemJob::MeasureNode { image_fs };
            self.job = Some(context.jobs.begin(now, JobOwner::NodeJobs, spec, context.out));
        }
        let result = match self.usage.take()? {
            Ok(usage) => judge(&self.items, usage),
            Err(why) => Err(format!("the usage of the node cannot be measured: {why}")),
        };
        Some((result, JobDetail::Nothing))
    }
}

/// In `EdgeCore`'s words, which operators know.
fn judge(items: &[Box<str>], usage: NodeUsage) -> Result<(), String> {
    for item in items {
        let (name, used) = match &**item {
            "cpu" => ("cpu", usage.cpu),
            "mem" => ("memory", usage.memory),
            _ => ("disk", usage.disk),
        };
        let Some(used) = used else { return Err(format!("the {name} usage is not known")) };
        if used > NODE_JOB_USAGE_MAX {
            let percent = |it: u32| format!("{}.{:02}", it / 100, it % 100);
            return Err(format!(
                "current {name} usage is {}, which exceeds the maximum allowed usage {}",
                percent(used),
                percent(NODE_JOB_USAGE_MAX)
            ));
        }
    }
    Ok(())
}

impl Pull {
    pub(super) fn new(now: Now, spec: &PrePullSpec) -> Self {
        let images = spec.images.iter().map(|name| Image { name: name.clone(), result: None });
        let retries = u32::try_from(spec.retry_times).unwrap_or(0).min(NODE_JOB_RETRIES_MAX);
        Self {
            secret: spec.image_secret.clone(),
            secret_by: now.boot.plus_ms(NODE_JOB_SECRET_MS),
            images: images.collect(),
            at: 0,
            rounds_left: retries,
            state: State::Look,
        }
    }

    /// Images that are on the node.
    pub(super) fn done(&self) -> usize {
        self.images.iter().filter(|image| image.result == Some(Ok(()))).count()
    }

    /// Gives up the pull under way if a pod waits for the room.
    pub(super) fn give_way(&mut self, now: Now, context: &mut JobsContext<'_>) -> bool {
        let State::Pulling { call, .. } = self.state else { return false };
        if !context.calls.is_pull_waiting() {
            return false;
        }
        context.calls.cancel(now, call, context.out);
        self.state = State::Look;
        true
    }

    pub(super) fn give_up(&self, now: Now, context: &mut JobsContext<'_>) {
        if let State::Looking(call) | State::Pulling { call, .. } = self.state {
            context.calls.cancel(now, call, context.out);
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self.state {
            State::Rest(until) => Some(until),
            State::Absent => Some(self.secret_by),
            State::Look | State::Looking(_) | State::ToPull(..) | State::Pulling { .. } => None,
        }
    }

    pub(super) fn trouble(&self) -> Option<String> {
        if matches!(self.state, State::Absent) {
            return Some(format!("waits for the secret {}", self.secret));
        }
        self.images.iter().rev().find_map(|image| image.result.as_ref()?.as_ref().err().cloned())
    }

    pub(super) fn step(&mut self, now: Now, context: &mut JobsContext<'_>) -> Option<End> {
        loop {
            if matches!(self.state, State::Rest(until) if until <= now.boot) {
                self.state = State::Look;
            }
            let Some(image) = self.images.get(self.at) else {
                if self.begin_round(now) {
                    continue;
                }
                return Some(self.end());
            };
            if image.result.is_some() {
                self.at += 1;
                continue;
            }
            let moved = match &self.state {
                State::Look => self.look(now, context),
                State::Absent => self.find_credentials(now, context),
                State::ToPull(..) => self.pull(now, context),
                State::Looking(_) | State::Pulling { .. } | State::Rest(_) => false,
            };
            if !moved {
                return None;
            }
        }
    }

    /// Another round over the images that failed; `false`: there is none.
    fn begin_round(&mut self, now: Now) -> bool {
        let failed = |image: &Image| matches!(image.result, Some(Err(_)));
        if self.rounds_left == 0 || !self.images.iter().any(failed) {
            return false;
        }
        self.rounds_left -= 1;
        for image in self.images.iter_mut().filter(|image| failed(image)) {
            image.result = None;
        }
        self.at = 0;
        self.state = State::Rest(now.boot.plus_ms(NODE_JOB_RETRY_MS));
        true
    }

    fn end(&mut self) -> End {
        let images = std::mem::take(&mut self.images).into_iter().map(|image| ImageResult {
            image: image.name,
            result: image.result.unwrap_or(Ok(())).map_err(|why| super::cut(&why)),
        });
        let images: Vec<ImageResult> = images.collect();
        let result = match images.iter().find_map(|image| image.result.as_ref().err()) {
            None if images.is_empty() => Err("got no images".to_owned()),
            None => Ok(()),
            Some(why) => {
                let (all, failed) = (images.len(), images.len() - super::done(&images));
                Err(format!("{failed} of {all} images could not be pulled: {why}"))
            }
        };
        (result, JobDetail::Images(images))
    }

    /// The image has this result, and the next one follows.
    fn settle(&mut self, result: Result<(), String>) {
        self.images[self.at].result = Some(result);
        self.at += 1;
        self.state = State::Look;
    }

    fn look(&mut self, now: Now, context: &mut JobsContext<'_>) -> bool {
        let name = &self.images[self.at].name;
        if let Err(why) = ImageName::parse(name) {
            let why = format!("got the image {name:?}: {why}");
            self.settle(Err(why));
            return true;
        }
        if !context.calls.has_room(Class::Work) {
            return false;
        }
        let request = Request::ImageStatus(with_tag(name));
        let call = context.calls.begin(now, Owner::NodeJobs, request, context.out);
        self.state = State::Looking(call);
        false
    }

    fn find_credentials(&mut self, now: Now, context: &mut JobsContext<'_>) -> bool {
        let secret = match self.secret.split_once('/') {
            None if self.secret.is_empty() => None,
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                match context.objects.secret(namespace, name) {
                    Some(secret) => Some(secret),
                    None if now.boot < self.secret_by => return false,
                    None => {
                        let why = format!("secret {}: not found", self.secret);
                        self.settle(Err(why));
                        return true;
                    }
                }
            }
            Some(_) | None => {
                let why = format!("got the secret {:?}, expected namespace/name", self.secret);
                self.settle(Err(why));
                return true;
            }
        };
        match context.images.candidates_by(secret, &self.images[self.at].name) {
            Ok(mut auths) => {
                auths.reverse();
                self.state = State::ToPull(auths, Vec::new());
            }
            Err(why) => self.settle(Err(why)),
        }
        true
    }

    fn pull(&mut self, now: Now, context: &mut JobsContext<'_>) -> bool {
        if context.calls.is_pull_waiting() || !context.calls.has_room(Class::Pull) {
            return false;
        }
        if !context.images.may_pull(now) {
            self.state = State::Rest(now.boot.plus_ms(NODE_JOB_BUDGET_MS));
            return false;
        }
        let State::ToPull(auths, errors) = &mut self.state else {
            panic!("its caller has seen it")
        };
        let (mut left, errors) = (std::mem::take(auths), std::mem::take(errors));
        let auth = left.pop().expect("there is always a candidate");
        let image = with_tag(&self.images[self.at].name);
        let sandbox_config = Box::new(SandboxConfig::default());
        let request = Request::PullImage { image, auth, sandbox_config };
        let call = context.calls.begin(now, Owner::NodeJobs, request, context.out);
        self.state = State::Pulling { call, left, errors };
        false
    }

    pub(super) fn answer(&mut self, now: Instant, call: CallId, result: Result<Reply, CallError>) {
        match std::mem::replace(&mut self.state, State::Look) {
            State::Looking(own) if own == call => match result {
                Ok(Reply::Image(Some(_))) => self.settle(Ok(())),
                Ok(Reply::Image(None)) => self.state = State::Absent,
                Ok(other) => panic!("ImageStatus cannot answer {}", other.kind()),
                Err(error) => self.failed(now, &error, Vec::new()),
            },
            State::Pulling { call: own, left, mut errors } if own == call => match result {
                Ok(_) => self.settle(Ok(())),
                Err(error @ CallError::Refused { .. }) if !left.is_empty() => {
                    errors.push(text(&error));
                    self.state = State::ToPull(left, errors);
                }
                Err(error) => self.failed(now, &error, errors),
            },
            // The answer was on its way when the call was given up.
            other => self.state = other,
        }
    }

    /// A broken connection is no failure of the image: it is looked at again.
    fn failed(&mut self, now: Instant, error: &CallError, mut errors: Vec<String>) {
        if matches!(error, CallError::Lost(Lost::Connection)) {
            self.state = State::Rest(now.plus_ms(NODE_JOB_RETRY_MS));
            return;
        }
        errors.push(text(error));
        let name = &self.images[self.at].name;
        let why = format!("{name}: {}", joined(&errors));
        self.settle(Err(why));
    }
}

/// The code `Unknown` carries no information: the runtime had none.
fn text(error: &CallError) -> String {
    match error {
        CallError::Refused { code: Code::Unknown, message } => message.clone(),
        other => other.to_string(),
    }
}
