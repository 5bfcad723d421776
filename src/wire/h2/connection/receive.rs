//! The receiving half: bytes to frames, frames to events. Frames without a body or header block are
//! in `control`.

use std::mem;

use super::{Connection, Role};
use crate::limits;
use crate::wire::h2::frame::{
    self, ACK, END_HEADERS, END_STREAM, FRAME_BYTES_MAX, HEAD_BYTES, Head, Kind, PADDED,
    PRIORITIZED,
};
use crate::wire::h2::stream::{Phase, put_window_update};
use crate::wire::h2::{Error, ErrorCode, Event, Problem, StreamId};

/// What the next bytes are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    /// A client's preface, of which so many bytes have come.
    #[cfg(feature = "devices")]
    Preface(usize),
    /// A frame's head.
    Head,
    /// The payload of a frame that is processed once it is complete.
    Payload(Head),
    /// The byte with the length of the padding of a DATA frame.
    PadLength(Data),
    /// Body and padding of a DATA frame, passed on as they come.
    Data(Data),
    /// The remaining bytes of an ignored frame.
    Skip(u32),
}

/// A DATA frame under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    head: Head,
    left: u32,
    padding: u32,
}

/// A header block under way.
#[derive(Debug)]
pub(super) struct Block {
    head: Head,
    bytes: Vec<u8>,
    /// Bytes on the wire, with frame heads: this also limits empty CONTINUATIONs.
    wire_bytes: usize,
}

