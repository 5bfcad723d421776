//! What the node must know of devices after each event, written independently of the core's own
//! code (spec `devices`, sections 8, 9 and 16.1).

use std::collections::{BTreeMap, BTreeSet};

use edged::limits::DEVICE_PROPERTIES_MAX;
use edged::model::device::{
    Attribute, AttributeChanges, Attributes, DELETED, DeviceId, PropertyUpdate, Twin, Twins,
};
use serde_json::Value;

use super::rows::Rows;

/// All devices.
#[derive(Default)]
pub struct Truth {
    pub devices: BTreeMap<DeviceId, Known>,
}

/// A device.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The object that became durable last, as far as the agent knows.
    pub object: Option<Value>,
    /// Of the object; `None`: there was none.
    uid: Option<Box<str>>,
    pub state: Box<str>,
    pub properties: BTreeMap<Box<str>, Property>,
    attributes: Attributes,
}

/// A property.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Property {
    pub expected: Option<Box<str>>,
    pub actual: Option<Box<str>>,
    pub type_name: Box<str>,
    optional: bool,
    /// The desired value that was taken over last.
    desired: Option<Box<str>>,
}

/// Which devices came and went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    pub added: BTreeSet<DeviceId>,
    pub removed: BTreeSet<DeviceId>,
}

/// A code of HTTP.
pub type Refusal = u16;

impl Members {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

impl Property {
    pub fn is_deleted(&self) -> bool {
        &*self.type_name == DELETED
    }

    fn of(twin: &Twin, desired: Option<Box<str>>) -> Self {
        let value = |side: &Option<edged::model::device::TwinSide>| side.clone()?.value;
        Self {
            expected: value(&twin.expected),
            actual: value(&twin.actual),
            type_name: (&*twin.type_name).into(),
            optional: twin.optional,
            desired,
        }
    }

    fn set(&self, update: &PropertyUpdate) -> Result<Self, Refusal> {
        let mut next = self.clone();
        match update {
            PropertyUpdate::Delete => {
                if self.optional {
                    next.type_name = DELETED.into();
                    (next.expected, next.actual) = (None, None);
                }
            }
            PropertyUpdate::Set { expected, actual, optional, type_name } => {
                if self.is_deleted() {
                    next.type_name = type_name.clone();
                    if type_name.is_empty() {
                        next.type_name = "string".into();
                    }
                    next.optional = true;
                }
                let values = expected.iter().chain(actual);
                let is_int = &*next.type_name == "int";
                if is_int && values.into_iter().any(|value| value.parse::<i64>().is_err()) {
                    return Err(400);
                }
                next.expected = expected.clone().or(next.expected);
                next.actual = actual.clone().or(next.actual);
                next.optional &= *optional != Some(false);
            }
        }
        Ok(next)
    }
}

impl Truth {
    /// The agent begins a life with these rows.
    pub fn load(&mut self, rows: &Rows) {
        self.devices.clear();
        for (id, row) in &rows.devices {
            let known =
                Known { uid: row.uid.clone(), state: row.state.state.clone(), ..Known::default() };
            self.devices.insert(id.clone(), known);
        }
        for (id, attributes) in &rows.attributes {
            if let Some(known) = self.devices.get_mut(id) {
                known.attributes.clone_from(attributes);
            }
        }
        for ((id, property), row) in &rows.twins {
            if let Some(known) = self.devices.get_mut(id) {
                let row = Property::of(&row.twin, row.desired.clone());
                known.properties.insert(property.clone(), row);
            }
        }
    }

    /// These objects are durable.
    pub fn objects(&mut self, objects: &BTreeMap<DeviceId, Value>) -> Members {
        let mut members = Members::default();
        for (id, object) in objects {
            let uid: Box<str> = object["metadata"]["uid"].as_str().unwrap_or_default().into();
            let is_other = |known: &Known| known.uid.as_ref().is_some_and(|it| *it != uid);
            if self.devices.get(id).is_some_and(is_other) {
                self.devices.remove(id);
                members.removed.insert(id.clone());
            }
            let known = self.devices.entry(id.clone()).or_insert_with(|| {
                members.added.insert(id.clone());
                Known::default()
            });
            known.uid = Some(uid);
            // It may be another one that has changed.
            if known.object.as_ref() != Some(object) {
                known.desire(object);
                known.object = Some(object.clone());
            }
        }
        self.devices.retain(|id, known| {
            let is_gone = known.uid.is_some() && !objects.contains_key(id);
            if is_gone {
                members.removed.insert(id.clone());
            }
            !is_gone
        });
        members
    }

    /// A message about membership names this device.
    pub fn add(&mut self, id: &DeviceId, members: &mut Members) {
        if !self.devices.contains_key(id) {
            self.devices.insert(id.clone(), Known::default());
            members.added.insert(id.clone());
        }
    }

