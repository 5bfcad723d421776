//! The client: maps calls to streams.

use std::collections::VecDeque;

use super::message::{self, Assembler, Unreadable};
use crate::limits;
use crate::model::map::Map;
use crate::wire::h2::{self, ErrorCode, StreamId};
use crate::wire::hpack::FieldList;
use crate::wire::rpc::{Begun, CallKey, Code, Event, Lost, Refused, Status};

/// Calls on one connection. Feed it with [`Client::receive`], write the bytes of
/// [`Client::output`], and after either take events until there are none.
#[derive(Debug)]
pub struct Client {
    connection: h2::Connection,
    names: Names,
    open: Map<StreamId, Call>,
    waiting: VecDeque<Waiting>,
    events: VecDeque<Event>,
    /// Why no call can be made any more.
    closing: Option<String>,
    message_bytes_max: usize,
    unfinished_bytes_max: usize,
}

/// The names of client and server that each call carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// `:authority`
    pub authority: Box<str>,
    /// `user-agent`
    pub user_agent: Box<str>,
}

/// A header field of a call: a name in lower case, and a value.
pub type Metadata = (&'static str, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// One message, then the status.
    Unary,
    /// Messages until the status.
    Stream,
}

#[derive(Debug)]
struct Waiting {
    key: CallKey,
    shape: Shape,
    path: &'static str,
    metadata: Option<Metadata>,
    body: Vec<u8>,
}

#[derive(Debug)]
struct Call {
    key: CallKey,
    shape: Shape,
    assembler: Assembler,
    /// The message of a unary call, until its status is known.
    reply: Option<Vec<u8>>,
}

/// A piece of a response that ends the call before its stream has ended.
struct Broken(Status);

impl Client {
    /// A client on a new connection to a local socket; its preface is in the output.
    pub fn new(config: h2::Config) -> Client {
        Client::named(config, Names { authority: "localhost".into(), user_agent: "edged".into() })
    }

    /// A client on a new connection to any server.
    pub fn named(config: h2::Config, names: Names) -> Client {
        Client {
            connection: h2::Connection::new(config),
            names,
            open: Map::new(),
            waiting: VecDeque::new(),
            events: VecDeque::new(),
            closing: None,
            message_bytes_max: limits::CRI_MESSAGE_BYTES_MAX,
            unfinished_bytes_max: limits::CriBudget::default().unfinished_bytes_max,
        }
    }

    /// The same with other limits of the replies.
    #[must_use]
    pub fn within(self, budget: &limits::CriBudget) -> Client {
        Client {
            message_bytes_max: budget.message_bytes_max,
            unfinished_bytes_max: budget.unfinished_bytes_max,
            ..self
        }
    }

    /// Calls a method that answers with one message. `path` is `/package.Service/Method`.
    pub fn unary(
        &mut self,
        key: CallKey,
        path: &'static str,
        message: &[u8],
    ) -> Result<(), Refused> {
        self.call(key, Shape::Unary, path, None, message)
    }

    /// The same with metadata.
    pub fn unary_with(
        &mut self,
        key: CallKey,
        path: &'static str,
        metadata: Option<Metadata>,
        message: &[u8],
    ) -> Result<(), Refused> {
        self.call(key, Shape::Unary, path, metadata, message)
    }

    /// Calls a method that answers with a stream of messages.
    pub fn stream(
        &mut self,
        key: CallKey,
        path: &'static str,
        message: &[u8],
    ) -> Result<(), Refused> {
        self.call(key, Shape::Stream, path, None, message)
    }

    fn call(
        &mut self,
        key: CallKey,
        shape: Shape,
        path: &'static str,
        metadata: Option<Metadata>,
        message: &[u8],
    ) -> Result<(), Refused> {
        assert!(!self.is_known(key), "call {} is under way already", key.0);
        if self.closing.is_some() {
            return Err(Refused::Closing);
        }
        if message.len() > limits::CRI_MESSAGE_BYTES_MAX {
            let max_bytes = limits::CRI_MESSAGE_BYTES_MAX;
            return Err(Refused::TooLarge { got_bytes: message.len(), max_bytes });
        }
        if self.waiting.len() >= limits::CRI_CALLS_WAITING_MAX {
            return Err(Refused::Full { max: limits::CRI_CALLS_WAITING_MAX });
        }
        let body = message::frame(message);
        self.waiting.push_back(Waiting { key, shape, path, metadata, body });
        self.start_waiting();
        Ok(())
    }

