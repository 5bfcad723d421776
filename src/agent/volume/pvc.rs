//! `persistentVolumeClaim`: storage that outlives the pod, from a claim in its namespace and the
//! PersistentVolume bound to it. Supported are volumes of the kinds local, hostPath and nfs.
//!
//! The binding is the written one: the claim's `volumeName`, or the volume's `claimRef`. The agent
//! does not choose a volume: the choice would have to be stored, or another claim could get the
//! data of the first one (spec section 4.7). A cloud sends both.
//!
//! And `nfs`: a directory of another machine, mounted in a child process by mount(8) (spec section
//! 14.4).

use super::{Context, Location, host_path, host_path_source};
use crate::agent::Config;
use crate::agent::node::selects_node;
use crate::model::job::Source;
use crate::model::names::{cut, is_machine};
use crate::model::object::{Claim, ClaimRef, PersistentVolume};
use crate::model::pod::{FsGroupChangePolicy, Nfs, Volume};

const BLOCK: &str = "Block";

pub(super) fn plan(volume: &Volume, context: Context<'_>) -> Result<(Source, Location), String> {
    let of = volume.persistent_volume_claim.clone().unwrap_or_default();
    let namespace = &context.pod.metadata.namespace;
    let wrong = |why: String| format!("error processing PVC {namespace}/{}: {why}", of.claim_name);
    let claim = context.objects.claim(namespace, &of.claim_name).ok_or_else(|| {
        wrong(format!(
            "failed to fetch PVC from API server: persistentvolumeclaims {:?} not found",
            of.claim_name
        ))
    })?;
    let bound = bound(claim, context).map_err(wrong)?;
    if claim.spec.volume_mode.as_deref() == Some(BLOCK) {
        let name = &volume.name;
        return Err(format!(
            "volume {name} has volumeMode Block, but is specified in volumeMounts"
        ));
    }
    let name = &bound.metadata.name;
    if !is_here(bound, context.config) {
        return Err(format!(
            "MountVolume.NodeAffinity check failed for volume {name:?} : no matching \
             NodeSelectorTerms"
        ));
    }
    source(bound, of.read_only, context)
}

/// The volume that the claim is bound to, or why it is not bound.
fn bound<'a>(claim: &Claim, context: Context<'a>) -> Result<&'a PersistentVolume, String> {
    let names_it =
        |of: &ClaimRef| of.name == claim.metadata.name && of.namespace == claim.metadata.namespace;
    let kept_for_it =
        |volume: &&PersistentVolume| volume.spec.claim_ref.as_ref().is_some_and(names_it);
    let wanted = &claim.spec.volume_name;
    let objects = context.objects;
    let volume = if wanted.is_empty() {
        let found = objects.persistent_volumes().find(kept_for_it);
        found.ok_or("PVC is not bound: it has no volumeName, and no claimRef refers to it")?
    } else {
        let found = objects.persistent_volume(wanted);
        found.ok_or_else(|| format!("PVC is not bound: PersistentVolume {wanted:?} not found"))?
    };
    let name = &volume.metadata.name;
    let not_bound = |why: String| format!("PVC is not bound: PersistentVolume {name:?} {why}");
    match &volume.spec.claim_ref {
        Some(other) if !names_it(other) => {
            return Err(not_bound(format!("is reserved for {}/{}", other.namespace, other.name)));
        }
        Some(_) => {}
        None => {
            let same = |other: &&Claim| {
                other.spec.volume_name == *name && other.metadata != claim.metadata
            };
            if let Some(other) = objects.claims().find(same) {
                let other = &other.metadata;
                return Err(not_bound(format!(
                    "is named by {}/{} too, and has no claimRef",
                    other.namespace, other.name
                )));
            }
        }
    }
    let lacks = |mode: &&String| !volume.spec.access_modes.contains(mode);
    if let Some(mode) = claim.spec.access_modes.iter().find(lacks) {
        let has = volume.spec.access_modes.join(", ");
        return Err(not_bound(format!("has the access modes [{has}], and {mode} is requested")));
    }
    let (requested, has) =
        (claim.spec.resources.requests.get("storage"), volume.spec.capacity.get("storage"));
    if let (Some(requested), Some(has)) = (requested, has)
        && has.milli() < requested.milli()
    {
        return Err(not_bound(format!("has a capacity of {has}, and {requested} is requested")));
    }
    let mode = |mode: &Option<String>| mode.as_deref() == Some(BLOCK);
    if mode(&claim.spec.volume_mode) != mode(&volume.spec.volume_mode) {
        return Err(not_bound("has another volumeMode".to_owned()));
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
) -> Result<(Source, Location), String> {
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
            return Err(format!(
                "PersistentVolume {name:?}: nfs.server: got {:?}, expected a name or an address",
                of.server
            ));
        }
        let read_only = read_only || of.read_only;
        let source = nfs_source(of, read_only, &spec.mount_options);
        let host_path = below_pod("kubernetes.io~nfs");
        return Ok((source, Location { folder: name.as_str().into(), host_path, read_only }));
    }
    let other = spec.rest.iter().find(|(_, of)| of.is_object());
    let got = other.map_or("no kind of volume", |(kind, _)| cut(kind));
    Err(format!("PersistentVolume {name:?}: got {got}, expected local, hostPath or nfs"))
}

/// Checks that a path is absolute and has no `..`.
fn absolute(name: &str, field: &str, path: &str) -> Result<(), String> {
    if path.starts_with('/') && path.split('/').all(|part| part != "..") {
        return Ok(());
    }
    Err(format!(
        "PersistentVolume {name:?}: {field}: got {path:?}, expected an absolute path without `..`"
    ))
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
