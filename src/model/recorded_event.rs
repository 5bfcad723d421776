//! Kubernetes events for the operator (core/v1 `Event`).

use std::collections::BTreeMap;

use serde::Serialize;

use super::time::Timestamp;

/// One event; repeats of it raise `count`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedEvent {
    /// The object of the event.
    pub involved_object: Object,
    /// Severity.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// `Started`, `BackOff` …: part of the API, tools match on it.
    pub reason: &'static str,
    /// For the operator.
    pub message: String,
    /// They are written in [`EventMetadata`].
    #[serde(skip)]
    pub annotations: BTreeMap<&'static str, String>,
    /// How often it happened.
    pub count: u32,
    /// Unknown while the clock is not set.
    pub first_timestamp: Option<Timestamp>,
    /// Of the latest repeat.
    pub last_timestamp: Option<Timestamp>,
}

/// `metadata` of an event.
#[derive(Serialize)]
pub struct EventMetadata<'a> {
    /// Its own.
    pub name: &'a str,
    /// Empty: it has none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: &'a str,
    /// Data for programs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: &'a BTreeMap<&'static str, String>,
}

/// core/v1 `ObjectReference`, as far as events use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    /// `Pod` or `Node`.
    pub kind: &'static str,
    /// Empty for a node.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: Box<str>,
    /// The object's name.
    pub name: Box<str>,
    /// The object's uid; for a node its name, as in the kubelet.
    pub uid: Box<str>,
    /// `spec.containers{web}`; empty for the whole object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

impl Object {
    /// A node, by its name.
    pub fn node(name: &str) -> Self {
        Self {
            kind: "Node",
            namespace: "".into(),
            name: name.into(),
            uid: name.into(),
            field_path: String::new(),
        }
    }
}

/// `Event.type`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    /// Expected.
    Normal,
    /// A problem.
    Warning,
}
