//! Base64 as in Secrets and binary data (RFC 4648, section 4).

/// The bytes; padding may be missing, and white space is ignored. `None`: not base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut held, mut pads) = (0_u32, 0_u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                pads += 1;
                continue;
            }
            _ => return None,
        };
        if pads > 0 {
            return None;
        }
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    // Remaining bits must be zero, and a single character is not even a byte.
    (bits == 0 && held < 6 && pads <= 2).then_some(bytes)
}

/// With padding, in one line.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |n: usize| u32::from(chunk.get(n).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { digit.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_rfc_go_both_ways() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
            ("\u{3ff}\u{fff}?", "z7/gv78/"),
        ] {
            assert_eq!(encode(plain.as_bytes()), coded);
            assert_eq!(decode(coded).as_deref(), Some(plain.as_bytes()), "{coded}");
            let bare = coded.trim_end_matches('=');
            assert_eq!(decode(bare).as_deref(), Some(plain.as_bytes()), "{bare}");
        }
        assert_eq!(decode(" Zm9v\n YmFy\n").as_deref(), Some(&b"foobar"[..]));
    }

    #[test]
    fn what_is_no_base64_is_none() {
        for text in ["Z", "Zg=a", "Zm9v!", "Zh==", "Zm9vY", "====", "Zm9-", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
