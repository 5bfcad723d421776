//! A container's output as lines of its log, in the runtime's format: `time stream tag text`, where
//! the tag `P` says that the line goes on in the next one.

use std::io::{BufRead as _, Write as _};

use crate::limits::{LOG_LINE_BYTES_MAX, LOG_OUTPUT_BYTES_MAX};
use crate::model::time::Timestamp;

/// `stdout` or `stderr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// The end of one stream's output that has no newline yet. Its memory is taken at once, and it
/// never grows.
#[derive(Debug)]
pub struct Lines {
    stream: Stream,
    /// Less than [`LOG_LINE_BYTES_MAX`].
    rest: Vec<u8>,
    /// What stands before a text at this time, of a whole line: the lines of one read share it.
    head: Vec<u8>,
    head_of: i64,
}

impl Lines {
    pub fn new(stream: Stream) -> Self {
        let rest = Vec::with_capacity(LOG_LINE_BYTES_MAX);
        Self { stream, rest, head: Vec::with_capacity(HEAD_BYTES), head_of: 0 }
    }

    /// Adds the lines that `bytes` complete to `output`. `nanos`: the time, since 1970. `flush`
    /// empties the output whenever it is nearly full; it always has whole lines.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        nanos: i64,
        output: &mut Vec<u8>,
        flush: &mut dyn FnMut(&mut Vec<u8>),
    ) {
        while !bytes.is_empty() {
            let room = LOG_LINE_BYTES_MAX - self.rest.len();
            let part = &bytes[..room.min(bytes.len())];
            let newline = newline(part);
            let text = &part[..newline.unwrap_or(part.len())];
            if newline.is_none() && text.len() < room {
                self.rest.extend_from_slice(text);
                return;
            }
            self.line(text, newline.is_some(), nanos, output, flush);
            bytes = &bytes[text.len() + usize::from(newline.is_some())..];
            if newline.is_none() && bytes.first() == Some(&b'\n') {
                // A line of just that length is whole.
                let tag = output.len() - 1 - LOG_LINE_BYTES_MAX - 2;
                output[tag] = b'F';
                bytes = &bytes[1..];
            }
        }
    }

    /// Adds what has no newline, once nothing follows.
    pub fn end(&mut self, nanos: i64, output: &mut Vec<u8>, flush: &mut dyn FnMut(&mut Vec<u8>)) {
        if !self.rest.is_empty() {
            self.line(&[], false, nanos, output, flush);
        }
    }

    fn line(
        &mut self,
        text: &[u8],
        is_whole: bool,
        nanos: i64,
        output: &mut Vec<u8>,
        flush: &mut dyn FnMut(&mut Vec<u8>),
    ) {
        if output.len() + HEAD_BYTES + LOG_LINE_BYTES_MAX + 1 > LOG_OUTPUT_BYTES_MAX {
            flush(output);
        }
        if self.head_of != nanos || self.head.is_empty() {
            self.head.clear();
            self.head_of = nanos;
            head(self.stream, nanos, &mut self.head);
        }
        output.extend_from_slice(&self.head);
        if !is_whole {
            let tag = output.len() - 2;
            output[tag] = b'P';
        }
        output.extend_from_slice(&self.rest);
        output.extend_from_slice(text);
        output.push(b'\n');
        self.rest.clear();
    }
}

/// `2026-01-01T00:00:00.123456789Z stdout F `, but for the year 10000.
const HEAD_BYTES: usize = 48;

/// Where the first one is. The library's search takes several bytes at a time, an iterator's one.
fn newline(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    let count = rest.skip_until(b'\n').expect("memory does not fail");
    count.checked_sub(1).filter(|last| bytes[*last] == b'\n')
}

