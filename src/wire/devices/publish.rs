//! Writes what the node publishes: the topic, and the payload as `EdgeCore` writes it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::device::{
    Attribute, DeviceId, DeviceState, Door, Member, Publication, Published, Twin, TwinChange,
    TwinSide, Twins,
};
use crate::wire::edge;

/// The topic and the payload of a publication of the node with this name.
pub fn publish(node: &str, publication: &Publication) -> (String, Vec<u8>) {
    let Publication { event_id, timestamp_ms, content } = publication;
    let base = Base { event_id, timestamp: *timestamp_ms };
    let topic = topic(node, content);
    let payload = match content {
        Published::Refused(_, _, code, reason) => json(&Refused { base, code: *code, reason }),
        Published::Members(members) => {
            let devices = members.iter().map(Device::of).collect();
            json(&Members { base, devices })
        }
        Published::MembersChanged { added, removed } => {
            let added: Vec<_> = added.iter().map(Device::of).collect();
            let removed: Vec<_> = removed.iter().map(|id| Removed { id: id.as_str() }).collect();
            json(&MembersChanged {
                base,
                added_devices: (!added.is_empty()).then_some(added),
                removed_devices: (!removed.is_empty()).then_some(removed),
            })
        }
        Published::Twins(_, twins) => json(&Changed { base, twin: all(twins, Versions::Hidden) }),
        Published::Updated(_, twins) => {
            let each = twins.iter().map(|(name, twin)| {
                (&**name, twin.as_ref().map(|twin| MsgTwin::of(twin, Versions::Hidden)))
            });
            json(&Changed { base, twin: each.collect::<BTreeMap<_, _>>() })
        }
        Published::Document(_, changes) => {
            let each = changes.iter().map(|(name, change)| (&**name, Document::of(change)));
            json(&Changed { base, twin: each.collect::<BTreeMap<_, _>>() })
        }
        Published::Delta { twins, delta, .. } => json(&Differing {
            base,
            twin: all(twins, Versions::Hidden),
            delta: delta.iter().map(|(name, value)| (&**name, &**value)).collect(),
        }),
        Published::State(device, state) => json(&StateUpdate::of(base, device, state)),
        Published::Attributes(_, changes) => {
            let each = changes.iter();
            let each = each.map(|(name, it)| (&**name, it.as_ref().map(MsgAttr::of)));
            json(&ChangedAttributes { base, attributes: each.collect() })
        }
    };
    (topic, payload)
}

fn topic(node: &str, content: &Published) -> String {
    let of = |device: &DeviceId, what: &str| format!("$hw/events/device/{device}/{what}");
    let of_node = |what: &str| format!("$hw/events/node/{node}/membership/{what}");
    match content {
        Published::Refused(Door::Membership, ..) | Published::Members(_) => of_node("get/result"),
        Published::Refused(door, device, ..) => {
            let what = match door {
                Door::Membership | Door::TwinUpdate => "twin/update/result",
                Door::TwinGet => "twin/get/result",
                Door::State => "state/update/result",
            };
            let id = device.as_ref().map_or("", DeviceId::as_str);
            format!("$hw/events/device/{id}/{what}")
        }
        Published::MembersChanged { .. } => of_node("updated"),
        Published::Twins(device, _) => of(device, "twin/get/result"),
        Published::Updated(device, _) => of(device, "twin/update/result"),
        Published::Document(device, _) => of(device, "twin/update/document"),
        Published::Delta { device, .. } => of(device, "twin/update/delta"),
        Published::State(device, _) => of(device, "state/update/result"),
        Published::Attributes(device, _) => of(device, "updated"),
    }
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    edge::content(value).get().as_bytes().to_vec()
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct Base<'a> {
    pub event_id: &'a str,
    pub timestamp: i64,
}

#[derive(Serialize)]
struct Refused<'a> {
    #[serde(flatten)]
    base: Base<'a>,
    code: u16,
    reason: &'a str,
}

#[derive(Serialize)]
struct Members<'a> {
    #[serde(flatten)]
    base: Base<'a>,
    devices: Vec<Device<'a>>,
}

#[derive(Serialize)]
struct MembersChanged<'a> {
    #[serde(flatten)]
    base: Base<'a>,
    added_devices: Option<Vec<Device<'a>>>,
    removed_devices: Option<Vec<Removed<'a>>>,
}

#[derive(Serialize)]
struct Removed<'a> {
    id: &'a str,
}

/// As `EdgeCore` writes `Device`.
#[derive(Serialize)]
struct Device<'a> {
    id: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    state: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    last_online: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'a str, MsgAttr<'a>>,
}

