//! A manifest file → pods.
//!
//! YAML (several documents, `---` between them) or JSON; `v1` `Pod`, and `PodList` or `List` of
//! them. Read as Kubernetes reads it ([`super::tree`] says how), but stricter where silence would
//! hide a mistake: a key that stands twice, another kind, and a field beside `metadata` and `spec`
//! are errors. A file counts as a whole: one error, and none of its pods is taken.
//!
//! Whether the pod itself makes sense is not asked here but by the mind (`agent::admit`).

use super::tree::{self, Entry, Fault, Node, Step, Value};
use crate::limits::MANIFEST_PODS_MAX;
use crate::model::manifest::Refusal;
use crate::model::pod::Pod;

/// The pods in order. Documents with nothing in them are passed over, but a file without a single
/// character is refused: it is a file that is being written, and must not end the pods it had.
pub fn parse(bytes: &[u8]) -> Result<Vec<Pod>, Refusal> {
    if bytes.trim_ascii().is_empty() {
        let why = "got an empty file, expected a Pod".into();
        return Err(Refusal { line: 0, column: 0, why });
    }
    let mut pods = Vec::new();
    for document in tree::parse(bytes)? {
        if document.value != Value::Null {
            object(&document, &mut pods).map_err(|fault| fault.refusal(bytes))?;
        }
    }
    Ok(pods)
}

fn object(node: &Node, pods: &mut Vec<Pod>) -> Result<(), Fault> {
    match kind(node, &[])? {
        Kind::Pod => pod(node, &[], pods),
        Kind::PodList => list(node, pods, pod),
        Kind::List => list(node, pods, |node, path, pods| match kind(node, path)? {
            Kind::Pod => pod(node, path, pods),
            Kind::PodList | Kind::List => {
                let why = "got a list in a list, expected a Pod".into();
                Err(Fault::new(node, path.to_vec(), why))
            }
        }),
    }
}

enum Kind {
    Pod,
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
            ("v1", "PodList") => Ok(Kind::PodList),
            ("v1", "List") => Ok(Kind::List),
            _ => {
                let why =
                    format!("got kind {name} ({version}), expected Pod, PodList or List (v1)");
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
    pods: &mut Vec<Pod>,
    each: impl Fn(&Node, &[Step], &mut Vec<Pod>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let Some(items) = field(node, &[], "items")? else { return Ok(()) };
    match &items.value {
        Value::Null => Ok(()),
        Value::List(list) => list.iter().enumerate().try_for_each(|(index, node)| {
            each(node, &[Step::Key("items".into()), Step::Index(index)], pods)
        }),
        other => {
            let path = vec![Step::Key("items".into())];
            Err(Fault::new(items, path, format!("got {other}, expected a list")))
        }
    }
}

fn pod(node: &Node, path: &[Step], pods: &mut Vec<Pod>) -> Result<(), Fault> {
    if pods.len() == MANIFEST_PODS_MAX {
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
    pods.push(tree::read(node, path)?);
    Ok(())
}
