//! SPDY/3.1 frames, as far as the streaming servers of container runtimes and their clients speak
//! it: streams of bytes over one connection, without flow control.
//!
//! The one thing that is odd is the header blocks, which are one zlib stream per direction. A block
//! is written as stored data, which any zlib reader takes, so nothing is compressed here. A client
//! skips the blocks of its server: they are always empty. A [`server`] reads those of its client.
//!
//! Data is passed on as it arrives, and of a control frame its first bytes are kept, so no peer
//! decides how much memory a connection takes. What is not known is skipped by its length.
//!
//! Not here: the upgrade, and what the streams are for ([`exec`], [`forward`]).

pub mod exec;
pub mod forward;
#[cfg(feature = "runtime")]
pub mod server;

use std::fmt;

use crate::limits::{SPDY_DATA_BYTES, SPDY_FRAME_BYTES_MAX};

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// Bytes of this stream; not empty.
    Data(u32, &'a [u8]),
    /// The server sends no more on this stream.
    End(u32),
    /// The server gave this stream up, with this status.
    Reset(u32, u32),
    /// The server opens no more streams, with this status; it closes soon.
    GoAway(u32),
}

/// A violation of the protocol: the connection is unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A control frame of this version.
    Version(u16),
    /// A frame of more than [`SPDY_FRAME_BYTES_MAX`].
    Size(usize),
    /// A control frame of this type that has too few bytes for it.
    Short(u16, usize),
    /// A stream was opened with this id, and it must be odd and above the other.
    #[cfg(feature = "runtime")]
    Id(u32, u32),
    /// What is wrong with a header block.
    #[cfg(feature = "runtime")]
    Headers(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(got) => write!(f, "SPDY: got a frame of version {got}, expected 3"),
            Self::Size(got) => {
                write!(f, "SPDY: got a frame of {got} bytes, expected at most ")?;
                write!(f, "{SPDY_FRAME_BYTES_MAX}")
            }
            Self::Short(kind, got) => {
                write!(f, "SPDY: got {got} bytes in a frame of type {kind}, expected more")
            }
            #[cfg(feature = "runtime")]
            Self::Id(got, last) => {
                write!(f, "SPDY: got a stream with the id {got}, expected an odd one above {last}")
            }
            #[cfg(feature = "runtime")]
            Self::Headers(why) => write!(f, "SPDY: headers: {why}"),
        }
    }
}

/// One connection, seen from its client.
#[derive(Debug)]
pub struct Client {
    frames: Frames,
    /// Streams that were opened: the ids are the first odd numbers.
    opened: u32,
}

/// The frames of one end.
#[derive(Debug)]
struct Frames {
    /// Bytes to send.
    output: Vec<u8>,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    frame: Option<Frame>,
    /// So many bytes of a control frame are kept; the others are skipped.
    kept_max: usize,
    /// A header block was sent.
    has_headers: bool,
}

/// A frame whose head is known.
#[derive(Debug)]
struct Frame {
    /// A stream, or with [`CONTROL`] a kind.
    word: u32,
    flags: u8,
    left: usize,
    /// The first bytes of a control frame.
    payload: Vec<u8>,
}

/// What frames have completed.
enum Received<'a> {
    Data(DataFrame<'a>),
    Control(Control),
}

/// What a data frame means, for both ends.
enum DataFrame<'a> {
    Bytes(u32, &'a [u8]),
    End(u32),
}

impl<'a> From<DataFrame<'a>> for Incoming<'a> {
    fn from(frame: DataFrame<'a>) -> Self {
        match frame {
            DataFrame::Bytes(id, bytes) => Self::Data(id, bytes),
            DataFrame::End(id) => Self::End(id),
        }
    }
}

struct Control {
    kind: u16,
    flags: u8,
    /// As many bytes as are kept.
    payload: Vec<u8>,
}

