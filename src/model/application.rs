//! Requests of a node's `MetaServer` (spec `metaserver`, section 6): an Application each, of which
//! the answer is a copy.

use super::any_api::{AnyCall, GroupVersionResource};
use super::cloud_message::Failure;
use super::selector::{FieldSelector, LabelSelector};

/// One request.
#[derive(Clone, Debug)]
pub struct Application {
    /// `ID`: the same for the same request of the same node.
    pub id: Box<str>,
    /// The whole request, JSON: its answer is a copy of it.
    pub request: Box<str>,
    /// What is requested, or why it cannot be served, for the answer.
    pub requested: Result<Requested, Failure>,
}

/// What is requested.
#[derive(Clone, Debug)]
pub enum Requested {
    Call(Box<AnyCall>),
    Watch(Box<WatchRequest>),
}

/// The request to be told of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    pub resource: GroupVersionResource,
    /// Empty: all.
    pub namespace: Box<str>,
    /// Empty: all.
    pub name: Box<str>,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    /// The selectors as they came: parameters of a list of the same objects.
    pub query: Vec<(Box<str>, Box<str>)>,
}

/// All watches of a node, by `watchapp/sync`; a malformed one has a reason.
#[derive(Clone, Debug, Default)]
pub struct WatchSync {
    pub watches: Vec<Application>,
}
