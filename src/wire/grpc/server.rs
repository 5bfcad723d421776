//! The server: reports unary calls, and writes their answers.

use std::collections::VecDeque;

use super::message::{self, Assembler, Unreadable};
use super::status::percent_encode;
use crate::limits::{
    DMI_HEADER_BLOCK_BYTES_MAX, DMI_HEADER_LIST_BYTES_MAX, DMI_MESSAGE_BYTES_MAX,
    DMI_OUTPUT_BYTES_MAX, DMI_STREAMS_MAX, DMI_WINDOW_BYTES,
};
use crate::model::map::Map;
use crate::wire::h2::{self, StreamId};
use crate::wire::hpack::FieldList;
use crate::wire::rpc::{Code, Status};

/// What a client did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// It is answered once, by [`Server::answer`].
    Call(Call),
    /// The client does not wait for this call any more.
    Cancelled(StreamId),
}

/// A call whose request is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub stream: StreamId,
    /// `/package.Service/Method`
    pub path: Box<str>,
    /// `grpc-timeout`, in milliseconds, rounded up: the client then gives up. `None`: it waits.
    pub timeout_ms: Option<u64>,
    pub message: Vec<u8>,
}

/// One connection of a client. Feed it with [`Server::receive`], take what came until there is
/// nothing more, and write the bytes of [`Server::output`].
#[derive(Debug)]
pub struct Server {
    connection: h2::Connection,
    requests: Map<StreamId, Request>,
    incoming: VecDeque<Incoming>,
}

#[derive(Debug)]
enum Request {
    /// Its message is not complete, or the client may send more.
    Open { path: Box<str>, timeout_ms: Option<u64>, partial: Assembler, message: Option<Vec<u8>> },
    /// It was reported as a call.
    Reported,
}

/// Why a request is answered at once.
enum Refusal {
    /// An HTTP status: the request is not of gRPC.
    Http(&'static str),
    Status(Status),
}

impl Default for Server {
    fn default() -> Server {
        Server {
            connection: h2::Connection::serve(h2::Config {
                header_table_bytes: 4_096,
                stream_window_bytes: DMI_WINDOW_BYTES,
                connection_window_bytes: DMI_WINDOW_BYTES,
                streams_max: DMI_STREAMS_MAX,
                header_list_bytes_max: DMI_HEADER_LIST_BYTES_MAX,
                header_block_bytes_max: DMI_HEADER_BLOCK_BYTES_MAX,
                output_bytes_max: DMI_OUTPUT_BYTES_MAX,
            }),
            requests: Map::new(),
            incoming: VecDeque::new(),
        }
    }
}

impl Server {
    /// Takes bytes from the socket. An error ends the connection, and with it the calls that wait
    /// for an answer; the output, which informs the client, may be written before closing.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), h2::Error> {
        while let Some(event) = self.connection.receive(&mut bytes)? {
            self.handle(event);
        }
        Ok(())
    }

    /// The next thing that a client did; take all of them before receiving more.
    pub fn poll_incoming(&mut self) -> Option<Incoming> {
        self.incoming.pop_front()
    }

    /// Answers a call. One that was cancelled is not answered any more.
    pub fn answer(&mut self, stream: StreamId, answer: Result<&[u8], &Status>) {
        if self.requests.remove(&stream).is_none() {
            return;
        }
        match answer {
            Ok(message) => {
                let (head, trailers) = ([HTTP_OK, CONTENT], [("grpc-status", "0")]);
                self.connection.respond(stream, &head, message::frame(message), &trailers);
            }
            Err(status) => {
                let code = (status.code as u32).to_string();
                let message = percent_encode(&status.message);
                let fields = [("grpc-status", &*code), ("grpc-message", &*message)];
                self.connection.respond(stream, &[HTTP_OK, CONTENT], Vec::new(), &fields);
            }
        }
    }

    /// The connection is given up: further calls are refused, in a way that lets the client make
    /// them again on another one. Those that were begun go on.
    pub fn leave(&mut self) {
        self.connection.leave();
    }

