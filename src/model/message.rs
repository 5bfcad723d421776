//! A message between edge and cloud, as in KubeEdge's beehive: header, route, content.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One message. Fields whose names differ have the wire's name in their comment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Message {
    /// Its id and the id it answers.
    #[serde(default)]
    pub header: Header,
    /// Its source and its subject.
    #[serde(default)]
    pub route: Route,
    /// Any JSON, as it is on the wire; `None` is `null`.
    #[serde(default)]
    pub content: Option<Box<RawValue>>,
}

/// The content as an object's JSON. Wherever KubeEdge accepts an object, it also accepts a string
/// that contains the JSON of one.
pub fn inner(content: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str::<String>(content.get()) {
        Ok(text) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(content.get()),
    }
}

/// The header of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// `msg_id`: a UUID of the sender's.
    #[serde(rename = "msg_id")]
    pub id: Box<str>,
    /// `parent_msg_id`: the message that this one answers; empty for a new one.
    #[serde(rename = "parent_msg_id", skip_serializing_if = "is_empty")]
    pub parent_id: Box<str>,
    /// `timestamp`: milliseconds since the epoch, by the sender's clock.
    #[serde(rename = "timestamp")]
    pub timestamp_ms: i64,
    /// `resourceversion`: that of the object in the content.
    #[serde(rename = "resourceversion", skip_serializing_if = "is_empty")]
    pub resource_version: Box<str>,
}

/// The source and the subject of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    /// `edgecontroller`, `edged`, `websocket` …: the receiver dispatches by it.
    #[serde(skip_serializing_if = "is_empty")]
    pub source: Box<str>,
    /// `resource`, `meta`, `twin` …
    #[serde(skip_serializing_if = "is_empty")]
    pub group: Box<str>,
    /// `insert`, `update`, `delete`, `query`, `patch`, `response`, `error`, `keepalive` …
    #[serde(skip_serializing_if = "is_empty")]
    pub operation: Box<str>,
    /// Mostly `<namespace>/<type>/<name>`, see [`Resource`].
    #[serde(skip_serializing_if = "is_empty")]
    pub resource: Box<str>,
}

#[expect(clippy::borrowed_box, reason = "serde passes the field as it is")]
fn is_empty(text: &Box<str>) -> bool {
    text.is_empty()
}

/// A resource string of the usual form, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// `None` for the wire's `null`: the object belongs to the cluster.
    pub namespace: Option<&'a str>,
    /// In lower case: `pod`, `configmap`, `podpatch` …
    pub kind: &'a str,
    /// Empty for all objects of the kind.
    pub name: &'a str,
}

/// The wire's namespace for objects that have none.
const NO_NAMESPACE: &str = "null";

impl<'a> Resource<'a> {
    /// `None` for the special ones: `node`, `membership/detail`, topics and paths of other forms.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split('/');
        let (namespace, kind) = (parts.next()?, parts.next()?);
        let name = parts.next().unwrap_or_default();
        if namespace.is_empty() || kind.is_empty() || parts.next().is_some() {
            return None;
        }
        Some(Self { namespace: Some(namespace).filter(|&name| name != NO_NAMESPACE), kind, name })
    }
}

impl std::fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace.unwrap_or(NO_NAMESPACE), self.kind)?;
        if self.name.is_empty() { Ok(()) } else { write!(f, "/{}", self.name) }
    }
}
