//! The tables of devices as the store has them.

use std::collections::BTreeMap;

use edged::model::device::{
    Acknowledged, AttributeRow, Attributes, DeviceChange, DeviceId, DeviceRow, StoredDevices,
    TwinRow,
};

/// The rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    pub devices: BTreeMap<DeviceId, DeviceRow>,
    pub twins: BTreeMap<(DeviceId, Box<str>), TwinRow>,
    pub attributes: BTreeMap<DeviceId, Attributes>,
    /// Digests, by mapper and object.
    acknowledged: BTreeMap<(Box<str>, Box<str>), u64>,
}

impl Rows {
    /// As they are read at a start.
    pub fn of(stored: &StoredDevices) -> Self {
        let StoredDevices { devices, attributes, twins, acknowledged } = stored.clone();
        let mut by_device = BTreeMap::<_, Attributes>::new();
        for AttributeRow { device, name, attribute } in attributes {
            by_device.entry(device).or_default().insert(name, attribute);
        }
        let twin = |row: TwinRow| ((row.device.clone(), row.property.clone()), row);
        let digest = |row: Acknowledged| ((row.mapper, row.object), row.digest);
        Self {
            devices: devices.into_iter().map(|row| (row.id.clone(), row)).collect(),
            twins: twins.into_iter().map(twin).collect(),
            attributes: by_device,
            acknowledged: acknowledged.into_iter().map(digest).collect(),
        }
    }

    pub fn write(&mut self, change: DeviceChange) {
        match change {
            DeviceChange::PutDevice(row) => drop(self.devices.insert(row.id.clone(), row)),
            DeviceChange::RemoveDevice(id) => {
                self.devices.remove(&id);
                self.attributes.remove(&id);
                self.twins.retain(|(device, _), _| *device != id);
            }
            DeviceChange::PutTwin(row) => {
                self.twins.insert((row.device.clone(), row.property.clone()), *row);
            }
            DeviceChange::PutAttributes(id, attributes) => {
                self.attributes.remove(&id);
                if !attributes.is_empty() {
                    self.attributes.insert(id, attributes);
                }
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
        let attributes = self.attributes.iter().flat_map(|(device, all)| {
            all.iter().map(|(name, attribute)| AttributeRow {
                device: device.clone(),
                name: name.clone(),
                attribute: attribute.clone(),
            })
        });
        StoredDevices {
            attributes: attributes.collect(),
            devices: self.devices.values().cloned().collect(),
            twins: self.twins.values().cloned().collect(),
            acknowledged: acknowledged.collect(),
        }
    }
}
