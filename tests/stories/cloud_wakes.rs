//! Work that is due at a time is done then, and not when the agent wakes for another reason.

use edged::agent::event::Event;
use edged::limits::{
    ENROL_RETRY_MIN_MS, MIRROR_POD_RETRY_MIN_MS, QUERY_RETRY_MS, RELIST_RETRY_MIN_MS,
    REPORT_RETRY_MS,
};
use edged::model::job::JobSpec;
use edged::model::link::Cause;
use edged::model::message::Message;
use edged::model::meta::{Saved, StoreOrigin};
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, pod, row};
use crate::cluster::refusal;
use crate::harness::{MAIN, sandbox};

/// A time at which nothing else is due.
const ODD_MS: u64 = 137;

/// Time passes in which the agent wakes only by itself; the link is alive.
fn pass(cloud: &mut CloudHarness, ms: u64) {
    let end = cloud.harness.now.boot.plus_ms(ms);
    while cloud.harness.now.boot < end {
        cloud.harness.pass(end.since_ms(cloud.harness.now.boot).min(20_000));
        cloud.settle();
        cloud.sign_of_life();
    }
}

fn waited_ms(before: &Message, after: &Message) -> u64 {
    (after.header.timestamp_ms - before.header.timestamp_ms).unsigned_abs()
}

/// Each of two requests is answered at another time; each is repeated after its own interval.
fn requested_again(cloud: &mut CloudHarness, kind: &str, answer: &Value, wait_ms: u64) {
    let requested = cloud.take_sent(kind);
    assert_eq!(requested.len(), 2, "{kind}");
    for question in &requested {
        cloud.harness.pass(ODD_MS);
        cloud.settle();
        cloud.answer(question, answer);
    }
    pass(cloud, wait_ms + 500);
    let repeated = cloud.take_sent(kind);
    assert_eq!(repeated.len(), 2, "{kind}");
    for (before, after) in requested.iter().zip(&repeated) {
        assert_eq!(before.route.resource, after.route.resource, "{kind}");
        assert_eq!(cloud.wait_ms(before, after), wait_ms, "{kind}");
    }
}

#[test]
fn reports_that_were_refused() {
    let mut cloud = CloudHarness::new();
    for name in ["p", "q"] {
        cloud.push("insert", &format!("ns/pod/{name}"), &pod(name, name, 7));
    }
    cloud.work();
    pass(&mut cloud, 2_000);
    requested_again(&mut cloud, "podpatch", &refusal("InternalError", 500), REPORT_RETRY_MS);
}

#[test]
fn mirrors_that_were_refused() {
    let node = json!({"metadata": {"name": "gw", "uid": "node-1", "resourceVersion": "3"}});
    let rows = vec![row("null/node/gw", &node)];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.connect();
    let plain = crate::harness::pod(MAIN);
    cloud.harness.manifests(&[&plain, &plain.replace("\"p\"", "\"q\"").replace("u1", "u2")]);
    cloud.work();
    pass(&mut cloud, 2_000);
    requested_again(&mut cloud, "pod", &refusal("InternalError", 500), MIRROR_POD_RETRY_MIN_MS);
}

#[test]
fn tokens_that_were_not_given() {
    let mut cloud = CloudHarness::new();
    let mut user = pod("p", "u1", 7);
    user["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [
        {"serviceAccountToken": {"path": "a", "audience": "a", "expirationSeconds": 3607}},
        {"serviceAccountToken": {"path": "b", "audience": "b", "expirationSeconds": 3607}}]}}]);
    cloud.push("insert", "ns/pod/p", &user);
    requested_again(&mut cloud, "serviceaccounttoken", &json!("OK"), QUERY_RETRY_MS);
}

