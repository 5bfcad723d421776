//! Lost nodes, and their pods.

use super::*;
use crate::controller::time::Instant;
use crate::limits::{
    NODE_MONITOR_AWAY_MS, NODE_MONITOR_GRACE_MS, NODE_MONITOR_LINES_MAX, NODE_MONITOR_MS,
    NODE_MONITOR_PER_TURN, NODE_STARTUP_GRACE_MS,
};

const START: Instant = Instant(1_000);

/// A node with a pod, both ready, and a controller that has just started.
fn ready() -> Objects {
    let mut objects = objects();
    let conditions = json!([{"type": "Ready", "status": "True"}, {"type": "DiskPressure",
        "status": "False"}]);
    let node = json!({"metadata": {"labels": {EDGE_LABEL: ""}},
        "status": {"conditions": conditions}});
    value(objects.call(&call(Verb::Create, Kind::Node, "gw", &node), NOW));
    value(objects.call(&call(Verb::Create, Kind::Pod, "web", &pod("gw", "a:1")), NOW));
    let status = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}]}});
    let mut patch = call(Verb::Patch(PatchType::Strategic), Kind::Pod, "web", &status);
    patch.subresource = Some(Subresource::Status);
    value(objects.call(&patch, NOW));
    assert_eq!(run(&mut objects, START, START), NOTHING);
    objects.take_changes();
    objects
}

const NOTHING: [String; 0] = [];

/// Calls the monitor whenever it is due, up to this moment.
fn run(objects: &mut Objects, from: Instant, to: Instant) -> Vec<String> {
    let mut lines = Vec::new();
    let mut now = from;
    while now <= to {
        lines.extend(objects.monitor(now, NOW));
        now = objects.monitor_at().max(now.plus_ms(1));
    }
    lines
}

fn condition(objects: &Objects, kind: Kind, name: &str, condition: &str) -> Value {
    let object = objects.value(&key(kind, name)).expect("it is there");
    let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    list.into_iter().find(|it| it["type"] == condition).unwrap_or_default()
}

fn at(ms: u64) -> Instant {
    START.plus_ms(ms)
}

#[test]
fn a_node_without_heartbeats_is_unknown_and_its_pods_are_not_ready() {
    let mut objects = ready();
    objects.node_heartbeat("gw", at(70_000));
    let end = at(70_000 + NODE_MONITOR_GRACE_MS - 1);
    assert_eq!(run(&mut objects, at(5_000), end), NOTHING);
    assert!(objects.take_changes().is_empty());
    let lines = run(&mut objects, end, end.plus_ms(NODE_MONITOR_MS));
    assert_eq!(lines, ["node=gw: no sign of life for 40 s: its state is unknown"]);
    for kind in ["Ready", "DiskPressure", "MemoryPressure", "PIDPressure"] {
        assert_eq!(condition(&objects, Kind::Node, "gw", kind)["status"], "Unknown", "{kind}");
    }
    let ready = condition(&objects, Kind::Node, "gw", "Ready");
    assert_eq!(ready["reason"], "NodeStatusUnknown");
    assert_eq!(ready["lastTransitionTime"], "2027-01-15T08:00:00Z");
    let reason = &condition(&objects, Kind::Node, "gw", "PIDPressure")["reason"];
    assert_eq!(reason, "NodeStatusNeverUpdated");
    let pod = condition(&objects, Kind::Pod, "web", "Ready");
    assert_eq!((&pod["status"], &pod["reason"]), (&json!("False"), &json!("NodeNotReady")));
    assert_eq!(condition(&objects, Kind::Pod, "web", "ContainersReady")["status"], "True");
    objects.take_changes();
    let later = end.plus_ms(600_000);
    assert_eq!(run(&mut objects, end.plus_ms(NODE_MONITOR_MS), later), NOTHING, "said once");
    assert!(objects.take_changes().is_empty(), "and written once");
}

