//! Makes and ends sandboxes: the namespaces of a pod, its `/dev/shm`, three files and its network.
//!
//! ```text
//!  RUN/sb/ID/  resolv.conf hosts hostname   files, bind-mounted into containers
//!              shm                          a file system in memory, likewise
//!              net ipc uts user             namespaces of the pod, each mounted on a file
//!              pid holder root              only with a process namespace of the pod
//! ```
//!
//! No process holds a namespace: a mount does, so nothing of a sandbox can die; but a process
//! namespace needs a process (see [`super::pause`]). Namespaces that are the host's are left out,
//! and so is `shm` with the host's IPC. Runs in a job child, which leaves its own namespaces for a
//! moment. **If we crash here** the folder tells that something is left: [`make`] takes it down
//! first, and both [`make`] and [`end`] may be killed and repeated at any moment.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::sys::statfs::{NSFS_MAGIC, statfs};
use nix::unistd::sethostname;

use super::fail_point::{self, Who};
use super::layout::{Layout, Settings, is_id};
use super::namespace::{self, IPC, Kind, NET, PID, UTS};
use super::user_namespace::{self, Holder, USER};
use super::{cni, files, pause};
use crate::io::jobs::Cgroups;
use crate::io::sys;
use crate::limits::{HOST_FILE_BYTES_MAX, MOUNTS_STACKED_MAX, SANDBOX_SHM_BYTES};
use crate::model::cri::{
    Dns, IpcNamespace, Namespaces, Network, PidNamespace, SandboxConfig, UserRange,
};
use crate::model::error::System;
use crate::model::runtime::{JobFault, JobReply, SandboxId, SandboxRecord};

/// Makes it. → [`JobReply::Network`] with its addresses. A failure leaves nothing, unless what is
/// left cannot be taken down either: the text says so.
pub fn make(settings: &Settings, record: &SandboxRecord) -> Result<JobReply, JobFault> {
    make_with(settings, record, Path::new("/proc/self/exe"))
}

/// `program`: holds a process namespace, by `program pause FOLDER`.
fn make_with(
    settings: &Settings,
    record: &SandboxRecord,
    program: &Path,
) -> Result<JobReply, JobFault> {
    let config = &record.config;
    checked(&record.id)?;
    checked_users(config)?;
    let sysctls = config
        .sysctls
        .iter()
        .map(|(name, value)| Ok((sysctl(name, config).map_err(JobFault::Invalid)?, name, value)));
    let sysctls = sysctls.collect::<Result<Vec<_>, JobFault>>()?;
    let (id, layout) = (&record.id, &settings.layout);
    if layout.sandbox(id).exists() || layout.cni(id).exists() {
        take_down(settings, record)?;
    }
    let made = make_all(settings, record, &sysctls, program);
    made.map(JobReply::Network).map_err(|fault| match take_down(settings, record) {
        Ok(()) => fault,
        Err(left) => also(&fault, &left),
    })
}

/// Ends it, whatever there is of it.
pub fn end(settings: &Settings, record: &SandboxRecord) -> Result<JobReply, JobFault> {
    checked(&record.id)?;
    take_down(settings, record).map(|()| JobReply::Done)
}

/// Sandboxes with a folder in RUN.
pub fn found(settings: &Settings) -> Vec<SandboxId> {
    ids(files::names(&settings.layout.run().join("sb")))
}

/// Sandboxes with something kept for DEL.
pub fn found_networks(settings: &Settings) -> Vec<SandboxId> {
    ids(cni::kept_ids(settings))
}

fn ids(names: Vec<String>) -> Vec<SandboxId> {
    names.into_iter().filter(|name| is_id(name)).map(|id| SandboxId(id.into())).collect()
}

fn checked(id: &SandboxId) -> Result<(), JobFault> {
    if is_id(&id.0) {
        return Ok(());
    }
    Err(JobFault::Invalid(format!("got the sandbox id {:?}, expected 64 hex digits", id.0)))
}

