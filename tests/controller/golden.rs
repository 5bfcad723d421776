//! Conversations captured between the real CloudCore and EdgeCore: we get EdgeCore's recorded
//! messages, our API server gets the users' changes, and our messages are compared with
//! CloudCore's.
//!
//! Intended differences: statuses that a node has written itself do not come back as pushes,
//! objects of a pod are sent before they are requested, `managedFields` stay in their place, and
//! the request for the list of devices is answered.

use std::collections::BTreeSet;

use edged::model::api::Kind;
use edged::model::message::Message;
use edged::wire::edge;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::world::{Faults, World};

const NODE: &str = "edge1";

struct Captured {
    from_cloud: bool,
    message: Message,
    content: Value,
}

fn conversation(file: &str) -> Vec<Captured> {
    let path = format!("{}/tests/golden/edge/{file}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let read = |line: &str| {
        let (direction, json) = line.split_at(2);
        let message = edge::decode(json.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        let content = message
            .content
            .as_ref()
            .map_or(Value::Null, |content| serde_json::from_str(content.get()).expect("JSON"));
        Captured { from_cloud: direction == "< ", message, content }
    };
    text.lines().map(read).collect()
}

fn kind_of(resource: &str) -> Option<Kind> {
    match resource.split('/').nth(1)? {
        "pod" => Some(Kind::Pod),
        "node" => Some(Kind::Node),
        "configmap" => Some(Kind::ConfigMap),
        "secret" => Some(Kind::Secret),
        _ => None,
    }
}

impl Captured {
    fn is_reply(&self) -> bool {
        !self.message.header.parent_id.is_empty()
    }

    fn operation(&self) -> &str {
        &self.message.route.operation
    }

    fn resource(&self) -> &str {
        &self.message.route.resource
    }
}

/// The essence of an answer: an object, «OK», or the error.
fn gist(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let failure = |status: &Value| format!("failure: {} {}", status["reason"], status["code"]);
    if !content["Err"].is_null() {
        return failure(&content["Err"]["ErrStatus"]);
    }
    if !content["ErrStatus"].is_null() {
        return failure(&content["ErrStatus"]);
    }
    let (form, object) = match content.get("Object") {
        Some(object) => ("ObjectResp of", object),
        None => ("object", content),
    };
    format!("{form} {} {}", object["metadata"]["name"], object["status"]["phase"])
}

/// Plays a conversation, and compares.
fn replay(world: &mut World, file: &str) {
    let captured = conversation(file);
    // The objects that EdgeCore requests exist.
    for one in captured.iter().filter(|one| one.from_cloud && one.is_reply()) {
        if let Some(kind) = kind_of(one.resource())
            && matches!(kind, Kind::ConfigMap | Kind::Secret)
            && one.content["metadata"]["uid"].is_string()
        {
            world.cluster.force(kind, one.content.clone());
        }
    }
    let mut theirs = BTreeSet::new();
    let mut answers = Vec::new();
    for one in &captured {
        match (one.from_cloud, one.is_reply()) {
            (true, false) => {
                theirs.insert((one.operation().to_owned(), one.resource().to_owned()));
                people_did(world, one);
            }
            (true, true) => answers.push(one),
            // Our node acknowledges by itself.
            (false, true) => {}
            (false, false) => {
                let mut message = one.message.clone();
                if one.resource().contains("/lease/") && one.content.is_object() {
                    let mut lease = one.content.clone();
                    // The metadata of their API server.
                    let metadata = lease["metadata"].as_object_mut().expect("metadata");
                    metadata.remove("resourceVersion");
                    message.content = Some(crate::cluster::raw(&lease));
                }
                world.send(NODE, message);
            }
        }
        world.pass(100);
    }
    world.pass(10);
    for answer in answers {
        let parent = &*answer.message.header.parent_id;
        let Some(ours) = world.edges[NODE].replies.get(parent) else {
            panic!("{file}: {} is not answered", answer.resource());
        };
        let content: Value =
            serde_json::from_str(ours.content.as_ref().expect("content").get()).expect("JSON");
        let what = format!("{file}: {} {}", answer.operation(), answer.resource());
        assert_eq!(gist(&content), gist(&answer.content), "{what}: {content}");
        assert_eq!(ours.route, answer.message.route, "{what}");
        let versions = [ours, &answer.message].map(|m| m.header.resource_version.is_empty());
        assert_eq!(versions[0], versions[1], "{what}: resourceversion");
    }
    let received = std::mem::take(&mut world.edge(NODE).received);
    let ours: BTreeSet<(String, String)> = received
        .into_iter()
        .filter(|(operation, ..)| operation != "response")
        .map(|(operation, resource, _)| (operation, resource))
        .collect();
    let needed = |resource: &str| resource.contains("/configmap/") || resource.contains("/secret/");
    let needed = |resource: &str| needed(resource) || resource == "membership/detail";
    let foreign = ours.difference(&theirs).filter(|(_, resource)| !needed(resource));
    let foreign: Vec<_> = foreign.collect();
    assert!(foreign.is_empty(), "{file}: only we said {foreign:?}");
    let missing = theirs.difference(&ours).filter(|(operation, _)| operation != "update");
    assert_eq!(missing.count(), 0, "{file}: they said {theirs:?}, we said {ours:?}");
}

/// Makes the change that caused this push of the cloud, unless it was the node's.
fn people_did(world: &mut World, one: &Captured) {
    let kind = kind_of(one.resource()).expect("a kind that is pushed");
    let name = crate::cluster::name_of(kind, &one.content);
    match one.operation() {
        // Its uid comes from our API server.
        _ if kind == Kind::Node => drop(world.cluster.apply(kind, one.content.clone())),
        "delete" => world.cluster.remove(&name),
        _ => world.cluster.force(kind, one.content.clone()),
    }
}

#[test]
fn edgecore_is_served_as_cloudcore_serves_it() {
    let mut world = World::new(3, Cluster::default(), Faults::default());
    world.pass(10);
    world.connect(NODE);
    for file in [
        "00-join",
        "01-idle",
        "02-pod_create",
        "03-pod_update_label",
        "04-pod_update_image",
        "05b-pod_full_first_query",
        "06-configmap_update",
        "12-pod_delete",
    ] {
        replay(&mut world, file);
        assert_eq!(world.controller.counters().messages_refused, 0, "{file}: {:#?}", world.logs);
    }
    assert!(world.session(NODE).is_some());
}
