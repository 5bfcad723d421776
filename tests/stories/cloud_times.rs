//! Back-offs of failed or unanswered requests and reports to the cloud.

use edged::agent::event::Event;
use edged::limits::{
    DELETE_RETRY_MS, LEASE_RETRY_MIN_MS, LEGACY_PROBE_MS, QUERY_RETRY_MS, REGISTER_RETRY_MAX_MS,
    REGISTER_RETRY_MIN_MS, REPORT_GATHER_MS, REPORT_RETRY_MS, RUNTIME_DOWN_MS,
};
use edged::model::message::Message;
use edged::model::meta::Saved;
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, patch, pod};
use crate::cluster::{Cluster, refusal};

fn set(change: impl FnOnce(&mut CloudSettings)) -> CloudHarness {
    let mut settings = CloudSettings::default();
    change(&mut settings);
    let mut cloud = CloudHarness::set("gw", Saved::kept(Vec::new()), settings);
    cloud.connect();
    cloud
}

/// A pod of the cloud runs.
fn running() -> CloudHarness {
    let mut cloud = set(|_| ());
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.work();
    cloud
}

fn delay_ms(one: &Message, other: &Message) -> u64 {
    (other.header.timestamp_ms - one.header.timestamp_ms).try_into().expect("the later one")
}

#[test]
fn what_the_cloud_was_asked_for_and_did_not_answer_is_asked_for_again() {
    for kind in ["configmap", "serviceaccounttoken"] {
        let timeout_ms = 20_000;
        let mut cloud = set(|settings| settings.remote_query_timeout_ms = timeout_ms);
        let mut user = pod("p", "u", 7);
        user["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [
            {"configMap": {"name": "c"}},
            {"serviceAccountToken": {"path": "t", "expirationSeconds": 3607}},
        ]}}]);
        cloud.push("insert", "ns/pod/p", &user);
        let first = cloud.next(kind, 1_000);
        let repeated = cloud.next(kind, 60_000);
        assert_eq!(delay_ms(&first, &repeated), timeout_ms + QUERY_RETRY_MS, "{kind}");
    }
}

#[test]
fn a_pod_that_is_being_started_is_told_of_after_a_while() {
    let mut cloud = set(|_| ());
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    let began_at = cloud.clock_ms();
    let reported = cloud.next("podpatch", 10_000);
    assert_eq!(reported.header.timestamp_ms - began_at, REPORT_GATHER_MS as i64);
    // One that runs by then is reported at once.
    let mut cloud = running();
    let runs_at = cloud.clock_ms();
    assert!(cloud.next("podpatch", 10_000).header.timestamp_ms <= runs_at);
}

#[test]
fn a_status_of_a_pod_that_was_refused_is_told_again() {
    let mut cloud = running();
    let reported = cloud.next("podpatch", 2_000);
    cloud.answer(&reported, &refusal("InternalError", 500));
    let repeated = cloud.next("podpatch", 60_000);
    assert_eq!(cloud.wait_ms(&reported, &repeated), REPORT_RETRY_MS);
}

#[test]
fn a_pod_that_the_cloud_said_it_would_delete_is_told_of_as_gone_again() {
    let mut cloud = running();
    let mut ending = pod("p", "u", 8);
    ending["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    cloud.push("update", "ns/pod/p", &ending);
    cloud.work();
    let mut reported = cloud.take_sent("podpatch");
    while let Some(message) = reported.pop() {
        let status = &cloud.harness.agent.pods().next().expect("one").status;
        ending["status"] = serde_json::to_value(status).expect("JSON");
        cloud.answer(&message, &json!({"Object": ending, "Err": null}));
        reported = cloud.take_sent("podpatch");
    }
    let deletion = cloud.next("pod", 2_000);
    assert_eq!(&*deletion.route.operation, "delete");
    cloud.answer(&deletion, &json!("OK"));
    let repeated = cloud.next("pod", 120_000);
    assert_eq!(&*repeated.route.operation, "delete");
    assert_eq!(cloud.wait_ms(&deletion, &repeated), DELETE_RETRY_MS);
}

#[test]
fn a_registration_that_was_refused_is_made_again_ever_more_rarely() {
    let mut cloud = set(|_| ());
    let mut requested = cloud.next("node", 2_000);
    for n in 0..9 {
        cloud.answer(&requested, &refusal("Forbidden", 403));
        let repeated = cloud.next("node", 120_000);
        let wait_ms = (REGISTER_RETRY_MIN_MS << n).min(REGISTER_RETRY_MAX_MS);
        assert_eq!(cloud.wait_ms(&requested, &repeated), wait_ms, "{n}");
        requested = repeated;
    }
}

#[test]
fn a_lease_that_was_refused_is_asked_for_again_ever_more_rarely() {
    let interval_ms = CloudSettings::default().lease_interval_ms;
    let mut cloud = set(|_| ());
    let mut requested = cloud.next("lease", 2_000);
    for n in 0..9 {
        cloud.answer(&requested, &refusal("InternalError", 500));
        let repeated = cloud.next("lease", 20_000);
        let wait_ms = (LEASE_RETRY_MIN_MS << n).min(interval_ms);
        assert_eq!(cloud.wait_ms(&requested, &repeated), wait_ms, "{n}");
        requested = repeated;
    }
}

#[test]
fn an_old_cloud_is_asked_from_time_to_time_whether_it_knows_leases_by_now() {
    let mut cloud = set(|_| ());
    let mut cluster = Cluster::default();
    cluster.is_old = true;
    let mut requested = Vec::new();
    for _ in 0..1_100 {
        requested.extend(cloud.take_sent("lease"));
        cluster.serve(&mut cloud);
        cloud.pass(1_000);
        cloud.sign_of_life();
    }
    let waits = requested.windows(2).map(|two| delay_ms(&two[0], &two[1]));
    // The earlier ones, a lease's interval apart, had to find out that it is old.
    let timeout_ms = CloudSettings::default().lease_interval_ms;
    let probes: Vec<u64> = waits.skip_while(|wait_ms| *wait_ms <= timeout_ms).collect();
    let once_known = LEGACY_PROBE_MS + timeout_ms;
    assert_eq!(probes, [once_known, LEGACY_PROBE_MS, LEGACY_PROBE_MS]);
}

/// Whether this says that the node is not ready.
fn is_unready(reported: &Value) -> bool {
    let conditions = reported["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "False")
}

#[test]
fn a_node_whose_runtime_is_gone_is_called_not_ready_after_a_while() {
    let look_ms = 100;
    let mut cloud = set(|settings| settings.status_update_ms = look_ms);
    let mut cluster = Cluster::default();
    cluster.serve(&mut cloud);
    cluster.pass(&mut cloud, 5_000);
    let gone_at = cloud.clock_ms();
    cloud.harness.deliver(Event::RuntimeDown { cause: "connection refused".to_owned() });
    let mut reported_at = None;
    for _ in 0..60 {
        cloud.pass(1_000);
        cloud.sign_of_life();
        for message in cloud.take_sent("nodepatch") {
            if is_unready(&patch(&message)) {
                reported_at.get_or_insert(message.header.timestamp_ms);
            }
            cloud.sent.push(message);
        }
        cluster.serve(&mut cloud);
    }
    let wait_ms = (reported_at.expect("it is reported") - gone_at) as u64;
    // It is reported at the next check.
    assert!((RUNTIME_DOWN_MS..RUNTIME_DOWN_MS + 2 * look_ms).contains(&wait_ms), "{wait_ms}");
}
