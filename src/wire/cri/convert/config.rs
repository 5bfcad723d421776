//! Sandbox and container configurations, with what the kubelet sets for every pod (section 3).

use super::super::container::{
    ContainerConfig, ContainerMetadata, Device, HugepageLimit, KeyValue, LinuxContainerConfig,
    LinuxContainerResources, Mount, MountPropagation,
};
use super::super::image::ImageSpec;
use super::super::sandbox::{
    DnsConfig, LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol,
};
use super::security;
use crate::model::cri;

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
        dns_config: from.dns.as_ref().map(dns),
        port_mappings: from.port_mappings.iter().map(port_mapping).collect(),
        labels: from.labels.clone(),
        annotations: from.annotations.clone(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: from.cgroup_parent.clone(),
            security_context: Some(security::sandbox(from)),
            sysctls: from.sysctls.clone(),
            overhead: resources(&from.overhead),
            resources: resources(&from.resources),
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
        devices: from.devices.iter().map(device).collect(),
        labels: from.labels.clone(),
        annotations: from.annotations.clone(),
        log_path: from.log_path.clone(),
        stdin: from.terminal.stdin,
        stdin_once: from.terminal.stdin_once,
        tty: from.terminal.tty,
        linux: Some(LinuxContainerConfig {
            resources: resources(&from.resources),
            security_context: Some(security::container(from)),
        }),
        ..ContainerConfig::default()
    }
}

fn device(from: &cri::Device) -> Device {
    Device {
        container_path: from.container_path.clone(),
        host_path: from.host_path.clone(),
        permissions: from.permissions.to_string(),
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
        uid_mappings: security::users_map(from.users),
        gid_mappings: security::users_map(from.users),
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

fn dns(from: &cri::Dns) -> DnsConfig {
    let cri::Dns { servers, searches, options } = from.clone();
    DnsConfig { servers, searches, options }
}

fn resources(from: &cri::Resources) -> Option<LinuxContainerResources> {
    let hugepages = from.hugepages.iter();
    (*from != cri::Resources::default()).then(|| LinuxContainerResources {
        cpu_period: from.cpu_period,
        cpu_quota: from.cpu_quota,
        cpu_shares: from.cpu_shares,
        memory_limit_in_bytes: from.memory_limit,
        oom_score_adj: from.oom_score_adj,
        hugepage_limits: hugepages
            .map(|(size, limit)| HugepageLimit { page_size: size.clone(), limit: *limit })
            .collect(),
        unified: from.unified.clone(),
        memory_swap_limit_in_bytes: from.memory_swap_limit,
        cpuset_cpus: from.cpuset_cpus.clone(),
        cpuset_mems: from.cpuset_mems.clone(),
    })
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