#[test]
fn objects_of_which_the_cloud_said_nothing() {
    let mut cloud = CloudHarness::new();
    let of = |name: &str| {
        let mut user = pod(name, name, 7);
        user["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": name}}]);
        user
    };
    let mut requested = Vec::new();
    for name in ["p", "q"] {
        cloud.push("insert", &format!("ns/pod/{name}"), &of(name));
        requested.extend(cloud.take_sent("configmap"));
        cloud.harness.pass(ODD_MS);
        cloud.settle();
    }
    let timeout_ms = CloudSettings::default().remote_query_timeout_ms;
    pass(&mut cloud, timeout_ms + QUERY_RETRY_MS + 500);
    let repeated = cloud.take_sent("configmap");
    assert_eq!(repeated.len(), 2);
    for (before, after) in requested.iter().zip(&repeated) {
        assert_eq!(waited_ms(before, after), timeout_ms + QUERY_RETRY_MS);
    }
}

#[test]
fn events_that_wait_for_their_rate() {
    let settings = CloudSettings {
        report_events: true,
        events_per_second: 2,
        events_burst: 1,
        ..CloudSettings::default()
    };
    let mut cloud = CloudHarness::set("gw", Saved::default(), settings);
    cloud.connect();
    cloud.harness.pass(ODD_MS);
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.work();
    pass(&mut cloud, 5_000);
    let reported = cloud.take_sent("event");
    assert!(reported.len() > 2, "{}", reported.len());
    for two in reported.windows(2).skip(1) {
        assert_eq!(waited_ms(&two[0], &two[1]), 500);
    }
}

/// A pod runs of which the store knows nothing.
fn lost() -> CloudHarness {
    let saved = Saved::new(Vec::new(), StoreOrigin::New);
    let mut cloud = CloudHarness::beside(
        saved,
        |_| (),
        |harness| {
            let mut unknown = sandbox("s1", 0, true);
            unknown.source = Some("api".into());
            harness.sandboxes.push(unknown);
        },
    );
    cloud.connect();
    cloud
}

fn question(cloud: &mut CloudHarness) -> Option<Message> {
    let at = cloud.sent.iter().position(|sent| &*sent.route.source == "metaserver")?;
    Some(cloud.sent.remove(at))
}

#[test]
fn a_list_of_pods_that_was_refused() {
    let mut cloud = lost();
    let requested = question(&mut cloud).expect("a question");
    cloud.harness.pass(ODD_MS);
    cloud.settle();
    cloud.answer(&requested, &json!({"Status": "Rejected", "Reason": "it is off"}));
    pass(&mut cloud, RELIST_RETRY_MIN_MS + 500);
    let repeated = question(&mut cloud).expect("the same again");
    assert_eq!(cloud.wait_ms(&requested, &repeated), RELIST_RETRY_MIN_MS);
}

#[test]
fn an_application_for_a_certificate_that_failed() {
    let mut cloud = CloudHarness::with(Saved::default());
    cloud.harness.read_only = true;
    cloud.harness.pass(ODD_MS);
    let session = cloud.dialled.pop().expect("a dial");
    let cause = Cause::NotJoined("no certificate".to_owned());
    cloud.harness.deliver(Event::LinkDown(session, cause.clone()));
    cloud.settle();
    let count = |cloud: &CloudHarness| {
        cloud.harness.specs.iter().filter(|spec| matches!(spec, JobSpec::Enrol { .. })).count()
    };
    assert_eq!(count(&cloud), 1);
    let mut before = cloud.harness.now.boot;
    for n in 2..5 {
        for _ in 0..2_000 {
            if count(&cloud) == n {
                break;
            }
            cloud.harness.pass(10);
            cloud.settle();
            // Existing credentials are presented meanwhile.
            while let Some(session) = cloud.dialled.pop() {
                cloud.harness.deliver(Event::LinkDown(session, cause.clone()));
                cloud.settle();
            }
        }
        let waited_ms = cloud.harness.now.boot.since_ms(before);
        let wait_ms = ENROL_RETRY_MIN_MS << (n - 2);
        // What the story takes to see it.
        assert!((wait_ms - 200..=wait_ms + 10).contains(&waited_ms), "{n}: {waited_ms}");
        before = cloud.harness.now.boot;
    }
}
