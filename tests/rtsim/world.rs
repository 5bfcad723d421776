//! The world: a queue of future events, the machine, the server, its client.

use std::collections::BTreeMap;

use edged::core::time::{Instant, Now, Wall};
use edged::limits::{PULL_DEADLINE_MS, RUNTIME_RETRY_MAX_MS};
use edged::model::cri::PidNamespace;
use edged::model::runtime::{ContainerId, MonitorFact, Record, Request, SandboxId};
use edged::runtime::event::CallId;

use crate::chance::Chance;
use crate::check::Check;
use crate::faults::{Class, Faults, TICK_MS};
use crate::machine::Machine;
use crate::rule::judge;
use crate::server::Server;
use crate::tally::Tally;
use crate::trace::trace;

/// 2027-01-15, milliseconds since 1970, when the world begins.
pub const TODAY_MS: i64 = 1_800_000_000_000;
/// A call is answered within this time once the faults have stopped: a pull that hangs at that
/// moment, and what waits behind it.
const ANSWERED_MS: u64 = 2 * PULL_DEADLINE_MS;
/// Rounds of the client that removes everything, at the least and at the most. Only after the
/// longest wait of a retry the disk is what the server says.
const ROUNDS_MIN: u64 = 6;
const ROUNDS: u64 = 20;

pub struct World {
    /// Milliseconds since the world began.
    pub now: u64,
    pub chance: Chance,
    pub class: Class,
    pub faults: Faults,
    pub machine: Machine,
    pub server: Option<Server>,
    pub lives: u64,
    pub check: Check,
    pub tally: Tally,
    /// No more calls of the random client.
    pub is_over: bool,
    pub last_call: u64,
    pub last_monitor: u64,
    /// The registry has newer images under its tags.
    pub is_moved: bool,
    live_ms: u64,
    queue: BTreeMap<(u64, u64), Due>,
    order: u64,
}

