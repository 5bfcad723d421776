//! Files that the agent creates for a container: `/etc/hosts` and the file for its termination
//! message (spec sections 2.8 and 3.7).
//!
//! One short job creates them right before the container is created, and again for each try,
//! because addresses may have changed. The termination message is read after the container has
//! ended, under the file name that the runtime reports; so an agent can read messages of containers
//! that another agent created.
//!
//! If we crash here: the job is run again, and an ended container is inspected again.

use super::config::{hostname, log_dir, subdomain};
use super::hash::file_name;
use super::{Pod, Step};
use crate::agent::Config;
use crate::agent::event::JobId;
use crate::agent::jobs::JobOwner;
use crate::agent::pod::step::PodContext;
use crate::agent::time::Now;
use crate::model::cri::{ContainerId, Mount};
use crate::model::job::{ContainerFiles, Hosts, JobError, JobSpec, LastWords};
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
    if super::config::mounts_at(container, HOSTS) {
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
        if self.record_mut(name).files == Some(*attempt) {
            return false;
        }
        let waits = self.jobs.values().any(|job| match job {
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
            Ok(()) => self.record_mut(&files.container).files = Some(files.attempt),
            Err(error) => {
                self.unconfigured(now, &files.container, &format!("failed to make files: {error}"));
            }
        }
    }

    /// Requests the termination messages of containers that have just been found ended.
    pub(super) fn read_termination_messages(&mut self, context: &mut PodContext<'_>) {
        for id in std::mem::take(&mut self.messages_to_read) {
            let Some(message) = self.termination_message(&id, context.config) else { continue };
            let owner = JobOwner::Pod(self.uid.clone());
            let job = context.jobs.read(owner, message, context.out);
            self.message_reads.insert(job, id);
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

    /// Takes a termination message. `false`: this pod did not request it.
    pub fn termination_message_read(&mut self, job: JobId, text: &str) -> bool {
        let Some(id) = self.message_reads.remove(&job) else { return false };
        if let Some(status) =
            self.observed.container_mut(&id).and_then(|observed| observed.status.as_mut())
            && !text.is_empty()
        {
            let message = match &*status.message {
                "" => text.to_owned(),
                runtimes => format!("{runtimes}: {text}"),
            };
            status.message = message.into();
            self.mark_dirty();
        }
        true
    }
}
