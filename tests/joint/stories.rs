//! What happens to a pod from the API server to the runtime and back.

use edged::controller::SyncStore;
use edged::limits::UNUSED_MS;
use edged::model::api::Kind;

use crate::joint::{Joint, config_map, pod};

/// Wherever records are kept.
pub(crate) const EACH: [SyncStore; 2] = [SyncStore::Table, SyncStore::Objects];

/// A pod runs with the first content of a ConfigMap.
fn with_pod(sync: SyncStore, name: &str) -> Joint {
    let mut joint = Joint::new(sync, 1);
    joint.apply(Kind::ConfigMap, config_map("m", "1"));
    joint.apply(Kind::Pod, pod(name, Some("m")));
    joint.pass(5_000);
    joint
}

#[test]
fn a_pod_runs_is_reported_and_goes() {
    for sync in EACH {
        let mut joint = with_pod(sync, "web");
        joint.is_settled();
        assert_eq!(joint.kept("m").as_deref(), Some("1"));
        joint.apply(Kind::ConfigMap, config_map("m", "2"));
        joint.pass(5_000);
        assert_eq!(joint.kept("m").as_deref(), Some("2"));
        joint.delete_pod("web");
        joint.pass(60_000);
        assert!(joint.wanted().is_empty(), "{:?}", joint.wanted());
        joint.is_settled();
    }
}

/// edgecontroller removes from a node what no pod has used for a while, and a pod may come that
/// uses it.
#[test]
fn a_config_map_that_no_pod_used_for_a_while_comes_back() {
    for sync in EACH {
        let mut joint = Joint::new(sync, 1);
        joint.apply(Kind::ConfigMap, config_map("m", "1"));
        for at in 0..3 {
            let name = format!("web{at}");
            joint.apply(Kind::Pod, pod(&name, Some("m")));
            joint.pass(5_000);
            joint.is_settled();
            joint.delete_pod(&name);
            joint.pass(60_000);
            assert!(joint.kept("m").is_some(), "another pod may need it at once");
            joint.pass(UNUSED_MS);
            // Either side may look at it only when something else happens.
            joint.cut();
            joint.pass(60_000);
            assert_eq!(joint.kept("m"), None);
        }
    }
}

#[test]
fn a_config_map_that_is_deleted_and_made_anew_is_another() {
    for sync in EACH {
        let mut joint = with_pod(sync, "web");
        joint.remove(Kind::ConfigMap, "m");
        joint.pass(5_000);
        joint.apply(Kind::ConfigMap, config_map("m", "2"));
        joint.pass(5_000);
        assert_eq!(joint.kept("m").as_deref(), Some("2"));
        joint.is_settled();
    }
}

#[test]
fn what_happened_while_either_was_away_is_made_up_for() {
    for sync in EACH {
        let mut joint = with_pod(sync, "stays");
        joint.apply(Kind::Pod, pod("goes", None));
        joint.pass(5_000);
        joint.is_reachable = false;
        joint.cut();
        joint.world.crash();
        joint.apply(Kind::ConfigMap, config_map("m", "2"));
        joint.delete_pod("goes");
        joint.apply(Kind::Pod, pod("comes", Some("m")));
        joint.restart_agent();
        joint.pass(60_000);
        assert_eq!(joint.running().len(), 2, "offline, as before");
        joint.is_reachable = true;
        joint.pass(180_000);
        joint.is_settled();
        assert_eq!(joint.kept("m").as_deref(), Some("2"));
    }
}

#[test]
fn a_node_that_was_deleted_comes_back_with_its_pods() {
    for sync in EACH {
        let mut joint = with_pod(sync, "web");
        joint.delete_node();
        joint.pass(180_000);
        joint.is_settled();
        joint.apply(Kind::ConfigMap, config_map("m", "2"));
        joint.pass(5_000);
        assert_eq!(joint.kept("m").as_deref(), Some("2"));
    }
}

#[test]
fn a_node_that_lost_its_store_gets_everything_again() {
    for sync in EACH {
        let mut joint = with_pod(sync, "stays");
        joint.apply(Kind::Pod, pod("goes", None));
        joint.pass(5_000);
        joint.is_reachable = false;
        joint.cut();
        joint.delete_pod("goes");
        joint.lose_store();
        joint.pass(60_000);
        assert_eq!(joint.running().len(), 2, "they run on: {}", joint.log());
        joint.is_reachable = true;
        joint.pass(180_000);
        joint.is_settled();
        assert_eq!(joint.wanted().len(), 1);
        assert_eq!(joint.kept("m").as_deref(), Some("1"));
    }
}
