//! What becomes of what nodes report of their devices.

use edged::limits::{
    DEVICE_CALLS_MAX, DEVICE_KIND_MS, DEVICE_KIND_RETRY_MS, DEVICE_RETRY_MAX_MS,
    DEVICE_RETRY_MIN_MS, DEVICE_WAITING_MAX, DEVICE_WRITE_MS,
};
use edged::model::api::{Kind, Verb};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::devices::{device, is_confirmed, model, name, with_device};
use crate::world::{Faults, World};
use crate::{listed, node, received};

/// A node reports the value of a property, in a version.
pub(crate) fn report(
    world: &mut World,
    node: &str,
    resource: &str,
    (property, value, edge): (&str, &str, i64),
) -> String {
    let at = 1_800_000_000_000_i64 + edge;
    let twin = json!({"actual": {"value": value, "metadata": {"timestamp": at}},
        "optional": true, "metadata": {"type": "int"},
        "actual_version": {"cloud": 0, "edge": edge}});
    let content = json!({"event_id": "e", "timestamp": at, "twin": {property: twin}});
    let message = world.edge(node).twin("update", resource, &content);
    world.send(node, message)
}

pub(crate) const D: &str = "device/n/d/twin/edge_updated";

/// The recorded value of a property; empty: none.
pub(crate) fn recorded(world: &World, device: &str, property: &str) -> String {
    let status = world.cluster.objects.get(&name(Kind::DeviceStatus, device));
    let twins = status.and_then(|status| status["status"]["twins"].as_array());
    let mut twins = twins.into_iter().flatten();
    let twin = twins.find(|twin| twin["propertyName"] == property);
    let value = twin.and_then(|twin| twin["reported"]["value"].as_str());
    value.unwrap_or_default().to_owned()
}

fn writes(world: &World) -> usize {
    let of_devices = world.calls.iter().filter(|call| {
        matches!(call.kind, Kind::DeviceStatus | Kind::Device)
            && !matches!(call.verb, Verb::Get | Verb::List)
    });
    of_devices.count()
}

#[test]
fn the_first_value_is_recorded_and_then_confirmed() {
    let mut world = with_device();
    let id = report(&mut world, "e1", D, ("temp", "21", 1));
    world.pass(100);
    assert!(is_confirmed(&mut world, "e1", &id));
    let status = &world.cluster.objects[&name(Kind::DeviceStatus, "d")];
    let device = &world.cluster.objects[&name(Kind::Device, "d")];
    assert_eq!(status["metadata"]["ownerReferences"][0]["uid"], device["metadata"]["uid"]);
    let metadata = json!({"timestamp": "1800000000001", "type": "int", "version": "0.1",
        "node": "e1"});
    let twin = json!({"propertyName": "temp", "reported": {"value": "21", "metadata": metadata}});
    assert_eq!(status["status"]["twins"], json!([twin]));
    let text = json!({"event_id": "e", "timestamp": 2, "device": {"name": "d", "state": "online",
        "lastOnlineTime": "2027-01-15T08:00:00Z"}});
    let message =
        world.edge("e1").twin("update", "device/n/d/state/update", &json!(text.to_string()));
    let id = world.send("e1", message);
    world.pass(DEVICE_WRITE_MS);
    assert!(is_confirmed(&mut world, "e1", &id));
    let status = &world.cluster.objects[&name(Kind::DeviceStatus, "d")]["status"];
    assert_eq!((&status["state"], &status["twins"]), (&json!("online"), &json!([twin])));
    received(&mut world, "e1");
    world.pass(20_000);
    assert!(received(&mut world, "e1").is_empty(), "it is no news for the node");
    let counters = world.controller.counters();
    assert_eq!((counters.device_reports, counters.device_writes), (2, 2));
}

