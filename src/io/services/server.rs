//! `edged services serve SOCKET`: the process that serves Services. It answers their names, listens
//! on their addresses and moves the bytes; which Services there are, the agent tells it.
//!
//! ```text
//!  agent ──SOCKET──▶ table ─▶ link edgemesh0: 169.254.96.16 and each ClusterIP
//!                      │  └─▶ ports: a listener for each port of each Service
//!                      │                      │ accept, choose an endpoint
//!                      ├─▶ direct: single endpoints, which pods reach without this process
//!  pods ──UDP, TCP 53──┴─▶ DNS   pods ──TCP──▶ connections ──splice──▶ endpoint
//!                                pods ──UDP──▶ flows ────────────────▶ endpoint
//! ```
//!
//! It is in a session of its own and goes on if the agent ends, is updated or crashes: connections
//! are not cut, and names are answered out of the last table. The next agent finds it by its
//! socket. It ends when it is told to ([`Order::Stop`], or SIGTERM), and then removes the link.
//!
//! **If it crashes** its connections are cut; the agent starts it again, and it takes the link
//! over.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;
use std::sync::Arc;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::sys::socket::SockType;

use super::connections::{self, Connections};
use super::direct::Direct;
use super::dns::{self, Responder};
use super::flows::{self, Flows};
use super::ports::{Ports, Socket};
use super::protocol::{Order, Settings, greeting};
use crate::agent::services::balance::Balance;
use crate::agent::time::Instant;
use crate::io::channel::{Channel, Listener, Received};
use crate::io::link::{self, Link};
use crate::io::signal::{SignalAction, Signals};
use crate::io::{clock, sys, turn};
use crate::limits::{
    SERVICE_LEAVE_MS, SERVICE_LINK_MS, SERVICE_MESSAGE_BYTES_MAX, SERVICE_REPORT_MS,
    SERVICE_RETRY_MS,
};
use crate::model::map::Set;
use crate::model::service::{EntryKind, ServiceEntry, ServicesReport};

const SIGNALS: Token = Token(0);
const LISTENER: Token = Token(1);
const AGENT: Token = Token(2);
const DNS: Token = Token(16);
const FLOWS: Token = Token(DNS.0 + dns::TOKENS);
const CONNECTIONS: Token = Token(FLOWS.0 + flows::TOKENS);
/// All from here on.
const PORTS: Token = Token(CONNECTIONS.0 + connections::TOKENS);

