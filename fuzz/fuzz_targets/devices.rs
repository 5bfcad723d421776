//! Requests of MQTT clients, and the cloud's messages about twins; objects of devices and models.
#![no_main]

use edged::model::device::{DeviceObject, ModelObject};
use edged::wire::devices;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for topic in [
        "$hw/events/device/default/dev1/twin/update",
        "$hw/events/device/default/dev1/state/update",
        "$hw/events/node/edge1/membership/get",
    ] {
        assert!(devices::request(topic, data).is_some(), "each request is read or refused");
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = devices::request(text, b"{}");
    for resource in
        ["membership", "membership/detail", "device/default/dev1/twin/cloud_updated", "device/dev9"]
    {
        let _ = devices::decode_cloud(resource, text);
    }
    let _ = devices::decode_cloud(text, "{}");
    for resource in ["device/default/dev1/twin/edge_updated", "device/dev1/state/update"] {
        let _ = devices::decode_report(resource, text);
    }
    let _ = devices::decode_report(text, "{}");
    let _ = (DeviceObject::read(text), ModelObject::read(text));
});
