//! **The core of the built-in runtime**: sandboxes, containers and images, by three methods: it
//! learns ([`event::Event`]), looks at all that it knows, and requests ([`event::Action`]). No
//! clock, no files, no processes: the simulator runs the same code.
//!
//! An object's record is saved before anything of it is made, and erased after everything of it is
//! removed; a call is answered once what it has changed is durable. So the records say after any
//! crash what may be there: the next start goes on where this one was, or undoes it. What is found
//! without a record is removed.
//!
//! There is no state per call beyond its number: an object has what is wanted of it, and its next
//! step follows from that and from what there is. Calls that want the same share the work.
#![forbid(unsafe_code)]

mod calls;
mod commands;
mod container;
mod context;
pub mod event;
mod exit;
mod filter;
mod ids;
mod images;
mod jobs;
mod kept;
mod measures;
mod refusal;
mod sandbox;
mod saves;
mod signals;
mod streams;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use container::{Container, Remains, image_not_found, sandbox_not_ready};
use context::{Context, wall_ns};
use event::{Action, CallId, Event, Found, JobId, Out, Stored};
use images::Images;
use jobs::Owner;
use measures::{Measures, Targets};
use refusal::{cancelled, exhausted, not_found, refusal, reserved};
use sandbox::{Members, Sandbox};
use saves::Saves;
use streams::Streams;

use crate::core::Severity;
use crate::core::time::{Instant, Now, Rng, sooner};
use crate::limits::{
    RUNTIME_CALLS_MAX, RUNTIME_CONTAINERS_MAX, RUNTIME_LAYER_USAGE_MS, RUNTIME_SANDBOXES_MAX,
};
use crate::model::map::{Map, Set};
use crate::model::runtime::{
    Code, Conditions, ContainerConfig, ContainerFilter, ContainerId, ContainerPhase,
    ContainerRecord, ImageId, ImageRecord, JobFault, JobReply, MonitorFact, Refusal, Reply,
    Request, RuntimeEvent, SandboxConfig, SandboxFilter, SandboxId, SandboxPhase, SandboxRecord,
    StatsOf,
};

/// The whole core of the built-in runtime.
pub struct Runtime {
    context: Context,
    rng: Rng,
    conditions: Conditions,
    saves: Saves,
    sandboxes: Map<SandboxId, Sandbox>,
    containers: Map<ContainerId, Container>,
    images: Images,
    /// Commands under way, each with its own time in seconds, and sessions that are opened.
    execs: Map<CallId, u32>,
    measures: Measures,
    streams: Streams,
}

impl Runtime {
    /// Starts with what the disk has and what is found of it. The seed gives the ids of new
    /// objects: another one at each start.
    pub fn boot(stored: Stored, now: Now, seed: u64) -> Self {
        let mut runtime = Self {
            context: Context::new(stored.boot, now),
            rng: Rng::new(seed),
            conditions: unknown_conditions(),
            saves: Saves::default(),
            sandboxes: Map::new(),
            containers: Map::new(),
            images: Images::new(stored.images),
            execs: Map::new(),
            measures: Measures::default(),
            streams: Streams::default(),
        };
        let in_run = stored.found_sandboxes.into_iter().collect();
        let networks = stored.found_networks.into_iter().collect();
        let used = stored.containers.iter().map(|it| it.sandbox.clone()).collect();
        runtime.boot_sandboxes(stored.sandboxes, &used, in_run, networks);
        runtime.boot_containers(now, stored.containers, stored.found);
        runtime
    }

    fn boot_sandboxes(
        &mut self,
        records: Vec<SandboxRecord>,
        used: &Set<SandboxId>,
        mut in_run: Set<SandboxId>,
        mut networks: Set<SandboxId>,
    ) {
        for record in records {
            let id = record.id.clone();
            let is_in_run = in_run.remove(&id);
            let is_whole = is_in_run && record.boot == self.context.boot;
            let is_found = networks.remove(&id) || is_in_run;
            let sandbox = Sandbox::stored(record, is_whole, is_found, used.contains(&id));
            self.sandboxes.insert(id, sandbox);
        }
        in_run.extend(networks);
        for id in in_run {
            self.log(Severity::Warn, format!("sandbox {id} has no record: it is taken down"));
            let record = SandboxRecord {
                id: id.clone(),
                config: SandboxConfig::default(),
                phase: SandboxPhase::Stopping,
                created_at: 0,
                ips: Vec::new(),
                boot: self.context.boot.clone(),
                program: "".into(),
            };
            self.sandboxes.insert(id, Sandbox::orphan(record));
        }
    }

