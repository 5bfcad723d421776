//! The cloud's messages about the node, which of them count, and the effects of a new link.

use edged::agent::event::Event;
use edged::limits::{LEGACY_PROBE_MS, LINK_SILENCE_MS, REGISTER_RETRY_MIN_MS};
use edged::model::cri::RuntimeStatus;
use edged::model::message::{Header, Message, Route};
use edged::model::meta::Saved;
use edged::model::settings::{CloudSettings, Taint};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, patch};
use crate::cluster::{Cluster, condition};

fn empty() -> Saved {
    Saved::kept(Vec::new())
}

/// The node has joined, and everything is reported.
fn joined() -> (CloudHarness, Cluster) {
    let mut cloud = CloudHarness::with(empty());
    let mut cluster = Cluster::default();
    cloud.connect();
    cluster.serve(&mut cloud);
    cluster.take_received();
    (cloud, cluster)
}

/// As [`joined`], with a cloud that does not support leases.
fn joined_old() -> (CloudHarness, Cluster) {
    let mut cloud = CloudHarness::with(empty());
    let mut cluster = Cluster::default();
    cluster.is_old = true;
    cloud.connect();
    cluster.serve(&mut cloud);
    cluster.pass(&mut cloud, 100_000);
    assert!(cluster.take_received().contains(&"insert nodestatus".to_owned()));
    (cloud, cluster)
}

fn repeated(cloud: &mut CloudHarness) {
    cloud.disconnect();
    cloud.pass(2_000);
    cloud.connect();
}

fn ready(cluster: &Cluster) -> &serde_json::Map<String, Value> {
    condition(&cluster.node.as_ref().expect("a node")["status"], "Ready")
}

#[test]
fn what_is_said_of_another_node_or_was_overtaken_does_not_count() {
    let (mut cloud, mut cluster) = joined();
    let node = cluster.node.clone().expect("a node");
    let mut other = node.clone();
    other["metadata"]["name"] = json!("other");
    other["metadata"]["resourceVersion"] = json!("900");
    other["status"]["conditions"] = json!([]);
    let mut older = node.clone();
    older["metadata"]["resourceVersion"] = json!("0");
    older["status"]["conditions"] = json!([]);
    for reported in [other, older] {
        cloud.push("update", "null/node/gw", &reported);
        cluster.pass(&mut cloud, 12_000);
        assert_eq!(cluster.contents("patch nodepatch"), [] as [Value; 0], "{reported}");
    }
    // With the same version, it is the cloud's state.
    let mut same = node;
    same["status"]["capacity"]["pods"] = json!("7");
    cloud.push("update", "null/node/gw", &same);
    cluster.pass(&mut cloud, 12_000);
    let reported = cluster.contents("patch nodepatch");
    assert_eq!(reported, [json!({"status": {"capacity": {"pods": "110"}}})]);
}

#[test]
fn an_object_that_has_the_name_of_the_node_is_not_the_node() {
    let (mut cloud, mut cluster) = joined();
    let mut map = cluster.node.clone().expect("a node");
    map["metadata"]["resourceVersion"] = json!("900");
    map["status"]["conditions"] = json!([]);
    cloud.push("update", "ns/configmap/gw", &map);
    cluster.pass(&mut cloud, 12_000);
    assert_eq!(cluster.contents("patch nodepatch"), [] as [Value; 0]);
}

#[test]
fn a_node_whose_runtime_was_not_there_yet_is_not_ready() {
    let mut cloud = CloudHarness::beside(
        empty(),
        |_| (),
        |harness| {
            harness.deliver(Event::RuntimeDown { cause: "connection refused".to_owned() });
            harness.open.clear();
        },
    );
    cloud.connect();
    let node = content(&cloud.take_sent("node")[0]);
    let ready = condition(&node["status"], "Ready");
    assert_eq!(ready["status"], "False");
    let why = ready["message"].as_str().expect("a text");
    assert!(why.contains("container runtime status check may not have completed yet"), "{why}");
}