fn head(stream: Stream, nanos: i64, output: &mut Vec<u8>) {
    let name = match stream {
        Stream::Out => "stdout",
        Stream::Err => "stderr",
    };
    let fraction = nanos.rem_euclid(1_000_000_000);
    write!(output, "{}", Timestamp::from_nanos(nanos)).expect("memory does not fail");
    // Its `Z` follows the fraction.
    output.pop();
    write!(output, ".{fraction:09}Z {name} F ").expect("memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANOS: i64 = 1_767_225_600_000_000_005;
    const TIME: &str = "2026-01-01T00:00:00.000000005Z";

    /// The log of these reads.
    fn log(reads: &[&[u8]]) -> String {
        let (mut lines, mut output) = (Lines::new(Stream::Err), Vec::new());
        let mut written = Vec::new();
        let mut flush = |output: &mut Vec<u8>| {
            assert!(output.len() <= LOG_OUTPUT_BYTES_MAX);
            assert!(output.is_empty() || output.ends_with(b"\n"));
            written.append(output);
        };
        for read in reads {
            lines.push(read, NANOS, &mut output, &mut flush);
            assert!(lines.rest.capacity() == LOG_LINE_BYTES_MAX, "it does not grow");
        }
        lines.end(NANOS, &mut output, &mut flush);
        flush(&mut output);
        String::from_utf8(written).expect("text")
    }

    fn line(tag: char, text: &str) -> String {
        format!("{TIME} stderr {tag} {text}\n")
    }

    #[test]
    fn lines_are_whole_however_they_are_read() {
        let expected = [line('F', "one"), line('F', ""), line('P', "two")].concat();
        assert_eq!(log(&[b"one\n\ntwo"]), expected);
        assert_eq!(log(&[b"o", b"ne", b"\n\nt", b"wo"]), expected);
        assert_eq!(log(&[]), "");
        assert_eq!(log(&[b"", b"\n"]), line('F', ""));
    }

    #[test]
    fn lines_have_the_time_of_the_read_that_ended_them() {
        let (mut lines, mut output) = (Lines::new(Stream::Err), Vec::new());
        for (nanos, read) in [(0, "a\nb"), (1, "\nc"), (2, "d\n"), (0, "e\n")] {
            lines.push(read.as_bytes(), nanos, &mut output, &mut |_| panic!("there is room"));
        }
        let line = |nanos: u8, text: &str| {
            format!("1970-01-01T00:00:00.00000000{nanos}Z stderr F {text}\n")
        };
        let expected = [line(0, "a"), line(1, "b"), line(2, "cd"), line(0, "e")].concat();
        assert_eq!(String::from_utf8(output).expect("text"), expected);
    }

    #[test]
    fn a_long_line_is_cut_and_one_of_just_that_length_is_not() {
        let text = |bytes: usize| "x".repeat(bytes);
        let most = text(LOG_LINE_BYTES_MAX);
        let whole = format!("{most}\n");
        assert_eq!(log(&[whole.as_bytes()]), line('F', &most));
        // What follows is not known yet when the part is full.
        let cut = [line('P', &most), line('F', "")].concat();
        assert_eq!(log(&[most.as_bytes(), b"\n"]), cut);
        let long = format!("{most}{most}y\n");
        let parts = [line('P', &most), line('P', &most), line('F', "y")].concat();
        assert_eq!(log(&[long.as_bytes()]), parts);
        let (one, other) = long.split_at(7);
        assert_eq!(log(&[one.as_bytes(), other.as_bytes()]), parts);
    }

    #[test]
    fn the_output_never_outgrows_its_bound() {
        let short = "\n".repeat(LOG_OUTPUT_BYTES_MAX);
        assert_eq!(log(&[short.as_bytes()]), line('F', "").repeat(LOG_OUTPUT_BYTES_MAX));
        let long = format!("{}\n", "z".repeat(LOG_LINE_BYTES_MAX)).repeat(9);
        let text = "z".repeat(LOG_LINE_BYTES_MAX);
        assert_eq!(log(&[long.as_bytes()]), line('F', &text).repeat(9));
    }
}