    fn boot_containers(
        &mut self,
        now: Now,
        records: Vec<ContainerRecord>,
        found: Vec<(ContainerId, Found)>,
    ) {
        let mut found: Map<ContainerId, Found> = found.into_iter().collect();
        for record in records {
            let id = record.id.clone();
            let found = found.remove(&id);
            // One that was found without a record is no sandbox for them.
            let sandbox =
                self.sandboxes.get(&record.sandbox).filter(|sandbox| sandbox.kept.is_visible);
            let sandbox = sandbox.map(Sandbox::record);
            let sandbox = sandbox.map(|sandbox| &**sandbox);
            let of_this_boot = sandbox.filter(|sandbox| sandbox.boot == self.context.boot);
            let container = if let Some(sandbox) = of_this_boot {
                Container::found(now, record, sandbox, &remains(found))
            } else {
                Container::lost(now, record, sandbox, &remains(found))
            };
            if container.is_starting() {
                self.context.jobs.watch_start(id.clone(), now.boot);
            }
            self.containers.insert(id, container);
        }
        for (id, _) in found {
            self.log(Severity::Warn, format!("container {id} has no record: it is removed"));
            let record = orphan_record(id.clone());
            self.containers.insert(id, Container::orphan(record));
        }
        let closing: Vec<SandboxId> = self.closing_sandboxes();
        for container in self.containers.values_mut() {
            if closing.contains(&container.record().sandbox) {
                container.kill(now.boot);
            }
        }
    }

    fn closing_sandboxes(&self) -> Vec<SandboxId> {
        let closing = self.sandboxes.iter().filter(|(_, sandbox)| !sandbox.is_open());
        closing.map(|(id, _)| id.clone()).collect()
    }

    fn log(&mut self, severity: Severity, line: String) {
        self.context.out.push(Action::Log(severity, line));
    }

    /// Takes one event. Requests nothing.
    pub fn handle(&mut self, now: Now, event: Event) {
        self.context.now = now;
        match event {
            Event::Call(call, request) => {
                if self.context.calls.open(call) {
                    self.call(call, request);
                } else {
                    let refusal = exhausted("a call", RUNTIME_CALLS_MAX);
                    self.context.calls.answer(call, Err(refusal));
                }
            }
            Event::Cancel(call) => self.cancel(call),
            Event::Job(job, result) => self.job_done(job, result),
            Event::Monitor(id, fact) => self.monitor_said(&id, fact),
            Event::Saved => self.saved(),
            Event::NotSaved(why) => self.not_saved(&why),
            Event::Layers(layers) => self.images.layers(layers, now.boot),
            Event::Conditions(conditions) => self.conditions = conditions,
        }
    }

    // ---- calls ----

