//! The server's side of its monitors: starts them, finds them again after a restart, and passes on
//! what they tell.
//!
//! A monitor's connection ends with the monitor. Then its file `exit` says how the container ended.
//! Without one the monitor died: the container goes on and becomes a child of this process, which
//! is the subreaper above it, so that its exit code is not lost. The core then asks for a monitor
//! that adopts it.
//!
//! **If we crash here** nothing ends. The next server connects to every `ctl` in RUN.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use super::cgroup::Cgroup;
use super::layout::{Settings, is_id};
use super::monitor::{CTL, EXIT, Order, PID, START, STARTED, replace_in};
use super::{files, process};
use crate::io::channel::{Channel, Received};
use crate::limits::{MONITOR_FACT_BYTES_MAX, MONITORS_MAX};
use crate::model::map::Map;
use crate::model::runtime::{BootId, ContainerId, MonitorFact, MonitorStart, Process};
use crate::runtime::event::{Event, Found};
use crate::wire::monitor;

/// All monitors that are connected, and processes that wait for one.
#[derive(Debug)]
pub struct Monitors {
    settings: Settings,
    /// `/proc/self/exe`, which stays the same binary while an update replaces the file.
    program: PathBuf,
    registry: Registry,
    /// The next connection's.
    token: Token,
    by_token: Map<Token, ContainerId>,
    by_id: Map<ContainerId, Monitor>,
}

#[derive(Debug, Default)]
struct Monitor {
    /// `None`: it is gone, and its container may live.
    channel: Option<(Channel, Token)>,
    cgroup: Option<Box<str>>,
    /// The container's first process, once it is known.
    process: Option<Process>,
    /// How that has ended, if this process was its parent.
    status: Option<i32>,
    /// It has told that the container has ended, or that it did not start.
    has_told: bool,
    /// How often it was asked to open the log again, and has not answered.
    reopens: usize,
}

/// How a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

impl Monitors {
    /// Connections get tokens from `first` on.
    pub fn new(settings: Settings, registry: Registry, first: Token) -> Self {
        Self {
            settings,
            program: "/proc/self/exe".into(),
            registry,
            token: first,
            by_token: Map::new(),
            by_id: Map::new(),
        }
    }

    /// The same, with another program as the monitor.
    #[must_use]
    pub fn with_program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// After a start of the server: connects to what is there, and tells of each container that has
    /// a folder in RUN. `boot`: the running kernel's.
    pub fn adopt_all(&mut self, boot: &BootId) -> io::Result<Vec<(ContainerId, Found)>> {
        let folder = self.settings.layout.run().join("c");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in entries.take(MONITORS_MAX) {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if is_id(&name) {
                let id = ContainerId(name.into());
                let what = self.find(&id, boot);
                found.push((id, what));
            }
        }
        Ok(found)
    }

    fn find(&mut self, id: &ContainerId, boot: &BootId) -> Found {
        let folder = self.settings.layout.container(id);
        let noted = files::read_text(&folder.join(PID), monitor::read_pid);
        let (process, cgroup) = noted.filter(|(process, _)| process.boot == *boot).unzip();
        // A monitor that has written this file ends, or has ended.
        if let Some(fact) = files::read_text(&folder.join(EXIT), monitor::read_fact) {
            return Found::Ended(fact);
        }
        let connected = Channel::connect(&folder, CTL).and_then(|channel| self.watch(id, channel));
        let monitor = Monitor { cgroup, process: process.clone(), ..Monitor::default() };
        if let Ok(channel) = connected {
            let monitor = Monitor { channel: Some(channel), ..monitor };
            self.by_id.insert(id.clone(), monitor);
            return Found::Monitored;
        }
        match process.filter(|process| matches!(process::open(process), Ok(Some(_)))) {
            Some(process) => {
                self.by_id.insert(id.clone(), monitor);
                Found::Alone(process, files::read_text(&folder.join(STARTED), monitor::read_number))
            }
            None => Found::Remains,
        }
    }

