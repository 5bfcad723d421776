//! Rules about what the agent says of its pods, after each of its steps.
//!
//! All is judged anew when the agent's revision has moved or the truth has changed, and in every so
//! many steps whatever the agent says of its revision.

use std::collections::BTreeMap;

use edged::agent::Agent;
use edged::agent::pod::{Origin, Wanted};
use edged::model::status::PodStatus;
use edged::model::time::Timestamp;

use super::{Check, Pod, Said};
use crate::draw;
use crate::ends;
use crate::rule::judge;
use crate::runtime::{Container, ContainerNo, Runtime};
use crate::trace::trace;
use crate::world::TODAY_MS;

/// The longest way of a word of the cloud.
const CLOUD_WORD_MS: u64 = 3_001;

impl Check {
    /// Nothing is taken as judged: the next look is at all statuses.
    pub fn look_again(&mut self) {
        self.judged = None;
        self.evict.judged = None;
    }

    /// Whether all statuses are looked at now, though the agent says that none has changed.
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
        // What `look_again` asks for is looked at whatever the revisions say, too.
        let whole = sampled || self.judged.is_none();
        self.judged = revision;
        let moved = std::mem::replace(&mut self.revision, revision) != revision;
        let mut shown: Vec<(usize, &PodStatus)> = Vec::new();
        let mut anew = false;
        let (mut refused, mut ended) = (Vec::new(), Vec::new());
        let Self { pods, sandboxes, containers, born_at, .. } = self;
        self.watched.retain(|&at| {
            let pod = &mut pods[at];
            // Only what a source wanted has a status that anybody sees.
            let known = agent.pod(&pod.uid);
            let Some(told) = known.filter(|told| told.origin() != Origin::Runtime) else {
                if known.is_none() {
                    pod.check_forgotten(at, containers);
                }
                anew |= pod.said.evicted;
                pod.compare(None, moved, whole);
                pod.unsay();
                return pod.told.is_some();
            };
            let status = &told.api().status;
            pod.compare(Some((told.status_revision(), status)), moved, whole);
            if pod.again && *told.wanted() == Wanted::Yes {
                judge!(pod.alive == 0, "[old run first] pod {} begins anew, and runs", pod.uid);
                pod.begin_anew(now);
                anew = true;
            }
            if !pod.again {
                if pod.said(now, status) {
                    ended.push(at);
                }
                // Of several, and beside the cloud's copy, it is open which one is right.
                let of_cloud = pod.of_cloud;
                pod.started(status, |then| {
                    let mut of = sandboxes.values().filter(|it| it.pod == Some(at));
                    let only = of.next().filter(|_| of.next().is_none() && !of_cloud);
                    only.is_some_and(|it| it.made_at < *born_at && it.seen_at == Some(then))
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

    /// The agent says for the first time that the pod has ended: has it, and for a reason?
    fn ended_truly(&self, now: u64, runtime: &Runtime, agent: &Agent, at: usize) {
        let pod = &self.pods[at];
        let Some((told, known)) = pod.told.as_deref().zip(agent.pod(&pod.uid)) else { return };
        let status = &known.api().status;
        // These have rules of their own; and what an earlier life said was judged then.
        let judged = matches!(&*status.reason, "Evicted" | "OutOfpods");
        if judged || pod.ended_before || draw::is_refused(told) {
            return;
        }
        let own = |it: &&Container| it.listed.pod.as_ref().is_some_and(|it| it.uid == pod.uid);
        let containers: Vec<&Container> = runtime.containers.values().filter(own).collect();
        let wrong = ends::claimed_wrongly(told, status, pod, &containers);
        judge!(wrong.is_none(), "[true end] pod {} has not ended so: {wrong:?}", pod.uid);
        if let Some(seconds) = told.spec.active_deadline_seconds
            && status.reason == "DeadlineExceeded"
        {
            // Seconds are cut off where the start is written down.
            let due = pod.first_told_at + seconds.unsigned_abs() * 1000;
            let slack_ms = 1_000 + Self::by_the_cloud_ms(pod, status);
            judge!(
                now + slack_ms >= due || self.probed.clock_jumped,
                "[active deadline] pod {} has {} s, since {} ms",
                pod.uid,
                seconds,
                pod.first_told_at
            );
        }
    }

    /// How long before the pod was first told of it began by the clock of the cloud, whose word
    /// was on its way for a while: the agent goes by it until its own clock is set.
    fn by_the_cloud_ms(pod: &Pod, status: &PodStatus) -> u64 {
        let told_at = pod.first_told_at;
        let since = status.start_time.and_then(|at| u64::try_from(at.0 * 1000 - TODAY_MS).ok());
        since.map_or(0, |since| told_at.saturating_sub(since).min(CLOUD_WORD_MS))
    }
}

impl Pod {
    /// All that was said, but when it began, is forgotten.
    pub(super) fn unsay(&mut self) {
        let started_before = self.said.start_time.or(self.said.started_before);
        self.said = Said { started_before, ..Said::default() };
    }

    /// Who looks only when a revision has moved, the agent's or the pod's, must not miss a change.
    /// `whole`: it is looked at although the pod's has not.
    fn compare(&mut self, told: Option<(u64, &PodStatus)>, moved: bool, whole: bool) {
        let before = self.shown.as_ref();
        let same_revision = before.map(|(revision, _)| *revision) == told.map(|it| it.0);
        if same_revision && !whole {
            return;
        }
        if before.map(|(_, status)| status) != told.map(|it| it.1) {
            judge!(
                moved && !same_revision,
                "[revision] pod {} changes at the same revision: {before:?}, now {told:?}",
                self.uid
            );
            self.shown = told.map(|(revision, status)| (revision, status.clone()));
        } else if let (Some((revision, _)), Some(told)) = (&mut self.shown, told) {
            *revision = told.0;
        }
    }

    /// The agent knows nothing of it any more: nothing of it runs, as far as it was told.
    fn check_forgotten(&self, at: usize, containers: &BTreeMap<ContainerNo, super::Container>) {
        let runs = |it: &super::Container| {
            it.alive && it.began_at < self.known_at && it.place.is_some_and(|(pod, _)| pod == at)
        };
        let runs = containers.iter().find(|(_, it)| runs(it)).map(|(number, _)| number);
        judge!(
            runs.is_none() || self.lost,
            "[forgotten last] pod {} is forgotten while c{runs:?} runs",
            self.uid
        );
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

    /// Says whether it is said to have ended, and was not before.
    fn said(&mut self, now: u64, status: &PodStatus) -> bool {
        let uid = &self.uid;
        let phase = status.phase;
        let mut ends = false;
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
                ends = true;
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
        ends
    }
}
