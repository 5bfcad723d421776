//! The jobs of the event loop on the file system, and the logs there.

use std::collections::{BTreeMap, BTreeSet};

use edged::agent::event::{Event, JobId};
use edged::agent::pod::Phase;
use edged::agent::time::Instant;
use edged::model::cri::Request;
#[cfg(feature = "node-jobs")]
use edged::model::job::NodeUsage;
use edged::model::job::{JobError, JobReply, JobSpec, LastWords, LogDir, LogLink};

use crate::rule::judge;
use crate::runtime::{ContainerNo, Runtime};
use crate::short;
use crate::trace::trace;
use crate::volumes::{self, Volumes};
use crate::world::{POD_LOGS, World, WorldEvent};

/// The log folders.
#[derive(Default)]
pub struct Disk {
    /// Every job fails until then.
    pub read_only_until: u64,
    /// One for each container: `/var/log/pods/<pod>/<container>`.
    pub dirs: BTreeSet<String>,
    /// `/var/lib/kubelet/pods/<uid>`
    pub pod_dirs: BTreeSet<LogDir>,
    /// Pods that have a cgroup of their own.
    pub cgroups: BTreeSet<Box<str>>,
    /// Volumes that are set up.
    pub volumes: Volumes,
    /// Containers, by uid and name, with separately mounted parts of volumes (subPath).
    pub parts: BTreeSet<(Box<str>, Box<str>)>,
    /// `/var/log/pods/<pod>/<container>/<attempt>.log`
    pub logs: BTreeSet<String>,
    /// For each of them, the number of rotated ones beside it.
    pub rotated: BTreeMap<String, usize>,
    /// The targets of the links in `/var/log/containers`.
    pub links: BTreeSet<LogLink>,
}

/// The jobs under way.
#[derive(Default)]
pub struct Jobs(BTreeMap<JobId, Job>);

/// A job under way.
struct Job {
    spec: JobSpec,
    result: Result<(), JobError>,
    /// It takes effect, whatever its result.
    happens: bool,
    /// The agent has killed it.
    killed: bool,
}

impl Disk {
    fn perform(&mut self, spec: &JobSpec) {
        volumes::perform(&mut self.volumes, spec, true);
        match spec {
            JobSpec::SetUpVolume(_) | JobSpec::SetQosCgroups(_) => {}
            JobSpec::MakePodCgroup(wanted) => {
                self.cgroups.insert(wanted.uid.clone());
            }
            JobSpec::RemovePodCgroup(uid) => {
                self.cgroups.remove(uid);
            }
            JobSpec::BindSubPath(part) => {
                self.parts.insert((part.uid.clone(), part.container.clone()));
            }
            JobSpec::TearDownVolumes(pod) => self.parts.retain(|(uid, _)| *uid != pod.uid),
            JobSpec::MakePodDirs { pod, containers } => {
                let root = folder_of(pod);
                self.dirs.extend(containers.iter().map(|name| format!("{root}/{name}")));
                self.pod_dirs.insert(pod.clone());
            }
            JobSpec::MakeContainerFiles(files) => {
                self.dirs.insert(format!("{}/{}", folder_of(&files.pod), files.container));
                self.pod_dirs.insert(files.pod.clone());
            }
            JobSpec::LinkLog(link) => {
                if self.logs.contains(&log_of(link)) {
                    self.links.insert(link.clone());
                }
            }
            JobSpec::RemoveLog(link) => self.remove_log(link),
            JobSpec::RotateLog { log, files_max, .. } => {
                let path = log_of(log);
                if self.logs.remove(&path) {
                    let old = self.rotated.entry(path).or_default();
                    *old = (*old + 1).min(files_max - 1);
                }
            }
            JobSpec::RestoreLog(log) => {
                let path = log_of(log);
                let old = self.rotated.entry(path.clone()).or_default();
                if *old > 0 && !self.logs.contains(&path) {
                    *old -= 1;
                    self.logs.insert(path);
                }
            }
            JobSpec::CompressLogs(_) | JobSpec::Measure(_) => {}
            #[cfg(feature = "cloud")]
            JobSpec::Enrol { .. } => {}
            #[cfg(feature = "node-jobs")]
            JobSpec::MeasureNode { .. } | JobSpec::Upgrade(_) => {}
            JobSpec::SweepLinks { living } => {
                let logs = &self.logs;
                let leads = |link: &LogLink| logs.contains(&log_of(link));
                self.links.retain(|link| leads(link) || living.contains(&link.id));
            }
            JobSpec::RemovePodDir(pod) => {
                self.parts.retain(|(uid, _)| *uid != pod.uid);
                self.pod_dirs.retain(|dir| dir.uid != pod.uid);
            }
            JobSpec::RemoveLogDir(pod) => {
                let root = format!("{}/", folder_of(pod));
                self.dirs.retain(|dir| !dir.starts_with(&root));
                self.logs.retain(|log| !log.starts_with(&root));
                self.rotated.retain(|log, _| !log.starts_with(&root));
                self.links.retain(|link| link.pod != *pod);
            }
        }
    }

