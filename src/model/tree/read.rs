//! Reads types from a tree. Every error refers to its value.
//!
//! A type defines how it is read: a struct by its fields' names ([`fields`]), an enum by its words
//! ([`words`]). Not by serde's derive: for all fields of a pod that costs a hundred kilobytes more
//! code, because each type gets a reader of its own for each source.
//!
//! As in Go's JSON reader, `null` is the empty value, and a number without a fraction (`80.0`) is a
//! whole one. Unknown fields are kept if a struct has a rest, and ignored otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::{Deserializer, Error};
use serde_json::{Map, Value as Json};

use super::{Fault, Node, Step, Value, json};

/// A type that can be read from a tree.
pub trait Read {
    /// Reads the node; `null` changes nothing.
    fn read(&mut self, node: &Node) -> Result<(), Fault>;

    /// Roughly the bytes that it owns on the heap, without its own size. They can be a hundred
    /// times the length of the text.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// The allocator's overhead for each allocation.
pub const PIECE_BYTES: usize = 16;

/// For one allocation of this size.
pub fn piece_bytes(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { bytes + PIECE_BYTES }
}

/// Receives the fields of a map that its struct does not have.
pub trait Rest {
    /// Takes one of them.
    fn other(&mut self, key: &str, node: &Node) -> Result<(), Fault>;

    /// As [`Read::heap_bytes`].
    fn rest_bytes(&self) -> usize;
}

/// Reads a `T`; `path` is the position of the tree.
pub fn read<T: Read + Default>(node: &Node, path: &[Step]) -> Result<T, Fault> {
    let mut value = T::default();
    match value.read(node) {
        Ok(()) => Ok(value),
        Err(mut fault) => {
            fault.at.get_or_insert(node.at);
            // Steps were added from the bottom up.
            fault.path.extend(path.iter().rev().cloned());
            fault.path.reverse();
            Err(fault)
        }
    }
}

/// For serde's sources: through a tree.
pub fn deserialize<'de, T: Read + Default, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    read(&json::grow(from)?, &[]).map_err(D::Error::custom)
}

/// Implements reading of a struct: `fields!(Type { "name" => field, … })`, and `… rest field` if
/// unknown fields are kept.
macro_rules! fields {
    ($type:ty { $($key:literal => $field:ident),* $(,)? } $(rest $rest:ident)?) => {
        impl $type {
            fn field(
                &mut self,
                key: &str,
                node: &$crate::model::tree::Node,
            ) -> Result<(), $crate::model::tree::Fault> {
                match key {
                    $($key => $crate::model::tree::Read::read(&mut self.$field, node),)*
                    _ => {
                        $($crate::model::tree::Rest::other(&mut self.$rest, key, node)?;)?
                        Ok(())
                    }
                }
            }
        }
        impl $crate::model::tree::Read for $type {
            fn read(
                &mut self,
                node: &$crate::model::tree::Node,
            ) -> Result<(), $crate::model::tree::Fault> {
                $crate::model::tree::each(node, &mut |key, node| self.field(key, node))
            }

            fn heap_bytes(&self) -> usize {
                let known = 0 $(+ $crate::model::tree::Read::heap_bytes(&self.$field))*;
                known $(+ $crate::model::tree::Rest::rest_bytes(&self.$rest))?
            }
        }
        $crate::model::tree::by_tree!($type);
    };
}

/// Implements reading of an enum: `words!(Type { "Word" => Variant, … })`.
macro_rules! words {
    ($type:ty { $($word:literal => $variant:ident),* $(,)? }) => {
        impl $crate::model::tree::Read for $type {
            fn read(
                &mut self,
                node: &$crate::model::tree::Node,
            ) -> Result<(), $crate::model::tree::Fault> {
                match $crate::model::tree::word(node, &[$($word),*])? {
                    $(Some($word) => *self = Self::$variant,)*
                    _ => {}
                }
                Ok(())
            }
        }
        $crate::model::tree::by_tree!($type);
    };
}

/// Serde reads by the same rules.
macro_rules! by_tree {
    ($type:ty) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::model::tree::deserialize(from)
            }
        }
    };
}

pub(crate) use {by_tree, fields, words};

/// Calls a function for the entries of a map.
pub fn each(
    node: &Node,
    take: &mut dyn FnMut(&str, &Node) -> Result<(), Fault>,
) -> Result<(), Fault> {
    match &node.value {
        Value::Null => Ok(()),
        Value::Map(map) => map.iter().try_for_each(|(key, entry)| {
            let node = &entry.node;
            take(key, node).map_err(|fault| fault.below(node, Step::Key(key.clone())))
        }),
        _ => Err(Fault::unlike(node, "a map")),
    }
}

/// One of these; `None` for `null`.
pub fn word<'a>(node: &'a Node, words: &[&str]) -> Result<Option<&'a str>, Fault> {
    match &node.value {
        Value::Null => Ok(None),
        Value::Text(text) if words.contains(&&**text) => Ok(Some(text)),
        Value::Text(_) => Err(Fault::unlike(node, &format!("one of {}", words.join(", ")))),
        _ => Err(Fault::unlike(node, "text")),
    }
}

fn text(node: &Node) -> Result<&str, Fault> {
    match &node.value {
        Value::Null => Ok(""),
        Value::Text(text) => Ok(text),
        _ => Err(Fault::unlike(node, "text (in quotes if it looks like a number or a boolean)")),
    }
}

