//! Devices: what the cloud wants of them, what MQTT clients and mappers report of them, and what
//! the core of the agent says and hears about them (spec `devices`).
//!
//! `wire/devices` reads and writes the JSON of MQTT and of the cloud, `wire/dmi` the protobuf of
//! mappers. `agent/devices` sees only these types.

mod info;
mod object;
mod stored;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

pub use info::{
    DeviceInfo, DeviceMetrics, DevicesOverview, MapperMetrics, MapperOverview, MqttOverview,
    MqttStatus, OtherBroker, PropertyInfo,
};
pub use object::{DeviceObject, ModelObject};
pub use stored::{Acknowledged, AttributeRow, DeviceChange, DeviceRow, StoredDevices, TwinRow};

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

    /// As it is in a message or a row, with its namespace or without.
    pub fn of(id: &str) -> Self {
        Self(id.into())
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
    /// The payload cannot be used, and why; `None`: the request is about no device.
    Invalid(Option<DeviceId>, Door, Box<str>),
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
}

/// `MsgTwin` of section 7.1: a property of a device, or the sides of it that a message is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twin {
    pub expected: Option<TwinSide>,
    pub actual: Option<TwinSide>,
    /// A client may delete it.
    pub optional: bool,
    /// `metadata.type`: `string`, `int`, `integer`, `float`, `double`, `boolean`, `bytes`, or
    /// [`DELETED`].
    pub type_name: TypeName,
}

/// A word for a type. Nearly all are KubeEdge's, and those take no memory on the heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeName(Cow<'static, str>);

impl From<&str> for TypeName {
    fn from(word: &str) -> Self {
        let known = TYPES.into_iter().find(|known| *known == word);
        Self(known.map_or_else(|| Cow::Owned(word.to_owned()), Cow::Borrowed))
    }
}

impl Deref for TypeName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The words that a node writes, and [`DELETED`].
const TYPES: [&str; 8] =
    ["string", "int", "integer", "float", "double", "boolean", "bytes", DELETED];

/// The type of a property that was deleted: a tombstone, which keeps the versions.
pub const DELETED: &str = "deleted";

impl Twin {
    pub fn is_deleted(&self) -> bool {
        &*self.type_name == DELETED
    }
}

/// One side of a twin, `TwinValue` with its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TwinSide {
    /// `None`: there is none since the property was deleted.
    pub value: Option<Box<str>>,
    /// Of the update: milliseconds since the epoch, by the node's clock; 0: not known.
    pub timestamp_ms: i64,
    pub version: TwinVersion,
}

impl TwinSide {
    /// Empty: there is none.
    pub fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }
}

/// `expected_version`, `actual_version`: how often the cloud and the node have changed a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TwinVersion {
    pub cloud: i64,
    pub edge: i64,
}

/// The properties of a device, by name.
pub type Twins = BTreeMap<Box<str>, Twin>;

/// `MsgAttr` of section 7.1: a fact about a device that only the cloud changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    pub value: Box<str>,
    pub optional: bool,
    /// `metadata.type`
    pub type_name: Box<str>,
}

/// The attributes of a device, by name.
pub type Attributes = BTreeMap<Box<str>, Attribute>;

/// A change of attributes, by name; `None`: it is deleted.
pub type AttributeChanges = Vec<(Box<str>, Option<Attribute>)>;

/// What the node publishes for MQTT clients (section 6.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    pub event_id: Box<str>,
    /// Milliseconds since the epoch; 0: not known.
    pub timestamp_ms: i64,
    pub content: Published,
}

/// What a [`Publication`] says, by its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// On the topic that answers such requests: the code, and the reason (section 7.4).
    Refused(Door, Option<DeviceId>, u16, Box<str>),
    /// `membership/get/result`
    Members(Vec<Member>),
    /// `membership/updated`
    MembersChanged { added: Vec<Member>, removed: Vec<DeviceId> },
    /// `twin/get/result`
    Twins(DeviceId, Twins),
    /// `twin/update/result`: the sides that were given; `None`: the property was deleted.
    Updated(DeviceId, Vec<(Box<str>, Option<Twin>)>),
    /// `twin/update/document`
    Document(DeviceId, Vec<(Box<str>, TwinChange)>),
    /// `twin/update/delta`: every property with an expected value, and the values of those that
    /// are not as expected.
    Delta { device: DeviceId, twins: Twins, delta: Vec<(Box<str>, Box<str>)> },
    /// `state/update/result`
    State(DeviceId, DeviceState),
    /// `updated`
    Attributes(DeviceId, AttributeChanges),
}

/// A property before and after an update; `None`: there was none, or there is none any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwinChange {
    pub last: Option<Twin>,
    pub current: Option<Twin>,
}

/// A device in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: DeviceId,
    pub description: Box<str>,
    pub state: DeviceState,
    pub attributes: Attributes,
}

/// The state of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// As it was given; empty: none was.
    pub state: Box<str>,
    /// `lastOnlineTime`, RFC 3339; empty: it is not online.
    pub last_online: Box<str>,
}

/// What the cloud's `devicecontroller` sends beside the objects (section 7.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceDownstream {
    /// It has what the message of this id said.
    Confirmed(Box<str>),
    /// `membership`
    Membership { added: Vec<GivenDevice>, removed: Vec<DeviceId> },
    /// `membership/detail`: all devices of the node.
    Detail(Vec<GivenDevice>),
    /// `twin/cloud_updated`, from clouds up to 1.14.
    CloudUpdated(DeviceId, Vec<(Box<str>, GivenTwin)>),
    /// `device/<id>`: other attributes than these stay.
    Attributes(DeviceId, AttributeChanges),
    /// Of the router: a rule has this topic as its source.
    Subscribe(Box<str>),
    /// It has not any more.
    Unsubscribe(Box<str>),
    /// Of the router: a message for MQTT clients.
    Publish { topic: Box<str>, payload: Box<str> },
}

/// A device in a message of the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenDevice {
    pub id: DeviceId,
    pub description: Box<str>,
    /// All that it has; `None`: not given, and those that it has stay.
    pub attributes: Option<Attributes>,
    pub twins: Vec<(Box<str>, GivenTwin)>,
}

/// A property in a message of the cloud. A side without a version is refused (section 8.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenTwin {
    pub expected: Option<GivenSide>,
    pub actual: Option<GivenSide>,
    /// `None`: not given.
    pub optional: Option<bool>,
    /// Empty: not given; [`DELETED`]: the property is deleted.
    pub type_name: Box<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenSide {
    pub value: Box<str>,
    pub version: Option<TwinVersion>,
}

/// What the node reports to the cloud (section 10.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceUpstream {
    /// `…/twin/edge_updated`: these properties as they are now, with their versions.
    Twins(DeviceId, Twins),
    /// `…/state/update`
    State(DeviceId, DeviceState),
    /// `get membership/detail` for the node of this name.
    GetDetail(Box<str>),
}

/// A message of an MQTT client that goes to the cloud's router (section 6.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    pub topic: Box<str>,
    /// What is not UTF-8 is replaced: the cloud gets a text.
    pub payload: Box<str>,
}

impl Upload {
    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.topic.len() + self.payload.len() + size_of::<Self>()
    }
}

/// Identifies one [`ManagerCall`] until its answer. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManagerCallId(pub u64);

/// Identifies one [`MapperCall`], or one check of a mapper's socket, until its answer. Never used
/// twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapperCallId(pub u64);

impl From<u64> for MapperCallId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}
