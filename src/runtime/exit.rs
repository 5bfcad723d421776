//! How a container has ended, as clients see it.

use super::context::wall_ns;
use crate::core::time::Now;
use crate::model::runtime::{Exit, ExitReason};

/// The exit code of a container that could not be started.
const START_ERROR: i32 = 128;
/// The exit code where nobody knows it.
const UNKNOWN: i32 = 255;

/// `times`: started and finished.
pub fn exited(code: i32, oom_killed: bool, times: (i64, i64)) -> Exit {
    let reason = match code {
        _ if oom_killed => ExitReason::OomKilled,
        0 => ExitReason::Completed,
        _ => ExitReason::Error,
    };
    Exit { code, reason, message: "".into(), started_at: times.0, finished_at: times.1 }
}

/// Nobody has seen its end.
pub fn unknown(started_at: i64, now: Now) -> Exit {
    let finished_at = wall_ns(now);
    let reason = ExitReason::Unknown;
    Exit { code: UNKNOWN, reason, message: "".into(), started_at, finished_at }
}

/// It never ran.
pub fn start_error(now: Now, text: &str) -> Exit {
    Exit {
        code: START_ERROR,
        reason: ExitReason::StartError,
        message: text.into(),
        started_at: 0,
        finished_at: wall_ns(now),
    }
}
