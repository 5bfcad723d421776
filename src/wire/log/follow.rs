//! A log in the runtime's format → the output of its container, with the options of `kubectl logs`.
//!
//! ```text
//!          three spaces                     end of line
//!  Head ─────────────────▶ Text or Skipped ─────────────▶ Head
//!    └── end of line, or too long: the line is not one of a log, and is skipped
//! ```
//!
//! Lines are not collected: their text leaves as it comes, so a line costs no memory however long
//! it is. Rules of the kubelet (edgestream.md, section 8.2).

use std::fmt;

use crate::limits::LOG_HEAD_BYTES_MAX;
use crate::model::time::Timestamp;

/// Removes times and tags, and applies the options that concern lines.
#[derive(Debug)]
pub struct Formatter {
    timestamps: bool,
    /// Lines that are older are left out; nanoseconds since 1970.
    since_ns: Option<i64>,
    /// Bytes of output that may still come.
    left: Option<u64>,
    state: State,
    /// The beginning of a line that has come in parts.
    head: Vec<u8>,
    /// The output ends with the end of a line.
    at_start: bool,
    /// A line was understood: the format is known.
    is_known: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// The text of a line that the next one continues, or not.
    Text {
        whole: bool,
    },
    Skipped,
}

/// Whether more output may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    Yes,
    /// The limit of bytes is reached.
    No,
}

/// The first line is not one of a log: the beginning of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(pub String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to get parse function: unsupported log format: {:?}", self.0)
    }
}

impl Formatter {
    pub fn new(timestamps: bool, since_ns: Option<i64>, limit_bytes: Option<u64>) -> Self {
        Self {
            timestamps,
            since_ns,
            left: limit_bytes,
            state: State::Head,
            head: Vec::new(),
            at_start: true,
            is_known: false,
        }
    }

    /// Appends the output of these bytes, which continue the ones before.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<More, UnknownFormat> {
        if self.left == Some(0) {
            return Ok(More::No);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = find(b'\n', rest).map(|at| at + 1);
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            rest = after;
            if self.part(part, end.is_some(), out)? == More::No {
                return Ok(More::No);
            }
        }
        Ok(More::Yes)
    }

    /// The file ends, and another one is read from its beginning.
    pub fn next_file(&mut self) {
        self.state = State::Head;
        self.head.clear();
    }

    /// A part of a line, and whether the line ends with it: then so does the part.
    fn part(&mut self, part: &[u8], ends: bool, out: &mut Vec<u8>) -> Result<More, UnknownFormat> {
        let text = match self.state {
            State::Head => self.take_head(part, ends, out)?.unwrap_or_default(),
            State::Text { .. } | State::Skipped => part,
        };
        if let State::Text { whole } = self.state {
            if ends && whole {
                self.emit(text, out);
                self.at_start = true;
            } else {
                let text = &text[..text.len() - usize::from(ends)];
                self.emit(text, out);
                self.at_start &= text.is_empty();
            }
        }
        if ends {
            self.state = State::Head;
        }
        Ok(if self.left == Some(0) { More::No } else { More::Yes })
    }

    /// Returns what of the part belongs to the text, once the head is complete.
    fn take_head<'a>(
        &mut self,
        part: &'a [u8],
        ends: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, UnknownFormat> {
        let before = self.head.len();
        let whole;
        let line = if before == 0 {
            part
        } else {
            let room = LOG_HEAD_BYTES_MAX + 1 - before.min(LOG_HEAD_BYTES_MAX);
            self.head.extend_from_slice(&part[..part.len().min(room)]);
            whole = std::mem::take(&mut self.head);
            &whole
        };
        let Some(head) = Head::parse(line) else {
            if ends || line.len() > LOG_HEAD_BYTES_MAX {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                if !self.is_known && !line.is_empty() {
                    let start = &line[..line.len().min(LOG_HEAD_BYTES_MAX)];
                    return Err(UnknownFormat(String::from_utf8_lossy(start).into_owned()));
                }
                self.state = State::Skipped;
            } else {
                self.head = line.to_vec();
            }
            return Ok(None);
        };
        self.is_known = true;
        let wanted =
            self.since_ns.is_none_or(|since| nanos(head.time).is_some_and(|time| time >= since));
        if !wanted {
            self.state = State::Skipped;
            return Ok(None);
        }
        self.state = State::Text { whole: head.whole };
        if self.timestamps && self.at_start {
            self.emit_time(head.time, out);
        }
        Ok(Some(&part[head.bytes - before..]))
    }

    /// With nine digits of a second, as the kubelet writes them, and a space.
    fn emit_time(&mut self, time: &[u8], out: &mut Vec<u8>) {
        if let (Some(b'.'), Some(b'Z' | b'+' | b'-')) = (time.get(DOT_AT), time.get(ZONE_AT)) {
            // Runtimes leave zeros at the end out: nine of ten times have all digits.
            self.emit(time, out);
            return self.emit(b" ", out);
        }
        let zone = time.iter().rposition(|it| matches!(it, b'Z' | b'+' | b'-'));
        let zone = zone.filter(|at| *at > DATE_BYTES).unwrap_or(time.len());
        let (clock, zone) = time.split_at(zone);
        self.emit(clock, out);
        let dot = clock.iter().position(|it| *it == b'.');
        if dot.is_none() {
            self.emit(b".", out);
        }
        let digits = dot.map_or(0, |at| clock.len() - at - 1);
        self.emit(&[b'0'; 9][digits.min(9)..], out);
        self.emit(zone, out);
        self.emit(b" ", out);
    }

    fn emit(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let left = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let bytes = &bytes[..bytes.len().min(left)];
        out.extend_from_slice(bytes);
        if let Some(left) = &mut self.left {
            *left -= bytes.len() as u64;
        }
    }
}

