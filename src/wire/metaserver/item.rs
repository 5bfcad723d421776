//! Objects of the API server: texts ↔ [`Item`], and pages of lists of them.
//!
//! `metadata.managedFields` are left out: they are half of most objects, and a client that writes
//! an object without them leaves them as they are.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::model::application::Item;
use crate::model::error::Peer;
use crate::model::metaserver::Page;
use crate::model::selector::Labels;

/// Reads an object; `of`: its `apiVersion` and kind where it does not have them, as in lists.
/// `None`: it is none, or has no name.
pub fn read(text: &str, of: Option<(&str, &str)>) -> Option<Item> {
    let Value::Object(mut object) = serde_json::from_str(text).ok()? else { return None };
    if let Some((api_version, kind)) = of {
        object.entry("apiVersion").or_insert_with(|| api_version.into());
        object.entry("kind").or_insert_with(|| kind.into());
    }
    let (api_version, kind) = (word(&object, "apiVersion"), word(&object, "kind"));
    let of = |part, key| object.get(part).and_then(Value::as_object).map(|it| word(it, key));
    let (node, phase) = (of("spec", "nodeName"), of("status", "phase"));
    let digest = digest(&object);
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut)?;
    metadata.remove("managedFields");
    let name = word(metadata, "name");
    if api_version.is_empty() || kind.is_empty() || name.is_empty() {
        return None;
    }
    let labels = metadata.get("labels").and_then(Value::as_object);
    let item = Item {
        api_version,
        kind,
        namespace: word(metadata, "namespace"),
        name,
        uid: word(metadata, "uid"),
        version: word(metadata, "resourceVersion").parse().unwrap_or(0),
        labels: labels.map(labels_of).unwrap_or_default(),
        node: node.unwrap_or_default(),
        phase: phase.unwrap_or_default(),
        created: word(metadata, "creationTimestamp"),
        digest,
        text: Box::default(),
    };
    Some(Item { text: Value::Object(object).to_string().into(), ..item })
}

fn word(object: &Map<String, Value>, key: &str) -> Box<str> {
    object.get(key).and_then(Value::as_str).unwrap_or_default().into()
}

fn labels_of(labels: &Map<String, Value>) -> Labels {
    let text =
        |(key, value): (&String, &Value)| Some((key.as_str().into(), value.as_str()?.into()));
    labels.iter().filter_map(text).collect()
}

/// See [`Item::digest`].
fn digest(object: &Map<String, Value>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (key, value) in object {
        key.hash(&mut hasher);
        let is_volatile = matches!(&**key, "metadata" | "status");
        hash(value, is_volatile, &mut hasher);
    }
    hasher.finish()
}

/// Fields of metadata and status that change without a change of meaning.
const VOLATILE: [&str; 5] = [
    "resourceVersion",
    "managedFields",
    "generation",
    "lastHeartbeatTime",
    "endpoints.kubernetes.io/last-change-trigger-time",
];

fn hash(value: &Value, is_volatile: bool, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if !(is_volatile && VOLATILE.contains(&&**key)) {
                    key.hash(hasher);
                    hash(value, is_volatile, hasher);
                }
            }
        }
        Value::Array(list) => {
            list.len().hash(hasher);
            for value in list {
                hash(value, is_volatile, hasher);
            }
        }
        Value::String(text) => text.hash(hasher),
        other => other.to_string().hash(hasher),
    }
}

/// A list of the API server.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    #[serde(default)]
    api_version: Box<str>,
    #[serde(default)]
    kind: Box<str>,
    #[serde(default)]
    metadata: ListMetadata,
    /// Not without this key; a list without items may have `null`.
    #[serde(borrow, deserialize_with = "Option::deserialize")]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: Box<str>,
    r#continue: Option<Box<str>>,
}

/// Reads a page of a list.
pub fn page(body: &str) -> Result<Page, Peer> {
    let list: List<'_> =
        serde_json::from_str(body).map_err(|error| Peer::new(format!("got no list: {error}")))?;
    let kind = list.kind.strip_suffix("List").unwrap_or_default();
    let of = Some((&*list.api_version, kind)).filter(|_| !kind.is_empty());
    let item = |text: &&RawValue| read(text.get(), of).map(Arc::new);
    let items: Option<Vec<_>> = list.items.iter().flatten().map(item).collect();
    let items = items.ok_or_else(|| Peer::new("got a list with an item that is no object"))?;
    let version = list.metadata.resource_version.parse().unwrap_or(0);
    let next = list.metadata.r#continue.filter(|next| !next.is_empty());
    Ok(Page { items, version, next })
}
