//! Jobs for nodes: who is asked when, and what becomes of what nodes report.

use edged::controller::overview::JobOverview;
use edged::limits::{
    JOB_CALLS_MAX, JOB_CHECK_MS, JOB_RETRY_MAX_MS, JOB_RETRY_MIN_MS, JOB_SETTLE_MS, JOB_TIMEOUT_S,
    JOB_WRITE_BYTES, JOB_WRITE_MS, JOBS_PER_STEP,
};
use edged::model::api::{Kind, Subresource};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Name};
use crate::listed;
use crate::world::{Faults, World};

const EDGED: &str = "v1.32.10-kubeedge-v1.23.1+edged.0.1.0";
const EDGECORE: &str = "v1.32.10-kubeedge-v1.22.0";
const OLD_EDGECORE: &str = "v1.22.6-kubeedge-v1.20.0";

/// A Node that is ready, of an agent with this version.
fn ready(name: &str, version: &str) -> Value {
    let mut node = crate::node(name);
    node["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": version}});
    node
}

fn not_ready(name: &str) -> Value {
    let mut node = ready(name, EDGED);
    node["status"]["conditions"][0]["status"] = json!("Unknown");
    node
}

fn pre_pull(name: &str, nodes: &[&str]) -> Value {
    json!({"metadata": {"name": name}, "spec": {"imagePrePullTemplate": {
        "images": ["nginx:1.27"], "nodeNames": nodes}}})
}

fn upgrade(name: &str, nodes: &[&str]) -> Value {
    json!({"metadata": {"name": name}, "spec": {"version": "v1.2.3", "image": "r/edged",
        "nodeNames": nodes}})
}

fn key(kind: Kind, job: &str) -> Name {
    (kind, String::new(), job.to_owned())
}

/// Three nodes that are connected.
fn with_nodes(version: &str) -> World {
    let nodes = ["e1", "e2", "e3"].map(|name| (Kind::Node, ready(name, version)));
    let mut world = listed(&nodes);
    for node in ["e1", "e2", "e3"] {
        world.connect(node);
    }
    world.pass(100);
    world
}

/// The nodes go on with their signs of life.
fn pass(world: &mut World, ms: u64) {
    let mut left = ms;
    while left > 0 {
        let step = left.min(10_000);
        for node in world.edges.keys().cloned().collect::<Vec<_>>() {
            if world.session(&node).is_some() {
                let sign = world.edge(&node).keepalive();
                world.send(&node, sign);
            }
        }
        world.pass(step);
        left -= step;
    }
}

/// The requests that a node has got since the last call: resource and content.
fn requests(world: &mut World, node: &str) -> Vec<(String, Value)> {
    let messages = std::mem::take(&mut world.edge(node).messages);
    let of_jobs = messages.iter().filter(|message| &*message.route.group == "taskmanager");
    let request = |message: &edged::model::message::Message| {
        assert_eq!(&*message.route.source, "taskmanager");
        let text = message.content.as_ref().expect("content").get();
        let operation = &message.route.operation;
        (
            format!("{operation} {}", message.route.resource),
            serde_json::from_str(text).expect("JSON"),
        )
    };
    of_jobs.map(request).collect()
}

fn is_asked(world: &mut World, node: &str) -> bool {
    match requests(world, node).len() {
        0 => false,
        1 => true,
        count => panic!("{node} was asked {count} times"),
    }
}

/// A node reports an action of a job.
fn report(world: &mut World, node: &str, job: &str, action: &str, why: Result<(), &str>) {
    report_as(world, node, node, job, action, why);
}

fn report_as(
    world: &mut World,
    node: &str,
    named: &str,
    job: &str,
    action: &str,
    why: Result<(), &str>,
) {
    let extend = match action {
        "Pull" => {
            json!([{"image": "nginx:1.27", "status": if why.is_ok() { "True" } else { "False" },
            "reason": why.err().unwrap_or_default()}])
            .to_string()
        }
        "BackUp" | "Upgrade" | "RollBack" => "v1.2.2,v1.2.3".to_owned(),
        _ => String::new(),
    };
    let content = json!({"action": action, "succ": why.is_ok(), "extend": extend,
        "finishTime": "2027-01-15T08:00:07Z", "reason": why.err().unwrap_or_default()});
    let resource = format!("operations.kubeedge.io/v1alpha2/{job}/node/{named}");
    let mut message = world.edge(node).request("UpdateNodeActionStatus", &resource, Some(&content));
    (message.route.source, message.route.group) = ("websocket".into(), "hub".into());
    world.send(node, message);
    world.pass(1);
}

