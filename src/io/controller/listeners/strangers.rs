//! Limits the connections that have not sent a request yet, so that peers that hold connections
//! open take no slots from nodes; and counts those that were refused.
//!
//! Each port has its slots. When they are full, a connection from an address with fewer of them
//! replaces another: the oldest of the address with the most. So one address, however many
//! connections it opens, displaces only its own. Among equals, as when all gateways behind one
//! router connect at once, no connection is displaced before its time: a newcomer waits,
//! without TLS, for a slot. A connection that is authenticated and has sent a request is no longer
//! counted here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::Door;
use crate::controller::time::Instant;
use crate::io::log::Limit;
use crate::limits::{
    EDGE_SILENT_MS, EDGE_UNIDENTIFIED_HTTPS_MAX, EDGE_UNIDENTIFIED_MAX, EDGE_UNIDENTIFIED_MS,
    EDGE_UNIDENTIFIED_TUNNELS_MAX, UNIDENTIFIED_API_SERVERS_MAX,
};

/// The connections of all ports.
#[derive(Debug)]
pub(super) struct Strangers {
    hub: Crowd,
    https: Crowd,
    tunnel: Crowd,
    api_server: Crowd,
    counts: [u64; RefusalReason::ALL.len()],
    limit: Limit,
    now: Instant,
}

/// The connections of one port.
#[derive(Debug)]
struct Crowd {
    max: usize,
    all: BTreeMap<Id, Origin>,
    /// Those of each address, in order of arrival.
    by_origin: BTreeMap<Origin, BTreeSet<Id>>,
    /// The addresses, by their number of connections.
    sizes: BTreeSet<(usize, Origin)>,
    /// Those that have not sent a byte.
    silent: BTreeSet<Id>,
    /// The others.
    active: BTreeSet<Id>,
}

/// The time of arrival, and the slot.
type Id = (Instant, usize);

/// An address as the unit of fairness: for IPv6 the /64 network, which may belong to one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin(u64);

impl Origin {
    pub(super) fn of(peer: SocketAddr) -> Self {
        match peer.ip().to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits())),
            // No IPv6 network begins with 32 zero bits.
            IpAddr::V6(address) => Self((Ipv6Addr::to_bits(address) >> 64) as u64),
        }
    }
}

/// Whether there is a slot for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// If the connection in this slot is closed.
    Instead(usize),
    None,
}

/// Why a connection is refused before authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalReason {
    /// No TLS, or an incompatible one.
    Tls,
    /// Too slow.
    Late,
    /// Not a valid request.
    Request,
    /// It was displaced by others, or there was no slot for it.
    Crowded,
    /// There are too many connections in total.
    Full,
}

impl RefusalReason {
    const ALL: [Self; 5] = [Self::Tls, Self::Late, Self::Request, Self::Crowded, Self::Full];

    fn word(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Late => "late",
            Self::Request => "request",
            Self::Crowded => "crowded",
            Self::Full => "full",
        }
    }
}

impl Default for Strangers {
    fn default() -> Self {
        Self {
            hub: Crowd::new(EDGE_UNIDENTIFIED_MAX),
            https: Crowd::new(EDGE_UNIDENTIFIED_HTTPS_MAX),
            tunnel: Crowd::new(EDGE_UNIDENTIFIED_TUNNELS_MAX),
            api_server: Crowd::new(UNIDENTIFIED_API_SERVERS_MAX),
            counts: Default::default(),
            limit: Limit::default(),
            now: Instant::default(),
        }
    }
}

impl Strangers {
    pub(super) fn begin_turn(&mut self, now: Instant) {
        self.now = now;
    }

    pub(super) fn came(&mut self, door: Door, peer: SocketAddr, at: Instant, slot: usize) {
        self.crowd(door).came(Origin::of(peer), (at, slot));
    }

    /// Its first bytes were received.
    pub(super) fn received(&mut self, door: Door, at: Instant, slot: usize) {
        let crowd = self.crowd(door);
        if crowd.silent.remove(&(at, slot)) {
            crowd.active.insert((at, slot));
        }
    }

    /// It has ended, or has sent a request.
    pub(super) fn left(&mut self, door: Door, at: Instant, slot: usize) {
        self.crowd(door).left((at, slot));
    }

    /// Whether a connection from this peer gets a slot.
    pub(super) fn room(&self, door: Door, peer: SocketAddr) -> Room {
        match door {
            Door::Hub => self.hub.room(Origin::of(peer), self.now),
            Door::Https => self.https.room(Origin::of(peer), self.now),
            Door::Tunnel => self.tunnel.room(Origin::of(peer), self.now),
            Door::ApiServer => self.api_server.room(Origin::of(peer), self.now),
        }
    }

