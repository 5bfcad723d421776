//! The QoS cgroups above those of the pods: the limits of all pods together, and the CPU weight of
//! pods with requests against those without (spec section 3.3).
//!
//! Checked every minute and when the manifests change; set only if the values differ. If we crash
//! here: they are set again after the restart.

use super::{HousekeepingContext, Periodic};
use crate::agent::Config;
use crate::agent::amounts::Amounts;
use crate::agent::event::{Action, Severity};
use crate::agent::jobs::JobTask;
use crate::agent::pod::cgroup::are_ours;
use crate::agent::pod::{Phase, burstable_milli};
use crate::agent::time::{Instant, Now};
use crate::limits;
use crate::model::cgroup::{Hierarchy, QosCgroups, Values, shares};
use crate::model::cri::CgroupDriver;
use crate::model::job::{JobError, JobSpec};

/// The task that sets the QoS cgroups.
#[derive(Debug)]
pub struct Qos {
    period: Periodic,
    /// Set, as far as is known.
    done: Option<Box<QosCgroups>>,
    under_way: Option<Box<QosCgroups>>,
    /// The last error until it is logged; and the error that was logged last.
    trouble: Option<String>,
    logged_trouble: Option<String>,
    /// The logged reason why nothing is set.
    logged_reason: Option<&'static str>,
}

impl Qos {
    /// Nothing done yet.
    pub fn new(now: Instant) -> Self {
        let period = Periodic::new(limits::QOS_CGROUPS_MS, now);
        Self {
            period,
            done: None,
            under_way: None,
            trouble: None,
            logged_trouble: None,
            logged_reason: None,
        }
    }

    /// The set of pods has changed.
    pub fn mark_dirty(&mut self, now: Instant) {
        self.period = Periodic::new(limits::QOS_CGROUPS_MS, now);
    }

    /// Takes the result of its job.
    pub fn job_done(&mut self, result: &Result<(), JobError>) {
        let wanted = self.under_way.take().expect("the cgroups are being set");
        match result {
            Ok(()) => (self.done, self.logged_trouble) = (Some(wanted), None),
            Err(error) => self.trouble = Some(error.to_string()),
        }
    }

    /// Requests what is due.
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
            context.job(now, JobTask::Qos, JobSpec::SetQosCgroups(wanted.clone()));
            self.under_way = Some(wanted);
        }
    }

    /// Logs once why nothing is set.
    fn log_reason(&mut self, context: &mut HousekeepingContext<'_>) {
        let why = if !context.config.settings.cgroups.per_qos {
            None
        } else if context.config.machine.cgroups.hierarchy == Hierarchy::None {
            Some("no cgroups at /sys/fs/cgroup that this process may write to")
        } else if context.driver == CgroupDriver::Systemd {
            Some("the runtime's cgroup driver is systemd, which makes the pods' slices by itself")
        } else {
            None
        };
        if let Some(why) = why.filter(|_| self.logged_reason != why) {
            let line = format!(
                "{why}: requests and limits are enforced for each container, not for whole pods"
            );
            context.out.push(Action::Log(Severity::Warn, line));
        }
        self.logged_reason = why;
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
    let requested =
        running.map(|pod| burstable_milli(&pod.api().spec)).fold(0, i64::saturating_add);
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

/// The maximum number of processes of all pods together. If none are reserved, the kernel's own
/// limit applies.
fn pids_max(config: &Config) -> Option<u64> {
    let reserved = config.housekeeping.reserved().pids;
    let all = config.machine.pids_max;
    (all > 0 && reserved > 0).then(|| all.saturating_sub(reserved).max(1))
}
