//! When the runtime is listed, and which lists are too old (the kubelet's PLEG).
//!
//! A relist consists of two lists, begun and applied together, with a serial number. A pod that was
//! acted on after the relist began does not apply it (rule R3). Relists are a second apart; 30 s
//! while the runtime's event stream reports changes, 10 s while there is no pod. A pod that waits
//! for a relist gets it at once, with a gap that grows with the duration of the last relist. An
//! event only causes a relist: its content is read from the list, so that lost, duplicate and late
//! events do no harm.
//!
//! If we crash here: the next start begins with a relist.

use std::sync::Arc;

use super::calls::{Calls, Owner};
use super::event::{CallId, Out};
use super::time::{Instant, Now};
use crate::limits;
use crate::model::cri::{CallError, Code, Container, Reply, Request, Sandbox};
use crate::model::metrics::Histogram;

/// The pod lifecycle event generator.
#[derive(Debug)]
pub struct Pleg {
    /// Relists begun so far: the serial number of the last one.
    begun: u64,
    relist: Option<Relist>,
    requested: bool,
    /// The last relist failed.
    failed: bool,
    last_begun_at: Option<Instant>,
    last_done_at: Option<Instant>,
    /// Duration of the last relist.
    last_took_ms: u64,
    /// There is no pod.
    idle: bool,
    stream: Stream,
    stream_failures: u32,
    durations: Histogram,
    intervals: Histogram,
}

#[derive(Debug)]
struct Relist {
    began: Instant,
    sandboxes: Listing<Sandbox>,
    containers: Listing<Container>,
    failed: bool,
}

#[derive(Debug)]
enum Listing<T> {
    Pending(CallId),
    Received(Vec<Arc<T>>),
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
    /// The runtime does not have one.
    Absent,
}

/// The result of a relist.
#[derive(Debug)]
pub struct List {
    pub serial: u64,
    pub sandboxes: Vec<Arc<Sandbox>>,
    pub containers: Vec<Arc<Container>>,
}

