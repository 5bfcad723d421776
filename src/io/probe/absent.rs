//! Probes and hooks are not built in: no connection is requested or open.

use std::path::Path;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::event::{Event, ProbeId};
use crate::agent::time::Instant;
use crate::model::cri::ContainerId;
use crate::model::map::Map;
use crate::model::net::Query;
use crate::model::probe::ProbeResults;

#[derive(Debug)]
pub struct Probes;

impl Probes {
    pub fn new(_: Token) -> Self {
        Self
    }

    /// There are no results to load.
    #[must_use]
    pub fn saving_results(self, _: &Path, _: &mut Vec<Event>) -> Self {
        self
    }

    pub fn save_results(&self, _: &Map<ContainerId, ProbeResults>) {}

    pub fn owns(&self, _: Token) -> bool {
        false
    }

    /// Never called: a pod with probes is refused.
    pub fn start(
        &mut self,
        probe: ProbeId,
        _: Query,
        _: Instant,
        _: &Registry,
        _: &mut Vec<Event>,
    ) {
        unreachable!("{probe:?} in a build without probes");
    }

    pub fn cancel(&mut self, _: ProbeId) {}

    pub fn ready(&mut self, _: &Ready) {}

    pub fn tick(&mut self, _: Instant, _: &Registry, _: &mut Vec<Event>) {}

    pub fn wake_at(&self) -> Option<Instant> {
        None
    }
}
