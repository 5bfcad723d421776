//! Mirrors of several static pods, and the requests about them.

use edged::limits::MIRROR_POD_RETRY_MIN_MS;
use edged::model::cri::ContainerState;
use edged::model::message::Message;
use edged::model::meta::{Change, Saved, StoreOrigin};
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, patch, row};
use crate::cluster::refusal;
use crate::harness::{MAIN, UID, container, pod, sandbox};

const KEY: &str = "default/pod/p-gw";

/// A pod of the manifest folder.
fn of_folder(name: &str, uid: &str) -> String {
    pod(MAIN).replace("\"p\"", &format!("\"{name}\"")).replace(UID, uid)
}

/// The Node is known, and these pods of the folder run.
fn running(manifests: &[&str]) -> CloudHarness {
    let node = json!({"metadata": {"name": "gw", "uid": "node-1", "resourceVersion": "3"}});
    let rows = vec![row("null/node/gw", &node)];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.connect();
    cloud.sign_of_life();
    cloud.harness.manifests(manifests);
    cloud.work();
    cloud.pass(2_000);
    cloud
}

/// The API server has created the object of this message.
fn made(requested: &Message, uid: &str) -> Value {
    let mut mirror = content(requested);
    mirror["metadata"]["uid"] = uid.into();
    mirror["metadata"]["resourceVersion"] = "7".into();
    mirror["status"] = json!({"phase": "Pending"});
    mirror
}

/// The requests about pods: operation and name.
fn requested(cloud: &mut CloudHarness) -> Vec<String> {
    let name = |it: &Message| it.route.resource.rsplit('/').next().map(str::to_owned);
    let of = |it: &Message| format!("{} {}", it.route.operation, name(it).expect("one"));
    cloud.take_sent("pod").iter().map(of).collect()
}