/// Who has users of their own has no rights in the host's namespaces.
fn checked_users(config: &SandboxConfig) -> Result<(), JobFault> {
    let Namespaces { network, pid, ipc, users } = &config.namespaces;
    let is_own = *network == Network::Pod
        && *ipc == IpcNamespace::Pod
        && matches!(pid, PidNamespace::Container | PidNamespace::Pod);
    if users.is_none() || is_own {
        return Ok(());
    }
    let why = "userns_options: got users of the pod's own with a namespace of the host, expected \
               network, pid and ipc of the pod";
    Err(JobFault::Invalid(why.to_owned()))
}

type Sysctl<'a> = (PathBuf, &'a String, &'a String);

fn make_all(
    settings: &Settings,
    record: &SandboxRecord,
    sysctls: &[Sysctl<'_>],
    program: &Path,
) -> Result<Vec<Box<str>>, JobFault> {
    let config = &record.config;
    let folder = settings.layout.sandbox(&record.id);
    files::make_dir(&folder).map_err(failed)?;
    let step = |what| step(settings, what);
    step("the sandbox's folder is made");
    write_files(&folder, config)?;
    if let Some(users) = config.namespaces.users {
        give_files(&settings.layout, &folder, users).map_err(failed)?;
    }
    cgroups().make_parent(parent_cgroup(config)).map_err(failed)?;
    step("the cgroup parent is made");
    let kinds = kinds(config);
    if kinds.contains(&IPC) {
        make_shm(&folder.join(SHM)).map_err(failed)?;
        step("/dev/shm is mounted");
    }
    if !kinds.is_empty() {
        let hold = |users: Option<&Path>| {
            make_namespaces(&folder, config, &kinds, sysctls)?;
            if kinds.contains(&PID) {
                let cgroup = holder_cgroup(record);
                cgroups().make_parent(&cgroup)?;
                pause::hold(program, &folder, &cgroups().folders(&cgroup), users)?;
            }
            Ok(())
        };
        let held = match config.namespaces.users {
            None => namespace::in_new(&kinds, || hold(None)),
            Some(users) => {
                let own: Vec<Kind> = kinds.iter().copied().filter(|kind| *kind != PID).collect();
                let holder = Holder::new(users, &own).map_err(failed)?;
                let place = folder.join(USER);
                bind_file(&holder.file(USER), &place).map_err(failed)?;
                namespace::in_those(&own, |name| holder.file(name), || hold(Some(&place)))
            }
        };
        held.map_err(failed)?.map_err(failed)?;
    }
    step("namespaces are held");
    if kinds.contains(&NET) {
        return cni::attach(settings, record, &folder.join(NET.0));
    }
    Ok(Vec::new())
}

/// The namespaces that are the pod's.
fn kinds(config: &SandboxConfig) -> Vec<Kind> {
    let mut kinds = Vec::new();
    if config.namespaces.network == Network::Pod {
        // With the host's network its name is the host's as well.
        kinds.extend([NET, UTS]);
    }
    if config.namespaces.ipc == IpcNamespace::Pod {
        kinds.push(IPC);
    }
    if config.namespaces.pid == PidNamespace::Pod {
        kinds.push(PID);
    }
    kinds
}

fn cgroups() -> Cgroups {
    Cgroups::new(sys::CGROUPS.into(), sys::cgroups().hierarchy, Vec::new())
}

/// Whether the process namespace that the pod's containers share is there, if they share one: its
/// first process is alone in a cgroup.
pub(super) fn is_held(record: &SandboxRecord) -> bool {
    let is_own = record.config.namespaces.pid == PidNamespace::Pod;
    !is_own || pause::lives(&cgroups().folders(&holder_cgroup(record)))
}

/// Beside those of the pod's containers: with cgroup v2 an inner one must have no process.
fn holder_cgroup(record: &SandboxRecord) -> String {
    format!("{}/{}", parent_cgroup(&record.config), record.id)
}

/// Absolute in each hierarchy.
fn parent_cgroup(config: &SandboxConfig) -> &str {
    match config.cgroup_parent.as_str() {
        "" => "/edged",
        parent => parent,
    }
}

/// Runs inside the new namespaces.
fn make_namespaces(
    folder: &Path,
    config: &SandboxConfig,
    kinds: &[Kind],
    sysctls: &[Sysctl<'_>],
) -> Result<(), System> {
    if kinds.contains(&UTS) && !config.hostname.is_empty() {
        let name = &config.hostname;
        sethostname(name)
            .map_err(|errno| System::at(format_args!("sethostname {name:?}"), errno.desc()))?;
    }
    if kinds.contains(&NET) {
        namespace::raise_loopback().map_err(|error| System::at("cannot raise lo", error))?;
    }
    for (path, name, value) in sysctls {
        let mut options = File::options();
        let written =
            options.write(true).open(path).and_then(|mut it| it.write_all(value.as_bytes()));
        written.map_err(|error| System::at(format_args!("sysctl {name}={value}"), error))?;
    }
    let mut kinds = kinds.iter().filter(|kind| **kind != PID);
    kinds.try_for_each(|(name, _)| {
        bind_file(&Path::new(namespace::OWN).join(name), &folder.join(name))
    })
}

/// Mounts a namespace on a file, which is made.
fn bind_file(namespace: &Path, file: &Path) -> Result<(), System> {
    File::create(file).map_err(|error| files::at("create", file, &error))?;
    files::bind(namespace, file).map_err(|errno| files::at("mount on", file, &errno.into()))
}

/// The pod's user 0 comes to its files, and may change them.
fn give_files(layout: &Layout, folder: &Path, users: UserRange) -> Result<(), System> {
    let given = user_namespace::open_way(layout, folder, users).and_then(|()| {
        let mut names = [RESOLV_CONF, HOSTS, HOSTNAME].into_iter();
        let owner = Some(users.first);
        names.try_for_each(|name| chown(folder.join(name), owner, owner))
    });
    given.map_err(|error| files::at("chown below", folder, &error))
}

fn make_shm(place: &Path) -> Result<(), System> {
    files::make_dir(place)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let options = format!("mode=1777,size={SANDBOX_SHM_BYTES}");
    files::mount(Some(Path::new("shm")), place, Some("tmpfs"), flags, Some(&options))
        .map_err(|errno| files::at("mount tmpfs on", place, &errno.into()))
}

const SHM: &str = "shm";
const RESOLV_CONF: &str = "resolv.conf";
const HOSTS: &str = "hosts";
const HOSTNAME: &str = "hostname";

fn write_files(folder: &Path, config: &SandboxConfig) -> Result<(), JobFault> {
    let given = config.dns.as_ref().map(resolv_conf).transpose().map_err(JobFault::Invalid)?;
    let resolv_conf = match given.filter(|text| !text.is_empty()) {
        Some(text) => text.into_bytes(),
        None => host_file("/etc/resolv.conf", HOST_FILE_BYTES_MAX),
    };
    let hostname = match config.hostname.as_str() {
        "" => sys::hostname().unwrap_or_default(),
        name => name.to_owned(),
    };
    for (name, bytes) in [
        (RESOLV_CONF, resolv_conf),
        (HOSTS, host_file("/etc/hosts", HOST_FILE_BYTES_MAX)),
        (HOSTNAME, format!("{hostname}\n").into_bytes()),
    ] {
        files::write_public(&folder.join(name), &bytes).map_err(failed)?;
    }
    Ok(())
}

/// A copy of the host's, without the lines beyond the bound; empty if it cannot be read.
fn host_file(path: &str, bytes_max: usize) -> Vec<u8> {
    let mut bytes = match files::read(Path::new(path), bytes_max) {
        Ok(bytes) => bytes,
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                log::warn!("{path}: pods get an empty one: {error}");
            }
            return Vec::new();
        }
    };
    if bytes.len() > bytes_max {
        log::warn!("{path}: got more than {bytes_max} bytes, pods get the first lines of it");
        bytes.truncate(bytes_max);
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(end);
    }
    bytes
}

