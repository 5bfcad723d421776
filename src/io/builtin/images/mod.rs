//! Images: where their layers come from, and where they are kept. Each function runs in a job, a
//! process that may be killed at any moment.
//!
//! ```text
//!  import: a layout, an archive ─┐                      ┌─▶ manifest ─▶ configuration
//!                                ├─▶ index ─▶ platform ─┤
//!  pull: a registry ─────────────┘                      └─▶ layers that are not there ─▶ layer
//! ```
//!
//! Every byte is compared with a digest: the manifest's with that of the index or the name, the
//! configuration's with the manifest, a layer's with the manifest and, uncompressed, with the
//! configuration. Layers are kept unpacked, and once for all images ([`layer`]); nothing else is.
//! The network and the unpacking are different processes: [`registry`] reads no layer, and the
//! process that unpacks one has no network ([`confine`]).
//!
//! Not here: the records of images. An image counts when its record is saved; until then its layers
//! are nobody's. A crash leaves layers without an image, which the next pull uses, and files in
//! `tmp/`: a start removes them, but for downloads, which the next pull continues. What nothing has
//! continued for an hour is removed.

mod http;
mod layer;
mod registry;
mod unpack;

use crate::model::map::Set;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::layout::{Layout, Settings};
use crate::io::image_import::archive::{Blob, Catalog};
use crate::io::image_import::image_store::full_name;
use crate::io::jobs;
use crate::io::sys::image_machine;
use crate::limits::IMAGE_INDEX_DEPTH_MAX;
use crate::model::error::{Error, System};
use crate::model::image::{ImageName, is_sha256, with_tag};
use crate::model::runtime::{DiffId, ImageId, ImageRecord, JobFault, JobReply, RegistryAuth};
use crate::wire::oci::image::{self, Content, Document, Machine, Manifest};
use crate::wire::oci::sha256;

/// Unpacks all images of an OCI layout in a folder, of an archive of one, or of the output of
/// `docker save`. → [`JobReply::Images`], without repo digests
pub fn import(settings: &Settings, path: &str) -> Result<JobReply, JobFault> {
    let path = Path::new(path);
    let shown = path.display().to_string();
    let catalog = Catalog::open(path).map_err(|error| match error {
        Error::Input(wrong) => JobFault::Invalid(wrong.at(&shown).to_string()),
        error if !path.exists() => JobFault::NotFound(error.at(&shown).to_string()),
        error => JobFault::Failed(error.at(&shown).to_string()),
    })?;
    let mut fetch = |digest: &str, _: u64, _: What| {
        let blob = catalog.blob(path, digest).map_err(|error| failed(digest, error))?;
        blob.ok_or_else(|| invalid(format!("got no {digest}, expected it in {shown}")))
    };
    let mut records: Vec<ImageRecord> = Vec::new();
    for image in &catalog.images {
        let name = full_name(image);
        let record = (|| {
            let top = json(&mut fetch, &image.descriptor.digest, image.descriptor.size)?;
            let manifest = manifest(image_machine(), &top, &mut fetch, 0)?;
            store(&settings.layout, image_machine(), &manifest, &mut fetch)
        })();
        let record = record.map_err(|fault| unpack::within(&name, fault))?;
        let index = records.iter().position(|known| known.id == record.id).unwrap_or_else(|| {
            records.push(record);
            records.len() - 1
        });
        let tags = &mut records[index].tags;
        if !tags.iter().any(|tag| **tag == *name) {
            tags.push(name.into());
        }
    }
    Ok(JobReply::Images(records))
}

