//! What was said of the node and not taken is not told.

use edged::agent::event::Event;
use edged::model::meta::Saved;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, patch};
use crate::cluster::{Cluster, refusal};

/// The node has joined; so much later it has another address. After five minutes a report is due.
fn changed(ms: u64) -> (CloudHarness, Cluster) {
    let mut cloud = CloudHarness::with(Saved::default());
    let mut cluster = Cluster::default();
    cloud.connect();
    cluster.serve(&mut cloud);
    cluster.pass(&mut cloud, ms);
    cloud.harness.tell(Event::Addresses(vec!["192.0.2.9".to_owned()]));
    cloud.pass(12_000);
    (cloud, cluster)
}

fn addresses(told: &Value) -> bool {
    told.pointer("/status/addresses").is_some()
}

/// Whether heartbeats are told.
fn beats(told: &Value) -> bool {
    told.pointer("/status/conditions/0/lastHeartbeatTime").is_some()
}

#[test]
fn a_status_that_was_refused_is_told_again() {
    for (ms, reports) in [(20_000, false), (295_000, true)] {
        let (mut cloud, mut cluster) = changed(ms);
        let said = cloud.said("nodepatch");
        assert_eq!(said.len(), 1);
        assert!(addresses(&patch(&said[0])) && beats(&patch(&said[0])) == reports);
        cloud.answer(&said[0], &refusal("InternalError", 500));
        cluster.heard();
        cluster.pass(&mut cloud, 30_000);
        let told = cluster.contents("patch nodepatch");
        assert_eq!(told[0], json!({}), "what does it have?");
        assert!(told[1..].iter().any(addresses), "{told:?}");
        assert!(!reports || told[1..].iter().any(beats), "{told:?}");
    }
}

#[test]
fn a_status_that_was_not_answered_is_told_again() {
    for (ms, reports) in [(20_000, false), (295_000, true)] {
        let (mut cloud, mut cluster) = changed(ms);
        assert_eq!(cloud.said("nodepatch").len(), 1);
        for _ in 0..70 {
            cloud.pass(1_000);
            cloud.hear();
        }
        cluster.pass(&mut cloud, 90_000);
        let told = cluster.contents("patch nodepatch");
        assert!(told.iter().any(addresses), "{told:?}");
        assert!(!reports || told.iter().any(beats), "{told:?}");
    }
}
