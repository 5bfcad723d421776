//! The watchdog was left out: there is no device to stop.
#![expect(clippy::unused_self, reason = "as the one that is not left out")]

use crate::model::watchdog::Settings;

/// None.
#[derive(Debug)]
pub struct Watchdog;

impl Watchdog {
    /// Whatever the settings.
    pub fn new(_: &Settings) -> Self {
        Self
    }

    /// Nothing to stop.
    pub fn close(&mut self) {}
}
