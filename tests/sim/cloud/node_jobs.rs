//! Jobs of the cloud for the node: pre-pulls, of both generations, their reports, and what all of
//! them must agree on.
//!
//! The cloud asks once over the link, and again now and then where it has no final report. A job
//! counts as accepted once its row is durable: from then on it must end with one result, which the
//! cloud gets.
//!
//! The draws are a separate random sequence: worlds without jobs do not change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use edged::agent::Config;
use edged::limits::NODE_JOBS_MAX;
use edged::model::cri::Request;
use edged::model::housekeeping::HousekeepingCall;
use edged::model::message::{Header, Message, Route};
use edged::model::meta::Row;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::rules::content;
use super::{CloudSim, Due};
use crate::chance::Chance;
use crate::faults::Class;
use crate::rule::judge;
use crate::trace::trace;
use crate::world::{NODE, World};

/// The share of worlds with a cloud that have jobs, percent.
const SHARE_PCT: u64 = 30;
/// Jobs that the cloud has not seen the end of, at the most.
const OPEN_MAX: usize = 3;
/// Between two questions for the same stage.
const AGAIN_MS: u64 = 90_000;
/// Images that no pod uses: milliseconds of a pull.
const IMAGES: [(&str, u64); 3] = [("job/a:1", 500), ("job/b:1", 4_000), ("job/c:1", 30_000)];
/// What no registry has.
const ABSENT: &str = "job/none:1";

/// All of it.
pub struct JobSim {
    chance: Chance,
    /// Between two new jobs, at the most.
    ask_ms: u64,
    last: u64,
    jobs: BTreeMap<Box<str>, Job>,
    /// Accepted jobs, the newest last.
    accepted: VecDeque<Box<str>>,
}

struct Job {
    /// 1 or 2: v1alpha1 or v1alpha2.
    generation: u8,
    images: Vec<&'static str>,
    checks: bool,
    /// The stage of v1alpha1 that was asked for last.
    stage: &'static str,
    /// The cloud asks again.
    is_impatient: bool,
    /// Its row is durable.
    is_accepted: bool,
    /// The store was lost.
    is_lost: bool,
    /// Result and images, by action, as the cloud has got them.
    reports: BTreeMap<Box<str>, (bool, Value)>,
}

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobDue {
    /// The users make a job.
    New,
    /// The cloud asks again for what it has no report of.
    Again,
}

/// Draws the jobs of a world with a cloud, if it has some.
pub fn draw(class: Class, seed: u64, config: &mut Config) -> Option<Box<JobSim>> {
    let mut chance = Chance::new(seed ^ 0x6a6f_6273_2121_7075);
    // A crowd costs enough.
    if class == Class::Crowd || !chance.percent(SHARE_PCT) {
        return None;
    }
    config.node_jobs = true;
    let ask_ms = 20_000 << chance.below(6);
    let (jobs, accepted) = (BTreeMap::new(), VecDeque::new());
    Some(Box::new(JobSim { chance, ask_ms, last: 0, jobs, accepted }))
}

/// What the registry offers for jobs.
pub fn offers() -> impl Iterator<Item = (Box<str>, u64)> {
    IMAGES.into_iter().map(|(image, ms)| (image.into(), ms))
}

impl Job {
    /// The cloud has got the last report.
    fn has_ended(&self) -> bool {
        self.reports.contains_key("Pull") || self.reports.values().any(|(is_ok, _)| !is_ok)
    }

    fn has(&self, image: &str) -> bool {
        self.images.contains(&image)
    }

    /// Operation, resource and content of the request.
    fn request(&self, name: &str) -> (&'static str, String, Value) {
        let checks: &[&str] = if self.checks { &["disk"] } else { &[] };
        if self.generation == 2 {
            let resource =
                format!("operations.kubeedge.io/v1alpha2/imageprepulljob/{name}/node/{NODE}");
            let template = json!({"images": self.images, "checkItems": checks, "retryTimes": 1});
            return ("Check", resource, json!({"imagePrePullTemplate": template}));
        }
        let item = match self.stage {
            "Checking" => json!({"CheckItem": checks}),
            _ => json!({"Images": self.images, "RetryTimes": 1, "CheckItems": checks}),
        };
        let content = json!({"TaskID": name, "Type": "prepull", "State": self.stage, "Item": item});
        ("prepull", format!("prepull/{name}/node/{NODE}"), content)
    }
}