impl Control {
    fn word(&self, at: usize) -> Result<u32, Violation> {
        let short = Violation::Short(self.kind, self.payload.len());
        let bytes = self.payload.get(at..at + 4).ok_or(short)?;
        Ok(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }

    /// Ids have 31 bits.
    fn id(&self) -> Result<u32, Violation> {
        self.word(0).map(|id| id & !CONTROL)
    }

    fn ends(&self) -> bool {
        self.flags & FIN != 0
    }
}

impl Default for Client {
    fn default() -> Self {
        // All that is needed of any frame.
        Self { frames: Frames::new(8), opened: 0 }
    }
}

impl Client {
    /// Opens a stream with these headers, whose names are in lower case; returns its id. `ended`:
    /// nothing will be sent on it.
    pub fn open(&mut self, headers: &[(&str, &str)], ended: bool) -> u32 {
        let id = self.opened * 2 + 1;
        self.opened += 1;
        // The stream it belongs to, priority and slot.
        let mut payload = [&id.to_be_bytes()[..], &[0; 6]].concat();
        self.frames.put_headers(headers, &mut payload);
        self.frames.control(SYN_STREAM, if ended { FIN } else { 0 }, &payload);
        id
    }

    /// Sends bytes on a stream.
    pub fn data(&mut self, stream: u32, bytes: &[u8]) {
        self.frames.data(stream, bytes);
    }

    /// Sends that nothing follows on a stream.
    pub fn end(&mut self, stream: u32) {
        self.frames.end(stream);
    }

    /// Gives up a stream.
    pub fn cancel(&mut self, stream: u32) {
        self.frames.reset(stream, CANCEL);
    }

    /// The bytes that are to be sent.
    pub fn output(&self) -> &[u8] {
        &self.frames.output
    }

    /// So many of them were sent.
    pub fn sent(&mut self, count: usize) {
        self.frames.output.drain(..count);
    }

    /// Takes these bytes up to the end of what they complete. Returns how many it took, and what
    /// they completed; call again with the rest, until all are taken and nothing comes.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(usize, Option<Incoming<'a>>), Violation> {
        self.frames.receive(bytes, client_control)
    }
}

fn client_control<'a>(
    frames: &mut Frames,
    control: &Control,
) -> Result<Option<Incoming<'a>>, Violation> {
    Ok(match control.kind {
        // These servers open none.
        SYN_STREAM => {
            frames.reset(control.id()?, REFUSED_STREAM);
            None
        }
        SYN_REPLY => {
            let id = control.id()?;
            control.ends().then_some(Incoming::End(id))
        }
        RST_STREAM => Some(Incoming::Reset(control.id()?, control.word(4)?)),
        PING => {
            frames.pong(control.word(0)?, 0);
            None
        }
        GOAWAY => {
            control.id()?;
            Some(Incoming::GoAway(control.word(4)?))
        }
        _ => None,
    })
}

impl Frames {
    fn new(kept_max: usize) -> Self {
        let (output, head, frame) = (Vec::new(), [0; HEAD_BYTES], None);
        Self { output, head, head_len: 0, frame, kept_max, has_headers: false }
    }

    /// Takes these bytes up to the end of what they complete. `control` says what a control frame
    /// means at this end, and may answer it.
    fn receive<'a, I: From<DataFrame<'a>>>(
        &mut self,
        bytes: &'a [u8],
        mut control: impl FnMut(&mut Self, &Control) -> Result<Option<I>, Violation>,
    ) -> Result<(usize, Option<I>), Violation> {
        let mut taken = 0;
        loop {
            let (count, received) = self.take_frame(&bytes[taken..])?;
            taken += count;
            let incoming = match received {
                None => return Ok((taken, None)),
                Some(Received::Data(frame)) => Some(frame.into()),
                Some(Received::Control(frame)) => control(self, &frame)?,
            };
            if incoming.is_some() {
                return Ok((taken, incoming));
            }
        }
    }

    fn take_frame<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(usize, Option<Received<'a>>), Violation> {
        let mut taken = 0;
        loop {
            if self.frame.is_none() {
                taken += self.take_head(&bytes[taken..])?;
            }
            let Some(frame) = &mut self.frame else { return Ok((taken, None)) };
            let rest = &bytes[taken..];
            let count = frame.left.min(rest.len());
            let piece = &rest[..count];
            frame.left -= count;
            taken += count;
            if frame.word & CONTROL != 0 {
                let kept = count.min(self.kept_max - frame.payload.len());
                frame.payload.extend_from_slice(&piece[..kept]);
            } else if !piece.is_empty() {
                let bytes = DataFrame::Bytes(frame.word, piece);
                return Ok((taken, Some(Received::Data(bytes))));
            }
            if frame.left > 0 {
                return Ok((taken, None));
            }
            let Frame { word, flags, payload, .. } = self.frame.take().expect("a frame ends");
            if word & CONTROL != 0 {
                let control = Control { kind: word as u16, flags, payload };
                return Ok((taken, Some(Received::Control(control))));
            }
            if flags & FIN != 0 {
                return Ok((taken, Some(Received::Data(DataFrame::End(word)))));
            }
        }
    }

