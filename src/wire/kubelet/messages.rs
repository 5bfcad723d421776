//! The answers that KubeEdge's clients show: JSON of lists of texts, where a list that is empty is
//! left out (metaserver.md, section 11). A log of any length is written as it is read.

use std::fmt::Write;

use serde_json::json;

use super::answer::{self, LAST_CHUNK};
use crate::limits::COMMAND_OUTPUT_BYTES_MAX;
use crate::model::cri::Exec;
use crate::model::stream::Refusal;
use crate::wire::http1::LAST_HEADERS;

const JSON: &str = "application/json";

/// What a command has written, and how it has ended: `runOutMessages`, `runErrMessages`,
/// `errMessages`. The output counts also where there is none on standard output, other than with
/// EdgeCore; so does the exit code.
pub fn of_command(done: &Exec) -> Vec<u8> {
    let (output, errors) = done.output.split_at(done.errors_at);
    let mut answer = json!({});
    for (key, text) in [("runOutMessages", output), ("runErrMessages", errors)] {
        if !text.is_empty() {
            answer[key] = json!([text]);
        }
    }
    let mut faults = Vec::new();
    if done.is_cut {
        faults
            .push(format!("the output has more than {COMMAND_OUTPUT_BYTES_MAX} bytes, and is cut"));
    }
    if done.exit_code != 0 {
        faults.push(format!("command terminated with exit code {}", done.exit_code));
    }
    if !faults.is_empty() {
        answer["errMessages"] = json!(faults);
    }
    answer::complete(JSON, answer.to_string().as_bytes())
}

/// A command that was not run.
pub fn refusal_of_command(refusal: &Refusal) -> Vec<u8> {
    answer::complete(JSON, json!({"errMessages": [refusal.text]}).to_string().as_bytes())
}

/// The only text of `logMessages`, in chunks.
#[derive(Debug, Default)]
pub struct LogText {
    /// The beginning of a character whose rest has not come.
    rest: Vec<u8>,
    /// Bytes of text so far.
    count: u64,
}

impl LogText {
    /// The head, and what stands before the text.
    pub fn begin() -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nTransfer-Encoding: \
             chunked\r\n{LAST_HEADERS}\r\n"
        );
        let mut bytes = head.into_bytes();
        chunk(b"{\"logMessages\":[\"", &mut bytes);
        bytes
    }

    /// Appends this part of the text, [`LogText::GROWTH`] times as long at most.
    pub fn push(&mut self, text: &[u8], out: &mut Vec<u8>) {
        self.count += text.len() as u64;
        let mut escaped = String::with_capacity(text.len() + text.len() / 16);
        let joined;
        let mut left = if self.rest.is_empty() {
            text
        } else {
            self.rest.extend_from_slice(text);
            joined = std::mem::take(&mut self.rest);
            &joined[..]
        };
        while !left.is_empty() {
            match std::str::from_utf8(left) {
                Ok(valid) => {
                    escape(valid, &mut escaped);
                    left = &[];
                }
                Err(fault) => {
                    let (valid, after) = left.split_at(fault.valid_up_to());
                    escape(std::str::from_utf8(valid).unwrap_or_default(), &mut escaped);
                    let Some(wrong) = fault.error_len() else {
                        self.rest = after.to_vec();
                        break;
                    };
                    escaped.push(char::REPLACEMENT_CHARACTER);
                    left = &after[wrong..];
                }
            }
        }
        chunk(escaped.as_bytes(), out);
    }

    /// How much longer a text may get: a control character becomes `\u0001`.
    pub const GROWTH: usize = 6;

    /// The end of the text, and of the answer. `bytes_max`: text that long was not read further.
    pub fn end(&self, bytes_max: u64, out: &mut Vec<u8>) {
        let mut text = String::new();
        if !self.rest.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        text.push_str("\"]");
        if self.count >= bytes_max {
            let why = format!(
                "the log has {bytes_max} bytes or more, and is cut: ask for its last lines, or \
                 follow it"
            );
            let _ = write!(text, ",\"errMessages\":{}", json!([why]));
        }
        text.push('}');
        chunk(text.as_bytes(), out);
        out.extend_from_slice(LAST_CHUNK);
    }
}

