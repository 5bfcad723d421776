//! Rules about probes and hooks: when they may run, and what follows from their results.
//!
//! The results that the agent received count, not the state of the container: answers get lost.

use std::collections::BTreeMap;

use edged::agent::event::{CallId, ProbeId};
use edged::model::cri::{CallError, ContainerId, Lost, Reply};
use edged::model::map::Map;
use edged::model::net::Finding;
use edged::model::pod as api;
use edged::model::probe::{Probe, ProbeResults};
use edged::model::status::PodStatus;

use super::Check;
use crate::rule::judge;
use crate::runtime::{ContainerNo, Runtime};

/// Instances that were probed or hooked in this life.
#[derive(Default)]
pub(super) struct Probed {
    instances: BTreeMap<ContainerNo, Instance>,
    calls: BTreeMap<CallId, (ContainerNo, CheckKind)>,
    queries: BTreeMap<ProbeId, (ContainerNo, CheckKind)>,
    /// The wall clock has jumped: the age of containers of earlier lives is unknown.
    pub clock_jumped: bool,
}

impl Probed {
    /// Clears the state of one life; `clock_jumped` stays.
    pub fn begin_life(&mut self) {
        *self = Self { clock_jumped: self.clock_jumped, ..Self::default() };
    }
}

/// The results of one instance.
#[derive(Debug, Default)]
struct Instance {
    /// The pod and its slot, as they were when it was last probed: a result may come when
    /// somebody has removed the container, and the agent has not seen that yet.
    place: Option<(usize, usize)>,
    startup: Run,
    readiness: Run,
    liveness: Run,
    post: Hook,
    pre: Hook,
}

/// The results of one probe.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    equal: (bool, i32),
    /// The result after the thresholds.
    result: Option<bool>,
    must_stop_since: Option<u64>,
    under_way: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Hook {
    begun: u32,
    under_way: bool,
    failed_at: Option<u64>,
}

/// The probe or hook that a command or a target names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// A probe.
    Startup,
    /// A probe.
    Readiness,
    /// A probe.
    Liveness,
    /// A hook.
    Post,
    /// A hook.
    Pre,
}

impl CheckKind {
    /// By the last word of a command, or the path of a GET.
    pub fn of(word: &str) -> Self {
        match word.trim_start_matches('/') {
            "startup" => Self::Startup,
            "readiness" => Self::Readiness,
            "liveness" => Self::Liveness,
            "post" => Self::Post,
            "pre" => Self::Pre,
            other => panic!("[probes] {other:?} is neither a probe nor a hook"),
        }
    }
}

impl Check {
    /// The wall clock has jumped.
    pub fn clock_jumped(&mut self) {
        self.probed.clock_jumped = true;
    }

    /// The agent requests a command in a container.
    pub(super) fn exec_requested(
        &mut self,
        now: u64,
        runtime: &Runtime,
        call: CallId,
        number: ContainerNo,
        word: &str,
    ) {
        let kind = CheckKind::of(word);
        self.probed.calls.insert(call, (number, kind));
        self.check_probe(now, runtime, number, kind);
    }

    /// The agent requests a query of the container that has the port.
    pub fn query_requested(
        &mut self,
        now: u64,
        runtime: &Runtime,
        query: ProbeId,
        number: ContainerNo,
        target: &str,
    ) {
        let kind = CheckKind::of(target);
        self.probed.queries.insert(query, (number, kind));
        self.check_probe(now, runtime, number, kind);
    }

