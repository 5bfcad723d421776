//! What the store is asked to write, what of the store counts, and what of the cloud's words.

use edged::agent::Config;
use edged::limits::{Budget, PROCESS_BYTES_LEAST};
use edged::model::cri::ContainerState;
use edged::model::message::{Header, Message, Route};
use edged::model::meta::{Change, Row, Saved, StoreOrigin};
use edged::model::settings::CloudSettings;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::cloud_harness::{Sky, pod, row};
use crate::desk::{UID, container, sandbox};

const MARK: &str = "edged/store/incomplete";

fn map(name: &str, version: u64, data: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name,
        "resourceVersion": version.to_string()}, "data": {"k": data}})
}

/// `+ns/pod/p`, `-ns/pod/p`: what is written and deleted.
fn keys(changes: &[Change]) -> Vec<String> {
    let key = |change: &Change| match change {
        Change::Put(row) => format!("+{}", row.key),
        Change::Delete { key } => format!("-{key}"),
    };
    changes.iter().map(key).collect()
}

fn lines(sky: &Sky, of: &str) -> usize {
    sky.desk.log.iter().filter(|line| line.contains(of)).count()
}

#[test]
fn one_that_takes_the_place_of_one_that_ends_is_taken() {
    let mut sky = Sky::new();
    let mut ending = pod("p", "u", 8);
    ending["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    sky.push("insert", "ns/pod/p", &ending);
    sky.work();
    sky.keeps = false;
    let id = sky.push("insert", "ns/pod/p", &pod("p", "v", 9));
    assert_eq!(keys(&sky.save())[0], "+ns/pod/p");
    assert!(sky.acked().contains(&id));
    sky.work();
    sky.pass(2_000);
    sky.work();
    assert_eq!(sky.desk.running(), ["m"]);
    assert!(sky.desk.agent.pod("v").is_some());
}

#[test]
fn an_object_without_a_version_is_taken_at_its_word() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/configmap/c", &map("c", 9, "a"));
    sky.keeps = false;
    let mut plain = map("c", 0, "b");
    plain["metadata"].as_object_mut().expect("a map").remove("resourceVersion");
    sky.push("update", "ns/configmap/c", &plain);
    assert_eq!(keys(&sky.save()), ["+ns/configmap/c"]);
}

#[test]
fn that_nothing_ends_an_object_is_no_end() {
    let mut sky = Sky::new();
    let mut wanted = pod("p", "u", 7);
    wanted["metadata"]["deletionTimestamp"] = Value::Null;
    sky.push("insert", "ns/pod/p", &wanted);
    sky.keeps = false;
    let mut changed = pod("p", "u", 8);
    changed["spec"]["activeDeadlineSeconds"] = json!(86_400);
    sky.push("update", "ns/pod/p", &changed);
    assert_eq!(keys(&sky.save()), ["+ns/pod/p"]);
}

#[test]
fn a_message_that_comes_twice_is_answered_once() {
    let mut sky = Sky::new();
    sky.keeps = false;
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    let [source, group, operation, resource] =
        ["edgecontroller", "resource", "update", "ns/configmap/c"].map(Box::from);
    let message = Message {
        header: Header { id: "twice".into(), ..Header::default() },
        route: Route { source, group, operation, resource },
        content: Some(to_raw_value(&map("c", 3, "a")).expect("JSON")),
    };
    for _ in 0..3 {
        sky.replay(message.clone());
    }
    sky.save();
    assert_eq!(keys(&sky.save()), ["+ns/configmap/c"]);
    sky.pass(2_000);
    while !sky.saves.is_empty() {
        sky.save();
    }
    assert_eq!(sky.acked().iter().filter(|id| *id == "twice").count(), 1);
}

#[test]
fn what_waits_while_a_save_fails_is_written_with_it() {
    let mut sky = Sky::new();
    sky.keeps = false;
    let first = sky.push("insert", "ns/configmap/a", &map("a", 3, "a"));
    let second = sky.push("insert", "ns/configmap/b", &map("b", 3, "b"));
    for _ in 0..4 {
        sky.fail_save();
        while sky.saves.is_empty() {
            sky.pass(1_000);
            sky.hear();
        }
    }
    let failed = "what the cloud sends is not taken, pods go on: no room: database or disk is full";
    assert_eq!((lines(&sky, failed), lines(&sky, "changes are kept again")), (1, 0));
    assert_eq!(keys(&sky.save()), ["+ns/configmap/a", "+ns/configmap/b"]);
    assert_eq!(sky.acked(), [first, second]);
    assert_eq!(lines(&sky, "changes are kept again"), 1);
    sky.push("insert", "ns/configmap/c", &map("c", 3, "c"));
    sky.save();
    assert_eq!(lines(&sky, "changes are kept again"), 1, "nothing was wrong");
    // The next trouble is a first one.
    sky.push("insert", "ns/configmap/d", &map("d", 3, "d"));
    sky.fail_save();
    assert_eq!(lines(&sky, failed), 2);
    sky.pass(1_500);
    assert_eq!(sky.saves.len(), 1, "and tried again as soon");
}

