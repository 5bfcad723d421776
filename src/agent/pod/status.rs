//! Spec × observed × previous status → `PodStatus` (spec section 7).
//!
//! Reported values are never taken back: restart counts and `startTime` never go back, a terminal
//! phase is never left, and none is reported while a container may run.

use super::lifecycle::DISRUPTED;
use super::next::{is_initialised, is_sidecar};
use super::observed::ObservedContainer;
use super::phase::{Outcome, phase_of};
use super::{HELD, Phase, Pod};
use crate::agent::time::Now;
use crate::limits::CLOCK_PLAUSIBLE_MS;
use crate::model::cri::ContainerState;
use crate::model::pod::{Container, SEEN};
use crate::model::status::{
    self as api, Condition, ConditionKind, ContainerStatus, Ip, PodStatus, Running, State,
    Terminated, Waiting,
};
use crate::model::time::Timestamp;

/// Bytes of the messages of all containers of a pod.
const MESSAGES_BYTES_MAX: usize = 12_288;

/// The node's addresses, the primary first.
pub type HostAddresses = [String];

/// The node's part of a status.
#[derive(Clone, Copy, Debug)]
pub struct HostInfo<'a> {
    /// The node's addresses.
    pub addresses: &'a HostAddresses,
    /// The scheme of container ids: `containerd`.
    pub runtime_name: &'a str,
}

/// Whether the status in the pod is up to date, and how often it has changed.
#[derive(Debug)]
pub(super) struct StatusCache {
    is_stale: bool,
    revision: u64,
}

/// The status of a new pod was never computed.
impl Default for StatusCache {
    fn default() -> Self {
        Self { is_stale: true, revision: 0 }
    }
}

impl StatusCache {
    /// The status may differ.
    pub(super) fn mark_stale(&mut self) {
        self.is_stale = true;
    }
}

impl Pod {
    /// Sets the first revision of its status.
    pub fn status_revision_from(&mut self, revision: u64) {
        self.status_cache.revision = revision;
    }

    /// Grows with each change of the status.
    pub fn status_revision(&self) -> u64 {
        self.status_cache.revision
    }

    /// Recomputes the status if anything changed. Returns whether it did.
    pub fn refresh(&mut self, now: Now, host_info: HostInfo<'_>) -> bool {
        let is_stale = std::mem::take(&mut self.status_cache.is_stale);
        let learnt = is_stale || self.lacks_time(now);
        if learnt {
            if self.is_inspected() {
                self.observed.set_complete();
            }
            let status = self.status(now, host_info);
            if status != self.api.status {
                self.api.status = status;
                self.status_cache.revision += 1;
            }
        }
        learnt
    }

    fn status(&self, now: Now, host_info: HostInfo<'_>) -> PodStatus {
        let old = &self.api.status;
        let spec = &self.api.spec;
        let mut status = PodStatus {
            qos_class: super::resources::qos_class(spec),
            start_time: old
                .start_time
                .or_else(|| self.start_time(now).filter(|_| self.observed.is_complete())),
            reason: old.reason.clone(),
            message: old.message.clone(),
            init_container_statuses: self.container_statuses(&spec.init_containers, host_info),
            container_statuses: self.container_statuses(&spec.containers, host_info),
            ephemeral_container_statuses: self
                .container_statuses(&spec.ephemeral_containers, host_info),
            ..PodStatus::default()
        };
        status.container_statuses.sort_by(|a, b| a.name.cmp(&b.name));
        status.ephemeral_container_statuses.sort_by(|a, b| a.name.cmp(&b.name));
        cut_messages(&mut status);
        if self.phase() >= Phase::Terminated {
            self.settle(&mut status);
        }
        status.phase = self.api_phase(&status);
        if let Some(verdict) = self.lifecycle.verdict() {
            verdict.reason.clone_into(&mut status.reason);
            status.message.clone_from(&verdict.message);
        }
        self.addresses(&mut status, host_info);
        status.conditions = if self.observed.is_complete() || old.conditions.is_empty() {
            self.conditions(&status, now)
        } else {
            // The conditions of an earlier start hold until everything is inspected: they have not
            // changed meanwhile.
            old.conditions.clone()
        };
        let mut all = status.init_container_statuses.iter().chain(&status.container_statuses);
        let never_made = |reported: &ContainerStatus| {
            reported.container_id.is_empty()
                && reported.restart_count == 0
                && matches!(reported.last_state, State::Unset)
        };
        if self.lifecycle.verdict().is_some() && all.all(never_made) {
            // Refused before anything was created: there are no containers to report.
            status.init_container_statuses.clear();
            status.container_statuses.clear();
            status.ephemeral_container_statuses.clear();
        }
        status
    }

