//! The server's lives: what it is told, what it requests, and how both come about.

use std::collections::{BTreeMap, BTreeSet};

use edged::core::time::Instant;
use edged::limits::PULL_DEADLINE_MS;
use edged::model::runtime::{
    ContainerId, ContainerPhase, ExitReason, Job, JobFault, MonitorFact, MonitorStart, Process,
    Record, RecordKey, SandboxId, SandboxPhase,
};
use edged::runtime::Runtime;
use edged::runtime::event::{Action, Durability, Event, Found, JobId, Out, Stored};

use crate::machine::{Machine, Monitor, Proc, Truth};
use crate::rule::judge;
use crate::trace::trace;
use crate::world::{Due, TODAY_MS, World};

/// One life of the server.
pub struct Server {
    pub life: u64,
    pub runtime: Runtime,
    pub wake: Option<u64>,
    pub jobs: BTreeMap<u64, Running>,
    /// Containers whose monitors have said nothing yet, and since when.
    pub starting: BTreeMap<ContainerId, u64>,
    /// Saves and erasures under way.
    batch: Vec<Action>,
    /// To be saved soon.
    lazy: BTreeMap<RecordKey, Record>,
    /// When the last fact of a container arrives: they come in order.
    fact_at: BTreeMap<ContainerId, u64>,
    /// Sandboxes that a job has reported as lost.
    pub lost: BTreeSet<SandboxId>,
}

/// A job under way.
pub struct Running {
    pub job: Job,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Succeeds,
    Fails,
    Dies,
}

impl World {
    // ---- lives ----

    pub fn boot(&mut self) {
        if self.server.is_some() {
            return;
        }
        self.lives += 1;
        if self.chance.percent(self.faults.record_lost_pct) {
            self.lose_a_record();
        }
        let stored = self.stored();
        trace!(self.now, "the server begins life {}: found {:?}", self.lives, stored.found);
        let monitored: Vec<ContainerId> = stored
            .found
            .iter()
            .filter(|(_, found)| *found == Found::Monitored)
            .map(|(id, _)| id.clone())
            .collect();
        let runtime = Runtime::boot(stored, self.clock(), self.lives);
        self.server = Some(Server {
            life: self.lives,
            runtime,
            wake: None,
            jobs: BTreeMap::new(),
            starting: BTreeMap::new(),
            batch: Vec::new(),
            lazy: BTreeMap::new(),
            fact_at: BTreeMap::new(),
            lost: BTreeSet::new(),
        });
        self.deliver(Event::Layers(self.machine.layers.iter().cloned().collect()));
        for id in monitored {
            let process = self.machine.processes.get(&id).filter(|process| process.is_started);
            if let Some(process) = process {
                let (process, at) = (process.process.clone(), process.started_at);
                self.tell(&id, MonitorFact::Started { process, at });
            }
        }
        self.step();
    }

    /// One of a sandbox or a container cannot be read, and is put aside.
    fn lose_a_record(&mut self) {
        let records = self.machine.records.keys();
        let keys: Vec<RecordKey> =
            records.filter(|key| !matches!(key, RecordKey::Image(_))).cloned().collect();
        if !keys.is_empty() {
            self.tally.add("records lost");
            self.machine.records.remove(self.chance.pick(&keys));
        }
    }

    fn stored(&self) -> Stored {
        let machine = &self.machine;
        let mut stored = Stored { boot: machine.boot_id(), ..Stored::default() };
        for record in machine.records.values().cloned() {
            match record {
                Record::Sandbox(record) => {
                    let is_making = record.phase == SandboxPhase::Making;
                    let newer = machine.in_run.get(&record.id).filter(|_| is_making);
                    stored.sandboxes.push(newer.cloned().unwrap_or(record));
                }
                Record::Container(record) => stored.containers.push(record),
                Record::Image(record) => stored.images.push(record),
            }
        }
        for (id, exit) in &machine.folders {
            let process = machine.processes.get(id);
            let found = match (exit, process) {
                (Some(fact), _) => Found::Ended(fact.clone()),
                (None, _) if machine.monitors.contains_key(id) => Found::Monitored,
                (None, Some(process)) => {
                    let started_at = process.is_started.then_some(process.started_at);
                    Found::Alone(process.process.clone(), started_at)
                }
                (None, None) => Found::Remains,
            };
            stored.found.push((id.clone(), found));
        }
        for id in &machine.data {
            let has_record = machine.records.contains_key(&RecordKey::Container(id.clone()));
            if !has_record && !machine.folders.contains_key(id) {
                stored.found.push((id.clone(), Found::Remains));
            }
        }
        stored.found_sandboxes = machine.sandboxes.iter().cloned().collect();
        stored.found_networks = machine.addresses.iter().cloned().collect();
        stored
    }