#[test]
fn an_older_update_that_waits_for_the_newer_one_leaves_it_as_it_is() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    sky.work();
    sky.acked();
    sky.keeps = false;
    let mut changed = pod("p", "u", 9);
    changed["metadata"]["labels"] = json!({"a": "b"});
    let newer = sky.push("update", "ns/pod/p", &changed);
    let older = sky.push("update", "ns/pod/p", &pod("p", "u", 8));
    assert_eq!(keys(&sky.save()), ["+ns/pod/p"]);
    assert_eq!(sky.save(), []);
    assert_eq!(sky.acked(), [newer, older]);
    sky.pass(2_000);
    let labels = |sky: &Sky| {
        sky.desk
            .agent
            .pod("u")
            .map(|pod| serde_json::to_value(&pod.api().metadata.labels).expect("JSON"))
    };
    assert_eq!(labels(&sky), Some(json!({"a": "b"})));
    assert_eq!(sky.desk.asked_for(), [] as [&str; 0], "it does not end");
    assert_eq!(sky.desk.running(), ["m"]);
}

#[test]
fn where_there_is_no_memory_left_an_object_may_change_as_long_as_it_takes_no_more() {
    let crumbs = |name: &str, version: u64, value: &str| {
        let data: Value = (0..4_000).map(|key| (key.to_string(), json!(value))).collect();
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name,
            "resourceVersion": version.to_string()}, "data": data})
    };
    let empty = Saved { rows: Vec::new(), origin: StoreOrigin::Kept };
    let mut sky = Sky::set_up(empty, |config| {
        config.cloud = Some(CloudSettings::default());
        config.machine.budget = Budget::of(PROCESS_BYTES_LEAST);
    });
    sky.connect();
    let push = |sky: &mut Sky, name: &str, version, value| {
        let object = crumbs(name, version, value);
        let id = sky.push("update", &format!("ns/configmap/{name}"), &object);
        &*sky.answers(&id)[0].route.operation == "response"
    };
    let fit = (0..20).take_while(|n| push(&mut sky, &n.to_string(), 3, "a")).count();
    assert!((3..10).contains(&fit), "{fit}");
    for version in 4..8 {
        let value = if version % 2 == 0 { "b" } else { "a" };
        assert!(push(&mut sky, "0", version, value), "{version}");
    }
}

/// A pod that some cloud has sent runs, and the store is this.
fn of_a_cloud(saved: Saved) -> Sky {
    let set = |config: &mut Config| config.cloud = Some(CloudSettings::default());
    let mut sky = Sky::beside(saved, set, |desk| {
        let mut one = sandbox("s1", 0, true);
        one.source = Some("api".into());
        desk.sandboxes.push(one);
        desk.containers.push(container("c1", "m", ContainerState::Running));
    });
    sky.pass(60_000);
    sky
}

fn kept(rows: Vec<Row>) -> Saved {
    Saved { rows, origin: StoreOrigin::Kept }
}

#[test]
fn that_the_store_does_not_know_all_is_written_at_once() {
    let some = || vec![row("ns/configmap/c", &map("c", 3, "a"))];
    let mark = row(MARK, &json!({}));
    let marked = format!("+{MARK}");
    for (saved, count) in [
        (Saved { rows: some(), origin: StoreOrigin::Lost("damaged".to_owned()) }, 1),
        (Saved { rows: vec![], origin: StoreOrigin::New }, 1),
        (kept([some(), vec![mark]].concat()), 0),
    ] {
        let what = format!("{saved:?}");
        let sky = of_a_cloud(saved);
        let written = keys(&sky.written).iter().filter(|key| **key == marked).count();
        assert_eq!(written, count, "{what}");
        assert_eq!(sky.desk.asked_for(), [] as [&str; 0], "{what}");
    }
    // One that knows all: what it does not have is nobody's.
    let sky = of_a_cloud(kept(some()));
    assert_eq!(keys(&sky.written), [] as [&str; 0]);
    assert_eq!(sky.desk.asked_for(), ["stop_container c1 2"]);
}

