//! Replaces the core of ServiceBus in builds without it (feature `servicebus`).

use super::meta::Meta;
use super::requests::CloudContext;
use crate::agent::Config;
use crate::agent::event::Out;
use crate::agent::time::{Instant, Now};
use crate::model::meta::Saved;

#[derive(Debug)]
pub(super) struct BusSide;

#[expect(clippy::unused_self, reason = "as where it is built in")]
impl BusSide {
    pub(super) fn new(_: &Config) -> Self {
        Self
    }

    pub(super) fn load(&mut self, _: &mut Saved) {}

    pub(super) fn link_up(&mut self) {}

    pub(super) fn link_down(&mut self) {}

    pub(super) fn end_save(&mut self, _: bool) {}

    pub(super) fn step(&mut self, _: Now, _: &mut Meta, _: &mut Out) {}

    pub(super) fn report(&mut self, _: &mut CloudContext<'_>) {}

    pub(super) fn report_at(&self) -> Option<Instant> {
        None
    }

    pub(super) fn wake_at(&self, _: Now, _: &Meta) -> Option<Instant> {
        None
    }
}
