//! Lifecycle hooks: postStart after a container's start and preStop before its stop (spec sections
//! 1.6 and 2.6).
//!
//! ```text
//!  postStart   started ──▶ Due ──▶ Running ──▶ over: gone
//!                                     └──failed──▶ Failed: the container is stopped
//!  preStop     to be stopped ──▶ Running ──over, failed, or its grace is──▶ Over: it is stopped
//! ```
//!
//! Until postStart is over, the container does not count as running and nothing else of the pod is
//! started. preStop is part of the grace period and runs at most once for an instance; whatever its
//! result, the container is stopped. The hook of a container that has ended is cancelled.
//!
//! If a pod's manifest is gone, its hooks are read from the annotations of its containers:
//! `orphan`.
//!
//! If we crash here: a postStart hook under way is not run again, because the container then counts
//! as running; a preStop hook is run again with the next stop.

mod orphan;

use super::observed::ObservedContainer;
use super::plan::{Next, StopReason};
use super::probe::hook_get;
use super::{Phase, Pod, PodContext};
use crate::agent::calls::{Class, Owner, Uid};
use crate::agent::event::{CallId, ProbeId};
use crate::agent::jobs::QueryOwner;
use crate::agent::time::{Instant, Now};
use crate::limits;
use crate::model::cri::{CallError, ContainerId, ContainerState, ExecPurpose, Reply, Request};
use crate::model::net::{Finding, HttpQuery, Query};
use crate::model::probe::{Handler, HookKind};
use crate::model::recorded_event::EventType;
use crate::model::status::Waiting;

/// The hooks of one pod that were started or are due.
#[derive(Debug, Default)]
pub(super) struct Hooks(Vec<Hook>);

/// One hook of one instance.
#[derive(Debug)]
struct Hook {
    id: ContainerId,
    container: Box<str>,
    kind: HookKind,
    began_at: Instant,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// To be started.
    Due,
    Running(HookRun),
    /// The container has to be stopped because of it.
    Failed,
    /// Of preStop: kept, so that it is not run again.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HookRun {
    Call(CallId),
    /// The query is kept if it uses TLS, because it may have to be retried without TLS.
    Query(ProbeId, Option<Box<HttpQuery>>),
    /// To be retried without TLS.
    Retry(Box<HttpQuery>),
    /// Retried without TLS, with the host and port.
    Plain(ProbeId, Box<str>),
    Until(Instant),
}

/// The state of an instance's preStop hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PreStop {
    /// There is none, or there is no time for it.
    None,
    /// It has to be started.
    Due,
    /// It runs since the first time; a sleep ends by itself at the second time.
    Running(Instant, Option<Instant>),
    /// It started at this time and is over.
    Over(Instant),
}

impl Pod {
    /// The instance was just started: its postStart hook is next.
    pub(super) fn expect_post_start(&mut self, now: Instant, id: &ContainerId, container: &str) {
        if self.handler(container, HookKind::PostStart).is_some() {
            self.hooks.0.push(Hook {
                id: id.clone(),
                container: container.into(),
                kind: HookKind::PostStart,
                began_at: now,
                state: State::Due,
            });
        }
    }

    /// Whether the instance's preStop hook runs or is over: its stop has begun. A container that
    /// does not run has none.
    pub(super) fn has_pre_stop_begun(&self, observed: &ObservedContainer) -> bool {
        matches!(self.pre_stop(observed), PreStop::Running(..) | PreStop::Over(_))
    }

    /// Whether it has started and its postStart hook is not over.
    pub(super) fn is_starting(&self, observed: &ObservedContainer) -> bool {
        self.hooks.0.iter().any(|hook| hook.id == observed.id && hook.kind == HookKind::PostStart)
    }

    /// The next step for postStart hooks, before everything else of the pod.
    pub(super) fn post_start(&self) -> Option<Next> {
        // The container of a failed hook has to be stopped; other containers continue meanwhile.
        let counts = |hook: &&Hook| hook.kind == HookKind::PostStart && hook.state != State::Failed;
        let hook = self.hooks.0.iter().find(counts)?;
        Some(match &hook.state {
            State::Due => Next::Hook(hook.id.clone(), HookKind::PostStart, StopReason::Ending),
            State::Running(HookRun::Until(at)) => Next::Until(*at),
            State::Running(_) => Next::Rest,
            State::Failed | State::Over => unreachable!("it failed, or is over and gone"),
        })
    }

