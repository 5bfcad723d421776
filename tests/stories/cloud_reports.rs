//! When what the cloud was told of a pod is told again, and which of its words count.

use edged::limits::{DELETE_AGAIN_MS, GONE_AGAIN_MS, REPORT_RETRY_MS};
use edged::model::message::Message;
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{Sky, patch, pod};
use crate::cluster::refusal;

/// The API server takes what it is told of the only pod; says of how many patches.
fn takes(sky: &mut Sky, object: &mut Value) -> usize {
    let mut count = 0;
    for said in sky.said("podpatch") {
        let status = &sky.desk.agent.pods().next().expect("one").status;
        object["status"] = serde_json::to_value(status).expect("plain data");
        let version = object["metadata"]["resourceVersion"].as_str().map(str::parse::<u64>);
        let version = version.expect("a version").expect("a number") + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        sky.answer(&said, &json!({"Object": object, "Err": null}));
        count += 1;
    }
    count
}

/// A pod of the cloud runs, and the cloud knows.
fn running() -> (Sky, Value) {
    let mut sky = Sky::new();
    let mut object = pod("p", "u", 7);
    sky.push("insert", "ns/pod/p", &object);
    sky.work();
    sky.hear();
    sky.pass(2_000);
    assert_eq!(takes(&mut sky, &mut object), 1);
    (sky, object)
}

/// Nothing of the pod is left, and the cloud is asked to delete it.
fn leaving() -> (Sky, Message) {
    let (mut sky, mut object) = running();
    object["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    object["metadata"]["resourceVersion"] = json!("20");
    sky.push("update", "ns/pod/p", &object);
    sky.work();
    takes(&mut sky, &mut object);
    sky.work();
    takes(&mut sky, &mut object);
    let mut asked = sky.said("pod");
    assert_eq!(asked.len(), 1);
    (sky, asked.remove(0))
}

#[test]
fn a_deletion_is_asked_for_again_by_what_became_of_it() {
    for (answer, wait_ms) in [
        (json!("OK"), DELETE_AGAIN_MS),
        (refusal("NotFound", 404), DELETE_AGAIN_MS),
        (refusal("InternalError", 500), REPORT_RETRY_MS),
    ] {
        let (mut sky, asked) = leaving();
        assert_eq!(&*asked.route.operation, "delete");
        sky.answer(&asked, &answer);
        let again = sky.next("pod", 90_000);
        assert_eq!(&*again.route.operation, "delete");
        assert_eq!(sky.wait_ms(&asked, &again), wait_ms, "{answer}");
    }
}

#[test]
fn a_deletion_without_an_answer_is_asked_for_again_and_over_a_new_link_at_once() {
    let (mut sky, asked) = leaving();
    let again = sky.next("pod", 90_000);
    let waited_ms = again.header.timestamp_ms - asked.header.timestamp_ms;
    let timeout_ms = CloudSettings::default().remote_query_timeout_ms;
    assert_eq!(waited_ms.unsigned_abs(), timeout_ms + REPORT_RETRY_MS);
    sky.disconnect();
    sky.pass(2_000);
    sky.connect();
    assert_eq!(sky.said("pod").len(), 1);
}

#[test]
fn a_report_without_an_answer_is_made_again_and_over_a_new_link_at_once() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    sky.work();
    let told = sky.next("podpatch", 5_000);
    let again = sky.next("podpatch", 90_000);
    let waited_ms = again.header.timestamp_ms - told.header.timestamp_ms;
    let timeout_ms = CloudSettings::default().remote_query_timeout_ms;
    assert_eq!(waited_ms.unsigned_abs(), timeout_ms + REPORT_RETRY_MS);
    sky.disconnect();
    sky.pass(2_000);
    sky.connect();
    assert_eq!(sky.said("podpatch").len(), 1);
}

#[test]
fn a_report_that_is_refused_is_made_again_after_a_while_and_said_once() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    sky.work();
    let mut told = sky.next("podpatch", 5_000);
    let lines = |sky: &Sky| {
        let of = "the status of pod uid=u is not taken";
        sky.desk.log.iter().filter(|line| line.contains(of)).count()
    };
    for _ in 0..3 {
        sky.answer(&told, &refusal("InternalError", 500));
        let again = sky.next("podpatch", 20_000);
        assert_eq!(sky.wait_ms(&told, &again), REPORT_RETRY_MS);
        told = again;
        assert_eq!(lines(&sky), 1, "{:?}", sky.desk.log);
    }
    // Another trouble, and one that comes again after the cloud has taken something.
    sky.answer(&told, &refusal("Forbidden", 403));
    assert_eq!(lines(&sky), 2);
    let told = sky.next("podpatch", 20_000);
    let mut taken = pod("p", "u", 8);
    taken["status"] = json!({"phase": "Pending", "reason": "Once"});
    sky.answer(&told, &json!({"Object": taken, "Err": null}));
    let told = sky.next("podpatch", 20_000);
    sky.answer(&told, &refusal("Forbidden", 403));
    assert_eq!(lines(&sky), 3);
}

