//! The speed of a container's output: by pipe, shim and containerd into its log, or by FIFO and
//! monitor.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::{builtin, order, settle};
use crate::bare::{Bare, DELETE, START};
use crate::figure::{Figure, Limit};
use crate::rig::Rig;
use crate::support::agent::manifest;
use crate::support::runtime_state;
use crate::support::wait::until;

/// Names of [`throughput`].
pub const NAMES: &[&str] = &["runtime.logs", "runtime.logs.long"];

const ROUNDS: usize = 6;
/// Bytes of a file that the container writes again and again.
const FILE: usize = 8 << 20;
const TIMES: usize = 16;
const MIB: f64 = 1_048_576.0;

/// MiB a second of a container's output, as the times in its log tell, of a container that writes
/// as fast as it can: lines of 100 bytes, and of 16 KiB.
pub fn throughput(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let crun = builtin(rig, "crun");
    let figures = [(NAMES[0], 100), (NAMES[1], 16 << 10)].map(|(name, line)| {
        let sides = [rig.runtime(), crun.socket()];
        let mut rates = [const { Vec::new() }; 2];
        for round in 0..=ROUNDS {
            let mut shown = [0.0; 2];
            for side in order::<2>(round) {
                shown[side] = rate(rig, &sides[side], line);
            }
            eprintln!("bench:   {name} round {round}: {shown:.0?} MiB/s, the first by containerd");
            if round > 0 {
                rates.iter_mut().zip(shown).for_each(|(rates, rate)| rates.push(rate));
            }
        }
        Figure::beside(name, &rates[1], &rates[0], "MiB/s", Limit::Share(1.0))
    });
    crun.cut();
    figures.into()
}

fn rate(rig: &Rig, socket: &Path, line: usize) -> f64 {
    let site = rig.site_on(socket.to_owned());
    let lines = FILE / line;
    let command = format!(
        "yes $(printf %0{}d 0) | head -n {lines} >/lines; i=0; while [ $i -lt {TIMES} ]; do \
         cat /lines; i=$((i+1)); done",
        line - 1
    );
    let container = format!("    command: [sh, -c, '{command}']\n");
    let text = manifest("w", "  hostNetwork: true\n", &container);
    let mut bare = Bare::connect(socket, &site.pod_logs, &[text]);
    settle();
    bare.run(START);
    until("it has written all", || {
        let state = runtime_state::list(socket);
        if state.running("main").is_empty() { Ok(()) } else { Err(state.short()) }
    });
    let path = log(&site.pod_logs);
    let rate = of_log(&path, line, lines * TIMES);
    bare.run(DELETE);
    fs::remove_file(path).expect("ours");
    rate
}

/// The one log below a folder.
fn log(folder: &Path) -> PathBuf {
    let mut path = folder.to_owned();
    while path.is_dir() {
        let first = fs::read_dir(&path).expect("a folder of ours").next().expect("not empty");
        path = first.expect("readable").path();
    }
    path
}

/// All lines are there; their bytes over the time from the first to the last.
fn of_log(path: &Path, line: usize, expected: usize) -> f64 {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).expect("it has a log"));
    let (mut first, mut text) = (None, Vec::new());
    let (mut count, mut last) = (0, 0.0);
    loop {
        text.clear();
        if reader.read_until(b'\n', &mut text).expect("readable") == 0 {
            break;
        }
        // «2026-11-25T10:00:00.123456789Z stdout F TEXT»
        let mut words = text.splitn(4, |byte| *byte == b' ');
        last = seconds(words.next().expect("a time"));
        first.get_or_insert(last);
        let rest = words.nth(2).expect("a text");
        assert_eq!(rest.len(), line, "line {count} of {}", path.display());
        count += 1;
    }
    assert_eq!(count, expected, "no line is missing in {}", path.display());
    (count * line) as f64 / MIB / (last - first.expect("it has lines"))
}

/// Of the day, of «2026-11-25T10:00:00.123456789Z»; a run at midnight fails.
fn seconds(time: &[u8]) -> f64 {
    let text = std::str::from_utf8(time).expect("a time");
    let of_day = text.split_once('T').expect("a time").1;
    let mut parts = of_day.trim_end_matches('Z').splitn(3, ':');
    let mut next = || parts.next().and_then(|part| part.parse::<f64>().ok()).expect("a time");
    let (hours, minutes) = (next(), next());
    (hours * 60.0 + minutes) * 60.0 + next()
}
