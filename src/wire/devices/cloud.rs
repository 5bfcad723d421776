//! The messages between the node and `devicecontroller` that are not about objects (sections 7.3
//! and 10.2). What they are about is read from the end of the resource: ids have one part or two.

use serde::Serialize;
use serde_json::value::RawValue;

use super::publish::{Base, Changed, StateUpdate, Versions, all};
use super::request::Fields;
use crate::limits::{
    DEVICE_ATTRIBUTES_MAX, DEVICE_DESCRIPTION_BYTES_MAX, DEVICE_ID_BYTES_MAX,
    DEVICE_PROPERTIES_MAX, NODE_DEVICES_MAX, TWIN_NAME_BYTES_MAX, TWIN_VALUE_BYTES_MAX,
};
use crate::model::device::{
    Attribute, AttributeChanges, DeviceDownstream, DeviceId, DeviceUpstream, GivenDevice,
    GivenSide, GivenTwin, TwinVersion,
};
use crate::model::error::Peer;
use crate::model::tree::{self, Node, Value};
use crate::wire::edge;

/// The message of this resource and content; `None`: it is none of these, and no answer is
/// expected.
pub fn decode_cloud(resource: &str, content: &str) -> Option<Result<DeviceDownstream, Peer>> {
    let parts: Vec<&str> = resource.split('/').take(6).collect();
    let read = || {
        let node =
            tree::parse_json(content.as_bytes()).map_err(|refusal| Peer::new(refusal.why))?;
        Ok::<Node, Peer>(node)
    };
    Some(match parts[..] {
        ["membership"] => read().and_then(|node| membership(&Fields::of(&node)?)),
        ["membership", "detail"] => read().and_then(|node| {
            Ok(DeviceDownstream::Detail(devices(&Fields::of(&node)?, "devices")?))
        }),
        ["device", .., "twin", "cloud_updated"] => {
            let id = DeviceId::of(&parts[1..parts.len() - 2].join("/"));
            read().and_then(|node| {
                let twins = twins(&Fields::of(&node)?)?;
                Ok(DeviceDownstream::CloudUpdated(id, twins))
            })
        }
        ["device", _] | ["device", _, _] => {
            let id = DeviceId::of(&parts[1..].join("/"));
            read().and_then(|node| {
                let changes = attributes(&Fields::of(&node)?)?.unwrap_or_default();
                Ok(DeviceDownstream::Attributes(id, changes))
            })
        }
        _ => return None,
    })
}

fn membership(fields: &Fields<'_>) -> Result<DeviceDownstream, Peer> {
    let added = devices(fields, "added_devices")?;
    let removed = devices(fields, "removed_devices")?.into_iter().map(|device| device.id);
    Ok(DeviceDownstream::Membership { added, removed: removed.collect() })
}

fn devices(fields: &Fields<'_>, name: &str) -> Result<Vec<GivenDevice>, Peer> {
    let list = match fields.get(name) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::List(list)) => list,
        Some(other) => return Err(Peer::new(format!("{name}: got {other}, expected a list"))),
    };
    if list.len() > NODE_DEVICES_MAX {
        let got = list.len();
        return Err(Peer::new(format!(
            "{name}: got {got} devices, expected {NODE_DEVICES_MAX} at most"
        )));
    }
    let read = |(at, node)| device(node).map_err(|why| Peer::at(format_args!("{name}[{at}]"), why));
    list.iter().enumerate().map(read).collect()
}

fn device(node: &Node) -> Result<GivenDevice, Peer> {
    let fields = Fields::of(node)?;
    let id = bounded(&fields, "id", DEVICE_ID_BYTES_MAX)?;
    if id.is_empty() || id.ends_with('/') || id.starts_with('/') || id.split('/').count() > 2 {
        return Err(Peer::new(format!("id: got {id:?}, expected namespace/name")));
    }
    let description = bounded(&fields, "description", DEVICE_DESCRIPTION_BYTES_MAX)?;
    let attributes = attributes(&fields)?;
    let attributes = attributes.map(|given| {
        given.into_iter().filter_map(|(name, attribute)| Some((name, attribute?))).collect()
    });
    let id = DeviceId::of(&id);
    Ok(GivenDevice { id, description, attributes, twins: twins(&fields)? })
}

/// `attributes`; `None`: not given.
fn attributes(fields: &Fields<'_>) -> Result<Option<AttributeChanges>, Peer> {
    if matches!(fields.get("attributes"), None | Some(Value::Null)) {
        return Ok(None);
    }
    let given = fields.entries("attributes")?;
    if given.len() > DEVICE_ATTRIBUTES_MAX {
        let got = given.len();
        return Err(Peer::new(format!(
            "attributes: got {got}, expected {DEVICE_ATTRIBUTES_MAX} at most"
        )));
    }
    let read = |(name, node): (&str, &Node)| {
        check_name("attributes", name)?;
        if node.value == Value::Null {
            return Ok((name.into(), None));
        }
        let attribute = Fields::of(node).and_then(|fields| attribute(&fields));
        let attribute =
            attribute.map_err(|why| Peer::at(format_args!("attributes.{name}"), why))?;
        Ok((name.into(), Some(attribute)))
    };
    given.into_iter().map(read).collect::<Result<_, _>>().map(Some)
}

