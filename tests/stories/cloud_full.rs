//! A link that accepts nothing more: the node's own messages wait for room, and are then sent.

use edged::limits::UNSENT_MAX;
use edged::model::message::Message;
use edged::model::meta::Saved;
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, pod};
use crate::harness::Harness;

/// As many messages of the cloud as fill the link with their answers: deletions of objects that
/// were never here.
pub fn absent() -> impl Iterator<Item = (String, String)> {
    (0..UNSENT_MAX).map(|n| (format!("ns/configmap/c{n}"), format!("u{n}")))
}

/// Messages on the link that are neither answers nor keepalives.
pub fn own(cloud: &CloudHarness) -> Vec<&str> {
    let is_own =
        |sent: &&Message| sent.header.parent_id.is_empty() && &*sent.route.operation != "keepalive";
    cloud.sent.iter().filter(is_own).map(|sent| &*sent.route.resource).collect()
}

/// Time passes over a link that is alive.
pub fn pass(cloud: &mut CloudHarness, seconds: u64) {
    for _ in 0..seconds {
        cloud.pass(1_000);
        cloud.sign_of_life();
    }
}

/// From now on the link is full.
fn fill(cloud: &mut CloudHarness) {
    cloud.sent.clear();
    cloud.takes = false;
    cloud.flood(absent());
    assert_eq!(own(cloud), [] as [&str; 0]);
}

/// The link accepts messages again.
pub fn empty(cloud: &mut CloudHarness) {
    cloud.takes = true;
    cloud.leave(2 * UNSENT_MAX);
    pass(cloud, 1);
}

/// The pod `p`, which has a volume, runs and is deleted; before that `spoil` prevents a part of it
/// from being removed. `pass` lets this many seconds pass.
pub fn delete_pod_with_volume(
    cloud: &mut CloudHarness,
    pass: impl Fn(&mut CloudHarness, u64),
    spoil: impl FnOnce(&mut Harness),
) {
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    wanted["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    cloud.push("insert", "ns/pod/p", &wanted);
    cloud.work();
    pass(cloud, 2);
    spoil(&mut cloud.harness);
    wanted["metadata"]["resourceVersion"] = json!("8");
    wanted["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    cloud.push("update", "ns/pod/p", &wanted);
    cloud.work();
    for _ in 0..3 {
        for sent in cloud.take_sent("podpatch") {
            cloud.answer(&sent, &json!({"Object": wanted, "Err": null}));
        }
        pass(cloud, 10);
    }
}

/// What is sent has no rate.
fn settings() -> CloudSettings {
    CloudSettings { messages_per_second: 0, ..CloudSettings::default() }
}

#[test]
fn over_a_link_that_is_full_from_the_start_the_node_says_nothing_before_there_is_room() {
    for register in [true, false] {
        let mut settings = settings();
        settings.registration.register = register;
        let saved = Saved::kept(Vec::new());
        let mut cloud = CloudHarness::set("gw", saved, settings);
        cloud.takes = false;
        cloud.connect_amid(absent());
        pass(&mut cloud, 20);
        assert_eq!(own(&cloud), [] as [&str; 0]);
        empty(&mut cloud);
        assert_eq!(cloud.take_sent("lease").len(), 1);
        assert_eq!(cloud.take_sent("node").len(), usize::from(register));
        assert_eq!(cloud.take_sent("nodepatch").len(), usize::from(!register));
    }
}

#[test]
fn labels_that_a_node_lacks_are_told_when_the_link_has_room() {
    let saved = Saved::kept(Vec::new());
    let mut cloud = CloudHarness::set("gw", saved, settings());
    cloud.connect();
    pass(&mut cloud, 1);
    fill(&mut cloud);
    let node = json!({"metadata": {"name": "gw", "uid": "node-1", "resourceVersion": "3"}});
    cloud.push("update", "null/node/gw", &node);
    pass(&mut cloud, 5);
    assert_eq!(own(&cloud), [] as [&str; 0]);
    empty(&mut cloud);
    let sent = cloud.take_sent("node");
    assert_eq!(sent.len(), 1);
    assert_eq!(content(&sent[0])["metadata"]["labels"]["kubernetes.io/hostname"], "gw");
}

#[test]
fn that_nothing_is_left_of_a_pod_is_said_when_the_link_has_room() {
    let saved = Saved::kept(Vec::new());
    let mut cloud = CloudHarness::set("gw", saved, settings());
    cloud.connect();
    delete_pod_with_volume(&mut cloud, pass, |harness| harness.bad_volume = Some("u"));
    fill(&mut cloud);
    cloud.harness.bad_volume = None;
    pass(&mut cloud, 30);
    assert_eq!(own(&cloud), [] as [&str; 0]);
    empty(&mut cloud);
    let sent = cloud.take_sent("pod");
    let sent: Vec<&str> = sent.iter().map(|it| &*it.route.operation).collect();
    assert_eq!(sent, ["delete"]);
}

#[test]
fn what_the_answer_to_a_status_tells_of_the_pod_counts() {
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    cloud.push("insert", "ns/pod/p", &wanted);
    cloud.work();
    cloud.pass(2_000);
    let reported = cloud.take_sent("podpatch").pop().expect("that it runs");
    // Another writer deletes it meanwhile; the cloud's own message has not arrived yet.
    wanted["metadata"]["resourceVersion"] = json!("8");
    wanted["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    let answer = |object: &Value| json!({"Object": object, "Err": null});
    cloud.answer(&reported, &answer(&wanted));
    cloud.pass(2_000);
    assert_eq!(cloud.harness.open_calls().len(), 1, "{:?}", cloud.harness.open_calls());
    cloud.work();
    assert_eq!(cloud.harness.running(), [] as [&str; 0]);
}
