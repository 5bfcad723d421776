//! What a node sends to the controller (wire spec section 5). `wire/kubeedge` reads it; edged's own
//! messages are an [`super::upstream::Upstream`] before they are written.
//!
//! Objects and patches of them are carried as trees: what a node may not write is left out of them,
//! and all else goes to the API server as it came, also fields that this version does not know.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::any_api::{AnyCall, Parameters};
use super::application::Gvr;
use super::cloud_message::Failure;
use super::device::DeviceUpstream;
use super::error::Peer;
use super::message::{Header, Route};
use super::node_job::JobReport;
use super::selector::{FieldSelector, LabelSelector};
use super::service_bus::ServiceAnswer;

/// One message of a node.
#[derive(Clone, Debug)]
pub struct EdgeMessage {
    pub header: Header,
    pub route: Route,
    /// Its size on the wire, about.
    pub bytes: usize,
    pub content: EdgeContent,
}

/// The content of a message of a node, by its route.
#[derive(Clone, Debug)]
pub enum EdgeContent {
    /// There is none, or it does not matter.
    Nothing,
    /// It cannot be read.
    Invalid(Peer),
    /// Why the node refuses a message, JSON.
    Refusal(Box<str>),
    /// A node, a pod, a lease, or a patch of one of these.
    Object(Value),
    /// The whole status of the node, of edges up to 1.11.
    NodeStatus(Map<String, Value>),
    /// The whole statuses of pods, of edges up to 1.10.
    PodStatuses(Vec<PodStatusReport>),
    /// The uid of the pod to delete.
    Deletion(Box<str>),
    /// The request for a token.
    Token(Box<BoundToken>),
    /// An event, and the patch of it if it is known already.
    Event(Value, Option<Result<Box<RawValue>, Peer>>),
    /// A request of MetaServer.
    Application(Box<ApplicationRequest>),
    /// All watches of a node's MetaServer, by their ids; a malformed one has a reason.
    Watches(Vec<ApplicationRequest>),
    /// A report about a device, and its time by the node's clock, milliseconds since 1970; 0: not
    /// known.
    Device(Box<DeviceUpstream>, i64),
    /// A report about a job.
    NodeJob(Box<JobReport>),
    /// What was published on a topic, which is the message's resource.
    Published(Box<str>),
    /// The answer of a service of the node to the call in the message before.
    ServiceAnswer(Box<ServiceAnswer>),
    /// The request of an application of the node, for the URL that is the message's resource: its
    /// whole body, base64.
    ServiceRequest(Box<str>),
}

/// The whole status of a pod.
#[derive(Clone, Debug)]
pub struct PodStatusReport {
    pub uid: Box<str>,
    pub name: Box<str>,
    pub status: Map<String, Value>,
}

/// A request for a token that is bound to an object (authentication.k8s.io/v1 `TokenRequest`).
#[derive(Clone, Debug)]
pub struct BoundToken {
    /// `spec.boundObjectRef`
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    /// The whole request.
    pub request: Box<RawValue>,
}

/// A request of a node's MetaServer (spec `metaserver`, section 6), as the controller gets it.
#[derive(Clone, Debug)]
pub struct ApplicationRequest {
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
    pub resource: Gvr,
    /// Empty: all.
    pub namespace: Box<str>,
    /// Empty: all.
    pub name: Box<str>,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    /// The selectors as they came: parameters of a list of the same objects.
    pub query: Parameters,
}