/// Empty if nothing is given.
fn resolv_conf(dns: &Dns) -> Result<String, String> {
    let all = dns.servers.iter().chain(&dns.searches).chain(&dns.options);
    if let Some(word) = all.into_iter().find(|word| word.contains(char::is_control)) {
        return Err(format!("dns_config: got {word:?}, expected no control characters"));
    }
    let mut text = String::new();
    let mut line = |name: &str, words: &[String]| {
        if !words.is_empty() {
            text.extend([name, " ", &words.join(" "), "\n"]);
        }
    };
    line("search", &dns.searches);
    dns.servers.iter().for_each(|server| line("nameserver", std::slice::from_ref(server)));
    line("options", &dns.options);
    Ok(text)
}

/// The file of a sysctl that belongs to a namespace of the pod. Others are refused: they would
/// change the host.
fn sysctl(name: &str, config: &SandboxConfig) -> Result<PathBuf, String> {
    // As sysctl(8): the first separator tells which it is; the other one stands for itself.
    let path: String = match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => name.to_owned(),
        _ => name
            .chars()
            .map(|c| {
                if c == '.' {
                    '/'
                } else if c == '/' {
                    '.'
                } else {
                    c
                }
            })
            .collect(),
    };
    let refused = |why: &str| Err(format!("sysctl {name:?}: {why}"));
    if path.split('/').any(|part| matches!(part, "" | "." | ".."))
        || path.contains(|c: char| c.is_control())
    {
        return refused("got no name of a sysctl, expected words with dots");
    }
    let begins = |all: &[&str]| all.iter().any(|begin| path.starts_with(begin));
    if begins(&["net/"]) {
        return match config.namespaces.network {
            Network::Pod => Ok(Path::new("/proc/sys").join(path)),
            Network::Node => refused("it is the host's, because the pod is on the host's network"),
        };
    }
    if begins(&["kernel/shm", "kernel/msg", "fs/mqueue/"]) || path == "kernel/sem" {
        return match config.namespaces.ipc {
            IpcNamespace::Pod => Ok(Path::new("/proc/sys").join(path)),
            IpcNamespace::Node => refused("it is the host's, because the pod has the host's IPC"),
        };
    }
    refused(
        "it belongs to no namespace of a pod, expected net.*, kernel.shm*, kernel.msg*, \
             kernel.sem or fs.mqueue.*",
    )
}

