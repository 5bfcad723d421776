//! Collects the resource usage of pods, one request after another.

use std::collections::VecDeque;

use super::shortage::{Observed, Threshold};
use crate::agent::calls::{CallTask, Uid};
use crate::agent::housekeeping::HousekeepingContext;
use crate::agent::jobs::JobTask;
use crate::agent::pod::Pod;
use crate::agent::pod::names::log_dir;
use crate::agent::requests::{has_storage_limit, on_disk, size_limit};
use crate::agent::time::Now;
use crate::model::cri::{CallError, ContainerState, Reply};
use crate::model::housekeeping::{
    ContainerUsage, HousekeepingCall, HousekeepingReply, SandboxUsage, Signal,
};
use crate::model::job::{FolderKind, JobError, JobReply, JobSpec, Place, Used, Walk};
use crate::model::map::Map;
use crate::model::pod as api;

/// The usage of each pod of which something is known.
pub type Usages = Map<Uid, Usage>;

/// The usage of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// By name: running containers.
    pub containers: Map<Box<str>, ContainerUse>,
    /// By name: volumes on the disk.
    pub volumes: Map<Box<str>, Used>,
    /// Number of processes.
    pub processes: Option<u64>,
}

/// The usage of one container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerUse {
    /// Bytes of its working set.
    pub memory: Option<u64>,
    /// Its writable layer.
    pub root: Option<Used>,
    /// Its logs.
    pub logs: Option<Used>,
}

/// What has to be collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Whether pods exceed their disk limits.
    pub limits: bool,
    /// The disk usage of all pods.
    disk: bool,
    /// The number of their processes.
    pids: bool,
}

impl Needs {
    /// For thresholds that are met, and for the limits of pods.
    pub fn new(due: &[Threshold], limits: bool) -> Self {
        // Only the most severe one is acted on.
        let first = due.first().map(|threshold| threshold.signal);
        let is_disk =
            |signal| !matches!(signal, Signal::Memory | Signal::PodsMemory | Signal::Pids);
        Self { limits, disk: first.is_some_and(is_disk), pids: first == Some(Signal::Pids) }
    }
}

/// The state of a collection.
#[derive(Debug)]
pub struct UsageCollector {
    /// Its purpose.
    pub needs: Needs,
    /// The thresholds that are met.
    pub due: Vec<Threshold>,
    /// The measurements of this cycle.
    pub observed: Observed,
    /// The usage collected so far.
    pub usages: Usages,
    /// Why it cannot be collected.
    pub failed: Option<String>,
    calls: VecDeque<HousekeepingCall>,
    calling: bool,
    walks: VecDeque<Walk>,
    walk: Option<Walk>,
}

