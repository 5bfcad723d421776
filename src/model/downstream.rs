//! What a cloud sends to a node (wire spec sections 2 to 5). `wire/kubeedge` reads it.

use serde::Deserialize;

#[cfg(feature = "devices")]
use super::device::DeviceDownstream;
use super::node_job::JobRequest;
use super::node_status::RemoteNode;
use super::remote_pod::RemotePod;
#[cfg(feature = "servicebus")]
use super::service_bus::BusDownstream;
use super::upstream::Origin;

/// One message from the cloud.
#[derive(Clone, Debug)]
pub struct Downstream {
    /// Its id and route. The resource is the key of the object that it is about.
    pub origin: Origin,
    /// Milliseconds since the epoch, by the cloud's clock; 0: not given.
    pub timestamp_ms: i64,
    pub content: Down,
}

/// The content of a message from the cloud.
#[derive(Clone, Debug)]
pub enum Down {
    /// One of Viaduct's own messages, which its reader answers (section 2.2).
    Transport,
    /// The answer to the request of this id.
    Answer(Box<str>, Answer),
    /// The answer to the request of this id for a page of pods, or of Services (section 4.12), or
    /// why it cannot be used.
    Pods(Box<str>, Result<PodPage, String>),
    /// The answer to the request of this id for the live watches.
    #[cfg(any(feature = "metaserver", feature = "services"))]
    WatchesSynced(Box<str>, RefusedWatches),
    /// The answer to MetaServer's request of this id.
    #[cfg(feature = "metaserver")]
    Application(Box<str>, super::metaserver::Answer),
    /// An object was added or changed.
    Put(Box<RemoteObject>),
    /// An object was deleted; its uid, empty: not given; the version of the deletion, 0: not given.
    Delete { uid: Box<str>, version: u64 },
    /// It takes too much memory; why.
    TooLarge(String),
    /// It is about no object that can be stored.
    NoObject,
    /// A call of the CSI controller (section 4.9).
    VolumeCall,
    /// A job for the node itself (section 4.10).
    NodeJob(Box<JobRequest>),
    /// An HTTP request for a service on the node (section 4.8).
    ServiceCall,
    /// A message of the router for ServiceBus.
    #[cfg(feature = "servicebus")]
    ServiceBus(Box<BusDownstream>),
    /// A message for the twins of devices (section 7.3), or why it cannot be used.
    #[cfg(feature = "devices")]
    Device(Result<Box<DeviceDownstream>, String>),
    /// No answer is expected.
    Unsupported,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The object as the API server has it now.
    Object(Box<RemoteObject>),
    Done,
    /// The API server refused.
    Refused(Refusal),
}

/// An object as the API server has it.
#[derive(Clone, Debug)]
pub struct RemoteObject {
    /// The whole object, JSON: as it is stored.
    pub text: Box<str>,
    /// The parts of it that a node compares with its own.
    pub view: ObjectView,
    /// What MetaServer keeps of it; `None`: it has no kind.
    #[cfg(feature = "metaserver")]
    pub item: Option<std::sync::Arc<super::application::Item>>,
}

/// The ids of the watches that the cloud refuses, and why; or why it refuses all of them.
#[cfg(any(feature = "metaserver", feature = "services"))]
pub type RefusedWatches = Result<Vec<(Box<str>, Box<str>)>, Box<str>>;

/// The parts of an object that a node compares with its own, by the kind of the resource.
#[derive(Clone, Debug)]
pub enum ObjectView {
    Node(Box<RemoteNode>),
    Pod(RemotePod),
    Lease(RemoteLease),
    /// Of another kind, or it cannot be read as one of these.
    Other,
}

impl RemoteObject {
    pub fn node(&self) -> Option<&RemoteNode> {
        match &self.view {
            ObjectView::Node(node) => Some(node),
            ObjectView::Pod(_) | ObjectView::Lease(_) | ObjectView::Other => None,
        }
    }

    pub fn pod(&self) -> Option<&RemotePod> {
        match &self.view {
            ObjectView::Pod(pod) => Some(pod),
            ObjectView::Node(_) | ObjectView::Lease(_) | ObjectView::Other => None,
        }
    }
}

/// A lease as the cloud has it (coordination.k8s.io/v1).
#[derive(Clone, Debug)]
pub struct RemoteLease {
    /// `resourceVersion`; empty: not given.
    pub version: Box<str>,
    /// The uid of the node that owns it.
    pub owner: Option<Box<str>>,
}

/// A page of the list of this node's pods, or of the cluster's Services.
#[derive(Clone, Debug)]
pub struct PodPage {
    /// The key of each, and its JSON.
    pub pods: Vec<(Box<str>, Box<str>)>,
    /// The continue token of the next page, `None`: it is the last one; or why what follows cannot
    /// be read.
    pub next: Result<Option<Box<str>>, String>,
}

/// meta/v1 `Status` of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Refusal {
    /// `NotFound`, `AlreadyExists`, `Conflict` …; empty if the cloud does not say.
    pub reason: Box<str>,
    /// For the user.
    pub message: Box<str>,
    /// The HTTP status; 0 if the cloud does not say.
    pub code: u16,
}

impl Refusal {
    /// The API server has no such object, or not this incarnation of it.
    pub fn is_not_found(&self) -> bool {
        self.code == 404 || &*self.reason == "NotFound"
    }

    /// The API server itself says that it has no pod of this name. A 404 of a proxy, or of a
    /// namespace, has another message.
    pub fn has_no_pod(&self, name: &str) -> bool {
        self.is_not_found() && *self.message == *format!("pods \"{name}\" not found")
    }

    /// The object was changed, or deleted and created again, since we knew it.
    pub fn is_conflict(&self) -> bool {
        self.code == 409 || &*self.reason == "Conflict"
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&*self.reason, &*self.message) {
            ("", "") => f.write_str("refused without a reason"),
            ("", message) => f.write_str(message),
            (reason, message) => write!(f, "{message} ({reason})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: u16, reason: &str, message: &str) -> Refusal {
        Refusal { reason: reason.into(), message: message.into(), code }
    }

    #[test]
    fn a_refusal_is_classified_by_its_code_or_its_reason() {
        for (refused, not_found, conflict) in [
            (refusal(404, "", ""), true, false),
            (refusal(0, "NotFound", ""), true, false),
            (refusal(409, "AlreadyExists", ""), false, true),
            (refusal(0, "Conflict", ""), false, true),
            (refusal(500, "InternalError", ""), false, false),
        ] {
            let got = (refused.is_not_found(), refused.is_conflict());
            assert_eq!(got, (not_found, conflict), "{refused:?}");
        }
        let message = "pods \"p\" not found";
        assert!(refusal(404, "NotFound", message).has_no_pod("p"));
        assert!(!refusal(404, "NotFound", message).has_no_pod("q"));
        assert!(!refusal(403, "Forbidden", message).has_no_pod("p"));
    }
}
