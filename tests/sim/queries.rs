//! What is asked over the network for probes, and the health that it finds.

use edged::agent::event::{Event, ProbeId};
use edged::agent::time::Instant;
use edged::model::net::{Finding, Query};

use crate::check::probes::Asked;
use crate::rule::judge;
use crate::runtime::ContainerNo;
use crate::trace::trace;
use crate::world::{Thing, World};

/// A query under way.
pub struct Asking {
    /// Whom: the container whose port it is.
    number: Option<ContainerNo>,
    what: Asked,
    /// Nobody answers in time.
    lost: bool,
}

impl World {
    pub(crate) fn start_query(&mut self, id: ProbeId, query: Query, deadline: Instant) {
        let deadline = self.world_time(deadline);
        trace!(self.now, "{id:?} {query:?}");
        self.tally.add("queries");
        judge!(deadline > self.now, "[deadline] {id:?} is to be answered before it is asked");
        let http = matches!(query, Query::Http(_));
        judge!(http, "[probes] no manifest asks for {query:?}");
        let Query::Http(get) = query else { return };
        let number = self.runtime.listens(get.port);
        // One that was there since may be gone already: then nobody knows who is meant.
        let last =
            || self.runtime.last_on(&get.host, get.port).filter(|&it| self.check.is_last(it));
        if let Some(asked) = number.or_else(last) {
            self.check.query_asked(self.now, &self.runtime, id, asked, &get.target);
        }
        let lost = self.chance.percent(self.faults.mute_pct);
        let ms = 1 + self.chance.spread(self.faults.latency_ms);
        let lost = lost || self.now + ms >= deadline;
        let ms = if lost { deadline - self.now } else { ms };
        let life = self.life;
        self.at(ms, Thing::QueryEnds(life, id));
        self.queries.insert(id, Asking { number, what: Asked::of(&get.target), lost });
    }

    pub(crate) fn cancel_query(&mut self, id: ProbeId) {
        trace!(self.now, "{id:?} cancelled");
        self.check.query_told(self.now, id, None);
        let is_answer = |event: &Event| matches!(event, Event::Probe(told, _) if *told == id);
        let in_inbox = self.inbox.iter_mut().any(|bundle| {
            let before = bundle.len();
            bundle.retain(|event| !is_answer(event));
            bundle.len() < before
        });
        let open = self.queries.remove(&id).is_some();
        judge!(open || in_inbox, "[cancel] {id:?} is not under way");
    }

    pub(crate) fn query_ends(&mut self, life: u32, id: ProbeId) {
        if life != self.life {
            return;
        }
        let Some(asking) = self.queries.remove(&id) else { return };
        let well = asking.number.and_then(|number| self.runtime.is_well(self.now, number));
        let finding = match well {
            _ if asking.lost => Finding::Bad("i/o timeout".to_owned()),
            None => Finding::Bad("connect: connection refused".to_owned()),
            Some(true) => Finding::Good,
            Some(false) => Finding::Bad("HTTP probe failed with statuscode: 500".to_owned()),
        };
        self.tally.add(if finding == Finding::Good { "probes well" } else { "probes failed" });
        trace!(self.now, "{id:?} {:?} → {finding:?}", asking.what);
        self.tell(vec![Event::Probe(id, finding)]);
    }
}
