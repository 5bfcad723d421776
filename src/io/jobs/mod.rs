//! The work of jobs: quick ones run in the agent, those that may block in a child process.
//!
//! Deletion is dangerous: agents have deleted `/bin` by joining an empty path. Here no paths are
//! joined. Each root is a directory handle, each step below it is one [`Component`], links are
//! never followed and mounts never entered. Not here: when to run a job, and deadlines (`io::job`).
//! Each job can be repeated, so a crash in the middle of one costs a repetition.

mod cgroup;
mod files;
mod gzip;
mod log;
#[cfg(feature = "node-jobs")]
mod node;
mod pod_dir;
mod rotate;
mod tree;
mod usage;
mod volume;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};

#[cfg(feature = "runtime")]
use crate::model::error::System;
use crate::model::housekeeping::{MeasureRequest, Measures};
use crate::model::job::{
    FolderKind, JobError, JobReply, JobSpec, LastWords, LogDir, Source, VolumeSetUp,
};
#[cfg(feature = "cloud")]
use crate::model::settings::CloudLink;

pub use cgroup::Cgroups;
#[cfg(feature = "runtime")]
pub(in crate::io) use usage::folder_usage;
pub(in crate::io) use volume::{share, unshare};

/// Removes `name` in `parent` with all below it, as jobs do. Absent counts as removed.
#[cfg(feature = "runtime")]
pub(in crate::io) fn remove_tree(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), System> {
    let removed = Component::new(name).and_then(|name| tree::remove(parent, name));
    removed.map_err(|Failure(why)| System::new(why))
}

