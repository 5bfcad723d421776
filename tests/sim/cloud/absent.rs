//! No cloud is built in: no world has one.

use edged::agent::event::{Event, JobId};
use edged::agent::{Agent, Config};
use edged::model::job::JobSpec;
use edged::model::pod::{Pod, Volume};

use crate::check::Check;
use crate::faults::Class;
use crate::world::{Thing, World};

/// Never made.
pub enum Sky {}

/// Never happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {}

/// There is none.
pub fn draw(_: Class, _: u64, _: &mut Config, _: &mut usize) -> Option<Box<Sky>> {
    None
}

impl Sky {
    pub fn told(&mut self, _: u64, _: &Event, _: &mut Check, _: &Agent) {
        match *self {}
    }
}

#[expect(clippy::unused_self, reason = "as where it is built in")]
impl World {
    pub(crate) fn sky_due(&mut self, due: Due) {
        match due {}
    }

    pub(crate) fn sky_born(&mut self) {}

    pub(crate) fn sky_dies(&mut self) {}

    pub(crate) fn sky_reboots(&mut self) {}

    pub(crate) fn sky_job(&mut self, _: JobId, _: &JobSpec) {}

    pub(crate) fn sky_is_closed(&self, _: &JobSpec) -> bool {
        false
    }

    pub(crate) fn sky_calms(&mut self) {}

    pub(crate) fn is_whim_of_the_sky(_: Thing) -> bool {
        false
    }

    pub(crate) fn sky_wants(&self) -> Vec<&Pod> {
        Vec::new()
    }

    pub(crate) fn sky_removes(&mut self, _: &str) {}

    pub(crate) fn sky_text(&self, _: &str, _: &Volume) -> Option<String> {
        None
    }

    pub(crate) fn sky_shows(&self, _: &JobSpec) {}

    pub(crate) fn sky_unsettled(&self) -> Option<String> {
        None
    }

    pub(crate) fn sky_is_quiet(&self, _: &str, _: u64) -> bool {
        true
    }
}
