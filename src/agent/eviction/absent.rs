//! Eviction is not built in: pressures are not measured.
#![expect(clippy::unused_self, reason = "same interface as the full version")]

use std::collections::{BTreeMap, BTreeSet};

use super::event::{CallId, JobId};
use super::time::Instant;
use crate::model::cri::{CallError, Reply};
use crate::model::housekeeping::{EvictionPolicy, Measures};
use crate::model::job::Used;
use crate::model::node::Pressure;
use crate::model::pod as api;

/// No pod is evicted for its disk usage.
pub fn bounds_disk(_: &api::Pod) -> bool {
    false
}

#[derive(Debug)]
pub struct EvictionManager;

impl EvictionManager {
    pub fn new(_: &EvictionPolicy, _: u64, _: Instant) -> Self {
        Self
    }

    pub fn up(&mut self) {}

    pub fn measured(&mut self, _: &Measures) {}

    /// It is another task's call.
    pub fn answer(&mut self, _: CallId, _: &Result<Reply, CallError>) -> bool {
        false
    }

    /// It is another task's job.
    pub fn used(&mut self, _: JobId, _: Option<Vec<Option<Used>>>) -> bool {
        false
    }

    pub fn take_pressures(&mut self) -> Option<BTreeSet<Pressure>> {
        None
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }

    pub fn due_at(&self) -> Option<Instant> {
        None
    }
}
