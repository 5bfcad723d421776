//! What the cloud has of devices, and the rules for reports to it.

use std::collections::BTreeMap;

use edged::limits::{DEVICE_CONFIRM_MS, DEVICE_MESSAGE_MS};
use edged::model::device::{DELETED, DeviceId, TwinRow};
use edged::model::message::Message;
use serde_json::{Value, json};

use super::rows::Rows;
use super::truth::Truth;
use crate::chance::Chance;
use crate::cloud::api::Api;
use crate::cloud::rules::content;
use crate::rule::judge;
use crate::trace::trace;

/// The cloud's side of devices.
#[derive(Default)]
pub struct Remote {
    /// It answers requests for the list of devices, as edgecontroller does.
    pub answers_detail: bool,
    /// It confirms reports of devices that it does not have, as edgecontroller does.
    confirms_unknown: bool,
    devices: BTreeMap<DeviceId, Status>,
    /// By device, the message under way of this link.
    under_way: BTreeMap<DeviceId, UnderWay>,
    /// When reports were sent.
    sent_at: Vec<u64>,
    /// The highest number that the agent has sent of each property, with its version.
    versions: BTreeMap<(DeviceId, Box<str>), (u64, i64)>,
}

/// `DeviceStatus`
#[derive(Default)]
struct Status {
    twins: BTreeMap<Box<str>, Twin>,
    state: Option<Box<str>>,
    /// The highest number of each property, deleted or not.
    numbers: BTreeMap<Box<str>, u64>,
}

#[derive(Debug, Default)]
struct Twin {
    expected: Option<Box<str>>,
    actual: Option<Box<str>>,
    is_deleted: bool,
}

struct UnderWay {
    id: Box<str>,
    sent_at: u64,
    is_confirmed: bool,
}

impl Remote {
    pub fn draw(chance: &mut Chance) -> Self {
        let is_ours = chance.percent(50);
        Self { answers_detail: is_ours, confirms_unknown: is_ours, ..Self::default() }
    }

    /// The link is new, or the agent is.
    pub fn link_up(&mut self) {
        self.under_way.clear();
    }

    /// The agent does not have the device any more.
    pub fn forgotten(&mut self, id: &DeviceId) {
        self.under_way.remove(id);
        self.versions.retain(|(device, _), _| device != id);
    }

    /// The agent has lost its store, and the versions with it.
    pub fn lost(&mut self) {
        self.versions.clear();
    }

    /// The agent knows that this report was received.
    pub fn confirmed(&mut self, message: &str) {
        let mut all = self.under_way.values_mut();
        if let Some(it) = all.find(|it| *it.id == *message) {
            it.is_confirmed = true;
        }
    }

    /// The device is deleted, and its status with it.
    pub fn deleted(&mut self, id: &DeviceId) {
        if let Some(status) = self.devices.get_mut(id) {
            (status.twins, status.state) = Default::default();
        }
    }

    // ---- what the agent sends ----

    pub fn sends(&mut self, now: u64, message: &Message, rows: &Rows) {
        let Some((id, is_state)) = about(&message.route.resource) else { return };
        trace!(now, "  reports {id}: {:?}", message.content);
        self.sent_at.push(now);
        if let Some(before) = self.under_way.get(&id) {
            let is_due = before.is_confirmed || now - before.sent_at >= DEVICE_CONFIRM_MS;
            judge!(is_due, "[one report] {id} is reported while {} is not confirmed", before.id);
            let ms = now - before.sent_at;
            judge!(ms >= DEVICE_MESSAGE_MS, "[one report] {id} is reported after {ms} ms");
        }
        let id_of_message = message.header.id.clone();
        let under_way = UnderWay { id: id_of_message, sent_at: now, is_confirmed: false };
        self.under_way.insert(id.clone(), under_way);
        let content = content(message);
        if is_state {
            let state = content["device"]["state"].as_str();
            let stored = rows.devices.get(&id).map(|row| &*row.state.state);
            judge!(state == stored, "[report is durable] {id} is {state:?}, stored {stored:?}");
            return;
        }
        for (name, twin) in content["twin"].as_object().expect("a report of twins") {
            let key = (id.clone(), name.as_str().into());
            let row = rows.twins.get(&key);
            judge!(row.is_some(), "[report is durable] {id} {name} is reported, and not stored");
            let row = row.expect("just judged");
            let side = |side: &str| {
                let value = twin[side]["value"].as_str()?;
                Some((twin[format!("{side}_version")]["edge"].as_i64().unwrap_or(0), value))
            };
            if let Some(sent) = side("expected") {
                let stored = row.twin.expected.as_ref().map(|it| (it.version.edge, it.text()));
                // A newer one may be stored already.
                let is_stored =
                    stored.is_some_and(|it| it == sent || (it.0 > sent.0 && it.1 != sent.1));
                judge!(
                    is_stored,
                    "[report is durable] {id} {name} expects {sent:?}, stored {stored:?}"
                );
            }
            if let Some((version, value)) = side("actual") {
                self.sends_actual(&key, version, value, row);
            }
        }
    }

