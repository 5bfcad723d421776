//! `persistentVolumeClaim`: storage that outlives the pod, from a claim in its namespace and the
//! PersistentVolume bound to it. Supported are volumes of the kinds local, hostPath and nfs.
//!
//! The binding is the written one: the claim's `volumeName`, or the volume's `claimRef`. The agent
//! does not choose a volume: the choice would have to be stored, or another claim could get the
//! data of the first one (spec section 4.7). A cloud sends both.
//!
//! And `nfs`: a directory of another machine, mounted in a child process by mount(8) (spec section
//! 14.4).

use std::fmt;

use super::{Context, Location, VolumeError, host_path, host_path_source};
use crate::agent::Config;
use crate::agent::node::selects_node;
use crate::model::job::Source;
use crate::model::names::{cut, is_machine};
use crate::model::object::{Claim, ClaimRef, PersistentVolume};
use crate::model::pod::{FsGroupChangePolicy, Nfs, Volume};

const BLOCK: &str = "Block";

/// Why a claim cannot be mounted; mostly in the kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// The claim, which is given as `namespace/name`, does not exist or is not bound.
    Unbound { claim: String, why: Unbound },
    /// The claim of this volume is a block device.
    Block { volume: Box<str> },
    /// This PersistentVolume is on other nodes.
    Elsewhere(String),
    /// This PersistentVolume has a path that may lead anywhere.
    Path { volume: String, field: &'static str, path: String },
    /// This PersistentVolume has a server without a usable name.
    Server { volume: String, server: String },
    /// This PersistentVolume is of a kind that is not supported.
    Kind { volume: String, got: String },
}

/// Why a claim is not bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unbound {
    /// There is no claim of this name.
    NoClaim(String),
    /// Neither names the other.
    NoVolume,
    /// The PersistentVolume that it names.
    VolumeNotFound(String),
    /// The PersistentVolume does not fit.
    Unfit { volume: String, why: Unfit },
}

/// Why a PersistentVolume does not fit a claim. Other claims are given as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    Reserved { claim: String },
    NamedTwice { claim: String },
    AccessMode { has: String, requested: String },
    Capacity { has: String, requested: String },
    VolumeMode,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbound { claim, why } => write!(f, "error processing PVC {claim}: {why}"),
            Self::Block { volume } => {
                write!(f, "volume {volume} has volumeMode Block, but is specified in volumeMounts")
            }
            Self::Elsewhere(volume) => write!(
                f,
                "MountVolume.NodeAffinity check failed for volume {volume:?} : no matching \
                 NodeSelectorTerms"
            ),
            Self::Path { volume, field, path } => write!(
                f,
                "PersistentVolume {volume:?}: {field}: got {path:?}, expected an absolute path \
                 without `..`"
            ),
            Self::Server { volume, server } => write!(
                f,
                "PersistentVolume {volume:?}: nfs.server: got {server:?}, expected a name or an \
                 address"
            ),
            Self::Kind { volume, got } => {
                write!(f, "PersistentVolume {volume:?}: got {got}, expected local, hostPath or nfs")
            }
        }
    }
}

impl From<ClaimError> for VolumeError {
    fn from(why: ClaimError) -> Self {
        Self::Claim(why)
    }
}

impl fmt::Display for Unbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClaim(name) => write!(
                f,
                "failed to fetch PVC from API server: persistentvolumeclaims {name:?} not found"
            ),
            Self::NoVolume => {
                f.write_str("PVC is not bound: it has no volumeName, and no claimRef refers to it")
            }
            Self::VolumeNotFound(name) => {
                write!(f, "PVC is not bound: PersistentVolume {name:?} not found")
            }
            Self::Unfit { volume, why } => {
                write!(f, "PVC is not bound: PersistentVolume {volume:?} {why}")
            }
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved { claim } => write!(f, "is reserved for {claim}"),
            Self::NamedTwice { claim } => {
                write!(f, "is named by {claim} too, and has no claimRef")
            }
            Self::AccessMode { has, requested } => {
                write!(f, "has the access modes [{has}], and {requested} is requested")
            }
            Self::Capacity { has, requested } => {
                write!(f, "has a capacity of {has}, and {requested} is requested")
            }
            Self::VolumeMode => f.write_str("has another volumeMode"),
        }
    }
}

pub(super) fn plan(
    volume: &Volume,
    context: Context<'_>,
) -> Result<(Source, Location), VolumeError> {
    let of = volume.persistent_volume_claim.clone().unwrap_or_default();
    let namespace = &context.pod.metadata.namespace;
    let unbound =
        |why| ClaimError::Unbound { claim: format!("{namespace}/{}", of.claim_name), why };
    let claim = context
        .objects
        .claim(namespace, &of.claim_name)
        .ok_or_else(|| unbound(Unbound::NoClaim(of.claim_name.clone())))?;
    let bound = bound(claim, context).map_err(unbound)?;
    if claim.spec.volume_mode.as_deref() == Some(BLOCK) {
        return Err(ClaimError::Block { volume: volume.name.clone() }.into());
    }
    if !is_here(bound, context.config) {
        return Err(ClaimError::Elsewhere(bound.metadata.name.clone()).into());
    }
    source(bound, of.read_only, context)
}