    /// When there is room for waiting connections, at the latest.
    pub(super) fn room_at(&self, door: Door) -> Instant {
        match door {
            Door::Hub => self.hub.room_at(),
            Door::Https => self.https.room_at(),
            Door::Tunnel => self.tunnel.room_at(),
            Door::ApiServer => self.api_server.room_at(),
        }
    }

    fn crowd(&mut self, door: Door) -> &mut Crowd {
        match door {
            Door::Hub => &mut self.hub,
            Door::Https => &mut self.https,
            Door::Tunnel => &mut self.tunnel,
            Door::ApiServer => &mut self.api_server,
        }
    }

    /// Counts a refused connection, and logs it with a rate limit.
    pub(super) fn refused(&mut self, kind: RefusalReason, peer: SocketAddr, why: &str) {
        self.counts[kind as usize] += 1;
        if let Some(repeats) = self.limit.pass(self.now) {
            log::warn!("peer={peer} is refused: {why}; repeats={repeats}");
        }
    }

    /// The reasons, and their numbers.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        RefusalReason::ALL.into_iter().map(|kind| (kind.word(), self.counts[kind as usize]))
    }
}

impl Crowd {
    fn new(max: usize) -> Self {
        Self {
            max,
            all: BTreeMap::new(),
            by_origin: BTreeMap::new(),
            sizes: BTreeSet::new(),
            silent: BTreeSet::new(),
            active: BTreeSet::new(),
        }
    }

    fn came(&mut self, origin: Origin, id: Id) {
        self.all.insert(id, origin);
        self.silent.insert(id);
        let theirs = self.by_origin.entry(origin).or_default();
        self.sizes.remove(&(theirs.len(), origin));
        theirs.insert(id);
        self.sizes.insert((theirs.len(), origin));
    }

    fn left(&mut self, id: Id) {
        let Some(origin) = self.all.remove(&id) else { return };
        self.silent.remove(&id);
        self.active.remove(&id);
        let Some(theirs) = self.by_origin.get_mut(&origin) else { return };
        self.sizes.remove(&(theirs.len(), origin));
        theirs.remove(&id);
        if theirs.is_empty() {
            self.by_origin.remove(&origin);
        } else {
            self.sizes.insert((theirs.len(), origin));
        }
    }

    fn room(&self, origin: Origin, now: Instant) -> Room {
        if self.all.len() < self.max {
            return Room::Free;
        }
        let theirs = self.by_origin.get(&origin).map_or(0, BTreeSet::len);
        if let Some((count, busiest)) = self.sizes.last()
            && *count > theirs + 1
            && let Some((_, slot)) = self.by_origin.get(busiest).and_then(BTreeSet::first)
        {
            return Room::Instead(*slot);
        }
        let over = |ids: &BTreeSet<Id>, ms| {
            ids.first().filter(|(at, _)| at.plus_ms(ms) <= now).map(|(_, slot)| *slot)
        };
        let slot = over(&self.silent, EDGE_SILENT_MS);
        slot.or_else(|| over(&self.active, EDGE_UNIDENTIFIED_MS)).map_or(Room::None, Room::Instead)
    }

