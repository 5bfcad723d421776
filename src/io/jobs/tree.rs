//! Opens folders below a directory handle, one checked component at a time, and removes trees.
//!
//! `openat2` with `RESOLVE_BENEATH | NO_SYMLINKS | NO_XDEV` lets the kernel refuse links and every
//! mount, bind mounts of the same file system included. Kernels before 5.6 lack it: there
//! `O_NOFOLLOW` refuses links, and the device number and the mount's id of each opened folder are
//! compared with its parent's.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{Component, Failure};
use crate::limits::{REMOVE_DEPTH_MAX, REMOVE_PASSES_MAX};

/// The folder `name` in `parent`, if it exists.
pub(super) fn existing_dir(
    parent: BorrowedFd<'_>,
    name: Component<'_>,
) -> Result<Option<OwnedFd>, Failure> {
    match open_below(parent, name) {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(Failure::at("open", name.as_os_str(), errno)),
    }
}

/// The folder `name` in `parent`, made with this mode if it is absent.
pub(super) fn make_dir(
    parent: BorrowedFd<'_>,
    name: Component<'_>,
    mode: Mode,
) -> Result<OwnedFd, Failure> {
    let failed = |what, errno| Failure::at(what, name.as_os_str(), errno);
    let made = match mkdirat(parent, name.as_os_str(), mode) {
        Ok(()) => true,
        Err(Errno::EEXIST) => false,
        Err(errno) => return Err(failed("mkdir", errno)),
    };
    let dir = open_below(parent, name).map_err(|errno| failed("open", errno))?;
    if made {
        // The process's umask may have removed bits.
        fchmod(dir.as_fd(), mode).map_err(|errno| failed("chmod", errno))?;
    }
    Ok(dir)
}

/// The same without opening it, since it may be a mount point.
pub(super) fn make_place(
    parent: BorrowedFd<'_>,
    name: Component<'_>,
    mode: Mode,
) -> Result<(), Failure> {
    match mkdirat(parent, name.as_os_str(), mode) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(Failure::at("mkdir", name.as_os_str(), errno)),
    }
}

/// Removes `name` in `parent` with all below it. Absent counts as removed. A failure does not stop
/// the rest; the first one is returned.
pub(super) fn remove(parent: BorrowedFd<'_>, name: Component<'_>) -> Result<(), Failure> {
    let mut removal = Removal::of(usize::MAX);
    remove_at(parent, name, None, &mut removal).map(|left| debug_assert!(left.is_none()))
}

/// The same, but at most so many names: returns whether all is removed.
pub(super) fn remove_some(
    parent: BorrowedFd<'_>,
    name: Component<'_>,
    names_max: usize,
) -> Result<bool, Failure> {
    remove_at(parent, name, None, &mut Removal::of(names_max)).map(|left| left.is_none())
}

struct Removal {
    /// How many names may still be removed.
    budget: usize,
    /// Folders that were too deep and were moved into the topmost one, by number: the first that
    /// remains, and the next number.
    lifted: Range<u32>,
}

/// Something is left, since the budget is used up.
struct Left;

/// In the topmost folder that is removed, or at this depth below it.
#[derive(Clone, Copy)]
struct Below<'a> {
    top: BorrowedFd<'a>,
    depth: usize,
}

impl Removal {
    fn of(names_max: usize) -> Self {
        Self { budget: names_max, lifted: 0..0 }
    }

    fn spend(&mut self) -> Option<Left> {
        if self.budget == 0 {
            return Some(Left);
        }
        self.budget -= 1;
        None
    }
}

fn remove_at(
    parent: BorrowedFd<'_>,
    name: Component<'_>,
    below: Option<Below<'_>>,
    removal: &mut Removal,
) -> Result<Option<Left>, Failure> {
    let failed = |what, errno| Failure::at(what, name.as_os_str(), errno);
    let stat = match fstatat(parent, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(failed("stat", errno)),
    };
    if stat.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFDIR.bits() {
        return unlink(parent, name, removal);
    }
    let Some(dir) = existing_dir(parent, name)? else { return Ok(None) };
    let inside = match below {
        None => Below { top: dir.as_fd(), depth: 1 },
        Some(Below { top, depth: REMOVE_DEPTH_MAX }) => return lift(parent, name, top, removal),
        Some(Below { top, depth }) => Below { top, depth: depth + 1 },
    };
    in_passes(|| {
        let left = empty(dir.as_fd(), name, inside, removal)?;
        if let Some(left) = left.or_else(|| removal.spend()) {
            return Ok(Some(Some(left)));
        }
        match unlinkat(parent, name.as_os_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(Some(None)),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(None),
            Err(errno) => Err(failed("rmdir", errno)),
        }
    })
    .and_then(|done| done.ok_or_else(|| failed("rmdir", Errno::ENOTEMPTY)))
}

/// Entries that appear during the removal need another pass; their number is limited. `None`:
/// the last pass was not enough.
fn in_passes<T>(
    mut pass: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Failure> {
    (0..REMOVE_PASSES_MAX).find_map(|_| pass().transpose()).transpose()
}

/// Moves a folder that is too deep up into the topmost one. An opened folder is no mount, and the
/// kernel moves no mounts.
fn lift(
    parent: BorrowedFd<'_>,
    name: Component<'_>,
    top: BorrowedFd<'_>,
    removal: &mut Removal,
) -> Result<Option<Left>, Failure> {
    loop {
        if let Some(left) = removal.spend() {
            return Ok(Some(left));
        }
        let to = lifted(removal.lifted.end);
        removal.lifted.end += 1;
        match renameat(parent, name.as_os_str(), top, to.as_str()) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(None),
            // The name exists already: it is removed as well.
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
            Err(errno) => return Err(Failure::at("rename", name.as_os_str(), errno)),
        }
    }
}

