//! Probes: when to ask a container how it is, and what its answers amount to (spec section 5).
//!
//! ```text
//!            its container runs                    due, and there is room
//!  Waiting ─────────────────────▶ Due at … ─────────────────────────────▶ under way
//!     ▲                              ▲                                        │
//!     │ another instance             └── the next of its period ◀── an answer ┤
//!     └────────────────────────── Held ◀── liveness failed, startup decided ◀─┘
//! ```
//!
//! One worker for each probe of each container that may have probes. There are no timers: each
//! worker has the time at which it is due, and the pod wakes for the earliest. What is under way
//! is not due; what finds no room is due still, and tried at the next step. Startup decides before
//! the others begin. A result holds for one instance of the container.
//!
//! Intended behaviour beside the kubelet's: the first probe comes at the end of the initial delay
//! and not up to a period after it, and the others right after startup has succeeded.
//!
//! If we crash here: counts and times are lost; after the restart each probe begins at a random
//! moment of its first period, so that not all begin at once. A container that still runs keeps the
//! saved results of its startup and readiness probes
//! ([`crate::agent::event::Action::SaveProbeResults`]) until its probes say otherwise; a startup
//! probe that succeeded does not run again.

mod target;
mod worker;

use super::hooks::PreStop;
use super::observed::ObservedContainer;
use super::{Phase, Pod};
use crate::agent::calls::{Class, Owner};
use crate::agent::event::{CallId, ProbeId};
use crate::agent::time::{Instant, Now, sooner};
use crate::limits;
use crate::model::cri::{
    CallError, Code, ContainerId, ContainerState, ExecPurpose, Lost, Reply, Request,
};
use crate::model::net::Finding;
use crate::model::pod::Container;
use crate::model::probe::{Probe, ProbeKind, ProbeResults};
use crate::model::recorded_event::EventType;
pub(super) use target::hook_get;
use target::{Ask, ask};
use worker::{Flight, Outcome, Worker};

use super::step::PodContext;

/// All probes of one pod.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// `None`: not yet made. They are made once, of the spec as it is then.
    workers: Option<Vec<Worker>>,
    wake_at: Option<Instant>,
    /// Something is due, or an answer came.
    stirred: bool,
    /// A container was taken up, with saved results or without.
    taken_up: bool,
}

/// What a probe did to its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeVerdict {
    /// Which one.
    pub kind: ProbeKind,
    /// Seconds of grace that it names.
    pub grace_s: Option<i64>,
}

impl Pod {
    /// Whether [`Pod::probe`] has something to do.
    pub fn is_probe_due(&self, now: Now) -> bool {
        self.probes.stirred || self.probes.wake_at.is_some_and(|at| at <= now.boot)
    }

    /// When it will have.
    pub(super) fn probes_wake_at(&self) -> Option<Instant> {
        self.probes.wake_at
    }

    /// Nothing is under way.
    pub(super) fn is_probed_out(&self) -> bool {
        self.probes.workers.iter().flatten().all(|worker| worker.flight.is_none())
    }

    /// Asks what is due. Says whether a container was taken up: the pod is to be looked at again.
    pub fn probe(&mut self, now: Now, context: &mut PodContext<'_>) -> bool {
        self.probes.stirred = false;
        self.probes.wake_at = None;
        let mut workers = match self.probes.workers.take() {
            Some(workers) => workers,
            None => self.workers(),
        };
        let (mut wake_at, mut starved): (Option<Instant>, bool) = (None, false);
        for at in 0..workers.len() {
            if !self.attend(now, &mut workers[at], context) {
                continue;
            }
            if !is_turn_of(&workers, at) {
                continue;
            }
            let worker = &mut workers[at];
            if worker.due_at <= now.boot {
                starved |= !self.begin_probe(now, worker, context);
            }
            if worker.flight.is_none() && worker.due_at > now.boot {
                wake_at = sooner(wake_at, Some(worker.due_at));
            }
        }
        self.probes.workers = Some(workers);
        self.probes.wake_at = wake_at;
        // Waiting for room sets no timer.
        self.probes.stirred |= starved;
        self.tell_all(now, context);
        std::mem::take(&mut self.probes.taken_up)
    }

    /// Main containers and sidecars have probes.
    fn workers(&self) -> Vec<Worker> {
        let probed = self.sidecars().chain(&self.api.spec.containers);
        let workers = probed.flat_map(|container| {
            of_container(container)
                .map(|(kind, probe)| Worker::new(container.name.clone(), kind, probe))
        });
        workers.collect()
    }

