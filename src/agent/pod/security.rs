//! Security contexts: a container's context overrides its pod's, and both override the image's
//! (spec section 3.8).

use std::fmt;

use super::{Refused, Verdict};
use crate::agent::Config;
use crate::model::cri::{
    ContainerSecurity, ImageUser, IpcNamespace, Namespaces, Network, PidNamespace, Profile,
    RuntimeStatus, SandboxSecurity, Selinux, User, UserRange,
};
use crate::model::pod::{
    self as api, Container, Pod, PodSpec, ProcMount, ProfileType, SeLinuxOptions,
    SupplementalGroupsPolicy,
};

/// `masked_paths` of procMount Default, besides those that only some machines have.
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

/// `readonly_paths` of procMount Default.
const READONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The annotation for a container's profile, from before there was a field for it.
const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The pod's network namespace.
pub fn network(spec: &PodSpec) -> Network {
    if spec.host_network { Network::Node } else { Network::Pod }
}

/// Namespaces of the sandbox, and of every container that names no target.
pub fn namespaces(spec: &PodSpec, users: Option<UserRange>) -> Namespaces {
    Namespaces {
        network: network(spec),
        pid: if spec.host_pid {
            PidNamespace::Node
        } else if spec.share_process_namespace {
            PidNamespace::Pod
        } else {
            PidNamespace::Container
        },
        ipc: if spec.host_ipc { IpcNamespace::Node } else { IpcNamespace::Pod },
        users,
    }
}

/// The security context of the sandbox itself.
pub fn sandbox_security(spec: &PodSpec) -> SandboxSecurity {
    let context = &spec.security_context;
    SandboxSecurity {
        privileged: spec.all_containers().any(is_privileged),
        user: User {
            uid: context.run_as_user,
            // Runtimes refuse a group without a user.
            gid: context.run_as_group.filter(|_| context.run_as_user.is_some()),
            ..groups(spec)
        },
        selinux: context.se_linux_options.as_ref().map(selinux),
    }
}

/// A requirement of the pod that the runtime does not support.
pub fn unsupported(spec: &PodSpec, runtime: Option<&RuntimeStatus>) -> Option<Verdict> {
    let strict = groups(spec).strict_groups;
    let lacks = strict && !runtime.is_some_and(|runtime| runtime.strict_groups);
    lacks.then(|| {
        Verdict::rejected(&Refused {
            reason: "UnsupportedRuntime",
            message: "spec.securityContext.supplementalGroupsPolicy: Invalid value: \"Strict\": \
                      the runtime does not support it, expected Merge"
                .to_owned(),
        })
    })
}

/// Why a container must not run, in the kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecurityError {
    /// `runAsNonRoot`, and the spec names root. `who`: the pod and the container.
    RootUser { who: String },
    /// `runAsNonRoot`, and the image runs as root.
    RootImage { who: String },
    /// `runAsNonRoot`, and the image names a user whose number is not known.
    NamedUser { name: Box<str>, who: String },
    /// A seccomp profile of the node without its name.
    NoProfile,
}

impl fmt::Display for SecurityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RootUser { who } => {
                write!(f, "container's runAsUser breaks non-root policy {who}")
            }
            Self::RootImage { who } => {
                write!(f, "container has runAsNonRoot and image will run as root {who}")
            }
            Self::NamedUser { name, who } => write!(
                f,
                "container has runAsNonRoot and image has non-numeric user ({name}), cannot \
                 verify user is non-root {who}"
            ),
            Self::NoProfile => {
                f.write_str("localhostProfile must be set if seccompProfile type is Localhost.")
            }
        }
    }
}

/// The security context of a container, or why it must not run.
pub fn container_security(
    pod: &Pod,
    container: &Container,
    image_user: &ImageUser,
    config: &Config,
) -> Result<ContainerSecurity, SecurityError> {
    let (whole, own) = (&pod.spec.security_context, &container.security_context);
    non_root(pod, container, image_user)?;
    let unmasked = own.proc_mount == Some(ProcMount::Unmasked);
    let masked = MASKED_PATHS.iter().map(|&path| path.to_owned());
    let seccomp = own.seccomp_profile.as_ref().or(whole.seccomp_profile.as_ref());
    let seccomp = match seccomp {
        Some(profile) => seccomp_profile(profile, &config.root)?,
        None if config.settings.seccomp_default => Profile::RuntimeDefault,
        None => Profile::Unconfined,
    };
    let selinux_options = own.se_linux_options.as_ref().or(whole.se_linux_options.as_ref());
    Ok(ContainerSecurity {
        privileged: is_privileged(container),
        user: user(pod, container, image_user),
        add_capabilities: own.capabilities.add.clone(),
        drop_capabilities: own.capabilities.drop.clone(),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: if unmasked {
            Vec::new()
        } else {
            masked.chain(config.machine.thermal_paths.iter().cloned()).collect()
        },
        readonly_paths: if unmasked {
            Vec::new()
        } else {
            READONLY_PATHS.map(str::to_owned).to_vec()
        },
        seccomp,
        apparmor: apparmor(pod, container),
        selinux: selinux_options.map(selinux),
    })
}

