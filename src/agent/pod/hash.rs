//! The container hash by which kubelets recognise a container (spec section 1.9).

use std::fmt::Write as _;

/// FNV-1a, 32 bits, over the text that Go prints for the bytes of
/// `{"image":"<image>","name":"<name>"}`, in hex without leading zeros.
///
/// The detour is the kubelet's, from 1.31 on; containers keep the hash in an annotation, so it is
/// part of the contract between agents.
pub fn container_hash(name: &str, image: &str) -> Box<str> {
    let json = format!(r#"{{"image":"{}","name":"{}"}}"#, go_json(image), go_json(name));
    let mut fnv = Fnv32::new();
    fnv.write(b"([]uint8)[");
    for (at, byte) in json.bytes().enumerate() {
        if at > 0 {
            fnv.write(b" ");
        }
        fnv.write(byte.to_string().as_bytes());
    }
    fnv.write(b"]");
    format!("{:x}", fnv.0).into()
}

/// The name of a file that belongs to one instance of a container: 8 hex digits.
pub fn file_name(container: &str, attempt: u32) -> Box<str> {
    let mut fnv = Fnv32::new();
    fnv.write(container.as_bytes());
    fnv.write(&attempt.to_le_bytes());
    format!("{:08x}", fnv.0).into()
}

/// Spreads pods over a table: the same in each version of this program.
pub fn of_uid(uid: &str) -> u32 {
    let mut fnv = Fnv32::new();
    fnv.write(uid.as_bytes());
    fnv.0
}

/// Go's JSON escapes `<`, `>`, `&` and the two line separators besides what JSON requires. The
/// names and images here contain no control characters, but a bad one must not break the text.
fn go_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\x1f' => {
                write!(escaped, "\\u{:04x}", u32::from(c)).expect("a String takes all");
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

struct Fnv32(u32);

impl Fnv32 {
    fn new() -> Self {
        Self(0x811c_9dc5)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_the_kubelets() {
        for (name, image, hash) in [
            ("test_container", "foo/image:v1", "8e45cbd0"),
            ("foo", "busybox", "fbac95ff"),
            ("web", "nginx:1.25", "3899ff6c"),
        ] {
            assert_eq!(&*container_hash(name, image), hash, "{name} {image}");
        }
    }

    #[test]
    fn text_is_escaped_as_go_does() {
        let text = "a\"b\\c\nd\re\tf<g>h&i\u{2028}j\u{1}é";
        let escaped = r#"a\"b\\c\nd\re\tf\u003cg\u003eh\u0026i\u2028j\u0001é"#;
        assert_eq!(go_json(text), escaped);
    }

    #[test]
    fn the_hash_of_a_uid_is_that_of_fnv() {
        for (uid, hash) in [("", 0x811c_9dc5), ("a", 0xe40c_292c), ("foobar", 0xbf9c_f968)] {
            assert_eq!(of_uid(uid), hash, "{uid}");
        }
    }

    #[test]
    fn each_instance_of_each_container_has_a_file_name_of_its_own() {
        let names = [("a", 0), ("a", 1), ("b", 0), ("b", 1)].map(|(name, it)| file_name(name, it));
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }
}
