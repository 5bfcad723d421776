//! Measures cgroups, own layers of containers, and networks of sandboxes. Changes nothing.
//!
//! | | v1 | v2 |
//! |---|---|---|
//! | processor | `cpuacct.usage` | `cpu.stat`: `usage_usec` |
//! | memory | `memory.usage_in_bytes` | `memory.current` |
//! | without inactive pages of files | less `total_inactive_file` | less `inactive_file` |
//! | RSS | `total_rss` | `anon` |
//! | page faults | `total_pgfault`, `total_pgmajfault` | `pgfault`, `pgmajfault` |
//! | limit | `memory.limit_in_bytes` | `memory.max` |
//! | processes | `pids.current` | `pids.current` |
//!
//! Where both versions are mounted, the controllers are those of v1. A layer may have
//! any number of files, and a network is looked at from inside: that is for a job child.

use std::fs;
use std::path::Path;

use super::layout::{Settings, is_id};
use super::namespace::{self, NET};
use crate::io::{clock, jobs, sys};
use crate::limits::RUNTIME_QUICK_STATS_MAX;
use crate::model::cgroup::Hierarchy;
use crate::model::runtime::{StatsOf, Usage};
use crate::wire::cni::INTERFACE;

/// Whether these are only files of the kernel, and few enough that reading them takes less than the
/// start of a child: the agent asks every ten seconds.
pub fn is_quick(of: &[StatsOf]) -> bool {
    of.len() <= RUNTIME_QUICK_STATS_MAX
        && of.iter().all(|of| of.layer_of.is_none() && of.network_of.is_none())
}

/// What was measured, in the order of the request. What is gone has nothing but the time.
pub fn stats(settings: &Settings, of: &[StatsOf]) -> Vec<Usage> {
    let hierarchy = sys::cgroups().hierarchy;
    of.iter()
        .map(|of| {
            let mut usage = cgroup(Path::new(sys::CGROUPS), hierarchy, &of.cgroup);
            usage.at = clock::wall_ns();
            let layer = of.layer_of.as_ref().filter(|id| is_id(&id.0));
            usage.layer = layer.and_then(|id| {
                let used = jobs::folder_usage(&settings.layout.own_layer(id).join("upper"))?;
                Some((used.bytes, used.inodes))
            });
            let network = of.network_of.as_ref().filter(|id| is_id(&id.0));
            usage.network = network.and_then(|id| {
                let file = settings.layout.sandbox(id).join(NET.0);
                let devices = || fs::read_to_string("/proc/thread-self/net/dev").ok();
                counters(&namespace::inside(NET, &file, devices).ok()??)
            });
            usage
        })
        .collect()
}

fn cgroup(top: &Path, hierarchy: Hierarchy, path: &str) -> Usage {
    let below = path.trim_start_matches('/');
    // A path that leads elsewhere names no cgroup of ours.
    if below.is_empty() || below.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Usage::default();
    }
    let of = |controller: &str| match hierarchy {
        Hierarchy::V1 => top.join(controller).join(below),
        Hierarchy::V2 | Hierarchy::None => top.join(below),
    };
    match hierarchy {
        Hierarchy::None => Usage::default(),
        Hierarchy::V1 => {
            let names = MemoryFiles {
                usage: "memory.usage_in_bytes",
                limit: "memory.limit_in_bytes",
                inactive: "total_inactive_file",
                rss: "total_rss",
                faults: ["total_pgfault", "total_pgmajfault"],
            };
            Usage {
                cpu_ns: number(&of("cpuacct"), "cpuacct.usage"),
                processes: number(&of("pids"), "pids.current"),
                ..memory(&of("memory"), &names)
            }
        }
        Hierarchy::V2 => {
            let names = MemoryFiles {
                usage: "memory.current",
                limit: "memory.max",
                inactive: "inactive_file",
                rss: "anon",
                faults: ["pgfault", "pgmajfault"],
            };
            let dir = of("");
            let cpu = text(&dir, "cpu.stat");
            Usage {
                cpu_ns: entry(&cpu, "usage_usec").map(|usec| usec.saturating_mul(1_000)),
                processes: number(&dir, "pids.current"),
                ..memory(&dir, &names)
            }
        }
    }
}

struct MemoryFiles {
    usage: &'static str,
    limit: &'static str,
    inactive: &'static str,
    rss: &'static str,
    faults: [&'static str; 2],
}

fn memory(dir: &Path, names: &MemoryFiles) -> Usage {
    let stat = text(dir, "memory.stat");
    let usage = number(dir, names.usage);
    let inactive = entry(&stat, names.inactive);
    Usage {
        memory_usage: usage,
        memory_working_set: usage.zip(inactive).map(|(used, idle)| used.saturating_sub(idle)),
        memory_rss: entry(&stat, names.rss),
        page_faults: entry(&stat, names.faults[0]),
        major_page_faults: entry(&stat, names.faults[1]),
        // v2 says `max`, v1 the largest number of whole pages.
        memory_limit: number(dir, names.limit).filter(|limit| *limit < NO_LIMIT),
        ..Usage::default()
    }
}

/// Half of what v1 shows where there is no limit.
const NO_LIMIT: u64 = 1 << 62;

fn text(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).unwrap_or_default()
}

fn number(dir: &Path, file: &str) -> Option<u64> {
    text(dir, file).trim().parse().ok()
}

