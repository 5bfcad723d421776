//! Bytes as hex, in one place for digests of images, records and certificates.

use std::fmt::Write as _;

/// Two digits for each byte, in lower case.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a text takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_byte_has_two_digits_in_lower_case() {
        assert_eq!(super::encode(&[0, 0x0a, 0xf0, 0xff]), "000af0ff");
        assert_eq!(super::encode(&[]), "");
    }
}