    fn call(&mut self, call: CallId, request: Request) {
        let now = self.context.now.boot;
        let answer = match request {
            Request::Version => Ok(Some(Reply::Version)),
            Request::Status => Ok(Some(Reply::Status(self.conditions.clone()))),
            Request::RuntimeConfig => Ok(Some(Reply::RuntimeConfig)),
            Request::RunPodSandbox(config) => self.run_sandbox(call, *config),
            Request::StopPodSandbox(id) => self.stop_sandbox(call, &id),
            Request::RemovePodSandbox(id) => self.remove_sandbox(call, &id),
            Request::PodSandboxStatus(id) => self.sandbox_status(&id).map(Some),
            Request::ListPodSandbox(filter) => {
                Ok(Some(Reply::Sandboxes(self.matching_sandboxes(&filter).collect())))
            }
            Request::CreateContainer { sandbox, config } => self.create(call, &sandbox, *config),
            Request::StartContainer(id) => {
                self.shown(&id).and_then(|container| container.start(call)).map(|()| None)
            }
            Request::StopContainer { id, grace_s } => self.known(&id).and_then(|container| {
                let container = container.ok_or_else(|| not_found("container", &id))?;
                container.stop(call, now, grace_s);
                Ok(None)
            }),
            Request::RemoveContainer(id) => self.known(&id).map(|container| {
                let Some(container) = container else { return Some(Reply::Done) };
                container.remove(call, now);
                None
            }),
            Request::ContainerStatus(id) => self.container_status(&id).map(Some),
            Request::ListContainers(filter) => Ok(Some(Reply::Containers(self.list(&filter)))),
            Request::ReopenContainerLog(id) => self.reopen(call, &id),
            Request::UpdateContainerResources { id, resources } => {
                self.shown(&id).and_then(|it| it.update(call, *resources)).map(|()| None)
            }
            Request::ExecSync { id, command, timeout_s } => {
                self.exec(call, &id, command, timeout_s)
            }
            Request::Exec { id, command, pipes } => self.open_exec(call, &id, command, pipes),
            Request::Attach { id, pipes } => self.open_attach(call, &id, pipes),
            Request::PortForward { sandbox, ports } => self.open_forward(call, &sandbox, ports),
            Request::ListContainerStats(filter) => {
                self.container_stats(call, &filter);
                Ok(None)
            }
            Request::ListPodSandboxStats(filter) => {
                self.sandbox_stats(call, &filter);
                Ok(None)
            }
            Request::GetContainerEvents => self.streams.open(call).map(|()| None),
            Request::ListImages(name) => self.list_images(name.as_deref()).map(Some),
            Request::ImageStatus(name) => {
                self.images.find(&name).map(|image| Some(Reply::Image(image.cloned())))
            }
            Request::PullImage { image, auth } => {
                self.images.pull(call, &image, auth).map(|()| None)
            }
            Request::RemoveImage(name) => {
                self.images.remove(call, &name, &mut self.context);
                Ok(None)
            }
            Request::ImageFsInfo => {
                Ok(Some(Reply::ImageFs { used_bytes: self.images.used_bytes() }))
            }
            Request::ImportImages { path } => self.images.import(call, path).map(|()| None),
        };
        match answer {
            Ok(Some(reply)) => self.context.calls.answer(call, Ok(reply)),
            Ok(None) => {}
            Err(refusal) => self.context.calls.answer(call, Err(refusal)),
        }
    }

    fn run_sandbox(
        &mut self,
        call: CallId,
        config: SandboxConfig,
    ) -> Result<Option<Reply>, Refusal> {
        let program = self.program(&config.runtime_handler)?;
        let is_same = |sandbox: &&Sandbox| {
            let other = &sandbox.record().config;
            sandbox.kept.has_name() && other.pod == config.pod && other.attempt == config.attempt
        };
        if let Some(owner) = self.sandboxes.values().find(is_same) {
            let pod = &config.pod;
            let name = format!("{}_{}_{}_{}", pod.name, pod.namespace, pod.uid, config.attempt);
            return Err(reserved("sandbox", &name, &owner.record().id.0));
        }
        if self.sandboxes.len() >= RUNTIME_SANDBOXES_MAX {
            return Err(exhausted("a sandbox", RUNTIME_SANDBOXES_MAX));
        }
        let id = SandboxId(self.new_id());
        let record = SandboxRecord {
            id: id.clone(),
            config,
            phase: SandboxPhase::Making,
            created_at: wall_ns(self.context.now),
            ips: Vec::new(),
            boot: self.context.boot.clone(),
            program,
        };
        self.sandboxes.insert(id, Sandbox::new(record, call));
        Ok(None)
    }

    /// The program of a handler.
    fn program(&self, handler: &str) -> Result<Box<str>, Refusal> {
        let all = &self.conditions.handlers;
        match all.iter().find(|known| &*known.name == handler) {
            Some(known) => Ok(known.program.clone()),
            None if handler.is_empty() => Ok("".into()),
            None => {
                let message = format!("no runtime for {handler:?} is configured");
                Err(refusal(Code::Unknown, message))
            }
        }
    }

    /// One that nothing has here; the seed differs at each start, but chance may repeat itself.
    fn new_id(&mut self) -> Box<str> {
        loop {
            let id = ids::new_id(&mut self.rng);
            let is_new = !self.sandboxes.contains_key(&SandboxId(id.clone()))
                && !self.containers.contains_key(&ContainerId(id.clone()));
            if is_new {
                return id;
            }
        }
    }

    /// `StopPodSandbox`: absent is no error.
    fn stop_sandbox(&mut self, call: CallId, id: &str) -> Result<Option<Reply>, Refusal> {
        let now = self.context.now.boot;
        let Some(sandbox) = self.known_sandbox(id)? else { return Ok(Some(Reply::Done)) };
        sandbox.stop(call);
        let id = sandbox.record().id.clone();
        for container in self.members_mut(&id) {
            container.kill(now);
        }
        Ok(None)
    }

