//! Frames: a head of ten bytes, then data.

/// The bytes of a head.
pub const HEAD_BYTES: usize = 10;

/// The type of a request.
pub const REQUEST: u8 = 1;
/// The type of a response.
pub const RESPONSE: u8 = 2;
/// The type of a message of a stream.
pub const DATA: u8 = 3;

/// The flag of the sender's last frame of a stream.
pub const REMOTE_CLOSED: u8 = 1;
/// The flag of a request that data follows.
pub const REMOTE_OPEN: u8 = 2;
/// The flag of a frame of type [`DATA`] without a message.
pub const NO_DATA: u8 = 4;

/// A whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub stream: u32,
    pub kind: u8,
    pub flags: u8,
    pub data: Vec<u8>,
}

/// What was assembled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Frame(Frame),
    /// The head of a frame that is too long: its data is skipped as it arrives.
    TooLarge {
        stream: u32,
        kind: u8,
        got_bytes: usize,
    },
}

/// Appends a frame.
pub fn put(out: &mut Vec<u8>, stream: u32, kind: u8, flags: u8, data: &[u8]) {
    let length = u32::try_from(data.len()).expect("messages have a bound far below 4 GiB");
    out.reserve(HEAD_BYTES + data.len());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(data);
}

/// Assembles frames from bytes that are split anywhere. Memory grows with the received bytes, not
/// with the announced length.
#[derive(Debug, Default)]
pub struct Assembler {
    head: [u8; HEAD_BYTES],
    head_filled: usize,
    data: Vec<u8>,
    /// Bytes of a frame that is too long, still to arrive.
    skip_bytes: usize,
}

impl Assembler {
    /// Takes bytes from the front of `input` until something is complete, or none are left. `max`:
    /// bytes of data of one frame.
    pub fn next(&mut self, input: &mut &[u8], max: usize) -> Option<Item> {
        let skipped = take(input, self.skip_bytes).len();
        self.skip_bytes -= skipped;
        let missing = HEAD_BYTES - self.head_filled;
        if missing > 0 {
            let part = take(input, missing);
            self.head[self.head_filled..][..part.len()].copy_from_slice(part);
            self.head_filled += part.len();
            if part.len() < missing {
                return None;
            }
        }
        let number = |at: usize| {
            u32::from_be_bytes(self.head[at..at + 4].try_into().expect("four bytes of a head"))
        };
        let (expected, stream) = (number(0) as usize, number(4));
        let [.., kind, flags] = self.head;
        if expected > max {
            self.head_filled = 0;
            self.skip_bytes = expected;
            return Some(Item::TooLarge { stream, kind, got_bytes: expected });
        }
        let part = take(input, expected - self.data.len());
        self.reserve(part.len(), expected);
        self.data.extend_from_slice(part);
        if self.data.len() < expected {
            return None;
        }
        self.head_filled = 0;
        Some(Item::Frame(Frame { stream, kind, flags, data: std::mem::take(&mut self.data) }))
    }

    /// Bytes of the incomplete frame's data.
    pub fn held_bytes(&self) -> usize {
        self.data.len()
    }

    /// Doubles as `Vec` would, but never beyond the size of the data.
    fn reserve(&mut self, more: usize, expected: usize) {
        let needed = self.data.len() + more;
        if needed > self.data.capacity() {
            let capacity = needed.max(2 * self.data.capacity()).min(expected);
            self.data.reserve_exact(capacity - self.data.len());
        }
    }
}

fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(input.len().min(count));
    *input = rest;
    taken
}