    /// The bytes to write to the socket, in order.
    pub fn output(&self) -> &[u8] {
        self.connection.output()
    }

    /// `count` bytes of [`Server::output`] were written.
    pub fn sent(&mut self, count: usize) {
        self.connection.sent(count);
    }

    /// The client does not read its answers: do not read its requests either, until it does.
    pub fn is_full(&self) -> bool {
        self.output().len() >= DMI_OUTPUT_BYTES_MAX / 2
    }

    /// Whether no call is open, and nothing is half received or half sent.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty() && !self.waits_for_client()
    }

    /// Whether it is the client's turn: its preface, a frame, a request is not complete, or it has
    /// not read an answer.
    pub fn waits_for_client(&self) -> bool {
        let is_open = |request: &Request| matches!(request, Request::Open { .. });
        !self.connection.is_established()
            || self.connection.is_inside()
            || self.connection.held_bytes() > 0
            || self.requests.values().any(is_open)
    }

    /// Bytes of requests and answers that are kept.
    pub fn held_bytes(&self) -> usize {
        let requests: usize = self.requests.values().map(Request::held_bytes).sum();
        self.connection.held_bytes() + requests
    }

    fn handle(&mut self, event: h2::Event<'_>) {
        match event {
            h2::Event::Headers { stream, fields, end } => match begin(&fields) {
                Ok(request) => {
                    self.requests.insert(stream, request);
                    if end {
                        self.finish(stream);
                    }
                }
                Err(refusal) => self.refuse(stream, refusal),
            },
            h2::Event::Data { stream, bytes, end } => {
                if let Err(status) = self.data(stream, bytes) {
                    return self.refuse(stream, Refusal::Status(status));
                }
                if end {
                    self.finish(stream);
                }
            }
            h2::Event::Trailers { stream, .. } => self.finish(stream),
            h2::Event::Reset { stream, .. } | h2::Event::Refused { stream } => {
                if let Some(Request::Reported) = self.requests.remove(&stream) {
                    self.incoming.push_back(Incoming::Cancelled(stream));
                }
            }
            // The client makes no more calls here; it closes the connection.
            h2::Event::GoAway { .. } => {}
        }
    }

    fn data(&mut self, stream: StreamId, mut bytes: &[u8]) -> Result<(), Status> {
        let Some(Request::Open { partial, message, .. }) = self.requests.get_mut(&stream) else {
            return Ok(());
        };
        while !bytes.is_empty() {
            let Some(complete) = partial.next(&mut bytes, DMI_MESSAGE_BYTES_MAX)? else {
                return Ok(());
            };
            if message.replace(complete).is_some() {
                let text = "second message in a unary call, expected one";
                return Err(Status::new(Code::Unimplemented, text));
            }
        }
        Ok(())
    }

    /// The client has sent its whole request.
    fn finish(&mut self, stream: StreamId) {
        let Some(request) = self.requests.insert(stream, Request::Reported) else { return };
        let Request::Open { path, timeout_ms, partial, message } = request else { return };
        let Some(message) = message.filter(|_| !partial.is_inside()) else {
            let text = "request ended inside a message, or without one; expected one message";
            return self.refuse(stream, Refusal::Status(Status::new(Code::Internal, text)));
        };
        self.incoming.push_back(Incoming::Call(Call { stream, path, timeout_ms, message }));
    }

    fn refuse(&mut self, stream: StreamId, refusal: Refusal) {
        self.requests.insert(stream, Request::Reported);
        match refusal {
            Refusal::Status(status) => self.answer(stream, Err(&status)),
            Refusal::Http(status) => {
                self.requests.remove(&stream);
                self.connection.respond(stream, &[(":status", status)], Vec::new(), &[]);
            }
        }
    }
}