    fn check_probe(&mut self, now: u64, runtime: &Runtime, number: ContainerNo, kind: CheckKind) {
        let Some(container) = self.instances.container(number) else { return };
        let place = container.place;
        judge!(place.is_some(), "[strangers] {kind:?} runs in c{number}, which belongs to no pod");
        let Some((at, slot)) = place else { return };
        let pod = &self.pods[at];
        let (uid, name) = (&pod.uid, &pod.slots[slot].name);
        let who = format!("{kind:?} of c{number} ({name}) of pod {uid}");
        let over = runtime.containers.get(&number).map_or(0, |it| it.ended_at);
        let dead = !container.alive && pod.observation.knows(over);
        judge!(!dead, "[probe the living] {who}, which has ended");
        let gone = pod.desired.is_none() && pod.gone_at.is_some();
        let of_begin = matches!(kind, CheckKind::Startup | CheckKind::Liveness | CheckKind::Post);
        judge!(!(gone && of_begin), "[nothing probed after the end] {who}, and no source wants it");
        let made_of = runtime.containers.get(&number).map(|it| &it.listed.image);
        let outdated =
            pod.spec_of(name).zip(made_of).is_some_and(|(spec, made_of)| spec.image != *made_of);
        let due = outdated || self.is_sick(at, number);
        self.review.again();
        let instance = self.probed.instances.entry(number).or_default();
        instance.place = place;
        match kind {
            CheckKind::Post | CheckKind::Pre => {
                let hook = instance.hook(kind);
                judge!(hook.begun == 0, "[hooks once] {who} is run again");
                (hook.begun, hook.under_way) = (1, true);
                if kind == CheckKind::Pre {
                    self.pods[at].stop_requested_at = now;
                    if due {
                        // Even if the pod has its old image again before the hook ends, or the
                        // container has ended by itself.
                        self.pods[at].slots[slot].to_restart.push(number);
                    }
                }
                return;
            }
            CheckKind::Startup | CheckKind::Readiness | CheckKind::Liveness => {}
        }
        let began_at = container.began_at;
        let spec = pod.spec_of(name);
        let startup = spec.is_some_and(|spec| spec.startup_probe.is_some());
        judge!(
            kind == CheckKind::Startup || !startup || instance.startup.result == Some(true),
            "[startup first] {who} before startup has succeeded"
        );
        let post = instance.post.under_way;
        judge!(!post, "[post start first] {who} before its postStart is over");
        let run = instance.run(kind);
        judge!(!run.under_way, "[one at a time] {who} while it is under way");
        run.under_way = true;
        let decided = match kind {
            CheckKind::Startup => run.result.is_some(),
            _ => run.must_stop_since.is_some(),
        };
        judge!(!decided, "[held] {who} after it was decided");
        let attempt = runtime.containers.get(&number).map(|it| it.listed.attempt);
        let ours = attempt.is_some_and(|attempt| pod.slots[slot].requested.contains(&attempt));
        let Some(probe) = spec.and_then(|spec| probe_of(spec, kind)) else { return };
        let delay_ms = u64::from(probe.initial_delay_seconds.unsigned_abs()) * 1000;
        judge!(
            now - began_at >= delay_ms || (self.probed.clock_jumped && !ours),
            "[initial delay] {who} after {} of {delay_ms} ms",
            now - began_at
        );
    }

    /// A command has been answered.
    pub fn exec_answered(
        &mut self,
        now: u64,
        call: CallId,
        result: Option<&Result<Reply, CallError>>,
    ) {
        let Some((number, kind)) = self.probed.calls.remove(&call) else { return };
        let good = match result {
            Some(Ok(Reply::Exec(exec))) => Some(exec.exit_code == 0),
            Some(Err(CallError::Lost(Lost::Deadline))) => Some(false),
            Some(_) | None => None,
        };
        self.record(now, number, kind, good, result.is_none());
    }

    /// A query has been answered.
    pub fn query_answered(&mut self, now: u64, query: ProbeId, finding: Option<&Finding>) {
        let Some((number, kind)) = self.probed.queries.remove(&query) else { return };
        let good = finding.map(|finding| matches!(finding, Finding::Good | Finding::Warning(_)));
        self.record(now, number, kind, good, finding.is_none());
    }

    /// `good`: `None` is an error, which does not count.
    fn record(
        &mut self,
        now: u64,
        number: ContainerNo,
        kind: CheckKind,
        good: Option<bool>,
        cancelled: bool,
    ) {
        self.review.again();
        let instance = self.probed.instances.entry(number).or_default();
        if matches!(kind, CheckKind::Post | CheckKind::Pre) {
            let hook = instance.hook(kind);
            hook.under_way = false;
            if !cancelled && good != Some(true) {
                hook.failed_at.get_or_insert(now);
            }
            return;
        }
        let place = self.instances.place_of(number).or(instance.place);
        let run = instance.run(kind);
        run.under_way = false;
        let (Some(good), Some((at, slot))) = (good, place) else { return };
        let pod = &self.pods[at];
        let spec = pod.spec_of(&pod.slots[slot].name).or_else(|| {
            let spec = &pod.spec_was.as_ref()?.spec;
            let mut all = spec.init_containers.iter().chain(&spec.containers);
            all.find(|container| container.name == pod.slots[slot].name)
        });
        let Some(probe) = spec.and_then(|spec| probe_of(spec, kind)) else { return };
        run.count(now, good, kind, probe);
    }