    fn is_known(&self, key: CallKey) -> bool {
        self.open.values().any(|call| call.key == key)
            || self.waiting.iter().any(|call| call.key == key)
    }

    /// Cancels a call, in whatever state: no event will name it any more. The server is informed
    /// with RST_STREAM, but may have acted already.
    pub fn cancel(&mut self, key: CallKey) {
        self.waiting.retain(|call| call.key != key);
        self.events.retain(|event| event.key() != key);
        let stream = self.open.iter().find(|(_, call)| call.key == key).map(|(id, _)| *id);
        if let Some(stream) = stream {
            self.open.remove(&stream);
            self.connection.reset(stream);
        }
        self.start_waiting();
    }

    /// Takes bytes from the socket. An error ends the connection: all calls are reported lost, and
    /// the output (which informs the server) may be written before closing.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), h2::Error> {
        loop {
            match self.connection.receive(&mut bytes) {
                Ok(Some(event)) => {
                    if let Some(stream) = self.handle(event) {
                        self.connection.reset(stream);
                    }
                }
                Ok(None) => {
                    self.start_waiting();
                    return Ok(());
                }
                Err(error) => {
                    self.hangup(&error.to_string());
                    return Err(error);
                }
            }
        }
    }

    /// The connection is closed, as the caller knows (end of file, or an error of the socket): all
    /// calls are lost.
    pub fn hangup(&mut self, why: &str) {
        self.lose_waiting(why);
        for call in std::mem::take(&mut self.open).into_values() {
            self.events.push_back(lost(call.key, Begun::Perhaps, why));
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
        self.connection.output()
    }

    /// `count` bytes of [`Client::output`] were written.
    pub fn sent(&mut self, count: usize) {
        self.connection.sent(count);
        self.start_waiting();
    }

    /// Why this connection accepts no more calls; those under way may still be answered. Once
    /// [`Client::calls`] is zero, it can be closed.
    pub fn closing(&self) -> Option<&str> {
        self.closing.as_deref()
    }

    /// The number of calls without a last event, waiting ones included.
    pub fn calls(&self) -> usize {
        self.open.len() + self.waiting.len()
    }

    fn start_waiting(&mut self) {
        while let Some(call) = self.waiting.front_mut() {
            if let Err(refused) = self.connection.can_open() {
                if refused == h2::Refused::Closing {
                    self.lose_waiting("no stream can be opened on this connection any more");
                }
                return;
            }
            let fields = [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", call.path),
                (":authority", &*self.names.authority),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                ("user-agent", &*self.names.user_agent),
                call.metadata.unwrap_or_default(),
            ];
            let count = fields.len() - usize::from(call.metadata.is_none());
            let stream = self
                .connection
                .open(&fields[..count], std::mem::take(&mut call.body))
                .expect("a stream can be opened, and the headers of a call are small");
            let Waiting { key, shape, .. } = self.waiting.pop_front().expect("it was at the front");
            let call = Call { key, shape, assembler: Assembler::default(), reply: None };
            self.open.insert(stream, call);
        }
    }

    fn lose_waiting(&mut self, why: &str) {
        self.closing.get_or_insert_with(|| why.to_owned());
        for call in self.waiting.drain(..) {
            self.events.push_back(lost(call.key, Begun::Never, why));
        }
    }

    /// Returns a stream that must be reset: its call is over, but the server does not know.
    fn handle(&mut self, event: h2::Event<'_>) -> Option<StreamId> {
        match event {
            h2::Event::Headers { stream, fields, end: true }
            | h2::Event::Trailers { stream, fields } => {
                self.finish(stream, |call| call.status(&fields));
            }
            h2::Event::Headers { stream, fields, end: false } => {
                let foreign = Status::of_foreign_response(&fields)?;
                self.finish(stream, |_| foreign);
                return Some(stream);
            }
            h2::Event::Data { stream, bytes, end } => {
                if let Err(Broken(status)) = self.data(stream, bytes) {
                    self.finish(stream, |_| status);
                    return (!end).then_some(stream);
                }
                if end {
                    let text = "response ended with DATA, expected trailers with grpc-status";
                    self.finish(stream, |_| Status::new(Code::Unknown, text));
                }
            }
            h2::Event::Reset { stream, code: ErrorCode::REFUSED_STREAM } => {
                self.lose(stream, "server reset the stream: REFUSED_STREAM");
            }
            h2::Event::Reset { stream, code } => {
                self.finish(stream, |_| Status::from_reset(code));
            }
            h2::Event::Refused { stream } => self.lose(stream, "server is going away"),
            h2::Event::GoAway { code, debug } => {
                self.lose_waiting(&format!("server is going away: {code} {debug:?}"));
            }
        }
        None
    }

    /// A call that the server certainly has not begun is lost.
    fn lose(&mut self, stream: StreamId, why: &str) {
        if let Some(call) = self.open.remove(&stream) {
            self.events.push_back(lost(call.key, Begun::Never, why));
        }
    }

    /// The last event of a call.
    fn finish(&mut self, stream: StreamId, status: impl FnOnce(&Call) -> Status) {
        // A broken call is over before its stream is.
        let Some(mut call) = self.open.remove(&stream) else { return };
        let status = status(&call);
        self.events.push_back(match (status.code, call.shape, call.reply.take()) {
            (Code::Ok, Shape::Stream, _) => Event::Done(call.key),
            (Code::Ok, Shape::Unary, Some(reply)) => Event::Reply(call.key, reply),
            (Code::Ok, Shape::Unary, None) => {
                let text = "status OK without a message, expected one";
                Event::Failed(call.key, Status::new(Code::Internal, text))
            }
            _ => Event::Failed(call.key, status),
        });
    }

    fn data(&mut self, stream: StreamId, mut bytes: &[u8]) -> Result<(), Broken> {
        let held: usize = self.open.values().map(Call::held_bytes).sum();
        let Some(call) = self.open.get_mut(&stream) else { return Ok(()) };
        let max = self.unfinished_bytes_max;
        if held + bytes.len() > max {
            let text = format!("unfinished replies have {held} bytes, expected at most {max}");
            return Err(Broken(Status::new(Code::ResourceExhausted, text)));
        }
        while !bytes.is_empty() {
            let Some(message) = call.assembler.next(&mut bytes, self.message_bytes_max)? else {
                continue;
            };
            match call.shape {
                Shape::Stream => self.events.push_back(Event::Message(call.key, message)),
                Shape::Unary if call.reply.is_none() => call.reply = Some(message),
                Shape::Unary => {
                    let text = "second message to a unary call, expected one";
                    return Err(Broken(Status::new(Code::Internal, text)));
                }
            }
        }
        Ok(())
    }
}

impl Call {
    fn held_bytes(&self) -> usize {
        self.assembler.held_bytes() + self.reply.as_ref().map_or(0, Vec::len)
    }

    fn status(&self, fields: &FieldList) -> Status {
        let Some(status) = Status::from_fields(fields) else {
            return Status::of_foreign_end(fields);
        };
        if status.code == Code::Ok && self.assembler.is_inside() {
            let text = "response ended inside a message, expected the rest";
            return Status::new(Code::Internal, text);
        }
        status
    }
}

impl From<Unreadable> for Broken {
    fn from(unreadable: Unreadable) -> Broken {
        let code = match unreadable {
            Unreadable::Compressed { .. } => Code::Internal,
            Unreadable::TooLarge { .. } => Code::ResourceExhausted,
        };
        Broken(Status::new(code, unreadable.to_string()))
    }
}

fn lost(key: CallKey, begun: Begun, why: &str) -> Event {
    Event::Lost(key, Lost { begun, why: why.to_owned() })
}

/// The capacity that an emptied queue of events may keep.
const EVENTS_KEPT: usize = 64;