    /// Follows the instances of the worker's container. Says whether it may be probed at all now.
    fn attend(&mut self, now: Now, worker: &mut Worker, context: &mut PodContext<'_>) -> bool {
        let newest = self.seen.newest(&worker.container);
        let running =
            newest.filter(|seen| seen.state == ContainerState::Running && !self.is_starting(seen));
        let Some(running) = running else {
            give_up(now, worker, context);
            return false;
        };
        if worker.id.as_ref() != Some(&running.id) {
            if running.began_at.is_none() && running.status.is_none() {
                // Since when it runs is being asked.
                give_up(now, worker, context);
                return false;
            }
            let id = running.id.clone();
            let since = running.began_at.unwrap_or_else(|| running_since(running, now));
            give_up(now, worker, context);
            let begins_at = now.boot.max(since.plus_ms(worker.terms.delay_ms));
            let young_ms = now.boot.since_ms(context.booted_at);
            let spread_ms = if young_ms < worker.terms.period_ms {
                context.rng.below(worker.terms.period_ms)
            } else {
                0
            };
            let saved = context.saved_results.get(&id).copied();
            worker.attach(id, begins_at.max(now.boot.plus_ms(spread_ms)), saved);
            self.probes.taken_up = true;
            self.stir();
        }
        if !self.probes_in(worker) {
            give_up(now, worker, context);
            return false;
        }
        worker.flight.is_none() && !worker.held
    }

    /// While the pod ends, only whether it is ready is of interest.
    fn probes_in(&self, worker: &Worker) -> bool {
        let ends = self.api.metadata.deletion_timestamp.is_some();
        match (self.phase, worker.kind) {
            (Phase::Syncing | Phase::Terminating, ProbeKind::Readiness) => true,
            (Phase::Syncing, ProbeKind::Startup | ProbeKind::Liveness) => {
                let newest = self.seen.newest(&worker.container);
                // What is being stopped is not killed once more.
                let stays = |seen: &ObservedContainer| {
                    let hooked = self.pre_stop(seen);
                    self.stopping(&seen.id).is_none()
                        && matches!(hooked, PreStop::None | PreStop::Due)
                };
                !ends && newest.is_none_or(stays)
            }
            (Phase::Terminating | Phase::Terminated | Phase::Finished, _) => false,
        }
    }

    /// `false`: there is no room.
    fn begin_probe(&mut self, now: Now, worker: &mut Worker, context: &mut PodContext<'_>) -> bool {
        let id = worker.id.clone().expect("attended to");
        let container = self.spec_of(&worker.container);
        let asked = match container {
            Some(container) => {
                let (timeout_s, budget) = (worker.terms.timeout_s, &context.config.machine.budget);
                let bytes_max = budget.expanded_bytes_max;
                ask(&self.api, container, &worker.handler, timeout_s, bytes_max)
            }
            None => Err("its container is not in the pod any more".to_owned()),
        };
        match asked {
            Ok(Ask::Exec(command)) => {
                if !context.calls.has_room(Class::Exec) {
                    return false;
                }
                worker.begin(now.boot);
                let (timeout_s, purpose) = (worker.terms.timeout_s, ExecPurpose::Probe);
                shown(&command.join(" ")).clone_into(&mut worker.command);
                let request = Request::ExecSync { id, command, timeout_s, purpose };
                let owner = Owner::Exec(self.uid.clone());
                let call = context.calls.begin(now, owner, request, context.out);
                worker.flight = Some(Flight::Call(call));
            }
            Ok(Ask::Query(query)) => {
                if !context.queries.has_room() {
                    return false;
                }
                worker.begin(now.boot);
                let deadline = now.boot.plus_ms(u64::from(worker.terms.timeout_s) * 1000);
                let probe = context.queries.begin(&self.uid, query, deadline, context.out);
                worker.flight = Some(Flight::Query(probe));
            }
            Err(why) => {
                worker.begin(now.boot);
                // Asking again at once would find the same.
                worker.tries = limits::PROBE_TRIES_MAX;
                self.conclude(now, worker, &Outcome::Error(why));
            }
        }
        true
    }

