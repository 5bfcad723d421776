//! Replaces the core of node jobs in builds without it (feature `node-jobs`): each is refused.

use super::meta::Meta;
use super::requests::CloudContext;
use crate::agent::time::{Instant, Now};
use crate::model::node_job::{JobDetail, JobReport, JobRequest};

#[derive(Debug)]
pub(super) struct JobSide;

#[expect(clippy::unused_self, reason = "as where it is built in")]
impl JobSide {
    pub(super) fn load(&mut self, _: Now, _: &Meta) {}

    #[expect(clippy::unnecessary_wraps, reason = "as where some are accepted")]
    pub(super) fn request(&mut self, now: Now, request: JobRequest) -> Option<JobReport> {
        let (result, at) = (Err("not built into edged".into()), now.timestamp());
        let JobRequest { key, action, .. } = request;
        Some(JobReport { key, action, result, at, detail: JobDetail::Nothing })
    }

    pub(super) fn store(&mut self, _: Now, _: &mut Meta) -> [JobReport; 0] {
        []
    }

    pub(super) fn end_save(&mut self, _: &Meta) -> bool {
        false
    }

    pub(super) fn link_up(&mut self) {}

    pub(super) fn answered(&mut self, _: u64) {}

    pub(super) fn report(&mut self, _: &mut CloudContext<'_>) {}

    pub(super) fn report_at(&self, _: Now) -> Option<Instant> {
        None
    }
}
