//! A pod as its manifest defines it (core/v1, `Pod`).
//!
//! Fields that edged acts on are typed. All others stay in `rest`, so that nothing is lost when the
//! pod is written, and unsupported fields can be reported.

mod env;
mod network;
mod scheduling;
mod security;
mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::probe::{Lifecycle, Probe};
use super::quantity::Quantity;
use super::status::PodStatus;
pub use super::status::RecursiveReadOnly;
use super::tree::{fields, words};
use super::untyped::is_default;

pub use super::untyped::{Rest, Untyped, is_nothing, plain, shown};
pub use env::{EnvFrom, EnvVar, EnvVarSource, FieldRef, KeyRef, ObjectRef, ResourceFieldRef};
pub use network::{DnsConfig, DnsOption, DnsPolicy, HostAlias};
pub(super) use scheduling::required_nodes;
pub use scheduling::{NodeRequirement, NodeSelectorTerm, Toleration};
pub use security::{
    Capabilities, FsGroupChangePolicy, PodSecurityContext, ProcMount, Profile, ProfileType,
    SeLinuxOptions, SecurityContext, SupplementalGroupsPolicy, Sysctl,
};
pub use volume::{
    ClaimVolume, DownwardFile, DownwardVolume, EmptyDir, HostPath, KeyToPath, MountPropagation,
    Nfs, ObjectFiles, Projected, ProjectedSource, SecretVolume, ServiceAccountToken, Volume,
    VolumeMount,
};

/// core/v1 `Pod`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pod {
    /// Names and labels.
    pub metadata: Metadata,
    /// The desired state; shared by the owner and the users of the pod: it may be large, and does
    /// not change.
    pub spec: Arc<PodSpec>,
    /// The observed state. Written by the agent, never read from a manifest.
    pub status: PodStatus,
    /// It is marked by [`HOLD`], and the cloud knows no more of it than that it is to start.
    #[serde(skip)]
    pub is_to_be_held: bool,
}

fields!(Pod {
    "metadata" => metadata,
    "spec" => spec,
});

/// The annotation with the time at which the agent first observed the pod; all others are the
/// source's.
pub const SEEN: &str = "kubernetes.io/config.seen";
/// The annotation of a sandbox with users of its own (`hostUsers: false`): who its user 0 is on the
/// host.
pub const FIRST_USER: &str = "edged/first-user";
/// The annotation with the source of a pod: `file` or `api`.
pub const SOURCE: &str = "kubernetes.io/config.source";
/// The annotation of a pod that does not start before somebody on the node releases it, if it is
/// `true` (KubeEdge 1.22).
pub const HOLD: &str = "edge.kubeedge.io/hold-upgrade";
/// The annotation of a mirror pod in the API server: the static pod that it shows.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// meta/v1 `ObjectMeta`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// DNS subdomain.
    pub name: String,
    /// DNS label.
    pub namespace: String,
    /// Identifies this incarnation of the pod.
    pub uid: String,
    /// Sent to the runtime with the sandbox.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Sent to the runtime with the sandbox.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// RFC 3339; if set, the pod must end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(Metadata {
    "name" => name,
    "namespace" => namespace,
    "uid" => uid,
    "labels" => labels,
    "annotations" => annotations,
    "creationTimestamp" => creation_timestamp,
    "deletionTimestamp" => deletion_timestamp,
    "deletionGracePeriodSeconds" => deletion_grace_period_seconds,
} rest rest);

impl Pod {
    /// The service account of the pod.
    pub fn service_account(&self) -> &str {
        let named = ["serviceAccountName", "serviceAccount"];
        let name = named.iter().find_map(|key| self.spec.rest.get(*key)?.as_str());
        name.filter(|name| !name.is_empty()).unwrap_or("default")
    }

