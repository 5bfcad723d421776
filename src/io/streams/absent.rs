//! Requests of people are not built in (feature `streams`): their paths are unknown.

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::{Instant, Now};

/// Never created.
#[derive(Clone, Copy, Debug)]
pub enum Handover {}

#[derive(Debug)]
pub struct Streams;

impl Streams {
    pub fn owns(&self, _token: Token) -> bool {
        false
    }

    pub fn ready(&mut self, _ready: &Ready) {}

    pub fn serve(&mut self, it: Handover, _: Instant, _: &Registry, _: &mut Vec<Event>) {
        match it {}
    }

    pub fn tick(&mut self, _: Now, _: &Registry, _: &mut Vec<Event>) {}

    pub fn reap(&mut self) {}

    pub fn wake_at(&self) -> Option<Instant> {
        None
    }
}