/// A future event. A number of the server's life belongs to what ends with it.
pub enum Due {
    Boot,
    Call(Box<Request>),
    Cancel(u64, CallId),
    Client,
    Tick,
    Job(u64, u64),
    Saved(u64),
    Flush(u64),
    Fact(u64, ContainerId, MonitorFact),
    Reopen(u64, ContainerId),
    Spawn(ContainerId, u64),
    Begin(ContainerId, u64),
    Adopt(ContainerId, u64),
    Signal(ContainerId, i32, i32),
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let class = Class::of(seed);
        let faults = Faults::draw(class, &mut chance);
        let live_ms = chance.between(5_000, 60_000);
        let mut world = Self {
            now: 0,
            chance,
            class,
            faults,
            machine: Machine::default(),
            server: None,
            lives: 0,
            check: Check::default(),
            tally: Tally::default(),
            is_over: false,
            last_call: 0,
            last_monitor: 0,
            is_moved: false,
            live_ms,
            queue: BTreeMap::new(),
            order: 0,
        };
        trace!(0, "seed {seed}: {class:?}, {live_ms} ms, {:?}", world.faults);
        world.at(0, Due::Boot);
        world.at(1, Due::Tick);
        world.at(2, Due::Client);
        world
    }

    /// Runs the whole seed, and returns the simulated milliseconds.
    pub fn live(&mut self) -> u64 {
        self.run_until(self.live_ms);
        self.faults = Faults::calm();
        self.is_over = true;
        self.run_until_answered();
        // As long as a record that could not be saved may wait.
        self.run_until(self.now + RUNTIME_RETRY_MAX_MS);
        self.check_lost();
        self.remove_everything();
        self.stay_quiet();
        self.now
    }

    fn run_until_answered(&mut self) {
        let end = self.now + ANSWERED_MS;
        while self.check.is_waiting() && self.now < end {
            self.run_until(self.now + 1_000);
        }
        judge!(!self.check.is_waiting(), "[answered] {:?} never are", self.check.open());
    }

    fn remove_everything(&mut self) {
        for round in 0..ROUNDS {
            trace!(self.now, "round {round} of removals");
            for request in self.removals() {
                self.at(0, Due::Call(Box::new(request)));
            }
            self.run_until(self.now + 60_000);
            self.run_until_answered();
            if round >= ROUNDS_MIN && self.machine.records.is_empty() {
                break;
            }
        }
        // Layers of pulls that failed are kept for a while.
        self.run_until(self.now + 8_000_000);
        let machine = &self.machine;
        judge!(machine.records.is_empty(), "[nothing left] records {:?}", machine.records.keys());
        judge!(machine.sandboxes.is_empty(), "[nothing left] mounts of {:?}", machine.sandboxes);
        judge!(machine.addresses.is_empty(), "[nothing left] addresses {:?}", machine.addresses);
        judge!(machine.folders.is_empty(), "[nothing left] folders {:?}", machine.folders);
        judge!(machine.data.is_empty(), "[nothing left] own layers {:?}", machine.data);
        judge!(machine.layers.is_empty(), "[nothing left] layers {:?}", machine.layers);
        let live = (machine.processes.len(), machine.monitors.len());
        judge!(live == (0, 0), "[nothing left] {live:?} processes and monitors");
    }

    fn stay_quiet(&mut self) {
        let server = self.server.as_ref().expect("nothing kills it any more");
        let wake = server.runtime.wake_at();
        judge!(wake.is_none(), "[quiet] it wakes at {wake:?} for nothing");
        let jobs = server.jobs.len();
        judge!(jobs == 0, "[quiet] {jobs} jobs are under way");
    }

    /// Schedules an event in this many milliseconds.
    pub fn at(&mut self, in_ms: u64, due: Due) {
        self.order += 1;
        self.queue.insert((self.now + in_ms, self.order), due);
    }

    pub fn delay_ms(&mut self) -> u64 {
        self.chance.spread(self.faults.delay_ms)
    }

    pub fn clock(&self) -> Now {
        Now { boot: Instant(self.now), wall: Some(Wall(TODAY_MS + self.now as i64)) }
    }

    /// Lets time pass up to `end`.
    pub fn run_until(&mut self, end: u64) {
        loop {
            let due_at = self.queue.first_key_value().map(|((at, _), _)| *at);
            let wake = self.server.as_ref().and_then(|server| server.wake);
            let at = [due_at, wake].into_iter().flatten().min().unwrap_or(u64::MAX);
            if at > end {
                break;
            }
            self.now = at.max(self.now);
            if due_at == Some(at) {
                let (_, due) = self.queue.pop_first().expect("just seen");
                self.happen(due);
            } else {
                self.step();
            }
        }
        self.now = end;
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Boot => self.boot(),
            Due::Call(request) => self.call(*request),
            Due::Cancel(life, call) => self.cancel(life, call),
            Due::Client => self.client_acts(),
            Due::Tick => self.tick(),
            Due::Job(life, job) => self.job_ends(life, job),
            Due::Saved(life) => self.batch_ends(life),
            Due::Flush(life) => self.flush(life),
            Due::Fact(life, id, fact) => self.fact(life, id, fact),
            Due::Reopen(life, id) => self.reopened(life, id),
            Due::Spawn(id, number) => self.spawn(&id, number),
            Due::Begin(id, number) => self.begin(&id, number),
            Due::Adopt(id, number) => self.adopt(&id, number),
            Due::Signal(id, pid, signal) => self.signal(&id, pid, signal),
        }
    }

    /// Sandboxes whose process namespace has a process that may end.
    fn held(&self) -> Vec<SandboxId> {
        let machine = &self.machine;
        let is_held = |record: &Record| match record {
            Record::Sandbox(record) if record.config.namespaces.pid == PidNamespace::Pod => {
                let is_made = machine.sandboxes.contains(&record.id);
                (is_made && !machine.unheld.contains(&record.id)).then(|| record.id.clone())
            }
            _ => None,
        };
        machine.records.values().filter_map(is_held).collect()
    }

    /// Draws the faults that come by themselves.
    fn tick(&mut self) {
        if self.is_over {
            return;
        }
        self.at(TICK_MS, Due::Tick);
        if self.chance.ppm(self.faults.power_ppm) {
            self.power_cut();
        } else if self.chance.ppm(self.faults.server_ppm) {
            self.kill_server();
        }
        let (kill_ppm, exit_ppm) = (self.faults.monitor_ppm, self.faults.exit_ppm);
        let monitors: Vec<ContainerId> = self.machine.monitors.keys().cloned().collect();
        for id in monitors {
            if self.chance.ppm(kill_ppm) {
                self.kill_monitor(&id);
            }
        }
        let holder_ppm = self.faults.holder_ppm;
        for id in self.held() {
            if self.chance.ppm(holder_ppm) {
                self.holder_ends(&id);
            }
        }
        let started = self.machine.processes.iter().filter(|(_, process)| process.is_started);
        let processes: Vec<ContainerId> = started.map(|(id, _)| id.clone()).collect();
        for id in processes {
            if self.chance.ppm(exit_ppm) {
                let code = self.chance.below(3) as i32;
                self.process_exits(&id, code);
            }
        }
        if self.chance.percent(1) {
            self.is_moved = !self.is_moved;
        }
    }
}
