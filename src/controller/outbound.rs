//! Addresses the messages that the controller sends (wire spec sections 2.6, 3 and 5).

use super::time::{Now, Rng};
use crate::model::cloud_message::{CloudMessage, Content};

/// The origin of a node's request, to which the answer refers.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) id: Box<str>,
    pub(super) resource: Box<str>,
}

/// A new id. 64 random bits are shorter than KubeEdge's UUID, and any text works.
pub(super) fn new_id(rng: &mut Rng) -> Box<str> {
    format!("{:016x}", rng.bits()).into()
}

/// The answer to a request.
pub(super) fn response(
    rng: &mut Rng,
    now: Now,
    origin: &Origin,
    version: u64,
    content: Content,
) -> Box<CloudMessage> {
    Box::new(CloudMessage {
        id: new_id(rng),
        parent: origin.id.clone(),
        timestamp_ms: now.wall.map_or(0, |wall| wall.0),
        version,
        source: SOURCE,
        group: GROUP,
        operation: "response",
        resource: origin.resource.clone(),
        content,
    })
}

/// The sender of most messages.
pub(super) const SOURCE: &str = "edgecontroller";
pub(super) const GROUP: &str = "resource";
