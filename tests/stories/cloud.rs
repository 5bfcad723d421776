//! Pods of the cloud, and when they are acknowledged.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, patch, pod, row};
use crate::harness::{START, container, sandbox};
use edged::agent::Config;
use edged::agent::event::Event;
use edged::agent::time::Wall;
use edged::model::cri::{Code, ContainerState};
use edged::model::job::JobSpec;
use edged::model::message::Message;
use edged::model::meta::{Change, Saved, StoreOrigin};
use edged::model::settings::CloudSettings;

/// A pod of the cloud runs.
fn running() -> CloudHarness {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.harness.does_all(START);
    cloud.settle();
    cloud
}

#[test]
fn a_pod_counts_and_is_acknowledged_when_it_is_kept() {
    let mut cloud = CloudHarness::new();
    cloud.keeps = false;
    let id = cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.pass(5_000);
    assert_eq!(cloud.harness.trace, [] as [&str; 0], "nothing is done about what may be forgotten");
    assert_eq!(cloud.acked(), [] as [&str; 0]);
    let changes = cloud.save();
    assert_eq!(cloud.acked(), [id]);
    assert_eq!(cloud.harness.open_calls(), ["run_podsandbox #0"]);
    let [Change::Put(row)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((&*row.key, &*row.kind), ("ns/pod/p", "pod"));
    assert!(!row.value.contains("managedFields"), "{}", row.value);
    assert!(row.value.contains(r#""qosClass":"BestEffort""#), "{}", row.value);
}

#[test]
fn what_cannot_be_kept_is_not_acknowledged_and_tried_again() {
    let mut cloud = CloudHarness::new();
    cloud.keeps = false;
    let id = cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.fail_save();
    cloud.pass(900);
    assert_eq!(cloud.saves.len(), 0, "not at once");
    cloud.pass(200);
    assert_eq!(cloud.acked(), [] as [&str; 0]);
    assert_eq!(cloud.harness.trace, [] as [&str; 0]);
    cloud.save();
    assert_eq!(cloud.acked(), [id]);
    assert_eq!(cloud.harness.open_calls(), ["run_podsandbox #0"]);
}

#[test]
fn pods_of_the_store_run_without_a_cloud() {
    let rows = vec![row("ns/pod/p", &pod("p", "u", 7))];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.harness.does_all(START);
    assert_eq!(cloud.harness.running(), ["m"]);
}

/// A pod that some cloud has sent runs, and the store holds this.
fn of_a_cloud(saved: Saved) -> CloudHarness {
    let set = |config: &mut Config| config.cloud = Some(CloudSettings::default());
    CloudHarness::beside(saved, set, |harness| {
        let mut one = sandbox("s1", 0, true);
        one.source = Some("api".into());
        harness.sandboxes.push(one);
        harness.containers.push(container("c1", "m", ContainerState::Running));
    })
}

#[test]
fn what_the_store_has_lost_is_left_running() {
    let some = vec![row("ns/configmap/c", &json!({"metadata": {"name": "c", "namespace": "ns"}}))];
    for (origin, rows, requested) in [
        (StoreOrigin::Kept, some, &["stop_container c1 2"][..]),
        // The life that created it was cut off before it could report that it is new.
        (StoreOrigin::Kept, vec![], &[]),
        (StoreOrigin::New, vec![], &[]),
        (StoreOrigin::Lost("damaged".to_owned()), vec![], &[]),
    ] {
        let mut cloud = of_a_cloud(Saved::new(rows, origin.clone()));
        cloud.pass(60_000);
        assert_eq!(cloud.harness.open_calls(), requested, "{origin:?}");
    }
}

#[test]
fn an_update_that_only_brings_a_status_costs_no_write() {
    let mut cloud = running();
    cloud.acked();
    cloud.keeps = false;
    let mut echo = pod("p", "u", 8);
    echo["status"] = json!({"phase": "Running", "podIP": "10.88.0.5"});
    echo["metadata"]["managedFields"] = json!([{"manager": "y"}]);
    let id = cloud.push("update", "ns/pod/p", &echo);
    assert_eq!(cloud.acked(), [id]);
    assert_eq!(cloud.saves.len(), 0);
    echo["metadata"]["resourceVersion"] = json!("9");
    echo["status"]["phase"] = json!("Failed");
    cloud.push("update", "ns/pod/p", &echo);
    assert_eq!(cloud.saves.len(), 1, "that a pod has ended must not be forgotten");
}

#[test]
fn the_store_never_goes_back() {
    let mut cloud = running();
    cloud.acked();
    cloud.keeps = false;
    let older = pod("p", "u", 6);
    let mut other = pod("p", "before", 5);
    other["spec"]["containers"][0]["image"] = json!("i:2");
    for stale in [older, other] {
        let id = cloud.push("update", "ns/pod/p", &stale);
        assert_eq!(cloud.acked(), [id]);
        assert_eq!(cloud.saves.len(), 0);
    }
    // The deletion of another incarnation does not affect this one.
    let id = cloud.push("delete", "ns/pod/p", &json!({"metadata": {"name": "p", "uid": "before"}}));
    assert_eq!(cloud.acked(), [id]);
    assert_eq!(cloud.saves.len(), 0);
    assert_eq!(cloud.harness.open_calls(), [] as [&str; 0]);
}

#[test]
fn what_was_deleted_does_not_come_back() {
    // Old clouds delete by name alone.
    for reported in [pod("p", "u", 9), json!({"metadata": {"name": "p", "namespace": "ns"}})] {
        let mut cloud = running();
        cloud.push("delete", "ns/pod/p", &reported);
        assert_eq!(cloud.harness.open_calls(), ["stop_container c2 30"]);
        cloud.acked();
        cloud.keeps = false;
        let id = cloud.push("update", "ns/pod/p", &pod("p", "u", 8));
        assert_eq!(cloud.acked(), [id]);
        assert_eq!(cloud.saves.len(), 0, "it is not stored, and the next life does not get it");
        let mut all = cloud.harness.agent.pods();
        assert!(all.all(|pod| pod.metadata.deletion_timestamp.is_some()));
    }
}

#[test]
fn a_deletion_timestamp_is_never_taken_back() {
    let mut cloud = running();
    let mut ending = pod("p", "u", 8);
    ending["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    ending["metadata"]["deletionGracePeriodSeconds"] = json!(5);
    cloud.push("update", "ns/pod/p", &ending);
    assert_eq!(cloud.harness.open_calls(), ["stop_container c2 5"]);
    cloud.keeps = false;
    cloud.push("update", "ns/pod/p", &pod("p", "u", 9));
    assert_eq!(cloud.saves.len(), 0);
}

#[test]
fn a_pod_is_told_of_when_it_runs_and_deleted_when_nothing_is_left() {
    let mut cloud = running();
    let sent = cloud.take_sent("podpatch");
    assert_eq!(sent.len(), 1, "one report, not one for each stage");
    let reported = patch(&sent[0]);
    assert_eq!(&*sent[0].route.operation, "patch");
    assert_eq!(&*sent[0].route.resource, "ns/podpatch/p");
    assert_eq!(reported["metadata"], json!({"uid": "u"}));
    assert_eq!(reported["status"]["phase"], "Running");
    assert_eq!(reported["status"].get("qosClass"), None);
    let mut taken = pod("p", "u", 8);
    taken["status"] = serde_json::to_value(&cloud.harness.agent.pods().next().expect("one").status)
        .expect("JSON");
    cloud.answer(&sent[0], &json!({"Object": taken.clone(), "Err": null}));
    cloud.push("update", "ns/pod/p", &taken);
    cloud.pass(30_000);
    assert_eq!(cloud.take_sent("podpatch").len(), 0, "what it wrote itself is no news");

    taken["metadata"]["resourceVersion"] = json!("9");
    taken["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    taken["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    cloud.push("update", "ns/pod/p", &taken);
    cloud.harness.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    cloud.settle();
    assert_eq!(cloud.take_sent("pod").len(), 0, "first the status, then the deletion");
    let sent = cloud.take_sent("podpatch");
    assert_eq!(patch(&sent[0])["status"]["phase"], "Failed");
    cloud.answer(&sent[0], &json!({"Object": taken, "Err": null}));
    let sent = cloud.take_sent("pod");
    assert_eq!(sent.len(), 1);
    assert_eq!(&*sent[0].route.operation, "delete");
    let expected = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}});
    assert_eq!(content(&sent[0]), expected);
    cloud.answer(&sent[0], &json!("OK"));
    cloud.push("delete", "ns/pod/p", &taken);
    cloud.harness.does_all(&["remove_container c2", "remove_podsandbox s1"]);
    cloud.pass(100);
    assert_eq!(cloud.harness.agent.pods().count(), 0);
}

#[test]
fn a_report_that_failed_without_a_word_is_made_again() {
    let mut cloud = running();
    let sent = cloud.take_sent("podpatch");
    let nothing = json!({"metadata": {"creationTimestamp": null}, "spec": {}, "status": {}});
    cloud.answer(&sent[0], &json!({"Object": nothing, "Err": {}}));
    cloud.sign_of_life();
    cloud.pass(12_000);
    let repeated = cloud.take_sent("podpatch");
    assert_eq!(repeated.len(), 1);
    assert_eq!(patch(&repeated[0])["status"]["phase"], "Running");
}

/// The cloud accepts the reports about the only pod.
fn takes_reports(cloud: &mut CloudHarness, object: &mut Value, version: &mut u64) {
    for sent in cloud.take_sent("podpatch") {
        *version += 1;
        let status = &cloud.harness.agent.pods().next().expect("one").status;
        object["status"] = serde_json::to_value(status).expect("plain data");
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        cloud.answer(&sent, &json!({"Object": object, "Err": null}));
    }
}

#[test]
fn that_a_pod_has_ended_is_kept_as_soon_as_the_cloud_knows() {
    let mut cloud = CloudHarness::new();
    let (mut once, mut version) = (pod("p", "u", 7), 7);
    once["spec"]["restartPolicy"] = json!("Never");
    cloud.push("insert", "ns/pod/p", &once);
    cloud.harness.does_all(START);
    cloud.settle();
    takes_reports(&mut cloud, &mut once, &mut version);
    cloud.keeps = false;
    cloud.harness.exits("m", 0);
    cloud.pass(12_000);
    takes_reports(&mut cloud, &mut once, &mut version);
    assert_eq!(cloud.saves.len(), 0);
    cloud.harness.does_all(&["container_status c2", "stop_podsandbox s1"]);
    cloud.settle();
    for _ in 0..3 {
        cloud.sign_of_life();
        cloud.pass(12_000);
        takes_reports(&mut cloud, &mut once, &mut version);
    }
    assert_eq!(once["status"]["phase"], "Succeeded");
    let changes = cloud.save();
    let [Change::Put(row)] = &changes[..] else { panic!("{changes:?}") };
    assert!(row.value.contains("Succeeded"), "{}", row.value);
}

#[test]
fn conditions_that_others_set_are_left_alone() {
    let mut cloud = CloudHarness::new();
    let mut watched = pod("p", "u", 7);
    watched["status"]["conditions"] = json!([{"type": "example.com/checked", "status": "True"}]);
    cloud.push("insert", "ns/pod/p", &watched);
    cloud.harness.does_all(START);
    cloud.settle();
    let reported = patch(&cloud.take_sent("podpatch")[0]);
    assert!(!reported.to_string().contains("example.com"), "{reported}");
}

#[test]
fn what_a_whole_report_did_not_take_away_is_taken_away_by_the_next() {
    let mut cloud = running();
    let sent = cloud.take_sent("podpatch");
    let mut taken = pod("p", "u", 8);
    taken["status"] = serde_json::to_value(&cloud.harness.agent.pods().next().expect("one").status)
        .expect("JSON");
    taken["status"]["reason"] = json!("Once");
    cloud.answer(&sent[0], &json!({"Object": taken.clone(), "Err": null}));
    cloud.pass(12_000);
    let reported = cloud.take_sent("podpatch");
    assert_eq!(reported.len(), 1);
    assert_eq!(patch(&reported[0])["status"], json!({"reason": null}));
    taken["metadata"]["resourceVersion"] = json!("9");
    cloud.answer(&reported[0], &json!({"Object": taken, "Err": null}));
    cloud.pass(12_000);
    assert_eq!(cloud.take_sent("podpatch").len(), 0, "the cloud wants it so");
}

#[test]
fn what_is_sent_again_while_it_is_written_is_acknowledged_when_it_is_durable() {
    let mut cloud = running();
    cloud.acked();
    cloud.keeps = false;
    let gone = pod("p", "u", 9);
    let first = cloud.push("delete", "ns/pod/p", &gone);
    let second = cloud.push("delete", "ns/pod/p", &gone);
    assert_eq!(cloud.acked(), [] as [&str; 0]);
    assert_eq!(cloud.save().len(), 1);
    assert_eq!(cloud.acked(), [first]);
    cloud.save();
    assert_eq!(cloud.acked(), [second]);
}

#[test]
fn objects_that_a_pod_names_are_asked_for_and_kept_before_they_count() {
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["containers"][0]["env"] = json!([
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "a"}}},
    ]);
    cloud.push("insert", "ns/pod/p", &wanted);
    let requested = cloud.take_sent("configmap");
    assert_eq!(requested.len(), 1);
    assert_eq!(
        (&*requested[0].route.operation, &*requested[0].route.resource),
        ("query", "ns/configmap/cm")
    );
    cloud.acked();
    cloud.keeps = false;
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": "cm", "namespace": "ns", "uid": "c", "resourceVersion": "3"},
        "data": {"a": "1"}});
    let id = cloud.answer(&requested[0], &map);
    assert_eq!(cloud.acked(), [] as [&str; 0]);
    cloud.save();
    assert_eq!(cloud.acked(), [id]);
    cloud.pass(120_000);
    assert_eq!(cloud.take_sent("configmap").len(), 0, "it is here");
}