impl<'a> Device<'a> {
    fn of(member: &'a Member) -> Self {
        Self {
            id: member.id.as_str(),
            name: member.id.name(),
            description: &member.description,
            state: &member.state.state,
            last_online: &member.state.last_online,
            attributes: member.attributes.iter().map(|(k, it)| (&**k, MsgAttr::of(it))).collect(),
        }
    }
}

/// `updated`
#[derive(Serialize)]
struct ChangedAttributes<'a> {
    #[serde(flatten)]
    base: Base<'a>,
    attributes: BTreeMap<&'a str, Option<MsgAttr<'a>>>,
}

#[derive(Serialize)]
struct MsgAttr<'a> {
    value: &'a str,
    optional: bool,
    metadata: Type<'a>,
}

impl<'a> MsgAttr<'a> {
    fn of(attribute: &'a Attribute) -> Self {
        let Attribute { value, optional, type_name } = attribute;
        Self { value, optional: *optional, metadata: Type { name: type_name } }
    }
}

/// Of most messages about twins: by property, whatever the message has of each.
#[derive(Serialize)]
pub(super) struct Changed<'a, T> {
    #[serde(flatten)]
    pub base: Base<'a>,
    pub twin: T,
}

#[derive(Serialize)]
struct Document<'a> {
    last: Option<MsgTwin<'a>>,
    current: Option<MsgTwin<'a>>,
}

impl<'a> Document<'a> {
    fn of(change: &'a TwinChange) -> Self {
        let whole =
            |twin: &'a Option<Twin>| twin.as_ref().map(|twin| MsgTwin::of(twin, Versions::Hidden));
        Self { last: whole(&change.last), current: whole(&change.current) }
    }
}

/// `twin/update/delta`
#[derive(Serialize)]
struct Differing<'a> {
    #[serde(flatten)]
    base: Base<'a>,
    twin: BTreeMap<&'a str, MsgTwin<'a>>,
    delta: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
pub(super) struct StateUpdate<'a> {
    #[serde(flatten)]
    base: Base<'a>,
    device: StateOf<'a>,
}

#[derive(Serialize)]
struct StateOf<'a> {
    name: &'a str,
    state: &'a str,
    #[serde(rename = "lastOnlineTime", skip_serializing_if = "str::is_empty")]
    last_online: &'a str,
}

impl<'a> StateUpdate<'a> {
    pub(super) fn of(base: Base<'a>, device: &'a DeviceId, state: &'a DeviceState) -> Self {
        let DeviceState { state, last_online } = state;
        Self { base, device: StateOf { name: device.name(), state, last_online } }
    }
}

/// Whether the versions of a twin are written: the cloud gets them, clients do not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Versions {
    Shown,
    Hidden,
}

/// The properties by name.
pub(super) fn all(twins: &Twins, versions: Versions) -> BTreeMap<&str, MsgTwin<'_>> {
    twins.iter().map(|(name, twin)| (&**name, MsgTwin::of(twin, versions))).collect()
}

#[derive(Serialize)]
pub(super) struct MsgTwin<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<TwinValue<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<TwinValue<'a>>,
    optional: bool,
    metadata: Type<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_version: Option<Version>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual_version: Option<Version>,
}

#[derive(Serialize)]
struct Type<'a> {
    #[serde(rename = "type", skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

/// `{}` after a deletion. An empty value is written: the cloud ignores a side without one.
#[derive(Serialize)]
struct TwinValue<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Time>,
}

#[derive(Serialize)]
struct Time {
    #[serde(skip_serializing_if = "is_zero")]
    timestamp: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field as it is")]
fn is_zero(ms: &i64) -> bool {
    *ms == 0
}

#[derive(Serialize)]
struct Version {
    cloud: i64,
    edge: i64,
}

impl<'a> MsgTwin<'a> {
    pub(super) fn of(twin: &'a Twin, versions: Versions) -> Self {
        let value = |side: &'a TwinSide| TwinValue {
            value: side.value.as_deref(),
            metadata: side.value.is_some().then_some(Time { timestamp: side.timestamp_ms }),
        };
        let version = |side: &TwinSide| {
            let (cloud, edge) = (side.version.cloud, side.version.edge);
            (versions == Versions::Shown).then_some(Version { cloud, edge })
        };
        Self {
            expected: twin.expected.as_ref().map(value),
            actual: twin.actual.as_ref().map(value),
            optional: twin.optional,
            metadata: Type { name: &twin.type_name },
            expected_version: twin.expected.as_ref().and_then(version),
            actual_version: twin.actual.as_ref().and_then(version),
        }
    }
}
