//! How kube-apiserver finds a node's tunnel: the ConfigMap with the ports of all replicas, and the
//! port in each Node's status.

use edged::controller::event::{Event, Peer, Tunnel};
use edged::controller::{Config, Replica, SyncStore};
use edged::limits::{
    KUBELET_PORT_CALLS_MAX, KUBELET_PORT_RETRY_MS, NODE_ADDRESSES_MAX, TUNNEL_PORT_CHECK_MS,
    TUNNEL_PORT_RETRY_MS,
};
use edged::model::api::{Kind, Verb};
use edged::model::stream::RefusalKind;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Name};
use crate::world::{Faults, World, config};
use crate::{node, pod};

const RECORD: &str = "tunnelportrecord.kubeedge.io";

fn reached() -> Config {
    let replica = Replica { address: "192.0.2.7".to_owned(), namespace: "kubeedge".to_owned() };
    Config { replica: Some(replica), ..config() }
}

fn world_of(objects: &[(Kind, Value)]) -> World {
    let mut cluster = Cluster::default();
    for (kind, object) in objects {
        cluster.apply(*kind, object.clone());
    }
    let mut world = World::with(reached, SyncStore::Table, 7, cluster, Faults::default());
    world.pass(10);
    world
}

fn world() -> World {
    world_of(&[(Kind::Node, with_port("e1", 10_350)), (Kind::Node, with_port("e2", 10_350))])
}

fn with_port(name: &str, port: u64) -> Value {
    let mut node = node(name);
    node["status"] = json!({"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}});
    node
}

fn name(kind: Kind, namespace: &str, name: &str) -> Name {
    (kind, namespace.to_owned(), name.to_owned())
}

fn port_of(world: &World, node: &str) -> u64 {
    let node = &world.cluster.objects[&name(Kind::Node, "", node)];
    node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().unwrap_or(0)
}

fn record(world: &World) -> String {
    let map = &world.cluster.objects[&name(Kind::ConfigMap, "kubeedge", "tunnelport")];
    map["metadata"]["annotations"][RECORD].as_str().unwrap_or_default().to_owned()
}

fn dial(world: &mut World, tunnel: u64, node: &str) {
    let peer = Peer {
        common_name: format!("system:node:{node}"),
        organization: "system:nodes".to_owned(),
        made_s: 1_800_000_000 - 9,
        ..Peer::default()
    };
    world.deliver(Event::TunnelUp(Tunnel(tunnel), Box::new(peer)));
    world.pass(10);
}

/// The Nodes whose ports were written since the last call.
fn written(world: &mut World) -> Vec<String> {
    let calls = std::mem::take(&mut world.calls);
    let patches = calls.into_iter().filter(|call| {
        let body = call.body.as_ref().map_or("", |body| body.get());
        call.kind == Kind::Node && body.contains("daemonEndpoints")
    });
    patches.map(|call| call.name.into()).collect()
}

#[test]
fn the_port_of_a_node_is_written_when_its_tunnel_comes_up_and_only_if_it_differs() {
    let mut world = world();
    assert_eq!(record(&world), r#"{"ipTunnelPort":{"192.0.2.7":10351},"port":{"10351":true}}"#);
    dial(&mut world, 1, "e1");
    assert_eq!((port_of(&world, "e1"), port_of(&world, "e2")), (10_351, 10_350));
    assert_eq!(written(&mut world), ["e1"]);
    dial(&mut world, 2, "e1");
    assert_eq!(written(&mut world), [""; 0], "it has it");
    // Its node registers again while the tunnel is up.
    world.cluster.apply(Kind::Node, with_port("e1", 10_350));
    world.pass(10);
    assert_eq!((written(&mut world), port_of(&world, "e1")), (vec!["e1".to_owned()], 10_351));
    world.deliver(Event::TunnelDown(Tunnel(2), "reset".to_owned()));
    world.cluster.apply(Kind::Node, with_port("e1", 10_350));
    world.pass(10);
    assert_eq!(written(&mut world), [""; 0], "it has no tunnel");
}

#[test]
fn a_node_that_comes_after_its_tunnel_gets_the_port_too() {
    let mut world = world_of(&[]);
    dial(&mut world, 1, "e3");
    world.pass(10);
    world.cluster.apply(Kind::Node, with_port("e3", 10_350));
    world.pass(10);
    assert_eq!(port_of(&world, "e3"), 10_351);
}

#[test]
fn the_port_of_another_replica_stays_until_the_tunnel_comes_here() {
    let mut world = world();
    dial(&mut world, 1, "e1");
    world.cluster.apply(Kind::Node, with_port("e1", 10_352));
    world.pass(60_000);
    assert_eq!(port_of(&world, "e1"), 10_352, "ours may be dead, and not yet noticed");
    dial(&mut world, 2, "e1");
    assert_eq!(port_of(&world, "e1"), 10_351);
}

#[test]
fn what_a_node_reports_does_not_change_the_port() {
    let mut world = world();
    world.connect("e1");
    world.pass(10);
    dial(&mut world, 1, "e1");
    written(&mut world);
    let patch = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10_350}},
        "nodeInfo": {"kubeletVersion": "v1"}}});
    let patch = json!(patch.to_string());
    let message = world.edge("e1").request("patch", "null/nodepatch/e1", Some(&patch));
    world.send("e1", message);
    world.pass(10);
    assert_eq!(port_of(&world, "e1"), 10_351);
    assert_eq!(written(&mut world), [""; 0], "it was left out, and nothing was to mend");
    let node = &world.cluster.objects[&name(Kind::Node, "", "e1")];
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1", "the rest counts");
}

