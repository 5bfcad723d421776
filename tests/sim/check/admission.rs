//! Rules about pods that are refused for lack of room.

use std::rc::Rc;

use edged::agent::Agent;
use edged::model::status::PodStatus;

use super::{Check, Pod};
use crate::draw;
use crate::rule::judge;
use crate::runtime::Runtime;

impl Check {
    /// Whether there have been so many pods that the node may have refused one for lack of room.
    pub fn may_be_full(&self) -> bool {
        self.pods.len() + self.cloud.ending > self.pods_max
    }

    /// The agent has decided which pods may run, and is about to act on it. Needed only on a node
    /// that may be full.
    pub fn refusals(&mut self, now: u64, runtime: &Runtime, agent: &Agent) {
        let out = |status: &PodStatus| status.reason == "OutOfpods";
        let mut refused = Vec::new();
        for (at, pod) in self.pods.iter_mut().enumerate() {
            if pod.desired.is_none()
                || pod.came_back
                || pod.reported.is_refused()
                || pod.ended_before
            {
                continue;
            }
            if agent.pod(&pod.uid).is_some_and(|reported| out(&reported.api().status)) {
                pod.reported.refuse();
                refused.push(at);
            }
        }
        // Mark all of them first: two pods that are refused together do not take each other's room.
        for at in refused {
            self.refused_for_room(now, runtime, at);
        }
    }

    /// The node refused this pod because it is full.
    pub(super) fn refused_for_room(&self, now: u64, runtime: &Runtime, at: usize) {
        let pod = &self.pods[at];
        let stay = || self.pods.iter().filter(|other| other.uid != pod.uid && other.stays(now));
        let room = self.pods_max;
        judge!(
            stay().count() + self.cloud.ending >= room,
            "[room for pods] pod {} is refused beside {} others where there is room for {room}",
            pod.uid,
            stay().count()
        );
        // A pod that has run since before this life keeps its place if both were delivered
        // together: room that was given away before the folder was read is not taken back.
        let began = |number: &u32| self.instances.container(*number).is_some_and(|it| it.alive);
        let runs = runtime.containers.iter().any(|(number, container)| {
            let owner = container.listed.pod.as_ref().is_some_and(|it| it.uid == pod.uid);
            owner && began(number) && container.began_at < self.life_began_at
        });
        if pod.delivered_first.is_none() || pod.lost {
            return;
        }
        let newcomer = stay().find(|it| {
            it.delivered_first == pod.delivered_first
                && it.sandboxes == 0
                && it.alive == 0
                && it.changed_at < self.life_began_at
        });
        let newcomer = newcomer.map(|it| &it.uid);
        judge!(
            !runs || newcomer.is_none(),
            "[running pods stay] pod {} runs and is refused, pod {newcomer:?} never ran and is not",
            pod.uid
        );
    }
}

impl Pod {
    /// Takes room, or took it at the last step.
    fn stays(&self, now: u64) -> bool {
        let refused = |desired: &Rc<_>| draw::is_refused(desired);
        self.desired.as_ref().is_some_and(|desired| !refused(desired))
            && !self.came_back
            && !self.is_out()
            && !self.reported.has_ended_before(now)
    }
}
