//! The world around one agent: a queue of future events, two clocks, a runtime, a folder, jobs.
//!
//! One seed is one run. Events reach the agent as through the event loop: a turn delivers what came
//! in, takes a step, and performs the requests. How events are grouped into turns is drawn: it must
//! not matter.

use std::collections::BTreeMap;

use edged::agent::event::{Action, Event, Out, ProbeId};
use edged::agent::time::{Instant, Now};
use edged::agent::{Agent, Config};
use edged::limits;
use edged::model::cri::ContainerId;
use edged::model::map::Map;
use edged::model::probe::ProbeResults;

use crate::calls::Calls;
use crate::chance::Chance;
use crate::check::Check;
use crate::clocks::Clocks;
use crate::cloud::{self, CloudSim};
use crate::draw::{self, Drawer};
use crate::due::Queue;
pub use crate::due::WorldEvent;
use crate::faults::{Class, Faults, TICK_MS};
use crate::folder::Folder;
use crate::housekeeping::Machine;
use crate::jobs::{Disk, Jobs};
use crate::link::Link;
use crate::node;
#[cfg(feature = "streams")]
use crate::people::People;
use crate::queries::Asking;
use crate::rule::judge;
use crate::runtime::{Effect, Quirks, Registry, Runtime};
use crate::tally::Tally;
use crate::trace::trace;
use crate::turns::Turns;

/// The node's name.
pub const NODE: &str = "gw";
/// The root of the pods' logs.
pub const POD_LOGS: &str = "/var/log/pods";
const REQUESTS_A_STEP_MAX: usize = 400;

pub struct World {
    pub clocks: Clocks,
    /// All random draws.
    pub chance: Chance,
    /// The current rates of faults.
    pub faults: Faults,
    /// The class of the world.
    pub class: Class,
    pub runtime: Runtime,
    pub folder: Folder,
    /// The logs.
    pub disk: Disk,
    /// The machine's resources.
    pub machine: Machine,
    /// The cloud, the link and the store.
    pub cloud: Option<Box<CloudSim>>,
    /// The rules.
    pub check: Check,
    /// The counts.
    pub tally: Tally,
    /// The number of lives of the agent so far.
    pub life: u32,
    pub link: Link,
    pub(crate) calls: Calls,
    pub(crate) jobs: Jobs,
    pub(crate) queries: BTreeMap<ProbeId, Asking>,
    /// The results of probes that the agent saved, until the machine reboots.
    pub(crate) probe_results: Map<ContainerId, ProbeResults>,
    #[cfg(feature = "streams")]
    pub(crate) people: People,
    #[cfg(feature = "services")]
    pub(crate) services: Option<crate::services::ServiceSim>,
    /// The agent's event loop.
    pub(crate) turns: Turns,
    /// The folder is being read.
    pub(crate) reading: bool,
    pub(crate) agent: Agent,
    pub(crate) config: Config,
    out: Out,
    queue: Queue,
    /// When the agent was stopped, by its clock.
    pub(crate) leaving: Option<Instant>,
}

