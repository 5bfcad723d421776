//! Services by name on this node, as the event loop sees them: the process that serves them
//! ([`server`]), which outlives the agent.
//!
//! ```text
//!  Action::Services ─▶ Services ──/run/edged.services-…──▶ edged services serve
//!  Event::Services  ◀─           ◀──────── reports ───────  DNS, link, listeners
//! ```
//!
//! After a start the agent connects to the process that is there, or starts one. One of another
//! version is told to leave: it closes its listeners, keeps its connections until they end, and a
//! new process takes over. If Services are switched off, one that is there is told to stop.
//!
//! **If the agent crashes** the process goes on by itself.

mod connections;
mod direct;
mod dns;
mod flows;
mod ports;
pub mod protocol;
pub mod server;
mod splice;
mod upstream;

#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use mio::event::Event as Ready;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use serde::Serialize;

use super::channel::{Channel, Received};
use super::log::Limit;
use super::sys;
use crate::agent::event::Event;
use crate::agent::services::Table;
use crate::agent::time::Instant;
use crate::config::Config;
use crate::limits::{SERVICE_MESSAGE_BYTES_MAX, SERVICES_CONNECT_MS, SERVICES_RESTART_MS};
use crate::model::cgroup::{self, all_pods};
use crate::model::service::ServiceEntry;
use protocol::{Order, Settings, greeting};

#[derive(Debug)]
pub struct Services {
    token: Token,
    program: PathBuf,
    /// The folder and the name of the socket; `None`: the root directory cannot be read.
    socket: Option<PathBuf>,
    /// `None`: they are switched off.
    settings: Option<Settings>,
    /// What is to be served; `None`: not known yet.
    wanted: Option<Table>,
    process: Process,
    /// One that was told to end: while this end is open, it reads what it was told.
    ending: Option<Channel>,
    /// What this agent has started, until it is reaped.
    child: Option<Child>,
    /// The last one has ended, and was not missed yet.
    has_ended: bool,
    failures: u32,
    readable: bool,
    limit: Limit,
}

#[derive(Debug)]
enum Process {
    /// Try at this time.
    Absent(Instant),
    /// The greeting has not come yet.
    Connected(Channel),
    /// It has the settings and these Services.
    Serving(Channel, Table, Sent),
    /// Switched off, and none is there.
    Off,
}

/// How far the first transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// Nothing of the table yet, which is not known.
    Settings,
    /// Services come, between `Begin` and `End`.
    Begun,
    /// All of them; what changes follows.
    All,
}

impl Services {
    /// Its connection gets this token.
    pub fn new(config: &Config, token: Token) -> Self {
        let settings = config.services.settings().map(|settings| Settings {
            domain: config.settings.cluster_domain.clone(),
            address: settings.address,
            upstream: settings.upstream.clone(),
            resolv_conf: config.settings.resolv_conf.clone(),
            pods_cgroup: pods_cgroup(&config.settings.cgroups),
        });
        Self {
            token,
            program: "/proc/self/exe".into(),
            socket: socket_of(Path::new(&config.root)),
            settings,
            wanted: None,
            process: Process::Absent(Instant(0)),
            ending: None,
            child: None,
            has_ended: false,
            failures: 0,
            readable: false,
            limit: Limit::default(),
        }
    }

    /// Serve these from now on.
    pub fn serve(&mut self, table: Table) {
        self.wanted = Some(table);
    }

    pub fn owns(&self, token: Token) -> bool {
        token == self.token
    }

    pub fn ready(&mut self, _ready: &Ready) {
        self.readable = true;
    }

    /// A child of the agent has ended, perhaps this one.
    pub fn reap(&mut self) {
        if let Some(child) = &mut self.child
            && !matches!(child.try_wait(), Ok(None))
        {
            self.child = None;
            self.has_ended = true;
        }
    }

