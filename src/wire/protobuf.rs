//! Protobuf's encoding (proto3), field by field and without a type: for the checks before decoding,
//! for lists of which only a few fields are read, and for messages that are written as they are
//! made.

#[cfg(any(feature = "devices", feature = "runtime"))]
#[cfg_attr(
    not(all(feature = "devices", feature = "runtime")),
    allow(
        dead_code,
        reason = "each of the two needs some types of fields that the other does not"
    )
)]
mod typed;

use std::fmt;

#[cfg(any(feature = "devices", feature = "runtime"))]
pub(super) use typed::Writer;

/// Why bytes are not the message that was expected; the other side's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number in varint form.
    Number(u64),
    /// A number of fixed width: nothing that is read this way has one.
    Fixed,
    /// A string, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// The start or end of a group: its content is fields again.
    Group,
}

/// Reads one field from the front; `None` at the end or on invalid bytes.
pub(super) fn next<'a>(rest: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let tag = varint(rest)?;
    let value = match tag & 7 {
        0 => Value::Number(varint(rest)?),
        1 => {
            *rest = rest.get(8..)?;
            Value::Fixed
        }
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            let (inner, after) = rest.split_at_checked(length)?;
            *rest = after;
            Value::Bytes(inner)
        }
        3 | 4 => Value::Group,
        5 => {
            *rest = rest.get(4..)?;
            Value::Fixed
        }
        _ => return None,
    };
    Some((tag >> 3, value))
}

/// All fields of a message, up to the first that is invalid: that one is the last item.
pub(super) fn fields(message: &[u8]) -> Fields<'_> {
    Fields { bytes: message.len(), rest: message }
}

/// See [`fields`].
#[derive(Debug)]
pub(super) struct Fields<'a> {
    bytes: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.bytes - self.rest.len();
        Some(next(&mut self.rest).ok_or_else(|| {
            self.rest = &[];
            Malformed(format!("got no field at byte {at} of {}, expected one", self.bytes))
        }))
    }
}

/// A string field's text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    str::from_utf8(bytes)
        .map_err(|error| Malformed(format!("got a string that is no UTF-8: {error}")))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
