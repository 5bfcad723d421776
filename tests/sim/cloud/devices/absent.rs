//! Stand-in where devices are not built in: no world has some.

use edged::agent::event::Event;
use edged::model::message::Message;
use edged::model::meta::Saved;

use super::{CloudSim, Due};
use crate::faults::Class;
use crate::world::World;

/// Never created.
pub enum DeviceSim {}

/// Never happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceDue {}

/// No world has some.
pub fn draw(_: Class, _: u64, _: &mut edged::agent::Config) -> Option<Box<DeviceSim>> {
    None
}

#[expect(clippy::unused_self, reason = "as where they are built in")]
impl CloudSim {
    pub(super) fn devices_receive(&mut self, _: u64, _: &Event) {}

    pub(super) fn devices_message(&mut self, _: &Message) {}

    pub(super) fn devices_send(&mut self, _: u64, _: &Message) {}

    pub(super) fn devices_object_written(&mut self, _: &str) {}

    pub(super) fn devices_report(&mut self, _: u64, _: u64, _: &Message, _: bool) {}

    pub(super) fn devices_begin_life(&mut self, _: &mut Saved) {}

    pub(super) fn devices_die(&mut self, _: u64) {}

    pub(super) fn devices_lose_store(&mut self) {}

    pub(super) fn devices_settle(&mut self) {}

    pub(super) fn device_due(&mut self, _: u64, due: DeviceDue, _: u64) {
        match due {}
    }

    pub(super) fn devices_calm(&mut self) {}

    pub(super) fn is_device_fault(_: Due) -> bool {
        false
    }

    pub(super) fn devices_unsettled(&self) -> Option<String> {
        None
    }
}

#[expect(clippy::unused_self, reason = "as where they are built in")]
impl World {
    pub(crate) fn devices_stepped(&mut self) {}

    pub(crate) fn has_devices(&self) -> bool {
        false
    }

    pub(crate) fn devices_exit(&self) {}

    pub(crate) fn devices_quiet(&self, _: u64) {}
}