    /// When an agent first saw the pod: as annotated on its sandbox, or not later than the sandbox
    /// was created. Never before the clock was set.
    fn start_time(&self, now: Now) -> Option<Timestamp> {
        let observed =
            self.observed.sandboxes.iter().map(|sandbox| {
                sandbox.seen_at.unwrap_or(Timestamp::from_nanos(sandbox.created_at))
            });
        let plausible = |at: &Timestamp| at.0 >= CLOCK_PLAUSIBLE_MS / 1_000;
        let here = self.api.metadata.annotations.get(SEEN).and_then(|at| Timestamp::parse(at));
        observed.filter(plausible).min().or(here).or(now.timestamp())
    }

    fn container_statuses(
        &self,
        specs: &[Container],
        host_info: HostInfo<'_>,
    ) -> Vec<ContainerStatus> {
        specs.iter().map(|spec| self.container_status(spec, host_info)).collect()
    }

    /// Spec section 7.1.
    fn container_status(&self, spec: &Container, host_info: HostInfo<'_>) -> ContainerStatus {
        let old = self.old_status(&spec.name);
        let mut instances = self.observed.of(&spec.name);
        let Some(newest) = instances.next() else {
            return self.unseen_status(spec, old);
        };
        if let Some(last) = old.filter(|old| self.is_removed(newest, old)) {
            return last.clone();
        }
        let before = instances.find(|observed| observed.state == ContainerState::Exited);
        let id = container_id(host_info, newest);
        let state = match reported_state(newest, &id) {
            // Its postStart hook is not over yet.
            _ if self.is_starting(newest) => State::Waiting(self.creating()),
            Some(state) => state,
            // Not inspected yet: the last reported state of this instance stays for the moment.
            None => match old {
                Some(old) if old.container_id == id => old.state.clone(),
                _ => State::Waiting(Waiting::default()),
            },
        };
        let last_state = before
            .and_then(|observed| reported_state(observed, &container_id(host_info, observed)))
            .or_else(|| old.map(|old| old.last_state.clone()))
            .unwrap_or_default();
        let runtime = newest.status.as_ref();
        let kept = old.filter(|old| old.container_id == id);
        let or_kept = |value: Option<&Box<str>>, kept: Option<&Box<str>>| -> Box<str> {
            value.filter(|text| !text.is_empty()).or(kept).cloned().unwrap_or_default()
        };
        let mut status = ContainerStatus {
            name: spec.name.clone(),
            restart_count: newest.attempt.max(old.map_or(0, |old| old.restart_count)),
            image: or_kept(runtime.map(|reported| &reported.image), kept.map(|old| &old.image)),
            image_id: or_kept(
                runtime.map(|reported| &reported.image_ref),
                kept.map(|old| &old.image_id),
            ),
            container_id: id,
            state,
            last_state,
            started: self.not_started(&spec.name),
            volume_mounts: self.mounts_of(spec),
            ..ContainerStatus::default()
        };
        if status.image.is_empty() {
            status.image = spec.image.clone();
        }
        self.show_failure(spec, newest, &mut status);
        self.serve(spec, newest, &mut status);
        status
    }

    /// Somebody has removed the last run of a container that will not run again, and an earlier one
    /// is left: what was reported of the last one stays.
    fn is_removed(&self, newest: &ObservedContainer, old: &ContainerStatus) -> bool {
        self.phase() >= Phase::Terminated
            && newest.attempt < old.restart_count
            && matches!(old.state, State::Terminated(_))
    }

    fn old_status(&self, name: &str) -> Option<&ContainerStatus> {
        let old = &self.api.status;
        let inits = old.init_container_statuses.iter();
        let mut all = inits.chain(&old.container_statuses).chain(&old.ephemeral_container_statuses);
        all.find(|status| &*status.name == name)
    }

    /// Not running yet, and nothing is wrong.
    fn creating(&self) -> Waiting {
        let has_init = !self.api.spec.init_containers.is_empty();
        let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
        Waiting { reason, message: String::new() }
    }

