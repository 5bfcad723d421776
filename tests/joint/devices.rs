//! What clients report of devices, and what the API server has of it.

use std::collections::BTreeMap;

use edged::agent::event::{DeviceEvent, Event};
use edged::controller::time::Rng;
use edged::limits::{DEVICE_WRITE_MS, TWIN_SAVE_MS};
use edged::model::api::Kind;
use edged::model::device::{ClientContent, ClientRequest, DeviceId, PropertyUpdate};
use serde_json::{Value, json};

use crate::joint::{Joint, NODE, name};
use crate::stories::EACH;
use crate::worlds::{Fault, draw, each_seed, heal};

const TURNS: u64 = 40;
/// After so long without faults everything is as it should be, milliseconds.
const HEALED_MS: u64 = 300_000;

fn device(node: &str) -> Value {
    named("d", node, "20")
}

/// A device of this name, with a desired value of its one property.
fn named(device: &str, node: &str, desired: &str) -> Value {
    json!({"kind": "Device", "apiVersion": "devices.kubeedge.io/v1beta1",
        "metadata": {"name": device, "namespace": "n"},
        "spec": {"nodeName": node, "protocol": {"protocolName": "modbus"},
            "deviceModelRef": {"name": "m"},
            "properties": [{"name": "temp", "desired": {"value": desired}}]}})
}

fn model() -> Value {
    json!({"kind": "DeviceModel", "apiVersion": "devices.kubeedge.io/v1beta1",
        "metadata": {"name": "m", "namespace": "n"},
        "spec": {"protocol": "modbus", "properties": [{"name": "temp", "type": "INT"}]}})
}

/// An MQTT client of the node reports this value.
fn report(joint: &mut Joint, value: &str) {
    report_of(joint, "d", value);
}

fn report_of(joint: &mut Joint, device: &str, value: &str) {
    let update = PropertyUpdate::Set {
        expected: None,
        actual: Some(value.into()),
        optional: None,
        type_name: Box::default(),
    };
    let id = DeviceId::new("n", device);
    let content = ClientContent::TwinUpdate(id, vec![("temp".into(), update)]);
    let request = DeviceEvent::Request(ClientRequest { event_id: "u".into(), content });
    joint.node.harness.deliver(Event::Device(Box::new(request)));
    joint.node.settle();
}

/// The value in the API server.
fn recorded(joint: &Joint) -> Option<String> {
    recorded_of(joint, "d")
}

