//! The event loop: everything that touches the system. It decides nothing.
//!
//! ```text
//!  poll ─▶ each ready source ─▶ events ─▶ handle* ─▶ step ─▶ actions ─▶ perform* ─┐
//!   ▲                                       ▲                                     │ immediate
//!   │                                       └─────────────────────────────────────┤ answers
//!   └────── write the runtime's socket, commit the store, sleep until wake_at ◀───┘
//! ```
//!
//! One thread, one poll, one turn after the other. A turn reads the clock once ([`clock::now`]),
//! takes a bounded amount from each source, and writes its requests to the runtime in one piece.
//! What remains at a source is remembered, and the next turn follows at once. A turn that took
//! longer than [`crate::limits::TURN_MS_MAX`] is logged with the part that took longest.
//!
//! **Tokens.** [`SIGNALS`], [`RUNTIME`] and [`FOLDER`] are single sources; the link to the cloud
//! has [`CLOUD`] and the next token; the HTTP server has all tokens from [`SERVER`] on, for its
//! listeners and their connections; MetaServer has those from `METASERVER` on; requests of people
//! have those from [`STREAMS`] on, connections of probes and hooks those from [`PROBES`] on,
//! mappers those from `DMI` on, and the process that serves Services has [`SERVICES`].
//!
//! **If we crash here** nothing is lost: the next start reads everything again from the runtime,
//! the manifest folder and the store. Pods keep running.

#[cfg(feature = "runtime")]
pub mod builtin;
#[cfg(any(feature = "runtime", feature = "services"))]
pub mod channel;
#[cfg(any(feature = "node-jobs", feature = "runtime"))]
mod child;
#[cfg(feature = "api")]
pub mod client;
pub mod clock;
#[cfg(feature = "cloud")]
pub mod cloud;
#[cfg(not(feature = "cloud"))]
#[path = "cloud/absent.rs"]
pub mod cloud;
#[cfg(any(feature = "node-jobs", feature = "runtime"))]
mod confine;
#[cfg(feature = "controller")]
pub mod controller;
mod credentials;
#[cfg(any(feature = "cloud", feature = "probe-https"))]
mod crypto;
#[cfg(feature = "devices")]
pub mod devices;
#[cfg(not(feature = "devices"))]
#[path = "devices/absent.rs"]
pub mod devices;
#[cfg(feature = "api")]
pub mod diagnostics;
#[cfg(feature = "cloud")]
pub mod disk;
#[cfg(not(feature = "cloud"))]
#[path = "disk/absent.rs"]
pub mod disk;
#[cfg(feature = "devices")]
pub mod dmi;
pub mod folder;
mod frame;
#[cfg(feature = "images")]
pub mod image_import;
#[cfg(not(feature = "images"))]
#[path = "image_import/absent.rs"]
pub mod image_import;
#[cfg(any(feature = "controller", feature = "metaserver-auth"))]
mod issuer;
pub mod job;
mod jobs;
#[cfg(any(feature = "metaserver-auth", feature = "services"))]
pub mod link;
pub mod lock;
pub mod log;
#[cfg(feature = "metaserver")]
pub mod metaserver;
mod mounts;
#[cfg(feature = "devices")]
pub mod mqtt;
#[cfg(feature = "page")]
mod page;
#[cfg(feature = "probes")]
pub mod probe;
#[cfg(not(feature = "probes"))]
#[path = "probe/absent.rs"]
pub mod probe;
#[cfg(feature = "probes")]
mod probe_results;
#[cfg(feature = "cloud")]
pub mod release;
pub mod rivals;
pub mod runtime;
#[cfg(feature = "api")]
pub mod server;
#[cfg(not(feature = "api"))]
#[path = "server/absent.rs"]
pub mod server;
#[cfg(feature = "servicebus")]
pub mod service_bus;
#[cfg(not(feature = "servicebus"))]
#[path = "service_bus/absent.rs"]
pub mod service_bus;
#[cfg(feature = "services")]
pub mod services;
#[cfg(not(feature = "services"))]
#[path = "services/absent.rs"]
pub mod services;
mod settings;
pub mod signal;
#[cfg(feature = "api")]
pub mod socket;
mod socket_writer;
#[cfg(feature = "streams")]
pub mod streams;
#[cfg(not(feature = "streams"))]
#[path = "streams/absent.rs"]
pub mod streams;
mod surroundings;
pub mod sys;
#[cfg(test)]
mod test_folder;
#[cfg(feature = "cloud")]
mod tls;
#[cfg(feature = "streams")]
mod token;
#[cfg(any(feature = "metaserver", feature = "streams"))]
pub mod transport;
mod turn;
mod turn_log;
#[cfg(feature = "node-jobs")]
mod upgrade;
mod usage;
#[cfg(feature = "watchdog")]
mod watchdog;
#[cfg(not(feature = "watchdog"))]
#[path = "watchdog/absent.rs"]
mod watchdog;
#[cfg(feature = "cloud")]
mod websocket;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mio::{Events, Poll, Token};

