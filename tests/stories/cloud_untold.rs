//! Reports about the node that were sent and not accepted count as not reported.

use edged::agent::event::Event;
use edged::model::meta::Saved;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, patch};
use crate::cluster::{Cluster, refusal};

/// The node has joined; this much later it has another address. After five minutes a report is due.
fn changed(ms: u64) -> (CloudHarness, Cluster) {
    let mut cloud = CloudHarness::with(Saved::default());
    let mut cluster = Cluster::default();
    cloud.connect();
    cluster.serve(&mut cloud);
    cluster.pass(&mut cloud, ms);
    cloud.harness.deliver(Event::Addresses(vec!["192.0.2.9".to_owned()]));
    cloud.pass(12_000);
    (cloud, cluster)
}

fn addresses(reported: &Value) -> bool {
    reported.pointer("/status/addresses").is_some()
}

/// Whether heartbeats are reported.
fn beats(reported: &Value) -> bool {
    reported.pointer("/status/conditions/0/lastHeartbeatTime").is_some()
}

#[test]
fn a_status_that_was_refused_is_told_again() {
    for (ms, reports) in [(20_000, false), (295_000, true)] {
        let (mut cloud, mut cluster) = changed(ms);
        let sent = cloud.take_sent("nodepatch");
        assert_eq!(sent.len(), 1);
        assert!(addresses(&patch(&sent[0])) && beats(&patch(&sent[0])) == reports);
        cloud.answer(&sent[0], &refusal("InternalError", 500));
        cluster.take_received();
        cluster.pass(&mut cloud, 30_000);
        let reported = cluster.contents("patch nodepatch");
        assert_eq!(reported[0], json!({}), "what does it have?");
        assert!(reported[1..].iter().any(addresses), "{reported:?}");
        assert!(!reports || reported[1..].iter().any(beats), "{reported:?}");
    }
}

#[test]
fn a_status_that_was_not_answered_is_told_again() {
    for (ms, reports) in [(20_000, false), (295_000, true)] {
        let (mut cloud, mut cluster) = changed(ms);
        assert_eq!(cloud.take_sent("nodepatch").len(), 1);
        for _ in 0..70 {
            cloud.pass(1_000);
            cloud.sign_of_life();
        }
        cluster.pass(&mut cloud, 90_000);
        let reported = cluster.contents("patch nodepatch");
        assert!(reported.iter().any(addresses), "{reported:?}");
        assert!(!reports || reported.iter().any(beats), "{reported:?}");
    }
}
