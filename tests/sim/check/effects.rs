//! Rules about changes in the runtime, whoever caused them.

use edged::model::cri::PodRef;

use super::instances::{Container, Sandbox};
use super::{Backoff, Check, End, Pod, Role, Slot};
use crate::rule::judge;
use crate::runtime::{self, ContainerNo, Effect, Runtime, SandboxNo};

/// The back-off before the second restart, milliseconds.
const BACKOFF_MIN_MS: u64 = 10_000;
/// After a run of this length the back-off starts again. The agent observes an end later than it
/// happens, so a run that was slightly shorter may count too.
const CALM_MS: u64 = 600_000 - 120_000;

impl Check {
    /// Something changed in the runtime.
    pub fn effect(&mut self, now: u64, runtime: &Runtime, effect: Effect) {
        self.review.again();
        match effect {
            Effect::SandboxMade(number) => self.sandbox_made(now, runtime, number),
            Effect::SandboxDown(number) => self.sandbox_down(now, number),
            Effect::SandboxGone(number) => {
                if let Some(at) = self.instances.sandbox_gone(number) {
                    self.pods[at].sandboxes -= 1;
                    self.pods[at].unstored &= self.pods[at].sandboxes > 0;
                    self.pods[at].changed_at = now;
                }
            }
            Effect::Made(number) => self.made(now, runtime, number),
            Effect::Started(number) => self.started(now, runtime, number),
            Effect::Reopened(_) => {}
            Effect::Ended(number, end) => self.ended(now, number, end),
            Effect::Gone(number) => self.gone(now, number),
            Effect::Displaced(number) => {
                if let Some((at, _)) = self.instances.place_of(number) {
                    self.pods[at].lost = true;
                }
            }
        }
    }

    fn sandbox_made(&mut self, now: u64, runtime: &Runtime, number: SandboxNo) {
        let made = &runtime.sandboxes[&number];
        let pod = made.listed.pod.as_ref().map(|pod: &PodRef| self.pods.index_or_add(pod));
        let has_ip = made.ip.is_some() || made.host_network;
        let seen_at = made.listed.seen_at;
        let sandbox = Sandbox { pod, made_at: now, down_at: None, has_ip, seen_at };
        self.instances.sandbox_made(number, sandbox);
        if let Some(at) = pod {
            let pod = &mut self.pods[at];
            pod.sandboxes += 1;
            if pod.first_delivered_at == u64::MAX {
                // A pod that no source ever wanted was put there by somebody else.
                pod.of_cloud = made.listed.source.as_deref() == Some("api");
            }
            pod.forgotten = false;
            pod.ready_sandboxes += 1;
            pod.changed_at = now;
            if pod.ready_sandboxes > 1 || !has_ip {
                pod.sandbox_trouble_at = Some(now);
            }
        }
    }

    fn sandbox_down(&mut self, now: u64, number: SandboxNo) {
        if let Some(at) = self.instances.sandbox_down(now, number) {
            let pod = &mut self.pods[at];
            pod.ready_sandboxes -= 1;
            pod.changed_at = now;
            pod.sandbox_trouble_at = Some(now);
        }
    }

    fn made(&mut self, now: u64, runtime: &Runtime, number: ContainerNo) {
        let made = &runtime.containers[&number];
        let place = made.listed.pod.as_ref().map(|pod| {
            let at = self.pods.index_or_add(pod);
            (at, self.pods[at].slot_at(&made.listed.name))
        });
        if let Some((at, slot)) = place {
            self.pods[at].changed_at = now;
            let slot = &mut self.pods[at].slots[slot];
            slot.attempt_max = slot.attempt_max.max(made.listed.attempt);
        }
        let container = Container {
            place,
            sandbox: made.sandbox,
            image: made.listed.image.clone(),
            alive: false,
            began_at: 0,
            grace_s: None,
        };
        self.instances.made(number, container);
    }

    fn started(&mut self, now: u64, runtime: &Runtime, number: ContainerNo) {
        let container = self.instances.started(now, number);
        let (Some((at, slot)), sandbox) = (container.place, container.sandbox) else { return };
        let image = container.image.clone();
        let backoff_max_ms = self.backoff_max_ms;
        let pod = &mut self.pods[at];
        pod.alive += 1;
        pod.changed_at = now;
        pod.slots[slot].alive += 1;
        let (uid, name) = (&pod.uid, &pod.slots[slot].name);
        judge!(
            pod.slots[slot].alive == 1,
            "[one instance] pod {uid} runs {} containers named {name}",
            pod.slots[slot].alive
        );
        judge!(
            pod.reported.terminal().is_none() || pod.came_back,
            "[ended is ended] pod {uid} was reported {:?}, and c{number} ({name}) starts",
            pod.reported.terminal()
        );
        judge!(
            !pod.over || pod.lost,
            "[ended is ended] the cloud knows that pod {uid} has ended, and c{number} starts"
        );
        pod.check_order(sandbox, slot);
        pod.slots[slot].ran_in = Some(sandbox);
        let uid = &pod.uid;
        let attempt = runtime.containers[&number].listed.attempt;
        if !pod.slots[slot].requested.contains(&attempt) {
            // Made in an earlier life, whose restarts this life does not know.
            pod.slots[slot].last_end = None;
        }
        pod.slots[slot].check_backoff(now, uid, &image, backoff_max_ms);
        self.check_one_of_a_name(runtime, number, at);
    }

