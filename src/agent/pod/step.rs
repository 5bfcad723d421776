//! Carries out the steps that [`super::next`] returns, as far as there is room.

use super::hooks::PreStop;
use super::next::{log_link, needs_sandbox, next};
use super::plan::{Hold, HoldReason, Next, NodeView, Step};
use super::{Phase, Pod, PodContext, Verdict, Wanted};
use crate::agent::Config;
use crate::agent::calls::Owner;
use crate::agent::event::{Action, Severity};
use crate::agent::jobs::JobOwner;
use crate::agent::pleg::Pleg;
use crate::agent::time::{BackoffBounds, Now};
use crate::limits;
use crate::model::cri::Request;
use crate::model::job::JobSpec;
use crate::model::recorded_event::EventType;
use crate::model::status::Waiting;

/// Steps of one pod in one turn, besides those for each of its volumes and containers; more is a
/// loop.
const STEPS_MAX: usize = 256;
/// A hook and a stop, with the calls that have to be cancelled for them.
const STEPS_EACH: usize = 4;

impl Pod {
    /// Requests everything that can be requested now. Returns whether a call was cancelled: others
    /// may have waited for its room.
    pub fn step(&mut self, now: Now, world: &NodeView<'_>, context: &mut PodContext<'_>) -> bool {
        self.keep_dead(&context.config.housekeeping.containers);
        self.link_log(now, context);
        self.tick_hooks(now, context);
        self.count_active(now);
        self.plan_cgroup(context);
        self.plan_mounts(context);
        self.plan_volumes(now.boot, context.objects.of(self.origin), context.config);
        self.read_termination_messages(context);
        let mut gave_up = self.follow_plan(now, world, context);
        // A container with saved results has started, and other containers may have waited for
        // that.
        while self.probe(now, context) {
            gave_up |= self.follow_plan(now, world, context);
        }
        self.retry_missed_list(now, context.pleg);
        gave_up
    }

    /// Carries out the steps that [`next`] returns, until there is nothing left.
    fn follow_plan(
        &mut self,
        now: Now,
        world: &NodeView<'_>,
        context: &mut PodContext<'_>,
    ) -> bool {
        let mut gave_up = false;
        self.schedule.begin();
        let parts = self.api.spec.volumes.len() + self.observed.containers.len();
        for left in (0..STEPS_MAX + parts * STEPS_EACH).rev() {
            assert!(left > 0, "pod {} requests steps without end", self.uid);
            let plan = next(self, world, now.boot);
            for hold in plan.holds {
                self.put_off(hold);
            }
            match plan.next {
                Next::Call(step) => {
                    if !self.call(now, step, context) {
                        break;
                    }
                }
                Next::Hook(id, kind, why) => {
                    if !self.begin_hook(now, &id, kind, why, context) {
                        break;
                    }
                }
                Next::GiveUpHook(id) => {
                    self.give_up_hook(now, &id, context);
                    gave_up = true;
                }
                Next::GiveUp(call) => {
                    context.calls.cancel(now, call, context.out);
                    self.runner.forget_call(call);
                    gave_up = true;
                }
                Next::Job(spec) => self.begin_job(now, spec, context),
                Next::GiveUpJob(job) => {
                    self.runner.cancel_job(job);
                    context.out.push(Action::KillJob(job));
                }
                Next::Enter(phase) => self.go(now, phase, context),
                Next::Fail(verdict) => self.fail(EventType::Warning, verdict),
                Next::FailByDeadline(verdict) => self.fail(EventType::Normal, verdict),
                Next::Relist => {
                    context.pleg.request_relist();
                    self.schedule.rest();
                    break;
                }
                Next::Blocked(why) => {
                    if let Some(cause) = world.network_trouble().filter(|_| !world.predecessor) {
                        self.events.warn_blocked("NetworkNotReady", format!("{why}: {cause}"));
                    }
                    break;
                }
                Next::Until(at) => {
                    assert!(at > now.boot, "pod {} waits for a time in the past", self.uid);
                    self.schedule.rest_until(at);
                    break;
                }
                Next::Rest => {
                    self.schedule.rest();
                    break;
                }
            }
        }
        gave_up
    }

    /// Requests another list for one that was discarded, once no call is under way that would make
    /// it stale too. While the event stream is open the next list would come late, and the change
    /// that the event announced would go unnoticed.
    fn retry_missed_list(&mut self, now: Now, pleg: &mut Pleg) {
        if !self.runner.is_changing() && self.observed.take_missed_list() && pleg.is_evented(now) {
            pleg.request_relist();
        }
    }

    fn fail(&mut self, kind: EventType, verdict: Verdict) {
        self.events.add(kind, verdict.reason, verdict.message.clone());
        self.lifecycle.fail(verdict);
    }

    fn go(&mut self, now: Now, phase: Phase, context: &mut PodContext<'_>) {
        self.enter(now.boot, phase);
        if phase == Phase::Terminating {
            // Nothing is started with the image any more (rule R4). Other calls under way end soon
            // by themselves.
            while let Some(call) = self.runner.find_call(|step| matches!(step, Step::Pull { .. })) {
                context.calls.cancel(now, call, context.out);
                self.runner.forget_call(call);
            }
        }
        if phase > Phase::Terminating {
            self.end_probes(now, context);
            self.end_hooks(now, context);
        } else {
            self.tick_hooks(now, context);
        }
        let why = match (self.lifecycle.wanted(), self.lifecycle.verdict()) {
            (_, Some(verdict)) => verdict.reason,
            (Wanted::Yes, None) if self.api.metadata.deletion_timestamp.is_some() => "deleted",
            (Wanted::Yes, None) => "its containers have ended",
            (Wanted::No, None) => "no source wants it",
            (Wanted::Recreated(..), None) => "recreated",
        };
        let line = format!("{}uid={} phase={phase:?} why={why:?}", self.log_name(), self.uid);
        context.out.push(Action::Log(Severity::Info, line));
    }

