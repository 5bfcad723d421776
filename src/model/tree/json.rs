//! Parses JSON text into the tree, by serde_json, with limits and without duplicate keys.
//!
//! serde_json reports where an error is, but not where a value was: [`locate`] reads the text a
//! second time, down to the value that turned out to be invalid.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::Visitor;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess};

use super::{Entry, Fault, Mark, Node, Step, Value, shorten};
use crate::limits::{Budget, MANIFEST_DEPTH_MAX, MANIFEST_NODES_MAX, OBJECT_JSON_BYTES_MAX};
use crate::model::error::Refusal;

/// The one value of the text. Its marks are unknown.
pub fn parse(bytes: &[u8]) -> Result<Node, Refusal> {
    let mut from = serde_json::Deserializer::from_slice(bytes);
    grow(&mut from).and_then(|node| from.end().map(|()| node)).map_err(|error| refusal(&error))
}

/// The size of a JSON text, found in one pass over it, without a parser and without memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Elements of all lists and maps, and these themselves; of invalid JSON, at least as many as a
    /// parser would find before the error.
    pub values: usize,
    /// Lists and maps inside one another.
    pub depth: usize,
}

impl Shape {
    /// Measures this text.
    pub fn of(json: &str) -> Self {
        let (mut shape, mut depth) = (Self::default(), 0_usize);
        let mut bytes = json.bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b',' => shape.values += 1,
                b'{' | b'[' => {
                    shape.values += 1;
                    depth += 1;
                    shape.depth = shape.depth.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b'"' => skip_text(&mut bytes),
                _ => {}
            }
        }
        shape
    }
}

/// Continues after the quote that ends a text, if there is one.
fn skip_text(bytes: &mut std::str::Bytes<'_>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

/// Fails if an object's JSON is too long, or nested deeper than [`parse`] accepts: it would be
/// stored or passed on here, and nobody could read it.
pub fn within_object(json: &str) -> Result<(), Fault> {
    if json.len() > OBJECT_JSON_BYTES_MAX {
        let (got, most) = (json.len(), OBJECT_JSON_BYTES_MAX);
        return Err(Fault::bare(format!("got an object of {got} bytes, expected at most {most}")));
    }
    let got = Shape::of(json).depth;
    if got >= MANIFEST_DEPTH_MAX {
        let why = format!("got values nested {got} deep, expected less than {MANIFEST_DEPTH_MAX}");
        return Err(Fault::bare(why));
    }
    Ok(())
}

/// Fails if a text has too many values: three bytes of it may become a struct of a kilobyte, so
/// they are counted before it is parsed. That costs a pass over its bytes and no memory.
pub fn within_values(json: &str, most: usize, budget: &Budget) -> Result<(), Fault> {
    let got = Shape::of(json).values;
    if got > most {
        let why = format!("got {got} values, expected at most {most}{}", budget.why());
        return Err(Fault::bare(why));
    }
    Ok(())
}

/// The value of one of serde's sources. Its marks are unknown.
pub(super) fn grow<'de, D: Deserializer<'de>>(from: D) -> Result<Node, D::Error> {
    Grow { depth: 0, nodes: &Cell::new(0) }.deserialize(from)
}

fn refusal(error: &serde_json::Error) -> Refusal {
    let (line, column) = (error.line() as u32, error.column() as u32);
    let text = error.to_string();
    let end = format!(" at line {line} column {column}");
    let why = text.strip_suffix(&end).unwrap_or(&text).to_owned();
    Refusal { line, column, why }
}

/// Grows one node.
struct Grow<'a> {
    depth: usize,
    nodes: &'a Cell<usize>,
}

impl Grow<'_> {
    fn child(&self) -> Self {
        Self { depth: self.depth + 1, ..*self }
    }
}

impl<'de> DeserializeSeed<'de> for Grow<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        self.nodes.set(self.nodes.get() + 1);
        if self.nodes.get() > MANIFEST_NODES_MAX {
            let why = format_args!("got more than {MANIFEST_NODES_MAX} values, expected fewer");
            return Err(D::Error::custom(why));
        }
        if self.depth >= MANIFEST_DEPTH_MAX {
            let why =
                format_args!("got values nested deeper than {MANIFEST_DEPTH_MAX}, expected less");
            return Err(D::Error::custom(why));
        }
        let value = from.deserialize_any(self)?;
        Ok(Node { at: Mark::default(), value })
    }
}

impl<'de> Visitor<'de> for Grow<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Big(value), Value::Int))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = from.next_element_seed(self.child())? {
            list.push(node);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(key) = from.next_key::<Box<str>>()? {
            if map.contains_key(&key) {
                let why = format_args!("got the key {:?} twice, expected it once", shorten(&key));
                return Err(A::Error::custom(why));
            }
            let node = from.next_value_seed(self.child())?;
            map.insert(key, Entry { key_at: Mark::default(), node });
        }
        Ok(Value::Map(map))
    }
}

/// The position of the value at `path` in a text that [`parse`] accepted: its line, and a column in
/// or just before it. (0, 0) if there is no such value.
pub(super) fn locate(bytes: &[u8], path: &[Step]) -> Mark {
    let mut from = serde_json::Deserializer::from_slice(bytes);
    match (Locate { path }).deserialize(&mut from) {
        Ok(()) => Mark::default(),
        Err(error) => Mark { line: error.line() as u32, column: error.column() as u32 },
    }
}

