//! Hostile nodes: refused, counted, logged once, and without effect on others.

use edged::controller::event::Event;
use edged::limits::{EDGE_CALLS_MAX, EDGE_OFFENCES_MAX, EDGE_REQUESTS_MAX, EDGE_UNSENT_BYTES_MAX};
use edged::model::api::Kind;
use edged::wire::kubeedge;
use serde_json::{Value, json};

use crate::world::World;
use crate::{config_map, listed, node, pod, pod_with};

fn two_nodes() -> World {
    let mut world = listed(&[
        (Kind::Node, node("e1")),
        (Kind::Node, node("e2")),
        (Kind::ConfigMap, config_map("m", "1")),
        (Kind::Pod, pod_with("theirs", "e2", "m", "s")),
        (Kind::Pod, pod("mine", "e1")),
    ]);
    world.connect("e1");
    world.connect("e2");
    world.pass(100);
    world.calls.clear();
    world
}

#[test]
fn a_node_touches_nothing_of_anothers() {
    let mut world = two_nodes();
    let name = (Kind::Pod, "n".to_owned(), "theirs".to_owned());
    let uid = world.cluster.objects[&name]["metadata"]["uid"].clone();
    let delete = json!({"preconditions": {"uid": uid}});
    let patch = json!(json!({"metadata": {"uid": uid}, "status": {"phase": "Failed"}}).to_string());
    let lease = json!({"metadata": {"name": "e2"}});
    let before = world.cluster.version;
    let requests: [(&str, &str, Option<&Value>); 12] = [
        ("insert", "null/node/e2", Some(&json!({}))),
        ("patch", "null/nodepatch/e2", Some(&patch)),
        ("update", "null/node/e2", Some(&json!({}))),
        ("query", "null/node/e2", None),
        ("update", "default/nodestatus/e2", Some(&json!({"Status": {}}))),
        ("update", "kube-node-lease/lease/e2", Some(&lease)),
        ("insert", "kube-system/lease/e1", Some(&lease)),
        ("patch", "n/podpatch/theirs", Some(&patch)),
        ("delete", "n/pod/theirs", Some(&delete)),
        ("query", "n/configmap/m", None),
        ("query", "n/secret/s", None),
        ("insert", "n/pod/new", Some(&json!({"spec": {"nodeName": "e2"}}))),
    ];
    for (operation, resource, content) in requests {
        let message = world.edge("e1").request(operation, resource, content);
        let id = world.send("e1", message);
        world.pass(100);
        let answer = world.edge("e1").answers.remove(&id).unwrap_or_default();
        let nothing = if resource == "n/pod/new" { json!({}) } else { json!(null) };
        assert_eq!((&answer["Object"], &answer["data"]), (&nothing, &json!(null)), "{resource}");
    }
    assert_eq!(world.cluster.version, before, "nothing was changed");
    assert!(world.cluster.objects.contains_key(&name));
    let refused = world.logs.iter().filter(|line| line.contains("refused")).count();
    assert_eq!(refused, 1, "{:#?}", world.logs);
    assert_eq!(
        world.controller.counters().messages_refused,
        10,
        "the pods' are not even told apart"
    );
    assert!(world.edge("e2").store.contains_key("n/pod/theirs"));
}

#[test]
fn a_patch_of_a_status_changes_nothing_else() {
    let mut world = two_nodes();
    let patch = json!({"metadata": {"labels": {"x": "y"}, "ownerReferences": []},
        "spec": {"nodeName": "e9"}, "status": {"phase": "Running"}});
    let message = world.edge("e1").request("patch", "n/podpatch/mine", Some(&patch));
    world.send("e1", message);
    world.pass(100);
    let pod = &world.cluster.objects[&(Kind::Pod, "n".to_owned(), "mine".to_owned())];
    assert_eq!(
        (&pod["status"]["phase"], &pod["spec"]["nodeName"]),
        (&json!("Running"), &json!("e1"))
    );
    assert!(pod["metadata"]["labels"].is_null());
}