    fn room_at(&self) -> Instant {
        if self.all.len() < self.max {
            return Instant(0);
        }
        let silent = self.silent.first().map(|(at, _)| at.plus_ms(EDGE_SILENT_MS));
        let active = self.active.first().map(|(at, _)| at.plus_ms(EDGE_UNIDENTIFIED_MS));
        silent.into_iter().chain(active).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().expect("an address"), 4_000)
    }

    /// The hub is full of connections from these addresses in turn; one came each millisecond.
    fn full(addresses: &[&str]) -> Strangers {
        let mut all = Strangers::default();
        for slot in 0..EDGE_UNIDENTIFIED_MAX {
            let from = peer(addresses[slot % addresses.len()]);
            assert_eq!(all.room(Door::Hub, from), Room::Free);
            all.came(Door::Hub, from, Instant(slot as u64), slot);
        }
        all
    }

    #[test]
    fn one_address_keeps_out_nobody_but_itself() {
        let mut all = full(&["192.0.2.1"]);
        all.begin_turn(Instant(10));
        assert_eq!(all.room(Door::Hub, peer("192.0.2.1")), Room::None, "it has all places");
        // However many connections come from elsewhere: each gets a slot at once, up to equal
        // shares.
        for at in 0..EDGE_UNIDENTIFIED_MAX / 2 {
            let Room::Instead(slot) = all.room(Door::Hub, peer("192.0.2.2")) else {
                panic!("{at}")
            };
            assert_eq!(slot, at, "the oldest of the busiest goes");
            all.left(Door::Hub, Instant(slot as u64), slot);
            all.came(Door::Hub, peer("192.0.2.2"), Instant(5_000), slot);
        }
        assert_eq!(all.room(Door::Hub, peer("192.0.2.2")), Room::None, "they have as many");
        assert!(matches!(all.room(Door::Hub, peer("192.0.2.3")), Room::Instead(_)));
        assert_eq!(all.room(Door::Https, peer("192.0.2.1")), Room::Free, "a port of its own");
    }

    #[test]
    fn gateways_behind_one_address_are_served_in_turn() {
        let mut all = full(&["192.0.2.1"]);
        for slot in 0..EDGE_UNIDENTIFIED_MAX {
            if slot != 700 {
                all.received(Door::Hub, Instant(slot as u64), slot);
            }
        }
        let newcomer = peer("192.0.2.1");
        // A handshake in progress is not displaced by its own address; a silent connection is.
        assert_eq!(all.room_at(Door::Hub), Instant(700 + EDGE_SILENT_MS));
        all.begin_turn(Instant(699 + EDGE_SILENT_MS));
        assert_eq!(all.room(Door::Hub, newcomer), Room::None);
        all.begin_turn(Instant(700 + EDGE_SILENT_MS));
        assert_eq!(all.room(Door::Hub, newcomer), Room::Instead(700));
        all.left(Door::Hub, Instant(700), 700);
        assert_eq!(all.room(Door::Hub, newcomer), Room::Free);
        assert_eq!(all.room_at(Door::Hub), Instant(0));
        all.came(Door::Hub, newcomer, Instant(9_999), 700);
        // In the end each is displaced.
        all.begin_turn(Instant(EDGE_UNIDENTIFIED_MS));
        assert_eq!(all.room(Door::Hub, newcomer), Room::Instead(0));
    }

    #[test]
    fn each_port_has_places_of_its_own() {
        let from = peer("192.0.2.1");
        for (door, other, most) in [
            (Door::Hub, Door::Https, EDGE_UNIDENTIFIED_MAX),
            (Door::Https, Door::Hub, EDGE_UNIDENTIFIED_HTTPS_MAX),
            (Door::Tunnel, Door::Hub, EDGE_UNIDENTIFIED_TUNNELS_MAX),
            (Door::ApiServer, Door::Tunnel, UNIDENTIFIED_API_SERVERS_MAX),
        ] {
            let mut all = Strangers::default();
            for slot in 0..most {
                assert_eq!(all.room(door, from), Room::Free, "{door:?} {slot}");
                all.came(door, from, Instant(0), slot);
            }
            assert_eq!((all.room(door, from), all.room(other, from)), (Room::None, Room::Free));
            all.left(door, Instant(0), 0);
            assert_eq!(all.room(door, from), Room::Free);
        }
    }

    #[test]
    fn many_addresses_with_one_each_are_equals() {
        let addresses: Vec<String> = (0..EDGE_UNIDENTIFIED_MAX)
            .map(|at| format!("10.0.{}.{}", at / 256, at % 256))
            .collect();
        let addresses: Vec<&str> = addresses.iter().map(|text| &**text).collect();
        let all = full(&addresses);
        assert_eq!(all.room(Door::Hub, peer("192.0.2.1")), Room::None, "a storm of nodes");
    }

    #[test]
    fn of_ipv6_the_network_counts() {
        let same = |one, other| Origin::of(peer(one)) == Origin::of(peer(other));
        assert!(same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
        assert!(!same("2001:db8:0:1::1", "2001:db8:0:2::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }

    #[test]
    fn nothing_is_left_of_those_who_are_gone() {
        let mut all = full(&["192.0.2.1", "192.0.2.2"]);
        for slot in 0..EDGE_UNIDENTIFIED_MAX {
            all.received(Door::Hub, Instant(slot as u64), slot);
            all.left(Door::Hub, Instant(slot as u64), slot);
            all.left(Door::Hub, Instant(slot as u64), slot);
        }
        let Crowd { all, by_origin, sizes, silent, active, .. } = &all.hub;
        assert!(all.is_empty() && by_origin.is_empty() && sizes.is_empty());
        assert!(silent.is_empty() && active.is_empty());
    }
}
