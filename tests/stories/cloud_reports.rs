//! When a pod's status is reported to the cloud again, and which of the cloud's messages count.

use edged::limits::{DELETE_RETRY_MS, MISSING_POD_RETRY_MS, REPORT_RETRY_MS};
use edged::model::message::Message;
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, patch, pod};
use crate::cluster::refusal;

/// The API server accepts the reports about the only pod; returns the number of patches.
fn takes(cloud: &mut CloudHarness, object: &mut Value) -> usize {
    let mut count = 0;
    for sent in cloud.take_sent("podpatch") {
        let status = &cloud.harness.agent.pods().next().expect("one").status;
        object["status"] = serde_json::to_value(status).expect("plain data");
        let version = object["metadata"]["resourceVersion"].as_str().map(str::parse::<u64>);
        let version = version.expect("a version").expect("a number") + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        cloud.answer(&sent, &json!({"Object": object, "Err": null}));
        count += 1;
    }
    count
}

/// A pod of the cloud runs, and the cloud knows.
fn running() -> (CloudHarness, Value) {
    let mut cloud = CloudHarness::new();
    let mut object = pod("p", "u", 7);
    cloud.push("insert", "ns/pod/p", &object);
    cloud.work();
    cloud.sign_of_life();
    cloud.pass(2_000);
    assert_eq!(takes(&mut cloud, &mut object), 1);
    (cloud, object)
}

/// Nothing of the pod is left, and its deletion is requested from the cloud.
fn leaving() -> (CloudHarness, Message) {
    let (mut cloud, mut object) = running();
    object["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    object["metadata"]["resourceVersion"] = json!("20");
    cloud.push("update", "ns/pod/p", &object);
    cloud.work();
    takes(&mut cloud, &mut object);
    cloud.work();
    takes(&mut cloud, &mut object);
    let mut requested = cloud.take_sent("pod");
    assert_eq!(requested.len(), 1);
    (cloud, requested.remove(0))
}

#[test]
fn a_deletion_is_asked_for_again_by_what_became_of_it() {
    for (answer, wait_ms) in [
        (json!("OK"), DELETE_RETRY_MS),
        (refusal("NotFound", 404), DELETE_RETRY_MS),
        (refusal("InternalError", 500), REPORT_RETRY_MS),
    ] {
        let (mut cloud, requested) = leaving();
        assert_eq!(&*requested.route.operation, "delete");
        cloud.answer(&requested, &answer);
        let repeated = cloud.next("pod", 90_000);
        assert_eq!(&*repeated.route.operation, "delete");
        assert_eq!(cloud.wait_ms(&requested, &repeated), wait_ms, "{answer}");
    }
}

#[test]
fn a_deletion_without_an_answer_is_asked_for_again_and_over_a_new_link_at_once() {
    let (mut cloud, requested) = leaving();
    let repeated = cloud.next("pod", 90_000);
    let waited_ms = repeated.header.timestamp_ms - requested.header.timestamp_ms;
    let timeout_ms = CloudSettings::default().remote_query_timeout_ms;
    assert_eq!(waited_ms.unsigned_abs(), timeout_ms + REPORT_RETRY_MS);
    cloud.disconnect();
    cloud.pass(2_000);
    cloud.connect();
    assert_eq!(cloud.take_sent("pod").len(), 1);
}

#[test]
fn a_report_without_an_answer_is_made_again_and_over_a_new_link_at_once() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.work();
    let reported = cloud.next("podpatch", 5_000);
    let repeated = cloud.next("podpatch", 90_000);
    let waited_ms = repeated.header.timestamp_ms - reported.header.timestamp_ms;
    let timeout_ms = CloudSettings::default().remote_query_timeout_ms;
    assert_eq!(waited_ms.unsigned_abs(), timeout_ms + REPORT_RETRY_MS);
    cloud.disconnect();
    cloud.pass(2_000);
    cloud.connect();
    assert_eq!(cloud.take_sent("podpatch").len(), 1);
}

#[test]
fn a_report_that_is_refused_is_made_again_after_a_while_and_said_once() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.work();
    let mut reported = cloud.next("podpatch", 5_000);
    let lines = |cloud: &CloudHarness| {
        let of = "the status of pod uid=u is refused";
        cloud.harness.log.iter().filter(|line| line.contains(of)).count()
    };
    for _ in 0..3 {
        cloud.answer(&reported, &refusal("InternalError", 500));
        let repeated = cloud.next("podpatch", 20_000);
        assert_eq!(cloud.wait_ms(&reported, &repeated), REPORT_RETRY_MS);
        reported = repeated;
        assert_eq!(lines(&cloud), 1, "{:?}", cloud.harness.log);
    }
    // Another trouble, and one that comes again after the cloud has taken something.
    cloud.answer(&reported, &refusal("Forbidden", 403));
    assert_eq!(lines(&cloud), 2);
    let reported = cloud.next("podpatch", 20_000);
    let mut taken = pod("p", "u", 8);
    taken["status"] = json!({"phase": "Pending", "reason": "Once"});
    cloud.answer(&reported, &json!({"Object": taken, "Err": null}));
    let reported = cloud.next("podpatch", 20_000);
    cloud.answer(&reported, &refusal("Forbidden", 403));
    assert_eq!(lines(&cloud), 3);
}

