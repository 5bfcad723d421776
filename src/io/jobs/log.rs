//! Log folders and links, in the kubelet's layout:
//!
//! ```text
//! <pod logs>/<namespace>_<name>_<uid>/<container>/<attempt>.log[.<rotation>]
//! <container logs>/<name>_<namespace>_<container>-<id>.log ─▶ the above
//! ```
//!
//! The runtime writes the logs themselves.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::{Component, Failure, tree};
use crate::limits::{ATTEMPT_MAX, LOG_DIRS_MAX, REMOVE_AT_ONCE_MAX};
use crate::model::job::{LogDir, LogLink};

/// The longest file name of ext4 and most others.
const NAME_BYTES_MAX: usize = 255;

/// Makes the folders; returns for each container the newest attempt that has a log already.
pub(super) fn make_dirs(
    logs: BorrowedFd<'_>,
    pod: &LogDir,
    containers: &[Box<str>],
) -> Result<Vec<Option<u32>>, Failure> {
    let name = dir_name(pod)?;
    let mode = Mode::from_bits_truncate(0o755);
    let dir = tree::make_dir(logs, Component::new(&name)?, mode)?;
    let made = containers.iter().map(|container| {
        let container = Component::new(container.as_ref())?;
        newest(&tree::make_dir(dir.as_fd(), container, mode)?)
    });
    made.collect()
}

/// The greatest `<attempt>` of the files `<attempt>.log` and their rotations.
fn newest(dir: &OwnedFd) -> Result<Option<u32>, Failure> {
    let failed = |errno| Failure::at("readdir", "a container's logs", errno);
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut greatest = None;
    for entry in Dir::openat(dir, ".", flags, Mode::empty()).map_err(failed)?.iter() {
        let entry = entry.map_err(failed)?;
        let parts = entry.file_name().to_str().map(|name| name.split_once(".log"));
        let Ok(Some((attempt, rest))) = parts else { continue };
        if rest.is_empty() || rest.starts_with('.') {
            greatest = greatest.max(attempt.parse().ok().map(|it: u32| it.min(ATTEMPT_MAX)));
        }
    }
    Ok(greatest)
}

/// Links to a log that exists; an existing link with another target is replaced.
pub(super) fn link(logs: &Path, links: BorrowedFd<'_>, link: &LogLink) -> Result<(), Failure> {
    let dir = dir_name(&link.pod)?;
    let file = format!("{}.log", link.attempt);
    let below = [Component::new(&dir)?, Component::new(link.container.as_ref())?];
    let target = below.iter().fold(logs.to_owned(), |path, step| path.join(step.as_os_str()));
    let target = target.join(&file);
    if !target.exists() {
        let why = format!("link to {}: there is no such log", target.display());
        return Err(Failure(why));
    }
    let name = link_name(link)?;
    let name = Component::new(&name)?;
    for _ in 0..2 {
        match symlinkat(&target, links, name.as_os_str()) {
            Ok(()) => return Ok(()),
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(Failure::at("symlink", name.as_os_str(), errno)),
        }
        if readlinkat(links, name.as_os_str()).is_ok_and(|old| old == target.as_os_str()) {
            return Ok(());
        }
        unlink_link(links, name)?;
    }
    Err(Failure(format!("symlink {name}: another file has that name")))
}

/// Removes the link of an ended container.
pub(super) fn unlink(links: BorrowedFd<'_>, link: &LogLink) -> Result<(), Failure> {
    unlink_link(links, Component::new(&link_name(link)?)?)
}

fn unlink_link(links: BorrowedFd<'_>, name: Component<'_>) -> Result<(), Failure> {
    let is_link = fstatat(links, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits());
    if is_link { remove_file(links, name) } else { Ok(()) }
}

/// Removes dangling links into the pods' logs, except those of running containers.
pub(super) fn sweep_links(
    logs: &Path,
    links: BorrowedFd<'_>,
    living: &[Box<str>],
) -> Result<(), Failure> {
    let failed = |errno| Failure::at("readdir", "the containers' logs", errno);
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut dangling: Vec<OsString> = Vec::new();
    for entry in Dir::openat(links, ".", flags, Mode::empty()).map_err(failed)?.iter() {
        let entry = entry.map_err(failed)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let id = entry.file_name().to_str().ok().and_then(|it| it.strip_suffix(".log"));
        let Some((_, id)) = id.and_then(|it| it.rsplit_once('-')) else { continue };
        let target = readlinkat(links, name).map(PathBuf::from);
        let ours = target.is_ok_and(|target| target.starts_with(logs));
        let leads = fstatat(links, name, AtFlags::empty()) != Err(Errno::ENOENT);
        // A shortened name has only the beginning of the id.
        if ours && !leads && !living.iter().any(|it| it.starts_with(id)) {
            dangling.push(name.to_owned());
        }
    }
    dangling.iter().try_for_each(|name| unlink_link(links, Component::new(name)?))
}

