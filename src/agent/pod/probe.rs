//! Probes: when a container is probed, and how the results are counted (spec section 5).
//!
//! ```text
//!            its container runs                    due, and there is room
//!  Waiting ─────────────────────▶ Due at … ─────────────────────────────▶ under way
//!     ▲                              ▲                                        │
//!     │ another instance             └── the next of its period ◀── an answer ┤
//!     └────────────────────────── Held ◀── liveness failed, startup decided ◀─┘
//! ```
//!
//! There is one worker for each probe of each container that may have probes. There are no timers:
//! each worker has the time at which it is due, and the pod wakes for the earliest one. A probe
//! under way is not due; a probe that finds no room stays due and is retried at the next step. The
//! startup probe has to succeed before the others begin. A result holds for one instance of the
//! container.
//!
//! Intended differences from the kubelet: the first probe comes at the end of the initial delay and
//! not up to a period later, and the others come right after the startup probe has succeeded.
//!
//! If we crash here: counts and times are lost; after the restart each probe begins at a random
//! moment of its first period, so that they do not all begin at once. A container that still runs
//! keeps the saved results of its startup and readiness probes
//! ([`crate::agent::event::Action::SaveProbeResults`]) until its probes report otherwise; a startup
//! probe that succeeded does not run again.

mod target;
mod worker;

use super::observed::ObservedContainer;
use super::{Phase, Pod, PodContext};
use crate::agent::calls::{Class, Owner};
use crate::agent::event::{CallId, ProbeId};
use crate::agent::jobs::QueryOwner;
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
use target::{ProbeRequest, TargetError, probe_request};
use worker::{InFlight, Outcome, Worker};

#[derive(Debug, Default)]
pub(super) struct Probes {
    /// `None`: not created yet. They are created once, from the spec at that time.
    workers: Option<Vec<Worker>>,
    wake_at: Option<Instant>,
    /// A probe is due, or an answer came.
    dirty: bool,
    /// A worker was attached to a new instance, with saved results or without.
    attached: bool,
}

/// The result of a probe that requires its container to be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeVerdict {
    pub kind: ProbeKind,
    /// The grace period of the probe in seconds.
    pub grace_s: Option<i64>,
}

impl Pod {
    /// Whether [`Pod::probe`] has something to do.
    pub fn is_probe_due(&self, now: Now) -> bool {
        self.probes.dirty || self.probes.wake_at.is_some_and(|at| at <= now.boot)
    }

    /// When [`Pod::probe`] will have something to do.
    pub(super) fn probes_wake_at(&self) -> Option<Instant> {
        self.probes.wake_at
    }

    /// Whether no probe is under way.
    pub(super) fn no_probe_running(&self) -> bool {
        self.probes.workers.iter().flatten().all(|worker| worker.flight.is_none())
    }

