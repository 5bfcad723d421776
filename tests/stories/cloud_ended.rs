//! The end of a pod of the cloud is durable before it is reported to the cloud.

use edged::limits::{META_ROWS_MAX, META_WAITING_MAX};
use edged::model::meta::{Change, Row, Saved};
use serde_json::{Value, json};

use crate::cloud_full;
use crate::cloud_harness::{CloudHarness, patch, pod, row};

const WORD: &str = "ns/podpatch/p";

fn job() -> Value {
    let mut job = pod("p", "u", 7);
    job["spec"]["restartPolicy"] = "Never".into();
    job
}

/// Its pod runs and ends, without a link; the store does not answer.
fn ended() -> (CloudHarness, Vec<Change>) {
    let rows = vec![row("ns/pod/p", &job())];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.work();
    cloud.keeps = false;
    cloud.harness.exits("m", 0);
    cloud.harness.pass(2_000);
    cloud.work();
    let (_, changes) = cloud.saves.last().expect("a save").clone();
    (cloud, changes)
}

fn word(changes: &[Change]) -> Row {
    match changes {
        [Change::Put(word)] => word.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn that_a_pod_has_ended_is_kept_before_the_cloud_is_told() {
    let (mut cloud, changes) = ended();
    let word = word(&changes);
    assert_eq!((&*word.key, &*word.kind), (WORD, "podpatch"));
    cloud.connect();
    cloud.sign_of_life();
    cloud.pass(10_000);
    let phases = |cloud: &mut CloudHarness| -> Vec<Value> {
        let sent = cloud.take_sent("podpatch");
        sent.iter().map(|message| patch(message)["status"]["phase"].clone()).collect()
    };
    assert_eq!(phases(&mut cloud), [] as [Value; 0]);
    cloud.save();
    cloud.sign_of_life();
    cloud.pass(1_000);
    assert_eq!(phases(&mut cloud), ["Succeeded"]);
}

#[test]
fn what_was_kept_of_its_end_keeps_a_pod_from_running_again() {
    let (_, changes) = ended();
    let rows = vec![row("ns/pod/p", &job()), word(&changes)];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.work();
    assert_eq!(cloud.harness.running(), [] as [&str; 0]);
    assert_eq!(cloud.harness.status()["phase"], "Succeeded");
    // Another pod of its name is a different one.
    let mut other = job();
    other["metadata"]["uid"] = "v".into();
    let rows = vec![row("ns/pod/p", &other), word(&changes)];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.work();
    assert_eq!(cloud.harness.running(), ["m"]);
}

#[test]
fn of_one_whose_place_another_is_about_to_take_nothing_is_kept() {
    let rows = vec![row("ns/pod/p", &job())];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.connect();
    cloud.work();
    cloud.keeps = false;
    let mut other = job();
    (other["metadata"]["uid"], other["metadata"]["resourceVersion"]) = ("v".into(), "9".into());
    cloud.push("update", "ns/pod/p", &other);
    cloud.harness.exits("m", 0);
    cloud.harness.pass(2_000);
    cloud.work();
    while !cloud.saves.is_empty() {
        for change in cloud.save() {
            assert!(matches!(&change, Change::Put(row) if &*row.key == "ns/pod/p"), "{change:?}");
        }
    }
}

#[test]
fn what_was_kept_of_an_end_goes_when_another_takes_the_place() {
    let (mut cloud, _) = ended();
    cloud.save();
    cloud.connect();
    let mut other = job();
    (other["metadata"]["uid"], other["metadata"]["resourceVersion"]) = ("v".into(), "9".into());
    cloud.push("update", "ns/pod/p", &other);
    let changes = cloud.save();
    let gone = |change: &Change| matches!(change, Change::Delete { key } if &**key == WORD);
    assert!(changes.iter().any(gone), "{changes:?}");
}

#[test]
fn with_the_pod_goes_what_was_kept_of_its_end() {
    let (mut cloud, _) = ended();
    cloud.save();
    cloud.connect();
    cloud.saves.clear();
    let gone = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}});
    cloud.push("delete", "ns/pod/p", &gone);
    let changes = cloud.save();
    let keys = changes.iter().map(|change| {
        let Change::Delete { key } = change else { panic!("{change:?}") };
        &**key
    });
    assert_eq!(keys.collect::<Vec<_>>(), [WORD, "ns/pod/p"]);
}