    /// The pod has ended: gives up everything.
    pub(super) fn end_probes(&mut self, now: Now, context: &mut PodContext<'_>) {
        let mut workers = self.probes.workers.take().unwrap_or_default();
        for worker in &mut workers {
            give_up(now, worker, context);
        }
        self.probes.workers = Some(workers);
    }

    /// Takes the answer to a command of a probe. The result comes back if it is not this one's.
    pub(super) fn probe_called(
        &mut self,
        now: Now,
        call: CallId,
        result: Result<Reply, CallError>,
    ) -> Option<Result<Reply, CallError>> {
        let Some(mut worker) = self.take_worker(Flight::Call(call)) else { return Some(result) };
        let outcome = match result {
            Ok(Reply::Exec(exec)) if exec.exit_code == 0 => Outcome::Good,
            Ok(Reply::Exec(exec)) => Outcome::Bad(exec.output.into()),
            Ok(other) => panic!("ExecSync cannot answer {other:?}"),
            // The runtime killed it at its timeout, or did not answer for far longer.
            Err(CallError::Lost(
                Lost::Deadline | Lost::Runtime { code: Code::DeadlineExceeded, .. },
            )) => Outcome::Bad(format!(
                "command timed out: {:?} timed out after {}s",
                worker.command, worker.terms.timeout_s
            )),
            Err(error) => Outcome::Error(error.to_string()),
        };
        self.conclude(now, &mut worker, &outcome);
        self.put_worker(now.boot, worker);
        None
    }

    /// Takes the answer to a query of a probe. The finding comes back if it is not this one's.
    pub(super) fn probe_found(
        &mut self,
        now: Now,
        probe: ProbeId,
        finding: Finding,
    ) -> Option<Finding> {
        let Some(mut worker) = self.take_worker(Flight::Query(probe)) else { return Some(finding) };
        let outcome = match finding {
            Finding::Good => Outcome::Good,
            Finding::Warning(text) => Outcome::Warning(text),
            Finding::Bad(text) | Finding::NotTls(text) => Outcome::Bad(text),
        };
        self.conclude(now, &mut worker, &outcome);
        self.put_worker(now.boot, worker);
        None
    }

    fn take_worker(&mut self, flight: Flight) -> Option<Worker> {
        let workers = self.probes.workers.as_mut()?;
        let at = workers.iter().position(|worker| worker.flight == Some(flight))?;
        Some(workers.swap_remove(at))
    }

    fn put_worker(&mut self, now: Instant, worker: Worker) {
        let workers = self.probes.workers.get_or_insert_default();
        if worker.kind == ProbeKind::Startup && worker.result == Some(true) {
            // The others begin now, and their periods with them.
            for other in workers.iter_mut().filter(|other| other.container == worker.container) {
                other.due_at = other.due_at.max(now);
            }
        }
        workers.push(worker);
        self.probes.stirred = true;
    }

    /// What an outcome amounts to, with those before it.
    fn conclude(&mut self, now: Now, worker: &mut Worker, outcome: &Outcome) {
        worker.flight = None;
        let kind = worker.kind.title();
        let told = match outcome {
            Outcome::Good => None,
            Outcome::Warning(text) => {
                Some(("ProbeWarning", format!("{kind} probe warning: {}", shown(text))))
            }
            Outcome::Bad(text) => {
                Some(("Unhealthy", format!("{kind} probe failed: {}", shown(text))))
            }
            Outcome::Error(_) if worker.tries < limits::PROBE_TRIES_MAX => {
                worker.due_at = now.boot;
                return;
            }
            Outcome::Error(text) => {
                Some(("Unhealthy", format!("{kind} probe errored: {}", shown(text))))
            }
        };
        worker.tries = 0;
        worker.due_at = worker.next_at.max(now.boot);
        if let Some((reason, message)) = told {
            let container = worker.container.clone();
            self.tell(&container, EventType::Warning, reason, message);
        }
        let good = match outcome {
            Outcome::Good | Outcome::Warning(_) => true,
            Outcome::Bad(_) => false,
            // Who could not ask knows as much as before.
            Outcome::Error(_) => return,
        };
        if worker.count(good) {
            self.stir();
        }
    }

    /// `started` in the API: the startup probe has succeeded, if there is one.
    pub(super) fn is_started(&self, seen: &ObservedContainer) -> bool {
        let runs = seen.state == ContainerState::Running && !self.is_starting(seen);
        runs && self.result(seen, ProbeKind::Startup).unwrap_or(true)
    }

