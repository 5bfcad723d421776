//! Builds the messages that the controller sends, in the format of KubeEdge (wire spec sections
//! 2.6, 3 and 5).

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::time::{Now, Rng};
use crate::model::message::{Header, Message, Route};

/// The origin of a node's request, to which the answer refers.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) id: Box<str>,
    pub(super) resource: Box<str>,
}

/// A message without its content.
pub(super) struct MessageHead<'a> {
    pub(super) id: Box<str>,
    pub(super) parent: &'a str,
    pub(super) version: u64,
    pub(super) operation: &'a str,
    pub(super) resource: &'a str,
}

/// A new id. 64 random bits are shorter than KubeEdge's UUID, and any text works.
pub(super) fn new_id(rng: &mut Rng) -> Box<str> {
    format!("{:016x}", rng.bits()).into()
}

pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).expect("plain data")
}

pub(super) fn message(
    now: Now,
    head: MessageHead<'_>,
    content: Option<Box<RawValue>>,
) -> Box<Message> {
    let version = if head.version == 0 { String::new() } else { head.version.to_string() };
    Box::new(Message {
        header: Header {
            id: head.id,
            parent_id: head.parent.into(),
            timestamp_ms: now.wall.map_or(0, |wall| wall.0),
            resource_version: version.into(),
        },
        route: Route {
            source: "edgecontroller".into(),
            group: "resource".into(),
            operation: head.operation.into(),
            resource: head.resource.into(),
        },
        content,
    })
}

/// The answer to a request.
pub(super) fn response(
    rng: &mut Rng,
    now: Now,
    origin: &Origin,
    version: u64,
    content: Option<Box<RawValue>>,
) -> Box<Message> {
    let head = MessageHead {
        id: new_id(rng),
        parent: &origin.id,
        version,
        operation: "response",
        resource: &origin.resource,
    };
    message(now, head, content)
}

/// A copy of shared JSON.
pub(super) fn copy(content: &Arc<RawValue>) -> Box<RawValue> {
    (**content).to_owned()
}

/// meta/v1 `Status` of a failure.
pub(super) fn status(code: u16, reason: &str, message: &str) -> Box<RawValue> {
    json(&json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    }))
}

#[derive(Serialize)]
struct ObjectResp<'a> {
    #[serde(rename = "Object")]
    object: Option<&'a RawValue>,
    #[serde(rename = "Err")]
    error: Option<Failure<'a>>,
}

#[derive(Serialize)]
struct Failure<'a> {
    #[serde(rename = "ErrStatus")]
    status: &'a RawValue,
}

/// The answer to a create, a patch or a lease: both keys are always present.
pub(super) fn object_resp(object: Option<&RawValue>, error: Option<&RawValue>) -> Box<RawValue> {
    json(&ObjectResp { object, error: error.map(|status| Failure { status }) })
}

/// The answer to a query that has failed.
pub(super) fn failure(status: &RawValue) -> Box<RawValue> {
    json(&Failure { status })
}
