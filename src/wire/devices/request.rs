//! Reads what an MQTT client requests, and the values of JSON that KubeEdge reads alike.

use crate::limits::{
    DEVICE_ID_BYTES_MAX, DEVICE_PAYLOAD_BYTES_MAX, DEVICE_PAYLOAD_SHOWN, DEVICE_PAYLOAD_VALUES_MAX,
    DEVICE_PROPERTIES_MAX, DEVICE_WORD_BYTES_MAX,
};
use crate::model::device::{ClientContent, ClientRequest, DeviceId, Door, PropertyUpdate, Upload};
use crate::model::error::Peer;
use crate::model::tree::{self, Node, Shape, Value};

/// The request of a client; `None`: the topic is none of a request. Never fails: a payload that
/// cannot be used is [`ClientContent::Invalid`].
pub fn request(topic: &str, payload: &[u8]) -> Option<ClientRequest> {
    let (door, device) = address(topic)?;
    let read = parsed(payload).and_then(|node| {
        let fields = Fields::of(&node)?;
        let event_id = fields.word("event_id")?;
        Ok((event_id, content(door, device.as_ref(), &fields)))
    });
    let (event_id, content) = match read {
        Ok((event_id, Ok(content))) => (event_id, content),
        Ok((event_id, Err(why))) => (
            event_id,
            ClientContent::Invalid(device, door, reason(door, payload, &why.to_string())),
        ),
        Err(why) => {
            let why = reason(door, payload, &why.to_string());
            (Box::default(), ClientContent::Invalid(device, door, why))
        }
    };
    Some(ClientRequest { event_id, content })
}

/// A message of a client for the cloud: any but those about devices and nodes (section 6.1).
pub fn upload(topic: &str, payload: &[u8]) -> Option<Upload> {
    let below =
        |of: &str| topic.strip_prefix(of).is_some_and(|it| matches!(it.get(..1), None | Some("/")));
    if below("$hw/events/device") || below("$hw/events/node") {
        return None;
    }
    Some(Upload { topic: topic.into(), payload: String::from_utf8_lossy(payload).into() })
}

/// `$hw/events/node/<node>/membership/get`, `$hw/events/device/<namespace>/<name>/twin/update` and
/// so on; up to 1.16.1 without a namespace.
fn address(topic: &str) -> Option<(Door, Option<DeviceId>)> {
    let parts: Vec<&str> = topic.split('/').take(8).collect();
    let ["$hw", "events", of, names @ .., what, verb] = &parts[..] else { return None };
    let door = match (*of, *what, *verb) {
        ("node", "membership", "get") => Door::Membership,
        ("device", "twin", "get") => Door::TwinGet,
        ("device", "twin", "update") => Door::TwinUpdate,
        ("device", "state", "update") => Door::State,
        _ => return None,
    };
    let device = match (door, names) {
        (Door::Membership, [_]) => return Some((door, None)),
        (Door::Membership, _) => return None,
        (_, [name]) => DeviceId::new("", name),
        (_, [namespace, name]) if !namespace.is_empty() => DeviceId::new(namespace, name),
        _ => return None,
    };
    let is_valid = !device.name().is_empty() && device.as_str().len() <= DEVICE_ID_BYTES_MAX;
    is_valid.then_some((door, Some(device)))
}

/// The payload as a tree, if it is small enough to be one.
fn parsed(payload: &[u8]) -> Result<Node, Peer> {
    let bytes = payload.len();
    if bytes > DEVICE_PAYLOAD_BYTES_MAX {
        return Err(Peer::new(format!(
            "got {bytes} bytes, expected {DEVICE_PAYLOAD_BYTES_MAX} at most"
        )));
    }
    let text = std::str::from_utf8(payload).map_err(|error| Peer::new(error.to_string()))?;
    let values = Shape::of(text).values;
    if values > DEVICE_PAYLOAD_VALUES_MAX {
        return Err(Peer::new(format!(
            "got {values} values, expected {DEVICE_PAYLOAD_VALUES_MAX} at most"
        )));
    }
    tree::parse_json(payload).map_err(|refusal| {
        let place = format!("line {}, column {}", refusal.line, refusal.column);
        Peer::at(place, refusal.why)
    })
}

fn content(
    door: Door,
    device: Option<&DeviceId>,
    fields: &Fields<'_>,
) -> Result<ClientContent, Peer> {
    let device = || device.expect("all others are about a device").clone();
    Ok(match door {
        Door::Membership => ClientContent::Membership,
        Door::TwinGet => ClientContent::TwinGet(device()),
        Door::State => ClientContent::State(device(), fields.word("state")?),
        Door::TwinUpdate => {
            let twins = match fields.get("twin") {
                None | Some(Value::Null) => return Err(Peer::new(NO_TWIN)),
                Some(Value::Map(twins)) => twins,
                Some(other) => return Err(Peer::new(format!("twin: got {other}, expected a map"))),
            };
            if twins.len() > DEVICE_PROPERTIES_MAX {
                let got = twins.len();
                return Err(Peer::new(format!(
                    "twin: got {got} properties, expected {DEVICE_PROPERTIES_MAX} at most"
                )));
            }
            let updates = twins.iter().map(|(name, entry)| {
                update(&entry.node)
                    .map(|update| (name.clone(), update))
                    .map_err(|why| Peer::at(format_args!("twin.{name}"), why))
            });
            ClientContent::TwinUpdate(device(), updates.collect::<Result<_, _>>()?)
        }
    })
}

