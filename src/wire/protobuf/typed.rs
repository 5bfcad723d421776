//! Fields as the types that a message has them in, and a writer of messages.

use std::collections::BTreeMap;

use super::{Malformed, Value, fields, text};

impl<'a> Value<'a> {
    /// `bytes`, or a message.
    pub(in crate::wire) fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) | Self::Fixed | Self::Group => Err(self.unlike("bytes")),
        }
    }

    /// `string`
    pub(in crate::wire) fn text(self) -> Result<&'a str, Malformed> {
        text(self.bytes()?)
    }

    /// `uint64`; as `i64` the same bits are an `int64`.
    pub(in crate::wire) fn number(self) -> Result<u64, Malformed> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) | Self::Fixed | Self::Group => Err(self.unlike("a varint")),
        }
    }

    /// `int64`
    pub(in crate::wire) fn signed(self) -> Result<i64, Malformed> {
        self.number().map(|number| number as i64)
    }

    /// `bool`
    pub(in crate::wire) fn flag(self) -> Result<bool, Malformed> {
        self.number().map(|number| number != 0)
    }

    /// The numbers of a repeated field: one, or packed ones.
    pub(in crate::wire) fn numbers(
        self,
        mut take: impl FnMut(u64) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let Self::Bytes(mut packed) = self else { return take(self.number()?) };
        while !packed.is_empty() {
            let number = super::varint(&mut packed);
            take(number.ok_or_else(|| Malformed("got half a packed number".to_owned()))?)?;
        }
        Ok(())
    }

    /// One entry of a `map<string, string>`.
    pub(in crate::wire) fn entry(self) -> Result<(String, String), Malformed> {
        let (mut key, mut value) = ("", "");
        for field in fields(self.bytes()?) {
            match field? {
                (1, field) => key = field.text()?,
                (2, field) => value = field.text()?,
                _ => {}
            }
        }
        Ok((key.to_owned(), value.to_owned()))
    }

    fn unlike(self, expected: &str) -> Malformed {
        let got = match self {
            Self::Number(_) => "a varint",
            Self::Fixed => "a number of fixed width",
            Self::Bytes(_) => "bytes",
            Self::Group => "a group",
        };
        Malformed(format!("got a field with {got}, expected {expected}"))
    }
}