/// `TIME STREAM TAGS ` before the text of a line.
struct Head<'a> {
    time: &'a [u8],
    /// The line ends here; otherwise the next one continues it.
    whole: bool,
    /// Its length.
    bytes: usize,
}

impl<'a> Head<'a> {
    /// `None`: incomplete, or not a line of a log.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let start = &line[..line.len().min(LOG_HEAD_BYTES_MAX)];
        let (time, rest) = start.split_at(find(b' ', start)?);
        let (stream, rest) = rest.split_first_chunk()?;
        let is_time = time.get(DATE_BYTES - 1) == Some(&b'T');
        if !is_time || !matches!(stream, b" stdout " | b" stderr ") {
            return None;
        }
        let (tags, text) = match rest {
            // Nearly all lines have no other tag.
            [tag, b' ', ..] => (std::slice::from_ref(tag), &rest[1..]),
            _ => rest.split_at(find(b' ', rest)?),
        };
        let whole = !(tags == b"P" || tags.starts_with(b"P:"));
        Some(Self { time, whole, bytes: start.len() - text.len() + 1 })
    }
}

/// Where this byte is for the first time. Four words of eight bytes are looked at together: most of
/// the work of a log is to find the ends of its lines.
fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let wanted = ONES * u64::from(byte);
    // The lowest bit that is set is that of the first such byte.
    let same = |word: &[u8; 8]| {
        let difference = u64::from_le_bytes(*word) ^ wanted;
        difference.wrapping_sub(ONES) & !difference & HIGH
    };
    let (words, tail) = bytes.as_chunks::<8>();
    let (blocks, _) = words.as_chunks::<4>();
    let has = |[a, b, c, d]: &[[u8; 8]; 4]| same(a) | same(b) | same(c) | same(d) != 0;
    let skipped = 4 * blocks.iter().position(has).unwrap_or(blocks.len());
    for (at, word) in words[skipped..].iter().enumerate() {
        let same = same(word);
        if same != 0 {
            return Some(8 * (skipped + at) + same.trailing_zeros() as usize / 8);
        }
    }
    tail.iter().position(|it| *it == byte).map(|at| 8 * words.len() + at)
}

/// `2026-11-25T`: a minus sign after it belongs to the zone.
const DATE_BYTES: usize = 11;
/// `2026-11-25T10:00:00.123456789Z`
const DOT_AT: usize = 19;
const ZONE_AT: usize = DOT_AT + 10;

