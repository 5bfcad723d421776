//! Sandbox and container configurations, with what the kubelet sets for every pod (section 3).

use super::super::container::{
    ContainerConfig, ContainerMetadata, KeyValue, LinuxContainerConfig, LinuxContainerResources,
    Mount, MountPropagation,
};
use super::super::image::ImageSpec;
use super::super::sandbox::{
    LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol,
};
use super::super::security::{
    LinuxContainerSecurityContext, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption,
    ProfileType, SecurityProfile,
};
use crate::model::cri;

/// `masked_paths` of procMount Default (section 3.8).
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// `readonly_paths` of procMount Default (section 3.8).
const READONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn sandbox(from: &cri::SandboxConfig) -> PodSandboxConfig {
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: from.pod.name.to_string(),
            uid: from.pod.uid.to_string(),
            namespace: from.pod.namespace.to_string(),
            attempt: from.attempt,
        }),
        hostname: from.hostname.clone(),
        log_directory: from.log_directory.clone(),
        dns_config: None,
        port_mappings: from.port_mappings.iter().map(port_mapping).collect(),
        labels: from.labels.clone(),
        annotations: from.annotations.clone(),
        linux: Some(LinuxPodSandboxConfig {
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(from.network)),
                // Always, whatever the pod says: the sandbox runs nothing of the pod's.
                seccomp: Some(profile(ProfileType::RuntimeDefault)),
                ..LinuxSandboxSecurityContext::default()
            }),
            resources: Some(resources(from.resources)),
            ..LinuxPodSandboxConfig::default()
        }),
    }
}

pub(super) fn container(from: &cri::ContainerConfig) -> ContainerConfig {
    let key_value =
        |(key, value): &(String, String)| KeyValue { key: key.clone(), value: value.clone() };
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: from.name.to_string(), attempt: from.attempt }),
        image: Some(image(&from.image_ref, &from.image)),
        command: from.command.clone(),
        args: from.args.clone(),
        working_dir: from.working_dir.clone(),
        envs: from.envs.iter().map(key_value).collect(),
        mounts: from.mounts.iter().map(mount).collect(),
        labels: from.labels.clone(),
        annotations: from.annotations.clone(),
        log_path: from.log_path.clone(),
        stdin: from.terminal.stdin,
        stdin_once: from.terminal.stdin_once,
        tty: from.terminal.tty,
        linux: Some(LinuxContainerConfig {
            resources: Some(resources(from.resources)),
            security_context: Some(LinuxContainerSecurityContext {
                namespace_options: Some(namespaces(from.network)),
                masked_paths: MASKED_PATHS.map(str::to_owned).to_vec(),
                readonly_paths: READONLY_PATHS.map(str::to_owned).to_vec(),
                // The kubelet's default without `seccompDefault`.
                seccomp: Some(profile(ProfileType::Unconfined)),
                ..LinuxContainerSecurityContext::default()
            }),
        }),
        ..ContainerConfig::default()
    }
}

fn mount(from: &cri::Mount) -> Mount {
    let propagation = match from.propagation {
        cri::Propagation::Private => MountPropagation::Private,
        cri::Propagation::HostToContainer => MountPropagation::HostToContainer,
        cri::Propagation::Bidirectional => MountPropagation::Bidirectional,
    };
    Mount {
        container_path: from.container_path.clone(),
        host_path: from.host_path.clone(),
        readonly: from.readonly,
        recursive_read_only: from.recursive_read_only,
        propagation: propagation.into(),
        image: from.image.as_ref().map(|(image_ref, name)| image(image_ref, name)),
        ..Mount::default()
    }
}

/// Field 18 always: CRI-O needs it.
pub(super) fn image(image: &str, user_specified: &str) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        user_specified_image: user_specified.to_owned(),
        ..ImageSpec::default()
    }
}

/// Zero means POD in every field, which for `pid` would share one namespace among the containers.
fn namespaces(network: cri::Network) -> NamespaceOption {
    let network = match network {
        cri::Network::Pod => NamespaceMode::Pod,
        cri::Network::Node => NamespaceMode::Node,
    };
    NamespaceOption {
        network: network.into(),
        pid: NamespaceMode::Container.into(),
        ipc: NamespaceMode::Pod.into(),
        ..NamespaceOption::default()
    }
}

fn profile(kind: ProfileType) -> SecurityProfile {
    SecurityProfile { profile_type: kind.into(), localhost_ref: String::new() }
}

fn resources(from: cri::Resources) -> LinuxContainerResources {
    LinuxContainerResources {
        cpu_period: from.cpu_period,
        cpu_quota: from.cpu_quota,
        cpu_shares: from.cpu_shares,
        memory_limit_in_bytes: from.memory_limit,
        oom_score_adj: from.oom_score_adj,
        ..LinuxContainerResources::default()
    }
}

fn port_mapping(from: &cri::PortMapping) -> PortMapping {
    let protocol = match from.protocol {
        cri::Protocol::Tcp => Protocol::Tcp,
        cri::Protocol::Udp => Protocol::Udp,
        cri::Protocol::Sctp => Protocol::Sctp,
    };
    PortMapping {
        protocol: protocol.into(),
        container_port: from.container_port.into(),
        host_port: from.host_port.into(),
        host_ip: from.host_ip.clone(),
    }
}
