//! Pod spec → CRI configuration: names, labels and annotations as every kubelet writes them (spec
//! sections 2.7, 3.1 and 3.4), so that any agent recognises the pod.

use std::collections::BTreeMap;
use std::fmt;

use super::dns;
use super::env::{EnvError, Environment, Sources};
use super::files;
use super::hash::container_hash;
use super::lifecycle::grace_s;
use super::names::{hostname, pod_ref, subdomain};
use super::resources::{container_resources, pod_resources};
use super::security::{SecurityError, container_security, namespaces, sandbox_security};
use super::volumes::mounts;
pub use super::volumes::{MountContext, MountError};
use crate::agent::Config;
use crate::model::cri::{
    ContainerConfig, ContainerId, Dns, ImageUser, PidNamespace, PodRef, PortMapping, PreStop,
    Protocol, SandboxConfig, Terminal, UserRange,
};
use crate::model::names::dotted_sysctl;
use crate::model::pod::{Container, FIRST_USER, Pod, PodSpec, PortProtocol, SEEN};

const FQDN_BYTES_MAX: usize = 64;

/// Why a sandbox or a container cannot be created as it is: the message of
/// `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    Env(EnvError),
    Mount(MountError),
    Security(SecurityError),
    /// The pod's full name is longer than the kernel's limit.
    LongName(String),
    /// The RuntimeClass of this name.
    NoRuntimeClass(String),
    /// The runtime's handler of this name cannot give the pod users of its own.
    NoUsers(Box<str>),
    /// The container of this name, whose processes an ephemeral container sees.
    NoTarget(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(why) => why.fmt(f),
            Self::Mount(why) => why.fmt(f),
            Self::Security(why) => why.fmt(f),
            Self::LongName(name) => write!(
                f,
                "failed to construct FQDN from pod hostname and cluster domain, FQDN {name} is \
                 too long ({FQDN_BYTES_MAX} characters is the max, {} characters requested)",
                name.len()
            ),
            Self::NoRuntimeClass(name) => write!(
                f,
                "failed to get RuntimeClass {name}: runtimeclass.node.k8s.io \"{name}\" not found"
            ),
            Self::NoUsers(handler) => write!(
                f,
                "can't set `hostUsers: false`: the runtime does not support user namespaces with \
                 the handler {handler:?}"
            ),
            Self::NoTarget(name) => write!(f, "unable to find target container {name}"),
        }
    }
}

/// `PodSandboxConfig`; the same for the sandbox and for every container in it. `resolver` is the
/// content of the host's `resolv.conf`.
pub fn sandbox_config(
    pod: &Pod,
    attempt: u32,
    users: Option<UserRange>,
    resolver: &Dns,
    config: &Config,
) -> Result<SandboxConfig, ConfigError> {
    let pod_ref = pod_ref(pod);
    let mut labels = pod.metadata.labels.clone();
    labels.extend(pod_labels(&pod_ref));
    let mut annotations = pod.metadata.annotations.clone();
    // The next start of the agent reads the pod's start time from it.
    annotations.extend(pod.status.start_time.map(|at| (SEEN.to_owned(), at.to_string())));
    // And which users are taken: a manifest does not say that.
    annotations.remove(FIRST_USER);
    annotations.extend(users.map(|users| (FIRST_USER.to_owned(), users.first.to_string())));
    Ok(SandboxConfig {
        attempt,
        hostname: sandbox_hostname(pod, config)?,
        dns: dns::form(pod, resolver, config).dns,
        log_directory: log_directory(&pod_ref, &config.pod_logs),
        port_mappings: port_mappings(&pod.spec),
        labels,
        annotations,
        namespaces: namespaces(&pod.spec, users),
        security: sandbox_security(&pod.spec),
        sysctls: sysctls(&pod.spec),
        resources: pod_resources(&pod.spec, &config.settings.cgroups),
        pod: pod_ref,
        ..SandboxConfig::default()
    })
}

/// A container that is to be created.
#[derive(Clone, Debug)]
pub struct NewContainer<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    /// The restart count.
    pub attempt: u32,
    /// What the image's name resolves to.
    pub image_ref: &'a str,
    /// The user of the image.
    pub image_user: &'a ImageUser,
    /// Sources of its variables.
    pub sources: Sources<'a>,
    /// What its mounts depend on.
    pub mount_context: MountContext<'a>,
    /// The pod's own users.
    pub users: Option<UserRange>,
    /// The container whose processes it sees besides its own.
    pub target: Option<ContainerId>,
}

