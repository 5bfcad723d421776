//! Accepted connections that wait for a slot: in the kernel's own queue one address could
//! block all others. Each costs a socket, and no TLS.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use super::strangers::Origin;
use crate::controller::time::Instant;
use crate::limits::{EDGE_WAITING_MAX, EDGE_WAITING_MS};

/// Those of one port, in order of arrival.
#[derive(Debug)]
pub(super) struct Waiting<Stream> {
    all: VecDeque<(Stream, SocketAddr, Instant)>,
    by_origin: BTreeMap<Origin, usize>,
}

impl<Stream> Default for Waiting<Stream> {
    fn default() -> Self {
        Self { all: VecDeque::new(), by_origin: BTreeMap::new() }
    }
}

impl<Stream> Waiting<Stream> {
    /// Adds one, unless there are too many, or too many from this address.
    pub(super) fn push(&mut self, stream: Stream, peer: SocketAddr, now: Instant) -> bool {
        let origin = Origin::of(peer);
        let theirs = self.by_origin.get(&origin).copied().unwrap_or_default();
        // The rest is for other addresses.
        if self.all.len() >= EDGE_WAITING_MAX || theirs >= EDGE_WAITING_MAX / 2 {
            return false;
        }
        self.by_origin.insert(origin, theirs + 1);
        self.all.push_back((stream, peer, now));
        true
    }

    /// The next connection, and when it has waited too long.
    pub(super) fn first(&self) -> Option<(SocketAddr, Instant)> {
        self.all.front().map(|(_, peer, at)| (*peer, at.plus_ms(EDGE_WAITING_MS)))
    }

    pub(super) fn pop(&mut self) -> Option<(Stream, SocketAddr)> {
        let (stream, peer, _) = self.all.pop_front()?;
        let origin = Origin::of(peer);
        if let Some(theirs) = self.by_origin.get_mut(&origin) {
            *theirs -= 1;
            if *theirs == 0 {
                self.by_origin.remove(&origin);
            }
        }
        Some((stream, peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_takes_half_of_the_queue() {
        let peer = |text: &str| SocketAddr::new(text.parse().expect("an address"), 4_000);
        let mut waiting = Waiting::default();
        let pushed = |waiting: &mut Waiting<usize>, from: &str| {
            (0..2 * EDGE_WAITING_MAX).filter(|at| waiting.push(*at, peer(from), Instant(7))).count()
        };
        assert_eq!(pushed(&mut waiting, "192.0.2.1"), EDGE_WAITING_MAX / 2);
        assert_eq!(pushed(&mut waiting, "192.0.2.2"), EDGE_WAITING_MAX / 2);
        assert_eq!(pushed(&mut waiting, "192.0.2.3"), 0, "it is full");
        assert_eq!(waiting.first(), Some((peer("192.0.2.1"), Instant(7 + EDGE_WAITING_MS))));
        assert_eq!(waiting.pop(), Some((0, peer("192.0.2.1"))));
        assert!(waiting.push(9, peer("192.0.2.1"), Instant(8)));
        while waiting.pop().is_some() {}
        assert_eq!((waiting.all.len(), waiting.by_origin.len()), (0, 0));
    }
}