#[test]
fn an_old_cloud_that_knows_leases_by_now_is_told_in_the_words_of_today() {
    let (mut cloud, mut cluster) = joined_old();
    cluster.is_old = false;
    cluster.pass(&mut cloud, LEGACY_PROBE_MS + 1_000);
    assert!(
        cluster.take_received().contains(&"insert node".to_owned()),
        "in words that it answers"
    );
    cluster.pass(&mut cloud, 60_000);
    let sent = cluster.take_received();
    assert!(!sent.iter().any(|sent| sent.contains("nodestatus")), "{sent:?}");
    let reported =
        cloud.harness.log.iter().filter(|line| line.contains("it supports leases")).count();
    assert_eq!(reported, 1, "{:?}", cloud.harness.log);
}

#[test]
fn a_registration_that_nobody_answers_is_made_again_and_over_a_new_link_at_once() {
    let mut cloud = CloudHarness::with(empty());
    cloud.connect();
    let first = cloud.next("node", 1_000);
    assert_eq!(cloud.take_sent("node").len(), 0);
    let again_at = cloud.next("node", 90_000);
    let waited_ms = (again_at.header.timestamp_ms - first.header.timestamp_ms).unsigned_abs();
    let timeout_ms = CloudSettings::default().remote_query_timeout_ms;
    assert_eq!(waited_ms, timeout_ms + REGISTER_RETRY_MIN_MS);
    repeated(&mut cloud);
    assert_eq!(cloud.take_sent("node").len(), 1);
    // The link is closed for its silence, with the request open.
    cloud.pass(LINK_SILENCE_MS + 1_000);
    assert_eq!(cloud.hung_up, 1);
    cloud.sent.clear();
    cloud.pass(2_000);
    cloud.connect();
    assert_eq!(cloud.take_sent("node").len(), 1);
}

#[test]
fn the_cloud_is_asked_for_the_status_once_until_it_answers() {
    let (mut cloud, mut cluster) = joined();
    repeated(&mut cloud);
    cloud.harness.deliver(Event::Addresses(vec!["192.0.2.9".to_owned()]));
    let requested = cloud.next("nodepatch", 1_000);
    for _ in 0..30 {
        cloud.pass(1_000);
        cloud.sign_of_life();
        assert_eq!(cloud.take_sent("nodepatch").len(), 0);
    }
    // An answer without a node is ignored: the request is repeated.
    let unnamed = json!({"Object": {"metadata": {}, "status": {}}, "Err": null});
    cloud.answer(&requested, &unnamed);
    let requested = cloud.next("nodepatch", 12_000);
    assert_eq!(patch(&requested), json!({}));
    cluster.pass(&mut cloud, 1_000);
}

#[test]
fn a_node_that_the_cloud_lacks_again_is_not_made_where_somebody_else_makes_it() {
    let mut settings = CloudSettings::default();
    settings.registration.register = false;
    let mut cloud = CloudHarness::set("gw", empty(), settings);
    cloud.connect();
    for _ in 0..4 {
        let requested = cloud.next("nodepatch", 20_000);
        cloud.answer(&requested, &crate::cluster::refusal("NotFound", 404));
    }
    assert_eq!(cloud.take_sent("node").len(), 0);
}

#[test]
fn a_cloud_that_is_silent_for_less_than_a_minute_over_each_link_is_not_an_old_one() {
    let mut cloud = CloudHarness::with(empty());
    cloud.connect();
    for _ in 0..4 {
        for _ in 0..45 {
            cloud.pass(1_000);
            cloud.sign_of_life();
        }
        assert_eq!(cloud.take_sent("nodestatus").len(), 0);
        cloud.disconnect();
        cloud.pass(16_000);
        cloud.connect();
    }
}

#[test]
fn a_cloud_that_was_replaced_by_an_old_one_is_told_in_its_words() {
    let (mut cloud, mut cluster) = joined();
    cluster.is_old = true;
    repeated(&mut cloud);
    cluster.pass(&mut cloud, 100_000);
    assert!(cluster.take_received().contains(&"insert nodestatus".to_owned()));
}

#[test]
fn an_old_cloud_is_told_of_the_node_anew_over_each_link_and_conditions_keep_their_times() {
    let (mut cloud, mut cluster) = joined_old();
    cluster.pass(&mut cloud, 20_000);
    let before = cluster.contents("update nodestatus").remove(0);
    repeated(&mut cloud);
    cluster.pass(&mut cloud, 20_000);
    let reported = cluster.received.clone();
    assert!(cluster.take_received().contains(&"insert nodestatus".to_owned()));
    let after = reported.iter().find(|(what, _)| what == "update nodestatus").expect("a report");
    let at = |reported: &Value| reported["Status"]["conditions"][0]["lastTransitionTime"].clone();
    assert_eq!(at(&after.1), at(&before));
}

