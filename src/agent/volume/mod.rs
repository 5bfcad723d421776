//! Volume kinds: what each kind of volume needs of the node.
//!
//! ```text
//!  spec, objects ──▶ plan() ──▶ Source: what the job sets up
//!                         └───▶ Place: where it is, for the container's mount
//! ```
//!
//! Pure: the same result for the same spec and objects. When a volume is set up, and what happens
//! on failure, is decided in `agent::pod::volumes`. A kind that is not built in is refused at
//! admission (`agent::admit`), and an `Err` here is the text of the event `FailedMount`.

#[cfg(feature = "volumes")]
mod files;
#[cfg(feature = "volumes")]
mod pvc;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;

use crate::agent::Config;
use crate::agent::downward::ResourceError;
use crate::agent::objects::Objects;
use crate::limits::NESTED_MOUNTS_MAX;
use crate::model::job::{HostPathKind, Medium, Source};
use crate::model::pod::{HostPath, Pod, PodSpec, Volume, VolumeMount};
use crate::model::quantity::Quantity;
#[cfg(feature = "volumes")]
pub use pvc::ClaimError;

/// What a volume's content depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// ConfigMaps and Secrets.
    #[cfg_attr(
        not(feature = "volumes"),
        expect(dead_code, reason = "no kind that is built in reads objects")
    )]
    pub objects: &'a Objects,
    /// The machine and its root.
    pub config: &'a Config,
    /// Bytes that the whole pod may use; 0: it has no such limit.
    pub memory_limit: i64,
}

/// The known kinds, by the name of their field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory of the pod.
    EmptyDir,
    /// A file or directory of the node.
    HostPath,
    /// Files from a ConfigMap.
    ConfigMap,
    /// Files from a Secret.
    Secret,
    /// Files with fields of the pod.
    DownwardApi,
    /// Several of these in one directory.
    Projected,
    /// Storage that outlives the pod.
    Claim,
    /// A directory of another machine.
    Nfs,
}

impl Kind {
    /// The kind of a volume; a volume without a source is an emptyDir.
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

    /// The name of its field.
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

    /// Whether it is built in.
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

    /// Whether containers never write to it, whatever their mounts say.
    pub fn is_read_only(self) -> bool {
        match self {
            Self::EmptyDir | Self::HostPath | Self::Claim | Self::Nfs => false,
            Self::ConfigMap | Self::Secret | Self::DownwardApi | Self::Projected => true,
        }
    }

    /// The directory of volumes of this kind; `None`: they have none below the pod's.
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

/// Where a volume is on the node, once it is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The name of its directory among those of its kind.
    pub folder: Box<str>,
    /// Absolute.
    pub host_path: String,
    /// Containers never write to it, whatever their mounts say.
    pub read_only: bool,
}

/// Why it is not known what has to be set up; mostly in the kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "volumes"), expect(dead_code, reason = "only others have the kinds"))]
pub enum VolumeError {
    /// A kind of volume, by its field.
    #[cfg(not(feature = "volumes"))]
    NotBuiltIn(&'static str),
    HostPathType(String),
    /// An object of this kind and name.
    NoObject {
        kind: &'static str,
        name: String,
    },
    /// A key of an object; `what`: the words before its name.
    NoKey {
        what: &'static str,
        key: String,
    },
    /// The token of this service account, which is given as `namespace/name`.
    NoToken(String),
    /// A path that names no field of the pod.
    Field(String),
    Resource(ResourceError),
    /// The sources of a projected volume.
    Sources(Vec<VolumeError>),
    #[cfg(feature = "volumes")]
    Claim(ClaimError),
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(not(feature = "volumes"))]
            Self::NotBuiltIn(field) => write!(f, "{field} is not built into this edged"),
            Self::HostPathType(name) => {
                write!(f, "hostPath type check failed: {name:?} is an invalid volume type")
            }
            Self::NoObject { kind, name } => write!(f, "{kind} {name:?} not found"),
            Self::NoKey { what, key } => write!(f, "{what}: {key}"),
            Self::NoToken(account) => write!(
                f,
                "failed to fetch token: the cloud has not issued one for service account \
                 \"{account}\" yet"
            ),
            Self::Field(path) => write!(f, "unsupported fieldPath: {path}"),
            Self::Resource(why) => why.fmt(f),
            Self::Sources(all) => {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                f.write_str(&all.join("; "))
            }
            #[cfg(feature = "volumes")]
            Self::Claim(why) => why.fmt(f),
        }
    }
}