    /// `ready` in the API, of a container that has no end of its own.
    pub(super) fn is_ready(&self, seen: &ObservedContainer) -> bool {
        self.is_started(seen) && self.result(seen, ProbeKind::Readiness).unwrap_or(true)
    }

    /// The results of running containers, where they differ from those of a container that has just
    /// started.
    pub fn probe_results(&self) -> impl Iterator<Item = (&ContainerId, ProbeResults)> {
        let all = self.sidecars().chain(&self.api.spec.containers);
        all.filter_map(|container| {
            let seen = self.seen.newest(&container.name)?;
            let (started, ready) = (self.is_started(seen), self.is_ready(seen));
            let holds = started && container.startup_probe.is_some()
                || ready && container.readiness_probe.is_some();
            holds.then_some((&seen.id, ProbeResults { started, ready }))
        })
    }

    /// The containers that its startup and readiness probes have taken up, with saved results or
    /// without.
    pub fn probed_containers(&self) -> impl Iterator<Item = &ContainerId> {
        let all = self.probes.workers.iter().flatten();
        all.filter(|it| it.kind != ProbeKind::Liveness).filter_map(|it| it.id.as_ref())
    }

    /// Whether a probe wants this instance to be stopped.
    pub(super) fn condemned(&self, seen: &ObservedContainer) -> Option<ProbeVerdict> {
        let mut all = self.probes.workers.iter().flatten();
        let worker = all.find(|worker| {
            worker.kind != ProbeKind::Readiness
                && worker.id.as_ref() == Some(&seen.id)
                && worker.result == Some(false)
        })?;
        Some(ProbeVerdict { kind: worker.kind, grace_s: worker.terms.grace_s })
    }

    /// What a probe of the container says; `None`: there is no such probe.
    fn result(&self, seen: &ObservedContainer, kind: ProbeKind) -> Option<bool> {
        let container = self.spec_of(&seen.name)?;
        of_container(container).find(|(of, _)| *of == kind)?;
        let mut all = self.probes.workers.iter().flatten();
        let worker = all.find(|worker| worker.kind == kind && worker.container == seen.name);
        let known = worker.filter(|worker| worker.id.as_ref() == Some(&seen.id));
        Some(known.and_then(|worker| worker.result).unwrap_or(false))
    }
}

/// Startup decides before the others begin, and never again.
fn is_turn_of(workers: &[Worker], at: usize) -> bool {
    let worker = &workers[at];
    let mut all = workers.iter();
    let startup = all.find(|it| it.kind == ProbeKind::Startup && it.container == worker.container);
    match startup {
        None => true,
        Some(_) if worker.kind == ProbeKind::Startup => true,
        Some(startup) => startup.id == worker.id && startup.result == Some(true),
    }
}

/// What was under way is of no more interest.
fn give_up(now: Now, worker: &mut Worker, context: &mut PodContext<'_>) {
    match worker.flight.take() {
        None => {}
        Some(Flight::Call(call)) => context.calls.cancel(now, call, context.out),
        Some(Flight::Query(probe)) => context.queries.cancel(probe, context.out),
    }
    worker.tries = 0;
}

/// The probes that a container asks for, startup first.
pub(super) fn of_container(container: &Container) -> impl Iterator<Item = (ProbeKind, &Probe)> {
    let all = [
        (ProbeKind::Startup, &container.startup_probe),
        (ProbeKind::Readiness, &container.readiness_probe),
        (ProbeKind::Liveness, &container.liveness_probe),
    ];
    all.into_iter().filter_map(|(kind, probe)| Some((kind, &**probe.as_ref()?)))
}

/// Since when one runs that ran before we did: as the runtime says, if its clock was set by then.
fn running_since(seen: &ObservedContainer, now: Now) -> Instant {
    let started_ms = seen.status.as_ref().map(|status| status.started_at / 1_000_000);
    match (started_ms.filter(|&at| at >= limits::CLOCK_PLAUSIBLE_MS), now.wall) {
        (Some(started_ms), Some(wall)) => {
            let ago_ms = u64::try_from(wall.0 - started_ms).unwrap_or(0);
            Instant(now.boot.0.saturating_sub(ago_ms))
        }
        _ => now.boot,
    }
}

/// Events are kept and written to flash: the beginning of a text says enough.
fn shown(text: &str) -> &str {
    let mut end = text.len().min(limits::PROBE_SHOWN_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
