//! The server: reports calls, and writes their answers.

use std::collections::VecDeque;
use std::time::Duration;

use super::frame::{
    Assembler, DATA, Frame, Item, NO_DATA, REMOTE_CLOSED, REMOTE_OPEN, REQUEST, RESPONSE, put,
};
use super::{CANCEL, Error, envelope};
use crate::limits::{TTRPC_CALLS_MAX, TTRPC_MESSAGE_BYTES_MAX, TTRPC_OUTPUT_BYTES_MAX};
use crate::model::map::Set;
use crate::wire::output::Output;
use crate::wire::rpc::{Code, Status};

/// Names a call on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// What a client did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Exactly one of [`Server::answer`], [`Server::end`] and [`Server::refuse`] ends it.
    Call(Call),
    /// The client does not wait for this call any more. It is answered already.
    Cancelled(StreamId),
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub stream: StreamId,
    /// Qualified by its package: `runtime.v1.RuntimeService`.
    pub service: String,
    pub method: String,
    /// The request's message.
    pub payload: Vec<u8>,
    /// The time after which the client gives up; `None`: it waits.
    pub timeout: Option<Duration>,
}

/// One connection of a client. Feed it with [`Server::receive`], take events until there are none,
/// and write the bytes of [`Server::output`].
#[derive(Debug, Default)]
pub struct Server {
    input: Assembler,
    output: Output,
    open: Set<StreamId>,
    last_stream: u32,
    events: VecDeque<Event>,
}

impl Server {
    /// Takes bytes from the socket. An error ends the connection.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while let Some(item) = self.input.next(&mut bytes, TTRPC_MESSAGE_BYTES_MAX) {
            match item {
                Item::Frame(frame) => self.frame(frame)?,
                Item::TooLarge { stream, kind, got_bytes } => {
                    self.begin(stream, kind)?;
                    if kind == REQUEST {
                        let status = too_large("request", got_bytes);
                        self.respond(stream, Err(&status));
                    }
                }
            }
        }
        Ok(())
    }

    /// The next event; take all of them before receiving more.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Answers a unary call.
    pub fn answer(&mut self, stream: StreamId, reply: &[u8]) {
        if self.open.remove(&stream) {
            self.respond(stream.0, Ok(reply));
        }
    }

    /// Ends a call with an error.
    pub fn refuse(&mut self, stream: StreamId, status: &Status) {
        if self.open.remove(&stream) {
            self.respond(stream.0, Err(status));
        }
    }

    /// A message of a stream. One that is longer than the protocol allows ends the stream with an
    /// error.
    pub fn item(&mut self, stream: StreamId, message: &[u8]) {
        if message.len() > TTRPC_MESSAGE_BYTES_MAX {
            return self.refuse(stream, &too_large("reply", message.len()));
        }
        if self.open.contains(&stream) {
            put(self.output.tail(), stream.0, DATA, 0, message);
        }
    }

    /// Ends a stream well.
    pub fn end(&mut self, stream: StreamId) {
        if self.open.remove(&stream) {
            put(self.output.tail(), stream.0, DATA, REMOTE_CLOSED | NO_DATA, &[]);
        }
    }

    /// The bytes to write to the socket, in order.
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }

    /// `count` bytes of [`Server::output`] were written.
    pub fn sent(&mut self, count: usize) {
        self.output.sent(count);
    }

    /// The client does not read its answers: do not read its requests either, until it does.
    pub fn is_full(&self) -> bool {
        self.output.len() >= TTRPC_OUTPUT_BYTES_MAX
    }

    /// The calls that wait for an answer: cancelled, if the connection ends.
    pub fn open(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.open.iter().copied()
    }

    fn frame(&mut self, Frame { stream, kind, flags, data }: Frame) -> Result<(), Error> {
        self.begin(stream, kind)?;
        if kind != REQUEST {
            return Ok(());
        }
        let request = match envelope::read_request(&data) {
            Ok(request) => request,
            Err(why) => {
                let text = format!("request is malformed: {why}");
                self.respond(stream, Err(&Status::new(Code::InvalidArgument, text)));
                return Ok(());
            }
        };
        let method = (&*request.service, &*request.method);
        if method == CANCEL {
            self.cancel(stream, &request.payload);
            return Ok(());
        }
        let refused = if flags & REMOTE_OPEN != 0 {
            Some((Code::Unimplemented, "client streams are not served".to_owned()))
        } else if self.open.len() >= TTRPC_CALLS_MAX {
            let text = format!("{TTRPC_CALLS_MAX} calls are open, expected fewer");
            Some((Code::ResourceExhausted, text))
        } else {
            None
        };
        if let Some((code, text)) = refused {
            self.respond(stream, Err(&Status::new(code, text)));
            return Ok(());
        }
        let stream = StreamId(stream);
        self.open.insert(stream);
        let timeout = u64::try_from(request.timeout_ns).ok().filter(|ns| *ns > 0);
        self.events.push_back(Event::Call(Call {
            stream,
            service: request.service,
            method: request.method,
            payload: request.payload,
            timeout: timeout.map(Duration::from_nanos),
        }));
        Ok(())
    }

    /// Checks the stream of a frame. Data that belongs to a request which was refused is dropped.
    fn begin(&mut self, stream: u32, kind: u8) -> Result<(), Error> {
        match kind {
            REQUEST if stream % 2 == 1 && stream > self.last_stream => self.last_stream = stream,
            REQUEST => {
                let expected = "an odd number above those before";
                return Err(Error::Stream { got: stream, expected });
            }
            DATA if stream % 2 == 1 && stream <= self.last_stream => {}
            DATA => {
                return Err(Error::Stream { got: stream, expected: "one of a request before" });
            }
            got => return Err(Error::Kind { got, expected: "1 (request) or 3 (data)" }),
        }
        Ok(())
    }

    fn cancel(&mut self, stream: u32, request: &[u8]) {
        match envelope::read_cancel(request) {
            Err(why) => {
                let text = format!("{}: {why}", CANCEL.1);
                self.respond(stream, Err(&Status::new(Code::InvalidArgument, text)));
            }
            Ok(cancelled) => {
                let cancelled = StreamId(cancelled);
                if self.open.remove(&cancelled) {
                    let status = Status::new(Code::Cancelled, "cancelled by the client");
                    self.respond(cancelled.0, Err(&status));
                    self.events.push_back(Event::Cancelled(cancelled));
                }
                // One that has just been answered is no error.
                self.respond(stream, Ok(&[]));
            }
        }
    }

    fn respond(&mut self, stream: u32, result: Result<&[u8], &Status>) {
        let mut response = envelope::response(result);
        if response.len() > TTRPC_MESSAGE_BYTES_MAX {
            response = envelope::response(Err(&too_large("reply", response.len())));
        }
        put(self.output.tail(), stream, RESPONSE, 0, &response);
    }
}

fn too_large(what: &str, got_bytes: usize) -> Status {
    let max = TTRPC_MESSAGE_BYTES_MAX;
    let text = format!("{what} has {got_bytes} bytes, expected at most {max}");
    Status::new(Code::ResourceExhausted, text)
}