#[test]
fn an_old_cloud_is_asked_for_the_lease_now_and_then() {
    let (mut cloud, mut cluster) = joined_old();
    let count = |cluster: &mut Cluster| {
        cluster.take_received().iter().filter(|sent| *sent == "query lease").count()
    };
    cluster.pass(&mut cloud, 3_600_000);
    let requested = count(&mut cluster);
    assert!((2..=20).contains(&requested), "{requested} in an hour");
    // It is replaced, and does not break the link.
    (cluster.is_old, cluster.node) = (false, None);
    cluster.pass(&mut cloud, 3_600_000);
    let sent = cluster.take_received();
    assert!(sent.contains(&"insert node".to_owned()) && sent.contains(&"update lease".to_owned()));
    assert_eq!(sent.last().map(String::as_str), Some("update lease"), "and not in the old words");
    let line = "it supports leases; using the protocol of KubeEdge 1.12 and later";
    let lines = cloud.harness.log.iter().filter(|reported| reported.contains(line)).count();
    assert_eq!(lines, 1, "{:?}", cloud.harness.log);
}

#[test]
fn labels_that_somebody_took_away_come_back_with_the_next_link() {
    let (mut cloud, mut cluster) = joined();
    for _ in 0..2 {
        cluster.node.as_mut().expect("a node")["metadata"]["labels"] = json!({"site": "7"});
        repeated(&mut cloud);
        cluster.pass(&mut cloud, 30_000);
        let reported = cluster.take_received().iter().filter(|sent| *sent == "update node").count();
        assert_eq!(reported, 1, "once a session");
        let labels = &cluster.node.as_ref().expect("a node")["metadata"]["labels"];
        assert_eq!(
            (&labels["kubernetes.io/hostname"], &labels["site"]),
            (&json!("gw"), &json!("7"))
        );
    }
}

#[test]
fn a_runtime_that_is_not_ready_or_does_not_answer_is_told_in_the_kubelets_words() {
    let (mut cloud, mut cluster) = joined();
    cloud.harness.runtime =
        RuntimeStatus::of(Err("Starting: it reads its store".to_owned()), Ok(()));
    cluster.pass(&mut cloud, 50_000);
    assert_eq!(ready(&cluster)["status"], "False");
    let why = "container runtime not ready: RuntimeReady=false reason:Starting message:it reads \
               its store";
    assert_eq!(ready(&cluster)["message"], why);
    let since = ready(&cluster)["lastTransitionTime"].clone();
    let beats = |cluster: &Cluster| {
        let status = &cluster.node.as_ref().expect("a node")["status"];
        let of = |kind| condition(status, kind)["lastHeartbeatTime"].clone();
        (of("Ready"), of("MemoryPressure"))
    };
    let before = beats(&cluster);
    // Another reason is reported, and is no transition.
    cloud.harness.runtime = RuntimeStatus::of(Err("Starting: nearly done".to_owned()), Ok(()));
    cluster.pass(&mut cloud, 50_000);
    assert!(ready(&cluster)["message"].as_str().expect("a text").contains("nearly done"));
    assert_eq!(ready(&cluster)["lastTransitionTime"], since);
    let after = beats(&cluster);
    assert_ne!(after.0, before.0, "it was told at another time");
    assert_eq!(after.1, before.1, "nothing was told of it");
    cloud.harness.runtime = RuntimeStatus::of(Ok(()), Ok(()));
    cluster.pass(&mut cloud, 50_000);
    assert_eq!(ready(&cluster)["status"], "True");
    // Its lists do not come.
    cloud.harness.taken.lists_wait = true;
    cluster.pass(&mut cloud, 300_000);
    assert_eq!(ready(&cluster)["status"], "False");
    let why = "PLEG is not healthy: pleg was last seen active too long ago";
    assert!(
        ready(&cluster)["message"].as_str().expect("a text").starts_with(why),
        "{:?}",
        ready(&cluster)
    );
}

