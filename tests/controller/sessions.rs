//! Sessions: who gets one, and when it ends.

use edged::controller::event::Peer;
use edged::model::api::Kind;

use crate::cluster::Cluster;
use crate::world::{Faults, World};
use crate::{listed, node};

#[test]
fn a_node_is_taken_when_all_is_listed_and_its_certificate_is_its_own() {
    let mut world = World::new(1, Cluster::default(), Faults::default());
    world.connect("e1");
    assert_eq!(world.refused.pop().expect("a refusal").status, 503, "nothing is listed yet");
    world.pass(10);
    let session = world.connect("e1");
    assert_eq!(world.session("e1"), Some(session));
    for (change, status) in [
        ((|peer: &mut Peer| peer.node_id = "e2".to_owned()) as fn(&mut Peer), 403),
        (|peer| peer.organization = "KubeEdge".to_owned(), 403),
        (|peer| peer.common_name = "kubeedge.io".to_owned(), 403),
        (|peer| peer.usage = String::new(), 400),
    ] {
        world.connect_as("e1", change);
        assert_eq!(world.refused.pop().expect("a refusal").status, status);
    }
    assert_eq!(world.session("e1"), Some(session), "the others harm it not");
    assert_eq!(world.controller.counters().sessions_refused, 5);
}

#[test]
fn the_newest_session_wins() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    let old = world.connect("e1");
    let new = world.connect("e1");
    assert_eq!(world.closed.pop().expect("one is closed").0, old);
    assert_eq!(world.session("e1"), Some(new));
    assert_eq!(world.controller.counters().nodes_connected, 1);
}

#[test]
fn a_node_that_gives_no_sign_of_life_is_given_up() {
    let mut world = listed(&[]);
    let session = world.connect("e1");
    world.pass(20_000);
    let sign = world.edge("e1").keepalive();
    world.say("e1", sign);
    // Anything else is none.
    world.pass(20_000);
    let lease = world.edge("e1").ask("query", "kube-node-lease/lease/e1", None);
    world.say("e1", lease);
    world.pass(9_999);
    assert_eq!(world.closed, []);
    world.pass(1);
    assert_eq!(world.closed.pop().expect("it is closed").0, session);
}

#[test]
fn a_node_that_is_deleted_loses_its_session() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    let session = world.connect("e1");
    world.pass(100);
    world.cluster.remove(&(Kind::Node, String::new(), "e1".to_owned()));
    world.pass(100);
    assert_eq!(world.closed.pop().expect("it is closed").0, session);
}

#[test]
fn there_is_a_limit_of_nodes() {
    let mut world = listed(&[]);
    for at in 0..10_000 {
        world.connect(&format!("e{at}"));
    }
    assert_eq!(world.refused, []);
    world.connect("one-more");
    assert_eq!(world.refused.pop().expect("a refusal").status, 503);
    world.connect("e7");
    assert_eq!(world.refused, [], "one that is here may come again");
}

#[test]
fn at_the_end_sessions_are_closed_and_records_kept() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    let session = world.connect("e1");
    world.pass(100);
    world.hand(edged::controller::event::Event::Stop);
    world.pass(100);
    assert_eq!(world.closed.pop().expect("it is closed").0, session);
    assert!(world.exited);
    assert!(world.rows.values().all(|row| row.version > 0));
}
