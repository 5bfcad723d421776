//! The watchdog was left out: nobody feeds one.
#![expect(clippy::unused_self, reason = "as the one that is not left out")]

use super::event::{Event, Out};
use super::time::Instant;
use crate::model::watchdog::Settings;

/// Nobody.
#[derive(Debug)]
pub struct Watchdog;

impl Watchdog {
    /// Whatever the settings.
    pub fn new(_: &Settings, _: Instant) -> Self {
        Self
    }

    /// Nothing is owed.
    pub fn learn(&mut self, _: &Event) {}

    /// Nothing to do.
    pub fn step(&mut self, _: Instant, _: bool, _: &mut Out) {}

    /// Never.
    pub fn wake_at(&self) -> Option<Instant> {
        None
    }
}
