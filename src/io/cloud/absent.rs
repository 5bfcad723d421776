//! The link to a cloud is not built in: no cloud is ever connected.

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::Instant;

#[derive(Debug)]
pub struct Cloud;

impl Cloud {
    pub fn owns(&self, _: Token) -> bool {
        false
    }

    pub fn ready(&mut self, _: &Ready) {}

    pub fn tick(&mut self, _: Instant, _: &Registry, _: &mut Vec<Event>) {}

    pub fn flush(&mut self, _: Instant, _: &mut Vec<Event>) {}

    pub fn wake_at(&self) -> Option<Instant> {
        None
    }

    /// No child is ours.
    pub fn reap(&mut self) {}
}