/// The folder `name` in `parent`, if it exists: neither a link nor a mount.
#[cfg(feature = "runtime")]
pub(in crate::io) fn folder_in(
    parent: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<Option<OwnedFd>, System> {
    let found = Component::new(name).and_then(|name| tree::existing_dir(parent, name));
    found.map_err(|Failure(why)| System::new(why))
}

/// Runs a quick job.
pub(super) fn run(roots: &mut Roots, spec: &JobSpec) -> Result<JobReply, JobError> {
    let done = match spec {
        JobSpec::MakePodDirs { pod, containers } => {
            let attempts = log::make_dirs(roots.pod_logs.handle()?, pod, containers)?;
            pod_dir::make(roots.pods.handle()?, &pod.uid, containers)?;
            return Ok(JobReply::Attempts(attempts));
        }
        JobSpec::MakeContainerFiles(wanted) => {
            let Roots { pods, pod_logs, .. } = roots;
            files::make(pods.handle()?, pod_logs.handle()?, wanted)
        }
        JobSpec::LinkLog(link) => roots.with_links(|logs, links| log::link(logs, links, link)),
        JobSpec::RemoveLog(link) => log::remove(roots.pod_logs.handle()?, link)
            .and_then(|()| roots.with_links(|_, links| log::unlink(links, link))),
        JobSpec::MakePodCgroup(wanted) => roots.cgroups.make_pod(wanted),
        JobSpec::RemovePodCgroup(uid) => roots.cgroups.remove_pod(uid),
        JobSpec::SetQosCgroups(wanted) => roots.cgroups.set_qos(wanted),
        JobSpec::SetUpVolume(wanted) => volume::set_up(roots.pods.handle()?, wanted),
        JobSpec::BindSubPath(wanted) => volume::bind_sub_path(roots.pods.handle()?, wanted),
        JobSpec::RemoveLogDir(_)
        | JobSpec::RemovePodDir(_)
        | JobSpec::TearDownVolumes(_)
        | JobSpec::Measure(_) => return run_in_child(roots.of(spec).handle()?, spec),
        #[cfg(feature = "node-jobs")]
        JobSpec::MeasureNode { .. } => return run_in_child(roots.of(spec).handle()?, spec),
        JobSpec::RotateLog { log, files_max, at_s } => {
            rotate::rotate(roots.pod_logs.handle()?, log, *files_max, *at_s)
        }
        JobSpec::RestoreLog(log) => rotate::restore(roots.pod_logs.handle()?, log),
        JobSpec::CompressLogs(log) => rotate::compress(roots.pod_logs.handle()?, log),
        JobSpec::SweepLinks { living } => {
            roots.with_links(|logs, links| log::sweep_links(logs, links, living))
        }
        #[cfg(feature = "cloud")]
        JobSpec::Enrol { .. } => Err(Failure("got a job that is for a child only".to_owned())),
        #[cfg(feature = "node-jobs")]
        JobSpec::Upgrade(_) => Err(Failure("got a job that is for a child only".to_owned())),
    };
    done.map(|()| JobReply::Done).map_err(JobError::from)
}

/// Runs a job here that is otherwise for a child, if it is small. `None`: it is not;
/// the part that was done need not be repeated.
pub(super) fn run_if_small(roots: &mut Roots, spec: &JobSpec) -> Option<Result<(), JobError>> {
    kind(spec)?;
    let root = roots.of(spec).handle();
    let done = match spec {
        JobSpec::RemoveLogDir(pod) => root.and_then(|root| log::remove_small_dir(root, pod)),
        JobSpec::RemovePodDir(pod) => root.and_then(|root| pod_dir::remove_small(root, &pod.uid)),
        JobSpec::TearDownVolumes(pod) => root.and_then(|root| pod_dir::is_bare(root, &pod.uid)),
        JobSpec::MakePodDirs { .. }
        | JobSpec::MakeContainerFiles(_)
        | JobSpec::LinkLog(_)
        | JobSpec::RemoveLog(_)
        | JobSpec::SweepLinks { .. }
        | JobSpec::SetUpVolume(_)
        | JobSpec::BindSubPath(_)
        | JobSpec::RotateLog { .. }
        | JobSpec::RestoreLog(_)
        | JobSpec::CompressLogs(_)
        | JobSpec::Measure(_)
        | JobSpec::MakePodCgroup(_)
        | JobSpec::RemovePodCgroup(_)
        | JobSpec::SetQosCgroups(_) => return None,
        #[cfg(feature = "cloud")]
        JobSpec::Enrol { .. } => return None,
        #[cfg(feature = "node-jobs")]
        JobSpec::MeasureNode { .. } | JobSpec::Upgrade(_) => return None,
    };
    match done {
        Ok(true) => Some(Ok(())),
        Ok(false) => None,
        Err(failure) => Some(Err(failure.into())),
    }
}

/// Measures the requested logs and folders. Those that cannot be read are omitted.
pub(super) fn measure(roots: &mut Roots, request: &MeasureRequest, measures: &mut Measures) {
    let Ok(logs) = roots.pod_logs.handle() else { return };
    for link in &request.logs {
        if let Ok(size) = log::size(logs, link) {
            measures.logs.push((link.clone(), size));
        }
    }
    if request.log_dirs {
        let mut pods = roots.pods.handle().and_then(pod_dir::uids).unwrap_or_default();
        if let Some(known) = &request.cgroups_but {
            let idle = roots.cgroups.idle_pods(known).unwrap_or_default();
            pods.extend(idle.into_iter().filter(|uid| !pods.contains(uid)).collect::<Vec<_>>());
        }
        measures.log_dirs = log::dirs(logs).ok().map(|mut dirs| {
            let with_logs: BTreeSet<Box<str>> = dirs.iter().map(|dir| dir.uid.clone()).collect();
            let without = pods.iter().filter(|uid| !with_logs.contains(&***uid));
            dirs.extend(without.map(|uid| LogDir::nameless(uid)));
            dirs
        });
    }
}

/// The termination message or log of an ended container; empty if none can be read.
pub(super) fn read(roots: &mut Roots, last_words: &LastWords) -> String {
    let Roots { pods, pod_logs, .. } = roots;
    match (pods.handle(), pod_logs.handle()) {
        (Ok(pods), Ok(logs)) => files::read(pods, logs, last_words),
        _ => String::new(),
    }
}

/// Runs a job in a child, below the root that was passed to it.
pub(super) fn run_in_child(root: BorrowedFd<'_>, spec: &JobSpec) -> Result<JobReply, JobError> {
    let done = match spec {
        JobSpec::Measure(walk) => return Ok(JobReply::Used(usage::measure(root, walk))),
        #[cfg(feature = "node-jobs")]
        JobSpec::MeasureNode { image_fs } => {
            return Ok(JobReply::NodeUsage(node::measure(root, image_fs.as_deref())));
        }
        // It is no job on the pods' files: see `io::job`.
        #[cfg(feature = "node-jobs")]
        JobSpec::Upgrade(_) => Err(JobError::Failed("got a step of an upgrade".to_owned())),
        JobSpec::CompressLogs(log) => rotate::compress(root, log).map_err(JobError::from),
        JobSpec::RemoveLogDir(pod) => log::remove_dir(root, pod).map_err(JobError::from),
        JobSpec::RemovePodDir(pod) => pod_dir::remove(root, &pod.uid).map_err(JobError::from),
        JobSpec::TearDownVolumes(pod) => pod_dir::tear_down(root, &pod.uid).map_err(JobError::from),
        JobSpec::SetUpVolume(wanted) => volume::set_up(root, wanted).map_err(JobError::from),
        JobSpec::BindSubPath(wanted) => volume::bind_sub_path(root, wanted).map_err(JobError::from),
        JobSpec::MakePodDirs { .. }
        | JobSpec::MakeContainerFiles(_)
        | JobSpec::LinkLog(_)
        | JobSpec::RemoveLog(_)
        | JobSpec::SweepLinks { .. }
        | JobSpec::RotateLog { .. }
        | JobSpec::RestoreLog(_)
        | JobSpec::MakePodCgroup(_)
        | JobSpec::RemovePodCgroup(_)
        | JobSpec::SetQosCgroups(_) => {
            Err(JobError::Failed("got a job that is not for a child".to_owned()))
        }
        // It has settings instead of a root: see `io::job`.
        #[cfg(feature = "cloud")]
        JobSpec::Enrol { .. } => {
            Err(JobError::Failed("got a certificate request without settings".to_owned()))
        }
    };
    done.map(|()| JobReply::Done)
}

/// The name of a job that runs in a child, as `edged job <kind>` shows it in `ps`; `None` for the
/// quick ones.
pub(super) fn kind(spec: &JobSpec) -> Option<&'static str> {
    place_of_work(spec).1
}

