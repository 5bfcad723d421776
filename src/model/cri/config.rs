//! Configurations of sandboxes and containers, for `RunPodSandbox` and `CreateContainer`, as far as
//! they are set.

use std::collections::BTreeMap;
use std::fmt;

use super::{ContainerSecurity, Namespaces, PodRef, SandboxSecurity, UserRange};

/// `PodSandboxConfig`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    /// `metadata` name, namespace, uid.
    pub pod: PodRef,
    /// `metadata.attempt`
    pub attempt: u32,
    /// Empty on the host's network.
    pub hostname: String,
    /// Absolute.
    pub log_directory: String,
    /// Every port of every main container.
    pub port_mappings: Vec<PortMapping>,
    /// The pod's own and the kubelet's three.
    pub labels: BTreeMap<String, String>,
    /// The pod's own, with `kubernetes.io/config.*`.
    pub annotations: BTreeMap<String, String>,
    /// `dns_config`; `None`: the runtime's own, which is the host's.
    pub dns: Option<Dns>,
    /// `runtime_handler` of the request; empty: the runtime's default.
    pub runtime_handler: Box<str>,
    /// `linux.cgroup_parent`; empty: the runtime's own.
    pub cgroup_parent: String,
    /// `linux.sysctls`
    pub sysctls: BTreeMap<String, String>,
    /// `linux.security_context.namespace_options`
    pub namespaces: Namespaces,
    /// `linux.security_context`
    pub security: SandboxSecurity,
    /// `linux.resources`: the sum over the containers.
    pub resources: Resources,
    /// `linux.overhead`: the resources of the sandbox itself.
    pub overhead: Resources,
}

/// `DNSConfig`: the contents of `/etc/resolv.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dns {
    /// `nameserver` lines.
    pub servers: Vec<String>,
    /// The `search` line.
    pub searches: Vec<String>,
    /// The `options` line.
    pub options: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortMapping {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Protocol,
    /// 1–65535
    pub container_port: u16,
    /// 0: not on the host.
    pub host_port: u16,
    /// Empty: all addresses.
    pub host_ip: String,
}

/// `Protocol` of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

/// `ContainerConfig`. Its `Debug` shows no variable's value: they may be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ContainerConfig {
    /// `metadata.name`
    pub name: Box<str>,
    /// `metadata.attempt`: the restart count.
    pub attempt: u32,
    /// `image.image`: the resolved image.
    pub image_ref: Box<str>,
    /// `image.user_specified_image`: as the pod spec writes it.
    pub image: Box<str>,
    /// Replaces the image's entry point, unless empty.
    pub command: Vec<String>,
    /// Replaces the image's arguments, unless empty.
    pub args: Vec<String>,
    /// Empty: the image's.
    pub working_dir: String,
    /// In the order of the pod spec, each name once.
    pub envs: Vec<(String, String)>,
    /// In the order in which they are mounted.
    pub mounts: Vec<Mount>,
    /// The kubelet's four.
    pub labels: BTreeMap<String, String>,
    /// The kubelet's, by which a later agent recognizes the container.
    pub annotations: BTreeMap<String, String>,
    /// Relative to the sandbox's `log_directory`.
    pub log_path: String,
    /// `stdin`, `stdin_once`, `tty`
    pub terminal: Terminal,
    /// `linux.resources`
    pub resources: Resources,
    /// `linux.security_context.namespace_options`
    pub namespaces: Namespaces,
    /// `linux.security_context`
    pub security: ContainerSecurity,
    pub devices: Vec<Device>,
}

/// `Device`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Absolute, inside the container.
    pub container_path: String,
    /// Absolute, on the host; a folder stands for all devices below it.
    pub host_path: String,
    /// What the container may do with it: letters of `rwm` (read, write, make its node).
    pub permissions: Box<str>,
}

impl fmt::Debug for ContainerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, attempt, image_ref, image, command, args, working_dir, envs, .. } = self;
        let envs: Vec<&str> = envs.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("ContainerConfig")
            .field("name", name)
            .field("attempt", attempt)
            .field("image_ref", image_ref)
            .field("image", image)
            .field("command", command)
            .field("args", args)
            .field("working_dir", working_dir)
            .field("envs", &envs)
            .field("mounts", &self.mounts)
            .field("labels", &self.labels)
            .field("annotations", &self.annotations)
            .field("log_path", &self.log_path)
            .field("terminal", &self.terminal)
            .field("resources", &self.resources)
            .field("namespaces", &self.namespaces)
            .field("security", &self.security)
            .field("devices", &self.devices)
            .finish()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Absolute, inside the container.
    pub container_path: String,
    /// Absolute, on the host. Empty with an image.
    pub host_path: String,
    /// Mounted read-only.
    pub readonly: bool,
    /// Mounts below it are read-only as well; needs `readonly` and support of the runtime.
    pub recursive_read_only: bool,
    /// The propagation of mounts that are made below it later.
    pub propagation: Propagation,
    /// `uidMappings` and `gidMappings`: whose user 0 owns what the host's user 0 owns in it, and so
    /// on; `None`: files have the owners that they have on the host.
    pub users: Option<UserRange>,
    /// The image whose root is mounted, by `image_ref` and the name that the pod spec uses.
    pub image: Option<(Box<str>, Box<str>)>,
}

/// `MountPropagation`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// Neither side sees the other's.
    #[default]
    Private,
    /// The container sees the host's.
    HostToContainer,
    /// Each sees the other's; privileged containers only.
    Bidirectional,
}

/// The three terminal flags of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminal {
    /// Keep standard input open.
    pub stdin: bool,
    /// Close it after the first attach.
    pub stdin_once: bool,
    /// Give it a terminal.
    pub tty: bool,
}

/// `LinuxContainerResources`, as far as it is set. Zero means unset, as in the CRI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Microseconds.
    pub cpu_period: i64,
    /// Microseconds per period.
    pub cpu_quota: i64,
    /// Relative weight, 2–262144.
    pub cpu_shares: i64,
    /// Bytes.
    pub memory_limit: i64,
    /// Bytes, memory included; cgroup v1 only.
    pub memory_swap_limit: i64,
    /// −1000–1000
    pub oom_score_adj: i64,
    /// `hugepage_limits`: bytes by the kernel's name of the size (`2MB`).
    pub hugepages: Vec<(String, u64)>,
    /// `unified`: files of cgroup v2.
    pub unified: BTreeMap<String, String>,
    /// `cpuset_cpus`: a list as cpuset(7) has it, `0-2,7`.
    pub cpuset_cpus: String,
    /// `cpuset_mems`, likewise.
    pub cpuset_mems: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variables_are_shown_and_values_are_not() {
        let envs = vec![("TOKEN".to_owned(), "hidden".to_owned())];
        let config = ContainerConfig { name: "web".into(), envs, ..ContainerConfig::default() };
        let shown = format!("{config:?}");
        assert!(
            shown.contains(r#"name: "web""#) && shown.contains(r#"envs: ["TOKEN"]"#),
            "{shown}"
        );
        assert!(!shown.contains("hidden"), "{shown}");
    }
}