#[test]
fn an_update_that_was_overtaken_by_an_answer_says_nothing_of_the_status() {
    let (mut sky, _) = running();
    // The answer had version 8, and this was on its way before it.
    let mut late = pod("p", "u", 7);
    late["status"] = json!({"phase": "Pending", "reason": "Once"});
    late["spec"]["activeDeadlineSeconds"] = json!(86_400);
    sky.push("update", "ns/pod/p", &late);
    sky.hear();
    sky.pass(12_000);
    assert_eq!(sky.said("podpatch").len(), 0, "the cloud has what it was told");
}

#[test]
fn a_pod_that_the_api_server_does_not_have_is_told_of_as_a_whole_when_it_is_asked_for_again() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    sky.work();
    let told = sky.next("podpatch", 5_000);
    let gone = json!({"Object": null, "Err": {"ErrStatus": {"status": "Failure", "code": 404,
        "message": "pods \"p\" not found", "reason": "NotFound"}}});
    sky.answer(&told, &gone);
    let again = sky.next("podpatch", 2 * GONE_AGAIN_MS);
    assert_eq!(sky.wait_ms(&told, &again), GONE_AGAIN_MS);
    let status = patch(&again)["status"].clone();
    assert_eq!(status["phase"], "Running");
    // What the API server may have had is replaced, not added to.
    assert_eq!(status["podIPs"], json!([{"$patch": "replace"}, {"ip": "10.0.0.5"}]));
    assert_eq!(status["reason"], Value::Null);
}

#[test]
fn a_pod_that_the_api_server_has_again_is_not_one_that_it_lacks() {
    let mut sky = Sky::new();
    let mut object = pod("p", "u", 7);
    sky.push("insert", "ns/pod/p", &object);
    sky.work();
    let told = sky.next("podpatch", 5_000);
    sky.answer(&told, &refusal("NotFound", 404));
    // Somebody restores it, and the cloud says so.
    object["metadata"]["resourceVersion"] = json!("9");
    sky.push("update", "ns/pod/p", &object);
    let told = sky.next("podpatch", 5_000);
    assert_eq!(patch(&told)["status"]["phase"], "Running");
}

#[test]
fn what_the_cloud_knows_is_not_told_again_over_a_new_link() {
    let (mut sky, _) = running();
    sky.disconnect();
    sky.pass(2_000);
    sky.connect();
    sky.hear();
    sky.pass(12_000);
    assert_eq!(sky.said("podpatch").len(), 0);
}

#[test]
fn an_end_that_the_node_has_brought_about_is_told_once() {
    let mut sky = Sky::new();
    sky.desk.machine.memory =
        Some(edged::model::housekeeping::Amount { capacity: 1 << 30, available: 500 << 20 });
    let mut object = pod("p", "u", 7);
    sky.push("insert", "ns/pod/p", &object);
    sky.work();
    sky.hear();
    sky.pass(2_000);
    takes(&mut sky, &mut object);
    sky.desk.machine.memory.as_mut().expect("just set").available = 50 << 20;
    for _ in 0..30 {
        sky.hear();
        sky.pass(1_000);
        sky.work();
        takes(&mut sky, &mut object);
    }
    let conditions = object["status"]["conditions"].to_string();
    assert!(conditions.contains("DisruptionTarget"), "{conditions}");
    // It comes back with the cloud's word of it.
    sky.push("update", "ns/pod/p", &object);
    for _ in 0..12 {
        sky.hear();
        sky.pass(1_000);
        assert_eq!(sky.said("podpatch").len(), 0);
    }
}

#[test]
fn of_a_pod_that_is_deleted_without_a_word_before_nobody_is_told() {
    let (mut sky, object) = running();
    sky.push("delete", "ns/pod/p", &object);
    for _ in 0..5 {
        sky.hear();
        sky.pass(1_000);
        sky.work();
    }
    assert_eq!((sky.said("podpatch").len(), sky.said("pod").len()), (0, 0));
}
