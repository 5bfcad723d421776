//! Configurations of sandboxes and containers: the inverse of `convert`'s.

use super::security::{self, apparmor_of_text};
use super::users;
use super::{absent, choice, insert, number_in, owned, push, text_in, unknown, unsupported};
use crate::model::cri::{
    Device, Dns, Mount, PidNamespace, PortMapping, Propagation, Protocol, Resources,
};
use crate::model::runtime::{ContainerConfig, SandboxConfig};
use crate::wire::protobuf::{Malformed, Value, fields};

/// `PodSandboxConfig`
pub(in crate::wire::cri) fn sandbox(
    message: &[u8],
    handler: &str,
) -> Result<SandboxConfig, Malformed> {
    let mut config = SandboxConfig { runtime_handler: handler.into(), ..SandboxConfig::default() };
    // The CRI's zero.
    config.namespaces.pid = PidNamespace::Pod;
    let mut metadata = None;
    for field in fields(message) {
        match field? {
            (1, value) => metadata = Some(value.bytes()?),
            (2, value) => config.hostname = owned(value)?,
            (3, value) => config.log_directory = owned(value)?,
            (4, value) => config.dns = Some(dns(value.bytes()?)?),
            (5, value) => push(&mut config.port_mappings, port_mapping(value.bytes()?)?)?,
            (6, entry) => insert(&mut config.labels, entry)?,
            (7, entry) => insert(&mut config.annotations, entry)?,
            (8, value) => linux_sandbox(value.bytes()?, &mut config)?,
            (9, _) => return Err(unsupported("PodSandboxConfig.windows")),
            (number, _) => return Err(unknown("PodSandboxConfig", number)),
        }
    }
    let metadata = metadata.ok_or_else(|| missing("PodSandboxConfig.metadata"))?;
    config.pod.name = text_in(metadata, 1)?.into();
    config.pod.uid = text_in(metadata, 2)?.into();
    config.pod.namespace = text_in(metadata, 3)?.into();
    config.attempt = attempt(number_in(metadata, 4)?)?;
    Ok(config)
}

/// `LinuxPodSandboxConfig`
fn linux_sandbox(message: &[u8], config: &mut SandboxConfig) -> Result<(), Malformed> {
    for field in fields(message) {
        match field? {
            (1, value) => config.cgroup_parent = owned(value)?,
            (2, value) => security::sandbox(value.bytes()?, config)?,
            (3, entry) => insert(&mut config.sysctls, entry)?,
            (4, value) => config.overhead = resources(value.bytes()?)?,
            (5, value) => config.resources = resources(value.bytes()?)?,
            (number, _) => return Err(unknown("LinuxPodSandboxConfig", number)),
        }
    }
    Ok(())
}

/// `ContainerConfig`
pub(in crate::wire::cri) fn container(message: &[u8]) -> Result<ContainerConfig, Malformed> {
    let mut config = ContainerConfig::default();
    // The CRI's zero.
    config.namespaces.pid = PidNamespace::Pod;
    let (mut metadata, mut apparmor_text) = (None, "");
    for field in fields(message) {
        match field? {
            (1, value) => metadata = Some(value.bytes()?),
            (2, value) => (config.image_ref, config.image) = image(value.bytes()?)?,
            (3, value) => push(&mut config.command, owned(value)?)?,
            (4, value) => push(&mut config.args, owned(value)?)?,
            (5, value) => config.working_dir = owned(value)?,
            // `KeyValue` has the fields of a map's entry.
            (6, value) => push(&mut config.envs, value.entry()?)?,
            (7, value) => push(&mut config.mounts, mount(value.bytes()?)?)?,
            (8, value) => push(&mut config.devices, device(value.bytes()?)?)?,
            (9, entry) => insert(&mut config.labels, entry)?,
            (10, entry) => insert(&mut config.annotations, entry)?,
            (11, value) => config.log_path = owned(value)?,
            (12, value) => config.terminal.stdin = value.flag()?,
            (13, value) => config.terminal.stdin_once = value.flag()?,
            (14, value) => config.terminal.tty = value.flag()?,
            (15, value) => {
                for field in fields(value.bytes()?) {
                    match field? {
                        (1, value) => config.resources = resources(value.bytes()?)?,
                        (2, value) => {
                            apparmor_text = security::container(value.bytes()?, &mut config)?;
                        }
                        (number, _) => return Err(unknown("LinuxContainerConfig", number)),
                    }
                }
            }
            (16, _) => return Err(unsupported("ContainerConfig.windows")),
            (17, _) => return Err(unsupported("ContainerConfig.CDI_devices")),
            (18, value) => absent("ContainerConfig.stop_signal", value)?,
            (number, _) => return Err(unknown("ContainerConfig", number)),
        }
    }
    if config.security.apparmor.is_none() {
        config.security.apparmor = apparmor_of_text(apparmor_text)?;
    }
    if config.image_ref.is_empty() {
        return Err(missing("ContainerConfig.image"));
    }
    let metadata = metadata.ok_or_else(|| missing("ContainerConfig.metadata"))?;
    config.name = text_in(metadata, 1)?.into();
    config.attempt = attempt(number_in(metadata, 2)?)?;
    Ok(config)
}

