//! Tree → types, by serde. Every error knows the value it is about.
//!
//! As Go's JSON reader does, `null` is taken for the empty value where a text, list, map, number or
//! boolean is expected, and a number without a fraction (`80.0`) for a whole one.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};

use super::{Entry, Fault, Node, Step, Value, shorten};

/// What the tree says as a `T`; `path` is where the tree hangs.
pub fn read<T: DeserializeOwned>(node: &Node, path: &[Step]) -> Result<T, Fault> {
    T::deserialize(Reader(node)).map_err(|mut fault| {
        fault.at.get_or_insert(node.at);
        // Steps were added from the bottom up.
        fault.path.extend(path.iter().rev().cloned());
        fault.path.reverse();
        fault
    })
}

impl Fault {
    fn bare(why: String) -> Self {
        Self { at: None, path: Vec::new(), why }
    }

    fn below(mut self, node: &Node, step: Step) -> Self {
        self.at.get_or_insert(node.at);
        self.path.push(step);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Fault {}

impl Error for Fault {
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self::bare(why.to_string())
    }

    fn invalid_type(got: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let got = match got {
            Unexpected::Bool(value) => value.to_string(),
            Unexpected::Unsigned(value) => value.to_string(),
            Unexpected::Signed(value) => value.to_string(),
            Unexpected::Float(value) => value.to_string(),
            Unexpected::Str(value) => format!("{:?}", shorten(value)),
            Unexpected::Unit => "null".into(),
            Unexpected::Seq => "a list".into(),
            Unexpected::Map => "a map".into(),
            other => other.to_string(),
        };
        Self::bare(format!("got {got}, expected {}", plain(&expected.to_string())))
    }

    fn invalid_value(got: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(got, expected)
    }

    fn unknown_variant(got: &str, expected: &'static [&'static str]) -> Self {
        Self::bare(format!("got {:?}, expected one of {}", shorten(got), expected.join(", ")))
    }
}

/// serde's names of types in the words of a manifest's author.
fn plain(expected: &str) -> &str {
    match expected {
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" => "a whole number from 0 up",
        "i32" | "i64" => "a whole number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a string" | "string" => "text (in quotes if it looks like a number or a boolean)",
        _ if expected.starts_with("struct ") => "a map",
        _ if expected.starts_with("enum ") => "text",
        _ => expected,
    }
}

struct Reader<'a>(&'a Node);

/// serde's methods for whole numbers: `null` is 0, and 80.0 is 80.
macro_rules! whole_numbers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            match self.0.value {
                Value::Null => visitor.visit_u64(0),
                Value::Float(value) if value.fract() == 0.0 && value.abs() < EXACT_BELOW => {
                    visitor.visit_i64(value as i64)
                }
                _ => self.deserialize_any(visitor),
            }
        })*
    };
}

/// From 2⁵³ on, not every whole number is a float.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => match u64::try_from(*value) {
                Ok(value) => visitor.visit_u64(value),
                Err(_) => visitor.visit_i64(*value),
            },
            Value::Big(value) => visitor.visit_u64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_str(value),
            Value::List(list) => visitor.visit_seq(Items(list.iter().enumerate())),
            Value::Map(map) => visitor.visit_map(Entries { entries: map.iter(), next: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0.value {
            Value::Null => visitor.visit_bool(false),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0.value {
            Value::Null => visitor.visit_str(""),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0.value {
            Value::Null => visitor.visit_seq(Items([].iter().enumerate())),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::Null => visitor.visit_map(Entries { entries: EMPTY.iter(), next: None }),
            // A struct's visitor would take a list for its fields in order.
            Value::List(_) => Err(Fault::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::Text(text) => visitor.visit_enum(text.into_deserializer()),
            Value::Map(map) => {
                let entries = Entries { entries: map.iter(), next: None };
                visitor.visit_enum(MapAccessDeserializer::new(entries))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    whole_numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    serde::forward_to_deserialize_any! {
        f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct identifier
        ignored_any i128 u128
    }
}

static EMPTY: std::collections::BTreeMap<Box<str>, Entry> = std::collections::BTreeMap::new();

struct Items<'a>(std::iter::Enumerate<std::slice::Iter<'a, Node>>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some((index, node)) = self.0.next() else { return Ok(None) };
        let value = seed.deserialize(Reader(node));
        value.map(Some).map_err(|fault| fault.below(node, Step::Index(index)))
    }

    /// So that a list of one container takes no room for four.
    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Entries<'a> {
    entries: std::collections::btree_map::Iter<'a, Box<str>, Entry>,
    next: Option<(&'a str, &'a Node)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let Some((key, entry)) = self.entries.next() else { return Ok(None) };
        self.next = Some((key, &entry.node));
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let (key, node) = self.next.take().expect("serde asks for the key first");
        let value = seed.deserialize(Reader(node));
        value.map_err(|fault| fault.below(node, Step::Key(key.into())))
    }
}
