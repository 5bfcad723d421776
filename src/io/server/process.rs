//! Resource usage of the agent's own process, from the kernel. Quick reads of /proc; a value that
//! cannot be read counts as 0.

use std::fs;

use crate::wire::metrics::Process;

/// The current values.
pub(super) fn read() -> Process {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    parse(&read("/proc/self/status"), &read("/proc/self/stat"), &read("/proc/stat"))
}

fn parse(status: &str, stat: &str, system: &str) -> Process {
    let resident_kib = field(status, "VmRSS:");
    // The program's name is in parentheses and may contain anything.
    let fields: Vec<u64> = stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| {
        rest.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect()
    });
    let at = |index: usize| fields.get(index).copied().unwrap_or(0);
    // Of proc_pid_stat(5), counted from 0 after the two fields up to the parenthesis: utime 14,
    // stime 15, starttime 22.
    let (utime, stime, started) = (at(11), at(12), at(19));
    Process {
        resident_bytes: resident_kib * 1024,
        cpu_centis: utime + stime,
        started_at_s: field(system, "btime") + started / TICKS_PER_SECOND,
    }
}

/// Linux shows user space this many on every target of edged, whatever the kernel's own tick is.
const TICKS_PER_SECOND: u64 = 100;

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 1000 8192000 \
                    512 18446744073709551615";
        let got = parse("Name:\ta\nVmRSS:\t    2048 kB\n", stat, "cpu 1 2\nbtime 1700000000\n");
        let want =
            Process { resident_bytes: 2 << 20, cpu_centis: 300, started_at_s: 1_700_000_010 };
        assert_eq!(got, want);
        assert_eq!(parse("", "", ""), Process::default());
    }

    #[test]
    fn this_very_process_takes_something() {
        let process = read();
        assert!(process.resident_bytes > 0 && process.started_at_s > 1_000_000_000, "{process:?}");
    }
}
