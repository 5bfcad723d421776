//! Several processes of this program in parallel, called lanes: each has a containerd of its own
//! and takes the next test from a shared queue, until none is left. Most tests mostly wait, so that
//! two cores serve several lanes.
//!
//! The queue is a pipe that holds the number of each test before the first lane starts: a read
//! takes one number, and the end of the pipe is the end of the work. `LANES=1` runs all tests in
//! this process.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use crate::support::guard;

/// The argument that makes a process a lane.
pub const LANE: &str = "--lane";

/// The default of `LANES`: with more, the tests on a machine with two cores only wait for each
/// other.
const COUNT: usize = 3;

/// The number of lanes for this many tests.
pub fn count(tests: usize) -> usize {
    let requested = std::env::var("LANES").ok().and_then(|text| text.parse().ok());
    requested.unwrap_or(COUNT).min(tests).max(1)
}

/// The numbers of the remaining tests, for one lane.
pub struct Queue(File);

impl Queue {
    /// Takes standard input as the queue and replaces it by /dev/null, so that no program under
    /// test reads from the queue.
    pub fn from_stdin() -> Self {
        let queue = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor is free");
        let nothing = File::open("/dev/null").expect("every system has /dev/null");
        nix::unistd::dup2_stdin(&nothing).expect("standard input can be replaced");
        Self(File::from(queue))
    }
}

impl Iterator for Queue {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let mut number = [0; 2];
        self.0.read_exact(&mut number).ok()?;
        Some(usize::from(u16::from_le_bytes(number)))
    }
}

/// The results of all lanes.
#[derive(Default)]
struct Found {
    passed: usize,
    failed: usize,
    /// The final reports of the lanes: which tests failed and why.
    reports: Vec<String>,
}

/// Runs all tests in this many lanes; returns whether all passed.
pub fn run(lanes: usize, tests: usize, arguments: &[String]) -> bool {
    let queue = filled(tests);
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        for number in 1..=lanes {
            let lane = start(&queue, arguments);
            let found = &found;
            scope.spawn(move || follow(number, lane, found));
        }
    });
    let found = found.into_inner().expect("no lane's thread panics");
    for report in &found.reports {
        print!("{report}");
    }
    println!("{} passed, {} failed", found.passed, found.failed);
    let all = found.passed + found.failed;
    if all != tests {
        println!("whole: the lanes ran {all} tests, expected {tests}");
    }
    found.failed == 0 && all == tests
}

/// A pipe with the numbers of all tests; its writing end is closed.
fn filled(tests: usize) -> OwnedFd {
    let (queue, end) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    let numbers = 0..u16::try_from(tests).expect("fewer tests than fit into a pipe");
    let bytes: Vec<u8> = numbers.flat_map(u16::to_le_bytes).collect();
    File::from(end).write_all(&bytes).expect("a pipe holds 64 KiB");
    queue
}

fn start(queue: &OwnedFd, arguments: &[String]) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    let queue = queue.try_clone().expect("a descriptor is free");
    let lane = Command::new(program)
        .args(arguments)
        .arg(LANE)
        .stdin(Stdio::from(queue))
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be started again");
    guard::keep(guard::Left::Lane(lane.id()));
    lane
}

/// Passes on the output of a lane, line by line, and adds up its results.
fn follow(number: usize, mut lane: Child, found: &Mutex<Found>) {
    let output = BufReader::new(lane.stdout.take().expect("it was requested"));
    let mut report = String::new();
    let mut sum = None;
    for line in output.lines().map_while(Result::ok) {
        if let Some(both) = closing(&line) {
            sum = Some(both);
        } else if !report.is_empty() || line.starts_with("failed: ") {
            report.push_str(&line);
            report.push('\n');
        } else {
            println!("{number} {line}");
        }
    }
    let ended = lane.wait();
    guard::gone(&guard::Left::Lane(lane.id()));
    let mut found = found.lock().expect("no lane's thread panics");
    if let Some((passed, failed)) = sum {
        found.passed += passed;
        found.failed += failed;
    } else {
        found.failed += 1;
        let _ = writeln!(report, "whole: lane {number} ended before its report: {ended:?}");
    }
    found.reports.push(report);
}

/// The last line of a lane: the numbers of passed and failed tests.
fn closing(line: &str) -> Option<(usize, usize)> {
    let (passed, failed) = line.split_once(" passed, ")?;
    Some((passed.parse().ok()?, failed.strip_suffix(" failed")?.parse().ok()?))
}
