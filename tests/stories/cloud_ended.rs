//! That a pod of the cloud has ended is durable before the cloud hears of it.

use edged::limits::{META_ROWS_MAX, META_WAITING_MAX};
use edged::model::meta::{Change, Row, Saved, StoreOrigin};
use serde_json::{Value, json};

use crate::cloud_full;
use crate::cloud_harness::{Sky, patch, pod, row};

const WORD: &str = "ns/podpatch/p";

fn job() -> Value {
    let mut job = pod("p", "u", 7);
    job["spec"]["restartPolicy"] = "Never".into();
    job
}

/// Its pod runs and ends, without a link; the store does not answer.
fn ended() -> (Sky, Vec<Change>) {
    let rows = vec![row("ns/pod/p", &job())];
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.work();
    sky.keeps = false;
    sky.desk.exits("m", 0);
    sky.desk.pass(2_000);
    sky.work();
    let (_, changes) = sky.saves.last().expect("a save").clone();
    (sky, changes)
}

fn word(changes: &[Change]) -> Row {
    match changes {
        [Change::Put(word)] => word.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn that_a_pod_has_ended_is_kept_before_the_cloud_is_told() {
    let (mut sky, changes) = ended();
    let word = word(&changes);
    assert_eq!((&*word.key, &*word.kind), (WORD, "podpatch"));
    sky.connect();
    sky.hear();
    sky.pass(10_000);
    let phases = |sky: &mut Sky| -> Vec<Value> {
        let said = sky.said("podpatch");
        said.iter().map(|message| patch(message)["status"]["phase"].clone()).collect()
    };
    assert_eq!(phases(&mut sky), [] as [Value; 0]);
    sky.save();
    sky.hear();
    sky.pass(1_000);
    assert_eq!(phases(&mut sky), ["Succeeded"]);
}

#[test]
fn what_was_kept_of_its_end_keeps_a_pod_from_running_again() {
    let (_, changes) = ended();
    let rows = vec![row("ns/pod/p", &job()), word(&changes)];
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.work();
    assert_eq!(sky.desk.running(), [] as [&str; 0]);
    assert_eq!(sky.desk.status()["phase"], "Succeeded");
    // Another of its name is another.
    let mut other = job();
    other["metadata"]["uid"] = "v".into();
    let rows = vec![row("ns/pod/p", &other), word(&changes)];
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.work();
    assert_eq!(sky.desk.running(), ["m"]);
}

#[test]
fn of_one_whose_place_another_is_about_to_take_nothing_is_kept() {
    let rows = vec![row("ns/pod/p", &job())];
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.connect();
    sky.work();
    sky.keeps = false;
    let mut other = job();
    (other["metadata"]["uid"], other["metadata"]["resourceVersion"]) = ("v".into(), "9".into());
    sky.push("update", "ns/pod/p", &other);
    sky.desk.exits("m", 0);
    sky.desk.pass(2_000);
    sky.work();
    while !sky.saves.is_empty() {
        for change in sky.save() {
            assert!(matches!(&change, Change::Put(row) if &*row.key == "ns/pod/p"), "{change:?}");
        }
    }
}

#[test]
fn what_was_kept_of_an_end_goes_when_another_takes_the_place() {
    let (mut sky, _) = ended();
    sky.save();
    sky.connect();
    let mut other = job();
    (other["metadata"]["uid"], other["metadata"]["resourceVersion"]) = ("v".into(), "9".into());
    sky.push("update", "ns/pod/p", &other);
    let changes = sky.save();
    let gone = |change: &Change| matches!(change, Change::Delete { key } if &**key == WORD);
    assert!(changes.iter().any(gone), "{changes:?}");
}

#[test]
fn with_the_pod_goes_what_was_kept_of_its_end() {
    let (mut sky, _) = ended();
    sky.save();
    sky.connect();
    sky.saves.clear();
    let gone = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}});
    sky.push("delete", "ns/pod/p", &gone);
    let changes = sky.save();
    let keys = changes.iter().map(|change| match change {
        Change::Delete { key } => &**key,
        Change::Put(row) => panic!("{row:?}"),
    });
    assert_eq!(keys.collect::<Vec<_>>(), [WORD, "ns/pod/p"]);
}

