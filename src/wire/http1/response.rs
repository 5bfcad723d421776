//! HTTP answers, parsed piece by piece (RFC 9112): those of pods to probes, of our API to commands,
//! and of an API server, including watches without end.
//!
//! Interim answers are skipped, except `101`: nothing follows a switch of protocols that can be
//! read. Bodies are passed on as they arrive; the receiver limits them.

use core::fmt;

use httparse::{EMPTY_HEADER, Error, Header, Status};

use crate::limits::{
    RESPONSE_CHUNK_LINE_BYTES_MAX as CHUNK_LINE_BYTES_MAX, RESPONSE_HEAD_BYTES_MAX as BYTES_MAX,
    RESPONSE_HEADERS_MAX as HEADERS_MAX,
};

/// A parsed piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    Head(Head),
    /// A part of the body; not empty.
    Body(&'a [u8]),
    /// The end of the answer, also of one without a body.
    End,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// 101, or 200–999.
    pub status: u16,
    /// Whether the connection can be used again.
    pub reusable: bool,
    /// `Location`, as far as it is text; not empty.
    pub location: Option<String>,
}

/// Why bytes are not an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not HTTP: the first line, as far as it is shown, and what is wrong in the head.
    NotHttp(String, Error),
    /// Too many bytes or header fields.
    HeadTooLarge,
    /// `Content-Length` is not one number: what it is.
    Length(String),
    /// No number before a chunk.
    ChunkSize,
    /// Too many bytes before a chunk.
    ChunkLine,
    /// A chunk is longer than its size.
    ChunkEnd,
    /// Too many bytes after the last chunk.
    Trailer,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHttp(_, error) => write!(f, "expected an HTTP answer: {error}"),
            Self::HeadTooLarge => write!(f, "got a head of more than {BYTES_MAX} bytes"),
            Self::Length(text) => write!(f, "got Content-Length {text:?}"),
            Self::ChunkSize | Self::ChunkLine => f.write_str("got a chunk without a size"),
            Self::ChunkEnd => f.write_str("got a chunk without its end"),
            Self::Trailer => f.write_str("got no end of trailers"),
        }
    }
}

/// Parses answers, one after the other.
#[derive(Debug, Default)]
pub struct Reader {
    received: Vec<u8>,
    /// The first received byte that is not parsed.
    at: usize,
    next: Part,
    /// One answer: its trailers, and what follows it, are not read.
    single: bool,
    /// The header fields of the answer, if they are kept.
    #[cfg(any(feature = "controller", feature = "servicebus"))]
    fields: Option<Fields>,
}

/// Header fields, as far as they are text.
#[cfg(any(feature = "controller", feature = "servicebus"))]
pub type Fields = Vec<(Box<str>, Box<str>)>;

/// What comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Head,
    /// The body, until the connection ends.
    Close,
    /// So many bytes of the body.
    Length(u64),
    /// A chunk's size.
    Chunk,
    /// So many bytes of a chunk, and the end of its line.
    ChunkData(u64),
    /// After the last chunk: lines up to an empty one.
    Trailer,
    /// Nothing that is read.
    Complete,
}

impl Reader {
    /// For a connection that is closed after one answer.
    pub fn single() -> Self {
        Self { single: true, ..Self::default() }
    }

    /// As [`Reader::single`]; it keeps the header fields.
    #[cfg(any(feature = "controller", feature = "servicebus"))]
    pub fn with_fields() -> Self {
        Self { fields: Some(Vec::new()), ..Self::single() }
    }

    /// The header fields of the answer whose head was read.
    #[cfg(any(feature = "controller", feature = "servicebus"))]
    pub fn take_fields(&mut self) -> Fields {
        self.fields.take().unwrap_or_default()
    }

