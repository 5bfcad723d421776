//! Eviction is not built in: pressures are not measured.
#![expect(clippy::unused_self, reason = "same interface as the full version")]

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::time::Instant;
use crate::model::housekeeping::{EvictionPolicy, Measures};
use crate::model::node::Pressure;

#[derive(Debug)]
pub struct EvictionManager;

impl EvictionManager {
    pub fn new(_: &EvictionPolicy, _: u64, _: Instant) -> Self {
        Self
    }

    pub fn up(&mut self) {}

    pub fn measured(&mut self, _: &Measures) {}

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
