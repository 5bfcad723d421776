//! What the agent shows of itself beyond pods: the answer to `/edged/status`.

use serde::{Deserialize, Serialize};

/// The agent at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overview {
    /// The node's name.
    pub node: String,
    /// The agent's version.
    pub version: String,
    /// Milliseconds since the agent's start.
    pub uptime_ms: u64,
    /// `containerd 1.6.20`; empty until it answered.
    pub runtime: String,
    /// Why no pod can be served now; `None`: all is well.
    pub runtime_trouble: Option<String>,
    /// Why pods on the pod network cannot start; `None`: they can.
    pub network_trouble: Option<String>,
    /// What the node runs short of: `MemoryPressure`, `DiskPressure`, `PIDPressure`; `None`: nobody
    /// looks.
    pub pressures: Option<Vec<String>>,
    /// What is wrong with the manifests, a line each: `path:line:column: why`.
    pub manifest_trouble: Vec<String>,
    /// Pods that a source wants.
    pub pods_wanted: usize,
    /// Pods in phase Running.
    pub pods_running: usize,
    /// Images on their way, and for how many milliseconds.
    pub pulls: Vec<(String, u64)>,
    /// Whether changes come by the runtime's event stream (else by relisting each second).
    pub evented: bool,
    /// How it stands with the cloud; `None`: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<CloudOverview>,
}

/// How it stands with the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CloudOverview {
    /// Milliseconds since the link came up; `None`: it is down.
    pub up_ms: Option<u64>,
    /// Why it is down.
    pub trouble: Option<String>,
    /// Why what the cloud sends cannot be kept; `None`: it is.
    pub store_trouble: Option<String>,
    /// The store is new or was lost: pods of a cloud that ran before are left alone.
    pub store_is_new: bool,
    /// Why it was lost, until the cloud has listed all that it wants here.
    pub store_loss: Option<String>,
    /// Objects of the cloud's that are kept.
    pub objects: usize,
}

/// A pod as the runtime shows it: `/runningpods/`.
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
