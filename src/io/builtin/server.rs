//! `edged runtime`: the event loop of the built-in runtime. It decides nothing.
//!
//! ```text
//!  poll ─▶ clients, children, monitors ─▶ events ─▶ handle* ─▶ step ─▶ actions ─▶ perform* ─┐
//!   ▲                                        ▲                                              │
//!   │                                        └── answers of jobs, Saved ◀───────────────────┤
//!   └── write the sockets, sleep until wake_at ◀── records are written, synced ◀────────────┘
//! ```
//!
//! One thread. What may hang is a job in a child process ([`super::jobs`]); each container has a
//! monitor ([`super::monitors`]), which outlives this process. This process is the subreaper above
//! its monitors: if one dies, its container becomes a child here, and its exit code is not lost.
//!
//! **If we crash here** containers and their output go on. The next server reads the records and
//! the folder in RUN; SIGHUP starts the program anew in place, and it remains the parent. It is the
//! program to which the path leads by which this one was started: `edged-run` starts it by a link
//! to the program of the current slot.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mio::{Events, Poll, Token};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::connections::Connections;
use super::environment::Environment;
use super::fail_point::{self, Who};
use super::jobs::Jobs;
use super::layout::Settings;
use super::look::Look;
use super::monitors::{Ended, Monitors};
use super::records::{self, Records, Unread};
use super::{cni, images, read_only, sandbox, start};
use crate::core::Severity;
use crate::core::time::{Instant, Now};
use crate::io::lock;
use crate::io::signal::{SignalAction, Signals};
use crate::io::turn::{self, Turn};
use crate::io::{clock, sys};
use crate::limits::{RUNTIME_ANEW_MS, RUNTIME_CONDITIONS_MS};
use crate::model::runtime::{Conditions, ContainerId, MonitorFact, Request};
use crate::runtime::Runtime;
use crate::runtime::event::{Action, Durability, Event, Found, Out, Stored};
use crate::wire::cri::serve;

const SIGNALS: Token = Token(0);
/// The listener; its connections have the next tokens.
const CLIENTS: Token = Token(16);
/// The first monitor's connection; the others have the next tokens.
const MONITORS: Token = Token(1_024);

