//! Which container to start next, and which to put off (spec sections 2.2–2.5).

use super::{is_initialised, is_same_definition, is_sidecar, pod_grace, remove_container, stop};
use crate::agent::pod::image::Image;
use crate::agent::pod::observed::ObservedContainer;
use crate::agent::pod::plan::{Hold, HoldReason, Next, Plan, Step, StopReason};
use crate::agent::pod::record::ContainerRecord;
use crate::agent::pod::volumes;
use crate::agent::pod::{Phase, Pod};
use crate::agent::time::{Instant, sooner};
use crate::limits;
use crate::model::cri::ContainerState;
use crate::model::pod::{Container, RestartPolicy};

/// What to do about one container.
enum Decision {
    /// This, before anything else of the pod.
    Now(Next),
    /// Nothing: it runs, or is being stopped.
    Runs,
    /// Nothing, ever again.
    Done,
    /// Nothing before this time; the others may continue.
    Held(Instant, Option<HoldReason>),
}

/// The sandbox is ready: goes through the containers in order.
pub(super) fn containers(pod: &Pod, now: Instant) -> Plan {
    let mut walk = Walk { holds: Vec::new(), until: None };
    let next = walk.containers(pod, now);
    let next = pod.meanwhile(next, now);
    Plan { next, holds: walk.holds }
}

struct Walk {
    holds: Vec<Hold>,
    until: Option<Instant>,
}

impl Walk {
    fn containers(&mut self, pod: &Pod, now: Instant) -> Next {
        let initialised = is_initialised(pod, &pod.observed);
        for ephemeral in unstarted_ephemerals(pod) {
            if let Ok(Some(next)) = self.apply(ephemeral, start(pod, ephemeral, now)) {
                return next;
            }
        }
        // An ended sidecar is not started again for a pod that has nothing else to run.
        let is_done = |main| matches!(main_decision(pod, main, now), Decision::Done);
        let over = initialised && pod.api.spec.containers.iter().all(is_done);
        let inits = pod.init_containers();
        for (index, init) in inits.iter().enumerate() {
            if over && !runs(pod, init) {
                continue;
            }
            // Where a later init container has started in this sandbox, no container waits for this
            // one any more: neither for a sidecar that has ended since and waits for its back-off,
            // nor for a plain init container that the runtime no longer has, which is done.
            let opens_once = is_sidecar(init) || in_sandbox(pod, init).is_none();
            let mut later = inits[index + 1..].iter();
            let opened = opens_once && later.any(|later| in_sandbox(pod, later).is_some());
            let gate = !initialised && !opened;
            let decision = init_decision(pod, init, !gate, now);
            match self.apply(init, decision) {
                Ok(None) => {}
                Ok(Some(next)) => return next,
                Err(Held) if gate => return self.rest(),
                Err(Held) => {}
            }
            // A plain init container that runs or is being stopped blocks all later ones; a sidecar
            // blocks them until its startup probe has succeeded.
            if gate && !if is_sidecar(init) { has_started(pod, init) } else { is_over(pod, init) } {
                return self.rest();
            }
        }
        let mut left = false;
        for main in &pod.api.spec.containers {
            let decision = main_decision(pod, main, now);
            left |= !matches!(decision, Decision::Done);
            if let Ok(Some(next)) = self.apply(main, decision) {
                return next;
            }
        }
        if pod.runner.has_calls() {
            return Next::Rest;
        }
        if !left {
            return Next::Enter(Phase::Terminating);
        }
        self.rest()
    }

    fn apply(&mut self, container: &Container, decision: Decision) -> Result<Option<Next>, Held> {
        match decision {
            Decision::Now(next) => Ok(Some(next)),
            Decision::Runs | Decision::Done => Ok(None),
            Decision::Held(until, why) => {
                self.until = sooner(self.until, Some(until));
                if let Some(why) = why {
                    self.holds.push(Hold { container: container.name.clone(), why, until });
                }
                Err(Held)
            }
        }
    }

    fn rest(&self) -> Next {
        self.until.map_or(Next::Rest, Next::Until)
    }
}

struct Held;

/// Whether a new sandbox would run anything.
pub(super) fn is_worth_a_sandbox(pod: &Pod) -> bool {
    let observed = &pod.observed;
    let spec = &pod.api.spec;
    match spec.restart_policy {
        RestartPolicy::Always => true,
        RestartPolicy::Never => observed.sandboxes.is_empty() || observed.containers.is_empty(),
        RestartPolicy::OnFailure => {
            let done = |main: &Container| {
                observed.newest(&main.name).is_some_and(ObservedContainer::succeeded)
            };
            !spec.containers.iter().all(done)
        }
    }
}

/// A plain init container that has succeeded in the newest sandbox.
fn is_over(pod: &Pod, init: &Container) -> bool {
    in_sandbox(pod, init).is_some_and(ObservedContainer::succeeded)
}