    /// 32 hex digits for the pod as written, and for these texts.
    pub fn digest(&self, texts: [&str; 2]) -> String {
        let pod = serde_json::to_string(self).expect("a pod is plain data");
        let mut fnv = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
        for byte in [&*pod, texts[0], texts[1]].join("\0").bytes() {
            fnv = (fnv ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        format!("{fnv:032x}")
    }
}

/// core/v1 `PodSpec`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// Run one after another before the main containers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<Container>,
    /// The main containers.
    pub containers: Vec<Container>,
    /// For debugging the pod while it runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ephemeral_containers: Vec<Container>,
    /// For the main containers and plain init containers.
    pub restart_policy: RestartPolicy,
    /// Seconds; default 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// Seconds from the pod's start until it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// Use the host's network namespace.
    #[serde(skip_serializing_if = "is_default")]
    pub host_network: bool,
    /// See the host's processes.
    #[serde(rename = "hostPID", skip_serializing_if = "is_default")]
    pub host_pid: bool,
    /// Use the host's shared memory and message queues.
    #[serde(rename = "hostIPC", skip_serializing_if = "is_default")]
    pub host_ipc: bool,
    /// `false`: the pod has users of its own. Default: the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_users: Option<bool>,
    /// All containers see the same processes.
    #[serde(skip_serializing_if = "is_default")]
    pub share_process_namespace: bool,
    /// Lines of every container's `/etc/hosts`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_aliases: Vec<HostAlias>,
    /// DNS label: the middle of the pod's full name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subdomain: Option<String>,
    /// The full name is the host name.
    #[serde(rename = "setHostnameAsFQDN", skip_serializing_if = "is_default")]
    pub set_hostname_as_fqdn: bool,
    /// The source of the name servers; default `ClusterFirst`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_policy: Option<DnsPolicy>,
    /// Additions to the policy.
    #[serde(skip_serializing_if = "is_default")]
    pub dns_config: DnsConfig,
    /// Conditions that others set, and which the pod needs to be ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub readiness_gates: Vec<ReadinessGate>,
    /// The RuntimeClass with the runtime handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// The resources beside its containers; default: those of its class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overhead: BTreeMap<String, Quantity>,
    /// The requests and limits of all its containers together.
    #[serde(skip_serializing_if = "is_default")]
    pub resources: ResourceRequirements,
    /// Defaults of all containers.
    #[serde(skip_serializing_if = "is_default")]
    pub security_context: PodSecurityContext,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// DNS label; default: the pod's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Secrets with credentials of registries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<PullSecret>,
    /// The node it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Variables of Services; default: yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_service_links: Option<bool>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(PodSpec {
    "initContainers" => init_containers,
    "containers" => containers,
    "ephemeralContainers" => ephemeral_containers,
    "restartPolicy" => restart_policy,
    "terminationGracePeriodSeconds" => termination_grace_period_seconds,
    "activeDeadlineSeconds" => active_deadline_seconds,
    "hostNetwork" => host_network,
    "hostPID" => host_pid,
    "hostIPC" => host_ipc,
    "hostUsers" => host_users,
    "shareProcessNamespace" => share_process_namespace,
    "hostAliases" => host_aliases,
    "subdomain" => subdomain,
    "setHostnameAsFQDN" => set_hostname_as_fqdn,
    "dnsPolicy" => dns_policy,
    "dnsConfig" => dns_config,
    "readinessGates" => readiness_gates,
    "runtimeClassName" => runtime_class_name,
    "overhead" => overhead,
    "resources" => resources,
    "securityContext" => security_context,
    "volumes" => volumes,
    "hostname" => hostname,
    "imagePullSecrets" => image_pull_secrets,
    "nodeName" => node_name,
    "enableServiceLinks" => enable_service_links,
} rest rest);

impl PodSpec {
    /// Whether the pod has users of its own.
    pub fn has_users(&self) -> bool {
        self.host_users == Some(false)
    }

    /// Containers of every kind.
    pub fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.init_containers.iter().chain(&self.containers).chain(&self.ephemeral_containers)
    }
}

/// core/v1 `LocalObjectReference` to a secret of the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PullSecret {
    /// Its name; empty: none.
    pub name: String,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(PullSecret {
    "name" => name,
} rest rest);

/// core/v1 `PodReadinessGate`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadinessGate {
    /// The condition's name.
    pub condition_type: String,
    /// `True`, `False` or `Unknown`, as the cloud has that condition in the pod's status; `None`:
    /// it has none. Not a part of the spec, but it arrives together with it.
    #[serde(skip)]
    pub reported: Option<&'static str>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(ReadinessGate {
    "conditionType" => condition_type,
} rest rest);