/// Runs the server until a signal stops it, or the system refuses something that it needs.
pub fn run(settings: Settings, environment: &Environment) -> ExitCode {
    let mut server = match Server::open(settings, environment) {
        Ok(server) => server,
        Err(error) => {
            log::error!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut ready = turn::events();
    loop {
        if let Err(error) = server.sleep(&mut ready) {
            log::error!("cannot poll: {error}");
            return ExitCode::FAILURE;
        }
        match server.turn(&ready) {
            Next::Turn => {}
            Next::Exit => {
                log::info!("stopped; the containers are left as they are");
                return ExitCode::SUCCESS;
            }
            Next::Anew => {
                log::info!("starts anew in place");
                server.jobs.kill_all(RUNTIME_ANEW_MS);
                log::error!("cannot start anew: {}", start_anew());
            }
        }
    }
}

enum Next {
    Turn,
    Exit,
    /// The program's file is started in place of this process.
    Anew,
}

struct Server {
    poll: Poll,
    settings: Settings,
    /// Where layers are, as CRI names it.
    folders: [String; 2],
    signals: Signals,
    clients: Connections,
    core: Runtime,
    jobs: Jobs,
    monitors: Monitors,
    records: Records,
    events: Vec<Event>,
    out: Out,
    /// When the network was last looked at, and what the conditions were.
    conditions: (Instant, Conditions),
    look: Look,
    /// There is more to do than one turn may.
    more: bool,
    _lock: Option<std::fs::File>,
}

impl Server {
    fn open(settings: Settings, environment: &Environment) -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry();
        let signals = Signals::open(registry, SIGNALS)?;
        let layout = &settings.layout;
        let lock = lock::folder(layout.data()).map_err(io::Error::other)?;
        start::make_run(layout).map_err(io::Error::other)?;
        let programs = settings.handlers.iter().map(|it| Path::new(&*it.program));
        read_only::hold(layout, programs.chain([&*settings.oci]));
        let mut records = Records::open(layout).map_err(io::Error::other)?;
        images::empty_tmp(&settings).map_err(io::Error::other)?;
        if let Err(why) = start::masquerade(&settings) {
            log::error!("{why}");
        }
        sys::raise_descriptors();
        nix::sys::prctl::set_child_subreaper(true)?;
        let mut monitors = Monitors::new(settings.clone(), registry.try_clone()?, MONITORS);
        let now = clock::now();
        let stored = stored(&settings, &mut monitors, &mut records, now.boot)?;
        let layers = images::layers(&settings)?;
        // The machine has just been examined.
        let network = cni::readiness(&settings);
        let handlers = settings.handlers.clone();
        let conditions = Conditions { runtime: Ok(()), network, handlers };
        log::info!(
            "sandboxes={} containers={} images={} oci={} version={:?}",
            stored.sandboxes.len(),
            stored.containers.len(),
            stored.images.len(),
            settings.oci.display(),
            environment.version,
        );
        let shown = |path: PathBuf| path.to_string_lossy().into_owned();
        Ok(Self {
            clients: Connections::listen(&layout.socket(), registry, CLIENTS)?,
            core: Runtime::boot(stored, now, clock::seed()),
            jobs: Jobs::new(PathBuf::from("/proc/self/exe"), settings.clone()),
            events: vec![Event::Layers(layers), Event::Conditions(conditions.clone())],
            out: Out::default(),
            conditions: (now.boot, conditions),
            look: Look::new(PathBuf::from("/proc/self/exe"), now.boot),
            more: false,
            folders: [shown(layout.layers()), shown(layout.data().join("c"))],
            signals,
            records,
            monitors,
            settings,
            poll,
            _lock: lock,
        })
    }

    fn sleep(&mut self, ready: &mut Events) -> io::Result<()> {
        let due = [self.core.wake_at(), self.jobs.wake_at(), self.records.wake_at()];
        let now = clock::boot();
        let idle = Instant(u64::MAX);
        let due_at = due.into_iter().flatten().min().unwrap_or(idle);
        let due_at = if self.more || !self.events.is_empty() { Instant(0) } else { due_at };
        match self.poll.poll(ready, Some(turn::timeout(now, due_at))) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            polled => polled,
        }
    }

    fn turn(&mut self, ready: &Events) -> Next {
        let now = clock::now();
        let mut turn = Turn::begin();
        let mut next = Next::Turn;
        for ready in ready {
            match ready.token() {
                SIGNALS => next = self.signalled(),
                token if token >= MONITORS => self.monitors.ready(token, &mut self.events),
                _ => self.clients.ready(ready, self.poll.registry()),
            }
        }
        turn.lap("signals");
        self.more = self.clients.tick(&mut self.events);
        turn.lap("the clients");
        self.jobs.tick(now.boot);
        self.look_again(now);
        turn.lap("the conditions");
        let done = turn::rounds(|| self.round(now));
        self.more |= done.is_none();
        turn.lap("the core");
        self.clients.flush(self.poll.registry(), &mut self.events);
        turn.lap("the answers");
        turn.end();
        next
    }

    /// What is known goes to the core, and what it requests is done. `None`: there is more.
    fn round(&mut self, now: Now) -> Option<()> {
        for event in self.events.drain(..) {
            if matches!(event, Event::Monitor(_, MonitorFact::Failed(_))) {
                self.look.failed();
            }
            self.core.handle(now, event);
        }
        self.core.step(now, &mut self.out);
        for action in std::mem::take(&mut self.out.actions) {
            self.perform(now, action);
        }
        match self.records.commit(now.boot) {
            None => {}
            Some(Ok(())) => self.events.push(Event::Saved),
            Some(Err(why)) => self.events.push(Event::NotSaved(why.to_string())),
        }
        self.events.is_empty().then_some(())
    }

    fn perform(&mut self, now: Now, action: Action) {
        let events = &mut self.events;
        fail_point::step(self.settings.layout.run(), Who::Server, name_of(&action));
        match action {
            Action::Answer(call, answer) => {
                let context = serve::Context {
                    version: env!("CARGO_PKG_VERSION"),
                    layers: &self.folders[0],
                    own_layers: &self.folders[1],
                    now: now.wall.map_or(0, |wall| wall.0.saturating_mul(1_000_000)),
                    verbose: false,
                };
                self.clients.answer(call, &answer, context);
            }
            Action::Item(call, event) => self.clients.item(call, &event, events),
            Action::Save(record, durability) => self.records.save(now.boot, record, durability),
            Action::Erase(key) => self.records.erase(key),
            Action::Job(id, job, deadline) => self.jobs.start(id, job, deadline, events),
            Action::KillJob(id) => self.jobs.kill(id, now.boot),
            Action::Monitor(start) => self.monitors.start(&start, events),
            Action::Reopen(id) => self.monitors.reopen(&id, events),
            Action::Signal(id, process, signal) => self.monitors.signal(&id, &process, signal),
            Action::Log(severity, text) => log(severity, &text),
        }
    }

    fn signalled(&mut self) -> Next {
        let mut next = Next::Turn;
        while let Some(action) = self.signals.take() {
            match action {
                SignalAction::Stop => next = Next::Exit,
                SignalAction::Reload => next = Next::Anew,
                SignalAction::ChildEnded => self.reap(),
            }
        }
        next
    }

    /// Jobs, monitors, and containers whose monitor died.
    fn reap(&mut self) {
        loop {
            let (pid, how) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid.as_raw(), Ended::Exited(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    (pid.as_raw(), Ended::Killed(signal as i32))
                }
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(_) => continue,
            };
            if let Some(looked) = self.look.ended(pid) {
                match looked {
                    Ok(runtime) => {
                        self.now_are(Conditions { runtime, ..self.conditions.1.clone() });
                    }
                    Err(why) => log::warn!("the machine was not looked at: {how}; {why}"),
                }
            } else if !self.jobs.ended(pid, how, &mut self.events) {
                self.monitors.child_ended(pid, how);
            }
        }
    }

    /// Whether pods can run may change at any time; it is looked at when somebody asks. A network
    /// is a file or two, read at once; what starts a program is left to a child.
    fn look_again(&mut self, now: Now) {
        let asks = |event: &Event| matches!(event, Event::Call(_, Request::Status));
        let is_asked = self.events.iter().any(asks);
        self.look.tick(now.boot, is_asked && self.conditions.1.runtime.is_err());
        if is_asked && is_old(self.conditions.0, now.boot) {
            self.conditions.0 = now.boot;
            let network = cni::readiness(&self.settings);
            self.now_are(Conditions { network, ..self.conditions.1.clone() });
        }
    }

    fn now_are(&mut self, conditions: Conditions) {
        if conditions != self.conditions.1 {
            self.conditions.1 = conditions.clone();
            // Before the call that asks for them.
            self.events.insert(0, Event::Conditions(conditions));
        }
    }
}

