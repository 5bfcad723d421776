//! What MQTT clients and mappers do.

use edged::agent::event::DeviceEvent;
use edged::model::device::{
    ClientContent, ClientRequest, DeviceId, ManagerCall, ManagerCallId, PropertyUpdate,
    ReportedTwin,
};

use super::mapper::State;
use super::{DeviceDue, DeviceSim};
use crate::trace::trace;

/// Devices in the cloud, of these names.
pub const DEVICES: u64 = 3;
pub const STATES: [&str; 5] = ["online", "offline", "ok", "unknown", "unhealthy"];
/// `temp` is desired by the cloud, `hum` has a type, `extra` comes and goes.
const PROPERTIES: [&str; 4] = ["temp", "temp", "hum", "extra"];
/// More than a device may have.
const MANY: u64 = 70;

impl DeviceSim {
    pub(super) fn act(&mut self, now: u64) {
        if self.rates.act_ms == 0 {
            return;
        }
        let ms = 1 + self.chance.below(2 * self.rates.act_ms);
        self.timers.push((ms, DeviceDue::Act));
        if self.chance.percent(self.rates.broker_pct) {
            self.broker_down_until = now + self.chance.spread(self.rates.broker_ms);
            self.count("brokers away");
        }
        let has_broker = self.has_clients && self.broker_down_until <= now;
        if has_broker && self.chance.percent(60) {
            self.client_acts();
        } else {
            self.mapper_acts(now);
        }
    }

    pub(super) fn some_device(&mut self) -> DeviceId {
        let name = match self.chance.below(20) {
            0 => "nobody".to_owned(),
            _ => format!("dev{}", self.chance.below(DEVICES)),
        };
        DeviceId::new("default", &name)
    }

    /// The next number to be reported.
    pub(super) fn next_number(&mut self) -> Box<str> {
        self.number += 1;
        self.number.to_string().into()
    }

    // ---- clients ----

    fn client_acts(&mut self) {
        let id = self.some_device();
        let content = match self.chance.below(20) {
            0 => ClientContent::Membership,
            1..5 => ClientContent::TwinGet(id),
            5 => ClientContent::State(id, "disconnected".into()),
            6 | 7 => ClientContent::State(id, (*self.chance.pick(&STATES)).into()),
            8 if self.chance.percent(10) => {
                let update = self.update("many");
                let names = (0..MANY).map(|n| (format!("p{n}").into(), update.clone()));
                ClientContent::TwinUpdate(id, names.collect())
            }
            _ => {
                let name = *self.chance.pick(&PROPERTIES);
                let mut updates = vec![(name.into(), self.update(name))];
                if self.chance.percent(20) {
                    updates.push(("other".into(), self.update("other")));
                }
                ClientContent::TwinUpdate(id, updates)
            }
        };
        self.last_id += 1;
        let event_id = format!("e{}", self.last_id).into();
        self.count("requests of clients");
        self.event(DeviceEvent::Request(ClientRequest { event_id, content }));
    }

    fn update(&mut self, name: &str) -> PropertyUpdate {
        let type_name: Box<str> = if name == "hum" { "int".into() } else { Box::default() };
        let set = |expected, actual| PropertyUpdate::Set {
            expected,
            actual,
            optional: None,
            type_name: type_name.clone(),
        };
        match self.chance.below(10) {
            0 if name == "extra" || self.chance.percent(20) => PropertyUpdate::Delete,
            0 | 1 => set(Some(self.next_number()), None),
            2 => set(None, Some("no number".into())),
            3 => {
                let (expected, actual) = (self.next_number(), self.next_number());
                set(Some(expected), Some(actual))
            }
            4 => PropertyUpdate::Set {
                expected: None,
                actual: Some(self.next_number()),
                optional: Some(!self.chance.percent(5)),
                type_name,
            },
            _ => set(None, Some(self.next_number())),
        }
    }

    // ---- mappers ----

