//! Devices: which node gets what.

use edged::controller::SyncStore;
use edged::limits::{DEVICE_MEMBERS_MAX, DEVICE_WRITE_MS, WATCH_UNSERVED_MS};
use edged::model::api::{Kind, Verb};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Name};
use crate::device_reports::{D, recorded, report};
use crate::world::{Faults, World};
use crate::{listed, node, received};

pub(crate) fn model(name: &str, maximum: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"protocol": "modbus",
        "properties": [{"name": "temp", "type": "INT", "maximum": maximum}]}})
}

pub(crate) fn device(name: &str, node: &str, model: &str) -> Value {
    let mut device = json!({"metadata": {"name": name, "namespace": "n"}, "spec": {
        "nodeName": node, "protocol": {"protocolName": "modbus"},
        "properties": [{"name": "temp", "desired": {"value": "20"}}, {"name": "rpm"}]}});
    if !model.is_empty() {
        device["spec"]["deviceModelRef"] = json!({"name": model});
    }
    device
}

pub(crate) fn name(kind: Kind, name: &str) -> Name {
    (kind, "n".to_owned(), name.to_owned())
}

/// Two nodes and a device of the first, and the node's Node and objects are there.
pub(crate) fn with_device() -> World {
    let mut world = listed(&[
        (Kind::Node, node("e1")),
        (Kind::Node, node("e2")),
        (Kind::DeviceModel, model("m", "100")),
        (Kind::Device, device("d", "e1", "m")),
    ]);
    world.connect("e1");
    world.connect("e2");
    world.pass(100);
    world
}

/// The contents of messages with this resource, and whether they answer something.
fn contents(world: &mut World, node: &str, resource: &str) -> Vec<(Value, bool)> {
    let messages = std::mem::take(&mut world.edge(node).messages);
    let of_it = messages.iter().filter(|message| &*message.route.resource == resource);
    let content = |message: &edged::model::message::Message| {
        let text = message.content.as_ref().expect("content").get();
        let answers = !message.header.parent_id.is_empty();
        (serde_json::from_str(text).expect("JSON"), answers)
    };
    of_it.map(content).collect()
}

fn ask_for_devices(world: &mut World, node: &str) -> String {
    let message = world.edge(node).twin("get", "membership/detail", &json!("{}"));
    world.send(node, message)
}

/// Whether this message was confirmed.
pub(crate) fn is_confirmed(world: &mut World, node: &str, id: &str) -> bool {
    let confirms = |message: &&edged::model::message::Message| {
        *message.header.parent_id == *id && &*message.route.group == "twin"
    };
    let found = world.edge(node).messages.iter().find(confirms).cloned();
    if let Some(message) = &found {
        let route = &message.route;
        let shown = [&*route.source, &*route.operation, &*route.resource];
        assert_eq!(shown, ["devicecontroller", "response", "twin"]);
    }
    found.is_some()
}

fn ids(content: &Value) -> Vec<&str> {
    let all = content.as_array().map_or(&[][..], Vec::as_slice);
    all.iter().map(|device| device["id"].as_str().expect("an id")).collect()
}

#[test]
fn a_device_goes_to_its_node_after_its_model_and_to_no_other() {
    let mut world = with_device();
    let expected = ["update null/node/e1", "insert n/devicemodel/m", "insert n/device/d"];
    assert_eq!(received(&mut world, "e1"), expected);
    assert_eq!(received(&mut world, "e2"), ["update null/node/e2"]);
    for message in &world.edge("e1").messages[1..] {
        assert_eq!(&*message.route.source, "devicecontroller");
        assert_eq!(&*message.route.group, "resource");
        assert!(!message.header.resource_version.is_empty());
    }
    let stored = &world.edge("e1").store["n/device/d"];
    assert_eq!((&stored["kind"], &stored["spec"]["nodeName"]), (&json!("Device"), &json!("e1")));
    assert!(stored["metadata"].get("managedFields").is_none());
    world.pass(20_000);
    assert!(received(&mut world, "e1").is_empty(), "once");
}

