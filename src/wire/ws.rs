//! WebSocket frames ↔ messages, of both ends (RFC 6455, section 5), for a machine with little
//! memory and an untrusted peer. A client masks what it sends, a server does not.
//!
//! A message that is too large is skipped and reported, and the connection stays: a cloud with one
//! such object pushes it again after every reconnect, so ending the connection would cut the node
//! off for good. Memory grows with the received bytes, never with announced lengths, and skipped
//! bytes are not kept. Text and binary are the same to KubeEdge, and so they are here; the reader
//! of a message checks that it is UTF-8.
//!
//! Not here: the upgrade, and when to answer a ping. No extension is supported: reserved bits are a
//! violation.

use std::fmt;

/// A received message or control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A whole message, of one or several frames.
    Message(Vec<u8>),
    /// A message that was too large was skipped; its size in bytes.
    TooLarge(u64),
    /// To be answered with the same payload.
    Ping(Vec<u8>),
    /// The answer to a ping.
    Pong,
    /// The other end closes: code and reason, if it sent them.
    Close(Option<u16>, String),
}

/// A violation of the protocol: the connection is unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "websocket: {}", self.0)
    }
}

/// Parses frames and assembles messages.
#[derive(Debug)]
pub struct Receiver {
    /// The peer masks what it sends: we are the server.
    masked: bool,
    /// Larger messages are skipped.
    message_bytes_max: usize,
    head: [u8; HEAD_BYTES_MAX],
    head_len: usize,
    /// The frame whose head is known.
    frame: Option<Frame>,
    /// The payload of a control frame.
    control: Vec<u8>,
    message: Option<Partial>,
}

#[derive(Debug)]
struct Frame {
    opcode: u8,
    last: bool,
    left: u64,
    /// Of a client's frame; the byte that is next is masked by the first. Zeros change nothing.
    mask: [u8; 4],
}

/// An incomplete message.
#[derive(Debug)]
enum Partial {
    Kept(Vec<u8>),
    /// So many bytes of it were skipped.
    Passed(u64),
}

impl Receiver {
    /// For a server's frames, after the upgrade.
    pub fn new(message_bytes_max: usize) -> Self {
        Self {
            masked: false,
            message_bytes_max,
            head: [0; HEAD_BYTES_MAX],
            head_len: 0,
            frame: None,
            control: Vec::new(),
            message: None,
        }
    }

    /// For a client's frames, after the upgrade.
    pub fn of_client(message_bytes_max: usize) -> Self {
        Self { masked: true, ..Self::new(message_bytes_max) }
    }

    /// Whether no part of a message is buffered.
    pub fn is_empty(&self) -> bool {
        self.message.is_none()
    }

    /// Takes these bytes up to the end of what they complete. Returns how many it took, and what
    /// they completed; call again with the rest.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Option<Incoming>), Violation> {
        let mut taken = 0;
        loop {
            if self.frame.is_none() {
                taken += self.take_head(&bytes[taken..])?;
            }
            let Some(frame) = &mut self.frame else { return Ok((taken, None)) };
            let rest = &bytes[taken..];
            let count = rest.len().min(usize::try_from(frame.left).unwrap_or(usize::MAX));
            frame.left -= count as u64;
            taken += count;
            let buffer = if frame.opcode >= CLOSE {
                Some(&mut self.control)
            } else {
                match &mut self.message {
                    Some(Partial::Kept(message)) => Some(message),
                    Some(Partial::Passed(passed)) => {
                        *passed += count as u64;
                        None
                    }
                    None => None,
                }
            };
            if let Some(buffer) = buffer {
                let from = buffer.len();
                buffer.extend_from_slice(&rest[..count]);
                unmask(&mut buffer[from..], frame.mask);
            }
            frame.mask.rotate_left(count % 4);
            if frame.left > 0 {
                return Ok((taken, None));
            }
            if let Some(incoming) = self.end_of_frame() {
                return Ok((taken, Some(incoming)));
            }
        }
    }

    fn take_head(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        let mut taken = 0;
        loop {
            let wanted = match self.head[1] & !MASKED {
                _ if self.head_len < 2 => 2,
                SHORT => 4 + self.mask_len(),
                LONG => 10 + self.mask_len(),
                _ => 2 + self.mask_len(),
            };
            if self.head_len == wanted {
                self.head_len = 0;
                self.begin_frame()?;
                return Ok(taken);
            }
            let Some(byte) = bytes.get(taken) else { return Ok(taken) };
            self.head[self.head_len] = *byte;
            self.head_len += 1;
            taken += 1;
        }
    }

    fn mask_len(&self) -> usize {
        if self.masked { MASK_BYTES } else { 0 }
    }

    fn begin_frame(&mut self) -> Result<(), Violation> {
        let [first, second, rest @ ..] = self.head;
        let (last, opcode) = (first & 0x80 != 0, first & 0x0f);
        let refuse = |why: String| Err(Violation(why));
        if first & 0x70 != 0 {
            return refuse(format!("got the head {first:#04x}, expected no reserved bit"));
        }
        match second & MASKED != 0 {
            true if !self.masked => {
                return refuse("got a masked frame, expected none from a server".to_owned());
            }
            false if self.masked => {
                return refuse("got an unmasked frame, expected a mask from a client".to_owned());
            }
            true | false => {}
        }
        let (left, mask) = match second & !MASKED {
            SHORT => (u64::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..6]),
            LONG => {
                let (length, mask) = rest.split_at(8);
                (u64::from_be_bytes(length.try_into().expect("eight bytes")), mask)
            }
            short => (u64::from(short), &rest[..4]),
        };
        let mask = if self.masked { mask.try_into().expect("four bytes") } else { [0; MASK_BYTES] };
        let within = self.message.is_some();
        match opcode {
            CONTINUATION if !within => {
                return refuse(
                    "got a continuation, expected the beginning of a message".to_owned(),
                );
            }
            TEXT | BINARY if within => {
                return refuse("got another message, expected the rest of the first".to_owned());
            }
            CONTINUATION | TEXT | BINARY => self.make_room(left)?,
            CLOSE | PING | PONG if !last || left > CONTROL_BYTES_MAX => {
                return refuse(format!("got a control frame of {left} bytes or in parts"));
            }
            CLOSE | PING | PONG => self.control.clear(),
            _ => return refuse(format!("got the opcode {opcode:#x}, expected one that is known")),
        }
        self.frame = Some(Frame { opcode, last, left, mask });
        Ok(())
    }

    /// Returns whether the message that continues with so many bytes is kept.
    fn make_room(&mut self, left: u64) -> Result<(), Violation> {
        let message = self.message.get_or_insert_with(|| Partial::Kept(Vec::new()));
        let came = match message {
            Partial::Kept(message) => message.len() as u64,
            Partial::Passed(passed) => *passed,
        };
        let size = came.saturating_add(left);
        let bound = PASSED_TIMES_MAX * self.message_bytes_max as u64;
        if size > bound {
            return Err(Violation(format!(
                "got a message of {size} bytes, expected {bound} at most"
            )));
        }
        if size > self.message_bytes_max as u64 {
            *message = Partial::Passed(came);
        }
        Ok(())
    }

    fn end_of_frame(&mut self) -> Option<Incoming> {
        let frame = self.frame.take().expect("a frame ends");
        match frame.opcode {
            PING => Some(Incoming::Ping(std::mem::take(&mut self.control))),
            PONG => Some(Incoming::Pong),
            CLOSE => Some(close(&self.control)),
            _ if !frame.last => None,
            _ => match self.message.take().expect("a frame of a message ends") {
                Partial::Kept(message) => Some(Incoming::Message(message)),
                Partial::Passed(size) => Some(Incoming::TooLarge(size)),
            },
        }
    }
}