use crate::agent::event::{Action, Event, Out};
use crate::agent::time::{Instant, Now};
use crate::agent::{Agent, admit};
use crate::config::{self, Config};
use crate::limits::{PROCESS_BYTES_FULL, TURN_ROUNDS_MAX};
use crate::model::cgroup::Hierarchy;
use crate::model::error::System;
use crate::model::housekeeping::MeasureRequest;
#[cfg(feature = "metaserver")]
use crate::model::metaserver::{ClientId, Reply};
use crate::wire::manifest;
use cloud::Cloud;
use credentials::Credentials;
use devices::Devices;
use disk::Store;
use folder::Manifests;
use image_import::RegistryProcess;
use job::{Cgroups, Jobs, Roots};
use lock::Locks;
use log::Limit;
use probe::Probes;
use runtime::Runtime;
use server::Server;
use service_bus::ServiceBus;
use services::Services;
#[cfg(feature = "cloud")]
use settings::link_of;
use settings::{agent_config, needs_restart};
use signal::{SignalAction, Signals};
use streams::Streams;
use surroundings::Surroundings;
use turn::Turn;
use usage::Meter;
use watchdog::Watchdog;

/// The signals' descriptor.
pub const SIGNALS: Token = Token(0);
/// The runtime's socket.
pub const RUNTIME: Token = Token(1);
/// The manifest folder's watch.
pub const FOLDER: Token = Token(2);
/// The link to the cloud; the next token is for its name lookup.
pub const CLOUD: Token = Token(3);
/// The process that serves Services.
pub const SERVICES: Token = Token(8);
/// The HTTP server's first listener; its connections and the second listener have the next tokens.
pub const SERVER: Token = Token(1_024);
/// The listener of MetaServer; its connections have the next tokens.
#[cfg(feature = "metaserver")]
pub const METASERVER: Token = Token(16_384);
/// The watch of followed logs; requests of people have the next tokens.
pub const STREAMS: Token = Token(32_768);
/// The first connection of a probe; the others have the next tokens.
pub const PROBES: Token = Token(65_536);
/// The socket for mappers; its connections, those to mappers and those of MQTT have the next
/// tokens.
pub const DEVICES: Token = Token(131_072);
/// The first call of ServiceBus; the others, its listener and its connections have the next tokens.
pub const SERVICE_BUS: Token = Token(262_144);

/// Reads the configuration again; the error says why it cannot be used.
pub type Reload<'a> = &'a mut dyn FnMut() -> Result<Config, config::Error>;

/// Runs the agent until a signal stops it, or the system refuses something it needs.
pub fn run(config: Config, reload: Reload<'_>) -> ExitCode {
    let mut event_loop = match EventLoop::open(config, reload) {
        Ok(event_loop) => event_loop,
        Err(error) => {
            ::log::error!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut ready = turn::events();
    loop {
        if let Err(error) = event_loop.sleep(&mut ready) {
            ::log::error!("cannot poll: {error}");
            return ExitCode::FAILURE;
        }
        if event_loop.turn(&ready) == Next::Exit {
            event_loop.store.close();
            event_loop.watchdog.close();
            jobs::unshare(Path::new(&event_loop.config.root));
            if let Some(why) = &event_loop.refused {
                ::log::error!("exits, and leaves the pods as they are: {why}");
                return ExitCode::FAILURE;
            }
            ::log::info!("stopped; the pods are left as they are");
            return ExitCode::SUCCESS;
        }
    }
}

/// What to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Turn,
    Exit,
}

struct EventLoop<'a> {
    poll: Poll,
    config: Config,
    reload: Reload<'a>,
    agent: Agent,
    signals: Signals,
    runtime: Runtime,
    server: Server,
    #[cfg(feature = "metaserver")]
    metaserver: metaserver::MetaServer,
    streams: Streams,
    manifests: Manifests,
    jobs: Jobs,
    registry: RegistryProcess,
    store: Store,
    watchdog: Watchdog,
    meter: Meter,
    probes: Probes,
    cloud: Cloud,
    devices: Devices,
    service_bus: ServiceBus,
    services: Services,
    surroundings: Surroundings,
    /// Events that the agent has not handled yet. Bounded by what each source may add in a turn.
    events: Vec<Event>,
    out: Out,
    limit: Limit,
    locks: Locks,
    /// Another agent uses something that this agent must have alone.
    refused: Option<System>,
}

