//! Garbage collection of dead containers beyond the configured number (spec section 8.1).
//!
//! A pod itself removes dead instances that a newer one has replaced, as soon as it waits; this is
//! enough for the default policy. This module handles what needs all pods at once: a bound for all
//! dead containers, and policies that keep none. It marks the garbage of the pods, which remove it
//! with its logs, one container at a time.
//!
//! Never marked: the newest instance of a container that a source wants. It proves that the pod has
//! run; nothing else here stores that, and a finished job would start again.

use crate::agent::calls::Uid;
use crate::agent::housekeeping::Periodic;
use crate::agent::pod::{Pod, Wanted};
use crate::agent::pods::Pods;
use crate::agent::time::{Instant, Now};
use crate::limits;
use crate::model::cri::{ContainerId, ContainerState};
use crate::model::housekeeping::ContainerPolicy;
use crate::model::map::Map;

/// The garbage collector of dead containers.
#[derive(Debug)]
pub struct Containers {
    policy: ContainerPolicy,
    period: Periodic,
    /// Eviction requests the removal of all of them.
    reclaim_requested: bool,
}

/// A dead container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Dead {
    created_at: i64,
    attempt: u32,
    uid: Uid,
    name: Box<str>,
    id: ContainerId,
    /// It proves that its pod has run.
    is_newest: bool,
}

impl Containers {
    /// Begins with the first step.
    pub fn new(policy: ContainerPolicy, now: Instant) -> Self {
        Self { policy, period: Periodic::new(limits::GARBAGE_MS, now), reclaim_requested: false }
    }

    /// Whether pods cannot apply the policy by themselves.
    fn is_active(&self) -> bool {
        self.policy.per_container_max == Some(0) || self.policy.all_max.is_some()
    }

    /// Requests the removal of all dead containers, except those that prove that a pod has run.
    #[cfg(feature = "eviction")]
    pub fn reclaim(&mut self) {
        self.reclaim_requested = true;
    }

    /// Whether that is still to be done.
    #[cfg(feature = "eviction")]
    pub fn is_reclaiming(&self) -> bool {
        self.reclaim_requested
    }

    /// Marks the garbage of the pods.
    pub fn step(&mut self, now: Now, pods: &mut Pods) {
        let due = self.is_active() && self.period.is_due(now.boot);
        if !due && !self.reclaim_requested {
            return;
        }
        self.period.done(now.boot);
        let reclaim = ContainerPolicy { age_min_ms: 0, per_container_max: Some(0), all_max: None };
        let policy =
            if std::mem::take(&mut self.reclaim_requested) { &reclaim } else { &self.policy };
        for (uid, ids) in surplus(policy, now, pods.iter().flat_map(dead)) {
            if let Some(pod) = pods.get_mut(&uid) {
                pod.mark_garbage(ids);
            }
        }
    }

    /// When something is due.
    pub fn due_at(&self) -> Option<Instant> {
        self.is_active().then(|| self.period.due_at())
    }
}

/// The dead containers of a pod that stays; a pod that is removed needs no policy.
fn dead(pod: &Pod) -> impl Iterator<Item = Dead> {
    let stays = *pod.wanted() == Wanted::Yes;
    let observed = pod.observed();
    let is_dead = |state| matches!(state, ContainerState::Created | ContainerState::Exited);
    let dead = observed.containers.iter().filter(move |it| stays && is_dead(it.state));
    dead.map(move |it| Dead {
        created_at: it.created_at,
        attempt: it.attempt,
        uid: pod.uid().clone(),
        name: it.name.clone(),
        id: it.id.clone(),
        is_newest: observed.newest(&it.name).is_some_and(|newest| newest.id == it.id),
    })
}

/// The containers to remove by the policy, by pod.
fn surplus(
    policy: &ContainerPolicy,
    now: Now,
    dead: impl Iterator<Item = Dead>,
) -> Map<Uid, Vec<ContainerId>> {
    let born_before = now.wall.map(|wall| {
        let age_ms = i64::try_from(policy.age_min_ms).unwrap_or(i64::MAX);
        wall.0.saturating_sub(age_ms).saturating_mul(1_000_000)
    });
    // Without a clock the age is not known; a container that we have just created is not listed
    // yet.
    let is_old = |it: &Dead| {
        let known = policy.age_min_ms == 0 || born_before.is_some_and(|born| it.created_at <= born);
        known && (policy.age_min_ms == 0 || it.created_at > 0)
    };
    let mut groups: Map<(Uid, Box<str>), Vec<Dead>> = Map::new();
    for it in dead.filter(is_old) {
        groups.entry((it.uid.clone(), it.name.clone())).or_default().push(it);
    }
    let mut gone = Vec::new();
    for group in groups.values_mut() {
        // The newest first.
        group.sort_by_key(|it| std::cmp::Reverse((it.attempt, it.created_at)));
        keep(group, policy.per_container_max.unwrap_or(usize::MAX), &mut gone);
    }
    if let Some(all_max) = policy.all_max {
        let count = |groups: &Map<_, Vec<Dead>>| groups.values().map(Vec::len).sum::<usize>();
        if count(&groups) > all_max {
            let share = (all_max / groups.len().max(1)).max(1);
            for group in groups.values_mut() {
                keep(group, share, &mut gone);
            }
        }
        let over = count(&groups).saturating_sub(all_max);
        let mut rest: Vec<Dead> =
            groups.into_values().flatten().filter(|it| !it.is_newest).collect();
        rest.sort();
        gone.extend(rest.into_iter().take(over));
    }
    let mut by_pod: Map<Uid, Vec<ContainerId>> = Map::new();
    for it in gone {
        by_pod.entry(it.uid).or_default().push(it.id);
    }
    by_pod
}

