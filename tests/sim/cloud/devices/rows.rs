//! The tables of devices as the store has them.

use std::collections::BTreeMap;

use edged::model::device::{
    Acknowledged, DeviceChange, DeviceId, DeviceRow, StoredDevices, TwinRow,
};

/// The rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    pub devices: BTreeMap<DeviceId, DeviceRow>,
    pub twins: BTreeMap<(DeviceId, Box<str>), TwinRow>,
    /// Digests, by mapper and object.
    acknowledged: BTreeMap<(Box<str>, Box<str>), u64>,
}

impl Rows {
    /// As they are read at a start.
    pub fn of(stored: &StoredDevices) -> Self {
        let StoredDevices { devices, twins, acknowledged } = stored.clone();
        let twin = |row: TwinRow| ((row.device.clone(), row.property.clone()), row);
        let digest = |row: Acknowledged| ((row.mapper, row.object), row.digest);
        Self {
            devices: devices.into_iter().map(|row| (row.id.clone(), row)).collect(),
            twins: twins.into_iter().map(twin).collect(),
            acknowledged: acknowledged.into_iter().map(digest).collect(),
        }
    }

    pub fn write(&mut self, change: DeviceChange) {
        match change {
            DeviceChange::PutDevice(row) => drop(self.devices.insert(row.id.clone(), row)),
            DeviceChange::RemoveDevice(id) => {
                self.devices.remove(&id);
                self.twins.retain(|(device, _), _| *device != id);
            }
            DeviceChange::PutTwin(row) => {
                self.twins.insert((row.device.clone(), row.property.clone()), *row);
            }
            DeviceChange::PutAcknowledged(Acknowledged { mapper, object, digest }) => {
                self.acknowledged.insert((mapper, object), digest);
            }
            DeviceChange::RemoveAcknowledged(mapper, object) => {
                self.acknowledged.remove(&(mapper, object));
            }
        }
    }

    pub fn stored(&self) -> StoredDevices {
        let acknowledged = self.acknowledged.iter().map(|((mapper, object), digest)| {
            Acknowledged { mapper: mapper.clone(), object: object.clone(), digest: *digest }
        });
        StoredDevices {
            devices: self.devices.values().cloned().collect(),
            twins: self.twins.values().cloned().collect(),
            acknowledged: acknowledged.collect(),
        }
    }
}
