//! Writes to the store, which of its rows count, and which messages of the cloud.

use edged::agent::Config;
use edged::limits::{Budget, PROCESS_BYTES_LEAST};
use edged::model::cri::ContainerState;
use edged::model::message::{Header, Message, Route};
use edged::model::meta::{Change, Row, Saved, StoreOrigin};
use edged::model::settings::CloudSettings;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, pod, row};
use crate::harness::{UID, container, sandbox};

const MARK: &str = "edged/store/incomplete";

fn map(name: &str, version: u64, data: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name,
        "resourceVersion": version.to_string()}, "data": {"k": data}})
}

/// `+ns/pod/p`, `-ns/pod/p`: what is written and deleted.
fn keys(changes: &[Change]) -> Vec<String> {
    let key = |change: &Change| match change {
        #[cfg(feature = "devices")]
        Change::SubTopic(row) => format!("{row:?}"),
        #[cfg(feature = "servicebus")]
        Change::TargetUrl(row) => format!("{row:?}"),
        Change::Put(row) => format!("+{}", row.key),
        Change::Delete { key } => format!("-{key}"),
        #[cfg(feature = "devices")]
        Change::Device(change) => format!("{change:?}"),
        #[cfg(feature = "metaserver")]
        Change::Item(change) => format!("{change:?}"),
    };
    changes.iter().map(key).collect()
}

fn lines(cloud: &CloudHarness, of: &str) -> usize {
    cloud.harness.log.iter().filter(|line| line.contains(of)).count()
}

#[test]
fn one_that_takes_the_place_of_one_that_ends_is_taken() {
    let mut cloud = CloudHarness::new();
    let mut ending = pod("p", "u", 8);
    ending["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    cloud.push("insert", "ns/pod/p", &ending);
    cloud.work();
    cloud.keeps = false;
    let id = cloud.push("insert", "ns/pod/p", &pod("p", "v", 9));
    assert_eq!(keys(&cloud.save())[0], "+ns/pod/p");
    assert!(cloud.acked().contains(&id));
    cloud.work();
    cloud.pass(2_000);
    cloud.work();
    assert_eq!(cloud.harness.running(), ["m"]);
    assert!(cloud.harness.agent.pod("v").is_some());
}

#[test]
fn an_object_without_a_version_is_taken_at_its_word() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/configmap/c", &map("c", 9, "a"));
    cloud.keeps = false;
    let mut plain = map("c", 0, "b");
    plain["metadata"].as_object_mut().expect("a map").remove("resourceVersion");
    cloud.push("update", "ns/configmap/c", &plain);
    assert_eq!(keys(&cloud.save()), ["+ns/configmap/c"]);
}

#[test]
fn that_nothing_ends_an_object_is_no_end() {
    let mut cloud = CloudHarness::new();
    let mut wanted = pod("p", "u", 7);
    wanted["metadata"]["deletionTimestamp"] = Value::Null;
    cloud.push("insert", "ns/pod/p", &wanted);
    cloud.keeps = false;
    let mut changed = pod("p", "u", 8);
    changed["spec"]["activeDeadlineSeconds"] = json!(86_400);
    cloud.push("update", "ns/pod/p", &changed);
    assert_eq!(keys(&cloud.save()), ["+ns/pod/p"]);
}

/// edgecontroller removes what no pod of the node has used for ten minutes, with the object in the
/// message; a pod may come that uses it.
#[test]
fn what_no_pod_used_for_a_while_comes_back() {
    let mut cloud = CloudHarness::new();
    let key = "ns/configmap/m";
    let puts = |cloud: &CloudHarness| {
        let is_it = |change: &&Change| matches!(change, Change::Put(row) if *row.key == *key);
        cloud.written.iter().filter(is_it).count()
    };
    cloud.push("insert", key, &map("m", 7, "a"));
    cloud.push("delete", key, &map("m", 7, "a"));
    // A late message of before.
    let late = cloud.push("update", key, &map("m", 6, "b"));
    assert!(cloud.acked().contains(&late));
    assert_eq!(puts(&cloud), 1);
    let again = cloud.push("insert", key, &map("m", 7, "a"));
    assert_eq!(puts(&cloud), 2);
    assert!(cloud.acked().contains(&again));
    // It was deleted: without its version, as by the cloud's synchroniser.
    let uid = map("m", 7, "a")["metadata"]["uid"].clone();
    let gone = json!({"metadata": {"name": "m", "namespace": "ns", "uid": uid}});
    cloud.push("delete", key, &gone);
    cloud.push("insert", key, &map("m", 9, "c"));
    assert_eq!(puts(&cloud), 2, "it does not exist any more");
}