impl World {
    /// A new world, in which the agent has just started.
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let class = Class::of(seed);
        let faults = Faults::draw(class, &mut chance);
        let quirks = Quirks::draw(&mut chance);
        let mut config = node::draw(class, seed, &mut chance);
        let mut registry = Registry::new(draw::offers());
        for image in draw::offers().keys().filter(|_| chance.percent(40)) {
            registry.preload(image);
        }
        let mut pods_wished = match class {
            Class::Crowd => 70,
            Class::Usual | Class::Calm | Class::Storm | Class::Site => {
                1 + chance.below(12) as usize
            }
        };
        let cloud = cloud::draw(class, seed, &mut config, &mut pods_wished);
        for (image, ms) in cloud.iter().flat_map(|cloud| cloud.job_images()) {
            registry.offer(image, ms);
        }
        #[cfg(feature = "services")]
        let services = crate::services::draw(seed, &mut config);
        let now = Now { boot: Instant(0), wall: None };
        let mut world = Self {
            agent: Agent::boot(config.clone(), now, chance.bits()),
            check: Check::new(&config, statuses_each(class, seed)),
            runtime: Runtime::new(quirks, registry),
            folder: Folder::new(Drawer::new(class), pods_wished),
            disk: Disk::default(),
            machine: Machine::draw(&mut chance),
            cloud,
            tally: Tally::default(),
            life: 0,
            link: Link::new(),
            calls: Calls::default(),
            jobs: Jobs::default(),
            queries: BTreeMap::new(),
            probe_results: Map::new(),
            #[cfg(feature = "streams")]
            people: People::draw(seed),
            #[cfg(feature = "services")]
            services,
            turns: Turns::default(),
            reading: false,
            clocks: Clocks::draw(&mut chance),
            out: Out::default(),
            queue: Queue::default(),
            leaving: None,
            chance,
            faults,
            class,
            config,
        };
        trace!(0, "seed {seed}: {class:?}, {} {}", quirks.name, quirks.version);
        trace!(0, "{:?}", world.faults);
        for _ in 0..world.chance.below(pods_wished as u64 + 1) {
            world.folder.add(&mut world.chance);
        }
        world.at(0, WorldEvent::Tick);
        world.at(10, WorldEvent::UserChange);
        #[cfg(feature = "streams")]
        world.people_wait();
        if !world.clocks.is_set() {
            let ms = world.chance.spread(600_000);
            world.at(ms, WorldEvent::ClockSet);
        }
        world.begin_life();
        world
    }

    /// Schedules an event in this many milliseconds.
    pub fn at(&mut self, in_ms: u64, event: WorldEvent) {
        self.queue.push(self.clocks.now() + in_ms, event);
    }

    /// The next life of the agent begins.
    pub fn begin_life(&mut self) {
        self.life += 1;
        trace!(self.clocks.now(), "======== the agent's life {} begins", self.life);
        let now = self.clocks.agent();
        let seed = self.chance.bits();
        self.agent = Agent::boot(self.config.clone(), now, seed);
        self.out = Out::default();
        self.calls.begin_life();
        self.jobs = Jobs::default();
        self.queries.clear();
        #[cfg(feature = "streams")]
        self.people.lose_the_agent();
        #[cfg(feature = "services")]
        self.services.iter_mut().for_each(crate::services::ServiceSim::begin_life);
        self.machine.forget();
        self.link.begin_life();
        self.leaving = None;
        self.check.begin_life(self.clocks.now());
        self.check.probe_results_loaded(&self.probe_results);
        let saved = Event::SavedProbeResults(self.probe_results.clone());
        self.turns.begin_life(self.clocks.now(), saved);
        self.cloud_begin_life();
        let life = self.life;
        let (connect_ms, address_ms) = (self.chance.spread(500), self.chance.spread(500));
        self.at(connect_ms, WorldEvent::Connect(life));
        self.at(address_ms, WorldEvent::Addresses(life));
        let read_ms = self.chance.spread(2_000);
        self.reading = true;
        self.at(read_ms, WorldEvent::Read(life));
    }

    /// The machine starts again, with new clocks.
    pub fn boot_clocks(&mut self, clock_kept: bool) {
        self.clocks.reboot(clock_kept);
        if !clock_kept {
            let ms = self.chance.spread(600_000);
            self.at(ms, WorldEvent::ClockSet);
        }
    }

    /// The clock is set from the network.
    pub fn set_clock(&mut self) {
        self.clocks.set();
        trace!(self.clocks.now(), "the clock is set");
    }

    /// Delivers events that belong together.
    pub fn deliver(&mut self, bundle: Vec<Event>) {
        self.tally.events += bundle.len() as u64;
        self.turns.push(bundle);
        let waits = self.chance.percent(self.faults.batch_pct);
        let wait_ms = if waits { self.chance.below(self.faults.batch_ms + 1) } else { 0 };
        self.turns.turn_by(self.clocks.now() + wait_ms);
    }

    /// Lets time pass up to `end`.
    pub fn run_until(&mut self, end: u64) {
        loop {
            let turn_at = self.turns.next_at(self.clocks.now());
            let due_at = self.queue.next_at();
            let turn_first = match (turn_at, due_at) {
                (Some(turn), Some(due)) => turn < due,
                (Some(_), None) => true,
                (None, _) => false,
            };
            let next = if turn_first { turn_at } else { due_at };
            let Some(at) = next.filter(|&at| at <= end) else { break };
            self.clocks.advance(at);
            if turn_first {
                self.turn();
            } else {
                let event = self.queue.pop().expect("its time is known");
                self.happen(event);
            }
        }
        self.clocks.advance(end);
    }

    fn turn(&mut self) {
        let now = self.clocks.agent();
        for event in self.turns.turn(self.clocks.now(), &mut self.chance) {
            self.check.received(self.clocks.now(), &event, &self.agent);
            if let Some(cloud) = &mut self.cloud {
                cloud.received(self.clocks.now(), &event, &mut self.check, &self.agent);
            }
            if matches!(event, Event::Stop) {
                self.leaving.get_or_insert(now.boot);
            }
            self.agent.handle(now, event);
        }
        self.step(now);
        if self.turns.has_input() {
            let ms = self.chance.below(3);
            self.turns.turn_by(self.clocks.now() + ms);
        }
    }

    fn step(&mut self, now: Now) {
        self.tally.steps += 1;
        self.agent.step(now, &mut self.out);
        let mut actions = std::mem::take(&mut self.out.actions);
        let ends = actions.iter().any(|action| matches!(action, Action::Exit));
        let requests = actions.iter().filter(|action| !is_line(action)).count() - usize::from(ends);
        if let Some(delivered_at) = self.leaving {
            let has_devices = self.has_devices();
            let saves = actions.iter().filter(|action| is_last_save(action, has_devices));
            let requests = requests - saves.count();
            self.check.leaving((delivered_at, now.boot), requests, ends, has_devices);
        }
        judge!(requests <= REQUESTS_A_STEP_MAX, "[bounded step] a step makes {requests} requests");
        if self.check.may_be_full() {
            self.check.refusals(self.clocks.now(), &self.runtime, &self.agent);
        }
        self.check.evictions(self.clocks.now(), &self.agent, &self.disk.volumes);
        self.check.watchdog.stepped(&actions, now.boot, self.leaving.is_some());
        let life = self.life;
        for action in actions.drain(..) {
            self.perform(action);
            if self.life != life {
                return;
            }
        }
        self.out.actions = actions;
        self.devices_stepped();
        let mut wake = self.agent.wake_at();
        judge!(
            wake.is_none_or(|at| at > now.boot),
            "[wake later] wants to wake at {wake:?}, and it is {:?}",
            now.boot
        );
        if self.chance.percent(2) {
            self.step_without_input(now);
            wake = self.agent.wake_at();
        }
        if let Some(at) = wake {
            let late = self.chance.percent(self.faults.batch_pct);
            let late_ms = if late { self.chance.below(self.faults.batch_ms + 1) } else { 0 };
            let at = self.clocks.world_time(at) + late_ms;
            self.turns.turn_by(at);
        }
        self.check_abandoned_mounts();
        let stops_due = self.check.stepped(self.clocks.now(), &self.runtime, &self.agent);
        for pod in stops_due {
            self.at(1_000, WorldEvent::StopDue(pod));
        }
    }

    /// Without a new event and at the same time a second step requests nothing.
    fn step_without_input(&mut self, now: Now) {
        self.agent.step(now, &mut self.out);
        let requested = self.out.actions.iter().find(|action| !is_line(action));
        judge!(requested.is_none(), "[settled] a second step at once requests {requested:?}");
        self.out.actions.clear();
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Cri { call, request, deadline } => self.ask(call, request, deadline),
            Action::CancelCri(call) => self.cancel(call),
            Action::Job { job, spec, deadline } => self.start_job(job, spec, deadline),
            Action::KillJob(job) => self.kill_job(job),
            Action::Measure(ask) => self.measure(*ask),
            Action::Probe { probe, query, deadline } => self.start_query(probe, query, deadline),
            Action::CancelProbe(probe) => self.cancel_query(probe),
            Action::SaveProbeResults(results) => {
                self.check.probe_results_saved(&results);
                self.probe_results = results;
            }
            Action::Read { job, message } => self.read_words(job, &message),
            Action::RecordedEvent(note) => {
                self.tally.notes += 1;
                trace!(
                    self.clocks.now(),
                    "  note {} {}: {}", note.involved_object.name, note.reason, note.message
                );
            }
            #[cfg(feature = "streams")]
            Action::Stream(id, answer) => self.person_answered(id, &answer),
            #[cfg(all(feature = "cloud", feature = "streams"))]
            Action::DialTunnel { .. } | Action::PingTunnel(_) | Action::HangupTunnel(_) => {
                panic!("{action:?}: the tunnel is switched off")
            }
            #[cfg(feature = "services")]
            Action::Services(table) => {
                trace!(self.clocks.now(), "  {} Services are given out", table.len());
                self.services.as_mut().expect("they are switched on").given(table);
            }
            #[cfg(feature = "watchdog")]
            Action::Feed => {}
            Action::Log(severity, line) => {
                self.tally.lines += 1;
                trace!(self.clocks.now(), "  {severity:?}: {line}");
            }
            #[cfg(feature = "cloud")]
            Action::Dial { .. }
            | Action::Send(..)
            | Action::Ping(_)
            | Action::Hangup(_)
            | Action::Save { .. } => self.cloud_requested(action),
            #[cfg(feature = "devices")]
            Action::Device(action) => self.device_requested(*action),
            #[cfg(feature = "servicebus")]
            Action::ServiceBus(action) => panic!("it is switched off: {action:?}"),
            #[cfg(feature = "metaserver")]
            Action::MetaServer(id, reply) => self.metaserver_replies(id, reply),
            Action::Exit => {
                let stopped_at = self.leaving;
                judge!(stopped_at.is_some(), "[exit] the agent exits, and was not stopped");
                let until = stopped_at.map(|at| at.plus_ms(limits::SHUTDOWN_MS));
                if until.is_some_and(|until| self.clocks.agent().boot < until) {
                    self.devices_exit();
                }
                self.agent_dies();
            }
        }
    }

    /// The process of the agent ends, for whatever reason; the next one follows.
    pub fn agent_dies(&mut self) {
        self.kill_agent();
        self.begin_life();
    }

    pub(crate) fn kill_agent(&mut self) {
        self.cut_calls();
        self.kill_jobs();
        self.cloud_dies();
    }

    fn happen(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Begin(serial) => self.call_begins(serial),
            WorldEvent::Finish(serial) => self.call_finishes(serial),
            WorldEvent::Answer(serial) => self.answer(serial),
            WorldEvent::Expire(serial) => self.expire(serial),
            WorldEvent::Runtime(timer) => {
                let clock = self.clocks.runtime();
                self.runtime.fire(clock, timer);
                self.settle_runtime();
            }
            WorldEvent::DaemonUp => self.daemon_up(),
            WorldEvent::Connect(life) => self.connect(life),
            WorldEvent::Ready => self.become_ready(),
            WorldEvent::JobEnds(life, job) => self.job_ends(life, job),
            WorldEvent::QueryEnds(life, query) => self.query_ends(life, query),
            WorldEvent::WordsRead(life, job) => self.words_read(life, job),
            WorldEvent::Read(life) => self.folder_read(life),
            WorldEvent::Addresses(life) => self.deliver_addresses(life),
            WorldEvent::UserChange => self.users_change(),
            #[cfg(feature = "streams")]
            WorldEvent::Person => self.person_acts(),
            WorldEvent::Tick => {
                self.tick();
                #[cfg(feature = "streams")]
                self.check_people();
                self.at(TICK_MS, WorldEvent::Tick);
            }
            WorldEvent::ClockSet => self.set_clock(),
            WorldEvent::Measured(life) => self.measured(life),
            WorldEvent::StopDue(pod) => self.stop_due(pod),
            WorldEvent::Cloud(due) => self.cloud_due(due),
        }
    }

    /// Moves the outputs of the runtime to their destinations.
    pub fn settle_runtime(&mut self) {
        for (at, timer) in std::mem::take(&mut self.runtime.outputs.timers) {
            self.at(at.saturating_sub(self.clocks.now()), WorldEvent::Runtime(timer));
        }
        let effects = self.runtime.take_effects();
        for &effect in &effects {
            trace!(self.clocks.now(), "    {}", self.runtime.describe(effect));
            self.check.effect(self.clocks.now(), &self.runtime, effect);
            if let Effect::SandboxMade(number) = effect {
                self.cgroup_made(number);
            }
            if let Effect::Started(number) | Effect::Reopened(number) = effect {
                self.disk.log_written(&self.runtime, number);
            }
        }
        for (serial, result) in std::mem::take(&mut self.runtime.outputs.answers) {
            self.call_answered(serial, result);
        }
        if !effects.is_empty() {
            self.hint();
        }
    }

    /// Removes future faults and changes of users.
    pub fn stop_faults(&mut self) {
        let is_fault = |event| {
            matches!(event, WorldEvent::UserChange | WorldEvent::Tick)
                || Self::is_cloud_fault(event)
        };
        self.queue.retain(|event| !is_fault(event));
    }
}

/// All statuses are checked in every n-th step, whatever the agent's revision is.
fn statuses_each(class: Class, seed: u64) -> u64 {
    // A separate random sequence, so that other worlds do not change.
    let mut chance = Chance::new(seed ^ 0x7374_6174_7573_2121);
    match class {
        // Each check costs more there, and there are more steps.
        Class::Crowd | Class::Site => *chance.pick(&[50, 200]),
        Class::Usual | Class::Calm | Class::Storm => *chance.pick(&[3, 10, 30]),
    }
}

/// What the agent may request after it was stopped.
#[cfg_attr(not(feature = "cloud"), expect(unused_variables, reason = "there is no store"))]
fn is_last_save(action: &Action, has_devices: bool) -> bool {
    #[cfg(feature = "cloud")]
    if matches!(action, Action::Save { .. }) {
        return has_devices;
    }
    matches!(action, Action::SaveProbeResults(_))
}

fn is_line(action: &Action) -> bool {
    matches!(action, Action::RecordedEvent(_) | Action::Log(..))
}
