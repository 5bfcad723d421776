//! Deflate (RFC 1951) without a dependency, and gzip (RFC 1952) on top of it.
//!
//! A window, the room for what is unpacked at once, and two tables: nothing grows with the input.
//! What stands before the first block, or between two streams, is read with [`Inflate::byte`].
//!
//! Concatenated members of gzip are one text, as gzip(1) reads them. The CRC-32 of a member is not
//! compared: the reader's owner compares SHA-256 of all that is read, and unpacks nothing without.

use std::io::{self, ErrorKind, Read};

/// One deflate stream after the other. Its input is lent to each method, and read ahead: it must be
/// the same one as long as a stream has not ended, or come to its end between two methods.
pub struct Inflate {
    bits: Bits,
    part: Part,
    /// The last bytes that were unpacked; a match refers to [`WINDOW`] of them.
    out: Vec<u8>,
    /// Bytes that are unpacked at once, beyond the window.
    chunk: usize,
    /// Of this stream, until they are more than any distance.
    unpacked: usize,
    literals: Code,
    distances: Code,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Block { last: bool },
    Stored { left: usize, last: bool },
    Coded { last: bool },
}

/// Why [`Inflate::blocks`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// There is no more room: [`Inflate::make_room`].
    Full,
    /// The input has come to its end, between two blocks and at a whole byte.
    Input,
    /// The last block has ended.
    Last,
}

/// The longest distance of a match.
const WINDOW: usize = 32 << 10;
/// Bytes that [`Gunzip`] unpacks at once.
const CHUNK: usize = 64 << 10;
const MATCH_MAX: usize = 258;

fn wrong(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("deflate: {why}"))
}

impl Inflate {
    /// Reads so many bytes of its input at once, and unpacks so many.
    pub fn new(input_bytes: usize, chunk: usize) -> Self {
        assert!(chunk > MATCH_MAX, "a match has room");
        Self {
            bits: Bits::new(input_bytes),
            part: Part::Block { last: false },
            out: Vec::with_capacity(WINDOW + chunk),
            chunk,
            unpacked: 0,
            literals: Code::new(),
            distances: Code::new(),
        }
    }

    /// Begins a stream; its matches may refer to these bytes.
    pub fn begin(&mut self, dictionary: &[u8]) {
        self.part = Part::Block { last: false };
        self.unpacked = 0;
        self.out.extend_from_slice(dictionary);
        self.count(dictionary.len());
    }

    /// Forgets what is beyond the window; what was unpacked last remains in front.
    pub fn make_room(&mut self) {
        let gone = self.out.len().saturating_sub(WINDOW);
        self.out.drain(..gone);
    }

    /// What was unpacked last, and before it what [`Inflate::make_room`] has left.
    pub fn out(&self) -> &[u8] {
        &self.out
    }

    /// From so many bytes on there is no more room.
    fn full(&self) -> usize {
        WINDOW + self.chunk - MATCH_MAX
    }

    /// Unpacks until there is no more room, or no more input.
    pub fn blocks(&mut self, from: &mut dyn Read) -> io::Result<Paused> {
        while self.out.len() < self.full() {
            match self.part {
                Part::Block { last: true } => return Ok(Paused::Last),
                Part::Block { last: false } if self.bits.is_end(from)? => return Ok(Paused::Input),
                Part::Block { last: false } => self.block(from)?,
                Part::Stored { left: 0, last } => self.part = Part::Block { last },
                Part::Stored { left, last } => {
                    let room = WINDOW + self.chunk - self.out.len();
                    let count = self.bits.copy(from, &mut self.out, left.min(room))?;
                    self.count(count);
                    self.part = Part::Stored { left: left - count, last };
                }
                Part::Coded { last } => {
                    if self.coded(from)? {
                        self.part = Part::Block { last };
                    }
                }
            }
        }
        Ok(Paused::Full)
    }

    /// The rest of this byte is skipped.
    pub fn align(&mut self) {
        self.bits.align();
    }

    /// At a whole byte: the next one.
    pub fn byte(&mut self, from: &mut dyn Read) -> io::Result<u8> {
        self.bits.byte(from)
    }

    /// At a whole byte: whether there is no other.
    pub fn is_end(&mut self, from: &mut dyn Read) -> io::Result<bool> {
        self.bits.is_end(from)
    }

    fn count(&mut self, bytes: usize) {
        self.unpacked = (self.unpacked + bytes).min(WINDOW);
    }

