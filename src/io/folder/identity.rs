//! Which folder the manifests were read from, by device and inode.
//!
//! An empty folder means that no pod is wanted only if it is the folder that had the manifests
//! before. Another one may be the mount point of a partition that is not mounted. A file in the
//! root directory stores the identity across restarts, while there are manifests to lose.
//!
//! If we crash here the file is unchanged or absent: without it any folder is trusted.

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

/// The folder to which the manifests belong.
#[derive(Debug, Default)]
pub(super) struct Trusted {
    /// `None`: nothing is stored across restarts.
    record: Option<PathBuf>,
    /// `None`: there were no manifests.
    folder: Option<Identity>,
}

impl Trusted {
    /// Reads what an earlier run stored.
    pub(super) fn load(record: PathBuf) -> Self {
        let text = fs::read_to_string(&record).unwrap_or_default();
        let folder = text.trim().split_once(' ');
        let folder = folder.and_then(|(dev, ino)| Some((dev.parse().ok()?, ino.parse().ok()?)));
        Self { record: Some(record), folder }
    }

    /// Whether the manifests were read from another folder than this.
    pub(super) fn is_another(&self, found: Identity) -> bool {
        self.folder.is_some_and(|folder| folder != found)
    }

    /// Sets the folder to which the manifests belong; `None`: there are no manifests.
    pub(super) fn set(&mut self, folder: Option<Identity>) {
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