impl UsageCollector {
    /// Nothing requested yet.
    pub fn new<'a>(
        needs: Needs,
        due: Vec<Threshold>,
        observed: Observed,
        pods: impl Iterator<Item = &'a Pod>,
    ) -> Self {
        let mut calls = VecDeque::from([HousekeepingCall::ListContainerStats]);
        if needs.pids {
            calls.push_back(HousekeepingCall::ListPodSandboxStats);
        }
        let mut walks = VecDeque::new();
        for pod in pods {
            let places = |kind| -> Vec<Box<str>> {
                match kind {
                    FolderKind::Volume if needs.disk => volumes(pod).collect(),
                    FolderKind::Volume => limited_volumes(pod).collect(),
                    FolderKind::Logs if needs.disk || has_storage_limit(pod.api()) => {
                        pod.api().spec.all_containers().map(|it| it.name.clone()).collect()
                    }
                    FolderKind::Logs => Vec::new(),
                }
            };
            if !(needs.disk || needs.limits && pod.bounds_disk()) {
                continue;
            }
            for kind in [FolderKind::Volume, FolderKind::Logs] {
                for name in places(kind) {
                    let place = Place { pod: log_dir(pod.api()), name };
                    add(&mut walks, kind, place);
                }
            }
        }
        Self {
            needs,
            due,
            observed,
            usages: Usages::new(),
            failed: None,
            calls,
            calling: false,
            walks,
            walk: None,
        }
    }

    /// Whether nothing is left to request.
    pub fn is_done(&self) -> bool {
        let open = self.calling || self.walk.is_some();
        !open && (self.failed.is_some() || (self.calls.is_empty() && self.walks.is_empty()))
    }

    /// Requests the next part.
    pub fn step(&mut self, now: Now, context: &mut HousekeepingContext<'_>) {
        if self.failed.is_some() {
            return;
        }
        if !self.calling
            && let Some(call) = self.calls.front()
            && context.call(now, CallTask::Eviction, call.clone())
        {
            self.calls.pop_front();
            self.calling = true;
        }
        if self.walk.is_none()
            && let Some(walk) = self.walks.pop_front()
        {
            context.job(now, JobTask::Eviction, JobSpec::Measure(walk.clone()));
            self.walk = Some(walk);
        }
        self.clear_ended(context);
    }

    /// The runtime does not report the usage of ended containers (spec section 10.1). They use
    /// nothing, and the usage of their pod is known.
    fn clear_ended(&mut self, context: &HousekeepingContext<'_>) {
        if !self.is_done() {
            return;
        }
        for (uid, usage) in &mut self.usages {
            let Some(pod) = context.pods.get(uid) else { continue };
            usage.containers.retain(|name, used| {
                let newest = pod.observed().newest(name);
                if newest.is_some_and(|newest| newest.state != ContainerState::Running) {
                    *used = ContainerUse::default();
                }
                newest.is_some()
            });
        }
    }

    /// Takes the answer to its call.
    pub fn answer(&mut self, result: &Result<Reply, CallError>) {
        assert!(std::mem::take(&mut self.calling), "no usage is requested");
        match result {
            Ok(Reply::HousekeepingCall(HousekeepingReply::Containers(all))) => {
                for usage in all {
                    self.take(usage);
                }
            }
            Ok(Reply::HousekeepingCall(HousekeepingReply::Sandboxes(all))) => {
                for SandboxUsage { uid, processes } in all {
                    self.usages.entry(uid.clone()).or_default().processes = *processes;
                }
            }
            Ok(other) => panic!("usage cannot be {}", other.kind()),
            // Not every runtime reports processes; then priorities decide.
            Err(_) if self.usages_known() => {}
            Err(error) => self.failed = Some(error.to_string()),
        }
    }

    /// Whether the usage of containers was reported: only then that of sandboxes is requested.
    fn usages_known(&self) -> bool {
        self.needs.pids && self.calls.is_empty()
    }

    fn take(&mut self, reported: &ContainerUsage) {
        let usage = self.usages.entry(reported.uid.clone()).or_default();
        let container = usage.containers.entry(reported.name.clone()).or_default();
        // Of several containers of one name, the running one has memory.
        if container.memory.is_some() && reported.memory.is_none() {
            return;
        }
        container.memory = reported.memory;
        let inodes = reported.inodes.unwrap_or(0);
        container.root = reported.disk.map(|bytes| Used { bytes, inodes });
    }

    /// Takes the disk usage of directories; an error: it could not be measured.
    pub fn walked(&mut self, result: Result<JobReply, JobError>) {
        let walk = self.walk.take().expect("directories are being walked");
        let all = match result {
            Ok(JobReply::Used(all)) => all,
            Ok(other) => panic!("disk usage cannot be {other:?}"),
            Err(_) => Vec::new(),
        };
        for (place, used) in walk.places.into_iter().zip(all) {
            let Some(used) = used else { continue };
            let usage = self.usages.entry(place.pod.uid).or_default();
            match walk.kind {
                FolderKind::Volume => {
                    usage.volumes.insert(place.name, used);
                }
                FolderKind::Logs => {
                    usage.containers.entry(place.name).or_default().logs = Some(used);
                }
            }
        }
    }
}

/// The pod's own volumes on the disk.
fn volumes(pod: &Pod) -> impl Iterator<Item = Box<str>> {
    on_disk(pod.api()).map(|volume| volume.name.clone())
}

/// The volumes whose usage has to be measured to check the pod's limits.
fn limited_volumes(pod: &Pod) -> impl Iterator<Item = Box<str>> {
    let all = has_storage_limit(pod.api());
    let needed = move |volume: &&api::Volume| all || size_limit(volume).is_some();
    on_disk(pod.api()).filter(needed).map(|volume| volume.name.clone())
}

/// Adds a directory to the last walk of its kind, or to a new one.
fn add(walks: &mut VecDeque<Walk>, kind: FolderKind, place: Place) {
    let last = walks.iter_mut().rev().find(|walk| walk.kind == kind);
    let Err(place) = last.map_or(Err(place.clone()), |walk| walk.push(place)) else { return };
    let mut walk = Walk::new(kind);
    walk.push(place).expect("one folder fits into a message");
    walks.push_back(walk);
}