#[test]
fn a_message_that_comes_twice_is_answered_once() {
    let mut cloud = CloudHarness::new();
    cloud.keeps = false;
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    let [source, group, operation, resource] =
        ["edgecontroller", "resource", "update", "ns/configmap/c"].map(Box::from);
    let message = Message {
        header: Header { id: "twice".into(), ..Header::default() },
        route: Route { source, group, operation, resource },
        content: Some(to_raw_value(&map("c", 3, "a")).expect("JSON")),
    };
    for _ in 0..3 {
        cloud.replay(&message);
    }
    cloud.save();
    assert_eq!(keys(&cloud.save()), ["+ns/configmap/c"]);
    cloud.pass(2_000);
    while !cloud.saves.is_empty() {
        cloud.save();
    }
    assert_eq!(cloud.acked().iter().filter(|id| *id == "twice").count(), 1);
}

#[test]
fn what_waits_while_a_save_fails_is_written_with_it() {
    let mut cloud = CloudHarness::new();
    cloud.keeps = false;
    let first = cloud.push("insert", "ns/configmap/a", &map("a", 3, "a"));
    let second = cloud.push("insert", "ns/configmap/b", &map("b", 3, "b"));
    for _ in 0..4 {
        cloud.fail_save();
        while cloud.saves.is_empty() {
            cloud.pass(1_000);
            cloud.sign_of_life();
        }
    }
    let failed = "changes from the cloud cannot be saved, pods keep running: no room: database or \
                  disk is full";
    assert_eq!((lines(&cloud, failed), lines(&cloud, "changes are saved again")), (1, 0));
    assert_eq!(keys(&cloud.save()), ["+ns/configmap/a", "+ns/configmap/b"]);
    assert_eq!(cloud.acked(), [first, second]);
    assert_eq!(lines(&cloud, "changes are saved again"), 1);
    cloud.push("insert", "ns/configmap/c", &map("c", 3, "c"));
    cloud.save();
    assert_eq!(lines(&cloud, "changes are saved again"), 1, "nothing was wrong");
    // The next trouble is a first one.
    cloud.push("insert", "ns/configmap/d", &map("d", 3, "d"));
    cloud.fail_save();
    assert_eq!(lines(&cloud, failed), 2);
    cloud.pass(1_500);
    assert_eq!(cloud.saves.len(), 1, "and tried again as soon");
}

#[test]
fn an_older_update_that_waits_for_the_newer_one_leaves_it_as_it_is() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.work();
    cloud.acked();
    cloud.keeps = false;
    let mut changed = pod("p", "u", 9);
    changed["metadata"]["labels"] = json!({"a": "b"});
    let newer = cloud.push("update", "ns/pod/p", &changed);
    let older = cloud.push("update", "ns/pod/p", &pod("p", "u", 8));
    assert_eq!(keys(&cloud.save()), ["+ns/pod/p"]);
    assert_eq!(cloud.save(), []);
    assert_eq!(cloud.acked(), [newer, older]);
    cloud.pass(2_000);
    let labels = |cloud: &CloudHarness| {
        cloud
            .harness
            .agent
            .pod("u")
            .map(|pod| serde_json::to_value(&pod.api().metadata.labels).expect("JSON"))
    };
    assert_eq!(labels(&cloud), Some(json!({"a": "b"})));
    assert_eq!(cloud.harness.open_calls(), [] as [&str; 0], "it does not end");
    assert_eq!(cloud.harness.running(), ["m"]);
}

