//! Which folder the manifests were read from, by device and inode.
//!
//! An empty folder means that no pod is wanted only if it is the one that had the manifests before.
//! Another one may be the mount point of a partition that is not mounted. A file in the root
//! directory remembers it across restarts, while there are manifests that could be missed.
//!
//! If we crash here the file is as it was, or not there: then any folder is trusted.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Device and inode.
pub(super) type Identity = (u64, u64);

/// The folder at this path.
pub(super) fn of(path: &Path) -> io::Result<Identity> {
    let meta = fs::metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

/// The folder that the manifests are of.
#[derive(Debug, Default)]
pub(super) struct Trusted {
    /// `None`: nothing is kept across restarts.
    record: Option<PathBuf>,
    /// `None`: there were no manifests.
    folder: Option<Identity>,
}

impl Trusted {
    /// As an earlier life left it.
    pub(super) fn load(record: PathBuf) -> Self {
        let text = fs::read_to_string(&record).unwrap_or_default();
        let folder = text.trim().split_once(' ');
        let folder = folder.and_then(|(dev, ino)| Some((dev.parse().ok()?, ino.parse().ok()?)));
        Self { record: Some(record), folder }
    }

    /// Manifests were read from another folder than this.
    pub(super) fn is_another(&self, found: Identity) -> bool {
        self.folder.is_some_and(|folder| folder != found)
    }

    /// The manifests are of this folder now; `None`: there are none.
    pub(super) fn is(&mut self, folder: Option<Identity>) {
        if self.folder == folder {
            return;
        }
        self.folder = folder;
        let Some(record) = &self.record else { return };
        let written = match folder {
            Some((dev, ino)) => {
                let new = record.with_extension("new");
                fs::write(&new, format!("{dev} {ino}\n")).and_then(|()| fs::rename(&new, record))
            }
            None => fs::remove_file(record),
        };
        if let Err(error) = written {
            log::debug!("path={} not written: {error}", record.display());
        }
    }
}
