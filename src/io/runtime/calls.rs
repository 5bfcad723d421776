//! The calls on one connection to the runtime: encodes requests, decodes answers. No socket, no
//! clock.
//!
//! Each call that is started gets exactly one answer: its reply, the runtime's refusal, or
//! [`CallError::Lost`] at its deadline or with the connection. A call that is
//! cancelled gets none. A stream's items become [`Event::Changed`], its end is its answer.
//!
//! A call that was answered `Lost` may have happened or not; the core relists.

use super::super::log::Limit;
use crate::agent::event::{CallId, Event};
use crate::agent::time::Instant;
use crate::limits::CriBudget;
use crate::model::cri::{CallError, Code, Lost, Request};
use crate::model::endpoint::Framing;
use crate::model::error::Peer;
use crate::model::map::{Map, Set};
use crate::wire::cri::{Rpc, convert};
use crate::wire::line::Line;
use crate::wire::rpc::{self, CallKey, Status};

/// The calls of one connection.
#[derive(Debug)]
pub struct Calls {
    line: Line,
    open: Map<CallId, Call>,
    deadlines: Set<(Instant, CallId)>,
    has_answered: bool,
    limit: Limit,
    budget: CriBudget,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    rpc: Rpc,
    deadline: Instant,
}

impl Calls {
    /// For a new connection. What the framing begins with is in the output.
    pub fn new(framing: Framing) -> Self {
        Self {
            line: Line::new(framing),
            open: Map::new(),
            deadlines: Set::new(),
            has_answered: false,
            limit: Limit::default(),
            budget: CriBudget::default(),
        }
    }

    /// The same with other memory limits.
    #[must_use]
    pub fn within(self, budget: CriBudget) -> Self {
        Self { line: self.line.within(&budget), budget, ..self }
    }

    pub fn start(
        &mut self,
        now: Instant,
        call: CallId,
        request: &Request,
        deadline: Instant,
        answers: &mut Vec<Event>,
    ) {
        let (rpc, message) = convert::encode(request);
        log::debug!("call={} rpc={} bytes={}", call.0, rpc.name(), message.len());
        let key = CallKey(call.0);
        match self.line.call(key, rpc, deadline.since_ms(now), &message) {
            Ok(()) => {
                self.open.insert(call, Call { rpc, deadline });
                self.deadlines.insert((deadline, call));
            }
            Err(rpc::Refused::Closing) => answers.push(lost(call, Lost::Connection)),
            // The error that the gRPC libraries of the runtimes return for the same.
            Err(refused @ (rpc::Refused::Full { .. } | rpc::Refused::TooLarge { .. })) => {
                let code = Code::ResourceExhausted;
                let refused = CallError::Refused { code, message: refused.to_string() };
                answers.push(Event::Cri(call, Err(refused)));
            }
        }
    }

    /// Cancels the call.
    pub fn cancel(&mut self, call: CallId) {
        if self.forget(call).is_some() {
            self.line.cancel(CallKey(call.0));
        }
    }

    /// Answers calls that are past their deadline.
    pub fn tick(&mut self, now: Instant, answers: &mut Vec<Event>) {
        while let Some(&(deadline, call)) = self.deadlines.first()
            && deadline <= now
        {
            self.cancel(call);
            answers.push(lost(call, Lost::Deadline));
        }
    }

    /// When to call [`Calls::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Processes bytes from the socket. An error says why the connection must end; all calls are
    /// then answered, and the rest of the output may be written before closing.
    pub fn receive(
        &mut self,
        now: Instant,
        bytes: &[u8],
        answers: &mut Vec<Event>,
    ) -> Result<(), Peer> {
        let received = self.line.receive(bytes);
        self.answer(now, answers);
        received
    }

    /// The connection has ended: answers all calls.
    pub fn hangup(&mut self, why: &str, answers: &mut Vec<Event>) {
        self.line.hangup(why);
        self.answer(Instant(0), answers);
        debug_assert!(self.open.is_empty(), "every call has been answered");
    }