/// Removes `<container>/<attempt>.log` and its rotations; an absent file counts as removed.
pub(super) fn remove(logs: BorrowedFd<'_>, link: &LogLink) -> Result<(), Failure> {
    let name = dir_name(&link.pod)?;
    let Some(pod) = tree::existing_dir(logs, Component::new(&name)?)? else { return Ok(()) };
    let container = Component::new(link.container.as_ref())?;
    let Some(dir) = tree::existing_dir(pod.as_fd(), container)? else { return Ok(()) };
    let log = format!("{}.log", link.attempt);
    let mut found = Vec::new();
    let listing = dir.try_clone().map_err(|error| Failure(format!("dup: {error}")))?;
    let failed = |errno| Failure::at("readdir", container.as_os_str(), errno);
    for entry in Dir::from_fd(listing).map_err(failed)?.iter() {
        let entry = entry.map_err(failed)?;
        let rest = entry.file_name().to_bytes().strip_prefix(log.as_bytes());
        if rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'.') {
            found.push(OsString::from(OsStr::from_bytes(entry.file_name().to_bytes())));
        }
    }
    found.iter().try_for_each(|name| remove_file(dir.as_fd(), Component::new(name)?))
}

pub(super) fn remove_file(dir: BorrowedFd<'_>, name: Component<'_>) -> Result<(), Failure> {
    match unlinkat(dir, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(Failure::at("unlink", name.as_os_str(), errno)),
    }
}

/// Removes the pod's folder with its content.
pub(super) fn remove_dir(logs: BorrowedFd<'_>, pod: &LogDir) -> Result<(), Failure> {
    let name = dir_name(pod)?;
    tree::remove(logs, Component::new(&name)?)
}

/// The same within a small budget; returns whether nothing is left.
pub(super) fn remove_small_dir(logs: BorrowedFd<'_>, pod: &LogDir) -> Result<bool, Failure> {
    let name = dir_name(pod)?;
    tree::remove_some(logs, Component::new(&name)?, REMOVE_AT_ONCE_MAX)
}

/// The size of a log in bytes; `None`: it is absent.
pub(super) fn size(logs: BorrowedFd<'_>, link: &LogLink) -> Result<Option<u64>, Failure> {
    let dir = dir_name(&link.pod)?;
    let container = Component::new(link.container.as_ref())?;
    let path = format!("{}/{container}/{}.log", Component::new(&dir)?, link.attempt);
    match fstatat(logs, path.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(u64::try_from(stat.st_size).unwrap_or(0))),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(Failure::at("stat", &path, errno)),
    }
}

/// The pods that have a log folder. Folders with other names are not ours.
pub(super) fn dirs(logs: BorrowedFd<'_>) -> Result<Vec<LogDir>, Failure> {
    let failed = |errno| Failure::at("readdir", "the pods' logs", errno);
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut found = Vec::new();
    for entry in Dir::openat(logs, ".", flags, Mode::empty()).map_err(failed)?.iter() {
        let entry = entry.map_err(failed)?;
        let is_dir = matches!(entry.file_type(), Some(Type::Directory) | None);
        let name = entry.file_name().to_str().ok().and_then(dir_of);
        found.extend(name.filter(|_| is_dir));
        if found.len() == LOG_DIRS_MAX {
            break;
        }
    }
    Ok(found)
}

/// The pod of `<namespace>_<name>_<uid>`: none of the three has an underscore.
fn dir_of(name: &str) -> Option<LogDir> {
    let mut parts = name.split('_');
    let pod = LogDir {
        namespace: parts.next()?.into(),
        name: parts.next()?.into(),
        uid: parts.next()?.into(),
    };
    let plain = |text: &str| {
        let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
        !text.is_empty() && text.bytes().all(fits) && !text.starts_with('.')
    };
    let whole = parts.next().is_none()
        && [&pod.namespace, &pod.name, &pod.uid].map(|it| plain(it)) == [true; 3];
    whole.then_some(pod)
}

/// `<namespace>_<name>_<uid>`; each part is checked separately, so that none is empty.
pub(super) fn dir_name(pod: &LogDir) -> Result<String, Failure> {
    let parts = [&pod.namespace, &pod.name, &pod.uid].map(|part| Component::new(part.as_ref()));
    let [namespace, name, uid] = parts;
    Ok(format!("{}_{}_{}", namespace?, name?, uid?))
}

/// `<name>_<namespace>_<container>-<id>`, shortened to leave room for `.log`, as the kubelet
/// does.
fn link_name(link: &LogLink) -> Result<String, Failure> {
    let pod = &link.pod;
    let parts = [&pod.name, &pod.namespace, &link.container, &link.id];
    let [name, namespace, container, id] = parts.map(|part| Component::new(part.as_ref()));
    let mut text = format!("{}_{}_{}-{}", name?, namespace?, container?, id?);
    let fits = |cut: &usize| text.is_char_boundary(*cut);
    let cut = (0..=NAME_BYTES_MAX - ".log".len()).rev().find(fits).unwrap_or(0);
    text.truncate(cut);
    text.push_str(".log");
    Ok(text)
}
