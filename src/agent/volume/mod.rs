//! What each kind of volume needs of the node: one file per kind, each a feature.
//!
//! ```text
//!  spec, objects ──▶ plan() ──▶ Source: what the hands bring about
//!                         └───▶ Place: where it is then, for the container's mount
//! ```
//!
//! Pure: the same answer for the same spec and objects. When to bring what about, and what to do
//! when it fails, is `agent::pod::volumes`'. A kind that is not built in is refused before a pod is
//! taken (`agent::admit`), and an `Err` here is the text of the event `FailedMount`.

#[cfg(feature = "volumes")]
mod configmap;
#[cfg(feature = "volumes")]
mod downwardapi;
mod emptydir;
#[cfg(feature = "volumes")]
mod files;
mod hostpath;
#[cfg(feature = "volumes")]
mod nfs;
#[cfg(feature = "volumes")]
mod projected;
#[cfg(feature = "volumes")]
mod pvc;
#[cfg(feature = "volumes")]
mod secret;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::agent::Config;
use crate::agent::objects::Objects;
use crate::limits::NESTED_MOUNTS_MAX;
use crate::model::job::Source;
use crate::model::pod::{Pod, PodSpec, Volume, VolumeMount};

/// Permission bits of files that nothing is said of.
#[cfg(feature = "volumes")]
const MODE: i32 = 0o644;

/// What a volume's content depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Whose.
    pub pod: &'a Pod,
    /// ConfigMaps and Secrets.
    #[cfg_attr(
        not(feature = "volumes"),
        expect(dead_code, reason = "no kind that is built in reads objects")
    )]
    pub objects: &'a Objects,
    /// The machine and its root.
    pub config: &'a Config,
}

/// The kinds that are known, by the name of their field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A folder of the pod's own.
    EmptyDir,
    /// A file or folder of the node.
    HostPath,
    /// Files out of a ConfigMap.
    ConfigMap,
    /// Files out of a Secret.
    Secret,
    /// Files that tell of the pod.
    DownwardApi,
    /// Several of these in one folder.
    Projected,
    /// Storage that outlives the pod.
    Claim,
    /// A folder of another machine.
    Nfs,
}

impl Kind {
    /// Of a volume; one without any source is an emptyDir.
    pub fn of(volume: &Volume) -> Self {
        if volume.host_path.is_some() {
            Self::HostPath
        } else if volume.config_map.is_some() {
            Self::ConfigMap
        } else if volume.secret.is_some() {
            Self::Secret
        } else if volume.downward_api.is_some() {
            Self::DownwardApi
        } else if volume.projected.is_some() {
            Self::Projected
        } else if volume.persistent_volume_claim.is_some() {
            Self::Claim
        } else if volume.nfs.is_some() {
            Self::Nfs
        } else {
            Self::EmptyDir
        }
    }

    /// The field that asks for it.
    pub fn field(self) -> &'static str {
        match self {
            Self::EmptyDir => "emptyDir",
            Self::HostPath => "hostPath",
            Self::ConfigMap => "configMap",
            Self::Secret => "secret",
            Self::DownwardApi => "downwardAPI",
            Self::Projected => "projected",
            Self::Claim => "persistentVolumeClaim",
            Self::Nfs => "nfs",
        }
    }

    /// Whether this agent has it.
    pub fn is_built_in(self) -> bool {
        match self {
            Self::EmptyDir | Self::HostPath => true,
            Self::ConfigMap
            | Self::Secret
            | Self::DownwardApi
            | Self::Projected
            | Self::Claim
            | Self::Nfs => cfg!(feature = "volumes"),
        }
    }

    /// Containers never write in it, whatever their mounts say.
    pub fn is_read_only(self) -> bool {
        match self {
            Self::EmptyDir | Self::HostPath | Self::Claim | Self::Nfs => false,
            Self::ConfigMap | Self::Secret | Self::DownwardApi | Self::Projected => true,
        }
    }

    /// The folder of its volumes; `None`: it has none below the pod's.
    fn folder(self) -> Option<&'static str> {
        match self {
            Self::EmptyDir => Some("kubernetes.io~empty-dir"),
            Self::HostPath | Self::Claim => None,
            Self::ConfigMap => Some("kubernetes.io~configmap"),
            Self::Secret => Some("kubernetes.io~secret"),
            Self::DownwardApi => Some("kubernetes.io~downward-api"),
            Self::Projected => Some("kubernetes.io~projected"),
            Self::Nfs => Some("kubernetes.io~nfs"),
        }
    }
}

