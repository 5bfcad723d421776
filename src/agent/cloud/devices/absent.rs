//! Replaces the core of devices in builds without it (feature `devices`): their objects are stored,
//! and nothing else is done with them.

use super::hub::Hub;
use super::meta::Meta;
use super::requests::CloudContext;
use crate::agent::event::Out;
use crate::agent::time::{Instant, Now, Rng};
use crate::model::meta::Saved;

#[derive(Debug)]
pub(super) struct DeviceSide;

#[expect(clippy::unused_self, reason = "as where it is built in")]
impl DeviceSide {
    pub(super) fn take_stored(&mut self, _: &mut Saved) {}

    pub(super) fn load(&mut self, _: Now, _: &Meta, _: &mut Rng) {}

    pub(super) fn objects_changed(&mut self, _: Now, _: &Meta, _: &mut Rng) {}

    pub(super) fn link_up(&mut self, _: Now) {}

    pub(super) fn link_down(&mut self, _: Now) {}

    pub(super) fn end_save(&mut self, _: Now, _is_saved: bool) {}

    pub(super) fn step(&mut self, _: Now, _: &mut Meta, _: &mut Rng, _: &mut Out) {}

    pub(super) fn save_all(&mut self, _: Now, _: &mut Meta, _: &mut Out) -> bool {
        true
    }

    pub(super) fn save_all_at(&self, _: Now, _: &Meta) -> Option<Instant> {
        None
    }

    pub(super) fn report(&mut self, _: &mut CloudContext<'_>) {}

    pub(super) fn sent(&mut self, _: &Hub) {}

    pub(super) fn report_at(&self, _: Now) -> Option<Instant> {
        None
    }

    pub(super) fn wake_at(&self, _: Now, _: &Meta) -> Option<Instant> {
        None
    }
}