impl<'a> EventLoop<'a> {
    fn open(config: Config, reload: Reload<'a>) -> io::Result<Self> {
        let poll = Poll::new()?;
        // First of all: a SIGTERM during the rest of this function must already be caught.
        let signals = Signals::open(poll.registry(), SIGNALS)?;
        let locks = take_locks(&config).map_err(io::Error::other)?;
        if let Err(why) = jobs::share(Path::new(&config.root)) {
            ::log::warn!("containers will not see mounts that are made later: {why}");
        }
        let mut events = Vec::new();
        let agent_config = agent_config(&config);
        let budget = agent_config.machine.budget;
        if budget.process_bytes < PROCESS_BYTES_FULL {
            let (process, message) = (budget.process_bytes, budget.message_bytes_max);
            ::log::info!(
                "this process may use {process} bytes of memory: that bounds the messages of the \
                 runtime and of the cloud, one message of the cloud to {message} bytes"
            );
        }
        let store = Store::open(&config, &budget, &mut events)
            .inspect_err(|_| jobs::unshare(Path::new(&config.root)))?;
        let registry = poll.registry();
        let hierarchy = sys::cgroups().hierarchy;
        let roots = roots(&config, hierarchy);
        Ok(Self {
            agent: Agent::boot(agent_config, clock::now(), clock::seed()),
            signals,
            runtime: Runtime::new(config.runtime.clone(), RUNTIME).within(budget.cri),
            server: open_server(&config),
            #[cfg(feature = "metaserver")]
            metaserver: metaserver::MetaServer::new(&config, METASERVER),
            streams: open_streams(&config),
            manifests: Manifests::open(
                PathBuf::from(&config.manifests),
                |bytes| manifest::parse_valid(bytes, admit::invalid),
                registry,
                FOLDER,
            )
            .remembering(Path::new(&config.root).join(folder::RECORD)),
            jobs: Jobs::new(PathBuf::from("/proc/self/exe"), roots),
            meter: Meter::new(PathBuf::from(&config.root), Path::new(sys::CGROUPS), hierarchy),
            probes: Probes::new(PROBES).saving_results(Path::new(&config.root), &mut events),
            #[cfg(feature = "cloud")]
            cloud: Cloud::new(link_of(&config), PathBuf::from("/proc/self/exe"), CLOUD)
                .within(budget),
            #[cfg(not(feature = "cloud"))]
            cloud: Cloud,
            devices: Devices::new(&config, DEVICES, clock::boot()),
            service_bus: ServiceBus::new(&config, SERVICE_BUS),
            services: Services::new(&config, SERVICES),
            registry: RegistryProcess::new(config.image_mirror, &config.image_folders),
            surroundings: Surroundings::new(
                config.node_ip,
                &config.settings.resolv_conf,
                Credentials::new(Path::new(&config.root)),
            ),
            store,
            watchdog: Watchdog::new(&config.watchdog),
            events,
            out: Out::default(),
            limit: Limit::default(),
            locks,
            refused: None,
            poll,
            config,
            reload,
        })
    }

