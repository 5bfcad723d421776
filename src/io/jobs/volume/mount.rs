//! Mounts: file systems in memory, bind mounts, and the kubelet's root itself.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;

use super::super::{Component, Failure, tree};
use crate::io::mounts;
use crate::model::error::System;

/// Mounts a file system in memory at `name` in `parent`, unless one is there already.
pub(super) fn memory(
    parent: BorrowedFd<'_>,
    name: Component<'_>,
    size_bytes: u64,
) -> Result<(), Failure> {
    let place = at(parent, name)?;
    if is_mounted(parent, place.as_fd()) {
        return Ok(());
    }
    let size = if size_bytes > 0 { format!(",size={size_bytes}") } else { String::new() };
    let options = format!("mode=0777{size}");
    // Secrets in memory must not be written to a swap device; Linux 6.4 supports that.
    let private = format!("{options},noswap");
    match tmpfs(place.as_fd(), &private) {
        Err(Errno::EINVAL) => tmpfs(place.as_fd(), &options),
        done => done,
    }
    .map_err(|errno| Failure::at("mount tmpfs on", name.as_os_str(), errno))
}

fn tmpfs(place: BorrowedFd<'_>, options: &str) -> nix::Result<()> {
    let (source, kind) = (Some("tmpfs"), Some("tmpfs"));
    mount(source, path_of(place).as_str(), kind, MsFlags::empty(), Some(options))
}

/// Bind-mounts a file or folder at another place.
pub(super) fn bind(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> nix::Result<()> {
    let none = None::<&str>;
    mount(Some(path_of(from).as_str()), path_of(to).as_str(), none, MsFlags::MS_BIND, none)
}

/// Opened with O_PATH: nothing behind it is accessed.
pub(super) fn at(parent: BorrowedFd<'_>, name: Component<'_>) -> Result<OwnedFd, Failure> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(parent, name.as_os_str(), flags, Mode::empty())
        .map_err(|errno| Failure::at("open", name.as_os_str(), errno))
}

/// Whether something is mounted at this place in `parent`.
pub(super) fn is_mounted(parent: BorrowedFd<'_>, place: BorrowedFd<'_>) -> bool {
    tree::mount_id(parent) != tree::mount_id(place)
}

/// The path of the handle's file, wherever it is now.
fn path_of(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Makes the kubelet's root a shared mount: containers with mount propagation see what is mounted
/// below it later (spec section 4.1). On most systems all mounts are shared already; under
/// busybox's init none is.
pub(in crate::io) fn share(root: &Path) -> Result<(), System> {
    let root = root.canonicalize().map_err(|error| System::at(root.display(), error))?;
    let table = mounts::table()?;
    let Some(over) = mounts::over(&table, &root) else { return Ok(()) };
    if over.shared {
        return Ok(());
    }
    let none = None::<&str>;
    let failure = |what: &str, errno: Errno| {
        System::at(format_args!("{what} {}", root.display()), errno.desc())
    };
    if Path::new(&*over.point) != root {
        mount(Some(&root), &root, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
            .map_err(|errno| failure("bind", errno))?;
        // Without the mark the mount stays after the end, which does no harm.
        let _ = fs::write(BOUND, root.as_os_str().as_bytes());
    }
    mount(none, &root, none, MsFlags::MS_SHARED | MsFlags::MS_REC, none)
        .map_err(|errno| failure("share", errno))
}

/// Removes that mount at the end, if this or an earlier run made it, and no pod is left
/// that has or may get a mount below it.
pub(in crate::io) fn unshare(root: &Path) {
    let Ok(root) = root.canonicalize() else { return };
    let is_ours = fs::read(BOUND).is_ok_and(|path| path == root.as_os_str().as_bytes());
    let pods = fs::read_dir(root.join("pods")).map_or(0, Iterator::count);
    let table = mounts::table().unwrap_or_default();
    if !is_ours || pods > 0 || mounts::are_below(&table, &root) {
        return;
    }
    // Our own handles on the folder keep it busy; the mount ends with them.
    if umount2(&root, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).is_ok() {
        let _ = fs::remove_file(BOUND);
    }
}

/// Marks a root that was made a mount; the mark is gone with the mount after a reboot.
const BOUND: &str = "/run/edged.bound";

/// Whether the path leads over a file system that may hang.
pub(in crate::io::jobs) fn is_remote(path: &str) -> bool {
    let table = mounts::table().unwrap_or_default();
    mounts::remote(&table, Path::new(path)).is_some()
}