impl JobSim {
    /// A new job, unless there are enough.
    fn add(&mut self) -> Option<Box<str>> {
        let open = self.jobs.values().filter(|job| !job.has_ended() && !job.is_lost).count();
        if open >= OPEN_MAX {
            return None;
        }
        self.last += 1;
        let count = self.chance.between(1, 3);
        let image = |chance: &mut Chance| match chance.below(10) {
            0 => ABSENT,
            _ => chance.pick(&IMAGES).0,
        };
        let images = (0..count).map(|_| image(&mut self.chance));
        let images: BTreeSet<&str> = images.collect();
        let name: Box<str> = format!("job{}", self.last).into();
        let generation = if self.chance.percent(70) { 2 } else { 1 };
        let job = Job {
            generation,
            images: images.into_iter().collect(),
            checks: self.chance.percent(40),
            stage: "",
            is_impatient: generation == 1 || self.chance.percent(40),
            is_accepted: false,
            is_lost: false,
            reports: BTreeMap::new(),
        };
        self.jobs.insert(name.clone(), job);
        Some(name)
    }
}

impl CloudSim {
    pub(super) fn jobs_begin(&mut self) {
        if self.node_jobs.is_some() {
            self.timers.extend([(4, Due::Job(JobDue::New)), (5, Due::Job(JobDue::Again))]);
        }
    }

    /// Something of jobs is due.
    pub(super) fn job_due(&mut self, now: u64, due: JobDue) {
        let Some(sim) = &mut self.node_jobs else { return };
        match due {
            JobDue::New => {
                let name = sim.add();
                let ms = 1 + sim.chance.below(sim.ask_ms * 2);
                self.timers.push((ms, Due::Job(JobDue::New)));
                if let Some(name) = name {
                    self.count("jobs made");
                    self.ask(now, &name);
                }
            }
            JobDue::Again => {
                self.timers.push((AGAIN_MS, Due::Job(JobDue::Again)));
                let waits = |job: &&Job| !job.has_ended() && job.is_impatient && !job.is_lost;
                let names = sim.jobs.iter().filter(|(_, job)| waits(job));
                let names: Vec<_> = names.map(|(name, _)| name.clone()).collect();
                for name in names {
                    self.ask(now, &name);
                }
            }
        }
    }

    /// Sent once, and lost without a link.
    fn ask(&mut self, now: u64, name: &str) {
        let job = &self.node_jobs.as_ref().expect("its caller has it").jobs[name];
        let (operation, resource, content) = job.request(name);
        trace!(now, "the cloud asks for {resource} {content}");
        let route = Route {
            source: "taskmanager".into(),
            group: "taskmanager".into(),
            operation: operation.into(),
            resource: resource.into(),
        };
        let header = Header { id: self.hub.id(), ..Header::default() };
        let content = Some(to_raw_value(&content).expect("JSON"));
        self.hub.written.push(Message { header, route, content });
    }

    /// The row of a job is durable, or deleted.
    pub(super) fn job_written(&mut self, key: &str, row: Option<&Row>) {
        let Some(sim) = &mut self.node_jobs else { return };
        if !key.contains("/nodejob/") {
            return;
        }
        let name: Box<str> = key.rsplit('.').next().expect("a name").into();
        let job = sim.jobs.get_mut(&name).expect("a job of the cloud");
        sim.accepted.retain(|other| *other != name);
        if row.is_some() {
            job.is_accepted = true;
            sim.accepted.push_back(name);
        } else {
            judge!(
                job.has_ended() || job.is_lost,
                "[job ends] the row of {name} is deleted before it has ended"
            );
        }
    }

    /// The node reports an action. Returns whether it is a report of a job.
    pub(super) fn job_report(&mut self, now: u64, message: &Message) -> bool {
        let route = &message.route;
        let is_report =
            &*route.operation == "UpdateNodeActionStatus" || route.resource.starts_with("task/");
        let Some(sim) = self.node_jobs.as_mut().filter(|_| is_report) else { return is_report };
        let (name, action, is_ok, images) = report(message);
        trace!(now, "    the cloud gets {name} {action} {is_ok} {images}");
        let job = sim.jobs.get_mut(&name).expect("a job of the cloud");
        let is_first_of = |before: &str| job.generation == 1 || job.reports.contains_key(before);
        judge!(
            &*action != "Pull" || is_first_of("Check"),
            "[job order] {name}: the report of the pull without that of the check"
        );
        let before = job.reports.insert(action.clone(), (is_ok, images.clone()));
        judge!(
            before.is_none() || before == Some((is_ok, images.clone())) || job.is_lost,
            "[one result] {name} {action}: {is_ok} {images} after {before:?}"
        );
        if before.is_none() {
            self.count(if is_ok { "actions of jobs done" } else { "actions of jobs failed" });
            self.next_stage(now, &name, &action, is_ok);
        }
        true
    }

