//! Services by name are not built in (feature `services`): nothing is watched.

use super::meta::Meta;
use super::requests::CloudContext;
use crate::agent::Config;
use crate::agent::time::Instant;

#[derive(Debug)]
pub(super) struct ServiceWatch;

#[expect(clippy::unused_self, reason = "as where they are built in")]
impl ServiceWatch {
    pub(super) fn new(_: &Config) -> Self {
        Self
    }

    pub(super) fn up(&mut self) {}

    pub(super) fn step(&mut self, _: &str, _: &Meta, _: &mut CloudContext<'_>) {}

    pub(super) fn wake_at(&self, _: &Meta) -> Option<Instant> {
        None
    }
}
