//! The pod's own cgroup: there before its sandbox, gone after its last container (spec section
//! 3.3).
//!
//! ```text
//!  /kubepods/pod<uid>              Guaranteed
//!  /kubepods/burstable/pod<uid>
//!  /kubepods/besteffort/pod<uid>
//!           └─ the runtime's, one for each container
//! ```
//!
//! By the driver `systemd` the slices of these names are systemd's and the runtime's to make, and
//! only the name is given; the same where the machine has no cgroups that could be written to. What
//! a pod may take as a whole is not kept then, which is said once.
//!
//! If we crash here: the pod's cgroup is made again with its next sandbox, and removed by the
//! pod's uid whatever class it had.

use super::next::Next;
use super::resources::{has_own, pod_values, qos_class};
use super::{Pod, PodContext, Verdict};
use crate::agent::Config;
use crate::agent::admit::Refused;
use crate::agent::time::Instant;
use crate::limits;
use crate::model::cgroup::{self, Hierarchy, PodCgroup};
use crate::model::cri::CgroupDriver;
use crate::model::job::{JobError, JobSpec};

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Cgroup {
    /// As it is to be; `None`: it is not ours to make.
    wanted: Option<Box<PodCgroup>>,
    /// By which driver, and for the spec as it is, that was worked out; `None`: it was not.
    planned: Option<CgroupDriver>,
    state: State,
    /// The way has failed; no new try before.
    retry_at: Option<Instant>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// An earlier life may have made it.
    #[default]
    Unknown,
    Made(Box<PodCgroup>),
    Removed,
}

/// Whether pods' cgroups are made by us.
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

/// What stands between the pod and a sandbox; `None`: nothing of its cgroup.
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
    Some(if pod.has_job(&job) { Next::Rest } else { Next::Job(job) })
}

/// Whether there is none, or none that is ours.
pub(super) fn is_gone(pod: &Pod) -> bool {
    pod.cgroup.wanted.is_none() || pod.cgroup.state == State::Removed
}

/// Nothing runs any more: it goes, whether the pod is kept or not.
pub(super) fn remove(pod: &Pod, now: Instant) -> Option<Next> {
    let of = &pod.cgroup;
    if is_gone(pod) {
        return None;
    }
    if let Some(at) = of.retry_at.filter(|&at| at > now) {
        return Some(Next::Until(at));
    }
    // One that is just being made would be there again.
    if pod.jobs.values().any(is_about_cgroups) {
        return Some(Next::Rest);
    }
    Some(Next::Job(JobSpec::RemovePodCgroup(pod.uid.clone())))
}

fn is_about_cgroups(job: &JobSpec) -> bool {
    matches!(job, JobSpec::MakePodCgroup(_) | JobSpec::RemovePodCgroup(_))
}

/// What the pod asks for itself can be kept by nothing but its cgroup.
fn no_pod_cgroups() -> Verdict {
    let why = "UnsupportedFeature";
    let message = "spec.resources: this node keeps no cgroups of pods, so that only what the \
                   containers ask for can be kept"
        .to_owned();
    Verdict::rejected(&Refused { reason: why, message })
}

impl Pod {
    /// Works out what the cgroup has to be: once, unless something of a class's may differ.
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

    /// The spec is another.
    pub(super) fn replan_cgroup(&mut self) {
        self.cgroup.planned = None;
    }

    /// A sandbox of it has stopped: until then the runtime may have made it anew.
    pub(super) fn cgroup_left(&mut self) {
        self.cgroup.state = State::Unknown;
    }

    /// Takes the end of a job that was about it.
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
            (other, _) => panic!("{other:?} is not about cgroups"),
        }
    }
}
