//! The core of the controller: stories, and golden conversations. Its simulator is
//! `tests/cloudsim`.

mod any_cluster;
mod bounds;
mod cluster;
mod device_reports;
mod devices;
mod dynamic;
mod dynamic_versions;
mod edge;
mod golden;
mod join;
mod leaders;
mod node_jobs;
mod policy;
mod ports;
mod pushes;
mod questions;
mod records;
mod refusals;
mod router;
mod scale;
mod sessions;
mod tunnels;
mod world;

use edged::controller::{AccessRules, Config, SyncStore};
use edged::model::api::Kind;
use serde_json::{Value, json};

use cluster::Cluster;
use world::{Faults, World};

/// A pod of namespace `n`.
pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"nodeName": node,
        "serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending"}})
}

/// A pod that uses a ConfigMap and a Secret.
pub(crate) fn pod_with(name: &str, node: &str, map: &str, secret: &str) -> Value {
    let mut pod = pod(name, node);
    pod["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": map}}]);
    pod["spec"]["imagePullSecrets"] = json!([{"name": secret}]);
    pod
}

pub(crate) fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"node-role.kubernetes.io/edge": ""}},
        "spec": {}, "status": {}})
}

pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"}, "data": {"k": value}})
}

/// A world with these objects, after the first list.
pub(crate) fn listed(objects: &[(Kind, Value)]) -> World {
    let mut cluster = Cluster::default();
    for (kind, object) in objects {
        cluster.apply(*kind, object.clone());
    }
    let mut world = World::new(7, cluster, Faults::default());
    world.pass(10);
    world
}

/// A world in which nodes get the rules of service accounts, with these objects, after the first
/// list.
pub(crate) fn listed_with_rules(sync: SyncStore, objects: &[(Kind, Value)]) -> World {
    let mut cluster = Cluster::default();
    for (kind, object) in objects {
        cluster.apply(*kind, object.clone());
    }
    let config = || Config { access_rules: AccessRules::On, ..world::config() };
    let mut world = World::with(config, sync, 7, cluster, Faults::default());
    world.pass(10);
    world
}

/// Messages that a node received since the last call: operation and resource.
pub(crate) fn received(world: &mut World, node: &str) -> Vec<String> {
    let received = std::mem::take(&mut world.edge(node).received);
    received.into_iter().map(|(operation, resource, _)| format!("{operation} {resource}")).collect()
}
