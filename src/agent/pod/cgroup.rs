//! The pod's own cgroup: created before its sandbox, removed after its last container (spec section
//! 3.3).
//!
//! ```text
//!  /kubepods/pod<uid>              Guaranteed
//!  /kubepods/burstable/pod<uid>
//!  /kubepods/besteffort/pod<uid>
//!           └─ the runtime's, one for each container
//! ```
//!
//! With the driver `systemd`, systemd and the runtime create the slices of these names, and only
//! the name is passed on; the same if the machine has no writable cgroups. Then the limits of the
//! pod as a whole are not enforced, which is logged once.
//!
//! If we crash here: the pod's cgroup is created again with its next sandbox, and removed by the
//! pod's uid whatever class it had.

use super::plan::Next;
use super::resources::{has_own, pod_values, qos_class};
use super::{Pod, PodContext, Refused, Verdict};
use crate::agent::Config;
use crate::agent::time::Instant;
use crate::limits;
use crate::model::cgroup::{self, Hierarchy, PodCgroup};
use crate::model::cri::CgroupDriver;
use crate::model::job::{JobError, JobSpec};

/// The state of the pod's cgroup.
#[derive(Debug, Default)]
pub(super) struct Cgroup {
    /// The desired cgroup; `None`: we do not manage it.
    wanted: Option<Box<PodCgroup>>,
    /// The driver for which it was planned, with the current spec; `None`: not planned.
    planned: Option<CgroupDriver>,
    state: State,
    /// Creating or removing it failed; no retry before this time.
    retry_at: Option<Instant>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// An earlier start of the agent may have created it.
    #[default]
    Unknown,
    Made(Box<PodCgroup>),
    Removed,
}

/// Whether we create the pods' cgroups.
pub fn are_ours(config: &Config, driver: CgroupDriver) -> bool {
    config.settings.cgroups.per_qos
        && config.machine.cgroups.hierarchy != Hierarchy::None
        && driver == CgroupDriver::Cgroupfs
}

/// `cgroup_parent`; empty: the runtime's own.
pub(super) fn parent(pod: &Pod, context: &PodContext<'_>) -> String {
    let settings = &context.config.settings.cgroups;
    if !settings.per_qos || context.config.machine.cgroups.hierarchy == Hierarchy::None {
        return String::new();
    }
    let class = qos_class(&pod.api.spec);
    cgroup::parent(context.driver, &settings.root, class, &pod.uid)
}

/// What blocks the sandbox on behalf of the cgroup; `None`: nothing.
pub(super) fn gate(pod: &Pod, now: Instant) -> Option<Next> {
    let of = &pod.cgroup;
    let Some(wanted) = &of.wanted else {
        return has_own(&pod.api.spec).then(|| Next::Fail(no_pod_cgroups()));
    };
    if matches!(&of.state, State::Made(made) if made == wanted) {
        return None;
    }
    if let Some(at) = of.retry_at.filter(|&at| at > now) {
        return Some(Next::Until(at));
    }
    let job = JobSpec::MakePodCgroup(wanted.clone());
    Some(if pod.runner.has_job(&job) { Next::Rest } else { Next::Job(job) })
}

/// Whether there is none, or none that we manage.
pub(super) fn is_gone(pod: &Pod) -> bool {
    pod.cgroup.wanted.is_none() || pod.cgroup.state == State::Removed
}

/// Nothing runs any more: the cgroup is removed, whether the pod is kept or not.
pub(super) fn remove(pod: &Pod, now: Instant) -> Option<Next> {
    let of = &pod.cgroup;
    if is_gone(pod) {
        return None;
    }
    if let Some(at) = of.retry_at.filter(|&at| at > now) {
        return Some(Next::Until(at));
    }
    // A cgroup that is still being created would reappear.
    if pod.runner.jobs().any(is_about_cgroups) {
        return Some(Next::Rest);
    }
    Some(Next::Job(JobSpec::RemovePodCgroup(pod.uid.clone())))
}

fn is_about_cgroups(job: &JobSpec) -> bool {
    matches!(job, JobSpec::MakePodCgroup(_) | JobSpec::RemovePodCgroup(_))
}

/// Only the cgroup can enforce pod-level resources.
fn no_pod_cgroups() -> Verdict {
    let why = "UnsupportedFeature";
    let message = "spec.resources: this node has no cgroups of pods, so that only the \
                   resources of containers can be enforced"
        .to_owned();
    Verdict::rejected(&Refused { reason: why, message })
}

impl Pod {
    /// Plans the cgroup: once, unless its RuntimeClass may have changed.
    pub(super) fn plan_cgroup(&mut self, context: &PodContext<'_>) {
        if self.cgroup.planned == Some(context.driver) && self.class_name().is_none() {
            return;
        }
        self.cgroup.planned = Some(context.driver);
        self.cgroup.wanted = are_ours(context.config, context.driver).then(|| {
            let spec = &self.api.spec;
            Box::new(PodCgroup {
                uid: self.uid.clone(),
                class: qos_class(spec),
                values: pod_values(spec, self.overhead(context), context.config),
            })
        });
    }

    /// The spec has changed.
    pub(super) fn replan_cgroup(&mut self) {
        self.cgroup.planned = None;
    }

    /// A sandbox of it has stopped: until then the runtime may have created the cgroup again.
    pub(super) fn cgroup_left(&mut self) {
        self.cgroup.state = State::Unknown;
    }

    /// Takes the end of a cgroup job.
    pub(super) fn cgroup_job_done(
        &mut self,
        now: Instant,
        spec: JobSpec,
        result: &Result<(), JobError>,
    ) {
        self.cgroup.retry_at = result.is_err().then(|| now.plus_ms(limits::RETRY_MS));
        match (spec, result) {
            (JobSpec::MakePodCgroup(made), Ok(())) => self.cgroup.state = State::Made(made),
            (JobSpec::MakePodCgroup(_), Err(error)) => {
                let why = format!("unable to ensure pod container exists: {error}");
                self.warn("FailedToCreatePodContainer", why);
            }
            (JobSpec::RemovePodCgroup(_), Ok(())) => self.cgroup.state = State::Removed,
            (JobSpec::RemovePodCgroup(_), Err(error)) => {
                self.warn("FailedKillPod", format!("error removing the pod's cgroup: {error}"));
            }
            (other, _) => panic!("{} is not about cgroups", other.kind()),
        }
    }
}
