//! Which endpoint of a Service a connection goes to: each time the next one, or for a Service with
//! affinity the one that its client had.
//!
//! Affinity is of one client address and one Service, and lasts until no connection was made for
//! the Service's time. It ends with its endpoint, and when that takes no connection. In memory
//! only: if the process that serves Services ends, clients are spread anew.

use core::net::Ipv4Addr;

use crate::agent::time::Instant;
use crate::limits::AFFINITY_CLIENTS_MAX;
use crate::model::map::Map;
use crate::model::service::{Endpoint, ServiceEntry};

/// Namespace, name, client.
type Key = (Box<str>, Box<str>, Ipv4Addr);

#[derive(Debug, Default)]
pub struct Balance {
    turn: usize,
    /// The endpoint's address, and the time of the last connection.
    clients: Map<Key, (Ipv4Addr, Instant)>,
}

impl Balance {
    /// The endpoint for a new connection to the port at this place of the Service, which none of
    /// `failed` is. `None`: there is no other one.
    pub fn choose(
        &mut self,
        now: Instant,
        service: &ServiceEntry,
        port: usize,
        client: Ipv4Addr,
        failed: &[Ipv4Addr],
    ) -> Option<(Ipv4Addr, u16)> {
        let number = |it: &Endpoint| it.ports.get(port).copied().filter(|number| *number > 0);
        let able = |it: &&Endpoint| number(it).is_some() && !failed.contains(&it.ip);
        let all: Vec<&Endpoint> = service.endpoints.iter().filter(able).collect();
        let key = || (service.namespace.clone(), service.name.clone(), client);
        if service.affinity_s > 0
            && let Some((ip, at)) = self.clients.get_mut(&key())
        {
            let is_fresh = now.since_ms(*at) <= u64::from(service.affinity_s) * 1_000;
            if let Some(same) = all.iter().find(|it| it.ip == *ip).filter(|_| is_fresh) {
                *at = now;
                return Some((same.ip, number(same)?));
            }
        }
        self.turn = self.turn.wrapping_add(1);
        let next = *all.get(self.turn % all.len().max(1))?;
        if service.affinity_s > 0 {
            self.make_room();
            self.clients.insert(key(), (next.ip, now));
        }
        Some((next.ip, number(next)?))
    }

    /// Clients whose endpoint is remembered.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    fn make_room(&mut self) {
        if self.clients.len() < AFFINITY_CLIENTS_MAX {
            return;
        }
        let oldest = self.clients.iter().min_by_key(|(_, (_, at))| *at);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.clients.remove(&key);
        }
    }
}