#[cfg(feature = "devices")]
impl Block {
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// A violation, before its frame is known.
pub(super) type Violation = (ErrorCode, Problem);

impl Connection {
    /// Takes bytes from the front of `input` until there is an event, or none are left. Call it
    /// until it returns `None`; then all of `input` has been taken. An error is final and returned
    /// by every later call.
    pub fn receive<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.advance(input);
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    fn advance<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Error> {
        loop {
            if let Some(event) = self.due.pop_front() {
                return Ok(Some(event));
            }
            match self.reading {
                #[cfg(feature = "devices")]
                Reading::Preface(seen) => {
                    self.reading = self.preface(seen, input)?;
                    if input.is_empty() {
                        return Ok(None);
                    }
                }
                Reading::Head => {
                    let Some(head) = self.collect_head(input) else { return Ok(None) };
                    self.reading = self.begin(head).map_err(|v| self.at(head, v))?;
                }
                Reading::Payload(head) => match self.collect_payload(head, input)? {
                    Collected::Part => return Ok(None),
                    Collected::Whole(None) => {}
                    Collected::Whole(event) => return Ok(event),
                },
                Reading::PadLength(data) => {
                    let Some((&padding, rest)) = input.split_first() else { return Ok(None) };
                    *input = rest;
                    self.reading =
                        pad(data, u32::from(padding)).map_err(|v| self.at(data.head, v))?;
                }
                Reading::Data(data) => {
                    let event = self.data(data, input)?;
                    let waiting = matches!(self.reading, Reading::Data(_)) && input.is_empty();
                    if event.is_some() || waiting {
                        return Ok(event);
                    }
                }
                Reading::Skip(left) => {
                    let left = left - take(input, left).len() as u32;
                    self.reading = if left == 0 { Reading::Head } else { Reading::Skip(left) };
                    if left > 0 {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn collect_head(&mut self, input: &mut &[u8]) -> Option<Head> {
        let missing = HEAD_BYTES - self.partial.len();
        self.partial.extend_from_slice(take(input, missing as u32));
        let head = Head::parse(self.partial.as_slice().try_into().ok()?);
        self.partial.clear();
        Some(head)
    }

    /// A frame that is complete in `input`, as most are, is processed in place.
    fn collect_payload(&mut self, head: Head, input: &mut &[u8]) -> Result<Collected, Error> {
        let missing = head.length - self.partial.len() as u32;
        let part = take(input, missing);
        let whole = part.len() as u32 == missing;
        if !whole || !self.partial.is_empty() {
            self.partial.extend_from_slice(part);
        }
        if !whole {
            return Ok(Collected::Part);
        }
        self.reading = Reading::Head;
        let partial = mem::take(&mut self.partial);
        let payload = if partial.is_empty() { part } else { &partial };
        let event = self.frame(head, payload)?;
        self.partial = partial;
        self.partial.clear();
        self.partial.shrink_to(limits::CRI_BUFFER_KEPT_BYTES);
        Ok(Collected::Whole(event))
    }

    /// Checks a frame by its head alone.
    fn begin(&mut self, head: Head) -> Result<Reading, Violation> {
        if !self.peer.settings_seen && (head.kind != Kind::SETTINGS || head.has(ACK)) {
            return Err((ErrorCode::PROTOCOL_ERROR, Problem::NotHttp2));
        }
        if head.length > FRAME_BYTES_MAX {
            let (got_bytes, max_bytes) = (head.length, FRAME_BYTES_MAX);
            let problem = Problem::FrameTooLarge { got_bytes, max_bytes };
            return Err((ErrorCode::FRAME_SIZE_ERROR, problem));
        }
        if let Some(block) = &self.block {
            let expected_stream = block.head.stream;
            if head.kind != Kind::CONTINUATION || head.stream != expected_stream {
                let problem = Problem::BlockInterrupted { expected_stream };
                return Err((ErrorCode::PROTOCOL_ERROR, problem));
            }
        }
        check_length(head)?;
        match head.kind {
            Kind::DATA => {
                self.on_stream(head)?;
                self.begin_data(head)
            }
            Kind::HEADERS | Kind::RST_STREAM => {
                self.on_stream(head)?;
                Ok(Reading::Payload(head))
            }
            Kind::CONTINUATION if self.block.is_none() => {
                Err((ErrorCode::PROTOCOL_ERROR, Problem::BlockMissing))
            }
            Kind::SETTINGS | Kind::PING | Kind::GOAWAY if head.stream != 0 => {
                Err((ErrorCode::PROTOCOL_ERROR, Problem::OnStream))
            }
            Kind::WINDOW_UPDATE if head.stream != 0 => {
                self.on_stream(head)?;
                Ok(Reading::Payload(head))
            }
            Kind::PUSH_PROMISE => Err((ErrorCode::PROTOCOL_ERROR, Problem::PushDisabled)),
            Kind::CONTINUATION
            | Kind::SETTINGS
            | Kind::PING
            | Kind::GOAWAY
            | Kind::WINDOW_UPDATE => Ok(Reading::Payload(head)),
            _ => Ok(Reading::Skip(head.length)),
        }
    }

    /// The stream must be one that was opened, even if it is closed again.
    fn on_stream(&self, head: Head) -> Result<(), Violation> {
        let problem = if head.stream == 0 {
            Problem::OnConnection
        } else if head.stream.is_multiple_of(2) {
            Problem::StreamOfServer
        } else if head.stream >= self.next_stream && !self.may_open(head) {
            Problem::StreamIdle { next: self.next_stream }
        } else {
            return Ok(());
        };
        Err((ErrorCode::PROTOCOL_ERROR, problem))
    }

    /// A client's HEADERS open a stream.
    #[cfg(feature = "devices")]
    fn may_open(&self, head: Head) -> bool {
        self.role == Role::Server && head.kind == Kind::HEADERS
    }

    #[cfg(not(feature = "devices"))]
    #[expect(clippy::unused_self, reason = "as where there are servers")]
    fn may_open(&self, _: Head) -> bool {
        false
    }

    /// Flow control counts the whole frame, padding included, also on closed streams.
    fn begin_data(&mut self, head: Head) -> Result<Reading, Violation> {
        self.receive_window.spend(head.length, "connection")?;
        if let Some(stream) = self.streams.get_mut(&StreamId(head.stream)) {
            match stream.phase {
                Phase::Headers => {
                    return Err((ErrorCode::PROTOCOL_ERROR, Problem::DataBeforeHeaders));
                }
                Phase::Body => {}
                #[cfg(feature = "devices")]
                Phase::Ended => return Err((ErrorCode::STREAM_CLOSED, Problem::StreamEnded)),
            }
            stream.receive_window.spend(head.length, "stream")?;
        }
        let data = Data { head, left: head.length, padding: 0 };
        if !head.has(PADDED) {
            return Ok(Reading::Data(data));
        }
        if head.length == 0 {
            let problem = Problem::Length { got_bytes: 0, expected: "the padding's length" };
            return Err((ErrorCode::FRAME_SIZE_ERROR, problem));
        }
        Ok(Reading::PadLength(data))
    }

    /// Passes on the available part of a body.
    fn data<'a>(
        &mut self,
        mut data: Data,
        input: &mut &'a [u8],
    ) -> Result<Option<Event<'a>>, Error> {
        let bytes = take(input, data.left);
        data.left -= bytes.len() as u32;
        if data.left == 0 {
            data.padding -= take(input, data.padding).len() as u32;
        }
        let complete = data.left == 0 && data.padding == 0;
        self.reading = if complete { Reading::Head } else { Reading::Data(data) };
        let stream = StreamId(data.head.stream);
        let end = complete && data.head.has(END_STREAM);
        if complete {
            self.replenish(data.head)?;
        }
        if !self.streams.contains_key(&stream) || (bytes.is_empty() && !end) {
            return Ok(None);
        }
        if end {
            self.close(stream);
        }
        Ok(Some(Event::Data { stream, bytes, end }))
    }

    fn replenish(&mut self, head: Head) -> Result<(), Error> {
        if let Some(increment) = self.receive_window.due() {
            put_window_update(0, increment, self.output.tail());
        }
        if let Some(stream) = self.streams.get_mut(&StreamId(head.stream))
            && !head.has(END_STREAM)
            && let Some(increment) = stream.receive_window.due()
        {
            put_window_update(head.stream, increment, self.output.tail());
        }
        self.check_answers(head)
    }

    /// After each answer: a server that does not read answers must not fill our memory.
    fn check_answers(&self, head: Head) -> Result<(), Error> {
        let (got_bytes, max_bytes) = (self.output.len(), self.config.output_bytes_max);
        if got_bytes <= max_bytes {
            return Ok(());
        }
        let problem = Problem::AnswersUnread { got_bytes, max_bytes };
        Err(self.at(head, (ErrorCode::ENHANCE_YOUR_CALM, problem)))
    }

    fn at(&self, head: Head, (code, problem): Violation) -> Error {
        let peer = self.role.peer();
        Error { peer, code, frame: head.kind, stream: head.stream, problem }
    }

    /// A whole frame; its length has been checked.
    fn frame(&mut self, head: Head, payload: &[u8]) -> Result<Option<Event<'static>>, Error> {
        let event = match head.kind {
            Kind::HEADERS => self.headers(head, payload),
            Kind::CONTINUATION => self.continuation(head, payload),
            Kind::RST_STREAM => Ok(self.reset_by_peer(head, payload)),
            Kind::SETTINGS => self.settings(head, payload).map(|()| None),
            Kind::PING => {
                if !head.has(ACK) {
                    frame::put(Kind::PING, ACK, 0, payload, self.output.tail());
                }
                Ok(None)
            }
            Kind::GOAWAY => Ok(Some(self.go_away(payload))),
            Kind::WINDOW_UPDATE => self.window_update(head, payload).map(|()| None),
            Kind(other) => unreachable!("frame type {other} is not collected"),
        };
        let event = event.map_err(|violation| self.at(head, violation))?;
        self.check_answers(head)?;
        Ok(event)
    }

    fn headers(&mut self, head: Head, payload: &[u8]) -> Result<Option<Event<'static>>, Violation> {
        let fragment = fragment(head, payload)?;
        if head.has(END_HEADERS) {
            return self.header_block(head, fragment);
        }
        let wire_bytes = HEAD_BYTES + payload.len();
        self.block = Some(Block { head, bytes: fragment.to_vec(), wire_bytes });
        Ok(None)
    }

    fn continuation(
        &mut self,
        head: Head,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Violation> {
        let mut block = self.block.take().expect("checked with the frame's head");
        block.wire_bytes += HEAD_BYTES + payload.len();
        let max_bytes = self.config.header_block_bytes_max;
        if block.wire_bytes > max_bytes {
            return Err((ErrorCode::ENHANCE_YOUR_CALM, Problem::BlockTooLarge { max_bytes }));
        }
        block.bytes.extend_from_slice(payload);
        if head.has(END_HEADERS) {
            return self.header_block(block.head, &block.bytes);
        }
        self.block = Some(block);
        Ok(None)
    }

    /// Every block is decoded, that of a closed stream too: the table is the connection's.
    fn header_block(
        &mut self,
        head: Head,
        block: &[u8],
    ) -> Result<Option<Event<'static>>, Violation> {
        let fields = self
            .decoder
            .decode(block)
            .map_err(|error| (ErrorCode::COMPRESSION_ERROR, Problem::Hpack(error)))?;
        let id = StreamId(head.stream);
        let end = head.has(END_STREAM);
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(match self.role {
                Role::Client => None,
                #[cfg(feature = "devices")]
                Role::Server => self.opened(id, fields, end),
            });
        };
        let informational = fields.first(":status").is_some_and(|status| status.starts_with(b"1"));
        let event = match stream.phase {
            Phase::Headers if informational && end => {
                return Err((ErrorCode::PROTOCOL_ERROR, Problem::InformationalEnd));
            }
            Phase::Headers if informational => return Ok(None),
            Phase::Headers => {
                stream.phase = Phase::Body;
                Event::Headers { stream: id, fields, end }
            }
            Phase::Body if end => Event::Trailers { stream: id, fields },
            Phase::Body => return Err((ErrorCode::PROTOCOL_ERROR, Problem::TrailersWithoutEnd)),
            #[cfg(feature = "devices")]
            Phase::Ended => return Err((ErrorCode::STREAM_CLOSED, Problem::StreamEnded)),
        };
        if end {
            self.close(id);
        }
        Ok(Some(event))
    }
}

/// The result of collecting a payload.
enum Collected {
    Part,
    Whole(Option<Event<'static>>),
}

/// At most `count` bytes from the front.
fn take<'a>(input: &mut &'a [u8], count: u32) -> &'a [u8] {
    let (taken, rest) = input.split_at(input.len().min(count as usize));
    *input = rest;
    taken
}

