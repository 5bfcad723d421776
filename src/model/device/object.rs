//! Reads `Device` and `DeviceModel` (devices.kubeedge.io/v1beta1), as far as the agent decides by
//! them.

use std::collections::BTreeMap;

use super::{DeviceId, DeviceView, ObjectText};
use crate::model::tree::{self, Fault, Node, Step, Value, fields};

/// A `Device` of the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceObject {
    /// By its own metadata.
    pub id: DeviceId,
    pub view: DeviceView,
    pub text: ObjectText,
    /// It is as somebody on the node has edited it.
    pub is_edited: bool,
}

/// A `DeviceModel` of the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelObject {
    /// By its own metadata.
    pub id: DeviceId,
    /// A digest of `spec`: equal specs have equal digests.
    pub spec: u64,
    /// `spec.properties`, those with a unit, by name.
    pub units: BTreeMap<Box<str>, Box<str>>,
    pub text: ObjectText,
}

impl DeviceObject {
    /// Reads the JSON of a `Device`.
    pub fn read(text: &str) -> Result<Self, Fault> {
        let (object, _, spec): (Device, _, _) = read(text)?;
        let Device { metadata, spec: given } = object;
        let view = DeviceView {
            uid: metadata.uid,
            version: metadata.resource_version,
            description: metadata.labels.description,
            model: given.device_model_ref.name,
            node: given.node_name,
            protocol: given.protocol.protocol_name,
            spec,
        };
        let id = DeviceId::new(&metadata.namespace, &metadata.name);
        Ok(Self { id, view, text: text.into(), is_edited: false })
    }

    /// Whether it can be read from this place of a manifest.
    pub fn check(node: &Node, path: &[Step]) -> Result<(), Fault> {
        tree::read::<Device>(node, path).map(drop)
    }

    /// The id of its model; `None`: it names none.
    pub fn model(&self) -> Option<DeviceId> {
        let model = &*self.view.model;
        (!model.is_empty()).then(|| DeviceId::new(self.id.namespace(), model))
    }

    /// `spec.properties`, by name, with `desired.value`; empty: none is desired. Read each time: it
    /// is asked for once for each change of the object, and would take more memory than the text.
    pub fn desired(&self) -> BTreeMap<Box<str>, Box<str>> {
        let read = read::<Device>(&self.text).map(|(object, ..)| object).unwrap_or_default();
        read.spec.properties.into_iter().map(|it| (it.name, it.desired.value)).collect()
    }

    /// About how many bytes it takes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.text.len() + size_of::<Self>()
    }
}

impl ModelObject {
    /// Reads the JSON of a `DeviceModel`.
    pub fn read(text: &str) -> Result<Self, Fault> {
        let (Model { metadata }, node, spec) = read(text)?;
        let id = DeviceId::new(&metadata.namespace, &metadata.name);
        Ok(Self { id, spec, units: units(&node), text: text.into() })
    }

    /// About how many bytes it takes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let sizes = self.units.iter().map(|(name, unit)| name.len() + unit.len() + 64);
        self.text.len() + size_of::<Self>() + sizes.sum::<usize>()
    }
}

/// The object, its tree, and the digest of its spec.
fn read<T: tree::Read + Default>(text: &str) -> Result<(T, Node, u64), Fault> {
    let node = tree::parse_json(text.as_bytes()).map_err(|refusal| Fault::bare(refusal.why))?;
    let mut digest = Digest(FNV_OFFSET);
    if let Value::Map(map) = &node.value
        && let Some(spec) = map.get("spec")
    {
        digest.node(&spec.node, "spec");
    }
    Ok((tree::read(&node, &[])?, node, digest.0))
}

/// The units of a model's properties, by name. They are only shown: what is no text is left out.
fn units(node: &Node) -> BTreeMap<Box<str>, Box<str>> {
    let properties = at(&node.value, "spec").and_then(|spec| at(spec, "properties"));
    let Some(Value::List(list)) = properties else { return BTreeMap::new() };
    let named = |node: &Node| Some((name_of(node).into(), word(&node.value, "unit")?.into()));
    list.iter().filter_map(named).collect()
}

#[derive(Default)]
struct Device {
    metadata: Metadata,
    spec: Spec,
}

fields!(Device {
    "metadata" => metadata,
    "spec" => spec,
});

#[derive(Default)]
struct Model {
    metadata: Metadata,
}

fields!(Model {
    "metadata" => metadata,
});

#[derive(Default)]
struct Metadata {
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    labels: Labels,
}

fields!(Metadata {
    "name" => name,
    "namespace" => namespace,
    "uid" => uid,
    "resourceVersion" => resource_version,
    "labels" => labels,
});

#[derive(Default)]
struct Labels {
    description: Box<str>,
}

fields!(Labels {
    "description" => description,
});

#[derive(Default)]
struct Spec {
    device_model_ref: Named,
    node_name: Box<str>,
    properties: Vec<Property>,
    protocol: Protocol,
}

fields!(Spec {
    "deviceModelRef" => device_model_ref,
    "nodeName" => node_name,
    "properties" => properties,
    "protocol" => protocol,
});

#[derive(Default)]
struct Named {
    name: Box<str>,
}