/// Both actions of a pre-pull.
fn pull(world: &mut World, node: &str, job: &str) {
    let job = format!("imageprepulljob/{job}");
    report(world, node, &job, "Check", Ok(()));
    report(world, node, &job, "Pull", Ok(()));
}

fn status(world: &World, kind: Kind, job: &str) -> Value {
    world.cluster.objects[&key(kind, job)]["status"].clone()
}

/// The phase of the job, and those of its nodes.
fn phases(world: &World, kind: Kind, job: &str) -> (String, Vec<String>) {
    let status = status(world, kind, job);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nodes = status["nodeStatus"].as_array().map_or(&[][..], Vec::as_slice);
    (text(&status["phase"]), nodes.iter().map(|node| text(&node["phase"])).collect())
}

fn reason(world: &World, kind: Kind, job: &str, node: usize) -> String {
    let status = status(world, kind, job);
    status["nodeStatus"][node]["reason"].as_str().unwrap_or_default().to_owned()
}

const PULL: Kind = Kind::ImagePrePullJob;
const UPGRADE: Kind = Kind::NodeUpgradeJob;

#[test]
fn a_pre_pull_goes_from_node_to_node_and_ends() {
    let mut world = with_nodes(EDGECORE);
    let mut job = pre_pull("j", &["e1", "e2"]);
    job["spec"]["imagePrePullTemplate"]["unknown"] = json!(7);
    let spec = job["spec"].clone();
    world.cluster.apply(PULL, job);
    world.pass(10);
    let pending = vec!["Pending".to_owned(), "Pending".to_owned()];
    assert_eq!(phases(&world, PULL, "j"), ("Init".to_owned(), pending));
    world.pass(JOB_WRITE_MS);
    let asked = requests(&mut world, "e1");
    let resource = "Check operations.kubeedge.io/v1alpha2/imageprepulljob/j/node/e1".to_owned();
    assert_eq!(asked, [(resource, spec)], "the spec as it came");
    assert_eq!(phases(&world, PULL, "j").1, ["InProgress", "Pending"]);
    assert!(reason(&world, PULL, "j", 0).starts_with("asked at 2027-01-15T08:00:0"));
    report(&mut world, "e1", "imageprepulljob/j", "Check", Ok(()));
    world.pass(2 * JOB_WRITE_MS);
    assert_eq!(phases(&world, PULL, "j").1, ["InProgress", "Pending"]);
    assert!(!is_asked(&mut world, "e2"));
    report(&mut world, "e1", "imageprepulljob/j", "Pull", Ok(()));
    world.pass(2 * JOB_WRITE_MS);
    assert_eq!(phases(&world, PULL, "j").1, ["Successful", "InProgress"]);
    assert!(is_asked(&mut world, "e2") && !is_asked(&mut world, "e1"));
    pull(&mut world, "e2", "j");
    world.pass(2 * JOB_WRITE_MS);
    let node = &status(&world, PULL, "j")["nodeStatus"][1];
    let time = "2027-01-15T08:00:07Z";
    let expected = json!({"nodeName": "e2", "phase": "Successful",
        "actionFlow": [{"action": "Check", "status": "True", "time": time},
            {"action": "Pull", "status": "True", "time": time}],
        "imageStatus": [{"image": "nginx:1.27", "status": "True"}]});
    assert_eq!(*node, expected);
    assert_eq!(phases(&world, PULL, "j").0, "Completed");
    let counters = world.controller.counters();
    assert_eq!((counters.jobs_open, counters.job_requests, counters.job_reports), (0, 2, 4));
    let writes = counters.job_writes;
    pass(&mut world, 60_000);
    assert_eq!(world.controller.counters().job_writes, writes, "nothing is left to do");
}

#[test]
fn as_many_nodes_work_at_once_as_the_job_allows() {
    let mut world = with_nodes(EDGED);
    let mut job = pre_pull("j", &["e1", "e2", "e3"]);
    job["spec"]["imagePrePullTemplate"]["concurrency"] = json!(2);
    world.cluster.apply(PULL, job);
    pass(&mut world, 60_000);
    assert_eq!(phases(&world, PULL, "j").1, ["InProgress", "InProgress", "Pending"]);
    pull(&mut world, "e2", "j");
    pass(&mut world, 10_000);
    assert_eq!(phases(&world, PULL, "j").1, ["InProgress", "Successful", "InProgress"]);
    let expected = JobOverview {
        name: "imageprepulljob/j".to_owned(),
        phase: "InProgress".to_owned(),
        nodes: 3,
        working: 2,
        done: 1,
        failed: 0,
    };
    assert_eq!(world.controller.overview().jobs, [expected]);
    pull(&mut world, "e1", "j");
    report(&mut world, "e3", "imageprepulljob/j", "Check", Err("disk: 87 % used"));
    pass(&mut world, 10_000);
    assert_eq!(reason(&world, PULL, "j", 2), "Check: disk: 87 % used");
    let status = status(&world, PULL, "j");
    assert_eq!(status["phase"], "Failure");
    assert_eq!(world.controller.overview().jobs, [], "it is over");
    let why = "the number of failed nodes is 1/3, which exceeds the failure tolerance threshold";
    assert_eq!(status["reason"], why);
}