    /// Waits until something is ready or due.
    fn sleep(&mut self, ready: &mut Events) -> io::Result<()> {
        let due = [
            self.agent.wake_at(),
            self.runtime.wake_at(),
            self.jobs.wake_at(),
            self.probes.wake_at(),
            self.cloud.wake_at(),
            self.devices.wake_at(),
            self.service_bus.wake_at(),
            self.services.wake_at(),
            self.server.wake_at(),
            #[cfg(feature = "metaserver")]
            self.metaserver.wake_at(),
            self.streams.wake_at(),
            self.registry.wake_at(),
        ];
        let always = [self.manifests.wake_at(), self.surroundings.wake_at()];
        let due_at = due.into_iter().flatten().chain(always).min().unwrap_or_default();
        let due_at = if self.events.is_empty() { due_at } else { Instant(0) };
        match self.poll.poll(ready, Some(turn::timeout(clock::boot(), due_at))) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            polled => polled,
        }
    }

    fn turn(&mut self, ready: &Events) -> Next {
        let now = clock::now();
        let mut turn = Turn::begin();
        self.dispatch(ready, now);
        turn.lap("signals");
        self.runtime.tick(now.boot, self.poll.registry(), &mut self.events);
        turn.lap("the runtime's replies");
        if self.events.iter().any(|event| matches!(event, Event::RuntimeUp))
            && let Err(why) = self.locks.runtime_is_up()
        {
            self.refused = Some(why);
            return Next::Exit;
        }
        self.events.extend(self.manifests.tick(now.boot).map(Event::Manifests));
        turn.lap("the manifest folder");
        self.jobs.tick(now.boot, &mut self.events);
        self.probes.tick(now.boot, self.poll.registry(), &mut self.events);
        turn.lap("the probes");
        self.cloud.tick(now.boot, self.poll.registry(), &mut self.events);
        turn.lap("the link to the cloud");
        self.devices.tick(now, self.poll.registry(), &mut self.events);
        turn.lap("devices");
        #[cfg(feature = "metaserver")]
        self.metaserver.tick(now.boot, self.poll.registry(), &mut self.events);
        #[cfg(feature = "metaserver")]
        turn.lap("requests to MetaServer");
        self.service_bus.tick(now.boot, self.poll.registry(), &mut self.events);
        self.services.tick(now.boot, self.poll.registry(), &mut self.events);
        self.registry.tick(now.boot);
        self.surroundings.tick(now.boot, &mut self.events);
        turn.lap("the node's addresses");
        let next = self.run_agent(now, &mut turn);
        self.runtime.flush(now.boot, self.poll.registry(), &mut self.events);
        turn.lap("the runtime's requests");
        self.cloud.flush(now.boot, &mut self.events);
        turn.lap("messages to the cloud");
        self.devices.flush(now.boot, self.poll.registry(), &mut self.events);
        turn.lap("answers to devices");
        self.services.flush(now.boot);
        #[cfg(feature = "metaserver")]
        self.metaserver.flush(now, self.poll.registry(), &mut self.events);
        #[cfg(feature = "metaserver")]
        turn.lap("answers of MetaServer");
        let registry = self.poll.registry();
        let handovers = self.server.tick(now, registry, &self.agent, &mut self.events);
        for handover in handovers {
            self.streams.serve(handover, now.boot, self.poll.registry(), &mut self.events);
        }
        turn.lap("the HTTP API");
        #[cfg(feature = "streams")]
        self.streams.give_way(self.agent.is_changing_pods());
        #[cfg(feature = "streams")]
        self.streams.tick(
            now,
            self.poll.registry(),
            &|path| server::answer(path, now, &self.agent),
            &mut self.events,
        );
        #[cfg(not(feature = "streams"))]
        self.streams.tick(now, self.poll.registry(), &mut self.events);
        turn.lap("requests of people");
        self.store.commit(now.boot, &mut self.events);
        turn.lap("the store");
        turn.end();
        next
    }

    /// Tells each source what is ready of it.
    fn dispatch(&mut self, ready: &Events, now: Now) {
        for ready in ready {
            match ready.token() {
                SIGNALS => self.signalled(),
                RUNTIME => self.runtime.ready(ready),
                FOLDER => self.manifests.ready(now.boot),
                token if self.cloud.owns(token) => self.cloud.ready(ready),
                token if self.services.owns(token) => self.services.ready(ready),
                token if self.devices.owns(token) => self.devices.ready(ready),
                token if self.service_bus.owns(token) => self.service_bus.ready(ready),
                token if self.probes.owns(token) => self.probes.ready(ready),
                token if self.server.owns(token) => self.server.ready(ready),
                #[cfg(feature = "metaserver")]
                token if self.metaserver.owns(token) => self.metaserver.ready(ready),
                token if self.streams.owns(token) => self.streams.ready(ready),
                token => ::log::debug!("token={} has no owner", token.0),
            }
        }
    }

    /// Gives the agent the events and performs its actions, until none has an immediate answer.
    fn run_agent(&mut self, now: Now, turn: &mut Turn) -> Next {
        let due = self.agent.wake_at().is_some_and(|at| at <= now.boot);
        if self.events.is_empty() && !due {
            return Next::Turn;
        }
        let next = turn::rounds(|| self.round(now, turn));
        if next.is_none()
            && let Some(repeats) = self.limit.pass(now.boot)
        {
            let count = self.events.len();
            ::log::warn!(
                "after {TURN_ROUNDS_MAX} rounds {count} answers remain for the next turn; \
                 repeats={repeats}"
            );
        }
        next.unwrap_or(Next::Turn)
    }

    /// `None`: some action was answered immediately.
    fn round(&mut self, now: Now, turn: &mut Turn) -> Option<Next> {
        for event in self.events.drain(..) {
            self.agent.handle(now, event);
        }
        self.agent.step(now, &mut self.out);
        turn.lap("the agent");
        let mut actions = std::mem::take(&mut self.out.actions);
        for action in actions.drain(..) {
            if self.perform(now, action, turn) == Next::Exit {
                return Some(Next::Exit);
            }
        }
        actions.shrink_to(ACTIONS_KEPT);
        self.out.actions = actions;
        self.events.is_empty().then_some(Next::Turn)
    }

    fn perform(&mut self, now: Now, action: Action, turn: &mut Turn) -> Next {
        match action {
            Action::Cri { call, request, deadline } => {
                self.runtime.call(now.boot, call, &request, deadline, &mut self.events);
            }
            Action::CancelCri(call) => self.runtime.cancel(call),
            Action::Job { job, spec, deadline } => {
                self.jobs.start(job, spec, deadline, &mut self.events);
                turn.lap("a job");
            }
            Action::KillJob(job) => self.jobs.kill(job, &mut self.events),
            Action::Measure(request) => {
                self.measure(&request);
                turn.lap("measuring the machine");
            }
            Action::Probe { probe, query, deadline } => {
                let registry = self.poll.registry();
                self.probes.start(probe, query, deadline, registry, &mut self.events);
            }
            #[cfg(feature = "streams")]
            Action::Stream(id, answer) => {
                self.streams.answer(id, answer, clock::now(), self.poll.registry());
            }
            #[cfg(all(feature = "cloud", feature = "streams"))]
            Action::DialTunnel { session, deadline, ip } => {
                let (now, registry) = (clock::now(), self.poll.registry());
                self.streams.dial_tunnel(session, ip, deadline, now, registry, &mut self.events);
            }
            #[cfg(all(feature = "cloud", feature = "streams"))]
            Action::PingTunnel(_) => self.streams.ping_tunnel(),
            #[cfg(all(feature = "cloud", feature = "streams"))]
            Action::HangupTunnel(_) => self.streams.hang_up_tunnel(),
            Action::CancelProbe(probe) => self.probes.cancel(probe),
            Action::SaveProbeResults(results) => self.probes.save_results(&results),
            Action::Read { job, message } => {
                self.events.push(self.jobs.read(job, &message));
                turn.lap("a termination message");
            }
            #[cfg(feature = "cloud")]
            Action::Dial { session, deadline } => {
                let registry = self.poll.registry();
                self.cloud.dial(session, deadline, clock::now(), registry, &mut self.events);
                turn.lap("connecting to the cloud");
            }
            #[cfg(feature = "cloud")]
            Action::Send(session, message) => self.cloud.send(session, &message, &mut self.events),
            #[cfg(feature = "cloud")]
            Action::Ping(session) => self.cloud.ping(session, &mut self.events),
            #[cfg(feature = "cloud")]
            Action::Hangup(session) => self.cloud.hangup(session),
            #[cfg(feature = "cloud")]
            Action::Save { revision, changes } => self.store.save(revision, changes),
            #[cfg(feature = "devices")]
            Action::Device(action) => self.devices.perform(now.boot, *action, &mut self.events),
            #[cfg(feature = "servicebus")]
            Action::ServiceBus(action) => {
                self.service_bus.perform(now.boot, *action, &self.poll, &mut self.events);
            }
            #[cfg(feature = "services")]
            Action::Services(table) => self.services.serve(table),
            #[cfg(feature = "metaserver")]
            Action::MetaServer(id, reply) => self.reply(now.boot, id, reply),
            #[cfg(feature = "watchdog")]
            Action::Feed => self.watchdog.feed(clock::boot()),
            Action::RecordedEvent(note) => turn_log::note(&note),
            Action::Log(severity, text) => turn_log::line("agent", severity, &text),
            Action::Exit => return Next::Exit,
        }
        Next::Turn
    }

    /// Answers a client of MetaServer, or gives its connection to the sessions of people.
    #[cfg(feature = "metaserver")]
    fn reply(&mut self, now: Instant, id: ClientId, reply: Reply) {
        #[cfg(feature = "streams")]
        let reply = match reply {
            Reply::Stream(request) => {
                let registry = self.poll.registry();
                if let Some(handover) = self.metaserver.hand_over(id, *request, registry) {
                    self.streams.serve(handover, now, registry, &mut self.events);
                }
                return;
            }
            reply => reply,
        };
        self.metaserver.reply(now, id, reply);
    }

    fn measure(&mut self, request: &MeasureRequest) {
        let mut measures = self.meter.read(clock::boot(), request);
        self.jobs.measure(request, &mut measures);
        #[cfg(feature = "streams")]
        self.streams.measured(&measures);
        self.events.push(Event::Measured(Box::new(measures)));
    }

    fn signalled(&mut self) {
        while let Some(action) = self.signals.take() {
            match action {
                SignalAction::ChildEnded => {
                    self.jobs.reap(&mut self.events);
                    self.registry.reap(clock::boot());
                    self.cloud.reap();
                    self.devices.reap();
                    self.services.reap();
                    self.streams.reap();
                }
                SignalAction::Reload => self.reload(),
                SignalAction::Stop => self.events.push(Event::Stop),
            }
        }
    }

    /// Reads the configuration again: applies what can change at runtime, and logs the rest.
    fn reload(&mut self) {
        let new = match (self.reload)() {
            Ok(new) => new,
            Err(why) => {
                ::log::error!("the configuration is unchanged: {why}");
                return;
            }
        };
        let changed = needs_restart(&self.config, &new);
        if !changed.is_empty() {
            ::log::warn!("changed, but only a restart applies it: {}", changed.join(", "));
        }
        if new.log != self.config.log {
            if log::change(new.log) {
                ::log::info!("log level is now {}", new.log);
            } else {
                ::log::warn!("the log level is that of RUST_LOG, not that of the configuration");
            }
        }
        if new.manifests != self.config.manifests {
            ::log::info!("manifests are now read from path={}", new.manifests);
            self.manifests.follow(PathBuf::from(&new.manifests));
        }
        (self.config.log, self.config.manifests) = (new.log, new.manifests);
        self.server.retry();
        #[cfg(feature = "metaserver")]
        self.metaserver.retry();
        self.devices.retry();
        ::log::info!("configuration reloaded");
    }
}

