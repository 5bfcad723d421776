//! Limits of requests to the cloud, and of objects that wait for the disk.

use std::collections::BTreeSet;

use edged::limits::{META_WAITING_MAX, REQUESTS_MAX};
use edged::model::message::Message;
use edged::model::meta::Saved;
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, pod};

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name}})
}

#[test]
fn so_many_questions_are_open_and_the_next_waits_for_an_answer() {
    let settings = CloudSettings { messages_per_second: 0, ..CloudSettings::default() };
    let saved = Saved::kept(Vec::new());
    let mut cloud = CloudHarness::set("gw", saved, settings);
    cloud.connect();
    let mut wanted = pod("p", "u", 7);
    let maps = (0..=REQUESTS_MAX).map(|n| json!({"configMapRef": {"name": format!("c{n}")}}));
    wanted["spec"]["containers"][0]["envFrom"] = maps.collect();
    cloud.push("insert", "ns/pod/p", &wanted);
    cloud.pass(500);
    let is_question =
        |sent: &&Message| sent.header.parent_id.is_empty() && &*sent.route.operation != "keepalive";
    // The node's own requests count.
    assert_eq!(cloud.sent.iter().filter(is_question).count(), REQUESTS_MAX);
    let requested = cloud.take_sent("configmap");
    assert!(requested.len() > REQUESTS_MAX - 5, "{}", requested.len());
    cloud.answer(&requested[0], &map("c0"));
    cloud.pass(500);
    assert_eq!(cloud.take_sent("configmap").len(), 1, "one for the one that was answered");
}

#[test]
fn so_many_objects_wait_for_the_disk_and_the_next_is_neither_kept_nor_answered() {
    let mut cloud = CloudHarness::new();
    cloud.keeps = false;
    let push = |cloud: &mut CloudHarness, n: usize| {
        cloud.push("insert", &format!("ns/configmap/c{n}"), &map(&format!("c{n}")))
    };
    // The first is being written; the others wait.
    let first = push(&mut cloud, 0);
    let waiting: BTreeSet<String> = (1..=META_WAITING_MAX).map(|n| push(&mut cloud, n)).collect();
    let beyond = push(&mut cloud, META_WAITING_MAX + 1);
    assert_eq!(cloud.save().len(), 1);
    assert_eq!(cloud.acked(), [first]);
    assert_eq!(cloud.save().len(), META_WAITING_MAX);
    cloud.pass(5_000);
    let acked: BTreeSet<String> = cloud.acked().into_iter().collect();
    assert_eq!(acked, waiting);
    assert!(cloud.sent.iter().all(|sent| *sent.header.parent_id != *beyond), "not a word");
    assert!(cloud.saves.is_empty());
    // The cloud sends it again.
    let repeated = push(&mut cloud, META_WAITING_MAX + 1);
    assert_eq!(cloud.save().len(), 1);
    assert_eq!(cloud.acked(), [repeated]);
}
