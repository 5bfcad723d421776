//! Protobuf's fields one by one, without a type: for the checks before decoding, and for lists of
//! which only a few fields are read.

use super::DecodeError;

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

/// Calls a function for all fields of a message; an error if it is invalid.
pub(super) fn each<'a>(
    message: &'a [u8],
    mut take: impl FnMut(u64, Value<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut rest = message;
    while !rest.is_empty() {
        let at = message.len() - rest.len();
        let Some((number, value)) = next(&mut rest) else {
            let why = format!("got no field at byte {at} of {}, expected one", message.len());
            return Err(DecodeError::Malformed(why));
        };
        take(number, value)?;
    }
    Ok(())
}

/// A string field's text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    str::from_utf8(bytes)
        .map_err(|error| DecodeError::Malformed(format!("got a string that is no UTF-8: {error}")))
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
