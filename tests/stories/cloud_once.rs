//! Repeated failures are logged once, and again after a success in between.

use edged::agent::event::Event;
use edged::limits::{ENROL_MS, LEASE_RETRY_MIN_MS};
use edged::model::job::JobSpec;
use edged::model::link::Cause;
use edged::model::message::Message;
use edged::model::meta::{Saved, StoreOrigin};
use serde_json::{Value, json};

use crate::cloud_harness::CloudHarness;
use crate::cluster::{Cluster, refusal};
use crate::harness::sandbox;

fn empty() -> Saved {
    Saved::kept(Vec::new())
}

fn lines(cloud: &CloudHarness, of: &str) -> usize {
    cloud.harness.log.iter().filter(|line| line.contains(of)).count()
}

/// Time passes, and all messages of this kind get this answer; returns their number.
fn refuse(cloud: &mut CloudHarness, kind: &str, answer: &Value, seconds: u64) -> usize {
    let mut count = 0;
    for _ in 0..seconds {
        for requested in cloud.take_sent(kind) {
            cloud.answer(&requested, answer);
            count += 1;
        }
        // Otherwise the cloud would be considered old.
        for requested in cloud.take_sent("lease") {
            cloud.answer(&requested, &refusal("InternalError", 500));
        }
        cloud.pass(1_000);
        cloud.sign_of_life();
    }
    count
}

#[test]
fn that_the_node_or_its_lease_is_refused_is_said_once() {
    for (kind, line) in [
        ("node", "node gw is not registered: it is Forbidden"),
        ("lease", "the lease is not renewed: it is Forbidden"),
    ] {
        let mut cloud = CloudHarness::with(empty());
        cloud.connect();
        assert!(refuse(&mut cloud, kind, &refusal("Forbidden", 403), 60) > 2, "{kind}");
        assert_eq!(lines(&cloud, line), 1, "{kind}: {:?}", cloud.harness.log);
        assert!(refuse(&mut cloud, kind, &refusal("Invalid", 422), 120) > 0, "{kind}");
        assert_eq!(lines(&cloud, "it is Invalid"), 1, "{kind}: {:?}", cloud.harness.log);
    }
}

#[test]
fn that_the_status_is_refused_is_said_once_and_again_after_it_was_taken() {
    let mut cloud = CloudHarness::with(empty());
    let mut cluster = Cluster::default();
    cloud.connect();
    cluster.serve(&mut cloud);
    let line = "the status of node gw is refused: it is Forbidden";
    let trouble = |cloud: &mut CloudHarness| {
        cloud.harness.deliver(Event::Addresses(vec!["192.0.2.9".to_owned()]));
        refuse(cloud, "nodepatch", &refusal("Forbidden", 403), 40)
    };
    assert!(trouble(&mut cloud) > 2);
    assert_eq!(lines(&cloud, line), 1, "{:?}", cloud.harness.log);
    assert_eq!(lines(&cloud, "is registered"), 1, "its deletion was not reported");
    cluster.pass(&mut cloud, 20_000);
    cloud.harness.deliver(Event::Addresses(vec!["192.0.2.7".to_owned()]));
    assert!(refuse(&mut cloud, "nodepatch", &refusal("Forbidden", 403), 40) > 2);
    assert_eq!(lines(&cloud, line), 2, "{:?}", cloud.harness.log);
}

#[test]
fn what_is_no_node_and_no_lease_is_taken_for_none() {
    let unnamed = json!({"Object": {"metadata": {"name": "gw"}, "status": {}}, "Err": null});
    let mut cloud = CloudHarness::with(empty());
    cloud.connect();
    assert!(refuse(&mut cloud, "node", &unnamed, 30) > 1, "it is requested again");
    assert_eq!(lines(&cloud, "not registered: got no node"), 1, "{:?}", cloud.harness.log);
    let mut cloud = CloudHarness::with(empty());
    cloud.connect();
    for answer in [unnamed, json!("OK")] {
        assert!(refuse(&mut cloud, "lease", &answer, 30) > 1, "it is requested again");
        assert_eq!(lines(&cloud, "got no lease, expected one"), 1, "{:?}", cloud.harness.log);
    }
}