    /// Takes received bytes; [`Reader::piece`] returns what is in them.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.received.drain(..self.at);
        self.at = 0;
        self.received.extend_from_slice(bytes);
    }

    /// The other end has closed. Returns whether that is the end of an answer, or between two.
    pub fn closed(&self) -> bool {
        matches!(self.next, Part::Close | Part::Complete) || !self.is_within()
    }

    /// Whether an answer is incomplete.
    pub fn is_within(&self) -> bool {
        self.next != Part::Head || self.at < self.received.len()
    }

    /// The received bytes after the answer: after a switch of protocols, those of the other one.
    #[cfg(feature = "streams")]
    pub fn rest(&self) -> &[u8] {
        &self.received[self.at..]
    }

    /// The next piece; `None`: more bytes are needed.
    pub fn piece(&mut self) -> Result<Option<Piece<'_>>, Fault> {
        loop {
            let left = &self.received[self.at..];
            match self.next {
                Part::Complete => return Ok(None),
                Part::Head => {
                    let Some((length, head, next)) = head(left)? else { return Ok(None) };
                    #[cfg(any(feature = "controller", feature = "servicebus"))]
                    if let Some(kept) = &mut self.fields {
                        *kept = fields(&left[..length]);
                    }
                    self.at += length;
                    self.next = next;
                    // What follows an interim answer is another head.
                    if next != Part::Head {
                        return Ok(Some(Piece::Head(head)));
                    }
                }
                Part::Length(0) => return Ok(Some(self.end())),
                Part::Trailer if self.single => return Ok(Some(self.end())),
                Part::Close | Part::Length(_) | Part::ChunkData(1..) => {
                    let body = self.body();
                    return Ok((!body.is_empty()).then_some(Piece::Body(body)));
                }
                Part::ChunkData(0) => match left {
                    [b'\r', b'\n', ..] => {
                        self.at += 2;
                        self.next = Part::Chunk;
                    }
                    [] | [b'\r'] => return Ok(None),
                    _ => return Err(Fault::ChunkEnd),
                },
                Part::Chunk => {
                    let parsed = httparse::parse_chunk_size(left).map_err(|_| Fault::ChunkSize)?;
                    let (length, size) = match parsed {
                        Status::Complete((length, size)) => (length, Some(size)),
                        Status::Partial => (left.len(), None),
                    };
                    if length > CHUNK_LINE_BYTES_MAX {
                        return Err(Fault::ChunkLine);
                    }
                    let Some(size) = size else { return Ok(None) };
                    self.at += length;
                    self.next = if size == 0 { Part::Trailer } else { Part::ChunkData(size) };
                }
                Part::Trailer => {
                    let line = left.windows(2).position(|two| two == b"\r\n").map(|at| at + 2);
                    if line.unwrap_or(left.len()) > BYTES_MAX {
                        return Err(Fault::Trailer);
                    }
                    let Some(line) = line else { return Ok(None) };
                    self.at += line;
                    if line == 2 {
                        return Ok(Some(self.end()));
                    }
                }
            }
        }
    }

    /// What there is of the body, or of this chunk.
    fn body(&mut self) -> &[u8] {
        let left = &self.received[self.at..];
        let mut count = left.len();
        if let Part::Length(to_come) | Part::ChunkData(to_come) = &mut self.next {
            count = count.min(usize::try_from(*to_come).unwrap_or(usize::MAX));
            *to_come -= count as u64;
        }
        self.at += count;
        &left[..count]
    }

    fn end(&mut self) -> Piece<'static> {
        self.next = if self.single { Part::Complete } else { Part::Head };
        Piece::End
    }
}

/// Parses a head: its length, what it says, and what follows; `None`: more bytes are needed.
fn head(bytes: &[u8]) -> Result<Option<(usize, Head, Part)>, Fault> {
    let not_http = |error| Fault::NotHttp(first_line(bytes), error);
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes).map_err(|error| match error {
        Error::TooManyHeaders => Fault::HeadTooLarge,
        _ => not_http(error),
    })?;
    let length = if let Status::Complete(length) = parsed { length } else { bytes.len() };
    if length > BYTES_MAX {
        return Err(Fault::HeadTooLarge);
    }
    if parsed.is_partial() {
        return Ok(None);
    }
    let status = response.code.unwrap_or_default();
    if status < 100 {
        return Err(not_http(Error::Status));
    }
    let next = following(status, response.headers)?;
    let text = |name| values(response.headers, name).next().and_then(|it| str::from_utf8(it).ok());
    let close = text("connection").is_some_and(|it| it.trim().eq_ignore_ascii_case("close"));
    let reusable = response.version == Some(1) && !close && status != 101 && next != Part::Close;
    let location = text("location").filter(|text| !text.is_empty()).map(str::to_owned);
    Ok(Some((length, Head { status, reusable, location }, next)))
}

/// The header fields of a head that was parsed.
#[cfg(any(feature = "controller", feature = "servicebus"))]
fn fields(head: &[u8]) -> Fields {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    // It was parsed before.
    let _ = response.parse(head);
    let text = |it: &Header<'_>| Some((it.name.into(), str::from_utf8(it.value).ok()?.into()));
    let named = response.headers.iter().filter(|it| !it.name.is_empty());
    named.filter_map(text).collect()
}

