//! Those who have dialled and not said yet what they want: bounded, so that whoever holds
//! connections open without a word takes no node's place; and counted, where nothing came of them.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::controller::time::Instant;
use crate::io::log::Limit;
use crate::limits::{EDGE_STRANGER_MS, EDGE_STRANGERS_MAX};

/// All of them, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    all: BTreeSet<(Instant, usize)>,
    counts: [u64; Nonsense::ALL.len()],
    limit: Limit,
    now: Instant,
}

/// Why a connection is refused before anybody asks who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nonsense {
    /// No TLS, or not by what we ask for.
    Tls,
    /// Too slow.
    Late,
    /// No request that anybody would answer.
    Request,
    /// It made room for others.
    Crowded,
    /// There are too many of all kinds.
    Full,
}

impl Nonsense {
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

impl Strangers {
    pub(super) fn begin_turn(&mut self, now: Instant) {
        self.now = now;
    }

    pub(super) fn came(&mut self, at: Instant, slot: usize) {
        self.all.insert((at, slot));
    }

    /// It is gone, or no stranger any more.
    pub(super) fn left(&mut self, at: Instant, slot: usize) {
        self.all.remove(&(at, slot));
    }

    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= EDGE_STRANGERS_MAX
    }

    /// Who has had its time, when others wait.
    pub(super) fn oldest(&self) -> Option<usize> {
        let (at, slot) = *self.all.first()?;
        (at.plus_ms(EDGE_STRANGER_MS) <= self.now).then_some(slot)
    }

    /// When there is room again at the latest; `None`: there is.
    pub(super) fn room_at(&self) -> Option<Instant> {
        let (at, _) = self.all.first().filter(|_| self.is_full())?;
        Some(at.plus_ms(EDGE_STRANGER_MS))
    }

    /// Counts one that is refused, and says so now and then.
    pub(super) fn refused(&mut self, kind: Nonsense, peer: SocketAddr, why: &str) {
        self.counts[kind as usize] += 1;
        if let Some(kept) = self.limit.pass(self.now) {
            log::warn!("peer={peer} is refused: {why}; repeats={kept}");
        }
    }

    /// Why, and how many.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Nonsense::ALL.into_iter().map(|kind| (kind.word(), self.counts[kind as usize]))
    }
}
