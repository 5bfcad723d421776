//! Rules about the statuses that the agent reports, checked after each of its steps.
//!
//! Everything is judged again when the agent's revision or the true state has changed, and in every
//! n-th step whatever the agent's revision is.

use std::collections::BTreeMap;

use edged::agent::Agent;
use edged::agent::pod::{Origin, Wanted};
use edged::model::status::PodStatus;
use edged::model::time::Timestamp;

use super::{Check, Pod, Reported};
use crate::clocks::TODAY_MS;
use crate::draw;
use crate::ends;
use crate::rule::judge;
use crate::runtime::{Container, ContainerNo, Runtime};
use crate::trace::trace;

/// The longest transit time of a message of the cloud.
const CLOUD_WORD_MS: u64 = 3_001;

impl Check {
    /// Forgets what was judged: the next check covers all statuses.
    pub fn judge_all_again(&mut self) {
        self.judged = None;
        self.evict.judged = None;
    }

    /// Whether all statuses are checked now, though the agent's revision has not changed.
    pub(super) fn is_sampled(&self) -> bool {
        self.steps.is_multiple_of(self.sample_every)
    }

    /// The agent has taken a step. Returns the pods whose stops are due in a second.
    pub fn stepped(&mut self, now: u64, runtime: &Runtime, agent: &Agent) -> Vec<usize> {
        self.steps += 1;
        let revision = Some(agent.revision());
        let sampled = self.is_sampled();
        if self.judged == revision && self.newly_gone.is_empty() && !sampled {
            return Vec::new();
        }
        // `judge_all_again` also checks regardless of revisions.
        let whole = sampled || self.judged.is_none();
        self.judged = revision;
        let moved = std::mem::replace(&mut self.revision, revision) != revision;
        let mut shown: Vec<(usize, &PodStatus)> = Vec::new();
        let mut anew = false;
        let (mut refused, mut ended) = (Vec::new(), Vec::new());
        let Self { pods, sandboxes, containers, life_began_at, .. } = self;
        self.watched.retain(|&at| {
            let pod = &mut pods[at];
            // Only pods that a source wanted have a visible status.
            let known = agent.pod(&pod.uid);
            let Some(reported) = known.filter(|it| it.origin() != Origin::Runtime) else {
                if known.is_none() {
                    pod.check_forgotten(at, containers);
                }
                anew |= pod.reported.evicted;
                pod.compare(None, moved, whole);
                pod.forget_reported();
                return pod.desired.is_some();
            };
            let status = &reported.api().status;
            pod.compare(Some((reported.status_revision(), status)), moved, whole);
            if pod.came_back && *reported.wanted() == Wanted::Yes {
                judge!(pod.alive == 0, "[old run first] pod {} begins anew, and runs", pod.uid);
                pod.begin_anew(now);
                anew = true;
            }
            if !pod.came_back {
                if pod.report_status(now, status) {
                    ended.push(at);
                }
                // With several sandboxes, or with the cloud's copy, it is open which one is right.
                let of_cloud = pod.of_cloud;
                pod.started(status, |then| {
                    let mut of = sandboxes.values().filter(|it| it.pod == Some(at));
                    let only = of.next().filter(|_| of.next().is_none() && !of_cloud);
                    only.is_some_and(|it| it.made_at < *life_began_at && it.seen_at == Some(then))
                });
                shown.push((at, status));
                // It was refused in an earlier life, and the cloud remembers it.
                let is_full = status.reason == "OutOfpods";
                pod.reported.no_room |= pod.ended_before && is_full;
                if is_full && !std::mem::replace(&mut pod.reported.no_room, true) {
                    refused.push(at);
                }
            }
            true
        });
        for at in ended {
            self.ended_truly(now, runtime, agent, at);
        }
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

    /// The agent reports the pod's end for the first time: is it true, and for a reason?
    fn ended_truly(&self, now: u64, runtime: &Runtime, agent: &Agent, at: usize) {
        let pod = &self.pods[at];
        let Some((desired, known)) = pod.desired.as_deref().zip(agent.pod(&pod.uid)) else {
            return;
        };
        let status = &known.api().status;
        // These have rules of their own; and what an earlier life reported was judged then.
        let judged = matches!(&*status.reason, "Evicted" | "OutOfpods");
        if judged || pod.ended_before || draw::is_refused(desired) {
            return;
        }
        let own = |it: &&Container| it.listed.pod.as_ref().is_some_and(|it| it.uid == pod.uid);
        let containers: Vec<&Container> = runtime.containers.values().filter(own).collect();
        let wrong = ends::claimed_wrongly(desired, status, pod, &containers);
        judge!(wrong.is_none(), "[true end] pod {} has not ended so: {wrong:?}", pod.uid);
        if let Some(seconds) = desired.spec.active_deadline_seconds
            && status.reason == "DeadlineExceeded"
        {
            // The start is stored in whole seconds.
            let due = pod.first_delivered_at + seconds.unsigned_abs() * 1000;
            let slack_ms = 1_000 + Self::by_the_cloud_ms(pod, status);
            judge!(
                now + slack_ms >= due || self.probed.clock_jumped,
                "[active deadline] pod {} has {} s, since {} ms",
                pod.uid,
                seconds,
                pod.first_delivered_at
            );
        }
    }

    /// How much earlier the pod began by the cloud's clock than its first delivery, whose message
    /// was in transit for a while: the agent uses that time until its own clock is set.
    fn by_the_cloud_ms(pod: &Pod, status: &PodStatus) -> u64 {
        let delivered_at = pod.first_delivered_at;
        let since = status.start_time.and_then(|at| u64::try_from(at.0 * 1000 - TODAY_MS).ok());
        since.map_or(0, |since| delivered_at.saturating_sub(since).min(CLOUD_WORD_MS))
    }
}

impl Pod {
    /// Forgets all that was reported except the start time.
    pub(super) fn forget_reported(&mut self) {
        let started_before = self.reported.start_time.or(self.reported.started_before);
        self.reported = Reported { started_before, ..Reported::default() };
    }

