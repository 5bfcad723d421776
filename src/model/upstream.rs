//! What a node sends to its cloud (wire spec sections 2 and 5). `wire/kubeedge` writes it.

use std::collections::BTreeMap;
#[cfg(feature = "devices")]
use std::sync::Arc;

#[cfg(any(feature = "metaserver", feature = "services"))]
use super::application::Scope;
#[cfg(feature = "devices")]
use super::device::{DeviceUpstream, Upload};
use super::message::{Message, Route};
use super::node_job::JobReport;
use super::node_status::NodeStatus;
use super::pod::Pod;
use super::recorded_event::RecordedEvent;
#[cfg(feature = "servicebus")]
use super::service_bus::ServiceAnswer;
use super::settings::Taint;
use super::status::PodStatus;
use super::status_patch::StatusPatch;

/// One message to the cloud.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its id, to which the cloud's answer refers.
    pub id: Box<str>,
    /// Milliseconds since the epoch; 0: not known.
    pub timestamp_ms: i64,
    pub content: Up,
}

/// The content of a message to the cloud.
#[derive(Clone, Debug)]
pub enum Up {
    /// The keep-alive that the cloud expects (section 2.4).
    KeepAlive,
    /// The answer to a message of the cloud.
    Reply(Origin, Reply),
    /// Read the node's lease (section 5.5).
    QueryLease { node: Box<str> },
    /// Create the node's lease, or renew it if its version is known (section 5.5).
    WriteLease(Lease),
    /// Create the Node object (section 5.1).
    InsertNode(Box<NodeObject>),
    /// Patch the status of the node (section 5.3).
    PatchNode {
        node: Box<str>,
        /// `None`: a patch that changes nothing, to read the node.
        patch: Option<StatusPatch>,
    },
    /// Add labels to the node.
    LabelNode { node: Box<str>, labels: BTreeMap<&'static str, Box<str>> },
    /// The whole status of the node, for clouds up to 1.11.
    LegacyNodeStatus {
        node: Box<str>,
        /// Of the message, not of the node.
        namespace: Box<str>,
        /// Empty: not known.
        uid: Box<str>,
        status: NodeStatus,
    },
    /// Patch the status of a pod (section 5.6).
    PatchPod { pod: PodName, patch: StatusPatch },
    /// The whole status of a pod, for clouds up to 1.10.
    LegacyPodStatus { pod: PodName, status: Box<PodStatus> },
    /// The whole statuses of the pods of a namespace, for clouds up to 1.10 (section 6.3).
    LegacyPodStatuses { namespace: Box<str>, pods: Vec<(PodName, PodStatus)> },
    /// Delete the pod of this uid, and no other of its name (section 5.7).
    DeletePod { key: Box<str>, uid: Box<str> },
    /// Create the mirror of a static pod.
    InsertMirror {
        /// `default/pod/web-gw`
        key: Box<str>,
        /// The static pod, with the annotation of a mirror.
        pod: Box<Pod>,
        /// The owner.
        node: Box<str>,
        node_uid: Box<str>,
    },
    /// Read the object of this key (section 5.8).
    QueryObject { key: Box<str> },
    /// Request a token (section 5.9).
    RequestToken(TokenRequest),
    /// List the pods of the node (section 5.12).
    ListPods {
        node: Box<str>,
        /// So many at most.
        limit: u32,
        /// The token of the page; empty: the first one.
        page: Box<str>,
    },
    /// List the Services of the cluster (metaserver.md, section 7).
    #[cfg(feature = "services")]
    ListServices {
        node: Box<str>,
        /// So many at most.
        limit: u32,
        /// The token of the page; empty: the first one.
        page: Box<str>,
    },
    /// Serve these watches, and no others (`watchapp/sync`, metaserver.md, section 6).
    #[cfg(any(feature = "metaserver", feature = "services"))]
    SyncWatches { node: Box<str>, watches: Vec<Scope> },
    /// A request of MetaServer (section 6 there).
    #[cfg(feature = "metaserver")]
    Application(Box<super::application::Application>),
    /// Report an event (section 5.11).
    Event {
        /// It was not sent before.
        is_new: bool,
        /// Distinguishes it from other events of its object.
        digest: u64,
        event: Box<RecordedEvent>,
        node: Box<str>,
    },
    /// A report about a job for the node itself (section 4.10).
    NodeJob(Box<JobReport>),
    /// A report about devices.
    #[cfg(feature = "devices")]
    Device(Box<DeviceUpstream>),
    /// The answer of a service to a call of the router, or of edged in its place.
    #[cfg(feature = "servicebus")]
    ServiceAnswer(Origin, Box<ServiceAnswer>),
    /// The request of an application for the rule of this URL.
    #[cfg(feature = "servicebus")]
    ServiceRequest { url: Box<str>, body: Vec<u8> },
    /// A message of an MQTT client for the cloud's router, in the name of EventBus.
    #[cfg(feature = "devices")]
    Upload(Arc<Upload>),
}

/// The origin of a message from the cloud, for the answer: its id, and its route.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub id: Box<str>,
    pub source: Box<str>,
    pub group: Box<str>,
    pub operation: Box<str>,
    pub resource: Box<str>,
}

impl Origin {
    pub fn of(message: &Message) -> Self {
        let Route { source, group, operation, resource } = message.route.clone();
        Self { id: message.header.id.clone(), source, group, operation, resource }
    }

    /// Whether both are of the same message.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// An answer to a message of the cloud.
#[derive(Clone, Debug)]
pub enum Reply {
    /// It is stored and survives a power cut (section 2.6).
    Stored,
    /// It is refused: the cloud logs the reason, and sends it again.
    Refused(Box<str>),
    /// To Viaduct's own messages (section 2.2).
    Received,
    /// edged has no `ServiceBus` (section 4.8).
    NoServices,
    /// edged has no CSI volumes (section 4.9).
    NoVolumes,
}

/// A lease to write (coordination.k8s.io/v1).
#[derive(Clone, Debug)]
pub struct Lease {
    pub node: Box<str>,
    /// The node's uid; `None`: not known.
    pub owner: Option<Box<str>>,
    /// Its `resourceVersion`; `None`: there is no lease.
    pub version: Option<Box<str>>,
    /// `leaseDurationSeconds`
    pub duration_s: u32,
    /// `renewTime`: milliseconds since the epoch.
    pub renewed_at_ms: i64,
}

/// The Node object for the registration (core/v1 `Node`).
#[derive(Clone, Debug)]
pub struct NodeObject {
    pub name: Box<str>,
    pub labels: BTreeMap<Box<str>, Box<str>>,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub status: NodeStatus,
    /// The message's namespace for clouds up to 1.11; `None`: the form of later ones.
    pub legacy_namespace: Option<Box<str>>,
}

/// A pod, or the mirror of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

/// A token for a pod (authentication.k8s.io/v1 `TokenRequest`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRequest {
    /// Of the account and the pod.
    pub namespace: Box<str>,
    /// The service account.
    pub account: Box<str>,
    /// The pod's name.
    pub pod: Box<str>,
    /// The pod's uid.
    pub uid: Box<str>,
    /// Empty: the API server.
    pub audience: Box<str>,
    /// The lifetime, seconds.
    pub seconds: i64,
}
