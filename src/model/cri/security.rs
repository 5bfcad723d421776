//! Security settings of sandboxes and containers: namespaces, users, profiles, capabilities.

use super::{ContainerId, Network};

/// `NamespaceOption`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// `network`
    pub network: Network,
    /// `pid`
    pub pid: PidNamespace,
    /// `ipc`
    pub ipc: IpcNamespace,
    /// `userns_options`: the users and groups of the pod's own namespace; `None`: the host's.
    pub users: Option<UserRange>,
}

/// The only entry of `uids`, and of `gids` as well: `container_id` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRange {
    /// `host_id`: who the pod's user 0 is on the host.
    pub first: u32,
    /// `length`: how many users the pod has.
    pub count: u32,
}

/// The process namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PidNamespace {
    /// Its own. Not the CRI's zero, which is POD.
    #[default]
    Container,
    /// The pod's, which all its containers share.
    Pod,
    /// The host's.
    Node,
    /// Another container's.
    Target(ContainerId),
}

/// The IPC namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpcNamespace {
    /// The pod's.
    #[default]
    Pod,
    /// The host's.
    Node,
}

/// `LinuxSandboxSecurityContext` without the namespaces. Its own seccomp profile is always the
/// runtime's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSecurity {
    /// One of its containers is privileged.
    pub privileged: bool,
    /// `run_as_user`, `run_as_group`, groups.
    pub user: User,
    /// `selinux_options`
    pub selinux: Option<Selinux>,
}

/// `LinuxContainerSecurityContext` without the namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSecurity {
    /// All privileges of the host's root.
    pub privileged: bool,
    /// `run_as_user`, `run_as_group`, groups.
    pub user: User,
    /// `capabilities.add_capabilities`
    pub add_capabilities: Vec<String>,
    /// `capabilities.drop_capabilities`
    pub drop_capabilities: Vec<String>,
    /// `readonly_rootfs`
    pub readonly_rootfs: bool,
    /// `no_new_privs`
    pub no_new_privs: bool,
    /// `masked_paths`; empty: `/proc` is as it is.
    pub masked_paths: Vec<String>,
    /// `readonly_paths`
    pub readonly_paths: Vec<String>,
    /// `seccomp`
    pub seccomp: Profile,
    /// `apparmor`; `None`: not set.
    pub apparmor: Option<Profile>,
    /// `selinux_options`
    pub selinux: Option<Selinux>,
}

/// The user and groups of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// `run_as_user`
    pub uid: Option<i64>,
    /// `run_as_username`, if there is no id.
    pub name: Box<str>,
    /// `run_as_group`
    pub gid: Option<i64>,
    /// `supplemental_groups`
    pub groups: Vec<i64>,
    /// `supplemental_groups_policy`: the image's groups are ignored.
    pub strict_groups: bool,
}

/// `SecurityProfile`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// None.
    #[default]
    Unconfined,
    /// The runtime's own.
    RuntimeDefault,
    /// `localhost_ref`: the absolute path of a seccomp profile, or the name of an AppArmor profile.
    Localhost(String),
}

/// `SELinuxOption`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selinux {
    pub user: String,
    pub role: String,
    pub kind: String,
    pub level: String,
}