#[test]
fn where_there_is_no_memory_left_an_object_may_change_as_long_as_it_takes_no_more() {
    let crumbs = |name: &str, version: u64, value: &str| {
        let data: Value = (0..4_000).map(|key| (key.to_string(), json!(value))).collect();
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name,
            "resourceVersion": version.to_string()}, "data": data})
    };
    let empty = Saved::kept(Vec::new());
    let mut cloud = CloudHarness::set_up(empty, |config| {
        config.cloud = Some(CloudSettings::default());
        config.machine.budget = Budget::of(PROCESS_BYTES_LEAST);
    });
    cloud.connect();
    let push = |cloud: &mut CloudHarness, name: &str, version, value| {
        let object = crumbs(name, version, value);
        let id = cloud.push("update", &format!("ns/configmap/{name}"), &object);
        &*cloud.answers(&id)[0].route.operation == "response"
    };
    let fit = (0..20).take_while(|n| push(&mut cloud, &n.to_string(), 3, "a")).count();
    assert!((3..10).contains(&fit), "{fit}");
    for version in 4..8 {
        let value = if version % 2 == 0 { "b" } else { "a" };
        assert!(push(&mut cloud, "0", version, value), "{version}");
    }
}

/// A pod that some cloud has sent runs, and the store is this.
fn of_a_cloud(saved: Saved) -> CloudHarness {
    let set = |config: &mut Config| config.cloud = Some(CloudSettings::default());
    let mut cloud = CloudHarness::beside(saved, set, |harness| {
        let mut one = sandbox("s1", 0, true);
        one.source = Some("api".into());
        harness.sandboxes.push(one);
        harness.containers.push(container("c1", "m", ContainerState::Running));
    });
    cloud.pass(60_000);
    cloud
}

fn stored(rows: Vec<Row>) -> Saved {
    Saved::kept(rows)
}

#[test]
fn that_the_store_does_not_know_all_is_written_at_once() {
    let some = || vec![row("ns/configmap/c", &map("c", 3, "a"))];
    let mark = row(MARK, &json!({}));
    let marked = format!("+{MARK}");
    for (saved, count) in [
        (Saved::new(some(), StoreOrigin::Lost("damaged".to_owned())), 1),
        (Saved::new(vec![], StoreOrigin::New), 1),
        (stored([some(), vec![mark]].concat()), 0),
    ] {
        let what = format!("{saved:?}");
        let cloud = of_a_cloud(saved);
        let written = keys(&cloud.written).iter().filter(|key| **key == marked).count();
        assert_eq!(written, count, "{what}");
        assert_eq!(cloud.harness.open_calls(), [] as [&str; 0], "{what}");
    }
    // One that knows all: an object that it does not have is unknown.
    let cloud = of_a_cloud(stored(some()));
    assert_eq!(keys(&cloud.written), [] as [&str; 0]);
    assert_eq!(cloud.harness.open_calls(), ["stop_container c1 2"]);
}

#[test]
fn rows_that_cannot_be_read_or_used_keep_pods_of_a_cloud_from_ending() {
    let some = || row("ns/configmap/c", &map("c", 3, "a"));
    let broken = Row { key: "default/pod/p-gw".into(), kind: "pod".into(), value: "{".into() };
    let unread = vec![("default/pod/p-gw".into(), UID.into())];
    for saved in
        [stored(vec![some(), broken]), Saved::new(vec![some()], StoreOrigin::Part { unread })]
    {
        let what = format!("{saved:?}");
        let cloud = of_a_cloud(saved);
        assert_eq!(cloud.harness.open_calls(), [] as [&str; 0], "{what}");
        assert_eq!(lines(&cloud, "1 rows stay unread"), 1, "{:?}", cloud.harness.log);
    }
    assert_eq!(lines(&of_a_cloud(stored(vec![some()])), "stay unread"), 0);
}

#[test]
fn a_row_that_cannot_be_used_goes_when_its_object_does() {
    let broken =
        || Row { key: "ns/configmap/c".into(), kind: "configmap".into(), value: "{".into() };
    let unread = || StoreOrigin::Part { unread: vec![("ns/configmap/c".into(), "c".into())] };
    let gone =
        |uid: Option<&str>| json!({"metadata": {"name": "c", "namespace": "ns", "uid": uid}});
    for (saved, uid, goes) in [
        // The object of the row is not known.
        (stored(vec![broken()]), Some("c"), true),
        (stored(vec![broken()]), None, true),
        (Saved::new(vec![], unread()), Some("c"), true),
        // Old clouds delete by name alone.
        (Saved::new(vec![], unread()), None, true),
        (Saved::new(vec![], unread()), Some("another"), false),
    ] {
        let what = format!("{saved:?} {uid:?}");
        let mut cloud = CloudHarness::with(saved);
        cloud.connect();
        cloud.written.clear();
        cloud.push("delete", "ns/configmap/c", &gone(uid));
        let deleted = keys(&cloud.written).contains(&"-ns/configmap/c".to_owned());
        assert_eq!(deleted, goes, "{what}");
    }
}

