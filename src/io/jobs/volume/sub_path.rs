//! A part of a volume, mounted by itself (spec section 3.7).
//!
//! Containers write into volumes, so their content is not trusted: a link that leads out of
//! the volume, created a moment before the runtime follows it, would show the node to a container.
//! Here each step is opened with handles that never follow a link. Links are read and
//! resolved here, and may not leave the volume. The result is mounted by its
//! handle at a place that no container can reach, and the runtime gets that place.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, mkdirat};

use super::super::{Component, Failure, pod_dir, tree};
use super::mount;
use crate::limits::LINKS_MAX;
use crate::model::job::SubPath;

pub(super) fn bind(pod: BorrowedFd<'_>, wanted: &SubPath) -> Result<(), Failure> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let volume = open(&*wanted.volume_path, flags, Mode::empty())
        .map_err(|errno| Failure::at("open", &*wanted.volume_path, errno))?;
    let found = resolve(volume, &wanted.path)?;
    let there = stat(found.as_fd())?;
    let mode = Mode::from_bits_truncate(0o750);
    let all = tree::make_dir(pod, Component::new("volume-subpaths")?, mode)?;
    let volume = tree::make_dir(all.as_fd(), Component::new(&*wanted.volume)?, mode)?;
    let parent = tree::make_dir(volume.as_fd(), Component::new(&*wanted.container)?, mode)?;
    let name = wanted.index.to_string();
    let name = Component::new(&name)?;
    if let Ok(place) = mount::at(parent.as_fd(), name)
        && mount::is_mounted(parent.as_fd(), place.as_fd())
    {
        let now = stat(place.as_fd())?;
        if (now.st_dev, now.st_ino) == (there.st_dev, there.st_ino) {
            return Ok(());
        }
    }
    // The file that the last container used was replaced since.
    pod_dir::unmount(parent.as_fd(), name)?;
    let place = make_place(parent.as_fd(), name, is_dir(&there))?;
    mount::bind(found.as_fd(), place.as_fd())
        .map_err(|errno| Failure::at("bind", name.as_os_str(), errno))
}

/// Makes the mount point: a folder for a folder, a file for everything else.
fn make_place(
    parent: BorrowedFd<'_>,
    name: Component<'_>,
    folder: bool,
) -> Result<OwnedFd, Failure> {
    if let Ok(old) = mount::at(parent, name)
        && is_dir(&stat(old.as_fd())?) != folder
    {
        tree::remove(parent, name)?;
    }
    if folder {
        tree::make_place(parent, name, Mode::from_bits_truncate(0o750))?;
    } else {
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(parent, name.as_os_str(), flags, Mode::from_bits_truncate(0o640))
            .map_err(|errno| Failure::at("create", name.as_os_str(), errno))?;
    }
    mount::at(parent, name)
}

/// Resolves `path` inside the volume; missing folders are made.
fn resolve(volume: OwnedFd, path: &str) -> Result<OwnedFd, Failure> {
    let mode = stat(volume.as_fd())?.st_mode & 0o7777;
    let mut way = vec![volume];
    let mut ahead: VecDeque<OsString> = parts(OsStr::new(path));
    let mut links = 0;
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            // Back along our own handles, never by the kernel's `..`.
            way.pop();
            if way.is_empty() {
                return Err(outside(path));
            }
            continue;
        }
        let name = Component::new(&part)?;
        let here = way.last().expect("the volume itself is the first").as_fd();
        let step = match mount::at(here, name) {
            Ok(step) => step,
            Err(_) => make(here, name, mode)?,
        };
        if kind(&stat(step.as_fd())?) != SFlag::S_IFLNK {
            way.push(step);
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Failure::at("open", path, Errno::ELOOP));
        }
        let to = readlinkat(here, name.as_os_str())
            .map_err(|errno| Failure::at("readlink", name.as_os_str(), errno))?;
        if to.as_bytes().starts_with(b"/") {
            return Err(outside(path));
        }
        for part in parts(&to).into_iter().rev() {
            ahead.push_front(part);
        }
    }
    Ok(way.pop().expect("it never gets empty"))
}

fn make(here: BorrowedFd<'_>, name: Component<'_>, mode: u32) -> Result<OwnedFd, Failure> {
    let failed = |what, errno| Failure::at(what, name.as_os_str(), errno);
    // With the permissions of the volume itself, for the pod's group.
    let mode = Mode::from_bits_truncate(mode);
    match mkdirat(here, name.as_os_str(), mode) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(failed("mkdir", errno)),
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let made = openat(here, name.as_os_str(), flags, Mode::empty())
        .map_err(|errno| failed("open", errno))?;
    fchmod(made.as_fd(), mode).map_err(|errno| failed("chmod", errno))?;
    Ok(made)
}

fn parts(path: &OsStr) -> VecDeque<OsString> {
    let parts = path.as_bytes().split(|byte| *byte == b'/');
    let parts = parts.filter(|part| !matches!(*part, b"" | b"."));
    parts.map(|part| OsStr::from_bytes(part).to_owned()).collect()
}

fn outside(path: &str) -> Failure {
    Failure(format!("got {path:?}, expected a path that stays in the volume"))
}

fn stat(fd: BorrowedFd<'_>) -> Result<FileStat, Failure> {
    fstat(fd).map_err(|errno| Failure::at("stat", ".", errno))
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn is_dir(stat: &FileStat) -> bool {
    kind(stat) == SFlag::S_IFDIR
}
