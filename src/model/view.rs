//! The agent's state beyond pods: the answer to `/edged/status`.

use serde::{Deserialize, Serialize};

#[cfg(feature = "devices")]
use super::device::DevicesOverview;
#[cfg(feature = "metaserver")]
use super::metaserver::MetaServerOverview;
#[cfg(feature = "node-jobs")]
use super::node_job::JobOverview;
#[cfg(feature = "services")]
use super::service::ServicesOverview;
#[cfg(feature = "servicebus")]
use super::service_bus::BusOverview;
use super::time::Timestamp;

/// A summary of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overview {
    /// The node's name.
    pub node: String,
    /// The agent's version.
    pub version: String,
    /// Milliseconds since the agent's start.
    pub uptime_ms: u64,
    /// The wall clock; `None`: it is not set.
    #[serde(skip_deserializing)]
    pub time: Option<Timestamp>,
    /// As long as it is unchanged, so are `/pods` and `/events`, until a restart of the agent.
    pub revision: u64,
    /// `containerd 1.6.20`; empty until it answered.
    pub runtime: String,
    /// Why no pod can be served now; `None`: no trouble.
    pub runtime_trouble: Option<String>,
    /// Why pods on the pod network cannot start; `None`: they can.
    pub network_trouble: Option<String>,
    /// The node's shortages: `MemoryPressure`, `DiskPressure`, `PIDPressure`; `None`: not observed.
    pub pressures: Option<Vec<String>>,
    /// The errors of manifests, a line each: `path:line:column: why`.
    pub manifest_trouble: Vec<String>,
    /// Pods that a source wants.
    pub pods_wanted: usize,
    /// Pods in phase Running.
    pub pods_running: usize,
    /// Images being pulled, and for how many milliseconds.
    pub pulls: Vec<(String, u64)>,
    /// Whether changes come by the runtime's event stream (otherwise by relisting each second).
    pub evented: bool,
    /// The state of the link to the cloud; `None`: no cloud is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<CloudOverview>,
    /// The state of the stream tunnel; `None`: it is switched off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelOverview>,
    /// Devices in short; `None`: they are not served.
    #[cfg(feature = "devices")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DevicesOverview>,
    /// Jobs of the cloud for the node itself; `None`: they are switched off.
    #[cfg(feature = "node-jobs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_jobs: Option<Vec<JobOverview>>,
    /// ServiceBus; `None`: it is switched off.
    #[cfg(feature = "servicebus")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_bus: Option<BusOverview>,
    /// Services in short; `None`: they are not served.
    #[cfg(feature = "services")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<ServicesOverview>,
    /// The Kubernetes API on the node; `None`: it is not served.
    #[cfg(feature = "metaserver")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metaserver: Option<MetaServerOverview>,
}

/// The state of the tunnel for logs and commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TunnelOverview {
    /// Milliseconds since it came up; `None`: it is down.
    pub up_ms: Option<u64>,
    /// Why it is down.
    pub trouble: Option<String>,
}

/// The state of the link to the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CloudOverview {
    /// Milliseconds since the link came up; `None`: it is down.
    pub up_ms: Option<u64>,
    /// Why it is down.
    pub trouble: Option<String>,
    /// Why objects of the cloud cannot be stored; `None`: they can.
    pub store_trouble: Option<String>,
    /// The store is new or was lost: running pods of a cloud are not touched.
    pub store_is_new: bool,
    /// Why it was lost, until the cloud has listed its pods.
    pub store_loss: Option<String>,
    /// The number of stored objects of the cloud.
    pub objects: usize,
}

/// A pod as the runtime lists it: `/runningpods/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningPod {
    /// The pod's uid.
    pub uid: Box<str>,
    /// The pod's namespace.
    pub namespace: Box<str>,
    /// The pod's name.
    pub name: Box<str>,
    /// Name and image of each running container.
    pub containers: Vec<(Box<str>, Box<str>)>,
}
