//! Files that the agent creates for a container: `/etc/hosts` and the file for its termination
//! message (spec sections 2.8 and 3.7).
//!
//! One short job creates them right before the container is created, and again for each try,
//! because addresses may have changed. The termination message is read after the container has
//! ended, under the file name that the runtime reports; so an agent can read messages of containers
//! that another agent created.
//!
//! If we crash here: the job is run again, and an ended container is inspected again.

use super::hash::file_name;
use super::names::{hostname, log_dir, subdomain};
use super::plan::Step;
use super::{Pod, PodContext};
use crate::agent::Config;
use crate::agent::event::JobId;
use crate::agent::jobs::JobOwner;
use crate::agent::time::{Instant, Now};
use crate::model::cri::{ContainerId, Mount};
use crate::model::job::{ContainerFiles, Hosts, JobError, JobSpec, LastWords};
use crate::model::map::Map;
use crate::model::pod::{self as api, Container};

const HOSTS: &str = "/etc/hosts";
/// The default path of a container's termination message.
const MESSAGE_PATH: &str = "/dev/termination-log";

/// `terminationMessagePath` in force.
pub fn message_path(container: &Container) -> &str {
    container.termination_message_path.as_deref().filter(|p| !p.is_empty()).unwrap_or(MESSAGE_PATH)
}

/// The agent's own files that are mounted into the container.
pub fn mounts(
    pod: &api::Pod,
    container: &Container,
    attempt: u32,
    pod_ips: &[String],
    config: &Config,
) -> Vec<Mount> {
    let dir = format!("{}/pods/{}", config.root, pod.metadata.uid);
    let mount = |container_path: &str, host_path: String| Mount {
        container_path: container_path.to_owned(),
        host_path,
        ..Mount::default()
    };
    let name = &container.name;
    let file = file_name(name, attempt);
    let hosts = hosts(pod, container, pod_ips, config);
    hosts
        .map(|_| mount(HOSTS, format!("{dir}/etc-hosts")))
        .into_iter()
        .chain([mount(message_path(container), format!("{dir}/containers/{name}/{file}"))])
        .collect()
}

/// The content of `/etc/hosts`; `None`: the container mounts its own, or the addresses are not
/// known yet.
fn hosts(
    pod: &api::Pod,
    container: &Container,
    pod_ips: &[String],
    config: &Config,
) -> Option<Hosts> {
    let spec = &pod.spec;
    if mounts_at(container, HOSTS) {
        return None;
    }
    let mut aliases = String::new();
    if !spec.host_aliases.is_empty() {
        aliases.push_str("\n# Entries added by HostAliases.\n");
        for alias in &spec.host_aliases {
            let line = format!("{}\t{}\n", alias.ip, alias.hostnames.join("\t"));
            aliases.push_str(&line);
        }
    }
    if spec.host_network {
        return Some(Hosts::Nodes { aliases });
    }
    if pod_ips.is_empty() {
        return None;
    }
    let mut text = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
        ::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
        fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
        .to_owned();
    let host = hostname(pod);
    for ip in pod_ips {
        let line = match subdomain(pod, config) {
            Some(domain) => format!("{ip}\t{host}.{domain}\t{host}\n"),
            None => format!("{ip}\t{host}\n"),
        };
        text.push_str(&line);
    }
    Some(Hosts::Own { text: text + &aliases })
}

/// Whether the container mounts a volume at this path.
fn mounts_at(container: &Container, path: &str) -> bool {
    container.volume_mounts.iter().any(|mount| mount.mount_path == path)
}

/// The files and directories of one pod, as far as the agent has made or removed them.
#[derive(Debug, Default)]
pub(super) struct Files {
    dirs: Dirs,
    /// The pod has ended, and its directory below the kubelet's root is removed.
    is_dir_removed: bool,
    /// Ended containers whose logs are removed.
    logs_removed: Vec<ContainerId>,
    /// Started containers whose logs have to be linked.
    logs_to_link: Vec<ContainerId>,
    /// Ended containers whose termination messages have to be read.
    messages_to_read: Vec<ContainerId>,
    /// Termination messages that are being read.
    reads: Map<JobId, ContainerId>,
}

/// The directories for logs, volumes and other files.
#[derive(Clone, Copy, Debug, Default)]
enum Dirs {
    #[default]
    Unknown,
    Made,
    /// Creating them failed; no retry before this time.
    Failed {
        retry_at: Instant,
    },
    /// The pod has ended, and its log directories are removed.
    LogsRemoved,
}

impl Files {
    pub(super) fn dirs_made(&mut self) {
        self.dirs = Dirs::Made;
    }

    pub(super) fn dirs_failed(&mut self, retry_at: Instant) {
        self.dirs = Dirs::Failed { retry_at };
    }

