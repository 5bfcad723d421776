//! The node's reports to the cloud, and their times.

use edged::agent::event::Event;
use edged::agent::time::Wall;
use edged::model::meta::Saved;
use edged::model::settings::{CloudSettings, Taint};
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, pod};
use crate::cluster::{Cluster, condition, refusal};

fn empty() -> Saved {
    Saved::kept(Vec::new())
}

/// The node has joined, and everything is reported.
fn joined() -> (CloudHarness, Cluster) {
    let mut cloud = CloudHarness::with(empty());
    let mut cluster = Cluster::default();
    cloud.connect();
    cluster.serve(&mut cloud);
    (cloud, cluster)
}

fn status(cluster: &Cluster) -> &Value {
    &cluster.node.as_ref().expect("a node")["status"]
}

#[test]
fn a_node_joins_in_three_messages() {
    let (mut cloud, mut cluster) = joined();
    let sent = cluster.take_received();
    assert_eq!(sent, ["query lease", "insert node", "insert lease"]);
    let node = cluster.node.clone().expect("a node");
    assert_eq!(node["metadata"]["labels"]["node-role.kubernetes.io/edge"], "");
    let status = status(&cluster);
    let ready = condition(status, "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("True"), &json!("EdgeReady")));
    assert!(ready["lastTransitionTime"].is_string());
    assert_eq!(status["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 10350}}));
    let addresses = json!([
        {"type": "InternalIP", "address": "192.0.2.1"},
        {"type": "Hostname", "address": "gw"},
    ]);
    assert_eq!(status["addresses"], addresses);
    let lease = cluster.lease.clone().expect("a lease");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "node-1");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    cluster.pass(&mut cloud, 9_000);
    assert_eq!(cluster.take_received(), [] as [&str; 0]);
}

#[test]
fn what_is_configured_is_registered() {
    let mut cloud = CloudHarness::set_up(empty(), |config| {
        config.node_labels.insert("site".to_owned(), "7".to_owned());
        let mut settings = CloudSettings::default();
        let registration = &mut settings.registration;
        registration.schedulable = false;
        registration.taints = vec![Taint {
            key: "edge".to_owned(),
            value: "yes".to_owned(),
            effect: "NoExecute".to_owned(),
        }];
        config.cloud = Some(settings);
    });
    let mut cluster = Cluster::default();
    cloud.connect();
    cluster.serve(&mut cloud);
    let node = cluster.node.expect("a node");
    assert_eq!(node["metadata"]["labels"]["site"], "7");
    assert_eq!(
        node["spec"],
        json!({"unschedulable": true, "taints": [
            {"key": "edge", "value": "yes", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        ]})
    );
}

#[test]
fn the_lease_is_renewed_again_and_again_and_the_status_told_when_it_changes() {
    let (mut cloud, mut cluster) = joined();
    cluster.take_received();
    cluster.pass(&mut cloud, 60_500);
    assert_eq!(cluster.take_received(), ["update lease"; 6]);
    let lease = cluster.lease.as_ref().expect("a lease");
    let renewed = lease["spec"]["renewTime"].as_str().expect("a text");
    assert_eq!((renewed.len(), &renewed[renewed.len() - 4..]), (27, "000Z"));

    cloud.harness.deliver(Event::Addresses(vec!["192.0.2.9".to_owned()]));
    cluster.pass(&mut cloud, 10_000);
    let patches = cluster.contents("patch nodepatch");
    let addresses = json!([
        {"type": "InternalIP", "address": "192.0.2.9"},
        {"type": "Hostname", "address": "gw"},
        {"$patch": "replace"},
    ]);
    assert_eq!(patches, [json!({"status": {"addresses": addresses}})], "no more than changed");
    cluster.pass(&mut cloud, 230_000);
    let patches = cluster.contents("patch nodepatch");
    assert_eq!(patches.len(), 1, "a report from time to time");
    let reported = patches[0]["status"]["conditions"].as_array().expect("a list");
    assert_eq!(reported.len(), 4);
    for reported in reported {
        let keys: Vec<&String> = reported.as_object().expect("a map").keys().collect();
        assert_eq!(keys, ["lastHeartbeatTime", "type"]);
    }
}

#[test]
fn a_node_that_the_cloud_has_is_looked_at_before_it_is_told_of() {
    let (_, mut cluster) = joined();
    let joined_at = condition(status(&cluster), "Ready")["lastTransitionTime"].clone();
    cluster.change(|status| {
        status["capacity"]["example.com/dongle"] = json!("1");
        status["conditions"][3]["status"] = json!("Unknown");
        let other = json!({"type": "NetworkUnavailable", "status": "False"});
        status["conditions"].as_array_mut().expect("a list").insert(0, other);
    });
    cluster.take_received();
    // Another life of the agent.
    let mut cloud = CloudHarness::with(empty());
    cloud.pass(5_000);
    cloud.connect();
    cluster.serve(&mut cloud);
    let reported = cluster.received.clone();
    assert_eq!(
        cluster.take_received(),
        ["query lease", "insert node", "update lease", "patch nodepatch", "patch nodepatch"]
    );
    assert_eq!(reported[3].1, json!({}), "what does it have?");
    let status = status(&cluster);
    assert_eq!(status["capacity"]["example.com/dongle"], "1", "what others set stays");
    assert_eq!(condition(status, "NetworkUnavailable")["status"], "False");
    let (ready, pressure) = (condition(status, "Ready"), condition(status, "DiskPressure"));
    assert_eq!(ready["status"], "True");
    assert_eq!(pressure["lastTransitionTime"], joined_at, "it was so before");
    assert_ne!(ready["lastTransitionTime"], joined_at);
}

#[test]
fn after_a_break_the_lease_is_renewed_at_once_and_the_cloud_asked_what_it_has() {
    let (mut cloud, mut cluster) = joined();
    cluster.take_received();
    cloud.disconnect();
    cluster.change(|status| status["conditions"][3]["status"] = json!("Unknown"));
    cloud.pass(60_000);
    cloud.sent.clear();
    cloud.connect();
    cluster.serve(&mut cloud);
    let reported = cluster.received.clone();
    assert_eq!(cluster.take_received(), ["update lease", "patch nodepatch", "patch nodepatch"]);
    assert_eq!(reported[1].1, json!({}));
    let conditions = &reported[2].1["status"]["conditions"];
    assert_eq!(conditions.as_array().map(Vec::len), Some(1), "{conditions}");
    assert_eq!(condition(status(&cluster), "Ready")["status"], "True");
}

#[test]
fn a_short_break_costs_no_renewal() {
    let (mut cloud, mut cluster) = joined();
    cluster.take_received();
    cloud.disconnect();
    cloud.pass(2_000);
    cloud.connect();
    cluster.serve(&mut cloud);
    assert_eq!(cluster.take_received(), ["patch nodepatch"]);
}

#[test]
fn a_node_that_is_gone_is_made_again() {
    let (mut cloud, mut cluster) = joined();
    cluster.node = None;
    cluster.take_received();
    cloud.disconnect();
    cloud.pass(15_000);
    cloud.connect();
    cluster.serve(&mut cloud);
    assert_eq!(cluster.take_received(), ["update lease", "patch nodepatch", "insert node"]);
    cluster.pass(&mut cloud, 11_000);
    let lease = cluster.lease.as_ref().expect("a lease");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "node-2");
}

#[test]
fn a_lease_that_somebody_else_changed_is_read_again() {
    let (mut cloud, mut cluster) = joined();
    cluster.take_received();
    let lease = cluster.lease.as_mut().expect("a lease");
    lease["metadata"]["resourceVersion"] = json!("900");
    cluster.pass(&mut cloud, 11_000);
    assert_eq!(cluster.take_received(), ["update lease", "query lease", "update lease"]);
    cluster.lease = None;
    cluster.pass(&mut cloud, 11_000);
    assert_eq!(cluster.take_received(), ["update lease", "insert lease"]);
}

#[test]
fn a_renewal_without_an_answer_is_tried_again_before_the_lease_ends() {
    let (mut cloud, mut cluster) = joined();
    cluster.take_received();
    cloud.pass(15_000);
    assert_eq!(cloud.take_sent("lease").len(), 1);
    cloud.pass(7_000);
    cluster.serve(&mut cloud);
    assert_eq!(cluster.take_received(), ["query lease", "update lease"]);
}

#[test]
fn a_link_that_breaks_under_a_renewal_does_not_end_the_lease() {
    let (mut cloud, mut cluster) = joined();
    cluster.take_received();
    // It gets no answer.
    cloud.pass(11_000);
    assert_eq!(cloud.take_sent("lease").len(), 1);
    cloud.disconnect();
    cloud.pass(2_000);
    cloud.connect();
    cluster.pass(&mut cloud, 40_000);
    let renewals = cluster.take_received().iter().filter(|sent| sent.ends_with("lease")).count();
    assert!(renewals >= 3, "{renewals}");
}

#[test]
fn without_a_clock_nothing_is_renewed_until_the_cloud_tells_the_time() {
    let mut cloud = CloudHarness::with(empty());
    cloud.harness.now.wall = None;
    cloud.connect();
    let requested = cloud.take_sent("lease");
    assert_eq!(requested.len(), 1);
    assert_eq!(&*requested[0].route.operation, "query");
    assert_eq!(cloud.take_sent("node").len(), 0);
    cloud.answer(&requested[0], &refusal("NotFound", 404));
    let mut cluster = Cluster::default();
    cluster.serve(&mut cloud);
    assert_eq!(cluster.take_received(), ["insert node", "insert lease"]);
    let lease = cluster.lease.expect("a lease");
    assert_eq!(lease["spec"]["renewTime"], "2027-01-15T08:00:00.000000Z");
}

#[test]
fn a_node_whose_runtime_is_gone_is_not_ready_after_a_while_and_ready_again_at_once() {
    let (mut cloud, mut cluster) = joined();
    cloud.harness.deliver(Event::RuntimeDown { cause: "connection refused".to_owned() });
    cluster.pass(&mut cloud, 25_000);
    assert_eq!(condition(status(&cluster), "Ready")["status"], "True", "it may be back at once");
    cluster.pass(&mut cloud, 16_000);
    let ready = condition(status(&cluster), "Ready");
    assert_eq!(ready["reason"], "KubeletNotReady");
    assert_eq!(ready["message"], "container runtime is down: connection refused");
    cluster.take_received();
    cloud.harness.deliver(Event::RuntimeUp);
    cloud.settle();
    cluster.serve(&mut cloud);
    assert_eq!(cluster.take_received(), ["patch nodepatch"], "at once");
    assert_eq!(condition(status(&cluster), "Ready")["status"], "True");
}

#[test]
fn a_network_that_is_not_ready_is_told_in_the_kubelets_words() {
    let (mut cloud, mut cluster) = joined();
    cloud.harness.runtime.network =
        Err("NetworkPluginNotReady: cni plugin not initialized".to_owned());
    cluster.pass(&mut cloud, 21_000);
    let ready = condition(status(&cluster), "Ready");
    assert_eq!(
        ready["message"],
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
         message:cni plugin not initialized"
    );
}

#[test]
fn a_store_that_keeps_nothing_is_a_condition_until_it_keeps_again() {
    let (mut cloud, mut cluster) = joined();
    cloud.keeps = false;
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    let store = |cluster: &Cluster| {
        let all = status(cluster)["conditions"].as_array().expect("a list");
        let reported = all.iter().find(|condition| condition["type"] == "StoreProblem");
        reported.map(|reported| (reported["status"].clone(), reported["reason"].clone()))
    };
    // Each time it is tried again.
    for _ in 0..8 {
        if !cloud.saves.is_empty() {
            cloud.fail_save();
        }
        cluster.pass(&mut cloud, 2_000);
    }
    assert_eq!(store(&cluster), Some((json!("True"), json!("StoreCannotKeep"))));
    for _ in 0..30 {
        if !cloud.saves.is_empty() {
            cloud.save();
        }
        cluster.pass(&mut cloud, 2_000);
    }
    assert_eq!(store(&cluster), Some((json!("False"), json!("StoreKeeps"))));
}

#[test]
fn a_cloud_that_does_not_know_leases_is_told_in_its_own_words() {
    let mut cloud = CloudHarness::with(empty());
    let mut cluster = Cluster::default();
    cluster.is_old = true;
    cloud.connect();
    cluster.serve(&mut cloud);
    assert_eq!(cluster.take_received(), ["query lease", "insert node"]);
    cluster.pass(&mut cloud, 59_000);
    assert!(!cluster.take_received().contains(&"insert nodestatus".to_owned()), "it may be slow");
    cluster.pass(&mut cloud, 22_000);
    let sent = cluster.take_received();
    assert_eq!(sent.iter().filter(|sent| *sent == "insert nodestatus").count(), 1, "{sent:?}");
    cluster.pass(&mut cloud, 60_000);
    let reported = cluster.contents("update nodestatus");
    assert_eq!(reported.len(), 6);
    let keys: Vec<&String> = reported[0].as_object().expect("a map").keys().collect();
    assert_eq!(keys, ["ExtendResources", "Status", "UID"]);
    assert_eq!(condition(&reported[0]["Status"], "Ready")["status"], "True");
    let (first, last) =
        (&reported[0]["Status"]["conditions"][0], &reported[5]["Status"]["conditions"][0]);
    assert_eq!(first["lastTransitionTime"], last["lastTransitionTime"]);
    assert_ne!(first["lastHeartbeatTime"], last["lastHeartbeatTime"]);

    // The cloud is replaced by a newer one.
    (cluster.is_old, cluster.node) = (false, None);
    cloud.disconnect();
    cloud.pass(2_000);
    cloud.connect();
    cluster.serve(&mut cloud);
    let sent = cluster.take_received();
    assert!(sent.contains(&"insert node".to_owned()), "{sent:?}");
    cluster.pass(&mut cloud, 60_000);
    assert!(!cluster.take_received().iter().any(|sent| sent.contains("nodestatus")));
}

/// Bytes sent per minute in ten idle minutes, frames included.
fn idle_bytes(change: impl FnOnce(&mut CloudSettings)) -> usize {
    let mut settings = CloudSettings::default();
    change(&mut settings);
    let mut cloud = CloudHarness::set_up(empty(), |config| {
        config.cloud = Some(settings);
        "edge1".clone_into(&mut config.node_name);
    });
    let mut cluster = Cluster::default();
    cluster.version = 48_211_000;
    cloud.connect();
    cluster.serve(&mut cloud);
    let mut node = cluster.node.clone().expect("a node");
    node["metadata"]["uid"] = json!("4a86c29c-99de-497c-88aa-109e79374d6f");
    cloud.push("update", "null/node/edge1", &node);
    cluster.pass(&mut cloud, 20_000);
    cluster.up_bytes = 0;
    cluster.pass(&mut cloud, 600_000);
    assert!(cluster.take_received().iter().filter(|sent| *sent == "update lease").count() > 25);
    cluster.up_bytes / 10
}

#[test]
fn an_idle_link_carries_half_of_what_edgecore_sends() {
    let bytes = idle_bytes(|_| ());
    assert!(bytes <= 3_650, "got {bytes} bytes a minute");
    let bytes = idle_bytes(|settings| {
        settings.heartbeat_ms = 25_000;
        settings.lease_interval_ms = 20_000;
    });
    assert!(bytes <= 2_000, "got {bytes} bytes a minute with the thrifty setting");
}

#[test]
fn news_of_the_node_that_nobody_asked_for_are_put_right() {
    let (mut cloud, mut cluster) = joined();
    cluster.take_received();
    cluster.change(|status| status["conditions"][3]["status"] = json!("Unknown"));
    let mut node = cluster.node.clone().expect("a node");
    node["kind"] = json!("Node");
    cloud.push("update", "default/node/gw", &node);
    cluster.serve(&mut cloud);
    assert_eq!(cluster.take_received(), ["patch nodepatch"]);
    assert_eq!(condition(status(&cluster), "Ready")["status"], "True");
    assert!(cloud.harness.now.wall > Some(Wall(0)));
}

#[test]
fn a_node_that_somebody_else_made_gets_the_labels_of_its_machine() {
    let mut cloud = CloudHarness::set_up(empty(), |config| {
        config.machine.identity.architecture = "arm".into();
    });
    let mut cluster = Cluster::default();
    cluster.node = Some(json!({
        "metadata": {"name": "gw", "uid": "theirs", "resourceVersion": "1",
            "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "site": "7"}},
        "spec": {}, "status": {},
    }));
    cloud.connect();
    cluster.serve(&mut cloud);
    let labels = cluster.node.as_ref().expect("a node")["metadata"]["labels"].clone();
    assert_eq!(
        labels,
        json!({
            "beta.kubernetes.io/arch": "arm", "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "arm", "kubernetes.io/hostname": "gw",
            "kubernetes.io/os": "linux", "site": "7",
        })
    );
    assert_eq!(condition(status(&cluster), "Ready")["status"], "True");
    let lease = cluster.lease.as_ref().expect("a lease");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "theirs");
    cluster.take_received();
    let mut node = cluster.node.clone().expect("a node");
    node["metadata"]["labels"] = json!({});
    cloud.push("update", "null/node/gw", &node);
    cluster.pass(&mut cloud, 30_000);
    assert!(!cluster.take_received().contains(&"update node".to_owned()), "once a session");
}

#[test]
fn a_refused_registration_is_tried_again_ever_more_rarely() {
    let mut cloud = CloudHarness::with(empty());
    cloud.connect();
    let mut tries = Vec::new();
    for second in 0..40 {
        for requested in cloud.take_sent("node") {
            tries.push(second);
            cloud.answer(&requested, &refusal("Forbidden", 403));
        }
        cloud.pass(1_000);
    }
    assert_eq!(tries.len(), 6, "{tries:?}");
    assert!(tries[5] - tries[4] >= 15, "{tries:?}");
}

#[test]
fn a_node_that_is_not_to_be_registered_is_not() {
    let mut settings = CloudSettings::default();
    settings.registration.register = false;
    let mut cloud = CloudHarness::set("gw", empty(), settings);
    let mut cluster = Cluster::default();
    cloud.connect();
    cluster.serve(&mut cloud);
    cluster.pass(&mut cloud, 30_000);
    let sent = cluster.take_received();
    assert!(!sent.contains(&"insert node".to_owned()), "{sent:?}");
    assert!(sent.iter().filter(|sent| *sent == "patch nodepatch").count() <= 5, "{sent:?}");
    // Another writer creates it.
    let node = json!({"metadata": {"name": "gw", "uid": "theirs", "resourceVersion": "1"}});
    cluster.node = Some(node);
    cluster.node.as_mut().expect("a node")["status"] = json!({});
    cluster.pass(&mut cloud, 11_000);
    assert_eq!(condition(status(&cluster), "Ready")["status"], "True");
    assert!(cluster.lease.is_some());
}

#[test]
fn what_the_cloud_writes_in_another_way_is_not_told_again_and_again() {
    let (mut cloud, mut cluster) = joined();
    cluster.take_received();
    for _ in 0..5 {
        // Whatever is reported, the cloud has this.
        cluster.change(|status| status["capacity"]["cpu"] = json!("2000m"));
        let node = cluster.node.clone().expect("a node");
        cloud.push("update", "null/node/gw", &node);
        cluster.pass(&mut cloud, 10_000);
    }
    assert_eq!(cluster.contents("patch nodepatch").len(), 1);
}

#[test]
fn a_huge_status_of_the_cloud_is_not_kept() {
    let (mut cloud, mut cluster) = joined();
    cluster.take_received();
    let mut node = cluster.node.clone().expect("a node");
    node["metadata"]["resourceVersion"] = json!("900");
    node["status"]["conditions"][0]["message"] = json!("x".repeat(1 << 20));
    cloud.push("update", "null/node/gw", &node);
    cluster.pass(&mut cloud, 100_000);
    let patches = cluster.contents("patch nodepatch");
    assert_eq!(patches.len(), 1);
    assert!(patches[0]["status"]["capacity"].is_object(), "nothing of it is known");
}
