//! Facts about a process from `/proc`.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Signals a process of ours, or one inside a container of ours.
pub fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal)
        .unwrap_or_else(|error| panic!("{signal} to {pid}: {error}"));
}

/// Whether it is alive; a zombie is not.
pub fn lives(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// The letter of its state.
fn state(pid: u32) -> Option<char> {
    fields(pid)?.first()?.chars().next()
}

/// `/proc/PID/stat` after the name: state, parent and so on.
fn fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Children of a process with their states.
pub fn children(pid: u32) -> Vec<(u32, char)> {
    let all = fs::read_dir("/proc").expect("/proc is mounted");
    all.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|child: u32| {
            let fields = fields(child)?;
            let parent: u32 = fields.get(1)?.parse().ok()?;
            (parent == pid).then_some((child, fields.first()?.chars().next()?))
        })
        .collect()
}

/// Processes of this machine.
pub fn pids() -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The words that a process was started with; none of one that is gone.
pub fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// CPU seconds that a process, all its threads, and its ended children have used. Its own time is
/// exact (`schedstat`, nanoseconds); that of children is in ticks.
pub fn cpu_seconds(pid: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
    let own = threads.map(|thread| {
        // A thread may end meanwhile.
        let schedstat = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        schedstat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0)
    });
    let own: f64 = own.sum();
    let fields = fields(pid).expect("it lives");
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    // Fields 16 and 17 of proc(5), cutime and cstime; the state is its field 3. USER_HZ is 100.
    own / 1e9 + (ticks(13) + ticks(14)) / 100.0
}

/// Its share of memory (`Pss`), kilobytes.
pub fn pss_kb(pid: u32) -> u64 {
    rollup(pid, "Pss:")
}

/// Its anonymous share of memory (`Pss_Anon`), kilobytes.
pub fn pss_anon_kb(pid: u32) -> u64 {
    rollup(pid, "Pss_Anon:")
}

fn rollup(pid: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it lives");
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB")?.trim().parse().ok())
        .unwrap_or_else(|| panic!("no {field} in {text}"))
}