/// Pulls an image from its registry. → [`JobReply::Image`]
pub fn pull(
    settings: &Settings,
    image: &str,
    auth: Option<&RegistryAuth>,
) -> Result<JobReply, JobFault> {
    let wrong = |why: &dyn std::fmt::Display| invalid(format!("got the image {image:?}: {why}"));
    let name = ImageName::parse(&with_tag(image)).map_err(|why| wrong(&why))?;
    if name.digest.as_deref().is_some_and(|digest| !is_sha256(digest)) {
        return Err(wrong(&"expected a digest of SHA-256"));
    }
    let layout = &settings.layout;
    fs::create_dir_all(layout.tmp()).map_err(|error| failed("mkdir", error))?;
    let mut registry = registry::Sources::new(&name, auth, &settings.registries);
    let done = (|| {
        let top = registry.manifest(name.digest.as_deref().or(name.tag.as_deref()))?;
        let digest = sha256(&top);
        let mut fetch = |digest: &str, size: u64, what: What| match what {
            What::Manifest => registry.manifest(Some(digest)).map(Blob::Bytes),
            What::Config => registry.small_blob(digest, size).map(Blob::Bytes),
            What::Layer => registry.blob(&layout.tmp(), digest, size),
        };
        let manifest = manifest(image_machine(), &top, &mut fetch, 0)?;
        let record = store(layout, image_machine(), &manifest, &mut fetch)?;
        Ok((record, digest))
    })();
    let (mut record, digest) = done.map_err(|fault| unpack::within(image, fault))?;
    let repository = name.repository();
    if let (Some(tag), None) = (&name.tag, &name.digest) {
        record.tags.push(format!("{repository}:{tag}").into());
    }
    record.digests.push(format!("{repository}@{digest}").into());
    Ok(JobReply::Image(Box::new(record)))
}

/// Removes these layers, and with `downloads` those that were broken off. → [`JobReply::Done`]
pub fn remove_layers(
    settings: &Settings,
    ids: &[DiffId],
    downloads: bool,
) -> Result<JobReply, JobFault> {
    let layout = &settings.layout;
    let _lock = layer::lock(layout)?;
    let tmp = folder(&layout.tmp())?;
    if downloads {
        empty(&layout.tmp(), |name| !registry::is_part(name))
            .map_err(|error| failed("downloads", error))?;
    }
    for id in ids {
        if !is_sha256(&id.0) {
            return Err(invalid(format!("got the layer {:?}, expected a digest", id.0)));
        }
        let path = layout.layer(id);
        let name: OsString =
            [OsStr::new("gone-"), path.file_name().unwrap_or_default()].join(OsStr::new(""));
        remove(&tmp, &name)?;
        match fs::rename(&path, layout.tmp().join(&name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            renamed => renamed.map_err(|error| layer::failed("rename", &path, &error))?,
        }
        remove(&tmp, &name)?;
    }
    Ok(JobReply::Done)
}

/// Removes everything unfinished but downloads, which the next pull continues: for the server's
/// start, while no job runs.
pub fn empty_tmp(settings: &Settings) -> Result<(), System> {
    let path = settings.layout.tmp();
    fs::create_dir_all(&path)?;
    empty(&path, registry::is_part)
}

fn empty(path: &Path, is_kept: impl Fn(&OsStr) -> bool) -> Result<(), System> {
    let folder = File::open(path)?;
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if !is_kept(&name) {
            jobs::remove_tree(folder.as_fd(), &name)?;
        }
    }
    Ok(())
}

/// All unpacked layers: those that no record names are to be removed at the server's start.
pub fn layers(settings: &Settings) -> io::Result<Vec<DiffId>> {
    let entries = match fs::read_dir(settings.layout.layers()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut ids = Vec::new();
    for entry in entries {
        let id = format!("sha256:{}", entry?.file_name().to_string_lossy());
        ids.extend(is_sha256(&id).then(|| DiffId(id.into())));
    }
    Ok(ids)
}

/// What a part of an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Manifest,
    Config,
    Layer,
}

/// Gets a part of an image by its digest and size.
type Fetch<'a> = dyn FnMut(&str, u64, What) -> Result<Blob, JobFault> + 'a;

/// A manifest or an index, whose digest is compared.
fn json(fetch: &mut Fetch<'_>, digest: &str, size: u64) -> Result<Vec<u8>, JobFault> {
    checked(fetch(digest, size, What::Manifest)?, digest)
}

fn checked(blob: Blob, digest: &str) -> Result<Vec<u8>, JobFault> {
    let bytes = blob.json().map_err(|error| failed(digest, error))?;
    let got = sha256(&bytes);
    if got == digest {
        return Ok(bytes);
    }
    Err(invalid(format!("got JSON with the digest {got}, expected {digest}")))
}

