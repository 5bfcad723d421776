//! The end of a run: the node, its mappers and the cloud have the same of each device.

use edged::model::device::DeviceId;

use super::mapper::State;
use super::{DeviceDue, Rates, users};
use crate::cloud::{CloudSim, Due};
use crate::rule::judge;
use crate::world::World;

/// Reports of one device within the quiet time at the end: its mapper may be given up there.
const REPORTS_MAX: usize = 1;

impl CloudSim {
    /// Nothing goes wrong any more: clients and users are silent, mappers and the broker are there.
    pub(in crate::cloud) fn devices_calm(&mut self) {
        let Some(devices) = &mut self.devices else { return };
        devices.rates = Rates { call_ms: 5, ..Rates::default() };
        devices.broker_down_until = 0;
        for at in 0..devices.mappers.len() {
            devices.mappers[at].hangs_until = 0;
            // A mapper registers once: the users start it again.
            if devices.is_lost {
                devices.mappers[at].die();
            }
            let starts = devices.chance.percent(70);
            if devices.mappers[at].state == State::Dead && starts {
                devices.timers.push((1, DeviceDue::Starts(at)));
            }
        }
        devices.report_again(1);
        users::heal(&mut self.api);
        self.inform();
    }

    /// Only clients and users stop.
    pub(in crate::cloud) fn is_device_fault(due: Due) -> bool {
        matches!(due, Due::Device(DeviceDue::Act | DeviceDue::UserChange))
    }

    /// What of devices is not yet as it should be.
    pub(in crate::cloud) fn devices_unsettled(&self) -> Option<String> {
        let devices = self.devices.as_deref()?;
        let there = self.api.iter().filter(|(key, _)| key.contains("/device/"));
        for (key, object) in there {
            let id = super::id_in(object.value());
            let known = devices.truth.devices.get(&id);
            if known.is_none_or(|known| known.object.is_none()) {
                return Some(format!("the node does not have {key}"));
            }
        }
        let is_left = |id: &&DeviceId| {
            let key = format!("{}/device/{}", id.namespace(), id.name());
            // What came by a message about membership goes only by another one.
            let had_object = devices.truth.devices[*id].had_object();
            self.api.get(&key).is_none() && (had_object || devices.remote.answers_detail)
        };
        if let Some(left) = devices.truth.devices.keys().find(is_left) {
            return Some(format!("the node still has {left}"));
        }
        let models = Self::models(&self.api);
        let of_mappers = devices.mappers_unsettled(&models);
        of_mappers
            .or_else(|| devices.remote.unsettled(&devices.truth, devices.has_clients))
            .or_else(|| devices.truth.differs(&devices.rows))
    }
}

impl World {
    /// Without a change nothing is reported.
    pub(crate) fn devices_quiet(&self, since: u64) {
        let Some(devices) = self.cloud.as_deref().and_then(|cloud| cloud.devices.as_deref()) else {
            return;
        };
        let reports = devices.remote.reports(since);
        let max = REPORTS_MAX * devices.truth.devices.len();
        judge!(
            reports <= max,
            "[devices are quiet] {reports} reports of devices in calm, expected {max}"
        );
    }
}
