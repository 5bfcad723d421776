//! A container's root file system: its image's layers with a layer of its own over them, by
//! overlayfs. Where the kernel has none, or the file system of DATA cannot bear it, the layers are
//! copied one over the other, which costs their room for each container.

use std::fs;
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::MsFlags;

use super::layout::Layout;
use super::user_namespace::{self, Users};
use super::{copy, files};
use crate::io::{mounts, sys};
use crate::model::runtime::{ContainerId, DiffId};

/// The place in a container's folder.
pub const ROOTFS: &str = "rootfs";
/// Short names of its layers, in a container's folder.
const LINKS: &str = "l";

/// Mounts it, unless it is mounted. The layers: the lowest first. `users`: whose files these are
/// in the container. Changes the current folder.
pub(super) fn mount_all(
    layout: &Layout,
    id: &ContainerId,
    layers: &[DiffId],
    users: Option<&Users>,
) -> io::Result<()> {
    let place = layout.container(id).join(ROOTFS);
    fs::create_dir_all(&place)?;
    if is_mounted(&place)? {
        return Ok(());
    }
    let copied = layout.own_layer(id).join("copy");
    if !copied.is_dir() {
        match overlay(layout, id, layers, users) {
            Ok(()) => return Ok(()),
            Err(errno) if users.is_some() => {
                let why = format!("mount overlay for a pod with users of its own: {errno}");
                return Err(io::Error::other(why));
            }
            // No such file system; not on this one; not with these extended attributes.
            Err(Errno::ENODEV | Errno::EINVAL | Errno::ENOTSUP | Errno::EPERM) => {}
            Err(errno) => return Err(io::Error::other(format!("mount overlay: {errno}"))),
        }
        copy_all(layout, id, layers, &copied)?;
    }
    files::bind(&copied, &place)
        .map_err(|errno| io::Error::other(format!("bind {}: {errno}", copied.display())))
}

/// The options of a mount must fit into one page: names are short links in one folder, and the
/// mount looks them up from there. So no name has a character that would need an escape, either.
fn overlay(
    layout: &Layout,
    id: &ContainerId,
    layers: &[DiffId],
    users: Option<&Users>,
) -> Result<(), Errno> {
    let folder = layout.container(id);
    let links = folder.join(LINKS);
    let own = layout.own_layer(id);
    let system = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    let linked = (|| {
        let _ = files::remove_tree(&links);
        fs::create_dir(&links)?;
        for (at, layer) in layers.iter().rev().enumerate() {
            let (fs, name) = (layout.layer(layer).join("fs"), links.join(at.to_string()));
            match users {
                Some(users) => users.map_folder(&fs, &name)?,
                None => std::os::unix::fs::symlink(fs, name)?,
            }
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
        let source = Some(Path::new("overlay"));
        files::mount(source, &place, Some("overlay"), MsFlags::empty(), Some(&options))
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
    if users.is_some() {
        // It has copies of these mounts.
        user_namespace::unmap_all(&links).map_err(system)?;
    }
    last
}

/// A container is not started twice, so its layer need not outlive a power cut: no syncs.
const OPTIONS: [&str; 3] =
    [",volatile,index=off,metacopy=off,xino=off", ",index=off,metacopy=off,xino=off", ""];

fn copy_all(layout: &Layout, id: &ContainerId, layers: &[DiffId], copied: &Path) -> io::Result<()> {
    let unfinished = layout.tmp().join(format!("{id}.copy"));
    files::remove_tree(&unfinished)?;
    fs::create_dir_all(&unfinished)?;
    for layer in layers {
        copy::layer(&layout.layer(layer).join("fs"), &unfinished)?;
    }
    fs::rename(&unfinished, copied)
}

/// Takes down what is mounted below a container's folder for its root.
pub(super) fn take_down(container: &Path) -> io::Result<()> {
    user_namespace::unmap_all(&container.join(LINKS))?;
    files::unmount(&container.join(ROOTFS))
}

fn is_mounted(place: &Path) -> io::Result<bool> {
    let table = sys::kernel_text("/proc/self/mountinfo")?;
    Ok(mounts::over(&table, place).is_some_and(|mount| *mount.point == *place.to_string_lossy()))
}
