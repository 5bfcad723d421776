//! What users change of devices in the cloud, and what `devicecontroller` says about it.

use serde_json::{Value, json};

use super::DeviceDue;
use super::acts::DEVICES;
use crate::chance::Chance;
use crate::cloud::api::{Api, ChangeKind};
use crate::cloud::{CloudSim, Due};
use crate::trace::trace;
use crate::world::NODE;

const MODELS: [&str; 2] = ["model0", "model1"];
const PROTOCOLS: [&str; 2] = ["modbus", "ble"];

impl CloudSim {
    /// The users change something.
    pub(super) fn users_change_devices(&mut self, now: u64, user_change_ms: u64) {
        if user_change_ms == 0 {
            return;
        }
        let devices = self.devices.as_mut().expect("there are some");
        let name = format!("dev{}", devices.chance.below(DEVICES));
        let draw = devices.chance.below(16);
        let model = *devices.chance.pick(&MODELS);
        let number = devices.next_number();
        let chance = &mut devices.chance;
        let key = format!("default/device/{name}");
        let old = self.api.get(&key).map(|object| object.value().clone());
        let what = match (old, draw) {
            (_, 0) => change_model(&mut self.api, model, &number, chance),
            (None, _) => {
                let value = make(&mut self.api, &name, model, &number, chance);
                self.api.put(&key, value, ChangeKind::Added);
                self.say_membership(&name, true);
                "make a device"
            }
            (Some(_), 1) => {
                self.api.remove(&key);
                self.say_membership(&name, false);
                let devices = self.devices.as_mut().expect("there are some");
                devices.remote.deleted(&edged::model::device::DeviceId::new("default", &name));
                "delete a device"
            }
            (Some(mut value), 2..6) => {
                let nothing = chance.percent(15);
                let desired = if nothing { "".into() } else { number };
                value["spec"]["properties"][0]["desired"]["value"] = (*desired).into();
                self.api.put(&key, value, ChangeKind::Changed);
                "desire another value"
            }
            (Some(mut value), 6 | 7) => {
                value["spec"]["protocol"]["configData"]["slaveID"] = (*number).into();
                self.api.put(&key, value, ChangeKind::Changed);
                "configure a device"
            }
            (Some(mut value), 8) => {
                let protocol = *chance.pick(&PROTOCOLS);
                value["spec"]["protocol"]["protocolName"] = protocol.into();
                self.api.put(&key, value, ChangeKind::Changed);
                "change the protocol"
            }
            (Some(mut value), 11) => {
                value["spec"]["deviceModelRef"]["name"] = model.into();
                self.api.put(&key, value, ChangeKind::Changed);
                "change the model of a device"
            }
            (Some(_), 9 | 10) => {
                self.say_attributes(&name);
                "change attributes"
            }
            (Some(mut value), _) => {
                // As clouds up to 1.22 do with each report.
                value["status"]["twins"] = json!([{"propertyName": "temp", "n": number}]);
                self.api.put(&key, value, ChangeKind::Changed);
                "write a status"
            }
        };
        trace!(now, "users, of {name}: {what}");
        self.count("changes of devices");
        self.inform();
        let devices = self.devices.as_mut().expect("there are some");
        let ms = 1 + devices.chance.below(user_change_ms * 2);
        self.timers.push((ms, Due::Device(DeviceDue::UserChange)));
    }

    /// As clouds up to 1.14 do, without an acknowledgement.
    fn say_attributes(&mut self, name: &str) {
        let devices = self.devices.as_mut().expect("there are some");
        let mut attributes = json!({});
        for attribute in ["maker", "place", "serial"] {
            let value = devices.chance.below(3).to_string();
            let given = json!({"value": value, "metadata": {"type": "string"}});
            match devices.chance.below(4) {
                0 => attributes[attribute] = Value::Null,
                1 => {}
                _ => attributes[attribute] = given,
            }
        }
        let content = json!({"event_id": "x", "timestamp": 1, "attributes": attributes});
        self.say(&format!("device/default/{name}"), &content);
    }

    fn say(&mut self, resource: &str, content: &Value) {
        if self.hub.conn.is_some() {
            let mut message = self.hub.message("update", resource, "", content);
            message.route.group = "twin".into();
            message.route.source = "devicecontroller".into();
            self.hub.written.push(message);
        }
    }

    /// Without an acknowledgement, so it may be lost.
    fn say_membership(&mut self, name: &str, is_added: bool) {
        let devices = self.devices.as_mut().expect("there are some");
        let is_lost = devices.chance.percent(devices.rates.membership_lost_pct);
        if is_lost {
            return;
        }
        let list = json!([{"id": format!("default/{name}"), "name": name}]);
        let (added, removed) = if is_added { (list, Value::Null) } else { (Value::Null, list) };
        let content = json!({"event_id": "x", "added_devices": added, "removed_devices": removed});
        self.say("membership", &content);
    }
}

/// Every device finds its model.
pub fn heal(api: &mut Api) {
    for model in MODELS {
        if api.get(&format!("default/devicemodel/{model}")).is_none() {
            write_model(api, model, "0");
        }
    }
}

fn write_model(api: &mut Api, name: &str, unit: &str) {
    let key = format!("default/devicemodel/{name}");
    let old = api.get(&key).map(|object| object.uid.clone());
    let action = if old.is_some() { ChangeKind::Changed } else { ChangeKind::Added };
    let uid = old.unwrap_or_else(|| api.uid());
    let value = json!({
        "kind": "DeviceModel", "apiVersion": "devices.kubeedge.io/v1beta1",
        "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {"properties": [{"name": "temp", "type": "INT", "unit": unit}]},
    });
    api.put(&key, value, action);
}

fn change_model(api: &mut Api, name: &str, unit: &str, chance: &mut Chance) -> &'static str {
    let key = format!("default/devicemodel/{name}");
    if api.get(&key).is_some() && chance.percent(40) {
        api.remove(&key);
        return "delete a model";
    }
    write_model(api, name, unit);
    "write a model"
}

fn make(api: &mut Api, name: &str, model: &str, number: &str, chance: &mut Chance) -> Value {
    let desired = if chance.percent(70) { number } else { "" };
    let mut value = json!({
        "kind": "Device", "apiVersion": "devices.kubeedge.io/v1beta1",
        "metadata": {"name": name, "namespace": "default", "uid": api.uid(),
            "labels": {"description": format!("number {number}")}},
        "spec": {
            "deviceModelRef": {"name": model}, "nodeName": NODE,
            "protocol": {"protocolName": *chance.pick(&PROTOCOLS), "configData": {"slaveID": 1}},
            "properties": [{"name": "temp", "desired": {"value": desired}}, {"name": "hum"}],
        },
        "status": {},
    });
    if chance.percent(15) {
        value["spec"].as_object_mut().expect("just made").remove("deviceModelRef");
    }
    value
}
