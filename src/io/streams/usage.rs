//! The usage of the whole node, from the kernel. Quick reads of /proc; a value that cannot be read
//! counts as 0.

use std::fs;

use crate::agent::time::Now;
use crate::io::usage;
use crate::model::time::Timestamp;
use crate::wire::kubelet::usage::NodeUsage;

pub(super) fn of_node(name: &str, now: Now) -> NodeUsage {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let wall_ms = now.wall.map_or(0, |wall| wall.0);
    parse(name, wall_ms, &read("/proc/stat"), &read("/proc/meminfo"))
}

fn parse(name: &str, wall_ms: i64, stat: &str, meminfo: &str) -> NodeUsage {
    let cpu = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let times = cpu.unwrap_or_default().split_ascii_whitespace();
    let ticks: u64 = times
        .enumerate()
        // Of proc_stat(5): idle is 3 and iowait 4; guest times, from 8 on, are in user and nice.
        .filter(|(at, _)| !matches!(at, 3 | 4 | 8..))
        .map(|(_, text)| text.parse().unwrap_or(0))
        .fold(0, u64::saturating_add);
    let memory = usage::memory(meminfo).unwrap_or_default();
    let btime = stat.lines().find_map(|line| line.strip_prefix("btime ")?.parse().ok());
    NodeUsage {
        name: name.to_owned(),
        at_ns: wall_ms.saturating_mul(1_000_000),
        started_at: Timestamp(btime.unwrap_or(0)),
        cpu_ns: ticks.saturating_mul(NANOS_PER_TICK),
        memory_working_set: memory.capacity - memory.available,
        memory_available: memory.available,
        cores: stat.lines().filter(|line| line.starts_with("cpu")).count().saturating_sub(1),
        memory_total: memory.capacity,
    }
}

/// Linux shows user space a hundred ticks a second on every target of edged.
const NANOS_PER_TICK: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let stat = "cpu  100 10 50 1000 500 5 5 0 70 7\ncpu0 1\ncpu1 1\nbtime 1700000000\n";
        let meminfo = "MemTotal:   1024 kB\nMemFree: 56 kB\n\
                       Inactive(file):    200 kB\n";
        let got = parse("gw", 1_800_000_000_123, stat, meminfo);
        let want = NodeUsage {
            name: "gw".to_owned(),
            at_ns: 1_800_000_000_123_000_000,
            started_at: Timestamp(1_700_000_000),
            cpu_ns: 170 * NANOS_PER_TICK,
            memory_working_set: 768 << 10,
            memory_available: 256 << 10,
            cores: 2,
            memory_total: 1 << 20,
        };
        assert_eq!(got, want);
        assert_eq!(parse("", 0, "", ""), NodeUsage::default());
        // A kernel's counter of stolen time has been seen below zero.
        let odd = format!("cpu  1 {} 1 1\n", u64::MAX);
        assert_eq!(parse("", 0, &odd, "").cpu_ns, u64::MAX);
    }
}