    fn remove_log(&mut self, link: &LogLink) {
        self.rotated.remove(&log_of(link));
        self.logs.remove(&log_of(link));
        self.links.remove(link);
    }

    /// The runtime opens the log of a container.
    pub fn log_written(&mut self, runtime: &Runtime, number: ContainerNo) {
        let Some(container) = runtime.containers.get(&number) else { return };
        let sandbox = &runtime.sandboxes[&container.sandbox];
        if sandbox.listed.pod.is_some() {
            self.logs.insert(format!("{}/{}", sandbox.log_directory, container.log_path));
        }
    }

    /// Whether the target of the link exists.
    pub fn leads(&self, link: &LogLink) -> bool {
        self.logs.contains(&log_of(link))
    }

    /// The pods that have a log folder in either place.
    pub fn pods_with_logs(&self) -> Vec<LogDir> {
        let mut found = BTreeSet::new();
        for dir in &self.dirs {
            let name = dir.split('/').nth(4).expect("it lies below the root");
            let mut parts = name.split('_').map(Box::from);
            let mut part = || parts.next().expect("there are three");
            found.insert(LogDir { namespace: part(), name: part(), uid: part() });
        }
        let with_logs: BTreeSet<_> = found.iter().map(|dir| dir.uid.clone()).collect();
        let others = self.pod_dirs.iter().filter(|dir| !with_logs.contains(&dir.uid));
        found.into_iter().chain(others.map(|dir| LogDir::nameless(&dir.uid))).collect()
    }

    /// The newest attempt of a container with a log, current or rotated.
    fn newest_log(&self, pod: &LogDir, container: &str) -> Option<u32> {
        let folder = format!("{}/{container}/", folder_of(pod));
        let rotated = self.rotated.iter().filter(|(_, old)| **old > 0).map(|(path, _)| path);
        let files = self.logs.iter().chain(rotated);
        let attempts =
            files.filter_map(|path| path.strip_prefix(&folder)?.strip_suffix(".log")?.parse().ok());
        attempts.max()
    }

    /// The logs were in memory.
    pub fn wipe(&mut self) {
        self.dirs.clear();
        self.logs.clear();
        self.links.clear();
        self.rotated.clear();
    }
}

impl World {
    /// A job that hangs since the fault phase, and that something may wait for.
    pub(crate) fn hanging(&self) -> Option<String> {
        let hangs = |job: &Job| matches!(job.result, Err(JobError::Deadline));
        self.jobs.0.iter().find(|(_, job)| hangs(job)).map(|(id, _)| format!("{id:?} hangs"))
    }

    /// No container writes to the log of another.
    pub(crate) fn check_log(&self, request: &Request) {
        let Request::CreateContainer { config, sandbox_config, .. } = request else { return };
        let log = format!("{}/{}", sandbox_config.log_directory, config.log_path);
        judge!(!self.disk.logs.contains(&log), "[logs] {log} belongs to another container");
    }

    pub(crate) fn start_job(&mut self, id: JobId, spec: JobSpec, deadline: Instant) {
        trace!(self.clocks.now(), "{id:?} {spec:?}");
        let deadline = self.clocks.world_time(deadline);
        self.check.job(self.clocks.now(), id, &spec, deadline);
        self.cloud_shows(&spec);
        let calm_ms = 1 + self.chance.below(self.faults.job_ms + 1);
        let (ms, result, happens) = if self.chance.percent(self.faults.job_lost_pct) {
            (deadline - self.clocks.now(), Err(JobError::Deadline), self.chance.percent(50))
        } else if self.cloud_is_closed(&spec) {
            (calm_ms, Err(JobError::Failed("no certificate is issued".to_owned())), false)
        } else if self.clocks.now() < self.disk.read_only_until {
            (1, Err(JobError::Failed("Read-only file system".to_owned())), false)
        } else if self.chance.percent(self.faults.job_fail_pct) {
            let error = if self.chance.percent(50) {
                JobError::Failed("Input/output error".to_owned())
            } else {
                JobError::Died("signal 9".to_owned())
            };
            (calm_ms, Err(error), self.chance.percent(20))
        } else {
            (calm_ms, Ok(()), true)
        };
        if result.is_err() {
            self.tally.add("jobs failed");
        }
        let life = self.life;
        self.at(ms.min(deadline - self.clocks.now()), WorldEvent::JobEnds(life, id));
        self.jobs.0.insert(id, Job { spec, result, happens, killed: false });
    }