    /// The bytes to write to the socket.
    pub fn output(&self) -> &[u8] {
        self.line.output()
    }

    /// Whether the output can wait for the next request, see [`Line::only_pongs`].
    pub fn only_pongs(&self) -> bool {
        self.line.only_pongs()
    }

    /// This many bytes of it were written.
    pub fn sent(&mut self, count: usize) {
        self.line.sent(count);
    }

    /// Why the runtime wants this connection to end, if it does.
    pub fn closing(&self) -> Option<&str> {
        self.line.closing()
    }

    /// Calls that will be answered without a cancel: all but streams.
    pub fn unanswered(&self) -> usize {
        self.open.values().filter(|call| !call.rpc.is_stream()).count()
    }

    /// Whether the other end ever answered a call, even with an error: then it is a runtime.
    pub fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Turns the client's events into answers.
    fn answer(&mut self, now: Instant, answers: &mut Vec<Event>) {
        while let Some(event) = self.line.poll_event() {
            let call = CallId(event.key().0);
            if let rpc::Event::Message(..) = event {
                self.has_answered = true;
                // A burst of items is one hint: the core relists anyway.
                if !matches!(answers.last(), Some(Event::Changed(last)) if *last == call) {
                    answers.push(Event::Changed(call));
                }
                continue;
            }
            let Some(Call { rpc, .. }) = self.forget(call) else { continue };
            let answer = match event {
                rpc::Event::Reply(_, message) => {
                    self.has_answered = true;
                    convert::decode_within(rpc, &message, &self.budget).map_err(|unusable| {
                        if let Some(repeats) = self.limit.pass(now) {
                            log::warn!(
                                "unusable reply of the runtime: {unusable}; repeats={repeats}"
                            );
                        }
                        CallError::Lost(Lost::Connection)
                    })
                }
                rpc::Event::Failed(_, status) => {
                    self.has_answered = true;
                    Err(failed(status))
                }
                rpc::Event::Done(_) | rpc::Event::Lost(..) => {
                    Err(CallError::Lost(Lost::Connection))
                }
                rpc::Event::Message(..) => unreachable!("it was handled above"),
            };
            answers.push(Event::Cri(call, answer));
        }
    }

    fn forget(&mut self, call: CallId) -> Option<Call> {
        let ended = self.open.remove(&call)?;
        let listed = self.deadlines.remove(&(ended.deadline, call));
        assert!(listed, "every open call has a deadline");
        Some(ended)
    }
}

fn lost(call: CallId, how: Lost) -> Event {
    Event::Cri(call, Err(CallError::Lost(how)))
}

/// The runtime's error. After three of the codes it is unknown whether the call happened.
fn failed(status: Status) -> CallError {
    let message = status.message;
    let lost = |code, message| CallError::Lost(Lost::Runtime { code, message });
    let code = match status.code {
        rpc::Code::DeadlineExceeded => return lost(Code::DeadlineExceeded, message),
        rpc::Code::Cancelled => return lost(Code::Cancelled, message),
        rpc::Code::Unavailable => return lost(Code::Unavailable, message),
        // OK without a message: the client reports Internal for that.
        rpc::Code::Ok | rpc::Code::Unknown => Code::Unknown,
        rpc::Code::InvalidArgument => Code::InvalidArgument,
        rpc::Code::NotFound => Code::NotFound,
        rpc::Code::AlreadyExists => Code::AlreadyExists,
        rpc::Code::PermissionDenied => Code::PermissionDenied,
        rpc::Code::ResourceExhausted => Code::ResourceExhausted,
        rpc::Code::FailedPrecondition => Code::FailedPrecondition,
        rpc::Code::Aborted => Code::Aborted,
        rpc::Code::OutOfRange => Code::OutOfRange,
        rpc::Code::Unimplemented => Code::Unimplemented,
        rpc::Code::Internal => Code::Internal,
        rpc::Code::DataLoss => Code::DataLoss,
        rpc::Code::Unauthenticated => Code::Unauthenticated,
    };
    CallError::Refused { code, message }
}
