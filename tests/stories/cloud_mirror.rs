//! Mirror pods of the manifest folder's pods in the cloud.

use edged::limits::{DELETE_RETRY_MS, MIRROR_POD_RETRY_MAX_MS, MIRROR_POD_RETRY_MIN_MS};
use edged::model::message::Message;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, patch};
use crate::harness::{Harness, MAIN, UID, pod};

const KEY: &str = "default/pod/p-gw";

/// The node is registered, and a pod of the folder runs, if it may.
fn running(spec: &str) -> CloudHarness {
    let mut cloud = CloudHarness::new();
    register(&mut cloud);
    cloud.harness.manifests(&[&pod(spec)]);
    cloud.work();
    cloud.pass(2_000);
    cloud
}

fn register(cloud: &mut CloudHarness) {
    cloud.sign_of_life();
    cloud.pass(1_000);
    for message in cloud.take_sent("node") {
        let mut node = content(&message);
        node["metadata"]["uid"] = "node-1".into();
        cloud.answer(&message, &json!({"Object": node, "Err": null}));
    }
}

/// The only requested insertion or deletion of a pod.
fn requested(cloud: &mut CloudHarness, operation: &str) -> Message {
    let mut all = cloud.take_sent("pod");
    assert_eq!(all.len(), 1, "{all:?}");
    let message = all.remove(0);
    assert_eq!((&*message.route.operation, &*message.route.resource), (operation, KEY));
    message
}

/// The API server has created it.
fn made(mut mirror: Value, uid: &str, version: u64) -> Value {
    mirror["metadata"]["uid"] = uid.into();
    mirror["metadata"]["resourceVersion"] = version.to_string().into();
    mirror["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
    mirror
}

/// As [`running`], and the cloud has the mirror.
fn mirrored() -> (CloudHarness, Value) {
    let mut cloud = running(MAIN);
    let message = requested(&mut cloud, "insert");
    let mirror = made(content(&message), "m1", 7);
    cloud.answer(&message, &json!({"Object": mirror, "Err": null}));
    cloud.push("insert", KEY, &mirror);
    (cloud, mirror)
}

/// The API server has accepted a status that was new to it.
fn object_with(mirror: &Value, status: &Value) -> Value {
    let mut reported = mirror.clone();
    reported["metadata"]["resourceVersion"] = "8".into();
    for (key, value) in status.as_object().expect("a map") {
        let mut value = value.clone();
        if let Some(list) = value.as_array_mut() {
            list.retain(|item| item.get("$patch").is_none());
        }
        reported["status"][key] = value;
    }
    reported
}

fn refusal(code: u16, reason: &str) -> Value {
    let status = json!({"code": code, "reason": reason, "message": "no"});
    json!({"Object": {"metadata": {}}, "Err": {"ErrStatus": status}})
}

#[test]
fn a_static_pod_is_shown_with_the_node_as_its_owner() {
    let mut cloud = running(MAIN);
    let mirror = content(&requested(&mut cloud, "insert"));
    let metadata = &mirror["metadata"];
    assert_eq!(metadata["annotations"]["kubernetes.io/config.mirror"], UID);
    assert_eq!(metadata["annotations"]["kubernetes.io/config.hash"], UID);
    assert_eq!(metadata["annotations"]["kubernetes.io/config.source"], "file");
    assert!(metadata.get("uid").is_none() && mirror["status"].is_null(), "{mirror}");
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "gw", "uid": "node-1",
        "controller": true}]);
    assert_eq!(metadata["ownerReferences"], owner);
    assert_eq!(mirror["spec"]["nodeName"], "gw");
    assert_eq!(mirror["spec"]["containers"][0]["image"], "i:1");
    let stays = json!([{"operator": "Exists", "effect": "NoExecute"}]);
    assert_eq!(mirror["spec"]["tolerations"], stays);
    cloud.pass(50_000);
    assert_eq!(cloud.take_sent("pod").len(), 0, "requested once");
}

#[test]
fn none_is_made_before_the_node_is_known_to_the_cloud() {
    let mut cloud = CloudHarness::new();
    cloud.harness.manifests(&[&pod(MAIN)]);
    cloud.work();
    cloud.sign_of_life();
    cloud.pass(2_000);
    assert_eq!(cloud.take_sent("pod").len(), 0);
    register(&mut cloud);
    requested(&mut cloud, "insert");
}

