//! Locks that an agent holds for its lifetime: on its root directory, its runtime and its cgroups.
//!
//! Two agents on one of these take each other's pods for unknown ones and end them. A lock is one
//! byte of a file (`fcntl(F_SETLK)`): the kernel releases it when its process ends, however that
//! happens, does not pass it to children, and names the holder. The lock file of the root directory
//! is in that directory; the others share [`SHARED`], which all agents of this machine see in
//! whatever network namespace they run. There each resource has one byte, by a hash of its name.
//!
//! Not for jobs: they do not outlive their agent. If we crash here all locks are free.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::sys;
use crate::model::error::System;

/// The lock file of the machine.
const SHARED: &str = "/run/edged.lock";
/// The lock file in a root directory.
const OWN: &str = "edged.lock";

/// The locks of this process. Dropped only at its end.
#[derive(Debug)]
pub struct Locks {
    _root: Option<File>,
    /// `None`: it cannot be opened.
    shared: Option<File>,
    runtime: PathBuf,
}

impl Locks {
    /// Takes all locks: `runtime` is the socket's path, `cgroups` the parent of the pods' cgroups,
    /// if the agent makes those.
    pub fn take(root: &Path, runtime: &Path, cgroups: Option<&str>) -> Result<Self, System> {
        let locks = Self {
            _root: folder(root)?,
            shared: open(Path::new(SHARED)),
            runtime: runtime.to_path_buf(),
        };
        let path = resolved(runtime);
        locks.hold(&format!("runtime {}", path.display()), "the runtime", &path)?;
        locks.runtime_is_up()?;
        if let Some(cgroups) = cgroups {
            locks.hold(&format!("cgroups {cgroups}"), "the cgroups below", Path::new(cgroups))?;
        }
        Ok(locks)
    }

    /// The socket exists, whatever path leads to it: each start of the runtime makes a new one.
    pub fn runtime_is_up(&self) -> Result<(), System> {
        let Ok(meta) = fs::metadata(&self.runtime) else { return Ok(()) };
        let name = format!("socket {} {}", meta.dev(), meta.ino());
        self.hold(&name, "the runtime", &self.runtime)
    }

    fn hold(&self, name: &str, what: &str, path: &Path) -> Result<(), System> {
        let Some(file) = &self.shared else { return Ok(()) };
        lock(file, byte_of(name)).map_err(|holder| held(what, path, holder))
    }
}

/// Makes the folder and takes its lock. `None`: it cannot be locked, which is logged.
pub fn folder(path: &Path) -> Result<Option<File>, System> {
    sys::make_root(path)?;
    let Some(file) = open(&path.join(OWN)) else { return Ok(None) };
    match lock(&file, 0) {
        Ok(()) => Ok(Some(file)),
        Err(holder) => Err(held("the folder", path, holder)),
    }
}

fn open(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let opened = options.open(path).inspect_err(|error| {
        let path = path.display();
        log::warn!("path={path} cannot be locked, a second agent is not detected: {error}");
    });
    opened.ok()
}

/// The error is the pid of the process that holds the lock; 0: it is in another pid namespace.
fn lock(file: &File, byte: u32) -> Result<(), i32> {
    let mut range = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::from(byte as i32),
        l_len: 1,
        l_pid: 0,
    };
    // The holder may end between the two calls.
    for _ in 0..2 {
        match fcntl(file, FcntlArg::F_SETLK(&range)) {
            Err(Errno::EAGAIN | Errno::EACCES) => {}
            Ok(_) => return Ok(()),
            Err(errno) => {
                log::warn!("a lock failed, a second agent is not detected: {errno}");
                return Ok(());
            }
        }
        let mut other = range;
        let found = fcntl(file, FcntlArg::F_GETLK(&mut other));
        if found.is_ok() && other.l_type != libc::F_UNLCK as libc::c_short {
            return Err(other.l_pid);
        }
        range.l_pid = 0;
    }
    Err(0)
}

fn held(what: &str, path: &Path, holder: i32) -> System {
    let name = fs::read_to_string(format!("/proc/{holder}/comm")).unwrap_or_default();
    let path = path.display();
    System::new(match (holder, name.trim()) {
        (..=0, _) => format!("{what} {path} is in use by an agent in another pid namespace"),
        (_, "") => format!("{what} {path} is in use by pid {holder}"),
        (_, name) => format!(
            "{what} {path} is in use by pid {holder} ({name}): two agents would end each other's \
             pods"
        ),
    })
}

/// Resolves links, as far as the path exists.
fn resolved(path: &Path) -> PathBuf {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return path.to_path_buf();
    };
    let whole = fs::canonicalize(path);
    whole.unwrap_or_else(|_| fs::canonicalize(parent).unwrap_or(parent.to_path_buf()).join(name))
}

/// FNV-1a, reduced to an offset that every machine supports.
fn byte_of(name: &str) -> u32 {
    let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, fnv) & 0x7fff_ffff
}
