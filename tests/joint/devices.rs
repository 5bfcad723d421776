//! What clients report of devices, and what the API server has of it.

use edged::agent::event::{DeviceEvent, Event};
use edged::limits::DEVICE_WRITE_MS;
use edged::model::api::Kind;
use edged::model::device::{ClientContent, ClientRequest, DeviceId, PropertyUpdate};
use serde_json::{Value, json};

use crate::joint::{Joint, NODE, name};
use crate::stories::EACH;

fn device(node: &str) -> Value {
    json!({"kind": "Device", "apiVersion": "devices.kubeedge.io/v1beta1",
        "metadata": {"name": "d", "namespace": "n"},
        "spec": {"nodeName": node, "protocol": {"protocolName": "modbus"},
            "deviceModelRef": {"name": "m"},
            "properties": [{"name": "temp", "desired": {"value": "20"}}]}})
}

fn model() -> Value {
    json!({"kind": "DeviceModel", "apiVersion": "devices.kubeedge.io/v1beta1",
        "metadata": {"name": "m", "namespace": "n"},
        "spec": {"protocol": "modbus", "properties": [{"name": "temp", "type": "INT"}]}})
}

/// An MQTT client of the node reports this value.
fn report(joint: &mut Joint, value: &str) {
    let update = PropertyUpdate::Set {
        expected: None,
        actual: Some(value.into()),
        optional: None,
        type_name: Box::default(),
    };
    let content = ClientContent::TwinUpdate(DeviceId::new("n", "d"), vec![("temp".into(), update)]);
    let request = DeviceEvent::Request(ClientRequest { event_id: "u".into(), content });
    joint.node.harness.deliver(Event::Device(Box::new(request)));
    joint.node.settle();
}

/// The value in the API server.
fn recorded(joint: &Joint) -> Option<String> {
    let status = joint.world.cluster.objects.get(&name(Kind::DeviceStatus, "d"))?;
    let twin = status["status"]["twins"].as_array()?.first()?;
    Some(twin["reported"]["value"].as_str()?.to_owned())
}

fn devices(joint: &Joint) -> usize {
    joint.node.harness.agent.devices().map_or(0, Iterator::count)
}

#[test]
fn what_a_client_reports_reaches_the_api_server_sooner_or_later() {
    for sync in EACH {
        let mut joint = Joint::new(sync, 1);
        joint.apply(Kind::DeviceModel, model());
        joint.apply(Kind::Device, device(NODE));
        joint.pass(5_000);
        assert_eq!(devices(&joint), 1);
        report(&mut joint, "21");
        joint.pass(2 * DEVICE_WRITE_MS);
        assert_eq!(recorded(&joint).as_deref(), Some("21"));
        joint.is_reachable = false;
        joint.cut();
        report(&mut joint, "22");
        joint.pass(60_000);
        report(&mut joint, "23");
        joint.world.crash();
        joint.pass(60_000);
        assert_eq!(recorded(&joint).as_deref(), Some("21"));
        joint.is_reachable = true;
        joint.pass(180_000);
        assert_eq!(recorded(&joint).as_deref(), Some("23"), "the last");
    }
}

#[test]
fn a_device_that_moves_away_and_back_is_the_nodes_again() {
    for sync in EACH {
        let mut joint = Joint::new(sync, 1);
        joint.apply(Kind::DeviceModel, model());
        joint.apply(Kind::Device, device(NODE));
        joint.pass(5_000);
        for _ in 0..3 {
            joint.apply(Kind::Device, device("elsewhere"));
            joint.pass(5_000);
            assert_eq!(devices(&joint), 0);
            joint.apply(Kind::Device, device(NODE));
            joint.pass(5_000);
            assert_eq!(devices(&joint), 1);
        }
        report(&mut joint, "21");
        joint.pass(2 * DEVICE_WRITE_MS);
        assert_eq!(recorded(&joint).as_deref(), Some("21"));
    }
}

/// A model comes back in the version in which it was removed.
#[test]
fn a_model_that_no_device_had_for_a_while_comes_back() {
    for sync in EACH {
        let mut joint = Joint::new(sync, 1);
        joint.apply(Kind::DeviceModel, model());
        for _ in 0..3 {
            joint.apply(Kind::Device, device(NODE));
            joint.pass(5_000);
            assert!(joint.has("n/devicemodel/m") && joint.has("n/device/d"));
            joint.remove(Kind::Device, "d");
            joint.pass(5_000);
            assert!(!joint.has("n/devicemodel/m") && !joint.has("n/device/d"));
        }
    }
}
