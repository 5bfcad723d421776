//! A link that takes nothing more: what the node has to say of its own waits for room, and is then
//! said.

use edged::limits::UNSENT_MAX;
use edged::model::message::Message;
use edged::model::meta::{Saved, StoreOrigin};
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{Sky, content, pod};
use crate::desk::Desk;

/// As many messages of the cloud's as fill the link with their answers: objects are gone that were
/// never here.
pub fn absent() -> impl Iterator<Item = (String, String)> {
    (0..UNSENT_MAX).map(|n| (format!("ns/configmap/c{n}"), format!("u{n}")))
}

/// What was said over the link that answers nothing, nor only keeps it alive.
pub fn own(sky: &Sky) -> Vec<&str> {
    let is_own =
        |said: &&Message| said.header.parent_id.is_empty() && &*said.route.operation != "keepalive";
    sky.sent.iter().filter(is_own).map(|said| &*said.route.resource).collect()
}

/// Time passes over a link that is alive.
pub fn pass(sky: &mut Sky, seconds: u64) {
    for _ in 0..seconds {
        sky.pass(1_000);
        sky.hear();
    }
}

/// From now on the link is full.
fn fill(sky: &mut Sky) {
    sky.sent.clear();
    sky.takes = false;
    sky.flood(absent());
    assert_eq!(own(sky), [] as [&str; 0]);
}

/// The link takes what it is given again.
pub fn empty(sky: &mut Sky) {
    sky.takes = true;
    sky.leave(2 * UNSENT_MAX);
    pass(sky, 1);
}

/// The pod `p`, which has a volume, runs and is deleted; before that `spoil` makes something of it
/// stay. `pass` lets so many seconds go by.
pub fn delete_pod_with_volume(
    sky: &mut Sky,
    pass: impl Fn(&mut Sky, u64),
    spoil: impl FnOnce(&mut Desk),
) {
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    wanted["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    sky.push("insert", "ns/pod/p", &wanted);
    sky.work();
    pass(sky, 2);
    spoil(&mut sky.desk);
    wanted["metadata"]["resourceVersion"] = json!("8");
    wanted["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    sky.push("update", "ns/pod/p", &wanted);
    sky.work();
    for _ in 0..3 {
        for said in sky.said("podpatch") {
            sky.answer(&said, &json!({"Object": wanted, "Err": null}));
        }
        pass(sky, 10);
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
        let saved = Saved { rows: Vec::new(), origin: StoreOrigin::Kept };
        let mut sky = Sky::set("gw", saved, settings);
        sky.takes = false;
        sky.connect_amid(absent());
        pass(&mut sky, 20);
        assert_eq!(own(&sky), [] as [&str; 0]);
        empty(&mut sky);
        assert_eq!(sky.said("lease").len(), 1);
        assert_eq!(sky.said("node").len(), usize::from(register));
        assert_eq!(sky.said("nodepatch").len(), usize::from(!register));
    }
}

#[test]
fn labels_that_a_node_lacks_are_told_when_the_link_has_room() {
    let saved = Saved { rows: Vec::new(), origin: StoreOrigin::Kept };
    let mut sky = Sky::set("gw", saved, settings());
    sky.connect();
    pass(&mut sky, 1);
    fill(&mut sky);
    let node = json!({"metadata": {"name": "gw", "uid": "node-1", "resourceVersion": "3"}});
    sky.push("update", "null/node/gw", &node);
    pass(&mut sky, 5);
    assert_eq!(own(&sky), [] as [&str; 0]);
    empty(&mut sky);
    let said = sky.said("node");
    assert_eq!(said.len(), 1);
    assert_eq!(content(&said[0])["metadata"]["labels"]["kubernetes.io/hostname"], "gw");
}

#[test]
fn that_nothing_is_left_of_a_pod_is_said_when_the_link_has_room() {
    let saved = Saved { rows: Vec::new(), origin: StoreOrigin::Kept };
    let mut sky = Sky::set("gw", saved, settings());
    sky.connect();
    delete_pod_with_volume(&mut sky, pass, |desk| desk.bad_volume = Some("u"));
    fill(&mut sky);
    sky.desk.bad_volume = None;
    pass(&mut sky, 30);
    assert_eq!(own(&sky), [] as [&str; 0]);
    empty(&mut sky);
    let said = sky.said("pod");
    let said: Vec<&str> = said.iter().map(|it| &*it.route.operation).collect();
    assert_eq!(said, ["delete"]);
}

#[test]
fn what_the_answer_to_a_status_tells_of_the_pod_counts() {
    let mut sky = Sky::new();
    let mut wanted = pod("p", "u", 7);
    sky.push("insert", "ns/pod/p", &wanted);
    sky.work();
    sky.pass(2_000);
    let told = sky.said("podpatch").pop().expect("that it runs");
    // Somebody deletes it meanwhile; the cloud's own word of that has not come yet.
    wanted["metadata"]["resourceVersion"] = json!("8");
    wanted["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    let answer = |object: &Value| json!({"Object": object, "Err": null});
    sky.answer(&told, &answer(&wanted));
    sky.pass(2_000);
    assert_eq!(sky.desk.asked_for().len(), 1, "{:?}", sky.desk.asked_for());
    sky.work();
    assert_eq!(sky.desk.running(), [] as [&str; 0]);
}
