//! Rules about what the agent says of its pods, after each of its steps.

use edged::agent::Agent;
use edged::agent::pod::{Origin, Wanted};
use edged::model::status::PodStatus;
use edged::model::time::Timestamp;

use super::{Check, Pod, Said};
use crate::rule::judge;
use crate::runtime::Runtime;
use crate::trace::trace;

impl Check {
    /// The agent has taken a step. Returns the pods whose stops are due in a second.
    pub fn stepped(&mut self, now: u64, runtime: &Runtime, agent: &Agent) -> Vec<usize> {
        if self.judged == Some(agent.revision()) && self.newly_gone.is_empty() {
            return Vec::new();
        }
        self.judged = Some(agent.revision());
        let mut shown: Vec<(usize, &PodStatus)> = Vec::new();
        let mut anew = false;
        let (pods, sandboxes, born_at) = (&mut self.pods, &self.sandboxes, self.born_at);
        let mut refused = Vec::new();
        self.watched.retain(|&at| {
            let pod = &mut pods[at];
            // Only what a source wanted has a status that anybody sees.
            let told = agent.pod(&pod.uid).filter(|told| told.origin() != Origin::Runtime);
            let Some(told) = told else {
                anew |= pod.said.evicted;
                pod.unsay();
                return pod.told.is_some();
            };
            if pod.again && *told.wanted() == Wanted::Yes {
                judge!(pod.alive == 0, "[old run first] pod {} begins anew, and runs", pod.uid);
                pod.begin_anew();
                anew = true;
            }
            if !pod.again {
                let status = &told.api().status;
                pod.said(now, status);
                // Of several, and beside the cloud's copy, it is open which one is right.
                let of_cloud = pod.of_cloud;
                pod.started(status, |then| {
                    let mut of = sandboxes.values().filter(|it| it.pod == Some(at));
                    let only = of.next().filter(|_| of.next().is_none() && !of_cloud);
                    only.is_some_and(|it| it.made_at < born_at && it.seen_at == Some(then))
                });
                shown.push((at, status));
                // It was refused in an earlier life, and the cloud remembers.
                pod.said.no_room |= pod.ended_before && status.reason == "OutOfpods";
                if status.reason == "OutOfpods" && !std::mem::replace(&mut pod.said.no_room, true) {
                    refused.push(at);
                }
            }
            true
        });
        for (at, status) in shown {
            self.check_served(at, status);
        }
        if anew {
            self.evict.judged = None;
        }
        for at in refused {
            self.refused_for_room(now, runtime, at);
        }
        if self.newly_gone.is_empty() { Vec::new() } else { self.gone_pods(now, runtime) }
    }
}

impl Pod {
    /// All that was said, but when it began, is forgotten.
    pub(super) fn unsay(&mut self) {
        let started_before = self.said.start_time.or(self.said.started_before);
        self.said = Said { started_before, ..Said::default() };
    }

    /// What an earlier life said holds where the one sandbox has a note of it.
    fn started(&mut self, status: &PodStatus, is_noted: impl Fn(Timestamp) -> bool) {
        let Some((before, told)) = self.said.started_before.zip(status.start_time) else { return };
        judge!(
            told == before || !is_noted(before),
            "[start time] pod {} started at {before}, by a later life at {told}",
            self.uid
        );
        self.said.started_before = None;
    }

    fn said(&mut self, now: u64, status: &PodStatus) {
        let uid = &self.uid;
        let phase = status.phase;
        if self.said.phase != Some(phase) {
            trace!(now, "    pod {uid} is said to be {phase:?}, {:?}", status.reason);
            self.said.phase = Some(phase);
        }
        if let Some(before) = self.said.terminal {
            judge!(phase == before, "[ended is ended] pod {uid} was {before:?}, is {phase:?}");
        }
        if phase.is_terminal() {
            judge!(
                self.alive == 0,
                "[ended is ended] pod {uid} is reported {phase:?} while {} of its containers run",
                self.alive
            );
            if self.said.terminal.replace(phase).is_none() {
                self.said.ended_at = now;
            }
        }
        let since = self.said.start_time;
        judge!(
            since.is_none() || since == status.start_time,
            "[start time] pod {uid} started at {since:?}, now at {:?}",
            status.start_time
        );
        self.said.start_time = status.start_time;
        let all = status.init_container_statuses.iter().chain(&status.container_statuses);
        for (at, container) in all.enumerate() {
            let count = container.restart_count;
            let before = self.said.restarts.get(at).copied().unwrap_or(0);
            judge!(
                count >= before,
                "[restarts grow] pod {uid}: {} was restarted {before} times, now {count}",
                container.name
            );
            if at < self.said.restarts.len() {
                self.said.restarts[at] = count;
            } else {
                self.said.restarts.push(count);
            }
        }
    }
}
