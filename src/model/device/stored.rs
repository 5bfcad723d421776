//! What is stored of devices: the rows of KubeEdge's tables `device`, `device_attr` and
//! `device_twin` (section 5), and beside them what only edged needs: what the cloud has not
//! confirmed, which desired values were taken over, and what each mapper has acknowledged.

use super::{Attribute, Attributes, DeviceId, DeviceState, Twin};

/// A change of the tables of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChange {
    PutDevice(DeviceRow),
    /// With its properties and attributes.
    RemoveDevice(DeviceId),
    PutTwin(Box<TwinRow>),
    /// All attributes of this device: other rows of it are removed.
    PutAttributes(DeviceId, Attributes),
    PutAcknowledged(Acknowledged),
    /// Of this mapper, about this object.
    RemoveAcknowledged(Box<str>, Box<str>),
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRow {
    pub id: DeviceId,
    pub description: Box<str>,
    pub state: DeviceState,
    /// The cloud has not confirmed the state.
    pub is_unsent: bool,
    /// It was made from the object of this uid, and goes with it; `None`: there was none.
    pub uid: Option<Box<str>>,
}

/// An attribute of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeRow {
    pub device: DeviceId,
    pub name: Box<str>,
    pub attribute: Attribute,
}

/// A property of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwinRow {
    pub device: DeviceId,
    pub property: Box<str>,
    pub twin: Twin,
    /// The cloud has not confirmed it.
    pub is_unsent: bool,
    /// Of what it has not confirmed: it may have a newer actual value nevertheless, which a power
    /// cut has taken from the node.
    pub is_doubtful: bool,
    /// The last desired value of the object, empty if it had none; `None`: none was seen.
    pub desired: Option<Box<str>>,
}

/// What a mapper has of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    pub mapper: Box<str>,
    /// `device/default/dev1` or `devicemodel/default/model1`
    pub object: Box<str>,
    pub digest: u64,
}

/// The content of these tables when the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredDevices {
    pub devices: Vec<DeviceRow>,
    pub attributes: Vec<AttributeRow>,
    pub twins: Vec<TwinRow>,
    pub acknowledged: Vec<Acknowledged>,
}