#[test]
fn one_that_does_not_stop_loses_its_session_alone() {
    let mut world = two_nodes();
    let session = world.session("e1").expect("on");
    for _ in 0..EDGE_OFFENCES_MAX {
        assert_eq!(world.closed, []);
        let event =
            Event::EdgeBadMessage(session, "message: got 9 bytes, expected JSON".to_owned());
        world.deliver(event);
    }
    assert_eq!(world.closed.pop().expect("it is closed").0, session);
    assert!(world.session("e2").is_some());
    assert_eq!(world.logs.iter().filter(|line| line.contains("refused")).count(), 1);
}

#[test]
fn malformed_questions_are_answered_and_unknown_ones_left() {
    let mut world = two_nodes();
    for (resource, content) in [
        ("null/nodepatch/e1", json!("{")),
        ("n/podpatch/mine", json!(7)),
        ("kube-node-lease/lease/e1", json!([])),
    ] {
        let operation = if resource.contains("lease") { "update" } else { "patch" };
        let message = world.edge("e1").request(operation, resource, Some(&content));
        let id = world.send("e1", message);
        world.pass(100);
        let answer = &world.edge("e1").answers[&id];
        let reason = &answer["Err"]["ErrStatus"]["reason"];
        assert!(reason == "BadRequest" || answer["Err"].is_null(), "{resource}: {answer}");
    }
    for resource in ["", "a", "a/b/c/d", "n/rule/x", "membership"] {
        let message = world.edge("e1").request("query", resource, None);
        world.send("e1", message);
    }
    world.pass(100);
    assert!(world.session("e1").is_some());
}

#[test]
fn a_node_that_asks_without_end_is_held_back() {
    let mut world = two_nodes();
    // The API server is slow.
    world.faults.delay_ms = 60_000;
    // One request is made; all others are the same.
    for _ in 0..=EDGE_REQUESTS_MAX {
        let message = world.edge("e1").request("query", "null/node/e1", None);
        let session = world.session("e1").expect("on");
        world.deliver(Event::EdgeMessage(session, Box::new(kubeedge::decode_edge(message))));
    }
    assert_eq!(world.controller.counters().messages_refused, 0);
    for _ in 0..80 {
        let message = world.edge("e1").request("query", "null/node/e1", None);
        let session = world.session("e1").expect("on");
        world.deliver(Event::EdgeMessage(session, Box::new(kubeedge::decode_edge(message))));
    }
    let counters = world.controller.counters();
    assert!(counters.calls <= EDGE_CALLS_MAX, "{}", counters.calls);
    assert_eq!(counters.messages_refused, 80);
}

#[test]
fn a_node_that_asks_and_does_not_read_holds_back_itself_alone() {
    let mut world = two_nodes();
    let session = world.session("e1").expect("on");
    world.edge("e1").stuck = true;
    for _ in 0..100 {
        let message = world.edge("e1").request("query", "null/node/e1", None);
        world.send("e1", message);
        world.pass(10);
    }
    let taken = world.unsent_bytes;
    for _ in 0..500 {
        let message = world.edge("e1").request("query", "null/node/e1", None);
        world.send("e1", message);
        world.pass(10);
    }
    let most = EDGE_UNSENT_BYTES_MAX + 1024;
    assert!(world.unsent_bytes <= most, "{} bytes", world.unsent_bytes);
    assert!(taken > 0);
    // It reads again, and has what it requested.
    world.edge("e1").stuck = false;
    world.deliver(Event::EdgeDrained(session, 0));
    world.pass(100);
    assert!(world.edge("e1").answers.len() > 200, "{}", world.edge("e1").answers.len());
    // Or it never reads.
    world.edge("e1").stuck = true;
    for _ in 0..1_200 {
        if world.session("e1") != Some(session) {
            break;
        }
        let message = world.edge("e1").request("query", "null/node/e1", None);
        world.send("e1", message);
        world.pass(1);
    }
    assert_eq!(world.closed.pop().expect("it is closed").0, session);
    world.cluster.apply(Kind::ConfigMap, config_map("m", "2"));
    world.pass(100);
    assert_eq!(world.edge("e2").store["n/configmap/m"]["data"]["k"], "2");
}
