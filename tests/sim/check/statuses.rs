//! Rules about the statuses that the agent reports, checked after each of its steps.
//!
//! Everything is judged again when the agent's revision or the true state has changed, and in every
//! n-th step whatever the agent's revision is.

use edged::agent::Agent;
use edged::agent::pod::{Origin, Wanted};
use edged::model::status::PodStatus;

use super::instances::{Container, Instances};
use super::{Check, Pod};
use crate::clocks::TODAY_MS;
use crate::draw;
use crate::ends;
use crate::rule::judge;
use crate::runtime::{self, Runtime};

/// The longest transit time of a message of the cloud.
const CLOUD_WORD_MS: u64 = 3_001;

/// When statuses are judged.
pub struct Review {
    /// The agent's revision that was judged last; `None`: the inputs of the rules have changed
    /// since.
    judged: Option<u64>,
    /// All statuses are checked next time, whatever their revisions.
    whole: bool,
    /// The agent's revision when its statuses were last checked, in this life.
    revision: Option<u64>,
    /// The agent's steps, and how often all statuses are checked.
    steps: u64,
    sample_every: u64,
}

impl Review {
    /// Everything is judged in every n-th step.
    pub fn new(sample_every: u64) -> Self {
        Self { judged: None, whole: false, revision: None, steps: 0, sample_every }
    }

    pub fn begin_life(&mut self) {
        (self.judged, self.revision, self.whole) = (None, None, true);
    }

    /// The inputs of the rules have changed.
    pub fn again(&mut self) {
        self.judged = None;
    }

    /// Whether all statuses are checked now, though the agent's revision has not changed.
    pub fn is_sampled(&self) -> bool {
        self.steps.is_multiple_of(self.sample_every)
    }

    /// The agent has taken a step. If statuses are checked now, returns whether all of them are,
    /// whatever their revisions, and whether the agent's revision has changed since the last time.
    fn step(&mut self, revision: u64, must: bool) -> Option<(bool, bool)> {
        self.steps += 1;
        let revision = Some(revision);
        let sampled = self.is_sampled();
        if self.judged == revision && !must && !sampled {
            return None;
        }
        let whole = sampled || std::mem::take(&mut self.whole);
        self.judged = revision;
        Some((whole, std::mem::replace(&mut self.revision, revision) != revision))
    }
}

impl Check {
    /// Forgets what was judged: the next check covers all statuses.
    pub fn judge_all_again(&mut self) {
        self.review.again();
        self.review.whole = true;
        self.evict.judged = None;
    }

    /// The agent has taken a step. Returns the pods whose stops are due in a second.
    pub fn stepped(&mut self, now: u64, runtime: &Runtime, agent: &Agent) -> Vec<usize> {
        let Some((whole, moved)) = self.review.step(agent.revision(), !self.newly_gone.is_empty())
        else {
            return Vec::new();
        };
        let mut shown: Vec<(usize, &PodStatus)> = Vec::new();
        let mut anew = false;
        let (mut refused, mut ended) = (Vec::new(), Vec::new());
        let Self { pods, instances, life_began_at, .. } = self;
        self.watched.retain(|&at| {
            let pod = &mut pods[at];
            // Only pods that a source wanted have a visible status.
            let known = agent.pod(&pod.uid);
            let Some(reported) = known.filter(|it| it.origin() != Origin::Runtime) else {
                if known.is_none() {
                    pod.check_forgotten(at, instances);
                }
                anew |= pod.reported.is_evicted();
                pod.reported.compare(&pod.uid, None, moved, whole);
                pod.reported.forget();
                return pod.desired.is_some();
            };
            let status = &reported.api().status;
            let shown_now = (reported.status_revision(), status);
            pod.reported.compare(&pod.uid, Some(shown_now), moved, whole);
            if pod.came_back && *reported.wanted() == Wanted::Yes {
                judge!(pod.alive == 0, "[old run first] pod {} begins anew, and runs", pod.uid);
                pod.begin_anew(now);
                anew = true;
            }
            if !pod.came_back {
                if pod.reported.status(now, &pod.uid, pod.alive, status) {
                    ended.push(at);
                }
                // With several sandboxes, or with the cloud's copy, it is open which one is right.
                let of_cloud = pod.of_cloud;
                pod.reported.started(&pod.uid, status, |then| {
                    let mut of = instances.sandboxes_of(at).map(|(_, it)| it);
                    let only = of.next().filter(|_| of.next().is_none() && !of_cloud);
                    only.is_some_and(|it| it.made_at < *life_began_at && it.seen_at == Some(then))
                });
                shown.push((at, status));
                // It was refused in an earlier life, and the cloud remembers it.
                let is_full = status.reason == "OutOfpods";
                if is_full && pod.reported.refuse() && !pod.ended_before {
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
        let own =
            |it: &&runtime::Container| it.listed.pod.as_ref().is_some_and(|it| it.uid == pod.uid);
        let containers: Vec<&runtime::Container> =
            runtime.containers.values().filter(own).collect();
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
    /// The agent has forgotten the pod: nothing of it runs, as far as the agent was informed.
    fn check_forgotten(&self, at: usize, instances: &Instances) {
        let runs = |it: &Container| it.runs_in(at) && self.observation.knows(it.began_at);
        let runs = instances.containers().find(|(_, it)| runs(it)).map(|(number, _)| number);
        judge!(
            runs.is_none() || self.lost,
            "[forgotten last] pod {} is forgotten while c{runs:?} runs",
            self.uid
        );
    }
}
