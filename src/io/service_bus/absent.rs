//! ServiceBus is not built in: it has no sockets.

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::config::Config;

#[derive(Debug)]
pub struct ServiceBus;

impl ServiceBus {
    pub fn new(_: &Config, _: Token) -> Self {
        Self
    }

    pub fn owns(&self, _: Token) -> bool {
        false
    }

    pub fn ready(&mut self, _: &Ready) {}

    pub fn tick(&mut self, _: Instant, _: &Registry, _: &mut Vec<Event>) {}

    pub fn wake_at(&self) -> Option<Instant> {
        None
    }
}
