//! Jobs for nodes: the users make and delete them; nodes work on them, forget them when they
//! restart, and some report for others.

use std::collections::{BTreeMap, BTreeSet};

use edged::model::api::{Call, Kind};
use edged::model::link::Session;
use edged::model::message::Message;
use serde_json::{Value, json};

use crate::cluster::Name;
use crate::rule::judge;
use crate::trace::trace;
use crate::world::World;

/// Names of jobs of each kind.
const JOBS: u64 = 2;
const PRE_PULL: [&str; 2] = ["Check", "Pull"];
const UPGRADE: [&str; 4] = ["Check", "WaitingConfirmation", "BackUp", "Upgrade"];

/// What a node has to do: the actions of each job that are left, by kind and name.
#[derive(Default)]
pub struct Work(BTreeMap<String, Vec<&'static str>>);

/// The state of the rules about jobs.
#[derive(Default)]
pub struct JobCheck {
    /// How often a write said that a node is asked, and how often it was asked, by job and node.
    asked: BTreeMap<(String, String), (u64, u64)>,
    /// The jobs for which a node has reported its last action with success.
    done: BTreeSet<(String, String)>,
}

impl Work {
    /// A node restarts. EdgeCore forgets what it was doing.
    pub fn restart(&mut self) {
        self.0.clear();
    }

    /// A node is asked.
    pub fn take(&mut self, message: &Message) {
        let Some(job) = job_of(&message.route.resource) else {
            panic!("a node got {}", message.route.resource);
        };
        let actions = if job.starts_with("nodeupgradejob/") { &UPGRADE[..] } else { &PRE_PULL };
        self.0.insert(job, actions.to_vec());
    }
}

/// `imageprepulljob/j0` of a resource.
fn job_of(resource: &str) -> Option<String> {
    let rest = resource.strip_prefix("operations.kubeedge.io/v1alpha2/")?;
    Some(rest.split_once("/node/")?.0.to_owned())
}

fn is_job(kind: Kind) -> bool {
    kind.is_node_job()
}

fn key(kind: Kind, name: &str) -> Name {
    (kind, String::new(), name.to_owned())
}

fn nodes(job: &Value) -> impl Iterator<Item = &Value> + Clone {
    job["status"]["nodeStatus"].as_array().into_iter().flatten()
}

/// How far a job or a node is: it never goes back.
fn rank(phase: &Value) -> u32 {
    match phase.as_str().unwrap_or_default() {
        "" | "Pending" => 0,
        "Init" => 1,
        "InProgress" => 2,
        "Unknown" => 3,
        _ => 4,
    }
}

fn concurrency(job: &Value) -> u64 {
    let spec = &job["spec"];
    let own = spec["concurrency"].as_u64();
    own.or_else(|| spec["imagePrePullTemplate"]["concurrency"].as_u64()).unwrap_or(1).max(1)
}

impl World {
    /// The users make a job, or delete one.
    pub(crate) fn users_change_jobs(&mut self) {
        let kind = *self.chance.pick(&[
            Kind::ImagePrePullJob,
            Kind::ImagePrePullJob,
            Kind::NodeUpgradeJob,
            Kind::ConfigUpdateJob,
        ]);
        let name = key(kind, &format!("j{}", self.chance.below(JOBS)));
        if let Some(mut object) = self.cluster.objects.get(&name).cloned() {
            match self.chance.below(4) {
                0 => self.cluster.remove(&name),
                1 => {
                    let own = format!("kubeedge.io/{}-controller", kind.name().to_lowercase());
                    object["metadata"]["finalizers"] = json!([own]);
                    object["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
                    self.cluster.apply(kind, object);
                }
                _ => {}
            }
            return;
        }
        let mut names: Vec<String> = self.nodes.keys().cloned().collect();
        names.push("nobody".to_owned());
        names.retain(|_| self.chance.percent(60));
        let timeout_s = self.chance.between(5, 60);
        let (concurrency, tolerated) = (self.chance.below(3), *self.chance.pick(&["", "0.5", "1"]));
        let mut fields = json!({"nodeNames": names, "timeoutSeconds": timeout_s,
            "concurrency": concurrency, "failureTolerate": tolerated});
        let spec = match kind {
            Kind::ImagePrePullJob => {
                fields["images"] = json!(["i"]);
                json!({ "imagePrePullTemplate": fields })
            }
            _ => fields,
        };
        self.tally.add("jobs");
        let object = json!({"metadata": {"name": name.2}, "spec": spec});
        self.cluster.apply(kind, object);
    }

    /// A deleted job is gone when nobody holds it any more.
    pub(crate) fn collect_jobs(&mut self) {
        let over = self.cluster.objects.iter().filter(|((kind, ..), job)| {
            let metadata = &job["metadata"];
            let is_held = metadata["finalizers"].as_array().is_some_and(|it| !it.is_empty());
            is_job(*kind) && metadata["deletionTimestamp"].is_string() && !is_held
        });
        for name in over.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.cluster.remove(&name);
        }
    }

    /// A node does the next action of one of its jobs, and reports it.
    pub(crate) fn work(&mut self, name: &str) {
        let jobs: Vec<String> = self.nodes[name].work.0.keys().cloned().collect();
        if jobs.is_empty() || self.chance.percent(40) {
            return;
        }
        let job = self.chance.pick(&jobs).clone();
        let fails = self.chance.percent(15);
        let node = self.nodes.get_mut(name).expect("a node");
        let actions = node.work.0.get_mut(&job).expect("just seen");
        let action = actions.remove(0);
        let is_upgrade = action == "Upgrade";
        if fails && is_upgrade {
            actions.push("RollBack");
        }
        if actions.is_empty() || (fails && !is_upgrade) {
            node.work.0.remove(&job);
        }
        self.report(name, name, &job, action, !fails);
    }

    fn report(&mut self, name: &str, named: &str, job: &str, action: &str, is_success: bool) {
        let content = json!({"action": action, "succ": is_success, "extend": "a,b",
            "finishTime": "2027-01-15T08:00:00Z", "reason": if is_success { "" } else { "drawn" }});
        let mut content = content;
        if action == "Pull" {
            let status = if is_success { "True" } else { "False" };
            content["extend"] = json!(json!([{"image": "i", "status": status}]).to_string());
        }
        let resource = format!("operations.kubeedge.io/v1alpha2/{job}/node/{named}");
        let node = self.nodes.get_mut(name).expect("a node");
        let mut message = node.request("UpdateNodeActionStatus", &resource, Some(&content));
        (message.route.source, message.route.group) = ("websocket".into(), "hub".into());
        if is_success && name == named && matches!(action, "Pull" | "Upgrade") {
            self.check.jobs.done.insert((job.to_owned(), name.to_owned()));
        }
        trace!(self.now, "  {name} reports {action} of {job} for {named}: {is_success}");
        self.tally.add("job reports");
        self.send_message(name, message);
    }

    /// A node reports what it was not asked for, and for others.
    pub(crate) fn report_jobs_falsely(&mut self, name: &str) {
        let others: Vec<String> = self.nodes.keys().cloned().collect();
        let named = self.chance.pick(&others).clone();
        let kind = *self.chance.pick(&["imageprepulljob", "nodeupgradejob", "configupdatejob"]);
        let job = format!("{kind}/j{}", self.chance.below(JOBS + 1));
        let action = *self.chance.pick(&["Check", "Pull", "Upgrade", "RollBack", "Dance"]);
        let is_success = self.chance.percent(50);
        self.tally.add("false job reports");
        self.report(name, &named, &job, action, is_success);
    }

    /// A message is sent to a node.
    pub(crate) fn check_job_sent(&mut self, at: usize, session: Session, message: &Message) {
        let node = &*self.links[&session].node.clone();
        self.check.sent(node, message);
        let Some(job) = job_of(&message.route.resource) else { return };
        let named = message.route.resource.rsplit('/').next();
        judge!(named == Some(node), "[own job] {node} is asked as {named:?} by r{at}");
        let (writes, requests) =
            self.check.jobs.asked.entry((job.clone(), node.to_owned())).or_default();
        *requests += 1;
        judge!(requests <= writes, "[asked once] r{at} asks {node} for {job}: {requests}/{writes}");
        self.tally.add("nodes asked");
    }

    /// A job's status was written.
    pub(crate) fn check_job_write(&mut self, call: &Call, before: Option<&Value>) {
        if !is_job(call.kind) {
            return;
        }
        let name = key(call.kind, &call.name);
        let (Some(before), Some(now)) = (before, self.cluster.objects.get(&name)) else { return };
        let job = format!("{}/{}", call.kind.name().to_lowercase(), call.name);
        let (old, new) = (&before["status"]["phase"], &now["status"]["phase"]);
        let is_over = rank(old) == 4;
        judge!(
            rank(new) >= rank(old) && (!is_over || old == new),
            "[forward] {job} goes from {old} to {new}"
        );
        let mut begins = false;
        for node in nodes(now) {
            let of = |it: &&Value| it["nodeName"] == node["nodeName"];
            let was = nodes(before).find(of).cloned().unwrap_or_default();
            let (old, new) = (&was["phase"], &node["phase"]);
            judge!(
                rank(new) >= rank(old) && (rank(old) < 4 || old == new),
                "[forward] {} of {job} goes from {old} to {new}",
                node["nodeName"]
            );
            let who = node["nodeName"].as_str().expect("a name").to_owned();
            let asked = node["reason"].as_str().is_some_and(|it| it.contains("asked"));
            if new == "InProgress" && asked && was["reason"] != node["reason"] {
                self.check.jobs.asked.entry((job.clone(), who.clone())).or_default().0 += 1;
                begins |= old != "InProgress";
            }
            if new == "Successful" && old != "Successful" {
                let is_done = self.check.jobs.done.contains(&(job.clone(), who));
                judge!(is_done, "[own report] {node} of {job}");
            }
        }
        let works = nodes(now).filter(|node| node["phase"] == "InProgress");
        let deleted =
            |node: &Value| self.check.was_deleted(node["nodeName"].as_str().unwrap_or_default());
        // Whether a node that was deleted has left a replica may not know.
        if begins && !works.clone().any(deleted) {
            let (count, most) = (works.count() as u64, concurrency(now));
            judge!(count <= most, "[slots] {count} nodes work on {job}, expected {most} at most");
        }
    }

    /// The first job that is not over.
    pub(crate) fn job_unsettled(&self) -> Option<String> {
        let mut jobs = self.cluster.objects.iter().filter(|((kind, ..), _)| is_job(*kind));
        let open = jobs.find(|(_, job)| rank(&job["status"]["phase"]) != 4)?;
        let is_held = open.1["metadata"]["deletionTimestamp"].is_string();
        let what = if is_held { "is not deleted" } else { "is not over" };
        Some(format!("{:?} {what}: {}", open.0, open.1["status"]))
    }
}