#[test]
fn a_node_that_asks_gets_the_list_of_its_devices_and_a_confirmation() {
    let mut world = with_device();
    let mut second = device("a", "e1", "");
    second["metadata"]["labels"] = json!({"description": "a pump"});
    world.cluster.apply(Kind::Device, second);
    world.pass(100);
    world.edge("e1").messages.clear();
    let id = ask_for_devices(&mut world, "e1");
    world.pass(100);
    assert!(is_confirmed(&mut world, "e1", &id));
    let messages = world.edge("e1").messages.clone();
    let detail = messages.iter().find(|it| &*it.route.resource == "membership/detail");
    let route = &detail.expect("a list").route;
    assert_eq!((&*route.source, &*route.operation), ("devicecontroller", "update"));
    let all = contents(&mut world, "e1", "membership/detail");
    let [(content, answers)] = &all[..] else { panic!("{all:?}") };
    assert!(!answers, "EdgeCore takes a message with a parent for a confirmation");
    assert_eq!(ids(&content["devices"]), ["n/a", "n/d"]);
    let first = json!({"id": "n/a", "name": "a", "description": "a pump", "twin": {}});
    assert_eq!(content["devices"][0], first);
    let id = ask_for_devices(&mut world, "e2");
    world.pass(100);
    assert!(is_confirmed(&mut world, "e2", &id));
    let all = contents(&mut world, "e2", "membership/detail");
    assert_eq!(all[0].0["devices"], json!([]));
}

#[test]
fn a_node_is_not_told_of_a_device_that_was_deleted_before_the_node_came() {
    let mut world = listed(&[(Kind::Device, device("d", "e1", ""))]);
    world.pass(100);
    world.late = vec![Kind::Device];
    world.cluster.remove(&name(Kind::Device, "d"));
    world.cluster.compacted = world.cluster.version;
    world.connect("e1");
    world.pass(100);
    // The watch begins anew, behind the deletion.
    world.late.clear();
    world.pass(20_000);
    assert_eq!(world.controller.devices_of("e1").count(), 0);
    world.edge("e1").messages.clear();
    ask_for_devices(&mut world, "e1");
    world.pass(100);
    let all = contents(&mut world, "e1", "membership/detail");
    assert_eq!(all[0].0["devices"], json!([]));
}

#[test]
fn edges_before_1_16_2_are_told_names_without_namespaces() {
    let mut old = node("e1");
    old["status"] = json!({"nodeInfo": {"kubeletVersion": "v1.22.6-kubeedge-v1.12.1"}});
    let mut world = listed(&[(Kind::Node, old), (Kind::Device, device("d", "e1", ""))]);
    world.connect("e1");
    ask_for_devices(&mut world, "e1");
    world.pass(100);
    let all = contents(&mut world, "e1", "membership/detail");
    assert_eq!(ids(&all[0].0["devices"]), ["d"]);
    // And they report without them.
    let id = report(&mut world, "e1", "device/d/twin/edge_updated", ("temp", "7", 1));
    world.pass(100);
    assert!(is_confirmed(&mut world, "e1", &id));
    assert_eq!(recorded(&world, "d", "temp"), "7");
}

#[test]
fn a_device_that_moves_leaves_its_node_and_comes_to_another() {
    let mut world = with_device();
    for edge in ["e1", "e2"] {
        received(&mut world, edge);
        world.edge(edge).messages.clear();
    }
    world.cluster.apply(Kind::Device, device("d", "e2", "m"));
    world.pass(100);
    let left = ["update membership", "delete n/device/d", "delete n/devicemodel/m"];
    assert_eq!(received(&mut world, "e1"), left);
    let deleted = world.edge("e1").messages[1].content.clone().expect("content");
    let deleted: Value = serde_json::from_str(deleted.get()).expect("JSON");
    assert_eq!(deleted["spec"]["protocol"]["protocolName"], "modbus", "the mapper is found by it");
    let change = contents(&mut world, "e1", "membership");
    assert_eq!(ids(&change[0].0["removed_devices"]), ["n/d"]);
    assert_eq!(change[0].0["added_devices"], Value::Null);
    let came = ["update membership", "insert n/devicemodel/m", "insert n/device/d"];
    assert_eq!(received(&mut world, "e2"), came);
    let change = contents(&mut world, "e2", "membership");
    assert_eq!(ids(&change[0].0["added_devices"]), ["n/d"]);
    // Taken from all nodes.
    let mut free = device("d", "", "m");
    free["spec"].as_object_mut().expect("a spec").remove("nodeName");
    world.cluster.apply(Kind::Device, free);
    world.pass(100);
    let left = ["update membership", "delete n/device/d", "delete n/devicemodel/m"];
    assert_eq!(received(&mut world, "e2"), left);
}

