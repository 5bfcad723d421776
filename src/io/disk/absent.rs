//! In the place of the store where it was left out (feature `cloud`).

use std::io;

use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::config::Config;
use crate::limits::Budget;

/// Nothing.
#[derive(Debug)]
pub struct Store;

impl Store {
    /// There is nothing to open.
    pub fn open(_config: &Config, _budget: &Budget, _events: &mut Vec<Event>) -> io::Result<Self> {
        Ok(Self)
    }

    /// Nobody asks.
    pub fn commit(&mut self, _now: Instant, _events: &mut Vec<Event>) {}

    /// Nothing to close.
    pub fn close(&mut self) {}
}