    /// A reader that checks only when a revision has changed, the agent's or the pod's, must not
    /// miss a change. `whole`: it is checked although the pod's revision is the same.
    fn compare(&mut self, reported: Option<(u64, &PodStatus)>, moved: bool, whole: bool) {
        let before = self.shown.as_ref();
        let same_revision = before.map(|(revision, _)| *revision) == reported.map(|it| it.0);
        if same_revision && !whole {
            return;
        }
        if before.map(|(_, status)| status) != reported.map(|it| it.1) {
            judge!(
                moved && !same_revision,
                "[revision] pod {} changes at the same revision: {before:?}, now {reported:?}",
                self.uid
            );
            self.shown = reported.map(|(revision, status)| (revision, status.clone()));
        } else if let (Some((revision, _)), Some(reported)) = (&mut self.shown, reported) {
            *revision = reported.0;
        }
    }

    /// The agent has forgotten the pod: nothing of it runs, as far as the agent was informed.
    fn check_forgotten(&self, at: usize, containers: &BTreeMap<ContainerNo, super::Container>) {
        let runs = |it: &super::Container| {
            it.alive
                && self.observation.knows(it.began_at)
                && it.place.is_some_and(|(pod, _)| pod == at)
        };
        let runs = containers.iter().find(|(_, it)| runs(it)).map(|(number, _)| number);
        judge!(
            runs.is_none() || self.lost,
            "[forgotten last] pod {} is forgotten while c{runs:?} runs",
            self.uid
        );
    }

    /// The start time of an earlier life stays valid if the one sandbox has it in an annotation.
    fn started(&mut self, status: &PodStatus, is_noted: impl Fn(Timestamp) -> bool) {
        let Some((before, reported)) = self.reported.started_before.zip(status.start_time) else {
            return;
        };
        judge!(
            reported == before || !is_noted(before),
            "[start time] pod {} started at {before}, by a later life at {reported}",
            self.uid
        );
        self.reported.started_before = None;
    }

    /// Returns whether it is now reported as ended, and was not before.
    fn report_status(&mut self, now: u64, status: &PodStatus) -> bool {
        let uid = &self.uid;
        let phase = status.phase;
        let mut ends = false;
        if self.reported.phase != Some(phase) {
            trace!(now, "    pod {uid} is reported as {phase:?}, {:?}", status.reason);
            self.reported.phase = Some(phase);
        }
        if let Some(before) = self.reported.terminal {
            judge!(phase == before, "[ended is ended] pod {uid} was {before:?}, is {phase:?}");
        }
        if phase.is_terminal() {
            judge!(
                self.alive == 0,
                "[ended is ended] pod {uid} is reported {phase:?} while {} of its containers run",
                self.alive
            );
            if self.reported.terminal.replace(phase).is_none() {
                self.reported.ended_at = now;
                ends = true;
            }
        }
        let since = self.reported.start_time;
        judge!(
            since.is_none() || since == status.start_time,
            "[start time] pod {uid} started at {since:?}, now at {:?}",
            status.start_time
        );
        self.reported.start_time = status.start_time;
        let all = status.init_container_statuses.iter().chain(&status.container_statuses);
        for (at, container) in all.enumerate() {
            let count = container.restart_count;
            let before = self.reported.restarts.get(at).copied().unwrap_or(0);
            judge!(
                count >= before,
                "[restarts grow] pod {uid}: {} was restarted {before} times, now {count}",
                container.name
            );
            if at < self.reported.restarts.len() {
                self.reported.restarts[at] = count;
            } else {
                self.reported.restarts.push(count);
            }
        }
        ends
    }
}