    /// The server dies: its jobs stop somewhere, what it was saving may be saved.
    pub fn kill_server(&mut self) {
        let Some(server) = self.server.take() else { return };
        trace!(self.now, "the server is killed");
        self.tally.add("servers killed");
        for running in server.jobs.into_values() {
            self.apply_some(&running.job);
        }
        let lazily = server
            .lazy
            .into_values()
            .map(|record| Action::Save(Box::new(record), Durability::Lazily));
        for action in server.batch.into_iter().chain(lazily) {
            if self.chance.percent(50) {
                self.apply_save(action);
            }
        }
        self.check.lost();
        let ms = self.chance.below(3_000);
        self.at(ms, Due::Boot);
    }

    pub fn power_cut(&mut self) {
        trace!(self.now, "the power fails");
        self.tally.add("power cuts");
        self.kill_server();
        let records = &self.machine.records;
        for (id, truth) in &mut self.machine.truth {
            let record = records.get(&RecordKey::Container(id.clone()));
            let is_saved = matches!(record, Some(Record::Container(record))
                if matches!(record.phase, ContainerPhase::Exited(_)));
            truth.is_kept &= is_saved;
        }
        self.machine.power_cut();
    }

    // ---- events and steps ----

    /// Tells the server something; mostly it steps then.
    pub fn deliver(&mut self, event: Event) {
        let now = self.clock();
        let Some(server) = self.server.as_mut() else { return };
        server.runtime.handle(now, event);
        if self.chance.percent(70) {
            self.step();
        } else if let Some(server) = self.server.as_mut() {
            server.wake = Some(self.now);
        }
    }

    pub fn step(&mut self) {
        let now = self.clock();
        let Some(server) = self.server.as_mut() else { return };
        let mut out = Out::default();
        server.runtime.step(now, &mut out);
        let wake = server.runtime.wake_at();
        server.wake = wake.map(|Instant(at)| at);
        self.tally.steps += 1;
        let is_later = wake.is_none_or(|at| at > now.boot);
        judge!(is_later, "[wake later] it wakes at {wake:?}, and it is {:?}", now.boot);
        let has_batch = !self.server.as_ref().expect("just seen").batch.is_empty();
        let life = self.server.as_ref().expect("just seen").life;
        let mut begins = false;
        for action in out.actions {
            let is_save = matches!(action, Action::Save(_, Durability::Now) | Action::Erase(_));
            judge!(!is_save || !has_batch, "[one save] {action:?} while a batch is under way");
            begins |= is_save;
            self.perform(action);
            if self.server.as_ref().is_none_or(|server| server.life != life) {
                return;
            }
            if self.chance.ppm(self.faults.at_action_ppm) {
                return self.kill_server();
            }
        }
        if begins {
            let ms = self.delay_ms();
            self.at(ms, Due::Saved(life));
        }
    }

    fn perform(&mut self, action: Action) {
        if !matches!(action, Action::Answer(..) | Action::Item(..)) {
            trace!(self.now, "  {}", short(&action));
        }
        let life = self.lives;
        match action {
            Action::Answer(call, answer) => {
                trace!(self.now, "  answer {} {}", call.0, short(&answer));
                self.check_answer(call, &answer);
            }
            Action::Item(call, _) => {
                let is_open = self.check.is_open(call);
                judge!(is_open, "[one answer] an event for {call:?}, which is not open");
            }
            Action::Save(record, durability @ (Durability::Lazily | Durability::InRun)) => {
                if let (Record::Sandbox(record), Durability::InRun) = (&*record, durability) {
                    self.machine.in_run.insert(record.id.clone(), record.clone());
                }
                let server = self.server.as_mut().expect("it requests this");
                server.lazy.insert(record.key(), *record);
                let ms = self.chance.below(1_000);
                self.at(ms, Due::Flush(life));
            }
            Action::Save(record, Durability::Now) => {
                if let Record::Container(record) = &*record {
                    self.core_ends(&record.id, &record.phase);
                }
                let server = self.server.as_mut().expect("it requests this");
                server.lazy.remove(&record.key());
                server.batch.push(Action::Save(record, Durability::Now));
            }
            Action::Erase(key) => {
                let server = self.server.as_mut().expect("it requests this");
                server.lazy.remove(&key);
                server.batch.push(Action::Erase(key));
            }
            Action::Job(id, job, deadline) => self.job_begins(id, job, deadline),
            Action::KillJob(JobId(id)) => {
                self.finish_job(id, Fate::Dies);
            }
            Action::Monitor(start) => self.monitor_begins(*start),
            Action::Reopen(id) => {
                let ms = self.delay_ms();
                self.at(ms, Due::Reopen(life, id));
            }
            Action::Signal(id, process, signal) => {
                let ms = self.delay_ms();
                self.at(ms, Due::Signal(id, process.pid, signal));
            }
            Action::Log(..) => {}
        }
    }