/// `PodSpec.restartPolicy`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

words!(RestartPolicy {
    "Always" => Always,
    "OnFailure" => OnFailure,
    "Never" => Never,
});

/// core/v1 `Container`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// DNS label, unique in the pod.
    pub name: Box<str>,
    /// As the user wrote it.
    pub image: Box<str>,
    /// Replaces the image's entry point.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Replaces the image's arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Replaces the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// All keys of some objects, before `env`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFrom>,
    /// In order; a later one of the same name wins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ContainerPort>,
    #[serde(skip_serializing_if = "is_default")]
    pub resources: ResourceRequirements,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,
    /// Default by the image's tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// `Always` makes an init container a sidecar. Not allowed on main containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,
    #[serde(skip_serializing_if = "is_default")]
    pub security_context: SecurityContext,
    /// The path of its termination message; default `/dev/termination-log`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_message_path: Option<String>,
    /// Whether its log may be used instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_message_policy: Option<MessagePolicy>,
    /// Of an ephemeral container: the container whose process namespace it shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_container_name: Option<String>,
    /// Keep standard input open.
    #[serde(skip_serializing_if = "is_default")]
    pub stdin: bool,
    /// Close it after the first attach.
    #[serde(skip_serializing_if = "is_default")]
    pub stdin_once: bool,
    /// Give it a terminal.
    #[serde(skip_serializing_if = "is_default")]
    pub tty: bool,
    /// Detects the end of the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_probe: Option<Box<Probe>>,
    /// Detects readiness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<Box<Probe>>,
    /// Detects that a restart is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness_probe: Option<Box<Probe>>,
    /// The hooks after its start and before its stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Box<Lifecycle>>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(Container {
    "name" => name,
    "image" => image,
    "command" => command,
    "args" => args,
    "workingDir" => working_dir,
    "envFrom" => env_from,
    "env" => env,
    "ports" => ports,
    "resources" => resources,
    "volumeMounts" => volume_mounts,
    "imagePullPolicy" => image_pull_policy,
    "restartPolicy" => restart_policy,
    "securityContext" => security_context,
    "terminationMessagePath" => termination_message_path,
    "terminationMessagePolicy" => termination_message_policy,
    "targetContainerName" => target_container_name,
    "stdin" => stdin,
    "stdinOnce" => stdin_once,
    "tty" => tty,
    "startupProbe" => startup_probe,
    "readinessProbe" => readiness_probe,
    "livenessProbe" => liveness_probe,
    "lifecycle" => lifecycle,
} rest rest);

/// `Container.terminationMessagePolicy`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum MessagePolicy {
    #[default]
    File,
    FallbackToLogsOnError,
}

words!(MessagePolicy {
    "File" => File,
    "FallbackToLogsOnError" => FallbackToLogsOnError,
});

/// core/v1 `ContainerPort`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPort {
    /// 1–65535
    pub container_port: u16,
    /// 0: not on the host.
    #[serde(skip_serializing_if = "is_default")]
    pub host_port: u16,
    /// Empty: all addresses.
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
    /// Default `TCP`.
    pub protocol: PortProtocol,
    /// For services and probes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(ContainerPort {
    "containerPort" => container_port,
    "hostPort" => host_port,
    "hostIP" => host_ip,
    "protocol" => protocol,
    "name" => name,
} rest rest);

/// `ContainerPort.protocol`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PortProtocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

words!(PortProtocol {
    "TCP" => Tcp,
    "UDP" => Udp,
    "SCTP" => Sctp,
});

/// core/v1 `ResourceRequirements`, by resource name (`cpu`, `memory`).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResourceRequirements {
    /// Upper limits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(ResourceRequirements {
    "limits" => limits,
    "requests" => requests,
} rest rest);

/// `Container.imagePullPolicy`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum PullPolicy {
    #[default]
    Always,
    IfNotPresent,
    Never,
}

words!(PullPolicy {
    "Always" => Always,
    "IfNotPresent" => IfNotPresent,
    "Never" => Never,
});