    fn check_one_of_a_name(&self, runtime: &Runtime, number: ContainerNo, at: usize) {
        let pod = runtime.containers[&number].listed.pod.as_ref().expect("its place is known");
        let named = self.pods.named(&pod.namespace, &pod.name).expect("it was made");
        let other = named.iter().find(|&&it| it != at && self.pods[it].alive > 0);
        judge!(
            other.is_none(),
            "[one pod of a name] c{number} of {} starts while {} of the same name runs",
            pod.uid,
            self.pods[*other.unwrap_or(&at)].uid
        );
    }

    fn ended(&mut self, now: u64, number: ContainerNo, how: runtime::End) {
        let (container, was_alive) = self.instances.ended(number);
        let Some((at, slot)) = container.place else { return };
        let pod = &mut self.pods[at];
        pod.changed_at = now;
        pod.slots[slot].has_ended = true;
        if !was_alive {
            return;
        }
        pod.alive -= 1;
        let slot = &mut pod.slots[slot];
        slot.alive -= 1;
        slot.last_end = Some(End { number, at: now, image: container.image.clone() });
        if how == runtime::End::Well {
            slot.done_in = Some(container.sandbox);
        }
    }

    fn gone(&mut self, now: u64, number: ContainerNo) {
        if let Some((at, slot)) = self.instances.gone(number) {
            let pod = &mut self.pods[at];
            pod.changed_at = now;
            let slot = &mut pod.slots[slot];
            // Its end time can no longer be known.
            slot.last_end.take_if(|end| end.number == number);
            slot.to_restart.retain(|&stopped| stopped != number);
        }
    }

    /// Everything was removed behind the agent's back.
    pub fn lost_all(&mut self) {
        self.pods.iter_mut().for_each(|pod| pod.lost = true);
    }

    /// Something of the pod was removed behind the agent's back: its consequences are not the
    /// agent's fault.
    pub fn lost(&mut self, uid: &str) {
        if let Some(at) = self.pods.find(uid) {
            self.pods[at].lost = true;
        }
    }
}

impl Pod {
    /// Containers start in the order of the spec: a plain init container must have finished in this
    /// sandbox, a sidecar must have started, before the next one starts.
    fn check_order(&self, sandbox: SandboxNo, slot: usize) {
        let Some(desired) = self.desired.as_ref().filter(|_| !self.came_back) else { return };
        let spec = &desired.spec;
        let name = &self.slots[slot].name;
        let of = |name: &str| self.slots.iter().find(|slot| &*slot.name == name);
        let ran = |name: &str| of(name).is_some_and(|slot| slot.ran_in == Some(sandbox));
        if spec.containers.iter().any(|main| ran(&main.name)) {
            return;
        }
        for init in &spec.init_containers {
            if init.name == *name {
                return;
            }
            let fit = match self.role(&init.name) {
                Some(Role::Sidecar) => ran(&init.name),
                _ => of(&init.name).is_some_and(|slot| slot.done_in == Some(sandbox)),
            };
            judge!(
                fit,
                "[init order] pod {} starts {name} in s{sandbox}, and {} has not been done there",
                self.uid,
                init.name
            );
        }
    }
}

impl Slot {
    /// The first restart is immediate, later ones wait 10, 20, 40 … s. A back-off counts from the
    /// request to create the container, which may be long before its start.
    fn check_backoff(&mut self, now: u64, uid: &str, image: &str, max_ms: u64) {
        let Some(end) = self.last_end.take().filter(|end| &*end.image == image) else {
            self.backoff = None;
            return;
        };
        let first_ms = BACKOFF_MIN_MS.min(max_ms);
        let Some(backoff) = self.backoff else {
            self.backoff = Some(Backoff { delay_ms: first_ms, used_at: self.requested_at });
            return;
        };
        let gap_ms = now - end.at;
        let calm = end.at.saturating_sub(backoff.used_at) > CALM_MS;
        judge!(
            calm || gap_ms >= backoff.delay_ms,
            "[back-off] pod {uid} starts {} {gap_ms} ms after its end, and the back-off is {} ms",
            self.name,
            backoff.delay_ms
        );
        let delay_ms = if calm { first_ms } else { (backoff.delay_ms * 2).min(max_ms) };
        self.backoff = Some(Backoff { delay_ms, used_at: self.requested_at });
    }
}
