//! Devices are not built in: no client and no mapper is connected.

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::{Instant, Now};
use crate::config::Config;

#[derive(Debug)]
pub struct Devices;

impl Devices {
    pub fn new(_: &Config, _: Token, _: Instant) -> Self {
        Self
    }

    pub fn owns(&self, _: Token) -> bool {
        false
    }

    pub fn ready(&mut self, _: &Ready) {}

    pub fn tick(&mut self, _: Now, _: &Registry, _: &mut Vec<Event>) {}

    pub fn flush(&mut self, _: Instant, _: &Registry, _: &mut Vec<Event>) {}

    pub fn wake_at(&self) -> Option<Instant> {
        None
    }

    pub fn reap(&mut self) {}

    pub fn retry(&mut self) {}
}
