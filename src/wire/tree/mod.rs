//! User input, YAML or JSON, as a tree with the position of each value in the text.
//!
//! Manifests and the configuration are read through it, so that every error can be located:
//! `line:column` and the path of the field. Scalars are read as Kubernetes reads them (see
//! `scalar`). Not a general YAML library: one tree for each document, text keys only, and bounds on
//! bytes, depth, nodes and copies by alias, so that no text costs more than it should.

mod scalar;
mod yaml;

pub use crate::model::tree::{Entry, Fault, Mark, Node, Path, Step, Value, read, shorten};

use crate::limits::MANIFEST_BYTES_MAX;
use crate::model::error::Refusal;
use crate::model::tree::parse_json;

/// The documents of a text in order; empty ones are [`Value::Null`].
///
/// A text that begins with `{` or `[` is JSON, as Kubernetes decides it; it is one document.
pub fn parse(bytes: &[u8]) -> Result<Vec<Node>, Refusal> {
    if bytes.len() > MANIFEST_BYTES_MAX {
        let why = format!("got {} bytes, expected at most {MANIFEST_BYTES_MAX}", bytes.len());
        return Err(Refusal { line: 0, column: 0, why });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let why = format!("got the byte {:#04x}, expected UTF-8", bytes[error.valid_up_to()]);
        refusal_after(before, why)
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The YAML reader treats NUL as the end of the text: the rest would be lost silently.
    let control = |c: char| c < ' ' && !matches!(c, '\t' | '\n' | '\r');
    if let Some(at) = text.find(control) {
        let why = format!("got the control character {:#04x}, expected text", text.as_bytes()[at]);
        return Err(refusal_after(&text.as_bytes()[..at], why));
    }
    if text.trim_start().starts_with(['{', '[']) {
        parse_json(text.as_bytes()).map(|node| vec![node])
    } else {
        yaml::parse(text)
    }
}

/// An error after `before`, which is UTF-8.
fn refusal_after(before: &[u8], why: String) -> Refusal {
    let line = before.split(|&b| b == b'\n').count();
    let last = before.rsplit(|&b| b == b'\n').next().unwrap_or_default();
    let column = last.iter().filter(|&&b| b & 0xc0 != 0x80).count() + 1;
    Refusal { line: line as u32, column: column as u32, why }
}
