//! Conversations captured between the real CloudCore and EdgeCore: we get the
//! cloud's recorded messages, and our answers are compared with EdgeCore's.
//!
//! Intended differences are listed in [`DIFFERENT`], with their reasons.

use std::collections::BTreeSet;

use edged::model::message::Message;
use edged::model::meta::Saved;
use edged::wire::edge;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, patch};

/// Paths below a pod's status that only one side sends, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("qosClass", "given by the API server when the pod was made; nobody patches it"),
    ("containerStatuses/*/volumeMounts", "1.31 and later tell the mounts again; nobody reads them"),
    ("initContainerStatuses/*/volumeMounts", "as above"),
    ("$setElementOrder", "of the patches, not of what they make"),
    (
        "containerStatuses/*/state/waiting",
        "we tell of a pod when it runs, not of each stage before",
    ),
    ("conditions/Ready/reason", "as above"),
    ("conditions/Ready/message", "as above"),
    ("conditions/ContainersReady/reason", "as above"),
    ("conditions/ContainersReady/message", "as above"),
];

struct Captured {
    from_cloud: bool,
    message: Message,
}

fn conversation(file: &str) -> Vec<Captured> {
    let path = format!("{}/tests/golden/edge/{file}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let read = |line: &str| {
        let (direction, json) = line.split_at(2);
        let message = edge::decode(json.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        Captured { from_cloud: direction == "< ", message }
    };
    text.lines().map(read).collect()
}

fn is(message: &Message, operation: &str, kind: &str) -> bool {
    let middle = format!("/{kind}/");
    &*message.route.operation == operation && message.route.resource.contains(&middle)
}

/// Sends the cloud's messages; its answers go to our requests.
fn replay(cloud: &mut CloudHarness, captured: &[Captured]) -> Vec<Message> {
    let mut found = Vec::new();
    for one in captured.iter().filter(|one| one.from_cloud) {
        let mut message = one.message.clone();
        found.append(&mut cloud.sent);
        if !message.header.parent_id.is_empty() {
            let resource = &message.route.resource;
            let question = |requested: &&Message| {
                requested.header.parent_id.is_empty() && requested.route.resource == *resource
            };
            let Some(requested) = found.iter().rev().find(question) else { continue };
            message.header.parent_id = requested.header.id.clone();
        }
        with_our_status(cloud, &mut message);
        cloud.replay(&message);
        cloud.work();
        cloud.pass(1_100);
    }
    found.append(&mut cloud.sent);
    found
}

/// The cloud returns what it received: about our containers, not EdgeCore's.
fn with_our_status(cloud: &CloudHarness, message: &mut Message) {
    if !message.route.resource.contains("/pod") {
        return;
    }
    let mut content = content(message);
    let pod = if content.get("Object").is_some() { &mut content["Object"] } else { &mut content };
    let ours = cloud.harness.agent.pods().find(|ours| pod["metadata"]["uid"] == *ours.metadata.uid);
    let has_run = pod.pointer("/status/containerStatuses").is_some();
    if let Some(ours) = ours.filter(|_| has_run) {
        pod["status"] = serde_json::to_value(&ours.status).expect("JSON");
        message.content = Some(edge::content(&content));
    }
}

/// The cloud's pushes must be acknowledged in the same form.
fn assert_acknowledged(captured: &[Captured], found: &[Message]) {
    let pushes = captured.iter().filter(|one| {
        one.from_cloud && ["insert", "update", "delete"].contains(&&*one.message.route.operation)
    });
    let mut compared = 0;
    for push in pushes {
        let of_it = |message: &&Message| message.header.parent_id == push.message.header.id;
        let ours = found.iter().find(of_it);
        let ours = ours.unwrap_or_else(|| panic!("no answer to {:?}", push.message.route));
        // The answer to the last one came after the end of the capture.
        if let Some(theirs) = theirs(captured).find(of_it) {
            assert_eq!(ours.route, theirs.route);
            assert_eq!(content(ours), content(theirs));
            compared += 1;
        }
    }
    assert!(compared > 0, "nothing was compared");
}

/// The resources of the requests of one kind.
fn requested<'a>(messages: impl Iterator<Item = &'a Message>, kind: &str) -> BTreeSet<String> {
    messages
        .filter(|message| is(message, "query", kind))
        .map(|message| message.route.resource.to_string())
        .collect()
}

/// Lists become maps by the names of their items, so that the paths of two can be compared.
fn places(value: &Value, path: &str, to: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
                places(value, &format!("{path}/{key}"), to);
            }
        }
        Value::Array(list) => {
            for value in list {
                let name = value.get("type").and_then(Value::as_str).unwrap_or("*");
                places(value, &format!("{path}/{name}"), to);
            }
        }
        _ => {
            to.insert(path.trim_start_matches('/').to_owned());
        }
    }
}

