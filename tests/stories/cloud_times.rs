//! How long what failed or was not answered is waited with before it is asked for or told again.

use edged::agent::event::Event;
use edged::limits::{
    DELETE_AGAIN_MS, LEASE_RETRY_MIN_MS, LEGACY_PROBE_MS, QUERY_RETRY_MS, REGISTER_RETRY_MAX_MS,
    REGISTER_RETRY_MIN_MS, REPORT_GATHER_MS, REPORT_RETRY_MS, RUNTIME_DOWN_MS,
};
use edged::model::message::Message;
use edged::model::meta::{Saved, StoreOrigin};
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{Sky, patch, pod};
use crate::cluster::{Cluster, refusal};

fn set(change: impl FnOnce(&mut CloudSettings)) -> Sky {
    let mut settings = CloudSettings::default();
    change(&mut settings);
    let mut sky = Sky::set("gw", Saved { rows: Vec::new(), origin: StoreOrigin::Kept }, settings);
    sky.connect();
    sky
}

/// A pod of the cloud runs.
fn running() -> Sky {
    let mut sky = set(|_| ());
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    sky.work();
    sky
}

fn delay_ms(one: &Message, other: &Message) -> u64 {
    (other.header.timestamp_ms - one.header.timestamp_ms).try_into().expect("the later one")
}

#[test]
fn what_the_cloud_was_asked_for_and_did_not_answer_is_asked_for_again() {
    for kind in ["configmap", "serviceaccounttoken"] {
        let timeout_ms = 20_000;
        let mut sky = set(|settings| settings.remote_query_timeout_ms = timeout_ms);
        let mut user = pod("p", "u", 7);
        user["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [
            {"configMap": {"name": "c"}},
            {"serviceAccountToken": {"path": "t", "expirationSeconds": 3607}},
        ]}}]);
        sky.push("insert", "ns/pod/p", &user);
        let first = sky.next(kind, 1_000);
        let again = sky.next(kind, 60_000);
        assert_eq!(delay_ms(&first, &again), timeout_ms + QUERY_RETRY_MS, "{kind}");
    }
}

#[test]
fn a_pod_that_is_being_started_is_told_of_after_a_while() {
    let mut sky = set(|_| ());
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    let began_at = sky.clock_ms();
    let told = sky.next("podpatch", 10_000);
    assert_eq!(told.header.timestamp_ms - began_at, REPORT_GATHER_MS as i64);
    // One that runs by then is told of at once.
    let mut sky = running();
    let runs_at = sky.clock_ms();
    assert!(sky.next("podpatch", 10_000).header.timestamp_ms <= runs_at);
}

#[test]
fn a_status_of_a_pod_that_was_refused_is_told_again() {
    let mut sky = running();
    let told = sky.next("podpatch", 2_000);
    sky.answer(&told, &refusal("InternalError", 500));
    let again = sky.next("podpatch", 60_000);
    assert_eq!(sky.wait_ms(&told, &again), REPORT_RETRY_MS);
}

#[test]
fn a_pod_that_the_cloud_said_it_would_delete_is_told_of_as_gone_again() {
    let mut sky = running();
    let mut ending = pod("p", "u", 8);
    ending["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    sky.push("update", "ns/pod/p", &ending);
    sky.work();
    let mut told = sky.said("podpatch");
    while let Some(message) = told.pop() {
        let status = &sky.desk.agent.pods().next().expect("one").status;
        ending["status"] = serde_json::to_value(status).expect("JSON");
        sky.answer(&message, &json!({"Object": ending, "Err": null}));
        told = sky.said("podpatch");
    }
    let deletion = sky.next("pod", 2_000);
    assert_eq!(&*deletion.route.operation, "delete");
    sky.answer(&deletion, &json!("OK"));
    let again = sky.next("pod", 120_000);
    assert_eq!(&*again.route.operation, "delete");
    assert_eq!(sky.wait_ms(&deletion, &again), DELETE_AGAIN_MS);
}

#[test]
fn a_registration_that_was_refused_is_made_again_ever_more_rarely() {
    let mut sky = set(|_| ());
    let mut asked = sky.next("node", 2_000);
    for n in 0..9 {
        sky.answer(&asked, &refusal("Forbidden", 403));
        let again = sky.next("node", 120_000);
        let wait_ms = (REGISTER_RETRY_MIN_MS << n).min(REGISTER_RETRY_MAX_MS);
        assert_eq!(sky.wait_ms(&asked, &again), wait_ms, "{n}");
        asked = again;
    }
}

#[test]
fn a_lease_that_was_refused_is_asked_for_again_ever_more_rarely() {
    let interval_ms = CloudSettings::default().lease_interval_ms;
    let mut sky = set(|_| ());
    let mut asked = sky.next("lease", 2_000);
    for n in 0..9 {
        sky.answer(&asked, &refusal("InternalError", 500));
        let again = sky.next("lease", 20_000);
        let wait_ms = (LEASE_RETRY_MIN_MS << n).min(interval_ms);
        assert_eq!(sky.wait_ms(&asked, &again), wait_ms, "{n}");
        asked = again;
    }
}

#[test]
fn an_old_cloud_is_asked_from_time_to_time_whether_it_knows_leases_by_now() {
    let mut sky = set(|_| ());
    let mut cluster = Cluster::default();
    cluster.is_old = true;
    let mut asked = Vec::new();
    for _ in 0..1_100 {
        asked.extend(sky.said("lease"));
        cluster.serve(&mut sky);
        sky.pass(1_000);
        sky.hear();
    }
    let waits = asked.windows(2).map(|two| delay_ms(&two[0], &two[1]));
    // Those before, a lease's time apart, were to find out that it is old.
    let timeout_ms = CloudSettings::default().lease_interval_ms;
    let probes: Vec<u64> = waits.skip_while(|wait_ms| *wait_ms <= timeout_ms).collect();
    let once_known = LEGACY_PROBE_MS + timeout_ms;
    assert_eq!(probes, [once_known, LEGACY_PROBE_MS, LEGACY_PROBE_MS]);
}

/// Whether this says that the node is not ready.
fn is_unready(told: &Value) -> bool {
    let conditions = told["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "False")
}

#[test]
fn a_node_whose_runtime_is_gone_is_called_not_ready_after_a_while() {
    let look_ms = 100;
    let mut sky = set(|settings| settings.status_update_ms = look_ms);
    let mut cluster = Cluster::default();
    cluster.serve(&mut sky);
    cluster.pass(&mut sky, 5_000);
    let gone_at = sky.clock_ms();
    sky.desk.tell(Event::RuntimeDown { cause: "connection refused".to_owned() });
    let mut told_at = None;
    for _ in 0..60 {
        sky.pass(1_000);
        sky.hear();
        for message in sky.said("nodepatch") {
            if is_unready(&patch(&message)) {
                told_at.get_or_insert(message.header.timestamp_ms);
            }
            sky.sent.push(message);
        }
        cluster.serve(&mut sky);
    }
    let wait_ms = (told_at.expect("it is told") - gone_at) as u64;
    // It is told at the next look.
    assert!((RUNTIME_DOWN_MS..RUNTIME_DOWN_MS + 2 * look_ms).contains(&wait_ms), "{wait_ms}");
}