    /// Whether the instance's postStart hook failed, so that it has to be stopped.
    pub(super) fn has_failed_to_start(&self, observed: &ObservedContainer) -> bool {
        let mut all = self.hooks.0.iter();
        all.any(|hook| hook.id == observed.id && hook.state == State::Failed)
    }

    /// The state of the instance's preStop hook.
    pub(super) fn pre_stop(&self, observed: &ObservedContainer) -> PreStop {
        if observed.state != ContainerState::Running {
            return PreStop::None;
        }
        let mut all = self.hooks.0.iter();
        match all.find(|hook| hook.id == observed.id && hook.kind == HookKind::PreStop) {
            Some(Hook { state: State::Running(run), began_at, .. }) => {
                let until = match run {
                    HookRun::Until(at) => Some(*at),
                    HookRun::Call(_)
                    | HookRun::Query(..)
                    | HookRun::Retry(_)
                    | HookRun::Plain(..) => None,
                };
                PreStop::Running(*began_at, until)
            }
            Some(hook) => PreStop::Over(hook.began_at),
            None if self.handler(&observed.name, HookKind::PreStop).is_some() => PreStop::Due,
            None => PreStop::None,
        }
    }

    fn handler(&self, container: &str, kind: HookKind) -> Option<&Handler> {
        let lifecycle = self.spec_of(container)?.lifecycle.as_ref()?;
        match kind {
            HookKind::PostStart => lifecycle.post_start.as_ref(),
            HookKind::PreStop => lifecycle.pre_stop.as_ref(),
        }
    }

    /// Ends sleeps whose time is over, and the hooks of ended containers; a pod that ends cancels
    /// its postStart hooks.
    pub(super) fn tick_hooks(&mut self, now: Now, context: &mut PodContext<'_>) {
        if self.hooks.0.is_empty() {
            return;
        }
        let phase = self.lifecycle.phase();
        let Self { hooks, observed, uid, status_cache, .. } = self;
        hooks.0.retain_mut(|hook| {
            if observed.container(&hook.id).is_none_or(|observed| observed.state != RUNNING) {
                hook.cancel(now, context);
                status_cache.mark_stale();
                return false;
            }
            let abandoned = hook.kind == HookKind::PostStart && phase != Phase::Syncing;
            if abandoned && hook.state != State::Failed {
                // Its container is stopped before it counts as running.
                hook.cancel(now, context);
                hook.state = State::Failed;
                status_cache.mark_stale();
            }
            let slept = matches!(&hook.state,
                State::Running(HookRun::Until(at)) if *at <= now.boot);
            if slept {
                status_cache.mark_stale();
                hook.state = State::Over;
            }
            hook.retry_plain(now, uid, context);
            !(slept && hook.kind == HookKind::PostStart)
        });
    }

    /// The pod has ended: cancels all hooks.
    pub(super) fn end_hooks(&mut self, now: Now, context: &mut PodContext<'_>) {
        for mut hook in std::mem::take(&mut self.hooks.0) {
            hook.cancel(now, context);
        }
    }

    /// Whether no hook is running.
    pub(super) fn no_hook_running(&self) -> bool {
        !self.hooks.0.iter().any(|hook| matches!(hook.state, State::Running(_)))
    }

    /// Starts the hook of [`Next::Hook`]. `false`: there is no room.
    pub(super) fn begin_hook(
        &mut self,
        now: Now,
        id: &ContainerId,
        kind: HookKind,
        why: StopReason,
        context: &mut PodContext<'_>,
    ) -> bool {
        let observed = self.observed.container(id).expect("next returns observed containers");
        let name = observed.name.clone();
        let handler = self.handler(&name, kind).expect("next has checked it").clone();
        let room = if handler.exec.is_some() {
            context.calls.has_room(Class::Hook)
        } else {
            handler.http_get.is_none() || context.queries.has_room()
        };
        if !room {
            return false;
        }
        self.status_cache.mark_stale();
        if kind == HookKind::PreStop {
            self.record_stop(id, why);
        }
        let began = self.start_run(now, id, &name, &handler, context);
        self.hooks.0.retain(|hook| hook.id != *id || hook.kind != kind);
        self.hooks.0.push(Hook {
            id: id.clone(),
            container: name,
            kind,
            began_at: now.boot,
            state: State::Due,
        });
        let at = self.hooks.0.len() - 1;
        match began {
            // A sleep of zero seconds.
            Ok(HookRun::Until(end)) if end <= now.boot => self.hook_over(at, Ok(())),
            Ok(run) => self.hooks.0[at].state = State::Running(run),
            Err(why) => self.hook_over(at, Err(why)),
        }
        true
    }

