//! The cgroups that those of pods lie below: what all pods may take together, and the weight of
//! those that ask for something against those that do not (spec section 3.3).
//!
//! Looked at every minute, and when the manifests differ; asked for only where the values do. If we
//! crash here: the next life sets them again.

use super::amounts::Amounts;
use super::event::{Action, JobId, Severity};
use super::housekeeping::{HousekeepingContext, Periodic};
use super::pod::cgroup::are_ours;
use super::pod::{Phase, burstable_milli};
use super::time::{Instant, Now};
use crate::agent::Config;
use crate::limits;
use crate::model::cgroup::{Hierarchy, QosCgroups, Values, shares};
use crate::model::cri::CgroupDriver;
use crate::model::job::{JobError, JobSpec};

/// The chore.
#[derive(Debug)]
pub struct Qos {
    period: Periodic,
    /// Done, as far as is known.
    done: Option<Box<QosCgroups>>,
    under_way: Option<(JobId, Box<QosCgroups>)>,
    /// What failed, until it is told; and what was told last.
    trouble: Option<String>,
    logged_trouble: Option<String>,
    /// Why nothing is done, as it was said.
    logged_reason: Option<&'static str>,
}

impl Qos {
    /// Nothing done yet.
    pub fn new(now: Instant) -> Self {
        let period = Periodic::new(limits::QOS_CGROUPS_MS, now);
        Self { period, done: None, under_way: None, trouble: None, logged_trouble: None, logged_reason: None }
    }

    /// There are other pods than before.
    pub fn mark_dirty(&mut self, now: Instant) {
        self.period = Periodic::new(limits::QOS_CGROUPS_MS, now);
    }

    /// Takes the answer to a job. `false`: it is none of these.
    pub fn job_done(&mut self, job: JobId, result: &Result<(), JobError>) -> bool {
        let Some((_, wanted)) = self.under_way.take_if(|(under_way, _)| *under_way == job) else {
            return false;
        };
        match result {
            Ok(()) => (self.done, self.logged_trouble) = (Some(wanted), None),
            Err(error) => self.trouble = Some(error.to_string()),
        }
        true
    }

    /// Asks for what is due.
    pub fn step(&mut self, now: Now, context: &mut HousekeepingContext<'_>) {
        if let Some(trouble) = self.trouble.take()
            && self.logged_trouble.as_ref() != Some(&trouble)
        {
            let line = format!("cannot set the cgroups of the QoS classes: {trouble}");
            context.out.push(Action::Log(Severity::Warn, line));
            self.logged_trouble = Some(trouble);
        }
        if self.under_way.is_some() || !self.period.is_due(now.boot) {
            return;
        }
        self.period.done(now.boot);
        self.log_reason(context);
        if !are_ours(context.config, context.driver) {
            return;
        }
        let wanted = Box::new(wanted(context));
        if self.done.as_ref() != Some(&wanted) {
            let job = context.job(now, JobSpec::SetQosCgroups(wanted.clone()));
            self.under_way = Some((job, wanted));
        }
    }

    /// Says once why nothing is done.
    fn log_reason(&mut self, context: &mut HousekeepingContext<'_>) {
        let logged_reason = if !context.config.settings.cgroups.per_qos {
            None
        } else if context.config.machine.cgroups.hierarchy == Hierarchy::None {
            Some("no cgroups at /sys/fs/cgroup that this process may write to")
        } else if context.driver == CgroupDriver::Systemd {
            Some("the runtime's cgroup driver is systemd, which makes the pods' slices by itself")
        } else {
            None
        };
        if let Some(logged_reason) = logged_reason.filter(|_| self.logged_reason != logged_reason) {
            let line = format!(
                "{logged_reason}: requests and limits are kept for each container, not for pods as a whole"
            );
            context.out.push(Action::Log(Severity::Warn, line));
        }
        self.logged_reason = logged_reason;
    }

    /// When something is due.
    pub fn due_at(&self) -> Instant {
        self.period.due_at()
    }
}

fn wanted(context: &HousekeepingContext<'_>) -> QosCgroups {
    let of_pods = Amounts::of_pods(context.config);
    let milli = i64::try_from(of_pods.cpu_milli).unwrap_or(i64::MAX);
    let running = context.pods.iter().filter(|pod| pod.phase() < Phase::Terminated);
    let requested = running.map(|pod| burstable_milli(&pod.api().spec)).fold(0, i64::saturating_add);
    QosCgroups {
        all: Values {
            cpu_shares: shares(milli),
            cpu_period: context.config.settings.cgroups.cpu_period_us,
            memory: i64::try_from(of_pods.memory_bytes).ok().filter(|&bytes| bytes > 0),
            pids: pids_max(context.config),
            ..Values::default()
        },
        burstable_shares: shares(requested),
    }
}

/// Processes of all pods together. Where none are reserved the kernel's own bound does.
fn pids_max(config: &Config) -> Option<u64> {
    let reserved = config.housekeeping.reserved().pids;
    let all = config.machine.pids_max;
    (all > 0 && reserved > 0).then(|| all.saturating_sub(reserved).max(1))
}