    /// Starts a monitor. That it cannot be started is told like its own failure.
    pub fn start(&mut self, start: &MonitorStart, events: &mut Vec<Event>) {
        let id = &start.id;
        if self.by_id.len() >= MONITORS_MAX {
            // Of containers that were ended without a monitor; nobody waits for their exit codes.
            self.by_id.retain(|_, monitor| monitor.channel.is_some());
        }
        let known = self.by_id.remove(id).unwrap_or_default();
        if let Some((_, token)) = known.channel {
            self.by_token.remove(&token);
        }
        if let (Some(_), Some(status)) = (&start.adopt, known.status) {
            // It has ended meanwhile.
            events.push(Event::Monitor(id.clone(), exited(status, &start.cgroup)));
            return;
        }
        match self.spawn(start) {
            Ok(channel) => {
                let monitor = Monitor {
                    channel: Some(channel),
                    cgroup: Some(start.cgroup.clone()),
                    process: start.adopt.clone(),
                    ..Monitor::default()
                };
                self.by_id.insert(id.clone(), monitor);
            }
            Err(error) => {
                let why = format!("cannot start a monitor: {error}");
                events.push(Event::Monitor(id.clone(), MonitorFact::Failed(why)));
            }
        }
    }

    fn spawn(&mut self, start: &MonitorStart) -> io::Result<(Channel, Token)> {
        let folder = self.settings.layout.container(&start.id);
        let settings = self.settings.with_program(&start.program);
        let order = Order { settings, start: start.clone() };
        let order = postcard::to_stdvec(&order).map_err(io::Error::other)?;
        let place = folder.join(START);
        let written = replace_in(&folder, START, &order);
        written.map_err(|error| io::Error::other(files::at("write", &place, &error)))?;
        if start.adopt.is_none() {
            // Of an earlier start, which a crash has cut off.
            for old in [EXIT, PID, STARTED] {
                let _ = fs::remove_file(folder.join(old));
            }
        }
        let (ours, theirs) = Channel::pair()?;
        let child = Command::new(&self.program)
            .arg("monitor")
            .arg(&folder)
            .env_clear()
            .stdin(Stdio::from(theirs.into_fd()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        log::debug!("container={} monitor={} started", start.id, child.id());
        self.watch(&start.id, ours)
    }

    fn watch(&mut self, id: &ContainerId, channel: Channel) -> io::Result<(Channel, Token)> {
        let token = self.token;
        let fd = channel.as_fd().as_raw_fd();
        self.registry.register(&mut SourceFd(&fd), token, Interest::READABLE)?;
        self.token.0 += 1;
        self.by_token.insert(token, id.clone());
        Ok((channel, token))
    }

    /// The log is to be opened again; the one answer comes as a fact.
    pub fn reopen(&mut self, id: &ContainerId, events: &mut Vec<Event>) {
        if let Some(monitor) = self.by_id.get_mut(id)
            && let Some((channel, _)) = &monitor.channel
            && channel.send(b"reopen")
        {
            monitor.reopens += 1;
            return;
        }
        events.push(Event::Monitor(id.clone(), not_reopened()));
    }

    /// Something came from the connection with this token.
    pub fn ready(&mut self, token: Token, events: &mut Vec<Event>) {
        let Some(id) = self.by_token.get(&token).cloned() else { return };
        let Some(monitor) = self.by_id.get_mut(&id) else { return };
        let Some((channel, _)) = &monitor.channel else { return };
        let mut buffer = vec![0; MONITOR_FACT_BYTES_MAX];
        loop {
            match channel.receive(&mut buffer) {
                Received::Nothing => return,
                Received::End => break,
                Received::Message(bytes) => match monitor::read_fact(&buffer[..bytes]) {
                    Ok(fact) => {
                        if let MonitorFact::Started { process, .. } = &fact {
                            monitor.process = Some(process.clone());
                        }
                        if matches!(fact, MonitorFact::Reopened(_)) {
                            monitor.reopens = monitor.reopens.saturating_sub(1);
                        }
                        monitor.has_told |=
                            matches!(fact, MonitorFact::Exited { .. } | MonitorFact::Failed(_));
                        events.push(Event::Monitor(id.clone(), fact));
                    }
                    Err(why) => log::warn!("container={id} got no fact of its monitor: {why}"),
                },
            }
        }
        self.by_token.remove(&token);
        let fd = channel.as_fd().as_raw_fd();
        let _ = self.registry.deregister(&mut SourceFd(&fd));
        monitor.channel = None;
        self.ended(&id, events);
    }

    /// The monitor is gone.
    fn ended(&mut self, id: &ContainerId, events: &mut Vec<Event>) {
        let Some(monitor) = self.by_id.get_mut(id) else { return };
        for _ in 0..std::mem::take(&mut monitor.reopens) {
            events.push(Event::Monitor(id.clone(), not_reopened()));
        }
        if monitor.has_told {
            self.by_id.remove(id);
            return;
        }
        let folder = self.settings.layout.container(id);
        // It may have noted the process and died before it told of it.
        let (process, cgroup) = files::read_text(&folder.join(PID), monitor::read_pid).unzip();
        monitor.process = monitor.process.take().or(process);
        monitor.cgroup = monitor.cgroup.take().or(cgroup);
        let fact = match (files::read_text(&folder.join(EXIT), monitor::read_fact), monitor.status)
        {
            (Some(fact), _) => fact,
            (None, Some(status)) => exited(status, monitor.cgroup.as_deref().unwrap_or_default()),
            (None, None) => MonitorFact::Gone,
        };
        if fact != MonitorFact::Gone {
            self.by_id.remove(id);
        }
        events.push(Event::Monitor(id.clone(), fact));
    }

    /// A child of this process has ended: a monitor, a container whose monitor died, or what such a
    /// container has left behind.
    pub fn child_ended(&mut self, pid: i32, how: Ended) {
        let status = match how {
            Ended::Exited(code) => code << 8,
            Ended::Killed(signal) => signal,
        };
        let is_it = |monitor: &Monitor| monitor.process.as_ref().is_some_and(|it| it.pid == pid);
        let Some(monitor) = self.by_id.values_mut().find(|monitor| is_it(monitor)) else { return };
        monitor.status = Some(status);
        // A monitor that has adopted it waits for that.
        if let Some((channel, _)) = &monitor.channel {
            channel.send(format!("exited {status}").as_bytes());
        }
    }

    /// Signals a process, if it is still the one that is meant.
    pub fn signal(&self, id: &ContainerId, process: &Process, signal: i32) {
        if let Err(error) = process::signal(process, signal) {
            log::warn!("container={id} pid={} signal {signal}: {error}", process.pid);
        }
    }
}

fn not_reopened() -> MonitorFact {
    MonitorFact::Reopened(Err("the container has no monitor that could open its log".to_owned()))
}

fn exited(status: i32, cgroup: &str) -> MonitorFact {
    let kills = Cgroup::find(cgroup).ok().and_then(|cgroup| cgroup.oom_kills());
    MonitorFact::Exited {
        code: process::code_of(status),
        oom_killed: kills.is_some_and(|count| count > 0),
        at: super::monitor::nanos(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::builtin::layout::Layout;
    use crate::limits::CRI_STATUS_TEXT_BYTES_MAX;
    use crate::model::builtin::Registries;

    #[test]
    fn those_that_nobody_waits_for_are_forgotten_and_a_failure_is_told() {
        let poll = mio::Poll::new().expect("a poll");
        let settings = Settings {
            layout: Layout::new("/none/run".into(), "/none/data".into()),
            oci: "/none".into(),
            handlers: Vec::new(),
            cni_conf_dir: PathBuf::new(),
            cni_bin_dir: PathBuf::new(),
            registries: Registries::default(),
        };
        let registry = poll.registry().try_clone().expect("a registry");
        let mut monitors = Monitors::new(settings, registry, Token(7));
        let id = |at: usize| ContainerId(format!("{at:064x}").into());
        monitors.by_id.extend((0..MONITORS_MAX).map(|at| (id(at), Monitor::default())));
        let start = MonitorStart {
            id: id(0),
            log: "".into(),
            stdin: false,
            tty: false,
            cgroup: "/a/b".into(),
            program: "".into(),
            adopt: None,
        };
        let mut events = Vec::new();
        monitors.start(&start, &mut events);
        assert!(monitors.by_id.is_empty());
        let [Event::Monitor(of, MonitorFact::Failed(why))] = &*events else { panic!("{events:?}") };
        assert!(*of == id(0) && why.starts_with("cannot start a monitor: "), "{why}");
        events.clear();
        monitors.reopen(&id(0), &mut events);
        assert!(matches!(&*events, [Event::Monitor(_, MonitorFact::Reopened(Err(_)))]));
        assert_eq!(monitors.adopt_all(&BootId::default()).expect("no folder"), []);
    }

    #[test]
    fn the_longest_fact_is_received() {
        let text = "\u{1}".repeat(CRI_STATUS_TEXT_BYTES_MAX);
        let fact = monitor::fact(&MonitorFact::Failed(text));
        assert!(fact.len() < MONITOR_FACT_BYTES_MAX, "{}", fact.len());
    }
}