    fn put_off(&mut self, hold: Hold) {
        let name = &*hold.container;
        if matches!(hold.why, HoldReason::ImagePull { .. }) {
            self.records.of(name).put_off(hold.until);
        }
        let is_error = !matches!(hold.why, HoldReason::CrashLoop { .. });
        let image = self.spec_of(name).map(|spec| spec.image.clone()).unwrap_or_default();
        let (kind, event_reason, reason, message, event) = match hold.why {
            HoldReason::CrashLoop { delay_ms } => {
                let metadata = &self.api.metadata;
                let pod = format!("{}_{}({})", metadata.name, metadata.namespace, self.uid);
                let delay = go_duration_s(delay_ms / 1000);
                let message =
                    format!("back-off {delay} restarting failed container={name} pod={pod}");
                let event = format!("Back-off restarting failed container {name} in pod {pod}");
                (EventType::Warning, "BackOff", "CrashLoopBackOff", message, event)
            }
            HoldReason::ImagePull { why } => {
                let event = format!("Back-off pulling image \"{image}\"");
                let message = format!("{event}: {why}");
                (EventType::Normal, "BackOff", "ImagePullBackOff", message, event)
            }
            HoldReason::ImageName { why } => {
                let message = format!(
                    "Failed to apply default image tag \"{image}\": couldn't parse image name \
                     \"{image}\": {why}"
                );
                let event = message.clone();
                (EventType::Warning, "InspectFailed", "InvalidImageName", message, event)
            }
        };
        if self.records.of(name).set_failure(Waiting { reason, message }) {
            self.status_cache.mark_stale();
            self.record_event(name, kind, event_reason, event);
            if is_error {
                self.error(name, reason);
            }
        }
    }

    pub(super) fn begin(
        &mut self,
        now: Now,
        step: Step,
        request: Request,
        context: &mut PodContext<'_>,
    ) {
        match &step {
            Step::RunSandbox { .. } if self.observed.sandboxes.is_empty() => {
                self.record_dns_events(context);
            }
            Step::RunSandbox { .. } => {
                self.record_dns_events(context);
                let message = "Pod sandbox changed, it will be killed and re-created.";
                self.events.add(EventType::Normal, "SandboxChanged", message.to_owned());
            }
            Step::Create { container, .. } => {
                let container = container.clone();
                // Each try gets its own files.
                self.records.of(&container).set_files(None);
                if let Some(sandbox) = self.observed.sandbox() {
                    self.records.of(&container).begin_try(sandbox.id.clone());
                }
                self.count_crash(now, &container, context.config);
            }
            Step::Stop { id, why, .. } => {
                let (id, why) = (id.clone(), *why);
                // If a hook ran before, the event is recorded already.
                let observed = self.observed.container(&id);
                if !observed
                    .is_some_and(|observed| matches!(self.pre_stop(observed), PreStop::Over(_)))
                {
                    self.record_stop(&id, why);
                }
            }
            _ => {}
        }
        let owner = Owner::Pod(self.uid.clone());
        let call = context.calls.begin(now, owner, request, context.out);
        self.runner.begin_call(call, step);
    }

    /// Each restart increases the back-off of the next one (spec section 2.4).
    fn count_crash(&mut self, now: Now, container: &str, config: &Config) {
        let Some(exited_at) = self.observed.of(container).find_map(|observed| observed.exited_at)
        else {
            return;
        };
        let Some(spec) = self.spec_of(container) else { return };
        let image = spec.image.clone();
        let bounds = BackoffBounds {
            min_ms: limits::BACKOFF_MIN_MS.min(config.crash_backoff_max_ms),
            max_ms: config.crash_backoff_max_ms,
            calm_ms: limits::BACKOFF_CALM_MS,
        };
        self.records.of(container).count_crash(&image, now.boot, exited_at, bounds);
    }

    pub(super) fn begin_job(&mut self, now: Now, spec: JobSpec, context: &mut PodContext<'_>) {
        let owner = JobOwner::Pod(self.uid.clone());
        let job = context.jobs.begin(now, owner, spec.clone(), context.out);
        self.runner.begin_job(job, spec);
    }

    /// Links the log of a container that was just started, for log collectors.
    fn link_log(&mut self, now: Now, context: &mut PodContext<'_>) {
        for id in self.files.take_logs_to_link() {
            if let Some(observed) = self.observed.container(&id) {
                let spec = JobSpec::LinkLog(log_link(self, observed));
                self.begin_job(now, spec, context);
            }
        }
    }

    /// Whether the pod has the sandbox it needs (condition `PodReadyToStartContainers`).
    pub(super) fn has_sandbox(&self) -> bool {
        !needs_sandbox(self)
    }
}

/// Seconds in Go's notation: `40s`, `2m40s`, `5m0s`.
fn go_duration_s(seconds: u64) -> String {
    match seconds / 60 {
        0 => format!("{seconds}s"),
        minutes => format!("{minutes}m{}s", seconds % 60),
    }
}