#[test]
fn an_object_that_the_cloud_does_not_have_is_not_kept_and_asked_for_again() {
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
    cloud.push("insert", "ns/pod/p", &wanted);
    cloud.keeps = false;
    let requested = cloud.take_sent("secret");
    cloud.acked();
    let refusal = json!({"ErrStatus": {"metadata": {}, "status": "Failure", "code": 404,
        "message": "secret \"s\" not found", "reason": "NotFound"}});
    let id = cloud.answer(&requested[0], &refusal);
    assert_eq!(cloud.acked(), [id]);
    assert_eq!(cloud.saves.len(), 0);
    cloud.sign_of_life();
    for _ in 0..12 {
        cloud.pass(10_000);
        cloud.sign_of_life();
    }
    assert!(!cloud.take_sent("secret").is_empty());
}

#[test]
fn messages_that_nobody_serves_are_kept_and_acknowledged_all_the_same() {
    let mut cloud = CloudHarness::new();
    let device = json!({"kind": "Device", "metadata": {"name": "t", "namespace": "ns",
        "uid": "d", "resourceVersion": "4"}});
    let id = cloud.push("insert", "ns/device/t", &device);
    assert_eq!(cloud.acked(), [id]);
}

#[test]
fn the_link_is_kept_alive_and_given_up_after_silence() {
    let mut cloud = CloudHarness::new();
    let keepalive = |cloud: &mut CloudHarness| {
        cloud.sent.iter().filter(|message| &*message.route.operation == "keepalive").count()
    };
    assert_eq!(keepalive(&mut cloud), 1, "at once");
    for _ in 0..60 {
        cloud.pass(1_000);
        cloud.sign_of_life();
    }
    assert_eq!(keepalive(&mut cloud), 5);
    assert_eq!((cloud.pings, cloud.hung_up), (0, 0));
    cloud.pass(39_000);
    assert_eq!((cloud.pings, cloud.hung_up), (2, 0));
    cloud.pass(2_000);
    assert_eq!(cloud.hung_up, 1);
    cloud.pass(2_000);
    assert_eq!(cloud.dialled.len(), 1);
}

