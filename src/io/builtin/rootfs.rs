//! A container's root file system: its image's layers with a layer of its own over them, by
//! overlayfs. Where the kernel has none, or the file system of DATA cannot bear it, the layers are
//! copied one over the other, which costs their room for each container.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::copy;
use super::layout::Layout;
use crate::io::{mounts, sys};
use crate::limits::MOUNTS_STACKED_MAX;
use crate::model::runtime::{ContainerId, DiffId};

/// The place in a container's folder.
pub const ROOTFS: &str = "rootfs";

/// Mounts it, unless it is mounted. The layers: the lowest first. Changes the current folder.
pub fn mount_all(layout: &Layout, id: &ContainerId, layers: &[DiffId]) -> io::Result<()> {
    let place = layout.container(id).join(ROOTFS);
    fs::create_dir_all(&place)?;
    if is_mounted(&place)? {
        return Ok(());
    }
    let copied = layout.own_layer(id).join("copy");
    if !copied.is_dir() {
        match overlay(layout, id, layers) {
            Ok(()) => return Ok(()),
            // No such file system; not on this one; not with these extended attributes.
            Err(Errno::ENODEV | Errno::EINVAL | Errno::ENOTSUP | Errno::EPERM) => {}
            Err(errno) => return Err(io::Error::other(format!("mount overlay: {errno}"))),
        }
        copy_all(layout, id, layers, &copied)?;
    }
    let none = None::<&str>;
    mount(Some(&copied), &place, none, MsFlags::MS_BIND, none)
        .map_err(|errno| io::Error::other(format!("bind {}: {errno}", copied.display())))
}

/// The options of a mount must fit into one page: names are short links in one folder, and the
/// mount looks them up from there. So no name has a character that would need an escape, either.
fn overlay(layout: &Layout, id: &ContainerId, layers: &[DiffId]) -> Result<(), Errno> {
    let folder = layout.container(id);
    let links = folder.join("l");
    let own = layout.own_layer(id);
    let system = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    let linked = (|| {
        let _ = fs::remove_dir_all(&links);
        fs::create_dir(&links)?;
        for (at, layer) in layers.iter().rev().enumerate() {
            let fs = layout.layer(layer).join("fs");
            std::os::unix::fs::symlink(fs, links.join(at.to_string()))?;
        }
        std::os::unix::fs::symlink(own.join("upper"), links.join("u"))?;
        std::os::unix::fs::symlink(own.join("work"), links.join("w"))?;
        std::env::set_current_dir(&links)
    })();
    linked.map_err(system)?;
    let lower: Vec<String> = (0..layers.len()).map(|at| at.to_string()).collect();
    let lower = lower.join(":");
    let place = folder.join(ROOTFS);
    let mounted = OPTIONS.iter().map(|more| {
        let options = format!("lowerdir={lower},upperdir=u,workdir=w{more}");
        mount(Some("overlay"), &place, Some("overlay"), MsFlags::empty(), Some(&*options))
    });
    // Older kernels do not know all options.
    let mut last = Err(Errno::EINVAL);
    for done in mounted {
        last = done;
        if last != Err(Errno::EINVAL) {
            break;
        }
    }
    let _ = std::env::set_current_dir("/");
    last
}

/// A container is not started twice, so its layer need not outlive a power cut: no syncs.
const OPTIONS: [&str; 3] =
    [",volatile,index=off,metacopy=off,xino=off", ",index=off,metacopy=off,xino=off", ""];

fn copy_all(layout: &Layout, id: &ContainerId, layers: &[DiffId], copied: &Path) -> io::Result<()> {
    let unfinished = layout.tmp().join(format!("{id}.copy"));
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(&unfinished)?,
    }
    for layer in layers {
        copy::layer(&layout.layer(layer).join("fs"), &unfinished)?;
    }
    fs::rename(&unfinished, copied)
}

/// Takes down whatever is mounted there.
pub fn unmount(place: &Path) -> io::Result<()> {
    for _ in 0..MOUNTS_STACKED_MAX {
        // Detached: what is still open in it does not keep it from the name space.
        match umount2(place, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(errno) => {
                return Err(io::Error::other(format!("umount {}: {errno}", place.display())));
            }
        }
    }
    Ok(())
}

fn is_mounted(place: &Path) -> io::Result<bool> {
    let table = sys::kernel_text("/proc/self/mountinfo")?;
    Ok(mounts::over(&table, place).is_some_and(|mount| *mount.point == *place.to_string_lossy()))
}
