//! What a node sends to the controller (wire spec section 5). `wire/kubeedge` reads it; edged's own
//! messages are an [`super::upstream::Upstream`] before they are written.
//!
//! Objects and patches of them are carried as trees: what a node may not write is left out of them,
//! and all else goes to the API server as it came, also fields that this version does not know.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::api::ListOptions;
use super::device::DeviceUpstream;
use super::error::Peer;
use super::message::{Header, Route};
use super::node_job::JobReport;
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
    Application(Box<Application>),
    /// Watches of MetaServer, JSON: an application by each id.
    Watches(Box<str>),
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

/// A request to the API server through MetaServer.
#[derive(Clone, Debug)]
pub struct Application {
    /// `list`, `get` …
    pub verb: Box<str>,
    /// `/core/v1/pods/null/null`
    pub key: Box<str>,
    /// The options of a list; `None`: there are none, or others.
    pub options: Option<ListOptions>,
    /// The whole request, JSON: its answer is a copy of it.
    pub request: Box<str>,
}
