//! The heads and bodies of answers to people, as the kubelet's server writes them.

use crate::model::stream::{Refusal, RefusalKind};
use crate::wire::http1::{self, LAST_HEADERS};

/// An error: the whole answer.
pub fn refusal(refusal: &Refusal) -> Vec<u8> {
    let (line, more) = match refusal.kind {
        RefusalKind::BadRequest => ("400 Bad Request", ""),
        RefusalKind::Unauthorized => ("401 Unauthorized", "WWW-Authenticate: Bearer\r\n"),
        RefusalKind::NotFound => ("404 Not Found", ""),
        RefusalKind::MethodNotAllowed => ("405 Method Not Allowed", ""),
        RefusalKind::Invalid => ("422 Unprocessable Entity", ""),
        RefusalKind::TooMany => ("429 Too Many Requests", "Retry-After: 60\r\n"),
        RefusalKind::Internal => ("500 Internal Server Error", ""),
        RefusalKind::Unavailable => ("503 Service Unavailable", ""),
    };
    http1::answer(line, more, TEXT, refusal.text.as_bytes())
}

/// The same, to a request for an upgrade. kubectl reads its text as YAML before it shows it: with a
/// single colon it would be an object without a message, so it gets another one.
pub fn refusal_of_upgrade(refused: &Refusal) -> Vec<u8> {
    if refused.text.matches(": ").count() == 1 {
        let text = format!("edged: {}", refused.text);
        refusal(&Refusal { kind: refused.kind, text })
    } else {
        refusal(refused)
    }
}

/// The same as a meta/v1 `Status`, of which kubectl shows the message.
#[cfg(any(feature = "controller", feature = "metaserver"))]
pub fn refusal_as_status(refused: &Refusal) -> Vec<u8> {
    let (line, reason, code) = match refused.kind {
        RefusalKind::BadRequest => ("400 Bad Request", "BadRequest", 400),
        RefusalKind::Unauthorized => ("401 Unauthorized", "Unauthorized", 401),
        RefusalKind::NotFound => ("404 Not Found", "NotFound", 404),
        RefusalKind::MethodNotAllowed => ("405 Method Not Allowed", "MethodNotAllowed", 405),
        RefusalKind::Invalid => ("422 Unprocessable Entity", "Invalid", 422),
        RefusalKind::TooMany => ("429 Too Many Requests", "TooManyRequests", 429),
        RefusalKind::Internal => ("500 Internal Server Error", "InternalError", 500),
        RefusalKind::Unavailable => ("503 Service Unavailable", "ServiceUnavailable", 503),
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": refused.text, "reason": reason, "code": code,
    });
    http1::answer(line, "", "application/json", status.to_string().as_bytes())
}

/// An error where there is no status, in place of a log: so it says what it is, and ends its line.
#[cfg(feature = "cloud")]
pub fn line(refusal: &Refusal) -> Vec<u8> {
    format!("edged: {}\n", refusal.text).into_bytes()
}

/// An answer that is complete.
pub fn complete(content_type: &str, body: &[u8]) -> Vec<u8> {
    http1::answer("200 OK", "", content_type, body)
}

/// Before text whose end is not known yet; [`begin_chunk`] and [`end_chunk`] stand around its
/// parts, [`LAST_CHUNK`] is its end.
pub fn chunked_head() -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nTransfer-Encoding: \
         chunked\r\n{LAST_HEADERS}\r\n"
    )
    .into_bytes()
}

/// The end of a chunked answer.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Leaves room for the length of a chunk whose text follows; returns its place for [`end_chunk`].
pub fn begin_chunk(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[b'0'; LENGTH_DIGITS]);
    out.extend_from_slice(b"\r\n");
    out.len()
}

/// Ends the chunk whose text is what was appended since. Without text there is no chunk.
pub fn end_chunk(start: usize, out: &mut Vec<u8>) {
    let length_at = start - LENGTH_DIGITS - 2;
    if out.len() == start {
        out.truncate(length_at);
        return;
    }
    let length = format!("{:0width$x}", out.len() - start, width = LENGTH_DIGITS);
    out[length_at..start - 2].copy_from_slice(length.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Hexadecimal, with zeros before it: a chunk is some KiB long, and this is enough for a MiB.
const LENGTH_DIGITS: usize = 5;

/// Of plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_whole_answer() {
        let text = refusal(&Refusal::new(RefusalKind::TooMany, "later"));
        let text = String::from_utf8(text).expect("text");
        assert!(text.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{text}");
        assert!(text.contains("\r\nRetry-After: 60\r\nContent-Length: 5\r\n"), "{text}");
        assert!(text.ends_with("\r\nConnection: close\r\n\r\nlater"), "{text}");
    }

    #[cfg(feature = "controller")]
    #[test]
    fn a_status_has_the_code_and_the_text() {
        let refused = Refusal::new(RefusalKind::Unavailable, "node e1: away");
        let text = String::from_utf8(refusal_as_status(&refused)).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
        let status: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(
            (&status["kind"], &status["message"]),
            (&"Status".into(), &"node e1: away".into())
        );
        assert_eq!(
            (&status["code"], &status["reason"]),
            (&503.into(), &"ServiceUnavailable".into())
        );
    }

    #[test]
    fn a_refusal_of_an_upgrade_is_no_yaml_object() {
        for (text, shown) in [
            ("container not found (\"c\")", "container not found (\"c\")"),
            ("not usable: closed", "edged: not usable: closed"),
            ("rpc error: code = Unknown desc = a: b", "rpc error: code = Unknown desc = a: b"),
        ] {
            let answer = refusal_of_upgrade(&Refusal::new(RefusalKind::Internal, text));
            let answer = String::from_utf8(answer).expect("text");
            assert_eq!(answer.split("\r\n\r\n").nth(1), Some(shown));
            assert_ne!(shown.matches(": ").count(), 1, "a key and its value: {shown}");
        }
    }

    #[test]
    fn chunks_have_their_lengths_in_hexadecimal() {
        let mut out = b"head".to_vec();
        for text in [&[b'x'; 26][..], b"", b"y"] {
            let start = begin_chunk(&mut out);
            out.extend_from_slice(text);
            end_chunk(start, &mut out);
        }
        let first = [b"head0001a\r\n", &[b'x'; 26][..], b"\r\n"].concat();
        assert_eq!(out, [&first, &b"00001\r\ny\r\n"[..]].concat());
    }
}