    fn start_run(
        &self,
        now: Now,
        id: &ContainerId,
        name: &str,
        handler: &Handler,
        context: &mut PodContext<'_>,
    ) -> Result<HookRun, Fault> {
        let no_later = now.boot.plus_ms(limits::EXEC_DEADLINE_MS);
        if let Some(exec) = &handler.exec {
            let request = Request::ExecSync {
                id: id.clone(),
                command: exec.command.clone(),
                timeout_s: 0,
                purpose: ExecPurpose::Hook,
            };
            let owner = Owner::Hook(self.uid.clone());
            return Ok(HookRun::Call(context.calls.begin(now, owner, request, context.out)));
        }
        if let Some(get) = &handler.http_get {
            let container = self.spec_of(name).expect("the handler is of the spec");
            let query =
                hook_get(&self.api, container, get).map_err(|why| Fault::plain(why.to_string()))?;
            let retry = query.tls.then(|| Box::new(query.clone()));
            let query = Query::Http(Box::new(query));
            let owner = QueryOwner::Hook(self.uid.clone());
            let probe = context.queries.begin(owner, query, no_later, context.out);
            return Ok(HookRun::Query(probe, retry));
        }
        if let Some(sleep) = &handler.sleep {
            let ms = u64::try_from(sleep.seconds).unwrap_or(0).saturating_mul(1000);
            return Ok(HookRun::Until(now.boot.plus_ms(ms)));
        }
        Err(Fault::plain("invalid handler: expected exec, httpGet or sleep".to_owned()))
    }

    /// The grace period of a hook is over.
    pub(super) fn give_up_hook(
        &mut self,
        now: Now,
        id: &ContainerId,
        context: &mut PodContext<'_>,
    ) {
        let mut all = self.hooks.0.iter_mut();
        let hook = all.find(|hook| hook.id == *id && hook.kind == HookKind::PreStop);
        let hook = hook.expect("next returns a running hook");
        let asleep = matches!(hook.state, State::Running(HookRun::Until(_)));
        hook.cancel(now, context);
        hook.state = State::Over;
        if !asleep {
            let name = hook.container.clone();
            self.warn_of_hook(&name, HookKind::PreStop);
        }
    }

    /// Takes the answer to an exec of a hook.
    pub fn hook_exec_done(&mut self, call: CallId, result: Result<Reply, CallError>) {
        let at = self.hooks.at(|run| *run == HookRun::Call(call));
        let at = at.expect("the call belongs to a hook");
        let command = |pod: &Self| {
            let hook = &pod.hooks.0[at];
            let handler = pod.handler(&hook.container, hook.kind);
            let exec = handler.and_then(|handler| handler.exec.as_ref());
            exec.map(|exec| exec.command.join(" ")).unwrap_or_default()
        };
        let result = match result {
            Ok(Reply::Exec(exec)) if exec.exit_code == 0 => Ok(()),
            Ok(Reply::Exec(exec)) => Err(Fault {
                why: format!(
                    "command '{}' exited with {}: {}",
                    command(self),
                    exec.exit_code,
                    exec.beginning(limits::PROBE_OUTPUT_BYTES_MAX).trim_end()
                ),
                output: Some(exec.beginning(limits::PROBE_OUTPUT_BYTES_MAX).into()),
            }),
            Ok(other) => panic!("ExecSync cannot answer {}", other.kind()),
            Err(error) => Err(Fault { why: error.to_string(), output: Some("".into()) }),
        };
        self.hook_over(at, result);
        self.mark_dirty();
    }

    /// Takes the answer to a query of a hook.
    pub fn hook_query_done(&mut self, now: Instant, probe: ProbeId, finding: Finding) {
        let is_it = |run: &HookRun| match run {
            HookRun::Query(other, _) | HookRun::Plain(other, _) => *other == probe,
            HookRun::Call(_) | HookRun::Retry(_) | HookRun::Until(_) => false,
        };
        let at = self.hooks.at(is_it).expect("the query belongs to a hook");
        self.mark_dirty();
        let result = match (finding, &mut self.hooks.0[at].state) {
            (Finding::NotTls(_), State::Running(run @ HookRun::Query(_, Some(_)))) => {
                let HookRun::Query(_, Some(query)) = std::mem::replace(run, HookRun::Until(now))
                else {
                    unreachable!("just matched");
                };
                *run = HookRun::Retry(query);
                return;
            }
            (Finding::Good | Finding::Warning(_), State::Running(HookRun::Plain(_, host))) => {
                let message = format!(
                    "request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP \
                     succeeded"
                );
                self.events.warn("LifecycleHTTPFallback", message);
                Ok(())
            }
            (Finding::Good | Finding::Warning(_), _) => Ok(()),
            (Finding::Bad(why) | Finding::NotTls(why), _) => Err(Fault::plain(why)),
        };
        self.hook_over(at, result);
    }

