//! Devices: what the cloud wants of them, what MQTT clients and mappers report of them, and what
//! the core of the agent says and hears about them (spec `devices`).
//!
//! `wire/devices` reads and writes the JSON of MQTT and of the cloud, `wire/dmi` the protobuf of
//! mappers. `agent/devices` sees only these types.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// `default/thermometer`; from clouds up to 1.16.1 and their topics, without the namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId(Arc<str>);

impl DeviceId {
    /// Of a device of this namespace; empty: none.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            return Self(name.into());
        }
        Self(format!("{namespace}/{name}").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Empty: there is none.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A request of an MQTT client, by its topic and payload (sections 6 and 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRequest {
    /// `event_id`, which the answer repeats; empty: none was given.
    pub event_id: Box<str>,
    pub content: ClientContent,
}

/// What an MQTT client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientContent {
    /// `…/membership/get`
    Membership,
    /// `…/twin/get`
    TwinGet(DeviceId),
    /// `…/twin/update`
    TwinUpdate(DeviceId, Vec<(Box<str>, PropertyUpdate)>),
    /// `…/state/update`, the state as it was given.
    State(DeviceId, Box<str>),
    /// The payload of a request about this device cannot be used.
    Invalid(DeviceId, Door, Box<str>),
}

/// The topic on which a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Membership,
    TwinGet,
    TwinUpdate,
    State,
}

/// A change of one property of a twin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyUpdate {
    /// `null`: the property is deleted.
    Delete,
    Set {
        /// `None`: this side is left as it is.
        expected: Option<Box<str>>,
        actual: Option<Box<str>>,
        optional: Option<bool>,
        /// `metadata.type`; empty: not given.
        type_name: Box<str>,
    },
}

/// A mapper as it registered itself (`MapperInfo`, section 11.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapper {
    pub name: Box<str>,
    pub version: Box<str>,
    pub api_version: Box<str>,
    /// Its devices are those of this `spec.protocol.protocolName`.
    pub protocol: Box<str>,
    /// The path of its unix socket.
    pub address: Box<str>,
    pub state: Box<str>,
}

/// A call of a mapper to the agent (`DeviceManagerService`). Each is answered once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagerCall {
    Register {
        mapper: Mapper,
        /// The answer lists its models and devices.
        with_data: bool,
    },
    ReportStatus {
        device: DeviceId,
        twins: Vec<ReportedTwin>,
    },
    ReportState {
        device: DeviceId,
        state: Box<str>,
    },
}

/// One property in a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedTwin {
    pub property: Box<str>,
    /// `observedDesired.value`; `None`: not given, or empty.
    pub expected: Option<Box<str>>,
    /// `reported.value`
    pub actual: Option<Box<str>>,
}

/// The answer to a [`ManagerCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagerAnswer {
    Done,
    /// To a registration with data: each model once, then the devices.
    Registered {
        models: Vec<ObjectText>,
        devices: Vec<(ObjectText, Option<ObjectText>)>,
    },
    /// gRPC status 5.
    NotFound(Box<str>),
    /// gRPC status 3.
    Invalid(Box<str>),
    /// gRPC status 8.
    TooMany(Box<str>),
}

/// The JSON of a `Device` or `DeviceModel` as it was stored.
pub type ObjectText = Arc<str>;

/// A call of the agent to a mapper (`DeviceMapperService`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapperCall {
    CreateModel(ObjectText),
    UpdateModel(ObjectText),
    RemoveModel(DeviceId),
    /// The device, and its model for the defaults of section 11.5; `None`: there is none.
    RegisterDevice(ObjectText, Option<ObjectText>),
    UpdateDevice(ObjectText, Option<ObjectText>),
    RemoveDevice(DeviceId),
}

/// Why a [`MapperCall`] did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapperError {
    /// Nobody listens on its socket, or the connection broke before an answer.
    Unreachable(Box<str>),
    /// No answer by the deadline.
    Deadline,
    /// It answered with an error: the code of gRPC, and its text.
    Refused(u32, Box<str>),
    /// The object cannot be written as a message, and why.
    Unwritable(Box<str>),
}

/// The parts of a `Device` that the agent decides by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceView {
    pub uid: Box<str>,
    /// `metadata.resourceVersion`; empty: not given.
    pub version: Box<str>,
    /// The label `description`.
    pub description: Box<str>,
    /// `spec.deviceModelRef.name`; empty: there is none.
    pub model: Box<str>,
    /// `spec.nodeName`
    pub node: Box<str>,
    /// `spec.protocol.protocolName`
    pub protocol: Box<str>,
    /// A digest of `spec`: equal specs have equal digests.
    pub spec: u64,
    /// `spec.properties`, by name, with `desired.value`; empty: none is desired.
    pub desired: BTreeMap<Box<str>, Box<str>>,
}