#[test]
fn what_was_asked_for_is_asked_again_over_the_next_link() {
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "cm"}}]);
    cloud.push("insert", "ns/pod/p", &wanted);
    assert_eq!(cloud.take_sent("configmap").len(), 1);
    cloud.disconnect();
    cloud.pass(2_000);
    cloud.connect();
    assert_eq!(cloud.take_sent("configmap").len(), 1);
}

#[test]
fn a_pod_that_the_cloud_knows_to_have_ended_is_not_run_again() {
    let mut ended = pod("p", "u", 7);
    ended["status"] = json!({"phase": "Failed", "reason": "Evicted"});
    let rows = vec![row("ns/pod/p", &ended)];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.pass(60_000);
    assert_eq!(cloud.harness.trace, [] as [&str; 0]);
    cloud.harness.deliver(Event::Stop);
}

#[test]
fn events_go_to_the_cloud_if_that_is_wished_and_not_otherwise() {
    let settings = CloudSettings { report_events: true, ..CloudSettings::default() };
    let mut cloud = CloudHarness::set("gw", Saved::default(), settings);
    cloud.connect();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.work();
    cloud.disconnect();
    cloud.harness.exits("m", 1);
    cloud.work();
    cloud.pass(2_000);
    cloud.connect();
    let reported = cloud.take_sent("event");
    let reasons: Vec<_> =
        reported.iter().map(|message| content(message)["reason"].clone()).collect();
    for reason in ["Created", "Started"] {
        assert!(reasons.contains(&json!(reason)), "{reasons:?}");
    }
    let first = &reported[0];
    assert_eq!(&*first.route.operation, "insert");
    assert_eq!(content(first)["involvedObject"]["name"], "p");
    assert_eq!(content(first)["metadata"]["namespace"], "ns");
    let names: BTreeSet<_> =
        reported.iter().map(|message| message.route.resource.clone()).collect();
    let inserts = reported.iter().filter(|message| &*message.route.operation == "insert").count();
    assert_eq!(names.len(), inserts, "repeats change what is there");
    cloud.pass(60_000);
    let mut silent = running();
    silent.pass(10_000);
    assert_eq!(silent.take_sent("event").len(), 0);
}

