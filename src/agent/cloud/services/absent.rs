//! Services by name are not built in (feature `services`): nothing is watched.

#[cfg(feature = "metaserver")]
use std::sync::Arc;

use super::meta::Meta;
use super::requests::CloudContext;
#[cfg(feature = "metaserver")]
use super::watches::Watches;
use crate::agent::Config;
use crate::agent::time::Instant;
#[cfg(feature = "metaserver")]
use crate::agent::{event::Out, time::Now};
#[cfg(feature = "metaserver")]
use crate::model::application::Scope;

#[derive(Debug)]
pub(super) struct ServiceWatch;

#[expect(clippy::unused_self, reason = "as where they are built in")]
impl ServiceWatch {
    pub(super) fn new(_: &Config) -> Self {
        Self
    }

    pub(super) fn up(&mut self) {}

    pub(super) fn step(&mut self, _: &str, _: &Meta, _: &mut CloudContext<'_>) {}

    #[cfg(feature = "metaserver")]
    pub(super) fn watch(&self) -> Option<&Arc<Scope>> {
        None
    }

    #[cfg(feature = "metaserver")]
    pub(super) fn keeps(&self, _: &str) -> bool {
        false
    }

    #[cfg(feature = "metaserver")]
    pub(super) fn watch_answered(&mut self, _: Now, _: &Watches, _: &mut Out) {}

    pub(super) fn wake_at(&self, _: &Meta) -> Option<Instant> {
        None
    }
}
