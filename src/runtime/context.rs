//! What the core lends to its parts, and the retries of work that nobody waits for.

use super::calls::Calls;
use super::event::Out;
use super::jobs::Jobs;
use crate::core::time::{Backoff, Instant, Now};
use crate::limits::{RUNTIME_RETRY_MAX_MS, RUNTIME_RETRY_MIN_MS};
use crate::model::runtime::{BootId, EventKind, SandboxId};

/// Lent to every part.
pub struct Context {
    /// Of the event or the step under way.
    pub now: Now,
    pub boot: BootId,
    pub jobs: Jobs,
    pub calls: Calls,
    /// Changes that event streams are told of in the next step.
    pub notices: Vec<Notice>,
    /// Requests of the next step.
    pub out: Out,
}

/// Something that clients see has changed: an event in the making.
#[derive(Debug)]
pub struct Notice {
    /// Of the container, or of the sandbox itself.
    pub id: Box<str>,
    pub kind: EventKind,
    pub sandbox: SandboxId,
}

impl Context {
    pub fn new(boot: BootId, now: Now) -> Self {
        Self {
            now,
            boot,
            jobs: Jobs::default(),
            calls: Calls::default(),
            notices: Vec::new(),
            out: Out::default(),
        }
    }

    pub fn note(&mut self, kind: EventKind, id: &str, sandbox: &SandboxId) {
        self.notices.push(Notice { id: id.into(), kind, sandbox: sandbox.clone() });
    }
}

/// Nanoseconds since 1970; 0 while the clock is not set.
pub fn wall_ns(now: Now) -> i64 {
    now.wall.map_or(0, |wall| wall.0.saturating_mul(1_000_000))
}

/// When work that failed is tried again without being asked for.
#[derive(Debug, Default)]
pub struct Retry {
    backoff: Backoff,
    at: Option<Instant>,
}

impl Retry {
    pub fn failed(&mut self, now: Instant) {
        let (min, max) = (RUNTIME_RETRY_MIN_MS, RUNTIME_RETRY_MAX_MS);
        self.at = Some(self.backoff.retry_at(now, min, max));
    }

    /// A client asks for it: it is tried at once.
    pub fn now(&mut self) {
        self.at = None;
    }

    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| at <= now)
    }

    /// `None`: it is due.
    pub fn at(&self) -> Option<Instant> {
        self.at
    }
}