    /// RFC 1951 section 3.2.3.
    fn block(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let last = self.bits.take(from, 1)? == 1;
        match self.bits.take(from, 2)? {
            0 => {
                self.bits.align();
                let (length, check) = (self.bits.take(from, 16)?, self.bits.take(from, 16)?);
                if length != check ^ 0xffff {
                    return Err(wrong("got a block without its length"));
                }
                self.part = Part::Stored { left: length as usize, last };
                return Ok(());
            }
            1 => {
                let mut lengths = [8; 288];
                lengths[144..256].fill(9);
                lengths[256..280].fill(7);
                self.literals.set(&lengths)?;
                self.distances.set(&[5; 32])?;
            }
            2 => self.codes(from)?,
            _ => return Err(wrong("got a block of an unknown type")),
        }
        self.part = Part::Coded { last };
        Ok(())
    }

    /// RFC 1951 section 3.2.7.
    fn codes(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let literals = self.bits.take(from, 5)? as usize + 257;
        let distances = self.bits.take(from, 5)? as usize + 1;
        let count = self.bits.take(from, 4)? as usize + 4;
        if literals > 286 || distances > 30 {
            return Err(wrong("got more codes than there are"));
        }
        let mut lengths = [0; 19];
        for at in &ORDER[..count] {
            lengths[usize::from(*at)] = self.bits.take(from, 3)? as u8;
        }
        self.literals.set(&lengths)?;
        let mut lengths = [0; 286 + 30];
        let mut at = 0;
        while at < literals + distances {
            let symbol = self.literals.next(&mut self.bits, from)?;
            let (length, times) = match symbol {
                0..=15 => (symbol as u8, 1),
                16 if at == 0 => return Err(wrong("got a repetition of nothing")),
                16 => (lengths[at - 1], 3 + self.bits.take(from, 2)?),
                17 => (0, 3 + self.bits.take(from, 3)?),
                _ => (0, 11 + self.bits.take(from, 7)?),
            };
            let end = at + times as usize;
            if end > literals + distances {
                return Err(wrong("got more lengths of codes than codes"));
            }
            lengths[at..end].fill(length);
            at = end;
        }
        if lengths[256] == 0 {
            return Err(wrong("got a block that has no end"));
        }
        self.literals.set(&lengths[..literals])?;
        self.distances.set(&lengths[literals..literals + distances])
    }

    /// Returns whether the block has ended; else the output is full.
    fn coded(&mut self, from: &mut dyn Read) -> io::Result<bool> {
        let begin = self.out.len();
        let full = self.full();
        let mut done = false;
        while self.out.len() < full {
            let symbol = self.literals.next(&mut self.bits, from)?;
            if symbol < 256 {
                self.out.push(symbol as u8);
                continue;
            }
            if symbol == 256 {
                done = true;
                break;
            }
            let (base, extra) = LENGTHS.get(usize::from(symbol) - 257).ok_or_else(unknown)?;
            let length = usize::from(*base) + self.bits.take(from, u32::from(*extra))? as usize;
            let symbol = self.distances.next(&mut self.bits, from)?;
            let (base, extra) = DISTANCES.get(usize::from(symbol)).ok_or_else(unknown)?;
            let distance = usize::from(*base) + self.bits.take(from, u32::from(*extra))? as usize;
            let known = self.unpacked + self.out.len() - begin;
            if distance > known {
                let why = format!("got a distance of {distance}, expected {known} at most");
                return Err(wrong(&why));
            }
            let first = self.out.len() - distance;
            if distance >= length {
                self.out.extend_from_within(first..first + length);
            } else {
                // What the match itself writes is part of it.
                for at in first..first + length {
                    self.out.push(self.out[at]);
                }
            }
        }
        self.count(self.out.len() - begin);
        Ok(done)
    }
}

fn unknown() -> io::Error {
    wrong("got an unknown symbol")
}

/// The uncompressed bytes of a gzip text.
pub struct Gunzip<R> {
    from: R,
    inflate: Inflate,
    next: Next,
    /// Bytes of [`Inflate::out`] before this one were read.
    read: usize,
    /// Of this member, modulo 2³².
    length: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The first member: it must be there.
    First,
    /// Another member, or the end.
    Member,
    Blocks,
    End,
}

impl<R: Read> Gunzip<R> {
    pub fn new(from: R) -> Self {
        Self { from, inflate: Inflate::new(CHUNK, CHUNK), next: Next::First, read: 0, length: 0 }
    }

    /// What it reads from: all of it was read once this reader has ended.
    pub fn from(&self) -> &R {
        &self.from
    }

    /// Unpacks some bytes: none only at the end.
    fn fill(&mut self) -> io::Result<()> {
        let Self { from, inflate, next, length, .. } = self;
        inflate.make_room();
        self.read = inflate.out.len();
        loop {
            match next {
                Next::End => return Ok(()),
                Next::Member if inflate.is_end(from)? => *next = Next::End,
                Next::First | Next::Member => {
                    member(inflate, from)?;
                    (*next, *length) = (Next::Blocks, 0);
                }
                Next::Blocks => {
                    let before = inflate.out.len();
                    let paused = inflate.blocks(from)?;
                    *length = length.wrapping_add((inflate.out.len() - before) as u32);
                    match paused {
                        Paused::Full => return Ok(()),
                        Paused::Input => return Err(cut_off()),
                        Paused::Last => {
                            trailer(inflate, from, *length)?;
                            *next = Next::Member;
                        }
                    }
                }
            }
        }
    }
}

