//! What nodes have acknowledged outlives the controller.

use edged::model::api::Kind;
use serde_json::json;

use crate::{config_map, heard, listed, node, pod, pod_with};

#[test]
fn a_controller_that_is_started_again_sends_nothing_twice_and_forgets_no_end() {
    let mut world = listed(&[
        (Kind::Node, node("e1")),
        (Kind::ConfigMap, config_map("m", "1")),
        (Kind::Pod, pod_with("web", "e1", "m", "s")),
        (Kind::Pod, pod("other", "e1")),
    ]);
    world.connect("e1");
    world.pass(100);
    heard(&mut world, "e1");
    world.crash();
    world.cluster.remove(&(Kind::Pod, "n".to_owned(), "other".to_owned()));
    world.cluster.apply(Kind::ConfigMap, config_map("m", "2"));
    world.pass(100);
    world.connect("e1");
    world.pass(20_000);
    assert_eq!(heard(&mut world, "e1"), ["update n/configmap/m", "delete n/pod/other"]);
    assert_eq!(world.rows.len(), 3, "{:#?}", world.rows);
}

#[test]
fn nothing_is_sent_before_there_is_a_record_of_it() {
    let mut world = listed(&[(Kind::Node, node("e1")), (Kind::Pod, pod("web", "e1"))]);
    world.faults.save_fails = 1000;
    world.connect("e1");
    world.pass(10_000);
    assert_eq!(heard(&mut world, "e1"), [""; 0]);
    let said = world.logs.iter().filter(|line| line.starts_with("store:")).count();
    assert_eq!(said, 1);
    world.faults.save_fails = 0;
    world.pass(60_000 - 40_000);
    assert_eq!(heard(&mut world, "e1"), ["update null/node/e1", "insert n/pod/web"]);
}

#[test]
fn what_was_on_its_way_when_the_controller_died_is_not_lost() {
    let mut world = listed(&[(Kind::Node, node("e1")), (Kind::Pod, pod("web", "e1"))]);
    world.connect("e1");
    world.edge("e1").deaf = true;
    world.pass(30);
    // It has the pod, says nothing of it, and the pod goes while nobody looks.
    let name = (Kind::Pod, "n".to_owned(), "web".to_owned());
    let stored = world.cluster.objects[&name].clone();
    world.edge("e1").store.insert("n/pod/web".to_owned(), stored);
    world.pass(25_000);
    world.crash();
    world.cluster.remove(&name);
    world.edge("e1").deaf = false;
    heard(&mut world, "e1");
    world.pass(100);
    world.connect("e1");
    world.pass(100);
    assert_eq!(heard(&mut world, "e1"), ["update null/node/e1", "delete n/pod/web"]);
    assert!(world.rows.values().all(|row| row.kind == Kind::Node));
}

#[test]
fn a_status_that_another_controller_wrote_costs_one_push_at_the_most() {
    let mut world = listed(&[(Kind::Node, node("e1")), (Kind::Pod, pod("web", "e1"))]);
    world.connect("e1");
    world.pass(100);
    heard(&mut world, "e1");
    let name = (Kind::Pod, "n".to_owned(), "web".to_owned());
    let mut pod = world.cluster.objects[&name].clone();
    pod["status"]["phase"] = json!("Running");
    world.cluster.apply(Kind::Pod, pod);
    world.pass(20_000);
    assert_eq!(heard(&mut world, "e1"), [""; 0]);
    world.crash();
    world.pass(100);
    world.connect("e1");
    world.pass(20_000);
    assert_eq!(heard(&mut world, "e1"), [""; 0], "nor after a restart");
}