#[test]
fn a_retry_whose_error_names_another_id_each_time_is_one_event_in_the_cloud() {
    let settings = CloudSettings { report_events: true, ..CloudSettings::default() };
    let mut cloud = CloudHarness::set("gw", Saved::default(), settings);
    cloud.connect();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    let fail = |cloud: &mut CloudHarness, n: u64| {
        let id = format!("{n:064x}");
        let why = format!("failed to set up the network of sandbox \"{id}\"");
        cloud.harness.refuses("run_podsandbox #0", Code::Unknown, &why);
        cloud.pass(30_000);
    };
    fail(&mut cloud, 0);
    cloud.disconnect();
    (1..5).for_each(|n| fail(&mut cloud, n));
    cloud.pass(300_000);
    cloud.connect();
    let reported = cloud.take_sent("event");
    let is_it = |it: &&Message| content(it)["reason"] == "FailedCreatePodSandBox";
    let reported: Vec<_> = reported.iter().filter(is_it).collect();
    let operations: Vec<_> = reported.iter().map(|it| &*it.route.operation).collect();
    assert_eq!(operations, ["insert", "update"]);
    assert_eq!(reported[0].route.resource, reported[1].route.resource);
    assert_eq!(content(reported[1])["count"], 5);
}

#[test]
fn an_event_that_began_without_a_link_is_new_to_the_cloud() {
    let settings = CloudSettings { report_events: true, ..CloudSettings::default() };
    let mut cloud = CloudHarness::set("gw", Saved::default(), settings);
    cloud.connect();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.disconnect();
    for _ in 0..3 {
        cloud.harness.refuses("run_podsandbox #0", Code::Unknown, "no network");
        cloud.pass(30_000);
    }
    cloud.connect();
    let reported = cloud.take_sent("event");
    let is_it = |it: &&Message| content(it)["reason"] == "FailedCreatePodSandBox";
    let reported: Vec<_> = reported.iter().filter(is_it).collect();
    let [first] = reported[..] else { panic!("{reported:?}") };
    assert_eq!((&*first.route.operation, &content(first)["count"]), ("insert", &json!(3)));
}

