//! HPACK, the header compression of HTTP/2 (RFC 7541).
//!
//! Encoding is the simplest possible: literals without indexing and without Huffman, which every
//! decoder must accept and which keeps no state. Decoding is complete, because a server chooses
//! what it sends: static and dynamic table, size updates, Huffman.
//!
//! **Bounds.** The dynamic table never exceeds what we announced in SETTINGS_HEADER_TABLE_SIZE. A
//! header list beyond its bound is still decoded to its end, because the table is shared by all
//! streams, but the fields that do not fit are dropped and counted ([`FieldList::dropped`]).
//!
//! An [`Error`] leaves the table undefined: the connection must be closed with COMPRESSION_ERROR
//! (RFC 9113 section 4.3).

use std::fmt;

mod huffman;
mod table;

use table::Table;

/// One header field, as it was on the wire after decompression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name; lower case in HTTP/2, which is not checked here.
    pub name: Vec<u8>,
    /// The value, any bytes.
    pub value: Vec<u8>,
}

/// The fields of one header block, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldList {
    fields: Vec<Field>,
    bytes: usize,
    dropped: usize,
}

impl FieldList {
    /// The first value of that name.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|field| field.name == name.as_bytes()).map(|f| f.value.as_slice())
    }

    /// All fields in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Field> {
        self.fields.iter()
    }

    /// The number of fields that exceeded the decoder's bound.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// The size as RFC 9113 section 6.5.2 counts it: name, value and 32 for each field kept.
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a field of that size fits; if not, it is counted as dropped.
    fn admit(&mut self, name_len: usize, value_len: usize, bytes_max: usize) -> bool {
        let bytes = name_len + value_len + table::ENTRY_OVERHEAD_BYTES;
        if bytes > bytes_max - self.bytes {
            self.dropped += 1;
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl<'a> IntoIterator for &'a FieldList {
    type Item = &'a Field;
    type IntoIter = std::slice::Iter<'a, Field>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Appends a field as a literal without indexing, new name, no Huffman (RFC 7541 section 6.2.2).
pub fn encode(name: &str, value: &str, out: &mut Vec<u8>) {
    out.push(0);
    encode_string(name, out);
    encode_string(value, out);
}

/// Appends a dynamic table size update (RFC 7541 section 6.3). Only at the start of a block.
pub fn encode_table_size(bytes: u32, out: &mut Vec<u8>) {
    encode_integer(0x20, 5, bytes, out);
}

fn encode_string(text: &str, out: &mut Vec<u8>) {
    let length = u32::try_from(text.len()).expect("a header of ours is no longer than 4 GiB");
    encode_integer(0, 7, length, out);
    out.extend_from_slice(text.as_bytes());
}

/// RFC 7541 section 5.1; `pattern` fills the bits above the prefix.
fn encode_integer(pattern: u8, prefix_bits: u32, value: u32, out: &mut Vec<u8>) {
    let prefix_max = (1u32 << prefix_bits) - 1;
    if value < prefix_max {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | prefix_max as u8);
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The decoder of one connection; blocks must be fed in the order they arrived, each whole.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    list_bytes_max: usize,
}

impl Decoder {
    /// `table_bytes_max` is what we announced as SETTINGS_HEADER_TABLE_SIZE; `list_bytes_max`
    /// bounds one decoded list.
    pub fn new(table_bytes_max: usize, list_bytes_max: usize) -> Decoder {
        Decoder { table: Table::new(table_bytes_max), list_bytes_max }
    }

    /// Decodes one whole header block.
    pub fn decode(&mut self, block: &[u8]) -> Result<FieldList, Error> {
        let mut input = Input { left: block };
        let mut list = FieldList::default();
        let mut field_seen = false;
        while let Some(first) = input.byte() {
            if first & 0xe0 == 0x20 {
                let bytes = input.integer(first, 5)? as usize;
                if field_seen {
                    return Err(Error::TableSizeLate);
                }
                self.table.resize(bytes)?;
                continue;
            }
            field_seen = true;
            if first & 0x80 != 0 {
                let index = input.integer(first, 7)?;
                let (name, value) = self.table.entry(index)?;
                if list.admit(name.len(), value.len(), self.list_bytes_max) {
                    list.fields.push(Field { name: name.to_vec(), value: value.to_vec() });
                }
            } else {
                self.literal(first, &mut input, &mut list)?;
            }
        }
        Ok(list)
    }

    /// RFC 7541 section 6.2: with incremental indexing (01), without (0000), never (0001).
    fn literal(
        &mut self,
        first: u8,
        input: &mut Input<'_>,
        list: &mut FieldList,
    ) -> Result<(), Error> {
        let indexed = first & 0xc0 == 0x40;
        let index = input.integer(first, if indexed { 6 } else { 4 })?;
        let name = if index == 0 { input.string()? } else { self.table.entry(index)?.0.to_vec() };
        let value = input.string()?;
        let admitted = list.admit(name.len(), value.len(), self.list_bytes_max);
        let field = Field { name, value };
        if indexed && admitted {
            self.table.insert(field.clone());
        } else if indexed {
            self.table.insert(field);
            return Ok(());
        }
        if admitted {
            list.fields.push(field);
        }
        Ok(())
    }
}

/// A fault of a header block. Always the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The block ended inside an integer.
    IntegerCut,
    /// An integer exceeds 32 bits, or is encoded with more bytes than needed.
    IntegerTooLarge,
    /// The block ended inside a string.
    StringCut {
        /// The length that the string announced.
        expected_bytes: usize,
        /// The bytes that the block still had.
        got_bytes: usize,
    },
    /// An index that is in neither table; zero is never used.
    IndexUnknown {
        /// The index.
        got: u32,
        /// The highest index now valid.
        max: usize,
    },
    /// A size update beyond what we announced.
    TableSizeTooLarge {
        /// The size asked for.
        got_bytes: usize,
        /// Our SETTINGS_HEADER_TABLE_SIZE.
        max_bytes: usize,
    },
    /// A size update after a field; it is allowed only at the start of a block.
    TableSizeLate,
    /// The end-of-string symbol inside a Huffman string.
    HuffmanEos,
    /// A Huffman string ends in something other than at most seven one bits.
    HuffmanPadding,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::IntegerCut => write!(f, "header block ends inside an integer"),
            Error::IntegerTooLarge => {
                write!(f, "header block has an integer beyond 32 bits, expected at most that")
            }
            Error::StringCut { expected_bytes, got_bytes } => {
                write!(f, "header string has {got_bytes} bytes left, expected {expected_bytes}")
            }
            Error::IndexUnknown { got, max } => {
                write!(f, "header index is {got}, expected 1 to {max}")
            }
            Error::TableSizeTooLarge { got_bytes, max_bytes } => {
                write!(f, "header table size is {got_bytes}, expected at most {max_bytes}")
            }
            Error::TableSizeLate => {
                write!(f, "header table size after a field, expected at the start of the block")
            }
            Error::HuffmanEos => write!(f, "Huffman string holds the end-of-string symbol"),
            Error::HuffmanPadding => {
                write!(f, "Huffman string's padding is not what is expected: at most 7 one bits")
            }
        }
    }
}

