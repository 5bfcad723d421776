//! Eviction was left out: nobody looks whether the node runs short.
#![expect(clippy::unused_self, reason = "as the one that is not left out")]

use std::collections::{BTreeMap, BTreeSet};

use super::event::{CallId, JobId};
use super::time::Instant;
use crate::model::cri::{CallError, Reply};
use crate::model::housekeeping::{EvictionPolicy, Measures};
use crate::model::job::Used;
use crate::model::node::Pressure;
use crate::model::pod as api;

/// Nobody has to go for it.
pub fn bounds_disk(_: &api::Pod) -> bool {
    false
}

/// Nobody.
#[derive(Debug)]
pub struct EvictionManager;

impl EvictionManager {
    /// Whatever the policy.
    pub fn new(_: &EvictionPolicy, _: u64, _: Instant) -> Self {
        Self
    }

    /// Nothing was asked.
    pub fn up(&mut self) {}

    /// They are for others.
    pub fn measured(&mut self, _: &Measures) {}

    /// It is another's.
    pub fn answer(&mut self, _: CallId, _: &Result<Reply, CallError>) -> bool {
        false
    }

    /// It is another's.
    pub fn used(&mut self, _: JobId, _: Option<Vec<Option<Used>>>) -> bool {
        false
    }

    /// Nothing is known.
    pub fn take_pressures(&mut self) -> Option<BTreeSet<Pressure>> {
        None
    }

    /// Nobody.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }

    /// Never.
    pub fn due_at(&self) -> Option<Instant> {
        None
    }
}
