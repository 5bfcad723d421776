//! What is shown of devices: `/edged/devices`, the part of `/edged/status`, and counters.

use serde::{Deserialize, Serialize};

use super::{Attributes, DeviceId, DeviceState, Twin};
use crate::model::time::Timestamp;

/// One device, as the core has it.
#[derive(Clone, Debug)]
pub struct DeviceInfo<'a> {
    pub id: &'a DeviceId,
    pub description: &'a str,
    /// The name of its model; empty: none.
    pub model: &'a str,
    /// `spec.protocol.protocolName`; empty: none, or there is no object.
    pub protocol: &'a str,
    /// The name of its mapper; empty: none has registered for the protocol.
    pub mapper: &'a str,
    pub state: &'a DeviceState,
    /// Why its mapper does not have it as the cloud wants it; empty: it has.
    pub trouble: String,
    pub properties: Vec<PropertyInfo<'a>>,
    /// Of clouds up to 1.14.
    pub attributes: &'a Attributes,
}

/// One property of a device.
#[derive(Clone, Debug)]
pub struct PropertyInfo<'a> {
    pub name: &'a str,
    pub twin: &'a Twin,
    /// Of the model; empty: not given.
    pub unit: &'a str,
    /// The cloud has confirmed the values as they are.
    pub is_confirmed: bool,
}

impl PropertyInfo<'_> {
    /// When the actual value was reported last; `None`: never, or the clock was not set.
    pub fn reported_at(&self) -> Option<Timestamp> {
        let actual = self.twin.actual.as_ref().filter(|side| side.value.is_some())?;
        (actual.timestamp_ms > 0).then(|| Timestamp(actual.timestamp_ms.div_euclid(1_000)))
    }
}

/// All devices in short, for `/edged/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DevicesOverview {
    pub devices: usize,
    /// Of these, those that are as somebody on the node has edited them.
    pub edited: usize,
    /// Properties and states whose values the cloud has not confirmed.
    pub unconfirmed: usize,
    /// Messages of MQTT clients that wait for the cloud.
    pub uploads: usize,
    /// `None`: MQTT is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mqtt: Option<MqttOverview>,
    pub mappers: Vec<MapperOverview>,
}

/// The brokers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MqttOverview {
    /// The URL of the other broker; empty: there is none by the mode.
    pub server: String,
    /// Milliseconds since the connection to it came up; `None`: it is down.
    pub up_ms: Option<u64>,
    /// Why it is down.
    pub trouble: String,
    /// Where the broker inside listens; empty: there is none by the mode.
    pub address: String,
    /// The broker inside listens.
    pub listens: bool,
    /// Clients that are connected to it.
    pub clients: usize,
}

/// A mapper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MapperOverview {
    pub name: String,
    pub protocol: String,
    /// The path of its socket.
    pub socket: String,
    /// Milliseconds since nobody listens on its socket; `None`: it was reached.
    pub unreachable_ms: Option<u64>,
    /// Devices that it should have.
    pub devices: usize,
    /// Its last error; empty: none since the last success.
    pub trouble: String,
}

/// The brokers as the event loop has them; sent to the core whenever this changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MqttStatus {
    /// The other broker; `None`: there is none.
    pub client: Option<OtherBroker>,
    /// The address of the broker inside, and whether it listens; `None`: there is none.
    pub broker: Option<(Box<str>, bool)>,
    /// Clients of the broker inside.
    pub clients: usize,
    /// Messages that were handed to the other broker and to clients of the broker inside.
    pub published: u64,
    /// Messages that were dropped: too many waited, or the other broker was away.
    pub dropped: u64,
}

/// The broker to which the node is a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherBroker {
    /// Its URL.
    pub server: Box<str>,
    /// Why it is not connected; `None`: it is.
    pub trouble: Option<Box<str>>,
}

impl OtherBroker {
    pub fn is_up(&self) -> bool {
        self.trouble.is_none()
    }
}

/// Counters and gauges, for `/metrics`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceMetrics {
    pub devices: u64,
    /// See [`DevicesOverview::edited`].
    pub edited: u64,
    /// See [`DevicesOverview::unconfirmed`].
    pub unconfirmed: u64,
    /// Updates of twins by MQTT clients and mappers that were accepted.
    pub updates: u64,
    /// Requests and calls that were refused: unknown device, invalid, too many.
    pub refused: [(&'static str, u64); 3],
    /// Messages of MQTT clients for the cloud: those that wait, that have left, and that were
    /// dropped.
    pub uploads: [u64; 3],
    pub mqtt: Option<MqttStatus>,
    pub mappers: Vec<MapperMetrics>,
}

/// Counters of one mapper since it is known to this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MapperMetrics {
    pub name: Box<str>,
    pub protocol: Box<str>,
    pub is_up: bool,
    /// Calls that were answered, refused or lost; checks of the socket are none.
    pub calls: u64,
    /// Of them, those without success.
    pub failures: u64,
}