impl std::error::Error for Error {}

/// The rest of a block.
struct Input<'a> {
    left: &'a [u8],
}

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.left.split_first()?;
        self.left = rest;
        Some(*first)
    }

    /// RFC 7541 section 5.1; `first` is the byte that holds the prefix.
    fn integer(&mut self, first: u8, prefix_bits: u32) -> Result<u32, Error> {
        let prefix_max = (1u32 << prefix_bits) - 1;
        let prefix = u32::from(first) & prefix_max;
        if prefix < prefix_max {
            return Ok(prefix);
        }
        let mut value = u64::from(prefix_max);
        for shift in (0..INTEGER_CONTINUATIONS_MAX).map(|n| 7 * n) {
            let byte = self.byte().ok_or(Error::IntegerCut)?;
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| Error::IntegerTooLarge);
            }
        }
        Err(Error::IntegerTooLarge)
    }

    /// RFC 7541 section 5.2.
    fn string(&mut self) -> Result<Vec<u8>, Error> {
        let first = self.byte().ok_or(Error::StringCut { expected_bytes: 1, got_bytes: 0 })?;
        let length = self.integer(first, 7)? as usize;
        let Some((text, rest)) = self.left.split_at_checked(length) else {
            let got_bytes = self.left.len();
            return Err(Error::StringCut { expected_bytes: length, got_bytes });
        };
        self.left = rest;
        if first & 0x80 == 0 { Ok(text.to_vec()) } else { huffman::decode(text) }
    }
}

/// Five times seven bits hold every 32-bit integer.
const INTEGER_CONTINUATIONS_MAX: u32 = 5;