impl Pleg {
    /// Begins with a relist at once.
    pub fn new() -> Self {
        Self {
            begun: 0,
            relist: None,
            requested: true,
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

    /// The runtime is back: the last lists may be out of date.
    pub fn up(&mut self, now: Now) {
        self.requested = true;
        self.failed = false;
        self.stream = Stream::Closed { retry_at: now.boot };
        self.stream_failures = 0;
    }

    /// Requests a relist that begins from here on.
    pub fn request_relist(&mut self) {
        self.requested = true;
    }

    /// The serial number of the last relist that was begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Takes the answer to a call of its own. Returns the result of a relist that is complete now.
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
        let relist = self.relist.as_mut().expect("a list is answered only during a relist");
        match result {
            Ok(Reply::Sandboxes(sandboxes)) => relist.sandboxes = Listing::Received(sandboxes),
            Ok(Reply::Containers(containers)) => relist.containers = Listing::Received(containers),
            Ok(other) => panic!("a list cannot answer {}", other.kind()),
            Err(_) => relist.fail(call),
        }
        if relist.is_open() {
            return None;
        }
        let relist = self.relist.take().expect("it is here");
        let took_ms = now.boot.since_ms(relist.began);
        self.durations.observe_ms(took_ms);
        self.last_took_ms = took_ms;
        self.failed = relist.failed;
        let (Listing::Received(sandboxes), Listing::Received(containers), false) =
            (relist.sandboxes, relist.containers, relist.failed)
        else {
            self.requested = true;
            return None;
        };
        self.last_done_at = Some(now.boot);
        Some(List { serial: self.begun, sandboxes, containers })
    }

    /// The event stream reports a change.
    pub fn changed(&mut self, call: CallId) {
        if matches!(self.stream, Stream::Open { call: open, .. } if open == call) {
            self.requested = true;
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
        // The changes that it would have reported are not known.
        self.requested = true;
    }

    /// Begins what is due. Only called while the runtime is ready; `idle`: there is no pod.
    pub fn step(&mut self, now: Now, idle: bool, calls: &mut Calls, out: &mut Out) {
        self.idle = idle;
        let calm = idle && !self.requested && !self.failed;
        let early_ms = if calm { limits::RELIST_IDLE_EARLY_MS } else { 0 };
        if self.relist.is_none() && self.relist_at(now) <= now.boot.plus_ms(early_ms) {
            self.begun += 1;
            self.requested = false;
            if let Some(last) = self.last_begun_at.replace(now.boot) {
                self.intervals.observe_ms(now.boot.since_ms(last));
            }
            let mut ask = |request| calls.begin(now, Owner::Pleg, request, out);
            self.relist = Some(Relist {
                began: now.boot,
                sandboxes: Listing::Pending(ask(Request::ListPodSandbox)),
                containers: Listing::Pending(ask(Request::ListContainers)),
                failed: false,
            });
        }
        if matches!(self.stream, Stream::Closed { retry_at } if retry_at <= now.boot) {
            let call = calls.begin(now, Owner::Pleg, Request::GetContainerEvents, out);
            self.stream = Stream::Open { call, since: now.boot };
        }
    }

    fn relist_at(&self, now: Now) -> Instant {
        let Some(last) = self.last_begun_at else { return now.boot };
        let wait_ms = if self.failed {
            limits::RELIST_RETRY_MS
        } else if self.requested {
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
        let relist = self.relist.is_none().then(|| self.relist_at(now));
        let stream = match self.stream {
            Stream::Closed { retry_at } => Some(retry_at),
            Stream::Open { .. } | Stream::Absent => None,
        };
        relist.into_iter().chain(stream).min()
    }

    /// Whether the event stream is trusted to report changes.
    pub fn is_evented(&self, now: Now) -> bool {
        matches!(self.stream, Stream::Open { since, .. }
            if now.boot.since_ms(since) >= limits::STREAM_TRUSTED_MS)
    }

    /// Why it is unhealthy; `None`: relists are as frequent as they should be.
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

    /// When the last relist was complete.
    pub fn last_done_at(&self) -> Option<Instant> {
        self.last_done_at
    }

    /// `kubelet_pleg_relist_duration_seconds`, `kubelet_pleg_relist_interval_seconds`
    pub fn histograms(&self) -> (&Histogram, &Histogram) {
        (&self.durations, &self.intervals)
    }
}

impl Relist {
    fn is_open(&self) -> bool {
        matches!(self.sandboxes, Listing::Pending(_))
            || matches!(self.containers, Listing::Pending(_))
    }

    /// One list failed: it counts as received, and the relist as failed.
    fn fail(&mut self, call: CallId) {
        self.failed = true;
        if matches!(self.sandboxes, Listing::Pending(requests) if requests == call) {
            self.sandboxes = Listing::Received(Vec::new());
        } else {
            assert!(
                matches!(self.containers, Listing::Pending(requests) if requests == call),
                "answer to {call:?}, which does not belong to this relist"
            );
            self.containers = Listing::Received(Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::calls::Outcome;
    use crate::agent::event::Action;
    use crate::limits::{
        RELIST_EVENTED_MS, RELIST_GAP_MAX_MS, RELIST_GAP_MIN_MS, RELIST_GAP_TIMES,
        RELIST_HEALTHY_MS, RELIST_IDLE_EARLY_MS, RELIST_IDLE_MS, RELIST_MS, RELIST_RETRY_MS,
        STREAM_FAILURES_MAX, STREAM_RETRY_MS, STREAM_TRUSTED_MS,
    };
    use crate::model::cri::Lost;

    const BEGIN: u64 = 1_000_000;

    /// A runtime that has just come up.
    struct Side {
        pleg: Pleg,
        calls: Calls,
        now: Now,
        idle: bool,
    }

    impl Side {
        fn new() -> Self {
            let now = Now { boot: Instant(BEGIN), wall: None };
            Self { pleg: Pleg::new(), calls: Calls::new(1), now, idle: false }
        }

        /// The requests after so many milliseconds.
        fn after(&mut self, ms: u64) -> Vec<(CallId, Request)> {
            self.now.boot = self.now.boot.plus_ms(ms);
            let mut out = Out::default();
            self.pleg.step(self.now, self.idle, &mut self.calls, &mut out);
            let requests = out.actions.into_iter().map(|action| match action {
                Action::Cri { call, request, .. } => (call, request),
                other => panic!("{other:?}"),
            });
            requests.collect()
        }

        fn answer(&mut self, call: CallId, result: Result<Reply, CallError>) {
            self.calls.end(self.now, call, Outcome::Answered).expect("it is under way");
            self.pleg.answer(self.now, call, result);
        }

        /// Both lists are answered, or both fail.
        fn relist(&mut self, requests: Vec<(CallId, Request)>, good: bool) {
            for (call, request) in requests {
                let reply = match request {
                    Request::ListPodSandbox => Reply::Sandboxes(Vec::new()),
                    Request::ListContainers => Reply::Containers(Vec::new()),
                    _ => continue,
                };
                self.answer(call, if good { Ok(reply) } else { Err(lost()) });
            }
        }

        /// Opens the event stream, which must be due.
        #[track_caller]
        fn stream(&mut self, ms: u64) -> CallId {
            let requests = self.after(ms);
            let opened = requests.iter().find(|(_, it)| *it == Request::GetContainerEvents);
            opened.map(|(call, _)| *call).expect("the stream is opened")
        }
    }

    fn lost() -> CallError {
        CallError::Lost(Lost::Connection)
    }

    #[test]
    fn the_relist_interval_depends_on_the_state() {
        for (what, idle, good, early_ms, wait_ms) in [
            ("pods", false, true, 0, RELIST_MS),
            ("no pod", true, true, RELIST_IDLE_EARLY_MS, RELIST_IDLE_MS),
            ("a failed look", false, false, 0, RELIST_RETRY_MS),
            ("a failed look without pods", true, false, 0, RELIST_RETRY_MS),
        ] {
            let mut side = Side::new();
            side.idle = idle;
            let requests = side.after(0);
            side.relist(requests, good);
            let due_at = side.now.boot.plus_ms(wait_ms);
            assert_eq!(side.after(wait_ms - early_ms - 1), [], "{what}");
            assert_eq!(side.pleg.wake_at(side.now), Some(due_at), "{what}");
            assert_eq!(side.after(1).len(), 2, "{what}");
        }
    }

    #[test]
    fn relists_are_rare_once_the_event_stream_is_trusted() {
        let mut side = Side::new();
        let requests = side.after(0);
        side.relist(requests, true);
        let young = Now { boot: Instant(BEGIN + STREAM_TRUSTED_MS - 1), wall: None };
        assert!(!side.pleg.is_evented(young));
        assert_eq!(side.after(STREAM_TRUSTED_MS), [], "it counts from the last look");
        assert!(side.pleg.is_evented(side.now));
        assert_eq!(side.after(RELIST_EVENTED_MS - STREAM_TRUSTED_MS - 1), []);
        assert_eq!(side.pleg.wake_at(side.now), Some(Instant(BEGIN + RELIST_EVENTED_MS)));
        assert_eq!(side.after(1).len(), 2);
    }

    #[test]
    fn a_requested_relist_leaves_the_runtime_some_time() {
        for (took_ms, gap_ms) in [
            (0, RELIST_GAP_MIN_MS),
            (RELIST_GAP_MIN_MS / RELIST_GAP_TIMES, RELIST_GAP_MIN_MS),
            (RELIST_GAP_MIN_MS, RELIST_GAP_TIMES * RELIST_GAP_MIN_MS),
            (RELIST_GAP_MAX_MS / RELIST_GAP_TIMES + 1, RELIST_GAP_MAX_MS),
            (RELIST_GAP_MAX_MS - 1, RELIST_GAP_MAX_MS),
        ] {
            let mut side = Side::new();
            let requests = side.after(0);
            assert_eq!(side.after(took_ms), [], "one at a time");
            side.relist(requests, true);
            side.pleg.request_relist();
            assert_eq!(side.after(gap_ms - took_ms - 1), [], "took {took_ms} ms");
            assert_eq!(side.after(1).len(), 2, "took {took_ms} ms");
        }
    }

    #[test]
    fn without_a_complete_relist_for_too_long_it_is_unhealthy() {
        let mut side = Side::new();
        assert!(side.pleg.trouble(side.now).is_some(), "there was none yet");
        let requests = side.after(0);
        side.relist(requests, true);
        let at = |ms| Now { boot: Instant(BEGIN + ms), wall: None };
        assert_eq!(side.pleg.trouble(at(RELIST_HEALTHY_MS)), None);
        let why = side.pleg.trouble(at(RELIST_HEALTHY_MS + 1)).expect("it is too long ago");
        assert_eq!(why, "pleg was last seen active 180s ago; threshold is 180s");
        let requests = side.after(RELIST_HEALTHY_MS + 1);
        side.relist(requests, true);
        assert_eq!(side.pleg.trouble(side.now), None);
    }

    #[test]
    fn a_stream_that_fails_repeatedly_is_not_opened_until_the_runtimes_next_start() {
        let mut side = Side::new();
        let mut stream = side.stream(0);
        // A stream that lasted for long resets the count.
        for lived_ms in [STREAM_TRUSTED_MS - 1, STREAM_TRUSTED_MS] {
            assert_eq!(side.after(lived_ms), []);
            side.answer(stream, Err(lost()));
            assert_eq!(side.after(STREAM_RETRY_MS - 1), []);
            stream = side.stream(1);
        }
        for failure in 1..STREAM_FAILURES_MAX {
            side.answer(stream, Err(lost()));
            assert_eq!(side.after(STREAM_RETRY_MS - 1), [], "failure {failure}");
            stream = side.stream(1);
        }
        side.answer(stream, Err(lost()));
        assert_eq!(side.after(10 * STREAM_RETRY_MS), []);
        side.pleg.up(side.now);
        side.stream(0);
    }
}