/// Goes down a path and fails at its end, so that the error contains the position.
struct Locate<'a> {
    path: &'a [Step],
}

impl<'de> DeserializeSeed<'de> for Locate<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        match self.path.first() {
            None => from.deserialize_any(self),
            Some(Step::Key(_)) => from.deserialize_map(self),
            Some(Step::Index(_)) => from.deserialize_seq(self),
        }
    }
}

impl<'de> Visitor<'de> for Locate<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing: this is the position")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let Some((Step::Index(index), path)) = self.path.split_first() else {
            return Err(A::Error::custom("here"));
        };
        for _ in 0..*index {
            from.next_element::<IgnoredAny>()?;
        }
        from.next_element_seed(Locate { path })?;
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let Some((Step::Key(wanted), path)) = self.path.split_first() else {
            return Err(A::Error::custom("here"));
        };
        while let Some(key) = from.next_key::<Box<str>>()? {
            if key == *wanted {
                return from.next_value_seed(Locate { path });
            }
            from.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// The number of a decimal text, such as `1.5`, `.5`, `2.` or `1e3`, with or without a sign. By
/// JSON's reader, which is needed anyway: the standard library's has tables of 10 kB.
pub fn decimal(text: &str) -> Option<f64> {
    let plain = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digit = |c: char| c.is_ascii_digit();
    if !plain.starts_with(|c| digit(c) || c == '.') || !plain.contains(digit) {
        return None;
    }
    // JSON requires a digit on both sides of the point, and no leading zero.
    let plain = plain.trim_start_matches('0');
    let zero = |text: &str| if text.starts_with(digit) { "" } else { "0" };
    let (whole, part) = plain.split_once('.').unwrap_or((plain, ""));
    let point = if plain.contains('.') { [".", zero(part)] } else { ["", ""] };
    let json = [zero(whole), whole, point[0], point[1], part].concat();
    let value: f64 = serde_json::from_str::<serde_json::Value>(&json).ok()?.as_f64()?;
    Some(if text.starts_with('-') { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_depth_are_counted_outside_of_texts() {
        for (json, values, depth) in [
            ("", 0, 0),
            ("7", 0, 0),
            ("[]", 1, 1),
            (r#"{"a":[1,2],"b":{}}"#, 5, 2),
            (r#"{"a,{[":"\"[,{","b":"\\"}"#, 2, 1),
            ("[[[", 3, 3),
            ("]]][", 1, 1),
            ("\"[,", 0, 0),
            ("[\"\\", 1, 1),
        ] {
            assert_eq!(Shape::of(json), Shape { values, depth }, "{json}");
        }
    }

    #[test]
    fn an_object_has_a_bound_of_bytes_and_of_depth() {
        let nested = |depth: usize| format!("{}7{}", "[".repeat(depth), "]".repeat(depth));
        let deepest = nested(MANIFEST_DEPTH_MAX - 1);
        within_object(&deepest).expect("as deep as may be");
        parse(deepest.as_bytes()).expect("the parser takes the same");
        let deeper = nested(MANIFEST_DEPTH_MAX);
        let why = within_object(&deeper).expect_err("one deeper").to_string();
        assert_eq!(why, "got values nested 64 deep, expected less than 64");
        parse(deeper.as_bytes()).expect_err("the parser refuses the same");
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        within_object(&text(OBJECT_JSON_BYTES_MAX)).expect("as long as may be");
        let why =
            within_object(&text(OBJECT_JSON_BYTES_MAX + 1)).expect_err("one byte more").to_string();
        assert_eq!(why, "got an object of 1572865 bytes, expected at most 1572864");
    }

    #[test]
    fn too_many_values_are_refused_and_a_small_process_says_why() {
        let list = |length: usize| format!("[{}]", vec!["0"; length].join(","));
        let of_pod = |list: &str, budget: Budget| {
            within_values(list, budget.pod_values_max, &budget)
                .expect_err("one too many")
                .to_string()
        };
        let full = Budget::FULL;
        let why = of_pod(&list(full.pod_values_max + 1), full);
        assert_eq!(why, "got 8193 values, expected at most 8192");
        let why = of_pod(&list(2_049), Budget::of(16 << 20));
        assert_eq!(
            why,
            "got 2049 values, expected at most 2048, because this process may use 16777216 bytes \
             of memory"
        );
    }

    #[test]
    fn decimals_are_what_the_standard_library_makes_of_them() {
        for text in [
            "0",
            "007",
            "1.5",
            ".5",
            "2.",
            "-2.5",
            "+3",
            "1e3",
            "1.e3",
            "0.1",
            "15.25",
            "100",
            "-0",
            "0.000001",
            "123456789.125",
            "3E-2",
            "00",
            "0.0",
        ] {
            assert_eq!(decimal(text), text.parse().ok(), "{text}");
        }
        for text in ["", ".", "-", "+-1", "e5", "1x", "1..2", "1e", "inf", "NaN", "1e999", " 1"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }
}
