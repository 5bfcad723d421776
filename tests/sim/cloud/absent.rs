//! Stand-in where no cloud is built in: no world has one.

use edged::agent::event::{Event, JobId};
use edged::agent::{Agent, Config};
use edged::model::cri::Request;
use edged::model::job::JobSpec;
use edged::model::pod::{Pod, Volume};

use crate::check::Check;
use crate::faults::Class;
use crate::world::{World, WorldEvent};

/// Never created.
pub enum CloudSim {}

/// Never happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {}

/// No world has one.
pub fn draw(_: Class, _: u64, _: &mut Config, _: &mut usize) -> Option<Box<CloudSim>> {
    None
}

impl CloudSim {
    pub fn job_images(&self) -> [(Box<str>, u64); 0] {
        match *self {}
    }

    pub fn received(&mut self, _: u64, _: &Event, _: &mut Check, _: &Agent) {
        match *self {}
    }
}

#[expect(clippy::unused_self, reason = "as where it is built in")]
impl World {
    pub(crate) fn cloud_due(&mut self, due: Due) {
        match due {}
    }

    pub(crate) fn job_image_requested(&self, _: &Request) {}

    pub(crate) fn job_keeps(&self, _: &str) -> bool {
        false
    }

    pub(crate) fn devices_stepped(&mut self) {}

    pub(crate) fn has_devices(&self) -> bool {
        false
    }

    pub(crate) fn devices_exit(&self) {}

    pub(crate) fn devices_quiet(&self, _: u64) {}

    pub(crate) fn cloud_begin_life(&mut self) {}

    pub(crate) fn cloud_dies(&mut self) {}

    pub(crate) fn cloud_reboots(&mut self) {}

    pub(crate) fn cloud_job(&mut self, _: JobId, _: &JobSpec) {}

    pub(crate) fn cloud_is_closed(&self, _: &JobSpec) -> bool {
        false
    }

    pub(crate) fn cloud_calms(&mut self) {}

    pub(crate) fn is_cloud_fault(_: WorldEvent) -> bool {
        false
    }

    pub(crate) fn cloud_wants(&self) -> Vec<&Pod> {
        Vec::new()
    }

    pub(crate) fn cloud_removes(&mut self, _: &str) {}

    pub(crate) fn cloud_text(&self, _: &str, _: &Volume) -> Option<String> {
        None
    }

    pub(crate) fn cloud_shows(&self, _: &JobSpec) {}

    pub(crate) fn cloud_unsettled(&self) -> Option<String> {
        None
    }

    pub(crate) fn cloud_is_quiet(&self, _: &str, _: u64) -> bool {
        true
    }
}