    /// Whether a preStop of the pod is under way: its stop has begun.
    pub(super) fn is_hooked(&self, at: usize) -> bool {
        let of_pod = |number: &ContainerNo| {
            let place = self.instances.place_of(*number);
            place.is_some_and(|(pod, _)| pod == at)
        };
        self.probed.instances.iter().any(|(number, it)| it.pre.under_way && of_pod(number))
    }

    /// Whether the received results are a reason to stop this instance.
    pub(super) fn must_stop(&self, number: ContainerNo) -> bool {
        self.must_stop_since(number).is_some() || self.post_failed_at(number).is_some()
    }

    /// Since when its failed postStart is a reason to stop it.
    pub fn post_failed_at(&self, number: ContainerNo) -> Option<u64> {
        self.probed.instances.get(&number)?.post.failed_at
    }

    /// Since when its probes are a reason to stop it.
    pub fn must_stop_since(&self, number: ContainerNo) -> Option<u64> {
        let instance = self.probed.instances.get(&number)?;
        instance.liveness.must_stop_since.or(instance.startup.must_stop_since)
    }

    /// Its postStart is under way, or failed and it will be stopped.
    pub fn is_starting(&self, number: ContainerNo) -> bool {
        let instance = self.probed.instances.get(&number);
        instance.is_some_and(|it| it.post.is_open())
    }

    /// By its probes and hooks it will be stopped, or that is still open.
    pub fn is_passing(&self, number: ContainerNo) -> bool {
        let hooked = self.probed.instances.get(&number).is_some_and(|it| it.pre.begun > 0);
        hooked || self.must_stop_since(number).is_some() || self.is_starting(number)
    }

    /// What its status must report of a running instance: started, and ready.
    pub fn serves(&self, number: ContainerNo, spec: &api::Container) -> (bool, bool) {
        let fresh = Instance::default();
        let instance = self.probed.instances.get(&number).unwrap_or(&fresh);
        let started = !instance.post.is_open()
            && (spec.startup_probe.is_none() || instance.startup.result == Some(true));
        let ready = spec.readiness_probe.is_none() || instance.readiness.result == Some(true);
        (started, started && ready)
    }

    /// The agent starts with the results that were saved before its restart.
    pub fn probe_results_loaded(&mut self, all: &Map<ContainerId, ProbeResults>) {
        for (id, results) in all {
            let instance = self.probed.instances.entry(number_of(&id.0)).or_default();
            instance.startup.result = results.started.then_some(true);
            instance.readiness.result = Some(results.ready);
        }
    }

    /// The saved results are those that the probes gave.
    pub fn probe_results_saved(&self, all: &Map<ContainerId, ProbeResults>) {
        for (id, results) in all {
            let number = number_of(&id.0);
            let place = self.instances.place_of(number);
            let spec = place.and_then(|(at, slot)| {
                let pod = &self.pods[at];
                pod.spec_of(&pod.slots[slot].name)
            });
            let Some(spec) = spec else { continue };
            let (started, ready) = self.serves(number, spec);
            judge!(
                (started || !results.started) && (ready || !results.ready),
                "[ready by its probes] of {id} {results:?} is saved, and its probes say started: \
                 {started}, ready: {ready}: {:?}",
                self.probed.instances.get(&number)
            );
        }
    }

    /// No container is reported as started or ready before its probes succeeded.
    pub(super) fn check_served(&self, at: usize, status: &PodStatus) {
        let pod = &self.pods[at];
        let all = status.init_container_statuses.iter().chain(&status.container_statuses);
        for reported in all.filter(|reported| reported.has_started() || reported.ready) {
            // `containerd://c12`
            let number = reported.container_id.rsplit_once('c').and_then(|(_, id)| id.parse().ok());
            let Some(spec) = pod.spec_of(&reported.name) else { continue };
            let plain = pod.role(&reported.name) == Some(super::Role::Init);
            let (started, ready) =
                number.map_or((false, false), |number| self.serves(number, spec));
            judge!(
                plain || (started || !reported.has_started()) && (ready || !reported.ready),
                "[ready by its probes] {} of pod {} is reported as started={} ready={}",
                reported.name,
                pod.uid,
                reported.has_started(),
                reported.ready
            );
        }
    }

