//! What is checked of answers and requests, by what is true on the machine.

use std::collections::{BTreeMap, BTreeSet};

use edged::limits::{
    RUNTIME_ENDS_MAX, RUNTIME_EXECS_MAX, RUNTIME_JOB_MS, RUNTIME_MEASURES_MAX, RUNTIME_PULLS_MAX,
    RUNTIME_REMOVALS_MAX, RUNTIME_SESSION_OPENS_MAX, RUNTIME_STARTS_MAX,
};
use edged::model::runtime::{
    ContainerId, ContainerPhase, ContainerRecord, DiffId, Job, Record, RecordKey, Refusal, Reply,
    Request, SandboxId, SandboxPhase,
};
use edged::runtime::event::CallId;

use crate::machine::Machine;
use crate::rule::judge;
use crate::world::World;

/// The open calls, as the client sees them.
#[derive(Default)]
pub struct Check {
    open: BTreeMap<CallId, Request>,
    /// Creations of containers in sandboxes that the server knew as lost by then.
    in_lost: BTreeSet<CallId>,
    /// Calls that remove the sandboxes and containers that the client was told of.
    pub removals: Vec<Request>,
}

impl Check {
    pub fn open(&self) -> Vec<&Request> {
        let calls = self.open.values();
        calls.filter(|request| !matches!(request, Request::GetContainerEvents)).collect()
    }

    pub fn is_waiting(&self) -> bool {
        !self.open().is_empty()
    }

    pub fn opened(&mut self, call: CallId, request: Request) {
        self.open.insert(call, request);
    }

    pub fn creates_in_lost(&mut self, call: CallId, is_lost: bool) {
        if is_lost {
            self.in_lost.insert(call);
        }
    }

    /// The server is gone, and with it all calls.
    pub fn lost(&mut self) {
        self.open.clear();
        self.in_lost.clear();
    }

    pub fn close(&mut self, call: CallId) -> Option<Request> {
        self.open.remove(&call)
    }

    pub fn is_open(&self, call: CallId) -> bool {
        self.open.contains_key(&call)
    }

    /// The client knows of what this reply names.
    fn told(&mut self, reply: &Reply) {
        let sandbox = |id: &SandboxId| Request::RemovePodSandbox(id.0.clone());
        let container = |id: &ContainerId| Request::RemoveContainer(id.0.clone());
        let known = match reply {
            Reply::Sandbox(id) => vec![sandbox(id)],
            Reply::Container(id) => vec![container(id)],
            Reply::Sandboxes(all) => all.iter().map(|record| sandbox(&record.id)).collect(),
            Reply::Containers(all) => all.iter().map(|(record, _)| container(&record.id)).collect(),
            _ => Vec::new(),
        };
        for removal in known {
            if !self.removals.contains(&removal) {
                self.removals.push(removal);
            }
        }
    }
}

impl World {
    pub fn check_answer(&mut self, call: CallId, answer: &Result<Reply, Refusal>) {
        let request = self.check.close(call);
        judge!(
            request.is_some(),
            "[one answer] {call:?} is answered without being open: {answer:?}"
        );
        if self.check.in_lost.remove(&call) {
            judge!(answer.is_err(), "[lost sandbox] {request:?} in a lost one: {answer:?}");
        }
        let (Some(request), Ok(reply)) = (request, answer) else { return };
        self.check.told(reply);
        let machine = &self.machine;
        match (&request, reply) {
            (_, Reply::Sandbox(id)) => {
                let phase = machine.in_run.get(id).or(sandbox(machine, id)).map(|it| it.phase);
                judge!(phase == Some(SandboxPhase::Ready), "[durable answer] {id} is {phase:?}");
            }
            (_, Reply::Container(id)) => {
                let is_there = container(machine, id).is_some() && machine.data.contains(id);
                judge!(is_there, "[durable answer] {id} is created and not there");
            }
            (_, Reply::Pulled(id)) => {
                let key = RecordKey::Image(id.clone());
                let Some(Record::Image(image)) = machine.records.get(&key) else {
                    panic!("[durable answer] {id:?} was pulled and has no record")
                };
                judge!(
                    image.layers.iter().all(|layer| machine.layers.contains(layer)),
                    "[durable answer] {id:?} was pulled and lacks layers"
                );
            }
            (_, Reply::ContainerStatus(record, _)) => check_exit(machine, record),
            (_, Reply::Containers(all)) => {
                for (record, _) in all {
                    check_exit(machine, record);
                }
            }
            (Request::StopPodSandbox(id), Reply::Done) => check_stopped(machine, id),
            (Request::RemovePodSandbox(id), Reply::Done) => {
                judge!(!is_sandbox(machine, id), "[ended answer] sandbox {id} is still there");
            }
            (Request::StopContainer { id, .. }, Reply::Done) => {
                let id = full(machine, id);
                let lives = machine.processes.contains_key(&id);
                judge!(!lives, "[ended answer] {id} was stopped and lives");
            }
            (Request::UpdateContainerResources { id, resources }, Reply::Done) => {
                let id = full(machine, id);
                let wanted = resources.memory_limit;
                // Of one that counts as ended the record is enough.
                let is_over = machine.truth.contains_key(&id);
                let process = machine.processes.get(&id).filter(|it| it.is_started && !is_over);
                let has = process.map_or(wanted, |process| process.memory_limit);
                judge!(has == wanted, "[limits] {id} is to have {wanted} and has {has}");
            }
            (Request::RemoveContainer(id), Reply::Done) => {
                let id = full(machine, id);
                let key = RecordKey::Container(id.clone());
                let is_there = machine.records.contains_key(&key)
                    || machine.data.contains(&id)
                    || machine.folders.contains_key(&id);
                judge!(!is_there, "[ended answer] {id} was removed and is there");
            }
            _ => {}
        }
    }