fn lifted(number: u32) -> String {
    format!(".deep-{number}")
}

/// Removes the content of `dir`; `name` is for error texts.
fn empty(
    dir: BorrowedFd<'_>,
    name: Component<'_>,
    inside: Below<'_>,
    removal: &mut Removal,
) -> Result<Option<Left>, Failure> {
    let failed = |errno| Failure::at("readdir", name.as_os_str(), errno);
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    // A handle of its own: passes would share the position of a duplicate.
    let mut listing = Dir::openat(dir, ".", flags, Mode::empty()).map_err(failed)?;
    let mut folders: Vec<OsString> = Vec::new();
    let mut failure = None;
    for entry in listing.iter() {
        let entry = entry.map_err(failed)?;
        let child = OsStr::from_bytes(entry.file_name().to_bytes());
        if matches!(child.as_bytes(), b"." | b"..") {
            continue;
        }
        match entry.file_type() {
            Some(Type::Directory) | None => folders.push(child.to_owned()),
            Some(_) => match unlink(dir, Component::new(child)?, removal) {
                Ok(None) => {}
                Ok(left) => return Ok(left),
                Err(why) => failure = failure.or(Some(why)),
            },
        }
    }
    drop(listing);
    let mut folders = folders.into_iter();
    loop {
        // Folders that were too deep are removed last.
        let lifted = || {
            let number = if inside.depth == 1 { removal.lifted.next() } else { None };
            number.map(|number| lifted(number).into())
        };
        let Some(child) = folders.next().or_else(lifted) else { break };
        match remove_at(dir, Component::new(&child)?, Some(inside), removal) {
            Ok(None) => {}
            Ok(left) => return Ok(left),
            Err(why) => failure = failure.or(Some(why)),
        }
    }
    failure.map_or(Ok(None), Err)
}

fn unlink(
    dir: BorrowedFd<'_>,
    name: Component<'_>,
    removal: &mut Removal,
) -> Result<Option<Left>, Failure> {
    if let Some(left) = removal.spend() {
        return Ok(Some(left));
    }
    match unlinkat(dir, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(Failure::at("unlink", name.as_os_str(), errno)),
    }
}

fn open_below(parent: BorrowedFd<'_>, name: Component<'_>) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(
        ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_XDEV,
    );
    match openat2(parent, name.as_os_str(), how) {
        // EPERM: a seccomp profile that does not know the call.
        Err(Errno::ENOSYS | Errno::EPERM) => open_checked(parent, name, flags),
        opened => opened,
    }
}

/// The same without `openat2`.
fn open_checked(parent: BorrowedFd<'_>, name: Component<'_>, flags: OFlag) -> nix::Result<OwnedFd> {
    let dir = openat(parent, name.as_os_str(), flags, Mode::empty())?;
    let same_device = fstat(parent)?.st_dev == fstat(dir.as_fd())?.st_dev;
    if same_device && mount_id(parent) == mount_id(dir.as_fd()) {
        Ok(dir)
    } else {
        Err(Errno::EXDEV)
    }
}

/// The id of a handle's mount (`mnt_id` in `/proc/self/fdinfo`, since Linux 3.15).
pub(super) fn mount_id(fd: BorrowedFd<'_>) -> Option<u64> {
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let info = std::fs::read_to_string(path).ok()?;
    info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_written_to_without_end_is_given_up() {
        for (needed, done) in [(1, true), (REMOVE_PASSES_MAX, true), (usize::MAX, false)] {
            let mut passes = 0;
            let outcome = in_passes(|| {
                passes += 1;
                Ok((passes == needed).then_some(()))
            });
            assert!(matches!(outcome, Ok(found) if found.is_some() == done), "{needed}");
            assert_eq!(passes, needed.min(REMOVE_PASSES_MAX));
        }
        // A failed name is not tried again.
        let mut passes = 0;
        let outcome = in_passes(|| {
            passes += 1;
            Err::<Option<()>, _>(Failure("Read-only file system".to_owned()))
        });
        assert!(outcome.is_err() && passes == 1);
    }

    #[test]
    fn without_openat2_links_are_refused_and_folders_open() {
        let place = std::env::temp_dir().join(format!("edged-tree-{}", std::process::id()));
        std::fs::create_dir_all(place.join("dir")).expect("a folder");
        let _ = std::os::unix::fs::symlink("dir", place.join("link"));
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_RDONLY;
        let root = nix::fcntl::open(&place, OFlag::O_DIRECTORY, Mode::empty()).expect("opens");
        let open = |name: &str| {
            let name = Component::new(name).expect("a component");
            open_checked(root.as_fd(), name, flags).map(drop)
        };
        assert_eq!(open("dir"), Ok(()));
        assert!(matches!(open("link"), Err(Errno::ELOOP | Errno::ENOTDIR)));
        let proc = nix::fcntl::open("/", OFlag::O_DIRECTORY, Mode::empty()).expect("opens");
        let name = Component::new("proc").expect("a component");
        assert_eq!(open_checked(proc.as_fd(), name, flags).map(drop), Err(Errno::EXDEV));
        std::fs::remove_dir_all(&place).expect("removed");
    }
}