/// The folder below which a job works, and its name if it runs in a child.
fn place_of_work(spec: &JobSpec) -> (Below, Option<&'static str>) {
    match spec {
        // It works below no folder: any open one will do.
        #[cfg(feature = "cloud")]
        JobSpec::Enrol { .. } => (Below::Pods, Some(ENROL)),
        #[cfg(feature = "node-jobs")]
        JobSpec::MeasureNode { .. } => (Below::Pods, Some("measure-node")),
        #[cfg(feature = "node-jobs")]
        JobSpec::Upgrade(_) => (Below::Pods, Some("upgrade")),
        JobSpec::MakePodDirs { .. } | JobSpec::MakeContainerFiles(_) => (Below::Pods, None),
        JobSpec::SetUpVolume(wanted) => (Below::Pods, set_up_kind(wanted)),
        JobSpec::Measure(walk) => {
            let below = match walk.kind {
                FolderKind::Volume => Below::Pods,
                FolderKind::Logs => Below::Logs,
            };
            (below, Some("measure"))
        }
        JobSpec::BindSubPath(wanted) => {
            // The volume may be local, and this part of it on another machine.
            let part = format!("{}/{}", wanted.volume_path, wanted.path);
            let remote = wanted.remote || volume::is_remote(&part);
            (Below::Pods, remote.then_some(BIND_REMOTE))
        }
        JobSpec::TearDownVolumes(_) => (Below::Pods, Some("tear-down-volumes")),
        JobSpec::RemovePodDir(_) => (Below::Pods, Some("remove-pod-dir")),
        JobSpec::LinkLog(_)
        | JobSpec::RemoveLog(_)
        | JobSpec::SweepLinks { .. }
        | JobSpec::RotateLog { .. }
        | JobSpec::RestoreLog(_) => (Below::Logs, None),
        JobSpec::CompressLogs(_) => (Below::Logs, Some("compress-logs")),
        JobSpec::RemoveLogDir(_) => (Below::Logs, Some("remove-log-dir")),
        JobSpec::MakePodCgroup(_) | JobSpec::RemovePodCgroup(_) | JobSpec::SetQosCgroups(_) => {
            (Below::Cgroups, None)
        }
    }
}

fn set_up_kind(wanted: &VolumeSetUp) -> Option<&'static str> {
    match &wanted.source {
        Source::EmptyDir(_) | Source::Files(_) => None,
        Source::HostPath { path, .. } => volume::is_remote(path).then_some(SET_UP_REMOTE),
        Source::Local { path, .. } if volume::is_remote(path) => Some(SET_UP_REMOTE),
        // Changing the group of all files in it may take long.
        Source::Local { .. } => wanted.fs_group.map(|_| "set-up-volume"),
        Source::Nfs { .. } => Some(SET_UP_REMOTE),
    }
}

const ENROL: &str = "enrol";
const SET_UP_REMOTE: &str = "set-up-remote-volume";
const BIND_REMOTE: &str = "bind-remote-sub-path";

/// The group of jobs that share slots: those that wait for another machine may do so for ever, and
/// must not delay the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Disk,
    Machine,
    Cloud,
}

pub(super) fn place(kind: &str) -> Place {
    match kind {
        SET_UP_REMOTE | BIND_REMOTE => Place::Machine,
        ENROL => Place::Cloud,
        _ => Place::Disk,
    }
}

/// The folder below which a job works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Below {
    Pods,
    Logs,
    Cgroups,
}

