//! What goes wrong again and again is said once, and again when it was well in between.

use edged::agent::event::Event;
use edged::limits::{ENROL_MS, LEASE_RETRY_MIN_MS};
use edged::model::job::JobSpec;
use edged::model::link::Cause;
use edged::model::message::Message;
use edged::model::meta::{Saved, StoreOrigin};
use serde_json::{Value, json};

use crate::cloud_harness::Sky;
use crate::cluster::{Cluster, refusal};
use crate::desk::sandbox;

fn empty() -> Saved {
    Saved { rows: Vec::new(), origin: StoreOrigin::Kept }
}

fn lines(sky: &Sky, of: &str) -> usize {
    sky.desk.log.iter().filter(|line| line.contains(of)).count()
}

/// Time passes, and all that is said of this kind is answered so; how often that was.
fn refuse(sky: &mut Sky, kind: &str, answer: &Value, seconds: u64) -> usize {
    let mut count = 0;
    for _ in 0..seconds {
        for asked in sky.said(kind) {
            sky.answer(&asked, answer);
            count += 1;
        }
        // Or the cloud would be taken for an old one.
        for asked in sky.said("lease") {
            sky.answer(&asked, &refusal("InternalError", 500));
        }
        sky.pass(1_000);
        sky.hear();
    }
    count
}

#[test]
fn that_the_node_or_its_lease_is_refused_is_said_once() {
    for (kind, line) in [
        ("node", "node gw is not registered: it is Forbidden"),
        ("lease", "the lease is not renewed: it is Forbidden"),
    ] {
        let mut sky = Sky::with(empty());
        sky.connect();
        assert!(refuse(&mut sky, kind, &refusal("Forbidden", 403), 60) > 2, "{kind}");
        assert_eq!(lines(&sky, line), 1, "{kind}: {:?}", sky.desk.log);
        assert!(refuse(&mut sky, kind, &refusal("Invalid", 422), 120) > 0, "{kind}");
        assert_eq!(lines(&sky, "it is Invalid"), 1, "{kind}: {:?}", sky.desk.log);
    }
}

#[test]
fn that_the_status_is_refused_is_said_once_and_again_after_it_was_taken() {
    let mut sky = Sky::with(empty());
    let mut cluster = Cluster::default();
    sky.connect();
    cluster.serve(&mut sky);
    let line = "the status of node gw is not taken: it is Forbidden";
    let trouble = |sky: &mut Sky| {
        sky.desk.tell(Event::Addresses(vec!["192.0.2.9".to_owned()]));
        refuse(sky, "nodepatch", &refusal("Forbidden", 403), 40)
    };
    assert!(trouble(&mut sky) > 2);
    assert_eq!(lines(&sky, line), 1, "{:?}", sky.desk.log);
    assert_eq!(lines(&sky, "is registered"), 1, "nobody has said that it is gone");
    cluster.pass(&mut sky, 20_000);
    sky.desk.tell(Event::Addresses(vec!["192.0.2.7".to_owned()]));
    assert!(refuse(&mut sky, "nodepatch", &refusal("Forbidden", 403), 40) > 2);
    assert_eq!(lines(&sky, line), 2, "{:?}", sky.desk.log);
}

#[test]
fn what_is_no_node_and_no_lease_is_taken_for_none() {
    let unnamed = json!({"Object": {"metadata": {"name": "gw"}, "status": {}}, "Err": null});
    let mut sky = Sky::with(empty());
    sky.connect();
    assert!(refuse(&mut sky, "node", &unnamed, 30) > 1, "it is asked for again");
    assert_eq!(lines(&sky, "not registered: got no node"), 1, "{:?}", sky.desk.log);
    let mut sky = Sky::with(empty());
    sky.connect();
    for answer in [unnamed, json!("OK")] {
        assert!(refuse(&mut sky, "lease", &answer, 30) > 1, "it is asked for again");
        assert_eq!(lines(&sky, "got no lease, expected one"), 1, "{:?}", sky.desk.log);
    }
}

