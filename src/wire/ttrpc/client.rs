//! The client: maps calls to streams.

use std::collections::VecDeque;

use super::frame::{
    Assembler, DATA, Frame, HEAD_BYTES, Item, NO_DATA, REMOTE_CLOSED, REQUEST, RESPONSE, put,
};
use super::{CANCEL, Error, envelope};
use crate::limits::{CRI_STREAMS_MAX, CriBudget, TTRPC_MESSAGE_BYTES_MAX};
use crate::model::map::Map;
use crate::wire::output::Output;
use crate::wire::rpc::{Begun, CallKey, Code, Event, Lost, Refused, Status};

/// Calls on one connection. Feed it with [`Client::receive`], write the bytes of
/// [`Client::output`], and after either take events until there are none.
#[derive(Debug)]
pub struct Client {
    input: Assembler,
    output: Output,
    /// Bytes of output so far, and how many of them were written.
    made_bytes: u64,
    sent_bytes: u64,
    open: Map<u32, Call>,
    /// Beyond 32 bits there is none.
    next_stream: u64,
    events: VecDeque<Event>,
    /// Why no call can be made any more.
    closing: Option<String>,
    message_bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// One response.
    Unary,
    /// Messages until the end.
    Stream,
}

#[derive(Debug)]
struct Call {
    key: CallKey,
    shape: Shape,
    /// Where its request ends in all that was ever output.
    request_end: u64,
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// A client on a new connection. The protocol has no greeting: nothing is in the output.
    pub fn new() -> Self {
        Self {
            input: Assembler::default(),
            output: Output::default(),
            made_bytes: 0,
            sent_bytes: 0,
            open: Map::new(),
            next_stream: 1,
            events: VecDeque::new(),
            closing: None,
            message_bytes_max: TTRPC_MESSAGE_BYTES_MAX,
        }
    }

    /// The same with another limit of the replies.
    #[must_use]
    pub fn within(self, budget: &CriBudget) -> Self {
        let message_bytes_max = budget.message_bytes_max.min(TTRPC_MESSAGE_BYTES_MAX);
        Self { message_bytes_max, ..self }
    }

    /// Calls a method that answers with one message. `service` is qualified by its package,
    /// `timeout_ns` 0 means none.
    pub fn unary(
        &mut self,
        key: CallKey,
        (service, method): (&str, &str),
        timeout_ns: i64,
        message: &[u8],
    ) -> Result<(), Refused> {
        self.call(key, Shape::Unary, &envelope::request(service, method, message, timeout_ns))
    }

    /// Calls a method that answers with a stream of messages.
    pub fn stream(
        &mut self,
        key: CallKey,
        (service, method): (&str, &str),
        timeout_ns: i64,
        message: &[u8],
    ) -> Result<(), Refused> {
        self.call(key, Shape::Stream, &envelope::request(service, method, message, timeout_ns))
    }

    fn call(&mut self, key: CallKey, shape: Shape, request: &[u8]) -> Result<(), Refused> {
        let is_known = self.open.values().any(|call| call.key == key);
        assert!(!is_known, "call {} is under way already", key.0);
        if self.closing.is_some() {
            return Err(Refused::Closing);
        }
        if request.len() > TTRPC_MESSAGE_BYTES_MAX {
            let max_bytes = TTRPC_MESSAGE_BYTES_MAX;
            return Err(Refused::TooLarge { got_bytes: request.len(), max_bytes });
        }
        if self.open.len() >= CRI_STREAMS_MAX {
            return Err(Refused::Full { max: CRI_STREAMS_MAX });
        }
        let flags = match shape {
            Shape::Unary => 0,
            Shape::Stream => REMOTE_CLOSED,
        };
        let stream = self.request(flags, request);
        self.open.insert(stream, Call { key, shape, request_end: self.made_bytes });
        Ok(())
    }

    /// Sends a request on a stream of its own.
    fn request(&mut self, flags: u8, request: &[u8]) -> u32 {
        let stream = u32::try_from(self.next_stream).expect("the connection takes calls");
        put(self.output.tail(), stream, REQUEST, flags, request);
        self.made_bytes += (HEAD_BYTES + request.len()) as u64;
        self.next_stream += 2;
        if self.next_stream > u32::MAX.into() {
            self.closing = Some("all streams of the connection are used".to_owned());
        }
        stream
    }

    /// Cancels a call: no event will name it any more. The server is informed, but may have acted
    /// already.
    pub fn cancel(&mut self, key: CallKey) {
        self.events.retain(|event| event.key() != key);
        let stream = self.open.iter().find(|(_, call)| call.key == key).map(|(id, _)| *id);
        let Some(stream) = stream else { return };
        self.open.remove(&stream);
        self.tell_cancelled(stream);
    }