#[test]
fn a_device_that_moves_before_its_node_comes_is_not_told_to_it() {
    let mut world = listed(&[(Kind::Device, device("d", "e1", "m"))]);
    world.cluster.apply(Kind::Device, device("d", "e2", "m"));
    world.pass(100);
    assert_eq!(world.controller.devices_of("e1").count(), 0);
    assert_eq!(world.controller.devices_of("e2").count(), 1);
    world.connect("e1");
    ask_for_devices(&mut world, "e1");
    world.pass(100);
    let all = contents(&mut world, "e1", "membership/detail");
    assert_eq!(all[0].0["devices"], json!([]));
    assert!(contents(&mut world, "e1", "membership").is_empty());
}

#[test]
fn a_changed_model_goes_to_every_node_with_a_device_of_it_and_the_devices_follow() {
    let mut world = with_device();
    for (device_name, edge) in [("d2", "e1"), ("d3", "e2")] {
        world.cluster.apply(Kind::Device, device(device_name, edge, "m"));
    }
    world.cluster.apply(Kind::Device, device("other", "e1", ""));
    world.pass(100);
    for edge in ["e1", "e2"] {
        received(&mut world, edge);
    }
    world.cluster.apply(Kind::DeviceModel, model("m", "200"));
    world.pass(20_000);
    let expected = ["update n/devicemodel/m", "update n/device/d", "update n/device/d2"];
    assert_eq!(received(&mut world, "e1"), expected);
    assert_eq!(received(&mut world, "e2"), ["update n/devicemodel/m", "update n/device/d3"]);
    assert_eq!(
        world.edge("e1").store["n/devicemodel/m"]["spec"]["properties"][0]["maximum"],
        "200"
    );
}

#[test]
fn devices_follow_their_model_even_if_we_die_in_between() {
    for sync in [SyncStore::Table, SyncStore::Objects] {
        let mut cluster = Cluster::default();
        cluster.apply(Kind::Node, node("e1"));
        cluster.apply(Kind::DeviceModel, model("m", "100"));
        cluster.apply(Kind::Device, device("d", "e1", "m"));
        let mut world = World::keeping(sync, 7, cluster, Faults::default());
        world.pass(100);
        world.connect("e1");
        world.pass(100);
        received(&mut world, "e1");
        world.cluster.apply(Kind::DeviceModel, model("m", "200"));
        world.edge("e1").deaf = true;
        world.pass(100);
        assert_eq!(received(&mut world, "e1"), ["update n/devicemodel/m"], "{sync:?}");
        world.crash();
        world.edge("e1").deaf = false;
        world.pass(1_000);
        world.connect("e1");
        world.pass(1_000);
        let told = received(&mut world, "e1");
        let told: Vec<&String> = told.iter().filter(|it| it.contains("/device")).collect();
        assert_eq!(told, ["update n/devicemodel/m", "update n/device/d"], "{sync:?}");
        // What was acknowledged is not sent again by the next one either.
        world.crash();
        world.pass(1_000);
        world.connect("e1");
        world.pass(20_000);
        let told = received(&mut world, "e1");
        assert!(told.iter().all(|it| !it.contains("/device")), "{sync:?}: {told:?}");
    }
}

#[test]
fn a_device_that_is_made_with_its_model_comes_after_it() {
    let mut world = with_device();
    received(&mut world, "e1");
    world.faults.delay_ms = 50;
    // Whichever of the two the watches bring first.
    for (name, is_model_first) in [("y", true), ("z", false)] {
        let objects =
            [(Kind::DeviceModel, model(name, "1")), (Kind::Device, device(name, "e1", name))];
        let order = if is_model_first { [0, 1] } else { [1, 0] };
        for at in order {
            world.cluster.apply(objects[at].0, objects[at].1.clone());
            world.pass(1);
        }
        world.pass(2_000);
        let told = received(&mut world, "e1");
        let told: Vec<&str> = told.iter().map(|it| &**it).filter(|it| it.contains('/')).collect();
        let expected = [format!("insert n/devicemodel/{name}"), format!("insert n/device/{name}")];
        if is_model_first {
            assert_eq!(told, expected);
        } else {
            let last = told.last().expect("something came");
            assert!(last.ends_with(&format!("n/device/{name}")), "{told:?}");
            assert!(told.contains(&&*expected[0]), "{told:?}");
        }
    }
}

