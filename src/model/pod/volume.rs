//! Volumes and their mounts in containers (core/v1).

use serde::Serialize;

use super::{FieldRef, ResourceFieldRef, Rest};
use crate::model::quantity::Quantity;
use crate::model::status::RecursiveReadOnly;
use crate::model::tree::{fields, words};
use crate::model::untyped::is_default;

/// core/v1 `Volume`: a name and one source; without one it is an `emptyDir`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// DNS label.
    pub name: Box<str>,
    /// A folder of the pod's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDir>,
    /// A file or folder of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<HostPath>,
    /// Files from a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ObjectFiles>,
    /// Files from a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolume>,
    /// Files with fields of the pod.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardVolume>,
    /// Several of these in one folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projected: Option<Projected>,
    /// Storage that outlives the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// A folder of another machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfs: Option<Nfs>,
    /// The other sources.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(Volume {
    "name" => name,
    "emptyDir" => empty_dir,
    "hostPath" => host_path,
    "configMap" => config_map,
    "secret" => secret,
    "downwardAPI" => downward_api,
    "projected" => projected,
    "persistentVolumeClaim" => persistent_volume_claim,
    "nfs" => nfs,
} rest rest);

/// core/v1 `PersistentVolumeClaimVolumeSource`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimVolume {
    /// In the pod's namespace.
    pub claim_name: String,
    /// Read-only for every container.
    #[serde(skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(ClaimVolume {
    "claimName" => claim_name,
    "readOnly" => read_only,
} rest rest);

/// core/v1 `NFSVolumeSource`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nfs {
    /// Name or address of the machine.
    pub server: String,
    /// The exported path: absolute.
    pub path: String,
    /// Mounted read-only.
    #[serde(skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(Nfs {
    "server" => server,
    "path" => path,
    "readOnly" => read_only,
} rest rest);

/// core/v1 `EmptyDirVolumeSource`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDir {
    /// Empty: the node's disk; `Memory`: a file system in memory.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub medium: String,
    /// Its maximum size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<Quantity>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(EmptyDir {
    "medium" => medium,
    "sizeLimit" => size_limit,
} rest rest);

/// core/v1 `HostPathVolumeSource`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPath {
    /// On the node.
    pub path: String,
    /// The required type, or one to create: `DirectoryOrCreate`, `File` …; empty: no check.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(HostPath {
    "path" => path,
    "type" => r#type,
} rest rest);

/// core/v1 `ConfigMapVolumeSource`; `ConfigMapProjection` and `SecretProjection`, which have no
/// mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectFiles {
    /// In the pod's namespace.
    pub name: String,
    /// Which keys, and their paths; empty: all, under their own names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<KeyToPath>,
    /// Default mode of files; default 0644.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_mode: Option<i32>,
    /// The object and its keys may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(ObjectFiles {
    "name" => name,
    "items" => items,
    "defaultMode" => default_mode,
    "optional" => optional,
} rest rest);

/// core/v1 `SecretVolumeSource`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretVolume {
    /// In the pod's namespace.
    pub secret_name: String,
    /// Which keys, and their paths; empty: all, under their own names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<KeyToPath>,
    /// Default mode of files; default 0644.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_mode: Option<i32>,
    /// The object and its keys may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(SecretVolume {
    "secretName" => secret_name,
    "items" => items,
    "defaultMode" => default_mode,
    "optional" => optional,
} rest rest);

/// core/v1 `KeyToPath`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KeyToPath {
    /// A key of the object's data.
    pub key: String,
    /// Below the volume.
    pub path: String,
    /// Permission bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<i32>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(KeyToPath {
    "key" => key,
    "path" => path,
    "mode" => mode,
} rest rest);

/// core/v1 `VolumeMount`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMount {
    /// The volume's.
    pub name: Box<str>,
    /// In the container.
    pub mount_path: String,
    /// Read-only for the container.
    #[serde(skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// The mounted part of the volume; empty: its root.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sub_path: String,
    /// The same with `$(NAME)` of the container's variables; only one of the two is allowed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sub_path_expr: String,
    /// The propagation of mounts that are made below later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_propagation: Option<MountPropagation>,
    /// Whether mounts below are read-only as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive_read_only: Option<RecursiveReadOnly>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(VolumeMount {
    "name" => name,
    "mountPath" => mount_path,
    "readOnly" => read_only,
    "subPath" => sub_path,
    "subPathExpr" => sub_path_expr,
    "mountPropagation" => mount_propagation,
    "recursiveReadOnly" => recursive_read_only,
} rest rest);

/// `VolumeMount.mountPropagation`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum MountPropagation {
    #[default]
    None,
    HostToContainer,
    Bidirectional,
}

words!(MountPropagation {
    "None" => None,
    "HostToContainer" => HostToContainer,
    "Bidirectional" => Bidirectional,
});

/// core/v1 `DownwardAPIVolumeSource`, and `DownwardAPIProjection` without a mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DownwardVolume {
    /// One file each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<DownwardFile>,
    /// Default mode of files; default 0644.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_mode: Option<i32>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(DownwardVolume {
    "items" => items,
    "defaultMode" => default_mode,
} rest rest);

/// core/v1 `DownwardAPIVolumeFile`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DownwardFile {
    /// Below the volume.
    pub path: String,
    /// A field of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
    /// A request or limit of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldRef>,
    /// Permission bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<i32>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(DownwardFile {
    "path" => path,
    "fieldRef" => field_ref,
    "resourceFieldRef" => resource_field_ref,
    "mode" => mode,
} rest rest);

/// core/v1 `ProjectedVolumeSource`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Projected {
    /// All in one folder; the later of two files with one path counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ProjectedSource>,
    /// Default mode of files; default 0644.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_mode: Option<i32>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(Projected {
    "sources" => sources,
    "defaultMode" => default_mode,
} rest rest);

/// core/v1 `VolumeProjection`: one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectedSource {
    /// Files from a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ObjectFiles>,
    /// Files from a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<ObjectFiles>,
    /// Files with fields of the pod.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardVolume>,
    /// A token of the pod's service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_token: Option<ServiceAccountToken>,
    /// The other sources.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(ProjectedSource {
    "configMap" => config_map,
    "secret" => secret,
    "downwardAPI" => downward_api,
    "serviceAccountToken" => service_account_token,
} rest rest);

/// core/v1 `ServiceAccountTokenProjection`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountToken {
    /// The audience; empty: the API server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub audience: String,
    /// The lifetime, seconds; default 3600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_seconds: Option<i64>,
    /// Relative to the volume.
    pub path: String,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(ServiceAccountToken {
    "audience" => audience,
    "expirationSeconds" => expiration_seconds,
    "path" => path,
} rest rest);

impl ServiceAccountToken {
    /// The lifetime, seconds.
    pub fn seconds(&self) -> i64 {
        self.expiration_seconds.unwrap_or(3_600)
    }
}