/// The lengths that RFC 9113 section 6 requires for each type.
fn check_length(head: Head) -> Result<(), Violation> {
    let (fits, expected) = match head.kind {
        Kind::PRIORITY => (head.length == 5, "5"),
        Kind::RST_STREAM | Kind::WINDOW_UPDATE => (head.length == 4, "4"),
        Kind::SETTINGS if head.has(ACK) => (head.length == 0, "0 with ACK"),
        Kind::SETTINGS => (head.length.is_multiple_of(6), "a multiple of 6"),
        Kind::PING => (head.length == 8, "8"),
        Kind::GOAWAY => (head.length >= 8, "at least 8"),
        _ => (true, ""),
    };
    if fits {
        return Ok(());
    }
    let problem = Problem::Length { got_bytes: head.length, expected };
    Err((ErrorCode::FRAME_SIZE_ERROR, problem))
}

/// The length of the padding of a DATA frame is known.
fn pad(data: Data, padding: u32) -> Result<Reading, Violation> {
    let max_bytes = data.left - 1;
    let Some(left) = max_bytes.checked_sub(padding) else {
        let problem = Problem::Padding { got_bytes: padding, max_bytes };
        return Err((ErrorCode::PROTOCOL_ERROR, problem));
    };
    Ok(Reading::Data(Data { left, padding, ..data }))
}

/// The part of a header block in a HEADERS frame, without padding and priority.
fn fragment(head: Head, payload: &[u8]) -> Result<&[u8], Violation> {
    let mut rest = payload;
    let mut padding = 0;
    let cut = |expected| {
        let problem = Problem::Length { got_bytes: head.length, expected };
        (ErrorCode::FRAME_SIZE_ERROR, problem)
    };
    if head.has(PADDED) {
        let (first, after) = rest.split_first().ok_or(cut("the padding's length"))?;
        (padding, rest) = (usize::from(*first), after);
    }
    if head.has(PRIORITIZED) {
        rest = rest.get(PRIORITY_BYTES..).ok_or(cut("5 bytes of priority"))?;
    }
    let Some(length) = rest.len().checked_sub(padding) else {
        let (got_bytes, max_bytes) = (padding as u32, rest.len() as u32);
        return Err((ErrorCode::PROTOCOL_ERROR, Problem::Padding { got_bytes, max_bytes }));
    };
    Ok(&rest[..length])
}

/// An identifier of two bytes and a value of four.
pub(super) const SETTING_BYTES: usize = 6;
/// The bytes before the block of a HEADERS frame with the PRIORITY flag.
const PRIORITY_BYTES: usize = 5;