#[test]
fn a_record_that_is_gone_is_made_again_and_all_tunnels_get_its_port() {
    let mut world = world();
    dial(&mut world, 1, "e1");
    let map = name(Kind::ConfigMap, "kubeedge", "tunnelport");
    world.cluster.remove(&map);
    let others = json!({"metadata": {"name": "tunnelport", "namespace": "kubeedge",
        "annotations": {RECORD: r#"{"ipTunnelPort":{"192.0.2.8":10351},"port":{"10351":true}}"#}}});
    world.cluster.apply(Kind::ConfigMap, others);
    world.pass(TUNNEL_PORT_CHECK_MS);
    let expected = json!({
        "ipTunnelPort": {"192.0.2.7": 10_352, "192.0.2.8": 10_351},
        "port": {"10351": true, "10352": true},
    });
    assert_eq!(record(&world), expected.to_string());
    assert_eq!(port_of(&world, "e1"), 10_352);
}

#[test]
fn trouble_is_logged_once_and_tried_again() {
    let mut world = world_of(&[]);
    world.cluster.remove(&name(Kind::ConfigMap, "kubeedge", "tunnelport"));
    world.forbidden = vec![(Kind::ConfigMap, "tunnelport".to_owned(), 403)];
    world.pass(TUNNEL_PORT_CHECK_MS + 3 * TUNNEL_PORT_RETRY_MS);
    let logged =
        |world: &World, what: &str| world.logs.iter().filter(|line| line.contains(what)).count();
    assert_eq!(logged(&world, "tunnelport: kubectl logs and exec may not reach nodes: 403"), 1);
    world.cluster.apply(Kind::Node, with_port("e1", 10_350));
    world.forbidden = vec![(Kind::Node, "e1".to_owned(), 403)];
    dial(&mut world, 1, "e1");
    world.pass(3 * KUBELET_PORT_RETRY_MS);
    assert_eq!(logged(&world, "node=e1: its port for kube-apiserver cannot be set: 403"), 1);
    assert!(written(&mut world).len() >= 3);
    world.forbidden.clear();
    world.pass(KUBELET_PORT_RETRY_MS + TUNNEL_PORT_RETRY_MS);
    assert_eq!(port_of(&world, "e1"), 10_351);
    assert!(record(&world).contains("10351"));
}

#[test]
fn so_many_nodes_are_written_at_once_and_the_others_after_them() {
    let count = KUBELET_PORT_CALLS_MAX + 3;
    let nodes: Vec<String> = (0..count).map(|at| format!("n{at}")).collect();
    let objects: Vec<_> = nodes.iter().map(|name| (Kind::Node, with_port(name, 10_350))).collect();
    let mut world = world_of(&objects);
    world.faults.delay_ms = 1_000;
    dial_all(&mut world, &nodes);
    assert_eq!(written(&mut world).len(), KUBELET_PORT_CALLS_MAX);
    world.pass(10_000);
    assert!(nodes.iter().all(|node| port_of(&world, node) == 10_351));
}

#[test]
fn nodes_that_are_refused_again_and_again_keep_no_others_waiting() {
    let count = 2 * KUBELET_PORT_CALLS_MAX + 3;
    let nodes: Vec<String> = (0..count).map(|at| format!("n{at:02}")).collect();
    let objects: Vec<_> = nodes.iter().map(|name| (Kind::Node, with_port(name, 10_352))).collect();
    // For want of a right, or by a webhook.
    for code in [403, 422] {
        let mut world = world_of(&objects);
        let (last, refused) = nodes.split_last().expect("there are some");
        world.forbidden = refused.iter().map(|name| (Kind::Node, name.clone(), code)).collect();
        dial_all(&mut world, &nodes);
        world.pass(3 * KUBELET_PORT_RETRY_MS);
        assert_eq!(port_of(&world, last), 10_351, "{code}");
        world.forbidden.clear();
        world.pass(KUBELET_PORT_RETRY_MS);
        let late = nodes.iter().find(|node| port_of(&world, node) != 10_351);
        assert_eq!(late, None, "{code}: it keeps the port of another replica");
    }
}

fn dial_all(world: &mut World, nodes: &[String]) {
    for (at, node) in (1..).zip(nodes) {
        let peer = Peer {
            common_name: format!("system:node:{node}"),
            organization: "system:nodes".to_owned(),
            made_s: 1_800_000_000 - 9,
            ..Peer::default()
        };
        world.deliver(Event::TunnelUp(Tunnel(at), Box::new(peer)));
    }
    world.pass(0);
}

#[test]
fn without_the_port_for_the_api_server_nothing_is_written() {
    let mut world = crate::listed(&[(Kind::Node, with_port("e1", 10_350))]);
    dial(&mut world, 1, "e1");
    world.pass(TUNNEL_PORT_CHECK_MS);
    assert!(!world.calls.iter().any(|call| call.verb != Verb::Get), "{:?}", world.calls);
}

#[test]
fn a_node_is_found_by_its_name_or_its_address_and_not_where_two_have_it() {
    let at = |name: &str, addresses: &[&str]| {
        let mut node = node(name);
        let all = addresses.iter().map(|it| json!({"type": "InternalIP", "address": it}));
        node["status"] = json!({"addresses": all.collect::<Vec<_>>()});
        (Kind::Node, node)
    };
    let many: Vec<String> = (0..=NODE_ADDRESSES_MAX).map(|at| format!("10.0.0.{at}")).collect();
    let many: Vec<&str> = many.iter().map(|address| &**address).collect();
    let mut world = world_of(&[
        at("e1", &["192.168.1.10", "e1"]),
        at("e2", &["192.168.1.10", "2001:db8::1", "e1"]),
        at("e3", &["192.168.1.11", "192.168.1.11"]),
        at("e4", &many),
        (Kind::Pod, pod("p", "e1")),
    ]);
    let found = |world: &World, host: &str| match world.controller.node_at(host) {
        Ok(node) => Ok(node.to_owned()),
        Err(refusal) => Err(refusal),
    };
    assert_eq!(found(&world, "e1"), Ok("e1".to_owned()), "a name is stronger than an address");
    assert_eq!(found(&world, "2001:db8::1"), Ok("e2".to_owned()));
    assert_eq!(found(&world, "192.168.1.11"), Ok("e3".to_owned()));
    assert_eq!(found(&world, many[0]), Ok("e4".to_owned()));
    let beyond = found(&world, many[NODE_ADDRESSES_MAX]).expect_err("it reports too many");
    assert_eq!(beyond.kind, RefusalKind::NotFound);
    let both = found(&world, "192.168.1.10").expect_err("two have it");
    assert_eq!(both.kind, RefusalKind::Unavailable);
    assert!(both.text.starts_with("nodes e1 and e2 have the address 192.168.1.10"), "{both:?}");
    let (_, moved) = at("e2", &["192.168.1.12"]);
    world.cluster.apply(Kind::Node, moved);
    world.pass(10);
    assert_eq!(found(&world, "192.168.1.10"), Ok("e1".to_owned()));
    world.cluster.remove(&name(Kind::Node, "", "e1"));
    world.pass(10);
    for gone in ["192.168.1.10", "2001:db8::1", "e1"] {
        assert_eq!(found(&world, gone).expect_err(gone).kind, RefusalKind::NotFound);
    }
}
