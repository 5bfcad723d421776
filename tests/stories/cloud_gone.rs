//! Pods that the API server does not have any more, without a deletion message: their node was
//! deleted while it was offline, and the cloud has forgotten what it sent there.

use edged::limits::MISSING_POD_RETRY_MS;
use edged::model::cgroup::{Cgroups, Hierarchy};
use edged::model::cri::{Code, ContainerState};
use edged::model::message::Message;
use edged::model::meta::{Saved, StoreOrigin};
use serde_json::{Value, json};

use crate::cloud_full;
use crate::cloud_harness::{CloudHarness, pod, row};
use crate::harness::{container, sandbox};

/// The store has the pod, which runs.
fn back() -> CloudHarness {
    let rows = vec![row("ns/pod/p", &pod("p", "u", 7))];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.work();
    assert_eq!(cloud.harness.running(), ["m"]);
    cloud.connect();
    cloud
}

fn refused(message: &str, reason: &str, code: u16) -> Value {
    json!({"Object": null, "Err": {"ErrStatus": {"metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code}}})
}

fn no_such_pod() -> Value {
    refused("pods \"p\" not found", "NotFound", 404)
}

/// Minutes pass; every report about the pod gets this answer.
fn pass(cloud: &mut CloudHarness, minutes: u64, answer: &Value) -> Vec<Message> {
    let mut reported = Vec::new();
    for _ in 0..minutes * 60 {
        cloud.pass(1_000);
        cloud.sign_of_life();
        cloud.work();
        // Or the link would be left.
        for requested in cloud.take_sent("lease") {
            cloud.answer(&requested, &refused("not now", "InternalError", 500));
        }
        for message in cloud.take_sent("podpatch") {
            cloud.answer(&message, answer);
            reported.push(message);
        }
    }
    reported
}

fn lines(cloud: &CloudHarness) -> usize {
    cloud.harness.log.iter().filter(|line| line.contains("has no such pod")).count()
}

#[test]
fn a_pod_that_the_api_server_does_not_have_for_minutes_ends() {
    let mut cloud = back();
    let first = pass(&mut cloud, 9, &no_such_pod());
    assert_eq!(first.len(), 1);
    assert_eq!(cloud.harness.running(), ["m"], "one answer ends nothing");
    assert_eq!(lines(&cloud), 1);
    let repeated = pass(&mut cloud, 2, &no_such_pod());
    assert_eq!(repeated.len(), 1);
    assert_eq!(cloud.wait_ms(&first[0], &repeated[0]), MISSING_POD_RETRY_MS);
    assert_eq!(cloud.harness.running(), [] as [&str; 0]);
    pass(&mut cloud, 2, &no_such_pod());
    assert_eq!(cloud.harness.agent.pods().count(), 0);
    assert_eq!(lines(&cloud), 2, "that it is believed is logged as well: {:?}", cloud.harness.log);
}

#[test]
fn a_pod_that_is_there_when_it_is_asked_for_again_runs_on() {
    let mut cloud = back();
    pass(&mut cloud, 9, &no_such_pod());
    let there = json!({"Object": pod("p", "u", 8), "Err": null});
    assert!(!pass(&mut cloud, 2, &there).is_empty());
    pass(&mut cloud, 1, &there);
    // The next answer is a first one.
    cloud.harness.exits("m", 1);
    cloud.work();
    assert!(!pass(&mut cloud, 5, &no_such_pod()).is_empty());
    assert_eq!(cloud.harness.running(), ["m"]);
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
        let mut cloud = back();
        let reported = pass(&mut cloud, 50, &answer);
        assert!((3..=6).contains(&reported.len()), "{} in 50 minutes: {answer}", reported.len());
        assert_eq!(cloud.harness.running(), ["m"], "{answer}");
        assert_eq!(lines(&cloud), 1, "{:?}", cloud.harness.log);
    }
}

#[test]
fn nothing_ends_by_it_while_the_store_does_not_know_all_that_runs() {
    let rows = vec![row("ns/pod/p", &pod("p", "u", 7))];
    let saved = Saved::new(rows, StoreOrigin::Lost("damaged".to_owned()));
    let mut cloud = CloudHarness::beside(
        saved,
        |_| (),
        |harness| {
            let mut unknown = sandbox("s-1", 0, true);
            unknown.source = Some("api".into());
            let mut main = container("c-1", "unknown", ContainerState::Running);
            main.sandbox = unknown.id.clone();
            harness.sandboxes.push(unknown);
            harness.containers.push(main);
        },
    );
    cloud.work();
    cloud.connect();
    let reported = pass(&mut cloud, 50, &no_such_pod());
    assert!((3..=6).contains(&reported.len()), "{} in 50 minutes", reported.len());
    assert_eq!(cloud.harness.running(), ["unknown", "m"]);
}

#[test]
fn a_pod_is_deleted_once_its_volumes_and_its_cgroup_are_gone() {
    for (hierarchy, bad_cgroups, bad_volume) in
        [(Hierarchy::V2, true, None), (Hierarchy::None, false, Some("u"))]
    {
        let empty = Saved::kept(Vec::new());
        let mut cloud = CloudHarness::set_up(empty, |config| {
            config.machine.cgroups = Cgroups { hierarchy, ..Cgroups::default() };
        });
        cloud.connect();
        let pass = |cloud: &mut CloudHarness, seconds: u64| cloud.pass(seconds * 1_000);
        cloud_full::delete_pod_with_volume(&mut cloud, pass, |harness| {
            (harness.bad_cgroups, harness.bad_volume) = (bad_cgroups, bad_volume);
        });
        let deletions = |cloud: &mut CloudHarness| {
            let sent = cloud.take_sent("pod");
            sent.iter().filter(|message| &*message.route.operation == "delete").count()
        };
        assert_eq!(deletions(&mut cloud), 0, "something of it is there");
        (cloud.harness.bad_cgroups, cloud.harness.bad_volume) = (false, None);
        cloud.pass(30_000);
        assert_eq!(deletions(&mut cloud), 1);
    }
}

#[test]
fn one_answer_without_a_doubt_is_not_enough() {
    let doubtful = refused("namespaces \"ns\" not found", "NotFound", 404);
    for [first, second] in [[no_such_pod(), doubtful.clone()], [doubtful, no_such_pod()]] {
        let mut cloud = back();
        assert_eq!(pass(&mut cloud, 9, &first).len(), 1);
        assert_eq!(pass(&mut cloud, 2, &second).len(), 1);
        assert_eq!(cloud.harness.running(), ["m"], "{first} {second}");
    }
}

#[test]
fn a_pod_that_has_ended_is_not_deleted_before_its_source_wants_that() {
    let mut cloud = CloudHarness::new();
    let mut job = pod("p", "u", 7);
    job["spec"]["restartPolicy"] = json!("Never");
    cloud.push("insert", "ns/pod/p", &job);
    cloud.work();
    cloud.harness.exits("m", 0);
    cloud.settle();
    cloud.work();
    let mut deletions = 0;
    let mut answered = |cloud: &mut CloudHarness, object: &Value| {
        for _ in 0..3 {
            for sent in cloud.take_sent("podpatch") {
                cloud.answer(&sent, &json!({"Object": object, "Err": null}));
            }
            cloud.pass(10_000);
            cloud.sign_of_life();
        }
        let sent = cloud.take_sent("pod");
        deletions += sent.iter().filter(|it| &*it.route.operation == "delete").count();
        deletions
    };
    assert_eq!(answered(&mut cloud, &job), 0);
    assert_eq!(cloud.harness.status()["phase"], "Succeeded");
    job["metadata"]["resourceVersion"] = json!("9");
    job["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    cloud.push("update", "ns/pod/p", &job);
    assert_eq!(answered(&mut cloud, &job), 1);
}

#[test]
fn a_pod_that_cannot_be_stopped_is_not_said_to_be_gone() {
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    cloud.push("insert", "ns/pod/p", &wanted);
    cloud.work();
    wanted["metadata"]["resourceVersion"] = json!("8");
    wanted["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    cloud.push("update", "ns/pod/p", &wanted);
    for _ in 0..6 {
        while let Some(stop) = cloud.harness.open_calls().first().cloned() {
            cloud.harness.refuses(&stop, Code::Unknown, "no");
        }
        cloud.settle();
        for sent in cloud.take_sent("podpatch") {
            cloud.answer(&sent, &json!({"Object": wanted, "Err": null}));
        }
        cloud.pass(500);
        cloud.sign_of_life();
    }
    let sent = cloud.take_sent("pod");
    assert!(sent.iter().all(|it| &*it.route.operation != "delete"), "{sent:?}");
    assert_eq!(cloud.harness.running(), ["m"]);
}
