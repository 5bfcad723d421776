//! Parses YAML text into the tree, by the events of yaml-rust2.
//!
//! Anchors, aliases and merge keys (`<<`) are resolved by copying, and the copies are counted:
//! otherwise a few lines of aliases can exhaust any memory. Tags beyond YAML's own and keys that
//! are not scalars are refused.

use std::collections::BTreeMap;

use yaml_rust2::parser::{Event, Parser, Tag};
use yaml_rust2::scanner::{Marker, TScalarStyle};

use super::{Entry, Mark, Node, Value, scalar, shorten};
use crate::limits::{MANIFEST_COPIED_BYTES_MAX, MANIFEST_DEPTH_MAX, MANIFEST_NODES_MAX};
use crate::model::error::Refusal;

/// The documents in order.
pub(super) fn parse(text: &str) -> Result<Vec<Node>, Refusal> {
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder::default();
    loop {
        let (event, marker) = parser.next_token().map_err(|error| {
            let at = mark(error.marker());
            refusal(at, error.info().to_owned())
        })?;
        let at = mark(&marker);
        match event {
            Event::StreamEnd => return Ok(builder.documents),
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
            Event::DocumentStart => builder.anchors.clear(),
            Event::Alias(id) => builder.alias(id, at)?,
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar_value(text, style, tag.as_ref(), at)?;
                builder.value(Node { at, value }, anchor)?;
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_ref(), "seq", at)?;
                builder.open(at, anchor, Open::List(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_ref(), "map", at)?;
                builder.open(at, anchor, Open::Map(Map::default()))?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.close()?,
        }
    }
}

fn mark(marker: &Marker) -> Mark {
    Mark { line: marker.line() as u32, column: marker.col() as u32 + 1 }
}

fn refusal(at: Mark, why: String) -> Refusal {
    Refusal { line: at.line, column: at.column, why }
}

fn scalar_value(
    text: String,
    style: TScalarStyle,
    tag: Option<&Tag>,
    at: Mark,
) -> Result<Value, Refusal> {
    match (style, tag) {
        (TScalarStyle::Plain, None) => Ok(scalar::resolve(&text)),
        (_, None) => Ok(Value::Text(text.into())),
        (_, Some(tag)) => match core_tag(tag) {
            Some("str" | "!") => Ok(Value::Text(text.into())),
            Some("null" | "bool" | "int" | "float") => Ok(scalar::resolve(&text)),
            _ => Err(bad_tag(tag, at)),
        },
    }
}

fn check_tag(tag: Option<&Tag>, kind: &str, at: Mark) -> Result<(), Refusal> {
    match tag {
        Some(tag) if !core_tag(tag).is_some_and(|name| name == kind || name == "!") => {
            Err(bad_tag(tag, at))
        }
        _ => Ok(()),
    }
}

/// `str` of `!!str`; `!` for the tag that means «not resolved».
fn core_tag(tag: &Tag) -> Option<&str> {
    match (&*tag.handle, &*tag.suffix) {
        ("tag:yaml.org,2002:", name) => Some(name),
        ("!", "") | ("", "!") => Some("!"),
        _ => None,
    }
}

fn bad_tag(tag: &Tag, at: Mark) -> Refusal {
    let (handle, suffix) = (shorten(&tag.handle), shorten(&tag.suffix));
    refusal(at, format!("got the tag {handle}{suffix}, expected none, !!str, !!int, !!bool …"))
}

#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    /// From the root down.
    frames: Vec<Frame>,
    /// Of this document, by the parser's number.
    anchors: BTreeMap<usize, Node>,
    /// The number of nodes so far, with copies.
    nodes: usize,
    /// Bytes of copies.
    copied_bytes: usize,
}

/// A list or map that is incomplete.
struct Frame {
    at: Mark,
    /// 0: none.
    anchor: usize,
    open: Open,
}

enum Open {
    List(Vec<Node>),
    Map(Map),
}

#[derive(Default)]
struct Map {
    entries: BTreeMap<Box<str>, Entry>,
    /// A key without its value.
    key: Option<(Key, Mark)>,
    /// The contents of `<<`, for keys that the map itself does not have.
    merged: Vec<Node>,
}

enum Key {
    Text(Box<str>),
    Merge,
}

