//! When to look at the runtime, and what is too old to believe (the kubelet's PLEG).
//!
//! A look is two lists, begun together and believed together, with a serial number. A pod that was
//! acted on after a look began does not believe it (rule R3). Looks are a second apart, 30 s while
//! the runtime's event stream tells of changes, 10 s while there is no pod. A pod that waits for
//! one gets it at once, with a gap that grows with what a look costs the runtime. An event is a
//! hint to look and nothing else: what it says is read from the list, so that lost, doubled and
//! late events do no harm.
//!
//! If we crash here: the next life begins by looking.

use std::sync::Arc;

use super::calls::{Calls, Owner};
use super::event::{CallId, Out};
use super::time::{Instant, Now};
use crate::limits;
use crate::model::cri::{CallError, Code, Container, Reply, Request, Sandbox};
use crate::model::metrics::Histogram;

/// The looker.
#[derive(Debug)]
pub struct Pleg {
    /// Looks begun so far: the serial number of the last.
    begun: u64,
    look: Option<Look>,
    wanted: bool,
    /// The last look failed.
    failed: bool,
    last_begun_at: Option<Instant>,
    last_done_at: Option<Instant>,
    /// How long the last look took.
    last_took_ms: u64,
    /// There is no pod to look after.
    idle: bool,
    stream: Stream,
    stream_failures: u32,
    durations: Histogram,
    intervals: Histogram,
}

#[derive(Debug)]
struct Look {
    began: Instant,
    sandboxes: Half<Sandbox>,
    containers: Half<Container>,
    failed: bool,
}

#[derive(Debug)]
enum Half<T> {
    Asked(CallId),
    Told(Vec<Arc<T>>),
}

/// The runtime's stream of container events.
#[derive(Debug, PartialEq, Eq)]
enum Stream {
    /// To be opened.
    Closed {
        retry_at: Instant,
    },
    Open {
        call: CallId,
        since: Instant,
    },
    /// The runtime has none.
    Absent,
}

/// A whole look.
#[derive(Debug)]
pub struct List {
    /// Its serial number.
    pub serial: u64,
    /// All sandboxes.
    pub sandboxes: Vec<Arc<Sandbox>>,
    /// All containers.
    pub containers: Vec<Arc<Container>>,
}

impl Pleg {
    /// Wants to look at once.
    pub fn new() -> Self {
        Self {
            begun: 0,
            look: None,
            wanted: true,
            failed: false,
            last_begun_at: None,
            last_done_at: None,
            last_took_ms: 0,
            idle: false,
            stream: Stream::Closed { retry_at: Instant(0) },
            stream_failures: 0,
            durations: Histogram::default(),
            intervals: Histogram::default(),
        }
    }

    /// The runtime is back: what was seen may be old.
    pub fn up(&mut self, now: Now) {
        self.wanted = true;
        self.failed = false;
        self.stream = Stream::Closed { retry_at: now.boot };
        self.stream_failures = 0;
    }

    /// Somebody waits for a look that begins from here on.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// The serial number of the last look that was begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Takes the answer to a call of its own. A look that is whole now is handed on.
    pub fn answer(
        &mut self,
        now: Now,
        call: CallId,
        result: Result<Reply, CallError>,
    ) -> Option<List> {
        if matches!(self.stream, Stream::Open { call: open, .. } if open == call) {
            self.stream_ended(now, &result);
            return None;
        }
        let look = self.look.as_mut().expect("a list is answered only while a look is on");
        match result {
            Ok(Reply::Sandboxes(sandboxes)) => look.sandboxes = Half::Told(sandboxes),
            Ok(Reply::Containers(containers)) => look.containers = Half::Told(containers),
            Ok(other) => panic!("a list cannot answer {other:?}"),
            Err(_) => look.fail(call),
        }
        if look.is_open() {
            return None;
        }
        let look = self.look.take().expect("it is here");
        let took_ms = now.boot.since_ms(look.began);
        self.durations.observe_ms(took_ms);
        self.last_took_ms = took_ms;
        self.failed = look.failed;
        let (Half::Told(sandboxes), Half::Told(containers), false) =
            (look.sandboxes, look.containers, look.failed)
        else {
            self.wanted = true;
            return None;
        };
        self.last_done_at = Some(now.boot);
        Some(List { serial: self.begun, sandboxes, containers })
    }

    /// The runtime says that something changed.
    pub fn changed(&mut self, call: CallId) {
        if matches!(self.stream, Stream::Open { call: open, .. } if open == call) {
            self.wanted = true;
        }
    }