/// Where a volume is on the node, once it is brought about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its folder's name among those of its kind.
    pub folder: Box<str>,
    /// Absolute.
    pub host_path: String,
    /// Containers never write in it, whatever their mounts say.
    pub read_only: bool,
}

/// What is to be brought about and where it is then, or why that is not known.
pub fn plan(volume: &Volume, context: Context<'_>) -> Result<(Source, Place), String> {
    let kind = Kind::of(volume);
    let here = |source: Source| {
        let host_path = host_path(volume, context.pod, &context.config.root);
        let read_only = kind.is_read_only();
        (source, Place { folder: volume.name.clone(), host_path, read_only })
    };
    match kind {
        Kind::EmptyDir => emptydir::source(volume, context).map(here),
        Kind::HostPath => hostpath::source(volume).map(here),
        #[cfg(feature = "volumes")]
        Kind::ConfigMap => configmap::source(volume, context).map(here),
        #[cfg(feature = "volumes")]
        Kind::Secret => secret::source(volume, context).map(here),
        #[cfg(feature = "volumes")]
        Kind::DownwardApi => downwardapi::source(volume, context).map(here),
        #[cfg(feature = "volumes")]
        Kind::Projected => projected::source(volume, context).map(here),
        #[cfg(feature = "volumes")]
        Kind::Claim => pvc::plan(volume, context),
        #[cfg(feature = "volumes")]
        Kind::Nfs => Ok(nfs::plan(volume, context)),
        #[cfg(not(feature = "volumes"))]
        _ => Err(format!("{} is not built into this edged", kind.field())),
    }
}

/// Where a volume whose place needs no object to be known is on the node.
fn host_path(volume: &Volume, pod: &Pod, root: &str) -> String {
    match Kind::of(volume).folder() {
        Some(folder) => {
            format!("{root}/pods/{}/volumes/{folder}/{}", pod.metadata.uid, volume.name)
        }
        None => volume.host_path.as_ref().map(|of| of.path.clone()).unwrap_or_default(),
    }
}

/// The group that owns the pod's volumes.
pub fn fs_group(spec: &PodSpec) -> Option<u32> {
    u32::try_from(spec.security_context.fs_group?).ok()
}

/// By volume, paths below it that other volumes of the pod are mounted on: they have to be there
/// before, since the volume cannot be written to from within. In order, and of each no more than
/// [`NESTED_MOUNTS_MAX`].
pub fn nested(spec: &PodSpec) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut nested: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in spec.init_containers.iter().chain(&spec.containers) {
        let paths: BTreeSet<&str> = container
            .volume_mounts
            .iter()
            .map(|mount| mount.mount_path.trim_matches('/'))
            .collect();
        let whole =
            |mount: &&VolumeMount| mount.sub_path.is_empty() && mount.sub_path_expr.is_empty();
        for mount in container.volume_mounts.iter().filter(whole) {
            let outer = mount.mount_path.trim_matches('/');
            let prefix = if outer.is_empty() { String::new() } else { format!("{outer}/") };
            let below = paths.range::<str, _>((Bound::Included(&*prefix), Bound::Unbounded));
            let below = below.map_while(|path| path.strip_prefix(&*prefix));
            let of_volume = nested.entry(&mount.name).or_default();
            let room = NESTED_MOUNTS_MAX.saturating_sub(of_volume.len());
            of_volume.extend(below.filter(|below| !below.is_empty()).take(room));
        }
    }
    nested
}

#[cfg(test)]
mod tests;
