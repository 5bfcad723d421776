//! Pods that the API server does not have any more, and of whose deletion nobody tells: their node
//! was deleted while it was away, and the cloud has forgotten what it sent there.

use edged::limits::GONE_AGAIN_MS;
use edged::model::cgroup::{Cgroups, Hierarchy};
use edged::model::cri::{Code, ContainerState};
use edged::model::message::Message;
use edged::model::meta::{Saved, StoreOrigin};
use serde_json::{Value, json};

use crate::cloud_full;
use crate::cloud_harness::{Sky, pod, row};
use crate::desk::{container, sandbox};

/// The store knows the pod, which runs.
fn back() -> Sky {
    let rows = vec![row("ns/pod/p", &pod("p", "u", 7))];
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.work();
    assert_eq!(sky.desk.running(), ["m"]);
    sky.connect();
    sky
}

fn refused(message: &str, reason: &str, code: u16) -> Value {
    json!({"Object": null, "Err": {"ErrStatus": {"metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code}}})
}

fn no_such_pod() -> Value {
    refused("pods \"p\" not found", "NotFound", 404)
}

/// Minutes pass; whatever is told of the pod is answered so.
fn pass(sky: &mut Sky, minutes: u64, answer: &Value) -> Vec<Message> {
    let mut told = Vec::new();
    for _ in 0..minutes * 60 {
        sky.pass(1_000);
        sky.hear();
        sky.work();
        // Or the link would be left.
        for asked in sky.said("lease") {
            sky.answer(&asked, &refused("not now", "InternalError", 500));
        }
        for message in sky.said("podpatch") {
            sky.answer(&message, answer);
            told.push(message);
        }
    }
    told
}

fn lines(sky: &Sky) -> usize {
    sky.desk.log.iter().filter(|line| line.contains("has no such pod")).count()
}

#[test]
fn a_pod_that_the_api_server_does_not_have_for_minutes_ends() {
    let mut sky = back();
    let first = pass(&mut sky, 9, &no_such_pod());
    assert_eq!(first.len(), 1);
    assert_eq!(sky.desk.running(), ["m"], "one answer ends nothing");
    assert_eq!(lines(&sky), 1);
    let again = pass(&mut sky, 2, &no_such_pod());
    assert_eq!(again.len(), 1);
    assert_eq!(sky.wait_ms(&first[0], &again[0]), GONE_AGAIN_MS);
    assert_eq!(sky.desk.running(), [] as [&str; 0]);
    pass(&mut sky, 2, &no_such_pod());
    assert_eq!(sky.desk.agent.pods().count(), 0);
    assert_eq!(lines(&sky), 2, "that it is believed is said as well: {:?}", sky.desk.log);
}

#[test]
fn a_pod_that_is_there_when_it_is_asked_for_again_runs_on() {
    let mut sky = back();
    pass(&mut sky, 9, &no_such_pod());
    let there = json!({"Object": pod("p", "u", 8), "Err": null});
    assert!(!pass(&mut sky, 2, &there).is_empty());
    pass(&mut sky, 1, &there);
    // The next answer is a first one.
    sky.desk.exits("m", 1);
    sky.work();
    assert!(!pass(&mut sky, 5, &no_such_pod()).is_empty());
    assert_eq!(sky.desk.running(), ["m"]);
}

#[test]
fn no_other_answer_ends_a_pod() {
    let other = "the server could not find the requested resource (patch pods p)";
    for answer in [
        refused(other, "NotFound", 404),
        refused("namespaces \"ns\" not found", "NotFound", 404),
        refused("pods \"q\" not found", "NotFound", 404),
        refused("Operation cannot be fulfilled", "Conflict", 409),
    ] {
        let mut sky = back();
        let told = pass(&mut sky, 50, &answer);
        assert!((3..=6).contains(&told.len()), "{} in 50 minutes: {answer}", told.len());
        assert_eq!(sky.desk.running(), ["m"], "{answer}");
        assert_eq!(lines(&sky), 1, "{:?}", sky.desk.log);
    }
}

#[test]
fn nothing_ends_by_it_while_the_store_does_not_know_all_that_runs() {
    let rows = vec![row("ns/pod/p", &pod("p", "u", 7))];
    let saved = Saved { rows, origin: StoreOrigin::Lost("damaged".to_owned()) };
    let mut sky = Sky::beside(
        saved,
        |_| (),
        |desk| {
            let mut unknown = sandbox("s-1", 0, true);
            unknown.source = Some("api".into());
            let mut main = container("c-1", "unknown", ContainerState::Running);
            main.sandbox = unknown.id.clone();
            desk.sandboxes.push(unknown);
            desk.containers.push(main);
        },
    );
    sky.work();
    sky.connect();
    let told = pass(&mut sky, 50, &no_such_pod());
    assert!((3..=6).contains(&told.len()), "{} in 50 minutes", told.len());
    assert_eq!(sky.desk.running(), ["unknown", "m"]);
}

#[test]
fn a_pod_is_deleted_once_its_volumes_and_its_cgroup_are_gone() {
    for (hierarchy, bad_cgroups, bad_volume) in
        [(Hierarchy::V2, true, None), (Hierarchy::None, false, Some("u"))]
    {
        let empty = Saved { rows: Vec::new(), origin: StoreOrigin::Kept };
        let mut sky = Sky::set_up(empty, |config| {
            config.machine.cgroups = Cgroups { hierarchy, ..Cgroups::default() };
        });
        sky.connect();
        let pass = |sky: &mut Sky, seconds: u64| sky.pass(seconds * 1_000);
        cloud_full::delete_pod_with_volume(&mut sky, pass, |desk| {
            (desk.bad_cgroups, desk.bad_volume) = (bad_cgroups, bad_volume);
        });
        let deletions = |sky: &mut Sky| {
            let said = sky.said("pod");
            said.iter().filter(|message| &*message.route.operation == "delete").count()
        };
        assert_eq!(deletions(&mut sky), 0, "something of it is there");
        (sky.desk.bad_cgroups, sky.desk.bad_volume) = (false, None);
        sky.pass(30_000);
        assert_eq!(deletions(&mut sky), 1);
    }
}

#[test]
fn one_answer_without_a_doubt_is_not_enough() {
    let doubtful = refused("namespaces \"ns\" not found", "NotFound", 404);
    for [first, second] in [[no_such_pod(), doubtful.clone()], [doubtful, no_such_pod()]] {
        let mut sky = back();
        assert_eq!(pass(&mut sky, 9, &first).len(), 1);
        assert_eq!(pass(&mut sky, 2, &second).len(), 1);
        assert_eq!(sky.desk.running(), ["m"], "{first} {second}");
    }
}

#[test]
fn a_pod_that_has_ended_is_not_deleted_before_its_source_wants_that() {
    let mut sky = Sky::new();
    let mut job = pod("p", "u", 7);
    job["spec"]["restartPolicy"] = json!("Never");
    sky.push("insert", "ns/pod/p", &job);
    sky.work();
    sky.desk.exits("m", 0);
    sky.settle();
    sky.work();
    let mut deletions = 0;
    let mut answered = |sky: &mut Sky, object: &Value| {
        for _ in 0..3 {
            for said in sky.said("podpatch") {
                sky.answer(&said, &json!({"Object": object, "Err": null}));
            }
            sky.pass(10_000);
            sky.hear();
        }
        let said = sky.said("pod");
        deletions += said.iter().filter(|it| &*it.route.operation == "delete").count();
        deletions
    };
    assert_eq!(answered(&mut sky, &job), 0);
    assert_eq!(sky.desk.status()["phase"], "Succeeded");
    job["metadata"]["resourceVersion"] = json!("9");
    job["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    sky.push("update", "ns/pod/p", &job);
    assert_eq!(answered(&mut sky, &job), 1);
}

#[test]
fn a_pod_that_cannot_be_stopped_is_not_said_to_be_gone() {
    let mut sky = Sky::new();
    let mut wanted = pod("p", "u", 7);
    sky.push("insert", "ns/pod/p", &wanted);
    sky.work();
    wanted["metadata"]["resourceVersion"] = json!("8");
    wanted["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    sky.push("update", "ns/pod/p", &wanted);
    for _ in 0..6 {
        while let Some(stop) = sky.desk.asked_for().first().cloned() {
            sky.desk.refuses(&stop, Code::Unknown, "no");
        }
        sky.settle();
        for said in sky.said("podpatch") {
            sky.answer(&said, &json!({"Object": wanted, "Err": null}));
        }
        sky.pass(500);
        sky.hear();
    }
    let said = sky.said("pod");
    assert!(said.iter().all(|it| &*it.route.operation != "delete"), "{said:?}");
    assert_eq!(sky.desk.running(), ["m"]);
}
