//! The server's end: streams that the client opens, and the answers to them.

use super::receive::Reading;
use super::{Config, Connection, Encoder, Role};
use crate::wire::h2::frame::{self, END_HEADERS, END_STREAM, Kind, PREFACE, setting};
use crate::wire::h2::stream::{Phase, Stream};
use crate::wire::h2::{Error, ErrorCode, Event, Problem, StreamId};
use crate::wire::hpack::FieldList;

impl Connection {
    /// The server's end of a new connection, with SETTINGS in its output. The client's preface is
    /// received first. `header_table_bytes` is not announced: it must be the initial 4,096, because
    /// the client's first header blocks come before it knows another size.
    pub fn serve(config: Config) -> Connection {
        assert_eq!(config.header_table_bytes, 4_096, "RFC 9113 section 6.5.2");
        let mut connection = Connection::of(Role::Server, config);
        connection.reading = Reading::Preface(0);
        connection.greet(&[(setting::MAX_CONCURRENT_STREAMS, config.streams_max as u32)]);
        connection
    }

    /// Answers a request: these fields, the body, these trailers. Without a body the fields and the
    /// trailers are one header block. What of the request is still to come is not wanted. A stream
    /// that has ended is not changed.
    pub fn respond(
        &mut self,
        stream: StreamId,
        fields: &[(&str, &str)],
        body: Vec<u8>,
        trailers: &[(&str, &str)],
    ) {
        if !self.streams.contains_key(&stream) {
            return;
        }
        let mut block = self.header_block_of(fields);
        if self.encoder == Encoder::UpdateDue {
            self.encoder = Encoder::Zero;
        }
        let trailers = self.header_block_of(trailers);
        let is_short = body.is_empty();
        if is_short {
            block.extend_from_slice(&trailers);
        }
        assert!(block.len().max(trailers.len()) <= FRAME_BYTES_MAX, "one frame has a header block");
        let flags = if is_short { END_HEADERS | END_STREAM } else { END_HEADERS };
        frame::put(Kind::HEADERS, flags, stream.0, &block, self.output.tail());
        if let Some(answered) = self.streams.get_mut(&stream) {
            answered.ended = is_short;
            answered.answer(body, trailers);
        }
        self.pump();
    }

    /// Tells the client that no further stream is processed. Those that are open go on.
    pub fn leave(&mut self) {
        if !self.going_away && self.failed.is_none() {
            self.going_away = true;
            self.put_go_away(ErrorCode::NO_ERROR);
        }
    }

    /// Whether preface and SETTINGS of the client have come.
    pub fn is_established(&self) -> bool {
        self.peer.settings_seen
    }

    /// Whether a frame or a header block is incomplete.
    pub fn is_inside(&self) -> bool {
        let between = matches!(self.reading, Reading::Head | Reading::Preface(0));
        !between || !self.partial.is_empty() || self.block.is_some()
    }

    /// Bytes that wait to be sent or to be complete.
    pub fn held_bytes(&self) -> usize {
        let bodies: usize = self.streams.values().map(|stream| stream.unsent().len()).sum();
        let block = self.block.as_ref().map_or(0, super::receive::Block::held_bytes);
        bodies + block + self.partial.len() + self.output.len()
    }

    pub(super) fn preface(&self, seen: usize, input: &mut &[u8]) -> Result<Reading, Error> {
        let expected = &PREFACE[seen..];
        let (part, rest) = input.split_at(input.len().min(expected.len()));
        if !expected.starts_with(part) {
            let (code, problem) = (ErrorCode::PROTOCOL_ERROR, Problem::NotHttp2);
            let peer = self.role.peer();
            return Err(Error { peer, code, frame: Kind::SETTINGS, stream: 0, problem });
        }
        *input = rest;
        let seen = seen + part.len();
        Ok(if seen == PREFACE.len() { Reading::Head } else { Reading::Preface(seen) })
    }

    /// A header block on a stream that is not open: a new one, or one that is closed.
    pub(super) fn opened(
        &mut self,
        stream: StreamId,
        fields: FieldList,
        end: bool,
    ) -> Option<Event<'static>> {
        if stream.0 < self.next_stream {
            return None;
        }
        self.next_stream = stream.0 + 2;
        if self.going_away || self.streams.len() >= self.config.streams_max {
            self.put_reset(stream, ErrorCode::REFUSED_STREAM);
            return None;
        }
        let (send, receive) = (self.peer.window_bytes_initial, self.config.stream_window_bytes);
        self.streams.insert(stream, Stream::unanswered(send, receive));
        if end {
            self.request_ended(stream);
        }
        Some(Event::Headers { stream, fields, end })
    }

    pub(super) fn request_ended(&mut self, stream: StreamId) {
        if let Some(ended) = self.streams.get_mut(&stream) {
            ended.phase = Phase::Ended;
        }
    }

    /// Closes the streams whose answers are written. A request that has not ended is cut off: its
    /// rest is not wanted (RFC 9113 section 8.1).
    pub(super) fn remove_answered(&mut self) {
        let Self { streams, output, .. } = self;
        streams.retain(|id, stream| {
            if stream.ended && stream.phase != Phase::Ended {
                let code = ErrorCode::NO_ERROR.0.to_be_bytes();
                frame::put(Kind::RST_STREAM, 0, id.0, &code, output.tail());
            }
            !stream.ended
        });
    }
}

/// The smallest SETTINGS_MAX_FRAME_SIZE: every client accepts a frame of this length.
const FRAME_BYTES_MAX: usize = frame::FRAME_BYTES_MAX as usize;