#[derive(Debug)]
pub struct Roots {
    /// The pods' folders: `/var/lib/kubelet/pods`.
    pods: Root,
    /// The pods' logs: `/var/log/pods`.
    pod_logs: Root,
    /// Links to them, for log collectors; `None`: no links are made.
    container_logs: Option<Root>,
    /// `None`: no cloud is configured.
    #[cfg(feature = "cloud")]
    link: Option<CloudLink>,
    cgroups: Cgroups,
}

impl Roots {
    /// Opens nothing yet. `root` is the kubelet's. Absolute paths; without `container_logs` no
    /// links are made.
    pub fn new(root: &Path, pod_logs: PathBuf, container_logs: Option<PathBuf>) -> Self {
        Self {
            pods: Root::new(root.join("pods")),
            pod_logs: Root::new(pod_logs),
            container_logs: container_logs.map(Root::new),
            cgroups: Cgroups::default(),
            #[cfg(feature = "cloud")]
            link: None,
        }
    }

    /// With the cloud that issues certificates.
    #[cfg(feature = "cloud")]
    #[must_use]
    pub fn with_link(self, link: Option<CloudLink>) -> Self {
        Self { link, ..self }
    }

    /// The cloud settings that the job needs.
    #[cfg(feature = "cloud")]
    pub(super) fn link_for(&self, spec: &JobSpec) -> Option<CloudLink> {
        self.link.clone().filter(|_| matches!(spec, JobSpec::Enrol { .. }))
    }

    /// With cgroups that can be made.
    #[must_use]
    pub fn with_cgroups(self, cgroups: Cgroups) -> Self {
        Self { cgroups, ..self }
    }

    /// The root below which a child works.
    pub(super) fn of(&mut self, spec: &JobSpec) -> &mut Root {
        match place_of_work(spec).0 {
            Below::Pods => &mut self.pods,
            Below::Logs => &mut self.pod_logs,
            Below::Cgroups => panic!("{} is for no child", spec.kind()),
        }
    }

    /// With the path of the logs and the handle of the links' folder; does nothing without links.
    fn with_links(
        &mut self,
        act: impl FnOnce(&Path, BorrowedFd<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match &mut self.container_logs {
            Some(links) => act(&self.pod_logs.path, links.handle()?),
            None => Ok(()),
        }
    }
}

/// One folder, made if it is absent and kept open from its first use.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    handle: Option<OwnedFd>,
}

impl Root {
    fn new(path: PathBuf) -> Self {
        Self { path, handle: None }
    }

    /// The open folder. It is opened again if it was removed since.
    pub(super) fn handle(&mut self) -> Result<BorrowedFd<'_>, Failure> {
        let lives = |fd: &OwnedFd| fstat(fd.as_fd()).is_ok_and(|stat| stat.st_nlink > 0);
        if !self.handle.as_ref().is_some_and(lives) {
            let failed = |what, errno| Failure::at(what, &self.path, errno);
            std::fs::create_dir_all(&self.path)
                .map_err(|error| Failure(format!("mkdir {}: {error}", self.path.display())))?;
            let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
            let opened = open(&self.path, flags, Mode::empty());
            self.handle = Some(opened.map_err(|errno| failed("open", errno))?);
        }
        Ok(self.handle.as_ref().expect("it was opened above").as_fd())
    }
}

/// One path component: never empty, never `.` or `..`, without `/` and NUL, at most 255 bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Component<'a>(&'a OsStr);

impl<'a> Component<'a> {
    pub(super) fn new(name: &'a (impl AsRef<OsStr> + ?Sized)) -> Result<Self, Failure> {
        let name = name.as_ref();
        let bytes = name.as_bytes();
        let sound = !matches!(bytes, b"" | b"." | b"..")
            && !bytes.iter().any(|byte| matches!(byte, b'/' | 0))
            && bytes.len() <= 255;
        if sound {
            return Ok(Self(name));
        }
        Err(Failure(format!(
            "got {:?}, expected the name of one file in a folder",
            name.to_string_lossy()
        )))
    }

    pub(super) fn as_os_str(self) -> &'a OsStr {
        self.0
    }
}

impl fmt::Display for Component<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.to_string_lossy().fmt(f)
    }
}

/// Why a job failed, for the user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure(String);

impl Failure {
    fn at(what: &str, place: impl AsRef<OsStr>, errno: Errno) -> Self {
        Self(format!("{what} {}: {}", place.as_ref().to_string_lossy(), errno.desc()))
    }
}

impl From<Failure> for JobError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.0)
    }
}

#[cfg(test)]
mod tests;
