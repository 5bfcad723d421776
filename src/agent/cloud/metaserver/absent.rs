//! MetaServer is not built in (feature `metaserver`): nothing is served.

use std::collections::BTreeSet;
#[cfg(feature = "services")]
use std::sync::Arc;

use super::Cloud;
use super::devices::DeviceSide;
use super::meta::Meta;
#[cfg(feature = "services")]
use super::{requests::CloudContext, watches::Watches};
use crate::agent::event::Out;
use crate::agent::time::{Instant, Now, Rng};
#[cfg(feature = "services")]
use crate::model::application::Scope;

/// Without MetaServer nobody could release a pod: none is held.
#[expect(clippy::unused_self, reason = "as where it is built in")]
impl Cloud {
    pub(in crate::agent) fn held(&self) -> BTreeSet<&str> {
        BTreeSet::new()
    }

    pub(super) fn answer_releases(&mut self) {}
}

#[derive(Debug)]
pub(super) struct MetaSide;

#[expect(clippy::unused_self, reason = "as where it is built in")]
impl MetaSide {
    pub(super) fn link_up(&mut self) {}

    pub(super) fn link_down(&mut self) {}

    pub(super) fn save(&mut self, _: Now, _: &mut Meta) {}

    #[cfg(feature = "services")]
    pub(super) fn registered(&mut self, _: Now, _: &mut Watches) {}

    pub(super) fn step(&mut self, _: Now, _: (&Meta, &DeviceSide), _: &mut Rng, _: &mut Out) {}

    pub(super) fn end_save(&mut self, _: Now, _: bool) {}

    #[cfg(feature = "services")]
    pub(super) fn is_on(&self) -> bool {
        false
    }

    #[cfg(feature = "services")]
    pub(super) fn send(&mut self, _: &mut CloudContext<'_>) {}

    #[cfg(feature = "services")]
    pub(super) fn watches(&self) -> impl Iterator<Item = &Arc<Scope>> {
        std::iter::empty()
    }

    pub(super) fn send_at(&self) -> Option<Instant> {
        None
    }

    pub(super) fn wake_at(&self, _: Now, _: &Meta) -> Option<Instant> {
        None
    }
}