    /// `RemovePodSandbox`: absent is no error.
    fn remove_sandbox(&mut self, call: CallId, id: &str) -> Result<Option<Reply>, Refusal> {
        let now = self.context.now.boot;
        let Some(sandbox) = self.known_sandbox(id)? else { return Ok(Some(Reply::Done)) };
        sandbox.remove(call);
        let id = sandbox.record().id.clone();
        for container in self.members_mut(&id) {
            container.leave(now);
        }
        Ok(None)
    }

    fn members_mut(&mut self, of: &SandboxId) -> impl Iterator<Item = &mut Container> {
        self.containers.values_mut().filter(move |container| container.record().sandbox == *of)
    }

    /// A sandbox for a call that ends it: also one that is being made or undone.
    fn known_sandbox(&mut self, text: &str) -> Result<Option<&mut Sandbox>, Refusal> {
        let id = ids::find(text, self.sandboxes.keys().map(|id| &*id.0))?;
        let id = id.map(|id| SandboxId(id.into()));
        Ok(id.and_then(|id| self.sandboxes.get_mut(&id)))
    }

    fn shown_sandbox(&self, text: &str) -> Result<&Sandbox, Refusal> {
        let shown = self.sandboxes.iter().filter(|(_, sandbox)| sandbox.kept.is_visible);
        let id = ids::find(text, shown.map(|(id, _)| &*id.0))?.map(|id| SandboxId(id.into()));
        let sandbox = id.and_then(|id| self.sandboxes.get(&id));
        sandbox.ok_or_else(|| not_found("sandbox", text))
    }

    fn sandbox_status(&self, id: &str) -> Result<Reply, Refusal> {
        Ok(Reply::SandboxStatus(Arc::clone(self.shown_sandbox(id)?.record())))
    }

    fn matching_sandboxes(
        &self,
        filter: &SandboxFilter,
    ) -> impl Iterator<Item = Arc<SandboxRecord>> {
        let shown = self.sandboxes.values().filter(|sandbox| sandbox.kept.is_visible);
        let matching = shown.filter(move |sandbox| filter::sandbox(filter, sandbox.record()));
        matching.map(|sandbox| Arc::clone(sandbox.record()))
    }

    fn create(
        &mut self,
        call: CallId,
        sandbox: &str,
        config: ContainerConfig,
    ) -> Result<Option<Reply>, Refusal> {
        let sandbox = self.shown_sandbox(sandbox)?;
        if !sandbox.is_open() {
            return Err(sandbox_not_ready());
        }
        let sandbox = Arc::clone(sandbox.record());
        if let Some(owner) = self.owner_of(&sandbox.id, &config) {
            let pod = &sandbox.config.pod;
            let name = format!(
                "{}_{}_{}_{}_{}",
                config.name, pod.name, pod.namespace, pod.uid, config.attempt
            );
            return Err(reserved("container", &name, &owner.0));
        }
        let image = self.images.find(&config.image_ref).ok().flatten();
        let image = Arc::clone(image.ok_or_else(|| image_not_found(&config.image_ref))?);
        if self.containers.len() >= RUNTIME_CONTAINERS_MAX {
            return Err(exhausted("a container", RUNTIME_CONTAINERS_MAX));
        }
        let id = ContainerId(self.new_id());
        let record = ContainerRecord {
            id: id.clone(),
            sandbox: sandbox.id.clone(),
            log: log_path(&sandbox.config.log_directory, &config.log_path).into(),
            config,
            image: image.id.clone(),
            layers: image.layers.clone(),
            stop_signal: signals::stop_signal(&image.config.stop_signal),
            created_at: wall_ns(self.context.now),
            phase: ContainerPhase::Created,
        };
        self.containers.insert(id, Container::new(record, &sandbox, call));
        Ok(None)
    }

    /// Who has the name and the attempt: a pod's name is that of its sandbox, whichever it is.
    fn owner_of(&self, sandbox: &SandboxId, config: &ContainerConfig) -> Option<&ContainerId> {
        let pod = |id: &SandboxId| Some(&self.sandboxes.get(id)?.record().config.pod);
        let wanted = pod(sandbox);
        let mut named = self.containers.values().filter(|container| container.kept.has_name());
        let owner = named.find(|container| {
            let other = container.record();
            other.config.name == config.name
                && other.config.attempt == config.attempt
                && pod(&other.sandbox) == wanted
        });
        owner.map(|owner| &owner.record().id)
    }

