//! Addresses the messages that the controller sends (wire spec sections 2.6, 3 and 5).

use std::sync::Arc;

use super::key::{Key, is_computed, is_of_devices};
use super::time::{Now, Rng};
use crate::model::api::Kind;
use crate::model::cloud_message::{CloudMessage, Content, Tombstone};
use crate::model::node_job::{Generation, JobKey, JobKind};
use crate::model::router::NodeRule;

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

/// The removal of an object that a node has without a record of it, whatever its uid. It may come
/// again, not in an earlier version than this one. Nobody waits for an acknowledgement.
pub(super) fn removal(rng: &mut Rng, now: Now, key: &Key, version: u64) -> Box<CloudMessage> {
    let content = tombstone(key, &Arc::from(""), version);
    let origin = Origin { id: Box::default(), resource: key.to_string().into() };
    let mut message = response(rng, now, &origin, 0, content);
    (message.source, message.operation) = (source_of(key.kind), "delete");
    message
}

/// What is said of an object that is removed. `version`: the one from which it may come again; 0:
/// it was deleted.
pub(super) fn tombstone(key: &Key, uid: &Arc<str>, version: u64) -> Content {
    // An agent never takes an object again whose uid it has seen deleted, and these come back with
    // the next pod: they have none.
    let none = || Arc::from("");
    let uid = if is_computed(key.kind) { none() } else { Arc::clone(uid) };
    Content::Tombstone(Box::new(Tombstone {
        kind: key.kind,
        namespace: key.namespace.as_ref().into(),
        name: key.name.as_ref().into(),
        uid,
        version,
    }))
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

/// A message of the router in the name of one of its two modules, with this operation: to an
/// application, a service or a topic of a node (spec `servicebus-router-tasks`, sections 5 to 8).
/// `parent`: the message that it answers; empty: none. Nobody acknowledges it.
pub(super) fn routed(
    rng: &mut Rng,
    now: Now,
    (source, operation): (&'static str, &'static str),
    resource: &str,
    parent: &str,
    content: Content,
) -> Box<CloudMessage> {
    let origin = Origin { id: parent.into(), resource: resource.into() };
    let mut message = response(rng, now, &origin, 0, content);
    (message.source, message.group, message.operation) = (source, "user", operation);
    message
}

/// Tells a node that there is a rule, or that it is gone (sections 7 and 8 there).
pub(super) fn rule(rng: &mut Rng, now: Now, rule: &NodeRule, is_on: bool) -> Box<CloudMessage> {
    let (of, resource) = match (rule, is_on) {
        (NodeRule::Topic(filter), true) => (("router_eventbus", "subscribe"), filter),
        (NodeRule::Topic(filter), false) => (("router_eventbus", "unsubscribe"), filter),
        (NodeRule::Url(url), true) => (("router_servicebus", "start"), url),
        // As it was sent with `start`: EdgeCore compares both.
        (NodeRule::Url(url), false) => (("router_servicebus", "stop"), url),
    };
    routed(rng, now, of, resource, "", Content::Nothing)
}

/// The sender of objects of this kind. EdgeCore tells mappers only of what `devicecontroller`
/// sends (section 4.2), and its pods nothing of what `policycontroller` sends.
pub(super) fn source_of(kind: Kind) -> &'static str {
    match kind {
        _ if is_of_devices(kind) => DEVICES,
        _ if is_computed(kind) => POLICY,
        _ => SOURCE,
    }
}

/// The sender of events and answers for `MetaServers`.
pub(super) const DYNAMIC: &str = "dynamiccontroller";
const DEVICES: &str = "devicecontroller";
const POLICY: &str = "policycontroller";
const TWIN: &str = "twin";
const TASKS: &str = "taskmanager";
/// The sender of most messages.
pub(super) const SOURCE: &str = "edgecontroller";
pub(super) const GROUP: &str = "resource";
