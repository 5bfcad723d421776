//! The status of a call, from its trailers.

#[cfg(feature = "devices")]
use crate::limits::DMI_STATUS_TEXT_BYTES_MAX;
use crate::wire::h2::ErrorCode;
use crate::wire::hpack::FieldList;
use crate::wire::rpc::{Code, Status, cut};

impl Code {
    /// From the HTTP status of a response without a gRPC status.
    fn from_http(status: u32) -> Code {
        match status {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502..=504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }
}

impl Status {
    /// From the fields of trailers, or of a response without a body. `None`: no `grpc-status`.
    pub(super) fn from_fields(fields: &FieldList) -> Option<Status> {
        let number = fields.first("grpc-status")?;
        let message = message(fields);
        let code = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
        Some(code.and_then(Code::from_u32).map_or_else(
            || {
                let number = String::from_utf8_lossy(number);
                let text = format!("grpc-status is {number:?}, expected 0 to 16: {message}");
                Status::new(Code::Unknown, cut(text))
            },
            |code| Status::new(code, message.as_str()),
        ))
    }

    /// From a response's first header block: `None` if it is a gRPC response.
    pub(super) fn of_foreign_response(fields: &FieldList) -> Option<Status> {
        let status = fields.first(":status").unwrap_or_default();
        let content = fields.first("content-type").unwrap_or_default();
        let number = std::str::from_utf8(status).ok().and_then(|text| text.parse::<u32>().ok());
        let grpc = content
            .strip_prefix(b"application/grpc")
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')));
        if number == Some(200) && grpc {
            return None;
        }
        Some(Status::from_fields(fields).unwrap_or_else(|| {
            let (status, content) =
                (String::from_utf8_lossy(status), String::from_utf8_lossy(content));
            let text = format!(
                "response has :status {status:?} and content-type {content:?}, \
                 expected \"200\" and \"application/grpc\""
            );
            Status::new(number.map_or(Code::Unknown, Code::from_http), cut(text))
        }))
    }

    /// The end of a response that has no `grpc-status`.
    pub(super) fn of_foreign_end(fields: &FieldList) -> Status {
        // Trailers have no `:status`; a response without a body may be of another protocol.
        fields.first(":status").and_then(|_| Status::of_foreign_response(fields)).unwrap_or_else(
            || Status::new(Code::Unknown, "trailers without the grpc-status expected"),
        )
    }

    /// From RST_STREAM, as gRPC maps its codes.
    pub(super) fn from_reset(code: ErrorCode) -> Status {
        let mapped = match code {
            ErrorCode::REFUSED_STREAM => Code::Unavailable,
            ErrorCode::CANCEL => Code::Cancelled,
            ErrorCode::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
            ErrorCode::INADEQUATE_SECURITY => Code::PermissionDenied,
            ErrorCode::STREAM_CLOSED | ErrorCode::HTTP_1_1_REQUIRED => Code::Unknown,
            _ => Code::Internal,
        };
        Status::new(mapped, format!("server reset the stream: {code}"))
    }
}

/// `grpc-message`, or a note that it is missing because it did not fit.
fn message(fields: &FieldList) -> String {
    match fields.first("grpc-message") {
        Some(value) => cut(percent_decode(value)),
        None if fields.dropped() > 0 => {
            format!("({} header fields dropped: beyond the bound)", fields.dropped())
        }
        None => String::new(),
    }
}

/// Percent-encoded UTF-8; invalid sequences are kept as they are, as gRPC demands.
pub(super) fn percent_decode(value: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&first, after)) = rest.split_first() {
        let pair = after.first_chunk::<2>().filter(|_| first == b'%');
        if let Some(byte) = pair.and_then(|[high, low]| Some(hex(*high)? << 4 | hex(*low)?)) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The reverse, for `grpc-message`: all but printable ASCII is encoded. A text beyond its bound is
/// cut between two characters.
#[cfg(feature = "devices")]
pub(super) fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes);
        if at + bytes.len() > DMI_STATUS_TEXT_BYTES_MAX {
            break;
        }
        if matches!(character, ' '..='~') && character != '%' {
            out.push(character);
            continue;
        }
        for byte in bytes.bytes() {
            out.extend(['%', upper_hex(byte >> 4), upper_hex(byte & 15)]);
        }
    }
    out
}

#[cfg(feature = "devices")]
fn upper_hex(digit: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(digit)])
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}