/// As [`running`], for the only pod, whose mirror is deleted; the deletion is requested from the
/// cloud.
fn being_deleted() -> (CloudHarness, Message) {
    let mut cloud = running(&[&pod(MAIN)]);
    let message = cloud.take_sent("pod").remove(0);
    let mut mirror = made(&message, "m1");
    cloud.answer(&message, &json!({"Object": mirror, "Err": null}));
    cloud.push("insert", KEY, &mirror);
    mirror["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:30Z".into();
    mirror["metadata"]["resourceVersion"] = "8".into();
    cloud.push("update", KEY, &mirror);
    let mut all = cloud.take_sent("pod");
    assert_eq!(all.len(), 1);
    (cloud, all.remove(0))
}

fn waited_ms(before: &Message, after: &Message) -> u64 {
    (after.header.timestamp_ms - before.header.timestamp_ms).unsigned_abs()
}

#[test]
fn each_static_pod_has_its_own_mirror() {
    let (p, q) = (of_folder("p", "u1"), of_folder("q", "u2"));
    let mut cloud = running(&[&p, &q]);
    let messages = cloud.take_sent("pod");
    assert_eq!(messages.len(), 2);
    let mut of_q = Value::Null;
    for (message, (uid, of)) in messages.iter().zip([("m1", "u1"), ("m2", "u2")]) {
        let mirror = made(message, uid);
        let annotations = &mirror["metadata"]["annotations"];
        assert_eq!(annotations["kubernetes.io/config.mirror"], of);
        assert_eq!((&mirror["apiVersion"], &mirror["kind"]), (&"v1".into(), &"Pod".into()));
        cloud.answer(message, &json!({"Object": mirror, "Err": null}));
        cloud.push("insert", &message.route.resource, &mirror);
        of_q = mirror;
    }
    cloud.sign_of_life();
    cloud.pass(2_000);
    let reported = cloud.take_sent("podpatch");
    let uids: Vec<Value> = reported.iter().map(|it| patch(it)["metadata"]["uid"].clone()).collect();
    assert_eq!(uids, ["m1", "m2"]);
    // One of them is removed. Its mirror is deleted before it has ended.
    cloud.harness.manifests(&[&p]);
    of_q["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:30Z".into();
    of_q["metadata"]["resourceVersion"] = "8".into();
    cloud.push("update", "default/pod/q-gw", &of_q);
    assert_eq!(requested(&mut cloud), [] as [&str; 0], "it has not ended");
    cloud.work();
    cloud.pass(3_000);
    cloud.sign_of_life();
    assert_eq!(requested(&mut cloud), ["delete q-gw"]);
    for _ in 0..3 {
        cloud.pass(5_000);
        cloud.sign_of_life();
    }
    assert_eq!(requested(&mut cloud), [] as [&str; 0], "nothing is requested twice");
}

#[test]
fn a_mirror_that_the_api_server_does_not_have_is_forgotten() {
    for (answer, forgotten) in [
        (refusal("NotFound", 404), true),
        // Another of the name is there.
        (refusal("Conflict", 409), true),
        (refusal("InternalError", 500), false),
    ] {
        let (mut cloud, message) = being_deleted();
        assert_eq!(&*message.route.operation, "delete");
        cloud.keeps = false;
        cloud.answer(&message, &answer);
        let changes: Vec<Change> =
            cloud.saves.pop().map(|(_, changes)| changes).unwrap_or_default();
        let is_it = |it: &Change| matches!(it, Change::Delete { key } if &**key == KEY);
        assert_eq!(changes.iter().any(is_it), forgotten, "{answer}");
        if !forgotten {
            let repeated = cloud.next("pod", 30_000);
            assert_eq!(&*repeated.route.operation, "delete");
            assert_eq!(cloud.wait_ms(&message, &repeated), MIRROR_POD_RETRY_MIN_MS);
        }
    }
}

#[test]
fn a_question_about_a_mirror_that_nobody_answers_is_asked_again() {
    let timeout_ms = CloudSettings::default().remote_query_timeout_ms;
    let mut cloud = running(&[&pod(MAIN)]);
    let first = cloud.take_sent("pod").remove(0);
    let repeated = cloud.next("pod", 120_000);
    assert_eq!(&*repeated.route.operation, "insert");
    assert_eq!(waited_ms(&first, &repeated), timeout_ms + MIRROR_POD_RETRY_MIN_MS);
    let (mut cloud, first) = being_deleted();
    let repeated = cloud.next("pod", 120_000);
    assert_eq!(&*repeated.route.operation, "delete");
    assert_eq!(waited_ms(&first, &repeated), timeout_ms + MIRROR_POD_RETRY_MIN_MS);
}

#[test]
fn a_mirror_that_is_being_kept_is_not_made_again() {
    let mut cloud = running(&[&pod(MAIN)]);
    let message = cloud.take_sent("pod").remove(0);
    cloud.keeps = false;
    let mirror = made(&message, "m1");
    cloud.answer(&message, &json!({"Object": mirror, "Err": null}));
    for _ in 0..6 {
        cloud.pass(5_000);
        cloud.sign_of_life();
    }
    assert_eq!(requested(&mut cloud), [] as [&str; 0]);
}

#[test]
fn a_pod_that_is_another_now_is_shown_when_the_one_before_has_ended() {
    let mut cloud = running(&[&pod(MAIN)]);
    let message = cloud.take_sent("pod").remove(0);
    cloud.answer(&message, &refusal("InternalError", 500));
    cloud.harness.manifests(&[&of_folder("p", "another")]);
    for _ in 0..6 {
        cloud.settle();
        cloud.pass(5_000);
        cloud.sign_of_life();
    }
    assert_eq!(requested(&mut cloud), [] as [&str; 0], "the one before has not ended");
    cloud.work();
    cloud.pass(3_000);
    let message = cloud.take_sent("pod").remove(0);
    let annotations = content(&message)["metadata"]["annotations"].clone();
    assert_eq!(annotations["kubernetes.io/config.mirror"], "another");
}

#[test]
fn a_mirror_tolerates_what_its_pod_does_and_that_the_node_is_away() {
    let stays = json!({"operator": "Exists", "effect": "NoExecute"});
    let other = json!({"key": "k", "operator": "Exists"});
    for (written, shown) in [
        (json!([stays]), json!([stays])),
        (json!([other]), json!([other, stays])),
        (json!([]), json!([stays])),
    ] {
        let spec = format!("\"tolerations\":{written},{MAIN}");
        let mut cloud = running(&[&pod(&spec)]);
        let message = cloud.take_sent("pod").remove(0);
        assert_eq!(content(&message)["spec"]["tolerations"], shown, "{written}");
    }
}

#[test]
fn that_a_static_pod_was_evicted_once_is_taken_back_when_it_runs_again() {
    let mut cloud = running(&[&pod(MAIN)]);
    let message = cloud.take_sent("pod").remove(0);
    let mut mirror = made(&message, "m1");
    mirror["status"]["phase"] = "Failed".into();
    mirror["status"]["conditions"] = json!([
        {"type": "example.com/checked", "status": "True"},
        {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]);
    cloud.answer(&message, &json!({"Object": mirror, "Err": null}));
    cloud.push("insert", KEY, &mirror);
    // The earlier status is unknown; that of the answer is known.
    let reported = cloud.next("podpatch", 5_000);
    mirror["metadata"]["resourceVersion"] = "8".into();
    cloud.answer(&reported, &json!({"Object": mirror, "Err": null}));
    let reported = cloud.next("podpatch", 5_000);
    let conditions = patch(&reported)["status"]["conditions"].clone();
    let taken_back = json!({"$patch": "delete", "type": "DisruptionTarget"});
    let conditions = conditions.as_array().expect("a list");
    assert!(conditions.contains(&taken_back), "{conditions:?}");
    assert!(!conditions.iter().any(|it| it["type"] == "example.com/checked"), "{conditions:?}");
}

#[test]
fn without_the_uid_of_the_node_no_mirror_is_made() {
    for (node, known) in [
        (json!({"metadata": {"name": "gw", "uid": ""}}), false),
        (json!({"metadata": {"name": "other", "uid": "node-2"}}), false),
        (json!({"metadata": {"name": "gw", "uid": "node-1"}}), true),
    ] {
        let rows = vec![row("null/node/gw", &node)];
        let mut cloud = CloudHarness::with(Saved::kept(rows));
        cloud.connect();
        cloud.harness.manifests(&[&pod(MAIN)]);
        cloud.work();
        cloud.pass(2_000);
        let owners: Vec<Value> = cloud
            .take_sent("pod")
            .iter()
            .map(|it| content(it)["metadata"]["ownerReferences"][0]["uid"].clone())
            .collect();
        assert_eq!(owners, vec![json!("node-1"); usize::from(known)], "{node}");
    }
}

#[test]
fn the_lease_tells_the_uid_of_the_node() {
    let mut cloud = CloudHarness::with(Saved::kept(Vec::new()));
    cloud.connect();
    let requested = cloud.take_sent("lease").remove(0);
    let owners = json!([{"kind": "Pod", "uid": "of-a-pod"}, {"kind": "Node", "uid": ""},
        {"kind": "Node", "uid": "node-1"}]);
    let lease = json!({"metadata": {"name": "gw", "resourceVersion": "4",
        "ownerReferences": owners}, "spec": {}});
    cloud.answer(&requested, &json!({"Object": lease, "Err": null}));
    cloud.harness.manifests(&[&pod(MAIN)]);
    cloud.work();
    cloud.pass(2_000);
    let message = cloud.take_sent("pod").remove(0);
    assert_eq!(content(&message)["metadata"]["ownerReferences"][0]["uid"], "node-1");
}

#[test]
fn a_pod_that_nobody_knows_is_shown_to_nobody() {
    let node = json!({"metadata": {"name": "gw", "uid": "node-1", "resourceVersion": "3"}});
    let rows = vec![row("null/node/gw", &node)];
    let saved = Saved::new(rows, StoreOrigin::Lost("damaged".to_owned()));
    let mut cloud = CloudHarness::beside(
        saved,
        |_| (),
        |harness| {
            harness.sandboxes.push(sandbox("s1", 0, true));
            harness.containers.push(container("c1", "m", ContainerState::Running));
            harness.sandboxes[0].source = Some("api".into());
        },
    );
    cloud.connect();
    cloud.pass(5_000);
    cloud.sign_of_life();
    cloud.pass(5_000);
    assert_eq!(cloud.harness.running(), ["m"]);
    assert_eq!(requested(&mut cloud), [] as [&str; 0]);
}

#[test]
fn a_static_pod_that_has_ended_keeps_its_mirror() {
    let mut cloud = running(&[&pod(&format!("{MAIN},\"restartPolicy\":\"Never\""))]);
    let message = cloud.take_sent("pod").remove(0);
    let mirror = made(&message, "m1");
    cloud.answer(&message, &json!({"Object": mirror, "Err": null}));
    cloud.push("insert", KEY, &mirror);
    cloud.harness.exits("m", 0);
    cloud.work();
    let mut phases = Vec::new();
    for _ in 0..10 {
        cloud.sign_of_life();
        cloud.pass(5_000);
        cloud.work();
        for reported in cloud.take_sent("podpatch") {
            phases.push(patch(&reported)["status"]["phase"].clone());
            cloud.answer(&reported, &json!("OK"));
        }
    }
    assert!(phases.contains(&"Succeeded".into()), "{phases:?}");
    assert_eq!(requested(&mut cloud), [] as [&str; 0]);
}
