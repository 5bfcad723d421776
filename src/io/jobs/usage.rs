//! Measures the disk usage of folders, as `du` does. Runs in a child process,
//! because a folder may have any number of files, and its disk may hang.
//!
//! Links are not followed and mounts not entered: a volume in memory uses no disk. For
//! a tree that is too deep the partial result is returned: too low, but limits still apply to it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};

use super::{Component, Failure, log, tree};
use crate::limits::{REMOVE_DEPTH_MAX, WALK_LINKED_MAX};
use crate::model::job::{FolderKind, Place, Used, Walk};

/// The usage of each place, in their order; `None`: it is absent, or cannot be read.
pub(super) fn measure(root: BorrowedFd<'_>, walk: &Walk) -> Vec<Option<Used>> {
    let one = |place| of_place(root, walk.kind, place).unwrap_or(None);
    walk.places.iter().map(one).collect()
}

/// Of one folder that the built-in runtime made; `None`: it is absent, or cannot be read.
#[cfg(feature = "runtime")]
pub(in crate::io) fn folder_usage(path: &std::path::Path) -> Option<Used> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let dir = nix::fcntl::open(path, flags, Mode::empty()).ok()?;
    let mut count = Count::default();
    count.add(&fstat(dir.as_fd()).ok()?);
    count.walk(dir.as_fd(), path.as_os_str(), 0).ok()?;
    Some(count.used)
}

fn of_place(
    root: BorrowedFd<'_>,
    kind: FolderKind,
    place: &Place,
) -> Result<Option<Used>, Failure> {
    let name = Component::new(place.name.as_ref())?;
    let folder = match kind {
        FolderKind::Volume => {
            let mut dir = tree::existing_dir(root, Component::new(place.pod.uid.as_ref())?)?;
            for step in ["volumes", "kubernetes.io~empty-dir"] {
                let Some(parent) = dir else { return Ok(None) };
                dir = tree::existing_dir(parent.as_fd(), Component::new(step)?)?;
            }
            dir
        }
        FolderKind::Logs => {
            let folder = log::dir_name(&place.pod)?;
            tree::existing_dir(root, Component::new(&folder)?)?
        }
    };
    let Some(parent) = folder else { return Ok(None) };
    let Some(dir) = tree::existing_dir(parent.as_fd(), name)? else { return Ok(None) };
    let mut count = Count::default();
    let stat = fstat(dir.as_fd()).map_err(|errno| Failure::at("stat", name.as_os_str(), errno))?;
    count.add(&stat);
    count.walk(dir.as_fd(), name.as_os_str(), 0)?;
    Ok(Some(count.used))
}

#[derive(Default)]
struct Count {
    used: Used,
    /// Inodes with several names that were counted: all are on one file system.
    linked: BTreeSet<u64>,
}

impl Count {
    #[allow(clippy::unnecessary_cast, reason = "these have 32 bits on some machines, 64 on others")]
    fn add(&mut self, stat: &FileStat) {
        let is_dir = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if !is_dir && stat.st_nlink > 1 {
            let inode = stat.st_ino as u64;
            if self.linked.contains(&inode) {
                return;
            }
            // Beyond the bound such files count once per name: rather too much than too little.
            if self.linked.len() < WALK_LINKED_MAX {
                self.linked.insert(inode);
            }
        }
        let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        self.used = self.used.plus(Used { bytes, inodes: 1 });
    }

    fn walk(&mut self, dir: BorrowedFd<'_>, name: &OsStr, depth: usize) -> Result<(), Failure> {
        if depth >= REMOVE_DEPTH_MAX {
            return Ok(());
        }
        let failed = |errno| Failure::at("readdir", name, errno);
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mut listing = Dir::openat(dir, ".", flags, Mode::empty()).map_err(failed)?;
        let mut folders: Vec<OsString> = Vec::new();
        for entry in listing.iter() {
            let entry = entry.map_err(failed)?;
            let child = OsStr::from_bytes(entry.file_name().to_bytes());
            if matches!(child.as_bytes(), b"." | b"..") {
                continue;
            }
            // It may have been removed since.
            let stat = match fstatat(dir, child, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::ENOENT) => continue,
                Err(errno) => return Err(Failure::at("stat", child, errno)),
            };
            let is_dir = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
            if is_dir || entry.file_type() == Some(Type::Directory) {
                folders.push(child.to_owned());
            } else {
                self.add(&stat);
            }
        }
        for child in &folders {
            // A mount there is not on this disk: `existing_dir` refuses it.
            if let Ok(Some(inner)) = tree::existing_dir(dir, Component::new(child)?) {
                let stat = fstat(inner.as_fd());
                self.add(&stat.map_err(|errno| Failure::at("stat", child, errno))?);
                self.walk(inner.as_fd(), child, depth + 1)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_several_names_counts_once_as_long_as_there_is_room_to_remember_it() {
        let here = std::env::temp_dir();
        let mut stat = nix::sys::stat::stat(&here).expect("it is there");
        stat.st_mode = libc::S_IFREG;
        stat.st_nlink = 2;
        let mut count = Count::default();
        let mut inodes = |inode: usize| {
            stat.st_ino = inode as _;
            for _ in 0..2 {
                count.add(&stat);
            }
            count.used.inodes
        };
        let known: Vec<u64> = (1..=WALK_LINKED_MAX).map(&mut inodes).collect();
        assert_eq!(known.last(), Some(&(WALK_LINKED_MAX as u64)), "each once");
        assert_eq!(inodes(WALK_LINKED_MAX + 1), WALK_LINKED_MAX as u64 + 2, "once for each name");
    }
}
