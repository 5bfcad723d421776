//! Bounds, and what is hard to reach from outside.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::job::ImageStatus;
use super::progress::{conclude, take};
use super::*;
use crate::limits::{
    JOB_CONFIRM_S, JOB_NODES_MAX, JOB_REASON_CHARS_MAX, JOB_STATUS_BYTES_MAX, JOB_TIMEOUT_S,
};
use crate::model::node_job::{ImageResult, JobDetail};
use crate::model::time::Timestamp;

fn object(kind: Kind, name: &str, version: u64, more: &Value) -> (Key, Object) {
    let mut value = json!({"metadata": {"name": name, "uid": name,
        "resourceVersion": version.to_string()}});
    for (field, content) in more.as_object().expect("fields") {
        value[field] = content.clone();
    }
    let raw = RawValue::from_string(value.to_string()).expect("JSON");
    let read = Object::read(kind, &raw).expect("an object");
    (read.key, read.object)
}

fn job(kind: Kind, name: &str, version: u64, more: &Value) -> (Key, Job) {
    let (key, object) = object(kind, name, version, more);
    let job = Job::read(kind_of(kind).expect("a job"), &object).expect("a job");
    (key, job)
}

fn spec_of(nodes: &[String]) -> Value {
    json!({"imagePrePullTemplate": {"images": ["a"], "nodeNames": nodes}})
}

fn report(action: JobAction, detail: JobDetail, result: Result<(), Box<str>>) -> JobReport {
    let key = JobKey {
        generation: Generation::V1Alpha2,
        kind: JobKind::PrePull,
        name: "j".into(),
        node: "n".into(),
    };
    JobReport { key, action, result, at: None, detail }
}

#[test]
fn jobs_have_a_limit_and_those_that_are_over_make_room() {
    let mut jobs = NodeJobs::default();
    let nodes = json!([{"nodeName": "n", "phase": "Pending"}]);
    let open = json!({"status": {"phase": "Init", "nodeStatus": nodes}});
    for at in 0..CONTROLLER_JOBS_MAX {
        let (key, job) = job(Kind::ImagePrePullJob, &at.to_string(), at as u64 + 1, &open);
        assert!(jobs.put(Instant(1), &key, job, 1).is_ok());
    }
    let (key, more) = job(Kind::ImagePrePullJob, "more", 9_999, &open);
    assert!(jobs.put(Instant(1), &key, more, 1).is_err());
    assert_eq!(
        (jobs.all.len(), jobs.of_node["n"].len()),
        (CONTROLLER_JOBS_MAX, CONTROLLER_JOBS_MAX)
    );
    let over = json!({"status": {"phase": "Completed", "nodeStatus": nodes}});
    for (name, version) in [("7", 10_001), ("5", 10_000)] {
        let (key, job) = job(Kind::ImagePrePullJob, name, version, &over);
        assert!(jobs.put(Instant(1), &key, job, 1).is_ok());
    }
    assert_eq!(jobs.of_node["n"].len(), CONTROLLER_JOBS_MAX - 2);
    let (_, more) = job(Kind::ImagePrePullJob, "more", 9_999, &open);
    assert!(jobs.put(Instant(1), &key, more, 1).is_ok());
    let five = Key::new(Kind::ImagePrePullJob, "", "5");
    assert!(jobs.all.contains_key(&key) && !jobs.all.contains_key(&five), "the older one");
    assert_eq!((jobs.all.len(), jobs.queue.len()), (CONTROLLER_JOBS_MAX, CONTROLLER_JOBS_MAX));
    jobs.sweep(Kind::NodeUpgradeJob, 2, u64::MAX);
    assert_eq!(jobs.all.len(), CONTROLLER_JOBS_MAX, "another kind");
    jobs.sweep(Kind::ImagePrePullJob, 2, u64::MAX);
    assert!(jobs.all.is_empty() && jobs.queue.is_empty() && jobs.of_node.is_empty());
}

#[test]
fn a_job_has_a_limited_number_of_nodes() {
    for (count, is_valid) in [(JOB_NODES_MAX, true), (JOB_NODES_MAX + 1, false)] {
        let names: Vec<String> = (0..count).map(|at| format!("n{at}")).collect();
        let (_, job) = job(Kind::ImagePrePullJob, "j", 1, &json!({"spec": spec_of(&names)}));
        assert_eq!(job.spec.is_ok(), is_valid, "{count}: {:?}", job.spec.err());
    }
    let mut cache = Cache::default();
    for at in 0..=JOB_NODES_MAX {
        let (key, object) = object(Kind::Node, &format!("n{at}"), 1, &json!({}));
        let read = super::super::object::Read { key, object, is_edge: true };
        cache.put(Instant(1), read, super::super::cache::From::Watch);
    }
    let all: selector::Selector = serde_json::from_str("{}").expect("a selector");
    assert_eq!(cache.selected(&all).len(), JOB_NODES_MAX + 1);
    let spec = json!({"imagePrePullTemplate": {"images": ["a"], "labelSelector": {}}});
    let (_, job) = job(Kind::ImagePrePullJob, "j", 1, &json!({ "spec": spec }));
    let presence = |_: &str| Presence::Ready;
    let (now, wall) = (Instant(1), Timestamp(1));
    let view = View { now, wall, leads: true, presence: &presence };
    let status = first_status(&job, &cache, &view, true).expect("a status");
    let expected = format!("expected {JOB_NODES_MAX} at most");
    assert!(status.phase == JobPhase::Failure && status.reason.contains(&expected));
}

