//! Eviction thresholds: which ones are met and since when, and the node's pressures that follow.

use std::collections::BTreeSet;

use crate::agent::time::Instant;
use crate::model::housekeeping::{self, Amount, EvictionPolicy, Measures, Signal};
use crate::model::map::{Map, Set};
use crate::model::node::Pressure;

/// A signal and the amount that has to be available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threshold {
    pub signal: Signal,
    pub least: housekeeping::Threshold,
    /// How much more has to be available before a shortage that was acted on is over.
    pub reclaim_min: Option<housekeeping::Threshold>,
    /// `None`: a hard threshold. Otherwise soft: it is acted on after it was met for so long.
    pub grace_ms: Option<u64>,
}

/// The measured amounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    amounts: Map<Signal, Amount>,
    /// Images have a file system of their own.
    pub dedicated: bool,
}

/// All thresholds and their state.
#[derive(Debug)]
pub struct Shortage {
    /// By signal, hard thresholds before soft ones.
    all: Vec<Threshold>,
    /// Since when each met threshold is met, by its index in `all`.
    since: Map<usize, Instant>,
    /// The thresholds to act on, as of the last observation.
    acted_on: Set<usize>,
    /// When each pressure was last observed.
    seen_at: Map<Pressure, Instant>,
    transition_ms: u64,
}

impl Threshold {
    /// As the configuration names its signal.
    pub fn name(&self) -> &'static str {
        let named = Signal::ALL.into_iter().find(|(signal, _)| *signal == self.signal);
        named.expect("all signals have names").1
    }

    /// Whether less is available. An unknown amount is not short.
    fn is_met(&self, observed: &Observed, with_reclaim: bool) -> bool {
        let Some(amount) = observed.get(self.signal) else { return false };
        let more = self.reclaim_min.filter(|_| with_reclaim).map_or(0, |it| it.of(amount.capacity));
        amount.available < self.least.of(amount.capacity).saturating_add(more)
    }

    /// Whether dead containers and images are on the disk that is short.
    pub fn frees_images(&self, dedicated: bool) -> bool {
        match self.signal {
            Signal::NodeFs | Signal::NodeFsInodes => !dedicated,
            Signal::ImageFs | Signal::ImageFsInodes => true,
            Signal::Memory | Signal::PodsMemory | Signal::Pids => false,
        }
    }

    fn pressure(&self) -> Pressure {
        match self.signal {
            Signal::Memory | Signal::PodsMemory => Pressure::Memory,
            Signal::NodeFs | Signal::NodeFsInodes | Signal::ImageFs | Signal::ImageFsInodes => {
                Pressure::Disk
            }
            Signal::Pids => Pressure::Pid,
        }
    }
}

impl Observed {
    /// The available amount of each signal; all pods together may use `pods_memory_max` bytes, 0:
    /// not known.
    pub fn of(measures: &Measures, pods_memory_max: u64) -> Self {
        let Measures { memory, pods_memory, pids, node_fs, image_fs, .. } = measures;
        let of_pods = |used: u64| Amount {
            capacity: pods_memory_max,
            available: pods_memory_max.saturating_sub(used),
        };
        // A file system that does not count inodes has enough of them.
        let inodes = |room: &housekeeping::Room| Some(room.inodes).filter(|it| it.capacity > 0);
        let amounts = [
            (Signal::Memory, *memory),
            (Signal::PodsMemory, pods_memory.filter(|_| pods_memory_max > 0).map(of_pods)),
            (Signal::NodeFs, node_fs.map(|room| room.bytes)),
            (Signal::NodeFsInodes, node_fs.as_ref().and_then(inodes)),
            (Signal::ImageFs, image_fs.map(|room| room.bytes)),
            (Signal::ImageFsInodes, image_fs.as_ref().and_then(inodes)),
            (Signal::Pids, *pids),
        ];
        let amounts = amounts.into_iter().filter_map(|(signal, it)| Some((signal, it?))).collect();
        let device = |room: &Option<housekeeping::Room>| room.map(|room| room.device);
        let dedicated = image_fs.is_some() && device(image_fs) != device(node_fs);
        Self { amounts, dedicated }
    }

    pub fn get(&self, signal: Signal) -> Option<Amount> {
        self.amounts.get(&signal).copied()
    }
}