/// `ContainerConfig`, or why there is none.
pub fn container_config(
    new_container: &NewContainer<'_>,
    config: &Config,
) -> Result<ContainerConfig, ConfigError> {
    let NewContainer { pod, container, attempt, image_ref, image_user, sources, .. } =
        *new_container;
    let mut envs = Environment::of(container, sources).map_err(ConfigError::Env)?;
    let mut namespaces = namespaces(&pod.spec, new_container.users);
    if let Some(target) = &new_container.target
        && namespaces.pid == PidNamespace::Container
    {
        namespaces.pid = PidNamespace::Target(target.clone());
    }
    let mut labels: BTreeMap<_, _> = pod_labels(&pod_ref(pod)).into();
    labels.insert("io.kubernetes.container.name".to_owned(), container.name.to_string());
    Ok(ContainerConfig {
        name: container.name.clone(),
        attempt,
        image_ref: image_ref.into(),
        image: container.image.clone(),
        command: envs.expand_all(&container.command, "command").map_err(ConfigError::Env)?,
        args: envs.expand_all(&container.args, "args").map_err(ConfigError::Env)?,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        mounts: {
            let mut mounts = mounts(pod, container, &mut envs, new_container.mount_context)
                .map_err(ConfigError::Mount)?;
            let pod_ips = sources.downward.pod_ips;
            mounts.extend(files::mounts(pod, container, attempt, pod_ips, config));
            for mount in &mut mounts {
                mount.users = new_container.users;
            }
            mounts
        },
        labels,
        annotations: annotations(pod, container, attempt),
        log_path: format!("{}/{attempt}.log", container.name),
        terminal: Terminal {
            stdin: container.stdin,
            stdin_once: container.stdin_once,
            tty: container.tty,
        },
        resources: container_resources(&pod.spec, container, config),
        namespaces,
        security: container_security(pod, container, image_user, config)
            .map_err(ConfigError::Security)?,
        envs: envs.into_list(),
        devices: Vec::new(),
    })
}

/// The annotations that a later agent reads from the container.
fn annotations(pod: &Pod, container: &Container, attempt: u32) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::new();
    let mut set = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    let hash = container_hash(&container.name, &container.image);
    set("io.kubernetes.container.hash", hash.into());
    set("io.kubernetes.container.restartCount", attempt.to_string());
    let path = files::message_path(container).to_owned();
    set("io.kubernetes.container.terminationMessagePath", path);
    let policy = container.termination_message_policy.unwrap_or_default();
    set("io.kubernetes.container.terminationMessagePolicy", format!("{policy:?}"));
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        set("io.kubernetes.pod.deletionGracePeriod", seconds.to_string());
    }
    set("io.kubernetes.pod.terminationGracePeriod", grace_s(&pod.spec).to_string());
    let lifecycle = container.lifecycle.as_ref();
    let hook = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    let noted = PreStop::write(hook, &container.ports);
    let noted = [
        ("io.kubernetes.container.preStopHandler", noted.handler),
        ("io.kubernetes.container.ports", noted.ports),
    ];
    for (key, text) in noted.into_iter().filter(|(_, text)| !text.is_empty()) {
        set(key, text.into());
    }
    annotations
}

fn log_directory(pod: &PodRef, pod_logs: &str) -> String {
    format!("{pod_logs}/{}_{}_{}", pod.namespace, pod.name, pod.uid)
}

fn pod_labels(pod: &PodRef) -> [(String, String); 3] {
    [
        ("io.kubernetes.pod.name".to_owned(), pod.name.to_string()),
        ("io.kubernetes.pod.namespace".to_owned(), pod.namespace.to_string()),
        ("io.kubernetes.pod.uid".to_owned(), pod.uid.to_string()),
    ]
}

/// With dots, and otherwise named as the kernel's files.
fn sysctls(spec: &PodSpec) -> BTreeMap<String, String> {
    let sysctls = spec.security_context.sysctls.iter();
    sysctls.map(|sysctl| (dotted_sysctl(&sysctl.name), sysctl.value.clone())).collect()
}

/// Empty on the host's network.
fn sandbox_hostname(pod: &Pod, config: &Config) -> Result<String, ConfigError> {
    if pod.spec.host_network {
        return Ok(String::new());
    }
    match subdomain(pod, config) {
        Some(domain) if pod.spec.set_hostname_as_fqdn => {
            let name = format!("{}.{domain}", hostname(pod));
            if name.len() > FQDN_BYTES_MAX {
                return Err(ConfigError::LongName(name));
            }
            Ok(name)
        }
        _ => Ok(hostname(pod)),
    }
}

/// Every port of every main container, including those without a host port.
fn port_mappings(spec: &PodSpec) -> Vec<PortMapping> {
    let mut mappings = Vec::new();
    for port in spec.containers.iter().flat_map(|container| &container.ports) {
        let mapping = PortMapping {
            protocol: match port.protocol {
                PortProtocol::Tcp => Protocol::Tcp,
                PortProtocol::Udp => Protocol::Udp,
                PortProtocol::Sctp => Protocol::Sctp,
            },
            container_port: port.container_port,
            host_port: port.host_port,
            host_ip: port.host_ip.clone(),
        };
        if !mappings.contains(&mapping) {
            mappings.push(mapping);
        }
    }
    mappings
}