    /// The core has decided that a container has ended, whatever it still does.
    fn core_ends(&mut self, id: &ContainerId, phase: &ContainerPhase) {
        let ContainerPhase::Exited(exit) = phase else { return };
        let known = self.machine.truth.entry(id.clone());
        match exit.reason {
            // That its monitor was lost at its start may be seen before its end is.
            ExitReason::StartError => {
                known.and_modify(|truth| truth.is_kept &= !truth.by_server).or_insert(Truth {
                    code: 0,
                    is_kept: false,
                    by_server: false,
                });
            }
            ExitReason::Unknown => {
                known.or_insert(Truth { code: 0, is_kept: false, by_server: false });
            }
            _ => {}
        }
    }

    // ---- saves ----

    fn apply_save(&mut self, action: Action) {
        match action {
            Action::Save(record, _) => drop(self.machine.records.insert(record.key(), *record)),
            Action::Erase(key) => drop(self.machine.records.remove(&key)),
            _ => unreachable!("only saves are in batches"),
        }
    }

    pub fn batch_ends(&mut self, life: u64) {
        let Some(server) = self.server.as_mut().filter(|server| server.life == life) else {
            return;
        };
        let batch = std::mem::take(&mut server.batch);
        if self.chance.percent(self.faults.save_fails_pct) {
            trace!(self.now, "not saved");
            self.tally.add("saves failed");
            for action in batch {
                if self.chance.percent(50) {
                    self.apply_save(action);
                }
            }
            self.deliver(Event::NotSaved("no space left".to_owned()));
        } else {
            trace!(self.now, "saved");
            for action in batch {
                self.apply_save(action);
            }
            self.deliver(Event::Saved);
        }
    }

    pub fn flush(&mut self, life: u64) {
        let Some(server) = self.server.as_mut().filter(|server| server.life == life) else {
            return;
        };
        self.machine.records.append(&mut server.lazy);
    }

    // ---- jobs ----

    fn job_begins(&mut self, JobId(id): JobId, job: Job, deadline: Instant) {
        self.check_job(&job);
        let mut ms = self.delay_ms();
        let fate = if self.chance.percent(self.faults.job_hangs_pct) {
            self.tally.add("jobs that hang");
            // A command may take for ever.
            ms = (deadline.0 - self.now).min(PULL_DEADLINE_MS);
            Fate::Dies
        } else if self.chance.percent(self.faults.job_dies_pct) {
            Fate::Dies
        } else if self.chance.percent(self.faults.job_fails_pct) {
            self.tally.add("jobs that fail");
            Fate::Fails
        } else {
            Fate::Succeeds
        };
        let server = self.server.as_mut().expect("it requests this");
        server.jobs.insert(id, Running { job, fate });
        self.at(ms, Due::Job(self.lives, id));
    }

    pub fn job_ends(&mut self, life: u64, id: u64) {
        let server = self.server.as_ref().filter(|server| server.life == life);
        if let Some(fate) = server.and_then(|server| Some(server.jobs.get(&id)?.fate)) {
            self.finish_job(id, fate);
        }
    }

    fn finish_job(&mut self, id: u64, fate: Fate) {
        let server = self.server.as_mut().expect("its job ends");
        let Some(Running { job, .. }) = server.jobs.remove(&id) else { return };
        let result = match (self.lost_sandbox_of(&job), fate) {
            (Some(id), Fate::Succeeds | Fate::Fails) => {
                self.tally.add("sandboxes found lost");
                self.server.as_mut().expect("its job ends").lost.insert(id);
                Err(JobFault::SandboxLost("its first process is gone".to_owned()))
            }
            (_, Fate::Succeeds) => {
                let job = self.moved(job.clone());
                for effect in Machine::effects(&job) {
                    self.machine.apply(effect);
                }
                Ok(Machine::reply(&job))
            }
            (_, Fate::Fails) => {
                // One that fails to make a sandbox leaves nothing.
                if !matches!(job, Job::MakeSandbox(_)) {
                    self.apply_some(&job);
                }
                Err(JobFault::Failed("drawn".to_owned()))
            }
            (_, Fate::Dies) => {
                self.apply_some(&job);
                Err(JobFault::Died("killed".to_owned()))
            }
        };
        trace!(self.now, "job {id} {}", short(&result));
        let leaves_layers = result.is_err()
            && matches!(job, Job::Pull { .. } | Job::Import { .. } | Job::RemoveLayers { .. });
        let now = self.clock();
        let server = self.server.as_mut().expect("its job ends");
        server.runtime.handle(now, Event::Job(JobId(id), result));
        if leaves_layers {
            let layers = self.machine.layers.iter().cloned().collect();
            server.runtime.handle(now, Event::Layers(layers));
        }
        server.wake = Some(self.now);
    }

