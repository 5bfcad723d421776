//! Writes JSON field by field, without a type for each object: an OCI configuration has dozens,
//! each of them once.

use std::io::Write as _;

/// One JSON value that is being written.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// One object.
    pub(super) fn object(fill: &mut dyn FnMut(&mut Self)) -> Vec<u8> {
        let mut writer = Self::default();
        writer.item(fill);
        writer.bytes
    }

    /// The next item of a list: an object.
    pub(super) fn item(&mut self, fill: &mut dyn FnMut(&mut Self)) {
        self.separate();
        self.within(*b"{}", fill);
    }

    pub(super) fn map(&mut self, name: &str, fill: &mut dyn FnMut(&mut Self)) {
        self.name(name);
        self.within(*b"{}", fill);
    }

    pub(super) fn list(&mut self, name: &str, fill: &mut dyn FnMut(&mut Self)) {
        self.name(name);
        self.within(*b"[]", fill);
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.quoted(value);
    }

    /// A list of texts.
    pub(super) fn texts<T: AsRef<str>>(&mut self, name: &str, values: &[T]) {
        self.list(name, &mut |list| {
            for value in values {
                list.separate();
                list.quoted(value.as_ref());
            }
        });
    }

    pub(super) fn flag(&mut self, name: &str, value: bool) {
        self.raw(name, if value { "true" } else { "false" });
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.digits(value);
    }

    pub(super) fn signed(&mut self, name: &str, value: i64) {
        self.name(name);
        self.bytes.extend_from_slice(if value < 0 { b"-" } else { b"" });
        self.digits(value.unsigned_abs());
    }

    /// A list of numbers.
    pub(super) fn numbers(&mut self, name: &str, values: &[u32]) {
        self.list(name, &mut |list| {
            for value in values {
                list.separate();
                list.digits(u64::from(*value));
            }
        });
    }

    /// What is JSON already.
    pub(super) fn raw(&mut self, name: &str, value: &str) {
        self.name(name);
        self.bytes.extend_from_slice(value.as_bytes());
    }

    fn name(&mut self, name: &str) {
        self.separate();
        self.quoted(name);
        self.bytes.push(b':');
    }

    /// A comma, unless this is the first one: no value ends with an opening bracket.
    fn separate(&mut self) {
        if !matches!(self.bytes.last(), None | Some(b'{' | b'[')) {
            self.bytes.push(b',');
        }
    }

    fn within(&mut self, [open, close]: [u8; 2], fill: &mut dyn FnMut(&mut Self)) {
        self.bytes.push(open);
        fill(self);
        self.bytes.push(close);
    }

    fn quoted(&mut self, text: &str) {
        serde_json::to_writer(&mut self.bytes, text).expect("a vector takes all bytes");
    }

    fn digits(&mut self, value: u64) {
        write!(self.bytes, "{value}").expect("a vector takes all bytes");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_written_is_read_as_it_was_meant() {
        let bytes = Writer::object(&mut |w| {
            w.text("a", "\"{\n[\u{1}é");
            w.map("b", &mut |_| {});
            w.list("c", &mut |w| {
                w.item(&mut |w| w.flag("d", true));
                w.item(&mut |_| {});
            });
            w.texts("e{", &["", "["]);
            w.texts::<&str>("f", &[]);
            w.signed("g", i64::MIN);
            w.number("h", u64::MAX);
            w.numbers("i", &[0, u32::MAX]);
            w.raw("j", "{\"k\":null}");
            w.signed("l", 7);
        });
        let read: Value = serde_json::from_slice(&bytes).expect("JSON");
        let expected = json!({
            "a": "\"{\n[\u{1}é", "b": {}, "c": [{"d": true}, {}], "e{": ["", "["], "f": [],
            "g": i64::MIN, "h": u64::MAX, "i": [0, u32::MAX], "j": {"k": null}, "l": 7,
        });
        assert_eq!(read, expected);
    }
}
