//! Limits of parallel work, and timeouts.

use edged::controller::event::Event;
use edged::limits::{
    CALLS_MAX, EDGE_CALLS_MAX, FETCH_RETRY_MS, FETCHES_MAX, NODES_PER_STEP, RECONCILE_MS,
    RECONCILE_SLICE_MS, UNREAD_LOGGED_MAX, UNUSED_MS,
};
use edged::model::api::{Kind, Verb};
use edged::model::message::Message;
use edged::wire::kubeedge;
use serde_json::{Value, json};

use crate::world::World;
use crate::{config_map, listed, node, pod, pod_with};

/// This many nodes with one pod each, which uses the ConfigMap `m`. All are connected, and have
/// everything.
fn with_nodes(count: usize) -> World {
    let mut objects = vec![(Kind::ConfigMap, config_map("m", "1"))];
    for at in 0..count {
        let name = format!("e{at}");
        objects.push((Kind::Node, node(&name)));
        objects.push((Kind::Pod, pod_with(&format!("web{at}"), &name, "m", "s")));
    }
    let mut world = listed(&objects);
    for at in 0..count {
        world.connect(&format!("e{at}"));
    }
    world.pass(1_000);
    world
}

/// How many nodes have this object.
fn holders(world: &World, resource: &str) -> usize {
    world.edges.values().filter(|edge| edge.store.contains_key(resource)).count()
}

#[test]
fn so_many_questions_of_all_nodes_are_asked_at_once_and_the_others_have_their_turn() {
    let nodes = CALLS_MAX / EDGE_CALLS_MAX + 1;
    let mut world = with_nodes(nodes);
    world.faults.delay_ms = 5_000;
    for at in 0..nodes {
        let name = format!("e{at}");
        let session = world.session(&name).expect("on");
        for n in 0..EDGE_CALLS_MAX {
            let event = json!({"metadata": {"name": format!("web{at}.{n}"), "namespace": "n"},
                "involvedObject": {"kind": "Pod", "name": format!("web{at}"), "namespace": "n"}});
            let resource = format!("n/event/web{at}.{n}");
            let message = world.edge(&name).request("insert", &resource, Some(&event));
            world.deliver(Event::EdgeMessage(session, Box::new(kubeedge::decode_edge(message))));
        }
    }
    assert_eq!(world.controller.counters().calls, CALLS_MAX);
    let made = |world: &World| {
        world.cluster.objects.keys().filter(|(kind, ..)| *kind == Kind::Event).count()
    };
    for _ in 0..20 {
        world.pass(1_000);
        assert!(world.controller.counters().calls <= CALLS_MAX);
    }
    assert_eq!(made(&world), nodes * EDGE_CALLS_MAX);
}

/// The number of fetched Secrets.
fn fetched(world: &World) -> usize {
    let of_secret = world.calls.iter().filter(|call| call.kind == Kind::Secret);
    of_secret.filter(|call| call.verb == Verb::Get).count()
}

#[test]
fn so_many_objects_are_fetched_at_once_and_the_others_after_them() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    world.connect("e1");
    world.pass(100);
    world.faults.delay_ms = 5_000;
    let mut user = pod("web", "e1");
    user["spec"]["imagePullSecrets"] =
        (0..=FETCHES_MAX).map(|at| json!({"name": format!("s{at}")})).collect();
    world.cluster.apply(Kind::Pod, user);
    world.pass(0);
    assert_eq!(fetched(&world), FETCHES_MAX);
    world.pass(10_000);
    assert_eq!(fetched(&world), FETCHES_MAX + 1);
}

#[test]
fn an_object_that_could_not_be_fetched_is_fetched_again_after_a_while() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    world.connect("e1");
    world.pass(100);
    world.faults.call_lost = 1_000;
    world.cluster.apply(Kind::Pod, pod_with("web", "e1", "m", "s"));
    world.pass(0);
    assert_eq!(fetched(&world), 1);
    world.pass(FETCH_RETRY_MS - 1);
    assert_eq!(fetched(&world), 1);
    world.pass(1);
    assert_eq!(fetched(&world), 2);
}

