//! Writes gzip (RFC 1952, 1951) without a dependency: matches within 32 KiB, found by one hash of
//! four bytes, in the fixed codes. Logs are repetitive and shrink to a quarter or
//! less; a real compressor saves a little more and costs 40 kB of flash.

use std::io::{self, Read, Write};

/// Compresses all of `from`.
pub(super) fn compress(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    pack(from, to, Matcher::new())
}

fn pack(from: &mut impl Read, to: &mut impl Write, mut matcher: Matcher) -> io::Result<()> {
    // Magic, deflate, no flags, no time, no extra flags, Unix.
    to.write_all(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3])?;
    let mut bits = Bits { to, held: 0, count: 0, bytes: Vec::with_capacity(BLOCK) };
    let (mut crc, mut length) = (Crc::new(), 0_u32);
    loop {
        let begin = matcher.slide();
        let got = from.take(BLOCK as u64).read_to_end(&mut matcher.bytes)?;
        if got == 0 {
            break;
        }
        crc.add(&matcher.bytes[begin..]);
        length = length.wrapping_add(got as u32);
        // Not the last block, fixed codes.
        bits.put(0b010, 3)?;
        matcher.block(begin, &mut bits)?;
        bits.symbol(256)?;
    }
    // The last block is empty.
    bits.put(0b011, 3)?;
    bits.symbol(256)?;
    bits.end()?;
    to.write_all(&crc.sum().to_le_bytes())?;
    to.write_all(&length.to_le_bytes())
}

/// Bytes per read.
const BLOCK: usize = 64 << 10;
/// The maximum distance of a match.
const WINDOW: usize = 32 << 10;
const MATCH_MIN: usize = 4;
const MATCH_MAX: usize = 258;
const HASH_BITS: u32 = 14;

/// Finds earlier matches.
struct Matcher {
    /// The end of the previous blocks, and the current block.
    bytes: Vec<u8>,
    /// The position of `bytes` in the input; all positions are modulo 2³², since a log may be
    /// longer.
    /// Matches are compared, so that an outdated position does no harm.
    offset: u32,
    /// For each hash, its last position in the input.
    last_position: Vec<u32>,
}

impl Matcher {
    fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(WINDOW + BLOCK),
            offset: 0,
            last_position: vec![0; 1 << HASH_BITS],
        }
    }

    /// Makes room for the next block; returns its position in `bytes`.
    fn slide(&mut self) -> usize {
        let gone = self.bytes.len().saturating_sub(WINDOW);
        self.bytes.drain(..gone);
        self.offset = self.offset.wrapping_add(gone as u32);
        self.bytes.len()
    }

    fn block(&mut self, begin: usize, bits: &mut Bits<'_, impl Write>) -> io::Result<()> {
        let mut at = begin;
        while at < self.bytes.len() {
            let found = self.find(at).filter(|(length, _)| *length >= MATCH_MIN);
            let length = if let Some((length, distance)) = found {
                bits.copy(length, distance)?;
                length
            } else {
                bits.symbol(usize::from(self.bytes[at]))?;
                1
            };
            for inner in at + 1..at + length {
                self.enter(inner);
            }
            at += length;
        }
        Ok(())
    }

    /// Length and distance of an earlier match; records this position.
    fn find(&mut self, at: usize) -> Option<(usize, usize)> {
        let distance = self.enter(at)?;
        if !(1..=WINDOW.min(at)).contains(&distance) {
            return None;
        }
        let rest = &self.bytes[at..];
        let same = self.bytes[at - distance..].iter().zip(rest).take(MATCH_MAX);
        Some((same.take_while(|(one, other)| one == other).count(), distance))
    }

    /// The distance to the last position with the same hash.
    fn enter(&mut self, at: usize) -> Option<usize> {
        let four: [u8; 4] = self.bytes.get(at..at + 4)?.try_into().expect("four of them");
        let hash = u32::from_le_bytes(four).wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS);
        let here = self.offset.wrapping_add(at as u32);
        let before = std::mem::replace(&mut self.last_position[hash as usize], here);
        Some(here.wrapping_sub(before) as usize)
    }
}

/// Writes bits, the lowest first.
struct Bits<'a, W: Write> {
    to: &'a mut W,
    held: u32,
    count: u32,
    bytes: Vec<u8>,
}

