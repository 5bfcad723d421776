//! Rules about stops: for a reason, with the grace period, in time.

use edged::limits;
use edged::model::cri::ContainerState;
use edged::model::pod::RestartPolicy;

use super::calls::Class;
use super::{Check, Pod, Role};
use crate::rule::judge;
use crate::runtime::{ContainerNo, Runtime, SandboxNo};
use crate::world::World;

/// A sandbox that was not as it should be explains stops for as long as calls may last.
const TROUBLE_MS: u64 = 900_000;
/// Rounding of seconds, and the time between decision and request.
const GRACE_SLACK_MS: u64 = 2_000;
const READY_VALID_MS: u64 = 20_000;

impl Check {
    pub(super) fn check_stop(
        &mut self,
        now: u64,
        runtime: &Runtime,
        at: usize,
        number: ContainerNo,
        grace_s: i64,
        deadline: u64,
    ) {
        let pod = &self.pods[at];
        let uid = &pod.uid;
        judge!(grace_s >= 1, "[grace] c{number} of pod {uid} is given {grace_s} s");
        let grace_ms = grace_s.unsigned_abs() * 1000;
        judge!(
            deadline - now > grace_ms,
            "[grace] c{number} of pod {uid} has a grace of {grace_s} s, and its call less time"
        );
        if let Some((container, found)) =
            self.instances.container(number).zip(runtime.containers.get(&number))
            && let Some((_, slot)) = container.place
        {
            let name = &*found.listed.name;
            let outdated = pod.spec_of(name).is_some_and(|spec| spec.image != found.listed.image);
            let unknown = found.listed.state == ContainerState::Unknown || found.was_unknown;
            judge!(
                outdated
                    || unknown
                    || !container.alive
                    || self.must_stop(number)
                    || pod.is_to_restart(number)
                    || self.may_end(now, at, name),
                "[no stop without reason] c{number} ({name}) of pod {uid} is stopped"
            );
            if outdated || self.is_sick(at, number) {
                self.pods[at].slots[slot].to_restart.push(number);
            }
        }
        self.check_grace(now, at, number, grace_ms);
        self.pods[at].stop_requested_at = now;
    }

    /// Whether a probe has decided that the container is to be restarted.
    pub(super) fn is_sick(&self, at: usize, number: ContainerNo) -> bool {
        let policy = self.pods[at].desired.as_ref().map(|desired| desired.spec.restart_policy);
        self.must_stop_since(number).is_some() && policy != Some(RestartPolicy::Never)
    }

    /// Whether the inputs allow a stop of a container of the pod.
    fn may_end(&self, now: u64, at: usize, name: &str) -> bool {
        let pod = &self.pods[at];
        let Some(desired) = &pod.desired else { return true };
        let lately = |at: u64| now.saturating_sub(at) < TROUBLE_MS;
        let troubled = pod.ready_sandboxes != 1 || pod.sandbox_trouble_at.is_some_and(lately);
        let mains_run = || {
            let mains = pod.slots.iter().filter(|it| pod.role(&it.name) == Some(Role::Main));
            mains.map(|slot| slot.alive).sum::<u32>() > 0
        };
        let may_be_over = match (desired.spec.restart_policy, pod.role(name)) {
            (RestartPolicy::Always, _) => false,
            (_, Some(Role::Main)) => false,
            _ => !mains_run(),
        };
        let expires = desired.spec.active_deadline_seconds.is_some();
        let refused = pod.is_out();
        pod.came_back
            || troubled
            || may_be_over
            || expires
            || refused
            || pod.reported.terminal().is_some()
    }

    /// All containers of the pod share one grace period, which only gets shorter.
    fn check_grace(&mut self, now: u64, at: usize, number: ContainerNo, grace_ms: u64) {
        let pod = &mut self.pods[at];
        let ends = pod.desired.is_none() || pod.came_back;
        if !ends {
            return;
        }
        let least_ms = limits::STOP_GRACE_MIN_S.unsigned_abs() * 1000;
        let (began_at, whole_ms) = *pod.ending.get_or_insert((now, grace_ms));
        let left_ms = (began_at + whole_ms + GRACE_SLACK_MS).saturating_sub(now);
        judge!(
            grace_ms <= least_ms || grace_ms <= left_ms,
            "[grace] c{number} of pod {} is given {grace_ms} ms, and {left_ms} ms are left",
            pod.uid
        );
        judge!(
            whole_ms <= pod.grace_ms_max.max(least_ms),
            "[grace] pod {} is given {whole_ms} ms, and no manifest of it had more than {} ms",
            pod.uid,
            pod.grace_ms_max
        );
        self.instances.stopped(number, (grace_ms / 1000) as i64);
    }