/// Writes one message, field by field. What is proto3's default (zero, empty, false) is left out
/// but where a field's presence counts.
#[derive(Debug, Default)]
pub(in crate::wire) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(in crate::wire) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// `uint32`, `uint64`, `bool`, an enum, or an `int64` by its bits.
    pub(in crate::wire) fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(field << 3));
            self.varint(value);
        }
    }

    /// `int32`, `int64`
    pub(in crate::wire) fn signed(&mut self, field: u32, value: i64) {
        self.number(field, value as u64);
    }

    pub(in crate::wire) fn flag(&mut self, field: u32, value: bool) {
        self.number(field, u64::from(value));
    }

    /// `string`
    pub(in crate::wire) fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    pub(in crate::wire) fn bytes(&mut self, field: u32, value: &[u8]) {
        if !value.is_empty() {
            self.present(field, value);
        }
    }

    /// Each item of a `repeated string`, an empty one as well.
    pub(in crate::wire) fn texts<T: AsRef<str>>(&mut self, field: u32, values: &[T]) {
        for value in values {
            self.present(field, value.as_ref().as_bytes());
        }
    }

    /// `map<string, string>`
    pub(in crate::wire) fn map(&mut self, field: u32, map: &BTreeMap<String, String>) {
        for (key, value) in map {
            self.message(field, &mut |entry| {
                entry.text(1, key);
                entry.text(2, value);
            });
        }
    }

    /// A message, an empty one as well: its presence counts.
    pub(in crate::wire) fn message(&mut self, field: u32, fill: &mut dyn FnMut(&mut Self)) {
        self.varint(u64::from(field << 3 | 2));
        let at = self.bytes.len();
        fill(self);
        let (length, end) = ((self.bytes.len() - at) as u64, self.bytes.len());
        self.varint(length);
        // The length was not known before.
        let prefix = self.bytes.len() - end;
        self.bytes[at..].rotate_right(prefix);
    }

    /// `float`
    pub(in crate::wire) fn float(&mut self, field: u32, value: f32) {
        // The negative zero is no default.
        if value.to_bits() != 0 {
            self.varint(u64::from(field << 3 | 5));
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn present(&mut self, field: u32, value: &[u8]) {
        self.varint(u64::from(field << 3 | 2));
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::wire::cri::container::{ContainerFilter, ContainerStateValue};
    use crate::wire::cri::security::LinuxSandboxSecurityContext;

    #[test]
    fn what_is_written_is_what_others_write() {
        let labels: BTreeMap<String, String> =
            [("k", "v"), ("empty", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let long = "x".repeat(300);
        let theirs = ContainerFilter {
            id: long.clone(),
            state: Some(ContainerStateValue { state: 0 }),
            pod_sandbox_id: String::new(),
            label_selector: labels.clone(),
        };
        let mut ours = Writer::default();
        ours.text(1, &long);
        ours.message(2, &mut |state| state.number(1, 0));
        ours.text(3, "");
        ours.map(4, &labels);
        assert_eq!(ours.into_bytes(), theirs.encode_to_vec());
    }

    #[test]
    fn a_long_message_inside_a_message_has_its_length_before_it() {
        let (mut ours, long) = (Writer::default(), vec![7; 20_000]);
        ours.message(1, &mut |outer| {
            outer.message(2, &mut |inner| inner.bytes(3, &long));
            outer.signed(4, -1);
        });
        let bytes = ours.into_bytes();
        let [Ok((1, outer))] = fields(&bytes).collect::<Vec<_>>()[..] else { panic!("one field") };
        let outer: Vec<_> = fields(outer.bytes().expect("a message")).collect();
        let [Ok((2, inner)), Ok((4, minus))] = outer[..] else { panic!("{outer:?}") };
        assert_eq!(minus.signed(), Ok(-1));
        let [Ok((3, seven))] = fields(inner.bytes().expect("a message")).collect::<Vec<_>>()[..]
        else {
            panic!("one field")
        };
        assert_eq!(seven.bytes(), Ok(&*long));
    }

    #[test]
    fn numbers_are_read_packed_and_one_by_one() {
        let read = |bytes: &[u8]| {
            let mut numbers = Vec::new();
            for field in fields(bytes) {
                field?.1.numbers(|number| {
                    numbers.push(number as i64);
                    Ok(())
                })?;
            }
            Ok::<_, Malformed>(numbers)
        };
        let groups = vec![1, -2, 300];
        let packed = LinuxSandboxSecurityContext {
            supplemental_groups: groups.clone(),
            ..LinuxSandboxSecurityContext::default()
        };
        assert_eq!(read(&packed.encode_to_vec()), Ok(groups));
        assert_eq!(read(b"\x28\x01\x28\x02"), Ok(vec![1, 2]));
        assert_eq!(read(b"\x2a\x01\x80"), Err(Malformed("got half a packed number".to_owned())));
    }

    #[test]
    fn a_field_of_another_kind_is_refused() {
        let why = |got: &str, expected: &str| {
            Malformed(format!("got a field with {got}, expected {expected}"))
        };
        assert_eq!(Value::Number(1).text(), Err(why("a varint", "bytes")));
        assert_eq!(Value::Fixed.bytes(), Err(why("a number of fixed width", "bytes")));
        assert_eq!(Value::Bytes(b"").flag(), Err(why("bytes", "a varint")));
        assert_eq!(Value::Group.signed(), Err(why("a group", "a varint")));
        assert!(Value::Bytes(b"\xff").text().is_err_and(|why| why.0.contains("no UTF-8")));
    }
}
