//! Pushes to nodes: to which, when, how often.

use edged::limits::{ACK_MS, ACK_TRIES};
use edged::model::api::Kind;
use serde_json::json;

use crate::world::World;
use crate::{config_map, listed, node, pod, pod_with, received};

fn secret(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "n"}, "data": {"k": "dg=="}})
}

fn with_one_pod() -> World {
    listed(&[
        (Kind::Node, node("e1")),
        (Kind::Node, node("e2")),
        (Kind::ConfigMap, config_map("m", "1")),
        (Kind::Secret, secret("s")),
        (Kind::ConfigMap, config_map("unused", "1")),
        (Kind::Pod, pod_with("web", "e1", "m", "s")),
    ])
}

#[test]
fn a_node_gets_its_node_what_its_pods_use_and_its_pods() {
    let mut world = with_one_pod();
    world.connect("e1");
    world.connect("e2");
    world.pass(100);
    let expected =
        ["update null/node/e1", "insert n/configmap/m", "update n/secret/s", "insert n/pod/web"];
    assert_eq!(received(&mut world, "e1"), expected);
    assert_eq!(received(&mut world, "e2"), ["update null/node/e2"], "what is foreign stays away");
    let pod = &world.edge("e1").store["n/pod/web"];
    assert_eq!((&pod["kind"], &pod["apiVersion"]), (&json!("Pod"), &json!("v1")));
    assert!(pod["metadata"].get("managedFields").is_none());
}

#[test]
fn a_change_goes_to_whom_it_concerns_and_only_once() {
    let mut world = with_one_pod();
    world.connect("e1");
    world.pass(100);
    received(&mut world, "e1");
    world.cluster.apply(Kind::ConfigMap, config_map("m", "2"));
    world.cluster.apply(Kind::ConfigMap, config_map("unused", "2"));
    world.pass(20_000);
    assert_eq!(received(&mut world, "e1"), ["update n/configmap/m"]);
    assert_eq!(world.edge("e1").store["n/configmap/m"]["data"]["k"], "2");
    assert!(world.calls.iter().all(|call| call.kind != Kind::ConfigMap), "the list brought it");
}

#[test]
fn what_a_new_pod_uses_is_fetched_once_for_all_nodes() {
    let mut world = with_one_pod();
    world.connect("e1");
    world.connect("e2");
    world.pass(100);
    world.cluster.apply(Kind::Pod, pod_with("a", "e1", "unused", "s"));
    world.cluster.apply(Kind::Pod, pod_with("b", "e2", "unused", "gone"));
    world.pass(100);
    let fetched = world.calls.iter().map(|call| call.name.to_string()).collect::<Vec<_>>();
    assert_eq!(fetched.iter().filter(|name| *name == "unused").count(), 1, "{fetched:?}");
    assert!(world.edge("e1").store.contains_key("n/configmap/unused"));
    assert!(world.edge("e2").store.contains_key("n/configmap/unused"));
    // A missing object is sent when it is created.
    world.cluster.apply(Kind::Secret, secret("gone"));
    world.pass(100);
    assert!(world.edge("e2").store.contains_key("n/secret/gone"));
}

#[test]
fn a_pod_that_is_gone_goes_from_its_node_by_its_uid() {
    let mut world = with_one_pod();
    world.connect("e1");
    world.pass(100);
    received(&mut world, "e1");
    let name = (Kind::Pod, "n".to_owned(), "web".to_owned());
    world.cluster.delete_pod(&name);
    world.pass(100);
    assert_eq!(received(&mut world, "e1"), ["update n/pod/web"]);
    world.cluster.remove(&name);
    world.cluster.apply(Kind::Pod, pod("web", "e1"));
    world.pass(100);
    assert_eq!(received(&mut world, "e1"), ["delete n/pod/web", "insert n/pod/web"]);
    // An object that no pod uses is removed from the node, but not at once.
    for _ in 0..61 {
        let sign = world.edge("e1").keepalive();
        world.send("e1", sign);
        world.pass(10_000);
    }
    assert_eq!(received(&mut world, "e1"), ["delete n/configmap/m", "delete n/secret/s"]);
}

#[test]
fn one_that_is_away_gets_what_changed_when_it_is_back() {
    let mut world = with_one_pod();
    let session = world.connect("e1");
    world.pass(100);
    world.disconnect(session);
    world.cluster.apply(Kind::ConfigMap, config_map("m", "2"));
    world.cluster.apply(Kind::Pod, pod("new", "e1"));
    world.cluster.remove(&(Kind::Pod, "n".to_owned(), "web".to_owned()));
    world.pass(100);
    received(&mut world, "e1");
    world.connect("e1");
    world.pass(100);
    assert_eq!(received(&mut world, "e1"), ["delete n/pod/web", "insert n/pod/new"]);
}

#[test]
fn a_node_that_appears_gets_pods_that_were_bound_to_it_before() {
    let mut world = listed(&[(Kind::Pod, pod("early", "e9"))]);
    world.connect("e9");
    world.pass(100);
    assert_eq!(received(&mut world, "e9"), ["insert n/pod/early"]);
}

#[test]
fn what_is_not_acknowledged_is_sent_five_times_and_then_put_off() {
    let mut world = with_one_pod();
    world.connect("e1");
    world.edge("e1").deaf = true;
    let tries = ACK_TRIES as usize;
    world.pass(u64::from(ACK_TRIES) * ACK_MS - 1);
    let expected = vec!["update null/node/e1"; tries];
    assert_eq!(received(&mut world, "e1"), expected);
    let sign = world.edge("e1").keepalive();
    world.send("e1", sign);
    world.pass(1);
    assert_eq!(received(&mut world, "e1"), ["insert n/configmap/m"], "the next has its turn");
    world.edge("e1").deaf = false;
    world.pass(20_000);
    let sign = world.edge("e1").keepalive();
    world.send("e1", sign);
    world.pass(10_000);
    let reported = received(&mut world, "e1");
    let expected =
        ["insert n/configmap/m", "update n/secret/s", "insert n/pod/web", "update null/node/e1"];
    assert_eq!(reported, expected, "and what was put off comes again");
    assert_eq!(world.controller.counters().resends, u64::from(ACK_TRIES), "and one of the map");
}

#[test]
fn of_an_object_that_changes_while_its_node_is_slow_only_the_newest_is_sent() {
    let mut world = with_one_pod();
    world.connect("e1");
    world.pass(100);
    received(&mut world, "e1");
    world.edge("e1").deaf = true;
    for value in 2..50 {
        world.cluster.apply(Kind::ConfigMap, config_map("m", &value.to_string()));
        world.pass(10);
    }
    world.edge("e1").deaf = false;
    world.pass(6_000);
    let reported = received(&mut world, "e1");
    assert_eq!(reported, vec!["update n/configmap/m"; 3], "the first twice, and the last");
    assert_eq!(world.edge("e1").store["n/configmap/m"]["data"]["k"], "49");
}

#[test]
fn a_watch_that_is_too_far_behind_begins_anew() {
    let mut world = with_one_pod();
    world.connect("e1");
    world.pass(100);
    received(&mut world, "e1");
    let lists = world.lists;
    world.cluster.remove(&(Kind::Pod, "n".to_owned(), "web".to_owned()));
    world.cluster.apply(Kind::Pod, pod("other", "e1"));
    world.cluster.compacted = world.cluster.version + 1;
    world.pass(5_000);
    assert!(world.lists > lists);
    assert_eq!(received(&mut world, "e1"), ["delete n/pod/web", "insert n/pod/other"]);
}
