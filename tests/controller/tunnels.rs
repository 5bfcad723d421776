//! Stream tunnels: whose they are, which one is in force, and what is said where there is none.

use edged::controller::event::{Action, Event, Peer, Tunnel};
use edged::limits::{EDGE_REPLACED_MAX, EDGE_REPLACED_MS};
use edged::model::api::Kind;
use edged::model::stream::RefusalKind;

use crate::world::{World, config};
use crate::{listed, node, pod};

fn world() -> World {
    listed(&[(Kind::Node, node("e1")), (Kind::Node, node("e2")), (Kind::Pod, pod("p", "e2"))])
}

fn peer(certificate: &str, header: &str) -> Peer {
    Peer {
        common_name: format!("system:node:{certificate}"),
        organization: "system:nodes".to_owned(),
        node_id: header.to_owned(),
        made_s: 1_800_000_000 - 9,
        ..Peer::default()
    }
}

fn dial(world: &mut World, tunnel: u64, peer: Peer) {
    world.deliver(Event::TunnelUp(Tunnel(tunnel), Box::new(peer)));
    world.pass(10);
}

/// The last decision: the tunnel, and the status of a refusal.
fn decided(world: &mut World) -> (u64, Result<String, u16>) {
    match world.tunnels.pop().expect("a decision") {
        Action::AcceptTunnel(tunnel, node) => (tunnel.0, Ok(node.into())),
        Action::RefuseTunnel(tunnel, refusal) => (tunnel.0, Err(refusal.status)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_certificate_says_whose_tunnel_it_is() {
    let mut world = world();
    for (tunnel, peer, expected) in [
        (1, peer("e1", ""), Ok("e1".to_owned())),
        (2, peer("e1", "e1"), Ok("e1".to_owned())),
        (3, peer("e1", "e2"), Err(403)),
        (4, Peer { common_name: "e1".to_owned(), ..peer("e1", "") }, Err(403)),
        (5, Peer { organization: "others".to_owned(), ..peer("e1", "") }, Err(403)),
    ] {
        dial(&mut world, tunnel, peer);
        assert_eq!(decided(&mut world), (tunnel, expected));
    }
    assert_eq!(world.controller.tunnel_of("e1"), Ok(Tunnel(2)));
    world.controller.tunnel_of("e2").expect_err("nobody opened it");
}

#[test]
fn a_newer_tunnel_replaces_the_older_and_too_many_are_refused() {
    let mut world = world();
    dial(&mut world, 1, peer("e1", ""));
    world.tunnels.clear();
    dial(&mut world, 2, peer("e1", ""));
    let closed = |action: &Action| matches!(action, Action::CloseTunnel(Tunnel(1), _));
    assert!(world.tunnels.iter().any(closed), "{:?}", world.tunnels);
    // The end of the older one may still be reported.
    world.deliver(Event::TunnelDown(Tunnel(1), "reset".to_owned()));
    assert_eq!(world.controller.tunnel_of("e1"), Ok(Tunnel(2)));
    for tunnel in 3..=u64::from(EDGE_REPLACED_MAX) + 1 {
        dial(&mut world, tunnel, peer("e1", ""));
        assert_eq!(decided(&mut world).1, Ok("e1".to_owned()), "{tunnel}");
    }
    dial(&mut world, 99, peer("e1", ""));
    assert_eq!(decided(&mut world), (99, Err(503)));
    world.pass(EDGE_REPLACED_MS);
    dial(&mut world, 100, peer("e1", ""));
    assert_eq!(decided(&mut world).1, Ok("e1".to_owned()));
}

#[test]
fn there_are_as_many_tunnels_as_nodes_are_served() {
    let mut world = world();
    let max = config().nodes_max as u64;
    for tunnel in 0..max {
        let peer = peer(&format!("n{tunnel}"), "");
        world.deliver(Event::TunnelUp(Tunnel(tunnel), Box::new(peer)));
    }
    world.pass(10);
    dial(&mut world, max, peer("e1", ""));
    assert_eq!(decided(&mut world), (max, Err(503)));
    world.deliver(Event::TunnelDown(Tunnel(0), "reset".to_owned()));
    dial(&mut world, max + 1, peer("e1", ""));
    assert_eq!(decided(&mut world).1, Ok("e1".to_owned()));
}

#[test]
fn a_revoked_certificate_opens_no_tunnel_and_ends_the_one_it_has() {
    let mut world = world();
    dial(&mut world, 1, peer("e1", ""));
    world.deliver(Event::NodeDeleted("e1".into()));
    world.pass(10);
    let closed = |action: &Action| matches!(action, Action::CloseTunnel(Tunnel(1), _));
    assert!(world.tunnels.iter().any(closed), "{:?}", world.tunnels);
    dial(&mut world, 2, peer("e1", ""));
    assert_eq!(decided(&mut world), (2, Err(403)));
}

#[test]
fn where_there_is_no_tunnel_it_is_said_since_when() {
    let mut world = world();
    let told = |world: &World, node: &str| {
        let refusal = world.controller.tunnel_of(node).expect_err("there is none");
        (refusal.kind, refusal.text)
    };
    let unavailable = |state: &str| {
        let text = format!("node e1 has no stream tunnel ({state})");
        (RefusalKind::Unavailable, text)
    };
    let nowhere = (RefusalKind::NotFound, "node \"e9\" does not exist".to_owned());
    assert_eq!(told(&world, "e9"), nowhere);
    assert_eq!(told(&world, "e1"), unavailable("not seen since this controller started"));
    let session = world.connect("e1");
    world.pass(10);
    let on = "it is connected: is modules.edgeStream enabled there?";
    assert_eq!(told(&world, "e1"), unavailable(on));
    world.disconnect(session);
    world.pass(10);
    let at = world.now.timestamp().expect("the clock is set");
    assert_eq!(told(&world, "e1"), unavailable(&format!("last seen {at}")));
    world.pass(60_000);
    dial(&mut world, 1, peer("e1", ""));
    world.deliver(Event::TunnelDown(Tunnel(1), "reset".to_owned()));
    let at = world.now.timestamp().expect("the clock is set");
    assert_eq!(told(&world, "e1"), unavailable(&format!("last seen {at}")));
}

#[test]
fn a_pod_that_was_deleted_before_its_node_came_is_on_no_node() {
    let mut world = listed(&[(Kind::Pod, pod("web", "e1"))]);
    world.pass(100);
    assert_eq!(world.controller.pods_of("e1").count(), 1);
    world.late = vec![Kind::Pod];
    world.cluster.remove(&(Kind::Pod, "n".to_owned(), "web".to_owned()));
    world.cluster.compacted = world.cluster.version;
    world.connect("e1");
    world.pass(100);
    assert_eq!(world.controller.pods_of("e1").count(), 0, "it was looked for");
    assert_eq!(world.controller.node_of_pod("n", "web"), None);
}

#[test]
fn a_pod_is_found_on_its_node_whether_that_has_connected_or_not() {
    let objects = [
        (Kind::Node, node("e1")),
        (Kind::Pod, pod("near", "e1")),
        (Kind::Pod, pod("far", "unknown")),
    ];
    let world = listed(&objects);
    assert_eq!(world.controller.node_of_pod("n", "near"), Some("e1"));
    assert_eq!(world.controller.node_of_pod("n", "far"), Some("unknown"));
    assert_eq!(world.controller.node_of_pod("n", "none"), None);
    assert_eq!(world.controller.node_of_pod("m", "near"), None);
}