impl<W: Write> Bits<'_, W> {
    fn put(&mut self, value: u32, count: u32) -> io::Result<()> {
        self.held |= value << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
        if self.bytes.len() >= BLOCK {
            self.to.write_all(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }

    /// Huffman codes are written with their highest bit first.
    fn code(&mut self, code: u32, count: u32) -> io::Result<()> {
        self.put(code.reverse_bits() >> (32 - count), count)
    }

    /// A byte, the end of a block (256) or a length (from 257 on): RFC 1951 section 3.2.6.
    fn symbol(&mut self, symbol: usize) -> io::Result<()> {
        let code = symbol as u32;
        match symbol {
            0..=143 => self.code(0x30 + code, 8),
            144..=255 => self.code(0x190 + code - 144, 9),
            256..=279 => self.code(code - 256, 7),
            _ => self.code(0xc0 + code - 280, 8),
        }
    }

    fn copy(&mut self, length: usize, distance: usize) -> io::Result<()> {
        let at = LENGTHS.iter().rposition(|&(from, _)| from <= length).expect("3 at the least");
        let (from, extra) = LENGTHS[at];
        self.symbol(257 + at)?;
        self.put((length - from) as u32, extra)?;
        let at = DISTANCES.iter().rposition(|&(from, _)| from <= distance).expect("1 or more");
        let (from, extra) = DISTANCES[at];
        self.code(at as u32, 5)?;
        self.put((distance - from) as u32, extra)
    }

    /// Pads to a whole byte.
    fn end(mut self) -> io::Result<()> {
        if self.count > 0 {
            self.bytes.push(self.held as u8);
        }
        self.to.write_all(&self.bytes)
    }
}

/// For each code from 257 on: the shortest length, and the extra bits (section 3.2.5).
const LENGTHS: [(usize, u32); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// For each code: the shortest distance, and the extra bits.
const DISTANCES: [(usize, u32); 30] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (7, 1),
    (9, 2),
    (13, 2),
    (17, 3),
    (25, 3),
    (33, 4),
    (49, 4),
    (65, 5),
    (97, 5),
    (129, 6),
    (193, 6),
    (257, 7),
    (385, 7),
    (513, 8),
    (769, 8),
    (1_025, 9),
    (1_537, 9),
    (2_049, 10),
    (3_073, 10),
    (4_097, 11),
    (6_145, 11),
    (8_193, 12),
    (12_289, 12),
    (16_385, 13),
    (24_577, 13),
];

/// The checksum of gzip and Ethernet (CRC-32).
struct Crc {
    table: [u32; 256],
    state: u32,
}

impl Crc {
    fn new() -> Self {
        let entry = |number: u32| {
            (0..8).fold(number, |it, _| if it & 1 == 1 { 0xedb8_8320 ^ (it >> 1) } else { it >> 1 })
        };
        Self { table: std::array::from_fn(|number| entry(number as u32)), state: u32::MAX }
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let at = (self.state ^ u32::from(byte)) & 0xff;
            self.state = self.table[at as usize] ^ (self.state >> 8);
        }
    }

    fn sum(&self) -> u32 {
        !self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Unpacked by another program.
    fn unpacked(packed: &[u8]) -> Vec<u8> {
        // Tests run in parallel: a file for each.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("edged-gzip-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, packed).expect("a file of ours");
        let packed = std::fs::File::open(&path).expect("just written");
        let gzip = Command::new("gzip").args(["--decompress", "--stdout"]).stdin(packed).output();
        let output = gzip.expect("gzip is part of every Debian");
        std::fs::remove_file(&path).expect("it is ours");
        assert!(output.status.success(), "gzip refuses it");
        output.stdout
    }

    #[test]
    fn a_log_longer_than_a_word_counts_is_packed_like_any() {
        let line = b"a line of a log that repeats itself\n".repeat(9_000);
        let mut matcher = Matcher::new();
        matcher.offset = 100_000_u32.wrapping_neg();
        let mut packed = Vec::new();
        pack(&mut &*line, &mut packed, matcher).expect("memory can be written");
        assert_eq!(unpacked(&packed), line);
        assert!(packed.len() * 30 < line.len(), "{} of {}", packed.len(), line.len());
    }

    #[test]
    fn what_is_packed_is_unpacked_to_the_byte() {
        let line = |n: usize| format!("2026-11-21T00:00:{:02}.{n:09}Z stdout F line {n}\n", n % 60);
        let log: Vec<u8> = (0..20_000).flat_map(|n| line(n).into_bytes()).collect();
        let mut noise = 1_u32;
        let noise: Vec<u8> = (0..300_000)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 24) as u8
            })
            .collect();
        let (zeros, ones) = (vec![0; 100_000], vec![255; 70_000]);
        for text in [&b""[..], b"a", b"abc", &zeros, &ones, &noise, &log] {
            let mut packed = Vec::new();
            compress(&mut &*text, &mut packed).expect("memory can be written");
            assert_eq!(unpacked(&packed), text, "{} bytes", text.len());
            if text == log {
                assert!(packed.len() * 3 < log.len(), "{} of {}", packed.len(), log.len());
            }
        }
    }
}
