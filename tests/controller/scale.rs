//! Many nodes: each gets only its own objects. `NODES=5000` sets the number.

use edged::model::api::Kind;
use serde_json::json;

use crate::cluster::Cluster;
use crate::world::{Faults, World};
use crate::{config_map, node, pod_with};

const PODS: usize = 10;

#[test]
fn every_one_of_many_nodes_gets_its_pods_and_each_change_once() {
    let nodes = std::env::var("NODES").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let mut cluster = Cluster::default();
    cluster.apply(Kind::ConfigMap, config_map("m", "1"));
    for at in 0..nodes {
        let name = format!("e{at}");
        cluster.apply(Kind::Node, node(&name));
        for pod in 0..PODS {
            cluster.apply(Kind::Pod, pod_with(&format!("p{at}-{pod}"), &name, "m", "s"));
        }
    }
    let mut world = World::new(1, cluster, Faults::default());
    world.pass(10);
    for at in 0..nodes {
        world.connect(&format!("e{at}"));
    }
    world.pass(10_000);
    let first = world.controller.counters();
    assert_eq!(first.messages_down as usize, nodes * (PODS + 2), "node, map and pods");
    assert_eq!(first.queued, 0);
    for at in 0..nodes {
        for pod in 0..PODS {
            let name = (Kind::Pod, "n".to_owned(), format!("p{at}-{pod}"));
            let mut pod = world.cluster.objects[&name].clone();
            pod["metadata"]["labels"] = json!({"new": "1"});
            world.cluster.apply(Kind::Pod, pod);
        }
    }
    world.pass(10_000);
    let second = world.controller.counters();
    assert_eq!((second.messages_down - first.messages_down) as usize, nodes * PODS);
    let changed = |edge: &crate::edge::Edge| {
        let pods = edge.store.values().filter(|object| object["kind"] == "Pod");
        pods.filter(|pod| pod["metadata"]["labels"]["new"] == "1").count()
    };
    assert!(world.edges.values().all(|edge| changed(edge) == PODS));
}
