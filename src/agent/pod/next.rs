//! The next step of a pod: desired × observed × now → one step. Pure: the same answer for the same
//! pod, whatever its history (spec sections 1.4–1.7 and 2).

use std::collections::BTreeMap;

use super::hooks::PreStop;
use super::lifecycle::{Ending, grace_s};
use super::names::log_dir;
use super::observed::{Observed, ObservedContainer};
use super::plan::{Next, NodeView, Plan, Step, StopReason};
use super::{Phase, Pod, Verdict};
use super::{cgroup, security, volumes};
use crate::agent::event::CallId;
use crate::agent::time::{Instant, sooner};
use crate::limits;
use crate::model::cri::{ContainerId, ContainerState};
use crate::model::job::{JobSpec, LogLink};
use crate::model::pod::Container;
use crate::model::probe::HookKind;

mod start;

/// Returns the next step.
pub fn next(pod: &Pod, world: &NodeView<'_>, now: Instant) -> Plan {
    let mount = pod.runner.mount_under_way().filter(|_| pod.phase() >= Phase::Terminating);
    if let Some(job) = mount {
        return Plan::only(Next::GiveUpJob(job));
    }
    match pod.phase() {
        Phase::Syncing => syncing(pod, world, now),
        Phase::Terminating => Plan::only(terminating(pod, now)),
        Phase::Terminated => Plan::only(terminated(pod, now)),
        Phase::Finished => Plan::only(Next::Rest),
    }
}

fn syncing(pod: &Pod, world: &NodeView<'_>, now: Instant) -> Plan {
    let ends = !pod.is_wanted()
        || pod.lifecycle.verdict().is_some()
        || pod.api.metadata.deletion_timestamp.is_some()
        // The cloud remembers a pod whose end an earlier start of the agent reported.
        || pod.api.status.phase.is_terminal();
    if ends {
        return Plan::only(Next::Enter(Phase::Terminating));
    }
    let deadline = pod.deadline_at();
    if deadline.is_some_and(|at| at <= now) {
        return Plan::only(Next::FailByDeadline(Verdict {
            reason: "DeadlineExceeded",
            message: "Pod was active on the node longer than the specified deadline".to_owned(),
        }));
    }
    let volumes = volumes::progress(pod, now);
    let mut plan = if let Some(call) = pod.abandoned_pull() {
        Plan::only(Next::GiveUp(call))
    } else if pod.runner.is_busy() {
        Plan::only(Next::Rest)
    } else if let Some(next) = pod.post_start() {
        Plan::only(if pod.observed.is_unknown() { next } else { pod.meanwhile(next, now) })
    } else if pod.observed.is_unknown() {
        Plan::only(if pod.runner.has_calls() { Next::Rest } else { Next::Relist })
    } else if world.predecessor {
        Plan::only(Next::Blocked("another pod of this name has not ended yet"))
    } else if pod.is_held() {
        Plan::only(Next::Rest)
    } else if let Some(step) = inspection(pod) {
        Plan::only(if pod.runner.has_calls() { Next::Rest } else { inspect(pod, step, now) })
    } else if needs_sandbox(pod) {
        Plan::only(new_sandbox(pod, world, now))
    } else if let Some(job) = volumes.job {
        // Running containers continue meanwhile; containers to start wait in `start`.
        Plan::only(Next::Job(job))
    } else {
        start::containers(pod, now)
    };
    // These times wake the pod, whatever else it waits for.
    let wake_at = sooner(deadline, volumes.until);
    plan.next = match (plan.next, wake_at) {
        (Next::Rest, Some(at)) => Next::Until(at),
        (Next::Until(until), Some(at)) => Next::Until(until.min(at)),
        (next, _) => next,
    };
    plan
}

/// What has to be inspected before anything is decided: the network of a ready sandbox, and the two
/// newest instances of each container (one becomes `state`, the other `lastState`).
pub(super) fn inspection(pod: &Pod) -> Option<Step> {
    let observed = &pod.observed;
    let sandbox = observed.sandbox().filter(|sandbox| sandbox.ready && sandbox.status.is_none());
    if let Some(sandbox) = sandbox {
        return Some(Step::InspectSandbox(sandbox.id.clone()));
    }
    let reported = |container: &&ObservedContainer| {
        container.status.is_some() || container.state == ContainerState::Created
    };
    if observed.containers.iter().all(|container| reported(&container)) {
        return None;
    }
    let mut newer: BTreeMap<&str, u32> = BTreeMap::new();
    let unknown = observed.containers.iter().find(|container| {
        let newer = newer.entry(&container.name).or_default();
        *newer += 1;
        *newer <= 2 && !reported(container)
    });
    unknown.map(|container| Step::InspectContainer(container.id.clone()))
}

