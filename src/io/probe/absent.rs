//! Probes and hooks were left out: nobody asks for a connection, and none is ever open.

use std::collections::BTreeMap;
use std::path::Path;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::event::{Event, ProbeId};
use crate::agent::time::Instant;
use crate::model::cri::ContainerId;
use crate::model::net::Query;
use crate::model::probe::ProbeResults;

/// Nothing.
#[derive(Debug)]
pub struct Probes;

impl Probes {
    /// Nothing.
    pub fn new(_: Token) -> Self {
        Self
    }

    /// There are no results to load.
    #[must_use]
    pub fn saving_results(self, _: &Path, _: &mut Vec<Event>) -> Self {
        self
    }

    /// Nor any to save.
    pub fn save_results(&self, _: &BTreeMap<ContainerId, ProbeResults>) {}

    /// No token is.
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

    /// Nothing to do.
    pub fn cancel(&mut self, _: ProbeId) {}

    /// Nothing to do.
    pub fn ready(&mut self, _: &Ready) {}

    /// Nothing to do.
    pub fn tick(&mut self, _: Instant, _: &Registry, _: &mut Vec<Event>) {}

    /// Never.
    pub fn wake_at(&self) -> Option<Instant> {
        None
    }
}
