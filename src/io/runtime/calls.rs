//! The calls on one connection to the runtime: encodes requests, decodes answers. No socket, no
//! clock.
//!
//! Each call that is started gets exactly one answer: its reply, the runtime's refusal, or
//! [`CallError::Lost`] at its deadline or with the connection. A call that is
//! cancelled gets none. A stream's items become [`Event::Changed`], its end is its answer.
//!
//! A call that was answered `Lost` may have happened or not; the core relists.

use std::collections::{BTreeMap, BTreeSet};

use super::super::log::Limit;
use crate::agent::event::{CallId, Event};
use crate::agent::time::Instant;
use crate::limits::CriBudget;
use crate::model::cri::{CallError, Code, Lost, Request};
use crate::model::error::Peer;
use crate::wire::cri::{Rpc, convert};
use crate::wire::grpc::{self, CallKey, Client, Status};
use crate::wire::h2;

/// The calls of one connection.
#[derive(Debug)]
pub struct Calls {
    client: Client,
    open: BTreeMap<CallId, Call>,
    deadlines: BTreeSet<(Instant, CallId)>,
    has_answered: bool,
    limit: Limit,
    budget: CriBudget,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    rpc: Rpc,
    deadline: Instant,
}

impl Default for Calls {
    fn default() -> Self {
        Self::new()
    }
}

impl Calls {
    /// For a new connection; the HTTP/2 preface is in the output.
    pub fn new() -> Self {
        Self {
            client: Client::new(h2::Config::default()),
            open: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            has_answered: false,
            limit: Limit::default(),
            budget: CriBudget::default(),
        }
    }

    /// The same with other memory limits.
    #[must_use]
    pub fn within(self, budget: CriBudget) -> Self {
        Self { client: self.client.within(&budget), budget, ..self }
    }

    pub fn start(
        &mut self,
        call: CallId,
        request: &Request,
        deadline: Instant,
        answers: &mut Vec<Event>,
    ) {
        let (rpc, message) = convert::encode(request);
        log::debug!("call={} rpc={} bytes={}", call.0, rpc.name(), message.len());
        let key = CallKey(call.0);
        let started = if rpc.is_stream() {
            self.client.stream(key, rpc.path(), &message)
        } else {
            self.client.unary_with(key, rpc.path(), rpc.metadata(), &message)
        };
        match started {
            Ok(()) => {
                self.open.insert(call, Call { rpc, deadline });
                self.deadlines.insert((deadline, call));
            }
            Err(grpc::Refused::Closing) => answers.push(lost(call, Lost::Connection)),
            // The error that the gRPC libraries of the runtimes return for the same.
            Err(refused @ (grpc::Refused::Full { .. } | grpc::Refused::TooLarge { .. })) => {
                let code = Code::ResourceExhausted;
                let refused = CallError::Refused { code, message: refused.to_string() };
                answers.push(Event::Cri(call, Err(refused)));
            }
        }
    }

    /// Cancels the call.
    pub fn cancel(&mut self, call: CallId) {
        if self.forget(call).is_some() {
            self.client.cancel(CallKey(call.0));
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
        let received = self.client.receive(bytes);
        let received = received.map_err(|error| Peer::new(error.to_string()));
        self.answer(now, answers);
        received
    }

    /// The connection has ended: answers all calls.
    pub fn hangup(&mut self, why: &str, answers: &mut Vec<Event>) {
        self.client.hangup(why);
        self.answer(Instant(0), answers);
        debug_assert!(self.open.is_empty(), "every call has been answered");
    }

    /// The bytes to write to the socket.
    pub fn output(&self) -> &[u8] {
        self.client.output()
    }

    /// Whether the output has only answers to the runtime's PINGs. It sends one after each
    /// reply to measure the latency; the answer can be sent with the next request.
    pub fn only_pongs(&self) -> bool {
        const PONG_BYTES: usize = 17;
        const PING: u8 = 6;
        const ACK: u8 = 1;
        let output = self.output();
        let is_pong =
            |frame: &[u8]| frame.len() == PONG_BYTES && frame[..5] == [0, 0, 8, PING, ACK];
        !output.is_empty() && output.chunks(PONG_BYTES).all(is_pong)
    }

    /// This many bytes of it were written.
    pub fn sent(&mut self, count: usize) {
        self.client.sent(count);
    }

    /// Why the runtime wants this connection to end, if it does.
    pub fn closing(&self) -> Option<&str> {
        self.client.closing()
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
        while let Some(event) = self.client.poll_event() {
            let call = CallId(event.key().0);
            if let grpc::Event::Message(..) = event {
                self.has_answered = true;
                // A burst of items is one hint: the core relists anyway.
                if !matches!(answers.last(), Some(Event::Changed(last)) if *last == call) {
                    answers.push(Event::Changed(call));
                }
                continue;
            }
            let Some(Call { rpc, .. }) = self.forget(call) else { continue };
            let answer = match event {
                grpc::Event::Reply(_, message) => {
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
                grpc::Event::Failed(_, status) => {
                    self.has_answered = true;
                    Err(failed(status))
                }
                grpc::Event::Done(_) | grpc::Event::Lost(..) => {
                    Err(CallError::Lost(Lost::Connection))
                }
                grpc::Event::Message(..) => unreachable!("it was handled above"),
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
        grpc::Code::DeadlineExceeded => return lost(Code::DeadlineExceeded, message),
        grpc::Code::Cancelled => return lost(Code::Cancelled, message),
        grpc::Code::Unavailable => return lost(Code::Unavailable, message),
        // OK without a message: the client reports Internal for that.
        grpc::Code::Ok | grpc::Code::Unknown => Code::Unknown,
        grpc::Code::InvalidArgument => Code::InvalidArgument,
        grpc::Code::NotFound => Code::NotFound,
        grpc::Code::AlreadyExists => Code::AlreadyExists,
        grpc::Code::PermissionDenied => Code::PermissionDenied,
        grpc::Code::ResourceExhausted => Code::ResourceExhausted,
        grpc::Code::FailedPrecondition => Code::FailedPrecondition,
        grpc::Code::Aborted => Code::Aborted,
        grpc::Code::OutOfRange => Code::OutOfRange,
        grpc::Code::Unimplemented => Code::Unimplemented,
        grpc::Code::Internal => Code::Internal,
        grpc::Code::DataLoss => Code::DataLoss,
        grpc::Code::Unauthenticated => Code::Unauthenticated,
    };
    CallError::Refused { code, message }
}
