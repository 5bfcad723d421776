//! Local volumes: folders of the node that are mounted below the pod's, and stay when it goes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown, lchown};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::super::{Component, Failure, pod_dir, tree};
use super::{Access, give, make_plugin, mount, open_pod};
use crate::limits::REMOVE_DEPTH_MAX;
use crate::model::job::VolumeSetUp;

const PLUGIN: &str = "kubernetes.io~local-volume";

/// Mounts the folder, if it is not mounted, and changes it to the pod's group.
pub(super) fn set_up(
    pods: BorrowedFd<'_>,
    wanted: &VolumeSetUp,
    path: &str,
    if_needed: bool,
) -> Result<(), Failure> {
    let pod = open_pod(pods, &wanted.uid)?;
    let plugin = make_plugin(pod.as_fd(), PLUGIN)?;
    let name = Component::new(wanted.folder.as_ref())?;
    tree::make_place(plugin.as_fd(), name, Mode::from_bits_truncate(0o750))?;
    let place = mount::at(plugin.as_fd(), name)?;
    if !mount::is_mounted(plugin.as_fd(), place.as_fd()) {
        let from = source(path)?;
        mount::bind(from.as_fd(), place.as_fd())
            .map_err(|errno| Failure::at("bind", path, errno))?;
    }
    let Some(group) = wanted.fs_group else { return Ok(()) };
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let root = openat(plugin.as_fd(), name.as_os_str(), flags, Mode::empty())
        .map_err(|errno| Failure::at("open", name.as_os_str(), errno))?;
    if if_needed && is_given(root.as_fd(), group)? {
        return Ok(());
    }
    give_all(root.as_fd(), group, 0)
}

/// The path is configured on the node: links in it are followed.
fn source(path: &str) -> Result<OwnedFd, Failure> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(Path::new(path), flags, Mode::empty()).map_err(|errno| match errno {
        Errno::ENOENT => Failure(format!("path {path:?} does not exist")),
        Errno::ENOTDIR => Failure(format!("path {path:?} is not a directory")),
        errno => Failure::at("open", path, errno),
    })
}

/// Whether the root of the volume shows that all of it was changed to the group before.
fn is_given(root: BorrowedFd<'_>, group: u32) -> Result<bool, Failure> {
    let stat = fstat(root).map_err(|errno| Failure::at("stat", ".", errno))?;
    let bits = 0o2770;
    Ok(stat.st_gid == group && stat.st_mode & bits == bits)
}

/// Changes the content first, then the root, so that the root shows that all is done. Links are
/// changed and not followed, mounts not entered (spec section 4.6).
fn give_all(dir: BorrowedFd<'_>, group: u32, depth: usize) -> Result<(), Failure> {
    if depth >= REMOVE_DEPTH_MAX {
        return Err(Failure(format!("got a tree deeper than {REMOVE_DEPTH_MAX} folders")));
    }
    for name in pod_dir::names(dir)? {
        let name = Component::new(&name)?;
        let failed = |what, errno| Failure::at(what, name.as_os_str(), errno);
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let one = match openat(dir, name.as_os_str(), flags, Mode::empty()) {
            Ok(one) => one,
            Err(Errno::ENOENT) => continue,
            Err(errno) => return Err(failed("open", errno)),
        };
        let stat = fstat(&one).map_err(|errno| failed("stat", errno))?;
        let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        if kind == SFlag::S_IFDIR {
            // Otherwise it was removed, or is another mount.
            if let Ok(Some(below)) = tree::existing_dir(dir, name) {
                give_all(below.as_fd(), group, depth + 1)?;
            }
        } else if kind == SFlag::S_IFLNK {
            let link =
                Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name.as_os_str());
            lchown(link, None, Some(group))
                .map_err(|error| Failure(format!("chown {name}: {error}")))?;
        } else {
            give_file(one.as_fd(), stat.st_mode, group)?;
        }
    }
    give(dir, Some(group), Access::Write)
}

/// Through the handle, whatever its name is now. With O_PATH, so pipes and devices do not block.
fn give_file(one: BorrowedFd<'_>, mode: libc::mode_t, group: u32) -> Result<(), Failure> {
    let path = format!("/proc/self/fd/{}", one.as_raw_fd());
    let failed = |what: &str, error: std::io::Error| Failure(format!("{what}: {error}"));
    chown(&path, None, Some(group)).map_err(|error| failed("chown", error))?;
    let mode = (mode & 0o7777) | 0o660;
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(&path, permissions).map_err(|error| failed("chmod", error))
}