#[test]
fn a_model_waits_until_it_is_stored_that_its_devices_follow() {
    let mut world = with_device();
    received(&mut world, "e1");
    world.faults.save_fails = 1_000;
    world.cluster.apply(Kind::DeviceModel, model("m", "200"));
    world.pass(500);
    assert!(received(&mut world, "e1").is_empty());
    world.faults.save_fails = 0;
    world.pass(10_000);
    let expected = ["update n/devicemodel/m", "update n/device/d"];
    assert_eq!(received(&mut world, "e1"), expected);
}

#[test]
fn models_that_may_not_be_read_hold_no_device_up() {
    let mut cluster = Cluster::default();
    cluster.apply(Kind::Node, node("e1"));
    cluster.apply(Kind::Device, device("d", "e1", "m"));
    cluster.unserved = vec![Kind::DeviceModel];
    let mut world = World::new(7, cluster, Faults::default());
    world.pass(100);
    world.connect("e1");
    world.pass(6_000);
    let told = received(&mut world, "e1");
    assert!(told.contains(&"insert n/device/d".to_owned()), "{told:?}");
    // One that cannot be fetched.
    let mut world = with_device();
    received(&mut world, "e1");
    world.forbidden = vec![(Kind::DeviceModel, "secret".to_owned(), 403)];
    world.cluster.apply(Kind::Device, device("x", "e1", "secret"));
    world.pass(100);
    let told = received(&mut world, "e1");
    assert!(told.contains(&"insert n/device/x".to_owned()), "{told:?}");
}

#[test]
fn a_missing_model_holds_nobody_up_and_the_device_comes_again_with_it() {
    let mut world = with_device();
    received(&mut world, "e1");
    world.cluster.apply(Kind::Device, device("bad", "e1", "none"));
    world.cluster.apply(Kind::Device, device("good", "e1", "m"));
    world.pass(100);
    let told = received(&mut world, "e1");
    let mut told: Vec<&str> = told.iter().map(|it| &**it).filter(|it| it.contains('/')).collect();
    told.sort_unstable();
    assert_eq!(told, ["insert n/device/bad", "insert n/device/good"]);
    world.cluster.apply(Kind::DeviceModel, model("none", "1"));
    world.pass(100);
    let expected = ["insert n/devicemodel/none", "update n/device/bad"];
    assert_eq!(received(&mut world, "e1"), expected);
    // And a model that the node does not take.
    world.cluster.apply(Kind::DeviceModel, model("none", "2"));
    world.edge("e1").deaf = true;
    world.pass(26_000);
    world.edge("e1").deaf = false;
    let sign = world.edge("e1").keepalive();
    world.send("e1", sign);
    world.pass(10_000);
    let told = received(&mut world, "e1");
    assert_eq!(told.last().map(|it| &**it), Some("update n/device/bad"), "{told:?}");
}

#[test]
fn a_device_is_deleted_before_its_model_with_all_that_it_was() {
    for is_away in [false, true] {
        let mut world = with_device();
        received(&mut world, "e1");
        if is_away {
            let session = world.session("e1").expect("on");
            world.disconnect(session);
        }
        world.edge("e1").messages.clear();
        world.cluster.remove(&name(Kind::DeviceModel, "m"));
        world.cluster.remove(&name(Kind::Device, "d"));
        if is_away {
            world.pass(100);
            world.connect("e1");
        }
        world.pass(100);
        let told = received(&mut world, "e1");
        let told: Vec<&String> = told.iter().filter(|it| !it.contains("membership")).collect();
        // The watch brings the deletion of the model first.
        let sorted: Vec<&String> = {
            let mut sorted = told.clone();
            sorted.sort();
            sorted
        };
        assert_eq!(sorted, ["delete n/device/d", "delete n/devicemodel/m"], "{is_away}");
        if is_away {
            assert_eq!(told[0], "delete n/device/d");
        }
        for (resource, field) in [("n/device/d", "protocol"), ("n/devicemodel/m", "properties")] {
            let messages = world.edge("e1").messages.clone();
            let message = messages.iter().find(|it| &*it.route.resource == resource);
            let message = message.expect("it was just seen");
            assert_eq!(&*message.route.source, "devicecontroller");
            let text = message.content.as_ref().expect("content").get();
            let content: Value = serde_json::from_str(text).expect("JSON");
            assert!(!content["spec"][field].is_null(), "{content}");
        }
        assert!(world.records("e1").iter().all(|(kind, ..)| *kind == Kind::Node), "{is_away}");
    }
}