    /// A container for a call that ends it: also one that is being made or undone.
    fn known(&mut self, text: &str) -> Result<Option<&mut Container>, Refusal> {
        let id = ids::find(text, self.containers.keys().map(|id| &*id.0))?;
        let id = id.map(|id| ContainerId(id.into()));
        Ok(id.and_then(|id| self.containers.get_mut(&id)))
    }

    fn shown(&mut self, text: &str) -> Result<&mut Container, Refusal> {
        let shown = self.containers.iter().filter(|(_, container)| container.kept.is_visible);
        let id = ids::find(text, shown.map(|(id, _)| &*id.0))?.map(|id| ContainerId(id.into()));
        let container = id.and_then(|id| self.containers.get_mut(&id));
        container.ok_or_else(|| not_found("container", text))
    }

    fn container_status(&mut self, id: &str) -> Result<Reply, Refusal> {
        let record = Arc::clone(self.shown(id)?.record());
        let image = self.images.get(&record.image).cloned();
        Ok(Reply::ContainerStatus(record, image))
    }

    fn matching(&self, filter: &ContainerFilter) -> impl Iterator<Item = &Container> {
        let shown = self.containers.values().filter(|container| container.kept.is_visible);
        shown.filter(move |container| filter::container(filter, container.record()))
    }

    fn list(
        &self,
        filter: &ContainerFilter,
    ) -> Vec<(Arc<ContainerRecord>, Option<Arc<ImageRecord>>)> {
        let records = self.matching(filter).map(|container| Arc::clone(container.record()));
        records
            .map(|record| (Arc::clone(&record), self.images.get(&record.image).cloned()))
            .collect()
    }

    fn reopen(&mut self, call: CallId, id: &str) -> Result<Option<Reply>, Refusal> {
        let id = self.shown(id)?.record().id.clone();
        let container = self.containers.get_mut(&id).expect("just seen");
        container.reopen(call, &mut self.context).map(|()| None)
    }

    fn container_stats(&mut self, call: CallId, filter: &ContainerFilter) {
        let now = self.context.now.boot;
        let (mut targets, mut of) = (Vec::new(), Vec::new());
        for container in self.matching(filter) {
            let record = container.record();
            let is_recent = |(at, _): &(Instant, _)| now.since_ms(*at) < RUNTIME_LAYER_USAGE_MS;
            let written = container.written.filter(is_recent).map(|(_, written)| written);
            let folder = container.folder();
            let layer_of = written.is_none().then_some(folder.id);
            of.push(StatsOf { cgroup: folder.cgroup, layer_of, network_of: None });
            targets.push((Arc::clone(record), written));
        }
        self.measures.begin(call, Targets::Containers(targets), of, &mut self.context);
    }

    fn sandbox_stats(&mut self, call: CallId, filter: &SandboxFilter) {
        let targets: Vec<Arc<SandboxRecord>> =
            self.matching_sandboxes(filter).filter(|record| record.is_ready()).collect();
        let of = targets.iter().map(|record| StatsOf {
            cgroup: pod_cgroup(record),
            layer_of: None,
            network_of: (!record.ips.is_empty()).then(|| record.id.clone()),
        });
        let of = of.collect();
        self.measures.begin(call, Targets::Sandboxes(targets), of, &mut self.context);
    }

    fn list_images(&self, name: Option<&str>) -> Result<Reply, Refusal> {
        Ok(Reply::Images(match name {
            Some(name) => self.images.find(name)?.into_iter().cloned().collect(),
            None => self.images.all().cloned().collect(),
        }))
    }

    // ---- other events ----

    fn cancel(&mut self, call: CallId) {
        let is_exec = self.execs.remove(&call).is_some();
        if is_exec {
            self.context.jobs.cancel(&Owner::Exec(call), &mut self.context.out);
        }
        if is_exec || self.streams.close(call) {
            self.context.calls.answer(call, Err(cancelled()));
        } else {
            self.images.cancel(call, &mut self.context);
        }
    }

