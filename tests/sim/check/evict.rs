//! Rules about which pods are evicted, and whether eviction was necessary.

use std::collections::BTreeMap;

use edged::agent::Agent;
use edged::model::housekeeping::{Amount, EvictionPolicy, Measures, Signal};

use super::Check;
use crate::rule::judge;
use crate::short;
use crate::volumes::Volumes;

/// A cycle ends within this time after its measurements: calls and walks have deadlines of two
/// minutes each.
const CYCLE_MS_MAX: u64 = 600_000;

/// The state of these rules.
#[derive(Default)]
pub struct Evictions {
    policy: EvictionPolicy,
    /// When the evictor last received measurements, and whether some threshold was met then.
    measured: Option<(u64, bool)>,
    /// Pods that were evicted since then.
    since: u32,
    /// When each condition's signals were last below the threshold.
    short_at: BTreeMap<&'static str, u64>,
    /// The agent's revision that was judged last; `None`: the inputs of the rules have changed
    /// since.
    pub judged: Option<u64>,
}

impl Evictions {
    pub fn new(policy: &EvictionPolicy) -> Self {
        Self { policy: policy.clone(), ..Self::default() }
    }

    pub fn begin_life(&mut self) {
        *self = Self::new(&self.policy);
    }

    /// Whether this node evicts.
    pub fn is_on(&self) -> bool {
        !self.policy.hard.is_empty()
    }

    /// Whether the disk was short in this or the previous cycle.
    pub fn is_disk_short(&self, now: u64) -> bool {
        self.short_at.get("DiskPressure").is_some_and(|at| now - at < CYCLE_MS_MAX)
    }

    /// Whether the disk was short, in this life, at or after this time, or in the cycle before it.
    pub fn was_disk_short(&self, at: u64) -> bool {
        self.short_at.get("DiskPressure").is_some_and(|short_at| at < short_at + CYCLE_MS_MAX)
    }

    /// The agent receives measurements. Only the evictor requests the number of processes.
    pub fn measured(&mut self, now: u64, measures: &Measures) {
        if measures.pids.is_none() {
            return;
        }
        let mut any = false;
        // The threshold applies to the pods' share as it does to the whole memory.
        let of_pods = self.policy.hard.get(&Signal::Memory).map(|it| (&Signal::PodsMemory, it));
        for (signal, least) in self.policy.hard.iter().chain(of_pods) {
            let (condition, amount): (_, Option<Amount>) = match signal {
                Signal::Memory => ("MemoryPressure", measures.memory),
                Signal::PodsMemory => ("MemoryPressure", measures.pods_memory.map(short::of_pods)),
                Signal::NodeFs => ("DiskPressure", measures.node_fs.map(|it| it.bytes)),
                Signal::ImageFs => ("DiskPressure", measures.image_fs.map(|it| it.bytes)),
                Signal::Pids => ("PIDPressure", measures.pids),
                Signal::NodeFsInodes | Signal::ImageFsInodes => continue,
            };
            let Some(amount) = amount else { continue };
            let reclaimed = if *signal == Signal::PodsMemory { &Signal::Memory } else { signal };
            let more =
                self.policy.reclaim_min.get(reclaimed).map_or(0, |it| it.of(amount.capacity));
            if amount.available < least.of(amount.capacity) + more {
                any = true;
                self.short_at.insert(condition, now);
            }
        }
        self.measured = Some((now, any));
        self.since = 0;
    }
}

impl Check {
    /// The agent has taken a step; its requests are not judged yet.
    pub fn evictions(&mut self, now: u64, agent: &Agent, volumes: &Volumes) {
        let same = self.evict.judged.replace(agent.revision()) == Some(agent.revision());
        if same && !self.review.is_sampled() {
            return;
        }
        for watched in 0..self.watched.len() {
            let at = self.watched[watched];
            let pod = &self.pods[at];
            if pod.desired.is_none() || pod.came_back || pod.reported.is_evicted() {
                continue;
            }
            let Some(reported) = agent.pod(&pod.uid) else { continue };
            let status = &reported.api().status;
            if status.reason == "Evicted" {
                let message = status.message.clone();
                self.pods[at].reported.evict();
                // A pod that was evicted in an earlier life was judged then; the cloud remembers
                // it.
                if !self.pods[at].ended_before {
                    self.judge_eviction(now, at, &message, volumes);
                }
            }
        }
    }

    fn judge_eviction(&mut self, now: u64, at: usize, message: &str, volumes: &Volumes) {
        let pod = &self.pods[at];
        let (uid, desired) = (&pod.uid, pod.desired.as_ref().expect("it is desired"));
        judge!(
            short::may_go(desired, pod.of_cloud),
            "[needed pods stay] pod {uid} is evicted: {message}"
        );
        if message.starts_with("Usage of EmptyDir volume") {
            let passed = short::passes_limits(desired, volumes);
            judge!(passed || pod.lost, "[limits are passed] pod {uid} is evicted: {message}");
            return;
        }
        if let Some(list) = message.strip_prefix("Pod was rejected: The node had condition: [") {
            let names = list.split(']').next().expect("it ends").split(' ');
            let lasts = self.evict.policy.transition_ms + CYCLE_MS_MAX;
            let short_at = &self.evict.short_at;
            let short = |name: &str| short_at.get(name).is_some_and(|at| now - at < lasts);
            judge!(names.clone().all(short), "[pressure is true] pod {uid}: {message}");
            return;
        }
        judge!(message.starts_with("The node was low on resource: "), "[eviction] {message}");
        judge!(self.evict.measured.is_some(), "[gauges first] nothing was measured: {message}");
        let Some((measured_at, met)) = self.evict.measured else { return };
        judge!(met, "[threshold first] pod {uid} is evicted: {message}");
        judge!(
            now - measured_at < CYCLE_MS_MAX,
            "[threshold first] gauges of {measured_at}: {message}"
        );
        self.evict.since += 1;
        judge!(self.evict.since == 1, "[one at a time] pod {uid} is evicted: {message}");
    }
}

impl super::Pod {
    /// Whether the agent evicted it, or did not admit it for lack of room, which was judged then.
    pub fn is_out(&self) -> bool {
        self.reported.is_out()
    }
}
