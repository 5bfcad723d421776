//! Files that change atomically (spec section 4.5):
//!
//! ```text
//! <volume>/..2026_11_21_19_51_10.0a1b2c3d/dir/file
//! <volume>/..data ─▶ ..2026_11_21_19_51_10.0a1b2c3d
//! <volume>/dir    ─▶ ..data/dir
//! ```
//!
//! New files are written beside the old ones; then a rename replaces `..data`, which changes all of
//! them at one moment. A program that has the old folder open continues to read consistent
//! files. A crash leaves folders without a link: the next write removes
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstatat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::super::{Component, Failure, pod_dir, tree};
use super::{Access, give};
use crate::io::clock;
use crate::model::job::FileEntry;
use crate::model::time::Timestamp;

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";
/// Bytes of one path below a volume, the kubelet's limit.
const PATH_BYTES_MAX: usize = 4_096;

type Wanted<'a> = BTreeMap<&'a str, &'a FileEntry>;

/// Replaces the files of the volume by these, if they differ.
pub(super) fn write(
    volume: BorrowedFd<'_>,
    files: &[FileEntry],
    group: Option<u32>,
) -> Result<(), Failure> {
    // The later of two wins, as in a projected volume.
    let wanted: Wanted<'_> = files.iter().map(|file| (&*file.path, file)).collect();
    wanted.keys().try_for_each(|path| check(path))?;
    let current = current(volume);
    let unchanged = current.as_ref().is_some_and(|(_, dir)| has_exactly(dir.as_fd(), &wanted));
    if !unchanged {
        let name = new_name();
        let name = Component::new(&name)?;
        let dir = tree::make_dir(volume, name, Mode::from_bits_truncate(0o755))?;
        fill(dir.as_fd(), &wanted, group)?;
        switch(volume, name)?;
    }
    let tops: BTreeSet<&str> = wanted.keys().map(|path| top(path)).collect();
    link(volume, &tops)?;
    sweep(volume, &tops)
}

/// Paths of the spec were validated before; keys of objects become paths unchanged.
fn check(path: &str) -> Result<(), Failure> {
    let sound = path.len() <= PATH_BYTES_MAX && !path.starts_with("..");
    if !sound {
        return Err(Failure(format!("got the path {path:?}, expected one below the volume")));
    }
    path.split('/').try_for_each(|part| Component::new(part).map(drop))
}