#[test]
fn the_end_of_an_earlier_pod_of_the_name_is_not_its_own() {
    let (_, changes) = ended();
    let mut other = job();
    other["metadata"]["uid"] = "v".into();
    let rows = vec![row("ns/pod/p", &other), word(&changes)];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.connect();
    cloud.work();
    cloud.sign_of_life();
    cloud.pass(2_000);
    cloud.sent.clear();
    cloud.keeps = false;
    cloud.disconnect();
    cloud.harness.exits("m", 0);
    cloud.harness.pass(2_000);
    cloud.work();
    let (_, changes) = cloud.saves.last().expect("a save").clone();
    assert!(word(&changes).value.contains("\"v\""), "{changes:?}");
    cloud.pass(15_000);
    cloud.connect();
    cloud.sign_of_life();
    cloud.pass(5_000);
    assert_eq!(cloud.take_sent("podpatch").len(), 0, "nothing of its end is durable");
}

#[test]
fn an_end_that_the_cloud_has_told_costs_no_write() {
    let mut failed = job();
    failed["status"]["phase"] = "Failed".into();
    let rows = vec![row("ns/pod/p", &failed)];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.connect();
    cloud.sign_of_life();
    cloud.pass(10_000);
    assert_eq!(cloud.written, []);
}

/// An object that no pod uses.
fn map(n: usize) -> Value {
    json!({"metadata": {"name": format!("c{n}"), "namespace": "ns", "uid": format!("c{n}")}})
}

/// The reported phases, which the cloud accepts.
fn phases(cloud: &mut CloudHarness) -> Vec<Value> {
    let mut phases = Vec::new();
    for _ in 0..3 {
        cloud.sign_of_life();
        cloud.pass(1_000);
        for message in cloud.take_sent("podpatch") {
            phases.push(patch(&message)["status"]["phase"].clone());
            cloud.answer(&message, &json!("OK"));
        }
    }
    phases.retain(|phase| !phase.is_null());
    phases
}

#[test]
fn of_an_end_that_the_store_has_no_room_for_the_cloud_is_told_all_the_same() {
    let mut rows = vec![row("ns/pod/p", &job())];
    rows.extend((1..META_ROWS_MAX).map(|n| row(&format!("ns/configmap/c{n}"), &map(n))));
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.work();
    cloud.harness.exits("m", 0);
    cloud.harness.pass(2_000);
    cloud.work();
    cloud.connect();
    assert_eq!(phases(&mut cloud), ["Succeeded"]);
}

#[test]
fn an_end_that_finds_too_much_waiting_for_the_disk_is_kept_after_it() {
    let rows = vec![row("ns/pod/p", &job())];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.work();
    cloud.connect();
    cloud.sign_of_life();
    cloud.pass(2_000);
    for reported in cloud.take_sent("podpatch") {
        cloud.answer(&reported, &json!("OK"));
    }
    cloud.keeps = false;
    for n in 0..=META_WAITING_MAX {
        cloud.push("insert", &format!("ns/configmap/c{n}"), &map(n));
    }
    cloud.harness.exits("m", 0);
    cloud.harness.pass(2_000);
    cloud.work();
    assert_eq!(cloud.save().len(), 1);
    assert_eq!(cloud.save().len(), META_WAITING_MAX);
    assert!(!phases(&mut cloud).contains(&json!("Succeeded")), "it is not durable");
    assert_eq!(word(&cloud.save()).key, WORD.into());
    assert_eq!(phases(&mut cloud), ["Succeeded"]);
}

#[test]
fn an_object_of_the_name_of_a_pod_that_has_ended_takes_nothing_of_it() {
    let (mut cloud, _) = ended();
    cloud.save();
    cloud.connect();
    cloud.push("insert", "ns/configmap/p", &map(1));
    cloud.push("delete", "ns/configmap/p", &json!({"metadata": {"name": "p", "namespace": "ns"}}));
    while !cloud.saves.is_empty() {
        for change in cloud.save() {
            let is_it = matches!(&change, Change::Delete { key } if &**key == WORD);
            assert!(!is_it, "{change:?}");
        }
    }
}

#[test]
fn of_a_pod_that_the_cloud_has_deleted_nothing_is_told_while_it_ends() {
    let mut cloud = CloudHarness::new();
    let wanted = pod("p", "u", 7);
    cloud.push("insert", "ns/pod/p", &wanted);
    // That it runs could not be reported yet.
    cloud.takes = false;
    cloud.flood(cloud_full::absent());
    cloud.work();
    cloud.push("delete", "ns/pod/p", &wanted);
    cloud_full::empty(&mut cloud);
    cloud_full::pass(&mut cloud, 5);
    assert_eq!(cloud.harness.running(), ["m"], "its end takes a while");
    assert_eq!((cloud.take_sent("podpatch").len(), cloud.take_sent("pod").len()), (0, 0));
    cloud.work();
    cloud_full::pass(&mut cloud, 5);
    assert_eq!(cloud.harness.running(), [] as [&str; 0]);
    assert_eq!((cloud.take_sent("podpatch").len(), cloud.take_sent("pod").len()), (0, 0));
}
