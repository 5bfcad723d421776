//! A cloud that sends more than the link carries, and a link that accepts nothing.

use edged::limits::{ANSWERS_MAX, META_ROWS_MAX, TOMBSTONES_MAX, UNSENT_MAX};
use edged::model::message::Message;
use edged::model::meta::{Change, Saved};
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, pod, row};

/// Objects that are not here: their deletion is answered at once.
fn absent(count: usize) -> impl Iterator<Item = (String, String)> {
    (0..count).map(|n| (format!("ns/configmap/c{n}"), format!("u{n}")))
}

fn empty() -> Saved {
    Saved::kept(Vec::new())
}

fn map(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name,
        "resourceVersion": version.to_string()}})
}

fn is_keepalive(message: &Message) -> bool {
    &*message.route.operation == "keepalive"
}

/// Time passes over a link that is alive.
fn pass(cloud: &mut CloudHarness, seconds: u64) {
    for _ in 0..seconds {
        cloud.pass(1_000);
        cloud.sign_of_life();
    }
}

#[test]
fn so_many_answers_wait_for_their_turn_and_the_others_are_not_given() {
    let settings =
        CloudSettings { messages_per_second: 10, messages_burst: 1, ..CloudSettings::default() };
    let mut cloud = CloudHarness::set("gw", empty(), settings);
    cloud.connect();
    pass(&mut cloud, 5);
    cloud.acked();
    cloud.flood(absent(ANSWERS_MAX + 100));
    pass(&mut cloud, 60);
    assert_eq!(cloud.acked().len(), ANSWERS_MAX);
}

#[test]
fn over_a_link_that_takes_nothing_so_many_messages_are_on_their_way() {
    let settings = CloudSettings {
        messages_per_second: 0,
        report_events: true,
        events_per_second: 0,
        ..CloudSettings::default()
    };
    // A static pod may be mirrored, and a pod needs a token and an object.
    let node = json!({"metadata": {"name": "gw", "uid": "node-1", "resourceVersion": "3"}});
    let rows = vec![row("null/node/gw", &node)];
    let mut cloud = CloudHarness::set("gw", Saved::kept(rows), settings);
    cloud.connect();
    pass(&mut cloud, 1);
    cloud.sent.clear();
    cloud.takes = false;
    cloud.flood(absent(2 * UNSENT_MAX));
    assert_eq!(cloud.sent.len(), UNSENT_MAX);
    // No request is sent meanwhile either.
    let mut wanted = pod("p", "u", 7);
    wanted["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "cm"}},
        {"name": "t", "projected": {"sources": [
            {"serviceAccountToken": {"path": "t", "expirationSeconds": 3607}}]}}]);
    cloud.push("insert", "ns/pod/p", &wanted);
    cloud.harness.manifests(&[&crate::harness::pod(crate::harness::MAIN)]);
    for _ in 0..3 {
        cloud.work();
        pass(&mut cloud, 20);
    }
    assert_eq!(cloud.harness.running().len(), 2);
    let (kept_alive, others): (Vec<_>, Vec<_>) = cloud.sent.drain(..).partition(is_keepalive);
    assert_eq!(others.len(), UNSENT_MAX);
    assert!(kept_alive.len() >= 3, "those go out all the same: {}", kept_alive.len());
    cloud.leave(kept_alive.len() + 10);
    assert_eq!(cloud.acked().len(), 10, "as many as have left");
    cloud.takes = true;
    cloud.leave(UNSENT_MAX);
    assert_eq!(cloud.acked().len(), UNSENT_MAX - 10 + 1);
    pass(&mut cloud, 1);
    for kind in ["configmap", "serviceaccounttoken", "lease", "pod", "podpatch"] {
        assert_eq!(cloud.take_sent(kind).len(), 1, "{kind}");
    }
    assert!(!cloud.take_sent("event").is_empty());
}

