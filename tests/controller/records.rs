//! Acknowledgements of nodes outlive the controller.

use edged::model::api::Kind;
use serde_json::json;

use edged::controller::SyncStore;

use crate::cluster::Cluster;
use crate::world::{Faults, World};
use crate::{config_map, listed, node, pod, pod_with, received};

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
    received(&mut world, "e1");
    world.crash();
    world.cluster.remove(&(Kind::Pod, "n".to_owned(), "other".to_owned()));
    world.cluster.apply(Kind::ConfigMap, config_map("m", "2"));
    world.pass(100);
    world.connect("e1");
    world.pass(20_000);
    assert_eq!(received(&mut world, "e1"), ["update n/configmap/m", "delete n/pod/other"]);
    assert_eq!(world.rows.len(), 3, "{:#?}", world.rows);
}

#[test]
fn nothing_is_sent_before_there_is_a_record_of_it() {
    let mut world = listed(&[(Kind::Node, node("e1")), (Kind::Pod, pod("web", "e1"))]);
    world.faults.save_fails = 1000;
    world.connect("e1");
    world.pass(10_000);
    assert_eq!(received(&mut world, "e1"), [""; 0]);
    let logged = world.logs.iter().filter(|line| line.starts_with("store:")).count();
    assert_eq!(logged, 1);
    world.faults.save_fails = 0;
    world.pass(60_000 - 40_000);
    assert_eq!(received(&mut world, "e1"), ["update null/node/e1", "insert n/pod/web"]);
}

#[test]
fn what_was_on_its_way_when_the_controller_died_is_not_lost() {
    let mut world = listed(&[(Kind::Node, node("e1")), (Kind::Pod, pod("web", "e1"))]);
    world.connect("e1");
    world.edge("e1").deaf = true;
    world.pass(30);
    // It has the pod, does not report it, and the pod is deleted meanwhile.
    let name = (Kind::Pod, "n".to_owned(), "web".to_owned());
    let stored = world.cluster.objects[&name].clone();
    world.edge("e1").store.insert("n/pod/web".to_owned(), stored);
    world.pass(25_000);
    world.crash();
    world.cluster.remove(&name);
    world.edge("e1").deaf = false;
    received(&mut world, "e1");
    world.pass(100);
    world.connect("e1");
    world.pass(100);
    assert_eq!(received(&mut world, "e1"), ["update null/node/e1", "delete n/pod/web"]);
    assert!(world.rows.values().all(|row| row.kind == Kind::Node));
}

#[test]
fn a_status_that_another_controller_wrote_costs_one_push_at_the_most() {
    let mut world = listed(&[(Kind::Node, node("e1")), (Kind::Pod, pod("web", "e1"))]);
    world.connect("e1");
    world.pass(100);
    received(&mut world, "e1");
    let name = (Kind::Pod, "n".to_owned(), "web".to_owned());
    let mut pod = world.cluster.objects[&name].clone();
    pod["status"]["phase"] = json!("Running");
    world.cluster.apply(Kind::Pod, pod);
    world.pass(20_000);
    assert_eq!(received(&mut world, "e1"), [""; 0]);
    world.crash();
    world.pass(100);
    world.connect("e1");
    world.pass(20_000);
    assert_eq!(received(&mut world, "e1"), [""; 0], "nor after a restart");
}

#[test]
fn where_there_are_objectsyncs_they_are_what_is_on_record() {
    let mut cluster = Cluster::default();
    cluster.apply(Kind::Node, node("e.1"));
    let web = cluster.apply(Kind::Pod, pod("web", "e.1"));
    let mut world = World::keeping(SyncStore::Objects, 1, cluster, Faults::default());
    world.pass(10);
    world.connect("e.1");
    world.pass(100);
    assert_eq!(received(&mut world, "e.1"), ["update null/node/e.1", "insert n/pod/web"]);
    let uid = web["metadata"]["uid"].as_str().expect("a uid");
    let name = (Kind::ObjectSync, "n".to_owned(), format!("e.1.{uid}"));
    let object = &world.cluster.objects[&name];
    let spec = json!({"objectAPIVersion": "v1", "objectKind": "Pod", "objectName": "web"});
    assert_eq!(object["spec"], spec);
    let version = &web["metadata"]["resourceVersion"];
    assert_eq!(object["status"]["objectResourceVersion"], *version);
    assert_eq!(world.rows.len(), 0);
    world.crash();
    world.cluster.remove(&(Kind::Pod, "n".to_owned(), "web".to_owned()));
    world.pass(100);
    world.connect("e.1");
    world.pass(20_000);
    assert_eq!(received(&mut world, "e.1"), ["delete n/pod/web"]);
    assert!(!world.cluster.objects.contains_key(&name));
    // A user who removes one while the node is offline wants the object to be sent again.
    let session = world.session("e.1").expect("on");
    world.disconnect(session);
    let own = (Kind::ClusterObjectSync, String::new(), world.records("e.1")[0].2.clone());
    world.cluster.remove(&(own.0, own.1, format!("e.1.{}", own.2)));
    world.pass(100);
    world.connect("e.1");
    world.pass(100);
    assert_eq!(received(&mut world, "e.1"), ["update null/node/e.1"]);
    world.deliver(edged::controller::event::Event::Stop);
    world.pass(100);
    assert!(world.exited);
}

