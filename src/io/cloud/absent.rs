//! The link to a cloud was left out: none is ever dialled.

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::Instant;

/// Nothing.
#[derive(Debug)]
pub struct Cloud;

impl Cloud {
    /// No token is.
    pub fn owns(&self, _: Token) -> bool {
        false
    }

    /// Nothing to do.
    pub fn ready(&mut self, _: &Ready) {}

    /// Nothing to do.
    pub fn tick(&mut self, _: Instant, _: &Registry, _: &mut Vec<Event>) {}

    /// Nothing to do.
    pub fn flush(&mut self, _: Instant, _: &mut Vec<Event>) {}

    /// Never.
    pub fn wake_at(&self) -> Option<Instant> {
        None
    }

    /// None of ours.
    pub fn reap(&mut self) {}
}