    fn take_head(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        let count = bytes.len().min(HEAD_BYTES - self.head_len);
        self.head[self.head_len..self.head_len + count].copy_from_slice(&bytes[..count]);
        self.head_len += count;
        if self.head_len == HEAD_BYTES {
            self.head_len = 0;
            self.begin_frame()?;
        }
        Ok(count)
    }

    fn begin_frame(&mut self) -> Result<(), Violation> {
        let [first @ .., flags, high, middle, low] = self.head;
        let left = u32::from_be_bytes([0, high, middle, low]) as usize;
        if left > SPDY_FRAME_BYTES_MAX {
            return Err(Violation::Size(left));
        }
        let word = u32::from_be_bytes(first);
        let version = (word & !CONTROL) >> 16;
        if word & CONTROL != 0 && version != VERSION {
            return Err(Violation::Version(version as u16));
        }
        self.frame = Some(Frame { word, flags, left, payload: Vec::new() });
        Ok(())
    }

    /// Appends a block of headers: stored data of the one zlib stream, and its flush.
    fn put_headers(&mut self, headers: &[(&str, &str)], to: &mut Vec<u8>) {
        let mut list = Vec::new();
        put_u32(headers.len(), &mut list);
        for (name, value) in headers {
            for text in [name, value] {
                put_u32(text.len(), &mut list);
                list.extend_from_slice(text.as_bytes());
            }
        }
        let length = u16::try_from(list.len()).expect("our headers are short");
        if !std::mem::replace(&mut self.has_headers, true) {
            to.extend_from_slice(ZLIB_HEAD);
        }
        to.push(STORED);
        to.extend_from_slice(&length.to_le_bytes());
        to.extend_from_slice(&(!length).to_le_bytes());
        to.extend_from_slice(&list);
        to.extend_from_slice(FLUSH);
    }

    fn data(&mut self, stream: u32, bytes: &[u8]) {
        for piece in bytes.chunks(SPDY_DATA_BYTES) {
            self.frame(stream, 0, piece);
        }
    }

    fn end(&mut self, stream: u32) {
        self.frame(stream, FIN, b"");
    }

    fn reset(&mut self, stream: u32, status: u32) {
        self.control(RST_STREAM, 0, &[stream.to_be_bytes(), status.to_be_bytes()].concat());
    }

    /// Answers a ping whose number says that it is the other end's. Others would answer ours, of
    /// which there are none.
    fn pong(&mut self, id: u32, parity: u32) {
        if id % 2 == parity {
            self.control(PING, 0, &id.to_be_bytes());
        }
    }

    fn control(&mut self, kind: u16, flags: u8, payload: &[u8]) {
        self.frame(CONTROL | VERSION << 16 | u32::from(kind), flags, payload);
    }

    fn frame(&mut self, word: u32, flags: u8, payload: &[u8]) {
        self.output.extend_from_slice(&word.to_be_bytes());
        let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
        self.output.push(flags);
        self.output.extend_from_slice(&length);
        self.output.extend_from_slice(payload);
    }
}

fn put_u32(value: usize, to: &mut Vec<u8>) {
    to.extend_from_slice(&(value as u32).to_be_bytes());
}

const HEAD_BYTES: usize = 8;
/// In a frame's first word: a control frame.
const CONTROL: u32 = 1 << 31;
const VERSION: u32 = 3;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;

/// In a frame's flags: nothing follows on this stream.
const FIN: u8 = 1;

/// Of RST_STREAM: the client may try again; these servers need not.
const REFUSED_STREAM: u32 = 3;
/// Of RST_STREAM: the stream is no longer needed.
const CANCEL: u32 = 5;

/// Deflate with any window, no preset dictionary (RFC 1950).
const ZLIB_HEAD: &[u8] = &[0x78, 0x01];
/// A stored block that is not the last (RFC 1951 section 3.2.4).
const STORED: u8 = 0;
/// An empty stored block. Go's reader returns a header block only once one of these follows it.
const FLUSH: &[u8] = &[STORED, 0, 0, 0xff, 0xff];
