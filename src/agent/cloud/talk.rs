//! Builds the messages that edged sends, in the format of KubeEdge (wire spec sections 2.4, 2.6 and
//! 5).

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::agent::pod::Pod;
use crate::agent::time::{Now, Rng};
use crate::model::message::{Header, Message, Resource, Route};

/// The origin of a message from the cloud, for the answer: its id, and its route.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    id: Box<str>,
    source: Box<str>,
    group: Box<str>,
    resource: Box<str>,
}

impl Origin {
    pub(super) fn of(message: &Message) -> Self {
        let Route { source, group, resource, .. } = message.route.clone();
        Self { id: message.header.id.clone(), source, group, resource }
    }

    /// Whether both are of the same message.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// A new message id. Any text works that nobody else uses; 64 random bits are shorter than a UUID,
/// and these bytes are the traffic of an idle link.
pub(super) fn new_id(rng: &mut Rng) -> Box<str> {
    format!("{:016x}", rng.bits()).into()
}

pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).expect("plain data")
}

fn message(rng: &mut Rng, now: Now, route: [&str; 4], content: Option<Box<RawValue>>) -> Message {
    let [source, group, operation, resource] = route.map(Box::from);
    let timestamp_ms = now.wall.map_or(0, |wall| wall.0);
    let header = Header { id: new_id(rng), timestamp_ms, ..Header::default() };
    Message { header, route: Route { source, group, operation, resource }, content }
}

/// The keep-alive that the cloud expects (section 2.4).
pub(super) fn keepalive(rng: &mut Rng, now: Now) -> Message {
    let content = Some(json("ping"));
    message(rng, now, ["websocket", "resource", "keepalive", "node"], content)
}

/// A request or a report to the cloud (section 5).
pub(super) fn request(
    rng: &mut Rng,
    now: Now,
    operation: &str,
    resource: &str,
    content: Option<Box<RawValue>>,
) -> Message {
    message(rng, now, ["edged", "meta", operation, resource], content)
}

/// A request to the cloud's dynamic controller in MetaServer's name (section 5.12).
pub(super) fn application(rng: &mut Rng, now: Now, content: Box<RawValue>) -> Message {
    message(rng, now, ["metaserver", "dynamiccontroller", "null", "null"], Some(content))
}

/// A report in the name of MetaManager, as it was called up to 1.11 (section 6.3).
pub(super) fn sync(rng: &mut Rng, now: Now, resource: &str, content: Box<RawValue>) -> Message {
    message(rng, now, ["metaManager", "resource", "update", resource], Some(content))
}

/// The resource of this kind for a pod: `default/podpatch/web`.
pub(super) fn of_pod(pod: &Pod, kind: &str) -> String {
    let metadata = &pod.api().metadata;
    Resource { namespace: Some(&metadata.namespace), kind, name: &metadata.name }.to_string()
}

/// The content that deletes the pod of this uid, and no other of its name (section 5.7).
pub(super) fn deletion(uid: &str) -> Box<RawValue> {
    json(&serde_json::json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}))
}

/// Acknowledges a message: it is stored and survives a power cut (section 2.6).
pub(super) fn ack(rng: &mut Rng, now: Now, to: &Origin) -> Message {
    answer(rng, now, to, "response", json("OK"))
}

/// Refuses a message: the cloud logs the reason, and sends it again.
pub(super) fn refusal(rng: &mut Rng, now: Now, to: &Origin, why: &str) -> Message {
    let mut refusal = answer(rng, now, to, "error", json(why));
    refusal.route.source = "metamanager".into();
    refusal
}

/// An answer with a content of its own.
pub(super) fn answer(
    rng: &mut Rng,
    now: Now,
    to: &Origin,
    operation: &str,
    content: Box<RawValue>,
) -> Message {
    let route = [&*to.source, &*to.group, operation, &*to.resource];
    let mut answer = message(rng, now, route, Some(content));
    answer.header.parent_id = to.id.clone();
    answer
}