fn attribute(fields: &Fields<'_>) -> Result<Attribute, Peer> {
    Ok(Attribute {
        value: bounded(fields, "value", TWIN_VALUE_BYTES_MAX)?,
        optional: fields.truth("optional")?.unwrap_or(true),
        type_name: type_name(fields)?,
    })
}

fn type_name(fields: &Fields<'_>) -> Result<Box<str>, Peer> {
    match fields.inner("metadata")? {
        Some(metadata) => metadata.word("type"),
        None => Ok(Box::default()),
    }
}

fn check_name(of: &str, name: &str) -> Result<(), Peer> {
    if (1..=TWIN_NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(());
    }
    let got = name.len();
    Err(Peer::new(format!("{of}: got a name of {got} bytes, expected 1 to {TWIN_NAME_BYTES_MAX}")))
}

fn bounded(fields: &Fields<'_>, name: &str, most: usize) -> Result<Box<str>, Peer> {
    let text = fields.value(name)?.unwrap_or_default();
    if text.len() > most {
        return Err(Peer::new(format!(
            "{name}: got {} bytes, expected {most} at most",
            text.len()
        )));
    }
    Ok(text)
}

fn twins(fields: &Fields<'_>) -> Result<Vec<(Box<str>, GivenTwin)>, Peer> {
    let given = fields.entries("twin")?;
    if given.len() > DEVICE_PROPERTIES_MAX {
        let got = given.len();
        return Err(Peer::new(format!(
            "twin: got {got} properties, expected {DEVICE_PROPERTIES_MAX} at most"
        )));
    }
    let mut twins = Vec::new();
    for (name, node) in given {
        // Go's cloud does not write it, and it says nothing.
        if node.value == Value::Null {
            continue;
        }
        check_name("twin", name)?;
        let twin = Fields::of(node).and_then(|fields| twin(&fields));
        twins.push((name.into(), twin.map_err(|why| Peer::at(format_args!("twin.{name}"), why))?));
    }
    Ok(twins)
}

fn twin(fields: &Fields<'_>) -> Result<GivenTwin, Peer> {
    let side = |name: &str, version: &str| -> Result<Option<GivenSide>, Peer> {
        let Some(side) = fields.inner(name)? else { return Ok(None) };
        let value = bounded(&side, "value", TWIN_VALUE_BYTES_MAX)?;
        let version = match fields.inner(version)? {
            Some(given) => {
                Some(TwinVersion { cloud: number(&given, "cloud")?, edge: number(&given, "edge")? })
            }
            None => None,
        };
        Ok(Some(GivenSide { value, version }))
    };
    Ok(GivenTwin {
        expected: side("expected", "expected_version")?,
        actual: side("actual", "actual_version")?,
        optional: fields.truth("optional")?,
        type_name: type_name(fields)?,
    })
}

pub(super) fn number(fields: &Fields<'_>, name: &str) -> Result<i64, Peer> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(0),
        Some(Value::Int(number)) => Ok(*number),
        Some(other) => Err(Peer::new(format!("{name}: got {other}, expected a whole number"))),
    }
}

/// Operation, resource and content of a report. `event_id` is unique, `timestamp_ms` is now.
pub fn encode_cloud(
    report: &DeviceUpstream,
    event_id: &str,
    timestamp_ms: i64,
) -> (&'static str, String, Box<RawValue>) {
    let base = Base { event_id, timestamp: timestamp_ms };
    match report {
        DeviceUpstream::Twins(device, twins) => {
            let content = Changed { base, twin: all(twins, Versions::Shown) };
            let resource = format!("device/{device}/twin/edge_updated");
            ("update", resource, edge::content(&content))
        }
        DeviceUpstream::State(device, state) => {
            let content = edge::content(&StateUpdate::of(base, device, state));
            // A JSON string that contains JSON, as KubeEdge expects.
            ("update", format!("device/{device}/state/update"), edge::content(content.get()))
        }
        DeviceUpstream::GetDetail(node) => {
            let content = edge::content(&GetDetail {
                event_type: "group_membership_event",
                event_id,
                group_id: node,
                operation: "detail",
                timestamp: timestamp_ms,
            });
            ("get", "membership/detail".to_owned(), edge::content(content.get()))
        }
    }
}

#[derive(Serialize)]
struct GetDetail<'a> {
    event_type: &'a str,
    event_id: &'a str,
    group_id: &'a str,
    operation: &'a str,
    timestamp: i64,
}