fn not_gzip(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("gzip: {why}"))
}

/// RFC 1952 section 2.3. Its blocks come next.
fn member(inflate: &mut Inflate, from: &mut dyn Read) -> io::Result<()> {
    let mut byte = || inflate.byte(from);
    if byte()? != 0x1f || byte()? != 0x8b {
        return Err(not_gzip("got other bytes, expected a member's magic number"));
    }
    if byte()? != 8 {
        return Err(not_gzip("got another method, expected deflate"));
    }
    let flags = byte()?;
    if flags & 0xe0 != 0 {
        return Err(not_gzip("got flags that are reserved"));
    }
    // Time, extra flags, system.
    for _ in 0..6 {
        byte()?;
    }
    if flags & 4 != 0 {
        let length = u16::from_le_bytes([byte()?, byte()?]);
        for _ in 0..length {
            byte()?;
        }
    }
    // Name and comment.
    for flag in [8, 16] {
        while flags & flag != 0 && byte()? != 0 {}
    }
    if flags & 2 != 0 {
        byte()?;
        byte()?;
    }
    inflate.begin(b"");
    Ok(())
}

fn trailer(inflate: &mut Inflate, from: &mut dyn Read, length: u32) -> io::Result<()> {
    inflate.align();
    let mut word = [0; 8];
    for byte in &mut word {
        *byte = inflate.byte(from)?;
    }
    let [.., a, b, c, d] = word;
    let expected = u32::from_le_bytes([a, b, c, d]);
    if length != expected {
        return Err(not_gzip(&format!("got a member of {length} bytes, expected {expected}")));
    }
    Ok(())
}

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.read == self.inflate.out.len() {
            self.fill().map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "gzip: it is cut off"),
                _ => error,
            })?;
        }
        let count = to.len().min(self.inflate.out.len() - self.read);
        to[..count].copy_from_slice(&self.inflate.out[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

fn cut_off() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "deflate: it is cut off")
}

/// Reads bits, the lowest first.
struct Bits {
    input: Box<[u8]>,
    at: usize,
    end: usize,
    held: u64,
    count: u32,
}

impl Bits {
    fn new(input_bytes: usize) -> Self {
        Self { input: vec![0; input_bytes].into(), at: 0, end: 0, held: 0, count: 0 }
    }

    /// Whether another byte was read.
    fn more(&mut self, from: &mut dyn Read) -> io::Result<bool> {
        if self.at == self.end {
            (self.at, self.end) = (0, from.read(&mut self.input)?);
        }
        Ok(self.at < self.end)
    }

    /// Holds at least so many bits, 32 at most, unless the input ends.
    fn hold(&mut self, from: &mut dyn Read, count: u32) -> io::Result<()> {
        if self.count >= count {
            return Ok(());
        }
        if let Some(eight) = self.input[self.at..self.end].first_chunk() {
            self.held |= u64::from_le_bytes(*eight) << self.count;
            let bytes = (63 - self.count) / 8;
            self.at += bytes as usize;
            self.count += bytes * 8;
            // Bits above the count are those of the next byte, which are held again later.
            self.held &= (1 << self.count) - 1;
            return Ok(());
        }
        while self.count < count && self.more(from)? {
            self.held |= u64::from(self.input[self.at]) << self.count;
            self.at += 1;
            self.count += 8;
        }
        Ok(())
    }

    fn take(&mut self, from: &mut dyn Read, count: u32) -> io::Result<u32> {
        self.hold(from, count)?;
        let value = self.held & ((1 << count) - 1);
        self.drop(count)?;
        Ok(value as u32)
    }

    fn drop(&mut self, count: u32) -> io::Result<()> {
        if count > self.count {
            return Err(cut_off());
        }
        self.held >>= count;
        self.count -= count;
        Ok(())
    }

    /// Skips to a whole byte.
    fn align(&mut self) {
        let rest = self.count % 8;
        self.held >>= rest;
        self.count -= rest;
    }

    fn byte(&mut self, from: &mut dyn Read) -> io::Result<u8> {
        self.take(from, 8).map(|byte| byte as u8)
    }

    /// At a whole byte: whether there is no other.
    fn is_end(&mut self, from: &mut dyn Read) -> io::Result<bool> {
        Ok(self.count == 0 && !self.more(from)?)
    }