    /// The cloud of v1alpha1 steers.
    fn next_stage(&mut self, now: u64, name: &str, action: &str, is_ok: bool) {
        let sim = self.node_jobs.as_mut().expect("its caller has it");
        let job = sim.jobs.get_mut(name).expect("its caller has it");
        let next = match action {
            "Init" => "Checking",
            "Check" => "Pulling",
            _ => return,
        };
        if job.generation == 1 && is_ok {
            job.stage = next;
            self.ask(now, name);
        }
    }

    /// The store is lost, and with it what was accepted.
    pub(super) fn jobs_lose_store(&mut self) {
        let Some(sim) = &mut self.node_jobs else { return };
        sim.accepted.clear();
        for job in sim.jobs.values_mut().filter(|job| job.is_accepted) {
            job.is_lost = true;
        }
    }

    /// Whether the users make no more of it at the end.
    pub(super) fn is_job_fault(due: Due) -> bool {
        due == Due::Job(JobDue::New)
    }

    /// An accepted job of which the cloud does not know the end.
    pub(super) fn jobs_unsettled(&self) -> Option<String> {
        let sim = self.node_jobs.as_deref()?;
        let is_open = |job: &Job| job.is_accepted && !job.is_lost && !job.has_ended();
        let (name, job) = sim.jobs.iter().find(|(_, job)| is_open(job))?;
        Some(format!("{name} has no last report: {:?}", job.reports))
    }
}

/// Name, action, result and images of a report.
fn report(message: &Message) -> (Box<str>, Box<str>, bool, Value) {
    let parts: Vec<&str> = message.route.resource.split('/').collect();
    let said = content(message);
    let text = |value: &Value| Box::from(value.as_str().expect("a text"));
    let images = |value: &Value, key: &str| {
        let list: Value = serde_json::from_str(value.as_str().expect("a text")).unwrap_or_default();
        let ok = |image: &Value| matches!(image[key].as_str(), Some("True" | "Successful"));
        let all = list.as_array().into_iter().flatten();
        all.map(|image| json!([image["image"], ok(image)])).collect()
    };
    if parts[0] == "task" {
        let is_ok = said["Action"] == "Success";
        let images = images(&said["ExternalMessage"], "state");
        return (parts[1].into(), text(&said["Event"]), is_ok, images);
    }
    let at = said["finishTime"].as_str().expect("a time");
    judge!(at > "2020" && at.ends_with('Z'), "[job time] {said}");
    let is_ok = said["succ"].as_bool().expect("a result");
    (parts[3].into(), text(&said["action"]), is_ok, images(&said["extend"], "status"))
}

impl World {
    /// The agent sends a message: what it says of images is true.
    pub(crate) fn job_reported(&self, message: &Message) {
        let route = &message.route;
        if &*route.operation != "UpdateNodeActionStatus" && !route.resource.starts_with("task/") {
            return;
        }
        let (name, action, is_ok, images) = report(message);
        let all = images.as_array().into_iter().flatten();
        let pulled = |entry: &Value| entry[1] == true;
        for entry in all.clone().filter(|entry| pulled(entry)) {
            let image = entry[0].as_str().expect("a name");
            judge!(
                self.runtime.registry.has_been_here(image),
                "[job images] {name}: {image} is reported, and was never here"
            );
        }
        judge!(
            &*action != "Pull" || is_ok == all.clone().all(pulled),
            "[job images] {name}: {is_ok} with {images}"
        );
    }

    /// Whether a job has brought this image, as far as the node knows.
    pub(crate) fn job_keeps(&self, image: &str) -> bool {
        let sim = self.cloud.as_deref().and_then(|cloud| cloud.node_jobs.as_deref());
        sim.is_some_and(|sim| sim.accepted.iter().any(|name| sim.jobs[name].has(image)))
    }

    /// The agent makes a call: what a job has brought, and nothing has used, stays.
    pub(crate) fn job_image_requested(&self, request: &Request) {
        let Some(sim) = self.cloud.as_deref().and_then(|cloud| cloud.node_jobs.as_deref()) else {
            return;
        };
        let Request::HousekeepingCall(HousekeepingCall::RemoveImage(id)) = request else { return };
        let image = id.strip_prefix("sha256:").expect("an id of this runtime");
        // The older ones may have made room.
        let mut kept = sim.accepted.iter().rev().take(NODE_JOBS_MAX - OPEN_MAX - 1);
        let keeper = kept.find(|name| sim.jobs[*name].has(image));
        let is_short = self.check.evict.is_disk_short(self.clocks.now());
        judge!(
            keeper.is_none() || is_short,
            "[job keeps] {image} is removed, which {keeper:?} has brought"
        );
    }
}
