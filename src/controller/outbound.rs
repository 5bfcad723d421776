//! Addresses the messages that the controller sends (wire spec sections 2.6, 3 and 5).

use super::key::is_of_devices;
use super::time::{Now, Rng};
use crate::model::api::Kind;
use crate::model::cloud_message::{CloudMessage, Content};
use crate::model::node_job::{Generation, JobKey, JobKind};

/// The origin of a node's request, to which the answer refers.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) id: Box<str>,
    pub(super) resource: Box<str>,
}

/// What a node is told of a device that is bound to it, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    Added,
    Removed,
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

/// The confirmation of a message about devices (spec `devices`, section 2.1).
pub(super) fn confirmation(rng: &mut Rng, now: Now, message: Box<str>) -> Box<CloudMessage> {
    let origin = Origin { id: message, resource: TWIN.into() };
    let mut confirmation = response(rng, now, &origin, 0, Content::Done);
    (confirmation.source, confirmation.group) = (DEVICES, TWIN);
    confirmation
}

/// A message about which devices a node has: it answers nothing, and nobody acknowledges it.
pub(super) fn membership(
    rng: &mut Rng,
    now: Now,
    resource: &str,
    content: Content,
) -> Box<CloudMessage> {
    let origin = Origin { id: Box::default(), resource: resource.into() };
    let mut message = response(rng, now, &origin, 0, content);
    (message.source, message.group, message.operation) = (DEVICES, TWIN, "update");
    message
}

/// The request to work on a job, or in v1alpha1 on a stage of one (spec `servicebus-router-tasks`,
/// sections 15 and 20). Nobody acknowledges it.
pub(super) fn job(rng: &mut Rng, now: Now, key: &JobKey, content: Content) -> Box<CloudMessage> {
    let JobKey { generation, kind, name, node } = key;
    let (operation, path) = match (generation, kind) {
        (Generation::V1Alpha2, _) => {
            let version = Kind::ImagePrePullJob.api_version();
            ("Check", format!("{version}/{}", kind.resource()))
        }
        (Generation::V1Alpha1, JobKind::Upgrade) => ("upgrade", "upgrade".to_owned()),
        (Generation::V1Alpha1, JobKind::PrePull | JobKind::ConfigUpdate) => {
            ("prepull", "prepull".to_owned())
        }
    };
    let resource = format!("{path}/{name}/node/{node}").into();
    let origin = Origin { id: Box::default(), resource };
    let mut message = response(rng, now, &origin, 0, content);
    (message.source, message.group, message.operation) = (TASKS, TASKS, operation);
    message
}

/// The sender of objects of this kind. EdgeCore tells mappers only of what `devicecontroller`
/// sends (section 4.2).
pub(super) fn source_of(kind: Kind) -> &'static str {
    if is_of_devices(kind) { DEVICES } else { SOURCE }
}

/// The sender of events and answers for `MetaServers`.
pub(super) const DYNAMIC: &str = "dynamiccontroller";
const DEVICES: &str = "devicecontroller";
const TWIN: &str = "twin";
const TASKS: &str = "taskmanager";
/// The sender of most messages.
pub(super) const SOURCE: &str = "edgecontroller";
pub(super) const GROUP: &str = "resource";
