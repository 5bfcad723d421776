//! The connection's state and its sending half.

mod control;
mod receive;
#[cfg(feature = "devices")]
mod serve;

use std::collections::VecDeque;

use super::frame::{
    self, END_HEADERS, END_STREAM, FRAME_BYTES_MAX, Head, Kind, PREFACE, WINDOW_BYTES_INITIAL,
    WINDOW_BYTES_MAX, setting,
};
use super::stream::{Credit, Stream, Window, put_window_update};
use super::{Error, ErrorCode, Event, StreamId};
use crate::limits;
use crate::model::map::Map;
use crate::wire::hpack;
use crate::wire::output::Output;
use receive::{Block, Reading};

/// Our settings, and how many streams we open.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// SETTINGS_HEADER_TABLE_SIZE: zero makes the server's header blocks independent of each other.
    pub header_table_bytes: u32,
    /// SETTINGS_INITIAL_WINDOW_SIZE: unread bytes that the server may send on one stream.
    pub stream_window_bytes: u32,
    /// The same for all streams together; at least 65,535.
    pub connection_window_bytes: u32,
    /// Streams that are open at a time: a client opens no more, if the server allows as many; a
    /// server announces it as SETTINGS_MAX_CONCURRENT_STREAMS.
    pub streams_max: usize,
    /// SETTINGS_MAX_HEADER_LIST_SIZE, in bytes: what is beyond it is dropped.
    pub header_list_bytes_max: usize,
    /// Bytes of one header block on the wire, frame heads of its CONTINUATIONs included.
    pub header_block_bytes_max: usize,
    /// Bytes that wait to be written: DATA fills half of it, answers to frames may fill the rest.
    pub output_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            header_table_bytes: 0,
            stream_window_bytes: limits::CRI_WINDOW_BYTES,
            connection_window_bytes: limits::CRI_WINDOW_BYTES,
            streams_max: limits::CRI_STREAMS_MAX,
            header_list_bytes_max: limits::CRI_HEADER_LIST_BYTES_MAX,
            header_block_bytes_max: limits::CRI_HEADER_BLOCK_BYTES_MAX,
            output_bytes_max: limits::CRI_OUTPUT_BYTES_MAX,
        }
    }
}

/// Why a stream was not opened; nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The limit of open streams, or of waiting output, is reached: try again after events or
    /// [`Connection::sent`].
    Busy,
    /// The server sent GOAWAY, stream ids are used up, or the connection failed: dial again.
    Closing,
    /// The request's header block is larger than one frame of the server; a retry does not help.
    HeadersTooLarge,
}

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// We open the streams.
    Client,
    /// The peer does.
    #[cfg(feature = "devices")]
    Server,
}

impl Role {
    /// The other end, for an error.
    fn peer(self) -> &'static str {
        match self {
            Self::Client => "server",
            #[cfg(feature = "devices")]
            Self::Server => "client",
        }
    }
}

/// One end of an HTTP/2 connection. See the module for its contract.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Config,
    output: Output,
    streams: Map<StreamId, Stream>,
    /// The next stream to open, by us or by a client; above 2^31-1 there is none.
    next_stream: u32,
    peer: Peer,
    send_window: Window,
    receive_window: Credit,
    encoder: Encoder,
    decoder: hpack::Decoder,
    reading: Reading,
    /// The part of a frame head or payload that has arrived.
    partial: Vec<u8>,
    /// The header block that CONTINUATION must complete.
    block: Option<Block>,
    /// Further events of a frame that caused several.
    due: VecDeque<Event<'static>>,
    going_away: bool,
    failed: Option<Error>,
}

/// The peer's SETTINGS.
#[derive(Debug)]
struct Peer {
    settings_seen: bool,
    frame_bytes_max: u32,
    window_bytes_initial: u32,
    streams_max: u32,
}

/// Our encoder never uses the dynamic table, which the peer's decoder need not know. Only if it
/// announces another size than the initial one does RFC 7541 section 4.2 require an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoder {
    /// The initial table size is in effect.
    Initial,
    /// The next header block begins with a size update to zero.
    UpdateDue,
    /// The table has size zero for good.
    Zero,
}

