//! The encoding of messages between edge and cloud: one websocket message is one JSON object.
//!
//! Written exactly as Go's `json.Encoder` writes: compact, `<`, `>`, `&` and the two Unicode line
//! separators escaped, a line feed at the end, empty fields left out. Read as KubeEdge reads: the
//! first JSON value counts, what follows it and unknown fields are ignored.
//!
//! Not here: the meaning of messages, and the frames that carry them.

use std::fmt;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter};
use serde_json::value::RawValue;

use crate::limits::MESSAGE_BYTES_MAX;
use crate::model::message::Message;

/// Why bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// More than [`MESSAGE_BYTES_MAX`].
    Size(usize),
    /// Invalid JSON, or of another structure.
    Json {
        /// In bytes from the start of the line.
        column: usize,
        /// From one.
        line: usize,
        /// The parser's message.
        why: String,
    },
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(got) => {
                write!(f, "message: got {got} bytes, expected at most {MESSAGE_BYTES_MAX}")
            }
            Self::Json { line, column, why } => {
                write!(f, "message, line {line}, column {column}: {why}")
            }
        }
    }
}

/// Reads one message.
pub fn decode(bytes: &[u8]) -> Result<Message, MessageError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(MessageError::Size(bytes.len()));
    }
    let mut values = serde_json::Deserializer::from_slice(bytes);
    Message::deserialize(&mut values).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        // Line and column are reported separately.
        let why = text.rsplit_once(" at line ").map_or(&*text, |(why, _)| why).to_owned();
        MessageError::Json { column, line, why }
    })
}

/// Writes one message.
pub fn encode(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    to_json(message, &mut bytes);
    bytes.push(b'\n');
    bytes
}

/// Makes a message's content.
pub fn content<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    let mut bytes = Vec::new();
    to_json(value, &mut bytes);
    let text = String::from_utf8(bytes).expect("JSON is text");
    RawValue::from_string(text).expect("it was just made as JSON")
}

fn to_json<T: Serialize + ?Sized>(value: &T, to: &mut Vec<u8>) {
    let mut json = serde_json::Serializer::with_formatter(to, GoFormatter);
    value.serialize(&mut json).expect("plain data, written to memory");
}

/// As Go's encoder does by default, so that JSON may be embedded in a web page.
struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        let escaped = ['<', '>', '&', '\u{2028}', '\u{2029}'];
        while let Some(at) = rest.find(escaped) {
            let mut after = rest[at..].chars();
            let special = after.next().expect("found there");
            CompactFormatter.write_string_fragment(to, &rest[..at])?;
            write!(to, "\\u{:04x}", u32::from(special))?;
            rest = after.as_str();
        }
        CompactFormatter.write_string_fragment(to, rest)
    }
}