    fn stream_ended(&mut self, now: Now, result: &Result<Reply, CallError>) {
        let absent = matches!(result, Err(CallError::Refused { code: Code::Unimplemented, .. }));
        let lived = self.is_evented(now);
        self.stream_failures = if lived { 0 } else { self.stream_failures + 1 };
        self.stream = if absent || self.stream_failures >= limits::STREAM_FAILURES_MAX {
            Stream::Absent
        } else {
            Stream::Closed { retry_at: now.boot.plus_ms(limits::STREAM_RETRY_MS) }
        };
        // What it would have told is not known.
        self.wanted = true;
    }

    /// Begins what is due. Only called while the runtime is ready; `idle`: there is no pod.
    pub fn step(&mut self, now: Now, idle: bool, calls: &mut Calls, out: &mut Out) {
        self.idle = idle;
        let calm = idle && !self.wanted && !self.failed;
        let early_ms = if calm { limits::RELIST_IDLE_EARLY_MS } else { 0 };
        if self.look.is_none() && self.look_at(now) <= now.boot.plus_ms(early_ms) {
            self.begun += 1;
            self.wanted = false;
            if let Some(last) = self.last_begun_at.replace(now.boot) {
                self.intervals.observe_ms(now.boot.since_ms(last));
            }
            let mut ask = |request| calls.begin(now, Owner::Pleg, request, out);
            self.look = Some(Look {
                began: now.boot,
                sandboxes: Half::Asked(ask(Request::ListPodSandbox)),
                containers: Half::Asked(ask(Request::ListContainers)),
                failed: false,
            });
        }
        if matches!(self.stream, Stream::Closed { retry_at } if retry_at <= now.boot) {
            let call = calls.begin(now, Owner::Pleg, Request::GetContainerEvents, out);
            self.stream = Stream::Open { call, since: now.boot };
        }
    }

    fn look_at(&self, now: Now) -> Instant {
        let Some(last) = self.last_begun_at else { return now.boot };
        let wait_ms = if self.failed {
            limits::RELIST_RETRY_MS
        } else if self.wanted {
            let gentle_ms = self.last_took_ms * limits::RELIST_GAP_TIMES;
            gentle_ms.clamp(limits::RELIST_GAP_MIN_MS, limits::RELIST_GAP_MAX_MS)
        } else if self.idle {
            limits::RELIST_IDLE_MS
        } else if self.is_evented(now) {
            limits::RELIST_EVENTED_MS
        } else {
            limits::RELIST_MS
        };
        last.plus_ms(wait_ms)
    }

    /// When something is due while the runtime is ready.
    pub fn wake_at(&self, now: Now) -> Option<Instant> {
        let look = self.look.is_none().then(|| self.look_at(now));
        let stream = match self.stream {
            Stream::Closed { retry_at } => Some(retry_at),
            Stream::Open { .. } | Stream::Absent => None,
        };
        look.into_iter().chain(stream).min()
    }

    /// Whether the event stream is trusted to tell of changes.
    pub fn is_evented(&self, now: Now) -> bool {
        matches!(self.stream, Stream::Open { since, .. }
            if now.boot.since_ms(since) >= limits::STREAM_TRUSTED_MS)
    }

    /// Why it is not to be relied on; `None`: it looks as often as it should.
    pub fn trouble(&self, now: Now) -> Option<String> {
        let Some(last) = self.last_done_at else {
            return Some("pleg has yet to be successful".to_owned());
        };
        let age_ms = now.boot.since_ms(last);
        (age_ms > limits::RELIST_HEALTHY_MS).then(|| {
            format!(
                "pleg was last seen active {}s ago; threshold is {}s",
                age_ms / 1000,
                limits::RELIST_HEALTHY_MS / 1000
            )
        })
    }

    /// When the last look came whole.
    pub fn last_done_at(&self) -> Option<Instant> {
        self.last_done_at
    }

    /// `kubelet_pleg_relist_duration_seconds`, `kubelet_pleg_relist_interval_seconds`
    pub fn histograms(&self) -> (&Histogram, &Histogram) {
        (&self.durations, &self.intervals)
    }
}

impl Look {
    fn is_open(&self) -> bool {
        matches!(self.sandboxes, Half::Asked(_)) || matches!(self.containers, Half::Asked(_))
    }

    /// One half did not come: it counts as told, and the look as failed.
    fn fail(&mut self, call: CallId) {
        self.failed = true;
        if matches!(self.sandboxes, Half::Asked(asked) if asked == call) {
            self.sandboxes = Half::Told(Vec::new());
        } else {
            assert!(
                matches!(self.containers, Half::Asked(asked) if asked == call),
                "answer to {call:?}, which is no half of this look"
            );
            self.containers = Half::Told(Vec::new());
        }
    }
}
