//! A manifest file → pods, and the objects that they use.
//!
//! YAML (several documents, `---` between them) or JSON; `v1` `Pod`, `ConfigMap`, `Secret`,
//! `PersistentVolumeClaim` and `PersistentVolume`, and `PodList` or `List` of them. Read as
//! Kubernetes reads it ([`super::tree`] says how), but stricter where silence would hide a mistake:
//! a key that stands twice, another kind, and an unknown field at the top are errors. A file counts
//! as a whole: one error, and nothing of it is taken.
//!
//! Whether the pod itself makes sense is not asked here but by the mind (`agent::admit`).

mod object;
#[cfg(feature = "controller")]
pub mod raw;

use std::sync::Arc;

use super::tree::{self, Entry, Fault, Node, Step, Value};
use crate::limits::{MANIFEST_OBJECTS_MAX, MANIFEST_PODS_MAX};
use crate::model::manifest::{Content, Refusal};
use crate::model::object::ObjectKind;

/// Pods and objects in order. Documents with nothing in them are passed over, but a file without a
/// single character is refused: it is being written, and must not end the pods it had.
pub fn parse(bytes: &[u8]) -> Result<Content, Refusal> {
    if bytes.trim_ascii().is_empty() {
        let why = "got an empty file, expected a Pod".into();
        return Err(Refusal { line: 0, column: 0, why });
    }
    let mut content = Content::default();
    for document in tree::parse(bytes)? {
        if document.value != Value::Null {
            any(&document, &mut content).map_err(|fault| fault.refusal(bytes))?;
        }
    }
    Ok(content)
}

fn any(node: &Node, content: &mut Content) -> Result<(), Fault> {
    match kind(node, &[])? {
        Kind::Pod => pod(node, &[], content),
        Kind::Object(kind) => object(kind, node, &[], content),
        Kind::PodList => list(node, content, pod),
        Kind::List => list(node, content, |node, path, content| match kind(node, path)? {
            Kind::Pod => pod(node, path, content),
            Kind::Object(kind) => object(kind, node, path, content),
            Kind::PodList | Kind::List => {
                let why = "got a list in a list, expected a Pod".into();
                Err(Fault::new(node, path.to_vec(), why))
            }
        }),
    }
}

enum Kind {
    Pod,
    Object(ObjectKind),
    PodList,
    List,
}

fn kind(node: &Node, path: &[Step]) -> Result<Kind, Fault> {
    let fault = |at: &Node, key: &str, why: String| {
        let key = Some(Step::Key(key.into())).filter(|_| !std::ptr::eq(at, node));
        Err(Fault::new(at, path.iter().cloned().chain(key).collect(), why))
    };
    let Some(kind) = field(node, path, "kind")? else {
        return fault(node, "", "got no kind, expected kind: Pod".into());
    };
    let Some(version) = field(node, path, "apiVersion")? else {
        return fault(node, "", "got no apiVersion, expected apiVersion: v1".into());
    };
    match (&version.value, &kind.value) {
        (Value::Text(version), Value::Text(name)) => match (&**version, &**name) {
            ("v1", "Pod") => Ok(Kind::Pod),
            ("v1", "ConfigMap") => Ok(Kind::Object(ObjectKind::ConfigMap)),
            ("v1", "Secret") => Ok(Kind::Object(ObjectKind::Secret)),
            ("v1", "PersistentVolumeClaim") => Ok(Kind::Object(ObjectKind::PersistentVolumeClaim)),
            ("v1", "PersistentVolume") => Ok(Kind::Object(ObjectKind::PersistentVolume)),
            ("node.k8s.io/v1", "RuntimeClass") => Ok(Kind::Object(ObjectKind::RuntimeClass)),
            ("v1", "PodList") => Ok(Kind::PodList),
            ("v1", "List") => Ok(Kind::List),
            _ => {
                let expected = "Pod, ConfigMap, Secret, PersistentVolumeClaim, \
                                PersistentVolume, PodList or List (v1)";
                let why = format!("got kind {name} ({version}), expected {expected}");
                fault(kind, "kind", why)
            }
        },
        (Value::Text(_), other) => fault(kind, "kind", format!("got {other}, expected Pod")),
        (other, _) => fault(version, "apiVersion", format!("got {other}, expected v1")),
    }
}

fn field<'a>(node: &'a Node, path: &[Step], key: &str) -> Result<Option<&'a Node>, Fault> {
    match &node.value {
        Value::Map(map) => Ok(map.get(key).map(|entry| &entry.node)),
        other => Err(Fault::new(node, path.to_vec(), format!("got {other}, expected a Pod"))),
    }
}

fn list(
    node: &Node,
    content: &mut Content,
    each: impl Fn(&Node, &[Step], &mut Content) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let Some(items) = field(node, &[], "items")? else { return Ok(()) };
    match &items.value {
        Value::Null => Ok(()),
        Value::List(list) => list.iter().enumerate().try_for_each(|(index, node)| {
            each(node, &[Step::Key("items".into()), Step::Index(index)], content)
        }),
        other => {
            let path = vec![Step::Key("items".into())];
            Err(Fault::new(items, path, format!("got {other}, expected a list")))
        }
    }
}

fn pod(node: &Node, path: &[Step], content: &mut Content) -> Result<(), Fault> {
    if content.pods.len() == MANIFEST_PODS_MAX {
        let why = format!("got more than {MANIFEST_PODS_MAX} pods, expected fewer");
        return Err(Fault::new(node, path.to_vec(), why));
    }
    if let Value::Map(map) = &node.value {
        let known = ["apiVersion", "kind", "metadata", "spec", "status"];
        if let Some((key, Entry { key_at, .. })) =
            map.iter().find(|(key, _)| !known.contains(&&***key))
        {
            let path = path.iter().cloned().chain([Step::Key(key.clone())]).collect();
            let why = "got an unknown field, expected metadata, spec or status".into();
            return Err(Fault { at: Some(*key_at), path, why });
        }
    }
    content.pods.push(tree::read(node, path)?);
    Ok(())
}

fn object(
    kind: ObjectKind,
    node: &Node,
    path: &[Step],
    content: &mut Content,
) -> Result<(), Fault> {
    if content.objects.len() == MANIFEST_OBJECTS_MAX {
        let why = format!("got more than {MANIFEST_OBJECTS_MAX} objects, expected fewer");
        return Err(Fault::new(node, path.to_vec(), why));
    }
    content.objects.push(Arc::new(object::read(kind, node, path)?));
    Ok(())
}
