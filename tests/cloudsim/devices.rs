//! Devices: the users create, change, move and delete them; nodes report values, send reports again
//! that were not confirmed, old ones after newer ones, and lie about devices of others.
//!
//! A value names its node and counts up: `e1:7`.

use std::collections::{BTreeMap, BTreeSet};

use edged::model::api::{Call, Kind};
use edged::model::link::Session;
use edged::model::message::Message;
use serde_json::{Value, json};

use crate::cluster::Name;
use crate::node::{Behaviour, Node};
use crate::rule::judge;
use crate::users::node_of;
use crate::world::World;

/// Names of devices and of models.
const DEVICES: u64 = 4;
const MODELS: u64 = 2;
/// A node sends a value again that is not confirmed for so long.
const REPEAT_MS: u64 = 10_000;

/// What a node has of devices beside their objects.
#[derive(Default)]
pub struct Devices {
    /// As the cloud has told it.
    pub members: BTreeSet<String>,
    /// The last value of each of its devices.
    values: BTreeMap<String, Reported>,
    /// Reports that are not confirmed.
    reports: BTreeMap<String, Report>,
    /// Counts all values of its life.
    last_value: u64,
    /// The session on which it has asked for its devices.
    asked: Option<Session>,
    /// The request for its devices that is not confirmed, and when it was sent.
    request: Option<(String, u64)>,
}

#[derive(Clone, Copy)]
struct Reported {
    value: u64,
    is_confirmed: bool,
    /// It was made when the faults were over.
    is_last: bool,
}

#[derive(Clone)]
struct Report {
    device: String,
    value: u64,
    sent_at: u64,
    message: Message,
}

/// The state of the rules about devices.
#[derive(Default)]
pub struct DeviceCheck {
    /// Which node had which device or model: resource, node.
    had: BTreeSet<(String, String)>,
    /// Reports by their messages' ids: node, device and its uid then, value.
    reported: BTreeMap<Box<str>, (String, String, Value, u64)>,
    /// The version in which the users last changed each device.
    changed: BTreeMap<String, u64>,
}

fn key(kind: Kind, name: &str) -> Name {
    (kind, "n".to_owned(), name.to_owned())
}

/// The node and the count of a recorded value.
fn recorded(status: Option<&Value>) -> Option<(String, u64)> {
    let twin = &status?["status"]["twins"][0];
    let (node, count) = twin["reported"]["value"].as_str()?.split_once(':')?;
    Some((node.to_owned(), count.parse().ok()?))
}

impl Devices {
    /// Its node begins a new life; `lost`: without its store.
    pub fn restart(&mut self, lost: bool) {
        self.reports.clear();
        self.request = None;
        if lost {
            self.values.clear();
            self.members.clear();
        }
    }

    /// Takes a message of `devicecontroller` that nobody acknowledges.
    pub fn take(&mut self, message: &Message) {
        let text = message.content.as_ref().map_or("null", |content| content.get());
        let content: Value = serde_json::from_str(text).expect("JSON");
        let ids = |list: &Value| -> Vec<String> {
            let list = list.as_array().map_or(&[][..], Vec::as_slice);
            list.iter().filter_map(|it| Some(it["id"].as_str()?.to_owned())).collect()
        };
        let parent = &*message.header.parent_id;
        match &*message.route.resource {
            _ if !parent.is_empty() => {
                if self.request.as_ref().is_some_and(|(id, _)| id == parent) {
                    self.request = None;
                }
                let Some(Report { device, value, .. }) = self.reports.remove(parent) else {
                    return;
                };
                if let Some(known) = self.values.get_mut(&device).filter(|it| it.value == value) {
                    known.is_confirmed = true;
                }
            }
            "membership/detail" => self.members = ids(&content["devices"]).into_iter().collect(),
            "membership" => {
                self.members.extend(ids(&content["added_devices"]));
                for id in ids(&content["removed_devices"]) {
                    self.members.remove(&id);
                }
            }
            other => panic!("a node got {other}"),
        }
    }

    /// How the devices that the cloud has told it of differ from these.
    pub fn members_unsettled(&self, expected: &BTreeSet<String>) -> Option<String> {
        let got = &self.members;
        (got != expected).then(|| format!("it was told of {got:?}, expected {expected:?}"))
    }

    /// A device is deleted at its node.
    pub fn deleted(&mut self, resource: &str) {
        if let Some(device) = resource.strip_prefix("n/device/") {
            self.values.remove(device);
        }
    }
}

/// The report of a value, with its version and time.
fn content(node: &str, value: u64, now: u64) -> Value {
    json!({"event_id": "e", "timestamp": now, "twin": {"t": {
        "actual": {"value": format!("{node}:{value}"), "metadata": {"timestamp": now + 1}},
        "metadata": {"type": "string"}, "actual_version": {"cloud": 0, "edge": value}}}})
}