    /// A container that is known to run is stopped with its grace period before it is removed, and
    /// the last dead instance is kept for its log and exit code.
    pub(super) fn check_remove(&self, runtime: &Runtime, at: usize, number: ContainerNo) {
        let pod = &self.pods[at];
        let Some((container, found)) =
            self.instances.container(number).zip(runtime.containers.get(&number))
        else {
            return;
        };
        judge!(
            !pod.observation.shows_alive(container),
            "[no kill] c{number} of pod {} is removed while it runs",
            pod.uid
        );
        let wanted =
            pod.desired.is_some() && !pod.came_back && pod.gone_at.is_none() && !pod.is_out();
        let name = &found.listed.name;
        let main = pod.role(name) == Some(Role::Main);
        let known = found.is_exited() && pod.observation.knows(found.ended_at.max(found.made_at));
        if !wanted || !main || pod.lost || !known {
            return;
        }
        let newer = runtime.containers.iter().any(|(&other, it)| {
            other != number
                && it.listed.name == *name
                && it.listed.attempt >= found.listed.attempt
                && self.instances.place_of(other).is_some_and(|(pod, _)| pod == at)
        });
        // A refused start in a sandbox that ended left neither a log nor an exit code.
        let sandbox = runtime.sandboxes.get(&found.sandbox);
        let never_ran = found.began_at == 0 && sandbox.is_none_or(|it| !it.listed.ready);
        judge!(
            newer || never_ran,
            "[last one kept] c{number} ({name}) of pod {} is removed",
            pod.uid
        );
    }

    pub(super) fn check_stop_sandbox(&self, now: u64, at: usize, number: SandboxNo) {
        self.check_sandbox_idle(at, number, "stopped");
        let pod = &self.pods[at];
        let Some(desired) = &pod.desired else { return };
        let healthy = self.instances.sandbox(number).is_some_and(|it| {
            it.down_at.is_none() && it.has_ip && pod.observation.knows(it.made_at)
        });
        let policy = desired.spec.restart_policy;
        judge!(
            !healthy || policy != RestartPolicy::Always || self.may_end(now, at, ""),
            "[no stop without reason] s{number} of pod {} is stopped",
            pod.uid
        );
    }

    pub(super) fn check_remove_sandbox(&self, at: usize, number: SandboxNo) {
        self.check_sandbox_idle(at, number, "removed");
    }

    fn check_sandbox_idle(&self, at: usize, number: SandboxNo, what: &str) {
        let pod = &self.pods[at];
        let runs = self
            .instances
            .containers()
            .find(|(_, it)| it.sandbox == number && pod.observation.shows_alive(it));
        let runs = runs.map(|(number, _)| number);
        judge!(
            runs.is_none(),
            "[no kill] s{number} of pod {} is {what} while {runs:?} runs in it",
            pod.uid
        );
    }

    /// The agent has taken a step: it knows which pods were removed. Returns the pods whose stops
    /// it must request within a second, because nothing prevents it.
    pub(super) fn gone_pods(&mut self, now: u64, runtime: &Runtime) -> Vec<usize> {
        let mut due = Vec::new();
        for at in std::mem::take(&mut self.newly_gone) {
            if self.pods[at].desired.is_some() {
                continue;
            }
            self.pods[at].gone_at = Some(now);
            let ready = now >= runtime.ready_at && self.connection.is_ready(now, READY_VALID_MS);
            let observation = &self.pods[at].observation;
            let runs = self
                .instances
                .containers()
                .any(|(_, it)| it.runs_in(at) && observation.knows(it.began_at));
            let few = self.calls.count(Class::Stop) < STOPS_MANY;
            if ready && observation.is_free() && runs && few {
                due.push(at);
            }
        }
        due
    }

    /// Whether the pod was removed more than a second ago, and nothing prevents the agent from
    /// ending it.
    pub fn is_long_gone(&self, now: u64, uid: &str) -> bool {
        let gone_at = self.pod(uid).filter(|pod| pod.desired.is_none()).and_then(|pod| pod.gone_at);
        self.connection.is_ready(now, READY_VALID_MS)
            && gone_at.is_some_and(|gone_at| now - gone_at > 1_000)
    }

    /// A second later.
    pub fn stop_due(&self, now: u64, at: usize, undisturbed_since: u64) {
        let pod = &self.pods[at];
        let Some(gone_at) = pod.gone_at.filter(|&gone_at| gone_at + 1_000 == now) else { return };
        let excused = !self.connection.is_ready(now, READY_VALID_MS + 1_000)
            || undisturbed_since > gone_at
            || pod.alive == 0
            || pod.lost
            || self.is_hooked(at);
        judge!(
            excused || pod.stop_requested_at >= gone_at,
            "[prompt stop] pod {} was removed a second ago and still runs, and nothing was stopped",
            pod.uid
        );
    }
}

/// With this many stops under way there may be no room for one more pod's.
const STOPS_MANY: usize = limits::STOP_CALLS_MAX / 2;

impl Pod {
    /// Begins a new run of the same uid.
    pub(super) fn begin_anew(&mut self, now: u64) {
        self.came_back = false;
        self.delivered_at = now;
        self.spec_was.clone_from(&self.desired);
        self.gone_at = None;
        self.ending = None;
        // What is missing now is missing in this run too.
        self.lost &= self.sandboxes > 0;
        self.reported.forget();
        for slot in &mut self.slots {
            slot.backoff = None;
            slot.last_end = None;
            slot.has_ended = false;
            if self.sandboxes == 0 {
                slot.attempt_max = 0;
            }
        }
    }
}

impl World {
    /// A second after a pod's manifest was removed.
    pub(crate) fn stop_due(&mut self, pod: usize) {
        // An agent that is stopping begins nothing.
        if self.leaving.is_none() {
            self.check.stop_due(self.clocks.now(), pod, self.turns.stalled_until());
        }
    }
}
