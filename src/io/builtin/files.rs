//! Small files of the built-in runtime: read up to a bound, and replaced as a whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, umount2};

use crate::io::jobs;
use crate::limits::{MONITOR_FACT_BYTES_MAX, MOUNTS_STACKED_MAX};
use crate::model::error::{Peer, System};

/// The whole file; of a longer one than so many bytes, one byte more than that.
pub(super) fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file that a monitor wrote; `None`: there is none, or it is not of its form, which is logged.
pub(super) fn read_text<T>(path: &Path, decode: fn(&[u8]) -> Result<T, Peer>) -> Option<T> {
    let bytes = read(path, MONITOR_FACT_BYTES_MAX).ok()?;
    decode(&bytes).inspect_err(|why| log::warn!("{}: {why}", path.display())).ok()
}

/// Writes it anew, readable for all, whatever the umask.
pub(super) fn write_public(path: &Path, bytes: &[u8]) -> Result<(), System> {
    let failed = |error: io::Error| at("write", path, &error);
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o644).open(path);
    let mut file = opened.map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed)
}

/// Writes it beside, for root only, and renames it. It is not synced.
pub(super) fn replace(tmp: &Path, path: &Path, bytes: &[u8]) -> Result<(), System> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(tmp);
    let written = opened.and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| at("write", tmp, &error))?;
    fs::rename(tmp, path).map_err(|error| at("rename", path, &error))
}

/// Removes a file or an empty folder; absent is removed.
pub(super) fn remove(path: &Path) -> Result<(), System> {
    let removed = match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::IsADirectory => fs::remove_dir(path),
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at("remove", path, &error)),
        _ => Ok(()),
    }
}

/// Removes a file, or a folder with all that is in it. Follows no links and enters no mounts;
/// absent is fine.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("got a root to remove"));
    };
    match File::open(parent) {
        Ok(parent) => jobs::remove_tree(parent.as_fd(), name).map_err(io::Error::other),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes down whatever is mounted there.
pub(super) fn unmount(place: &Path) -> io::Result<()> {
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

/// Makes a folder for root only, and those above it.
pub(super) fn make_dir(path: &Path) -> Result<(), System> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| at("mkdir", path, &error))
}

/// What is in a folder, by name; nothing where it cannot be read.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        names.extend(entry.file_name().into_string());
    }
    names
}

/// Those of its names that are numbers: processes of `/proc`, descriptors of one of them.
pub(super) fn numbers(folder: &str) -> Vec<i32> {
    names(Path::new(folder)).iter().filter_map(|name| name.parse().ok()).collect()
}

/// mount(2)
pub(super) fn mount(
    source: Option<&Path>,
    place: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    options: Option<&str>,
) -> nix::Result<()> {
    nix::mount::mount(source, place, kind, flags, options)
}

/// Shows what is at `source` at another place as well.
pub(super) fn bind(source: &Path, place: &Path) -> nix::Result<()> {
    mount(Some(source), place, None, MsFlags::MS_BIND, None)
}

/// `what path: error`
pub(super) fn at(what: &str, path: &Path, error: &io::Error) -> System {
    System::at(format_args!("{what} {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_one_byte_more_than_its_bound() {
        let top = std::env::temp_dir().join(format!("edged-files-{}", std::process::id()));
        let (tmp, path) = (top.join("tmp/x"), top.join("deep/x"));
        make_dir(&top.join("tmp")).expect("a folder of ours");
        make_dir(&top.join("deep")).expect("a folder of ours");
        replace(&tmp, &path, b"0123456789").expect("ours");
        assert_eq!(read(&path, 10).expect("it is there"), b"0123456789");
        assert_eq!(read(&path, 4).expect("it is there"), b"01234");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!((mode(&path) & 0o777, mode(&top) & 0o777), (0o600, 0o700));
        write_public(&path, b"x").expect("ours");
        assert_eq!((fs::read(&path).expect("there"), mode(&path) & 0o777), (b"x".into(), 0o644));
        assert!(remove(&top).is_err(), "it is not empty");
        for path in [&path, &top.join("deep"), &top.join("deep"), &top.join("tmp"), &top] {
            remove(path).expect("ours, or absent");
        }
        assert!(!top.exists());
    }
}