/// Keeps so many of a group, and those that are always kept.
fn keep(group: &mut Vec<Dead>, count: usize, gone: &mut Vec<Dead>) {
    let mut at = 0;
    group.retain(|it| {
        at += 1;
        let stays = at <= count || it.is_newest;
        if !stays {
            gone.push(it.clone());
        }
        stays
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::time::Wall;

    const NOW_MS: i64 = 1_000_000;

    /// `a/m#3@7`: container `m` of pod `a`, attempt 3, created 7 s ago; `!`: the newest instance.
    fn dead(text: &str) -> Dead {
        let (rest, is_newest) = match text.strip_suffix('!') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (id, age_s) = rest.split_once('@').expect("an age");
        let (uid, rest) = id.split_once('/').expect("a pod");
        let (name, attempt) = rest.split_once('#').expect("an attempt");
        let age_s: i64 = age_s.parse().expect("seconds");
        Dead {
            created_at: (NOW_MS - age_s * 1_000) * 1_000_000,
            attempt: attempt.parse().expect("a number"),
            uid: uid.into(),
            name: name.into(),
            id: ContainerId(id.into()),
            is_newest,
        }
    }

    fn gone(policy: &ContainerPolicy, all: &[&str]) -> Vec<String> {
        let now = Now { boot: Instant(0), wall: Some(Wall(NOW_MS)) };
        let by_pod = surplus(policy, now, all.iter().map(|text| dead(text)));
        let mut gone: Vec<String> =
            by_pod.into_values().flatten().map(|id| id.to_string()).collect();
        gone.sort();
        gone
    }

    #[test]
    fn the_maximum_per_container_is_kept() {
        let all = ["a/m#0@9", "a/m#1@8", "a/m#2@7!", "a/n#0@9", "b/m#4@1"];
        let policy = |max| ContainerPolicy { per_container_max: max, ..ContainerPolicy::default() };
        assert_eq!(gone(&policy(None), &all), [] as [&str; 0]);
        assert_eq!(gone(&policy(Some(2)), &all), ["a/m#0"]);
        assert_eq!(gone(&policy(Some(1)), &all), ["a/m#0", "a/m#1"]);
        // The newest instance stays; a dead one that a running one has replaced does not.
        assert_eq!(gone(&policy(Some(0)), &all), ["a/m#0", "a/m#1", "a/n#0", "b/m#4"]);
    }

    #[test]
    fn young_containers_neither_go_nor_count() {
        let all = ["a/m#0@9", "a/m#1@8", "a/m#2@2"];
        let policy = ContainerPolicy {
            age_min_ms: 5_000,
            per_container_max: Some(1),
            ..ContainerPolicy::default()
        };
        assert_eq!(gone(&policy, &all), ["a/m#0"]);
    }

    #[test]
    fn the_overall_maximum_removes_the_oldest() {
        let all = ["a/m#0@9", "a/m#1@8", "a/m#2@7", "b/m#0@6", "b/m#1@5", "c/m#0@10!"];
        let policy = |max| ContainerPolicy {
            per_container_max: None,
            all_max: Some(max),
            ..ContainerPolicy::default()
        };
        assert_eq!(gone(&policy(6), &all), [] as [&str; 0]);
        // A share of one each is three.
        assert_eq!(gone(&policy(5), &all), ["a/m#0", "a/m#1", "b/m#0"]);
        assert_eq!(gone(&policy(2), &all), ["a/m#0", "a/m#1", "a/m#2", "b/m#0"]);
        assert_eq!(gone(&policy(1), &["a/m#0@5", "b/m#0@9"]), ["b/m#0"]);
        // The oldest of all is a pod's newest.
        assert_eq!(gone(&policy(0), &all), ["a/m#0", "a/m#1", "a/m#2", "b/m#0", "b/m#1"]);
    }

    #[test]
    fn without_a_clock_no_age_is_known() {
        let policy = ContainerPolicy {
            age_min_ms: 1,
            per_container_max: Some(0),
            ..ContainerPolicy::default()
        };
        let now = Now { boot: Instant(0), wall: None };
        assert!(surplus(&policy, now, [dead("a/m#0@9")].into_iter()).is_empty());
        // If none is too young, the age need not be known.
        let any_age = ContainerPolicy { age_min_ms: 0, ..policy.clone() };
        assert_eq!(surplus(&any_age, now, [dead("a/m#0@9")].into_iter()).len(), 1);
        // A runtime that does not report the creation time.
        assert_eq!(gone(&policy, &["a/m#0@1000"]), [] as [&str; 0]);
    }
}