fn nanos(time: &[u8]) -> Option<i64> {
    let time = str::from_utf8(time).ok()?;
    let seconds = Timestamp::parse_with_offset(time)?.0;
    let digits = time.split_once('.').map_or("", |(_, rest)| rest);
    let digits = &digits[..digits.bytes().take_while(u8::is_ascii_digit).count().min(9)];
    let fraction: i64 = format!("{digits:0<9}").parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-11-25T10:00:00.1Z stdout F one\n\
                       2026-11-25T10:00:01.123456789Z stderr P tw\n\
                       2026-11-25T10:00:02Z stderr F o\n\
                       not a line\n\
                       2026-11-25T12:00:03.5+02:00 stdout F \n\
                       2026-11-25T10:00:04Z stdout P:x end";

    fn output(formatter: &mut Formatter, log: &[u8], piece: usize) -> (String, More) {
        let (mut out, mut more) = (Vec::new(), More::Yes);
        for piece in log.chunks(piece) {
            more = formatter.take(piece, &mut out).expect("a log");
            if more == More::No {
                break;
            }
        }
        (String::from_utf8(out).expect("text"), more)
    }

    #[test]
    fn the_output_is_that_of_the_container_however_the_file_is_cut() {
        for piece in 1..=LOG.len() {
            let got = output(&mut Formatter::new(false, None, None), LOG.as_bytes(), piece);
            assert_eq!(got, ("one\ntwo\n\nend".to_owned(), More::Yes), "pieces of {piece}");
        }
    }

    #[test]
    fn times_have_nine_digits_and_stand_where_lines_begin() {
        let want = "2026-11-25T10:00:00.100000000Z one\n\
                    2026-11-25T10:00:01.123456789Z two\n\
                    2026-11-25T12:00:03.500000000+02:00 \n\
                    2026-11-25T10:00:04.000000000Z end";
        for piece in 1..=LOG.len() {
            let got = output(&mut Formatter::new(true, None, None), LOG.as_bytes(), piece);
            assert_eq!(got.0, want, "pieces of {piece}");
        }
    }

    #[test]
    fn older_lines_are_left_out() {
        let since = Timestamp::parse("2026-11-25T10:00:02Z").expect("a time").0 * 1_000_000_000;
        let got = output(&mut Formatter::new(false, Some(since), None), LOG.as_bytes(), 7);
        assert_eq!(got.0, "o\n\nend");
        let got = output(&mut Formatter::new(false, Some(since + 1), None), LOG.as_bytes(), 7);
        assert_eq!(got.0, "\nend");
    }

    #[test]
    fn a_limit_counts_bytes_of_output() {
        for limit in 0..12 {
            let mut formatter = Formatter::new(false, None, Some(limit));
            let (out, more) = output(&mut formatter, LOG.as_bytes(), 5);
            let want: String = "one\ntwo\n\nend".chars().take(limit as usize).collect();
            assert_eq!(out, want);
            assert_eq!(more, More::No, "{limit}");
        }
        // Nothing is read for no output, as a whole or in pieces.
        for piece in [1, 100] {
            let mut formatter = Formatter::new(false, None, Some(0));
            assert_eq!(output(&mut formatter, b"no log\n", piece), (String::new(), More::No));
        }
    }

    #[test]
    fn another_format_is_refused_and_a_long_head_is_no_line() {
        let take = |bytes: &[u8]| {
            let mut formatter = Formatter::new(false, None, None);
            formatter.take(bytes, &mut Vec::new())
        };
        let json = take(b"{\"log\":\"x\\n\",\"stream\":\"stdout\"}\n").expect_err("of docker");
        assert!(json.to_string().contains("unsupported log format"), "{json}");
        assert!(take(&[b'x'; LOG_HEAD_BYTES_MAX + 1]).is_err());
        assert_eq!(take(&[b'x'; LOG_HEAD_BYTES_MAX]), Ok(More::Yes), "it may still become a line");
        let mut formatter = Formatter::new(false, None, None);
        let long = [LOG.as_bytes(), &[b'x'; 10_000], b"\n", LOG.as_bytes()].concat();
        // The end of the first continues with the x's, which belong to its last line.
        let (out, _) = output(&mut formatter, &long, 100);
        assert_eq!(out.len(), "one\ntwo\n\nend".len() * 2 + 10_000);
    }

    #[test]
    fn a_byte_is_found_where_it_is_first_and_nowhere_else() {
        for length in 0..40 {
            // Those that differ from it by one, and by the highest bit.
            let mut bytes: Vec<u8> = [b'\x0b', b'\x09', b'\x8a'].repeat(14);
            bytes.truncate(length);
            assert_eq!(find(b'\n', &bytes), None, "{length}");
            for at in (0..length).rev() {
                bytes[at] = b'\n';
                assert_eq!(find(b'\n', &bytes), Some(at), "{length}");
            }
        }
    }

    #[test]
    fn a_new_file_begins_with_a_head() {
        let mut formatter = Formatter::new(false, None, None);
        let mut out = Vec::new();
        formatter.take(b"2026-11-25T10:00:00Z stdout F cut off", &mut out).expect("a log");
        formatter.next_file();
        formatter.take(b"2026-11-25T10:00:01Z stdout F next\n", &mut out).expect("a log");
        assert_eq!(out, b"cut offnext\n");
    }
}
