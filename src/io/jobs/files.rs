//! The agent's own files of a container, and what it left in them:
//!
//! ```text
//! <pods>/<uid>/etc-hosts                       0644, written in place: running containers see it
//! <pods>/<uid>/containers/<container>/<name>   0666, empty until the container writes
//! ```
//!
//! The container may write what it likes into both, so nothing here follows a link or opens
//! anything but a regular file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{Component, Failure, log, pod_dir, tree};
use crate::limits::TERMINATION_LOG_READ_BYTES;
use crate::limits::{
    TERMINATION_LOG_BYTES_MAX, TERMINATION_LOG_LINES_MAX, TERMINATION_MESSAGE_BYTES_MAX,
};
use crate::model::job::{ContainerFiles, Hosts, LastWords};

/// The node's own.
const NODES_HOSTS: &str = "/etc/hosts";
/// More than a hosts file has.
const HOSTS_BYTES_MAX: u64 = 1 << 20;

/// Makes all that `files` names.
pub(super) fn make(
    pods: BorrowedFd<'_>,
    logs: BorrowedFd<'_>,
    files: &ContainerFiles,
) -> Result<(), Failure> {
    let container = std::slice::from_ref(&files.container);
    // A container may have joined the pod after its folders were made.
    log::make_dirs(logs, &files.pod, container)?;
    let pod = pod_dir::make(pods, &files.pod.uid, container)?;
    let dir = tree::make_dir(pod.as_fd(), Component::new("containers")?, DIR_MODE)?;
    let dir = tree::make_dir(dir.as_fd(), Component::new(files.container.as_ref())?, DIR_MODE)?;
    if let Some(old) = &files.old {
        let old = Component::new(old.as_ref())?;
        match unlinkat(dir.as_fd(), old.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(Failure::at("unlink", old.as_os_str(), errno)),
        }
    }
    write(dir.as_fd(), Component::new(files.message.as_ref())?, 0o666, b"")?;
    let text = match &files.hosts {
        None => return Ok(()),
        Some(Hosts::Own { text }) => text.clone().into_bytes(),
        Some(Hosts::Nodes { aliases }) => {
            let mut text = b"# Kubernetes-managed hosts file (host network).\n".to_vec();
            let read = File::open(NODES_HOSTS)
                .and_then(|file| file.take(HOSTS_BYTES_MAX).read_to_end(&mut text));
            read.map_err(|error| Failure(format!("read {NODES_HOSTS}: {error}")))?;
            text.extend_from_slice(aliases.as_bytes());
            text
        }
    };
    write(pod.as_fd(), Component::new("etc-hosts")?, 0o644, &text)
}

const DIR_MODE: Mode = Mode::from_bits_truncate(0o750);

/// The same file as before, if there is one: others may have it mounted.
fn write(
    dir: BorrowedFd<'_>,
    name: Component<'_>,
    mode: u32,
    content: &[u8],
) -> Result<(), Failure> {
    let failed = |what, errno| Failure::at(what, name.as_os_str(), errno);
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(mode);
    let file = openat(dir, name.as_os_str(), flags, mode).map_err(|errno| failed("open", errno))?;
    let stat = fstat(file.as_fd()).map_err(|errno| failed("stat", errno))?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(Failure(format!("got {name}, which is no regular file, expected one")));
    }
    fchmod(file.as_fd(), mode).map_err(|errno| failed("chmod", errno))?;
    let mut file = File::from(file);
    let written = file.write_all(content).and_then(|()| file.set_len(content.len() as u64));
    written.map_err(|error| Failure(format!("write {name}: {error}")))
}

/// What a container left; empty where there is nothing that can be read.
pub(super) fn read(pods: BorrowedFd<'_>, logs: BorrowedFd<'_>, words: &LastWords) -> String {
    let file = words.file.as_deref().and_then(|file| {
        let steps = [&*words.pod.uid, "containers", &*words.container];
        let bytes = end_of(pods, &steps, file, TERMINATION_MESSAGE_BYTES_MAX).ok()??;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (!text.is_empty()).then_some(text)
    });
    file.or_else(|| {
        let dir = log::dir_name(&words.pod).ok()?;
        let steps = [&*dir, &*words.container];
        let name = format!("{}.log", words.log?);
        let bytes = end_of(logs, &steps, &name, TERMINATION_LOG_READ_BYTES).ok()??;
        Some(crate::wire::log::tail(&bytes, TERMINATION_LOG_LINES_MAX, TERMINATION_LOG_BYTES_MAX))
    })
    .unwrap_or_default()
}

/// The last bytes of a regular file; `None`: there is none.
fn end_of(
    root: BorrowedFd<'_>,
    steps: &[&str],
    name: &str,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut dir = None;
    for step in steps {
        let parent = dir.as_ref().map_or(root, AsFd::as_fd);
        let Some(next) = tree::existing_dir(parent, Component::new(step)?)? else {
            return Ok(None);
        };
        dir = Some(next);
    }
    let name = Component::new(name)?;
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let parent = dir.as_ref().map_or(root, AsFd::as_fd);
    let file = match openat(parent, name.as_os_str(), flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(Failure::at("open", name.as_os_str(), errno)),
    };
    let failed = |error: std::io::Error| Failure(format!("read {name}: {error}"));
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Ok(None);
    }
    let mut file = file;
    let from = meta.len().saturating_sub(bytes_max as u64);
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(bytes_max as u64).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}
