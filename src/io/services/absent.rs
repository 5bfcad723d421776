//! Services by name are not built in (feature `services`).

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::config::Config;

#[derive(Debug)]
pub struct Services;

impl Services {
    pub fn new(_config: &Config, _token: Token) -> Self {
        Self
    }

    pub fn owns(&self, _token: Token) -> bool {
        false
    }

    pub fn ready(&mut self, _ready: &Ready) {}

    pub fn reap(&mut self) {}

    pub fn tick(&mut self, _now: Instant, _registry: &Registry, _events: &mut Vec<Event>) {}

    pub fn flush(&mut self, _now: Instant) {}

    pub fn wake_at(&self) -> Option<Instant> {
        None
    }
}