#[test]
fn rows_that_cannot_be_read_or_used_keep_pods_of_a_cloud_from_ending() {
    let some = || row("ns/configmap/c", &map("c", 3, "a"));
    let broken = Row { key: "default/pod/p-gw".into(), kind: "pod".into(), value: "{".into() };
    let unread = vec![("default/pod/p-gw".into(), UID.into())];
    for saved in [
        kept(vec![some(), broken]),
        Saved { rows: vec![some()], origin: StoreOrigin::Part { unread } },
    ] {
        let what = format!("{saved:?}");
        let sky = of_a_cloud(saved);
        assert_eq!(sky.desk.asked_for(), [] as [&str; 0], "{what}");
        assert_eq!(lines(&sky, "1 rows stay unread"), 1, "{:?}", sky.desk.log);
    }
    assert_eq!(lines(&of_a_cloud(kept(vec![some()])), "stay unread"), 0);
}

#[test]
fn a_row_that_cannot_be_used_goes_when_its_object_does() {
    let broken =
        || Row { key: "ns/configmap/c".into(), kind: "configmap".into(), value: "{".into() };
    let unread = || StoreOrigin::Part { unread: vec![("ns/configmap/c".into(), "c".into())] };
    let gone =
        |uid: Option<&str>| json!({"metadata": {"name": "c", "namespace": "ns", "uid": uid}});
    for (saved, uid, goes) in [
        // Of which object it was is not known.
        (kept(vec![broken()]), Some("c"), true),
        (kept(vec![broken()]), None, true),
        (Saved { rows: vec![], origin: unread() }, Some("c"), true),
        // Old clouds delete by name alone.
        (Saved { rows: vec![], origin: unread() }, None, true),
        (Saved { rows: vec![], origin: unread() }, Some("another"), false),
    ] {
        let what = format!("{saved:?} {uid:?}");
        let mut sky = Sky::with(saved);
        sky.connect();
        sky.written.clear();
        sky.push("delete", "ns/configmap/c", &gone(uid));
        let deleted = keys(&sky.written).contains(&"-ns/configmap/c".to_owned());
        assert_eq!(deleted, goes, "{what}");
    }
}

#[test]
fn of_what_is_gone_and_was_not_known_one_row_waits_to_be_written() {
    let lost = Saved { rows: vec![], origin: StoreOrigin::Lost("damaged".to_owned()) };
    let mut sky = of_a_cloud(lost);
    sky.connect();
    sky.keeps = false;
    sky.push("insert", "ns/configmap/c", &map("c", 3, "a"));
    sky.flood((0..200).map(|n| (format!("ns/pod/p{n}"), format!("u{n}"))));
    assert_eq!(keys(&sky.save()), ["+ns/configmap/c"]);
    let marks = keys(&sky.save()).iter().filter(|key| key.ends_with(MARK)).count();
    assert_eq!(marks, 1);
}

#[test]
fn a_pod_of_another_node_is_not_run() {
    let mut sky = Sky::new();
    let mut other = pod("p", "u", 7);
    other["spec"]["nodeName"] = json!("other");
    sky.push("insert", "ns/pod/p", &other);
    sky.pass(2_000);
    assert_eq!(sky.desk.trace, [] as [&str; 0]);
}

#[test]
fn one_that_ends_may_be_told_to_end_sooner() {
    let mut sky = Sky::new();
    let mut ending = pod("p", "u", 8);
    ending["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    ending["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    sky.push("insert", "ns/pod/p", &ending);
    sky.keeps = false;
    ending["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:01Z");
    ending["metadata"]["deletionGracePeriodSeconds"] = json!(1);
    ending["metadata"]["resourceVersion"] = json!("9");
    sky.push("update", "ns/pod/p", &ending);
    assert_eq!(keys(&sky.save()), ["+ns/pod/p"]);
}

#[test]
fn what_waits_without_an_answer_is_written_though_more_is_gone_that_was_not_known() {
    let mut user = pod("p", "u", 7);
    user["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [
        {"serviceAccountToken": {"path": "t", "expirationSeconds": 3607}}]}}]);
    let rows = vec![row("ns/pod/p", &user)];
    let mut sky = of_a_cloud(Saved { rows, origin: StoreOrigin::Lost("damaged".to_owned()) });
    sky.connect();
    let asked = sky.said("serviceaccounttoken").remove(0);
    sky.keeps = false;
    sky.push("insert", "ns/configmap/c", &map("c", 3, "a"));
    let mut token = crate::cloud_harness::content(&asked);
    let until = "2036-11-22T13:45:54Z";
    token["status"] = json!({"token": "a.b.c", "expirationTimestamp": until});
    sky.answer(&asked, &token);
    sky.flood([("ns/pod/q".to_owned(), "uq".to_owned())]);
    assert_eq!(keys(&sky.save()), ["+ns/configmap/c"]);
    let written = keys(&sky.save());
    assert_eq!(written.len(), 2, "{written:?}");
}