#[test]
fn what_changed_while_a_node_was_away_comes_from_the_devicecontroller() {
    let mut world = with_device();
    let session = world.session("e1").expect("on");
    world.disconnect(session);
    let mut changed = device("d", "e1", "m");
    changed["spec"]["properties"][0]["desired"]["value"] = json!("25");
    world.cluster.apply(Kind::Device, changed);
    world.cluster.apply(Kind::Device, device("new", "e1", ""));
    world.pass(100);
    received(&mut world, "e1");
    world.edge("e1").messages.clear();
    world.connect("e1");
    world.pass(100);
    assert_eq!(received(&mut world, "e1"), ["update n/device/d", "insert n/device/new"]);
    for message in &world.edge("e1").messages {
        assert_eq!(&*message.route.source, "devicecontroller");
    }
}

#[test]
fn an_api_server_without_devices_is_served_as_before_and_looked_at_again() {
    let mut cluster = Cluster::default();
    cluster.apply(Kind::Node, node("e1"));
    cluster.unserved = vec![Kind::Device, Kind::DeviceModel, Kind::DeviceStatus];
    let mut world = World::new(7, cluster, Faults::default());
    world.pass(100);
    assert!(world.controller.is_ready());
    world.connect("e1");
    let id = ask_for_devices(&mut world, "e1");
    world.pass(3 * WATCH_UNSERVED_MS / 2);
    let lines = world.logs.iter().filter(|line| line.contains("devices.kubeedge.io"));
    assert_eq!(lines.count(), 1, "{:?}", world.logs);
    assert!(is_confirmed(&mut world, "e1", &id));
    let all = contents(&mut world, "e1", "membership/detail");
    assert!(all.is_empty(), "an empty list would remove the devices of an EdgeCore");
    world.cluster.unserved.clear();
    world.cluster.apply(Kind::Device, device("d", "e1", ""));
    let mut told = Vec::new();
    for _ in 0..7 {
        let sign = world.edge("e1").keepalive();
        let session = world.session("e1");
        if session.is_some() {
            world.send("e1", sign);
        } else {
            world.connect("e1");
        }
        world.pass(WATCH_UNSERVED_MS / 6);
        told.extend(received(&mut world, "e1"));
    }
    assert!(told.contains(&"insert n/device/d".to_owned()), "{told:?}");
}

#[test]
fn a_list_of_too_many_devices_is_not_sent() {
    let mut cluster = Cluster::default();
    cluster.apply(Kind::Node, node("e1"));
    for at in 0..DEVICE_MEMBERS_MAX {
        cluster.apply(Kind::Device, device(&format!("d{at}"), "e1", ""));
    }
    let mut world = World::new(7, cluster, Faults::default());
    world.pass(100);
    world.connect("e1");
    ask_for_devices(&mut world, "e1");
    world.pass(10);
    let all = contents(&mut world, "e1", "membership/detail");
    assert_eq!(ids(&all[0].0["devices"]).len(), DEVICE_MEMBERS_MAX);
    world.cluster.apply(Kind::Device, device("more", "e1", ""));
    world.pass(10);
    world.edge("e1").messages.clear();
    ask_for_devices(&mut world, "e1");
    world.pass(10);
    assert!(contents(&mut world, "e1", "membership/detail").is_empty());
    assert!(world.logs.iter().any(|line| line.contains("it gets no list")), "{:?}", world.logs);
}

// ---- what was recorded of KubeEdge, and what is deployed ----

/// A message as CloudCore sent it (`tests/golden/devices`).
fn golden(text: &str) -> Value {
    let file: Value = serde_json::from_str(text).expect("JSON");
    file["message"].clone()
}

