//! Writes amounts of resources in the form of the API server, so that they come back unchanged.

use std::collections::BTreeMap;

use crate::agent::amounts::Amounts;

pub(super) fn quantities(amounts: &Amounts, pods_max: usize) -> BTreeMap<String, String> {
    let mut quantities = BTreeMap::from([
        ("cpu".to_owned(), cores(amounts.cpu_milli)),
        ("memory".to_owned(), bytes(amounts.memory_bytes)),
        ("ephemeral-storage".to_owned(), bytes(amounts.storage_bytes)),
        ("pods".to_owned(), pods_max.to_string()),
    ]);
    let page = |(page, all): (&u64, &u64)| (format!("hugepages-{}", bytes(*page)), bytes(*all));
    quantities.extend(amounts.huge_pages.iter().map(page));
    quantities
}

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

    #[test]
    fn amounts_are_written_as_the_api_server_writes_them() {
        for (amount, text) in
            [(0, "0"), (1, "1"), (1_000, "1000"), (1_024, "1Ki"), (1_536, "1536"), (3 << 30, "3Gi")]
        {
            assert_eq!(bytes(amount), text);
        }
        assert_eq!((cores(4_000).as_str(), cores(1_500).as_str()), ("4", "1500m"));
    }

    #[test]
    fn every_resource_has_its_name() {
        let amounts = Amounts {
            cpu_milli: 2_000,
            memory_bytes: 24_684_092 << 10,
            storage_bytes: 243_497_856_615,
            huge_pages: [(2 << 20, 64 << 20), (1 << 30, 0)].into(),
        };
        let quantities = quantities(&amounts, 110);
        let quantities: Vec<String> =
            quantities.iter().map(|(name, it)| format!("{name}={it}")).collect();
        assert_eq!(
            quantities.join(" "),
            "cpu=2 ephemeral-storage=243497856615 hugepages-1Gi=0 hugepages-2Mi=64Mi \
             memory=24684092Ki pods=110"
        );
    }
}