fn top(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// The target of `..data`: its name, opened.
fn current(volume: BorrowedFd<'_>) -> Option<(OsString, OwnedFd)> {
    let name = readlinkat(volume, DATA).ok()?;
    let dir = tree::existing_dir(volume, Component::new(&name).ok()?).ok()??;
    Some((name, dir))
}

/// Whether the folder has exactly these files with this content. A change of modes alone is
/// ignored, as in the kubelet.
fn has_exactly(dir: BorrowedFd<'_>, wanted: &Wanted<'_>) -> bool {
    let mut found = BTreeSet::new();
    list(dir, "", &mut found).is_ok()
        && found.len() == wanted.len()
        && wanted.iter().all(|(path, file)| found.contains(*path) && is_same(dir, path, file))
}

fn is_same(dir: BorrowedFd<'_>, path: &str, file: &FileEntry) -> bool {
    let Ok(file_fd) = open_file(dir, path) else { return false };
    let mut there = Vec::new();
    let limit = file.content.0.len() as u64 + 1;
    File::from(file_fd).take(limit).read_to_end(&mut there).is_ok() && *there == *file.content.0
}

fn open_file(dir: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Failure> {
    let (inner, name) = parent(dir, path)?;
    let dir = inner.as_ref().map_or(dir, AsFd::as_fd);
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(dir, name.as_os_str(), flags, Mode::empty())
        .map_err(|errno| Failure::at("open", path, errno))
}

/// The parent folder of a path, made if it is absent; `None`: `dir` itself.
fn parent<'a>(
    dir: BorrowedFd<'_>,
    path: &'a str,
) -> Result<(Option<OwnedFd>, Component<'a>), Failure> {
    let mut inner = None::<OwnedFd>;
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    for part in folders.split('/').filter(|part| !part.is_empty()) {
        let above = inner.as_ref().map_or(dir, AsFd::as_fd);
        let mode = Mode::from_bits_truncate(0o755);
        inner = Some(tree::make_dir(above, Component::new(part)?, mode)?);
    }
    Ok((inner, Component::new(name)?))
}

fn list(dir: BorrowedFd<'_>, before: &str, found: &mut BTreeSet<String>) -> Result<(), Failure> {
    for name in pod_dir::names(dir)? {
        let path = format!("{before}{}", name.to_string_lossy());
        let name = Component::new(&name)?;
        if is_kind(dir, name, SFlag::S_IFDIR) {
            let inner = tree::existing_dir(dir, name)?;
            let inner = inner.ok_or_else(|| Failure(format!("{path} is gone")))?;
            list(inner.as_fd(), &format!("{path}/"), found)?;
        } else {
            found.insert(path);
        }
    }
    Ok(())
}

fn is_kind(dir: BorrowedFd<'_>, name: Component<'_>, kind: SFlag) -> bool {
    fstatat(dir, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| stat.st_mode & SFlag::S_IFMT.bits() == kind.bits())
}

/// `..2026_11_21_19_51_10.<random>`
fn new_name() -> OsString {
    let seconds = clock::now().wall.map_or(0, |wall| wall.0.div_euclid(1000));
    let time = Timestamp(seconds).to_string().replace(['-', 'T', ':'], "_").replace('Z', "");
    format!("..{time}.{:08x}", clock::seed() as u32).into()
}

fn fill(dir: BorrowedFd<'_>, wanted: &Wanted<'_>, group: Option<u32>) -> Result<(), Failure> {
    for (path, file) in wanted {
        let failed = |what, errno| Failure::at(what, path, errno);
        let (inner, name) = parent(dir, path)?;
        let above = inner.as_ref().map_or(dir, AsFd::as_fd);
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let made = openat(above, name.as_os_str(), flags, Mode::from_bits_truncate(0o600))
            .map_err(|errno| failed("create", errno))?;
        let mut made = File::from(made);
        made.write_all(&file.content.0)
            .map_err(|error| Failure(format!("write {path}: {error}")))?;
        let mode = Mode::from_bits_truncate(file.mode & 0o7777);
        fchmod(made.as_fd(), mode).map_err(|errno| failed("chmod", errno))?;
        give(made.as_fd(), group, Access::Read)?;
    }
    give_folders(dir, group)
}

/// Changes the group of every folder, the deepest first.
fn give_folders(dir: BorrowedFd<'_>, group: Option<u32>) -> Result<(), Failure> {
    if group.is_none() {
        return Ok(());
    }
    for name in pod_dir::names(dir)? {
        let name = Component::new(&name)?;
        if is_kind(dir, name, SFlag::S_IFDIR)
            && let Some(inner) = tree::existing_dir(dir, name)?
        {
            give_folders(inner.as_fd(), group)?;
        }
    }
    give(dir, group, Access::Read)
}

/// The rename that changes all files at one moment.
fn switch(volume: BorrowedFd<'_>, to: Component<'_>) -> Result<(), Failure> {
    let failed = |what, errno| Failure::at(what, DATA_NEW, errno);
    match unlinkat(volume, DATA_NEW, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(failed("unlink", errno)),
    }
    symlinkat(to.as_os_str(), volume, DATA_NEW).map_err(|errno| failed("symlink", errno))?;
    renameat(volume, DATA_NEW, volume, DATA).map_err(|errno| failed("rename", errno))
}

/// Makes the names that containers read.
fn link(volume: BorrowedFd<'_>, tops: &BTreeSet<&str>) -> Result<(), Failure> {
    for name in tops {
        let to = format!("{DATA}/{name}");
        match symlinkat(to.as_str(), volume, *name) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(Failure::at("symlink", *name, errno)),
        }
    }
    Ok(())
}

/// Removes the links of files that are gone, and the folders without a link.
fn sweep(volume: BorrowedFd<'_>, tops: &BTreeSet<&str>) -> Result<(), Failure> {
    let current = readlinkat(volume, DATA).unwrap_or_default();
    for name in pod_dir::names(volume)? {
        let bytes = name.as_bytes();
        if name == DATA || name == current {
            continue;
        }
        let component = Component::new(&name)?;
        if bytes.starts_with(b"..") {
            tree::remove(volume, component)?;
            continue;
        }
        let wanted = name.to_str().is_some_and(|name| tops.contains(name));
        let ours = readlinkat(volume, component.as_os_str())
            .is_ok_and(|to| OsStr::as_bytes(&to).starts_with(b"..data/"));
        if ours && !wanted {
            tree::remove(volume, component)?;
        }
    }
    Ok(())
}
