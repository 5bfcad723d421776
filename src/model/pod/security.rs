//! Security contexts of pods and containers (core/v1).

use serde::Serialize;

use super::Rest;
use crate::model::tree::{self, Fault, Node, Read, Rest as _, Value, by_tree, fields, words};
use crate::model::untyped::is_default;

/// core/v1 `PodSecurityContext`: defaults for every container.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSecurityContext {
    /// User id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// Primary group id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
    /// Refuse to run as user 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    /// Owns volumes; a supplementary group of every process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<i64>,
    /// Whether the group of volumes is set each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group_change_policy: Option<FsGroupChangePolicy>,
    /// Further groups of every process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supplemental_groups: Vec<i64>,
    /// Which of the image's groups count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplemental_groups_policy: Option<SupplementalGroupsPolicy>,
    /// Passed to the runtime as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub se_linux_options: Option<SeLinuxOptions>,
    /// The allowed system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<Profile>,
    /// The AppArmor restrictions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<Profile>,
    /// In the pod's namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sysctls: Vec<Sysctl>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(PodSecurityContext {
    "runAsUser" => run_as_user,
    "runAsGroup" => run_as_group,
    "runAsNonRoot" => run_as_non_root,
    "fsGroup" => fs_group,
    "fsGroupChangePolicy" => fs_group_change_policy,
    "supplementalGroups" => supplemental_groups,
    "supplementalGroupsPolicy" => supplemental_groups_policy,
    "seLinuxOptions" => se_linux_options,
    "seccompProfile" => seccomp_profile,
    "appArmorProfile" => app_armor_profile,
    "sysctls" => sysctls,
} rest rest);

/// core/v1 `SecurityContext`: of one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityContext {
    /// User id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// Primary group id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
    /// Refuse to run as user 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    /// All privileges of the host's root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
    /// `false`: no process gets more privileges than its parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<bool>,
    /// The image's files are read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_root_filesystem: Option<bool>,
    /// Whether parts of `/proc` are hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proc_mount: Option<ProcMount>,
    /// Additions to or removals from the runtime's default set.
    #[serde(skip_serializing_if = "is_default")]
    pub capabilities: Capabilities,
    /// Passed to the runtime as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub se_linux_options: Option<SeLinuxOptions>,
    /// The allowed system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<Profile>,
    /// The AppArmor restrictions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<Profile>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(SecurityContext {
    "runAsUser" => run_as_user,
    "runAsGroup" => run_as_group,
    "runAsNonRoot" => run_as_non_root,
    "privileged" => privileged,
    "allowPrivilegeEscalation" => allow_privilege_escalation,
    "readOnlyRootFilesystem" => read_only_root_filesystem,
    "procMount" => proc_mount,
    "capabilities" => capabilities,
    "seLinuxOptions" => se_linux_options,
    "seccompProfile" => seccomp_profile,
    "appArmorProfile" => app_armor_profile,
} rest rest);

/// core/v1 `Capabilities`, without `CAP_`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Capabilities {
    /// Added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    /// Dropped; `ALL` is all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drop: Vec<String>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(Capabilities {
    "add" => add,
    "drop" => drop,
} rest rest);

/// core/v1 `SELinuxOptions`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SeLinuxOptions {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub level: String,
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(SeLinuxOptions {
    "user" => user,
    "role" => role,
    "type" => r#type,
    "level" => level,
} rest rest);

/// core/v1 `SeccompProfile` and `AppArmorProfile`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    pub r#type: ProfileType,
    /// With `Localhost`: a file below the kubelet's `seccomp` folder, or the name of a profile that
    /// the kernel has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

impl Profile {
    fn field(&mut self, key: &str, node: &Node) -> Result<(), Fault> {
        match key {
            "type" => self.r#type.read(node),
            "localhostProfile" => self.localhost_profile.read(node),
            _ => self.rest.other(key, node),
        }
    }
}

impl Read for Profile {
    /// A profile without its type is an error.
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        if let Value::Map(map) = &node.value
            && map.get("type").is_none_or(|entry| entry.node.value == Value::Null)
        {
            return Err(Fault::bare("missing field `type`".to_owned()));
        }
        tree::each(node, &mut |key, node| self.field(key, node))
    }

    fn heap_bytes(&self) -> usize {
        self.localhost_profile.heap_bytes() + self.rest.rest_bytes()
    }
}

by_tree!(Profile);

/// `type` of a [`Profile`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ProfileType {
    #[default]
    RuntimeDefault,
    Localhost,
    Unconfined,
}

words!(ProfileType {
    "RuntimeDefault" => RuntimeDefault,
    "Localhost" => Localhost,
    "Unconfined" => Unconfined,
});

/// core/v1 `Sysctl`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sysctl {
    /// `net.core.somaxconn`, or with `/` for `.`.
    pub name: String,
    /// As it is written to `/proc/sys`.
    pub value: String,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(Sysctl {
    "name" => name,
    "value" => value,
} rest rest);

/// `PodSecurityContext.fsGroupChangePolicy`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum FsGroupChangePolicy {
    #[default]
    Always,
    OnRootMismatch,
}

words!(FsGroupChangePolicy {
    "Always" => Always,
    "OnRootMismatch" => OnRootMismatch,
});

/// `PodSecurityContext.supplementalGroupsPolicy`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum SupplementalGroupsPolicy {
    #[default]
    Merge,
    Strict,
}

words!(SupplementalGroupsPolicy {
    "Merge" => Merge,
    "Strict" => Strict,
});

/// `SecurityContext.procMount`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ProcMount {
    #[default]
    Default,
    Unmasked,
}

words!(ProcMount {
    "Default" => Default,
    "Unmasked" => Unmasked,
});