/// Makes this inspection, unless the runtime has just refused one.
fn inspect(pod: &Pod, step: Step, now: Instant) -> Next {
    let at = pod.observed.inspect_at();
    if at > now { Next::Until(at) } else { Next::Call(step) }
}

/// Spec section 2.1.
pub(super) fn needs_sandbox(pod: &Pod) -> bool {
    let Some(newest) = pod.observed.sandbox() else { return true };
    let ready = pod.observed.sandboxes.iter().filter(|sandbox| sandbox.ready).count();
    let unfit = newest.status.as_ref().is_some_and(|status| {
        status.network != security::network(&pod.api.spec)
            || (!pod.api.spec.host_network && status.ips.is_empty())
    });
    ready != 1 || !newest.ready || unfit
}

/// The pod has no usable sandbox: the rest of the old sandboxes is stopped, then a new one is
/// created.
fn new_sandbox(pod: &Pod, world: &NodeView<'_>, now: Instant) -> Next {
    let observed = &pod.observed;
    if !start::is_worth_a_sandbox(pod) {
        return Next::Enter(Phase::Terminating);
    }
    if let Some(next) = stop_all(pod, pod_grace(pod, now), now) {
        return next;
    }
    if pod.runner.has_calls() {
        return Next::Rest;
    }
    if let Some(at) = pod.runner.held_until(now) {
        return Next::Until(at);
    }
    if let Some(old) = observed.sandboxes.iter().find(|sandbox| !sandbox.stopped) {
        return Next::Call(Step::StopSandbox(old.id.clone()));
    }
    let is_init = |container: &&ObservedContainer| {
        pod.api.spec.init_containers.iter().any(|init| init.name == container.name)
    };
    let goes = |container: &&ObservedContainer| is_init(container) || pod.is_forgiven(container);
    if let Some(container) = observed.containers.iter().find(goes) {
        return remove_container(pod, container, now);
    }
    if let Some(verdict) = security::unsupported(&pod.api.spec, world.runtime) {
        return Next::Fail(verdict);
    }
    if world.network_trouble().is_some() && !pod.api.spec.host_network {
        return Next::Blocked("network is not ready");
    }
    if let Some(next) = before_sandbox(pod, now) {
        next
    } else {
        let newest = observed.sandbox().map(|newest| newest.attempt);
        Next::Call(Step::RunSandbox { attempt: pod.runner.next_attempt(newest) })
    }
}

/// What a sandbox needs from the node first.
fn before_sandbox(pod: &Pod, now: Instant) -> Option<Next> {
    make_log_dirs(pod, now).or_else(|| cgroup::gate(pod, now)).or_else(|| volumes::gate(pod, now))
}

/// The directories for the pod's logs, volumes and other files, created once after each start of
/// the agent.
fn make_log_dirs(pod: &Pod, now: Instant) -> Option<Next> {
    match pod.files.has_dirs(now) {
        Ok(true) => return None,
        Ok(false) => {}
        Err(retry_at) => return Some(Next::Until(retry_at)),
    }
    let spec = &pod.api.spec;
    let containers = spec.all_containers();
    let job = JobSpec::MakePodDirs {
        pod: log_dir(&pod.api),
        containers: containers.map(|container| container.name.clone()).collect(),
    };
    Some(if pod.runner.has_job(&job) { Next::Rest } else { Next::Job(job) })
}

/// A grace period that begins now: for stops that are not the end of the pod.
fn pod_grace(pod: &Pod, now: Instant) -> Ending {
    Ending { since: now, grace_s: grace_s(&pod.api.spec).max(1) }
}

