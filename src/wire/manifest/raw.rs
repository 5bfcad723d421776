//! Reads a manifest file into raw objects, for the controller's folder.
//!
//! As strict as [`super::parse`]: pods, ConfigMaps and Secrets must be valid for a node, or the
//! file is refused with the position. Other kinds are accepted as they are.

use serde_json::{Value as Json, json};

use super::{Content, Fault, Found, Node, Refusal, Step, Value, field, tree};
use crate::model::api::Kind;
use crate::model::base64;
use crate::model::device::DeviceObject;
use crate::model::manifest::Validate;
use crate::model::names::{is_label, is_subdomain};
use crate::model::raw::{Manifest, drop_nulls};
use crate::model::tree::to_json;

/// All objects of a file in order. A file is accepted or refused as a whole.
pub fn parse(bytes: &[u8]) -> Result<Vec<Manifest>, Refusal> {
    parse_valid(bytes, |_| None)
}

/// As [`parse`]; a pod that is not valid is an error with its position.
pub fn parse_valid(bytes: &[u8], validate: Validate) -> Result<Vec<Manifest>, Refusal> {
    if bytes.trim_ascii().is_empty() {
        let why = "got an empty file, expected an object".into();
        return Err(Refusal { line: 0, column: 0, why });
    }
    let mut found = Vec::new();
    for document in tree::parse(bytes)? {
        if document.value != Value::Null {
            any(&document, &[], validate, &mut found).map_err(|fault| fault.refusal(bytes))?;
        }
    }
    Ok(found)
}

fn any(
    node: &Node,
    path: &[Step],
    validate: Validate,
    found: &mut Vec<Manifest>,
) -> Result<(), Fault> {
    let (version, name) = (text(node, path, "apiVersion")?, text(node, path, "kind")?);
    if version == "v1" && name.ends_with("List") && path.is_empty() {
        let Some(items) = field(node, path, "items")? else { return Ok(()) };
        let Value::List(list) = &items.value else { return Ok(()) };
        return list.iter().enumerate().try_for_each(|(index, node)| {
            any(node, &[Step::Key("items".into()), Step::Index(index)], validate, found)
        });
    }
    let known = |kind: &&Kind| kind.name() == name && kind.api_version() == version;
    // The rules of service accounts are made of other objects.
    let all = || Kind::ALL.iter().filter(|kind| **kind != Kind::ServiceAccountAccess);
    let Some(kind) = all().find(known).copied() else {
        let all: Vec<&str> = all().map(|kind| kind.name()).collect();
        let why = format!("got kind {name} ({version}), expected one of {}", all.join(", "));
        let at = field(node, path, "kind")?.unwrap_or(node);
        let path = path.iter().cloned().chain([Step::Key("kind".into())]).collect();
        return Err(Fault::new(at, path, why));
    };
    check(kind, node, path, validate)?;
    let mut value = to_json(node);
    drop_nulls(&mut value);
    if kind == Kind::Secret {
        encode(&mut value);
    }
    let metadata = &value["metadata"];
    let word = |key: &str| metadata[key].as_str().unwrap_or_default();
    if word("name").is_empty() {
        let why = format!("got a {name} without metadata.name, expected one");
        return Err(Fault::new(node, path.to_vec(), why));
    }
    let namespace = match (kind.is_namespaced(), word("namespace")) {
        (false, _) => "",
        (true, "") => "default",
        (true, namespace) => namespace,
    };
    check_names(node, path, word("name"), namespace)?;
    let (namespace, name) = (namespace.into(), word("name").into());
    let size_bytes = value.to_string().len();
    found.push(Manifest { kind, namespace, name, value: value.into(), size_bytes });
    Ok(())
}

/// Whether a node can use it. Objects of most kinds are accepted as they are.
fn check(kind: Kind, node: &Node, path: &[Step], validate: Validate) -> Result<(), Fault> {
    // Only for its error messages.
    let mut judged = Found { content: Content::default(), validate };
    match kind {
        Kind::Pod => super::pod(node, path, &mut judged)?,
        Kind::ConfigMap | Kind::Secret | Kind::PersistentVolume | Kind::PersistentVolumeClaim => {
            super::any(node, &mut judged)?;
        }
        Kind::Device => DeviceObject::check(node, path)?,
        Kind::Node
        | Kind::ServiceAccountAccess
        | Kind::DeviceModel
        | Kind::Lease
        | Kind::ServiceAccount
        | Kind::VolumeAttachment
        | Kind::Event
        | Kind::DeviceStatus
        | Kind::ObjectSync
        | Kind::ClusterObjectSync
        | Kind::ImagePrePullJob
        | Kind::NodeUpgradeJob
        | Kind::ConfigUpdateJob
        | Kind::RuleEndpoint
        | Kind::Rule
        | Kind::Role
        | Kind::ClusterRole
        | Kind::RoleBinding
        | Kind::ClusterRoleBinding => {}
    }
    Ok(())
}