#[test]
fn a_clock_that_is_far_ahead_does_not_cost_one_certificate_after_the_other() {
    let mut cloud = CloudHarness::new();
    cloud.harness.now.wall = Some(Wall(1_829_900_000_000));
    cloud.sign_of_life();
    cloud.pass(2_000);
    assert_eq!(cloud.hung_up, 1, "for the new certificate");
    cloud.connect();
    cloud.pass(30_000);
    let requested = cloud.harness.specs.iter().filter(|spec| matches!(spec, JobSpec::Enrol { .. }));
    assert_eq!(requested.count(), 1);
    assert_eq!(cloud.hung_up, 1);
}

#[test]
fn what_was_lost_once_is_left_alone_in_the_next_lives_too() {
    let mark = row("edged/store/incomplete", &json!({}));
    let next = |found: bool| {
        let saved = Saved::kept(vec![mark.clone()]);
        let mut cloud = if found { of_a_cloud(saved) } else { CloudHarness::with(saved) };
        cloud.pass(60_000);
        cloud
    };
    let is_new = |cloud: &CloudHarness| {
        let overview = cloud.harness.agent.overview(cloud.harness.now);
        overview.cloud.expect("there is one").store_is_new
    };
    let with_it = next(true);
    assert_eq!(with_it.harness.open_calls(), [] as [&str; 0]);
    assert!(is_new(&with_it));
    assert!(!is_new(&next(false)), "nothing is left of what was lost");
}

