//! The Huffman code of RFC 7541 appendix B, decoding only.
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols, and
//! follow those of the length before. So the lengths alone define it, and everything else here is
//! computed from them at compile time.

use super::Error;

/// Decodes one string. Its last byte is padded with the first bits of the end-of-string symbol,
/// which are all ones (RFC 7541 section 5.2).
pub(super) fn decode(input: &[u8]) -> Result<Vec<u8>, Error> {
    // The shortest code has five bits.
    let mut out = Vec::with_capacity(input.len() * 8 / LENGTH_MIN);
    let mut bits: u64 = 0;
    let mut held: usize = 0;
    for &byte in input {
        bits = bits << 8 | u64::from(byte);
        held += 8;
        while let Some((symbol, length)) = first_symbol(bits, held) {
            let Ok(symbol) = u8::try_from(symbol) else {
                return Err(Error::HuffmanEos);
            };
            out.push(symbol);
            held -= length;
        }
    }
    let ones = (1u64 << held) - 1;
    if held > PADDING_BITS_MAX || bits & ones != ones {
        return Err(Error::HuffmanPadding);
    }
    Ok(out)
}

/// The symbol at the top of the lowest `held` bits, with its length; `None` if it is incomplete. At
/// most 29 bits are left over from an incomplete symbol, so `held` stays below 64.
fn first_symbol(bits: u64, held: usize) -> Option<(u16, usize)> {
    for length in LENGTH_MIN..=LENGTH_MAX.min(held) {
        let code = (bits >> (held - length)) as u32 & ((1 << length) - 1);
        let Some(rank) = code.checked_sub(CODE.first[length]) else {
            continue;
        };
        if rank < CODE.count[length] {
            return Some((CODE.symbols[(CODE.start[length] + rank) as usize], length));
        }
    }
    None
}

/// The canonical code, by length.
struct Code {
    /// All symbols, by length and then by value.
    symbols: [u16; SYMBOLS],
    /// Where a length begins in `symbols`.
    start: [u32; LENGTH_MAX + 1],
    /// How many symbols have that length.
    count: [u32; LENGTH_MAX + 1],
    /// The first code of that length.
    first: [u32; LENGTH_MAX + 1],
}

static CODE: Code = build();

const fn build() -> Code {
    let mut code = Code {
        symbols: [0; SYMBOLS],
        start: [0; LENGTH_MAX + 1],
        count: [0; LENGTH_MAX + 1],
        first: [0; LENGTH_MAX + 1],
    };
    let mut next_code = 0;
    let mut placed = 0;
    let mut length = 1;
    while length <= LENGTH_MAX {
        next_code <<= 1;
        code.first[length] = next_code;
        code.start[length] = placed as u32;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                code.symbols[placed] = symbol as u16;
                placed += 1;
                next_code += 1;
            }
            symbol += 1;
        }
        code.count[length] = placed as u32 - code.start[length];
        length += 1;
    }
    assert!(placed == SYMBOLS, "every symbol has a length");
    assert!(next_code == 1 << LENGTH_MAX, "the code is complete: no bits without a meaning");
    code
}

const LENGTH_MIN: usize = 5;
const LENGTH_MAX: usize = 30;
const PADDING_BITS_MAX: usize = 7;
/// 256 bytes and the end of string.
const SYMBOLS: usize = 257;

/// Bits per symbol, RFC 7541 appendix B.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];
