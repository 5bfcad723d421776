//! All sources of images in the configured folders; finds images and blobs in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::archive::{Blob, Catalog, Image};
use crate::limits::IMAGE_SOURCES_MAX;
use crate::model::error::{Error, Input};
use crate::wire::oci::reference::RequestedName;

/// The sources at the last scan.
#[derive(Debug, Default)]
pub struct ImageStore {
    sources: BTreeMap<PathBuf, Source>,
    /// There are more than [`IMAGE_SOURCES_MAX`].
    full: bool,
}

#[derive(Debug)]
struct Source {
    stamp: Stamp,
    catalog: Result<Catalog, Error>,
}

/// Identifies the version of a file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    place: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl ImageStore {
    /// Scans the folders; reads new sources. Returns the changes, a line each, for the log.
    pub fn scan(&mut self, folders: &[PathBuf]) -> Vec<String> {
        let mut changes = Vec::new();
        let mut found = BTreeSet::new();
        for folder in folders {
            sources_in(folder, &mut found);
        }
        let full = found.len() > IMAGE_SOURCES_MAX;
        if full && !self.full {
            let count = found.len();
            changes
                .push(format!("got {count} files of images, expected {IMAGE_SOURCES_MAX} at most"));
        }
        self.full = full;
        self.sources.retain(|path, _| {
            let stays = found.contains(path);
            if !stays {
                changes.push(format!("path={} is gone", path.display()));
            }
            stays
        });
        for path in found.into_iter().take(IMAGE_SOURCES_MAX) {
            let Some(stamp) = stamp(&path) else { continue };
            if self.sources.get(&path).is_some_and(|source| source.stamp == stamp) {
                continue;
            }
            let catalog = Catalog::open(&path);
            changes.push(match &catalog {
                Ok(catalog) => {
                    let names: Vec<String> = catalog.images.iter().map(full_name).collect();
                    format!("path={} images={}", path.display(), names.join(","))
                }
                Err(why) => format!("path={} cannot be used: {why}", path.display()),
            });
            self.sources.insert(path, Source { stamp, catalog });
        }
        changes
    }

    /// Every image with its path, and every source that cannot be used with the reason.
    pub fn images(&self) -> impl Iterator<Item = (&Path, Result<&Image, &Error>)> {
        self.sources.iter().flat_map(|(path, source)| {
            let (good, bad) = match &source.catalog {
                Ok(catalog) => (Some(catalog.images.iter().map(Ok)), None),
                Err(why) => (None, Some(Err(why))),
            };
            good.into_iter().flatten().chain(bad).map(move |one| (path.as_path(), one))
        })
    }

    /// The image with a name.
    pub fn find(&self, name: &RequestedName, tag: &str) -> Result<&Image, Input> {
        let all = self.images().filter_map(|(_, image)| image.ok());
        let tagged = all.filter(|image| image.name.tag.as_deref() == Some(tag));
        let fitting: Vec<(u8, &Image)> = tagged
            .map(|image| (name.fits(&image.name), image))
            .filter(|(fit, _)| *fit > 0)
            .collect();
        let best = fitting.iter().map(|(fit, _)| *fit).max();
        let mut best =
            fitting.iter().filter(|(fit, _)| Some(*fit) == best).map(|(_, image)| *image);
        let Some(first) = best.next() else {
            return Err(Input::other(format!("no image {}:{tag} in the folders", name.path)));
        };
        match best.find(|other| other.descriptor.digest != first.descriptor.digest) {
            None => Ok(first),
            Some(other) => Err(Input::other(format!(
                "{}:{tag} is ambiguous: {} or {}",
                name.path,
                full_name(first),
                full_name(other)
            ))),
        }
    }

    /// The contents for a digest, from any source.
    pub fn blob(&self, digest: &str) -> io::Result<Option<Blob>> {
        let mut failed = None;
        for (path, source) in &self.sources {
            let Ok(catalog) = &source.catalog else { continue };
            match catalog.blob(path, digest) {
                Ok(Some(blob)) => return Ok(Some(blob)),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }
}

/// The name with registry and tag.
pub fn full_name(image: &Image) -> String {
    let tag = image.name.tag.as_deref().unwrap_or_default();
    format!("{}:{tag}", image.name.repository())
}

fn is_layout(folder: &Path) -> bool {
    let file = |name: &str| fs::symlink_metadata(folder.join(name)).is_ok_and(|it| it.is_file());
    file("oci-layout") && file("index.json")
}

/// The possible sources in the folder. An absent folder has none; a USB stick may not be
/// plugged in.
fn sources_in(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    if is_layout(folder) || fs::metadata(folder).is_ok_and(|it| it.is_file()) {
        found.insert(folder.to_owned());
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().take(8 * IMAGE_SOURCES_MAX) {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let ends = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".oci"];
        let archive = kind.is_file() && ends.iter().any(|end| name.ends_with(end));
        if archive || (kind.is_dir() && is_layout(&path)) {
            found.insert(path);
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    let metadata =
        if metadata.is_dir() { fs::metadata(path.join("index.json")).ok()? } else { metadata };
    Some(Stamp {
        place: (metadata.dev(), metadata.ino()),
        size: metadata.len(),
        changed: (metadata.mtime(), metadata.mtime_nsec()),
    })
}