/// The volume that the claim is bound to, or why it is not bound.
fn bound<'a>(claim: &Claim, context: Context<'a>) -> Result<&'a PersistentVolume, Unbound> {
    let names_it =
        |of: &ClaimRef| of.name == claim.metadata.name && of.namespace == claim.metadata.namespace;
    let kept_for_it =
        |volume: &&PersistentVolume| volume.spec.claim_ref.as_ref().is_some_and(names_it);
    let wanted = &claim.spec.volume_name;
    let objects = context.objects;
    let volume = if wanted.is_empty() {
        let found = objects.persistent_volumes().find(kept_for_it);
        found.ok_or(Unbound::NoVolume)?
    } else {
        let found = objects.persistent_volume(wanted);
        found.ok_or_else(|| Unbound::VolumeNotFound(wanted.clone()))?
    };
    let name = &volume.metadata.name;
    let unfit = |why| Unbound::Unfit { volume: name.clone(), why };
    let full_name = |namespace: &str, name: &str| format!("{namespace}/{name}");
    match &volume.spec.claim_ref {
        Some(other) if !names_it(other) => {
            let claim = full_name(&other.namespace, &other.name);
            return Err(unfit(Unfit::Reserved { claim }));
        }
        Some(_) => {}
        None => {
            let same = |other: &&Claim| {
                other.spec.volume_name == *name && other.metadata != claim.metadata
            };
            if let Some(other) = objects.claims().find(same) {
                let claim = full_name(&other.metadata.namespace, &other.metadata.name);
                return Err(unfit(Unfit::NamedTwice { claim }));
            }
        }
    }
    let lacks = |mode: &&String| !volume.spec.access_modes.contains(mode);
    if let Some(mode) = claim.spec.access_modes.iter().find(lacks) {
        let has = volume.spec.access_modes.join(", ");
        return Err(unfit(Unfit::AccessMode { has, requested: mode.clone() }));
    }
    let (requested, has) =
        (claim.spec.resources.requests.get("storage"), volume.spec.capacity.get("storage"));
    if let (Some(requested), Some(has)) = (requested, has)
        && has.milli() < requested.milli()
    {
        let (has, requested) = (has.to_string(), requested.to_string());
        return Err(unfit(Unfit::Capacity { has, requested }));
    }
    let mode = |mode: &Option<String>| mode.as_deref() == Some(BLOCK);
    if mode(&claim.spec.volume_mode) != mode(&volume.spec.volume_mode) {
        return Err(unfit(Unfit::VolumeMode));
    }
    Ok(volume)
}

/// Whether this node can use the volume.
fn is_here(volume: &PersistentVolume, config: &Config) -> bool {
    volume.spec.required_nodes().is_none_or(|terms| selects_node(&terms, config))
}

fn source(
    bound: &PersistentVolume,
    read_only: bool,
    context: Context<'_>,
) -> Result<(Source, Location), VolumeError> {
    let (spec, name) = (&bound.spec, &bound.metadata.name);
    let below_pod = |plugin: &str| {
        let root = &context.config.root;
        format!("{root}/pods/{}/volumes/{plugin}/{name}", context.pod.metadata.uid)
    };
    if let Some(of) = &spec.local {
        absolute(name, "local.path", &of.path)?;
        let policy = context.pod.spec.security_context.fs_group_change_policy;
        let if_needed = policy == Some(FsGroupChangePolicy::OnRootMismatch);
        let source = Source::Local { path: of.path.as_str().into(), if_needed };
        let host_path = below_pod("kubernetes.io~local-volume");
        return Ok((source, Location { folder: name.as_str().into(), host_path, read_only }));
    }
    if let Some(of) = &spec.host_path {
        absolute(name, "hostPath.path", &of.path)?;
        let location =
            Location { folder: name.as_str().into(), host_path: of.path.clone(), read_only };
        return Ok((host_path_source(of)?, location));
    }
    if let Some(of) = &spec.nfs {
        absolute(name, "nfs.path", &of.path)?;
        if !is_machine(&of.server) {
            let (volume, server) = (name.clone(), of.server.clone());
            return Err(ClaimError::Server { volume, server }.into());
        }
        let read_only = read_only || of.read_only;
        let source = nfs_source(of, read_only, &spec.mount_options);
        let host_path = below_pod("kubernetes.io~nfs");
        return Ok((source, Location { folder: name.as_str().into(), host_path, read_only }));
    }
    let other = spec.rest.iter().find(|(_, of)| of.is_object());
    let got = other.map_or("no kind of volume", |(kind, _)| cut(kind));
    Err(ClaimError::Kind { volume: name.clone(), got: got.to_owned() }.into())
}

/// Checks that a path is absolute and has no `..`.
fn absolute(name: &str, field: &'static str, path: &str) -> Result<(), ClaimError> {
    if path.starts_with('/') && path.split('/').all(|part| part != "..") {
        return Ok(());
    }
    Err(ClaimError::Path { volume: name.to_owned(), field, path: path.to_owned() })
}

/// A volume of the kind `nfs`.
pub(super) fn nfs(volume: &Volume, context: Context<'_>) -> (Source, Location) {
    let of = volume.nfs.clone().unwrap_or_default();
    let host_path = host_path(volume, context.pod, &context.config.root);
    let read_only = of.read_only;
    let location = Location { folder: volume.name.clone(), host_path, read_only };
    (nfs_source(&of, read_only, &[]), location)
}

fn nfs_source(of: &Nfs, read_only: bool, options: &[String]) -> Source {
    Source::Nfs {
        server: of.server.as_str().into(),
        path: of.path.as_str().into(),
        read_only,
        options: options.iter().map(|option| option.as_str().into()).collect(),
    }
}