/// Removes all that there may be.
fn take_down(settings: &Settings, record: &SandboxRecord) -> Result<(), JobFault> {
    let folder = settings.layout.sandbox(&record.id);
    if record.config.namespaces.network == Network::Pod {
        let netns = folder.join(NET.0);
        // After a reboot, and after a crash at the beginning, it is not there.
        let held = statfs(&netns).is_ok_and(|on| on.filesystem_type() == NSFS_MAGIC);
        cni::detach(settings, record, held.then_some(&*netns))?;
    }
    step(settings, "the network is taken down");
    pause::release(&folder).map_err(failed)?;
    remove_folder(&folder).map_err(failed)?;
    step(settings, "the sandbox's folder is removed");
    if record.config.namespaces.pid == PidNamespace::Pod {
        pause::remove_cgroups(&cgroups().folders(&holder_cgroup(record)));
    }
    Ok(())
}

fn remove_folder(folder: &Path) -> Result<(), System> {
    for name in [SHM, NET.0, IPC.0, UTS.0, USER].iter().chain(&pause::FILES) {
        let place = folder.join(name);
        for _ in 0..MOUNTS_STACKED_MAX {
            match umount2(&place, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                Ok(()) => {}
                Err(Errno::EINVAL | Errno::ENOENT) => break,
                Err(errno) => return Err(files::at("umount", &place, &errno.into())),
            }
        }
        files::remove(&place)?;
    }
    for name in [RESOLV_CONF, HOSTS, HOSTNAME, ""] {
        files::remove(&folder.join(name))?;
    }
    Ok(())
}

fn step(settings: &Settings, what: &str) {
    fail_point::step(settings.layout.run(), Who::Job, what);
}

#[allow(clippy::needless_pass_by_value, reason = "map_err passes it on")]
fn failed(why: System) -> JobFault {
    JobFault::Failed(why.to_string())
}

/// The first failure counts, and what is left is told as well.
fn also(fault: &JobFault, left: &JobFault) -> JobFault {
    JobFault::Failed(format!("{}; and it cannot be taken down: {}", fault.text(), left.text()))
}

#[cfg(test)]
mod tests;