/// The next container to stop. All are stopped in parallel, except that sidecars follow the main
/// containers in reverse order (spec section 1.6), as long as there is time: once the grace period
/// is over, no container waits for another. `None`: nothing is left to stop.
fn stop_all(pod: &Pod, ending: Ending, now: Instant) -> Option<Next> {
    let running = |container: &&ObservedContainer| container.may_run();
    if !pod.observed.may_run() {
        return None;
    }
    let inits = pod.api.spec.init_containers.iter().enumerate();
    let places: BTreeMap<&str, usize> = inits.map(|(at, init)| (&*init.name, at)).collect();
    let place = |observed: &ObservedContainer| places.get(&*observed.name).copied();
    let stopping = pod.runner.stopping();
    let all = || pod.observed.containers.iter().filter(running);
    let ending_stop = |observed| stop(pod, observed, ending, now, StopReason::Ending);
    // All hooks start together, those of sidecars too: they share the pod's grace period.
    let mut hooked = all().filter(|observed| !stopping.contains(&observed.id));
    if let Some(observed) = hooked.find(|observed| pod.pre_stop(observed) == PreStop::Due) {
        return Some(ending_stop(observed));
    }
    let end = ending.end();
    let (mut waiting, mut wake_at) = (false, None);
    for container in all().filter(|observed| place(observed).is_none() || end <= now) {
        if !stopping.contains(&container.id) {
            match ending_stop(container) {
                Next::Until(at) => wake_at = sooner(wake_at, Some(at)),
                next => return Some(next),
            }
        }
        waiting = true;
    }
    if waiting {
        // Main containers may get more time than is left of the pod's grace period; sidecars do
        // not.
        let turns_over = all().any(|observed| place(observed).is_some()) && end > now;
        let wake_at = sooner(wake_at, turns_over.then_some(end));
        return wake_at.map(Next::Until);
    }
    let last = all().max_by_key(|observed| place(observed))?;
    if !stopping.contains(&last.id) {
        return Some(ending_stop(last));
    }
    (all().count() > 1).then_some(Next::Until(end))
}

/// Stops one container: its hook, then the stop itself with the rest of the grace period.
fn stop(
    pod: &Pod,
    container: &ObservedContainer,
    ending: Ending,
    now: Instant,
    why: StopReason,
) -> Next {
    let hook = pod.pre_stop(container);
    let mut since = ending.since;
    if let (PreStop::Running(began_at, _) | PreStop::Over(began_at), true) =
        (hook, pod.phase() != Phase::Terminating)
    {
        // Only the end of a pod has a start time of its own.
        since = since.min(began_at);
    }
    let end = Ending { since, ..ending }.end();
    match hook {
        PreStop::Due if end > now => {
            return Next::Hook(container.id.clone(), HookKind::PreStop, why);
        }
        PreStop::Running(..) if end <= now => return Next::GiveUpHook(container.id.clone()),
        PreStop::Running(_, until) => return Next::Until(until.map_or(end, |at| at.min(end))),
        PreStop::None | PreStop::Due | PreStop::Over(_) => {}
    }
    if container.stops.over_at() > now {
        return Next::Until(container.stops.over_at());
    }
    let left_s = i64::try_from(end.since_ms(now).div_ceil(1000)).unwrap_or(i64::MAX);
    let grace_s = left_s.max(limits::STOP_GRACE_MIN_S);
    let kill_at = now.plus_ms(grace_s.unsigned_abs().saturating_mul(1000));
    Next::Call(Step::Stop { id: container.id.clone(), grace_s, kill_at, why })
}

/// Removes the logs, then the container. In the other order, logs of a container that is no longer
/// known would stay for ever.
pub(super) fn remove_container(pod: &Pod, container: &ObservedContainer, now: Instant) -> Next {
    if let Some(at) = pod.runner.cleanup_held_until(now) {
        return Next::Until(at);
    }
    if pod.files.is_log_removed(&container.id) {
        return Next::Call(pod.runner.removal(&container.id));
    }
    let job = JobSpec::RemoveLog(log_link(pod, container));
    if pod.runner.has_job(&job) { Next::Rest } else { Next::Job(job) }
}

/// The names of a container's log files.
pub fn log_link(pod: &Pod, container: &ObservedContainer) -> LogLink {
    LogLink {
        pod: log_dir(&pod.api),
        container: container.name.clone(),
        attempt: container.attempt,
        id: container.id.0.clone(),
    }
}

fn terminating(pod: &Pod, now: Instant) -> Next {
    let ending = pod.lifecycle.ending().expect("set on entering Terminating");
    // The grace period only shrinks; a stop with a longer one is requested again (rule R4).
    let kill_at = ending.end();
    let soonest = now.plus_ms(limits::STOP_GRACE_MIN_S.unsigned_abs() * 1000);
    let late_stop = pod.runner.find_call(|step| match step {
        Step::Stop { kill_at: given, .. } => *given > kill_at.max(soonest).plus_ms(1000),
        _ => false,
    });
    if let Some(call) = late_stop {
        return Next::GiveUp(call);
    }
    if pod.runner.is_busy() {
        return Next::Rest;
    }
    if pod.observed.is_unknown() {
        return if pod.runner.has_calls() { Next::Rest } else { Next::Relist };
    }
    if let Some(step) = pod.address_for_hooks(now) {
        return Next::Call(step);
    }
    if let Some(next) = stop_all(pod, ending, now) {
        return next;
    }
    if pod.runner.has_calls() {
        return Next::Rest;
    }
    if let Some(at) = pod.runner.held_until(now) {
        return Next::Until(at);
    }
    if let Some(sandbox) = pod.observed.sandboxes.iter().find(|sandbox| !sandbox.stopped) {
        return Next::Call(Step::StopSandbox(sandbox.id.clone()));
    }
    if !pod.observed.is_fresh() {
        return Next::Relist;
    }
    match inspection(pod) {
        Some(step) => inspect(pod, step, now),
        None => Next::Enter(Phase::Terminated),
    }
}