    fn mapper_acts(&mut self, now: u64) {
        let at = self.chance.index(self.mappers.len());
        if self.mappers[at].state == State::Dead || self.mappers[at].hangs_until > now {
            return;
        }
        if self.chance.percent(self.rates.die_pct) {
            trace!(now, "{} ends", self.mappers[at].name);
            self.count("mappers end");
            if let State::Registers(id) = self.mappers[at].state {
                self.expected.ended.push(id);
            }
            self.mappers[at].die();
            let ms = 1 + self.chance.spread(300_000);
            self.timers.push((ms, DeviceDue::Starts(at)));
            return;
        }
        if self.chance.percent(self.rates.hang_pct) {
            self.count("mappers hang");
            self.mappers[at].hangs_until = now + self.chance.spread(self.rates.hang_ms);
            return;
        }
        let known: Vec<DeviceId> = self.mappers[at].devices.keys().cloned().collect();
        if known.is_empty() {
            return;
        }
        let device = self.chance.pick(&known).clone();
        let call = if self.chance.percent(20) {
            let state = (*self.chance.pick(&STATES[..3])).into();
            ManagerCall::ReportState { device, state }
        } else {
            // What it was told to have when it took the device over.
            let properties = &self.mappers[at].devices[&device]["spec"]["properties"];
            let desired = properties[0]["desired"]["value"].as_str();
            let expected = desired.map(Into::into).filter(|_| self.chance.percent(80));
            let property = if self.chance.percent(60) { "temp" } else { "hum" }.into();
            let actual = Some(self.next_number());
            ManagerCall::ReportStatus {
                device,
                twins: vec![ReportedTwin { property, expected, actual }],
            }
        };
        self.count("reports of mappers");
        let id = self.next_call();
        self.event(DeviceEvent::Called(id, call));
    }

    /// In calm, devices that have been reported report again after a start of the agent: it may
    /// have an older value, and may not know what the cloud has.
    pub(super) fn report_again(&mut self, after_ms: u64) {
        if self.rates.act_ms == 0 {
            self.timers.push((after_ms, DeviceDue::ReportsAgain(self.life)));
        }
    }

    pub(super) fn reports_again(&mut self, life: u32) {
        if life != self.life {
            return;
        }
        if !self.is_loaded {
            return self.report_again(1_000);
        }
        let mut calls = Vec::new();
        for (id, known) in &self.truth.devices {
            let twins = known.properties.iter().filter_map(|(name, property)| {
                let own = property.actual.as_ref()?;
                // Not every value is a number.
                let number = own.parse().ok().max(self.remote.number(id, name));
                let actual = number.map_or_else(|| own.clone(), |it| it.to_string().into());
                let (property, actual) = (name.clone(), Some(actual));
                Some(ReportedTwin { property, expected: None, actual })
            });
            let twins: Vec<_> = twins.collect();
            if !twins.is_empty() {
                calls.push(ManagerCall::ReportStatus { device: id.clone(), twins });
            }
        }
        for call in calls {
            self.count("reports again");
            let id = self.next_call();
            self.event(DeviceEvent::Called(id, call));
        }
    }

    fn next_call(&mut self) -> ManagerCallId {
        self.last_id += 1;
        ManagerCallId(self.last_id)
    }

    /// A process of the mapper starts, and registers.
    pub(super) fn starts(&mut self, now: u64, at: usize) {
        if self.mappers[at].state != State::Dead {
            return;
        }
        trace!(now, "{} starts", self.mappers[at].name);
        let id = self.next_call();
        let mapper = &mut self.mappers[at];
        mapper.process += 1;
        mapper.state = State::Registers(id);
        let call = ManagerCall::Register { mapper: mapper.registration(), with_data: true };
        self.event(DeviceEvent::Called(id, call));
    }

    pub(super) fn listens(&mut self, at: usize, process: u32) {
        let mapper = &mut self.mappers[at];
        if mapper.process == process && mapper.state == State::Registered {
            mapper.state = State::Listens;
        }
    }
}