#[test]
fn its_mirror_is_told_its_status_and_is_never_run() {
    let (mut cloud, mirror) = mirrored();
    cloud.pass(2_000);
    let reported = cloud.take_sent("podpatch");
    let patch = patch(reported.first().expect("a status"));
    assert_eq!(*reported[0].route.resource, *"default/podpatch/p-gw");
    assert_eq!(patch["metadata"]["uid"], "m1");
    assert_eq!(patch["status"]["phase"], "Running");
    let runs = object_with(&mirror, &patch["status"]);
    cloud.answer(&reported[0], &json!({"Object": runs, "Err": null}));
    cloud.push("update", KEY, &runs);
    cloud.sign_of_life();
    cloud.pass(12_000);
    let reported = cloud.take_sent("podpatch");
    assert_eq!(reported.len(), 0, "the cloud has it: {:?}", content(&reported[0]));
    assert_eq!(cloud.take_sent("pod").len(), 0, "it is there");
    assert_eq!(cloud.harness.running().len(), 1, "one pod, and not its mirror");
}

#[test]
fn a_mirror_that_somebody_deletes_comes_back_and_the_pod_runs_on() {
    let (mut cloud, mut mirror) = mirrored();
    cloud.take_sent("podpatch");
    let before = cloud.harness.trace.len();
    mirror["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:30Z".into();
    mirror["metadata"]["resourceVersion"] = "8".into();
    cloud.push("update", KEY, &mirror);
    let message = requested(&mut cloud, "delete");
    let expected = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "m1"}});
    assert_eq!(content(&message), expected);
    cloud.answer(&message, &json!("OK"));
    cloud.push("delete", KEY, &mirror);
    requested(&mut cloud, "insert");
    assert_eq!(cloud.harness.trace.len(), before, "{:?}", cloud.harness.trace);
}

#[test]
fn a_pod_that_is_another_now_gets_another_mirror_when_the_one_before_has_ended() {
    let (mut cloud, mirror) = mirrored();
    cloud.take_sent("podpatch");
    cloud.harness.manifests(&[&pod(MAIN).replace(UID, "another")]);
    cloud.settle();
    assert_eq!(cloud.take_sent("pod").len(), 0, "the one before has not ended");
    cloud.work();
    cloud.pass(2_000);
    let message = requested(&mut cloud, "delete");
    cloud.answer(&message, &json!("OK"));
    cloud.push("delete", KEY, &mirror);
    let mirror = content(&requested(&mut cloud, "insert"));
    assert_eq!(mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"], "another");
}

#[test]
fn the_mirror_of_a_pod_that_is_gone_is_deleted_when_it_has_ended() {
    let (mut cloud, _) = mirrored();
    cloud.harness.manifests(&[]);
    cloud.settle();
    assert_eq!(cloud.take_sent("pod").len(), 0, "it has not ended");
    cloud.work();
    cloud.pass(3_000);
    let first = requested(&mut cloud, "delete");
    // It is deleted already: no message follows.
    cloud.answer(&first, &json!("OK"));
    cloud.sign_of_life();
    cloud.pass(30_000);
    cloud.sign_of_life();
    cloud.pass(31_000);
    let message = requested(&mut cloud, "delete");
    assert_eq!(cloud.wait_ms(&first, &message), DELETE_RETRY_MS);
    cloud.answer(&message, &json!("OK"));
    for _ in 0..4 {
        cloud.sign_of_life();
        cloud.pass(30_000);
    }
    assert_eq!(cloud.take_sent("pod").len(), 0, "the store has none any more");
}

#[test]
fn one_that_goes_and_comes_back_under_its_uid_is_told_of_anew() {
    let misplaced = format!(r#""nodeSelector":{{"disk":"ssd"}},{MAIN}"#);
    let mut cloud = running(&misplaced);
    let message = requested(&mut cloud, "insert");
    let mirror = made(content(&message), "m1", 7);
    cloud.answer(&message, &json!({"Object": mirror, "Err": null}));
    let since = |cloud: &mut CloudHarness| {
        cloud.sign_of_life();
        cloud.pass(3_000);
        let reported = cloud.take_sent("podpatch");
        let status = patch(reported.last().expect("a status"))["status"].clone();
        let conditions = status["conditions"].as_array().expect("conditions");
        let ready = conditions.iter().find(|it| it["type"] == "Ready");
        let answer = json!({"Object": object_with(&mirror, &status), "Err": null});
        cloud.answer(reported.last().expect("a status"), &answer);
        ready.expect("it is reported")["lastTransitionTime"].clone()
    };
    let before = since(&mut cloud);
    cloud.pass(9_000);
    // Before the former pod is processed: the mirror stays.
    cloud.harness.agent.handle(cloud.harness.now, Harness::folder(&[]));
    cloud.harness.manifests(&[&pod(&misplaced)]);
    cloud.work();
    let after = since(&mut cloud);
    assert_ne!(after, before);
}

#[test]
fn mirrors_stay_while_a_manifest_cannot_be_read() {
    let mut cloud = CloudHarness::new();
    register(&mut cloud);
    cloud.harness.broken_manifest();
    let mirror = json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "p-gw", "namespace": "default",
            "annotations": {"kubernetes.io/config.mirror": "old"}},
        "spec": {"nodeName": "gw", "containers": [{"name": "m", "image": "i:1"}]}});
    cloud.push("insert", KEY, &made(mirror, "m0", 7));
    cloud.pass(2_000);
    assert_eq!(cloud.take_sent("pod").len(), 0, "it may be the mirror of a pod in that file");
    cloud.harness.manifests(&[]);
    cloud.pass(1_000);
    requested(&mut cloud, "delete");
}

