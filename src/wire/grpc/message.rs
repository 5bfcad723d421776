//! gRPC messages in a stream of bytes: a flag (1), a length (4), the message.

use std::fmt;

/// The bytes before each message.
pub const PREFIX_BYTES: usize = 5;

/// A message with its prefix, ready as a request's body.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("messages have a bound far below 4 GiB");
    let mut out = Vec::with_capacity(PREFIX_BYTES + message.len());
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    out
}

/// Assembles messages from a body that is split anywhere. Memory grows with the received bytes, not
/// with the announced length.
#[derive(Debug, Default)]
pub struct Assembler {
    prefix: [u8; PREFIX_BYTES],
    prefix_filled: usize,
    message: Vec<u8>,
}

impl Assembler {
    /// Takes bytes from the front of `input` until a message is complete, or none are left. `max`:
    /// bytes of one message.
    pub fn next(&mut self, input: &mut &[u8], max: usize) -> Result<Option<Vec<u8>>, Unreadable> {
        let missing = PREFIX_BYTES - self.prefix_filled;
        if missing > 0 {
            let part = take(input, missing);
            self.prefix[self.prefix_filled..][..part.len()].copy_from_slice(part);
            self.prefix_filled += part.len();
            if part.len() < missing {
                return Ok(None);
            }
        }
        let expected = self.expected(max)?;
        let part = take(input, expected - self.message.len());
        self.reserve(part.len(), expected);
        self.message.extend_from_slice(part);
        if self.message.len() < expected {
            return Ok(None);
        }
        self.prefix_filled = 0;
        Ok(Some(std::mem::take(&mut self.message)))
    }

    /// Whether a message is incomplete.
    pub fn is_inside(&self) -> bool {
        self.prefix_filled > 0
    }

    /// Bytes of the incomplete message.
    pub fn held_bytes(&self) -> usize {
        self.message.len()
    }

    fn expected(&self, max: usize) -> Result<usize, Unreadable> {
        let [flag, length @ ..] = self.prefix;
        let length = u32::from_be_bytes(length) as usize;
        if flag != 0 {
            return Err(Unreadable::Compressed { flag });
        }
        if length > max {
            return Err(Unreadable::TooLarge { got_bytes: length, max_bytes: max });
        }
        Ok(length)
    }

    /// Doubles as `Vec` would, but never beyond the size of the message.
    fn reserve(&mut self, more: usize, expected: usize) {
        let needed = self.message.len() + more;
        if needed > self.message.capacity() {
            let capacity = needed.max(2 * self.message.capacity()).min(expected);
            self.message.reserve_exact(capacity - self.message.len());
        }
    }
}

/// Why a message cannot be read; the server's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// We accept no encoding, so none may be used.
    Compressed {
        /// The flag.
        flag: u8,
    },
    /// Larger than one message may be.
    TooLarge {
        /// The announced length.
        got_bytes: usize,
        /// The bound.
        max_bytes: usize,
    },
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Compressed { flag } => {
                write!(f, "message has compressed flag {flag}, expected 0")
            }
            Unreadable::TooLarge { got_bytes, max_bytes } => {
                write!(f, "message has {got_bytes} bytes, expected at most {max_bytes}")
            }
        }
    }
}

impl std::error::Error for Unreadable {}

fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(input.len().min(count));
    *input = rest;
    taken
}