/// Checks that no other agent uses what this one is going to use.
fn take_locks(config: &Config) -> Result<Locks, System> {
    let runtime = config.runtime.path();
    let cgroups = sys::cgroup_root(&config.settings.cgroups);
    let locks = Locks::take(Path::new(&config.root), runtime, cgroups.as_deref())?;
    for rival in rivals::find(runtime) {
        if rival.same == Some(true) {
            return Err(System::new(rival.to_string()));
        }
        ::log::warn!("{rival}");
    }
    Ok(locks)
}

/// Where jobs may read and write.
fn roots(config: &Config, hierarchy: Hierarchy) -> Roots {
    let links = Some(&config.container_logs).filter(|path| !path.is_empty());
    let logs = PathBuf::from(&config.pod_logs);
    let roots = Roots::new(Path::new(&config.root), logs, links.map(PathBuf::from));
    #[cfg(feature = "cloud")]
    let roots = roots.with_link(link_of(config));
    let root = config.settings.cgroups.root.clone();
    roots.with_cgroups(Cgroups::new(sys::CGROUPS.into(), hierarchy, root))
}

fn open_server(config: &Config) -> Server {
    let server = Server::new(config.listen, &config.socket(), SERVER);
    #[cfg(feature = "streams")]
    let server = server.open_to_all(config.open_streams);
    server
}

#[cfg(feature = "streams")]
fn open_streams(config: &Config) -> Streams {
    let streams = Streams::new(STREAMS, PathBuf::from(&config.pod_logs), config.node_name.clone());
    #[cfg(feature = "cloud")]
    let streams = streams.with_tunnel(config.tunnel_link(), PathBuf::from("/proc/self/exe"));
    streams
}

#[cfg(not(feature = "streams"))]
fn open_streams(_: &Config) -> Streams {
    Streams
}

/// The capacity that the emptied list of actions may keep.
const ACTIONS_KEPT: usize = 64;