    /// Nobody asks for it: a sandbox in which nothing can be started is stopped by itself.
    pub fn check_lost(&self) {
        let server = self.server.as_ref().expect("nothing kills it any more");
        for id in &server.lost {
            let phase = sandbox(&self.machine, id).map(|record| record.phase);
            judge!(phase != Some(SandboxPhase::Ready), "[lost sandbox] {id} is lost and ready");
        }
    }

    /// A job is about to begin.
    pub fn check_job(&mut self, job: &Job) {
        let machine = &self.machine;
        match job {
            Job::MakeSandbox(record) => {
                judge!(sandbox(machine, &record.id).is_some(), "[on record] {}", record.id);
            }
            Job::MakeContainer { container: record, .. } => {
                judge!(container(machine, &record.id).is_some(), "[on record] {}", record.id);
            }
            Job::EndContainer(folder) => {
                let phase = container(machine, &folder.id).map(|record| &record.phase);
                let is_kept = machine.truth.get(&folder.id).is_some_and(|truth| truth.is_kept);
                let is_saved = matches!(phase, None | Some(ContainerPhase::Exited(_)));
                judge!(!is_kept || is_saved, "[true exit] {} ends unsaved", folder.id);
            }
            Job::RemoveContainer(id) => {
                let is_ended = !machine.folders.contains_key(id);
                judge!(is_ended, "[own layers] {id} loses its layer before it is ended");
            }
            Job::RemoveLayers { layers, .. } => {
                let needed = layers.iter().find(|layer| is_needed(machine, layer));
                judge!(needed.is_none(), "[needed layers] {needed:?} is named and removed");
                let server = self.server.as_ref().expect("it has just requested this");
                let pulls = server.jobs.values().any(|job| is_fetch(&job.job));
                judge!(!pulls, "[needed layers] layers are removed during a pull");
            }
            Job::Pull { .. } | Job::Import { .. } => {
                let server = self.server.as_ref().expect("it has just requested this");
                let removes = |job: &Job| matches!(job, Job::RemoveLayers { .. });
                let is_removing = server.jobs.values().any(|job| removes(&job.job));
                judge!(!is_removing, "[needed layers] a pull begins while layers are removed");
            }
            Job::EndSandbox(_)
            | Job::Update { .. }
            | Job::Exec { .. }
            | Job::Open(_)
            | Job::Stats(_) => {}
        }
        self.check_bounds(job);
    }

    fn check_bounds(&self, job: &Job) {
        let server = self.server.as_ref().expect("it has just requested this");
        let (class, max) = class_of(job);
        let jobs = server.jobs.values().filter(|other| class_of(&other.job).0 == class).count();
        // One that takes too long is given up.
        let is_open = |since: &&u64| self.now - **since < RUNTIME_JOB_MS;
        let starts = if class == 0 { server.starting.values().filter(is_open).count() } else { 0 };
        judge!(jobs + starts < max, "[bounded] {jobs} jobs and {starts} starts beside {job:?}");
    }
}

