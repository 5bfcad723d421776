//! A cloud that sends more than the process may keep in memory.

use edged::agent::Config;
use edged::limits::{Budget, PROCESS_BYTES_LEAST};
use edged::model::meta::{Change, Saved, StoreOrigin};
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, pod, row};
use crate::harness::{START, container, sandbox};
use edged::model::cri::ContainerState;

/// The smallest process that a full node fits into.
fn small(config: &mut Config) {
    config.cloud = Some(CloudSettings::default());
    config.machine.budget = Budget::of(PROCESS_BYTES_LEAST);
}

fn nothing() -> Saved {
    Saved::kept(Vec::new())
}

/// Few bytes as a text, many in memory.
fn crumbs(name: &str) -> Value {
    let data: Value = (0..4_000).map(|key| (key.to_string(), json!(""))).collect();
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "data": data})
}

fn refusals(cloud: &mut CloudHarness) -> Vec<String> {
    let sent = std::mem::take(&mut cloud.sent);
    let refused = sent.iter().filter(|message| &*message.route.operation == "error");
    refused.map(|it| content(it).to_string()).collect()
}

fn lines<'a>(cloud: &'a CloudHarness, of: &'a str) -> Vec<&'a String> {
    cloud.harness.log.iter().filter(|line| line.contains(of)).collect()
}

#[test]
fn what_there_is_no_memory_for_is_refused_and_said_once() {
    let mut cloud = CloudHarness::set_up(nothing(), small);
    cloud.connect();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    for n in 0..20 {
        cloud.push("insert", &format!("ns/configmap/c{n}"), &crumbs(&format!("c{n}")));
    }
    let reported = refusals(&mut cloud);
    // Some 150 bytes for each key: they would have been 12 MB.
    assert!((14..19).contains(&reported.len()), "{reported:?}");
    let why = "of memory in all, expected 2621440 at most, because this process may use 16777216 \
               bytes of memory";
    assert!(reported.iter().all(|reported| reported.contains(why)), "{reported:?}");
    assert_eq!(lines(&cloud, "is refused: ").len(), 1, "{:?}", cloud.harness.log);
    // Existing objects stay, and may change; deletions make room.
    cloud.push("update", "ns/pod/p", &pod("p", "u", 8));
    cloud.push("update", "ns/configmap/c0", &crumbs("c0"));
    cloud.push("delete", "ns/configmap/c0", &crumbs("c0"));
    cloud.push("insert", "ns/configmap/again", &crumbs("again"));
    assert_eq!(refusals(&mut cloud), [] as [&str; 0]);
    cloud.work();
    assert_eq!(cloud.harness.running(), ["m"]);
}

#[test]
fn what_the_store_has_beyond_the_memory_stays_there_and_its_pods_run_on() {
    let mut rows: Vec<_> = (0..20)
        .map(|n| row(&format!("ns/configmap/c{n:02}"), &crumbs(&format!("c{n:02}"))))
        .collect();
    let mut large = pod("p", "u", 7);
    large["metadata"]["annotations"] = (0..1_900).map(|n| (n.to_string(), json!(""))).collect();
    rows.push(row("ns/pod/p", &large));
    let saved = Saved::kept(rows);
    let mut cloud = CloudHarness::beside(saved, small, |harness| {
        let mut one = sandbox("s1", 0, true);
        one.source = Some("api".into());
        harness.sandboxes.push(one);
        harness.containers.push(container("c1", "m", ContainerState::Running));
    });
    cloud.keeps = false;
    cloud.pass(60_000);
    assert_eq!(cloud.harness.open_calls(), [] as [&str; 0], "nobody is stopped");
    assert_eq!(lines(&cloud, "rows stay unread").len(), 1, "{:?}", cloud.harness.log);
    // Its rows belong to the store, and only explicit deletions remove them.
    let deletes = |cloud: &CloudHarness, key: &str| {
        let all = cloud.saves.iter().flat_map(|(_, changes)| changes);
        all.filter(|change| matches!(change, Change::Delete { key: it } if **it == *key)).count()
    };
    assert!(cloud.saves.is_empty(), "{:?}", cloud.saves);
    cloud.connect();
    cloud.push("delete", "ns/configmap/c19", &crumbs("another"));
    assert_eq!(deletes(&cloud, "ns/configmap/c19"), 0, "another object of the name is not there");
    cloud.push("delete", "ns/configmap/c19", &crumbs("c19"));
    assert_eq!(deletes(&cloud, "ns/configmap/c19"), 1);
}

#[test]
fn rows_that_the_hands_did_not_read_are_taken_for_what_they_are() {
    let unread = vec![("ns/pod/p".into(), "u".into())];
    let saved = Saved::new(Vec::new(), StoreOrigin::Part { unread });
    let mut cloud = CloudHarness::set_up(saved, small);
    cloud.connect();
    // The cloud sends it again, perhaps smaller: it is accepted.
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.harness.does_all(START);
    assert_eq!(cloud.harness.running(), ["m"]);
}

#[test]
fn more_than_may_wait_for_the_disk_is_left_to_be_sent_again() {
    let mut cloud = CloudHarness::set_up(nothing(), small);
    cloud.connect();
    cloud.keeps = false;
    let large = |name: &str| {
        let data = json!({"k": "x".repeat(300 << 10)});
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "data": data})
    };
    let mut ids = Vec::new();
    // The first is on its way to the disk; of the others two fit into the 768 KiB that may wait.
    for name in ["a", "b", "c", "d"] {
        ids.push(cloud.push("insert", &format!("ns/configmap/{name}"), &large(name)));
    }
    assert_eq!(cloud.acked(), [] as [&str; 0]);
    cloud.save();
    cloud.save();
    assert_eq!(cloud.acked(), ids[..3]);
    assert_eq!(cloud.saves, []);
    ids.push(cloud.push("insert", "ns/configmap/d", &large("d")));
    cloud.save();
    assert_eq!(cloud.acked(), ids[4..]);
}