fn close(payload: &[u8]) -> Incoming {
    match payload {
        [high, low, reason @ ..] => {
            let reason = String::from_utf8_lossy(reason).into_owned();
            Incoming::Close(Some(u16::from_be_bytes([*high, *low])), reason)
        }
        _ => Incoming::Close(None, String::new()),
    }
}

/// The kind of a sent frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole message.
    Text,
    /// Requests a [`Kind::Pong`] with the same payload, of at most 125 bytes.
    Ping,
    /// Answers a ping.
    Pong,
    /// We are closing; the payload is a code of two bytes.
    Close,
}

/// Writes one frame, masked as a client's must be. `mask`: fresh and unpredictable for each.
pub fn write(kind: Kind, payload: &[u8], mask: [u8; 4], to: &mut Vec<u8>) {
    write_head(kind, payload.len(), MASKED, to);
    to.extend_from_slice(&mask);
    to.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

/// Writes one frame as a server does: without a mask.
pub fn write_plain(kind: Kind, payload: &[u8], to: &mut Vec<u8>) {
    write_head(kind, payload.len(), 0, to);
    to.extend_from_slice(payload);
}

/// Writes a binary message as a server does: the number of a channel, then its bytes.
#[cfg(feature = "runtime")]
pub fn write_channel(channel: u8, bytes: &[u8], to: &mut Vec<u8>) {
    write_length(BINARY, 1 + bytes.len(), 0, to);
    to.push(channel);
    to.extend_from_slice(bytes);
}

fn write_head(kind: Kind, length: usize, masked: u8, to: &mut Vec<u8>) {
    let opcode = match kind {
        Kind::Text => TEXT,
        Kind::Ping => PING,
        Kind::Pong => PONG,
        Kind::Close => CLOSE,
    };
    write_length(opcode, length, masked, to);
}

fn write_length(opcode: u8, length: usize, masked: u8, to: &mut Vec<u8>) {
    to.push(0x80 | opcode);
    match length {
        0..126 => to.push(masked | length as u8),
        126..65_536 => {
            to.push(masked | SHORT);
            to.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            to.push(masked | LONG);
            to.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

fn unmask(bytes: &mut [u8], mask: [u8; MASK_BYTES]) {
    if mask != [0; MASK_BYTES] {
        let (chunks, rest) = bytes.as_chunks_mut::<MASK_BYTES>();
        for word in chunks {
            *word = (u32::from_ne_bytes(*word) ^ u32::from_ne_bytes(mask)).to_ne_bytes();
        }
        rest.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }
}

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
/// This one and those above are control frames.
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// In a head's second byte.
const MASKED: u8 = 0x80;
/// The length is in the two bytes after it.
const SHORT: u8 = 0x7e;
/// The length is in the eight bytes after it.
const LONG: u8 = 0x7f;
const MASK_BYTES: usize = 4;
/// With a mask.
const HEAD_BYTES_MAX: usize = 14;
/// Section 5.5.
const CONTROL_BYTES_MAX: u64 = 125;
/// Up to this many times the largest message are skipped. Lists of whole namespaces may be that
/// large; anything longer is not a message.
const PASSED_TIMES_MAX: u64 = 16;