/// What has to be set up and where it is then, or why that is not known.
pub fn plan(volume: &Volume, context: Context<'_>) -> Result<(Source, Location), VolumeError> {
    let kind = Kind::of(volume);
    let here = |source: Source| {
        let host_path = host_path(volume, context.pod, &context.config.root);
        let read_only = kind.is_read_only();
        (source, Location { folder: volume.name.clone(), host_path, read_only })
    };
    match kind {
        Kind::EmptyDir => Ok(here(empty_dir(volume, context))),
        Kind::HostPath => host_path_source(&volume.host_path.clone().unwrap_or_default()).map(here),
        #[cfg(feature = "volumes")]
        Kind::ConfigMap => files::config_map(volume, context).map(here),
        #[cfg(feature = "volumes")]
        Kind::Secret => files::secret(volume, context).map(here),
        #[cfg(feature = "volumes")]
        Kind::DownwardApi => files::downward_api(volume, context).map(here),
        #[cfg(feature = "volumes")]
        Kind::Projected => files::projected(volume, context).map(here),
        #[cfg(feature = "volumes")]
        Kind::Claim => pvc::plan(volume, context),
        #[cfg(feature = "volumes")]
        Kind::Nfs => Ok(pvc::nfs(volume, context)),
        #[cfg(not(feature = "volumes"))]
        _ => Err(VolumeError::NotBuiltIn(kind.field())),
    }
}

/// A directory of the pod, on the disk or in memory.
fn empty_dir(volume: &Volume, context: Context<'_>) -> Source {
    let of = volume.empty_dir.clone().unwrap_or_default();
    if of.medium != "Memory" {
        // Eviction checks its size; the file system does not limit it.
        return Source::EmptyDir(Medium::Disk);
    }
    // The smallest of all limits; the kernel's default would be half of the machine's memory.
    let limit = of.size_limit.as_ref().map(Quantity::whole);
    let limits = [limit, Some(context.memory_limit)].into_iter().flatten().filter(|&it| it > 0);
    let machine = context.config.machine.memory_bytes;
    let size_bytes = limits.map(i64::unsigned_abs).fold(machine, u64::min);
    Source::EmptyDir(Medium::Memory { size_bytes })
}

/// A path of the node, checked by its type; also for a persistent volume.
fn host_path_source(of: &HostPath) -> Result<Source, VolumeError> {
    let kind = match &*of.r#type {
        "" => HostPathKind::Unset,
        "DirectoryOrCreate" => HostPathKind::DirectoryOrCreate,
        "Directory" => HostPathKind::Directory,
        "FileOrCreate" => HostPathKind::FileOrCreate,
        "File" => HostPathKind::File,
        "Socket" => HostPathKind::Socket,
        "CharDevice" => HostPathKind::CharDevice,
        "BlockDevice" => HostPathKind::BlockDevice,
        other => return Err(VolumeError::HostPathType(other.into())),
    };
    Ok(Source::HostPath { path: of.path.as_str().into(), kind })
}

/// The path of a volume whose location depends on no object.
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

/// For each volume, the paths below it on which other volumes of the pod are mounted: they have to
/// exist before, because the volume cannot be written to from the container. In order, and at most
/// [`NESTED_MOUNTS_MAX`] for each.
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