/// A sidecar that runs in the newest sandbox, and whose startup probe has succeeded, if it has one.
fn has_started(pod: &Pod, sidecar: &Container) -> bool {
    in_sandbox(pod, sidecar).is_some_and(|observed| pod.is_started(observed))
}

fn runs(pod: &Pod, init: &Container) -> bool {
    in_sandbox(pod, init).is_some_and(|observed| observed.state == ContainerState::Running)
}

/// The newest instance in the newest sandbox: instances in older sandboxes do not count for
/// initialisation.
fn in_sandbox<'a>(pod: &'a Pod, container: &'a Container) -> Option<&'a ObservedContainer> {
    let sandbox = pod.observed.sandbox()?;
    pod.observed.newest(&container.name).filter(|observed| observed.sandbox == sandbox.id)
}

fn init_decision(pod: &Pod, init: &Container, initialised: bool, now: Instant) -> Decision {
    let observed = in_sandbox(pod, init);
    if !is_sidecar(init) {
        if initialised {
            return Decision::Done;
        }
        return match observed {
            Some(observed) if observed.succeeded() => Decision::Done,
            Some(observed) if observed.state == ContainerState::Running => Decision::Runs,
            Some(observed) if observed.state == ContainerState::Exited => {
                match pod.api.spec.restart_policy {
                    RestartPolicy::Never => Decision::Now(Next::Enter(Phase::Terminating)),
                    RestartPolicy::Always | RestartPolicy::OnFailure => start(pod, init, now),
                }
            }
            Some(_) | None => start(pod, init, now),
        };
    }
    match observed {
        Some(observed) if observed.state == ContainerState::Running => {
            keep_running(pod, init, observed, now)
        }
        Some(_) | None => start(pod, init, now),
    }
}

fn main_decision(pod: &Pod, main: &Container, now: Instant) -> Decision {
    let Some(observed) = pod.observed.newest(&main.name) else { return start(pod, main, now) };
    let record = pod.records.get(&main.name);
    let restart_due = record.is_some_and(|record| record.is_restarted_after(&observed.id));
    match observed.state {
        ContainerState::Running => keep_running(pod, main, observed, now),
        ContainerState::Created | ContainerState::Unknown => start(pod, main, now),
        ContainerState::Exited if restart_due => start(pod, main, now),
        ContainerState::Exited => match pod.api.spec.restart_policy {
            RestartPolicy::Never => Decision::Done,
            RestartPolicy::OnFailure if observed.succeeded() => Decision::Done,
            RestartPolicy::OnFailure | RestartPolicy::Always => start(pod, main, now),
        },
    }
}

/// A running container stays, unless the spec names another image now, or a probe or its hook
/// failed.
fn keep_running(
    pod: &Pod,
    container: &Container,
    observed: &ObservedContainer,
    now: Instant,
) -> Decision {
    if pod.stopping(&observed.id).is_some() {
        return Decision::Runs;
    }
    let mut ending = pod_grace(pod, now);
    let why = if !is_same_definition(observed, container) {
        StopReason::Changed
    } else if pod.has_failed_to_start(observed) {
        StopReason::PostStart
    } else if let Some(failed) = pod.failed_probe(observed) {
        ending.grace_s = failed.grace_s.unwrap_or(ending.grace_s).max(1);
        StopReason::Probe(failed.kind)
    } else if is_restart_wanted(pod, observed) {
        StopReason::Restart
    } else if pod.has_pre_stop_begun(observed) {
        // A stop that has begun with its hook is not taken back.
        StopReason::Changed
    } else {
        return Decision::Runs;
    };
    decision(stop(pod, observed, ending, now, why))
}

/// Somebody on the node wants another instance in place of this one.
fn is_restart_wanted(pod: &Pod, observed: &ObservedContainer) -> bool {
    let record = pod.records.get(&observed.name);
    record.is_some_and(|record| record.is_restart_wanted(&observed.id))
}

/// A container that waits does not block other containers.
fn decision(next: Next) -> Decision {
    match next {
        Next::Until(at) => Decision::Held(at, None),
        next => Decision::Now(next),
    }
}