/// The records, and what of them lives.
fn stored(
    settings: &Settings,
    monitors: &mut Monitors,
    records: &mut Records,
    now: Instant,
) -> io::Result<Stored> {
    let (mut stored, unread) = records::load(&settings.layout).map_err(io::Error::other)?;
    for Unread { path, why, copy } in unread {
        let path = path.display();
        if let Some(record) = copy {
            log::error!("{path} cannot be read, and is saved again from memory: {why}");
            records.save(now, record, Durability::Lazily);
        } else {
            log::error!("{path} is put aside: {why}");
        }
    }
    stored.found = monitors.adopt_all(&stored.boot)?;
    stored.found_sandboxes = sandbox::found(settings);
    stored.found_networks = sandbox::found_networks(settings);
    // What a power cut left of containers that were about to be recorded, or to be removed.
    for entry in std::fs::read_dir(settings.layout.data().join("c"))? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let id = ContainerId(name.into());
        let is_known = stored.containers.iter().any(|record| record.id == id)
            || stored.found.iter().any(|(found, _)| *found == id);
        if super::layout::is_id(&id.0) && !is_known {
            stored.found.push((id, Found::Remains));
        }
    }
    Ok(stored)
}

/// Whether what was seen then may have changed.
fn is_old(seen_at: Instant, now: Instant) -> bool {
    now.since_ms(seen_at) >= RUNTIME_CONDITIONS_MS
}

/// Returns only the error.
fn start_anew() -> io::Error {
    let text = |word: OsString| CString::new(word.into_vec()).ok();
    let arguments: Vec<CString> = std::env::args_os().filter_map(text).collect();
    let own = std::env::current_exe().unwrap_or_default();
    let Some(program) = program(arguments.first(), own) else {
        return io::Error::other("the program has no name");
    };
    match nix::unistd::execv(&program, &arguments) {
        Err(errno) => errno.into(),
    }
}

/// What is executed anew: an absolute path by which this program was started may be a link that
/// leads to a newer one by now; otherwise the file of this process, which an update may have
/// replaced.
fn program(started_by: Option<&CString>, own: PathBuf) -> Option<CString> {
    if let Some(path) = started_by.filter(|path| path.as_bytes().starts_with(b"/")) {
        return Some(path.clone());
    }
    let text = own.into_os_string().into_string().ok()?;
    CString::new(text.trim_end_matches(" (deleted)")).ok().filter(|path| !path.is_empty())
}

/// For tests that kill this process before it does this.
fn name_of(action: &Action) -> &'static str {
    match action {
        Action::Answer(..) => "answers",
        Action::Item(..) => "sends an event",
        Action::Save(..) => "saves",
        Action::Erase(_) => "erases",
        Action::Job(..) => "starts a job",
        Action::KillJob(_) => "kills a job",
        Action::Monitor(_) => "starts a monitor",
        Action::Reopen(_) => "asks for a log",
        Action::Signal(..) => "signals",
        Action::Log(..) => "logs",
    }
}

fn log(severity: Severity, text: &str) {
    match severity {
        Severity::Debug => log::debug!("{text}"),
        Severity::Info => log::info!("{text}"),
        Severity::Warn => log::warn!("{text}"),
        Severity::Error => log::error!("{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anew_it_is_the_program_to_which_its_path_leads() {
        let started_by = |word: &str| CString::new(word).expect("text");
        let own = || PathBuf::from("/usr/sbin/edged (deleted)");
        for (word, expected) in [
            ("/run/edged/edged", "/run/edged/edged"),
            ("edged", "/usr/sbin/edged"),
            ("./edged", "/usr/sbin/edged"),
        ] {
            assert_eq!(program(Some(&started_by(word)), own()), Some(started_by(expected)));
        }
        assert_eq!(program(None, PathBuf::new()), None);
    }

    #[test]
    fn the_machine_is_looked_at_again_after_a_while() {
        let seen_at = Instant(1_000);
        assert!(!is_old(seen_at, seen_at.plus_ms(RUNTIME_CONDITIONS_MS - 1)));
        assert!(is_old(seen_at, seen_at.plus_ms(RUNTIME_CONDITIONS_MS)));
    }
}
