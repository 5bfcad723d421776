//! The pods' folders below the kubelet's root, in the kubelet's layout (spec section 4.1):
//!
//! ```text
//! <root>/pods/<uid>/                         0750
//!   containers/<container>/                  0750
//!   volumes/kubernetes.io~<plugin>/<volume>/
//!   plugins/kubernetes.io~<plugin>/<volume>/ready
//!   volume-subpaths/<volume>/<container>/<index>
//! ```
//!
//! A mount below such a folder is never entered: the volumes' mount points are unmounted first, and
//! any other mount makes the removal fail.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{Component, Failure, tree};
use crate::limits::{LOG_DIRS_MAX, MOUNTS_STACKED_MAX, REMOVE_AT_ONCE_MAX};

/// Volumes whose content is the agent's own or lives no longer than the pod: they are removed with
/// it. Of all other volumes only an empty folder is removed.
const OWN: [&[u8]; 5] = [
    b"kubernetes.io~configmap",
    b"kubernetes.io~downward-api",
    b"kubernetes.io~empty-dir",
    b"kubernetes.io~projected",
    b"kubernetes.io~secret",
];

/// Volumes that are mounts of data that stays.
const MOUNTED: [&[u8]; 1] = [b"kubernetes.io~local-volume"];

/// The same for data on another machine, which may not answer any more.
const REMOTE: &[u8] = b"kubernetes.io~nfs";

/// Makes the pod's folder, which is the result, and the folders that are always in it.
pub(super) fn make(
    pods: BorrowedFd<'_>,
    uid: &str,
    containers: &[Box<str>],
) -> Result<OwnedFd, Failure> {
    let mode = Mode::from_bits_truncate(0o750);
    let pod = tree::make_dir(pods, Component::new(uid)?, mode)?;
    for name in ["volumes", "plugins"] {
        tree::make_dir(pod.as_fd(), Component::new(name)?, mode)?;
    }
    let dir = tree::make_dir(pod.as_fd(), Component::new("containers")?, mode)?;
    for container in containers {
        tree::make_dir(dir.as_fd(), Component::new(container.as_ref())?, mode)?;
    }
    Ok(pod)
}

/// The uids of the pods that have a folder: other names are ignored.
pub(super) fn uids(pods: BorrowedFd<'_>) -> Result<Vec<String>, Failure> {
    let failed = |errno| Failure::at("readdir", "the pods' folders", errno);
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut found = Vec::new();
    for entry in Dir::openat(pods, ".", flags, Mode::empty()).map_err(failed)?.iter() {
        let entry = entry.map_err(failed)?;
        let is_dir = matches!(entry.file_type(), Some(Type::Directory) | None);
        let name = entry.file_name().to_str().ok().filter(|name| is_uid(name));
        found.extend(name.filter(|_| is_dir).map(str::to_owned));
        if found.len() == LOG_DIRS_MAX {
            break;
        }
    }
    Ok(found)
}