    fn hook_over(&mut self, at: usize, result: Result<(), Fault>) {
        let hook = &mut self.hooks.0[at];
        let (name, kind) = (hook.container.clone(), hook.kind);
        match (kind, result) {
            (HookKind::PreStop, Ok(())) => hook.state = State::Over,
            (HookKind::PreStop, Err(_)) => {
                hook.state = State::Over;
                self.warn_of_hook(&name, kind);
            }
            (HookKind::PostStart, Ok(())) => {
                self.hooks.0.remove(at);
            }
            (HookKind::PostStart, Err(fault)) => {
                hook.state = State::Failed;
                self.warn_of_hook(&name, kind);
                let message = self.complaint(&name, &fault);
                let reason = "PostStartHookError";
                self.records.of(&name).set_failure(Waiting { reason, message });
            }
        }
    }

    /// The cause may contain secrets, so the event does not name it.
    fn warn_of_hook(&mut self, container: &str, kind: HookKind) {
        let (reason, message) = match kind {
            HookKind::PostStart => ("FailedPostStartHook", "PostStartHook failed"),
            HookKind::PreStop => ("FailedPreStopHook", "PreStopHook failed"),
        };
        self.record_event(container, EventType::Warning, reason, message.to_owned());
    }

    /// The kubelet's message, for the container's status.
    fn complaint(&self, container: &str, fault: &Fault) -> String {
        let metadata = &self.api.metadata;
        let pod = format!("{}_{}({})", metadata.name, metadata.namespace, self.uid);
        let handler = self.handler(container, HookKind::PostStart);
        let why = &fault.why;
        let (exec, get) =
            handler.map_or((None, None), |it| (it.exec.as_ref(), it.http_get.as_ref()));
        match (exec, get) {
            (Some(exec), _) => {
                let output = fault.output.as_deref().unwrap_or_default();
                format!(
                    "Exec lifecycle hook ([{}]) for Container {container:?} in Pod {pod:?} failed \
                     - error: {why}, message: {output:?}",
                    exec.command.join(" ")
                )
            }
            (None, Some(get)) => format!(
                "HTTP lifecycle hook ({}) for Container {container:?} in Pod {pod:?} failed - \
                 error: {why}",
                get.path
            ),
            (None, None) => why.clone(),
        }
    }
}

impl Hooks {
    fn at(&self, is_it: impl Fn(&HookRun) -> bool) -> Option<usize> {
        self.0.iter().position(|hook| match &hook.state {
            State::Running(run) => is_it(run),
            State::Due | State::Failed | State::Over => false,
        })
    }
}

impl Hook {
    fn cancel(&mut self, now: Now, context: &mut PodContext<'_>) {
        match &self.state {
            State::Running(HookRun::Call(call)) => context.calls.cancel(now, *call, context.out),
            State::Running(HookRun::Query(probe, _) | HookRun::Plain(probe, _)) => {
                context.queries.cancel(*probe, context.out);
            }
            State::Running(HookRun::Retry(_) | HookRun::Until(_))
            | State::Due
            | State::Failed
            | State::Over => {}
        }
    }

    /// Retries without TLS and without the headers that are only safe with TLS.
    fn retry_plain(&mut self, now: Now, uid: &Uid, context: &mut PodContext<'_>) {
        let State::Running(HookRun::Retry(query)) = &self.state else { return };
        if !context.queries.has_room() {
            return;
        }
        let mut query = query.clone();
        query.tls = false;
        query.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        let host = format!("{}:{}", query.host, query.port).into();
        let no_later = now.boot.plus_ms(limits::EXEC_DEADLINE_MS);
        let owner = QueryOwner::Hook(uid.clone());
        let probe = context.queries.begin(owner, Query::Http(query), no_later, context.out);
        self.state = State::Running(HookRun::Plain(probe, host));
    }
}

/// Why a hook failed.
struct Fault {
    why: String,
    /// Output of the command.
    output: Option<Box<str>>,
}

impl Fault {
    fn plain(why: String) -> Self {
        Self { why, output: None }
    }
}

const RUNNING: ContainerState = ContainerState::Running;