/// The manifest for this machine.
fn manifest(
    machine: Machine,
    bytes: &[u8],
    fetch: &mut Fetch<'_>,
    depth: usize,
) -> Result<Manifest, JobFault> {
    match image::document(bytes).map_err(|fault| invalid(fault.to_string()))? {
        Document::Manifest(manifest) => Ok(manifest),
        Document::Index(_) if depth == IMAGE_INDEX_DEPTH_MAX => {
            Err(invalid(format!("got indexes in {depth} indexes, expected a manifest")))
        }
        Document::Index(entries) => {
            let Some(chosen) = machine.choose(&entries) else {
                let got: Set<String> = entries
                    .iter()
                    .filter_map(|entry| entry.platform.as_ref().map(ToString::to_string))
                    .collect();
                let got = got.into_iter().take(SHOWN_MAX).collect::<Vec<_>>().join(", ");
                let why = format!("no match for platform: got {got}, expected {machine}");
                return Err(JobFault::NotFound(why));
            };
            let bytes = json(fetch, &chosen.digest, chosen.size)?;
            manifest(machine, &bytes, fetch, depth + 1)
        }
    }
}

/// Platforms in an error.
const SHOWN_MAX: usize = 20;

/// Unpacks the layers that are not there yet.
fn store(
    layout: &Layout,
    machine: Machine,
    manifest: &Manifest,
    fetch: &mut Fetch<'_>,
) -> Result<ImageRecord, JobFault> {
    let digest = &*manifest.config.digest;
    let bytes = checked(fetch(digest, manifest.config.size, What::Config)?, digest)?;
    let config = image::config(&bytes)
        .map_err(|fault| invalid(format!("the configuration {digest}: {fault}")))?;
    if !machine.runs(&config.platform) {
        let got = &config.platform;
        return Err(JobFault::NotFound(format!(
            "no match for platform: got {got}, expected {machine}"
        )));
    }
    if config.layers.len() != manifest.layers.len() {
        let (got, expected) = (manifest.layers.len(), config.layers.len());
        return Err(invalid(format!("got {got} layers, expected {expected} as configured")));
    }
    let mut size = bytes.len() as u64;
    for (at, (content, id)) in manifest.layers.iter().zip(&config.layers).enumerate() {
        if config.layers[..at].contains(id) {
            continue;
        }
        size += match layer::size(layout, id)? {
            Some(bytes) => bytes,
            None => fetched(layout, content, id, &config.layers[..at], fetch)?,
        };
    }
    Ok(ImageRecord {
        id: ImageId(digest.into()),
        tags: Vec::new(),
        digests: Vec::new(),
        layers: topmost(&config.layers),
        size,
        pinned: false,
        config: config.image,
    })
}

/// Fetches and unpacks a layer.
fn fetched(
    layout: &Layout,
    content: &Content,
    id: &DiffId,
    below: &[DiffId],
    fetch: &mut Fetch<'_>,
) -> Result<u64, JobFault> {
    let Blob::File(file, span) = fetch(&content.digest, content.size, What::Layer)? else {
        return Err(invalid("got a manifest as a layer".to_owned()));
    };
    let _lock = layer::lock(layout)?;
    let archive = layer::Archive { file: &file, span, digest: &content.digest, diff_id: id };
    // Another job may have unpacked it meanwhile.
    let stored = match layer::size(layout, id)? {
        Some(bytes) => Ok(bytes),
        None => layer::store(layout, &archive, below),
    };
    registry::forget(&layout.tmp(), &content.digest);
    stored
}

/// Each layer once, where it is highest: overlayfs takes none twice, and all of a lower one is in
/// the higher one as well.
fn topmost(layers: &[DiffId]) -> Vec<DiffId> {
    let is_last = |(at, id): &(usize, &DiffId)| !layers[at + 1..].contains(id);
    layers.iter().enumerate().filter(is_last).map(|(_, id)| id.clone()).collect()
}

fn folder(path: &Path) -> Result<std::os::fd::OwnedFd, JobFault> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|errno| layer::failed("open", path, &errno.into()))
}

fn remove(tmp: &impl AsFd, name: &OsStr) -> Result<(), JobFault> {
    jobs::remove_tree(tmp.as_fd(), name).map_err(|error| JobFault::Failed(error.to_string()))
}

fn invalid(why: String) -> JobFault {
    JobFault::Invalid(why)
}

fn failed(place: &str, error: impl std::fmt::Display) -> JobFault {
    JobFault::Failed(format!("{place}: {error}"))
}
