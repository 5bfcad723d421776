//! Makes and removes the pods' cgroups (the driver `cgroupfs`):
//!
//! ```text
//! v1: /sys/fs/cgroup/<controller>/<root>/kubepods/[burstable/|besteffort/]pod<uid>/
//! v2: /sys/fs/cgroup/<root>/kubepods/[burstable/|besteffort/]pod<uid>/
//! ```
//!
//! Below `pod<uid>` are the runtime's cgroups, one for each container. Only folders with this name
//! are removed, and only processes in them are killed. A controller that the kernel lacks is
//! skipped: `edged check` reports it, and the runtime refuses containers that need it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, UnlinkatFlags, unlinkat};

use super::{Component, Failure, pod_dir, tree};
use crate::limits::{CGROUP_DEPTH_MAX, CGROUP_PROCS_BYTES_MAX, LOG_DIRS_MAX};
use crate::model::cgroup::{
    ALL_PODS, Hierarchy, PodCgroup, QosCgroups, SHARES_MIN, Values, class_folder, weight,
};
#[cfg(feature = "runtime")]
use crate::model::error::System;
use crate::model::status::QosClass;

const CLASSES: [QosClass; 3] = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];
/// The controllers whose values are set.
const CONTROLLERS: [&str; 4] = ["cpu", "memory", "pids", "hugetlb"];

#[derive(Debug, Default)]
pub struct Cgroups {
    /// The mount point of the cgroups.
    top: PathBuf,
    hierarchy: Hierarchy,
    /// The path of the parent of all pods' cgroups, in parts.
    root: Vec<Box<str>>,
}

/// The path of one cgroup, from the top of a hierarchy.
type CgroupPath<'a> = Vec<&'a str>;

impl Cgroups {
    /// Opens nothing yet.
    pub fn new(top: PathBuf, hierarchy: Hierarchy, root: Vec<Box<str>>) -> Self {
        Self { top, hierarchy, root }
    }

    /// Makes a cgroup that the built-in runtime was given as the parent of others, and those above
    /// it, unless they are there. `path`: absolute in each hierarchy.
    #[cfg(feature = "runtime")]
    pub(in crate::io) fn make_parent(&self, path: &str) -> Result<(), System> {
        if !path.starts_with('/') {
            let why = format!("got the cgroup {path:?}, expected an absolute path (cgroupfs)");
            return Err(System::new(why));
        }
        let way: CgroupPath<'_> = path.split('/').filter(|part| !part.is_empty()).collect();
        self.make(&way, None)
            .map_err(|failure| System::at(format_args!("cgroup {path}"), failure.0))
    }

    /// The folders that [`Self::make_parent`] makes.
    #[cfg(feature = "runtime")]
    pub(in crate::io) fn folders(&self, path: &str) -> Vec<PathBuf> {
        let below = path.trim_start_matches('/');
        let tops = match self.hierarchy {
            Hierarchy::None => Vec::new(),
            Hierarchy::V1 => CONTROLLERS.map(|controller| self.top.join(controller)).into(),
            Hierarchy::V2 => vec![self.top.clone()],
        };
        tops.into_iter().map(|top| top.join(below)).filter(|folder| folder.is_dir()).collect()
    }

    /// Makes a pod's cgroup and sets its values.
    pub(super) fn make_pod(&self, wanted: &PodCgroup) -> Result<(), Failure> {
        let pod = pod_folder(&wanted.uid)?;
        let way = self.way(class_folder(wanted.class).into_iter().chain([&*pod]));
        self.make(&way, Some(&wanted.values))
    }

    /// Makes the cgroups of the QoS classes and sets their values.
    pub(super) fn set_qos(&self, wanted: &QosCgroups) -> Result<(), Failure> {
        self.make(&self.way(None), Some(&wanted.all))?;
        for (class, shares) in
            [(QosClass::Burstable, wanted.burstable_shares), (QosClass::BestEffort, SHARES_MIN)]
        {
            let period = wanted.all.cpu_period;
            let values = Values { cpu_shares: shares, cpu_period: period, ..Values::default() };
            self.make(&self.way(class_folder(class)), Some(&values))?;
        }
        Ok(())
    }

    /// Removes a pod's cgroup from each hierarchy, in whatever class; processes in it are killed,
    /// and the next attempt removes the rest.
    pub(super) fn remove_pod(&self, uid: &str) -> Result<(), Failure> {
        let pod = pod_folder(uid)?;
        for top in self.tops()? {
            for class in CLASSES {
                let way = self.way(class_folder(class));
                if let Some(parent) = existing(top.as_fd(), &way)? {
                    remove(parent.as_fd(), Component::new(&pod)?, 0)?;
                }
            }
        }
        Ok(())
    }

