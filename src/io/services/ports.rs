//! Which sockets listen: one for each port of each Service that leads to an endpoint, on its
//! ClusterIP, and where it is wanted one more on all addresses of the node.
//!
//! A Service without endpoints has none, so that the kernel refuses its clients at once.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use mio::net::{TcpListener, UdpSocket};
use mio::{Interest, Registry, Token};

use crate::limits::SERVICES_TROUBLE_MAX;
use crate::model::service::{EntryKind, Protocol, ServiceEntry};

/// A port of a Service: the Service, and the place among its ports.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) service: Arc<ServiceEntry>,
    pub(super) port: usize,
}

impl Target {
    pub(super) fn is_of(&self, other: &Self) -> bool {
        self.service.name == other.service.name && self.service.namespace == other.service.namespace
    }
}

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

#[derive(Debug)]
pub(super) struct Port {
    pub(super) socket: Socket,
    pub(super) target: Target,
    at: (Protocol, SocketAddrV4),
    /// There may be something that epoll will not report again.
    pub(super) more: bool,
}

#[derive(Debug)]
pub(super) struct Ports {
    first: Token,
    /// By place; `None`: free.
    all: Vec<Option<Port>>,
    by_address: BTreeMap<(Protocol, SocketAddrV4), usize>,
    trouble: Vec<String>,
}

impl Ports {
    /// Sockets get tokens from `first` on.
    pub(super) fn new(first: Token) -> Self {
        Self { first, all: Vec::new(), by_address: BTreeMap::new(), trouble: Vec::new() }
    }

    /// Closes what no Service needs, and opens what is missing.
    pub(super) fn apply(&mut self, table: &[Arc<ServiceEntry>], registry: &Registry) {
        let wanted = wanted(table);
        let gone: Vec<_> =
            self.by_address.keys().filter(|at| !wanted.contains_key(at)).copied().collect();
        for at in gone {
            if let Some(place) = self.by_address.remove(&at) {
                self.all[place] = None;
            }
        }
        self.trouble.clear();
        for (at, target) in wanted {
            match self.by_address.get(&at) {
                Some(place) => {
                    let port = self.all[*place].as_mut().expect("its place was found");
                    port.target = target;
                }
                None => {
                    if let Err(error) = self.open(at, &target, registry) {
                        let ServiceEntry { namespace, name, .. } = &*target.service;
                        let protocol = at.0.name();
                        let line = format!(
                            "Service {namespace}/{name}: cannot listen on {}/{protocol}: {error}",
                            at.1
                        );
                        if self.trouble.len() < SERVICES_TROUBLE_MAX {
                            self.trouble.push(line);
                        }
                    }
                }
            }
        }
    }

    fn open(
        &mut self,
        at: (Protocol, SocketAddrV4),
        target: &Target,
        registry: &Registry,
    ) -> io::Result<()> {
        let place = self.all.iter().position(Option::is_none).unwrap_or(self.all.len());
        let token = Token(self.first.0 + place);
        let address = SocketAddr::V4(at.1);
        let socket = match at.0 {
            Protocol::Tcp => {
                let mut listener = TcpListener::bind(address)?;
                registry.register(&mut listener, token, Interest::READABLE)?;
                Socket::Tcp(listener)
            }
            Protocol::Udp => {
                let mut socket = UdpSocket::bind(address)?;
                registry.register(&mut socket, token, Interest::READABLE)?;
                Socket::Udp(socket)
            }
        };
        let port = Some(Port { socket, target: target.clone(), at, more: true });
        if place == self.all.len() {
            self.all.push(port);
        } else {
            self.all[place] = port;
        }
        self.by_address.insert(at, place);
        Ok(())
    }

    pub(super) fn close(&mut self) {
        self.all.clear();
        self.by_address.clear();
        self.trouble.clear();
    }

    pub(super) fn ready(&mut self, token: Token) {
        if let Some(Some(port)) = self.all.get_mut(token.0 - self.first.0) {
            port.more = true;
        }
    }

    /// Those where something may wait, with their places.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = (usize, &mut Port)> {
        let all = self.all.iter_mut().enumerate();
        all.filter_map(|(at, port)| Some((at, port.as_mut().filter(|it| it.more)?)))
    }

    /// The UDP socket on this address.
    pub(super) fn udp(&self, at: SocketAddrV4) -> Option<&UdpSocket> {
        let place = *self.by_address.get(&(Protocol::Udp, at))?;
        match &self.all[place].as_ref()?.socket {
            Socket::Udp(socket) => Some(socket),
            Socket::Tcp(_) => None,
        }
    }

    pub(super) fn trouble(&self) -> &[String] {
        &self.trouble
    }
}

impl Port {
    pub(super) fn address(&self) -> SocketAddrV4 {
        self.at.1
    }
}

/// Where to listen, and for which port. Of two Services with one address the first one has it.
fn wanted(table: &[Arc<ServiceEntry>]) -> BTreeMap<(Protocol, SocketAddrV4), Target> {
    let mut wanted = BTreeMap::new();
    for service in table {
        let EntryKind::Cluster(ip) = &service.kind else { continue };
        for (at, port) in service.ports.iter().enumerate() {
            let able = |ports: &Vec<u16>| ports.get(at).is_some_and(|number| *number > 0);
            if !service.endpoints.iter().any(|it| able(&it.ports)) {
                continue;
            }
            let target = || Target { service: service.clone(), port: at };
            let mut add = |ip, number| {
                let key = (port.protocol, SocketAddrV4::new(ip, number));
                wanted.entry(key).or_insert_with(target);
            };
            add(*ip, port.port);
            if port.node_port > 0 {
                add(Ipv4Addr::UNSPECIFIED, port.node_port);
            }
        }
    }
    wanted
}