#[test]
fn a_node_has_the_time_that_the_job_gives_or_a_default() {
    for (fields, expected) in [
        (json!({}), JOB_TIMEOUT_S),
        (json!({"timeoutSeconds": 0}), JOB_TIMEOUT_S),
        (json!({"timeoutSeconds": -1}), JOB_TIMEOUT_S),
        (json!({"timeoutSeconds": 7}), 7),
        (json!({"requireConfirmation": true}), JOB_CONFIRM_S),
        (json!({"requireConfirmation": true, "timeoutSeconds": 7}), 7),
    ] {
        let mut spec = fields.clone();
        spec["nodeNames"] = json!(["n"]);
        let (_, job) = job(Kind::NodeUpgradeJob, "j", 1, &json!({ "spec": spec }));
        assert_eq!(job.spec.expect("a spec").timeout_s, expected, "{fields}");
    }
}

#[test]
fn a_status_has_a_bound_in_bytes_and_results_of_images_are_left_out_first() {
    let names: Vec<String> = (0..JOB_NODES_MAX).map(|at| format!("n{at}")).collect();
    let (key, job) = job(Kind::ImagePrePullJob, "j", 1, &json!({"spec": spec_of(&names)}));
    let text = "x".repeat(JOB_REASON_CHARS_MAX);
    let mut status = Status::default();
    for name in &names {
        let mut node = NodeStatus::new(name, NodePhase::InProgress, "");
        let images = vec![ImageResult { image: "a".into(), result: Err((*text).into()) }; 8];
        let check = report(JobAction::Check, JobDetail::Nothing, Ok(()));
        let pull = report(JobAction::Pull, JobDetail::Images(images), Err("no".into()));
        assert!(take(JobKind::PrePull, &mut node, &check, Timestamp(0)));
        assert!(take(JobKind::PrePull, &mut node, &pull, Timestamp(0)));
        status.nodes.push(node);
    }
    let body = job.write(&key, &status).body.expect("a body");
    assert!(body.get().len() <= JOB_STATUS_BYTES_MAX + 1_000, "{}", body.get().len());
    let body: Value = serde_json::from_str(body.get()).expect("JSON");
    let first = &body["status"]["nodeStatus"][0];
    assert!(first.get("imageStatus").is_none() && first["actionFlow"].is_array(), "{first}");
    assert_eq!(first["phase"], "Failure");
    status.nodes.truncate(10);
    let body = job.write(&key, &status).body.expect("a body");
    let body: Value = serde_json::from_str(body.get()).expect("JSON");
    assert!(body["status"]["nodeStatus"][0]["imageStatus"].is_array());
}

#[test]
fn reasons_have_a_bound_in_characters() {
    let long = "ä".repeat(JOB_REASON_CHARS_MAX + 1);
    assert_eq!(job::shortened(&long).chars().count(), JOB_REASON_CHARS_MAX);
    let mut node = NodeStatus::new("n", NodePhase::InProgress, "");
    let check = report(JobAction::Check, JobDetail::Nothing, Err((*long).into()));
    assert!(take(JobKind::PrePull, &mut node, &check, Timestamp(0)));
    assert_eq!(node.reason.chars().count(), JOB_REASON_CHARS_MAX);
    assert_eq!(node.actions[0].reason.chars().count(), JOB_REASON_CHARS_MAX);
    assert!(node.images.iter().all(|it: &ImageStatus| it.image.is_empty()));
}

#[test]
fn of_three_hundred_nodes_none_may_fail_where_none_may_fail() {
    let names: Vec<String> = (0..300).map(|at| format!("n{at}")).collect();
    let (_, job) = job(Kind::ImagePrePullJob, "j", 1, &json!({"spec": spec_of(&names)}));
    let spec = job.spec.expect("a spec");
    let nodes = names.iter().map(|name| NodeStatus::new(name, NodePhase::Successful, ""));
    let mut status = Status { nodes: nodes.collect(), ..Status::default() };
    conclude(&spec, &mut status);
    assert_eq!(status.phase, JobPhase::Completed);
    status.nodes[7].phase = NodePhase::Unknown;
    conclude(&spec, &mut status);
    assert_eq!(status.phase, JobPhase::Failure);
}

#[test]
fn what_others_wrote_into_a_status_stays() {
    let nodes = json!([{"nodeName": "n", "phase": "InProgress", "state": "old", "event": "x"}]);
    let more = json!({"status": {"phase": "InProgress", "nodeStatus": nodes}});
    let (key, job) = job(Kind::NodeUpgradeJob, "j", 1, &more);
    let mut status = job.status.clone();
    status.nodes[0].phase = NodePhase::Failure;
    let body = job.write(&key, &status).body.expect("a body");
    let body: Value = serde_json::from_str(body.get()).expect("JSON");
    let node = &body["status"]["nodeStatus"][0];
    assert_eq!((&node["state"], &node["phase"]), (&json!("old"), &json!("Failure")));
    assert_eq!(body["metadata"], json!({"resourceVersion": "1"}));
}
