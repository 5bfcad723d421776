//! How much the node has, and how much of it pods may take (spec section 9.2).

use std::collections::BTreeMap;

use crate::agent::Config;
use crate::model::upkeep::Signal;

type Amounts = BTreeMap<String, String>;

/// Capacity and allocatable, by resource.
pub(super) fn of(config: &Config) -> (Amounts, Amounts) {
    let machine = &config.machine;
    let pages = &machine.identity.huge_pages;
    let all_pages = pages.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let kept = |signal: Signal, capacity: u64| {
        config.upkeep.eviction.hard.get(&signal).map_or(0, |least| least.of(capacity))
    };
    let (memory, storage) = (machine.memory_bytes, machine.storage_bytes);
    let amounts = |memory: u64, storage: u64| {
        let mut amounts = Amounts::from([
            ("cpu".to_owned(), cores(machine.cpu_milli)),
            ("memory".to_owned(), bytes(memory)),
            ("ephemeral-storage".to_owned(), bytes(storage)),
            ("pods".to_owned(), config.pods_max.to_string()),
        ]);
        let page = |(page, all): (&u64, &u64)| (format!("hugepages-{}", bytes(*page)), bytes(*all));
        amounts.extend(pages.iter().map(page));
        amounts
    };
    let left_memory = memory.saturating_sub(kept(Signal::Memory, memory)).saturating_sub(all_pages);
    let left_storage = storage.saturating_sub(kept(Signal::NodeFs, storage));
    (amounts(memory, storage), amounts(left_memory, left_storage))
}

/// As the API server writes it, so that it does not come back in another form.
fn cores(milli: u64) -> String {
    if milli.is_multiple_of(1_000) { (milli / 1_000).to_string() } else { format!("{milli}m") }
}

/// With the largest suffix that loses nothing.
fn bytes(bytes: u64) -> String {
    let mut left = bytes;
    let mut suffix = "";
    for next in ["Ki", "Mi", "Gi", "Ti", "Pi"] {
        if left == 0 || !left.is_multiple_of(1_024) {
            break;
        }
        (left, suffix) = (left / 1_024, next);
    }
    format!("{left}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Machine;
    use crate::model::machine::Identity;
    use crate::model::upkeep::Threshold;

    #[test]
    fn amounts_are_written_as_the_api_server_writes_them() {
        for (amount, text) in
            [(0, "0"), (1, "1"), (1_000, "1000"), (1_024, "1Ki"), (1_536, "1536"), (3 << 30, "3Gi")]
        {
            assert_eq!(bytes(amount), text);
        }
        assert_eq!((cores(4_000).as_str(), cores(1_500).as_str()), ("4", "1500m"));
    }

    /// The machine of the recorded conversations.
    #[test]
    fn pods_may_take_what_is_not_kept_for_the_node() {
        let mut config = Config {
            machine: Machine {
                memory_bytes: 24_684_092 << 10,
                storage_bytes: 264_212_084 << 10,
                cpu_milli: 2_000,
                identity: Identity {
                    huge_pages: [(2 << 20, 0), (1 << 30, 0)].into(),
                    ..Identity::default()
                },
                ..Machine::default()
            },
            pods_max: 110,
            ..Config::default()
        };
        let text = |amounts: &Amounts| {
            let all: Vec<String> =
                amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
            all.join(" ")
        };
        let (capacity, allocatable) = of(&config);
        assert_eq!(
            text(&capacity),
            "cpu=2 ephemeral-storage=264212084Ki hugepages-1Gi=0 hugepages-2Mi=0 \
             memory=24684092Ki pods=110"
        );
        // The kubelet has 402 bytes less: it takes 10 % for 10.000000149 %.
        assert_eq!(allocatable["ephemeral-storage"], "243497856615");
        assert_eq!(allocatable["memory"], "24581692Ki");

        config.machine.identity.huge_pages.insert(2 << 20, 64 << 20);
        config.upkeep.eviction.hard.insert(Signal::Memory, Threshold::Amount(u64::MAX));
        let (capacity, allocatable) = of(&config);
        assert_eq!(capacity["hugepages-2Mi"], "64Mi");
        assert_eq!(allocatable["memory"], "0", "never less");
        assert_eq!(allocatable["hugepages-2Mi"], "64Mi");
    }
}