impl World {
    /// The users change devices and models.
    pub(crate) fn users_change_devices(&mut self) {
        let device = format!("d{}", self.chance.below(DEVICES));
        let model = format!("m{}", self.chance.below(MODELS));
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let node = self.chance.pick(&names).clone();
        match self.chance.below(8) {
            0..=2 => {
                let old = self.cluster.objects.get(&key(Kind::Device, &device)).cloned();
                let stays = old.is_some() && self.chance.percent(60);
                let mut object = old.unwrap_or_else(|| {
                    json!({"metadata": {"name": device, "namespace": "n"}, "spec": {
                        "nodeName": node, "protocol": {"protocolName": "modbus"}}})
                });
                let desired = self.chance.bits().to_string();
                object["spec"]["properties"] =
                    json!([{"name": "t", "desired": {"value": desired}}]);
                object["spec"]["deviceModelRef"] = json!({"name": model});
                if !stays {
                    object["spec"]["nodeName"] = json!(node);
                }
                if self.chance.percent(20) {
                    object["spec"].as_object_mut().expect("a spec").remove("deviceModelRef");
                }
                let node = node_of(&object).to_owned();
                let had = &mut self.check.devices.had;
                had.insert((format!("n/device/{device}"), node.clone()));
                if let Some(model) = object["spec"]["deviceModelRef"]["name"].as_str() {
                    had.insert((format!("n/devicemodel/{model}"), node));
                }
                self.cluster.apply(Kind::Device, object);
                self.tally.add("devices changed");
                self.check.devices.changed.insert(device, self.cluster.version);
            }
            3 => {
                self.cluster.remove(&key(Kind::Device, &device));
                self.check.devices.changed.insert(device, self.cluster.version);
            }
            4 | 5 => {
                let maximum = self.chance.bits().to_string();
                let object = json!({"metadata": {"name": model, "namespace": "n"},
                    "spec": {"properties": [{"name": "t", "maximum": maximum}]}});
                self.cluster.apply(Kind::DeviceModel, object);
            }
            6 => self.cluster.remove(&key(Kind::DeviceModel, &model)),
            _ => self.collect_statuses(),
        }
    }