impl Request {
    fn held_bytes(&self) -> usize {
        match self {
            Self::Open { path, partial, message, .. } => {
                path.len() + partial.held_bytes() + message.as_ref().map_or(0, Vec::len)
            }
            Self::Reported => 0,
        }
    }
}

impl From<Unreadable> for Status {
    /// As a server has it: there is no encoding that it could decode.
    fn from(unreadable: Unreadable) -> Status {
        let code = match unreadable {
            Unreadable::Compressed { .. } => Code::Unimplemented,
            Unreadable::TooLarge { .. } => Code::ResourceExhausted,
        };
        Status::new(code, unreadable.to_string())
    }
}

/// Reads the header fields of a request.
fn begin(fields: &FieldList) -> Result<Request, Refusal> {
    let text = |name| fields.first(name).and_then(|value| std::str::from_utf8(value).ok());
    if text(":method") != Some("POST") {
        return Err(Refusal::Http("405"));
    }
    let content = text("content-type").and_then(|text| text.strip_prefix("application/grpc"));
    if !content.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';'])) {
        return Err(Refusal::Http("415"));
    }
    let refused = |code, text| Err(Refusal::Status(Status::new(code, text)));
    if fields.dropped() > 0 {
        let text = format!("header list is too large, expected {DMI_HEADER_LIST_BYTES_MAX} bytes");
        return refused(Code::ResourceExhausted, text);
    }
    let Some(path) = text(":path") else {
        return refused(Code::Unimplemented, "got no :path, expected /service/method".to_owned());
    };
    let timeout_ms = match fields.first("grpc-timeout").map(|value| (value, timeout_ms(value))) {
        None => None,
        Some((_, Some(timeout_ms))) => Some(timeout_ms),
        Some((value, None)) => {
            let got = String::from_utf8_lossy(value);
            let text = format!("grpc-timeout is {got:?}, expected 1 to 8 digits and a unit");
            return refused(Code::Internal, text);
        }
    };
    let (path, partial) = (path.into(), Assembler::default());
    Ok(Request::Open { path, timeout_ms, partial, message: None })
}

/// At most eight digits and one of `H M S m u n`.
fn timeout_ms(value: &[u8]) -> Option<u64> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => number * 3_600_000,
        b'M' => number * 60_000,
        b'S' => number * 1_000,
        b'm' => number,
        b'u' => number.div_ceil(1_000),
        b'n' => number.div_ceil(1_000_000),
        _ => return None,
    })
}

const HTTP_OK: (&str, &str) = (":status", "200");
const CONTENT: (&str, &str) = ("content-type", "application/grpc");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DMI_STATUS_TEXT_BYTES_MAX;
    use crate::wire::grpc::status::percent_decode;

    #[test]
    fn a_timeout_has_eight_digits_and_a_unit() {
        for (value, expected) in [
            ("1S", Some(1_000)),
            ("999995u", Some(1_000)),
            ("1n", Some(1)),
            ("99999999H", Some(359_999_996_400_000)),
            ("2M", Some(120_000)),
            ("0m", Some(0)),
            ("100000000S", None),
            ("S", None),
            ("", None),
            ("1", None),
            ("-1S", None),
            ("1s", None),
        ] {
            assert_eq!(timeout_ms(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn a_text_is_what_it_was_once_it_is_decoded() {
        for text in ["", "a b~", "100 %", "größer\n", "%41", "\u{7f}\u{1f600}"] {
            let encoded = percent_encode(text);
            assert!(encoded.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{encoded}");
            assert_eq!(percent_decode(encoded.as_bytes()), text);
        }
        assert_eq!(percent_encode("ä%"), "%C3%A4%25");
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        let text = format!("{}ä", "x".repeat(DMI_STATUS_TEXT_BYTES_MAX - 1));
        assert_eq!(percent_encode(&text), text[..DMI_STATUS_TEXT_BYTES_MAX - 1]);
        assert_eq!(percent_encode(&text[1..]).len(), DMI_STATUS_TEXT_BYTES_MAX - 2 + 6);
    }
}