#[test]
fn an_object_that_is_too_large_is_refused_and_what_was_stays() {
    let mut cloud = CloudHarness::new();
    cloud.keeps = false;
    let map = |bytes: usize| {
        json!({"kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "cm", "namespace": "ns", "uid": "c", "resourceVersion": "3"},
            "data": {"a": "x".repeat(bytes)}})
    };
    let id = cloud.push("insert", "ns/configmap/cm", &map(2 << 20));
    assert_eq!(cloud.saves.len(), 0);
    let answer = cloud.sent.iter().find(|answer| *answer.header.parent_id == *id).expect("one");
    assert_eq!(&*answer.route.operation, "error");
    assert!(content(answer).as_str().expect("a text").contains("expected"), "{answer:?}");
    cloud.sent.clear();
    // The queue for a full disk is limited in bytes as well.
    for n in 0..40 {
        let mut one = map(1 << 20);
        one["metadata"]["uid"] = json!(n.to_string());
        cloud.push("insert", &format!("ns/configmap/{n}"), &one);
    }
    cloud.fail_save();
    cloud.pass(2_000);
    assert!(cloud.saves[0].1.len() <= 16, "{}", cloud.saves[0].1.len());
}

#[test]
fn a_pod_that_the_cloud_has_placed_by_labels_of_its_own_runs() {
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    cloud.push("insert", "ns/pod/p", &wanted);
    assert_eq!(cloud.harness.open_calls(), ["run_podsandbox #0"]);
}