    /// The uids of pods that have cgroups without a process and are not in `known`. The cgroups of
    /// another agent's pods are left alone as long as they run.
    pub(super) fn idle_pods(&self, known: &[Box<str>]) -> Result<BTreeSet<String>, Failure> {
        let (mut idle, mut busy) = (BTreeSet::new(), BTreeSet::new());
        for top in self.tops()? {
            for class in CLASSES {
                let Some(parent) = existing(top.as_fd(), &self.way(class_folder(class)))? else {
                    continue;
                };
                for name in pod_dir::names(parent.as_fd())? {
                    let Some(uid) = name.to_str().and_then(|name| name.strip_prefix("pod")) else {
                        continue;
                    };
                    let is_known = known.binary_search_by(|other| (**other).cmp(uid)).is_ok();
                    if is_known || !pod_dir::is_uid(uid) || idle.len() == LOG_DIRS_MAX {
                        continue;
                    }
                    if is_idle(parent.as_fd(), Component::new(&name)?, 0)? {
                        idle.insert(uid.to_owned());
                    } else {
                        busy.insert(uid.to_owned());
                    }
                }
            }
        }
        Ok(idle.difference(&busy).cloned().collect())
    }

    fn way<'a>(&'a self, below: impl IntoIterator<Item = &'a str>) -> CgroupPath<'a> {
        let root = self.root.iter().map(|part| &**part);
        root.chain([ALL_PODS]).chain(below).collect()
    }

    /// `values`: `None`: it keeps those that it has.
    fn make(&self, way: &CgroupPath<'_>, values: Option<&Values>) -> Result<(), Failure> {
        match self.hierarchy {
            Hierarchy::None => Err(Failure("this machine has no cgroups to write to".to_owned())),
            Hierarchy::V1 => {
                for controller in CONTROLLERS {
                    if let Some(top) = open_top(&self.top.join(controller))? {
                        let dir = make_path(top, way, |_| Ok(()))?;
                        values.map_or(Ok(()), |it| set_v1(dir.as_fd(), controller, it))?;
                    }
                }
                Ok(())
            }
            Hierarchy::V2 => {
                let top = open_top(&self.top)?
                    .ok_or_else(|| Failure(format!("{} is gone", self.top.display())))?;
                let dir = make_path(top, way, enable_controllers)?;
                values.map_or(Ok(()), |values| set_v2(dir.as_fd(), values))
            }
        }
    }

    /// All hierarchies in which the runtime may have made cgroups below a pod's.
    fn tops(&self) -> Result<Vec<OwnedFd>, Failure> {
        match self.hierarchy {
            Hierarchy::None => Ok(Vec::new()),
            Hierarchy::V2 => Ok(open_top(&self.top)?.into_iter().collect()),
            Hierarchy::V1 => {
                let Some(top) = open_top(&self.top)? else { return Ok(Vec::new()) };
                // `cpu` may be a link to `cpu,cpuacct`.
                let named = pod_dir::names(top.as_fd())?.into_iter();
                let paths = named.map(|name: OsString| self.top.join(name));
                let real = paths.filter(|path| path.is_dir() && !path.is_symlink());
                real.filter_map(|path| open_top(&path).transpose()).collect()
            }
        }
    }
}

/// `pod<uid>`; the uid must be a single path component.
fn pod_folder(uid: &str) -> Result<String, Failure> {
    Component::new(uid).map(|uid| format!("pod{uid}"))
}

fn open_top(path: &std::path::Path) -> Result<Option<OwnedFd>, Failure> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    match open(path, flags, Mode::empty()) {
        Ok(top) => Ok(Some(top)),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(errno) => Err(Failure::at("open", path, errno)),
    }
}

fn existing(top: BorrowedFd<'_>, way: &CgroupPath<'_>) -> Result<Option<OwnedFd>, Failure> {
    let mut dir = None::<OwnedFd>;
    for part in way {
        let parent = dir.as_ref().map_or(top, AsFd::as_fd);
        match tree::existing_dir(parent, Component::new(part)?)? {
            Some(next) => dir = Some(next),
            None => return Ok(None),
        }
    }
    Ok(dir)
}

