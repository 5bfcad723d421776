//! What is asked over the network for probes and hooks, and the health that it finds.

use edged::agent::event::{Event, ProbeId};
use edged::agent::time::Instant;
use edged::model::net::{Finding, Query};

use crate::trace::trace;
use crate::world::{Thing, World};

impl World {
    pub(crate) fn start_query(&mut self, id: ProbeId, query: Query, deadline: Instant) {
        let deadline = self.world_time(deadline);
        trace!(self.now, "{id:?} {query:?}");
        let ms = (1 + self.chance.spread(self.faults.latency_ms)).min(deadline - self.now);
        let life = self.life;
        self.at(ms, Thing::QueryEnds(life, id));
        self.queries.insert(id, query);
    }

    pub(crate) fn cancel_query(&mut self, id: ProbeId) {
        let known = self.queries.remove(&id);
        assert!(known.is_some(), "[cancel] {id:?} is not under way");
    }

    pub(crate) fn query_ends(&mut self, life: u32, id: ProbeId) {
        if life != self.life || self.queries.remove(&id).is_none() {
            return;
        }
        self.tell(vec![Event::Probe(id, Finding::Good)]);
    }
}