    /// The sandbox in which this job cannot make its container.
    fn lost_sandbox_of(&self, job: &Job) -> Option<SandboxId> {
        match job {
            Job::MakeContainer { sandbox, .. } if self.machine.unheld.contains(&sandbox.id) => {
                Some(sandbox.id.clone())
            }
            _ => None,
        }
    }

    /// The first few of a job's effects.
    fn apply_some(&mut self, job: &Job) {
        let job = self.moved(job.clone());
        let effects = Machine::effects(&job);
        let count = self.chance.index(effects.len() + 1);
        for effect in effects.into_iter().take(count) {
            self.machine.apply(effect);
        }
    }

    /// The registry may have a newer image under this name.
    fn moved(&self, job: Job) -> Job {
        match job {
            Job::Pull { image, auth } if self.is_moved => {
                Job::Pull { image: format!("{image}#2").into(), auth }
            }
            job => job,
        }
    }

    // ---- monitors ----

    fn monitor_begins(&mut self, start: MonitorStart) {
        let id = start.id;
        let key = RecordKey::Container(id.clone());
        let has_record = self.machine.records.contains_key(&key);
        judge!(has_record, "[on record] a monitor for {id}");
        self.last_monitor += 1;
        let number = self.last_monitor;
        let adopts = start.adopt.is_some();
        let ms = self.delay_ms();
        let is_double = self.machine.monitors.contains_key(&id);
        judge!(!is_double, "[one process] {id} has a monitor and gets another");
        self.machine.monitors.insert(id.clone(), Monitor { number, adopts });
        if adopts {
            return self.at(ms, Due::Adopt(id, number));
        }
        let server = self.server.as_mut().expect("it requests this");
        server.starting.insert(id.clone(), self.now);
        // Overlay and config.json are there by then, and the folder is.
        let has_folder = self.machine.folders.contains_key(&id);
        judge!(has_folder, "[on record] {id} is started without a folder");
        let hangs = self.chance.percent(self.faults.job_hangs_pct);
        self.at(if hangs { 90_000 } else { ms }, Due::Spawn(id, number));
    }

    fn is_monitor(&self, id: &ContainerId, number: u64) -> bool {
        self.machine.monitors.get(id).is_some_and(|monitor| monitor.number == number)
    }

    /// The OCI runtime creates the container.
    pub fn spawn(&mut self, id: &ContainerId, number: u64) {
        if !self.is_monitor(id, number) {
            return;
        }
        if self.chance.percent(self.faults.start_fails_pct) {
            return self.monitor_ends(id, MonitorFact::Failed("no such file".to_owned()));
        }
        let record = self.machine.records.get(&RecordKey::Container(id.clone()));
        if let Some(Record::Container(record)) = record
            && self.machine.unheld.contains(&record.sandbox)
        {
            return self.monitor_ends(id, MonitorFact::Failed("no process namespace".to_owned()));
        }
        let lives = self.machine.processes.contains_key(id);
        judge!(!lives, "[one process] {id} lives and is started again");
        let is_new = self.machine.oci.insert(id.clone());
        judge!(is_new, "[one process] {id} is created again, and the OCI runtime has it");
        self.machine.last_pid += 1;
        let pid = self.machine.last_pid;
        let process = Process { pid, start_time: self.now, boot: self.machine.boot_id() };
        let life = self.server.as_ref().map_or(0, |server| server.life);
        let record = self.machine.records.get(&RecordKey::Container(id.clone()));
        let memory_limit = match record {
            Some(Record::Container(record)) => record.config.resources.memory_limit,
            _ => 0,
        };
        let process = Proc { process, is_started: false, started_at: 0, life, memory_limit };
        self.machine.processes.insert(id.clone(), process);
        let ms = self.delay_ms();
        self.at(ms, Due::Begin(id.clone(), number));
    }

    /// The OCI runtime starts the container's program.
    pub fn begin(&mut self, id: &ContainerId, number: u64) {
        if !self.is_monitor(id, number) {
            return;
        }
        let at = (TODAY_MS + self.now as i64) * 1_000_000;
        let Some(process) = self.machine.processes.get_mut(id) else { return };
        process.is_started = true;
        process.started_at = at;
        let process = process.process.clone();
        self.tally.add("containers started");
        self.tell(id, MonitorFact::Started { process, at });
    }

