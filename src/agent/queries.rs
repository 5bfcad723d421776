//! Pending network queries of probes and hooks: their pods, and the bound of their number.
//!
//! Like [`super::calls`] for the runtime. Not persistent: after a restart the queries are made
//! again.

use std::collections::BTreeMap;

use super::calls::Uid;
use super::event::{Action, Out, ProbeId};
use super::time::Instant;
use crate::limits;
use crate::model::net::Query;

/// All pending queries.
#[derive(Debug, Default)]
pub struct Queries {
    open: BTreeMap<ProbeId, Uid>,
    last: u64,
}

impl Queries {
    /// Whether one more may begin.
    pub fn has_room(&self) -> bool {
        self.open.len() < limits::PROBE_CONNECTIONS_MAX
    }

    /// Requests a query. There must be room: see [`Queries::has_room`].
    pub fn begin(&mut self, uid: &Uid, query: Query, deadline: Instant, out: &mut Out) -> ProbeId {
        assert!(self.has_room(), "a query beyond the bound: {query:?}");
        self.last += 1;
        let probe = ProbeId(self.last);
        self.open.insert(probe, uid.clone());
        out.push(Action::Probe { probe, query, deadline });
        probe
    }

    /// Removes an answered query. `None`: it was cancelled while its answer was on the way.
    pub fn end(&mut self, probe: ProbeId) -> Option<Uid> {
        self.open.remove(&probe)
    }

    /// Cancels a query: no answer will come.
    pub fn cancel(&mut self, probe: ProbeId, out: &mut Out) {
        let ended = self.end(probe);
        assert!(ended.is_some(), "cancelled {probe:?}, which is not under way");
        out.push(Action::CancelProbe(probe));
    }
}
