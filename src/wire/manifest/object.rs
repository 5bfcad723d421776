//! ConfigMaps, Secrets and the other objects of pods in a manifest file.
//!
//! No error contains a value of a Secret: errors go to the log, which many people can read.

use crate::limits::OBJECT_BYTES_MAX;
#[cfg(feature = "services")]
use crate::model::names::is_label;
use crate::model::object::{
    Bytes, Claim, ConfigMap, Object, ObjectKind, PersistentVolume, RuntimeClass, Secret,
};
#[cfg(feature = "services")]
use crate::model::service::{Endpoints, Service, ServiceType};
use crate::model::tree::fields;
use crate::wire::tree::{self, Entry, Fault, Node, Step, Value};

/// Reads `node`, whose kind this is.
pub(super) fn read(kind: ObjectKind, node: &Node, path: &[Step]) -> Result<Object, Fault> {
    let object = match kind {
        ObjectKind::ConfigMap => config_map(node, path)?,
        ObjectKind::Secret => secret(node, path)?,
        ObjectKind::RuntimeClass => runtime_class(node, path)?,
        ObjectKind::PersistentVolumeClaim => claim(node, path)?,
        ObjectKind::PersistentVolume => persistent_volume(node, path)?,
        #[cfg(feature = "services")]
        ObjectKind::Service => service(node, path)?,
        #[cfg(feature = "services")]
        ObjectKind::Endpoints => endpoints(node, path)?,
    };
    let fault = |why: String| Err(Fault::new(node, path.to_vec(), why));
    if object.metadata().name.is_empty() {
        return fault(format!("got a {kind} without metadata.name, expected one"));
    }
    if object.size_bytes() > OBJECT_BYTES_MAX {
        let got = object.size_bytes();
        return fault(format!("got {got} bytes of data, expected at most {OBJECT_BYTES_MAX}"));
    }
    Ok(object)
}

fn config_map(node: &Node, path: &[Step]) -> Result<Object, Fault> {
    known(node, path, &["data", "binaryData", "immutable"])?;
    for field in ["data", "binaryData"] {
        keys(node, path, field)?;
    }
    let mut map: ConfigMap = tree::read(node, path)?;
    if let Some(key) = map.data.keys().find(|key| map.binary_data.contains_key(*key)) {
        let why = format!("got the key {key:?} in data and in binaryData, expected it once");
        return Err(Fault::new(node, path.to_vec(), why));
    }
    default_namespace(&mut map.metadata.namespace);
    Ok(Object::ConfigMap(map))
}

fn runtime_class(node: &Node, path: &[Step]) -> Result<Object, Fault> {
    known(node, path, &["handler", "overhead", "scheduling"])?;
    let mut class: RuntimeClass = tree::read(node, path)?;
    if class.handler.is_empty() {
        let why = "got a RuntimeClass without a handler, expected one".to_owned();
        return Err(Fault::new(node, path.to_vec(), why));
    }
    class.metadata.namespace.clear();
    Ok(Object::RuntimeClass(class))
}

fn claim(node: &Node, path: &[Step]) -> Result<Object, Fault> {
    known(node, path, &["spec", "status"])?;
    let mut claim: Claim = tree::read(node, path)?;
    default_namespace(&mut claim.metadata.namespace);
    Ok(Object::Claim(claim))
}

fn persistent_volume(node: &Node, path: &[Step]) -> Result<Object, Fault> {
    known(node, path, &["spec", "status"])?;
    let mut volume: PersistentVolume = tree::read(node, path)?;
    volume.metadata.namespace.clear();
    Ok(Object::PersistentVolume(Box::new(volume)))
}

#[cfg(feature = "services")]
fn service(node: &Node, path: &[Step]) -> Result<Object, Fault> {
    known(node, path, &["spec", "status"])?;
    let mut service: Service = tree::read(node, path)?;
    let fault = |why: String| Err(Fault::new(node, path.to_vec(), why));
    let name = &service.metadata.name;
    if !name.is_empty() && !is_label(name) {
        return fault(format!("got the name {name:?}, expected a DNS label: it becomes a name"));
    }
    let ports = &service.spec.ports;
    if let Some(port) = ports.iter().find(|port| port.port == 0) {
        return fault(format!("got port 0 ({:?}), expected 1 to 65535", port.name));
    }
    if ports.len() > 1 && ports.iter().any(|port| port.name.is_empty()) {
        return fault("got several ports and one without a name, expected a name each".into());
    }
    if service.spec.kind == ServiceType::ExternalName && service.spec.external_name.is_empty() {
        return fault("got type ExternalName without externalName, expected one".into());
    }
    default_namespace(&mut service.metadata.namespace);
    Ok(Object::Service(Box::new(service)))
}

#[cfg(feature = "services")]
fn endpoints(node: &Node, path: &[Step]) -> Result<Object, Fault> {
    known(node, path, &["subsets"])?;
    let mut endpoints: Endpoints = tree::read(node, path)?;
    default_namespace(&mut endpoints.metadata.namespace);
    Ok(Object::Endpoints(Box::new(endpoints)))
}

/// A field that may be written and is read as part of `data`.
#[derive(Default)]
struct Written {
    string_data: std::collections::BTreeMap<String, String>,
}

fields!(Written {
    "stringData" => string_data,
});

fn secret(node: &Node, path: &[Step]) -> Result<Object, Fault> {
    known(node, path, &["data", "stringData", "type", "immutable"])?;
    for field in ["data", "stringData"] {
        keys(node, path, field)?;
    }
    let mut secret: Secret = tree::read(node, path).map_err(Secret::hide)?;
    let written: Written = tree::read(node, path).map_err(Secret::hide)?;
    for (key, text) in written.string_data {
        secret.data.insert(key, Bytes(text.into_bytes().into()));
    }
    default_namespace(&mut secret.metadata.namespace);
    Ok(Object::Secret(secret))
}

fn default_namespace(namespace: &mut String) {
    if namespace.is_empty() {
        "default".clone_into(namespace);
    }
}

/// No other fields beside those that every object has.
fn known(node: &Node, path: &[Step], fields: &[&str]) -> Result<(), Fault> {
    let Value::Map(map) = &node.value else { return Ok(()) };
    let everywhere = ["apiVersion", "kind", "metadata"];
    let is_known = |key: &str| everywhere.contains(&key) || fields.contains(&key);
    match map.iter().find(|(key, _)| !is_known(key)) {
        None => Ok(()),
        Some((key, Entry { key_at, .. })) => {
            let path = path.iter().cloned().chain([Step::Key(key.clone())]).collect();
            let why = format!("got an unknown field, expected metadata, {}", fields.join(", "));
            Err(Fault { at: Some(*key_at), path, why })
        }
    }
}

/// Keys become names of files and of variables.
fn keys(node: &Node, path: &[Step], field: &str) -> Result<(), Fault> {
    let Value::Map(map) = &node.value else { return Ok(()) };
    let Some(Value::Map(data)) = map.get(field).map(|entry| &entry.node.value) else {
        return Ok(());
    };
    match data.iter().find(|(key, _)| !is_key(key)) {
        None => Ok(()),
        Some((key, Entry { key_at, .. })) => {
            let path = path.iter().cloned().chain([Step::Key(field.into())]).collect();
            let why = format!(
                "got the key {:?}, expected 1 to 253 letters, digits, '-', '_' or '.', not '.' \
                 alone nor '..' at the start",
                tree::shorten(key)
            );
            Err(Fault { at: Some(*key_at), path, why })
        }
    }
}

fn is_key(key: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=253).contains(&key.len()) && key.bytes().all(inner) && key != "." && !key.starts_with("..")
}