/// Whether some process of the pod must run under an AppArmor profile.
pub fn needs_apparmor(pod: &Pod) -> bool {
    pod.spec
        .all_containers()
        .filter_map(|container| apparmor(pod, container))
        .any(|profile| profile != Profile::Unconfined)
}

fn is_privileged(container: &Container) -> bool {
    container.security_context.privileged == Some(true)
}

/// The pod's groups, in the kubelet's order.
fn groups(spec: &PodSpec) -> User {
    let context = &spec.security_context;
    let policy = context.supplemental_groups_policy;
    User {
        groups: context.fs_group.into_iter().chain(context.supplemental_groups.clone()).collect(),
        strict_groups: policy == Some(SupplementalGroupsPolicy::Strict),
        ..User::default()
    }
}

fn user(pod: &Pod, container: &Container, image_user: &ImageUser) -> User {
    let (whole, own) = (&pod.spec.security_context, &container.security_context);
    let mut user = User {
        uid: own.run_as_user.or(whole.run_as_user),
        gid: own.run_as_group.or(whole.run_as_group),
        ..groups(&pod.spec)
    };
    if user.uid.is_none() {
        match image_user {
            ImageUser::Uid(uid) => user.uid = Some(*uid),
            ImageUser::Name(name) => user.name = name.clone(),
            // The runtime's default is root. It is passed on only where needed, because runtimes
            // look up a given user in the image first.
            ImageUser::Unset => user.uid = user.gid.map(|_| 0),
        }
    }
    user
}

/// `runAsNonRoot`, in the kubelet's words.
fn non_root(pod: &Pod, container: &Container, image_user: &ImageUser) -> Result<(), SecurityError> {
    let (whole, own) = (&pod.spec.security_context, &container.security_context);
    if own.run_as_non_root.or(whole.run_as_non_root) != Some(true) {
        return Ok(());
    }
    let metadata = &pod.metadata;
    let who = format!(
        "(pod: \"{}_{}({})\", container: {})",
        metadata.name, metadata.namespace, metadata.uid, container.name
    );
    match (own.run_as_user.or(whole.run_as_user), image_user) {
        (Some(0), _) => Err(SecurityError::RootUser { who }),
        (Some(_), _) => Ok(()),
        (None, ImageUser::Uid(0) | ImageUser::Unset) => Err(SecurityError::RootImage { who }),
        (None, ImageUser::Uid(_)) => Ok(()),
        (None, ImageUser::Name(name)) => Err(SecurityError::NamedUser { name: name.clone(), who }),
    }
}

fn seccomp_profile(profile: &api::Profile, root: &str) -> Result<Profile, SecurityError> {
    Ok(match (profile.r#type, profile.localhost_profile.as_deref().unwrap_or_default()) {
        (ProfileType::Unconfined, _) => Profile::Unconfined,
        (ProfileType::RuntimeDefault, _) => Profile::RuntimeDefault,
        (ProfileType::Localhost, "") => return Err(SecurityError::NoProfile),
        (ProfileType::Localhost, name) => Profile::Localhost(format!("{root}/seccomp/{name}")),
    })
}

fn apparmor(pod: &Pod, container: &Container) -> Option<Profile> {
    let (whole, own) = (&pod.spec.security_context, &container.security_context);
    let field = own.app_armor_profile.as_ref().or(whole.app_armor_profile.as_ref());
    if let Some(profile) = field {
        let name = profile.localhost_profile.clone().unwrap_or_default();
        return Some(match profile.r#type {
            ProfileType::Unconfined => Profile::Unconfined,
            ProfileType::RuntimeDefault => Profile::RuntimeDefault,
            ProfileType::Localhost => Profile::Localhost(name),
        });
    }
    let key = format!("{APPARMOR_ANNOTATION}{}", container.name);
    match pod.metadata.annotations.get(&key)?.as_str() {
        "" => None,
        "unconfined" => Some(Profile::Unconfined),
        "runtime/default" => Some(Profile::RuntimeDefault),
        // Admission has rejected other texts.
        text => text.strip_prefix("localhost/").map(|name| Profile::Localhost(name.to_owned())),
    }
}

fn selinux(options: &SeLinuxOptions) -> Selinux {
    let SeLinuxOptions { user, role, r#type, level, .. } = options.clone();
    Selinux { user, role, kind: r#type, level }
}