impl Connection {
    /// A connection with preface, SETTINGS and, if its window is larger than the initial one, a
    /// WINDOW_UPDATE in its output. Requests may follow at once, before the server has answered.
    pub fn new(config: Config) -> Connection {
        let mut connection = Connection::of(Role::Client, config);
        connection.output.tail().extend_from_slice(PREFACE);
        connection.greet(&[
            (setting::HEADER_TABLE_SIZE, config.header_table_bytes),
            (setting::ENABLE_PUSH, 0),
        ]);
        connection
    }

    fn of(role: Role, config: Config) -> Connection {
        assert!(i64::from(config.stream_window_bytes) <= WINDOW_BYTES_MAX, "RFC 9113, 6.5.2");
        assert!(i64::from(config.connection_window_bytes) <= WINDOW_BYTES_MAX, "RFC 9113, 6.9.1");
        assert!(config.connection_window_bytes >= WINDOW_BYTES_INITIAL, "it cannot shrink");
        Connection {
            role,
            config,
            output: Output::default(),
            streams: Map::new(),
            next_stream: 1,
            peer: Peer {
                settings_seen: false,
                frame_bytes_max: FRAME_BYTES_MAX,
                window_bytes_initial: WINDOW_BYTES_INITIAL,
                streams_max: u32::MAX,
            },
            send_window: Window(i64::from(WINDOW_BYTES_INITIAL)),
            receive_window: Credit::new(
                config.connection_window_bytes,
                config.connection_window_bytes,
            ),
            encoder: Encoder::Initial,
            decoder: hpack::Decoder::new(
                config.header_table_bytes as usize,
                config.header_list_bytes_max,
            ),
            reading: Reading::Head,
            partial: Vec::new(),
            block: None,
            due: VecDeque::new(),
            going_away: false,
            failed: None,
        }
    }