/// A line `name number`.
fn entry(stat: &str, name: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

/// Of `/proc/net/dev`: bytes (column 1) and errors (3) received, bytes (9) and errors (11) sent.
fn counters(devices: &str) -> Option<[u64; 4]> {
    let line = devices.lines().find_map(|line| line.trim().strip_prefix(INTERFACE));
    let columns: Vec<u64> = line?
        .strip_prefix(':')?
        .split_ascii_whitespace()
        .map(|column| column.parse().ok())
        .collect::<Option<_>>()?;
    Some([*columns.first()?, *columns.get(2)?, *columns.get(8)?, *columns.get(10)?])
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::io::builtin::layout::Layout;
    use crate::io::test_folder::TestFolder;
    use crate::model::builtin::Registries;
    use crate::model::runtime::ContainerId;

    const EXPECTED: Usage = Usage {
        at: 0,
        cpu_ns: Some(7_000),
        memory_usage: Some(9_000),
        memory_working_set: Some(8_500),
        memory_rss: Some(4_000),
        page_faults: Some(5),
        major_page_faults: Some(1),
        memory_limit: Some(16_384),
        processes: Some(3),
        layer: None,
        network: None,
    };

    #[test]
    fn version_1_is_read_from_a_folder_for_each_controller() {
        let stat = "inactive_file 1\nrss 2\npgfault 9\ntotal_inactive_file 500\ntotal_rss 4000\n\
                    total_pgfault 5\ntotal_pgmajfault 1\n";
        let top = TestFolder::new("stats")
            .with("cpuacct/a/b/cpuacct.usage", "7000\n")
            .with("pids/a/b/pids.current", "3\n")
            .with("memory/a/b/memory.usage_in_bytes", "9000\n")
            .with("memory/a/b/memory.limit_in_bytes", "16384\n")
            .with("memory/a/b/memory.stat", stat)
            .with("memory/c/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(cgroup(&top, Hierarchy::V1, "/a/b"), EXPECTED);
        assert_eq!(cgroup(&top, Hierarchy::V1, "/c"), Usage::default(), "no limit is none");
    }

    #[test]
    fn version_2_is_read_from_one_folder() {
        let stat = "anon 4000\nfile 7\ninactive_file 500\npgfault 5\npgmajfault 1\n";
        let top = TestFolder::new("stats")
            .with("a/b/cpu.stat", "usage_usec 7\nuser_usec 5\n")
            .with("a/b/pids.current", "3\n")
            .with("a/b/memory.current", "9000\n")
            .with("a/b/memory.max", "16384\n")
            .with("a/b/memory.stat", stat)
            .with("c/memory.max", "max\n");
        assert_eq!(cgroup(&top, Hierarchy::V2, "/a/b"), EXPECTED);
        assert_eq!(cgroup(&top, Hierarchy::V2, "/c"), Usage::default());
        for way_out in ["", "/", "/a/../a/b", "a//b"] {
            assert_eq!(cgroup(&top, Hierarchy::V2, way_out), Usage::default(), "{way_out}");
        }
    }

    #[test]
    fn a_layer_and_a_network_are_measured_where_they_are() {
        let id = "a".repeat(64);
        let top =
            TestFolder::new("stats").with(&format!("data/c/{id}/upper/deep/file"), "some bytes");
        let settings = Settings {
            layout: Layout::new(top.join("run"), top.join("data")),
            oci: PathBuf::new(),
            handlers: Vec::new(),
            cni_conf_dir: PathBuf::new(),
            cni_bin_dir: PathBuf::new(),
            registries: Registries::default(),
        };
        let of = |layer_of: Option<&str>| StatsOf {
            cgroup: "/nowhere/at/all".into(),
            layer_of: layer_of.map(|id| ContainerId(id.into())),
            network_of: None,
        };
        let all = [of(Some(&id)), of(Some("../../..")), of(None)];
        let [own, foreign, none] = &stats(&settings, &all)[..] else { panic!("three of three") };
        let (bytes, inodes) = own.layer.expect("it is there");
        assert!(bytes > 0 && inodes == 3, "{bytes} bytes in {inodes}");
        assert_eq!((foreign.layer, none.layer, none.cpu_ns), (None, None, None));
        assert!(own.at > 1_600_000_000_000_000_000);
    }

    #[test]
    fn only_what_the_kernel_counts_is_quick_and_not_too_much_of_it() {
        let of = || StatsOf { cgroup: "/a/b".into(), layer_of: None, network_of: None };
        let mut all: Vec<StatsOf> = (0..RUNTIME_QUICK_STATS_MAX).map(|_| of()).collect();
        assert!(is_quick(&all) && is_quick(&[]));
        all[1].layer_of = Some(ContainerId("a".into()));
        assert!(!is_quick(&all), "it may have many files");
        all[1].layer_of = None;
        all[2].network_of = Some(crate::model::runtime::SandboxId("a".into()));
        assert!(!is_quick(&all), "it is another namespace");
        all[2].network_of = None;
        all.push(of());
        assert!(!is_quick(&all), "one too many");
    }

    #[test]
    fn counters_are_those_of_the_pods_interface() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n\
            \x20   lo:     100       1    0    0    0     0          0         0      100       1\n\
            \x20 eth0: 1000 10 1 2 3 4 5 6 2000 20 7 8 9 10 11 12\n";
        assert_eq!(counters(text), Some([1_000, 1, 2_000, 7]));
        assert_eq!(counters(&text.replace("eth0:", "eth00:")), None);
        assert_eq!(counters("eth0: 1 2"), None);
    }
}
