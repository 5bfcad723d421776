//! Reads a manifest file into pods, and the objects that they use.
//!
//! YAML (several documents, `---` between them) or JSON; `v1` `Pod`, `ConfigMap`, `Secret`,
//! `PersistentVolumeClaim` and `PersistentVolume`, with Services by name also `Service` and
//! `Endpoints`, and `PodList` or `List` of them. Read as Kubernetes reads it (see [`super::tree`]),
//! but stricter where a mistake would stay unnoticed: a duplicate key, another kind, and an unknown
//! field at the top are errors. A file is accepted or refused as a whole.
//!
//! The caller checks whether the pod itself is valid (`agent::admit`); errors are located here.

mod object;
mod place;
#[cfg(feature = "controller")]
pub mod raw;

use std::sync::Arc;

use super::tree::{self, Entry, Fault, Node, Step, Value};
use crate::limits::{
    MANIFEST_OBJECTS_MAX, MANIFEST_PODS_MAX, OBJECT_JSON_BYTES_MAX, POD_VALUES_MAX,
};
use crate::model::error::Refusal;
use crate::model::manifest::{Content, Validate};
use crate::model::object::ObjectKind;

/// Pods and objects in order. Empty documents are skipped, but a file without a single character is
/// refused: it is being written, and must not end the pods it had.
pub fn parse(bytes: &[u8]) -> Result<Content, Refusal> {
    parse_valid(bytes, |_| None)
}

/// As [`parse`]; a pod that is not valid is an error with its position.
pub fn parse_valid(bytes: &[u8], validate: Validate) -> Result<Content, Refusal> {
    if bytes.trim_ascii().is_empty() {
        let why = "got an empty file, expected a Pod".into();
        return Err(Refusal { line: 0, column: 0, why });
    }
    let mut found = Found { content: Content::default(), validate };
    for document in tree::parse(bytes)? {
        if document.value != Value::Null {
            any(&document, &mut found).map_err(|fault| fault.refusal(bytes))?;
        }
    }
    Ok(found.content)
}

/// What was found so far, and the validation of pods.
struct Found {
    content: Content,
    validate: Validate,
}

fn any(node: &Node, found: &mut Found) -> Result<(), Fault> {
    match kind(node, &[])? {
        Kind::Pod => pod(node, &[], found),
        Kind::Object(kind) => object(kind, node, &[], found),
        Kind::PodList => list(node, found, pod),
        Kind::List => list(node, found, |node, path, found| match kind(node, path)? {
            Kind::Pod => pod(node, path, found),
            Kind::Object(kind) => object(kind, node, path, found),
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
            #[cfg(feature = "services")]
            ("v1", "Service") => Ok(Kind::Object(ObjectKind::Service)),
            #[cfg(feature = "services")]
            ("v1", "Endpoints") => Ok(Kind::Object(ObjectKind::Endpoints)),
            ("node.k8s.io/v1", "RuntimeClass") => Ok(Kind::Object(ObjectKind::RuntimeClass)),
            ("v1", "PodList") => Ok(Kind::PodList),
            ("v1", "List") => Ok(Kind::List),
            _ => {
                let expected = if cfg!(feature = "services") {
                    "Pod, ConfigMap, Secret, PersistentVolumeClaim, PersistentVolume, Service, \
                     Endpoints, PodList or List (v1)"
                } else {
                    "Pod, ConfigMap, Secret, PersistentVolumeClaim, PersistentVolume, PodList or \
                     List (v1)"
                };
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
    found: &mut Found,
    each: impl Fn(&Node, &[Step], &mut Found) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let Some(items) = field(node, &[], "items")? else { return Ok(()) };
    match &items.value {
        Value::Null => Ok(()),
        Value::List(list) => list.iter().enumerate().try_for_each(|(index, node)| {
            each(node, &[Step::Key("items".into()), Step::Index(index)], found)
        }),
        other => {
            let path = vec![Step::Key("items".into())];
            Err(Fault::new(items, path, format!("got {other}, expected a list")))
        }
    }
}

fn pod(node: &Node, path: &[Step], found: &mut Found) -> Result<(), Fault> {
    if found.content.pods.len() == MANIFEST_PODS_MAX {
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
    let (_, values) = bounded(node, path)?;
    if values > POD_VALUES_MAX {
        let why = format!("got a pod of {values} values, expected at most {POD_VALUES_MAX}");
        return Err(Fault::new(node, path.to_vec(), why));
    }
    let pod = tree::read(node, path)?;
    if let Some(invalid) = (found.validate)(&pod) {
        return Err(place::fault(node, path, invalid));
    }
    found.content.pods.push(pod);
    Ok(())
}

/// Its size as JSON and its number of values, unless it is larger than an API server accepts.
fn bounded(node: &Node, path: &[Step]) -> Result<(usize, usize), Fault> {
    let (bytes, values) = node.json_size();
    if bytes > OBJECT_JSON_BYTES_MAX {
        let why = format!(
            "got an object of about {bytes} bytes as JSON, expected at most {OBJECT_JSON_BYTES_MAX}"
        );
        return Err(Fault::new(node, path.to_vec(), why));
    }
    Ok((bytes, values))
}

fn object(kind: ObjectKind, node: &Node, path: &[Step], found: &mut Found) -> Result<(), Fault> {
    if found.content.objects.len() == MANIFEST_OBJECTS_MAX {
        let why = format!("got more than {MANIFEST_OBJECTS_MAX} objects, expected fewer");
        return Err(Fault::new(node, path.to_vec(), why));
    }
    bounded(node, path)?;
    found.content.objects.push(Arc::new(object::read(kind, node, path)?));
    Ok(())
}