fn status_places<'a>(messages: impl Iterator<Item = &'a Message>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for message in messages.filter(|message| is(message, "patch", "podpatch")) {
        places(&patch(message)["status"], "", &mut found);
    }
    let differs = |place: &String| DIFFERENT.iter().any(|(known, _)| place.starts_with(known));
    found.retain(|place| !differs(place));
    found
}

fn theirs(captured: &[Captured]) -> impl Iterator<Item = &Message> {
    captured.iter().filter(|one| !one.from_cloud).map(|one| &one.message)
}

fn joined() -> CloudHarness {
    let mut cloud = CloudHarness::on("edge1", Saved::kept(Vec::new()));
    let images = ["docker.io/library/busybox:1.35", "docker.io/library/busybox:1.35b"];
    cloud.harness.images.extend(images);
    cloud.connect();
    cloud.sent.clear();
    cloud
}

#[test]
fn a_pod_is_created_as_edgecore_creates_it() {
    let captured = conversation("02-pod_create");
    let mut cloud = joined();
    let found = replay(&mut cloud, &captured);
    assert_acknowledged(&captured, &found);
    assert_eq!(cloud.harness.running(), ["c"]);
    let ours = found.iter().find(|message| is(message, "patch", "podpatch")).expect("a report");
    let first = theirs(&captured).find(|message| is(message, "patch", "podpatch"));
    assert_eq!(ours.route, first.expect("a report").route);
    assert_eq!(status_places(found.iter()), status_places(theirs(&captured)));
    let report = |message: &&Message| is(message, "patch", "podpatch");
    let ours = found.iter().filter(report).count();
    let theirs = theirs(&captured).filter(report).count();
    assert!(ours <= theirs, "got {ours} reports, EdgeCore made {theirs}");
}

#[test]
fn a_pod_with_everything_asks_for_what_edgecore_asks_for() {
    let captured = conversation("05b-pod_full_first_query");
    let mut cloud = joined();
    let found = replay(&mut cloud, &captured);
    assert_acknowledged(&captured, &found);
    for kind in ["configmap", "secret", "serviceaccounttoken"] {
        assert_eq!(requested(found.iter(), kind), requested(theirs(&captured), kind), "{kind}");
    }
    let token = |message: &&Message| is(message, "query", "serviceaccounttoken");
    let ours = found.iter().find(token).expect("a question");
    let theirs = theirs(&captured).find(token).expect("a question");
    assert_eq!(content(ours), content(theirs));
    // An answer with an object is acknowledged.
    let objects = captured.iter().filter(|one| {
        let brings = content(&one.message).get("metadata").is_some();
        one.from_cloud && brings && is(&one.message, "response", "configmap")
    });
    for answer in objects {
        let of_it = |message: &Message| message.header.parent_id == answer.message.header.id;
        assert!(found.iter().any(of_it), "{:?}", answer.message.route);
    }
    let pod = cloud.harness.agent.pods().next().expect("one");
    let reason = pod.status.reason.clone();
    assert_eq!(reason, "", "{:?}", pod.status.message);
}

#[test]
fn a_changed_configmap_and_secret_are_taken_as_edgecore_takes_them() {
    let captured = conversation("06-configmap_update");
    let mut cloud = joined();
    let found = replay(&mut cloud, &captured);
    assert_acknowledged(&captured, &found);
}

#[test]
fn a_pod_is_deleted_as_edgecore_deletes_it() {
    let captured = conversation("12-pod_delete");
    let mut cloud = joined();
    // It ran before that conversation began.
    let mut before = captured[0].message.clone();
    let mut pod = content(&before);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        pod["metadata"].as_object_mut().expect("a map").remove(field);
    }
    pod["metadata"]["resourceVersion"] = json!("1");
    before.header.resource_version = "1".into();
    before.content = Some(edge::content(&pod));
    cloud.replay(&before);
    cloud.work();
    cloud.pass(1_100);
    let report = cloud.take_sent("podpatch").pop().expect("a report");
    let ours = cloud.harness.agent.pods().next().expect("one");
    pod["status"] = serde_json::to_value(&ours.status).expect("JSON");
    cloud.answer(&report, &json!({"Object": pod, "Err": null}));
    cloud.sent.clear();
    let found = replay(&mut cloud, &captured);
    assert_acknowledged(&captured, &found);
    let deletion = |message: &&Message| is(message, "delete", "pod");
    let ours: Vec<&Message> = found.iter().filter(deletion).collect();
    let theirs: Vec<&Message> = theirs(&captured).filter(deletion).collect();
    assert_eq!(ours.len(), theirs.len());
    assert_eq!(ours[0].route, theirs[0].route);
    assert_eq!(content(ours[0]), content(theirs[0]));
    let at = |operation, kind| found.iter().position(|message| is(message, operation, kind));
    assert!(at("patch", "podpatch") < at("delete", "pod"), "first the status, then the deletion");
    assert_eq!(cloud.harness.agent.pods().count(), 0);
}
