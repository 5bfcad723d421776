//! Who is refused for want of room, and whether there was none.

use std::rc::Rc;

use edged::agent::Agent;
use edged::model::status::PodStatus;

use super::{Check, Pod};
use crate::draw;
use crate::rule::judge;
use crate::runtime::Runtime;

impl Check {
    /// The agent has decided who may run, and is about to act on it: to be asked where room is
    /// short, for elsewhere nobody has to go for that.
    pub fn refusals(&mut self, now: u64, runtime: &Runtime, agent: &Agent) {
        let out = |status: &PodStatus| status.reason == "OutOfpods";
        let mut refused = Vec::new();
        for (at, pod) in self.pods.iter_mut().enumerate() {
            if pod.told.is_none() || pod.again || pod.said.no_room || pod.ended_before {
                continue;
            }
            if agent.pod(&pod.uid).is_some_and(|told| out(&told.api().status)) {
                pod.said.no_room = true;
                refused.push(at);
            }
        }
        // All of them first: two that are refused together are not in each other's way.
        for at in refused {
            self.refused_for_room(now, runtime, at);
        }
    }

    /// This pod was refused because the node holds no more.
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
        // What has run since before the agent stays in its place, where both were told together:
        // room that was given while the folder was not read yet is not taken back.
        let began = |number| self.containers.get(number).is_some_and(|it| it.alive);
        let runs = runtime.containers.iter().any(|(number, container)| {
            let owner = container.listed.pod.as_ref().is_some_and(|it| it.uid == pod.uid);
            owner && began(number) && container.began_at < self.born_at
        });
        if pod.told_first.is_none() || pod.lost {
            return;
        }
        let newcomer = stay().find(|it| {
            it.told_first == pod.told_first
                && it.sandboxes == 0
                && it.alive == 0
                && it.changed_at < self.born_at
        });
        let newcomer = newcomer.map(|it| &it.uid);
        judge!(
            !runs || newcomer.is_none(),
            "[who runs stays] pod {} runs and is refused, pod {newcomer:?} never ran and is not",
            pod.uid
        );
    }
}

impl Pod {
    /// Takes room, or did at the last step.
    fn stays(&self, now: u64) -> bool {
        let refused = |told: &Rc<_>| draw::is_refused(told);
        let ended = self.said.terminal.is_some() && self.said.ended_at < now;
        self.told.as_ref().is_some_and(|told| !refused(told))
            && !self.again
            && !self.is_out()
            && !ended
    }
}