#[test]
fn what_cannot_be_read_in_full_is_there_all_the_same() {
    let mut world = listed(&[
        (Kind::Node, node("e1")),
        (Kind::Pod, pod("web", "e1")),
        (Kind::Pod, pod("other", "e1")),
    ]);
    world.connect("e1");
    world.pass(100);
    received(&mut world, "e1");
    world.crash();
    let name = |name: &str| (Kind::Pod, "n".to_owned(), name.to_owned());
    for pod in ["web", "other"] {
        let mut object = world.cluster.objects[&name(pod)].clone();
        object["spec"]["containers"] = json!(7);
        world.cluster.apply(Kind::Pod, object);
    }
    world.pass(100);
    world.connect("e1");
    world.pass(20_000);
    assert_eq!(received(&mut world, "e1"), [""; 0], "neither is gone");
    let logged = |world: &World| {
        world.logs.iter().filter(|line| line.contains("cannot be read")).cloned().collect()
    };
    let lines: Vec<String> = logged(&world);
    assert!(lines.len() == 2 && lines[1].contains("n/pod/web"), "{lines:#?}");
    let uid = world.edge("e1").store["n/pod/web"]["metadata"]["uid"].clone();
    let patch = json!(json!({"metadata": {"uid": uid}, "status": {}}).to_string());
    let message = world.edge("e1").request("patch", "n/podpatch/web", Some(&patch));
    let id = world.send("e1", message);
    world.pass(1_000);
    let answer = world.edge("e1").answers.remove(&id).expect("an answer");
    assert_eq!(answer["Err"]["ErrStatus"]["code"], 503, "{answer}");
    assert_eq!(received(&mut world, "e1"), ["response n/podpatch/web"]);
    world.cluster.remove(&name("web"));
    world.pass(1_000);
    assert_eq!(received(&mut world, "e1"), ["delete n/pod/web"]);
    world.cluster.apply(Kind::Pod, pod("other", "e1"));
    world.pass(1_000);
    assert_eq!(received(&mut world, "e1"), ["update n/pod/other"]);
    assert_eq!(logged(&world).len(), 2, "{:#?}", logged(&world));
}

#[test]
fn null_stands_for_nothing_wherever_it_stands() {
    let mut web = pod_with("web", "e1", "m", "s");
    web["metadata"]["labels"] = json!(null);
    let spec = &mut web["spec"];
    for key in ["initContainers", "ephemeralContainers"] {
        spec[key] = json!(null);
    }
    let from = json!({"configMapKeyRef": null, "secretKeyRef": {"name": "t", "key": "k"}});
    spec["containers"] = json!([{"name": "c", "image": "i", "envFrom": null, "env": [
        {"name": "A", "valueFrom": null}, {"name": "B", "valueFrom": from}]}]);
    spec["volumes"] = json!([{"name": "v", "configMap": {"name": "m", "items": null},
        "secret": null}, {"name": "w", "projected": {"sources": [{"secret": null}, null]}}]);
    let mut bare = pod("bare", "e1");
    for key in ["volumes", "containers", "imagePullSecrets", "serviceAccountName"] {
        bare["spec"][key] = json!(null);
    }
    let mut gateway = node("e1");
    gateway["metadata"]["annotations"] = json!(null);
    gateway["metadata"]["labels"]["x"] = json!(null);
    gateway["status"]["volumesAttached"] = json!(null);
    let mut world = listed(&[
        (Kind::Node, gateway),
        (Kind::ConfigMap, config_map("m", "1")),
        (Kind::Pod, web),
        (Kind::Pod, bare),
    ]);
    world.connect("e1");
    world.pass(100);
    let mut reported = received(&mut world, "e1");
    reported.sort();
    let expected =
        ["insert n/configmap/m", "insert n/pod/bare", "insert n/pod/web", "update null/node/e1"];
    assert_eq!(reported, expected);
}
