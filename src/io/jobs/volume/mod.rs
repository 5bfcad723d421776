//! Sets up volumes below the pod's folder, in the kubelet's layout.
//!
//! ```text
//! <root>/pods/<uid>/volumes/kubernetes.io~<plugin>/<volume>/
//! <root>/pods/<uid>/plugins/kubernetes.io~empty-dir/[wrapped_]<volume>/ready
//! <root>/pods/<uid>/volume-subpaths/<volume>/<container>/<index>
//! ```
//!
//! Everything here can be repeated and uses what exists: after a crash the same agent, or another
//! one, continues. Not here: tearing down ([`super::pod_dir`]).

mod files;
mod host_path;
mod local;
mod mount;
mod nfs;
mod sub_path;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::fchown;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod, fstat};

use super::{Component, Failure, tree};
use crate::model::job::{Files, Medium, Source, SubPath, VolumeSetUp};

pub(super) use mount::is_remote;
pub(in crate::io) use mount::{share, unshare};

const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
/// The size of volumes that do not specify one: enough for the content of a ConfigMap or Secret.
const VOLUME_MODE: u32 = 0o777;

/// Sets up a volume.
pub(super) fn set_up(pods: BorrowedFd<'_>, wanted: &VolumeSetUp) -> Result<(), Failure> {
    match &wanted.source {
        Source::EmptyDir(medium) => empty_dir(pods, wanted, *medium),
        Source::HostPath { path, kind } => host_path::check(path, *kind),
        Source::Files(files) => set_up_files(pods, wanted, files),
        Source::Local { path, if_needed } => local::set_up(pods, wanted, path, *if_needed),
        Source::Nfs { server, path, read_only, options } => {
            let export = nfs::Export { server, path, read_only: *read_only, options };
            nfs::set_up(pods, wanted, &export)
        }
    }
}

/// Mounts a part of a volume (`subPath`).
pub(super) fn bind_sub_path(pods: BorrowedFd<'_>, wanted: &SubPath) -> Result<(), Failure> {
    let pod = open_pod(pods, &wanted.uid)?;
    sub_path::bind(pod.as_fd(), wanted)
}

fn empty_dir(pods: BorrowedFd<'_>, wanted: &VolumeSetUp, medium: Medium) -> Result<(), Failure> {
    let pod = open_pod(pods, &wanted.uid)?;
    let plugin = make_plugin(pod.as_fd(), EMPTY_DIR)?;
    let volume = place(plugin.as_fd(), &wanted.folder, medium)?;
    give(volume.as_fd(), wanted.fs_group, Access::Write)?;
    mark_ready(pod.as_fd(), &wanted.folder)
}

fn set_up_files(pods: BorrowedFd<'_>, wanted: &VolumeSetUp, files: &Files) -> Result<(), Failure> {
    let pod = open_pod(pods, &wanted.uid)?;
    let plugin = make_plugin(pod.as_fd(), files.plugin.folder())?;
    let medium = match files.memory_bytes {
        Some(size_bytes) => Medium::Memory { size_bytes },
        None => Medium::Disk,
    };
    let volume = place(plugin.as_fd(), &wanted.folder, medium)?;
    for nested in &wanted.nested {
        make_nested(volume.as_fd(), nested)?;
    }
    files::write(volume.as_fd(), &files.files, wanted.fs_group)?;
    give(volume.as_fd(), wanted.fs_group, Access::Read)?;
    mark_ready(pod.as_fd(), &format!("wrapped_{}", wanted.folder))
}

fn open_pod(pods: BorrowedFd<'_>, uid: &str) -> Result<OwnedFd, Failure> {
    tree::make_dir(pods, Component::new(uid)?, Mode::from_bits_truncate(0o750))
}

fn make_plugin(pod: BorrowedFd<'_>, plugin: &str) -> Result<OwnedFd, Failure> {
    let mode = Mode::from_bits_truncate(0o750);
    let volumes = tree::make_dir(pod, Component::new("volumes")?, mode)?;
    tree::make_dir(volumes.as_fd(), Component::new(plugin)?, mode)
}

/// The volume's own folder, mounted if it is in memory; opened.
fn place(plugin: BorrowedFd<'_>, folder: &str, medium: Medium) -> Result<OwnedFd, Failure> {
    let name = Component::new(folder)?;
    let mode = Mode::from_bits_truncate(VOLUME_MODE);
    match medium {
        Medium::Disk => tree::make_dir(plugin, name, mode),
        Medium::Memory { size_bytes } => {
            tree::make_place(plugin, name, mode)?;
            mount::memory(plugin, name, size_bytes)?;
            let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
            openat(plugin, name.as_os_str(), flags, Mode::empty())
                .map_err(|errno| Failure::at("open", name.as_os_str(), errno))
        }
    }
}

/// Marks the volume for another kubelet, which checks whether it must be mounted again.
fn mark_ready(pod: BorrowedFd<'_>, name: &str) -> Result<(), Failure> {
    let mode = Mode::from_bits_truncate(0o750);
    let plugins = tree::make_dir(pod, Component::new("plugins")?, mode)?;
    let plugin = tree::make_dir(plugins.as_fd(), Component::new(EMPTY_DIR)?, mode)?;
    let dir = tree::make_dir(plugin.as_fd(), Component::new(name)?, mode)?;
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = openat(dir.as_fd(), "ready", flags, Mode::from_bits_truncate(0o644));
    made.map(drop).map_err(|errno| Failure::at("open", "ready", errno))
}

/// A folder inside a volume, as the mount point of another volume.
fn make_nested(volume: BorrowedFd<'_>, path: &str) -> Result<(), Failure> {
    let mode = Mode::from_bits_truncate(0o755);
    let mut dir = None::<OwnedFd>;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let parent = dir.as_ref().map_or(volume, AsFd::as_fd);
        // It may be one of the volume's files: then nothing must be made.
        let Ok(next) = tree::make_dir(parent, Component::new(part)?, mode) else { return Ok(()) };
        dir = Some(next);
    }
    Ok(())
}

/// The permissions of the pod's group on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// Changes a file or folder to the group, with the mode bits for access (spec section 4.6).
fn give(fd: BorrowedFd<'_>, group: Option<u32>, access: Access) -> Result<(), Failure> {
    let Some(group) = group else { return Ok(()) };
    let failed = |what, errno| Failure::at(what, ".", errno);
    let stat = fstat(fd).map_err(|errno| failed("stat", errno))?;
    let is_dir = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let bits = match access {
        Access::Read => 0o440,
        Access::Write => 0o660,
    };
    let bits = if is_dir { bits | 0o2110 } else { bits };
    let (old, new) = (stat.st_mode & 0o7777, (stat.st_mode & 0o7777) | bits);
    if stat.st_gid != group {
        fchown(fd, None, Some(group))
            .map_err(|error| Failure(format!("chown to group {group}: {error}")))?;
    }
    // A change of owner may have removed bits.
    if old != new || stat.st_gid != group {
        fchmod(fd, Mode::from_bits_truncate(new)).map_err(|errno| failed("chmod", errno))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
