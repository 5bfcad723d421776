//! DER, the encoding under X.509: tag, length, value (ITU-T X.690, section 10). One value after the
//! other; nothing is copied, and the reader determines the nesting.

#[cfg(any(feature = "controller", feature = "metaserver-auth"))]
mod issue;

use super::Fault;

/// The first byte of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u8);

impl Tag {
    pub(super) const INTEGER: Self = Self(0x02);
    pub(super) const BITS: Self = Self(0x03);
    pub(super) const OCTETS: Self = Self(0x04);
    pub(super) const OID: Self = Self(0x06);
    pub(super) const PRINTABLE: Self = Self(0x13);
    pub(super) const UTC_TIME: Self = Self(0x17);
    pub(super) const GENERALIZED_TIME: Self = Self(0x18);
    pub(super) const SEQUENCE: Self = Self(0x30);
    pub(super) const SET: Self = Self(0x31);
    /// `[0]`
    pub(super) const FIRST: Self = Self(0xa0);
    pub(super) const VERSION: Self = Self::FIRST;
    /// `[1]`
    pub(super) const SECOND: Self = Self(0xa1);

    /// A value of these parts.
    pub(super) fn write(self, parts: &[&[u8]]) -> Vec<u8> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut bytes = vec![self.0];
        if length < 0x80 {
            bytes.push(length as u8);
        } else {
            let digits = length.to_be_bytes();
            let digits = &digits[digits.iter().take_while(|digit| **digit == 0).count()..];
            bytes.push(0x80 | digits.len() as u8);
            bytes.extend_from_slice(digits);
        }
        bytes.extend(parts.iter().copied().flatten());
        bytes
    }
}

/// The rest of a value's contents.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    part: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// `part` is the name for error messages.
    pub(super) fn new(part: &'static str, bytes: &'a [u8]) -> Self {
        Self { part, bytes, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn next_is(&self, tag: Tag) -> bool {
        self.bytes.get(self.at) == Some(&tag.0)
    }

    /// The contents of the next value, which must be of this kind.
    pub(super) fn take(&mut self, tag: Tag) -> Result<&'a [u8], Fault> {
        let at = self.at;
        let (got, inside) = self.any()?;
        if got != tag {
            self.at = at;
            return Err(self.fault(format!("got the tag {:#04x}, expected {:#04x}", got.0, tag.0)));
        }
        Ok(inside)
    }

    /// As [`Reader::take`], returns a reader of the contents.
    pub(super) fn enter(&mut self, part: &'static str, tag: Tag) -> Result<Reader<'a>, Fault> {
        self.take(tag).map(|inside| Reader::new(part, inside))
    }

    /// The next value, of any kind.
    pub(super) fn any(&mut self) -> Result<(Tag, &'a [u8]), Fault> {
        let rest = &self.bytes[self.at..];
        let [tag, first, after @ ..] = rest else {
            return Err(self.fault(format!("got {} bytes, expected a value", rest.len())));
        };
        if tag & 0x1f == 0x1f {
            return Err(self.fault(format!("got the tag {tag:#04x}, expected one of a byte")));
        }
        let digits = usize::from(first & 0x7f);
        let (length, inside) = match first & 0x80 {
            0 => (digits, after),
            _ if (1..=LENGTH_BYTES_MAX).contains(&digits) && after.len() >= digits => {
                let (length, inside) = after.split_at(digits);
                (length.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), inside)
            }
            _ => return Err(self.fault(format!("got the length {first:#04x}, expected less"))),
        };
        if length > inside.len() {
            let left = inside.len();
            return Err(self.fault(format!("got {left} bytes, expected {length}")));
        }
        self.at += rest.len() - inside.len() + length;
        Ok((Tag(*tag), &inside[..length]))
    }

    /// There must be nothing more.
    pub(super) fn end(&self) -> Result<(), Fault> {
        if self.is_empty() {
            return Ok(());
        }
        let left = self.bytes.len() - self.at;
        Err(self.fault(format!("got {left} bytes more, expected the end")))
    }

    fn fault(&self, why: String) -> Fault {
        Fault { at: self.at, part: self.part, why }
    }
}

/// Certificates have a few hundred bytes; with three of these a length fits into 32 bits.
const LENGTH_BYTES_MAX: usize = 3;