impl Shortage {
    /// Nothing observed yet.
    pub fn new(policy: &EvictionPolicy) -> Self {
        let make = |signal: &Signal, least: &housekeeping::Threshold, grace_ms| Threshold {
            signal: *signal,
            least: *least,
            reclaim_min: policy.reclaim_min.get(signal).copied(),
            grace_ms,
        };
        // As in every kubelet: the threshold for the machine's memory also applies to the pods'
        // share of it, besides the thresholds configured for that share.
        let of_pods = policy.hard.get(&Signal::Memory).map(|least| Threshold {
            signal: Signal::PodsMemory,
            ..make(&Signal::Memory, least, None)
        });
        let hard = policy.hard.iter().map(|(signal, least)| make(signal, least, None));
        let hard = hard.chain(of_pods);
        let soft = policy
            .soft
            .iter()
            .map(|(signal, (least, grace_ms))| make(signal, least, Some(*grace_ms)));
        let mut all: Vec<Threshold> = hard.chain(soft).collect();
        all.sort_by_key(|threshold| (threshold.signal, threshold.grace_ms.is_some()));
        Self {
            all,
            since: Map::new(),
            acted_on: Set::new(),
            seen_at: Map::new(),
            transition_ms: policy.transition_ms,
        }
    }

    /// Whether there are no thresholds.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether there is a threshold for this signal.
    pub fn has(&self, signal: Signal) -> bool {
        self.all.iter().any(|threshold| threshold.signal == signal)
    }

    /// Whether some threshold was met when last observed.
    pub fn is_met(&self) -> bool {
        !self.since.is_empty()
    }

    /// The thresholds to act on, the most severe first, and the node's pressures.
    pub fn observe(
        &mut self,
        now: Instant,
        observed: &Observed,
    ) -> (Vec<Threshold>, BTreeSet<Pressure>) {
        let Self { all, since, acted_on, seen_at, transition_ms } = self;
        let met = |(at, threshold): &(usize, &Threshold)| {
            threshold.is_met(observed, acted_on.contains(at))
        };
        let met: Vec<usize> = all.iter().enumerate().filter(met).map(|(at, _)| at).collect();
        since.retain(|at, _| met.contains(at));
        for &at in &met {
            since.entry(at).or_insert(now);
            seen_at.insert(all[at].pressure(), now);
        }
        seen_at.retain(|_, at| now.since_ms(*at) <= *transition_ms);
        let due = since.iter().filter(|(at, since)| {
            all[**at].grace_ms.is_none_or(|grace_ms| now.since_ms(**since) >= grace_ms)
        });
        *acted_on = due.map(|(at, _)| *at).collect();
        let due = acted_on.iter().map(|&at| all[at].clone()).collect();
        (due, seen_at.keys().copied().collect())
    }

