//! Probe queries over the network, and their results.

use edged::agent::event::{Event, ProbeId};
use edged::agent::time::Instant;
use edged::model::net::{Finding, Query};

use crate::check::probes::CheckKind;
use crate::rule::judge;
use crate::runtime::ContainerNo;
use crate::trace::trace;
use crate::world::{World, WorldEvent};

/// A query under way.
pub struct Asking {
    /// The container that has the port.
    number: Option<ContainerNo>,
    what: CheckKind,
    /// The query gets no answer in time.
    lost: bool,
}

impl World {
    pub(crate) fn start_query(&mut self, id: ProbeId, query: Query, deadline: Instant) {
        let deadline = self.clocks.world_time(deadline);
        trace!(self.clocks.now(), "{id:?} {query:?}");
        self.tally.add("queries");
        judge!(deadline > self.clocks.now(), "[deadline] {id:?} has a deadline before its request");
        let http = matches!(query, Query::Http(_));
        judge!(http, "[probes] no manifest has {query:?}");
        let Query::Http(get) = query else { return };
        let number = self.runtime.listens(get.port);
        // The container may have been removed since: then the target is unknown.
        let last = || {
            self.runtime.last_on(&get.host, get.port).filter(|&it| self.check.instances.is_last(it))
        };
        if let Some(container) = number.or_else(last) {
            self.check.query_requested(
                self.clocks.now(),
                &self.runtime,
                id,
                container,
                &get.target,
            );
        }
        let lost = self.chance.percent(self.faults.mute_pct);
        let ms = 1 + self.chance.spread(self.faults.latency_ms);
        let lost = lost || self.clocks.now() + ms >= deadline;
        let ms = if lost { deadline - self.clocks.now() } else { ms };
        let life = self.life;
        self.at(ms, WorldEvent::QueryEnds(life, id));
        self.queries.insert(id, Asking { number, what: CheckKind::of(&get.target), lost });
    }

    pub(crate) fn cancel_query(&mut self, id: ProbeId) {
        trace!(self.clocks.now(), "{id:?} cancelled");
        self.check.query_answered(self.clocks.now(), id, None);
        let is_answer =
            |event: &Event| matches!(event, Event::Probe(answered, _) if *answered == id);
        let in_inbox = self.turns.withdraw(is_answer);
        let open = self.queries.remove(&id).is_some();
        judge!(open || in_inbox, "[cancel] {id:?} is not under way");
    }

    pub(crate) fn query_ends(&mut self, life: u32, id: ProbeId) {
        if life != self.life {
            return;
        }
        let Some(asking) = self.queries.remove(&id) else { return };
        let well = asking.number.and_then(|number| self.runtime.is_well(self.clocks.now(), number));
        let finding = match well {
            _ if asking.lost => Finding::Bad("i/o timeout".to_owned()),
            None => Finding::Bad("connect: connection refused".to_owned()),
            Some(true) => Finding::Good,
            Some(false) => Finding::Bad("HTTP probe failed with statuscode: 500".to_owned()),
        };
        self.tally.add(if finding == Finding::Good { "probes well" } else { "probes failed" });
        trace!(self.clocks.now(), "{id:?} {:?} → {finding:?}", asking.what);
        self.deliver(vec![Event::Probe(id, finding)]);
    }
}