#[test]
fn the_messages_are_those_of_cloudcore() {
    let model = golden(include_str!("../golden/devices/devicemodel.json"));
    let device = golden(include_str!("../golden/devices/device.json"));
    let membership = golden(include_str!("../golden/devices/membership.json"));
    let mut world = listed(&[(Kind::Node, node("edge1"))]);
    world.connect("edge1");
    world.pass(100);
    world.edge("edge1").messages.clear();
    world.cluster.force(Kind::DeviceModel, model["content"].clone());
    world.cluster.force(Kind::Device, device["content"].clone());
    world.pass(100);
    let ours: Vec<Value> = world
        .edge("edge1")
        .messages
        .iter()
        .map(|message| serde_json::to_value(message).expect("plain data"))
        .collect();
    assert_eq!(ours.len(), 3);
    for (ours, theirs) in ours.iter().zip([&membership, &model, &device]) {
        assert_eq!(ours["route"], theirs["route"]);
        let mut expected = theirs["content"].clone();
        let mut got = ours["content"].clone();
        if theirs["route"]["group"] == "twin" {
            let member = &mut expected["added_devices"][0];
            member["twin"] = json!({});
            for key in ["event_id", "timestamp"] {
                assert!(!got[key].is_null(), "{got}");
                expected[key] = got[key].clone();
            }
        } else {
            // Our API server has its own versions.
            let metadata = expected["metadata"].as_object_mut().expect("metadata");
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
            let version = got["metadata"].as_object_mut().expect("metadata");
            assert_eq!(
                version.remove("resourceVersion"),
                Some(ours["header"]["resourceversion"].clone())
            );
        }
        assert_eq!(got, expected);
    }
}

/// The rules of the ClusterRole in `config/edgecontroller.yaml`: verb and resource of this group.
fn granted() -> Vec<(String, String)> {
    let path = format!("{}/config/edgecontroller.yaml", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let documents = edged::wire::tree::parse(&bytes).expect("YAML");
    let documents = documents.iter().map(edged::model::tree::to_json);
    let role = documents.into_iter().find(|it| it["kind"] == "ClusterRole").expect("a role");
    let words = |list: &Value| -> Vec<String> {
        let list = list.as_array().map_or(&[][..], Vec::as_slice);
        list.iter().map(|it| it.as_str().expect("a word").to_owned()).collect()
    };
    let rules = role["rules"].as_array().expect("rules").iter();
    let ours = rules.filter(|rule| words(&rule["apiGroups"]) == ["devices.kubeedge.io"]);
    let pairs = ours.flat_map(|rule| {
        let (verbs, resources) = (words(&rule["verbs"]), words(&rule["resources"]));
        verbs.into_iter().flat_map(move |verb| {
            resources.clone().into_iter().map(move |resource| (verb.clone(), resource))
        })
    });
    pairs.collect()
}

#[test]
fn the_deployed_role_may_do_what_is_done() {
    let mut asked: Vec<(String, String)> = ["devices", "devicemodels"]
        .iter()
        .flat_map(|kind| ["list", "watch"].map(|verb| (verb.to_owned(), (*kind).to_owned())))
        .collect();
    for unserved in [vec![], vec![Kind::DeviceStatus]] {
        let mut world = with_device();
        world.cluster.unserved = unserved;
        // A model that is fetched, a status that is made, changed by others, and written again.
        world.cluster.apply(Kind::Device, device("d", "e1", "none"));
        report(&mut world, "e1", D, ("temp", "1", 1));
        world.pass(2 * DEVICE_WRITE_MS);
        report(&mut world, "e1", D, ("temp", "2", 2));
        world.pass(2 * DEVICE_WRITE_MS);
        for call in &world.calls {
            let verb = match call.verb {
                Verb::Get => "get",
                Verb::List => "list",
                Verb::Create => "create",
                Verb::Update => "update",
                Verb::Patch(_) => "patch",
                Verb::Delete => "delete",
            };
            if call.kind.api_version().starts_with("devices.") {
                asked.push((verb.to_owned(), call.kind.plural().to_owned()));
            }
        }
    }
    let granted = granted();
    for right in &asked {
        assert!(granted.contains(right), "{right:?} is not granted: {granted:?}");
    }
    for right in [("get", "devices"), ("patch", "devices"), ("create", "devicestatuses")] {
        let right = (right.0.to_owned(), right.1.to_owned());
        assert!(granted.contains(&right) && (right.0 == "get" || asked.contains(&right)));
    }
}