fields!(Named {
    "name" => name,
});

#[derive(Default)]
struct Property {
    name: Box<str>,
    desired: Desired,
}

fields!(Property {
    "name" => name,
    "desired" => desired,
});

#[derive(Default)]
struct Desired {
    value: Box<str>,
}

fields!(Desired {
    "value" => value,
});

#[derive(Default)]
struct Protocol {
    protocol_name: Box<str>,
}

fields!(Protocol {
    "protocolName" => protocol_name,
});

/// FNV-1a over the values in the order of their keys. It is stored, so it has to stay the same in
/// every version of the program: the standard library's hashes promise nothing of the kind.
struct Digest(u64);

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

impl Digest {
    /// With the length, so that two texts do not look like one.
    fn bytes(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
        }
    }

    /// `key`: where the value is. KubeEdge compares properties and methods by name, without regard
    /// to their order.
    fn node(&mut self, node: &Node, key: &str) {
        match &node.value {
            Value::Map(map) => {
                self.bytes(b"{");
                for (key, entry) in map {
                    self.bytes(key.as_bytes());
                    self.node(&entry.node, key);
                }
                self.bytes(b"}");
            }
            Value::List(list) if matches!(key, "properties" | "methods") => {
                let by_name: BTreeMap<(&str, usize), &Node> =
                    list.iter().enumerate().map(|(at, node)| ((name_of(node), at), node)).collect();
                for node in by_name.values() {
                    self.node(node, "");
                }
                self.bytes(b"]");
            }
            Value::List(list) => {
                for node in list {
                    self.node(node, "");
                }
                self.bytes(b"]");
            }
            Value::Text(text) => self.bytes(text.as_bytes()),
            plain @ (Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Big(_)
            | Value::Float(_)) => self.bytes(format!("={plain}").as_bytes()),
        }
    }
}

fn name_of(node: &Node) -> &str {
    word(&node.value, "name").unwrap_or_default()
}

/// The text of this key that is not empty.
fn word<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    match at(value, key) {
        Some(Value::Text(text)) if !text.is_empty() => Some(text),
        Some(_) | None => None,
    }
}

/// The value of this key of a map.
fn at<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let Value::Map(map) = value else { return None };
    map.get(key).map(|entry| &entry.node.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(spec: &str) -> DeviceObject {
        let text = format!(
            r#"{{"metadata":{{"name":"dev1","namespace":"default","uid":"u","resourceVersion":"7",
            "labels":{{"description":"in the hall"}}}},"spec":{spec},"status":{{}}}}"#
        );
        DeviceObject::read(&text).expect("a device")
    }

    #[test]
    fn a_device_is_read_as_far_as_it_is_decided_by() {
        let got = device(
            r#"{"deviceModelRef":{"name":"model1"},"nodeName":"edge1","properties":[
            {"name":"temp","desired":{"value":"20"},"visitors":{}},{"name":"b"}],
            "protocol":{"protocolName":"modbus","configData":{"ip":"127.0.0.1"}}}"#,
        );
        assert_eq!(got.id.as_str(), "default/dev1");
        assert_eq!(got.model(), Some(DeviceId::new("default", "model1")));
        let view = DeviceView {
            uid: "u".into(),
            version: "7".into(),
            description: "in the hall".into(),
            model: "model1".into(),
            node: "edge1".into(),
            protocol: "modbus".into(),
            spec: got.view.spec,
        };
        assert_eq!(got.view, view);
        let desired = [("b".into(), "".into()), ("temp".into(), "20".into())];
        assert_eq!(got.desired(), desired.into());
        assert_eq!(device("{}").model(), None, "a device may name no model");
        assert!(DeviceObject::read(r#"{"spec":{"properties":{}}}"#).is_err());
    }

    #[test]
    fn units_are_those_that_are_texts() {
        let text = r#"{"metadata":{"name":"m"},"spec":{"properties":[{"name":"a","unit":"C"},
            {"name":"b","unit":5},{"name":"c","unit":""},{"name":"d"},7]}}"#;
        let units = ModelObject::read(text).expect("a model").units;
        assert_eq!(units, [("a".into(), "C".into())].into());
        let odd = ModelObject::read(r#"{"spec":{"properties":{}}}"#).expect("a model");
        assert!(odd.units.is_empty());
    }

    #[test]
    fn equal_specs_have_equal_digests() {
        let one = device(r#"{"properties":[{"name":"a"},{"name":"b"}],"nodeName":"x"}"#).view.spec;
        let same = r#"{"nodeName":"x","properties":[{"name":"b"},{"name":"a"}]}"#;
        assert_eq!(device(same).view.spec, one);
        for other in [
            r#"{"properties":[{"name":"a"},{"name":"b"}],"nodeName":"y"}"#,
            r#"{"properties":[{"name":"a"},{"name":"b"},{}],"nodeName":"x"}"#,
            r#"{"properties":[{"name":"ab"}],"nodeName":"x"}"#,
        ] {
            assert_ne!(device(other).view.spec, one, "{other}");
        }
        // Stored by one version of the program, read by another.
        assert_eq!(device(r#"{"nodeName":"x"}"#).view.spec, 12_401_187_993_881_689_803);
    }
}
