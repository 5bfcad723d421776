//! Pods that are held back until somebody on the node releases them.

use edged::agent::Config;
use edged::agent::event::Event;
use edged::limits::METASERVER_ANSWER_MS;
use edged::model::cri::{ContainerState, PodRef};
use edged::model::meta::{Change, Row, Saved};
use edged::model::metaserver::{Call, Caller, ClientId, MetaServerSettings, Release, Reply};
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, patch, pod, row};
use crate::harness::{START, container, sandbox};

/// A pod with the annotation, which is still to start.
fn marked(name: &str, uid: &str) -> Value {
    let mut pod = pod(name, uid, 7);
    pod["metadata"]["annotations"] = json!({"edge.kubeedge.io/hold-upgrade": "true"});
    pod
}

fn set(config: &mut Config) {
    config.cloud = Some(CloudSettings::default());
    config.metaserver = Some(MetaServerSettings::default());
}

/// A node with this store and MetaServer, with a link.
fn node(rows: Vec<Row>) -> CloudHarness {
    let mut cloud = CloudHarness::set_up(Saved::kept(rows), set);
    cloud.connect();
    cloud
}

fn release(cloud: &mut CloudHarness, id: u64, what: Release) {
    call(cloud, id, Call::Release(what));
}

fn call(cloud: &mut CloudHarness, id: u64, call: Call) {
    cloud.harness.deliver(Event::MetaServerOpened(ClientId(id), Box::new(call), Caller::Local));
    cloud.settle();
    cloud.pass(100);
}

fn of_pod(name: &str) -> Release {
    Release::Pod { namespace: "ns".into(), name: name.into() }
}

/// The codes of the answers since the last call; 200 for those without an object.
fn codes(cloud: &mut CloudHarness) -> Vec<(u64, u16)> {
    let code = |reply: Reply| match reply {
        Reply::Done => 200,
        Reply::Failure(failure) => failure.code,
        other => panic!("{other:?}"),
    };
    std::mem::take(&mut cloud.replies).into_iter().map(|(id, it)| (id.0, code(it))).collect()
}

/// The conditions of this kind that were reported since the last call; the cloud takes the reports.
fn reported(cloud: &mut CloudHarness) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let reports = cloud.take_sent("podpatch");
        if reports.is_empty() {
            return all;
        }
        for report in reports {
            let conditions = patch(&report)["status"]["conditions"].clone();
            all.extend(conditions.as_array().cloned().unwrap_or_default());
            cloud.answer(&report, &json!("OK"));
            cloud.pass(1_000);
        }
        all.retain(|it| it["type"] == "HeldUpgrade");
    }
}

/// Some time passes; the runtime does what is requested, and the cloud takes what is reported.
fn live(cloud: &mut CloudHarness) {
    for _ in 0..20 {
        cloud.work();
        cloud.pass(1_000);
        cloud.sign_of_life();
        reported(cloud);
    }
}

#[test]
fn a_marked_pod_begins_when_its_release_is_durable() {
    let mut cloud = node(Vec::new());
    let id = cloud.push("update", "ns/pod/p", &marked("p", "u"));
    cloud.pass(5_000);
    assert_eq!(cloud.acked(), [id]);
    assert!(cloud.harness.open_calls().is_empty() && cloud.harness.running().is_empty());
    let held = reported(&mut cloud);
    assert_eq!(held.len(), 1, "{held:?}");
    assert_eq!(
        (&held[0]["status"], &held[0]["reason"]),
        (&json!("True"), &json!("HoldUpgradeEnabled"))
    );
    // The cloud's copy of that status changes nothing.
    cloud.push("update", "ns/pod/p", &marked("p", "u"));
    cloud.keeps = false;
    release(&mut cloud, 1, of_pod("p"));
    cloud.pass(5_000);
    assert_eq!((codes(&mut cloud), cloud.harness.open_calls().len()), (vec![], 0), "not durable");
    let [Change::Put(row)] = &cloud.save()[..] else { panic!("one row") };
    assert_eq!((&*row.key, &*row.kind), ("ns/podrelease/p", "podrelease"));
    assert_eq!(codes(&mut cloud), [(1, 200)]);
    cloud.keeps = true;
    cloud.harness.does_all(START);
    assert_eq!(cloud.harness.running(), ["m"]);
    cloud.settle();
    cloud.pass(1_000);
    assert_eq!(reported(&mut cloud).pop().expect("it is reported")["status"], "False");
    release(&mut cloud, 2, of_pod("p"));
    assert_eq!(codes(&mut cloud), [(2, 400)], "it has begun");
}