    /// Whether enough was reclaimed: nothing is short, including the additional amounts to reclaim.
    pub fn is_over(&self, observed: &Observed) -> bool {
        !self.all.iter().any(|threshold| threshold.is_met(observed, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::housekeeping::Threshold as Least;

    fn observed(memory: u64, disk: u64) -> Observed {
        let amount = |available| Amount { capacity: 1_000, available };
        let room = housekeeping::Room { bytes: amount(disk), ..housekeeping::Room::default() };
        let measures =
            Measures { memory: Some(amount(memory)), node_fs: Some(room), ..Measures::default() };
        Observed::of(&measures, 0)
    }

    fn policy() -> EvictionPolicy {
        EvictionPolicy {
            hard: [
                (Signal::Memory, Least::Amount(100)),
                (Signal::NodeFs, Least::Millionths(100_000)),
            ]
            .into(),
            soft: [(Signal::Memory, (Least::Amount(300), 20_000))].into(),
            reclaim_min: [(Signal::NodeFs, Least::Amount(50))].into(),
            transition_ms: 300_000,
            grace_max_s: 0,
        }
    }

    fn signals(due: &[Threshold]) -> Vec<(Signal, bool)> {
        due.iter().map(|it| (it.signal, it.grace_ms.is_some())).collect()
    }

    #[test]
    fn a_soft_threshold_is_acted_on_after_its_grace_period_and_the_hard_at_once() {
        let mut shortage = Shortage::new(&policy());
        let (due, pressures) = shortage.observe(Instant(0), &observed(200, 500));
        assert_eq!(signals(&due), []);
        assert_eq!(pressures, [Pressure::Memory].into());
        let (due, _) = shortage.observe(Instant(20_000), &observed(200, 500));
        assert_eq!(signals(&due), [(Signal::Memory, true)]);
        let (due, _) = shortage.observe(Instant(30_000), &observed(99, 500));
        assert_eq!(signals(&due), [(Signal::Memory, false), (Signal::Memory, true)]);
        // Over for a moment: the grace period begins again.
        shortage.observe(Instant(40_000), &observed(300, 500));
        let (due, _) = shortage.observe(Instant(50_000), &observed(299, 500));
        assert_eq!(signals(&due), []);
    }

    #[test]
    fn memory_is_graver_than_the_disk_whatever_the_threshold() {
        let mut shortage = Shortage::new(&policy());
        shortage.observe(Instant(0), &observed(299, 500));
        let (due, _) = shortage.observe(Instant(20_000), &observed(299, 99));
        assert_eq!(signals(&due), [(Signal::Memory, true), (Signal::NodeFs, false)]);
    }

    #[test]
    fn a_shortage_ends_after_the_minimum_reclaim() {
        let mut shortage = Shortage::new(&policy());
        let now = |n: u64| Instant(n * 10_000);
        assert_eq!(shortage.observe(now(0), &observed(500, 100)).0, [], "as much as is to be left");
        assert_eq!(
            signals(&shortage.observe(now(1), &observed(500, 99)).0),
            [(Signal::NodeFs, false)]
        );
        assert_eq!(shortage.observe(now(2), &observed(500, 149)).0.len(), 1);
        assert!(!shortage.is_over(&observed(500, 149)) && shortage.is_over(&observed(500, 150)));
        assert_eq!(shortage.observe(now(3), &observed(500, 150)).0, []);
        assert_eq!(shortage.observe(now(4), &observed(500, 149)).0, [], "it was not acted on");
    }

    #[test]
    fn a_pressure_lasts_for_the_transition_period() {
        let mut shortage = Shortage::new(&policy());
        shortage.observe(Instant(0), &observed(50, 500));
        let memory = [Pressure::Memory].into();
        assert_eq!(shortage.observe(Instant(300_000), &observed(500, 500)).1, memory);
        assert_eq!(shortage.observe(Instant(300_001), &observed(500, 500)).1, BTreeSet::new());
    }

    #[test]
    fn uncounted_inodes_are_enough_and_another_device_is_another_disk() {
        let room = |device, inodes| housekeeping::Room {
            bytes: Amount { capacity: 10, available: 5 },
            inodes: Amount { capacity: inodes, available: 0 },
            device,
        };
        let measures =
            |image_fs| Measures { node_fs: Some(room(1, 0)), image_fs, ..Measures::default() };
        let same = Observed::of(&measures(Some(room(1, 7))), 0);
        assert!(!same.dedicated && same.get(Signal::NodeFsInodes).is_none());
        assert_eq!(same.get(Signal::ImageFsInodes), Some(Amount { capacity: 7, available: 0 }));
        assert!(Observed::of(&measures(Some(room(2, 0))), 0).dedicated);
        assert!(!Observed::of(&measures(None), 0).dedicated);
    }
    #[test]
    fn pods_together_may_run_short_of_memory_though_the_machine_does_not() {
        let machine = Amount { capacity: 1_000, available: 900 };
        let observed = |used: Option<u64>| {
            let measures =
                Measures { memory: Some(machine), pods_memory: used, ..Measures::default() };
            Observed::of(&measures, 400)
        };
        let mut shortage = Shortage::new(&policy());
        let mut due = |used| signals(&shortage.observe(Instant(0), &observed(used)).0);
        assert_eq!(due(Some(300)), [], "as much as is to be left of the whole machine");
        assert_eq!(due(Some(301)), [(Signal::PodsMemory, false)]);
        assert_eq!(due(Some(500)), [(Signal::PodsMemory, false)], "more than they may have");
        assert_eq!(due(None), [], "nobody knows");

        let own = EvictionPolicy {
            hard: [(Signal::PodsMemory, Least::Millionths(500_000))].into(),
            soft: [(Signal::PodsMemory, (Least::Amount(300), 0))].into(),
            ..policy()
        };
        let mut shortage = Shortage::new(&own);
        let mut due = |used| signals(&shortage.observe(Instant(0), &observed(Some(used))).0);
        assert_eq!(due(100), []);
        assert_eq!(due(101), [(Signal::PodsMemory, true)]);
        assert_eq!(due(201), [(Signal::PodsMemory, false), (Signal::PodsMemory, true)]);
    }
}