    pub(crate) fn job_ends(&mut self, life: u32, id: JobId) {
        if life != self.life {
            return;
        }
        // A killed job has ended before its time.
        let Some(job) = self.jobs.0.remove(&id) else { return };
        if job.happens {
            self.cloud_job(id, &job.spec);
            self.disk.perform(&job.spec);
        } else {
            volumes::perform(&mut self.disk.volumes, &job.spec, false);
        }
        trace!(self.clocks.now(), "{id:?} → {:?}", job.result);
        let reply = match &job.spec {
            JobSpec::Measure(walk) => JobReply::Used(short::walk(walk, &self.disk.volumes)),
            JobSpec::MakePodDirs { pod, containers } => {
                let newest = containers.iter().map(|name| self.disk.newest_log(pod, name));
                JobReply::Attempts(newest.collect())
            }
            #[cfg(feature = "node-jobs")]
            JobSpec::MeasureNode { .. } => JobReply::NodeUsage(usage()),
            _ => JobReply::Done,
        };
        self.deliver(vec![Event::Job(id, job.result.map(|()| reply))]);
    }

    /// The agent kills a job: it may have taken effect, and its answer may be on its way.
    pub(crate) fn kill_job(&mut self, id: JobId) {
        trace!(self.clocks.now(), "kill {id:?}");
        let is_answer = |event: &Event| matches!(event, Event::Job(job, _) if *job == id);
        let is_answered = self.turns.count(is_answer) > 0;
        let Some(job) = self.jobs.0.get_mut(&id) else {
            judge!(is_answered, "[kill] {id:?} is not under way");
            return;
        };
        judge!(!job.killed, "[kill] {id:?} twice");
        job.killed = true;
        job.result = Err(JobError::Killed);
        let life = self.life;
        self.at(1, WorldEvent::JobEnds(life, id));
    }

    /// No pod that ends waits for a mount.
    pub(crate) fn check_abandoned_mounts(&self) {
        for (id, job) in self.jobs.0.iter().filter(|(_, job)| !job.killed) {
            let uid = match &job.spec {
                JobSpec::SetUpVolume(wanted) => &wanted.uid,
                JobSpec::BindSubPath(part) => &part.uid,
                _ => continue,
            };
            // Whether the agent reports it or not.
            let ends = self.agent.pod(uid).is_some_and(|pod| pod.phase() > Phase::Syncing)
                || (self.leaving.is_none() && self.check.is_long_gone(self.clocks.now(), uid));
            judge!(!ends, "[abandoned mounts] pod {uid} ends and waits for {id:?}");
        }
    }

    pub(crate) fn read_words(&mut self, job: JobId, words: &LastWords) {
        trace!(self.clocks.now(), "{job:?} {words:?}");
        let life = self.life;
        self.at(1, WorldEvent::WordsRead(life, job));
    }

    pub(crate) fn words_read(&mut self, life: u32, id: JobId) {
        if life == self.life {
            let text = if self.chance.percent(30) { "all is lost" } else { "" };
            self.deliver(vec![Event::TerminationMessage(id, text.into())]);
        }
    }

    /// The child processes of the agent die with it; their work may be done.
    pub(crate) fn kill_jobs(&mut self) {
        for job in std::mem::take(&mut self.jobs.0).into_values() {
            match self.chance.below(4) {
                0 | 1 => self.disk.perform(&job.spec),
                2 => volumes::perform(&mut self.disk.volumes, &job.spec, false),
                _ => {}
            }
        }
    }
}

/// A node that has enough.
#[cfg(feature = "node-jobs")]
fn usage() -> NodeUsage {
    NodeUsage { cpu: Some(1_000), memory: Some(2_000), disk: Some(3_000) }
}

/// `/var/log/pods/<namespace>_<name>_<uid>`
pub fn folder_of(pod: &LogDir) -> String {
    format!("{POD_LOGS}/{}_{}_{}", pod.namespace, pod.name, pod.uid)
}

fn log_of(link: &LogLink) -> String {
    format!("{}/{}/{}.log", folder_of(&link.pod), link.container, link.attempt)
}