    /// The API server deletes the statuses whose devices are gone.
    pub(crate) fn collect_statuses(&mut self) {
        let owner = |status: &Value| status["metadata"]["ownerReferences"][0]["uid"].clone();
        let statuses =
            self.cluster.objects.iter().filter(|((kind, ..), _)| *kind == Kind::DeviceStatus);
        let gone = statuses.filter(|((.., name), status)| {
            let device = self.cluster.objects.get(&key(Kind::Device, name));
            device.is_none_or(|device| device["metadata"]["uid"] != owner(status))
        });
        for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.cluster.remove(&name);
        }
    }

    /// A node asks for its devices, reports values and sends reports again.
    pub(crate) fn serve_devices(&mut self, name: &str, session: Session) {
        let now = self.now;
        let node = self.nodes.get_mut(name).expect("a node");
        let waits = node.devices.request.as_ref().is_some_and(|(_, at)| now < at + 60_000);
        if node.devices.asked != Some(session) || (node.devices.request.is_some() && !waits) {
            let message = node.twin("get", "membership/detail", &json!("{}"));
            node.devices.asked = Some(session);
            node.devices.request = Some((message.header.id.to_string(), now));
            self.send_message(name, message);
        }
        let node = &self.nodes[name];
        let devices = node.store.keys().filter_map(|key| key.strip_prefix("n/device/"));
        for device in devices.map(str::to_owned).collect::<Vec<_>>() {
            let last = self.nodes[name].devices.values.get(&device).copied();
            let is_new = if self.is_over {
                last.is_none_or(|last| !last.is_last)
            } else {
                self.chance.percent(20)
            };
            let node = self.nodes.get_mut(name).expect("a node");
            if is_new {
                node.devices.last_value += 1;
                let value = node.devices.last_value;
                let reported = Reported { value, is_confirmed: false, is_last: self.is_over };
                node.devices.values.insert(device.clone(), reported);
            }
            let Some(last) = node.devices.values.get(&device).copied() else { continue };
            let under_way = node.devices.reports.values().any(|report| {
                report.device == device
                    && report.value == last.value
                    && now < report.sent_at + REPEAT_MS
            });
            if last.is_confirmed || under_way {
                continue;
            }
            let message = node.twin(
                "update",
                &format!("device/n/{device}/twin/edge_updated"),
                &content(name, last.value, now),
            );
            let id = message.header.id.to_string();
            let object = self.cluster.objects.get(&key(Kind::Device, &device));
            let uid = object.map_or(Value::Null, |object| object["metadata"]["uid"].clone());
            let reported = (name.to_owned(), device.clone(), uid, last.value);
            self.check.devices.reported.insert(id.as_str().into(), reported);
            let report =
                Report { device, value: last.value, sent_at: now, message: message.clone() };
            node.devices.reports.insert(id, report);
            self.tally.add("device reports");
            self.send_message(name, message);
        }
        let old: Vec<Report> = self.nodes[name].devices.reports.values().cloned().collect();
        if !old.is_empty() && self.chance.percent(15) {
            self.tally.add("device reports sent again");
            let report = self.chance.pick(&old).clone();
            self.send_message(name, report.message);
        }
    }

    /// A node reports values of devices that are not its own.
    pub(crate) fn report_foreign_device(&mut self, name: &str) {
        let device = format!("d{}", self.chance.below(DEVICES));
        let (value, now) = (self.chance.below(1_000_000), self.now);
        let content = match self.chance.below(3) {
            0 => json!({"twin": {"t": 7}}),
            _ => content(name, value, now),
        };
        let node = self.nodes.get_mut(name).expect("a node");
        let message =
            node.twin("update", &format!("device/n/{device}/twin/edge_updated"), &content);
        self.tally.add("false device reports");
        self.send_message(name, message);
    }

    /// A status is about to be written.
    pub(crate) fn check_status_write(&self, call: &Call, before: Option<&Value>) {
        if call.kind != Kind::DeviceStatus {
            return;
        }
        let name = key(Kind::DeviceStatus, &call.name);
        let now = self.cluster.objects.get(&name);
        let Some((node, count)) = recorded(now) else { return };
        let resource = format!("n/device/{}", call.name);
        let had = self.check.devices.had.contains(&(resource, node.clone()));
        judge!(had, "[own value] {node} never had {}, and its value is recorded", call.name);
        let honest = self.nodes[&node].behaviour == Behaviour::Honest;
        // A status that belonged to an earlier device of the name begins anew.
        let owner = |status: Option<&Value>| {
            status.map(|status| status["metadata"]["ownerReferences"][0]["uid"].clone())
        };
        if let Some((by, old)) = recorded(before)
            && by == node
            && honest
            && owner(before) == owner(now)
        {
            judge!(count >= old, "[no older value] {node}:{count} of {} after {old}", call.name);
        }
    }

    /// A message is confirmed to a node: what it reported is recorded.
    pub(crate) fn check_confirmed(&self, at: usize, message: &Message) {
        let parent = &message.header.parent_id;
        let Some((node, device, uid, value)) = self.check.devices.reported.get(parent) else {
            return;
        };
        let Some(object) = self.cluster.objects.get(&key(Kind::Device, device)) else { return };
        let known = self.replicas[at].knows(Kind::Device).unwrap_or(0);
        let changed = self.check.devices.changed.get(device).copied().unwrap_or(0);
        let status = self.cluster.objects.get(&key(Kind::DeviceStatus, device));
        let owner = status.map(|it| &it["metadata"]["ownerReferences"][0]["uid"]);
        // The replica may not know yet what the users have changed; a value of an earlier device of
        // this name went with it.
        if known < changed || node_of(object) != node || object["metadata"]["uid"] != *uid {
            return;
        }
        let is_own = owner.is_some_and(|owner| *owner == object["metadata"]["uid"]);
        let by = recorded(status).filter(|_| is_own);
        let is_recorded = by.as_ref().is_some_and(|(by, count)| by == node && count >= value);
        judge!(is_recorded, "[recorded first] r{at} confirms {node}:{value} of {device}: {by:?}");
    }

    /// A node is told to remove a device that it has reported, and that is not on record.
    pub(crate) fn check_unrecorded(&self, at: usize, node: &str, device: &str, content: &Value) {
        let fields: Vec<&String> =
            content.as_object().into_iter().flatten().map(|it| it.0).collect();
        judge!(
            fields.len() == 3 && content["spec"].is_null(),
            "[own objects] r{at} tells {node} of {device}: {content}"
        );
        let Some(object) = self.cluster.objects.get(&key(Kind::Device, device)) else { return };
        let version = |of: &Value| of["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        // It was looked up just before.
        let is_current = version(content) == version(object);
        judge!(
            !is_current || node_of(object) != node,
            "[own objects] r{at} takes {device} from {node}, whose it is"
        );
    }

    /// Whether a node may have this device or model.
    pub(crate) fn had(&self, resource: &str, node: &str) -> bool {
        self.check.devices.had.contains(&(resource.to_owned(), node.to_owned()))
    }

    /// What a node has for its device: the device itself and its model, by resource.
    pub(crate) fn objects_of<'a>(&'a self, device: &'a Value) -> Vec<(String, &'a Value)> {
        let name = device["metadata"]["name"].as_str().unwrap_or_default();
        let model = device["spec"]["deviceModelRef"]["name"].as_str().unwrap_or_default();
        let found = self.cluster.objects.get(&key(Kind::DeviceModel, model));
        let found = found.map(|found| (format!("n/devicemodel/{model}"), found));
        found.into_iter().chain([(format!("n/device/{name}"), device)]).collect()
    }

    /// What is not yet as it should be about a device of a node.
    pub(crate) fn device_unsettled(&self, node: &Node, device: &str) -> Option<String> {
        let Some(last) = node.devices.values.get(device).filter(|last| last.is_last) else {
            return Some(format!("{}: {device} has not reported", node.name));
        };
        let status = self.cluster.objects.get(&key(Kind::DeviceStatus, device));
        let got = recorded(status);
        let is_recorded = got == Some((node.name.clone(), last.value));
        if !is_recorded || !last.is_confirmed {
            let (name, value) = (&node.name, last.value);
            return Some(format!("{name}:{value} of {device} is not recorded: {got:?}"));
        }
        None
    }
}
