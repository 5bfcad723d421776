//! Security contexts of sandboxes and containers: the inverse of `convert`'s.

use super::{absent, choice, number_in, owned, push, text_in, unknown, unsupported, users};
use crate::model::cri::{IpcNamespace, Namespaces, Network, PidNamespace, Profile, Selinux, User};
use crate::model::runtime::{ContainerConfig, ContainerId, SandboxConfig};
use crate::wire::protobuf::{Malformed, Value, fields};

/// `LinuxSandboxSecurityContext`
pub(super) fn sandbox(message: &[u8], config: &mut SandboxConfig) -> Result<(), Malformed> {
    let security = &mut config.security;
    for field in fields(message) {
        match field? {
            (1, value) => config.namespaces = namespaces(value.bytes()?)?,
            (2, value) => security.selinux = Some(selinux(value.bytes()?)?),
            (3, value) => security.user.uid = Some(id(value)?),
            (5, value) => groups(value, &mut security.user)?,
            (6, value) => security.privileged = value.flag()?,
            (8, value) => security.user.gid = Some(id(value)?),
            (11, value) => security.user.strict_groups = is_strict(value)?,
            // Its root file system and profiles are those of a process that holds a sandbox: this
            // runtime has none.
            (4 | 7 | 9 | 10, _) => {}
            (number, _) => return Err(unknown("LinuxSandboxSecurityContext", number)),
        }
    }
    Ok(())
}

/// `LinuxContainerSecurityContext`. Returns the AppArmor profile's older form, a text, which counts
/// where the newer one is missing.
pub(super) fn container<'a>(
    message: &'a [u8],
    config: &mut ContainerConfig,
) -> Result<&'a str, Malformed> {
    let security = &mut config.security;
    let mut apparmor_text = "";
    for field in fields(message) {
        match field? {
            (1, value) => {
                for field in fields(value.bytes()?) {
                    match field? {
                        (1, value) => push(&mut security.add_capabilities, owned(value)?)?,
                        (2, value) => push(&mut security.drop_capabilities, owned(value)?)?,
                        (3, _) => return Err(unsupported("Capability.add_ambient_capabilities")),
                        (number, _) => return Err(unknown("Capability", number)),
                    }
                }
            }
            (2, value) => security.privileged = value.flag()?,
            (3, value) => config.namespaces = namespaces(value.bytes()?)?,
            (4, value) => security.selinux = Some(selinux(value.bytes()?)?),
            (5, value) => security.user.uid = Some(id(value)?),
            (6, value) => security.user.name = value.text()?.into(),
            (7, value) => security.readonly_rootfs = value.flag()?,
            (8, value) => groups(value, &mut security.user)?,
            (9, value) => apparmor_text = value.text()?,
            (10, value) => {
                absent("LinuxContainerSecurityContext.seccomp_profile_path", value)?;
            }
            (11, value) => security.no_new_privs = value.flag()?,
            (12, value) => security.user.gid = Some(id(value)?),
            (13, value) => push(&mut security.masked_paths, owned(value)?)?,
            (14, value) => push(&mut security.readonly_paths, owned(value)?)?,
            (15, value) => security.seccomp = profile(value.bytes()?)?,
            (16, value) => security.apparmor = Some(profile(value.bytes()?)?),
            (17, value) => security.user.strict_groups = is_strict(value)?,
            (number, _) => return Err(unknown("LinuxContainerSecurityContext", number)),
        }
    }
    Ok(apparmor_text)
}

/// `NamespaceOption`. Its zero is POD in every field.
fn namespaces(message: &[u8]) -> Result<Namespaces, Malformed> {
    const MODES: [Mode; 4] = [Mode::Pod, Mode::Container, Mode::Node, Mode::Target];
    let (mut network, mut pid, mut ipc) = (Mode::Pod, Mode::Pod, Mode::Pod);
    let (mut target, mut users) = ("", None);
    for field in fields(message) {
        match field? {
            (1, value) => network = choice("NamespaceOption.network", value, &MODES)?,
            (2, value) => pid = choice("NamespaceOption.pid", value, &MODES)?,
            (3, value) => ipc = choice("NamespaceOption.ipc", value, &MODES)?,
            (4, value) => target = value.text()?,
            (5, value) => users = users::namespace(value.bytes()?)?,
            (number, _) => return Err(unknown("NamespaceOption", number)),
        }
    }
    let pod_or_node = |name: &str| {
        Malformed(format!("NamespaceOption.{name}: got another mode, expected POD or NODE"))
    };
    Ok(Namespaces {
        network: match network {
            Mode::Pod => Network::Pod,
            Mode::Node => Network::Node,
            Mode::Container | Mode::Target => return Err(pod_or_node("network")),
        },
        ipc: match ipc {
            Mode::Pod => IpcNamespace::Pod,
            Mode::Node => IpcNamespace::Node,
            Mode::Container | Mode::Target => return Err(pod_or_node("ipc")),
        },
        pid: match pid {
            Mode::Pod => PidNamespace::Pod,
            Mode::Container => PidNamespace::Container,
            Mode::Node => PidNamespace::Node,
            Mode::Target if target.is_empty() => {
                let why = "NamespaceOption.target_id: got none, expected a container's id";
                return Err(Malformed(why.to_owned()));
            }
            Mode::Target => PidNamespace::Target(ContainerId(target.into())),
        },
        users,
    })
}

/// `NamespaceMode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pod,
    Container,
    Node,
    Target,
}

/// `SecurityProfile`
fn profile(message: &[u8]) -> Result<Profile, Malformed> {
    let name = text_in(message, 2)?;
    match number_in(message, 1)? {
        0 => Ok(Profile::RuntimeDefault),
        1 => Ok(Profile::Unconfined),
        2 if name.is_empty() => Err(Malformed(
            "SecurityProfile.localhost_ref: got none, expected the profile's name".to_owned(),
        )),
        2 => Ok(Profile::Localhost(name.to_owned())),
        other => Err(Malformed(format!(
            "SecurityProfile.profile_type: got {}, expected 0 to 2",
            other as i64
        ))),
    }
}

/// The older form of an AppArmor profile.
pub(super) fn apparmor_of_text(text: &str) -> Result<Option<Profile>, Malformed> {
    Ok(Some(match text.split_once('/') {
        None if text.is_empty() => return Ok(None),
        None if text == "unconfined" => Profile::Unconfined,
        Some(("runtime", "default")) => Profile::RuntimeDefault,
        Some(("localhost", name)) if !name.is_empty() => Profile::Localhost(name.to_owned()),
        Some(_) | None => {
            let expected = "runtime/default, unconfined or localhost/NAME";
            return Err(Malformed(format!("apparmor_profile: got {text:?}, expected {expected}")));
        }
    }))
}

/// `SELinuxOption`
fn selinux(message: &[u8]) -> Result<Selinux, Malformed> {
    Ok(Selinux {
        user: text_in(message, 1)?.to_owned(),
        role: text_in(message, 2)?.to_owned(),
        kind: text_in(message, 3)?.to_owned(),
        level: text_in(message, 4)?.to_owned(),
    })
}

/// `Int64Value`
fn id(value: Value<'_>) -> Result<i64, Malformed> {
    number_in(value.bytes()?, 1).map(|number| number as i64)
}

fn groups(value: Value<'_>, user: &mut User) -> Result<(), Malformed> {
    value.numbers(|group| push(&mut user.groups, group as i64))
}

/// `SupplementalGroupsPolicy`
fn is_strict(value: Value<'_>) -> Result<bool, Malformed> {
    choice("supplemental_groups_policy", value, &[false, true])
}
