//! Steps at which a test can kill this program, to see that the rest goes on. Builds without debug
//! assertions have none of it.
//!
//! The file `fail` in RUN says who dies, and at which step from then on: `server 3`, `job 1`,
//! `monitor 2`. Every process of that kind counts it down; the one that comes to the last step
//! renames the file to `failed`, writes the step's name into it, and kills itself. So each step
//! of a whole course of calls can be tried in turn, without a list of them.

use std::fmt::Display;
use std::path::Path;

/// Which process is at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Server,
    Job,
    Monitor,
}

/// The file that a test writes, in RUN.
pub const FAIL: &str = "fail";
/// What becomes of it.
pub const FAILED: &str = "failed";

/// This process has come to a step. `run`: RUN.
#[cfg(debug_assertions)]
pub(super) fn step(run: &Path, who: Who, what: impl Display) {
    use std::fs;

    let file = run.join(FAIL);
    let Ok(text) = fs::read_to_string(&file) else { return };
    let who = match who {
        Who::Server => "server",
        Who::Job => "job",
        Who::Monitor => "monitor",
    };
    let count = text.trim().strip_prefix(who).and_then(|count| count.trim().parse::<u32>().ok());
    match count {
        None => {}
        Some(more @ 2..) => {
            let _ = fs::write(&file, format!("{who} {}", more - 1));
        }
        Some(0 | 1) => {
            let _ = fs::write(&file, format!("{who}: {what}"));
            let _ = fs::rename(&file, run.join(FAILED));
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
        }
    }
}

#[cfg(not(debug_assertions))]
#[inline]
pub(super) fn step(_run: &Path, _who: Who, _what: impl Display) {}