    fn job_done(&mut self, job: JobId, result: Result<JobReply, JobFault>) {
        let context = &mut self.context;
        match context.jobs.end(job) {
            None => context.out.push(Action::Log(
                Severity::Error,
                format!("got the answer of {job:?}, which is not under way"),
            )),
            Some(Owner::Sandbox(id)) => {
                let sandbox = self.sandboxes.get_mut(&id);
                sandbox.expect("it stays while it has a job").job_done(result, context);
            }
            Some(Owner::Container(id)) => {
                let container = self.containers.get_mut(&id).expect("it stays while it has a job");
                let sandbox = container.record().sandbox.clone();
                let is_lost = matches!(result, Err(JobFault::SandboxLost(_)));
                container.job_done(result, context);
                if is_lost {
                    self.sandbox_lost(&sandbox);
                }
            }
            Some(Owner::Pull(number)) => self.images.fetched(number, result, context),
            Some(Owner::Layers) => {
                self.images.layers_removed(result.is_ok(), context.now.boot);
            }
            Some(Owner::Update(id)) => {
                // Absent: it was removed meanwhile, and the call is answered.
                if let Some(container) = self.containers.get_mut(&id) {
                    container.update_done(result, context);
                }
            }
            Some(Owner::Exec(call)) => self.exec_done(call, result),
            Some(Owner::Measure(call)) => {
                let at = context.now.boot;
                for (id, written) in self.measures.done(call, result, context) {
                    if let Some(container) = self.containers.get_mut(&id) {
                        container.written = Some((at, written));
                    }
                }
            }
        }
    }

    /// Its client sees that it is not ready, and makes another one.
    fn sandbox_lost(&mut self, id: &SandboxId) {
        self.log(Severity::Warn, format!("sandbox {id} has lost its process namespace"));
        let now = self.context.now.boot;
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.lost();
        }
        for container in self.members_mut(id) {
            container.kill(now);
        }
    }

    /// A container that is removed may have a monitor with last words.
    fn monitor_said(&mut self, id: &ContainerId, fact: MonitorFact) {
        if let Some(container) = self.containers.get_mut(id) {
            container.monitor_said(fact, &mut self.context);
        }
    }

    fn saved(&mut self) {
        self.saves.saved();
        self.sandboxes.values_mut().for_each(|sandbox| sandbox.kept.saved());
        self.containers.values_mut().for_each(|container| container.kept.saved());
        self.images.saved(&mut self.context);
    }

    fn not_saved(&mut self, why: &str) {
        self.log(Severity::Error, format!("records cannot be saved: {why}"));
        let again = self.saves.not_saved();
        self.sandboxes.values_mut().for_each(|sandbox| sandbox.kept.not_saved(why, again));
        self.containers.values_mut().for_each(|container| container.kept.not_saved(why, again));
        self.images.not_saved(why, again, &mut self.context);
    }

    // ---- the step ----

    /// Derives the requests from the current state.
    pub fn step(&mut self, now: Now, out: &mut Out) {
        self.context.now = now;
        while let Some(id) = self.context.jobs.take_late_start(now.boot) {
            if let Some(container) = self.containers.get_mut(&id) {
                container.start_is_late(&mut self.context);
            }
        }
        while self.advance_containers() | self.advance_sandboxes() {}
        self.request_saves();
        let named = self.containers.values().flat_map(|container| &container.record().layers);
        self.images.step(named, &mut self.context);
        self.context.jobs.step(now.boot, &mut self.context.out);
        self.send_events();
        out.actions.append(&mut self.context.out.actions);
        self.context.calls.take(out);
    }

    fn advance_containers(&mut self) -> bool {
        let mut has_changed = false;
        for container in self.containers.values_mut() {
            let record = Arc::clone(container.record());
            let sandbox = self.sandboxes.get(&record.sandbox).filter(|sandbox| sandbox.is_open());
            let sandbox = sandbox.map(|sandbox| &**sandbox.record());
            let image = self.images.get(&record.image);
            while container.advance(sandbox, image, &mut self.context) {
                has_changed = true;
            }
        }
        let now = self.context.now.boot;
        let gone = self.containers.iter().filter(|(_, container)| container.kept.is_erased());
        for id in gone.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            let mut container = self.containers.remove(&id).expect("just seen");
            container.farewell(&mut self.context);
            self.images.collect_by(now);
            has_changed = true;
        }
        has_changed
    }

    fn advance_sandboxes(&mut self) -> bool {
        let mut has_changed = false;
        for (id, sandbox) in &mut self.sandboxes {
            let members = if sandbox.needs_members() {
                members(id, &self.containers)
            } else {
                Members::default()
            };
            while sandbox.advance(&members, &mut self.context) {
                has_changed = true;
            }
        }
        let gone = self.sandboxes.iter().filter(|(_, sandbox)| sandbox.kept.is_erased());
        for id in gone.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            let mut sandbox = self.sandboxes.remove(&id).expect("just seen");
            sandbox.farewell(&mut self.context);
            has_changed = true;
        }
        has_changed
    }

    fn request_saves(&mut self) {
        let room = self.saves.room();
        let mut sent = 0;
        let out = &mut self.context.out;
        for sandbox in self.sandboxes.values_mut() {
            sent += usize::from(sent < room && sandbox.kept.request(out));
        }
        for container in self.containers.values_mut() {
            sent += usize::from(sent < room && container.kept.request(out));
        }
        // Changes that come to nothing are done at once.
        while sent < room && self.images.request(&mut self.context) {
            sent += usize::from(self.images.is_saving());
        }
        if room > 0 {
            self.saves.sent(sent);
        }
    }

    fn send_events(&mut self) {
        let notices = std::mem::take(&mut self.context.notices);
        if self.streams.is_empty() || notices.is_empty() {
            return;
        }
        let at = wall_ns(self.context.now);
        let events = notices.into_iter().map(|notice| RuntimeEvent {
            kind: notice.kind,
            at,
            sandbox: self
                .sandboxes
                .get(&notice.sandbox)
                .map(|sandbox| Arc::clone(sandbox.record())),
            containers: self
                .list(&ContainerFilter { sandbox: notice.sandbox.0, ..ContainerFilter::default() }),
            id: notice.id,
        });
        let events: Vec<RuntimeEvent> = events.collect();
        self.streams.send(&events, &mut self.context.calls, &mut self.context.out);
    }

    /// When to step again if nothing happens: later than the last step.
    pub fn wake_at(&self) -> Option<Instant> {
        let sandboxes = self.sandboxes.values().filter_map(Sandbox::wake_at);
        let containers = self.containers.values().filter_map(Container::wake_at);
        let objects = sandboxes.chain(containers).min();
        sooner(
            sooner(objects, self.images.wake_at(self.saves.room() > 0)),
            self.context.jobs.wake_at(),
        )
    }
}

