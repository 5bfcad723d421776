//! Nodes under pressure: their settings, which pods may be evicted, and what containers use.
//!
//! The draws here are a separate random sequence, so that other worlds do not change.

use std::sync::Arc;

use edged::agent::admit::EVICTABLE;
use edged::model::housekeeping::{
    Amount, ContainerUsage, EvictionPolicy, MeasureRequest, Measures, Room, SandboxUsage, Signal,
    Threshold,
};
use edged::model::job::{Used, Walk};
use edged::model::pod::{EmptyDir, Pod, Volume};

use crate::chance::Chance;
use crate::runtime::{ContainerNo, Runtime};
use crate::volumes::Volumes;

/// Bytes of memory.
const MEMORY: u64 = 1 << 30;
const SIZE_LIMIT: u64 = 1 << 20;

/// Some nodes evict.
pub fn policy(seed: u64) -> EvictionPolicy {
    let mut chance = Chance::new(seed ^ 0x6576_6963_7469_6f6e);
    let mut policy = EvictionPolicy::default();
    policy.hard.clear();
    if chance.percent(40) {
        policy.hard = [
            (Signal::Memory, Threshold::Amount(100 << 20)),
            (Signal::NodeFs, Threshold::Millionths(100_000)),
            (Signal::ImageFs, Threshold::Millionths(150_000)),
            // Always watched: by it the rules recognize the evictor's measurements.
            (Signal::Pids, Threshold::Amount(100)),
        ]
        .into();
        policy.transition_ms = *chance.pick(&[0, 60_000, 300_000]);
        if chance.percent(30) {
            policy.reclaim_min.insert(Signal::Memory, Threshold::Amount(50 << 20));
        }
    }
    policy
}

/// Some pods may be evicted, some may not although they could, and some volumes have a limit.
pub fn give(pod: &mut Pod) {
    let number = number_of(&pod.metadata.uid);
    let mut chance = Chance::new(number ^ 0x7368_6f72_7421_2121);
    if chance.percent(70) {
        pod.metadata.annotations.insert(EVICTABLE.to_owned(), "true".to_owned());
    }
    if chance.percent(20) {
        Arc::make_mut(&mut pod.spec).rest.insert("priority".to_owned(), 2_000_000_000_u64.into());
    }
    for volume in &mut Arc::make_mut(&mut pod.spec).volumes {
        let plain = serde_json::to_value(&*volume)
            .is_ok_and(|it| it.as_object().is_some_and(|fields| fields.len() == 1));
        if plain && chance.percent(50) {
            let size_limit = Some(SIZE_LIMIT.to_string().parse().expect("a quantity"));
            volume.empty_dir = Some(EmptyDir { size_limit, ..EmptyDir::default() });
        }
    }
}

/// Whether a volume of the pod is larger than its limit.
pub fn passes_limits(pod: &Pod, volumes: &Volumes) -> bool {
    let uid = &pod.metadata.uid;
    let limited = |name: &str| {
        let volume = pod.spec.volumes.iter().find(|volume| &*volume.name == name);
        volume.is_some_and(is_limited)
    };
    volumes
        .keys()
        .any(|(owner, volume)| **owner == **uid && limited(volume) && is_too_large(uid, volume))
}

/// Whether the pod may be evicted at all: a static one only with an annotation.
pub fn may_go(pod: &Pod, of_cloud: bool) -> bool {
    let evictable = of_cloud || pod.metadata.annotations.contains_key(EVICTABLE);
    evictable && !pod.spec.rest.contains_key("priority")
}

fn is_limited(volume: &Volume) -> bool {
    volume.empty_dir.as_ref().is_some_and(|dir| dir.size_limit.is_some())
}

/// Some become too large as soon as they exist.
pub fn is_too_large(uid: &str, volume: &str) -> bool {
    (number_of(uid) + number_of(volume)).is_multiple_of(5)
}

/// The result of a walk through these folders.
pub fn walk(walk: &Walk, volumes: &Volumes) -> Vec<Option<Used>> {
    let one = |uid: &str, name: &str| {
        let bytes = if is_too_large(uid, name) { SIZE_LIMIT + 1 } else { SIZE_LIMIT };
        let there = volumes.contains_key(&(uid.into(), name.into()));
        there.then_some(Used { bytes, inodes: 1 })
    };
    walk.places.iter().map(|place| one(&place.pod.uid, &place.name)).collect()
}

/// Memory and processes: what others leave, and what containers use of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest {
    memory_taken: u64,
    pids_taken: u64,
    /// Used by pods, beyond what the runtime reports of their containers.
    of_pods_unseen: u64,
}

impl Rest {
    /// Others use more, or less.
    pub fn change(&mut self, chance: &mut Chance) {
        self.memory_taken = (chance.below(1_000) << 20).min(MEMORY);
        self.pids_taken = if chance.percent(20) { chance.below(1_000) } else { 0 };
        self.of_pods_unseen = if chance.percent(20) { chance.below(1_000) << 20 } else { 0 };
    }

    /// Fills in what is left.
    pub fn fill(
        self,
        runtime: &Runtime,
        ask: &MeasureRequest,
        room: Room,
        measures: &mut Measures,
    ) {
        let taken: u64 = runtime.living().map(|(number, _)| memory_of(number)).sum();
        let available = MEMORY.saturating_sub(self.memory_taken + taken);
        measures.memory = Some(Amount { capacity: MEMORY, available });
        let available = 1_000 - self.pids_taken;
        measures.pids = ask.pids.then_some(Amount { capacity: 1_000, available });
        measures.pods_memory = ask.pods_cgroup.as_ref().map(|_| self.of_pods_unseen + taken);
        measures.node_fs = Some(room);
    }
}

/// What is left of the memory for pods: nothing is reserved.
pub fn of_pods(used: u64) -> Amount {
    Amount { capacity: MEMORY, available: MEMORY.saturating_sub(used) }
}

/// What the runtime reports of its containers.
pub fn containers(runtime: &Runtime) -> Vec<ContainerUsage> {
    let all = runtime.containers.iter().filter_map(|(&number, it)| {
        let uid = it.listed.pod.as_ref()?.uid.clone();
        let memory = it.alive.then(|| memory_of(number));
        let name = it.listed.name.clone();
        let (disk, inodes) = (Some(1 << 20), Some(1));
        Some(ContainerUsage { uid, name, memory, disk, inodes, ..ContainerUsage::default() })
    });
    all.collect()
}

/// What the runtime reports of its sandboxes.
pub fn sandboxes(runtime: &Runtime) -> Vec<SandboxUsage> {
    let all = runtime.sandboxes.iter().filter_map(|(number, it)| {
        let uid = it.listed.pod.as_ref()?.uid.clone();
        Some(SandboxUsage { uid, processes: Some(u64::from(number % 7)) })
    });
    all.collect()
}

fn memory_of(number: ContainerNo) -> u64 {
    (u64::from(number) * 37 % 64) << 20
}

fn number_of(text: &str) -> u64 {
    text.bytes()
        .filter(u8::is_ascii_digit)
        .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}