    /// No instance: not created yet, or removed.
    fn unseen_status(&self, spec: &Container, old: Option<&ContainerStatus>) -> ContainerStatus {
        let record = self.records.get(&spec.name).filter(|_| self.phase() == Phase::Syncing);
        let failure = record.and_then(|record| record.failure().cloned());
        if let Some(old) = old
            && matches!(old.state, State::Terminated(_))
            && failure.is_none()
        {
            return old.clone();
        }
        let plain_init = self.init_containers_has(&spec.name) && !is_sidecar(spec);
        if plain_init && failure.is_none() && is_initialised(self, &self.observed) {
            return completed_unseen(spec, old);
        }
        let mut status = ContainerStatus {
            name: spec.name.clone(),
            image: spec.image.clone(),
            state: State::Waiting(failure.unwrap_or_else(|| self.creating())),
            started: self.not_started(&spec.name),
            ..ContainerStatus::default()
        };
        if let Some(old) = old {
            status.restart_count = old.restart_count;
            let ended = matches!(old.state, State::Terminated(_));
            status.last_state = if ended { &old.state } else { &old.last_state }.clone();
            if matches!(old.state, State::Running(_)) {
                status.restart_count += u32::from(self.api.metadata.deletion_timestamp.is_none());
                status.last_state = State::Terminated(Box::new(lost(
                    "The container could not be located when the pod was deleted.  The container \
                     used to be Running",
                )));
            }
        }
        status
    }

    /// A container that has to be restarted and cannot: the reason is what the user needs to see.
    fn show_failure(
        &self,
        spec: &Container,
        newest: &ObservedContainer,
        status: &mut ContainerStatus,
    ) {
        let Some(record) = self.records.get(&spec.name) else { return };
        let Some(failure) = record.failure() else { return };
        let ended = matches!(newest.state, ContainerState::Exited | ContainerState::Created);
        if !ended || self.phase() != Phase::Syncing {
            return;
        }
        let state = std::mem::replace(&mut status.state, State::Waiting(failure.clone()));
        if matches!(state, State::Terminated(_)) {
            status.last_state = state;
        }
    }

    fn serve(&self, spec: &Container, newest: &ObservedContainer, status: &mut ContainerStatus) {
        let runs = newest.state == ContainerState::Running;
        if status.started.is_none() {
            // Ephemeral: nothing depends on it, so it has no readiness.
            return;
        }
        let plain_init = self.init_containers_has(&spec.name) && !is_sidecar(spec);
        status.started = Some(if plain_init { runs } else { self.is_started(newest) });
        status.ready = if plain_init { newest.succeeded() } else { self.is_ready(newest) };
    }

    /// `started` of a container that has not started; an ephemeral container has no such field.
    fn not_started(&self, name: &str) -> Option<bool> {
        let mut ephemerals = self.api.spec.ephemeral_containers.iter();
        (!ephemerals.any(|ephemeral| &*ephemeral.name == name)).then_some(false)
    }

    fn init_containers_has(&self, name: &str) -> bool {
        self.api.spec.init_containers.iter().any(|init| &*init.name == name)
    }

    /// The pod has ended: containers that are still open are reported as terminated (spec section
    /// 1.7, step 4).
    fn settle(&self, status: &mut PodStatus) {
        let message = "The container could not be located when the pod was terminated";
        let started = self.initialised(status);
        if started {
            for container in &mut status.container_statuses {
                close(container, message);
            }
        }
        let ran = |status: &ContainerStatus| !status.container_id.is_empty();
        let last = status.init_container_statuses.iter().rposition(ran);
        for container in status.init_container_statuses.iter_mut().take(last.map_or(0, |n| n + 1)) {
            close(container, message);
        }
    }

    fn api_phase(&self, status: &PodStatus) -> api::Phase {
        let old = self.api.status.phase;
        if old.is_terminal() {
            return old;
        }
        let over = self.phase() >= Phase::Terminated;
        let phase = match self.lifecycle.verdict() {
            Some(_) if over => api::Phase::Failed,
            _ => {
                let outcome = if over { Outcome::Final } else { Outcome::Open };
                phase_of(&self.api.spec, status, is_initialised(self, &self.observed), outcome)
            }
        };
        // No terminal phase before a list has shown that nothing runs.
        if phase.is_terminal() && !over { old } else { phase }
    }

    fn addresses(&self, status: &mut PodStatus, host_info: HostInfo<'_>) {
        let old = &self.api.status;
        status.host_ips = host_info.addresses.iter().map(|ip| Ip { ip: ip.clone() }).collect();
        status.pod_ips = if self.api.spec.host_network {
            if self.has_sandbox() { status.host_ips.clone() } else { old.pod_ips.clone() }
        } else {
            let reported = self.observed.sandbox().filter(|sandbox| sandbox.ready);
            match reported.and_then(|sandbox| sandbox.status.as_ref()) {
                Some(reported) => reported.ips.iter().map(|ip| Ip { ip: ip.to_string() }).collect(),
                // Kept after the end, because logs refer to them.
                None => old.pod_ips.clone(),
            }
        };
        let first = |ips: &[Ip]| ips.first().map(|ip| ip.ip.clone()).unwrap_or_default();
        status.host_ip = first(&status.host_ips);
        status.pod_ip = first(&status.pod_ips);
    }