#[test]
fn a_lease_that_is_refused_is_asked_for_ever_more_rarely() {
    let mut sky = Sky::with(empty());
    sky.connect();
    let mut asked = sky.next("lease", 1_000);
    for wait_ms in [LEASE_RETRY_MIN_MS, 2 * LEASE_RETRY_MIN_MS, 4 * LEASE_RETRY_MIN_MS] {
        sky.answer(&asked, &refusal("Forbidden", 403));
        let again = sky.next("lease", 60_000);
        assert_eq!(sky.wait_ms(&asked, &again), wait_ms.min(10_000));
        asked = again;
    }
    // A new link does not wait for it.
    sky.answer(&asked, &refusal("Forbidden", 403));
    sky.disconnect();
    sky.pass(1_500);
    sky.connect();
    assert_eq!(sky.said("lease").len(), 1);
}

#[test]
fn why_there_is_no_link_is_said_once_for_each_reason_and_each_loss() {
    let mut sky = Sky::with(empty());
    let fail = |sky: &mut Sky, cause: Cause, times: usize| {
        for _ in 0..times {
            while sky.dialled.is_empty() {
                sky.pass(1_000);
            }
            let session = sky.dialled.pop().expect("just seen");
            sky.desk.tell(Event::LinkDown(session, cause.clone()));
            sky.settle();
        }
    };
    fail(&mut sky, Cause::Refused("connection refused".to_owned()), 4);
    assert_eq!(lines(&sky, "connection refused"), 1, "{:?}", sky.desk.log);
    fail(&mut sky, Cause::Link("no answer".to_owned()), 3);
    assert_eq!(lines(&sky, "no answer"), 1, "{:?}", sky.desk.log);
    let trouble = |sky: &Sky| {
        let overview = sky.desk.agent.overview(sky.desk.now).cloud.expect("there is one");
        (overview.up_ms, overview.trouble)
    };
    assert_eq!(trouble(&sky), (None, Some("no answer".to_owned())));
    for losses in 1..=3 {
        sky.pass(16_000);
        sky.connect();
        sky.pass(2_000);
        let (up_ms, why) = trouble(&sky);
        assert!(up_ms.is_some_and(|ms| (2_000..2_500).contains(&ms)) && why.is_none());
        sky.disconnect();
        assert_eq!(lines(&sky, "connection reset"), losses, "{:?}", sky.desk.log);
    }
}

#[test]
fn that_no_certificate_is_given_is_said_once() {
    let mut sky = Sky::with(empty());
    sky.desk.read_only = true;
    let line = "no certificate, the pods stay as they are: Read-only file system";
    let session = sky.dialled.pop().expect("a dial");
    let cause = Cause::NotJoined("there is no certificate".to_owned());
    sky.desk.tell(Event::LinkDown(session, cause.clone()));
    sky.settle();
    let applications = |sky: &Sky| {
        sky.desk.specs.iter().filter(|spec| matches!(spec, JobSpec::Enrol { .. })).count()
    };
    for _ in 0..60 {
        sky.pass(1_000);
        // What there is is shown between two applications.
        while let Some(session) = sky.dialled.pop() {
            sky.desk.tell(Event::LinkDown(session, cause.clone()));
            sky.settle();
        }
    }
    // After 2, 4, 8, 16 and 32 seconds.
    assert!((5..=6).contains(&applications(&sky)), "{}", applications(&sky));
    assert_eq!(lines(&sky, line), 1, "{:?}", sky.desk.log);
    sky.desk.read_only = false;
    sky.pass(ENROL_MS);
    assert_eq!(lines(&sky, "certificate obtained"), 1, "{:?}", sky.desk.log);
}

#[test]
fn a_list_of_pods_that_is_of_no_use_is_said_once() {
    let saved = Saved { rows: Vec::new(), origin: StoreOrigin::New };
    // A pod runs of which the store knows nothing.
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
    let mut count = 0;
    for _ in 0..300 {
        let is_it = |said: &Message| &*said.route.source == "metaserver";
        if let Some(at) = sky.sent.iter().position(is_it) {
            let question = sky.sent.remove(at);
            sky.answer(&question, &json!({"Status": "Rejected", "Reason": "it is off"}));
            count += 1;
        }
        // Or the cloud would be taken for an old one.
        for asked in sky.said("lease") {
            sky.answer(&asked, &refusal("InternalError", 500));
        }
        sky.pass(1_000);
        sky.hear();
    }
    assert!(count > 2, "{count}");
    let line = "the cloud's list of pods is of no use: got Rejected, expected Approved: it is off";
    assert_eq!(lines(&sky, line), 1, "{:?}", sky.desk.log);
}
