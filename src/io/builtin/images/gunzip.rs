//! Reads gzip (RFC 1952, 1951) without a dependency.
//!
//! One fixed window of 96 KiB and two tables; nothing grows with the input. Concatenated members
//! are one text, as gzip(1) reads them. The CRC-32 of a member is not compared: the reader's owner
//! compares SHA-256 of all that is read, and unpacks nothing without.

use std::io::{self, ErrorKind, Read};

/// The uncompressed bytes of `from`.
pub struct Gunzip<R> {
    bits: Bits<R>,
    part: Part,
    /// The last bytes that were unpacked; a match refers to [`WINDOW`] of them.
    out: Vec<u8>,
    /// Those before this one were read.
    read: usize,
    /// Of this member, until they are more than any distance.
    unpacked: usize,
    /// Of this member, modulo 2³².
    length: u32,
    literals: Code,
    distances: Code,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The first member: it must be there.
    First,
    /// Another member, or the end.
    Next,
    Block {
        last: bool,
    },
    Stored {
        left: usize,
        last: bool,
    },
    Coded {
        last: bool,
    },
    End,
}

/// The longest distance of a match.
const WINDOW: usize = 32 << 10;
/// Bytes that are unpacked at once, beyond the window.
const CHUNK: usize = 64 << 10;
const MATCH_MAX: usize = 258;

fn wrong(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("gzip: {why}"))
}

impl<R: Read> Gunzip<R> {
    pub fn new(from: R) -> Self {
        Self {
            bits: Bits::new(from),
            part: Part::First,
            out: Vec::with_capacity(WINDOW + CHUNK),
            read: 0,
            unpacked: 0,
            length: 0,
            literals: Code::new(),
            distances: Code::new(),
        }
    }

    /// What it reads from: all of it was read once this reader has ended.
    pub fn from(&self) -> &R {
        &self.bits.from
    }

