//! Pending jobs and network queries: their owners, their deadlines, and the bound of the queries.
//!
//! Like [`super::calls`] for the runtime: every answer goes straight to the part that asked. How
//! many jobs run at once is up to the event loop. Not persistent: after a restart jobs and queries
//! are begun again.

use super::calls::Uid;
use super::event::{Action, JobId, Out, ProbeId};
use super::time::{Instant, Now};
use crate::core::work::WorkBook;
use crate::limits;
use crate::model::job::{JobSpec, LastWords};
use crate::model::net::Query;

/// The receiver of a job's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOwner {
    /// [`super::cloud`]: its certificate.
    #[cfg(feature = "cloud")]
    Cloud,
    /// [`super::housekeeping`]
    Housekeeping(JobTask),
    /// [`super::node_jobs`]
    #[cfg(feature = "node-jobs")]
    NodeJobs,
    /// One pod.
    Pod(Uid),
}

/// The task of housekeeping that has begun a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobTask {
    /// The QoS cgroups.
    Qos,
    /// The removal of dangling links.
    Orphans,
    /// The rotation of a log.
    Logs,
    /// The disk usage of pods.
    #[cfg(feature = "eviction")]
    Eviction,
}

/// All pending jobs, and pending reads of termination messages.
#[derive(Debug, Default)]
pub struct Jobs(WorkBook<JobId, JobOwner>);

impl Jobs {
    /// Requests a job.
    pub fn begin(&mut self, now: Now, owner: JobOwner, spec: JobSpec, out: &mut Out) -> JobId {
        let deadline = now.boot.plus_ms(match owner {
            #[cfg(feature = "cloud")]
            JobOwner::Cloud => limits::ENROL_MS,
            JobOwner::Housekeeping(_) | JobOwner::Pod(_) => limits::JOB_DEADLINE_MS,
            #[cfg(feature = "node-jobs")]
            JobOwner::NodeJobs => limits::JOB_DEADLINE_MS,
        });
        let job = self.0.begin(owner);
        out.push(Action::Job { job, spec, deadline });
        job
    }

    /// Requests a termination message.
    pub fn read(&mut self, owner: JobOwner, message: LastWords, out: &mut Out) -> JobId {
        let job = self.0.begin(owner);
        out.push(Action::Read { job, message });
        job
    }

    /// Removes an answered job; it was requested, and is answered once.
    pub fn end(&mut self, job: JobId) -> JobOwner {
        self.0.end(job).unwrap_or_else(|| panic!("answer to {job:?}, which was not requested"))
    }
}

/// The receiver of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryOwner {
    /// A probe of one pod.
    Probe(Uid),
    /// A hook of one pod.
    Hook(Uid),
}

/// All pending queries of probes and hooks.
#[derive(Debug, Default)]
pub struct Queries(WorkBook<ProbeId, QueryOwner>);

impl Queries {
    /// Whether one more may begin.
    pub fn has_room(&self) -> bool {
        self.0.count() < limits::PROBE_CONNECTIONS_MAX
    }

    /// Requests a query. There must be room: see [`Queries::has_room`].
    pub fn begin(
        &mut self,
        owner: QueryOwner,
        query: Query,
        deadline: Instant,
        out: &mut Out,
    ) -> ProbeId {
        assert!(self.has_room(), "a query beyond the bound: {query:?}");
        let probe = self.0.begin(owner);
        out.push(Action::Probe { probe, query, deadline });
        probe
    }

    /// Removes an answered query. `None`: it was cancelled while its answer was on the way.
    pub fn end(&mut self, probe: ProbeId) -> Option<QueryOwner> {
        self.0.end(probe)
    }

    /// Cancels a query: no answer will come.
    pub fn cancel(&mut self, probe: ProbeId, out: &mut Out) {
        let ended = self.end(probe);
        assert!(ended.is_some(), "cancelled {probe:?}, which is not under way");
        out.push(Action::CancelProbe(probe));
    }
}