#[test]
fn a_share_of_the_nodes_may_fail() {
    for (tolerated, expected) in [("", "Failure"), ("0.3", "Failure"), ("0.34", "Completed")] {
        let mut world = with_nodes(EDGED);
        let mut job = pre_pull("j", &["e1", "e2", "e3"]);
        let template = &mut job["spec"]["imagePrePullTemplate"];
        (template["concurrency"], template["failureTolerate"]) = (json!(3), json!(tolerated));
        world.cluster.apply(PULL, job);
        pass(&mut world, 10_000);
        pull(&mut world, "e1", "j");
        pull(&mut world, "e2", "j");
        report(&mut world, "e3", "imageprepulljob/j", "Check", Ok(()));
        report(&mut world, "e3", "imageprepulljob/j", "Pull", Err("not found"));
        pass(&mut world, 10_000);
        assert_eq!(phases(&world, PULL, "j").0, expected, "{tolerated}");
        assert_eq!(reason(&world, PULL, "j", 2), "Pull: not found: nginx:1.27: not found");
    }
}

#[test]
fn nodes_that_cannot_be_asked_fail_at_once_and_the_others_go_on() {
    let mut world = with_nodes(EDGED);
    world.cluster.apply(Kind::Node, not_ready("away"));
    pass(&mut world, JOB_SETTLE_MS);
    world.cluster.apply(PULL, pre_pull("j", &["none", "away", "e1", "e1"]));
    world.pass(10);
    assert_eq!(phases(&world, PULL, "j").1, ["Failure", "Failure", "Pending"], "each once");
    assert!(reason(&world, PULL, "j", 0).starts_with("there is no node of this name"));
    assert_eq!(reason(&world, PULL, "j", 1), "the node is not ready");
    world.pass(JOB_WRITE_MS);
    assert!(is_asked(&mut world, "e1"));
}

#[test]
fn nodes_are_selected_by_their_labels() {
    let mut world = with_nodes(EDGED);
    for node in ["e1", "e3"] {
        let mut labelled = ready(node, EDGED);
        labelled["metadata"]["labels"]["site"] = json!("a");
        world.cluster.apply(Kind::Node, labelled);
    }
    world.pass(10);
    let select = |name: &str, site: &str| {
        let mut job = pre_pull(name, &[]);
        job["spec"]["imagePrePullTemplate"]["labelSelector"] =
            json!({"matchLabels": {"site": site}});
        job
    };
    world.cluster.apply(PULL, select("j", "a"));
    world.cluster.apply(PULL, select("none", "b"));
    world.pass(100);
    let names: Vec<Value> = status(&world, PULL, "j")["nodeStatus"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|node| node["nodeName"].clone())
        .collect();
    assert_eq!(names, ["e1", "e3"]);
    let none = status(&world, PULL, "none");
    assert_eq!(
        (&none["phase"], &none["reason"]),
        (&json!("Failure"), &json!("no nodes were matched with selector"))
    );
}

#[test]
fn a_job_that_cannot_be_done_says_why() {
    let mut world = with_nodes(EDGED);
    let with = |field: &str, value: Value| {
        let mut job = pre_pull("j", &["e1"]);
        job["spec"]["imagePrePullTemplate"][field] = value;
        job
    };
    for (job, expected) in [
        (pre_pull("j", &[]), "nodeNames and nodeSelector cannot both be empty"),
        (
            with("labelSelector", json!({})),
            "nodeNames and nodeSelector cannot be specified at the same time",
        ),
        (with("images", json!([])), "spec.imagePrePullTemplate.images: got none"),
        (with("failureTolerate", json!("2")), "failureTolerate: got \"2\", expected a number"),
        (with("imageSecrets", json!("s")), "imageSecrets: got \"s\", expected namespace/name"),
        (with("concurrency", json!("x")), "spec: invalid type"),
    ] {
        world.cluster.apply(PULL, job);
        world.pass(2 * JOB_WRITE_MS);
        let status = status(&world, PULL, "j");
        let reason = status["reason"].as_str().expect("a reason");
        assert!(status["phase"] == "Failure" && reason.contains(expected), "{status}");
        world.cluster.remove(&key(PULL, "j"));
        world.pass(10);
    }
    let job = json!({"metadata": {"name": "c"}, "spec": {"nodeNames": ["e1"], "updateFields": {}}});
    world.cluster.apply(Kind::ConfigUpdateJob, job);
    world.pass(10);
    let status = status(&world, Kind::ConfigUpdateJob, "c");
    assert_eq!(status["phase"], "Failure");
    assert!(status["reason"].as_str().is_some_and(|why| why.contains("change edgecore.yaml")));
    for node in ["e1", "e2", "e3"] {
        assert!(!is_asked(&mut world, node));
    }
}