/// A cancelled call may take effect late, so running containers are stopped here too (rule R6).
fn terminated(pod: &Pod, now: Instant) -> Next {
    if pod.runner.is_busy() {
        return Next::Rest;
    }
    if pod.observed.is_unknown() {
        return if pod.runner.has_calls() { Next::Rest } else { Next::Relist };
    }
    let at_once = Ending { since: now, grace_s: 1 };
    if let Some(next) = stop_all(pod, at_once, now) {
        return next;
    }
    if pod.runner.has_calls() {
        return Next::Rest;
    }
    if let Some(at) = pod.runner.held_until(now) {
        return Next::Until(at);
    }
    if let Some(sandbox) = pod.observed.sandboxes.iter().find(|sandbox| !sandbox.stopped) {
        return Next::Call(Step::StopSandbox(sandbox.id.clone()));
    }
    if let Some(next) = volumes::tear_down(pod, now).or_else(|| cgroup::remove(pod, now)) {
        return next;
    }
    if pod.is_wanted() {
        return pod.next_removal(now).unwrap_or(Next::Rest);
    }
    clean(pod, now)
}

/// Removes the rest, and ends only after a list has shown that nothing is left. The directories are
/// removed before the last sandbox, because the next start of the agent would still know the pod by
/// that sandbox; containers are removed meanwhile.
fn clean(pod: &Pod, now: Instant) -> Next {
    if let Some(at) = pod.runner.cleanup_held_until(now) {
        return Next::Until(at);
    }
    let dir = log_dir(&pod.api);
    let folders = [
        (pod.files.is_log_dir_removed(), JobSpec::RemoveLogDir(dir.clone())),
        (pod.files.is_dir_removed(), JobSpec::RemovePodDir(dir)),
    ];
    let busy = pod.runner.jobs().any(|job| folders.iter().all(|(_, removal)| job != removal));
    for (_, removal) in folders.iter().filter(|(removed, _)| !removed && !busy) {
        if !pod.runner.has_job(removal) {
            return Next::Job(removal.clone());
        }
    }
    if let Some(container) = pod.observed.containers.first() {
        return remove_container(pod, container, now);
    }
    if folders.iter().any(|(removed, _)| !removed) {
        return Next::Rest;
    }
    if let Some(sandbox) = pod.observed.sandboxes.first() {
        return Next::Call(Step::RemoveSandbox(sandbox.id.clone()));
    }
    if pod.observed.is_fresh() { Next::Enter(Phase::Finished) } else { Next::Relist }
}

impl Pod {
    /// The call that stops this container, if one is under way.
    pub(super) fn stopping(&self, id: &ContainerId) -> Option<CallId> {
        self.runner
            .find_call(|step| matches!(step, Step::Stop { id: stopped, .. } if stopped == id))
    }

    /// The containers of the spec that run before the main containers.
    fn init_containers(&self) -> &[Container] {
        &self.api.spec.init_containers
    }
}

/// Whether the container was created from the current spec. Agents before Kubernetes 1.31 hashed
/// the whole container, so another hash with the same image is the same container.
pub(super) fn is_same_definition(observed: &ObservedContainer, spec: &Container) -> bool {
    observed.image == spec.image
        || observed.hash.as_deref() == Some(&*super::hash::container_hash(&spec.name, &spec.image))
}

/// An init container that runs beside the main containers.
pub(super) fn is_sidecar(init: &Container) -> bool {
    init.restart_policy.is_some()
}

/// Whether any main container ever ran in the newest sandbox: then initialisation is over.
pub(super) fn is_initialised(pod: &Pod, observed: &Observed) -> bool {
    let Some(sandbox) = observed.sandbox() else { return false };
    pod.api
        .spec
        .containers
        .iter()
        .any(|main| observed.of(&main.name).any(|container| container.sandbox == sandbox.id))
}