    /// SETTINGS, those of the role first, and the connection's window.
    fn greet(&mut self, of_role: &[(u16, u32)]) {
        let out = self.output.tail();
        let mut settings = Vec::with_capacity(24);
        let of_both = [
            (setting::INITIAL_WINDOW_SIZE, self.config.stream_window_bytes),
            (setting::MAX_HEADER_LIST_SIZE, self.config.header_list_bytes_max as u32),
        ];
        for (id, value) in of_role.iter().chain(&of_both) {
            settings.extend_from_slice(&id.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        frame::put(Kind::SETTINGS, 0, 0, &settings, out);
        let increment = self.config.connection_window_bytes - WINDOW_BYTES_INITIAL;
        if increment > 0 {
            put_window_update(0, increment, out);
        }
    }

    /// Opens a stream with these header fields, pseudo-header fields first, and this body. As much
    /// as the server allows goes into the output at once; the rest follows later.
    pub fn open(&mut self, fields: &[(&str, &str)], body: Vec<u8>) -> Result<StreamId, Refused> {
        self.can_open()?;
        let block = self.header_block_of(fields);
        if block.len() > self.peer.frame_bytes_max as usize {
            return Err(Refused::HeadersTooLarge);
        }
        if self.encoder == Encoder::UpdateDue {
            self.encoder = Encoder::Zero;
        }
        let stream = StreamId(self.next_stream);
        self.next_stream += 2;
        let flags = if body.is_empty() { END_HEADERS | END_STREAM } else { END_HEADERS };
        frame::put(Kind::HEADERS, flags, stream.0, &block, self.output.tail());
        let (send, receive) = (self.peer.window_bytes_initial, self.config.stream_window_bytes);
        self.streams.insert(stream, Stream::new(body, send, receive));
        self.pump();
        Ok(stream)
    }

    fn header_block_of(&self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::with_capacity(256);
        if self.encoder == Encoder::UpdateDue {
            hpack::encode_table_size(0, &mut block);
        }
        for (name, value) in fields {
            hpack::encode(name, value, &mut block);
        }
        block
    }

    /// Whether a stream could be opened now.
    pub fn can_open(&self) -> Result<(), Refused> {
        if self.is_closing() {
            return Err(Refused::Closing);
        }
        let streams_max = self.config.streams_max.min(self.peer.streams_max as usize);
        if self.streams.len() >= streams_max || self.output.len() >= self.data_bytes_max() {
            return Err(Refused::Busy);
        }
        Ok(())
    }

    /// Whether no stream can ever be opened again here. Open ones may still go on.
    pub fn is_closing(&self) -> bool {
        self.going_away || self.failed.is_some() || i64::from(self.next_stream) > WINDOW_BYTES_MAX
    }

    /// Cancels a stream with RST_STREAM CANCEL; frames that still arrive for it are dropped, and no
    /// event will name it. A stream that has ended is not changed.
    pub fn reset(&mut self, stream: StreamId) {
        if self.streams.remove(&stream).is_some() {
            self.put_reset(stream, ErrorCode::CANCEL);
        }
        self.due.retain(|event| *event != Event::Refused { stream });
    }

    /// The bytes to write to the socket, in order.
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }

    /// `count` bytes of [`Connection::output`] were written.
    pub fn sent(&mut self, count: usize) {
        self.output.sent(count);
        self.pump();
    }

    /// The peer has finished a stream. A request that a server did not read to the end is cut off,
    /// because the stream would stay half open otherwise (RFC 9113 section 8.1).
    fn close(&mut self, stream: StreamId) {
        match self.role {
            Role::Client => {
                if self.streams.remove(&stream).is_some_and(|closed| !closed.ended) {
                    self.put_reset(stream, ErrorCode::CANCEL);
                }
            }
            #[cfg(feature = "devices")]
            Role::Server => self.request_ended(stream),
        }
    }

    fn put_reset(&mut self, stream: StreamId, code: ErrorCode) {
        let code = code.0.to_be_bytes();
        frame::put(Kind::RST_STREAM, 0, stream.0, &code, self.output.tail());
    }

    /// Writes bodies as far as windows and output allow, the oldest stream first.
    fn pump(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let data_bytes_max = self.data_bytes_max();
        for (id, stream) in &mut self.streams {
            while !stream.ended && self.output.len() < data_bytes_max {
                let room = self.send_window.room().min(stream.send_window.room());
                let room = room.min(data_bytes_max - self.output.len());
                let count = stream.unsent().len().min(room).min(self.peer.frame_bytes_max as usize);
                if count == 0 {
                    break;
                }
                let last = count == stream.unsent().len();
                let flags = if last && stream.trailers.is_empty() { END_STREAM } else { 0 };
                let out = self.output.tail();
                Head { length: count as u32, kind: Kind::DATA, flags, stream: id.0 }.put(out);
                out.extend_from_slice(&stream.unsent()[..count]);
                self.send_window.spend(count);
                stream.advance(count);
                if last && !stream.trailers.is_empty() {
                    let flags = END_HEADERS | END_STREAM;
                    frame::put(Kind::HEADERS, flags, id.0, &stream.trailers, self.output.tail());
                }
            }
        }
        match self.role {
            Role::Client => {}
            #[cfg(feature = "devices")]
            Role::Server => self.remove_answered(),
        }
    }

    /// DATA is written while less than this waits; the rest, up to the bound of the output, is
    /// reserved for answers to frames.
    fn data_bytes_max(&self) -> usize {
        self.config.output_bytes_max / 2
    }

    /// Ends the connection: the GOAWAY is the last frame it sends.
    fn fail(&mut self, error: &Error) {
        self.put_go_away(error.code);
        self.failed = Some(error.clone());
        self.streams.clear();
        self.due.clear();
        self.block = None;
        self.partial = Vec::new();
    }

    fn put_go_away(&mut self, code: ErrorCode) {
        // The last stream of the peer that we processed: a server opens none.
        let last_stream: u32 = match self.role {
            Role::Client => 0,
            #[cfg(feature = "devices")]
            Role::Server => self.next_stream.saturating_sub(2),
        };
        let mut payload = Vec::with_capacity(8);
        payload.extend_from_slice(&last_stream.to_be_bytes());
        payload.extend_from_slice(&code.0.to_be_bytes());
        frame::put(Kind::GOAWAY, 0, 0, &payload, self.output.tail());
    }
}