#[test]
fn a_lease_that_is_refused_is_asked_for_ever_more_rarely() {
    let mut cloud = CloudHarness::with(empty());
    cloud.connect();
    let mut requested = cloud.next("lease", 1_000);
    for wait_ms in [LEASE_RETRY_MIN_MS, 2 * LEASE_RETRY_MIN_MS, 4 * LEASE_RETRY_MIN_MS] {
        cloud.answer(&requested, &refusal("Forbidden", 403));
        let repeated = cloud.next("lease", 60_000);
        assert_eq!(cloud.wait_ms(&requested, &repeated), wait_ms.min(10_000));
        requested = repeated;
    }
    // A new link does not wait for it.
    cloud.answer(&requested, &refusal("Forbidden", 403));
    cloud.disconnect();
    cloud.pass(1_500);
    cloud.connect();
    assert_eq!(cloud.take_sent("lease").len(), 1);
}

#[test]
fn why_there_is_no_link_is_said_once_for_each_reason_and_each_loss() {
    let mut cloud = CloudHarness::with(empty());
    let fail = |cloud: &mut CloudHarness, cause: Cause, times: usize| {
        for _ in 0..times {
            while cloud.dialled.is_empty() {
                cloud.pass(1_000);
            }
            let session = cloud.dialled.pop().expect("just seen");
            cloud.harness.deliver(Event::LinkDown(session, cause.clone()));
            cloud.settle();
        }
    };
    fail(&mut cloud, Cause::Refused("connection refused".to_owned()), 4);
    assert_eq!(lines(&cloud, "connection refused"), 1, "{:?}", cloud.harness.log);
    fail(&mut cloud, Cause::Link("no answer".to_owned()), 3);
    assert_eq!(lines(&cloud, "no answer"), 1, "{:?}", cloud.harness.log);
    let trouble = |cloud: &CloudHarness| {
        let overview = cloud.harness.agent.overview(cloud.harness.now).cloud.expect("there is one");
        (overview.up_ms, overview.trouble)
    };
    assert_eq!(trouble(&cloud), (None, Some("no answer".to_owned())));
    for losses in 1..=3 {
        cloud.pass(16_000);
        cloud.connect();
        cloud.pass(2_000);
        let (up_ms, why) = trouble(&cloud);
        assert!(up_ms.is_some_and(|ms| (2_000..2_500).contains(&ms)) && why.is_none());
        cloud.disconnect();
        assert_eq!(lines(&cloud, "connection reset"), losses, "{:?}", cloud.harness.log);
    }
}

#[test]
fn that_no_certificate_is_given_is_said_once() {
    let mut cloud = CloudHarness::with(empty());
    cloud.harness.read_only = true;
    let line = "no certificate, the pods stay as they are: Read-only file system";
    let session = cloud.dialled.pop().expect("a dial");
    let cause = Cause::NotJoined("there is no certificate".to_owned());
    cloud.harness.deliver(Event::LinkDown(session, cause.clone()));
    cloud.settle();
    let applications = |cloud: &CloudHarness| {
        cloud.harness.specs.iter().filter(|spec| matches!(spec, JobSpec::Enrol { .. })).count()
    };
    for _ in 0..60 {
        cloud.pass(1_000);
        // Existing credentials are presented between two requests.
        while let Some(session) = cloud.dialled.pop() {
            cloud.harness.deliver(Event::LinkDown(session, cause.clone()));
            cloud.settle();
        }
    }
    // After 2, 4, 8, 16 and 32 seconds.
    assert!((5..=6).contains(&applications(&cloud)), "{}", applications(&cloud));
    assert_eq!(lines(&cloud, line), 1, "{:?}", cloud.harness.log);
    cloud.harness.read_only = false;
    cloud.pass(ENROL_MS);
    assert_eq!(lines(&cloud, "certificate obtained"), 1, "{:?}", cloud.harness.log);
}

#[test]
fn a_list_of_pods_that_is_of_no_use_is_said_once() {
    let saved = Saved::new(Vec::new(), StoreOrigin::New);
    // A pod runs of which the store knows nothing.
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
    let mut count = 0;
    for _ in 0..300 {
        let is_it = |sent: &Message| &*sent.route.source == "metaserver";
        if let Some(at) = cloud.sent.iter().position(is_it) {
            let question = cloud.sent.remove(at);
            cloud.answer(&question, &json!({"Status": "Rejected", "Reason": "it is off"}));
            count += 1;
        }
        // Otherwise the cloud would be considered old.
        for requested in cloud.take_sent("lease") {
            cloud.answer(&requested, &refusal("InternalError", 500));
        }
        cloud.pass(1_000);
        cloud.sign_of_life();
    }
    assert!(count > 2, "{count}");
    let line =
        "the cloud's list of pods cannot be used: got Rejected, expected Approved: it is off";
    assert_eq!(lines(&cloud, line), 1, "{:?}", cloud.harness.log);
}
