//! The hands: everything that touches the system. They decide nothing.
//!
//! ```text
//!  poll ─▶ each ready source ─▶ events ─▶ handle* ─▶ step ─▶ actions ─▶ perform* ─┐
//!   ▲                                       ▲                                     │ answers that
//!   │                                       └─────────────────────────────────────┤ come at once
//!   └────── write the runtime's socket, commit the store, sleep until wake_at ◀───┘
//! ```
//!
//! One thread, one poll, one turn after the other. A turn sees one moment ([`clock::now`]), takes a
//! bounded part of what each source has, and writes what it asked of the runtime in one piece.
//! What a source has left it remembers, and the next turn comes at once. A turn that took longer
//! than [`crate::limits::TURN_MS_MAX`] is told in the log with what took it.
//!
//! **Tokens.** [`SIGNALS`], [`RUNTIME`] and [`FOLDER`] are single sources; the link to the cloud
//! has [`CLOUD`] and the one after it; the HTTP server has all
//! from [`SERVER`] on: its listeners and their connections; connections of
//! probes and hooks have those from [`PROBES`] on.
//!
//! **If we crash here** nothing is lost that a look at the runtime, the manifest folder and the
//! store does not bring back. Pods go on as they are.

#[cfg(feature = "api")]
pub mod client;
pub mod clock;
#[cfg(feature = "cloud")]
pub mod cloud;
#[cfg(not(feature = "cloud"))]
#[path = "cloud/absent.rs"]
pub mod cloud;
#[cfg(feature = "controller")]
pub mod controller;
mod credentials;
#[cfg(any(feature = "cloud", feature = "probe-https"))]
mod crypto;
#[cfg(feature = "api")]
pub mod diagnostics;
#[cfg(feature = "cloud")]
pub mod disk;
#[cfg(not(feature = "cloud"))]
#[path = "disk/absent.rs"]
pub mod disk;
pub mod folder;
#[cfg(feature = "images")]
pub mod image_import;
#[cfg(not(feature = "images"))]
#[path = "image_import/absent.rs"]
pub mod image_import;
pub mod job;
mod jobs;
pub mod lock;
pub mod log;
mod mounts;
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
mod settings;
pub mod signal;
#[cfg(feature = "api")]
pub mod socket;
mod surroundings;
pub mod sys;
#[cfg(feature = "cloud")]
mod tls;
mod turn;
mod turn_log;
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
use crate::config::Config;
use crate::limits::{PROCESS_BYTES_FULL, TURN_ROUNDS_MAX};
use crate::wire::manifest;
use cloud::Cloud;
use credentials::Credentials;
use disk::Store;
use folder::Manifests;
use image_import::RegistryProcess;
use job::{Cgroups, Jobs, Roots};
use lock::Locks;
use log::Limit;
use probe::Probes;
use runtime::Runtime;
use server::Server;
#[cfg(feature = "cloud")]
use settings::link_of;
use settings::{for_the_mind, kept_until_restart};
use signal::{SignalAction, Signals};
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
/// The link to the cloud; the token after it is its lookup's.
pub const CLOUD: Token = Token(3);
/// The HTTP server's first listener; its connections and the second have the tokens after it.
pub const SERVER: Token = Token(1_024);
/// The first connection of a probe; the others have the tokens after it.
pub const PROBES: Token = Token(65_536);

/// Reads the configuration again, or says why it cannot be used.
pub type Reload<'a> = &'a mut dyn FnMut() -> Result<Config, String>;