#[test]
fn a_silent_node_is_timed_out_and_its_slot_goes_to_the_next() {
    let mut world = with_nodes(EDGED);
    let mut job = pre_pull("j", &["e1", "e2"]);
    job["spec"]["imagePrePullTemplate"]["timeoutSeconds"] = json!(120);
    world.cluster.apply(PULL, job);
    pass(&mut world, 110_000);
    assert_eq!(phases(&world, PULL, "j").1, ["InProgress", "Pending"]);
    pass(&mut world, 10_000 + 2 * JOB_CHECK_MS);
    assert_eq!(phases(&world, PULL, "j").1, ["Unknown", "InProgress"]);
    assert_eq!(reason(&world, PULL, "j", 0), "timed out: no report within 120 s");
    pull(&mut world, "e2", "j");
    pass(&mut world, 10_000);
    assert_eq!(phases(&world, PULL, "j").0, "Failure");
    // It reports late: that is recorded, and what was decided stays.
    pull(&mut world, "e1", "j");
    pass(&mut world, 10_000);
    let (phase, nodes) = phases(&world, PULL, "j");
    assert_eq!((&*phase, &*nodes[0], &*nodes[1]), ("Failure", "Successful", "Successful"));
}

#[test]
fn each_action_has_the_whole_time_and_without_one_a_default() {
    let mut world = with_nodes(EDGED);
    world.cluster.apply(UPGRADE, upgrade("j", &["e1"]));
    pass(&mut world, 10_000);
    assert!(is_asked(&mut world, "e1"));
    pass(&mut world, (JOB_TIMEOUT_S - 60) * 1_000);
    report(&mut world, "e1", "nodeupgradejob/j", "Check", Ok(()));
    pass(&mut world, (JOB_TIMEOUT_S - 60) * 1_000);
    assert_eq!(phases(&world, UPGRADE, "j").1, ["InProgress"]);
    pass(&mut world, 120_000);
    assert_eq!(phases(&world, UPGRADE, "j"), ("Failure".into(), vec!["Unknown".into()]));
}

#[test]
fn a_node_that_has_left_holds_its_slot_until_its_time_is_over() {
    let mut world = with_nodes(EDGED);
    let mut job = pre_pull("j", &["e1", "e2"]);
    job["spec"]["imagePrePullTemplate"]["timeoutSeconds"] = json!(120);
    world.cluster.apply(PULL, job);
    pass(&mut world, 5_000);
    assert!(is_asked(&mut world, "e1"));
    let session = world.session("e1").expect("a session");
    world.disconnect(session);
    world.cluster.apply(Kind::Node, not_ready("e1"));
    pass(&mut world, 100_000);
    assert!(!is_asked(&mut world, "e2"), "the first may work with another replica");
    pass(&mut world, 20_000 + 2 * JOB_CHECK_MS);
    assert!(is_asked(&mut world, "e2"));
    world.connect("e1");
    pass(&mut world, 10_000);
    assert!(!is_asked(&mut world, "e1"), "it was given up");
}

#[test]
fn a_node_that_comes_back_is_asked_again() {
    let mut world = with_nodes(EDGED);
    world.cluster.apply(PULL, pre_pull("j", &["e1", "e2"]));
    pass(&mut world, 5_000);
    assert!(is_asked(&mut world, "e1"));
    let session = world.session("e1").expect("a session");
    world.disconnect(session);
    pass(&mut world, 30_000);
    world.connect("e1");
    pass(&mut world, 10_000);
    assert!(is_asked(&mut world, "e1"), "the first request may have been lost");
    pull(&mut world, "e1", "j");
    pass(&mut world, 10_000);
    assert!(is_asked(&mut world, "e2"));
    pull(&mut world, "e2", "j");
    pass(&mut world, 10_000);
    assert_eq!(phases(&world, PULL, "j").0, "Completed");
}