    /// Spec section 7.3.
    fn conditions(&self, status: &PodStatus, now: Now) -> Vec<Condition> {
        let over = match status.phase {
            api::Phase::Succeeded => Some("PodCompleted"),
            api::Phase::Failed => Some("PodFailed"),
            api::Phase::Pending | api::Phase::Running => None,
        };
        let initialised = match over {
            Some("PodCompleted") => (true, "PodCompleted", String::new()),
            _ if self.initialised(status) => (true, "", String::new()),
            _ => (false, "ContainersNotInitialized", self.incomplete(status)),
        };
        let unready = self.unready(status);
        let ready = match over {
            Some(reason) => (false, reason, String::new()),
            None if unready.is_empty() => (true, "", String::new()),
            None => {
                let message = format!("containers with unready status: [{}]", unready.join(" "));
                (false, "ContainersNotReady", message)
            }
        };
        let gated = self.gated();
        let all_ready = if ready.0 && !gated.is_empty() {
            (false, "ReadinessGatesNotReady", gated)
        } else {
            ready.clone()
        };
        let plain = |value| (value, "", String::new());
        let mut conditions = vec![
            (ConditionKind::PodReadyToStartContainers, plain(self.has_sandbox())),
            (ConditionKind::Initialized, initialised),
            (ConditionKind::Ready, all_ready),
            (ConditionKind::ContainersReady, ready),
            (ConditionKind::PodScheduled, plain(true)),
        ];
        if let Some(eviction) =
            self.lifecycle.eviction().filter(|it| it.disrupted && over.is_some())
        {
            let reported = (true, DISRUPTED, eviction.message.clone());
            conditions.push((ConditionKind::DisruptionTarget, reported));
        } else if let Some(old) = self.disrupted_before() {
            conditions.push((old.kind, (old.status, old.reason, old.message.clone())));
        }
        conditions.extend(self.held());
        let reported = conditions.into_iter().map(|(kind, (value, reason, message))| {
            let old = self.api.status.conditions.iter().find(|old| old.kind == kind);
            let same = old.filter(|old| old.status == value);
            let last_transition_time = match same {
                Some(old) => old.last_transition_time.or_else(|| now.timestamp()),
                None => now.timestamp(),
            };
            let last_probe_time = None;
            Condition {
                kind,
                status: value,
                last_probe_time,
                last_transition_time,
                reason,
                message,
            }
        });
        reported.collect()
    }