/// `ImageSpec`: the image, and how the client's user wrote it. Its annotations only inform.
fn image(message: &[u8]) -> Result<(Box<str>, Box<str>), Malformed> {
    let (mut image, mut user_specified) = ("", "");
    for field in fields(message) {
        match field? {
            (1, value) => image = value.text()?,
            (2, _) => {}
            (18, value) => user_specified = value.text()?,
            (19, value) => absent("ImageSpec.runtime_handler", value)?,
            (number, _) => return Err(unknown("ImageSpec", number)),
        }
    }
    Ok((image.into(), user_specified.into()))
}

/// `Mount`
fn mount(message: &[u8]) -> Result<Mount, Malformed> {
    let mut mount = Mount::default();
    let mut users = [None; 2];
    for field in fields(message) {
        match field? {
            (1, value) => mount.container_path = owned(value)?,
            (2, value) => mount.host_path = owned(value)?,
            (3, value) => mount.readonly = value.flag()?,
            (4, value) => absent("Mount.selinux_relabel", value)?,
            (5, value) => {
                let all = [
                    Propagation::Private,
                    Propagation::HostToContainer,
                    Propagation::Bidirectional,
                ];
                mount.propagation = choice("Mount.propagation", value, &all)?;
            }
            (6, value) => users::add(&mut users[0], "Mount.uidMappings", value)?,
            (7, value) => users::add(&mut users[1], "Mount.gidMappings", value)?,
            (8, value) => mount.recursive_read_only = value.flag()?,
            (9, value) => mount.image = Some(image(value.bytes()?)?),
            (10, value) => absent("Mount.image_sub_path", value)?,
            (number, _) => return Err(unknown("Mount", number)),
        }
    }
    mount.users = users::same("Mount", users)?;
    Ok(mount)
}

/// `Device`
fn device(message: &[u8]) -> Result<Device, Malformed> {
    let mut device = Device::default();
    for field in fields(message) {
        match field? {
            (1, value) => device.container_path = owned(value)?,
            (2, value) => device.host_path = owned(value)?,
            (3, value) => device.permissions = value.text()?.into(),
            (number, _) => return Err(unknown("Device", number)),
        }
    }
    Ok(device)
}

/// `DNSConfig`
fn dns(message: &[u8]) -> Result<Dns, Malformed> {
    let mut dns = Dns::default();
    for field in fields(message) {
        match field? {
            (1, value) => push(&mut dns.servers, owned(value)?)?,
            (2, value) => push(&mut dns.searches, owned(value)?)?,
            (3, value) => push(&mut dns.options, owned(value)?)?,
            (number, _) => return Err(unknown("DNSConfig", number)),
        }
    }
    Ok(dns)
}

/// `PortMapping`
fn port_mapping(message: &[u8]) -> Result<PortMapping, Malformed> {
    let mut mapping = PortMapping {
        protocol: Protocol::Tcp,
        container_port: 0,
        host_port: 0,
        host_ip: String::new(),
    };
    for field in fields(message) {
        match field? {
            (1, value) => {
                let all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
                mapping.protocol = choice("PortMapping.protocol", value, &all)?;
            }
            (2, value) => mapping.container_port = port("PortMapping.container_port", value)?,
            (3, value) => mapping.host_port = port("PortMapping.host_port", value)?,
            (4, value) => mapping.host_ip = owned(value)?,
            (number, _) => return Err(unknown("PortMapping", number)),
        }
    }
    Ok(mapping)
}

fn port(name: &str, value: Value<'_>) -> Result<u16, Malformed> {
    let number = value.signed()?;
    u16::try_from(number)
        .map_err(|_| Malformed(format!("{name}: got {number}, expected 0 to 65535")))
}

/// `LinuxContainerResources`
pub(in crate::wire::cri) fn resources(message: &[u8]) -> Result<Resources, Malformed> {
    let mut resources = Resources::default();
    for field in fields(message) {
        match field? {
            (1, value) => resources.cpu_period = value.signed()?,
            (2, value) => resources.cpu_quota = value.signed()?,
            (3, value) => resources.cpu_shares = value.signed()?,
            (4, value) => resources.memory_limit = value.signed()?,
            (5, value) => resources.oom_score_adj = value.signed()?,
            (6, value) => resources.cpuset_cpus = owned(value)?,
            (7, value) => resources.cpuset_mems = owned(value)?,
            (8, value) => {
                let (limit, size) = (number_in(value.bytes()?, 2)?, text_in(value.bytes()?, 1)?);
                push(&mut resources.hugepages, (size.to_owned(), limit))?;
            }
            (9, entry) => insert(&mut resources.unified, entry)?,
            (10, value) => resources.memory_swap_limit = value.signed()?,
            (number, _) => return Err(unknown("LinuxContainerResources", number)),
        }
    }
    Ok(resources)
}

fn attempt(number: u64) -> Result<u32, Malformed> {
    u32::try_from(number)
        .map_err(|_| Malformed(format!("metadata.attempt: got {number}, expected 32 bits")))
}

fn missing(name: &str) -> Malformed {
    Malformed(format!("{name}: got none, expected one"))
}