/// A Node was deleted while its node was away, and a device that it had was moved or deleted: the
/// node still has it, and nothing says so but its reports.
#[test]
fn a_device_that_a_node_still_has_without_a_record_is_removed_from_it() {
    let mut world = with_device();
    world.connect("e2");
    world.pass(100);
    let version = world.cluster.objects[&name(Kind::Device, "d")]["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .to_owned();
    for (resource, object) in [(D, "d"), ("device/n/gone/twin/edge_updated", "gone")] {
        received(&mut world, "e2");
        let id = report(&mut world, "e2", resource, ("temp", "21", 1));
        world.pass(100);
        let messages = std::mem::take(&mut world.edge("e2").messages);
        let removed = messages.iter().find(|message| &*message.route.operation == "delete");
        let removed = removed.expect("the node is told");
        assert_eq!(&*removed.route.resource, format!("n/device/{object}"));
        assert_eq!(&*removed.route.source, "devicecontroller");
        let content = removed.content.as_ref().expect("content").get();
        let content: Value = serde_json::from_str(content).expect("JSON");
        assert_eq!(
            content["metadata"],
            json!({"name": object, "namespace": "n", "uid": "", "resourceVersion": version}),
            "whichever it is, and it may come again"
        );
        let is_answer =
            |message: &&edged::model::message::Message| *message.header.parent_id == *id;
        assert!(messages.iter().any(|it| is_answer(&it)), "the report is confirmed");
    }
    // It has moved here, by another replica's word, and the watch is behind.
    world.late.push(Kind::Device);
    world.cluster.apply(Kind::Device, device("d", "e2", ""));
    received(&mut world, "e2");
    report(&mut world, "e2", D, ("temp", "21", 2));
    world.pass(2 * DEVICE_WRITE_MS);
    assert!(received(&mut world, "e2").iter().all(|it| !it.starts_with("delete")));
}

#[test]
fn a_device_that_comes_to_a_node_while_it_is_looked_up_stays() {
    let mut world = with_device();
    world.connect("e2");
    world.pass(100);
    world.answers_after_ms = 1_000;
    report(&mut world, "e2", D, ("temp", "21", 1));
    world.pass(500);
    world.cluster.apply(Kind::Device, device("d", "e2", "m"));
    received(&mut world, "e2");
    // The answer is that it is of another node.
    world.pass(20_000);
    let told = received(&mut world, "e2");
    assert!(told.contains(&"insert n/device/d".to_owned()), "{told:?}");
    assert!(told.iter().all(|it| !it.starts_with("delete")), "{told:?}");
}

#[test]
fn an_api_server_without_devices_takes_none_from_a_node() {
    let mut cluster = Cluster::default();
    cluster.apply(Kind::Node, node("e1"));
    cluster.unserved = vec![Kind::Device, Kind::DeviceModel, Kind::DeviceStatus];
    let mut world = World::new(7, cluster, Faults::default());
    world.pass(100);
    world.connect("e1");
    world.pass(100);
    received(&mut world, "e1");
    let id = report(&mut world, "e1", D, ("temp", "21", 1));
    world.pass(100);
    assert!(is_confirmed(&mut world, "e1", &id));
    let told = received(&mut world, "e1");
    assert!(told.iter().all(|it| !it.starts_with("delete")), "{told:?}");
}

/// A node reports a state, at this time of its clock.
fn report_state(world: &mut World, state: &str, at: i64) -> String {
    let text = json!({"event_id": "e", "timestamp": at, "device": {"name": "d", "state": state}});
    let message =
        world.edge("e1").twin("update", "device/n/d/state/update", &json!(text.to_string()));
    world.send("e1", message)
}

fn recorded_state(world: &World) -> String {
    let status = &world.cluster.objects[&name(Kind::DeviceStatus, "d")];
    status["status"]["state"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn after_a_restart_a_state_is_not_replaced_by_one_that_was_reported_before_it() {
    let mut world = with_device();
    report_state(&mut world, "online", 20);
    world.pass(DEVICE_WRITE_MS);
    world.crash();
    world.pass(20_000);
    world.connect("e1");
    world.pass(1_000);
    let id = report_state(&mut world, "offline", 19);
    world.pass(DEVICE_WRITE_MS);
    assert!(is_confirmed(&mut world, "e1", &id), "the node must not send it for ever");
    assert_eq!(recorded_state(&world), "online");
    report_state(&mut world, "unknown", 21);
    world.pass(2 * DEVICE_WRITE_MS);
    assert_eq!(recorded_state(&world), "unknown");
}

#[test]
fn nothing_is_confirmed_before_it_is_written() {
    let mut world = with_device();
    world.forbidden = vec![(Kind::DeviceStatus, "d".to_owned(), 500)];
    let id = report(&mut world, "e1", D, ("temp", "21", 1));
    world.pass(500);
    assert!(!is_confirmed(&mut world, "e1", &id));
    // Others are not held up.
    world.cluster.apply(Kind::Device, device("other", "e1", ""));
    world.pass(10);
    let resource = "device/n/other/twin/edge_updated";
    let other = report(&mut world, "e1", resource, ("rpm", "1", 1));
    world.pass(100);
    assert!(is_confirmed(&mut world, "e1", &other));
    world.forbidden.clear();
    world.pass(DEVICE_RETRY_MIN_MS);
    assert!(is_confirmed(&mut world, "e1", &id));
    assert_eq!(recorded(&world, "d", "temp"), "21");
}

/// Writes a status with the value 9, of a device with this uid.
fn write_status(world: &mut World, uid: &Value) {
    let owner = json!({"kind": "Device", "name": "d", "uid": uid});
    let twin = json!({"propertyName": "temp", "reported": {"value": "9", "metadata": {}}});
    let status = json!({"metadata": {"name": "d", "namespace": "n", "ownerReferences": [owner]},
        "status": {"twins": [twin]}});
    world.cluster.apply(Kind::DeviceStatus, status);
}

#[test]
fn the_status_of_a_device_that_is_not_known_yet_is_not_replaced() {
    let mut world = with_device();
    // The device is made anew for another node, which another replica serves.
    world.late = vec![Kind::Device];
    world.cluster.remove(&name(Kind::Device, "d"));
    let made = world.cluster.apply(Kind::Device, device("d", "e2", "m"));
    write_status(&mut world, &made["metadata"]["uid"]);
    let id = report(&mut world, "e1", D, ("temp", "21", 1));
    world.pass(3 * DEVICE_RETRY_MIN_MS);
    assert_eq!((recorded(&world, "d", "temp").as_str(), writes(&world)), ("9", 0));
    assert!(!is_confirmed(&mut world, "e1", &id));
    world.late.clear();
    world.pass(DEVICE_RETRY_MAX_MS);
    assert!(is_confirmed(&mut world, "e1", &id), "the node has no such device any more");
    assert_eq!((recorded(&world, "d", "temp").as_str(), writes(&world)), ("9", 0));
}

#[test]
fn a_value_of_the_former_node_does_not_replace_that_of_the_new_one() {
    let mut world = with_device();
    report(&mut world, "e1", D, ("temp", "20", 1));
    world.pass(100);
    // Another replica serves the new node, and we do not know of it yet.
    world.late = vec![Kind::Device];
    let moved = world.cluster.apply(Kind::Device, device("d", "e2", "m"));
    let mut status = world.cluster.objects[&name(Kind::DeviceStatus, "d")].clone();
    status["metadata"]["annotations"]["edged.io/device-resource-version"] =
        moved["metadata"]["resourceVersion"].clone();
    status["status"]["twins"][0]["reported"]["value"] = json!("9");
    world.cluster.apply(Kind::DeviceStatus, status);
    let id = report(&mut world, "e1", D, ("temp", "21", 2));
    world.pass(2 * DEVICE_WRITE_MS);
    assert_eq!(recorded(&world, "d", "temp"), "9");
    assert!(!is_confirmed(&mut world, "e1", &id));
    world.late.clear();
    world.pass(DEVICE_RETRY_MAX_MS);
    assert!(is_confirmed(&mut world, "e1", &id), "it is not the node's any more");
    assert_eq!(recorded(&world, "d", "temp"), "9");
    world.connect("e2");
    world.pass(100);
    report(&mut world, "e2", D, ("temp", "22", 1));
    world.pass(2 * DEVICE_WRITE_MS);
    assert_eq!(recorded(&world, "d", "temp"), "22");
}

#[test]
fn the_status_of_an_earlier_device_is_replaced_however_late_it_was_written() {
    let mut world = with_device();
    // Another replica did not know yet that the earlier device was gone.
    write_status(&mut world, &json!("earlier"));
    world.forbidden = vec![(Kind::Device, "d".to_owned(), 500)];
    let id = report(&mut world, "e1", D, ("temp", "21", 1));
    world.pass(100);
    assert!(!is_confirmed(&mut world, "e1", &id), "it may be the later one");
    world.forbidden.clear();
    world.pass(DEVICE_RETRY_MIN_MS);
    assert!(is_confirmed(&mut world, "e1", &id));
    assert_eq!(recorded(&world, "d", "temp"), "21");
    let status = &world.cluster.objects[&name(Kind::DeviceStatus, "d")];
    let device = &world.cluster.objects[&name(Kind::Device, "d")];
    assert_eq!(status["metadata"]["ownerReferences"][0]["uid"], device["metadata"]["uid"]);
    report(&mut world, "e1", D, ("temp", "22", 2));
    world.pass(2 * DEVICE_WRITE_MS);
    assert_eq!(recorded(&world, "d", "temp"), "22");
    let reads = world.calls.iter().filter(|call| call.kind == Kind::Device);
    assert_eq!(reads.count(), 2, "it is its own now");
}

#[test]
fn failed_writes_back_off_up_to_a_bound() {
    let mut world = with_device();
    world.forbidden = vec![(Kind::DeviceStatus, "d".to_owned(), 500)];
    report(&mut world, "e1", D, ("temp", "21", 1));
    world.pass(10);
    let tries = |world: &World| {
        world
            .calls
            .iter()
            .filter(|call| call.kind == Kind::DeviceStatus && &*call.name == "d")
            .count()
    };
    let mut delay_ms = DEVICE_RETRY_MIN_MS;
    for n in 0..9 {
        let before = tries(&world);
        world.pass(delay_ms - 100);
        assert_eq!(tries(&world), before, "{n}: not before");
        world.pass(100);
        assert_eq!(tries(&world), before + 1, "{n}");
        delay_ms = (delay_ms * 2).min(DEVICE_RETRY_MAX_MS);
    }
}

#[test]
fn many_reports_are_one_write_in_a_second_and_all_are_confirmed() {
    let mut world = with_device();
    report(&mut world, "e1", D, ("temp", "0", 1));
    world.pass(100);
    let before = writes(&world);
    let mut sent = Vec::new();
    for value in 1..=50 {
        sent.push(report(&mut world, "e1", D, ("temp", &value.to_string(), value + 1)));
        sent.push(report(&mut world, "e1", D, ("rpm", &value.to_string(), value + 1)));
        world.pass(10);
    }
    assert_eq!(writes(&world), before);
    world.pass(DEVICE_WRITE_MS);
    assert_eq!(writes(&world), before + 1);
    assert_eq!(recorded(&world, "d", "temp"), "50");
    assert_eq!(recorded(&world, "d", "rpm"), "50");
    for id in &sent {
        assert!(is_confirmed(&mut world, "e1", id), "{id}");
    }
    // What is recorded is not written again, and confirmed at once.
    let again = report(&mut world, "e1", D, ("temp", "50", 51));
    world.pass(2 * DEVICE_WRITE_MS);
    assert_eq!(writes(&world), before + 1);
    assert!(is_confirmed(&mut world, "e1", &again));
}

#[test]
fn a_report_that_is_sent_again_after_a_newer_one_changes_nothing() {
    for is_new_life in [false, true] {
        let mut world = with_device();
        report(&mut world, "e1", D, ("temp", "newer", 7));
        world.pass(100);
        if is_new_life {
            world.crash();
            world.pass(100);
            world.connect("e1");
            world.pass(100);
        }
        let id = report(&mut world, "e1", D, ("temp", "older", 6));
        world.pass(2 * DEVICE_WRITE_MS);
        assert_eq!(recorded(&world, "d", "temp"), "newer", "{is_new_life}");
        assert!(is_confirmed(&mut world, "e1", &id), "it is not to be sent again");
        // Both in one second.
        report(&mut world, "e1", D, ("temp", "third", 9));
        report(&mut world, "e1", D, ("temp", "second", 8));
        world.pass(2 * DEVICE_WRITE_MS);
        assert_eq!(recorded(&world, "d", "temp"), "third", "{is_new_life}");
    }
}

#[test]
fn a_report_of_a_device_that_the_node_does_not_have_is_confirmed_and_ignored() {
    let mut world = with_device();
    let foreign = report(&mut world, "e2", D, ("temp", "7", 1));
    let resource = "device/n/none/twin/edge_updated";
    let unknown = report(&mut world, "e1", resource, ("temp", "7", 1));
    let property = report(&mut world, "e1", D, ("no-property", "7", 1));
    let message = world.edge("e1").twin("update", D, &json!({"twin": 7}));
    let invalid = world.send("e1", message);
    let message = world.edge("e1").twin("update", "device/n/d/what", &json!({}));
    let strange = world.send("e1", message);
    world.pass(2 * DEVICE_WRITE_MS);
    assert!(is_confirmed(&mut world, "e2", &foreign));
    for id in [unknown, property, invalid, strange] {
        assert!(is_confirmed(&mut world, "e1", &id), "{id}");
    }
    assert_eq!(writes(&world), 0);
    let counters = world.controller.counters();
    assert_eq!((counters.device_reports_ignored, counters.messages_refused), (2, 1));
}

#[test]
fn a_device_that_was_listed_before_its_node_came_can_be_reported_of_at_once() {
    let mut world =
        listed(&[(Kind::DeviceModel, model("m", "100")), (Kind::Device, device("d", "e1", "m"))]);
    // Nothing has to be fetched.
    world.forbidden = vec![(Kind::Device, "d".to_owned(), 500)];
    world.connect("e1");
    let id = report(&mut world, "e1", D, ("temp", "7", 1));
    world.pass(2 * DEVICE_WRITE_MS);
    assert!(is_confirmed(&mut world, "e1", &id));
    assert_eq!(recorded(&world, "d", "temp"), "7");
}

#[test]
fn what_a_moved_device_had_to_report_is_confirmed_and_its_new_node_reports() {
    let mut world = with_device();
    world.forbidden = vec![(Kind::DeviceStatus, "d".to_owned(), 500)];
    let id = report(&mut world, "e1", D, ("temp", "old", 9));
    world.pass(100);
    world.cluster.apply(Kind::Device, device("d", "e2", "m"));
    world.forbidden.clear();
    world.pass(100);
    assert!(is_confirmed(&mut world, "e1", &id));
    let id = report(&mut world, "e2", D, ("temp", "new", 1));
    world.pass(2 * DEVICE_WRITE_MS);
    assert!(is_confirmed(&mut world, "e2", &id));
    assert_eq!(recorded(&world, "d", "temp"), "new");
}

/// The clock of its first node was ahead, or a replica that did not know of the move was late.
#[test]
fn a_value_of_the_node_that_has_a_device_replaces_a_later_one_of_another_node() {
    let mut world = with_device();
    report(&mut world, "e1", D, ("temp", "old", 9));
    world.pass(2 * DEVICE_WRITE_MS);
    assert_eq!(recorded(&world, "d", "temp"), "old");
    world.cluster.apply(Kind::Device, device("d", "e2", "m"));
    world.pass(100);
    let id = report(&mut world, "e2", D, ("temp", "new", 2));
    world.pass(2 * DEVICE_WRITE_MS);
    assert!(is_confirmed(&mut world, "e2", &id));
    assert_eq!(recorded(&world, "d", "temp"), "new");
    // Of one node the later one stays.
    report(&mut world, "e2", D, ("temp", "before", 1));
    world.pass(2 * DEVICE_WRITE_MS);
    assert_eq!(recorded(&world, "d", "temp"), "new");
}

#[test]
fn what_others_write_into_a_status_stays() {
    let mut world = with_device();
    report(&mut world, "e1", D, ("temp", "1", 1));
    world.pass(100);
    let mut status = world.cluster.objects[&name(Kind::DeviceStatus, "d")].clone();
    status["status"]["extensions"] = json!({"a": 1});
    status["status"]["twins"][0]["more"] = json!("x");
    world.cluster.apply(Kind::DeviceStatus, status);
    report(&mut world, "e1", D, ("temp", "2", 2));
    // The first write is refused, because the object has changed.
    world.pass(4 * DEVICE_WRITE_MS);
    let status = &world.cluster.objects[&name(Kind::DeviceStatus, "d")]["status"];
    assert_eq!(status["extensions"], json!({"a": 1}));
    assert_eq!(status["twins"][0]["more"], "x");
    assert_eq!(recorded(&world, "d", "temp"), "2");
    // Somebody deletes it.
    world.cluster.remove(&name(Kind::DeviceStatus, "d"));
    report(&mut world, "e1", D, ("temp", "3", 3));
    world.pass(4 * DEVICE_WRITE_MS);
    assert_eq!(recorded(&world, "d", "temp"), "3");
}

#[test]
fn up_to_kubeedge_1_22_the_status_is_the_devices_own_and_no_news() {
    let mut world = with_device();
    world.cluster.unserved = vec![Kind::DeviceStatus];
    received(&mut world, "e1");
    report(&mut world, "e1", D, ("temp", "21", 1));
    world.pass(100);
    let twin = &world.cluster.objects[&name(Kind::Device, "d")]["status"]["twins"][0];
    assert_eq!(twin["reported"]["value"], "21");
    world.pass(20_000);
    let told = received(&mut world, "e1");
    assert_eq!(told, ["response twin"], "its own report does not come back");
    let version = world.cluster.objects[&name(Kind::Device, "d")]["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok());
    let records = world.records("e1");
    let record = records.iter().find(|(kind, ..)| *kind == Kind::Device).expect("a record");
    assert_eq!(Some(record.3), version, "it counts as acknowledged");
    // The kind is installed later.
    world.cluster.unserved.clear();
    for _ in 0..DEVICE_KIND_MS / 10_000 {
        let sign = world.edge("e1").keepalive();
        if world.session("e1").is_some() {
            world.send("e1", sign);
        } else {
            world.connect("e1");
        }
        world.pass(10_000);
    }
    world.connect("e1");
    report(&mut world, "e1", D, ("temp", "22", 2));
    world.pass(2 * DEVICE_WRITE_MS);
    report(&mut world, "e1", D, ("temp", "23", 3));
    world.pass(2 * DEVICE_WRITE_MS);
    assert_eq!(recorded(&world, "d", "temp"), "23");
}

#[test]
fn a_missing_permission_is_one_line_with_the_verb_and_the_kind() {
    let mut world = with_device();
    world.forbidden = vec![(Kind::DeviceStatus, "d".to_owned(), 403)];
    let id = report(&mut world, "e1", D, ("temp", "21", 1));
    world.pass(20_000);
    let lines = |world: &World| -> Vec<String> {
        world.logs.iter().filter(|line| line.starts_with("devices: ")).cloned().collect()
    };
    let all = lines(&world);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].contains("refuses to get devicestatuses"), "{all:?}");
    world.forbidden.clear();
    world.pass(DEVICE_RETRY_MAX_MS);
    assert_eq!(recorded(&world, "d", "temp"), "21");
    let _ = id;
    // Those may not even be listed: the status of the device has to do.
    let mut world = with_device();
    world.forbidden = vec![(Kind::DeviceStatus, String::new(), 403)];
    report(&mut world, "e1", D, ("temp", "21", 1));
    world.pass(1_000);
    let all = lines(&world);
    assert!(all[0].contains("refuses to list devicestatuses"), "{all:?}");
    let twin = &world.cluster.objects[&name(Kind::Device, "d")]["status"]["twins"][0];
    assert_eq!(twin["reported"]["value"], "21");
}

#[test]
fn where_statuses_are_written_is_asked_again_after_a_failure() {
    let mut world = with_device();
    world.forbidden = vec![(Kind::DeviceStatus, String::new(), 500)];
    report(&mut world, "e1", D, ("temp", "21", 1));
    world.pass(DEVICE_KIND_RETRY_MS - 100);
    world.forbidden.clear();
    assert_eq!(world.calls.iter().filter(|call| call.verb == Verb::List).count(), 1);
    world.pass(200);
    assert_eq!(recorded(&world, "d", "temp"), "21");
}

#[test]
fn messages_that_wait_and_calls_have_bounds() {
    let mut world = with_device();
    world.forbidden = vec![(Kind::DeviceStatus, "d".to_owned(), 500)];
    let sent: Vec<String> = (1..=DEVICE_WAITING_MAX as i64 + 1)
        .map(|at| report(&mut world, "e1", D, ("temp", &at.to_string(), at)))
        .collect();
    world.pass(100);
    world.forbidden.clear();
    world.pass(DEVICE_RETRY_MAX_MS);
    let confirmed = sent.iter().filter(|id| is_confirmed(&mut world, "e1", id)).count();
    assert_eq!(confirmed, DEVICE_WAITING_MAX);
    assert!(!is_confirmed(&mut world, "e1", &sent[0]), "the oldest is sent again by the node");
    assert_eq!(recorded(&world, "d", "temp"), sent.len().to_string());
    // Many devices at once.
    let mut world = with_device();
    let count = DEVICE_CALLS_MAX + 5;
    for at in 0..count {
        world.cluster.apply(Kind::Device, device(&format!("d{at}"), "e1", ""));
    }
    world.pass(1_000);
    world.faults.delay_ms = 1_000;
    for at in 0..count {
        let resource = format!("device/n/d{at}/twin/edge_updated");
        report(&mut world, "e1", &resource, ("temp", "1", 1));
    }
    for _ in 0..200 {
        world.pass(50);
        assert!(world.controller.counters().calls <= DEVICE_CALLS_MAX + 1);
    }
    for at in 0..count {
        assert_eq!(recorded(&world, &format!("d{at}"), "temp"), "1", "{at}");
    }
}