#[test]
fn the_end_of_an_earlier_pod_of_the_name_is_not_its_own() {
    let (_, changes) = ended();
    let mut other = job();
    other["metadata"]["uid"] = "v".into();
    let rows = vec![row("ns/pod/p", &other), word(&changes)];
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.connect();
    sky.work();
    sky.hear();
    sky.pass(2_000);
    sky.sent.clear();
    sky.keeps = false;
    sky.disconnect();
    sky.desk.exits("m", 0);
    sky.desk.pass(2_000);
    sky.work();
    let (_, changes) = sky.saves.last().expect("a save").clone();
    assert!(word(&changes).value.contains("\"v\""), "{changes:?}");
    sky.pass(15_000);
    sky.connect();
    sky.hear();
    sky.pass(5_000);
    assert_eq!(sky.said("podpatch").len(), 0, "nothing of its end is durable");
}

#[test]
fn an_end_that_the_cloud_has_told_costs_no_write() {
    let mut failed = job();
    failed["status"]["phase"] = "Failed".into();
    let rows = vec![row("ns/pod/p", &failed)];
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.connect();
    sky.hear();
    sky.pass(10_000);
    assert_eq!(sky.written, []);
}

/// An object of no pod's.
fn map(n: usize) -> Value {
    json!({"metadata": {"name": format!("c{n}"), "namespace": "ns", "uid": format!("c{n}")}})
}

/// The phases that the cloud is told, and takes.
fn phases(sky: &mut Sky) -> Vec<Value> {
    let mut phases = Vec::new();
    for _ in 0..3 {
        sky.hear();
        sky.pass(1_000);
        for message in sky.said("podpatch") {
            phases.push(patch(&message)["status"]["phase"].clone());
            sky.answer(&message, &json!("OK"));
        }
    }
    phases.retain(|phase| !phase.is_null());
    phases
}

#[test]
fn of_an_end_that_the_store_has_no_room_for_the_cloud_is_told_all_the_same() {
    let mut rows = vec![row("ns/pod/p", &job())];
    rows.extend((1..META_ROWS_MAX).map(|n| row(&format!("ns/configmap/c{n}"), &map(n))));
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.work();
    sky.desk.exits("m", 0);
    sky.desk.pass(2_000);
    sky.work();
    sky.connect();
    assert_eq!(phases(&mut sky), ["Succeeded"]);
}

#[test]
fn an_end_that_finds_too_much_waiting_for_the_disk_is_kept_after_it() {
    let rows = vec![row("ns/pod/p", &job())];
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.work();
    sky.connect();
    sky.hear();
    sky.pass(2_000);
    for told in sky.said("podpatch") {
        sky.answer(&told, &json!("OK"));
    }
    sky.keeps = false;
    for n in 0..=META_WAITING_MAX {
        sky.push("insert", &format!("ns/configmap/c{n}"), &map(n));
    }
    sky.desk.exits("m", 0);
    sky.desk.pass(2_000);
    sky.work();
    assert_eq!(sky.save().len(), 1);
    assert_eq!(sky.save().len(), META_WAITING_MAX);
    assert!(!phases(&mut sky).contains(&json!("Succeeded")), "it is not durable");
    assert_eq!(word(&sky.save()).key, WORD.into());
    assert_eq!(phases(&mut sky), ["Succeeded"]);
}

#[test]
fn an_object_of_the_name_of_a_pod_that_has_ended_takes_nothing_of_it() {
    let (mut sky, _) = ended();
    sky.save();
    sky.connect();
    sky.push("insert", "ns/configmap/p", &map(1));
    sky.push("delete", "ns/configmap/p", &json!({"metadata": {"name": "p", "namespace": "ns"}}));
    while !sky.saves.is_empty() {
        for change in sky.save() {
            let is_it = matches!(&change, Change::Delete { key } if &**key == WORD);
            assert!(!is_it, "{change:?}");
        }
    }
}

#[test]
fn of_a_pod_that_the_cloud_has_deleted_nothing_is_told_while_it_ends() {
    let mut sky = Sky::new();
    let wanted = pod("p", "u", 7);
    sky.push("insert", "ns/pod/p", &wanted);
    // That it runs could not be said yet.
    sky.takes = false;
    sky.flood(cloud_full::absent());
    sky.work();
    sky.push("delete", "ns/pod/p", &wanted);
    cloud_full::empty(&mut sky);
    cloud_full::pass(&mut sky, 5);
    assert_eq!(sky.desk.running(), ["m"], "its end takes a while");
    assert_eq!((sky.said("podpatch").len(), sky.said("pod").len()), (0, 0));
    sky.work();
    cloud_full::pass(&mut sky, 5);
    assert_eq!(sky.desk.running(), [] as [&str; 0]);
    assert_eq!((sky.said("podpatch").len(), sky.said("pod").len()), (0, 0));
}