#[test]
fn a_release_holds_over_a_reboot_without_the_cloud() {
    let mut cloud = node(vec![row("ns/pod/p", &marked("p", "u"))]);
    cloud.written.clear();
    release(&mut cloud, 1, of_pod("p"));
    let [Change::Put(released)] = &cloud.written[..] else { panic!("{:?}", cloud.written) };
    let rows = vec![row("ns/pod/p", &marked("p", "u")), released.clone()];
    let mut after = CloudHarness::set_up(Saved::kept(rows), set);
    after.harness.does_all(START);
    assert_eq!(after.harness.running(), ["m"]);
    // It is of one pod: the next of its name is held.
    let rows = vec![row("ns/pod/p", &marked("p", "u-2")), released.clone()];
    let mut next = CloudHarness::set_up(Saved::kept(rows), set);
    next.pass(60_000);
    assert!(next.harness.open_calls().is_empty());
    // A crash before the release was durable: the client had no answer.
    let rows = vec![row("ns/pod/p", &marked("p", "u"))];
    let mut without = CloudHarness::set_up(Saved::kept(rows), set);
    without.pass(60_000);
    assert!(without.harness.open_calls().is_empty());
}

#[test]
fn what_has_begun_is_not_held() {
    let saved = || Saved::kept(vec![row("ns/pod/p", &marked("p", "u"))]);
    let mut runs = CloudHarness::beside(saved(), set, |harness| {
        let mut main = container("c1", "m", ContainerState::Running);
        main.pod = Some(PodRef { uid: "u".into(), namespace: "ns".into(), name: "p".into() });
        let mut one = sandbox("s1", 0, true);
        (one.pod, one.source) = (main.pod.clone(), Some("api".into()));
        harness.sandboxes.push(one);
        harness.containers.push(main);
    });
    runs.work();
    assert_eq!(runs.harness.trace, ["podsandbox_status s1", "container_status c1"]);
    assert_eq!(runs.harness.running(), ["m"]);
    // The cloud knows that it runs: after a reboot the runtime may have nothing of it.
    let mut running = marked("p", "u");
    running["status"]["phase"] = json!("Running");
    let rows = vec![row("ns/pod/p", &running)];
    let mut rebooted = CloudHarness::set_up(Saved::kept(rows), set);
    rebooted.harness.does_all(START);
    assert_eq!(rebooted.harness.running(), ["m"]);
    // Nobody could release it.
    let mut off = CloudHarness::with(saved());
    off.harness.does_all(START);
    assert_eq!(off.harness.running(), ["m"]);
}

#[test]
fn the_cloud_learns_of_the_start_and_the_row_is_of_a_running_pod() {
    let mut cloud = node(vec![row("ns/pod/p", &marked("p", "u"))]);
    release(&mut cloud, 1, of_pod("p"));
    cloud.written.clear();
    let mut running = marked("p", "u");
    running["metadata"]["resourceVersion"] = json!("8");
    running["status"]["phase"] = json!("Running");
    cloud.push("update", "ns/pod/p", &running);
    cloud.pass(1_000);
    let [Change::Put(row)] = &cloud.written[..] else { panic!("{:?}", cloud.written) };
    assert!(row.value.contains("Running"), "{}", row.value);
}