#[test]
fn an_update_that_was_overtaken_by_an_answer_says_nothing_of_the_status() {
    let (mut cloud, _) = running();
    // The answer had version 8, and this was sent before it.
    let mut late = pod("p", "u", 7);
    late["status"] = json!({"phase": "Pending", "reason": "Once"});
    late["spec"]["activeDeadlineSeconds"] = json!(86_400);
    cloud.push("update", "ns/pod/p", &late);
    cloud.sign_of_life();
    cloud.pass(12_000);
    assert_eq!(cloud.take_sent("podpatch").len(), 0, "the cloud has what was reported");
}

#[test]
fn a_pod_that_the_api_server_does_not_have_is_told_of_as_a_whole_when_it_is_asked_for_again() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.work();
    let reported = cloud.next("podpatch", 5_000);
    let gone = json!({"Object": null, "Err": {"ErrStatus": {"status": "Failure", "code": 404,
        "message": "pods \"p\" not found", "reason": "NotFound"}}});
    cloud.answer(&reported, &gone);
    let repeated = cloud.next("podpatch", 2 * MISSING_POD_RETRY_MS);
    assert_eq!(cloud.wait_ms(&reported, &repeated), MISSING_POD_RETRY_MS);
    let status = patch(&repeated)["status"].clone();
    assert_eq!(status["phase"], "Running");
    // Values that the API server may have are replaced, not merged.
    assert_eq!(status["podIPs"], json!([{"$patch": "replace"}, {"ip": "10.0.0.5"}]));
    assert_eq!(status["reason"], Value::Null);
}

#[test]
fn a_pod_that_the_api_server_has_again_is_not_one_that_it_lacks() {
    let mut cloud = CloudHarness::new();
    let mut object = pod("p", "u", 7);
    cloud.push("insert", "ns/pod/p", &object);
    cloud.work();
    let reported = cloud.next("podpatch", 5_000);
    cloud.answer(&reported, &refusal("NotFound", 404));
    // Somebody restores it, and the cloud says so.
    object["metadata"]["resourceVersion"] = json!("9");
    cloud.push("update", "ns/pod/p", &object);
    let reported = cloud.next("podpatch", 5_000);
    assert_eq!(patch(&reported)["status"]["phase"], "Running");
}

#[test]
fn what_the_cloud_knows_is_not_told_again_over_a_new_link() {
    let (mut cloud, _) = running();
    cloud.disconnect();
    cloud.pass(2_000);
    cloud.connect();
    cloud.sign_of_life();
    cloud.pass(12_000);
    assert_eq!(cloud.take_sent("podpatch").len(), 0);
}

#[test]
fn an_end_that_the_node_has_brought_about_is_told_once() {
    let mut cloud = CloudHarness::new();
    cloud.harness.machine.memory =
        Some(edged::model::housekeeping::Amount { capacity: 1 << 30, available: 500 << 20 });
    let mut object = pod("p", "u", 7);
    cloud.push("insert", "ns/pod/p", &object);
    cloud.work();
    cloud.sign_of_life();
    cloud.pass(2_000);
    takes(&mut cloud, &mut object);
    cloud.harness.machine.memory.as_mut().expect("just set").available = 50 << 20;
    for _ in 0..30 {
        cloud.sign_of_life();
        cloud.pass(1_000);
        cloud.work();
        takes(&mut cloud, &mut object);
    }
    let conditions = object["status"]["conditions"].to_string();
    assert!(conditions.contains("DisruptionTarget"), "{conditions}");
    // It comes back in the cloud's message.
    cloud.push("update", "ns/pod/p", &object);
    for _ in 0..12 {
        cloud.sign_of_life();
        cloud.pass(1_000);
        assert_eq!(cloud.take_sent("podpatch").len(), 0);
    }
}

#[test]
fn of_a_pod_that_is_deleted_without_a_word_before_nobody_is_told() {
    let (mut cloud, object) = running();
    cloud.push("delete", "ns/pod/p", &object);
    for _ in 0..5 {
        cloud.sign_of_life();
        cloud.pass(1_000);
        cloud.work();
    }
    assert_eq!((cloud.take_sent("podpatch").len(), cloud.take_sent("pod").len()), (0, 0));
}
