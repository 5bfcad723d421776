//! The node's capacity and what pods may use of it (spec section 9.2).

use std::collections::BTreeMap;

use super::Config;
use crate::model::housekeeping::Signal;

/// Amounts of each resource; 0 if unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory_bytes: u64,
    /// Bytes of the file system with the kubelet's root.
    pub storage_bytes: u64,
    /// Bytes reserved for huge pages, by page size in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
}

impl Amounts {
    /// The capacity of the machine.
    pub fn capacity(config: &Config) -> Self {
        let machine = &config.machine;
        Self {
            cpu_milli: machine.cpu_milli,
            memory_bytes: machine.memory_bytes,
            storage_bytes: machine.storage_bytes,
            huge_pages: machine.huge_pages.clone(),
        }
    }

    /// Without the reserved amounts: the limit of all pods together.
    pub fn of_pods(config: &Config) -> Self {
        let all = Self::capacity(config);
        let reserved = config.housekeeping.reserved();
        Self {
            cpu_milli: all.cpu_milli.saturating_sub(reserved.cpu_milli),
            memory_bytes: all.memory_bytes.saturating_sub(reserved.memory_bytes),
            storage_bytes: all.storage_bytes.saturating_sub(reserved.storage_bytes),
            huge_pages: all.huge_pages,
        }
    }

    /// Of that, without the eviction thresholds, and for memory without what huge pages take.
    pub fn allocatable(config: &Config) -> Self {
        let all = Self::capacity(config);
        let mut amounts = Self::of_pods(config);
        let kept = |signal: Signal, capacity: u64| {
            config.housekeeping.eviction.hard.get(&signal).map_or(0, |least| least.of(capacity))
        };
        let pages =
            amounts.huge_pages.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let (memory, storage) = (amounts.memory_bytes, amounts.storage_bytes);
        amounts.memory_bytes =
            memory.saturating_sub(kept(Signal::Memory, all.memory_bytes)).saturating_sub(pages);
        amounts.storage_bytes = storage.saturating_sub(kept(Signal::NodeFs, all.storage_bytes));
        amounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Machine;
    use crate::model::housekeeping::{Reserved, Threshold};

    /// The machine of the recorded conversations with a kubelet.
    #[test]
    fn allocatable_excludes_reserved_amounts() {
        let mut config = Config {
            machine: Machine {
                memory_bytes: 24_684_092 << 10,
                storage_bytes: 264_212_084 << 10,
                cpu_milli: 2_000,
                huge_pages: [(2 << 20, 0), (1 << 30, 0)].into(),
                ..Machine::default()
            },
            ..Config::default()
        };
        let allocatable = Amounts::allocatable(&config);
        assert_eq!(allocatable.cpu_milli, 2_000);
        // The kubelet has 402 bytes less: it takes 10 % for 10.000000149 %.
        assert_eq!(allocatable.storage_bytes, 243_497_856_615);
        assert_eq!(allocatable.memory_bytes, 24_581_692 << 10);

        config.machine.huge_pages.insert(2 << 20, 64 << 20);
        let allocatable = Amounts::allocatable(&config);
        assert_eq!(allocatable.memory_bytes, (24_581_692 - (64 << 10)) << 10);
        assert_eq!(allocatable.huge_pages[&(2 << 20)], 64 << 20);

        config.housekeeping.system_reserved =
            Reserved { cpu_milli: 300, memory_bytes: 1 << 20, ..Reserved::default() };
        config.housekeeping.kube_reserved =
            Reserved { cpu_milli: 200, storage_bytes: 1 << 30, ..Reserved::default() };
        let allocatable = Amounts::allocatable(&config);
        assert_eq!(allocatable.cpu_milli, 1_500);
        assert_eq!(allocatable.memory_bytes, (24_581_692 - (65 << 10)) << 10);
        assert_eq!(allocatable.storage_bytes, 243_497_856_615 - (1 << 30));
        let of_pods = Amounts::of_pods(&config);
        assert_eq!(of_pods.memory_bytes, (24_684_092 - (1 << 10)) << 10);

        config.housekeeping.eviction.hard.insert(Signal::Memory, Threshold::Amount(u64::MAX));
        assert_eq!(Amounts::allocatable(&config).memory_bytes, 0, "never less");
    }
}