fn class_of(job: &Job) -> (u8, usize) {
    match job {
        Job::MakeSandbox(_) | Job::MakeContainer { .. } => (0, RUNTIME_STARTS_MAX),
        Job::EndSandbox(_) | Job::EndContainer(_) => (1, RUNTIME_ENDS_MAX),
        Job::Exec { .. } | Job::Update { .. } => (2, RUNTIME_EXECS_MAX),
        Job::Pull { .. } | Job::Import { .. } => (3, RUNTIME_PULLS_MAX),
        Job::RemoveContainer(_) | Job::RemoveLayers { .. } => (4, RUNTIME_REMOVALS_MAX),
        Job::Stats(_) => (5, RUNTIME_MEASURES_MAX),
        Job::Open(_) => (6, RUNTIME_SESSION_OPENS_MAX),
    }
}

fn is_fetch(job: &Job) -> bool {
    matches!(job, Job::Pull { .. } | Job::Import { .. })
}

/// An exit code that somebody has seen is what clients see, and nothing survives a reboot.
fn check_exit(machine: &Machine, record: &ContainerRecord) {
    let ContainerPhase::Exited(exit) = &record.phase else {
        let boot = sandbox(machine, &record.sandbox).map(|sandbox| &sandbox.boot);
        let is_now = boot.is_some_and(|boot| *boot == machine.boot_id());
        judge!(is_now, "[true exit] {} has survived {boot:?}", record.id);
        return;
    };
    let Some(truth) = machine.truth.get(&record.id).filter(|truth| truth.is_kept) else { return };
    judge!(exit.code == truth.code, "[true exit] {}: {exit:?}, expected {truth:?}", record.id);
}

fn check_stopped(machine: &Machine, id: &str) {
    let stopped = machine.records.values().find_map(|record| match record {
        Record::Sandbox(record) if record.id.0.starts_with(id) => Some(record),
        _ => None,
    });
    let Some(record) = stopped else { return };
    let phase = record.phase;
    judge!(phase == SandboxPhase::NotReady, "[ended answer] {id} was stopped and is {phase:?}");
    let is_left = machine.addresses.contains(&record.id) || machine.sandboxes.contains(&record.id);
    judge!(!is_left, "[ended answer] {id} was stopped and has a network or mounts");
    let lives = |id| container(machine, id).is_some_and(|container| container.sandbox == record.id);
    let alive = machine.processes.keys().find(|id| lives(id));
    judge!(alive.is_none(), "[ended answer] {id} was stopped, and {alive:?} lives");
}

fn is_sandbox(machine: &Machine, text: &str) -> bool {
    let mut all = machine.records.keys().filter_map(|key| match key {
        RecordKey::Sandbox(id) => Some(id),
        RecordKey::Container(_) | RecordKey::Image(_) => None,
    });
    all.any(|id| id.0.starts_with(text))
        || machine.addresses.iter().any(|id| id.0.starts_with(text))
        || machine.sandboxes.iter().any(|id| id.0.starts_with(text))
}

/// The container that a client's text stood for: the client draws its texts from records.
fn full(machine: &Machine, text: &str) -> ContainerId {
    let all = machine.records.keys().filter_map(|key| match key {
        RecordKey::Container(id) => Some(id),
        RecordKey::Sandbox(_) | RecordKey::Image(_) => None,
    });
    let found = all.chain(machine.data.iter()).find(|id| id.0.starts_with(text)).cloned();
    found.unwrap_or_else(|| ContainerId(text.into()))
}

pub fn sandbox<'a>(
    machine: &'a Machine,
    id: &SandboxId,
) -> Option<&'a edged::model::runtime::SandboxRecord> {
    match machine.records.get(&RecordKey::Sandbox(id.clone())) {
        Some(Record::Sandbox(record)) => Some(record),
        _ => None,
    }
}

pub fn container<'a>(machine: &'a Machine, id: &ContainerId) -> Option<&'a ContainerRecord> {
    match machine.records.get(&RecordKey::Container(id.clone())) {
        Some(Record::Container(record)) => Some(record),
        _ => None,
    }
}

fn is_needed(machine: &Machine, layer: &DiffId) -> bool {
    machine.records.values().any(|record| match record {
        Record::Image(record) => record.layers.contains(layer),
        Record::Container(record) => record.layers.contains(layer),
        Record::Sandbox(_) => false,
    })
}