#[test]
fn a_node_that_never_comes_is_given_up_while_there_is_a_slot_for_it() {
    let mut world = with_nodes(EDGED);
    world.cluster.apply(Kind::Node, ready("far", EDGED));
    let mut job = pre_pull("j", &["far"]);
    job["spec"]["imagePrePullTemplate"]["timeoutSeconds"] = json!(600);
    world.cluster.apply(PULL, job);
    pass(&mut world, 590_000);
    assert_eq!(phases(&world, PULL, "j").1, ["Pending"]);
    pass(&mut world, 30_000);
    assert_eq!(phases(&world, PULL, "j"), ("Failure".into(), vec!["Unknown".into()]));
    assert_eq!(reason(&world, PULL, "j", 0), "timed out: not connected within 600 s");
}

#[test]
fn no_node_is_asked_before_that_is_written() {
    let mut world = with_nodes(EDGED);
    world.cluster.apply(PULL, pre_pull("j", &["e1"]));
    world.pass(10);
    world.forbidden = vec![(PULL, "j".to_owned(), 500)];
    pass(&mut world, 30_000);
    assert!(!is_asked(&mut world, "e1"));
    world.forbidden.clear();
    pass(&mut world, JOB_RETRY_MAX_MS);
    assert!(is_asked(&mut world, "e1"));
}

#[test]
fn failed_writes_back_off_up_to_a_bound_and_a_refusal_is_logged_once() {
    let mut world = with_nodes(EDGED);
    world.forbidden = vec![(PULL, "j".to_owned(), 403)];
    world.cluster.apply(PULL, pre_pull("j", &["e1"]));
    world.pass(10);
    let tries = |world: &World| world.calls.iter().filter(|call| call.kind == PULL).count();
    let mut delay_ms = JOB_RETRY_MIN_MS;
    for n in 0..9 {
        let before = tries(&world);
        world.pass(delay_ms - 100);
        assert_eq!(tries(&world), before, "{n}: not before");
        world.pass(100);
        assert_eq!(tries(&world), before + 1, "{n}");
        delay_ms = (delay_ms * 2).min(JOB_RETRY_MAX_MS);
    }
    let lines = world.logs.iter().filter(|line| line.contains("refuses its status"));
    assert_eq!(lines.count(), 1, "{:?}", world.logs);
}

