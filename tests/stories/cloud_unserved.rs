//! Requests that edged does not support.

use edged::model::message::Message;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content};

/// The only answer: its source, group, operation and resource, and its content.
fn answer(cloud: &mut CloudHarness, route: [&str; 4], reported: &Value) -> ([String; 4], Value) {
    let id = cloud.push_to(route, reported);
    let answers: Vec<Message> = cloud.answers(&id);
    assert_eq!(answers.len(), 1, "{route:?}");
    let route = &answers[0].route;
    let route = [&route.source, &route.group, &route.operation, &route.resource];
    (route.map(ToString::to_string), content(&answers[0]))
}

/// The only report of a job, which is no answer: the request has no sender who waits.
fn report(cloud: &mut CloudHarness, route: [&str; 4], asked: &Value) -> ([String; 4], Value) {
    cloud.sent.clear();
    cloud.push_to(route, asked);
    let is_hub = |sent: &&Message| &*sent.route.group == "hub";
    let reports: Vec<&Message> = cloud.sent.iter().filter(is_hub).collect();
    assert_eq!(reports.len(), 1, "{route:?}");
    let route = &reports[0].route;
    let route = [&route.source, &route.group, &route.operation, &route.resource];
    (route.map(ToString::to_string), content(reports[0]))
}

#[cfg(feature = "node-jobs")]
const NO_JOBS: &str = "node jobs are switched off on this node (modules.taskManager.enable of its \
                       edgecore.yaml)";
#[cfg(not(feature = "node-jobs"))]
const NO_JOBS: &str = "not built into edged";

#[test]
fn who_waits_for_an_answer_gets_one() {
    let mut cloud = CloudHarness::new();
    let (_, reported) = answer(&mut cloud, ["edgehub", "resource", "ping", "x"], &json!("hello"));
    assert_eq!(reported, "ack");
    let job = ["taskmanager", "taskmanager", "upgrade", "upgrade/t/node/gw"];
    let (route, reported) = report(&mut cloud, job, &json!({"State": "Upgrading"}));
    assert_eq!(route, ["websocket", "hub", "upgrade", "task/t/node/gw"]);
    assert_eq!((&reported["Event"], &reported["Action"]), (&json!("Upgrade"), &json!("Failure")));
    assert_eq!(reported["Reason"], NO_JOBS);
    let resource = "operations.kubeedge.io/v1alpha2/imageprepulljob/t/node/gw";
    let job = ["taskmanager", "taskmanager", "Check", resource];
    let (route, reported) = report(&mut cloud, job, &json!({}));
    assert_eq!(route, ["websocket", "hub", "UpdateNodeActionStatus", resource]);
    assert_eq!((&reported["action"], &reported["succ"]), (&json!("Check"), &json!(false)));
    assert_eq!(reported["reason"], NO_JOBS);
    let http = ["router_servicebus", "user", "GET", "host/path"];
    let (route, reported) = answer(&mut cloud, http, &json!({"method": "GET"}));
    assert_eq!(route, ["servicebus", "user", "upload", ""]);
    assert_eq!(reported["status_code"], 501);
    let volume = ["cloudhub", "resource", "createvolume", "ns/volume/v"];
    let (route, reported) = answer(&mut cloud, volume, &json!({}));
    assert_eq!((&*route[2], reported), ("response", json!("not built into edged")));
}

#[test]
fn who_waits_for_none_gets_none() {
    let mut cloud = CloudHarness::new();
    for route in [
        ["router_servicebus", "user", "subscribe", "a/topic"],
        ["router_eventbus", "user", "GET", "a/topic"],
        ["devicecontroller", "twin", "update", "device/d/twin"],
    ] {
        let id = cloud.push_to(route, &json!({}));
        cloud.pass(1_000);
        assert_eq!(cloud.answers(&id).len(), 0, "{route:?}");
    }
}

#[test]
fn what_is_about_no_object_is_acknowledged() {
    let mut cloud = CloudHarness::new();
    let id = cloud.push_to(["edgecontroller", "resource", "update", "nothing"], &json!({}));
    assert_eq!(cloud.answers(&id).len(), 1);
}