/// `MsgTwin`. Versions and timestamps in it are ignored.
fn update(node: &Node) -> Result<PropertyUpdate, Peer> {
    if node.value == Value::Null {
        return Ok(PropertyUpdate::Delete);
    }
    let fields = Fields::of(node)?;
    let side = |name: &str| match fields.inner(name)? {
        Some(side) => side.value("value").map_err(|why| Peer::new(format!("{name}.{why}"))),
        None => Ok(None),
    };
    let type_name = match fields.inner("metadata")? {
        Some(metadata) => metadata.word("type")?,
        None => Box::default(),
    };
    let (expected, actual) = (side("expected")?, side("actual")?);
    Ok(PropertyUpdate::Set { expected, actual, optional: fields.truth("optional")?, type_name })
}

/// `EdgeCore`'s text for a payload without the key `twin`.
const NO_TWIN: &str = "Update twin error, key:twin does not exist";

/// `EdgeCore`'s texts (section 7.4), which clients may compare; what is wrong is added where its
/// own text has a place for it.
fn reason(door: Door, payload: &[u8], why: &str) -> Box<str> {
    let shown = || {
        let shown = &payload[..payload.len().min(DEVICE_PAYLOAD_SHOWN)];
        String::from_utf8_lossy(shown).into_owned()
    };
    match door {
        Door::Membership => {
            format!("Unmarshal get membership info {} failed , err: {why}", shown()).into()
        }
        Door::TwinGet => format!("Unmarshal twin info {} failed , err: {why}", shown()).into(),
        Door::TwinUpdate if why == NO_TWIN => why.into(),
        Door::TwinUpdate => "Unmarshal update request body failed, please check the request".into(),
        Door::State => format!("the state cannot be read: {why}").into(),
    }
}

/// The keys of a map, by their names without regard to case.
pub(super) struct Fields<'a>(Vec<(&'a str, &'a Node)>);

impl<'a> Fields<'a> {
    pub(super) fn of(node: &'a Node) -> Result<Self, Peer> {
        match &node.value {
            Value::Map(map) => {
                Ok(Self(map.iter().map(|(key, entry)| (&**key, &entry.node)).collect()))
            }
            other => Err(Peer::new(format!("got {other}, expected a map"))),
        }
    }

    /// The exact name wins.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        let by = |is: &dyn Fn(&str) -> bool| self.0.iter().find(|(key, _)| is(key));
        let found = by(&|key| key == name).or_else(|| by(&|key| key.eq_ignore_ascii_case(name)));
        found.map(|(_, node)| &node.value)
    }

    pub(super) fn inner(&self, name: &str) -> Result<Option<Self>, Peer> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Map(map)) => {
                let fields = map.iter().map(|(key, entry)| (&**key, &entry.node)).collect();
                Ok(Some(Self(fields)))
            }
            Some(other) => Err(Peer::new(format!("{name}: got {other}, expected a map"))),
        }
    }

    /// The entries of a map; none if it is absent or `null`.
    pub(super) fn entries(&self, name: &str) -> Result<Vec<(&'a str, &'a Node)>, Peer> {
        Ok(self.inner(name)?.map(|fields| fields.0).unwrap_or_default())
    }

    /// A short text; empty: not given.
    pub(super) fn word(&self, name: &str) -> Result<Box<str>, Peer> {
        match self.value(name)? {
            Some(text) if text.len() > DEVICE_WORD_BYTES_MAX => {
                let got = text.len();
                Err(Peer::new(format!(
                    "{name}: got {got} bytes, expected {DEVICE_WORD_BYTES_MAX} at most"
                )))
            }
            text => Ok(text.unwrap_or_default()),
        }
    }

    /// A text; numbers and booleans count as their texts.
    pub(super) fn value(&self, name: &str) -> Result<Option<Box<str>>, Peer> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.clone())),
            Some(plain @ (Value::Bool(_) | Value::Int(_) | Value::Big(_) | Value::Float(_))) => {
                Ok(Some(plain.to_string().into()))
            }
            Some(other @ (Value::List(_) | Value::Map(_))) => {
                Err(Peer::new(format!("{name}: got {other}, expected text")))
            }
        }
    }

    pub(super) fn truth(&self, name: &str) -> Result<Option<bool>, Peer> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(*truth)),
            Some(other) => Err(Peer::new(format!("{name}: got {other}, expected true or false"))),
        }
    }
}
