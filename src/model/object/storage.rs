//! Storage that outlives pods: volumes and claims.

use std::collections::BTreeMap;

use crate::model::pod::{self, HostPath, Metadata, Nfs, NodeSelectorTerm, Rest};
use crate::model::quantity::Quantity;
use crate::model::tree::fields;

/// core/v1 `PersistentVolumeClaim`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Name and namespace.
    pub metadata: Metadata,
    pub spec: ClaimSpec,
}

fields!(Claim {
    "metadata" => metadata,
    "spec" => spec,
});

/// core/v1 `PersistentVolumeClaimSpec`, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimSpec {
    /// The volume that it is bound to.
    pub volume_name: String,
    /// `ReadWriteOnce`, `ReadOnlyMany` …
    pub access_modes: Vec<String>,
    /// A folder unless this says `Block`.
    pub volume_mode: Option<String>,
    /// `requests.storage`
    pub resources: StorageRequest,
}

fields!(ClaimSpec {
    "volumeName" => volume_name,
    "accessModes" => access_modes,
    "volumeMode" => volume_mode,
    "resources" => resources,
});

/// core/v1 `VolumeResourceRequirements`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StorageRequest {
    /// `storage`: bytes.
    pub requests: BTreeMap<String, Quantity>,
}

fields!(StorageRequest {
    "requests" => requests,
});

/// core/v1 `PersistentVolume`; without a namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PersistentVolume {
    /// Name.
    pub metadata: Metadata,
    pub spec: PersistentVolumeSpec,
}

fields!(PersistentVolume {
    "metadata" => metadata,
    "spec" => spec,
});

/// core/v1 `PersistentVolumeSpec`, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PersistentVolumeSpec {
    /// `storage`: bytes.
    pub capacity: BTreeMap<String, Quantity>,
    /// `ReadWriteOnce`, `ReadOnlyMany` …
    pub access_modes: Vec<String>,
    /// A folder unless this says `Block`.
    pub volume_mode: Option<String>,
    /// The claim that it is reserved for.
    pub claim_ref: Option<ClaimRef>,
    /// Options for mount(8).
    pub mount_options: Vec<String>,
    /// `required`: the nodes that have it.
    pub node_affinity: Rest,
    /// A folder of this node.
    pub local: Option<Local>,
    /// A file or folder of any node.
    pub host_path: Option<HostPath>,
    /// A folder of another machine.
    pub nfs: Option<Nfs>,
    /// The other fields, with other kinds of volumes.
    pub rest: Rest,
}

fields!(PersistentVolumeSpec {
    "capacity" => capacity,
    "accessModes" => access_modes,
    "volumeMode" => volume_mode,
    "claimRef" => claim_ref,
    "mountOptions" => mount_options,
    "nodeAffinity" => node_affinity,
    "local" => local,
    "hostPath" => host_path,
    "nfs" => nfs,
} rest rest);

impl PersistentVolumeSpec {
    /// The nodes that have it; `None`: any node.
    pub fn required_nodes(&self) -> Option<Vec<NodeSelectorTerm<'_>>> {
        pod::required_nodes(&self.node_affinity)
    }
}

/// core/v1 `LocalVolumeSource`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Local {
    /// Absolute.
    pub path: String,
    /// Of a block device, which would have to be mounted.
    pub fs_type: Option<String>,
}

fields!(Local {
    "path" => path,
    "fsType" => fs_type,
});

/// A reference to a claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

fields!(ClaimRef {
    "namespace" => namespace,
    "name" => name,
});
