//! A pod's status in the API (core/v1 `PodStatus`).

use serde::{Deserialize, Serialize};

use super::time::Timestamp;
use super::tree::words;
use super::untyped::is_default;

/// core/v1 `PodStatus`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// The summary.
    pub phase: Phase,
    /// In the kubelet's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// For the operator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// For programs: `Evicted`, `DeadlineExceeded`, `NodePorts` …
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The node's address.
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
    /// The node's addresses, the primary first.
    #[serde(rename = "hostIPs", skip_serializing_if = "Vec::is_empty")]
    pub host_ips: Vec<Ip>,
    /// The pod's address.
    #[serde(rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    /// The pod's addresses, at most one per family.
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<Ip>,
    /// When the agent first observed the pod; set once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// In the order of the pod spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// By name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
    /// By name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
    /// By the containers' requests and limits.
    pub qos_class: QosClass,
}

/// `PodIP`, `HostIP`
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ip {
    /// As text.
    pub ip: String,
}

/// `PodStatus.phase`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    /// Succeeded and Failed are final.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// `PodStatus.qosClass`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    #[default]
    BestEffort,
}

/// core/v1 `PodCondition`
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: ConditionKind,
    /// Written `"True"` or `"False"`.
    #[serde(serialize_with = "title_case")]
    pub status: bool,
    /// Never known here; null as the API server writes it.
    pub last_probe_time: Option<Timestamp>,
    /// When `status` last changed.
    pub last_transition_time: Option<Timestamp>,
    /// For programs.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// For the operator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// `PodCondition.type`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ConditionKind {
    PodReadyToStartContainers,
    Initialized,
    Ready,
    ContainersReady,
    PodScheduled,
    DisruptionTarget,
    /// KubeEdge's: the pod is held back until somebody on the node releases it.
    HeldUpgrade,
}

impl ConditionKind {
    /// By its name; `None`: one that others set.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "PodReadyToStartContainers" => Self::PodReadyToStartContainers,
            "Initialized" => Self::Initialized,
            "Ready" => Self::Ready,
            "ContainersReady" => Self::ContainersReady,
            "PodScheduled" => Self::PodScheduled,
            "DisruptionTarget" => Self::DisruptionTarget,
            "HeldUpgrade" => Self::HeldUpgrade,
            _ => return None,
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn title_case<S: serde::Serializer>(value: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if *value { "True" } else { "False" })
}

/// core/v1 `ContainerStatus`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    /// As in the pod spec.
    pub name: Box<str>,
    /// Of the newest instance.
    pub state: State,
    /// Of the one before it.
    pub last_state: State,
    pub ready: bool,
    /// Never decreases.
    pub restart_count: u32,
    /// As the runtime resolved it, otherwise as in the pod spec.
    pub image: Box<str>,
    /// `image_ref` of the runtime.
    #[serde(rename = "imageID")]
    pub image_id: Box<str>,
    /// `containerd://…`
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// It passed its startup probe, or has none and runs; `None`: an ephemeral one, which has no
    /// such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<bool>,
    /// Of volumes, in the order of the pod spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMountStatus>,
}

/// core/v1 `VolumeMountStatus`
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMountStatus {
    pub name: Box<str>,
    /// In the container.
    pub mount_path: Box<str>,
    /// Read-only for the container.
    #[serde(skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// Whether mounts below are read-only as well; only for read-only mounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive_read_only: Option<RecursiveReadOnly>,
}

impl ContainerStatus {
    /// Whether `started` is true.
    pub fn has_started(&self) -> bool {
        self.started == Some(true)
    }
}

/// core/v1 `ContainerState`; `Unset` is written `{}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Not running, and not yet run or about to run again.
    Waiting(Waiting),
    /// Alive.
    Running(Running),
    /// Ended.
    Terminated(Box<Terminated>),
    /// No state known.
    #[default]
    #[serde(untagged, serialize_with = "empty_map")]
    Unset,
}

fn empty_map<S: serde::Serializer>(to: S) -> Result<S::Ok, S::Error> {
    to.collect_map::<(), (), [((), ()); 0]>([])
}

/// core/v1 `ContainerStateWaiting`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// `ContainerCreating`, `CrashLoopBackOff` …
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// For the operator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// core/v1 `ContainerStateRunning`
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// By the runtime's clock.
    pub started_at: Option<Timestamp>,
}

/// core/v1 `ContainerStateTerminated`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Terminated {
    /// Of the process; 137 if it is not known.
    pub exit_code: i32,
    /// `Completed`, `Error`, `OOMKilled` …
    pub reason: Box<str>,
    /// For the operator.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: Box<str>,
    /// By the runtime's clock.
    pub started_at: Option<Timestamp>,
    /// By the runtime's clock.
    pub finished_at: Option<Timestamp>,
    /// `containerd://…`
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
}

/// `VolumeMount.recursiveReadOnly`, and `VolumeMountStatus.recursiveReadOnly`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum RecursiveReadOnly {
    #[default]
    Disabled,
    IfPossible,
    Enabled,
}

words!(RecursiveReadOnly {
    "Disabled" => Disabled,
    "IfPossible" => IfPossible,
    "Enabled" => Enabled,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_written_as_kubernetes_writes_them() {
        let json = |state: &State| serde_json::to_string(state).expect("serialises");
        assert_eq!(json(&State::Unset), "{}");
        let waiting = Waiting { reason: "ContainerCreating", message: String::new() };
        assert_eq!(json(&State::Waiting(waiting)), r#"{"waiting":{"reason":"ContainerCreating"}}"#);
        let running = Running { started_at: Some(Timestamp(0)) };
        assert_eq!(
            json(&State::Running(running)),
            r#"{"running":{"startedAt":"1970-01-01T00:00:00Z"}}"#
        );
    }
}