/// Without text there is no chunk: it would be the last one.
fn chunk(text: &[u8], out: &mut Vec<u8>) {
    let start = answer::begin_chunk(out);
    out.extend_from_slice(text);
    answer::end_chunk(start, out);
}

/// RFC 8259, section 7.
fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::model::stream::RefusalKind;

    /// The JSON of a whole chunked answer.
    fn value(answer: &[u8]) -> Value {
        let split = answer.windows(4).position(|it| it == b"\r\n\r\n").expect("a head") + 4;
        let (mut left, mut body) = (&answer[split..], Vec::new());
        loop {
            let end = left.windows(2).position(|it| it == b"\r\n").expect("a length");
            let digits = std::str::from_utf8(&left[..end]).expect("digits");
            let length = usize::from_str_radix(digits, 16).expect("hexadecimal");
            body.extend_from_slice(&left[end + 2..][..length]);
            left = &left[end + 4 + length..];
            if length == 0 {
                assert!(left.is_empty(), "nothing follows the last chunk");
                return serde_json::from_slice(&body).expect("JSON");
            }
        }
    }

    fn log(parts: &[&[u8]], bytes_max: u64) -> Value {
        let (mut text, mut out) = (LogText::default(), LogText::begin());
        for part in parts {
            let before = out.len();
            text.push(part, &mut out);
            assert!(out.len() - before <= (part.len() + 3) * LogText::GROWTH + 16);
        }
        text.end(bytes_max, &mut out);
        value(&out)
    }

    #[test]
    fn a_log_is_one_text_however_it_is_read() {
        let whole = "a \"q\" \\ \u{1}\t\r\ngr\u{fc}n \u{1f600}\n".as_bytes();
        let want = json!({"logMessages": [std::str::from_utf8(whole).expect("text")]});
        for size in 1..=whole.len() {
            let parts: Vec<&[u8]> = whole.chunks(size).collect();
            assert_eq!(log(&parts, u64::MAX), want, "in parts of {size}");
        }
        assert_eq!(log(&[], u64::MAX), json!({"logMessages": [""]}));
        let broken: &[u8] = b"a\xff\xc3(b\xf0\x9f";
        let want = json!({"logMessages": ["a\u{fffd}\u{fffd}(b\u{fffd}"]});
        for size in 1..=broken.len() {
            let parts: Vec<&[u8]> = broken.chunks(size).collect();
            assert_eq!(log(&parts, u64::MAX), want, "in parts of {size}");
        }
    }

    #[test]
    fn a_log_that_was_cut_says_so() {
        let cut = log(&[b"1234"], 4);
        assert_eq!(cut["logMessages"], json!(["1234"]));
        let why = cut["errMessages"][0].as_str().expect("a text");
        assert!(why.starts_with("the log has 4 bytes or more, and is cut"), "{why}");
    }

    fn body(answer: &[u8]) -> Value {
        let split = answer.windows(4).position(|it| it == b"\r\n\r\n").expect("a head") + 4;
        serde_json::from_slice(&answer[split..]).expect("JSON")
    }

    #[test]
    fn a_command_has_its_output_its_errors_and_its_end() {
        let done = |output: &str, errors_at, exit_code, is_cut| {
            body(&of_command(&Exec { exit_code, output: output.into(), errors_at, is_cut }))
        };
        assert_eq!(done("", 0, 0, false), json!({}));
        assert_eq!(done("out", 3, 0, false), json!({"runOutMessages": ["out"]}));
        // EdgeCore loses these.
        assert_eq!(done("err", 0, 0, false), json!({"runErrMessages": ["err"]}));
        let both = json!({"runOutMessages": ["out"], "runErrMessages": ["err"],
            "errMessages": ["command terminated with exit code 3"]});
        assert_eq!(done("outerr", 3, 3, false), both);
        let cut = done("out", 3, 0, true);
        assert_eq!(cut["errMessages"][0], "the output has more than 65536 bytes, and is cut");
        let refused = refusal_of_command(&Refusal::new(RefusalKind::NotFound, "why \"x\""));
        assert_eq!(body(&refused), json!({"errMessages": ["why \"x\""]}));
    }
}