    /// Whether somebody has to release the pod, if that was ever so. As `EdgeCore` reports it.
    fn held(&self) -> Option<(ConditionKind, (bool, &'static str, String))> {
        let kind = ConditionKind::HeldUpgrade;
        if self.is_held() {
            return Some((kind, (true, "HoldUpgradeEnabled", HELD.to_owned())));
        }
        let old = self.api.status.conditions.iter().find(|old| old.kind == kind)?;
        // The runtime is not listed yet: nothing is known of what has begun.
        let stays = self.is_held && self.observed.is_unknown();
        let (value, reason, message) =
            if stays { (old.status, old.reason, &*old.message) } else { (false, "Released", "") };
        Some((kind, (value, reason, message.to_owned())))
    }

    /// The pod was evicted in an earlier start of the agent, and only the condition records that.
    fn disrupted_before(&self) -> Option<&Condition> {
        self.api.status.conditions.iter().find(|old| old.kind == ConditionKind::DisruptionTarget)
    }

    /// Why a pod whose containers are ready is not ready. Nobody sets conditions of pods of the
    /// manifest folder.
    fn gated(&self) -> String {
        let gates = self.api.spec.readiness_gates.iter().filter_map(|gate| {
            let name = &gate.condition_type;
            match gate.reported {
                Some("True") => None,
                Some(other) => Some(format!(
                    "the status of pod readiness gate \"{name}\" is not \"True\", but {other}"
                )),
                None => Some(format!(
                    "corresponding condition of pod readiness gate \"{name}\" does not exist."
                )),
            }
        });
        gates.collect::<Vec<_>>().join(", ")
    }

    fn initialised(&self, status: &PodStatus) -> bool {
        let complete = |(init, reported): (&Container, &ContainerStatus)| {
            if is_sidecar(init) { reported.has_started() } else { reported.ready }
        };
        is_initialised(self, &self.observed)
            || self
                .api
                .spec
                .init_containers
                .iter()
                .zip(&status.init_container_statuses)
                .all(complete)
    }

    fn incomplete(&self, status: &PodStatus) -> String {
        let inits = self.api.spec.init_containers.iter().zip(&status.init_container_statuses);
        let open =
            inits.filter(
                |(init, reported)| {
                    if is_sidecar(init) { !reported.has_started() } else { !reported.ready }
                },
            );
        let names: Vec<&str> = open.map(|(init, _)| &*init.name).collect();
        format!("containers with incomplete status: [{}]", names.join(" "))
    }

    fn unready<'a>(&'a self, status: &'a PodStatus) -> Vec<&'a str> {
        let sidecars = self.sidecars().filter_map(|sidecar| {
            status.init_container_statuses.iter().find(|reported| reported.name == sidecar.name)
        });
        let mut unready: Vec<&str> = sidecars
            .chain(&status.container_statuses)
            .filter(|reported| !reported.ready)
            .map(|reported| &*reported.name)
            .collect();
        unready.sort_unstable();
        unready
    }
}

/// The messages of all containers together are bounded (spec section 2.8).
fn cut_messages(status: &mut PodStatus) {
    let PodStatus {
        init_container_statuses: inits,
        container_statuses: mains,
        ephemeral_container_statuses: ephemerals,
        ..
    } = status;
    let bytes_max = MESSAGES_BYTES_MAX / (inits.len() + mains.len() + ephemerals.len()).max(1);
    for reported in inits.iter_mut().chain(mains).chain(ephemerals) {
        for state in [&mut reported.state, &mut reported.last_state] {
            if let State::Terminated(end) = state
                && end.message.len() > bytes_max
            {
                let fits = |at: &usize| end.message.is_char_boundary(*at);
                let end_at = (0..=bytes_max).rev().find(fits).unwrap_or(0);
                end.message = end.message[..end_at].into();
            }
        }
    }
}

fn container_id(host_info: HostInfo<'_>, observed: &ObservedContainer) -> String {
    format!("{}://{}", host_info.runtime_name, observed.id)
}

/// The state as the runtime reported it.
fn reported_state(observed: &ObservedContainer, id: &str) -> Option<State> {
    let status = observed.status.as_ref();
    let at = |nanos: i64| (nanos > 0).then(|| Timestamp::from_nanos(nanos));
    Some(match observed.state {
        ContainerState::Created => State::Waiting(Waiting::default()),
        ContainerState::Running => State::Running(Running { started_at: at(status?.started_at) }),
        ContainerState::Exited => {
            let status = status?;
            let reason = match (&*status.reason, status.exit_code) {
                ("", 0) => "Completed".into(),
                ("", _) => "Error".into(),
                (reason, _) => reason.into(),
            };
            State::Terminated(Box::new(Terminated {
                exit_code: status.exit_code,
                reason,
                message: status.message.clone(),
                started_at: at(status.started_at),
                finished_at: at(status.finished_at),
                container_id: id.to_owned(),
            }))
        }
        ContainerState::Unknown => State::Terminated(Box::new(lost(
            "The container could not be located when the pod was terminated",
        ))),
    })
}

fn close(status: &mut ContainerStatus, message: &str) {
    if !matches!(status.state, State::Terminated(_)) {
        status.state = State::Terminated(Box::new(lost(message)));
    }
    status.ready = status.ready && !status.has_started();
    status.started = status.started.map(|_| false);
}

/// An init container that the runtime no longer has: the main containers have started, so it has
/// succeeded. The message is the kubelet's.
fn completed_unseen(spec: &Container, old: Option<&ContainerStatus>) -> ContainerStatus {
    let message = "Unable to get init container status from container runtime and pod has been \
                   initialized, treat it as exit normally";
    let end =
        Terminated { reason: "Completed".into(), message: message.into(), ..Terminated::default() };
    ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone(),
        state: State::Terminated(Box::new(end)),
        ready: true,
        restart_count: old.map_or(0, |old| old.restart_count),
        ..ContainerStatus::default()
    }
}

/// How it ended is not known.
fn lost(message: &str) -> Terminated {
    Terminated {
        exit_code: 137,
        reason: "ContainerStatusUnknown".into(),
        message: message.into(),
        ..Terminated::default()
    }
}