/// What follows a head (RFC 9112 section 6.3).
fn following(status: u16, headers: &[Header<'_>]) -> Result<Part, Fault> {
    match status {
        101 | 204 | 304 => return Ok(Part::Length(0)),
        ..200 => return Ok(Part::Head),
        _ => {}
    }
    if let Some(coding) = values(headers, "transfer-encoding").next_back() {
        let chunked = coding.to_ascii_lowercase().ends_with(b"chunked");
        return Ok(if chunked { Part::Chunk } else { Part::Close });
    }
    let mut lengths = values(headers, "content-length").map(<[u8]>::trim_ascii);
    let Some(first) = lengths.next() else { return Ok(Part::Close) };
    let fault = |text: &[u8]| Fault::Length(String::from_utf8_lossy(text).into_owned());
    let number = |text: &[u8]| {
        let digits = text.iter().all(u8::is_ascii_digit);
        str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
    };
    let length: u64 = number(first).ok_or_else(|| fault(first))?;
    if let Some(other) = lengths.find(|other| number(other) != Some(length)) {
        return Err(fault(other));
    }
    Ok(Part::Length(length))
}

/// The values of the fields of this name.
fn values<'a>(
    headers: &'a [Header<'_>],
    name: &'a str,
) -> impl DoubleEndedIterator<Item = &'a [u8]> {
    headers.iter().filter(move |it| it.name.eq_ignore_ascii_case(name)).map(|it| it.value)
}

/// The first line of what is not HTTP, as far as it is shown.
fn first_line(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(LINE_SHOWN_BYTES)]).trim_end().to_owned()
}

