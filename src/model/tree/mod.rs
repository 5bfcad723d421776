//! The tree of a YAML or JSON text, with the position of each value, and the reading of types from
//! it.
//!
//! Manifests, the configuration and the cloud's objects are all read through it: by one reader and
//! one set of rules, and so that every error can be located by position and path. JSON is parsed
//! here; YAML, which only users write, in `wire/tree`.

mod json;
mod read;

use std::collections::BTreeMap;
use std::fmt;

pub use json::{Shape, decimal, parse as parse_json, within_object, within_values};
pub use read::{Read, Rest, deserialize, each, piece_bytes, read, to_json, word};
pub(crate) use read::{by_tree, fields, words};

use super::error::Refusal;

/// A position in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// From 1; 0: not known (for JSON use [`Fault::refusal`]).
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its first character.
    pub at: Mark,
    pub value: Value,
}

impl Node {
    /// Roughly its length as JSON, and its number of values.
    pub fn json_size(&self) -> (usize, usize) {
        let add = |(bytes, values): (usize, usize), node: &Self, key_bytes: usize| {
            let (more, inner) = node.json_size();
            (bytes + more + key_bytes + 1, values + inner)
        };
        match &self.value {
            Value::Null | Value::Bool(_) => (4, 1),
            Value::Int(_) | Value::Big(_) | Value::Float(_) => (8, 1),
            Value::Text(text) => (text.len() + 2, 1),
            Value::List(list) => list.iter().fold((2, 1), |sum, node| add(sum, node, 0)),
            Value::Map(map) => {
                map.iter().fold((2, 1), |sum, (key, entry)| add(sum, &entry.node, key.len() + 3))
            }
        }
    }
}

/// JSON's types of values.
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
    /// By key; each occurs once.
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
    /// The name after «got» in errors.
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

/// An error about a value, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `None` until the value is known.
    pub at: Option<Mark>,
    /// From the root down.
    pub path: Vec<Step>,
    /// «got X, expected Y».
    pub why: String,
}

/// The path before the reason.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.why)
        } else {
            write!(f, "{}: {}", Path(&self.path), self.why)
        }
    }
}

impl Fault {
    /// About `node`, which is at `path`.
    pub fn new(node: &Node, path: Vec<Step>, why: String) -> Self {
        Self { at: Some(node.at), path, why }
    }

    /// For the operator: the path before the reason, and the position, which for JSON is searched
    /// for.
    pub fn refusal(self, bytes: &[u8]) -> Refusal {
        let mark = self.at.unwrap_or_default();
        let mark = if mark.line == 0 { json::locate(bytes, &self.path) } else { mark };
        Refusal { line: mark.line, column: mark.column, why: self.to_string() }
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

/// Reads a `T` from a JSON text. For texts that no user wrote: an error has only the path.
pub fn of_json<T: Read + Default>(text: &str) -> Result<T, Fault> {
    let node = parse_json(text.as_bytes()).map_err(|refusal| Fault::bare(refusal.why))?;
    read(&node, &[])
}

/// The part of a text that an error shows.
pub fn shorten(text: &str) -> &str {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Characters of a value that an error shows: enough to recognize it.
const SHOWN_CHARS_MAX: usize = 64;