#[test]
fn what_the_api_server_does_not_take_is_said_once_and_offered_ever_more_rarely() {
    let mut cloud = running(MAIN);
    let mut offers = 0;
    for _ in 0..120 {
        cloud.sign_of_life();
        cloud.pass(15_000);
        for message in cloud.take_sent("pod") {
            cloud.answer(&message, &refusal(404, "NotFound"));
            offers += 1;
        }
    }
    assert_eq!(offers, 8, "at once, and 10, 20, 40 … 640 seconds later, in half an hour");
    let sent = cloud
        .harness
        .log
        .iter()
        .filter(|line| line.contains("of the manifest folder: no (NotFound)"));
    assert_eq!(sent.count(), 1, "{:?}", cloud.harness.log);
}

#[test]
fn each_offer_is_waited_for_twice_as_long_as_the_one_before_up_to_a_bound() {
    let mut cloud = running(MAIN);
    let mut offered = requested(&mut cloud, "insert");
    for n in 0..9 {
        cloud.answer(&offered, &refusal(404, "NotFound"));
        let repeated = cloud.next("pod", 1_200_000);
        let wait_ms = (MIRROR_POD_RETRY_MIN_MS << n).min(MIRROR_POD_RETRY_MAX_MS);
        assert_eq!(cloud.wait_ms(&offered, &repeated), wait_ms, "{n}");
        offered = repeated;
    }
}

#[test]
fn one_that_is_there_already_is_no_trouble_if_it_is_heard_of() {
    let mut cloud = running(MAIN);
    let message = requested(&mut cloud, "insert");
    let mirror = made(content(&message), "m1", 7);
    cloud.answer(&message, &refusal(409, "AlreadyExists"));
    cloud.push("update", KEY, &mirror);
    cloud.pass(2_000);
    assert_eq!(patch(&cloud.take_sent("podpatch")[0])["metadata"]["uid"], "m1");
    assert!(
        !cloud.harness.log.iter().any(|line| line.contains("no mirror pod")),
        "{:?}",
        cloud.harness.log
    );
}

#[test]
fn a_new_link_offers_at_once_what_was_not_taken() {
    let mut cloud = running(MAIN);
    let message = requested(&mut cloud, "insert");
    cloud.answer(&message, &refusal(500, "InternalError"));
    cloud.disconnect();
    cloud.pass(2_000);
    cloud.connect();
    cloud.sign_of_life();
    cloud.pass(1_000);
    requested(&mut cloud, "insert");
}
