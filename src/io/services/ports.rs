//! Which sockets listen: one for each port of each Service that leads to an endpoint, on its
//! ClusterIP, and where it is wanted one more on all addresses of the node.
//!
//! A Service without endpoints has none, so that the kernel refuses its clients at once.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use mio::net::{TcpListener, UdpSocket};
use mio::{Interest, Registry, Token};

use crate::limits::SERVICES_TROUBLE_MAX;
use crate::model::map::Map;
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
    by_address: Map<Key, usize>,
    trouble: Vec<String>,
}

impl Ports {
    /// Sockets get tokens from `first` on.
    pub(super) fn new(first: Token) -> Self {
        Self { first, all: Vec::new(), by_address: Map::new(), trouble: Vec::new() }
    }

    /// Closes what no Service needs, and opens what is missing.
    pub(super) fn apply(&mut self, table: &[Arc<ServiceEntry>], registry: &Registry) {
        let wanted = wanted(table);
        let all = &mut self.all;
        self.by_address.retain(|at, place| {
            let is_wanted = wanted.contains_key(at);
            if !is_wanted {
                all[*place] = None;
            }
            is_wanted
        });
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
fn wanted(table: &[Arc<ServiceEntry>]) -> Map<Key, Target> {
    let mut wanted = Vec::new();
    for service in table {
        let EntryKind::Cluster(ip) = &service.kind else { continue };
        for (at, port) in service.ports.iter().enumerate() {
            let able = |ports: &Vec<u16>| ports.get(at).is_some_and(|number| *number > 0);
            if !service.endpoints.iter().any(|it| able(&it.ports)) {
                continue;
            }
            let mut add = |ip, number| {
                let key = (port.protocol, SocketAddrV4::new(ip, number));
                wanted.push((key, Target { service: service.clone(), port: at }));
            };
            add(*ip, port.port);
            if port.node_port > 0 {
                add(Ipv4Addr::UNSPECIFIED, port.node_port);
            }
        }
    }
    // All at once: a map that grows in any order moves what it has for each of them.
    wanted.sort_by_key(|(key, _)| *key);
    wanted.dedup_by_key(|(key, _)| *key);
    wanted.into_iter().collect()
}

/// What a socket listens on.
type Key = (Protocol, SocketAddrV4);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::service::{Endpoint, EntryPort};

    fn entry(name: &str, last: u8, ports: &[(u16, u16)]) -> Arc<ServiceEntry> {
        let port = |&(port, node_port): &(u16, u16)| EntryPort {
            name: "".into(),
            protocol: Protocol::Tcp,
            port,
            node_port,
        };
        let ip = Ipv4Addr::new(10, 88, 0, 5);
        let endpoint = Endpoint { ip, hostname: "".into(), ports: vec![8_080; ports.len()] };
        Arc::new(ServiceEntry {
            namespace: "default".into(),
            name: name.into(),
            kind: EntryKind::Cluster(Ipv4Addr::new(10, 96, 0, last)),
            ports: ports.iter().map(port).collect(),
            endpoints: vec![endpoint],
            affinity_s: 0,
            of_pods: true,
        })
    }

    #[test]
    fn of_two_services_with_one_address_the_first_has_it() {
        let table = [
            entry("a", 9, &[(80, 30_080)]),
            entry("b", 7, &[(443, 0), (80, 30_080)]),
            entry("c", 9, &[(80, 0), (81, 0)]),
        ];
        let wanted = wanted(&table);
        let got: Vec<String> = wanted
            .iter()
            .map(|(key, target)| format!("{} {}/{}", key.1, target.service.name, target.port))
            .collect();
        let expected = [
            "0.0.0.0:30080 a/0",
            "10.96.0.7:80 b/1",
            "10.96.0.7:443 b/0",
            "10.96.0.9:80 a/0",
            "10.96.0.9:81 c/1",
        ];
        assert_eq!(got, expected);
    }
}
