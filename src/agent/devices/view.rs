//! What is shown of devices: the list, the part of the status, and counters. Changes nothing.

use super::device::Device;
use super::mappers::Assignment;
use super::{Devices, Refused};
use crate::core::time::Now;
use crate::model::device::{
    DeviceId, DeviceInfo, DeviceMetrics, DeviceObject, DevicesOverview, MqttOverview, PropertyInfo,
};

impl Devices {
    /// All devices, by id.
    pub(in crate::agent) fn infos(&self) -> impl Iterator<Item = DeviceInfo<'_>> {
        let assignments = self.mappers.assignments();
        self.table.iter().map(move |(id, device)| self.info(id, device, assignments.get(id)))
    }

    fn info<'a>(
        &'a self,
        id: &'a DeviceId,
        device: &'a Device,
        assignment: Option<&Assignment<'a>>,
    ) -> DeviceInfo<'a> {
        let view = device.object().map(|object| &object.view);
        let model = device.object().and_then(|object| self.mappers.model(&object.model()?));
        let property = |(name, twin, is_confirmed)| PropertyInfo {
            name,
            twin,
            unit: model.and_then(|model| model.units.get(name)).map_or("", |unit| unit),
            is_confirmed,
        };
        let trouble = device.object().map(|object| match assignment {
            Some(assignment) => assignment.trouble(object),
            None => no_mapper(object),
        });
        DeviceInfo {
            id,
            description: device.description(),
            model: view.map_or("", |view| &view.model),
            protocol: view.map_or("", |view| &view.protocol),
            mapper: assignment.map_or("", |assignment| assignment.mapper_name()),
            state: device.state(),
            trouble: trouble.unwrap_or_default(),
            properties: device.properties().map(property).collect(),
            attributes: device.attributes(),
        }
    }

    pub(in crate::agent) fn overview(&self, now: Now) -> DevicesOverview {
        let mqtt = self.has_clients.then(|| {
            let other = self.mqtt.client.clone().unwrap_or_default();
            let (server, trouble) = (other.server.into(), other.trouble.unwrap_or_default().into());
            let (address, listens) = match &self.mqtt.broker {
                None => (String::new(), false),
                Some((address, listens)) => (address.to_string(), *listens),
            };
            let up_ms = self.mqtt_up_at.map(|at| now.boot.since_ms(at));
            MqttOverview { server, up_ms, trouble, address, listens, clients: self.mqtt.clients }
        });
        DevicesOverview {
            devices: self.table.iter().count(),
            edited: self.edited(),
            unconfirmed: self.unconfirmed(),
            uploads: self.uploads.count(),
            mqtt,
            mappers: self.mappers.overviews(now),
        }
    }

    fn edited(&self) -> usize {
        self.table.objects().filter(|object| object.is_edited).count()
    }

    fn unconfirmed(&self) -> usize {
        self.table.iter().map(|(_, device)| device.unconfirmed()).sum()
    }

    pub(in crate::agent) fn metrics(&self) -> DeviceMetrics {
        let Refused { unknown_device, invalid, too_many } = self.refused;
        DeviceMetrics {
            devices: self.table.iter().count() as u64,
            edited: self.edited() as u64,
            unconfirmed: self.unconfirmed() as u64,
            updates: self.updates,
            refused: [
                ("unknown_device", unknown_device),
                ("invalid", invalid),
                ("too_many", too_many),
            ],
            uploads: [self.uploads.count() as u64, self.uploads.sent, self.uploads.dropped],
            mqtt: self.has_clients.then(|| self.mqtt.clone()),
            mappers: self.mappers.metrics(),
        }
    }
}

/// Why no mapper gets the device; empty: it needs none.
fn no_mapper(object: &DeviceObject) -> String {
    let protocol = &object.view.protocol;
    if protocol.is_empty() {
        return String::new();
    }
    format!("no mapper has registered for the protocol {protocol}")
}