/// Before the event loop has looked.
fn unknown_conditions() -> Conditions {
    let unknown = || Err(("Starting".into(), "the runtime has just started".into()));
    Conditions { runtime: unknown(), network: unknown(), handlers: Vec::new() }
}

fn remains(found: Option<Found>) -> Remains {
    match found {
        None => Remains::Nothing,
        Some(Found::Monitored) => Remains::Monitored,
        Some(Found::Ended(fact)) => Remains::Ended(fact),
        Some(Found::Alone(process, started_at)) => Remains::Process(process, started_at),
        Some(Found::Remains) => Remains::Folder,
    }
}

fn orphan_record(id: ContainerId) -> ContainerRecord {
    ContainerRecord {
        id,
        sandbox: SandboxId("".into()),
        config: ContainerConfig::default(),
        log: "".into(),
        image: ImageId("".into()),
        layers: Vec::new(),
        stop_signal: signals::stop_signal(""),
        created_at: 0,
        phase: ContainerPhase::Created,
    }
}

fn members(of: &SandboxId, containers: &Map<ContainerId, Container>) -> Members {
    let mut members = Members::default();
    for container in containers.values().filter(|container| container.record().sandbox == *of) {
        members.count += 1;
        members.live += usize::from(!container.is_at_rest());
        members.staying += usize::from(!container.is_leaving());
        members.fault = members.fault.or_else(|| container.fault().cloned());
    }
    members
}

/// The cgroup that all containers of a sandbox are in. Without a parent they have none together.
fn pod_cgroup(record: &SandboxRecord) -> Box<str> {
    match record.config.cgroup_parent.trim_end_matches('/') {
        "" => format!("/edged/{}", record.id).into(),
        parent => parent.into(),
    }
}

/// Empty: no log.
fn log_path(folder: &str, path: &str) -> String {
    if folder.is_empty() || path.is_empty() {
        String::new()
    } else {
        format!("{}/{path}", folder.trim_end_matches('/'))
    }
}