#[test]
fn a_pod_stays_held_while_its_runtime_is_away() {
    let mut cloud = node(vec![row("ns/pod/p", &marked("p", "u"))]);
    cloud.pass(5_000);
    assert_eq!(reported(&mut cloud)[0]["status"], "True");
    cloud.harness.deliver(Event::RuntimeDown { cause: "connection refused".to_owned() });
    let mut changed = marked("p", "u");
    changed["metadata"]["resourceVersion"] = json!("8");
    changed["metadata"]["labels"] = json!({"a": "b"});
    changed["spec"]["activeDeadlineSeconds"] = json!(86_400);
    cloud.push("update", "ns/pod/p", &changed);
    cloud.pass(5_000);
    cloud.harness.deliver(Event::RuntimeUp);
    cloud.settle();
    cloud.pass(5_000);
    let said = reported(&mut cloud);
    assert!(said.iter().all(|it| it["status"] == "True"), "nobody has released it: {said:?}");
    assert!(cloud.harness.open_calls().is_empty());
}

#[test]
fn a_release_that_the_store_does_not_take_is_answered_in_time_and_done_later() {
    let mut cloud = node(vec![row("ns/pod/p", &marked("p", "u"))]);
    cloud.keeps = false;
    release(&mut cloud, 1, of_pod("p"));
    cloud.pass(METASERVER_ANSWER_MS);
    assert_eq!(codes(&mut cloud), [(1, 503)]);
    assert!(cloud.harness.open_calls().is_empty());
    cloud.save();
    cloud.pass(1_000);
    assert_eq!(codes(&mut cloud), [], "once");
    assert_eq!(cloud.harness.open_calls().len(), 1, "it starts");
}

#[test]
fn what_cannot_be_released_is_said() {
    let rows = vec![row("ns/pod/plain", &pod("plain", "u0", 7))];
    let mut cloud = node(rows);
    release(&mut cloud, 1, of_pod("none"));
    release(&mut cloud, 2, of_pod("plain"));
    release(&mut cloud, 3, Release::Node("other".into()));
    release(&mut cloud, 4, Release::Node("gw".into()));
    call(&mut cloud, 5, Call::ConfirmUpgrade);
    assert_eq!(codes(&mut cloud), [(1, 404), (2, 400), (3, 404), (4, 200), (5, 400)]);
}

#[test]
fn a_node_releases_all_its_pods() {
    let rows = vec![row("ns/pod/a", &marked("a", "u1")), row("ns/pod/b", &marked("b", "u2"))];
    let mut cloud = node(rows);
    cloud.pass(5_000);
    assert!(cloud.harness.open_calls().is_empty());
    release(&mut cloud, 1, Release::Node("gw".into()));
    assert_eq!(codes(&mut cloud), [(1, 200)]);
    assert_eq!(cloud.harness.open_calls().len(), 2);
}

#[test]
fn a_held_pod_ends_and_the_next_of_its_name_is_held_again() {
    let mut cloud = node(vec![row("ns/pod/p", &marked("p", "u"))]);
    release(&mut cloud, 1, of_pod("p"));
    cloud.harness.does_all(START);
    cloud.settle();
    cloud.written.clear();
    cloud.push("delete", "ns/pod/p", &marked("p", "u"));
    cloud.push("update", "ns/pod/p", &marked("p", "u-2"));
    cloud.pass(5_000);
    let deleted =
        |change: &Change| matches!(change, Change::Delete { key } if **key == *"ns/podrelease/p");
    assert!(cloud.written.iter().any(deleted), "{:?}", cloud.written);
    live(&mut cloud);
    assert!(cloud.harness.running().is_empty(), "the first has ended, the second is held");
    let mut deleting = marked("p", "u-2");
    deleting["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
    deleting["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    cloud.push("update", "ns/pod/p", &deleting);
    live(&mut cloud);
    assert!(!cloud.take_sent("pod").is_empty(), "its object may go");
}
