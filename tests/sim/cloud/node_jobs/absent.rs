//! Stand-in where node jobs are not built in: no world has some.

use edged::model::cri::Request;
use edged::model::message::Message;
use edged::model::meta::Row;

use super::{CloudSim, Due};
use crate::faults::Class;
use crate::world::World;

/// Never created.
pub enum JobSim {}

/// Never happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobDue {}

/// No world has some.
pub fn draw(_: Class, _: u64, _: &mut edged::agent::Config) -> Option<Box<JobSim>> {
    None
}

/// Nothing.
pub fn offers() -> [(Box<str>, u64); 0] {
    []
}

#[expect(clippy::unused_self, reason = "as where they are built in")]
impl CloudSim {
    pub(super) fn jobs_begin(&mut self) {}

    pub(super) fn job_due(&mut self, _: u64, due: JobDue) {
        match due {}
    }

    pub(super) fn job_written(&mut self, _: &str, _: Option<&Row>) {}

    pub(super) fn job_report(&mut self, _: u64, _: &Message) -> bool {
        false
    }

    pub(super) fn jobs_lose_store(&mut self) {}

    pub(super) fn is_job_fault(_: Due) -> bool {
        false
    }

    pub(super) fn jobs_unsettled(&self) -> Option<String> {
        None
    }
}

#[expect(clippy::unused_self, reason = "as where they are built in")]
impl World {
    pub(crate) fn job_reported(&self, _: &Message) {}

    pub(crate) fn job_keeps(&self, _: &str) -> bool {
        false
    }

    pub(crate) fn job_image_requested(&self, _: &Request) {}
}