#[test]
fn pods_of_a_node_that_is_back_are_as_their_containers_are() {
    let mut objects = ready();
    run(&mut objects, at(5_000), at(120_000));
    let rows = objects.rows.iter().map(|(key, object)| (key.clone(), object.row.clone())).collect();
    // Even if the controller restarted meanwhile.
    let next = Objects::load(rows, 9_000, 8);
    for mut objects in [objects, next] {
        assert_eq!(condition(&objects, Kind::Pod, "web", "Ready")["status"], "False");
        run(&mut objects, at(120_000), at(120_000));
        objects.node_heartbeat("gw", at(121_000));
        run(&mut objects, at(125_000), at(126_000));
        let pod = condition(&objects, Kind::Pod, "web", "Ready");
        assert_eq!((&pod["status"], pod.get("reason")), (&json!("True"), None));
        let node = condition(&objects, Kind::Node, "gw", "Ready");
        assert_eq!(node["status"], "Unknown", "that is the node's to say");
    }
}

#[test]
fn nodes_have_time_after_our_start_and_where_we_stood_still() {
    let mut objects = ready();
    let lines = run(&mut objects, at(5_000), at(NODE_STARTUP_GRACE_MS - 1));
    assert_eq!(lines, NOTHING);
    // For example after a suspend: no heartbeat could arrive.
    let woken = at(NODE_STARTUP_GRACE_MS + 3_600_000);
    assert_eq!(run(&mut objects, woken, woken.plus_ms(NODE_STARTUP_GRACE_MS - 1)), NOTHING);
    let lines = run(&mut objects, woken, woken.plus_ms(NODE_STARTUP_GRACE_MS + NODE_MONITOR_MS));
    assert_eq!(lines.len(), 1);
}

#[test]
fn who_looked_late_stood_still_from_a_bound_on() {
    for (ms, lost) in [(NODE_MONITOR_AWAY_MS - 1, 1), (NODE_MONITOR_AWAY_MS, 0)] {
        let mut objects = ready();
        objects.node_heartbeat("gw", at(70_000));
        assert_eq!(run(&mut objects, at(5_000), at(70_000)), NOTHING);
        let end = at(70_000 + NODE_MONITOR_GRACE_MS + NODE_MONITOR_MS);
        assert_eq!(run(&mut objects, at(70_000 + ms), end).len(), lost, "{ms}");
    }
}

#[test]
fn many_are_marked_some_in_each_turn_and_some_are_named() {
    let mut objects = objects();
    let count = 2 * NODE_MONITOR_PER_TURN;
    for number in 0..count {
        let name = format!("gw-{number}");
        let node = json!({"metadata": {"labels": {EDGE_LABEL: ""}}, "status": "x"});
        value(objects.call(&call(Verb::Create, Kind::Node, &name, &node), NOW));
    }
    run(&mut objects, START, at(NODE_STARTUP_GRACE_MS - 1));
    objects.take_changes();
    let end = at(NODE_STARTUP_GRACE_MS + NODE_MONITOR_MS);
    let lines = objects.monitor(end, NOW);
    assert_eq!(lines.len(), NODE_MONITOR_LINES_MAX + 1);
    assert_eq!(objects.take_changes().len(), NODE_MONITOR_PER_TURN);
    assert_eq!(objects.monitor_at(), Instant(0), "there is more to do");
    assert_eq!(objects.monitor(end, NOW), NOTHING);
    assert_eq!(objects.take_changes().len(), count - NODE_MONITOR_PER_TURN);
}

#[test]
fn a_pod_that_waits_for_a_node_that_is_no_more_goes() {
    let mut objects = ready();
    let mut mirror = pod("gw", "a:1");
    mirror["metadata"] = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
    value(objects.call(&call(Verb::Create, Kind::Pod, "shown", &mirror), NOW));
    value(objects.call(&call(Verb::Create, Kind::Pod, "kept", &pod("gw", "a:1")), NOW));
    let delete = |kind: Kind, name: &str| call(Verb::Delete, kind, name, &Value::Null);
    value(objects.call(&delete(Kind::Pod, "web"), NOW));
    value(objects.call(&delete(Kind::Node, "gw"), NOW));
    run(&mut objects, at(5_000), at(10_000));
    let left: Vec<&str> = objects.rows.keys().map(|key| &*key.name).collect();
    assert_eq!(left, ["kept"]);
}