/// Whether an API server accepts the name, and the namespace unless it is empty.
fn check_names(node: &Node, path: &[Step], name: &str, namespace: &str) -> Result<(), Fault> {
    let wrong = |key: &str, got: &str, expected: &str| {
        let inner = [path, &[Step::Key("metadata".into())]].concat();
        let metadata = field(node, path, "metadata").ok().flatten().unwrap_or(node);
        let at = field(metadata, &inner, key).ok().flatten().unwrap_or(metadata);
        let path = [&inner[..], &[Step::Key(key.into())]].concat();
        Err(Fault::new(at, path, format!("got {got:?}, expected {expected}")))
    };
    if !is_subdomain(name) {
        let expected = "lower case letters, digits, '-' and '.', at most 253 of them";
        return wrong("name", name, expected);
    }
    if !namespace.is_empty() && !is_label(namespace) {
        let expected = "lower case letters, digits and '-', at most 63 of them";
        return wrong("namespace", namespace, expected);
    }
    Ok(())
}

fn text<'a>(node: &'a Node, path: &[Step], key: &str) -> Result<&'a str, Fault> {
    match field(node, path, key)?.map(|node| (&node.value, node)) {
        Some((Value::Text(text), _)) => Ok(text),
        Some((other, at)) => {
            let path = path.iter().cloned().chain([Step::Key(key.into())]).collect();
            Err(Fault::new(at, path, format!("got {other}, expected text")))
        }
        None => Err(Fault::new(node, path.to_vec(), format!("got no {key}, expected one"))),
    }
}

/// `stringData` is only for writing; readers get `data`.
fn encode(secret: &mut Json) {
    let Some(map) = secret.as_object_mut() else { return };
    let Some(Json::Object(texts)) = map.remove("stringData") else { return };
    let data = map.entry("data").or_insert_with(|| json!({}));
    for (key, text) in texts {
        data[key] = base64::encode(text.as_str().unwrap_or_default().as_bytes()).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_taken_as_they_stand_and_secrets_encoded() {
        let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n\
                    ---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  \
                    metadata: {name: gw, labels: {x: \"\"}}\n";
        let found = parse(text.as_bytes()).expect("two objects");
        let [secret, node] = &found[..] else { panic!("{found:?}") };
        assert_eq!(format!("{secret:?} {node:?}"), "Secret default/s Node /gw");
        assert_eq!(secret.value["data"], json!({"a": "Yg=="}));
        assert_eq!(secret.value.get("stringData"), None);
        assert_eq!(node.value["metadata"]["labels"]["x"], "");
    }

    #[test]
    fn what_stands_there_without_a_value_is_not_there() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: , annotations: {x: }}\n\
                    spec:\n  volumes:\n  containers:\n  - {name: c, image: i, env: , args: [~]}\n\
                    ---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n\
                    stringData: {a: }\n";
        let found = parse(text.as_bytes()).expect("two objects");
        let metadata = json!({"name": "a", "annotations": {"x": ""}});
        assert_eq!(found[0].value["metadata"], metadata);
        let container = json!({"name": "c", "image": "i", "args": [null]});
        assert_eq!(found[0].value["spec"], json!({"containers": [container]}));
        assert_eq!(found[1].value["data"], json!({"a": ""}));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, expected) in [
            ("", ": got an empty file, expected an object"),
            ("kind: Pod\n", ":1:1: got no apiVersion, expected one"),
            ("apiVersion: v1\nkind: Service\n", ":2:7: kind: got kind Service (v1), expected one"),
            ("apiVersion: v1\nkind: Node\n", ":1:1: got a Node without metadata.name"),
            (
                "apiVersion: v1\nkind: Node\nmetadata: {name: ../../evil}\n",
                ":3:18: metadata.name: got \"../../evil\", expected lower case letters",
            ),
            (
                "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b.c}\n",
                ":3:32: metadata.namespace: got \"b.c\", expected lower case letters",
            ),
            (
                "apiVersion: devices.kubeedge.io/v1beta1\nkind: Device\nmetadata: {name: a}\n\
                 spec: {nodeName: [e]}\n",
                ":4:18: spec.nodeName: got a list, expected text",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers: 7\n",
                ":5:15: spec.containers: got 7, expected a list",
            ),
        ] {
            let got = parse(text.as_bytes()).expect_err(text).to_string();
            assert!(got.starts_with(expected), "{text:?}: {got}");
        }
    }
}