#[test]
fn writes_have_a_rate_and_calls_a_bound() {
    let mut world = with_nodes(EDGED);
    let mut job = pre_pull("j", &["e1", "e2", "e3"]);
    job["spec"]["imagePrePullTemplate"]["concurrency"] = json!(3);
    world.cluster.apply(PULL, job);
    world.pass(2 * JOB_WRITE_MS);
    let writes = |world: &World| {
        let of_it = |call: &&edged::model::api::Call| call.subresource == Some(Subresource::Status);
        world.calls.iter().filter(|call| call.kind == PULL).filter(of_it).count()
    };
    let before = writes(&world);
    for node in ["e1", "e2", "e3"] {
        pull(&mut world, node, "j");
    }
    world.pass(JOB_WRITE_MS);
    assert!(writes(&world) <= before + 2, "{}", writes(&world));
    // A large job is written less often.
    let mut world = with_nodes(EDGED);
    // Each has a reason of some 80 bytes.
    let names: Vec<String> = (0..JOB_WRITE_BYTES / 80).map(|at| format!("n{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["e1"]).collect();
    pass(&mut world, JOB_SETTLE_MS);
    world.cluster.apply(PULL, pre_pull("large", &names));
    world.pass(10);
    assert_eq!(writes(&world), 1);
    world.pass(2 * JOB_WRITE_MS - 100);
    assert!(!is_asked(&mut world, "e1"));
    world.pass(200);
    assert!(is_asked(&mut world, "e1"));
    pull(&mut world, "e1", "large");
    let before = writes(&world);
    world.pass(2 * JOB_WRITE_MS - 300);
    assert_eq!(writes(&world), before);
    world.pass(JOB_WRITE_MS);
    assert_eq!(phases(&world, PULL, "large").0, "Failure");
    // Many jobs at once.
    let mut world = with_nodes(EDGED);
    world.faults.delay_ms = 500;
    for at in 0..JOBS_PER_STEP + JOB_CALLS_MAX {
        world.cluster.apply(PULL, pre_pull(&format!("j{at}"), &["e1"]));
    }
    for _ in 0..200 {
        world.pass(50);
        assert!(world.controller.counters().calls <= JOB_CALLS_MAX);
    }
    assert_eq!(phases(&world, PULL, "j0").1, ["InProgress"]);
}

#[test]
fn the_next_controller_goes_on_by_the_status() {
    for has_reported in [false, true] {
        let mut world = with_nodes(EDGECORE);
        world.cluster.apply(PULL, pre_pull("j", &["e1", "e2"]));
        pass(&mut world, 5_000);
        assert!(is_asked(&mut world, "e1"));
        if has_reported {
            report(&mut world, "e1", "imageprepulljob/j", "Check", Ok(()));
            pass(&mut world, 5_000);
        }
        world.crash();
        world.pass(1_000);
        world.connect("e1");
        world.connect("e2");
        pass(&mut world, 20_000);
        // The request may have been lost with the controller.
        assert_eq!(is_asked(&mut world, "e1"), !has_reported, "{has_reported}");
        assert!(!is_asked(&mut world, "e2"));
        pull(&mut world, "e1", "j");
        pass(&mut world, 10_000);
        assert_eq!(phases(&world, PULL, "j").1, ["Successful", "InProgress"]);
        assert!(is_asked(&mut world, "e2"));
    }
}

#[test]
fn the_time_goes_on_while_no_controller_runs() {
    let mut world = with_nodes(EDGECORE);
    let mut job = pre_pull("j", &["e1"]);
    job["spec"]["imagePrePullTemplate"]["timeoutSeconds"] = json!(600);
    world.cluster.apply(PULL, job);
    pass(&mut world, 5_000);
    report(&mut world, "e1", "imageprepulljob/j", "Check", Ok(()));
    pass(&mut world, 500_000);
    world.crash();
    pass(&mut world, 90_000);
    assert_eq!(phases(&world, PULL, "j").1, ["InProgress"]);
    pass(&mut world, JOB_SETTLE_MS);
    assert_eq!(phases(&world, PULL, "j").1, ["Unknown"]);
}

#[test]
fn a_job_that_was_made_while_no_controller_ran_waits_for_its_nodes() {
    let mut cluster = Cluster::default();
    cluster.apply(Kind::Node, not_ready("e1"));
    cluster.apply(Kind::Node, not_ready("e2"));
    cluster.apply(PULL, pre_pull("j", &["e1", "e2"]));
    let mut world = World::new(7, cluster, Faults::default());
    world.pass(5_000);
    world.connect("e1");
    pass(&mut world, JOB_SETTLE_MS / 2);
    assert_eq!(phases(&world, PULL, "j").0, "", "the other may be about to connect");
    pass(&mut world, JOB_SETTLE_MS);
    assert!(is_asked(&mut world, "e1"));
    assert_eq!(phases(&world, PULL, "j").1, ["InProgress", "Failure"]);
}

#[test]
fn a_node_that_has_begun_a_new_life_is_asked_again() {
    let mut world = with_nodes(EDGECORE);
    world.cluster.apply(PULL, pre_pull("j", &["e1"]));
    pass(&mut world, 5_000);
    assert!(is_asked(&mut world, "e1"));
    report(&mut world, "e1", "imageprepulljob/j", "Check", Ok(()));
    pass(&mut world, 5_000);
    // The link breaks: it goes on.
    world.connect("e1");
    pass(&mut world, 20_000);
    assert!(!is_asked(&mut world, "e1"));
    // It restarts: EdgeCore forgets the job.
    world.connect("e1");
    let message = world.edge("e1").register();
    world.send("e1", message);
    pass(&mut world, 20_000);
    assert!(is_asked(&mut world, "e1"));
    let reason = reason(&world, PULL, "j", 0);
    assert!(reason.starts_with("reported Check at ") && reason.contains(", asked again at "));
    pull(&mut world, "e1", "j");
    pass(&mut world, 5_000);
    assert_eq!(phases(&world, PULL, "j").0, "Completed");
    let flow = status(&world, PULL, "j")["nodeStatus"][0]["actionFlow"].clone();
    assert_eq!(flow.as_array().map(Vec::len), Some(2), "each action once: {flow}");
}

#[test]
fn only_edged_is_asked_again_for_an_upgrade() {
    for (version, expected) in [(EDGED, true), (EDGECORE, false)] {
        let mut world = with_nodes(version);
        world.cluster.apply(UPGRADE, upgrade("j", &["e1"]));
        pass(&mut world, 5_000);
        assert!(is_asked(&mut world, "e1"));
        world.connect("e1");
        pass(&mut world, 20_000);
        assert_eq!(is_asked(&mut world, "e1"), expected, "{version}");
    }
}

#[test]
fn a_roll_back_is_no_success_and_stops_the_others() {
    let mut world = with_nodes(EDGED);
    world.cluster.apply(UPGRADE, upgrade("j", &["e1", "e2"]));
    pass(&mut world, 5_000);
    let job = "nodeupgradejob/j";
    for action in ["Check", "WaitingConfirmation", "BackUp"] {
        report(&mut world, "e1", job, action, Ok(()));
    }
    report(&mut world, "e1", job, "Upgrade", Err("no sign of life"));
    pass(&mut world, 5_000);
    assert_eq!(phases(&world, UPGRADE, "j").1, ["InProgress", "Pending"]);
    report(&mut world, "e1", job, "RollBack", Ok(()));
    pass(&mut world, 10_000);
    assert_eq!(phases(&world, UPGRADE, "j"), ("Failure".into(), vec!["Failure".into(); 2]));
    let why = "RollBack: it went back, because the upgrade failed: no sign of life";
    assert_eq!(reason(&world, UPGRADE, "j", 0), why);
    assert_eq!(reason(&world, UPGRADE, "j", 1), "not asked: too many nodes have failed");
    assert!(!is_asked(&mut world, "e2"));
    let node = &status(&world, UPGRADE, "j")["nodeStatus"][0];
    let versions = (&node["historicVersion"], &node["currentVersion"]);
    assert_eq!(versions, (&json!("v1.2.2"), &json!("v1.2.3")));
}

#[test]
fn an_upgrade_that_failed_is_a_failure_even_if_its_way_back_is_not_reported() {
    let mut world = with_nodes(EDGED);
    let mut job = upgrade("j", &["e1"]);
    job["spec"]["timeoutSeconds"] = json!(120);
    world.cluster.apply(UPGRADE, job);
    pass(&mut world, 5_000);
    report(&mut world, "e1", "nodeupgradejob/j", "Upgrade", Err("it did not start"));
    pass(&mut world, 150_000);
    assert_eq!(phases(&world, UPGRADE, "j").1, ["Failure"]);
    assert_eq!(reason(&world, UPGRADE, "j", 0), "Upgrade: it did not start");
}

#[test]
fn an_upgrade_that_succeeds_lets_the_next_begin() {
    let mut world = with_nodes(EDGED);
    world.cluster.apply(UPGRADE, upgrade("j", &["e1", "e2"]));
    for node in ["e1", "e2"] {
        pass(&mut world, 5_000);
        assert!(is_asked(&mut world, node));
        for action in ["Check", "WaitingConfirmation", "BackUp", "Upgrade"] {
            report(&mut world, node, "nodeupgradejob/j", action, Ok(()));
        }
    }
    pass(&mut world, 5_000);
    assert_eq!(phases(&world, UPGRADE, "j").0, "Completed");
}

#[test]
fn a_deleted_job_asks_nobody_any_more_and_is_not_held() {
    let mut world = with_nodes(EDGED);
    let mut job = pre_pull("j", &["e1", "e2"]);
    let own = "kubeedge.io/imageprepulljob-controller";
    job["metadata"]["finalizers"] = json!([own, "other.io/holds"]);
    world.cluster.apply(PULL, job);
    pass(&mut world, 5_000);
    assert!(is_asked(&mut world, "e1"));
    world.cluster.delete_pod(&key(PULL, "j"));
    pass(&mut world, 5_000);
    let finalizers = &world.cluster.objects[&key(PULL, "j")]["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!(["other.io/holds"]));
    pull(&mut world, "e1", "j");
    pass(&mut world, 20_000);
    assert!(!is_asked(&mut world, "e2"));
    world.cluster.remove(&key(PULL, "j"));
    pass(&mut world, 5_000);
    assert_eq!(world.controller.counters().jobs_open, 0);
    // Another one of this name is another job.
    world.cluster.apply(PULL, pre_pull("j", &["e2"]));
    pass(&mut world, 5_000);
    assert!(is_asked(&mut world, "e2") && !is_asked(&mut world, "e1"));
}

#[test]
fn reports_that_are_not_true_change_nothing() {
    let mut world = with_nodes(EDGED);
    world.cluster.apply(PULL, pre_pull("j", &["e1", "e2"]));
    pass(&mut world, 5_000);
    let before = status(&world, PULL, "j");
    let job = "imageprepulljob/j";
    // Of another node, before it was asked, of another kind, of nobody's job, of a job without it.
    report_as(&mut world, "e3", "e1", job, "Pull", Ok(()));
    report(&mut world, "e2", job, "Pull", Ok(()));
    report(&mut world, "e1", job, "Upgrade", Ok(()));
    report(&mut world, "e1", "imageprepulljob/none", "Pull", Ok(()));
    report(&mut world, "e1", "nodeupgradejob/j", "Upgrade", Ok(()));
    report(&mut world, "e3", job, "Pull", Ok(()));
    report(&mut world, "e1", job, "Dance", Ok(()));
    pass(&mut world, 20_000);
    assert_eq!(status(&world, PULL, "j"), before);
    let counters = world.controller.counters();
    assert_eq!((counters.job_reports, counters.job_reports_ignored), (6, 4));
    assert_eq!(counters.messages_refused, 2, "for another node, and no action");
    // Twice, and in the wrong order.
    report(&mut world, "e1", job, "Pull", Ok(()));
    report(&mut world, "e1", job, "Pull", Err("no"));
    report(&mut world, "e1", job, "Check", Err("no"));
    pass(&mut world, 5_000);
    report(&mut world, "e1", job, "Pull", Err("no"));
    pass(&mut world, 5_000);
    let node = &status(&world, PULL, "j")["nodeStatus"][0];
    assert_eq!(
        (&node["phase"], node["actionFlow"].as_array().map(Vec::len)),
        (&json!("Successful"), Some(1))
    );
}

#[test]
fn edges_up_to_1_20_are_asked_for_each_stage_and_upgraded_by_nobody() {
    let mut world = with_nodes(OLD_EDGECORE);
    let mut job = pre_pull("j", &["e1"]);
    let template = &mut job["spec"]["imagePrePullTemplate"];
    (template["checkItems"], template["retryTimes"]) = (json!(["disk"]), json!(2));
    world.cluster.apply(PULL, job);
    pass(&mut world, 5_000);
    let task = |state: &str, item: Value| {
        let content = json!({"TaskID": "j", "Type": "prepull", "State": state, "Item": item});
        vec![("prepull prepull/j/node/e1".to_owned(), content)]
    };
    let item = json!({"Images": ["nginx:1.27"], "NodeName": "e1", "Secret": "", "RetryTimes": 2,
        "CheckItems": ["disk"]});
    assert_eq!(requests(&mut world, "e1"), task("Init", item.clone()));
    let answer = |world: &mut World, event: &str, message: &str| {
        let content = json!({"NodeName": "e1", "State": "", "Event": event, "Action": "Success",
            "Reason": "", "Time": "", "ExternalMessage": message});
        let mut message = world.edge("e1").request("prepull", "task/j/node/e1", Some(&content));
        (message.route.source, message.route.group) = ("websocket".into(), "hub".into());
        world.send("e1", message);
        world.pass(10);
    };
    answer(&mut world, "Init", "");
    assert_eq!(requests(&mut world, "e1"), task("Checking", json!({"CheckItem": ["disk"]})));
    answer(&mut world, "Check", "");
    assert_eq!(requests(&mut world, "e1"), task("Pulling", item));
    answer(&mut world, "Pull", r#"[{"image":"nginx:1.27","state":"Successful"}]"#);
    pass(&mut world, 5_000);
    assert_eq!(phases(&world, PULL, "j"), ("Completed".into(), vec!["Successful".into()]));
    world.cluster.apply(UPGRADE, upgrade("u", &["e1"]));
    pass(&mut world, 5_000);
    assert_eq!(phases(&world, UPGRADE, "u").1, ["Failure"]);
    assert!(reason(&world, UPGRADE, "u", 0).contains("older than 1.21"));
    assert!(requests(&mut world, "e1").is_empty());
}

#[test]
fn a_node_reads_the_secret_of_a_job_while_it_works_on_it() {
    let mut world = with_nodes(EDGED);
    let secret = json!({"metadata": {"name": "s", "namespace": "n"}, "data": {}});
    world.cluster.apply(Kind::Secret, secret);
    let mut job = pre_pull("j", &["e1"]);
    job["spec"]["imagePrePullTemplate"]["imageSecrets"] = json!("n/s");
    world.cluster.apply(PULL, job);
    pass(&mut world, 5_000);
    let query = |world: &mut World, node: &str| {
        let message = world.edge(node).request("query", "n/secret/s", None);
        let id = world.send(node, message);
        world.pass(10);
        let answer = world.edge(node).answers.remove(&id).expect("an answer");
        answer["metadata"]["name"] == "s"
    };
    assert!(query(&mut world, "e1"));
    assert!(!query(&mut world, "e2"));
    pull(&mut world, "e1", "j");
    pass(&mut world, 5_000);
    assert!(!query(&mut world, "e1"), "it has done its work");
}