    /// An actual value may be ahead of the disk, but its version may not. Where the row says that
    /// the cloud does not have it, it would come after the newer one, after a power cut.
    fn sends_actual(
        &mut self,
        key: &(DeviceId, Box<str>),
        version: i64,
        value: &str,
        row: &TwinRow,
    ) {
        let (id, name) = key;
        let stored = row.twin.actual.as_ref().map(|it| (it.version.edge, it.text()));
        let (reserved, text) = stored.unwrap_or_default();
        judge!(
            version <= reserved,
            "[version is reserved] {id} {name} is {value}, version {version}, stored {stored:?}"
        );
        let (Ok(number), stored) = (value.parse::<u64>(), text.parse::<u64>()) else { return };
        let is_ahead = stored.is_ok_and(|stored| number > stored);
        judge!(
            !is_ahead || !row.is_unsent,
            "[ahead of a mark] {id} {name} is {number}, stored {text} as not sent"
        );
        let before = self.versions.entry(key.clone()).or_default();
        let is_newer = number <= before.0 || version > before.1;
        judge!(is_newer, "[version grows] {key:?} is {number}, version {version}, was {before:?}");
        if number >= before.0 {
            *before = (number, version);
        }
    }

    /// The highest number that the cloud has of this property.
    pub fn number(&self, id: &DeviceId, name: &str) -> Option<u64> {
        self.devices.get(id)?.numbers.get(name).copied()
    }

    // ---- what arrives ----

    /// Returns the resources and contents of the answers.
    pub fn receives(
        &mut self,
        now: u64,
        message: &Message,
        api: &Api,
        chance: &mut Chance,
    ) -> Vec<(&'static str, Value)> {
        let confirmation = ("twin", json!("OK"));
        if &*message.route.resource == "membership/detail" {
            if !self.answers_detail || chance.percent(20) {
                return Vec::new();
            }
            let all = api.iter().filter(|(key, _)| key.contains("/device/"));
            let list: Vec<Value> = all
                .map(|(_, object)| {
                    let id = super::id_in(object.value());
                    json!({"id": id.as_str(), "name": id.name(), "twin": {}})
                })
                .collect();
            let content = json!({"event_id": "d", "devices": list});
            return vec![("membership/detail", content), confirmation];
        }
        let Some((id, is_state)) = about(&message.route.resource) else { return Vec::new() };
        let is_known = api.get(&format!("{}/device/{}", id.namespace(), id.name())).is_some();
        if !is_known {
            return if self.confirms_unknown { vec![confirmation] } else { Vec::new() };
        }
        let content = content(message);
        let status = self.devices.entry(id.clone()).or_default();
        if is_state {
            status.state = content["device"]["state"].as_str().map(Into::into);
            return vec![confirmation];
        }
        for (name, twin) in content["twin"].as_object().expect("a report of twins") {
            let value = |side: &str| {
                twin[side]["value"].as_str().filter(|it| !it.is_empty()).map(Box::from)
            };
            let before = status.twins.remove(name.as_str());
            let mut got = Twin {
                expected: value("expected"),
                actual: value("actual"),
                is_deleted: twin["metadata"]["type"] == DELETED,
            };
            // A side that is not given stays.
            if let Some(before) = before.filter(|_| !got.is_deleted) {
                got.expected = got.expected.or(before.expected);
                got.actual = got.actual.or(before.actual);
            }
            trace!(now, "    the cloud has {id} {name}: {got:?}");
            if let Some(number) = got.actual.as_ref().and_then(|it| it.parse::<u64>().ok()) {
                let before = status.numbers.insert(name.as_str().into(), number).unwrap_or(0);
                judge!(
                    number >= before,
                    "[older value] {id} {name} is {number} in the cloud, and was {before}"
                );
            }
            status.twins.insert(name.as_str().into(), got);
        }
        vec![confirmation]
    }

    // ---- the end ----

    /// How many reports were sent since then.
    pub fn reports(&self, since: u64) -> usize {
        self.sent_at.iter().filter(|at| **at >= since).count()
    }

    /// What the cloud does not have. `has_states`: the states are published, and so known.
    pub fn unsettled(&self, truth: &Truth, has_states: bool) -> Option<String> {
        for (id, known) in &truth.devices {
            if known.object.is_none() {
                continue;
            }
            let none = Status::default();
            let status = self.devices.get(id).unwrap_or(&none);
            for (name, property) in &known.properties {
                let has = status.twins.get(name);
                let is_deleted = has.is_none_or(|twin| twin.is_deleted);
                // A report of a device that was deleted may be of the next one of its name.
                let is_same = |ours: &Option<Box<str>>, theirs: Option<&Option<Box<str>>>| {
                    ours.is_none() || Some(ours) == theirs
                };
                let fits = if property.is_deleted() {
                    is_deleted
                } else {
                    is_same(&property.expected, has.map(|twin| &twin.expected))
                        && is_same(&property.actual, has.map(|twin| &twin.actual))
                };
                if !fits {
                    return Some(format!("the cloud has {has:?} of {id} {name}: {property:?}"));
                }
            }
            let state = status.state.as_deref().unwrap_or_default();
            if has_states && !known.state.is_empty() && state != &*known.state {
                return Some(format!("the cloud has {id} as {state:?}, it is {:?}", known.state));
            }
        }
        None
    }
}

/// The device that a report is about, and whether it is about its state.
fn about(resource: &str) -> Option<(DeviceId, bool)> {
    let rest = resource.strip_prefix("device/")?;
    let state = rest.strip_suffix("/state/update");
    let id = state.or_else(|| rest.strip_suffix("/twin/edge_updated"))?;
    Some((DeviceId::of(id), state.is_some()))
}