    /// Nothing else of a pod starts while a postStart of it is under way.
    pub(super) fn check_post_start(&self, at: usize, what: &dyn std::fmt::Debug) {
        let mut all = self.probed.calls.values();
        let open = all.find(|(number, kind)| {
            *kind == CheckKind::Post
                && self.instances.container(*number).is_some_and(|it| it.runs_in(at))
        });
        judge!(open.is_none(), "[post start first] {what:?} while {open:?} is under way");
    }

    /// A container with a preStop is stopped after the hook, not while it runs.
    pub(super) fn check_pre_stop(&self, runtime: &Runtime, at: usize, number: ContainerNo) {
        let pod = &self.pods[at];
        let Some((container, found)) =
            self.instances.container(number).zip(runtime.containers.get(&number))
        else {
            return;
        };
        let Some(spec) = pod.spec_was.as_ref().map(|pod| &pod.spec) else { return };
        let mut all = spec.init_containers.iter().chain(&spec.containers);
        let name = &found.listed.name;
        let lifecycle = all.find(|it| it.name == *name).and_then(|it| it.lifecycle.as_ref());
        let hooked = lifecycle.is_some_and(|lifecycle| lifecycle.pre_stop.is_some());
        let timeless = spec.termination_grace_period_seconds == Some(0);
        if !hooked || timeless || !container.alive || found.was_unknown {
            return;
        }
        let pre = self.probed.instances.get(&number).map(|it| it.pre).unwrap_or_default();
        judge!(
            pre.begun == 1 && !pre.under_way,
            "[pre stop first] c{number} ({name}) of pod {} is stopped, and its preStop {}",
            pod.uid,
            if pre.under_way { "is under way" } else { "was not run" }
        );
    }
}

impl Hook {
    /// It is under way, or has failed, and its container will be stopped.
    fn is_open(&self) -> bool {
        self.under_way || self.failed_at.is_some()
    }
}

impl Instance {
    fn run(&mut self, kind: CheckKind) -> &mut Run {
        match kind {
            CheckKind::Startup => &mut self.startup,
            CheckKind::Readiness => &mut self.readiness,
            CheckKind::Liveness => &mut self.liveness,
            CheckKind::Post | CheckKind::Pre => panic!("{kind:?} is no probe"),
        }
    }

    fn hook(&mut self, kind: CheckKind) -> &mut Hook {
        match kind {
            CheckKind::Post => &mut self.post,
            CheckKind::Pre => &mut self.pre,
            CheckKind::Startup | CheckKind::Readiness | CheckKind::Liveness => {
                panic!("{kind:?} is no hook")
            }
        }
    }
}

impl Run {
    fn count(&mut self, now: u64, good: bool, kind: CheckKind, probe: &Probe) {
        let (before, count) = self.equal;
        self.equal = (good, if before == good { count + 1 } else { 1 });
        let threshold = if good { probe.success_threshold } else { probe.failure_threshold };
        let default = if good { 1 } else { 3 };
        let threshold = if threshold == 0 { default } else { threshold };
        if self.equal.1 >= threshold {
            self.result = Some(good);
            if !good && kind != CheckKind::Readiness {
                self.must_stop_since = Some(now);
            }
        }
    }
}

/// `c12`
fn number_of(id: &str) -> ContainerNo {
    id.trim_start_matches('c').parse().expect("an id of the runtime's")
}

fn probe_of(spec: &api::Container, kind: CheckKind) -> Option<&Probe> {
    match kind {
        CheckKind::Startup => spec.startup_probe.as_deref(),
        CheckKind::Readiness => spec.readiness_probe.as_deref(),
        CheckKind::Liveness => spec.liveness_probe.as_deref(),
        CheckKind::Post | CheckKind::Pre => None,
    }
}
