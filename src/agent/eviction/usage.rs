//! What pods take of the node, asked for one thing after another.

use std::collections::{BTreeMap, VecDeque};

use super::local;
use super::shortage::{Observed, Threshold};
use crate::agent::calls::Uid;
use crate::agent::event::{CallId, JobId};
use crate::agent::housekeeping::HousekeepingContext;
use crate::agent::pod::{Pod, config};
use crate::agent::time::Now;
use crate::model::cri::{CallError, ContainerState, Reply};
use crate::model::housekeeping::{ContainerUsage, HousekeepingCall, SandboxUsage, Signal, Told};
use crate::model::job::{FolderKind, JobSpec, Place, Used, Walk};

/// What each pod takes that something is known of.
pub type Usages = BTreeMap<Uid, Usage>;

/// What one pod takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// By name: those that run.
    pub containers: BTreeMap<Box<str>, ContainerUse>,
    /// By name: volumes on the disk.
    pub volumes: BTreeMap<Box<str>, Used>,
    /// A count.
    pub processes: Option<u64>,
}

/// What one container takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerUse {
    /// Bytes of its working set.
    pub memory: Option<u64>,
    /// What it wrote over its image.
    pub root: Option<Used>,
    /// Its logs.
    pub logs: Option<Used>,
}

/// What has to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Whether pods take more of the disk than they may.
    pub limits: bool,
    /// What all pods take of the disk.
    disk: bool,
    /// How many processes they have.
    pids: bool,
}

impl Needs {
    /// For thresholds that are met, and for the limits of pods.
    pub fn new(due: &[Threshold], limits: bool) -> Self {
        // Only the gravest is acted on.
        let first = due.first().map(|threshold| threshold.signal);
        let is_disk =
            |signal| !matches!(signal, Signal::Memory | Signal::PodsMemory | Signal::Pids);
        Self { limits, disk: first.is_some_and(is_disk), pids: first == Some(Signal::Pids) }
    }
}

/// What is being asked for, and what is known of it.
#[derive(Debug)]
pub struct UsageCollector {
    /// What for.
    pub needs: Needs,
    /// The thresholds that are met.
    pub due: Vec<Threshold>,
    /// The gauges of this cycle.
    pub observed: Observed,
    /// So far.
    pub usages: Usages,
    /// Why it cannot be known.
    pub failed: Option<String>,
    calls: VecDeque<HousekeepingCall>,
    call: Option<CallId>,
    walks: VecDeque<Walk>,
    walk: Option<(JobId, Walk)>,
}

impl UsageCollector {
    /// Nothing asked for yet.
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
                    FolderKind::Volume if needs.disk => local::volumes(pod).collect(),
                    FolderKind::Volume => local::limited_volumes(pod).collect(),
                    FolderKind::Logs if needs.disk || local::has_storage_limit(pod.api()) => {
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
                    let place = Place { pod: config::log_dir(pod.api()), name };
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
            call: None,
            walks,
            walk: None,
        }
    }

    /// Whether nothing is left to be asked.
    pub fn is_done(&self) -> bool {
        let open = self.call.is_some() || self.walk.is_some();
        !open && (self.failed.is_some() || (self.calls.is_empty() && self.walks.is_empty()))
    }

    /// Asks for the next.
    pub fn step(&mut self, now: Now, context: &mut HousekeepingContext<'_>) {
        if self.failed.is_some() {
            return;
        }
        if self.call.is_none()
            && let Some(housekeeping) = self.calls.front()
            && let Some(call) = context.call(now, housekeeping.clone())
        {
            self.calls.pop_front();
            self.call = Some(call);
        }
        if self.walk.is_none()
            && let Some(walk) = self.walks.pop_front()
        {
            let job = context.job(now, JobSpec::Measure(walk.clone()));
            self.walk = Some((job, walk));
        }
        self.clear_ended(context);
    }

    /// Of containers that have ended, what they take is not told (spec section 10.1). They take
    /// nothing, and their pod is none of which nothing is known.
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

    /// Takes the answer to a call. `false`: it is none of these.
    pub fn answer(&mut self, call: CallId, result: &Result<Reply, CallError>) -> bool {
        if self.call != Some(call) {
            return false;
        }
        self.call = None;
        match result {
            Ok(Reply::HousekeepingCall(Told::Containers(all))) => {
                all.iter().for_each(|it| self.take(it))
            }
            Ok(Reply::HousekeepingCall(Told::Sandboxes(all))) => {
                for SandboxUsage { uid, processes } in all {
                    self.usages.entry(uid.clone()).or_default().processes = *processes;
                }
            }
            Ok(other) => panic!("usage cannot be {other:?}"),
            // Of processes not every runtime tells; priorities decide then.
            Err(_) if self.usages_known() => {}
            Err(error) => self.failed = Some(error.to_string()),
        }
        true
    }

    /// The containers' usage was told: only then the sandboxes' is asked for.
    fn usages_known(&self) -> bool {
        self.needs.pids && self.calls.is_empty()
    }

    fn take(&mut self, reported: &ContainerUsage) {
        let usage = self.usages.entry(reported.uid.clone()).or_default();
        let container = usage.containers.entry(reported.name.clone()).or_default();
        // Of several of one name, one that runs has memory.
        if container.memory.is_some() && reported.memory.is_none() {
            return;
        }
        container.memory = reported.memory;
        let inodes = reported.inodes.unwrap_or(0);
        container.root = reported.disk.map(|bytes| Used { bytes, inodes });
    }

    /// Takes what folders take; `None`: it could not be found out. `false`: it is none of these.
    pub fn used(&mut self, job: JobId, used: Option<Vec<Option<Used>>>) -> bool {
        let Some((_, walk)) = self.walk.take_if(|(open, _)| *open == job) else { return false };
        for (place, used) in walk.places.into_iter().zip(used.unwrap_or_default()) {
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
        true
    }
}

/// Adds a folder to the last walk of its kind, or to another one.
fn add(walks: &mut VecDeque<Walk>, kind: FolderKind, place: Place) {
    let last = walks.iter_mut().rev().find(|walk| walk.kind == kind);
    let Err(place) = last.map_or(Err(place.clone()), |walk| walk.push(place)) else { return };
    let mut walk = Walk::new(kind);
    walk.push(place).expect("one folder fits into a message");
    walks.push_back(walk);
}
