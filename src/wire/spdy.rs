//! SPDY/3.1 frames of a client, as far as the streaming servers of container runtimes speak it:
//! streams of bytes over one connection, without flow control.
//!
//! The one thing that is odd is the header blocks, which are one zlib stream per direction. A block
//! is written as stored data, which any zlib reader takes, and those of the server are skipped:
//! they are always empty. So there is no compression here.
//!
//! Data is passed on as it arrives, and of a control frame its first bytes are kept, so no peer
//! decides how much memory a connection takes. What is not known is skipped by its length.
//!
//! Not here: the upgrade, and what the streams are for ([`exec`], [`forward`]).

pub mod exec;
pub mod forward;

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
        }
    }
}

/// One connection, seen from its client.
#[derive(Debug, Default)]
pub struct Client {
    /// Bytes to send.
    output: Vec<u8>,
    /// Streams that were opened: the ids are the first odd numbers.
    opened: u32,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    frame: Option<Frame>,
}

/// A frame whose head is known.
#[derive(Debug)]
struct Frame {
    kind: FrameKind,
    flags: u8,
    left: usize,
}

#[derive(Debug)]
enum FrameKind {
    Data(u32),
    Control {
        kind: u16,
        /// The first bytes of the payload: all that is needed of any frame.
        payload: [u8; 8],
        len: usize,
    },
}

impl Client {
    /// Opens a stream with these headers, whose names are in lower case; returns its id. `ended`:
    /// nothing will be sent on it.
    pub fn open(&mut self, headers: &[(&str, &str)], ended: bool) -> u32 {
        let id = self.opened * 2 + 1;
        let is_first = self.opened == 0;
        self.opened += 1;
        let mut list = Vec::new();
        put_u32(headers.len(), &mut list);
        for (name, value) in headers {
            for text in [name, value] {
                put_u32(text.len(), &mut list);
                list.extend_from_slice(text.as_bytes());
            }
        }
        let length = u16::try_from(list.len()).expect("our headers are short");
        let mut payload = [id.to_be_bytes(), [0; 4]].concat();
        // Priority and slot.
        payload.extend_from_slice(&[0, 0]);
        if is_first {
            payload.extend_from_slice(ZLIB_HEAD);
        }
        payload.push(STORED);
        payload.extend_from_slice(&length.to_le_bytes());
        payload.extend_from_slice(&(!length).to_le_bytes());
        payload.extend_from_slice(&list);
        payload.extend_from_slice(FLUSH);
        self.control(SYN_STREAM, if ended { FIN } else { 0 }, &payload);
        id
    }

    /// Sends bytes on a stream.
    pub fn data(&mut self, stream: u32, bytes: &[u8]) {
        for piece in bytes.chunks(SPDY_DATA_BYTES) {
            self.data_frame(stream, 0, piece);
        }
    }

    /// Sends that nothing follows on a stream.
    pub fn end(&mut self, stream: u32) {
        self.data_frame(stream, FIN, b"");
    }

    /// Gives up a stream.
    pub fn cancel(&mut self, stream: u32) {
        self.reset(stream, CANCEL);
    }

    /// The bytes that are to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// So many of them were sent.
    pub fn sent(&mut self, count: usize) {
        self.output.drain(..count);
    }

    /// Takes these bytes up to the end of what they complete. Returns how many it took, and what
    /// they completed; call again with the rest, until all are taken and nothing comes.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(usize, Option<Incoming<'a>>), Violation> {
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
            match &mut frame.kind {
                FrameKind::Data(id) if !piece.is_empty() => {
                    return Ok((taken, Some(Incoming::Data(*id, piece))));
                }
                FrameKind::Data(_) => {}
                FrameKind::Control { payload, len, .. } => {
                    let kept = count.min(payload.len() - *len);
                    payload[*len..*len + kept].copy_from_slice(&piece[..kept]);
                    *len += kept;
                }
            }
            if frame.left > 0 {
                return Ok((taken, None));
            }
            if let Some(incoming) = self.end_of_frame()? {
                return Ok((taken, Some(incoming)));
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
        let kind = if word & CONTROL == 0 {
            FrameKind::Data(word)
        } else {
            let version = (word & !CONTROL) >> 16;
            if version != VERSION {
                return Err(Violation::Version(version as u16));
            }
            FrameKind::Control { kind: word as u16, payload: [0; 8], len: 0 }
        };
        self.frame = Some(Frame { kind, flags, left });
        Ok(())
    }

    fn end_of_frame(&mut self) -> Result<Option<Incoming<'static>>, Violation> {
        let frame = self.frame.take().expect("a frame ends");
        let ends = frame.flags & FIN != 0;
        let (kind, payload, len) = match frame.kind {
            FrameKind::Data(id) => return Ok(ends.then_some(Incoming::End(id))),
            FrameKind::Control { kind, payload, len } => (kind, payload, len),
        };
        let word = |at: usize| {
            let bytes = payload[..len].get(at..at + 4).ok_or(Violation::Short(kind, len))?;
            Ok(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
        };
        // Ids have 31 bits.
        let id = || word(0).map(|id| id & !CONTROL);
        Ok(match kind {
            // These servers open none.
            SYN_STREAM => {
                let id = id()?;
                self.reset(id, REFUSED_STREAM);
                None
            }
            SYN_REPLY => {
                let id = id()?;
                ends.then_some(Incoming::End(id))
            }
            RST_STREAM => Some(Incoming::Reset(id()?, word(4)?)),
            PING => {
                let id = word(0)?;
                // Odd ones would answer ours, of which there are none.
                if id % 2 == 0 {
                    self.control(PING, 0, &id.to_be_bytes());
                }
                None
            }
            GOAWAY => {
                id()?;
                Some(Incoming::GoAway(word(4)?))
            }
            _ => None,
        })
    }

    fn reset(&mut self, stream: u32, status: u32) {
        self.control(RST_STREAM, 0, &[stream.to_be_bytes(), status.to_be_bytes()].concat());
    }

    fn control(&mut self, kind: u16, flags: u8, payload: &[u8]) {
        let word = CONTROL | VERSION << 16 | u32::from(kind);
        self.frame(word, flags, payload);
    }

    fn data_frame(&mut self, stream: u32, flags: u8, payload: &[u8]) {
        self.frame(stream, flags, payload);
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