fn list(node: &Node) -> Result<&[Node], Fault> {
    match &node.value {
        Value::Null => Ok(&[]),
        Value::List(list) => Ok(list),
        _ => Err(Fault::unlike(node, "a list")),
    }
}

/// From 2⁵³ on, not every whole number is a float.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

fn whole(node: &Node, least: i64, most: i64, expected: &str) -> Result<i64, Fault> {
    let value = match node.value {
        Value::Null => Some(0),
        Value::Int(value) => Some(value),
        Value::Float(value) if value.fract() == 0.0 && value.abs() < EXACT_BELOW => {
            Some(value as i64)
        }
        _ => None,
    };
    let fits = value.filter(|value| (least..=most).contains(value));
    fits.ok_or_else(|| Fault::unlike(node, expected))
}

impl Fault {
    /// About the current value.
    pub fn bare(why: String) -> Self {
        Self { at: None, path: Vec::new(), why }
    }

    /// The value has another type.
    pub fn unlike(node: &Node, expected: &str) -> Self {
        Self::bare(format!("got {}, expected {expected}", node.value))
    }

    fn below(mut self, node: &Node, step: Step) -> Self {
        self.at.get_or_insert(node.at);
        self.path.push(step);
        self
    }
}

macro_rules! whole_numbers {
    ($($type:ty, $expected:literal;)*) => {
        $(impl Read for $type {
            fn read(&mut self, node: &Node) -> Result<(), Fault> {
                let (least, most) = (i64::from(<$type>::MIN), i64::from(<$type>::MAX));
                *self = whole(node, least, most, $expected)? as $type;
                Ok(())
            }
        })*
    };
}

whole_numbers! {
    u16, "a whole number from 0 to 65535";
    i32, "a whole number";
    i64, "a whole number";
}

impl Read for bool {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        match node.value {
            Value::Null => Ok(()),
            Value::Bool(value) => {
                *self = value;
                Ok(())
            }
            _ => Err(Fault::unlike(node, "true or false")),
        }
    }
}

impl Read for String {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        text(node)?.clone_into(self);
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        piece_bytes(self.capacity())
    }
}

impl Read for Box<str> {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        *self = text(node)?.into();
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        piece_bytes(self.len())
    }
}

impl<T: Read + Default> Read for Option<T> {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        if node.value == Value::Null {
            return Ok(());
        }
        self.insert(T::default()).read(node)
    }

    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, T::heap_bytes)
    }
}

impl<T: Read> Read for Box<T> {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        (**self).read(node)
    }

    fn heap_bytes(&self) -> usize {
        piece_bytes(size_of::<T>()) + (**self).heap_bytes()
    }
}

impl<T: Read + Clone> Read for Arc<T> {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        Arc::make_mut(self).read(node)
    }

    fn heap_bytes(&self) -> usize {
        piece_bytes(size_of::<T>()) + (**self).heap_bytes()
    }
}

impl<T: Read + Default> Read for Vec<T> {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        let list = list(node)?;
        // So that a list of one container does not take the room of four.
        self.reserve_exact(list.len());
        for (index, node) in list.iter().enumerate() {
            self.push(T::default());
            let value = self.last_mut().expect("just pushed");
            value.read(node).map_err(|fault| fault.below(node, Step::Index(index)))?;
        }
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        let all: usize = self.iter().map(T::heap_bytes).sum();
        piece_bytes(self.capacity() * size_of::<T>()) + all
    }
}

impl<T: Read + Default> Read for BTreeMap<String, T> {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        each(node, &mut |key, node| self.entry(key.to_owned()).or_default().read(node))
    }

    fn heap_bytes(&self) -> usize {
        // The tree's nodes are about half full where keys come in order.
        let entry = 2 * (size_of::<String>() + size_of::<T>());
        let of = |(key, value): (&String, &T)| entry + key.heap_bytes() + value.heap_bytes();
        self.iter().map(of).sum()
    }
}

impl Read for Map<String, Json> {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        each(node, &mut |key, node| self.other(key, node))
    }

    fn heap_bytes(&self) -> usize {
        let entry = 2 * (size_of::<String>() + size_of::<Json>());
        let of = |(key, value): (&String, &Json)| entry + key.heap_bytes() + json_bytes(value);
        self.iter().map(of).sum()
    }
}

fn json_bytes(value: &Json) -> usize {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
        Json::String(text) => text.heap_bytes(),
        Json::Array(list) => {
            let all: usize = list.iter().map(json_bytes).sum();
            piece_bytes(list.capacity() * size_of::<Json>()) + all
        }
        Json::Object(map) => map.heap_bytes(),
    }
}

impl Rest for Map<String, Json> {
    fn other(&mut self, key: &str, node: &Node) -> Result<(), Fault> {
        self.insert(key.to_owned(), to_json(node));
        Ok(())
    }

    fn rest_bytes(&self) -> usize {
        self.heap_bytes()
    }
}

/// The value as it stands.
pub fn to_json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Big(value) => (*value).into(),
        Value::Float(value) => (*value).into(),
        Value::Text(value) => (&**value).into(),
        Value::List(list) => list.iter().map(to_json).collect(),
        Value::Map(map) => {
            map.iter().map(|(key, entry)| (key.to_string(), to_json(&entry.node))).collect()
        }
    }
}