    /// A message about membership does not name these devices any more.
    pub fn remove(&mut self, is_removed: impl Fn(&DeviceId) -> bool, members: &mut Members) {
        self.devices.retain(|id, known| {
            let is_gone = known.uid.is_none() && is_removed(id);
            if is_gone {
                members.removed.insert(id.clone());
            }
            !is_gone
        });
    }

    /// A client or a mapper updates properties: all of them or none.
    pub fn update(
        &mut self,
        id: &DeviceId,
        updates: &[(Box<str>, PropertyUpdate)],
    ) -> Result<(), Refusal> {
        let known = self.devices.get_mut(id).ok_or(404_u16)?;
        let mut next = known.properties.clone();
        for (name, update) in updates {
            let deleted = Property { type_name: DELETED.into(), ..Property::default() };
            let before = known.properties.get(name).unwrap_or(&deleted);
            // What does not exist may be deleted, and nothing happens.
            if *update != PropertyUpdate::Delete || !before.is_deleted() {
                next.insert(name.clone(), before.set(update)?);
            }
        }
        if next.len() > known.properties.len() && next.len() > DEVICE_PROPERTIES_MAX {
            return Err(400);
        }
        known.properties = next;
        Ok(())
    }

    /// The cloud changes attributes of a device. Returns what is then another.
    pub fn change_attributes(&mut self, id: &DeviceId, given: &Value) -> AttributeChanges {
        let Some(known) = self.devices.get_mut(id) else { return Vec::new() };
        let mut changes = Vec::new();
        for (name, given) in given.as_object().into_iter().flatten() {
            let attribute = given["value"].as_str().map(|value| Attribute {
                value: value.into(),
                optional: true,
                type_name: "string".into(),
            });
            let name = Box::<str>::from(&**name);
            if known.attributes.get(&name) == attribute.as_ref() {
                continue;
            }
            match &attribute {
                Some(attribute) => {
                    known.attributes.insert(name.clone(), attribute.clone());
                }
                None => drop(known.attributes.remove(&name)),
            }
            changes.push((name, attribute));
        }
        changes
    }

    /// The first property or attribute that is not stored as it is.
    pub fn differs(&self, rows: &Rows) -> Option<String> {
        let none = Attributes::default();
        self.devices.iter().find_map(|(id, known)| {
            let stored = rows.attributes.get(id).unwrap_or(&none);
            if *stored != known.attributes {
                let attributes = &known.attributes;
                return Some(format!("{id} has {attributes:?}, stored {stored:?}"));
            }
            known.properties.iter().find_map(|(name, property)| {
                let row = rows.twins.get(&(id.clone(), name.clone()));
                let stored = row.map(|row| Property::of(&row.twin, row.desired.clone()));
                let is_same = stored.as_ref() == Some(property);
                (!is_same).then(|| format!("{id} {name} is {property:?}, stored {stored:?}"))
            })
        })
    }

    /// Whether something is expected of this property.
    pub fn expects(&self, id: &DeviceId, property: &str) -> bool {
        let property = self.devices.get(id).and_then(|known| known.properties.get(property));
        property.is_some_and(|it| it.expected.as_ref().is_some_and(|value| !value.is_empty()))
    }
}

impl Known {
    /// It goes with its object.
    pub fn had_object(&self) -> bool {
        self.uid.is_some()
    }

    fn desire(&mut self, object: &Value) {
        for property in object["spec"]["properties"].as_array().into_iter().flatten() {
            let name = property["name"].as_str().expect("a name");
            let value = property["desired"]["value"].as_str().unwrap_or_default();
            let count = self.properties.len();
            let deleted = Property { type_name: DELETED.into(), ..Property::default() };
            let before = self.properties.get(name);
            let is_seen = before.is_some_and(|it| it.desired.as_deref() == Some(value));
            let fits = before.is_some() || (!value.is_empty() && count < DEVICE_PROPERTIES_MAX);
            if is_seen || !fits {
                continue;
            }
            let mut next = before.cloned().unwrap_or(deleted);
            if !value.is_empty() {
                if next.is_deleted() {
                    (next.type_name, next.optional) = ("string".into(), true);
                }
                next.expected = Some(value.into());
            }
            next.desired = Some(value.into());
            self.properties.insert(name.into(), next);
        }
    }

    /// The first property that a client is shown wrongly.
    pub fn differs(&self, shown: &Twins) -> Option<String> {
        let live = self.properties.iter().filter(|(_, it)| !it.is_deleted());
        let count = live.clone().count();
        if count != shown.len() {
            return Some(format!("{} properties are shown, expected {count}", shown.len()));
        }
        live.into_iter().find_map(|(name, property)| {
            let Some(twin) = shown.get(name) else { return Some(format!("{name} is not shown")) };
            let got = Property::of(twin, property.desired.clone());
            (got != *property).then(|| format!("{name}: got {got:?}, expected {property:?}"))
        })
    }
}
