//! What the cloud has of devices, and the rules for reports to it.

use std::collections::BTreeMap;

use edged::limits::{DEVICE_CONFIRM_MS, DEVICE_MESSAGE_MS};
use edged::model::device::{DELETED, DeviceId};
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
            let row = rows.twins.get(&(id.clone(), name.as_str().into())).map(|row| &row.twin);
            let stored = |side: &str| {
                let row = row?;
                let side = if side == "expected" { &row.expected } else { &row.actual };
                side.as_ref().map(|side| (side.version.edge, side.text().to_owned()))
            };
            for side in ["expected", "actual"] {
                let Some(value) = twin[side]["value"].as_str() else { continue };
                let version = twin[format!("{side}_version")]["edge"].as_i64().unwrap_or(0);
                let sent = (version, value.to_owned());
                // A newer one may be stored already.
                let is_stored =
                    stored(side).is_some_and(|it| it == sent || (it.0 > version && it.1 != value));
                judge!(
                    is_stored,
                    "[report is durable] {id} {name} {side}: {sent:?}, stored {:?}",
                    stored(side)
                );
            }
        }
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
            let got = Twin {
                expected: value("expected"),
                actual: value("actual"),
                is_deleted: twin["metadata"]["type"] == DELETED,
            };
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

    // ---- the store, and the end ----

    /// After a power cut the store has nothing older than the cloud.
    pub fn judge_rows(&self, rows: &Rows) {
        for ((id, name), row) in &rows.twins {
            let stored = row.twin.actual.as_ref().and_then(|it| it.text().parse::<u64>().ok());
            let remote = self.devices.get(id).and_then(|status| status.numbers.get(name));
            if let (Some(stored), Some(remote)) = (stored, remote) {
                judge!(
                    stored >= *remote,
                    "[older value] {id} {name} is {stored} in the store, {remote} in the cloud"
                );
            }
        }
    }

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
