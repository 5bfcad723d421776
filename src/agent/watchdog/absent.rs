//! The watchdog is not built in.
#![expect(clippy::unused_self, reason = "same interface as the full version")]

use super::event::{Event, Out};
use super::time::Instant;
use crate::model::watchdog::Settings;

#[derive(Debug)]
pub struct Watchdog;

impl Watchdog {
    pub fn new(_: &Settings, _: Instant) -> Self {
        Self
    }

    pub fn learn(&mut self, _: &Event) {}

    pub fn step(&mut self, _: Instant, _: bool, _: &mut Out) {}

    pub fn wake_at(&self) -> Option<Instant> {
        None
    }
}