/// The steps of one container to its start: back-off, image, create, start.
fn start(pod: &Pod, container: &Container, now: Instant) -> Decision {
    if pod.runner.has_calls() {
        // Only stops are under way; a start waits for them.
        return Decision::Runs;
    }
    let newest = pod.observed.newest(&container.name);
    let restarts = newest.is_some_and(|newest| newest.state == ContainerState::Exited);
    if restarts && pod.observed.containers.iter().any(|observed| pod.has_pre_stop_begun(observed)) {
        // A restart also waits for another container's stop that has begun with preStop.
        return Decision::Runs;
    }
    let record = pod.records.get(&container.name);
    if let Some(until) = record.and_then(|record| record.held_until(now)) {
        return Decision::Held(until, None);
    }
    if let Some(newest) = newest {
        match newest.state {
            ContainerState::Unknown => {
                return decision(stop(pod, newest, pod_grace(pod, now), now, StopReason::Unknown));
            }
            ContainerState::Created
                if is_startable(pod, newest, container)
                    && !pod.observed.of(&container.name).any(ObservedContainer::may_run) =>
            {
                let (id, container) = (newest.id.clone(), container.name.clone());
                return Decision::Now(Next::Call(Step::Start { id, container }));
            }
            ContainerState::Created | ContainerState::Running | ContainerState::Exited => {}
        }
    }
    if let Some(decision) = unstarted(pod, container, now) {
        return decision;
    }
    if let Some(held) = crash_hold(pod, container, now) {
        return held;
    }
    let volumes = volumes::progress(pod, now);
    if let Some(until) = volumes.until.filter(|_| volumes.waits) {
        return Decision::Held(until, None);
    }
    let name = || container.name.clone();
    let image = || container.image.clone();
    Decision::Now(Next::Call(match record.map_or(&Image::Unknown, ContainerRecord::image) {
        Image::Unknown => match Pod::image_fault(container) {
            // Only another spec can repair this.
            Some(why) => return Decision::Held(now.plus_ms(limits::BACKOFF_MAX_MS), Some(why)),
            None => Step::ImageStatus { container: name(), image: image() },
        },
        Image::Pulled { .. } => Step::ImageStatus { container: name(), image: image() },
        Image::ToPull(_) => match pull_hold(pod, container, now) {
            Some(held) => return held,
            None => Step::Pull { container: name(), image: image() },
        },
        Image::Ready(image_ref, _) => {
            if let Some(next) = super::make_log_dirs(pod, now) {
                return decision(next);
            }
            // Otherwise a container that restarts constantly would leave all its dead instances.
            let mut ended = pod.observed.of(&container.name);
            let surplus =
                ended.by_ref().filter(|it| it.state == ContainerState::Exited).nth(pod.dead_max());
            if let Some(old) = surplus.filter(|_| pod.runner.cleanup_held_until(now).is_none()) {
                return Decision::Now(remove_container(pod, old, now));
            }
            let attempt = next_attempt(pod, container);
            let (image, image_ref) = (container.image.clone(), image_ref.clone());
            Step::Create { container: name(), attempt, image, image_ref }
        }
    }))
}

/// A container that was created and, as far as is known, never started: it may still start (rule
/// R6).
fn unstarted(pod: &Pod, container: &Container, now: Instant) -> Option<Decision> {
    let mut made = pod.observed.of(&container.name);
    let made = made.find(|it| it.state == ContainerState::Created)?;
    let step = pod.runner.removal(&made.id);
    Some(decision(pod.runner.held_until(now).map_or(Next::Call(step), Next::Until)))
}

/// Rule R7: greater than all observed and all remembered attempt numbers.
fn next_attempt(pod: &Pod, container: &Container) -> u32 {
    let newest = pod.observed.newest(&container.name).map(|newest| newest.attempt);
    pod.records.next_attempt(&container.name, newest)
}

/// Created and not started: by us a moment ago, or by an earlier start of the agent.
fn is_startable(pod: &Pod, observed: &ObservedContainer, container: &Container) -> bool {
    pod.observed.sandbox().is_some_and(|sandbox| sandbox.id == observed.sandbox)
        && is_same_definition(observed, container)
}

/// Spec section 2.4: counted from the newest end, for one definition of the container.
fn crash_hold(pod: &Pod, container: &Container, now: Instant) -> Option<Decision> {
    let record = pod.records.get(&container.name)?;
    let exited = pod.observed.of(&container.name).find_map(|observed| observed.exited_at)?;
    let delay_ms = record.crash_delay_ms(&container.image, exited)?;
    let until = exited.plus_ms(delay_ms);
    (until > now).then_some(Decision::Held(until, Some(HoldReason::CrashLoop { delay_ms })))
}

fn pull_hold(pod: &Pod, container: &Container, now: Instant) -> Option<Decision> {
    let failed = pod.pulls.failed(&container.image)?;
    let until = failed.until;
    let why = failed.why.clone();
    // The image may arrive in another way: it is looked up again before the pull is retried.
    let look_at = until.min(now.plus_ms(limits::IMAGE_RECHECK_MS));
    (until > now).then_some(Decision::Held(look_at, Some(HoldReason::ImagePull { why })))
}

/// Ephemeral containers that have never been started. They are started once, whatever the restart
/// policy; nothing depends on them (spec section 2.10).
fn unstarted_ephemerals(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.api.spec.ephemeral_containers.iter().filter(|container| {
        let newest = pod.observed.newest(&container.name);
        newest.is_none_or(|observed| observed.state == ContainerState::Created)
    })
}