    /// Connects if that is due, and takes what the process tells.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        if let Process::Absent(at) = self.process
            && at <= now
        {
            self.connect(now, registry);
        }
        if std::mem::take(&mut self.readable) {
            self.receive(now, events);
        }
    }

    pub fn wake_at(&self) -> Option<Instant> {
        match &self.process {
            Process::Absent(at) => Some(*at),
            Process::Connected(_) | Process::Serving(..) | Process::Off => None,
        }
    }

    fn connect(&mut self, now: Instant, registry: &Registry) {
        let Some(socket) = &self.socket else {
            self.process = Process::Off;
            return;
        };
        let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else { return };
        if let Ok(channel) = Channel::connect(folder, &name.to_string_lossy()) {
            let fd = channel.as_fd().as_raw_fd();
            let interest = Interest::READABLE | Interest::WRITABLE;
            match registry.register(&mut SourceFd(&fd), self.token, interest) {
                Ok(()) => self.process = Process::Connected(channel),
                Err(error) => self.retry(now, &format!("cannot watch its socket: {error}")),
            }
            return;
        }
        if self.settings.is_none() {
            self.process = Process::Off;
        } else if self.has_ended {
            self.retry(now, "has ended");
        } else if self.child.is_some() {
            // It is starting.
            self.process = Process::Absent(now.plus_ms(SERVICES_CONNECT_MS));
        } else {
            self.start(now);
        }
    }

    fn start(&mut self, now: Instant) {
        let Some(socket) = &self.socket else { return };
        let mut command = Command::new(&self.program);
        command.args(["services", "serve"]).arg(socket);
        match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
            Ok(child) => {
                log::debug!("services pid={} started", child.id());
                self.child = Some(child);
                self.process = Process::Absent(now.plus_ms(SERVICES_CONNECT_MS));
            }
            Err(error) => self.retry(now, &format!("cannot be started: {error}")),
        }
    }

    /// It is gone, or was never there.
    fn retry(&mut self, now: Instant, why: &str) {
        self.has_ended = false;
        let wait_ms = SERVICES_RESTART_MS << self.failures.min(8);
        self.failures += 1;
        self.process = Process::Absent(now.plus_ms(wait_ms));
        if let Some(repeats) = self.limit.pass(now) {
            log::warn!("the process that serves Services {why}; repeats={repeats}");
        }
    }

    fn receive(&mut self, now: Instant, events: &mut Vec<Event>) {
        let mut buffer = vec![0; SERVICE_MESSAGE_BYTES_MAX];
        loop {
            let channel = match &self.process {
                Process::Connected(channel) | Process::Serving(channel, ..) => channel,
                Process::Absent(_) | Process::Off => return,
            };
            let bytes = match channel.receive(&mut buffer) {
                Received::Nothing => return,
                Received::End => return self.retry(now, "has ended"),
                Received::Message(bytes) => bytes,
            };
            match &self.process {
                Process::Connected(_) => self.greeted(now, &buffer[..bytes]),
                Process::Serving(..) => {
                    if let Ok(report) = postcard::from_bytes(&buffer[..bytes]) {
                        self.failures = 0;
                        events.push(Event::Services(Box::new(report)));
                    }
                }
                Process::Absent(_) | Process::Off => {}
            }
        }
    }

    /// Whether it is of this version decides what it is told.
    fn greeted(&mut self, now: Instant, text: &[u8]) {
        let old = std::mem::replace(&mut self.process, Process::Absent(now));
        let Process::Connected(channel) = old else { return };
        match &self.settings {
            None => {
                put(&channel, &Order::Stop);
                (self.process, self.ending) = (Process::Off, Some(channel));
                log::info!("services: switched off; the process that served them ends");
            }
            Some(_) if text != greeting().as_bytes() => {
                let shown = String::from_utf8_lossy(text);
                log::info!("services: a process of {shown} leaves, and this version's takes over");
                put(&channel, &Order::Leave);
                self.ending = Some(channel);
                self.start(now);
            }
            Some(settings) => {
                put(&channel, &Order::Settings(settings.clone()));
                self.process = Process::Serving(channel, Table::new(), Sent::Settings);
            }
        }
    }

    /// Sends what the process lacks, until its socket takes no more: then a turn follows when it
    /// does.
    pub fn flush(&mut self, now: Instant) {
        let Some(wanted) = &self.wanted else { return };
        let Process::Serving(channel, has, sent) = &mut self.process else { return };
        if *sent == Sent::Settings {
            if !put(channel, &Order::Begin) {
                return;
            }
            *sent = Sent::Begun;
        }
        let key = |it: &Arc<ServiceEntry>| (it.namespace.clone(), it.name.clone());
        let gone: Vec<_> = has.iter().map(key).filter(|it| find(wanted, it).is_err()).collect();
        for (namespace, name) in gone {
            let at = find(has, &(namespace.clone(), name.clone()));
            if !put(channel, &Order::Remove { namespace, name }) {
                return;
            }
            if let Ok(at) = at {
                has.remove(at);
            }
        }
        for entry in wanted {
            let place = find(has, &key(entry));
            if place.is_ok_and(|at| has[at] == *entry) {
                continue;
            }
            if !put(channel, &Order::Put(entry.clone())) {
                return;
            }
            match place {
                Ok(at) => has[at] = entry.clone(),
                Err(at) => has.insert(at, entry.clone()),
            }
        }
        if *sent == Sent::Begun && put(channel, &Order::End) {
            *sent = Sent::All;
            log::debug!("services={} at={} sent", has.len(), now.0);
        }
    }
}

type Key = (Box<str>, Box<str>);

fn find(table: &[Arc<ServiceEntry>], key: &Key) -> Result<usize, usize> {
    table.binary_search_by(|it| (&it.namespace, &it.name).cmp(&(&key.0, &key.1)))
}

fn put(channel: &Channel, order: &impl Serialize) -> bool {
    let bytes = postcard::to_stdvec(order).expect("an order is plain data");
    channel.send(&bytes)
}

/// Empty: pods have no cgroup in common.
fn pods_cgroup(settings: &cgroup::Settings) -> String {
    if !settings.per_qos {
        return String::new();
    }
    all_pods(settings.driver, &settings.root)
}

/// The socket of the process that serves the Services of the agent with this root directory.
pub fn socket_of(root: &Path) -> Option<PathBuf> {
    sys::file_of_root(Path::new("/run"), "services", root)
}