fn recorded_of(joint: &Joint, device: &str) -> Option<String> {
    let status = joint.world.cluster.objects.get(&name(Kind::DeviceStatus, device))?;
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

/// The Node is deleted while its node is away, and its records with it.
#[test]
fn a_device_that_went_while_there_was_no_node_goes_once_it_is_reported() {
    for sync in EACH {
        let mut joint = Joint::new(sync, 1);
        joint.apply(Kind::DeviceModel, model());
        joint.apply(Kind::Device, device(NODE));
        joint.pass(5_000);
        joint.is_reachable = false;
        joint.cut();
        joint.delete_node();
        joint.apply(Kind::Device, device("elsewhere"));
        joint.pass(60_000);
        assert_eq!(devices(&joint), 1, "nobody could say so");
        joint.is_reachable = true;
        joint.pass(60_000);
        report(&mut joint, "21");
        joint.pass(10_000);
        assert_eq!(devices(&joint), 0);
        joint.apply(Kind::Device, device(NODE));
        joint.pass(10_000);
        assert_eq!(devices(&joint), 1, "it may come back");
    }
}

/// A device as its users have it.
#[derive(Default)]
struct User {
    desired: String,
    is_of_the_node: bool,
    /// The last value that a client has reported, when it did by the cloud's clock, and whether it
    /// must be in the API server in the end.
    last: Option<(u64, u64, bool)>,
}

struct Drawn {
    joint: Joint,
    rng: Rng,
    devices: BTreeMap<String, User>,
    last: u64,
}

impl Drawn {
    fn new(seed: u64) -> Self {
        let (mut joint, rng) = draw(seed);
        joint.apply(Kind::DeviceModel, model());
        Self { joint, rng, devices: BTreeMap::new(), last: 0 }
    }

    fn turn(&mut self) {
        let device = format!("d{}", self.rng.below(3));
        match self.rng.below(16) {
            0..=2 => self.change(&device),
            3 => {
                self.devices.remove(&device);
                self.joint.remove(Kind::Device, &device);
                // By the garbage collector.
                self.joint.remove(Kind::DeviceStatus, &device);
            }
            4..=8 => self.report(&device),
            9..=14 => self.befall(),
            15 => {
                let mut model = model();
                self.last += 1;
                model["spec"]["properties"][0]["description"] = json!(self.last.to_string());
                self.joint.apply(Kind::DeviceModel, model);
            }
            _ => {}
        }
        let most = if self.rng.below(20) == 0 { TWIN_SAVE_MS } else { 4 * DEVICE_WRITE_MS };
        let ms = 1 + self.rng.below(most);
        self.joint.pass(ms);
        self.joint.is_reachable |= self.rng.below(8) == 0;
    }

    fn befall(&mut self) {
        let fault = Fault::draw(&mut self.rng);
        match fault {
            // Flash wears out: a value is saved sooner only if the cloud has it.
            Fault::Agent => {
                let unsaved_from = self.now_ms().saturating_sub(TWIN_SAVE_MS);
                self.doubt(|at| at > unsaved_from);
            }
            Fault::Store => self.doubt(|_| true),
            Fault::Link | Fault::Stop | Fault::Cloud | Fault::Node => {}
        }
        fault.befall(&mut self.joint, &mut self.rng);
    }

    fn now_ms(&self) -> u64 {
        self.joint.world.now.boot.0
    }

    /// A user makes a device, gives it another value or binds it to another node.
    fn change(&mut self, device: &str) {
        self.last += 1;
        let user = self.devices.entry(device.to_owned()).or_default();
        user.desired = self.last.to_string();
        let was = std::mem::replace(&mut user.is_of_the_node, self.rng.below(4) > 0);
        if let Some((.., is_certain)) = &mut user.last {
            *is_certain &= was && user.is_of_the_node;
        }
        let node = if user.is_of_the_node { NODE } else { "elsewhere" };
        self.joint.apply(Kind::Device, named(device, node, &user.desired));
    }

    /// A client of the node reports a value, if the node has the device.
    fn report(&mut self, device: &str) {
        let is_known = self.infos().contains_key(device);
        if !is_known {
            return;
        }
        self.last += 1;
        report_of(&mut self.joint, device, &self.last.to_string());
        let now_ms = self.now_ms();
        let uid = |object: &Value| object["metadata"]["uid"].clone();
        let live = self.joint.world.cluster.objects.get(&name(Kind::Device, device)).map(uid);
        let kept = self.joint.row(&format!("n/device/{device}")).as_ref().map(uid);
        if let Some(user) = self.devices.get_mut(device) {
            // Or it is of a device that does not exist any more, or is another node's.
            let is_certain = user.is_of_the_node && live == kept;
            user.last = Some((self.last, now_ms, is_certain));
        }
    }

    /// What was reported at these times may be lost.
    fn doubt(&mut self, at: impl Fn(u64) -> bool) {
        for (_, at_ms, is_certain) in self.devices.values_mut().filter_map(|it| it.last.as_mut()) {
            *is_certain &= !at(*at_ms);
        }
    }

    /// The devices that the node has, with what is desired and whether the cloud has confirmed all.
    fn infos(&self) -> BTreeMap<String, (String, bool)> {
        let all = self.joint.node.harness.agent.devices().into_iter().flatten();
        let of = |info: edged::model::device::DeviceInfo<'_>| {
            let property = info.properties.first();
            let desired = property.and_then(|it| it.twin.expected.as_ref());
            let desired = desired.map_or("", |it| it.text()).to_owned();
            (info.id.name().to_owned(), (desired, property.is_some_and(|it| it.is_confirmed)))
        };
        all.map(of).collect()
    }

    /// The node has its devices and no others, as their users want them.
    fn has_the_devices(&self) {
        let of_the_node = self.devices.iter().filter(|(_, user)| user.is_of_the_node);
        let wanted: BTreeMap<_, _> =
            of_the_node.map(|(name, user)| (name.clone(), (user.desired.clone(), true))).collect();
        assert_eq!(self.infos(), wanted, "the node:\n{}", self.joint.log());
    }

    /// The API server has what clients have reported last.
    fn is_recorded(&self) {
        for (name, user) in self.devices.iter().filter(|(_, user)| user.is_of_the_node) {
            if let Some((value, _, true)) = user.last {
                let recorded = recorded_of(&self.joint, name);
                assert_eq!(recorded, Some(value.to_string()), "{name}:\n{}", self.joint.log());
            }
        }
    }
}

#[test]
fn whatever_happens_devices_end_up_as_users_and_clients_want_them() {
    each_seed(|seed| {
        let mut drawn = Drawn::new(seed);
        for _ in 0..TURNS {
            drawn.turn();
        }
        heal(&mut drawn.joint);
        drawn.joint.pass(HEALED_MS);
        drawn.is_recorded();
        for device in drawn.infos().into_keys() {
            drawn.report(&device);
        }
        drawn.joint.pass(HEALED_MS);
        drawn.is_recorded();
        drawn.has_the_devices();
    });
}