    /// A new monitor takes over.
    pub fn adopt(&mut self, id: &ContainerId, number: u64) {
        if !self.is_monitor(id, number) {
            return;
        }
        self.tally.add("adoptions");
        match self.machine.processes.get(id) {
            Some(process) => {
                let (process, at) = (process.process.clone(), process.started_at);
                self.tell(id, MonitorFact::Started { process, at });
            }
            None => self.monitor_ends(id, MonitorFact::Failed("no such process".to_owned())),
        }
    }

    fn monitor_ends(&mut self, id: &ContainerId, fact: MonitorFact) {
        self.machine.monitors.remove(id);
        if let Some(exit) = self.machine.folders.get_mut(id)
            && exit.is_none()
        {
            *exit = Some(fact.clone());
        }
        self.tell(id, fact);
    }

    pub fn kill_monitor(&mut self, id: &ContainerId) {
        if self.machine.monitors.remove(id).is_some() {
            trace!(self.now, "the monitor of {} is killed", &id.0[..8]);
            self.tally.add("monitors killed");
            self.tell(id, MonitorFact::Gone);
        }
    }

    fn tell(&mut self, id: &ContainerId, fact: MonitorFact) {
        let ms = self.delay_ms();
        let Some(server) = self.server.as_mut() else { return };
        let at = (self.now + ms).max(server.fact_at.get(id).copied().unwrap_or(0));
        server.fact_at.insert(id.clone(), at);
        let life = server.life;
        self.at(at - self.now, Due::Fact(life, id.clone(), fact));
    }

    pub fn fact(&mut self, life: u64, id: ContainerId, fact: MonitorFact) {
        let Some(server) = self.server.as_mut().filter(|server| server.life == life) else {
            return;
        };
        trace!(self.now, "{} {}", &id.0[..8], short(&fact));
        server.starting.remove(&id);
        self.deliver(Event::Monitor(id, fact));
    }

    pub fn reopened(&mut self, life: u64, id: ContainerId) {
        let is_same = self.server.as_ref().is_some_and(|server| server.life == life);
        if is_same && self.machine.monitors.contains_key(&id) {
            self.deliver(Event::Monitor(id, MonitorFact::Reopened(Ok(()))));
        }
    }

    // ---- processes ----

    pub fn signal(&mut self, id: &ContainerId, pid: i32, signal: i32) {
        let process = self.machine.processes.get(id);
        if process.is_none_or(|process| process.process.pid != pid) {
            return;
        }
        // A program may ignore all but SIGKILL.
        if signal == 9 || self.chance.percent(60) {
            self.process_exits(id, 128 + signal);
        }
    }

    /// The first process of the pod's process namespace ends, and the kernel kills all others.
    pub fn holder_ends(&mut self, sandbox: &SandboxId) {
        trace!(self.now, "the process namespace of {} ends", &sandbox.0[..8]);
        self.tally.add("process namespaces lost");
        self.machine.unheld.insert(sandbox.clone());
        let is_in = |record: &Record| match record {
            Record::Container(record) if record.sandbox == *sandbox => Some(record.id.clone()),
            _ => None,
        };
        let killed: Vec<ContainerId> = self.machine.records.values().filter_map(is_in).collect();
        for id in killed {
            self.process_exits(&id, 137);
        }
    }

    pub fn process_exits(&mut self, id: &ContainerId, code: i32) {
        let Some(process) = self.machine.processes.remove(id) else { return };
        trace!(self.now, "{} exits with {code}", &id.0[..8]);
        let life = self.server.as_ref().map(|server| server.life);
        let monitor = self.machine.monitors.get(id);
        let by_monitor = monitor.is_some_and(|monitor| !monitor.adopts);
        // Else its parent is the server that has started its monitor, or init.
        let is_kept = by_monitor || life == Some(process.life);
        self.machine.truth.entry(id.clone()).or_insert(Truth {
            code,
            is_kept,
            by_server: !by_monitor,
        });
        let at = (TODAY_MS + self.now as i64) * 1_000_000;
        if is_kept {
            self.monitor_ends(id, MonitorFact::Exited { code, oom_killed: false, at });
        } else if monitor.is_some() {
            self.monitor_ends(id, MonitorFact::Failed("it has ended unseen".to_owned()));
        }
    }
}

/// The beginning of what it prints as.
fn short(what: &impl std::fmt::Debug) -> String {
    let text = format!("{what:?}");
    text.chars().take(220).collect()
}
