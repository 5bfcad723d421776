//! Writes what the controller sends to a node: the envelope of each message, and its content.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::application;
use super::node_jobs::encode_request;
use super::router::encode_call;
use crate::model::cloud_message::{CloudMessage, Content, DeviceMember, Failure, Tombstone};
use crate::model::message::{Header, Message, Route};

/// The envelope of a message.
pub fn encode_cloud(message: &CloudMessage) -> Message {
    let version = if message.version == 0 { String::new() } else { message.version.to_string() };
    Message {
        header: Header {
            id: message.id.clone(),
            parent_id: message.parent.clone(),
            timestamp_ms: message.timestamp_ms,
            resource_version: version.into(),
        },
        route: Route {
            source: message.source.into(),
            group: message.group.into(),
            operation: message.operation.into(),
            resource: message.resource.clone(),
        },
        content: Some(content(message)),
    }
}

fn content(message: &CloudMessage) -> Box<RawValue> {
    match &message.content {
        Content::Object(object) => (**object).to_owned(),
        Content::Tombstone(deleted) => tombstone(deleted),
        Content::Done => json("OK"),
        Content::ObjectResp(Ok(object)) => json(&ObjectResp { object: Some(object), error: None }),
        Content::ObjectResp(Err(failure)) => {
            json(&ObjectResp { object: None, error: Some(&err(failure)) })
        }
        Content::NotMade(failure) => {
            json(&ObjectResp { object: Some(&json(&json!({}))), error: Some(&err(failure)) })
        }
        Content::Failure(failure) => err(failure),
        Content::FailureText(failure) => json(status(failure).get()),
        Content::Authority(pem) => json(pem),
        Content::Nothing => RawValue::NULL.to_owned(),
        Content::Text(text) => json(text),
        Content::Call(call) => encode_call(call),
        Content::Membership { added, removed } => json(&json!({
            "event_id": message.id, "timestamp": message.timestamp_ms,
            "added_devices": members(added), "removed_devices": members(removed),
        })),
        Content::MembershipDetail(all) => json(&json!({
            "event_id": message.id, "timestamp": message.timestamp_ms,
            "devices": all.iter().map(Member::of).collect::<Vec<_>>(),
        })),
        Content::JobStage(stage) => {
            let (key, action, spec) = &**stage;
            encode_request(key, *action, spec).2
        }
        Content::Applied(request, result) => json(&applied(request, result.as_deref())),
        Content::WatchesRejected(all) => {
            let all = all.iter().map(|(id, request, why)| (&**id, applied(request, Err(why))));
            json(&all.collect::<BTreeMap<&str, Value>>())
        }
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).expect("plain data")
}

/// `null` for none, as KubeEdge writes it.
fn members(all: &[DeviceMember]) -> Option<Vec<Member<'_>>> {
    (!all.is_empty()).then(|| all.iter().map(Member::of).collect())
}

/// A device without properties (section 7.3 of spec `devices`). For a message without the key
/// `twin` EdgeCore publishes an error (section 9).
#[derive(Serialize)]
struct Member<'a> {
    id: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    twin: Map<String, Value>,
}

impl<'a> Member<'a> {
    fn of(member: &'a DeviceMember) -> Self {
        let DeviceMember { id, name, description } = member;
        Self { id, name, description, twin: Map::new() }
    }
}

/// Both keys are always present.
#[derive(Serialize)]
struct ObjectResp<'a> {
    #[serde(rename = "Object")]
    object: Option<&'a RawValue>,
    #[serde(rename = "Err")]
    error: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Err<'a> {
    #[serde(rename = "ErrStatus")]
    status: &'a RawValue,
}

fn err(failure: &Failure) -> Box<RawValue> {
    json(&Err { status: &status(failure) })
}

/// meta/v1 `Status`
fn status(failure: &Failure) -> Box<RawValue> {
    match failure {
        Failure::Remote(status) => status.clone(),
        Failure::Own { code, reason, message } => json(&json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        })),
    }
}

fn applied(request: &str, result: Result<&str, &Failure>) -> Value {
    application::cloud::answer(request, result.map_err(status))
}

fn tombstone(deleted: &Tombstone) -> Box<RawValue> {
    let Tombstone { kind, namespace, name, uid, version } = deleted;
    let mut metadata = json!({"name": name, "uid": **uid});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    if *version > 0 {
        metadata["resourceVersion"] = json!(version.to_string());
    }
    json(&json!({
        "kind": kind.name(), "apiVersion": kind.api_version(), "metadata": metadata,
    }))
}
