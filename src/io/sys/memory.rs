//! The memory budget of this process: the least of its cgroups' limits and half of the machine.

use std::fs;
use std::path::{Path, PathBuf};

use super::CGROUPS;
use crate::limits::{Budget, PROCESS_BYTES_FULL};

/// The budget that follows. `machine_bytes`: the machine's memory; 0: not known.
pub(super) fn budget(machine_bytes: u64) -> Budget {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = limit(Path::new(CGROUPS), &membership);
    Budget::of(least(limit, machine_bytes))
}

/// The pods and the runtime need the other half.
fn least(limit: Option<u64>, machine_bytes: u64) -> u64 {
    let half = Some(machine_bytes / 2).filter(|half| *half > 0);
    [limit, half].into_iter().flatten().min().unwrap_or(u64::MAX).min(PROCESS_BYTES_FULL)
}

/// The least limit of the cgroup and its ancestors; `None`: there is none. `membership` is
/// `/proc/self/cgroup`, a line `number:controllers:/path` for each hierarchy: the line of version 2
/// has no controllers; version 2 has its own mount point if version 1 is there as well.
fn limit(top: &Path, membership: &str) -> Option<u64> {
    let places = membership.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        Some(match controllers {
            "" => vec![
                (top.to_owned(), path, "memory.max"),
                (top.join("unified"), path, "memory.max"),
            ],
            of if of.split(',').any(|one| one == "memory") => {
                vec![(top.join("memory"), path, "memory.limit_in_bytes")]
            }
            _ => Vec::new(),
        })
    });
    places.flatten().filter_map(|(top, path, file)| least_of(&top, path, file)).min()
}

/// From the cgroup up to the topmost that is visible: in a container that may be its own.
fn least_of(top: &Path, path: &str, file: &str) -> Option<u64> {
    let own: PathBuf = top.join(path.trim_start_matches('/'));
    let all = own.ancestors().take_while(|folder| folder.starts_with(top));
    // `max`, and version 1's number for it, are beyond any budget.
    let read = |folder: &Path| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
    all.filter_map(read).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::test_folder::TestFolder;

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let top = TestFolder::new("memory")
            .with("a/memory.max", "16777216\n")
            .with("a/b/memory.max", "max\n")
            .with("a/b/c/memory.max", "33554432\n")
            .with("d/memory.max", "1\n");
        assert_eq!(limit(&top, "0::/a/b/c\n"), Some(16 << 20));
        assert_eq!(limit(&top, "0::/a/b\n"), Some(16 << 20));
        assert_eq!(limit(&top, "0::/e\n"), None);
        assert_eq!(limit(&top, ""), None);
    }

    #[test]
    fn both_versions_are_looked_at() {
        let top = TestFolder::new("memory")
            .with("memory/memory.limit_in_bytes", "9223372036854771712\n")
            .with("memory/a/memory.limit_in_bytes", "16777216\n")
            .with("unified/a/memory.max", "max\n");
        let membership = "12:cpu,cpuacct:/x\n7:memory:/a\n0::/a\n";
        assert_eq!(limit(&top, membership), Some(16 << 20));
        assert_eq!(limit(&top, "7:memory:/elsewhere\n"), Some(9_223_372_036_854_771_712));
    }

    #[test]
    fn a_process_may_have_half_of_a_small_machine() {
        assert_eq!(least(None, 0), PROCESS_BYTES_FULL);
        assert_eq!(least(None, 64 << 20), 32 << 20);
        assert_eq!(least(Some(16 << 20), 64 << 20), 16 << 20);
        assert_eq!(least(Some(9_223_372_036_854_771_712), 1 << 40), PROCESS_BYTES_FULL);
    }
}