/// Makes each folder of the path; `before` prepares each one for the next.
fn make_path(
    top: OwnedFd,
    way: &CgroupPath<'_>,
    before: impl Fn(BorrowedFd<'_>) -> Result<(), Failure>,
) -> Result<OwnedFd, Failure> {
    let mut dir = top;
    for part in way {
        before(dir.as_fd())?;
        dir = tree::make_dir(dir.as_fd(), Component::new(part)?, Mode::from_bits_truncate(0o755))?;
    }
    Ok(dir)
}

/// In version 2 a folder's controllers work below it only if it enables them.
fn enable_controllers(dir: BorrowedFd<'_>) -> Result<(), Failure> {
    let (there, handed) = (text(dir, "cgroup.controllers")?, text(dir, "cgroup.subtree_control")?);
    let has = |list: &str, name: &str| list.split_whitespace().any(|word| word == name);
    for controller in CONTROLLERS {
        if has(&there, controller) && !has(&handed, controller) {
            set(dir, "cgroup.subtree_control", &format!("+{controller}"))?;
        }
    }
    Ok(())
}

fn set_v1(dir: BorrowedFd<'_>, controller: &str, values: &Values) -> Result<(), Failure> {
    let bound = |bound: Option<i64>| bound.unwrap_or(-1).to_string();
    match controller {
        "cpu" => {
            set(dir, "cpu.shares", &values.cpu_shares.to_string())?;
            set(dir, "cpu.cfs_period_us", &values.cpu_period.to_string())?;
            set(dir, "cpu.cfs_quota_us", &bound(values.cpu_quota))
        }
        "memory" => set(dir, "memory.limit_in_bytes", &bound(values.memory)),
        "pids" => set(dir, "pids.max", &or_max(values.pids)),
        _ => values.huge_pages.iter().try_for_each(|(size, bytes)| {
            set(dir, &format!("hugetlb.{size}.limit_in_bytes"), &bytes.to_string())
        }),
    }
}

fn set_v2(dir: BorrowedFd<'_>, values: &Values) -> Result<(), Failure> {
    set(dir, "cpu.weight", &weight(values.cpu_shares).to_string())?;
    set(dir, "cpu.max", &format!("{} {}", or_max(values.cpu_quota), values.cpu_period))?;
    set(dir, "memory.max", &or_max(values.memory))?;
    set(dir, "pids.max", &or_max(values.pids))?;
    values
        .huge_pages
        .iter()
        .try_for_each(|(size, bytes)| set(dir, &format!("hugetlb.{size}.max"), &bytes.to_string()))
}

fn or_max(bound: Option<impl ToString>) -> String {
    bound.map_or_else(|| "max".to_owned(), |bound| bound.to_string())
}

/// Writes one value. If the file is absent, its controller is absent, too.
fn set(dir: BorrowedFd<'_>, file: &str, value: &str) -> Result<(), Failure> {
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = match openat(dir, file, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(Failure::at("open", file, errno)),
    };
    let failure = |error| Failure(format!("write {value:?} to {file}: {error}"));
    File::from(opened).write_all(value.as_bytes()).map_err(failure)
}

fn text(dir: BorrowedFd<'_>, file: &str) -> Result<String, Failure> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = openat(dir, file, flags, Mode::empty());
    let opened = opened.map_err(|errno| Failure::at("open", file, errno))?;
    let mut text = String::new();
    let read = File::from(opened).take(CGROUP_PROCS_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Failure(format!("read {file}: {error}")))?;
    Ok(text)
}

/// Removes a cgroup and those below it. Its files are the kernel's: only folders are removed.
fn remove(parent: BorrowedFd<'_>, name: Component<'_>, depth: usize) -> Result<(), Failure> {
    let Some(dir) = tree::existing_dir(parent, name)? else { return Ok(()) };
    if depth >= CGROUP_DEPTH_MAX {
        return Err(Failure(format!("{name}: got more than {CGROUP_DEPTH_MAX} cgroups in it")));
    }
    for child in pod_dir::names(dir.as_fd())? {
        let child = Component::new(&child)?;
        // Anything but a folder is one of the kernel's files.
        if let Ok(Some(_)) = tree::existing_dir(dir.as_fd(), child) {
            remove(dir.as_fd(), child, depth + 1)?;
        }
    }
    match unlinkat(parent, name.as_os_str(), UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(Errno::EBUSY) => {
            let killed = kill_all(dir.as_fd());
            Err(Failure(format!("{name}: {killed} processes were still in it and were killed")))
        }
        Err(errno) => Err(Failure::at("rmdir", name.as_os_str(), errno)),
    }
}

/// Whether there is no process in the cgroup, nor in those below it.
fn is_idle(parent: BorrowedFd<'_>, name: Component<'_>, depth: usize) -> Result<bool, Failure> {
    // Below the topmost, anything but a folder is one of the kernel's files.
    let Ok(Some(dir)) = tree::existing_dir(parent, name) else { return Ok(depth > 0) };
    if depth >= CGROUP_DEPTH_MAX || !text(dir.as_fd(), "cgroup.procs")?.is_empty() {
        return Ok(false);
    }
    for child in pod_dir::names(dir.as_fd())? {
        if !is_idle(dir.as_fd(), Component::new(&child)?, depth + 1)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Kills processes that remain after the runtime has stopped the containers; returns how many.
fn kill_all(dir: BorrowedFd<'_>) -> usize {
    let all = text(dir, "cgroup.procs").unwrap_or_default();
    // A number that was read only in part is another process's.
    let whole = all.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let own = Pid::this();
    let pids = whole.lines().filter_map(|line| line.trim().parse().ok()).map(Pid::from_raw);
    let strays = pids.filter(|&pid| pid.as_raw() > 1 && pid != own);
    strays.filter(|&pid| kill(pid, Signal::SIGKILL).is_ok()).count()
}

#[cfg(test)]
mod tests;
