//! Sessions: which nodes get one, and when it ends.

use edged::controller::event::{Event, Peer};
use edged::limits::{EDGE_OFFENCES_MAX, EDGE_REPLACED_MAX, EDGE_REPLACED_MS, EDGE_REPLACED_WARN};
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
    world.send("e1", sign);
    // Anything else is none.
    world.pass(20_000);
    let lease = world.edge("e1").request("query", "kube-node-lease/lease/e1", None);
    world.send("e1", lease);
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
    world.deliver(Event::Stop);
    world.pass(100);
    assert_eq!(world.closed.pop().expect("it is closed").0, session);
    assert!(world.exited);
    assert!(world.rows.values().all(|row| row.version > 0));
}

#[test]
fn two_gateways_with_one_certificate_are_held_apart_and_told() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    let lines =
        |world: &World, part: &str| world.logs.iter().filter(|line| line.contains(part)).count();
    // A link that breaks unnoticed has this effect.
    for _ in 0..4 {
        world.connect("e1");
        world.pass(1_000);
    }
    assert_eq!(lines(&world, "they have one certificate"), 0);
    let mut taken = 0;
    for at in 0..1_500 {
        let from = format!("192.0.2.{}:1", 1 + at % 2);
        let session = world.connect_as("e1", |peer| peer.address = from);
        taken += usize::from(world.session("e1") == Some(session));
        world.pass(3);
    }
    assert!(taken <= 10, "{taken} sessions in five seconds");
    assert_eq!(lines(&world, "they have one certificate"), 1);
    assert!(lines(&world, "192.0.2.1:1 by one from 192.0.2.2:1") == 1, "{:?}", world.logs);
    assert!(lines(&world, "refused: too many sessions of this node") <= 2);
    assert!(world.session("e1").is_some(), "the last one is on");
    // Another node is not affected, and after a minute it may be replaced again.
    world.connect("e2");
    assert!(world.session("e2").is_some());
    for _ in 0..3 {
        world.pass(20_000);
        let sign = world.edge("e1").keepalive();
        world.send("e1", sign);
    }
    let session = world.connect("e1");
    assert_eq!(world.session("e1"), Some(session));
}

#[test]
fn so_many_sessions_of_a_node_replace_each_other_and_the_next_waits() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    world.connect("e1");
    for count in 1..=EDGE_REPLACED_MAX {
        let session = world.connect("e1");
        assert_eq!(world.session("e1"), Some(session), "{count}");
        let reported = world.logs.iter().any(|line| line.contains("they have one certificate"));
        assert_eq!(reported, count >= EDGE_REPLACED_WARN, "{count}");
    }
    let last = world.session("e1");
    let end = world.now.boot.plus_ms(EDGE_REPLACED_MS - 1);
    while world.now.boot < end {
        world.connect("e1");
        assert_eq!(world.session("e1"), last, "it is left alone");
        let sign = world.edge("e1").keepalive();
        world.send("e1", sign);
        world.pass(end.since_ms(world.now.boot).min(7_000));
    }
    world.connect("e1");
    assert_eq!(world.session("e1"), last);
    world.pass(1);
    let next = world.connect("e1");
    assert_eq!(world.session("e1"), Some(next));
}

#[test]
fn a_node_that_was_thrown_out_waits_for_its_next_session() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    let offend = |world: &mut World| {
        for _ in 0..EDGE_OFFENCES_MAX {
            let session = world.session("e1").expect("on");
            world.deliver(Event::EdgeBadMessage(session, "no message".to_owned()));
        }
        world.pass(10);
        assert_eq!(world.session("e1"), None, "it is thrown out");
    };
    let mut sessions = 0;
    world.connect("e1");
    offend(&mut world);
    // It connects again and again for five minutes: back-offs of 10, 20, 40, 80, 160 s.
    for _ in 0..3_000 {
        world.connect("e1");
        world.pass(100);
        if world.session("e1").is_some() {
            sessions += 1;
            offend(&mut world);
        }
    }
    assert!((3..=5).contains(&sessions), "{sessions} in five minutes");
    assert!(world.refused.iter().all(|refusal| refusal.status == 503));
    world.connect("e2");
    assert!(world.session("e2").is_some(), "others do not wait");
}