    /// Whether the directories exist; `Err`: they do not, and are made at this time at the
    /// earliest.
    pub(super) fn has_dirs(&self, now: Instant) -> Result<bool, Instant> {
        match self.dirs {
            Dirs::Made => Ok(true),
            Dirs::Failed { retry_at } if retry_at > now => Err(retry_at),
            Dirs::Unknown | Dirs::Failed { .. } | Dirs::LogsRemoved => Ok(false),
        }
    }

    pub(super) fn log_dir_removed(&mut self) {
        self.dirs = Dirs::LogsRemoved;
    }

    pub(super) fn is_log_dir_removed(&self) -> bool {
        matches!(self.dirs, Dirs::LogsRemoved)
    }

    pub(super) fn dir_removed(&mut self) {
        self.is_dir_removed = true;
    }

    pub(super) fn is_dir_removed(&self) -> bool {
        self.is_dir_removed
    }

    pub(super) fn log_removed(&mut self, id: ContainerId) {
        self.logs_removed.push(id);
    }

    pub(super) fn is_log_removed(&self, id: &ContainerId) -> bool {
        self.logs_removed.contains(id)
    }

    /// Forgets containers that do not exist any more.
    pub(super) fn keep_known(&mut self, is_known: impl Fn(&ContainerId) -> bool) {
        self.logs_removed.retain(is_known);
    }

    /// The container has started: its log is to be linked, for log collectors.
    pub(super) fn started(&mut self, id: ContainerId) {
        self.logs_to_link.push(id);
    }

    pub(super) fn take_logs_to_link(&mut self) -> Vec<ContainerId> {
        std::mem::take(&mut self.logs_to_link)
    }

    /// The container has ended: its termination message is to be read.
    pub(super) fn ended(&mut self, id: ContainerId) {
        self.messages_to_read.push(id);
    }

    /// A termination message is being read.
    pub(super) fn is_reading(&self) -> bool {
        !self.reads.is_empty()
    }
}

impl Pod {
    /// Starts to create the files of the next container. Returns whether the container has to wait
    /// for them.
    pub(super) fn make_files(
        &mut self,
        now: Now,
        step: &Step,
        context: &mut PodContext<'_>,
    ) -> bool {
        let Step::Create { container: name, attempt, .. } = step else { return false };
        if self.records.of(name).has_files(*attempt) {
            return false;
        }
        let waits = self.runner.jobs().any(|job| match job {
            JobSpec::MakeContainerFiles(files) => files.container == *name,
            _ => false,
        });
        if !waits {
            let container = self.spec_of(name).expect("next returns containers of the spec");
            let pod_ips = self.ips(context.host_info);
            let hosts = hosts(&self.api, container, &pod_ips, context.config);
            let spec = JobSpec::MakeContainerFiles(Box::new(ContainerFiles {
                pod: log_dir(&self.api),
                container: name.clone(),
                attempt: *attempt,
                message: file_name(name, *attempt),
                // The file of the attempt before the last is no longer needed.
                old: attempt.checked_sub(2).map(|attempt| file_name(name, attempt)),
                hosts,
            }));
            self.begin_job(now, spec, context);
        }
        true
    }

    /// Takes the result of creating the container's files.
    pub(super) fn files_made(
        &mut self,
        now: Now,
        files: &ContainerFiles,
        result: &Result<(), JobError>,
    ) {
        match result {
            Ok(()) => self.records.of(&files.container).set_files(Some(files.attempt)),
            Err(error) => {
                self.unconfigured(now, &files.container, &format!("failed to make files: {error}"));
            }
        }
    }

    /// Requests the termination messages of containers that have just been found ended.
    pub(super) fn read_termination_messages(&mut self, context: &mut PodContext<'_>) {
        for id in std::mem::take(&mut self.files.messages_to_read) {
            let Some(message) = self.termination_message(&id, context.config) else { continue };
            let owner = JobOwner::Pod(self.uid.clone());
            let job = context.jobs.read(owner, message, context.out);
            self.files.reads.insert(job, id);
        }
    }

    fn termination_message(&self, id: &ContainerId, config: &Config) -> Option<LastWords> {
        let observed = self.observed.container(id)?;
        let status = observed.status.as_ref()?;
        let (name, uid) = (&observed.name, &self.uid);
        let dir = format!("{}/pods/{uid}/containers/{name}/", config.root);
        let file = status.message_file.as_deref().and_then(|path| path.strip_prefix(&*dir));
        let file = file.filter(|file| !file.is_empty() && !file.contains('/'));
        let failed = status.exit_code != 0 && &*status.reason != "ContainerCannotRun";
        let log = (status.message_from_log && failed).then_some(observed.attempt);
        (file.is_some() || log.is_some()).then(|| LastWords {
            pod: log_dir(&self.api),
            container: name.clone(),
            file: file.map(Into::into),
            log,
        })
    }

    /// Takes a termination message.
    pub fn termination_message_read(&mut self, job: JobId, text: &str) {
        let id = self.files.reads.remove(&job).expect("the pod requested the message");
        if self.observed.add_message(&id, text) {
            self.mark_dirty();
        }
    }
}
