//! Who is evicted, and whether anybody had to go.

use std::collections::BTreeMap;

use edged::agent::Agent;
use edged::model::housekeeping::{Amount, EvictionPolicy, Measures, Signal};

use super::Check;
use crate::rule::judge;
use crate::short;
use crate::volumes::Volumes;

/// A cycle ends within so long of its gauges: calls and walks have deadlines of two minutes each.
const CYCLE_MS_MAX: u64 = 600_000;

/// What these rules remember.
#[derive(Default)]
pub struct Evictions {
    policy: EvictionPolicy,
    /// When the evictor was last told its gauges, and whether some threshold was met then.
    told: Option<(u64, bool)>,
    /// Pods that went for the node's sake since then.
    since: u32,
    /// When each condition's signals were last short.
    short_at: BTreeMap<&'static str, u64>,
    /// The agent's revision that was judged last; `None`: what it is judged by is another since.
    pub judged: Option<u64>,
}

impl Evictions {
    /// Nothing known.
    pub fn new(policy: &EvictionPolicy) -> Self {
        Self { policy: policy.clone(), ..Self::default() }
    }

    /// The agent begins a new life.
    pub fn be_born(&mut self) {
        *self = Self::new(&self.policy);
    }

    /// Whether this node evicts.
    pub fn is_on(&self) -> bool {
        !self.policy.hard.is_empty()
    }

    /// Whether the disk was short in this cycle or the one before.
    pub fn is_disk_short(&self, now: u64) -> bool {
        self.short_at.get("DiskPressure").is_some_and(|at| now - at < CYCLE_MS_MAX)
    }

    /// Whether the disk was short, in this life, at or after this time, or in the cycle before.
    pub fn was_disk_short(&self, at: u64) -> bool {
        self.short_at.get("DiskPressure").is_some_and(|short_at| at < short_at + CYCLE_MS_MAX)
    }

    /// The agent is told the gauges. Only the evictor asks for processes.
    pub fn measured(&mut self, now: u64, measures: &Measures) {
        if measures.pids.is_none() {
            return;
        }
        let mut any = false;
        // Of the pods' share as much has to be left as of the whole.
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
        self.told = Some((now, any));
        self.since = 0;
    }
}

impl Check {
    /// The agent has taken a step, and what it asks for is not yet judged.
    pub fn evictions(&mut self, now: u64, agent: &Agent, volumes: &Volumes) {
        let same = self.evict.judged.replace(agent.revision()) == Some(agent.revision());
        if same && !self.is_sampled() {
            return;
        }
        for watched in 0..self.watched.len() {
            let at = self.watched[watched];
            let pod = &self.pods[at];
            if pod.told.is_none() || pod.again || pod.said.evicted {
                continue;
            }
            let Some(told) = agent.pod(&pod.uid) else { continue };
            let status = &told.api().status;
            if status.reason == "Evicted" {
                let message = status.message.clone();
                self.pods[at].said.evicted = true;
                // One that went in an earlier life was judged then; the cloud remembers.
                if !self.pods[at].ended_before {
                    self.judge_eviction(now, at, &message, volumes);
                }
            }
        }
    }

    fn judge_eviction(&mut self, now: u64, at: usize, message: &str, volumes: &Volumes) {
        let pod = &self.pods[at];
        let (uid, told) = (&pod.uid, pod.told.as_ref().expect("it is told of"));
        judge!(
            short::may_go(told, pod.of_cloud),
            "[who is needed stays] pod {uid} is evicted: {message}"
        );
        if message.starts_with("Usage of EmptyDir volume") {
            let passed = short::passes_limits(told, volumes);
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
        judge!(self.evict.told.is_some(), "[gauges first] nothing was measured: {message}");
        let Some((told_at, met)) = self.evict.told else { return };
        judge!(met, "[threshold first] pod {uid} is evicted: {message}");
        judge!(now - told_at < CYCLE_MS_MAX, "[threshold first] gauges of {told_at}: {message}");
        self.evict.since += 1;
        judge!(self.evict.since == 1, "[one at a time] pod {uid} is evicted: {message}");
    }
}

impl super::Pod {
    /// Whether the agent evicted it, or did not take it in for want of room, which was judged then.
    pub fn is_out(&self) -> bool {
        self.said.no_room || self.said.evicted
    }
}