    /// At a whole byte: appends this many, or fewer, but one.
    fn copy(&mut self, from: &mut dyn Read, to: &mut Vec<u8>, count: usize) -> io::Result<usize> {
        if self.count > 0 {
            to.push(self.byte(from)?);
            return Ok(1);
        }
        if !self.more(from)? {
            self.drop(8)?;
        }
        let count = count.min(self.end - self.at);
        to.extend_from_slice(&self.input[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// A Huffman code (RFC 1951 section 3.2.2).
struct Code {
    /// For the next bits: a symbol and the length of its code, `symbol << 4 | length`; 0: the code
    /// is longer.
    short: Box<[u16; 1 << SHORT_BITS]>,
    /// How many codes have each length.
    counts: [u16; LENGTH_MAX + 1],
    /// In the order of their codes.
    symbols: [u16; 288],
}

/// Codes up to this length are looked up.
const SHORT_BITS: usize = 10;
const LENGTH_MAX: usize = 15;

impl Code {
    fn new() -> Self {
        Self {
            short: Box::new([0; 1 << SHORT_BITS]),
            counts: [0; LENGTH_MAX + 1],
            symbols: [0; 288],
        }
    }

    /// From the length of each symbol's code; 0: it has none.
    fn set(&mut self, lengths: &[u8]) -> io::Result<()> {
        self.counts = [0; LENGTH_MAX + 1];
        for length in lengths {
            self.counts[usize::from(*length)] += 1;
        }
        let used = lengths.len() - usize::from(self.counts[0]);
        self.counts[0] = 0;
        let (mut left, mut code, mut place) = (1_i32, 0_u16, 0);
        // The first code of each length, and the place of its symbol.
        let (mut codes, mut places) = ([0; LENGTH_MAX + 1], [0; LENGTH_MAX + 1]);
        for length in 1..=LENGTH_MAX {
            let count = self.counts[length];
            left = 2 * left - i32::from(count);
            if left < 0 {
                return Err(wrong("got more codes of a length than there are"));
            }
            code <<= 1;
            (codes[length], places[length]) = (code, place);
            code += count;
            place += usize::from(count);
        }
        // A code for a single symbol, or for none, may be incomplete.
        if left > 0 && used > 1 {
            return Err(wrong("got fewer codes than symbols need"));
        }
        self.short.fill(0);
        for (symbol, length) in (0..).zip(lengths) {
            let length = usize::from(*length);
            if length == 0 {
                continue;
            }
            self.symbols[places[length]] = symbol;
            places[length] += 1;
            if length <= SHORT_BITS {
                let first = usize::from(codes[length].reverse_bits() >> (16 - length));
                for at in (first..1 << SHORT_BITS).step_by(1 << length) {
                    self.short[at] = symbol << 4 | length as u16;
                }
            }
            codes[length] += 1;
        }
        Ok(())
    }

    #[inline]
    fn next(&self, bits: &mut Bits, from: &mut dyn Read) -> io::Result<u16> {
        bits.hold(from, LENGTH_MAX as u32)?;
        let entry = self.short[(bits.held & ((1 << SHORT_BITS) - 1)) as usize];
        if entry > 0 {
            bits.drop(u32::from(entry & 15))?;
            return Ok(entry >> 4);
        }
        let (mut code, mut first, mut place) = (0_u32, 0_u32, 0);
        for length in 1..=LENGTH_MAX {
            code |= (bits.held >> (length - 1)) as u32 & 1;
            let count = u32::from(self.counts[length]);
            if code < first + count {
                bits.drop(length as u32)?;
                return Ok(self.symbols[place + (code - first) as usize]);
            }
            place += count as usize;
            first = (first + count) << 1;
            code <<= 1;
        }
        // The bits that are missing at the end of the input count as 0.
        if bits.count < LENGTH_MAX as u32 {
            bits.drop(LENGTH_MAX as u32)?;
        }
        Err(wrong("got a code of no symbol"))
    }
}

/// The order in which the lengths of lengths are written (RFC 1951 section 3.2.7).
const ORDER: [u8; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// For each symbol from 257 on: the shortest length, and the extra bits (section 3.2.5).
const LENGTHS: [(u16, u8); 29] = {
    let mut table = [(0, 0); 29];
    let (mut at, mut from) = (0, 3_u16);
    while at < 28 {
        let extra = if at < 8 { 0 } else { at as u8 / 4 - 1 };
        table[at] = (from, extra);
        from += 1 << extra;
        at += 1;
    }
    table[28] = (258, 0);
    table
};

/// For each symbol: the shortest distance, and the extra bits.
const DISTANCES: [(u16, u8); 30] = {
    let mut table = [(0, 0); 30];
    let (mut at, mut from) = (0, 1_u16);
    while at < 30 {
        let extra = if at < 4 { 0 } else { at as u8 / 2 - 1 };
        table[at] = (from, extra);
        // The last sum is no distance any more.
        from = from.wrapping_add(1 << extra);
        at += 1;
    }
    table
};