#[test]
fn a_runtime_that_is_away_twice_has_each_time_a_while_to_come_back() {
    let (mut cloud, mut cluster) = joined();
    for _ in 0..3 {
        cloud.harness.deliver(Event::RuntimeDown { cause: "connection refused".to_owned() });
        cluster.pass(&mut cloud, 25_000);
        assert_eq!(ready(&cluster)["status"], "True");
        cloud.harness.deliver(Event::RuntimeUp);
        cluster.pass(&mut cloud, 5_000);
    }
}

#[test]
fn taints_are_told_once_and_as_they_are_written() {
    let register = |schedulable: bool, taints: &[(&str, &str)]| {
        let mut settings = CloudSettings::default();
        settings.registration.schedulable = schedulable;
        let taint = |(key, value): &(&str, &str)| Taint {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            effect: "NoSchedule".to_owned(),
        };
        settings.registration.taints = taints.iter().map(taint).collect();
        let mut cloud = CloudHarness::set("gw", empty(), settings);
        let mut cluster = Cluster::default();
        cloud.connect();
        cluster.serve(&mut cloud);
        cluster.node.expect("a node")["spec"].clone()
    };
    assert_eq!(register(true, &[]), json!({}));
    let plain = json!({"key": "edge", "effect": "NoSchedule"});
    assert_eq!(register(true, &[("edge", "")]), json!({"taints": [plain]}));
    let own = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    let both = [("node.kubernetes.io/unschedulable", ""), ("edge", "")];
    let expected = json!({"unschedulable": true, "taints": [own, plain]});
    assert_eq!(register(false, &both), expected);
}

#[test]
fn addresses_that_nobody_else_reaches_are_not_told() {
    let mut cloud = CloudHarness::with(empty());
    let all = ["127.0.0.1", "127.0.1.1", "192.0.2.1", "::1", "2001:db8::1"];
    cloud.harness.deliver(Event::Addresses(all.map(str::to_owned).into()));
    let mut cluster = Cluster::default();
    cloud.connect();
    cluster.serve(&mut cloud);
    let node = cluster.node.expect("a node");
    let reported = node["status"]["addresses"].as_array().expect("a list");
    let reported: Vec<&str> = reported.iter().filter_map(|it| it["address"].as_str()).collect();
    assert_eq!(reported, ["192.0.2.1", "2001:db8::1", "gw"]);
}

#[test]
fn a_message_without_a_time_does_not_set_the_clock() {
    let mut cloud = CloudHarness::with(empty());
    cloud.harness.now.wall = None;
    cloud.connect();
    let requested = cloud.take_sent("lease").remove(0);
    let lease = json!({"Object": {"metadata": {"name": "gw", "resourceVersion": "4",
        "ownerReferences": [{"kind": "Node", "uid": "node-1"}]}, "spec": {}}, "Err": null});
    let [source, group, operation]: [Box<str>; 3] =
        ["edgecontroller", "resource", "response"].map(Box::from);
    for timestamp_ms in [0, 0] {
        cloud.replay(&Message {
            header: Header {
                id: "r".into(),
                parent_id: requested.header.id.clone(),
                timestamp_ms,
                ..Header::default()
            },
            route: Route {
                source: source.clone(),
                group: group.clone(),
                operation: operation.clone(),
                resource: requested.route.resource.clone(),
            },
            content: Some(to_raw_value(&lease).expect("JSON")),
        });
        cloud.pass(15_000);
        cloud.sign_of_life();
    }
    let sent: Vec<&str> = cloud.sent.iter().map(|it| &*it.route.operation).collect();
    assert!(!sent.contains(&"update") && !sent.contains(&"insert"), "{sent:?}");
}

#[test]
fn a_lease_that_cannot_be_made_is_tried_ever_more_rarely() {
    let mut cloud = CloudHarness::with(empty());
    cloud.connect();
    let mut count = 0;
    for _ in 0..200 {
        for requested in cloud.take_sent("node") {
            let mut node = content(&requested);
            node["metadata"]["uid"] = json!("node-1");
            cloud.answer(&requested, &json!({"Object": node, "Err": null}));
        }
        // Its namespace is not there.
        for requested in cloud.take_sent("lease") {
            cloud.answer(&requested, &crate::cluster::refusal("NotFound", 404));
            count += 1;
        }
        cloud.pass(100);
        cloud.sign_of_life();
    }
    assert!((4..20).contains(&count), "{count} in 20 seconds");
}