#[test]
fn so_many_objects_are_kept_and_one_more_is_refused() {
    let name = |n: usize| format!("c{n}");
    let key = |n: usize| format!("ns/configmap/{}", name(n));
    let rows = (1..META_ROWS_MAX).map(|n| row(&key(n), &map(&name(n), 3)));
    let mut cloud = CloudHarness::with(Saved::kept(rows.collect()));
    cloud.connect();
    let push = |cloud: &mut CloudHarness, n: usize, version: u64| {
        let id = cloud.push("update", &key(n), &map(&name(n), version));
        let answers = cloud.answers(&id);
        assert_eq!(answers.len(), 1, "{n}");
        answers[0].route.operation.to_string()
    };
    assert_eq!(push(&mut cloud, 0, 3), "response");
    assert_eq!(push(&mut cloud, META_ROWS_MAX, 3), "error");
    assert_eq!(push(&mut cloud, 1, 4), "response", "what is kept may change");
    cloud.push("delete", &key(7), &map(&name(7), 4));
    assert_eq!(push(&mut cloud, META_ROWS_MAX, 3), "response", "there is room again");
}

/// Whether one more object is accepted in addition to all but two of the limit, after this, of
/// which nothing is durable yet.
fn fits(before: impl FnOnce(&mut CloudHarness)) -> bool {
    let key = |name: &str| format!("ns/configmap/{name}");
    let names = (2..META_ROWS_MAX).map(|n| format!("c{n}"));
    let rows = names.map(|name| row(&key(&name), &map(&name, 3))).collect();
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.connect();
    cloud.keeps = false;
    before(&mut cloud);
    let id = cloud.push("insert", &key("last"), &map("last", 3));
    cloud.answers(&id).is_empty()
}

#[test]
fn of_what_waits_for_the_disk_new_objects_count_among_those_that_are_kept() {
    let put = |cloud: &mut CloudHarness, name: &str, version: u64| {
        let mut map = map(name, version);
        map["data"] = json!({"version": version.to_string()});
        cloud.push("update", &format!("ns/configmap/{name}"), &map);
    };
    assert!(fits(|cloud| put(cloud, "a", 3)));
    assert!(!fits(|cloud| ["a", "b"].iter().for_each(|name| put(cloud, name, 3))));
    assert!(fits(|cloud| (4..8).for_each(|version| put(cloud, "c5", version))), "it is there");
    assert!(fits(|cloud| ["c5", "c6", "c7"].iter().for_each(|name| put(cloud, name, 4))));
    assert!(fits(|cloud| (0..3).for_each(|_| put(cloud, "a", 3))), "the same");
    let goes = |cloud: &mut CloudHarness, name: &str| {
        cloud.push("delete", &format!("ns/configmap/{name}"), &map(name, 3));
    };
    assert!(fits(|cloud| {
        put(cloud, "a", 3);
        goes(cloud, "a");
    }));
    assert!(fits(|cloud| ["x", "y", "z"].iter().for_each(|name| goes(cloud, name))));
}

/// Whether a deleted object is accepted again when an older update of it arrives late.
fn comes_back(cloud: &mut CloudHarness, name: &str) -> bool {
    cloud.keeps = false;
    cloud.push("update", &format!("ns/configmap/{name}"), &map(name, 2));
    cloud.saves.pop().is_some_and(|(_, changes)| {
        assert!(matches!(changes[..], [Change::Put(_)]), "{changes:?}");
        true
    })
}

#[test]
fn of_so_many_deletions_it_is_remembered_what_is_gone() {
    let gone = |names: &[&str]| {
        let all = names.iter().map(|name| (format!("ns/configmap/{name}"), (*name).to_owned()));
        all.collect::<Vec<_>>()
    };
    for (deletions, forgotten) in [
        (gone(&["a", "b", "c"]), false),
        // A cloud without answers sends the same again and again.
        ([gone(&["a"]), vec![gone(&["b"]).remove(0); 2 * TOMBSTONES_MAX]].concat(), false),
        (gone(&["a"]).into_iter().chain(absent(TOMBSTONES_MAX - 1)).collect(), false),
        (gone(&["a"]).into_iter().chain(absent(TOMBSTONES_MAX)).collect(), true),
    ] {
        let mut cloud = CloudHarness::new();
        let count = deletions.len();
        cloud.flood(deletions);
        assert_eq!(comes_back(&mut cloud, "a"), forgotten, "after {count} deletions");
    }
}