#[test]
fn one_step_serves_so_many_nodes_and_the_next_the_others() {
    let nodes = NODES_PER_STEP + 1;
    let mut world = with_nodes(nodes);
    world.sends_at_once = 0;
    world.cluster.apply(Kind::ConfigMap, config_map("m", "2"));
    world.pass(1_000);
    assert_eq!(world.sends_at_once, NODES_PER_STEP);
    let has_it = |store: &std::collections::BTreeMap<String, Value>| {
        store["n/configmap/m"]["data"]["k"] == "2"
    };
    assert!(world.edges.values().all(|edge| has_it(&edge.store)));
}

/// Time passes; the nodes give signs of life.
fn pass(world: &mut World, ms: u64) {
    let end = world.now.boot.plus_ms(ms);
    while world.now.boot < end {
        let names: Vec<String> = world.edges.keys().cloned().collect();
        for name in names {
            let sign = world.edge(&name).keepalive();
            world.send(&name, sign);
        }
        world.pass(end.since_ms(world.now.boot).min(20_000));
    }
}

#[test]
fn what_no_pod_of_a_node_uses_is_kept_for_a_while_and_found_when_all_nodes_were_looked_at() {
    // At any position in a round of all nodes.
    for offset in 0..2 {
        let nodes = 40;
        let mut world = with_nodes(nodes);
        world.pass(offset * RECONCILE_SLICE_MS);
        for at in 0..nodes {
            world.cluster.remove(&(Kind::Pod, "n".to_owned(), format!("web{at}")));
        }
        world.pass(0);
        assert_eq!(holders(&world, "n/pod/web7"), 0);
        pass(&mut world, UNUSED_MS - 1);
        assert_eq!(holders(&world, "n/configmap/m"), nodes, "the next pod may use it");
        let slices = RECONCILE_MS / RECONCILE_SLICE_MS;
        let each = nodes.div_ceil(usize::try_from(slices).expect("a few"));
        let mut left = nodes;
        for _ in 0..slices {
            world.pass(RECONCILE_SLICE_MS);
            let now = holders(&world, "n/configmap/m");
            assert_eq!(left - now, each, "some at a time");
            left = now;
        }
        assert_eq!(left, 0);
    }
}

/// An agent takes an object again that it was told to remove only where it may come again.
#[test]
fn a_node_is_told_whether_what_it_removes_may_come_again() {
    let mut world =
        listed(&[(Kind::Node, node("e1")), (Kind::Pod, pod_with("web", "e1", "m", "s"))]);
    let map = world.cluster.apply(Kind::ConfigMap, config_map("m", "1"));
    let secret = json!({"metadata": {"name": "s", "namespace": "n"}, "data": {}});
    world.cluster.apply(Kind::Secret, secret);
    world.connect("e1");
    world.pass(1_000);
    world.cluster.remove(&(Kind::Secret, "n".to_owned(), "s".to_owned()));
    world.cluster.remove(&(Kind::Pod, "n".to_owned(), "web".to_owned()));
    world.pass(1_000);
    pass(&mut world, UNUSED_MS + RECONCILE_MS);
    let version = |resource: &str| {
        let messages = &world.edges["e1"].messages;
        let is_it =
            |it: &&Message| (&*it.route.operation, &*it.route.resource) == ("delete", resource);
        let deletion = messages.iter().find(is_it).expect("a deletion");
        let content = deletion.content.as_ref().expect("content").get();
        let content: Value = serde_json::from_str(content).expect("JSON");
        content["metadata"]["resourceVersion"].clone()
    };
    assert_eq!(version("n/configmap/m"), map["metadata"]["resourceVersion"], "nobody uses it");
    assert_eq!(version("n/secret/s"), Value::Null, "it was deleted");
}

#[test]
fn of_so_many_objects_that_cannot_be_read_each_is_told_of() {
    for (more, lines) in [(0, UNREAD_LOGGED_MAX), (1, UNREAD_LOGGED_MAX)] {
        let mut world = listed(&[]);
        for at in 0..UNREAD_LOGGED_MAX + more {
            let mut broken = pod(&format!("web{at}"), "e1");
            broken["spec"]["containers"] = json!(7);
            world.cluster.apply(Kind::Pod, broken);
        }
        world.pass(100);
        let reported: Vec<&String> =
            world.logs.iter().filter(|line| line.contains("cannot be read")).collect();
        assert_eq!(reported.len(), lines, "{reported:#?}");
        let last = reported.iter().filter(|line| line.ends_with("others are not logged")).count();
        assert_eq!(last, 1, "{reported:#?}");
    }
}
