//! What a person writes, YAML or JSON, as a tree that knows where in the text each value stands.
//!
//! Manifests and the configuration are read through it, so that whatever is wrong with them can be
//! pointed at: `line:column` and the path of the field. Scalars are read as Kubernetes reads them
//! (see `scalar`). Not a general YAML library: one tree for each document, text keys only, and
//! bounds on bytes, depth, nodes and copies by alias, so that no text costs more than it should.

mod json;
mod read;
mod scalar;
mod yaml;

use std::collections::BTreeMap;
use std::fmt;

pub use read::read;

use crate::limits::MANIFEST_BYTES_MAX;
use crate::model::manifest::Refusal;

/// A place in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// From 1; 0: not known (JSON: ask [`Fault::refusal`] for it).
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

/// A value and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its first character.
    pub at: Mark,
    /// What it is.
    pub value: Value,
}

/// JSON's kinds of value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`, `~` or nothing at all.
    Null,
    /// `true`, and YAML 1.1's `yes`, `on`, `y`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number beyond `i64`.
    Big(u64),
    /// A finite number with a point or an exponent.
    Float(f64),
    /// Text.
    Text(Box<str>),
    /// In order.
    List(Vec<Node>),
    /// By key; each stands once.
    Map(BTreeMap<Box<str>, Entry>),
}

/// One value of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Where its key begins.
    pub key_at: Mark,
    /// The value.
    pub node: Node,
}

impl fmt::Display for Value {
    /// As it is named after «got».
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Big(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{:?}", shorten(value)),
            Self::List(_) => f.write_str("a list"),
            Self::Map(_) => f.write_str("a map"),
        }
    }
}

/// One step down the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Into a map.
    Key(Box<str>),
    /// Into a list, from 0.
    Index(usize),
}

/// What is wrong with a value, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `None` until the value that it is about is known.
    pub at: Option<Mark>,
    /// From the root down.
    pub path: Vec<Step>,
    /// What was got, what was expected.
    pub why: String,
}

impl Fault {
    /// About `node`, which is found by `path`.
    pub fn new(node: &Node, path: Vec<Step>, why: String) -> Self {
        Self { at: Some(node.at), path, why }
    }

    /// For people: the path before the reason, and the place, which JSON's must be looked for.
    pub fn refusal(self, bytes: &[u8]) -> Refusal {
        let mark = self.at.unwrap_or_default();
        let mark = if mark.line == 0 { json::locate(bytes, &self.path) } else { mark };
        let why = if self.path.is_empty() {
            self.why
        } else {
            format!("{}: {}", Path(&self.path), self.why)
        };
        Refusal { line: mark.line, column: mark.column, why }
    }
}

/// A path as Kubernetes writes it: `spec.containers[0].name`, `labels[a.b/c]`.
pub struct Path<'a>(pub &'a [Step]);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if !key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                    write!(f, "[{}]", shorten(key))?;
                }
                Step::Key(key) if at == 0 => write!(f, "{}", shorten(key))?,
                Step::Key(key) => write!(f, ".{}", shorten(key))?,
            }
        }
        Ok(())
    }
}

/// The documents of a text in order; those with nothing in them are [`Value::Null`].
///
/// JSON is what begins with `{` or `[`, as Kubernetes decides it; it is one document.
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
    // The YAML reader takes NUL for the end of the text: what follows would be lost in silence.
    let control = |c: char| c < ' ' && !matches!(c, '\t' | '\n' | '\r');
    if let Some(at) = text.find(control) {
        let why = format!("got the control character {:#04x}, expected text", text.as_bytes()[at]);
        return Err(refusal_after(&text.as_bytes()[..at], why));
    }
    if text.trim_start().starts_with(['{', '[']) {
        json::parse(text.as_bytes()).map(|node| vec![node])
    } else {
        yaml::parse(text)
    }
}

/// About what follows `before`, which is UTF-8.
fn refusal_after(before: &[u8], why: String) -> Refusal {
    let line = before.split(|&b| b == b'\n').count();
    let last = before.rsplit(|&b| b == b'\n').next().unwrap_or_default();
    let column = last.iter().filter(|&&b| b & 0xc0 != 0x80).count() + 1;
    Refusal { line: line as u32, column: column as u32, why }
}

/// What of a text is shown in an error.
pub(super) fn shorten(text: &str) -> &str {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Characters of a value that an error shows: enough to know it again.
const SHOWN_CHARS_MAX: usize = 64;