/// The main function. `args`: the path of the socket.
pub fn main(args: &[OsString]) -> ExitCode {
    let [socket] = args else { return ExitCode::from(2) };
    // It is the leader of a session already if a person starts it.
    let _ = nix::unistd::setsid();
    let _ = nix::sys::prctl::set_name(c"edged-services");
    let served = socket.to_str().ok_or_else(|| io::ErrorKind::InvalidInput.into()).and_then(serve);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("services: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until it is told to end. `path`: the socket's.
pub(super) fn serve(path: &str) -> io::Result<()> {
    Server::open(path)?.run()
}

struct Server {
    poll: Poll,
    signals: Signals,
    path: String,
    listener: Option<Listener>,
    agent: Option<Channel>,
    settings: Option<Settings>,
    /// By namespace and name.
    table: Vec<Arc<ServiceEntry>>,
    /// Between [`Order::Begin`] and [`Order::End`].
    coming: Option<Vec<Arc<ServiceEntry>>>,
    /// The table or the settings have changed, or it is time to look.
    apply_at: Instant,
    link: Link,
    link_trouble: Vec<String>,
    dns: Responder,
    ports: Ports,
    direct: Direct,
    connections: Connections,
    flows: Flows,
    balance: Balance,
    /// Another process has taken over: when this one exits at the latest.
    leaves_at: Option<Instant>,
    reported: (Instant, ServicesReport),
    more: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Turn,
    /// Without a trace.
    Stop,
    Exit,
}

impl Server {
    fn open(path: &str) -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry();
        let signals = Signals::open(registry, SIGNALS)?;
        let listener = Listener::open(path, SockType::SeqPacket)?;
        let fd = listener.as_fd().as_raw_fd();
        registry.register(&mut SourceFd(&fd), LISTENER, Interest::READABLE)?;
        sys::raise_descriptors();
        Ok(Self {
            signals,
            path: path.to_owned(),
            listener: Some(listener),
            agent: None,
            settings: None,
            table: Vec::new(),
            coming: None,
            apply_at: Instant(u64::MAX),
            link: Link::new(link::SERVICES),
            link_trouble: Vec::new(),
            dns: Responder::new(DNS),
            ports: Ports::new(PORTS),
            direct: Direct::default(),
            connections: Connections::new(CONNECTIONS),
            flows: Flows::new(FLOWS),
            balance: Balance::default(),
            leaves_at: None,
            reported: (Instant(0), ServicesReport::default()),
            more: false,
            poll,
        })
    }

    fn run(mut self) -> io::Result<()> {
        let mut ready = turn::events();
        loop {
            self.sleep(&mut ready)?;
            match self.turn(&ready) {
                Next::Turn => {}
                Next::Exit => return Ok(()),
                Next::Stop => {
                    let _ = std::fs::remove_file(&self.path);
                    let removed = self.link.remove();
                    return removed.map_err(|fault| io::Error::other(fault.to_string()));
                }
            }
        }
    }

    fn sleep(&mut self, ready: &mut Events) -> io::Result<()> {
        let report_at = (self.agent.is_some()).then(|| self.reported.0.plus_ms(SERVICE_REPORT_MS));
        let due = [
            Some(self.apply_at).filter(|_| self.settings.is_some()),
            self.dns.wake_at(),
            self.connections.wake_at(),
            self.flows.wake_at(),
            self.leaves_at,
            report_at,
        ];
        let due_at = due.into_iter().flatten().min().unwrap_or(Instant(u64::MAX));
        let due_at = if self.more { Instant(0) } else { due_at };
        match self.poll.poll(ready, Some(turn::timeout(clock::boot(), due_at))) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            polled => polled,
        }
    }

    fn turn(&mut self, ready: &Events) -> Next {
        let now = clock::boot();
        let mut next = Next::Turn;
        for ready in ready {
            let registry = self.poll.registry();
            match ready.token() {
                SIGNALS => next = self.signalled(),
                LISTENER => self.accept(),
                AGENT => next = self.ordered(now),
                token if self.dns.owns(token) => {
                    self.dns.ready(ready, now, registry, &self.table);
                }
                token if self.flows.owns(token) => self.flows.ready(token, now, &self.ports),
                token if self.connections.owns(token) => {
                    self.connections.ready(ready, now, &mut self.balance, registry);
                }
                token => self.ports.ready(token),
            }
            if next != Next::Turn {
                return next;
            }
        }
        if self.settings.is_some() && self.apply_at <= now {
            self.apply(now);
        }
        self.more = self.move_bytes(now);
        self.report(now);
        if let Some(at) = self.leaves_at
            && (at <= now || self.connections.open() == 0)
        {
            return Next::Exit;
        }
        Next::Turn
    }

    fn signalled(&mut self) -> Next {
        let mut next = Next::Turn;
        while let Some(action) = self.signals.take() {
            match action {
                SignalAction::Stop => next = Next::Stop,
                SignalAction::Reload | SignalAction::ChildEnded => {}
            }
        }
        next
    }

    /// The newest agent counts.
    fn accept(&mut self) {
        while let Some(channel) = self.listener.as_ref().and_then(Listener::accept) {
            let fd = channel.as_fd().as_raw_fd();
            let registry = self.poll.registry();
            self.agent = None;
            if registry.register(&mut SourceFd(&fd), AGENT, Interest::READABLE).is_ok()
                && channel.send(greeting().as_bytes())
            {
                self.agent = Some(channel);
                self.coming = None;
                // So that it is told at once how things are.
                self.reported = (Instant(0), ServicesReport::default());
            }
        }
    }

    fn ordered(&mut self, now: Instant) -> Next {
        let mut buffer = vec![0; SERVICE_MESSAGE_BYTES_MAX];
        while let Some(agent) = &self.agent {
            match agent.receive(&mut buffer) {
                Received::Nothing => break,
                Received::End => self.agent = None,
                Received::Message(bytes) => {
                    let next = match postcard::from_bytes(&buffer[..bytes]) {
                        Ok(order) => self.take(order, now),
                        // It is not of this version: it will see the greeting.
                        Err(_) => Next::Turn,
                    };
                    if next != Next::Turn {
                        return next;
                    }
                }
            }
        }
        Next::Turn
    }

    fn take(&mut self, order: Order, now: Instant) -> Next {
        match order {
            Order::Settings(settings) => {
                self.dns.set(&settings);
                self.direct.set(&settings.pods_cgroup);
                self.settings = Some(settings);
                self.apply_at = now;
            }
            Order::Begin => self.coming = Some(Vec::new()),
            Order::Put(entry) => {
                let table = self.coming.as_mut().unwrap_or(&mut self.table);
                match find(table, &entry.namespace, &entry.name) {
                    Ok(at) => table[at] = entry,
                    Err(at) => table.insert(at, entry),
                }
                self.apply_at = now;
            }
            Order::Remove { namespace, name } => {
                let table = self.coming.as_mut().unwrap_or(&mut self.table);
                if let Ok(at) = find(table, &namespace, &name) {
                    table.remove(at);
                }
                self.apply_at = now;
            }
            Order::End => {
                if let Some(table) = self.coming.take() {
                    self.table = table;
                }
                self.apply_at = now;
            }
            Order::Stop => return Next::Stop,
            Order::Leave => {
                self.dns.close();
                self.ports.close();
                self.direct.close();
                (self.listener, self.agent, self.settings) = (None, None, None);
                self.leaves_at = Some(now.plus_ms(SERVICE_LEAVE_MS));
            }
        }
        Next::Turn
    }

    /// Makes link and sockets as the table wants them.
    fn apply(&mut self, now: Instant) {
        self.apply_at = now.plus_ms(SERVICE_LINK_MS);
        let Some(settings) = &self.settings else { return };
        let address = |it: &Arc<ServiceEntry>| match it.kind {
            EntryKind::Cluster(ip) => Some(ip),
            EntryKind::Headless | EntryKind::External(_) => None,
        };
        let own = [settings.address].into_iter();
        let addresses: Set<Ipv4Addr> = own.chain(self.table.iter().filter_map(address)).collect();
        self.link_trouble.clear();
        let registry = self.poll.registry();
        if self.link.is_of_another() && self.dns.listen(registry).is_err_and(|it| it.is_taken) {
            let name = link::SERVICES.name;
            let line = format!("an EdgeMesh agent has the link {name}: nothing is served");
            self.link_trouble.push(line);
            self.ports.close();
            self.direct.close();
            // What was set before it came.
            self.link_trouble.extend(self.link.remove().err().map(|fault| fault.to_string()));
            return;
        }
        let held = self.link.hold(&addresses).map_err(|fault| fault.to_string());
        self.link_trouble.extend(held.err());
        self.link_trouble.extend(self.dns.listen(registry).err().map(|it| it.why));
        self.ports.apply(&self.table, registry);
        self.direct.apply(&self.table);
        if !self.link_trouble.is_empty() || !self.ports.trouble().is_empty() {
            self.apply_at = now.plus_ms(SERVICE_RETRY_MS);
        }
    }

    /// Takes what waits. Whether there is more.
    fn move_bytes(&mut self, now: Instant) -> bool {
        let registry = self.poll.registry();
        let mut more = self.dns.tick(now, registry, &self.table);
        for (_, port) in self.ports.waiting() {
            let balance = &mut self.balance;
            port.more = match &port.socket {
                Socket::Tcp(listener) => {
                    self.connections.accept(listener, &port.target, now, balance, registry)
                }
                Socket::Udp(socket) => {
                    let at = port.address();
                    self.flows.receive(socket, at, &port.target, now, balance, registry)
                }
            };
            more |= port.more;
        }
        more |= self.flows.tick(now, &self.ports);
        more | self.connections.tick(now, &mut self.balance, registry)
    }

    /// Tells the agent how things are, if that has changed.
    fn report(&mut self, now: Instant) {
        let Some(agent) = &self.agent else { return };
        if now < self.reported.0.plus_ms(SERVICE_REPORT_MS) {
            return;
        }
        let (accepted, failed) = self.connections.counts();
        let mut report = ServicesReport {
            trouble: self.link_trouble.clone(),
            connections: self.connections.open() as u64,
            flows: self.flows.open() as u64,
            accepted,
            failed,
            direct: self.direct.count(),
            ..ServicesReport::default()
        };
        report.trouble.extend_from_slice(self.ports.trouble());
        self.dns.report(&mut report);
        let is_first = self.reported.0 == Instant(0);
        self.reported.0 = now;
        if (report != self.reported.1 || is_first)
            && let Ok(bytes) = postcard::to_stdvec(&report)
            && agent.send(&bytes)
        {
            self.reported.1 = report;
        }
    }
}

fn find(table: &[Arc<ServiceEntry>], namespace: &str, name: &str) -> Result<usize, usize> {
    table.binary_search_by(|it| (&*it.namespace, &*it.name).cmp(&(namespace, name)))
}
