//! What is due at a time is done then, and not when the agent wakes for something else.

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

use crate::cloud_harness::{Sky, pod, row};
use crate::cluster::refusal;
use crate::desk::{MAIN, sandbox};

/// A time at which nothing else is due.
const ODD_MS: u64 = 137;

/// Time passes in which the agent wakes by itself alone; the link is alive.
fn pass(sky: &mut Sky, ms: u64) {
    let end = sky.desk.now.boot.plus_ms(ms);
    while sky.desk.now.boot < end {
        sky.desk.pass(end.since_ms(sky.desk.now.boot).min(20_000));
        sky.settle();
        sky.hear();
    }
}

fn waited_ms(before: &Message, after: &Message) -> u64 {
    (after.header.timestamp_ms - before.header.timestamp_ms).unsigned_abs()
}

/// Each of two questions is answered at another time; each is asked again after so long.
fn asked_again(sky: &mut Sky, kind: &str, answer: &Value, wait_ms: u64) {
    let asked = sky.said(kind);
    assert_eq!(asked.len(), 2, "{kind}");
    for question in &asked {
        sky.desk.pass(ODD_MS);
        sky.settle();
        sky.answer(question, answer);
    }
    pass(sky, wait_ms + 500);
    let again = sky.said(kind);
    assert_eq!(again.len(), 2, "{kind}");
    for (before, after) in asked.iter().zip(&again) {
        assert_eq!(before.route.resource, after.route.resource, "{kind}");
        assert_eq!(sky.wait_ms(before, after), wait_ms, "{kind}");
    }
}

#[test]
fn reports_that_were_refused() {
    let mut sky = Sky::new();
    for name in ["p", "q"] {
        sky.push("insert", &format!("ns/pod/{name}"), &pod(name, name, 7));
    }
    sky.work();
    pass(&mut sky, 2_000);
    asked_again(&mut sky, "podpatch", &refusal("InternalError", 500), REPORT_RETRY_MS);
}

#[test]
fn mirrors_that_were_refused() {
    let node = json!({"metadata": {"name": "gw", "uid": "node-1", "resourceVersion": "3"}});
    let rows = vec![row("null/node/gw", &node)];
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.connect();
    let plain = crate::desk::pod(MAIN);
    sky.desk.manifests(&[&plain, &plain.replace("\"p\"", "\"q\"").replace("u1", "u2")]);
    sky.work();
    pass(&mut sky, 2_000);
    asked_again(&mut sky, "pod", &refusal("InternalError", 500), MIRROR_POD_RETRY_MIN_MS);
}

#[test]
fn tokens_that_were_not_given() {
    let mut sky = Sky::new();
    let mut user = pod("p", "u1", 7);
    user["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [
        {"serviceAccountToken": {"path": "a", "audience": "a", "expirationSeconds": 3607}},
        {"serviceAccountToken": {"path": "b", "audience": "b", "expirationSeconds": 3607}}]}}]);
    sky.push("insert", "ns/pod/p", &user);
    asked_again(&mut sky, "serviceaccounttoken", &json!("OK"), QUERY_RETRY_MS);
}

#[test]
fn objects_of_which_the_cloud_said_nothing() {
    let mut sky = Sky::new();
    let of = |name: &str| {
        let mut user = pod(name, name, 7);
        user["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": name}}]);
        user
    };
    let mut asked = Vec::new();
    for name in ["p", "q"] {
        sky.push("insert", &format!("ns/pod/{name}"), &of(name));
        asked.extend(sky.said("configmap"));
        sky.desk.pass(ODD_MS);
        sky.settle();
    }
    let timeout_ms = CloudSettings::default().remote_query_timeout_ms;
    pass(&mut sky, timeout_ms + QUERY_RETRY_MS + 500);
    let again = sky.said("configmap");
    assert_eq!(again.len(), 2);
    for (before, after) in asked.iter().zip(&again) {
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
    let mut sky = Sky::set("gw", Saved::default(), settings);
    sky.connect();
    sky.desk.pass(ODD_MS);
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    sky.work();
    pass(&mut sky, 5_000);
    let told = sky.said("event");
    assert!(told.len() > 2, "{}", told.len());
    for two in told.windows(2).skip(1) {
        assert_eq!(waited_ms(&two[0], &two[1]), 500);
    }
}

/// A pod runs of which the store knows nothing.
fn lost() -> Sky {
    let saved = Saved { rows: Vec::new(), origin: StoreOrigin::New };
    let mut sky = Sky::beside(
        saved,
        |_| (),
        |desk| {
            let mut unknown = sandbox("s1", 0, true);
            unknown.source = Some("api".into());
            desk.sandboxes.push(unknown);
        },
    );
    sky.connect();
    sky
}

fn question(sky: &mut Sky) -> Option<Message> {
    let at = sky.sent.iter().position(|said| &*said.route.source == "metaserver")?;
    Some(sky.sent.remove(at))
}

#[test]
fn a_list_of_pods_that_was_refused() {
    let mut sky = lost();
    let asked = question(&mut sky).expect("a question");
    sky.desk.pass(ODD_MS);
    sky.settle();
    sky.answer(&asked, &json!({"Status": "Rejected", "Reason": "it is off"}));
    pass(&mut sky, RELIST_RETRY_MIN_MS + 500);
    let again = question(&mut sky).expect("the same again");
    assert_eq!(sky.wait_ms(&asked, &again), RELIST_RETRY_MIN_MS);
}

#[test]
fn an_application_for_a_certificate_that_failed() {
    let mut sky = Sky::with(Saved::default());
    sky.desk.read_only = true;
    sky.desk.pass(ODD_MS);
    let session = sky.dialled.pop().expect("a dial");
    let cause = Cause::NotJoined("no certificate".to_owned());
    sky.desk.tell(Event::LinkDown(session, cause.clone()));
    sky.settle();
    let count = |sky: &Sky| {
        sky.desk.specs.iter().filter(|spec| matches!(spec, JobSpec::Enrol { .. })).count()
    };
    assert_eq!(count(&sky), 1);
    let mut before = sky.desk.now.boot;
    for n in 2..5 {
        for _ in 0..2_000 {
            if count(&sky) == n {
                break;
            }
            sky.desk.pass(10);
            sky.settle();
            // What there is is shown meanwhile.
            while let Some(session) = sky.dialled.pop() {
                sky.desk.tell(Event::LinkDown(session, cause.clone()));
                sky.settle();
            }
        }
        let waited_ms = sky.desk.now.boot.since_ms(before);
        let wait_ms = ENROL_RETRY_MIN_MS << (n - 2);
        // What the story takes to see it.
        assert!((wait_ms - 200..=wait_ms + 10).contains(&waited_ms), "{n}: {waited_ms}");
        before = sky.desk.now.boot;
    }
}
