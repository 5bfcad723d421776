//! Security contexts of sandboxes and containers (sections 3.1 and 3.8).

use super::super::Int64Value;
use super::super::security::{
    Capability, IdMapping, LinuxContainerSecurityContext, LinuxSandboxSecurityContext,
    NamespaceMode, NamespaceOption, ProfileType, SecurityProfile, SelinuxOption,
    SupplementalGroupsPolicy, UserNamespace,
};
use crate::model::cri::{
    self, IpcNamespace, Namespaces, Network, PidNamespace, Profile, UserRange,
};

pub(super) fn sandbox(from: &cri::SandboxConfig) -> LinuxSandboxSecurityContext {
    let security = &from.security;
    LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(&from.namespaces)),
        selinux_options: security.selinux.as_ref().map(selinux),
        run_as_user: security.user.uid.map(number),
        supplemental_groups: security.user.groups.clone(),
        privileged: security.privileged,
        run_as_group: security.user.gid.map(number),
        // Always, whatever the pod specifies: the sandbox runs nothing of the pod's.
        seccomp: Some(profile(&Profile::RuntimeDefault)),
        supplemental_groups_policy: groups(&security.user),
        ..LinuxSandboxSecurityContext::default()
    }
}

pub(super) fn container(from: &cri::ContainerConfig) -> LinuxContainerSecurityContext {
    let security = &from.security;
    let capabilities = Capability {
        add_capabilities: security.add_capabilities.clone(),
        drop_capabilities: security.drop_capabilities.clone(),
        ..Capability::default()
    };
    LinuxContainerSecurityContext {
        capabilities: (capabilities != Capability::default()).then_some(capabilities),
        privileged: security.privileged,
        namespace_options: Some(namespaces(&from.namespaces)),
        selinux_options: security.selinux.as_ref().map(selinux),
        run_as_user: security.user.uid.map(number),
        run_as_username: security.user.name.to_string(),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.user.groups.clone(),
        apparmor_profile: security.apparmor.as_ref().map(apparmor_text).unwrap_or_default(),
        no_new_privs: security.no_new_privs,
        run_as_group: security.user.gid.map(number),
        masked_paths: security.masked_paths.clone(),
        readonly_paths: security.readonly_paths.clone(),
        seccomp: Some(profile(&security.seccomp)),
        apparmor: security.apparmor.as_ref().map(profile),
        supplemental_groups_policy: groups(&security.user),
        ..LinuxContainerSecurityContext::default()
    }
}

/// Zero means POD in every field, which for `pid` would share one namespace among the containers.
fn namespaces(from: &Namespaces) -> NamespaceOption {
    let network = match from.network {
        Network::Pod => NamespaceMode::Pod,
        Network::Node => NamespaceMode::Node,
    };
    let ipc = match from.ipc {
        IpcNamespace::Pod => NamespaceMode::Pod,
        IpcNamespace::Node => NamespaceMode::Node,
    };
    let (pid, target_id) = match &from.pid {
        PidNamespace::Container => (NamespaceMode::Container, String::new()),
        PidNamespace::Pod => (NamespaceMode::Pod, String::new()),
        PidNamespace::Node => (NamespaceMode::Node, String::new()),
        PidNamespace::Target(id) => (NamespaceMode::Target, id.to_string()),
    };
    NamespaceOption {
        network: network.into(),
        pid: pid.into(),
        ipc: ipc.into(),
        target_id,
        userns_options: from.users.map(|users| UserNamespace {
            mode: NamespaceMode::Pod.into(),
            uids: users_map(Some(users)),
            gids: users_map(Some(users)),
        }),
    }
}

/// The list of mappings.
pub(super) fn users_map(users: Option<UserRange>) -> Vec<IdMapping> {
    let mapping =
        |users: UserRange| IdMapping { host_id: users.first, container_id: 0, length: users.count };
    users.map(mapping).into_iter().collect()
}

fn profile(from: &Profile) -> SecurityProfile {
    let (kind, localhost_ref) = match from {
        Profile::Unconfined => (ProfileType::Unconfined, String::new()),
        Profile::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        Profile::Localhost(name) => (ProfileType::Localhost, name.clone()),
    };
    SecurityProfile { profile_type: kind.into(), localhost_ref }
}

/// The text form from before there was a message; older runtimes read only this.
fn apparmor_text(from: &Profile) -> String {
    match from {
        Profile::Unconfined => "unconfined".to_owned(),
        Profile::RuntimeDefault => "runtime/default".to_owned(),
        Profile::Localhost(name) => format!("localhost/{name}"),
    }
}

fn selinux(from: &cri::Selinux) -> SelinuxOption {
    let cri::Selinux { user, role, kind, level } = from.clone();
    SelinuxOption { user, role, r#type: kind, level }
}

fn groups(user: &cri::User) -> i32 {
    let policy = if user.strict_groups {
        SupplementalGroupsPolicy::Strict
    } else {
        SupplementalGroupsPolicy::Merge
    };
    policy.into()
}

fn number(value: i64) -> Int64Value {
    Int64Value { value }
}