    /// Starts the probes that are due. Returns whether a worker was attached to a new instance:
    /// then the pod has to be stepped again.
    pub fn probe(&mut self, now: Now, context: &mut PodContext<'_>) -> bool {
        self.probes.dirty = false;
        self.probes.wake_at = None;
        let mut workers = match self.probes.workers.take() {
            Some(workers) => workers,
            None => self.workers(),
        };
        let (mut wake_at, mut starved): (Option<Instant>, bool) = (None, false);
        for at in 0..workers.len() {
            if !self.follow_instance(now, &mut workers[at], context) {
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
        self.probes.dirty |= starved;
        self.flush_events(now, context);
        std::mem::take(&mut self.probes.attached)
    }

    /// Main containers and sidecars may have probes.
    fn workers(&self) -> Vec<Worker> {
        let probed = self.sidecars().chain(&self.api.spec.containers);
        let workers = probed.flat_map(|container| {
            of_container(container)
                .map(|(kind, probe)| Worker::new(container.name.clone(), kind, probe))
        });
        workers.collect()
    }

    /// Follows the instances of the worker's container. Returns whether it may be probed now.
    fn follow_instance(
        &mut self,
        now: Now,
        worker: &mut Worker,
        context: &mut PodContext<'_>,
    ) -> bool {
        let newest = self.observed.newest(&worker.container);
        let running = newest.filter(|observed| {
            observed.state == ContainerState::Running && !self.is_starting(observed)
        });
        let Some(running) = running else {
            give_up(now, worker, context);
            return false;
        };
        if worker.id.as_ref() != Some(&running.id) {
            if running.began_at.is_none() && running.status.is_none() {
                // The start time of the instance is being inspected.
                give_up(now, worker, context);
                return false;
            }
            let id = running.id.clone();
            let since = running.began_at.unwrap_or_else(|| running_since(running, now));
            give_up(now, worker, context);
            let begins_at = now.boot.max(since.plus_ms(worker.settings.delay_ms));
            let young_ms = now.boot.since_ms(context.booted_at);
            let spread_ms = if young_ms < worker.settings.period_ms {
                context.rng.below(worker.settings.period_ms)
            } else {
                0
            };
            let saved = context.saved_results.get(&id).copied();
            worker.attach(id, begins_at.max(now.boot.plus_ms(spread_ms)), saved);
            self.probes.attached = true;
            self.mark_dirty();
        }
        if !self.probes_in(worker) {
            give_up(now, worker, context);
            return false;
        }
        worker.flight.is_none() && !worker.held
    }

    /// While the pod ends, only readiness probes run.
    fn probes_in(&self, worker: &Worker) -> bool {
        let ends = self.api.metadata.deletion_timestamp.is_some();
        match (self.phase(), worker.kind) {
            (Phase::Syncing | Phase::Terminating, ProbeKind::Readiness) => true,
            (Phase::Syncing, ProbeKind::Startup | ProbeKind::Liveness) => {
                let newest = self.observed.newest(&worker.container);
                // A container that is being stopped is not killed again.
                let is_wanted = |observed: &ObservedContainer| {
                    self.stopping(&observed.id).is_none() && !self.has_pre_stop_begun(observed)
                };
                !ends && newest.is_none_or(is_wanted)
            }
            (Phase::Terminating | Phase::Terminated | Phase::Finished, _) => false,
        }
    }

    /// Starts a probe. `false`: there is no room.
    fn begin_probe(&mut self, now: Now, worker: &mut Worker, context: &mut PodContext<'_>) -> bool {
        let id = worker.id.clone().expect("attended to");
        let container = self.spec_of(&worker.container);
        let request = match container {
            Some(container) => {
                let (timeout_s, budget) =
                    (worker.settings.timeout_s, &context.config.machine.budget);
                let bytes_max = budget.expanded_bytes_max;
                probe_request(&self.api, container, &worker.handler, timeout_s, bytes_max)
            }
            None => Err(TargetError::NoContainer),
        };
        match request {
            Ok(ProbeRequest::Exec(command)) => {
                if !context.calls.has_room(Class::Exec) {
                    return false;
                }
                worker.begin(now.boot);
                let (timeout_s, purpose) = (worker.settings.timeout_s, ExecPurpose::Probe);
                shown(&command.join(" ")).clone_into(&mut worker.command);
                let request = Request::ExecSync { id, command, timeout_s, purpose };
                let owner = Owner::Probe(self.uid.clone());
                let call = context.calls.begin(now, owner, request, context.out);
                worker.flight = Some(InFlight::Call(call));
            }
            Ok(ProbeRequest::Query(query)) => {
                if !context.queries.has_room() {
                    return false;
                }
                worker.begin(now.boot);
                let deadline = now.boot.plus_ms(u64::from(worker.settings.timeout_s) * 1000);
                let owner = QueryOwner::Probe(self.uid.clone());
                let probe = context.queries.begin(owner, query, deadline, context.out);
                worker.flight = Some(InFlight::Query(probe));
            }
            Err(why) => {
                worker.begin(now.boot);
                // An immediate retry would fail in the same way.
                worker.tries = limits::PROBE_TRIES_MAX;
                self.conclude(now, worker, &Outcome::Error(why.to_string()));
            }
        }
        true
    }

    /// The pod has ended: cancels all probes.
    pub(super) fn end_probes(&mut self, now: Now, context: &mut PodContext<'_>) {
        let mut workers = self.probes.workers.take().unwrap_or_default();
        for worker in &mut workers {
            give_up(now, worker, context);
        }
        self.probes.workers = Some(workers);
    }

    /// Takes the answer to an exec of a probe.
    pub fn probe_exec_done(&mut self, now: Now, call: CallId, result: Result<Reply, CallError>) {
        let mut worker = self.take_worker(InFlight::Call(call));
        let outcome = match result {
            Ok(Reply::Exec(exec)) if exec.exit_code == 0 => Outcome::Good,
            Ok(Reply::Exec(exec)) => {
                Outcome::Bad(exec.beginning(limits::PROBE_OUTPUT_BYTES_MAX).to_owned())
            }
            Ok(other) => panic!("ExecSync cannot answer {}", other.kind()),
            // The runtime killed it at its timeout, or did not answer for much longer.
            Err(CallError::Lost(
                Lost::Deadline | Lost::Runtime { code: Code::DeadlineExceeded, .. },
            )) => Outcome::Bad(format!(
                "command timed out: {:?} timed out after {}s",
                worker.command, worker.settings.timeout_s
            )),
            Err(error) => Outcome::Error(error.to_string()),
        };
        self.conclude(now, &mut worker, &outcome);
        self.put_worker(now.boot, worker);
    }

    /// Takes the answer to a query of a probe.
    pub fn probe_query_done(&mut self, now: Now, probe: ProbeId, finding: Finding) {
        let mut worker = self.take_worker(InFlight::Query(probe));
        let outcome = match finding {
            Finding::Good => Outcome::Good,
            Finding::Warning(text) => Outcome::Warning(text),
            Finding::Bad(text) | Finding::NotTls(text) => Outcome::Bad(text),
        };
        self.conclude(now, &mut worker, &outcome);
        self.put_worker(now.boot, worker);
    }

    fn take_worker(&mut self, flight: InFlight) -> Worker {
        let workers = self.probes.workers.as_mut().expect("a pod with probes under way");
        let at = workers.iter().position(|worker| worker.flight == Some(flight));
        workers.swap_remove(at.expect("an answer belongs to a probe under way"))
    }

    fn put_worker(&mut self, now: Instant, worker: Worker) {
        let workers = self.probes.workers.get_or_insert_default();
        if worker.kind == ProbeKind::Startup && worker.result == Some(true) {
            // The other probes begin now, and with them their periods.
            for other in workers.iter_mut().filter(|other| other.container == worker.container) {
                other.due_at = other.due_at.max(now);
            }
        }
        workers.push(worker);
        self.probes.dirty = true;
    }

    /// Evaluates an outcome, together with those before it.
    fn conclude(&mut self, now: Now, worker: &mut Worker, outcome: &Outcome) {
        worker.flight = None;
        let kind = worker.kind.title();
        let reported = match outcome {
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
        if let Some((reason, message)) = reported {
            let container = worker.container.clone();
            self.record_event(&container, EventType::Warning, reason, message);
        }
        let good = match outcome {
            Outcome::Good | Outcome::Warning(_) => true,
            Outcome::Bad(_) => false,
            // A probe that could not be made changes nothing.
            Outcome::Error(_) => return,
        };
        if worker.count(good) {
            self.mark_dirty();
        }
    }

    /// `started` in the API: the startup probe has succeeded, if there is one.
    pub(super) fn is_started(&self, observed: &ObservedContainer) -> bool {
        let runs = observed.state == ContainerState::Running && !self.is_starting(observed);
        runs && self.result(observed, ProbeKind::Startup).unwrap_or(true)
    }

    /// `ready` in the API, for a container that is not expected to end.
    pub(super) fn is_ready(&self, observed: &ObservedContainer) -> bool {
        self.is_started(observed) && self.result(observed, ProbeKind::Readiness).unwrap_or(true)
    }

    /// The results of running containers, where they differ from those of a container that has just
    /// started.
    pub fn probe_results(&self) -> impl Iterator<Item = (&ContainerId, ProbeResults)> {
        let all = self.sidecars().chain(&self.api.spec.containers);
        all.filter_map(|container| {
            let observed = self.observed.newest(&container.name)?;
            let (started, ready) = (self.is_started(observed), self.is_ready(observed));
            let holds = started && container.startup_probe.is_some()
                || ready && container.readiness_probe.is_some();
            holds.then_some((&observed.id, ProbeResults { started, ready }))
        })
    }

    /// The containers that startup and readiness probes are attached to, with saved results or
    /// without.
    pub fn probed_containers(&self) -> impl Iterator<Item = &ContainerId> {
        let all = self.probes.workers.iter().flatten();
        all.filter(|it| it.kind != ProbeKind::Liveness).filter_map(|it| it.id.as_ref())
    }

    /// The failed probe because of which this instance has to be stopped.
    pub(super) fn failed_probe(&self, observed: &ObservedContainer) -> Option<ProbeVerdict> {
        let mut all = self.probes.workers.iter().flatten();
        let worker = all.find(|worker| {
            worker.kind != ProbeKind::Readiness
                && worker.id.as_ref() == Some(&observed.id)
                && worker.result == Some(false)
        })?;
        Some(ProbeVerdict { kind: worker.kind, grace_s: worker.settings.grace_s })
    }

    /// The result of a probe of the container; `None`: there is no such probe.
    fn result(&self, observed: &ObservedContainer, kind: ProbeKind) -> Option<bool> {
        let container = self.spec_of(&observed.name)?;
        of_container(container).find(|(of, _)| *of == kind)?;
        let mut all = self.probes.workers.iter().flatten();
        let worker = all.find(|worker| worker.kind == kind && worker.container == observed.name);
        let known = worker.filter(|worker| worker.id.as_ref() == Some(&observed.id));
        Some(known.and_then(|worker| worker.result).unwrap_or(false))
    }
}

/// The startup probe decides before the others begin, and only once.
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

/// The result of a probe under way is no longer needed.
fn give_up(now: Now, worker: &mut Worker, context: &mut PodContext<'_>) {
    match worker.flight.take() {
        None => {}
        Some(InFlight::Call(call)) => context.calls.cancel(now, call, context.out),
        Some(InFlight::Query(probe)) => context.queries.cancel(probe, context.out),
    }
    worker.tries = 0;
}

/// The probes of a container, startup first.
pub(super) fn of_container(container: &Container) -> impl Iterator<Item = (ProbeKind, &Probe)> {
    let all = [
        (ProbeKind::Startup, &container.startup_probe),
        (ProbeKind::Readiness, &container.readiness_probe),
        (ProbeKind::Liveness, &container.liveness_probe),
    ];
    all.into_iter().filter_map(|(kind, probe)| Some((kind, &**probe.as_ref()?)))
}

/// The start time of a container that ran before the agent: as the runtime reports it, if its clock
/// was set by then.
fn running_since(observed: &ObservedContainer, now: Now) -> Instant {
    let started_ms = observed.status.as_ref().map(|status| status.started_at / 1_000_000);
    match (started_ms.filter(|&at| at >= limits::CLOCK_PLAUSIBLE_MS), now.wall) {
        (Some(started_ms), Some(wall)) => {
            let ago_ms = u64::try_from(wall.0 - started_ms).unwrap_or(0);
            Instant(now.boot.0.saturating_sub(ago_ms))
        }
        _ => now.boot,
    }
}

/// Events are kept and written to flash: the beginning of a text is enough.
fn shown(text: &str) -> &str {
    let mut end = text.len().min(limits::PROBE_SHOWN_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
