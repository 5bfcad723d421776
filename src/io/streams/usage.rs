//! The usage of the whole node, from the kernel. Quick reads of /proc; a value that cannot be read
//! counts as 0.

use std::fs;

use crate::agent::time::Now;
use crate::io::usage;
use crate::limits::USAGE_INTERFACES_MAX;
use crate::model::housekeeping::Room;
use crate::model::time::Timestamp;
use crate::wire::kubelet::usage::{Interface, NodeUsage};

/// `rooms`: as measured last.
pub(super) fn of_node(name: &str, now: Now, rooms: &Rooms) -> NodeUsage {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let wall_ms = now.wall.map_or(0, |wall| wall.0);
    NodeUsage {
        node_fs: rooms.node_fs,
        image_fs: rooms.image_fs,
        interfaces: interfaces(&read("/proc/net/dev")),
        ..parse(name, wall_ms, &read("/proc/stat"), &read("/proc/meminfo"))
    }
}

/// The room on the node's file systems.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rooms {
    pub(super) node_fs: Option<Room>,
    pub(super) image_fs: Option<Room>,
}

/// Those of the node itself: of a pod there is one end here, which counts its traffic again.
fn interfaces(dev: &str) -> Vec<Interface> {
    let others = ["lo", "veth", "docker", "nerdctl"];
    let lines = dev.lines().filter_map(|line| line.trim_start().split_once(':'));
    let own = lines.filter(|(name, _)| !others.iter().any(|other| name.starts_with(other)));
    let parsed = own.map(|(name, counts)| {
        let counts: Vec<&str> = counts.split_ascii_whitespace().collect();
        let count = |at: usize| counts.get(at).and_then(|text| text.parse().ok()).unwrap_or(0);
        Interface {
            name: name.to_owned(),
            rx_bytes: count(0),
            rx_errors: count(2),
            tx_bytes: count(8),
            tx_errors: count(10),
        }
    });
    parsed.take(USAGE_INTERFACES_MAX).collect()
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
        ..NodeUsage::default()
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
            ..NodeUsage::default()
        };
        assert_eq!(got, want);
        assert_eq!(parse("", 0, "", ""), NodeUsage::default());
        // A kernel's counter of stolen time has been seen below zero.
        let odd = format!("cpu  1 {} 1 1\n", u64::MAX);
        assert_eq!(parse("", 0, &odd, "").cpu_ns, u64::MAX);
    }

    #[test]
    fn interfaces_of_the_node_are_counted_and_ends_of_pods_are_not() {
        let head = "Inter-|   Receive                            |  Transmit\n\
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes\n";
        let lines = "    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n\
                     \x20 eth0: 700 6 5 4 0 0 0 0 300 2 1 0 0 0 0 0\n\
                     vethf00: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n\
                     \x20wwan0:12\n";
        let eth0 = Interface {
            name: "eth0".to_owned(),
            rx_bytes: 700,
            rx_errors: 5,
            tx_bytes: 300,
            tx_errors: 1,
        };
        let wwan0 = Interface { name: "wwan0".to_owned(), rx_bytes: 12, ..Interface::default() };
        assert_eq!(interfaces(&format!("{head}{lines}")), [eth0, wwan0]);
        let many: Vec<_> = (0..=USAGE_INTERFACES_MAX).map(|at| format!("vlan{at}: 1\n")).collect();
        assert_eq!(interfaces(&many.concat()).len(), USAGE_INTERFACES_MAX);
    }
}