#[test]
fn of_what_is_gone_and_was_not_known_one_row_waits_to_be_written() {
    let lost = Saved::new(vec![], StoreOrigin::Lost("damaged".to_owned()));
    let mut cloud = of_a_cloud(lost);
    cloud.connect();
    cloud.keeps = false;
    cloud.push("insert", "ns/configmap/c", &map("c", 3, "a"));
    cloud.flood((0..200).map(|n| (format!("ns/pod/p{n}"), format!("u{n}"))));
    assert_eq!(keys(&cloud.save()), ["+ns/configmap/c"]);
    let marks = keys(&cloud.save()).iter().filter(|key| key.ends_with(MARK)).count();
    assert_eq!(marks, 1);
}

#[test]
fn a_pod_of_another_node_is_not_run() {
    let mut cloud = CloudHarness::new();
    let mut other = pod("p", "u", 7);
    other["spec"]["nodeName"] = json!("other");
    cloud.push("insert", "ns/pod/p", &other);
    cloud.pass(2_000);
    assert_eq!(cloud.harness.trace, [] as [&str; 0]);
}

#[test]
fn one_that_ends_may_be_told_to_end_sooner() {
    let mut cloud = CloudHarness::new();
    let mut ending = pod("p", "u", 8);
    ending["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    ending["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    cloud.push("insert", "ns/pod/p", &ending);
    cloud.keeps = false;
    ending["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:01Z");
    ending["metadata"]["deletionGracePeriodSeconds"] = json!(1);
    ending["metadata"]["resourceVersion"] = json!("9");
    cloud.push("update", "ns/pod/p", &ending);
    assert_eq!(keys(&cloud.save()), ["+ns/pod/p"]);
}

#[test]
fn what_waits_without_an_answer_is_written_though_more_is_gone_that_was_not_known() {
    let mut user = pod("p", "u", 7);
    user["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [
        {"serviceAccountToken": {"path": "t", "expirationSeconds": 3607}}]}}]);
    let rows = vec![row("ns/pod/p", &user)];
    let mut cloud = of_a_cloud(Saved::new(rows, StoreOrigin::Lost("damaged".to_owned())));
    cloud.connect();
    let requested = cloud.take_sent("serviceaccounttoken").remove(0);
    cloud.keeps = false;
    cloud.push("insert", "ns/configmap/c", &map("c", 3, "a"));
    let mut token = crate::cloud_harness::content(&requested);
    let until = "2036-11-22T13:45:54Z";
    token["status"] = json!({"token": "a.b.c", "expirationTimestamp": until});
    cloud.answer(&requested, &token);
    cloud.flood([("ns/pod/q".to_owned(), "uq".to_owned())]);
    assert_eq!(keys(&cloud.save()), ["+ns/configmap/c"]);
    let written = keys(&cloud.save());
    assert_eq!(written.len(), 2, "{written:?}");
}

#[test]
fn what_a_power_cut_may_undo_is_not_acknowledged_before_a_save() {
    let rows = || vec![row("ns/configmap/c", &map("c", 3, "a"))];
    for is_unsynced in [false, true] {
        let mut cloud = CloudHarness::with(Saved { is_unsynced, ..Saved::kept(rows()) });
        cloud.keeps = false;
        cloud.connect();
        let unknown = json!({"metadata": {"name": "d", "namespace": "ns", "uid": "d"}});
        let answered = [
            cloud.push("update", "ns/configmap/c", &map("c", 3, "a")),
            cloud.push("delete", "ns/configmap/d", &unknown),
        ];
        let count = |cloud: &mut CloudHarness| {
            let acked = cloud.acked();
            answered.iter().filter(|id| acked.contains(id)).count()
        };
        if is_unsynced {
            assert_eq!(count(&mut cloud), 0);
            cloud.fail_save();
            assert_eq!(count(&mut cloud), 0);
            cloud.pass(2_000);
            cloud.save();
        }
        assert_eq!(count(&mut cloud), 2);
        let id = cloud.push("update", "ns/configmap/c", &map("c", 3, "a"));
        assert!(cloud.acked().contains(&id));
    }
}
