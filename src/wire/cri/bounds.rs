//! Size checks of CRI replies before decoding.

use std::fmt;

use super::Request;
use crate::limits::{CRI_DEPTH_MAX, CriBudget};
use crate::wire::protobuf::{Malformed, Value, next};

/// Decodes the reply to a request of type `R`, if it is within the bounds of `limits`.
pub fn decode<R: Request>(bytes: &[u8]) -> Result<R::Reply, DecodeError> {
    decode_within::<R>(bytes, &CriBudget::default())
}

/// The same with other bounds.
pub(super) fn decode_within<R: Request>(
    bytes: &[u8],
    budget: &CriBudget,
) -> Result<R::Reply, DecodeError> {
    size(bytes, budget)?;
    let depth = if R::RPC.is_opaque() { 0 } else { CRI_DEPTH_MAX };
    let max = budget.fields_max;
    // A field has at least two bytes: most replies are too small to hold too many.
    let many = bytes.len() / 2 > max;
    if many && count_fields(bytes, depth, 0, max).is_none() {
        return Err(DecodeError::TooManyFields { max });
    }
    prost::Message::decode(bytes).map_err(|error| DecodeError::Malformed(error.to_string()))
}

/// Fails if a reply exceeds every limit.
pub(super) fn size(bytes: &[u8], budget: &CriBudget) -> Result<(), DecodeError> {
    let (got_bytes, max_bytes) = (bytes.len(), budget.message_bytes_max);
    if got_bytes > max_bytes {
        return Err(DecodeError::TooLarge { got_bytes, max_bytes });
    }
    Ok(())
}

/// Why a reply was not decoded; the runtime's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Larger than any message may be.
    TooLarge {
        /// Its size.
        got_bytes: usize,
        /// The bound.
        max_bytes: usize,
    },
    /// More fields, or items of a list, than a full node has.
    TooManyFields {
        /// The bound.
        max: usize,
    },
    /// Not a protobuf message of that type.
    Malformed(String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::TooLarge { got_bytes, max_bytes } => {
                write!(f, "reply has {got_bytes} bytes, expected at most {max_bytes}")
            }
            DecodeError::TooManyFields { max } => {
                write!(f, "reply has more fields than the {max} expected at most")
            }
            DecodeError::Malformed(why) => write!(f, "reply is malformed: {why}"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<Malformed> for DecodeError {
    fn from(Malformed(why): Malformed) -> DecodeError {
        DecodeError::Malformed(why)
    }
}

/// Counts the fields with a length in `bytes`, nested ones included: every one may become a string
/// or a struct. It is not known here which of them are messages, so each is read as one, and
/// everything read before the first invalid field counts: decoding would get as far. `None` beyond
/// the bound.
fn count_fields(bytes: &[u8], depth: usize, fields: usize, max: usize) -> Option<usize> {
    let mut rest = bytes;
    let mut fields = fields;
    while let Some((_, value)) = next(&mut rest) {
        let Value::Bytes(inner) = value else { continue };
        fields += 1;
        if fields > max {
            return None;
        }
        if depth > 0 {
            fields = count_fields(inner, depth - 1, fields, max)?;
        }
    }
    Some(fields)
}
