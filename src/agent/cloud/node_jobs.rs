//! Connects the core of node jobs with the cloud side: requests, rows, and reports.

use super::meta::{ChangeOutcome, Meta};
use super::requests::CloudContext;
use super::rows::{self, StoredObject};
use crate::agent::Config;
use crate::agent::node_jobs::{NodeJobs, NotSaved, refusal};
use crate::agent::time::{Instant, Now};
use crate::model::message::Resource;
use crate::model::node_job::{JobKey, JobReport, JobRequest};
use crate::model::upstream::Up;

/// The core of node jobs, if they are done here.
#[derive(Debug)]
pub(super) struct JobSide(Option<Box<NodeJobs>>);

impl JobSide {
    pub(super) fn new(node: &str, config: &Config) -> Self {
        let repositories = &config.upgrade_repositories;
        Self(config.node_jobs.then(|| Box::new(NodeJobs::new(node, repositories))))
    }

    /// `None`: they are switched off.
    pub(super) fn core(&self) -> Option<&NodeJobs> {
        self.0.as_deref()
    }

    pub(super) fn core_mut(&mut self) -> Option<&mut NodeJobs> {
        self.0.as_deref_mut()
    }

    /// The store was read: `meta` has the rows.
    pub(super) fn load(&mut self, now: Now, meta: &Meta) {
        let Some(core) = &mut self.0 else { return };
        let jobs = meta.stored_objects().filter_map(|object| match object {
            StoredObject::NodeJob(job) => Some((**job).clone()),
            _ => None,
        });
        core.load(now.boot, jobs);
    }

    /// Takes a request; returns the answer if it is refused.
    pub(super) fn request(&mut self, now: Now, request: JobRequest) -> Option<JobReport> {
        if let Some(core) = &mut self.0 {
            return core.request(now, request);
        }
        let JobRequest { key, action, .. } = request;
        let why = "node jobs are switched off on this node (modules.taskManager.enable of its \
                   edgecore.yaml)";
        Some(refusal(now, key, action, why))
    }

    /// Queues the rows that are due for the next save; returns the answers to jobs that cannot be
    /// stored.
    pub(super) fn store(&mut self, now: Now, meta: &mut Meta) -> Vec<JobReport> {
        let Some(core) = &mut self.0 else { return Vec::new() };
        if meta.origin().is_none() {
            return Vec::new();
        }
        core.delete_rows(|key| {
            !matches!(meta.delete(&key_of(key), "", None), ChangeOutcome::Dropped)
        });
        let refused = core.save_rows(now, |job| {
            match meta.put(&key_of(&job.key), rows::NODE_JOB, &rows::node_job(job), None) {
                ChangeOutcome::Queued | ChangeOutcome::Unchanged => Ok(()),
                ChangeOutcome::Dropped => Err(NotSaved::Later),
                ChangeOutcome::Refused(why) => Err(NotSaved::Refused(why)),
            }
        });
        core.rows_saved(|key| meta.is_pending(&key_of(key)));
        refused
    }

    /// The save under way has succeeded. Returns whether rows of jobs became durable.
    pub(super) fn end_save(&mut self, meta: &Meta) -> bool {
        let Some(core) = &mut self.0 else { return false };
        core.rows_saved(|key| meta.is_pending(&key_of(key)))
    }

    pub(super) fn link_up(&mut self) {
        if let Some(core) = &mut self.0 {
            core.link_up();
        }
    }

    /// The cloud has answered this message of the session.
    pub(super) fn answered(&mut self, number: u64) {
        if let Some(core) = &mut self.0 {
            core.confirm(number);
        }
    }

    /// Sends the reports that are due.
    pub(super) fn report(&mut self, context: &mut CloudContext<'_>) {
        let Some(core) = &mut self.0 else { return };
        while let Some((run, report)) = core.next_report(context.now) {
            if !context.may_send() {
                return;
            }
            context.send(Up::NodeJob(Box::new(report)));
            core.sent(context.now.boot, run, context.hub.counts().0);
        }
    }

    /// When the next report is due.
    pub(super) fn report_at(&self, now: Now) -> Option<Instant> {
        self.0.as_ref()?.report_at(now)
    }
}

/// The key of a job's row.
fn key_of(key: &JobKey) -> String {
    let kind = key.kind.resource();
    let name = format!("{}.{kind}.{}", key.generation.name(), key.name);
    Resource { namespace: None, kind: rows::NODE_JOB, name: &name }.to_string()
}