/// Runs the agent until it is told to stop, or the system refuses what it cannot be without.
pub fn run(config: Config, reload: Reload<'_>) -> ExitCode {
    let mut hands = match EventLoop::open(config, reload) {
        Ok(hands) => hands,
        Err(error) => {
            ::log::error!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut ready = turn::events();
    loop {
        if let Err(error) = hands.sleep(&mut ready) {
            ::log::error!("cannot poll: {error}");
            return ExitCode::FAILURE;
        }
        if hands.turn(&ready) == Next::Exit {
            hands.store.close();
            hands.watchdog.close();
            jobs::unshare(Path::new(&hands.config.root));
            if let Some(why) = &hands.refused {
                ::log::error!("ends, and leaves the pods as they are: {why}");
                return ExitCode::FAILURE;
            }
            ::log::info!("stopped; the pods are left as they are");
            return ExitCode::SUCCESS;
        }
    }
}

/// What follows a turn.
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
    manifests: Manifests,
    jobs: Jobs,
    registry: RegistryProcess,
    store: Store,
    watchdog: Watchdog,
    meter: Meter,
    probes: Probes,
    cloud: Cloud,
    surroundings: Surroundings,
    /// Facts that the mind has not been told. Bounded by what each source may bring in a turn.
    events: Vec<Event>,
    out: Out,
    limit: Limit,
    locks: Locks,
    /// Another agent uses what is ours alone.
    refused: Option<String>,
}

impl<'a> EventLoop<'a> {
    fn open(config: Config, reload: Reload<'a>) -> io::Result<Self> {
        let poll = Poll::new()?;
        // First of all: a SIGTERM while the rest is opened must find it taken away again.
        let signals = Signals::open(poll.registry(), SIGNALS)?;
        let locks = alone(&config).map_err(io::Error::other)?;
        if let Err(why) = jobs::share(Path::new(&config.root)) {
            ::log::warn!("containers will not see mounts that are made later: {why}");
        }
        let mut events = Vec::new();
        let mind = for_the_mind(&config);
        let budget = mind.machine.budget;
        if budget.process_bytes < PROCESS_BYTES_FULL {
            let (process, kept) = (budget.process_bytes, budget.message_bytes_max);
            ::log::info!(
                "this process may use {process} bytes of memory: what the cloud and the runtime \
                 send is bounded by that, a message of the cloud's by {kept}"
            );
        }
        let store = Store::open(&config, &budget, &mut events)
            .inspect_err(|_| jobs::unshare(Path::new(&config.root)))?;
        let registry = poll.registry();
        let links = Some(&config.container_logs).filter(|path| !path.is_empty());
        let roots = Roots::new(
            Path::new(&config.root),
            PathBuf::from(&config.pod_logs),
            links.map(PathBuf::from),
        );
        #[cfg(feature = "cloud")]
        let roots = roots.with_link(link_of(&config));
        let hierarchy = sys::cgroups().hierarchy;
        let root = config.settings.cgroups.root.clone();
        let roots = roots.with_cgroups(Cgroups::new(sys::CGROUPS.into(), hierarchy, root));
        Ok(Self {
            agent: Agent::boot(mind, clock::now(), clock::seed()),
            signals,
            runtime: Runtime::new(PathBuf::from(&config.runtime), RUNTIME).within(budget.cri),
            server: Server::new(config.listen, &config.socket(), SERVER),
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
            self.server.wake_at(),
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

    /// One turn.
    fn turn(&mut self, ready: &Events) -> Next {
        let now = clock::now();
        let mut turn = Turn::begin();
        for ready in ready {
            match ready.token() {
                SIGNALS => self.signalled(),
                RUNTIME => self.runtime.ready(ready),
                FOLDER => self.manifests.ready(now.boot),
                token if self.cloud.owns(token) => self.cloud.ready(ready),
                token if self.probes.owns(token) => self.probes.ready(ready),
                token if self.server.owns(token) => self.server.ready(ready),
                token => ::log::debug!("token={} is nobody's", token.0),
            }
        }
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
        self.registry.tick(now.boot);
        self.surroundings.tick(now.boot, &mut self.events);
        turn.lap("the node's addresses");
        let next = self.think(now, &mut turn);
        self.runtime.flush(now.boot, self.poll.registry(), &mut self.events);
        turn.lap("the runtime's requests");
        self.cloud.flush(now.boot, &mut self.events);
        turn.lap("what goes to the cloud");
        self.server.tick(now, self.poll.registry(), &self.agent);
        turn.lap("the HTTP API");
        self.store.commit(now.boot, &mut self.events);
        turn.lap("the store");
        turn.end();
        next
    }

    /// Tells the mind what happened and does what it asks, until it asks for nothing that is
    /// answered at once.
    fn think(&mut self, now: Now, turn: &mut Turn) -> Next {
        let due = self.agent.wake_at().is_some_and(|at| at <= now.boot);
        if self.events.is_empty() && !due {
            return Next::Turn;
        }
        let next = turn::rounds(|| self.round(now, turn));
        if next.is_none()
            && let Some(kept) = self.limit.pass(now.boot)
        {
            let count = self.events.len();
            ::log::warn!(
                "after {TURN_ROUNDS_MAX} rounds {count} answers are left for the next turn; \
                 repeats={kept}"
            );
        }
        next.unwrap_or(Next::Turn)
    }

    /// `None`: something of it is answered already.
    fn round(&mut self, now: Now, turn: &mut Turn) -> Option<Next> {
        for event in self.events.drain(..) {
            self.agent.handle(now, event);
        }
        self.agent.step(now, &mut self.out);
        turn.lap("the agent");
        let mut actions = std::mem::take(&mut self.out.actions);
        for action in actions.drain(..) {
            if self.perform(action, turn) == Next::Exit {
                return Some(Next::Exit);
            }
        }
        actions.shrink_to(ACTIONS_KEPT);
        self.out.actions = actions;
        self.events.is_empty().then_some(Next::Turn)
    }

    fn perform(&mut self, action: Action, turn: &mut Turn) -> Next {
        match action {
            Action::Cri { call, request, deadline } => {
                self.runtime.call(call, &request, deadline, &mut self.events);
            }
            Action::CancelCri(call) => self.runtime.cancel(call),
            Action::Job { job, spec, deadline } => {
                self.jobs.start(job, spec, deadline, &mut self.events);
                turn.lap("a job");
            }
            Action::KillJob(job) => self.jobs.kill(job, &mut self.events),
            Action::Measure(ask) => {
                let mut measures = self.meter.read(clock::boot(), &ask);
                self.jobs.measure(&ask, &mut measures);
                self.events.push(Event::Measured(Box::new(measures)));
                turn.lap("measuring the machine");
            }
            Action::Probe { probe, query, deadline } => {
                let registry = self.poll.registry();
                self.probes.start(probe, query, deadline, registry, &mut self.events);
            }
            Action::CancelProbe(probe) => self.probes.cancel(probe),
            Action::SaveProbeResults(results) => self.probes.save_results(&results),
            Action::Read { job, message } => {
                self.events.push(self.jobs.read(job, &message));
                turn.lap("a container's last words");
            }
            #[cfg(feature = "cloud")]
            Action::Dial { session, deadline } => {
                let registry = self.poll.registry();
                self.cloud.dial(session, deadline, clock::now(), registry, &mut self.events);
                turn.lap("dialling the cloud");
            }
            #[cfg(feature = "cloud")]
            Action::Send(session, message) => self.cloud.send(session, &message, &mut self.events),
            #[cfg(feature = "cloud")]
            Action::Ping(session) => self.cloud.ping(session, &mut self.events),
            #[cfg(feature = "cloud")]
            Action::Hangup(session) => self.cloud.hangup(session),
            #[cfg(feature = "cloud")]
            Action::Save { revision, changes } => self.store.ask(revision, changes),
            #[cfg(feature = "watchdog")]
            Action::Feed => self.watchdog.feed(clock::boot()),
            Action::RecordedEvent(note) => turn_log::note(&note),
            Action::Log(severity, text) => turn_log::line("agent", severity, &text),
            Action::Exit => return Next::Exit,
        }
        Next::Turn
    }

    fn signalled(&mut self) {
        while let Some(told) = self.signals.take() {
            match told {
                SignalAction::ChildEnded => {
                    self.jobs.reap(&mut self.events);
                    self.registry.reap(clock::boot());
                    self.cloud.reap();
                }
                SignalAction::Reload => self.reload(),
                SignalAction::Stop => self.events.push(Event::Stop),
            }
        }
    }

    /// Reads the configuration again: what can change while we run does, the rest is named.
    fn reload(&mut self) {
        let new = match (self.reload)() {
            Ok(new) => new,
            Err(why) => {
                ::log::error!("the configuration stays as it was: {why}");
                return;
            }
        };
        let kept = kept_until_restart(&self.config, &new);
        if !kept.is_empty() {
            ::log::warn!("changed, and in force after a restart: {}", kept.join(", "));
        }
        if new.log != self.config.log {
            if log::change(new.log) {
                ::log::info!("log level is now {}", new.log);
            } else {
                ::log::warn!("the log level is RUST_LOG's, whatever the configuration says");
            }
        }
        if new.manifests != self.config.manifests {
            ::log::info!("manifests are now those of path={}", new.manifests);
            self.manifests.follow(PathBuf::from(&new.manifests));
        }
        (self.config.log, self.config.manifests) = (new.log, new.manifests);
        self.server.retry();
        ::log::info!("configuration read again");
    }
}

/// Makes sure that no other agent uses what this one is to use.
fn alone(config: &Config) -> Result<Locks, String> {
    let runtime = Path::new(&config.runtime);
    let cgroups = sys::cgroup_root(&config.settings.cgroups);
    let locks = Locks::take(Path::new(&config.root), runtime, cgroups.as_deref())?;
    for rival in rivals::find(runtime) {
        if rival.same == Some(true) {
            return Err(rival.to_string());
        }
        ::log::warn!("{rival}");
    }
    Ok(locks)
}

/// What the emptied list of requests may keep room for.
const ACTIONS_KEPT: usize = 64;