    /// Unpacks some bytes: none only at the end.
    fn fill(&mut self) -> io::Result<()> {
        let gone = self.out.len().saturating_sub(WINDOW);
        self.out.drain(..gone);
        self.read = self.out.len();
        while self.out.len() < WINDOW + CHUNK - MATCH_MAX {
            match self.part {
                Part::End => break,
                Part::First => self.member()?,
                Part::Next if self.bits.is_end()? => self.part = Part::End,
                Part::Next => self.member()?,
                Part::Block { last: true } => self.trailer()?,
                Part::Block { last: false } => self.block()?,
                Part::Stored { left: 0, last } => self.part = Part::Block { last },
                Part::Stored { left, last } => {
                    let room = WINDOW + CHUNK - self.out.len();
                    let count = self.bits.copy(&mut self.out, left.min(room))?;
                    self.count(count);
                    self.part = Part::Stored { left: left - count, last };
                }
                Part::Coded { last } => {
                    if self.coded()? {
                        self.part = Part::Block { last };
                    }
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) {
        self.unpacked = (self.unpacked + bytes).min(WINDOW);
        self.length = self.length.wrapping_add(bytes as u32);
    }

    /// RFC 1952 section 2.3.
    fn member(&mut self) -> io::Result<()> {
        if self.bits.byte()? != 0x1f || self.bits.byte()? != 0x8b {
            return Err(wrong("got other bytes, expected a member's magic number"));
        }
        if self.bits.byte()? != 8 {
            return Err(wrong("got another method, expected deflate"));
        }
        let flags = self.bits.byte()?;
        if flags & 0xe0 != 0 {
            return Err(wrong("got flags that are reserved"));
        }
        // Time, extra flags, system.
        self.bits.skip(6)?;
        if flags & 4 != 0 {
            let length = self.bits.take(16)?;
            self.bits.skip(length)?;
        }
        // Name and comment.
        for flag in [8, 16] {
            while flags & flag != 0 && self.bits.byte()? != 0 {}
        }
        if flags & 2 != 0 {
            self.bits.skip(2)?;
        }
        (self.unpacked, self.length) = (0, 0);
        self.part = Part::Block { last: false };
        Ok(())
    }

    fn trailer(&mut self) -> io::Result<()> {
        self.bits.align();
        self.bits.skip(4)?;
        let length = self.bits.take(16)? | self.bits.take(16)? << 16;
        if length != self.length {
            let got = self.length;
            return Err(wrong(&format!("got a member of {got} bytes, expected {length}")));
        }
        self.part = Part::Next;
        Ok(())
    }

    /// RFC 1951 section 3.2.3.
    fn block(&mut self) -> io::Result<()> {
        let last = self.bits.take(1)? == 1;
        match self.bits.take(2)? {
            0 => {
                self.bits.align();
                let (length, check) = (self.bits.take(16)?, self.bits.take(16)?);
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
            2 => self.codes()?,
            _ => return Err(wrong("got a block of an unknown type")),
        }
        self.part = Part::Coded { last };
        Ok(())
    }

    /// RFC 1951 section 3.2.7.
    fn codes(&mut self) -> io::Result<()> {
        let literals = self.bits.take(5)? as usize + 257;
        let distances = self.bits.take(5)? as usize + 1;
        let count = self.bits.take(4)? as usize + 4;
        if literals > 286 || distances > 30 {
            return Err(wrong("got more codes than there are"));
        }
        let mut lengths = [0; 19];
        for at in &ORDER[..count] {
            lengths[usize::from(*at)] = self.bits.take(3)? as u8;
        }
        self.literals.set(&lengths)?;
        let mut lengths = [0; 286 + 30];
        let mut at = 0;
        while at < literals + distances {
            let symbol = self.literals.next(&mut self.bits)?;
            let (length, times) = match symbol {
                0..=15 => (symbol as u8, 1),
                16 if at == 0 => return Err(wrong("got a repetition of nothing")),
                16 => (lengths[at - 1], 3 + self.bits.take(2)?),
                17 => (0, 3 + self.bits.take(3)?),
                _ => (0, 11 + self.bits.take(7)?),
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
    fn coded(&mut self) -> io::Result<bool> {
        let begin = self.out.len();
        let mut done = false;
        while self.out.len() <= WINDOW + CHUNK - MATCH_MAX {
            let symbol = self.literals.next(&mut self.bits)?;
            if symbol < 256 {
                self.out.push(symbol as u8);
                continue;
            }
            if symbol == 256 {
                done = true;
                break;
            }
            let (from, extra) = LENGTHS.get(usize::from(symbol) - 257).ok_or_else(unknown)?;
            let length = usize::from(*from) + self.bits.take(u32::from(*extra))? as usize;
            let symbol = self.distances.next(&mut self.bits)?;
            let (from, extra) = DISTANCES.get(usize::from(symbol)).ok_or_else(unknown)?;
            let distance = usize::from(*from) + self.bits.take(u32::from(*extra))? as usize;
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

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.read == self.out.len() {
            self.fill()?;
        }
        let count = to.len().min(self.out.len() - self.read);
        to[..count].copy_from_slice(&self.out[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

/// Reads bits, the lowest first.
struct Bits<R> {
    from: R,
    input: Box<[u8]>,
    at: usize,
    end: usize,
    held: u64,
    count: u32,
}

impl<R: Read> Bits<R> {
    fn new(from: R) -> Self {
        Self { from, input: vec![0; CHUNK].into(), at: 0, end: 0, held: 0, count: 0 }
    }

    /// Whether another byte was read.
    fn more(&mut self) -> io::Result<bool> {
        if self.at == self.end {
            (self.at, self.end) = (0, self.from.read(&mut self.input)?);
        }
        Ok(self.at < self.end)
    }

    /// Holds at least so many bits, 32 at most, unless the input ends.
    fn hold(&mut self, count: u32) -> io::Result<()> {
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
        while self.count < count && self.more()? {
            self.held |= u64::from(self.input[self.at]) << self.count;
            self.at += 1;
            self.count += 8;
        }
        Ok(())
    }

    fn take(&mut self, count: u32) -> io::Result<u32> {
        self.hold(count)?;
        let value = self.held & ((1 << count) - 1);
        self.drop(count)?;
        Ok(value as u32)
    }

    fn drop(&mut self, count: u32) -> io::Result<()> {
        if count > self.count {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "gzip: it is cut off"));
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

    fn byte(&mut self) -> io::Result<u8> {
        self.take(8).map(|byte| byte as u8)
    }

    fn skip(&mut self, bytes: u32) -> io::Result<()> {
        (0..bytes).try_for_each(|_| self.byte().map(drop))
    }

    /// At a whole byte: whether there is no other.
    fn is_end(&mut self) -> io::Result<bool> {
        Ok(self.count == 0 && !self.more()?)
    }

    /// At a whole byte: appends this many, or fewer, but one.
    fn copy(&mut self, to: &mut Vec<u8>, count: usize) -> io::Result<usize> {
        if self.count > 0 {
            to.push(self.byte()?);
            return Ok(1);
        }
        if !self.more()? {
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
    fn next<R: Read>(&self, bits: &mut Bits<R>) -> io::Result<u16> {
        bits.hold(LENGTH_MAX as u32)?;
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// Packed by another program.
    fn packed(text: &[u8], level: &str) -> Vec<u8> {
        let mut gzip = Command::new("gzip");
        let child = gzip.arg(level).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("gzip is part of every Debian");
        let mut input = child.stdin.take().expect("piped");
        let text = text.to_vec();
        #[expect(clippy::disallowed_methods, reason = "the other end of two pipes")]
        let writer = std::thread::spawn(move || input.write_all(&text));
        let output = child.wait_with_output().expect("it ends");
        writer.join().expect("it ends").expect("it reads everything");
        output.stdout
    }

    fn unpacked(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        Gunzip::new(packed).read_to_end(&mut text).map(|_| text)
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn what_gzip_packs_is_unpacked() {
        let line = |n: usize| format!("{n:09} a line of a text that repeats itself, {}\n", n * n);
        let lines: Vec<u8> = (0..4_000).flat_map(|n| line(n).into_bytes()).collect();
        // Rare symbols have codes that are longer than those that are looked up.
        let skewed: Vec<u8> =
            noise(150_000).iter().map(|byte| (byte.leading_zeros() * 31) as u8).collect();
        let program = std::fs::read("/bin/sh").expect("a shell is here");
        let texts =
            [b"".to_vec(), b"a".to_vec(), vec![0; 300_000], noise(150_000), lines, skewed, program];
        for text in &texts {
            for level in ["-1", "-9"] {
                let packed = packed(text, level);
                let got = unpacked(&packed).expect("it is gzip");
                assert!(got == *text, "{} bytes at {level}", text.len());
            }
        }
        let members = [packed(&texts[4], "-6"), packed(b"b", "-1"), packed(&texts[3], "-1")];
        let want = [&texts[4][..], b"b", &texts[3]].concat();
        assert!(unpacked(&members.concat()).expect("they are gzip") == want, "three members");
    }

    #[test]
    fn what_is_cut_or_spoilt_is_an_error_or_another_text() {
        let text: Vec<u8> =
            (0..60).flat_map(|n: u32| format!("{n} {}\n", n * 7).into_bytes()).collect();
        let good = packed(&text, "-9");
        for end in 0..good.len() {
            let why = unpacked(&good[..end]).expect_err("it is cut off");
            assert_eq!(why.kind(), ErrorKind::UnexpectedEof, "{end}: {why}");
        }
        // Each bit: no panic, no endless loop, no more bytes than a member can have.
        for at in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[at / 8] ^= 1 << (at % 8);
            let mut text = Vec::new();
            let _ = Gunzip::new(&bad[..]).take(64 << 10).read_to_end(&mut text);
        }
        for end in [&[0][..], b"\x1f\x8b\x09"] {
            let why = unpacked(&[&good, end].concat()).expect_err("more follows").to_string();
            assert!(why.starts_with("gzip: "), "{why}");
        }
    }

    #[test]
    fn what_no_packer_writes_is_refused() {
        let of = |block: &[u8]| {
            let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
            unpacked(&[&head[..], block].concat()).expect_err("it is wrong").to_string()
        };
        // A match before the first byte, in the fixed codes: symbol 257, distance 1.
        assert!(of(&[0x03, 0x02, 0, 0, 0, 0, 0, 0]).contains("distance of 1, expected 0"));
        assert!(of(&[0x07, 0, 0, 0]).contains("unknown type"));
        assert!(of(&[0x01, 1, 0, 1, 0, 0, 0]).contains("without its length"));
        // 31 + 257 codes for literals.
        assert!(of(&[0xfd, 0x00, 0, 0, 0, 0, 0]).contains("more codes than there are"));
        // All lengths of lengths are 1.
        assert!(
            of(&[0x05, 0xe0, 0x93, 0x24, 0x49, 0x92, 0x24, 0x49, 0x92, 0x24])
                .contains("of a length")
        );
        // A stored block of one byte, and another length at the end.
        let stored = [1, 1, 0, 0xfe, 0xff, b'a', 0, 0, 0, 0, 2, 0, 0, 0];
        assert!(of(&stored).contains("member of 1 bytes, expected 2"));
    }
}