/// Whether a name may be the uid of one of our pods: `[0-9a-z-]{1,64}`.
pub(super) fn is_uid(name: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

/// Unmounts the volumes, and removes the pod's folder with its content.
pub(super) fn remove(pods: BorrowedFd<'_>, uid: &str) -> Result<(), Failure> {
    let uid = Component::new(uid)?;
    let Some(pod) = tree::existing_dir(pods, uid)? else { return Ok(()) };
    remove_volumes(pod.as_fd())?;
    tree::remove(pods, uid)
}

/// Unmounts and removes the volumes of a pod.
pub(super) fn tear_down(pods: BorrowedFd<'_>, uid: &str) -> Result<(), Failure> {
    match tree::existing_dir(pods, Component::new(uid)?)? {
        Some(pod) => remove_volumes(pod.as_fd()),
        None => Ok(()),
    }
}

/// Whether the pod has no volumes on the disk.
pub(super) fn is_bare(pods: BorrowedFd<'_>, uid: &str) -> Result<bool, Failure> {
    let Some(pod) = tree::existing_dir(pods, Component::new(uid)?)? else { return Ok(true) };
    for name in ["volume-subpaths", "volumes"] {
        let dir = tree::existing_dir(pod.as_fd(), Component::new(name)?)?;
        if let Some(dir) = dir
            && !names(dir.as_fd())?.is_empty()
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the folder of a pod without volumes, within a small budget; returns whether nothing is
/// left.
pub(super) fn remove_small(pods: BorrowedFd<'_>, uid: &str) -> Result<bool, Failure> {
    if !is_bare(pods, uid)? {
        return Ok(false);
    }
    tree::remove_some(pods, Component::new(uid)?, REMOVE_AT_ONCE_MAX)
}

/// Unmounts and removes the volumes of a pod, the mount points of its sub-paths first. A failure
/// does not stop the others.
pub(super) fn remove_volumes(pod: BorrowedFd<'_>) -> Result<(), Failure> {
    let mut failures = Vec::new();
    let name = Component::new("volume-subpaths")?;
    if let Some(subpaths) = tree::existing_dir(pod, name)? {
        each_dir(subpaths.as_fd(), &mut failures, |volume, _, failures| {
            each_dir(volume, failures, |container, _, failures| {
                each(container, failures, |index| {
                    unmount(container, index)?;
                    remove_empty(container, index)
                });
            });
        });
        if failures.is_empty() {
            tree::remove(pod, name)?;
        }
    }
    if let Some(volumes) = tree::existing_dir(pod, Component::new("volumes")?)? {
        each_dir(volumes.as_fd(), &mut failures, |plugin, kind, failures| {
            each(plugin, failures, |volume| remove_volume(plugin, kind, volume));
        });
    }
    if failures.is_empty() {
        return tree::remove(pod, Component::new("volumes")?)
            .and_then(|()| tree::remove(pod, Component::new("plugins")?));
    }
    Err(Failure(failures.join("; ")))
}

fn remove_volume(
    plugin: BorrowedFd<'_>,
    kind: Component<'_>,
    volume: Component<'_>,
) -> Result<(), Failure> {
    let named = kind.as_os_str().as_bytes();
    let with_name = |failure: Failure| Failure(format!("{kind}/{volume}: {}", failure.0));
    if OWN.contains(&named) {
        unmount(plugin, volume).and_then(|()| tree::remove(plugin, volume)).map_err(with_name)
    } else if named == REMOTE {
        unmount_remote(plugin, volume)
            .and_then(|()| remove_empty(plugin, volume))
            .map_err(with_name)
    } else if MOUNTED.contains(&named) {
        unmount(plugin, volume).and_then(|()| remove_empty(plugin, volume)).map_err(with_name)
    } else {
        // Of another program: a driver's data may be below.
        remove_empty(plugin, volume).map_err(with_name)
    }
}

/// As [`unmount`], but without blocking: data that is not sent yet to the other machine is lost,
/// and if that fails the mount is detached lazily. No container of the pod runs any more.
fn unmount_remote(dir: BorrowedFd<'_>, name: Component<'_>) -> Result<(), Failure> {
    unmount_with(dir, name, MntFlags::MNT_FORCE)
        .or_else(|_| unmount_with(dir, name, MntFlags::MNT_DETACH))
}

/// Removes every mount on this mount point. None is fine.
pub(super) fn unmount(dir: BorrowedFd<'_>, name: Component<'_>) -> Result<(), Failure> {
    unmount_with(dir, name, MntFlags::empty())
}

fn unmount_with(dir: BorrowedFd<'_>, name: Component<'_>, flags: MntFlags) -> Result<(), Failure> {
    // The path starts at the handle, so that no link can be put into it; for the last component the
    // kernel is told not to follow one.
    let path = [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), bytes(name)].concat();
    let path = OsString::from(OsStr::from_bytes(&path));
    // The last pass finds that there is none.
    for _ in 0..=MOUNTS_STACKED_MAX {
        match umount2(path.as_os_str(), MntFlags::UMOUNT_NOFOLLOW | flags) {
            Ok(()) => {}
            // Not mounted, or absent. A process that may not unmount has not mounted either, and a
            // remaining mount is not entered.
            Err(Errno::EINVAL | Errno::ENOENT | Errno::EPERM) => return Ok(()),
            Err(errno) => return Err(Failure::at("umount", name.as_os_str(), errno)),
        }
    }
    Err(Failure(format!("umount {name}: got more than {MOUNTS_STACKED_MAX} mounts on it")))
}

/// Removes a file or an empty folder.
fn remove_empty(dir: BorrowedFd<'_>, name: Component<'_>) -> Result<(), Failure> {
    match unlinkat(dir, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EISDIR | Errno::EPERM) => {}
        Err(errno) => return Err(Failure::at("unlink", name.as_os_str(), errno)),
    }
    match unlinkat(dir, name.as_os_str(), UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(Failure::at("rmdir", name.as_os_str(), errno)),
    }
}

/// Runs this for each entry of a folder; failures are collected.
fn each(
    dir: BorrowedFd<'_>,
    failures: &mut Vec<String>,
    act: impl Fn(Component<'_>) -> Result<(), Failure>,
) {
    match names(dir) {
        Ok(names) => {
            for name in &names {
                let done = Component::new(name).and_then(&act);
                failures.extend(done.err().map(|failure| failure.0));
            }
        }
        Err(failure) => failures.push(failure.0),
    }
}

/// Runs this for each folder in a folder, opened.
fn each_dir(
    dir: BorrowedFd<'_>,
    failures: &mut Vec<String>,
    act: impl Fn(BorrowedFd<'_>, Component<'_>, &mut Vec<String>),
) {
    let names = names(dir).unwrap_or_else(|failure| {
        failures.push(failure.0);
        Vec::new()
    });
    for name in &names {
        let opened =
            Component::new(name).and_then(|name| Ok((name, tree::existing_dir(dir, name)?)));
        match opened {
            Ok((name, Some(inner))) => act(inner.as_fd(), name, failures),
            Ok((_, None)) => {}
            Err(failure) => failures.push(failure.0),
        }
    }
}

/// The names in a folder.
pub(super) fn names(dir: BorrowedFd<'_>) -> Result<Vec<OsString>, Failure> {
    let failed = |errno| Failure::at("readdir", ".", errno);
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut listing = Dir::openat(dir, ".", flags, Mode::empty()).map_err(failed)?;
    let mut names = Vec::new();
    for entry in listing.iter() {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

fn bytes(name: Component<'_>) -> &[u8] {
    name.as_os_str().as_bytes()
}
