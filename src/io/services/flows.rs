//! UDP through Services: each client has a socket of its own to its endpoint, until it was silent
//! for a minute. Datagrams stay whole, up to 64 KiB.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};

use super::ports::{Ports, Target};
use crate::agent::services::balance::Balance;
use crate::agent::time::Instant;
use crate::limits::{SERVICE_FLOW_IDLE_MS, SERVICE_FLOWS_MAX, SERVICE_TURN_DATAGRAMS};
use crate::model::map::Map;

/// The Service's address and the client's.
type Key = (SocketAddrV4, SocketAddrV4);

#[derive(Debug)]
pub(super) struct Flows {
    first: Token,
    all: Vec<Option<Flow>>,
    by_key: Map<Key, usize>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Flow {
    key: Key,
    server: UdpSocket,
    endpoint: Ipv4Addr,
    used_at: Instant,
    more: bool,
}

/// Tokens of all flows.
pub(super) const TOKENS: usize = SERVICE_FLOWS_MAX;

impl Flows {
    pub(super) fn new(first: Token) -> Self {
        let all = (0..SERVICE_FLOWS_MAX).map(|_| None).collect();
        Self { first, all, by_key: Map::new(), buffer: vec![0; 64 << 10] }
    }

    pub(super) fn owns(&self, token: Token) -> bool {
        (self.first.0..self.first.0 + TOKENS).contains(&token.0)
    }

    pub(super) fn open(&self) -> usize {
        self.by_key.len()
    }

    /// Takes what waits at the socket of a Service. Whether there may be more.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        address: SocketAddrV4,
        target: &Target,
        now: Instant,
        balance: &mut Balance,
        registry: &Registry,
    ) -> bool {
        for _ in 0..SERVICE_TURN_DATAGRAMS {
            match socket.recv_from(&mut self.buffer) {
                Ok((bytes, SocketAddr::V4(client))) => {
                    let key = (address, client);
                    if let Some(at) = self.place(key, target, now, balance, registry)
                        && let Some(flow) = &mut self.all[at]
                    {
                        flow.used_at = now;
                        // What an endpoint does not take is lost, as UDP may lose it.
                        let _ = flow.server.send(&self.buffer[..bytes]);
                    }
                }
                Ok((_, SocketAddr::V6(_))) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// The flow of this client: a new one where it has none, or where its endpoint is gone.
    fn place(
        &mut self,
        key: Key,
        target: &Target,
        now: Instant,
        balance: &mut Balance,
        registry: &Registry,
    ) -> Option<usize> {
        let known = self.by_key.get(&key).copied();
        let lives = |at: &usize| {
            let flow = self.all[*at].as_ref();
            flow.is_some_and(|it| target.service.endpoints.iter().any(|to| to.ip == it.endpoint))
        };
        if let Some(at) = known.filter(lives) {
            return Some(at);
        }
        if let Some(at) = known {
            self.forget(at);
        }
        let client = *key.1.ip();
        let (ip, port) = balance.choose(now, &target.service, target.port, client, &[])?;
        let free = self.all.iter().position(Option::is_none);
        let at = free.or_else(|| {
            let used_at = |at: &usize| self.all[*at].as_ref().map(|it| it.used_at);
            let oldest = (0..self.all.len()).min_by_key(used_at)?;
            self.forget(oldest);
            Some(oldest)
        })?;
        let server = open(ip, port, registry, Token(self.first.0 + at)).ok()?;
        self.all[at] = Some(Flow { key, server, endpoint: ip, used_at: now, more: false });
        self.by_key.insert(key, at);
        Some(at)
    }

    fn forget(&mut self, at: usize) {
        if let Some(flow) = self.all[at].take() {
            self.by_key.remove(&flow.key);
        }
    }

    pub(super) fn ready(&mut self, token: Token, now: Instant, ports: &Ports) {
        self.answer(token.0 - self.first.0, now, ports);
    }

    /// Passes answers on to the client.
    fn answer(&mut self, at: usize, now: Instant, ports: &Ports) {
        let Some(flow) = self.all[at].as_mut() else { return };
        flow.more = true;
        for _ in 0..SERVICE_TURN_DATAGRAMS {
            match flow.server.recv(&mut self.buffer) {
                Ok(bytes) => {
                    flow.used_at = now;
                    let (service, client) = flow.key;
                    if let Some(socket) = ports.udp(service) {
                        let _ = socket.send_to(&self.buffer[..bytes], SocketAddr::V4(client));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    flow.more = false;
                    return;
                }
                // The endpoint refused a datagram: the next one may go to another.
                Err(_) => return self.forget(at),
            }
        }
    }

    /// Forgets clients that are silent, and those of Services that are gone. Whether there is more.
    pub(super) fn tick(&mut self, now: Instant, ports: &Ports) -> bool {
        for at in 0..self.all.len() {
            let Some(flow) = &self.all[at] else { continue };
            let is_idle = now.since_ms(flow.used_at) >= SERVICE_FLOW_IDLE_MS;
            if is_idle || ports.udp(flow.key.0).is_none() {
                self.forget(at);
            } else if flow.more {
                self.answer(at, now, ports);
            }
        }
        self.all.iter().flatten().any(|it| it.more)
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let used_at = self.all.iter().flatten().map(|it| it.used_at).min()?;
        Some(used_at.plus_ms(SERVICE_FLOW_IDLE_MS))
    }
}

fn open(ip: Ipv4Addr, port: u16, registry: &Registry, token: Token) -> io::Result<UdpSocket> {
    let mut socket = UdpSocket::bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
    socket.connect(SocketAddr::new(IpAddr::V4(ip), port))?;
    registry.register(&mut socket, token, Interest::READABLE)?;
    Ok(socket)
}