const LINE_SHOWN_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Per answer: status, whether the connection can be used again, its body, and whether it
    /// has ended.
    type Answer = (u16, bool, Vec<u8>, bool);

    /// The answers, and the fault that ended the reading.
    fn until_fault<'a>(
        reader: &mut Reader,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Vec<Answer>, Option<Fault>) {
        let mut answers: Vec<Answer> = Vec::new();
        for bytes in parts {
            reader.receive(bytes);
            loop {
                match (reader.piece(), answers.last_mut()) {
                    (Ok(Some(Piece::Head(head))), _) => {
                        answers.push((head.status, head.reusable, Vec::new(), false));
                    }
                    (Ok(Some(Piece::Body(bytes))), Some(answer)) => answer.2.extend(bytes),
                    (Ok(Some(Piece::End)), Some(answer)) => answer.3 = true,
                    (Ok(Some(piece)), None) => panic!("{piece:?} without a head"),
                    (Ok(None), _) => break,
                    (Err(fault), _) => return (answers, Some(fault)),
                }
            }
        }
        (answers, None)
    }

    fn read<'a>(
        reader: &mut Reader,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Vec<Answer>, Fault> {
        let (answers, fault) = until_fault(reader, parts);
        fault.map_or(Ok(answers), Err)
    }

    fn refused(bytes: &[u8]) -> Fault {
        read(&mut Reader::default(), [bytes]).expect_err("nonsense")
    }

    #[test]
    fn answers_are_the_same_however_they_are_cut() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\
                      HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nde\r\n1\
                      \r\nf\r\n0\r\nA: b\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: \
                      close\r\n\r\n";
        let expected = [
            (200, true, b"abc".to_vec(), true),
            (404, true, b"def".to_vec(), true),
            (204, false, Vec::new(), true),
        ];
        for size in 1..bytes.len() {
            let mut reader = Reader::default();
            let answers = read(&mut reader, bytes.chunks(size));
            assert_eq!(answers.as_deref(), Ok(&expected[..]), "{size}");
            assert!(reader.closed() && !reader.is_within());
            let first = read(&mut Reader::single(), bytes.chunks(size));
            assert_eq!(first.as_deref(), Ok(&expected[..1]), "{size}: what follows is not read");
        }
    }

    #[test]
    fn spoilt_answers_are_read_as_far_however_they_are_cut() {
        let bytes =
            b"HTTP/1.1 100 A\r\n\r\nHTTP/1.1 200 B\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\
                      \nde\r\n0\r\nC: d\r\n\r\nHTTP/1.1 404 D\r\nContent-Length: 2\r\n\r\nhi";
        for at in 0..bytes.len() {
            for value in [0, b'\n', b'\r', b' ', b'0', b'f', 0xff] {
                let mut spoilt = bytes.to_vec();
                spoilt[at] = value;
                for new in [Reader::default, Reader::single] {
                    let (whole, fault) = until_fault(&mut new(), [&spoilt[..]]);
                    for cut in [at / 2, at, at + 1] {
                        let (one, two) = spoilt.split_at(cut);
                        let (halves, other) = until_fault(&mut new(), [one, two]);
                        assert_eq!((&halves, other.is_some()), (&whole, fault.is_some()));
                    }
                }
            }
        }
    }

    #[test]
    fn the_end_of_a_connection_ends_an_answer_without_a_length() {
        let mut reader = Reader::default();
        assert!(reader.closed() && !reader.is_within());
        for (head, closed) in [("", true), ("Content-Length: 9\r\n", false)] {
            reader = Reader::default();
            let bytes = format!("HTTP/1.1 200 OK\r\n{head}\r\nabc");
            let answers = read(&mut reader, [bytes.as_bytes()]);
            assert_eq!(answers, Ok(vec![(200, !closed, b"abc".to_vec(), false)]));
            assert!(reader.closed() == closed && reader.is_within());
        }
    }

    #[test]
    fn nothing_is_read_after_a_switch_of_protocols() {
        let bytes = b"HTTP/1.1 101 X\r\nContent-Length: 3\r\n\r\n";
        let answers = read(&mut Reader::default(), [&bytes[..]]);
        assert_eq!(answers, Ok(vec![(101, false, Vec::new(), true)]));
    }

    #[test]
    fn nonsense_is_told() {
        let text = |bytes: &[u8]| refused(bytes).to_string();
        assert_eq!(text(b"SSH-2.0\r\n"), "expected an HTTP answer: invalid HTTP version");
        let early = Fault::NotHttp("HTTP/1.1 099 X".to_owned(), Error::Status);
        assert_eq!(refused(b"HTTP/1.1 099 X\r\n\r\n"), early);
        for (length, got) in [("x", "x"), ("+1", "+1"), ("", ""), ("1\r\nContent-Length: 2", "2")] {
            let bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            assert_eq!(text(bytes.as_bytes()), format!("got Content-Length {got:?}"));
        }
        let chunked = |body: &str| format!("{CHUNKED}{body}").into_bytes();
        assert_eq!(text(&chunked("zz\r\n")), "got a chunk without a size");
        assert_eq!(text(&chunked("1\r\nabc")), "got a chunk without its end");
    }

    #[test]
    fn heads_chunks_and_trailers_have_bounds() {
        let mut reader = Reader::default();
        let filler = "x".repeat(BYTES_MAX);
        let head = |bytes: usize, end: &str| {
            let start = "HTTP/1.1 200 OK\r\nA: ";
            format!("{start}{}{end}", &filler[..bytes - start.len() - end.len()]).into_bytes()
        };
        assert_eq!(read(&mut reader, [&head(BYTES_MAX, "")[..]]), Ok(Vec::new()));
        assert_eq!(refused(&head(BYTES_MAX + 1, "")), Fault::HeadTooLarge);
        read(&mut Reader::default(), [&head(BYTES_MAX, "\r\n\r\n")[..]]).expect("it fits");
        assert_eq!(refused(&head(BYTES_MAX + 1, "\r\n\r\n")), Fault::HeadTooLarge);
        let fields = |count: usize| {
            format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: 1\r\n".repeat(count)).into_bytes()
        };
        read(&mut Reader::default(), [&fields(HEADERS_MAX)[..]]).expect("they fit");
        assert_eq!(refused(&fields(HEADERS_MAX + 1)), Fault::HeadTooLarge);

        let chunked = |start: &str, max: usize, end: &str| {
            let filler = &filler[..max - start.trim_start_matches("0\r\n").len() - end.len()];
            format!("{CHUNKED}{start}{filler}{end}").into_bytes()
        };
        for (start, max, fault) in
            [("1;", CHUNK_LINE_BYTES_MAX, Fault::ChunkLine), ("0\r\nA", BYTES_MAX, Fault::Trailer)]
        {
            for end in ["", "\r\n"] {
                let fits = chunked(start, max, end);
                read(&mut Reader::default(), [&fits[..]]).expect("it fits");
                let long = [&fits[..fits.len() - end.len()], b"x", end.as_bytes()].concat();
                assert_eq!(refused(&long), fault, "{end:?}");
            }
        }
    }

    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
}