    fn tell_cancelled(&mut self, stream: u32) {
        // Without another stream the connection is about to end anyway.
        if self.closing.is_none() {
            let (service, method) = CANCEL;
            let request = envelope::request(service, method, &envelope::cancel(stream), 0);
            self.request(0, &request);
        }
    }

    /// Takes bytes from the socket. An error ends the connection: all calls are reported lost.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while let Some(item) = self.input.next(&mut bytes, self.message_bytes_max) {
            if let Err(error) = self.handle(item) {
                self.hangup(&error.to_string());
                return Err(error);
            }
        }
        Ok(())
    }

    /// The connection is closed, as the caller knows (end of file, or an error of the socket): all
    /// calls are lost.
    pub fn hangup(&mut self, why: &str) {
        self.closing.get_or_insert_with(|| why.to_owned());
        for call in std::mem::take(&mut self.open).into_values() {
            let sent = call.request_end <= self.sent_bytes;
            let begun = if sent { Begun::Perhaps } else { Begun::Never };
            self.events.push_back(Event::Lost(call.key, Lost { begun, why: why.to_owned() }));
        }
    }

    /// The next event; take all of them before receiving more, their queue is not bounded.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.events.shrink_to(EVENTS_KEPT);
        }
        event
    }

    /// The bytes to write to the socket, in order.
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }

    /// `count` bytes of [`Client::output`] were written.
    pub fn sent(&mut self, count: usize) {
        self.output.sent(count);
        self.sent_bytes += count as u64;
    }

    /// Why this connection accepts no more calls; those under way may still be answered. Once
    /// [`Client::calls`] is zero, it can be closed.
    pub fn closing(&self) -> Option<&str> {
        self.closing.as_deref()
    }

    /// The number of calls without a last event.
    pub fn calls(&self) -> usize {
        self.open.len()
    }

    fn handle(&mut self, item: Item) -> Result<(), Error> {
        match item {
            Item::Frame(frame) => {
                self.check(frame.stream, frame.kind)?;
                self.frame(frame);
            }
            Item::TooLarge { stream, kind, got_bytes } => {
                self.check(stream, kind)?;
                let max = self.message_bytes_max;
                let text = format!("reply has {got_bytes} bytes, expected at most {max}");
                self.fail(stream, kind, Status::new(Code::ResourceExhausted, text));
            }
        }
        Ok(())
    }

    fn check(&self, stream: u32, kind: u8) -> Result<(), Error> {
        if kind != RESPONSE && kind != DATA {
            return Err(Error::Kind { got: kind, expected: "2 (response) or 3 (data)" });
        }
        if stream.is_multiple_of(2) || u64::from(stream) >= self.next_stream {
            return Err(Error::Stream { got: stream, expected: "one that a request was sent on" });
        }
        Ok(())
    }

    fn frame(&mut self, Frame { stream, kind, flags, data }: Frame) {
        // A cancelled or failed call is over before its stream is.
        let Some(&Call { key, shape, .. }) = self.open.get(&stream) else { return };
        if kind == DATA && shape == Shape::Unary {
            let text = "data on the stream of a unary call, expected a response";
            return self.fail(stream, kind, Status::new(Code::Internal, text));
        }
        if kind == DATA {
            if flags & NO_DATA == 0 {
                self.events.push_back(Event::Message(key, data));
            }
            if flags & REMOTE_CLOSED != 0 {
                self.open.remove(&stream);
                self.events.push_back(Event::Done(key));
            }
            return;
        }
        match envelope::read_response(&data) {
            Err(why) => {
                let text = format!("response is malformed: {why}");
                self.fail(stream, kind, Status::new(Code::Internal, text));
            }
            Ok(Err(status)) => self.fail(stream, kind, status),
            Ok(Ok(payload)) => {
                self.open.remove(&stream);
                self.events.push_back(match shape {
                    Shape::Unary => Event::Reply(key, payload),
                    Shape::Stream => Event::Done(key),
                });
            }
        }
    }

    /// The last event of a call. After data its server does not know that.
    fn fail(&mut self, stream: u32, kind: u8, status: Status) {
        let Some(call) = self.open.remove(&stream) else { return };
        self.events.push_back(Event::Failed(call.key, status));
        if kind == DATA {
            self.tell_cancelled(stream);
        }
    }
}

/// The capacity that an emptied queue of events may keep.
const EVENTS_KEPT: usize = 64;