impl Builder {
    fn open(&mut self, at: Mark, anchor: usize, open: Open) -> Result<(), Refusal> {
        if self.frames.len() >= MANIFEST_DEPTH_MAX {
            return Err(too_deep(at));
        }
        self.frames.push(Frame { at, anchor, open });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Refusal> {
        let Frame { at, anchor, open } = self.frames.pop().expect("the parser ends what it began");
        let value = match open {
            Open::List(list) => Value::List(list),
            Open::Map(map) => Value::Map(map.finish()?),
        };
        self.value(Node { at, value }, anchor)
    }

    fn alias(&mut self, id: usize, at: Mark) -> Result<(), Refusal> {
        let node = self.anchors.remove(&id).ok_or_else(|| {
            refusal(at, "got an alias of what is not complete, expected one of before".into())
        })?;
        let copy = self.copy(&node, at, self.frames.len());
        self.anchors.insert(id, node);
        self.put(copy?)
    }

    /// Takes a complete value, and keeps a copy of it if an alias may refer to it.
    fn value(&mut self, node: Node, anchor: usize) -> Result<(), Refusal> {
        self.count(node.at)?;
        if anchor != 0 {
            let kept = self.copy(&node, node.at, self.frames.len())?;
            self.anchors.insert(anchor, kept);
        }
        self.put(node)
    }

    fn put(&mut self, node: Node) -> Result<(), Refusal> {
        let Some(frame) = self.frames.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        // The parser detects a map at its first colon; it began at the first key.
        frame.at = frame.at.min(node.at);
        match &mut frame.open {
            Open::List(list) => list.push(node),
            Open::Map(map) => map.put(node)?,
        }
        Ok(())
    }

    fn count(&mut self, at: Mark) -> Result<(), Refusal> {
        self.nodes += 1;
        if self.nodes > MANIFEST_NODES_MAX {
            let why = format!("got more than {MANIFEST_NODES_MAX} values, expected fewer");
            return Err(refusal(at, why));
        }
        Ok(())
    }

    /// `at`: the position of the alias, for errors; the nodes keep their own positions.
    fn copy(&mut self, node: &Node, at: Mark, depth: usize) -> Result<Node, Refusal> {
        self.count(at)?;
        self.copied_bytes += size_of::<Node>();
        if let Value::Text(text) = &node.value {
            self.copied_bytes += text.len();
        }
        if self.copied_bytes > MANIFEST_COPIED_BYTES_MAX {
            let why = "got aliases that stand for too much, expected less repetition".into();
            return Err(refusal(at, why));
        }
        if depth > MANIFEST_DEPTH_MAX {
            return Err(too_deep(at));
        }
        let value = match &node.value {
            Value::List(list) => {
                let copies = list.iter().map(|node| self.copy(node, at, depth + 1));
                Value::List(copies.collect::<Result<_, _>>()?)
            }
            Value::Map(map) => {
                let mut copies = BTreeMap::new();
                for (key, Entry { key_at, node }) in map {
                    self.copied_bytes += key.len();
                    let entry = Entry { key_at: *key_at, node: self.copy(node, at, depth + 1)? };
                    copies.insert(key.clone(), entry);
                }
                Value::Map(copies)
            }
            scalar => scalar.clone(),
        };
        Ok(Node { at: node.at, value })
    }
}

fn too_deep(at: Mark) -> Refusal {
    let why = format!("got values nested deeper than {MANIFEST_DEPTH_MAX}, expected less");
    refusal(at, why)
}

impl Map {
    fn put(&mut self, node: Node) -> Result<(), Refusal> {
        match self.key.take() {
            None => {
                let at = node.at;
                self.key = Some((key(node)?, at));
            }
            Some((Key::Merge, _)) => match node.value {
                Value::Map(_) => self.merged.push(node),
                Value::List(list) => self.merged.extend(list),
                other => {
                    let why = format!("got {other} for <<, expected a map or a list of maps");
                    return Err(refusal(node.at, why));
                }
            },
            Some((Key::Text(key), key_at)) => {
                if let Some(first) = self.entries.get(&key) {
                    let line = first.key_at.line;
                    let key = shorten(&key);
                    let why = format!("got the key {key:?} twice, expected it once (line {line})");
                    return Err(refusal(key_at, why));
                }
                self.entries.insert(key, Entry { key_at, node });
            }
        }
        Ok(())
    }

    /// The map's own keys win over merged ones, earlier merged ones over later.
    fn finish(mut self) -> Result<BTreeMap<Box<str>, Entry>, Refusal> {
        for Node { at, value } in self.merged {
            let Value::Map(map) = value else {
                return Err(refusal(at, format!("got {value} for <<, expected a map")));
            };
            for (key, entry) in map {
                self.entries.entry(key).or_insert(entry);
            }
        }
        Ok(self.entries)
    }
}

/// Keys are text, or scalars that Kubernetes converts to text.
fn key(node: Node) -> Result<Key, Refusal> {
    Ok(Key::Text(match node.value {
        Value::Text(text) if &*text == "<<" => return Ok(Key::Merge),
        Value::Text(text) => text,
        Value::Bool(_) | Value::Int(_) | Value::Big(_) | Value::Float(_) => {
            node.value.to_string().into()
        }
        other => return Err(refusal(node.at, format!("got {other} as a key, expected text"))),
    }))
}
