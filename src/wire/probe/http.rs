//! The request of an HTTP probe, and its answer: HTTP/1.1 as far as a probe reads it (RFC 9112).

use std::fmt::Write;

use httparse::{EMPTY_HEADER, Status};

use super::url::{escaped, host_port};
pub(super) use crate::limits::PROBE_HEAD_BYTES_MAX as HEAD_BYTES_MAX;
use crate::limits::{PROBE_BODY_BYTES_MAX, PROBE_CHUNK_LINE_BYTES_MAX, PROBE_HEADERS_MAX};
use crate::model::net::HttpQuery;

pub(super) fn request(query: &HttpQuery) -> Vec<u8> {
    let mut head = String::with_capacity(256);
    let named = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("host");
    let host = query.headers.iter().find(named).map(|(_, value)| value.as_str());
    let host = match host.filter(|host| !host.is_empty()) {
        Some(host) => host.to_owned(),
        None => host_port(&query.host, query.port),
    };
    let target = escaped(&query.target);
    let put = |head: &mut String, name: &str, value: &str| {
        // A value cannot inject another header.
        let value = value.replace(['\r', '\n', '\0'], " ");
        write!(head, "{name}: {}\r\n", value.trim()).expect("memory takes what is written");
    };
    write!(head, "GET {target} HTTP/1.1\r\n").expect("memory takes what is written");
    put(&mut head, "Host", &host);
    for (name, value) in query.headers.iter().filter(|header| !named(header)) {
        put(&mut head, name, value);
    }
    put(&mut head, "Connection", "close");
    head.push_str("\r\n");
    head.into_bytes()
}

/// The part of an answer that has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// 200–999; interim answers are skipped.
    pub status: u16,
    /// The header of that name, as far as it is text; not empty.
    pub location: Option<String>,
    pub body: Vec<u8>,
}

/// Why an answer cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Not HTTP: the first line.
    Malformed(String),
    /// More than a probe reads.
    HeadTooLarge,
    /// The head was fine.
    Body(&'static str),
}

/// Parses an answer piece by piece.
#[derive(Debug, Default)]
pub struct Reader {
    /// Received and not yet parsed.
    rest: Vec<u8>,
    response: Option<Response>,
    framing: Framing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Framing {
    /// Until the connection ends.
    #[default]
    Close,
    /// So many bytes remain.
    Length(u64),
    /// A chunk's size is next.
    Chunk,
    /// So many bytes of a chunk remain, and the end of its line.
    ChunkData(u64),
    Complete,
}

impl Reader {
    /// Takes received bytes. Returns whether everything that a probe reads is there.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<bool, Unreadable> {
        if self.is_complete() {
            return Ok(true);
        }
        self.rest.extend_from_slice(bytes);
        while self.response.is_none() {
            if !self.head()? {
                return Ok(false);
            }
        }
        self.body()?;
        Ok(self.is_complete())
    }

    /// The other end has closed. Returns whether that completes the answer.
    pub fn end(&mut self) -> bool {
        if self.response.is_some() && self.framing == Framing::Close {
            self.framing = Framing::Complete;
        }
        self.is_complete()
    }

    /// The answer, once its head is there.
    pub fn response(&self) -> Option<&Response> {
        self.response.as_ref()
    }

    /// Whether the head is there.
    pub fn has_head(&self) -> bool {
        self.response.is_some()
    }

    /// Whether everything that a probe reads is there.
    pub fn is_complete(&self) -> bool {
        self.response.is_some() && self.framing == Framing::Complete
    }

    /// Reads a head; `false`: more bytes are needed.
    fn head(&mut self) -> Result<bool, Unreadable> {
        let mut headers = [EMPTY_HEADER; PROBE_HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = match response.parse(&self.rest) {
            Ok(parsed) => parsed,
            Err(httparse::Error::TooManyHeaders) => return Err(Unreadable::HeadTooLarge),
            Err(_) => return Err(Unreadable::Malformed(first_line(&self.rest))),
        };
        let Status::Complete(length) = parsed else {
            let too_large = self.rest.len() > HEAD_BYTES_MAX;
            return if too_large { Err(Unreadable::HeadTooLarge) } else { Ok(false) };
        };
        if length > HEAD_BYTES_MAX {
            return Err(Unreadable::HeadTooLarge);
        }
        let status = response.code.unwrap_or_default();
        if (100..200).contains(&status) && status != 101 {
            // Interim: the answer itself follows.
            self.rest.drain(..length);
            return Ok(true);
        }
        if status < 100 {
            return Err(Unreadable::Malformed(first_line(&self.rest)));
        }
        self.framing = framing(status, response.headers)?;
        let location = response.headers.iter().find(|it| it.name.eq_ignore_ascii_case("location"));
        let location = location.and_then(|it| std::str::from_utf8(it.value).ok());
        let location = location.map(str::to_owned).filter(|location| !location.is_empty());
        self.response = Some(Response { status, location, body: Vec::new() });
        self.rest.drain(..length);
        Ok(true)
    }

    fn body(&mut self) -> Result<(), Unreadable> {
        let Self { rest, response, framing } = self;
        let body = &mut response.as_mut().expect("its head was read").body;
        let mut at = 0;
        loop {
            let left = &rest[at..];
            match framing {
                Framing::Complete => break,
                Framing::Close => {
                    at += take(body, left, u64::MAX);
                    if body.len() < PROBE_BODY_BYTES_MAX {
                        break;
                    }
                }
                Framing::Length(to_come) => {
                    let taken = take(body, left, *to_come);
                    *to_come -= taken as u64;
                    at += taken;
                    if *to_come == 0 {
                        *framing = Framing::Complete;
                    } else if at == rest.len() {
                        break;
                    }
                }
                Framing::Chunk => match httparse::parse_chunk_size(left) {
                    Ok(Status::Complete((_, 0))) => *framing = Framing::Complete,
                    Ok(Status::Complete((line, size))) => {
                        at += line;
                        *framing = Framing::ChunkData(size);
                    }
                    Ok(Status::Partial) if left.len() <= PROBE_CHUNK_LINE_BYTES_MAX => break,
                    Ok(Status::Partial) => return Err(Unreadable::Body("header line too long")),
                    Err(_) => return Err(Unreadable::Body("invalid byte in chunk length")),
                },
                Framing::ChunkData(0) => match left {
                    [b'\r', b'\n', ..] => {
                        at += 2;
                        *framing = Framing::Chunk;
                    }
                    [] | [b'\r'] => break,
                    _ => return Err(Unreadable::Body("malformed chunked encoding")),
                },
                Framing::ChunkData(to_come) => {
                    let taken = take(body, left, *to_come);
                    *to_come -= taken as u64;
                    at += taken;
                    if *to_come > 0 && at == rest.len() {
                        break;
                    }
                }
            }
            if body.len() >= PROBE_BODY_BYTES_MAX {
                break;
            }
        }
        if body.len() >= PROBE_BODY_BYTES_MAX {
            *framing = Framing::Complete;
        }
        rest.drain(..at);
        if *framing == Framing::Complete {
            *rest = Vec::new();
        }
        Ok(())
    }
}

/// Moves the body's bytes, as far as there is room. Bytes beyond are counted as taken.
fn take(body: &mut Vec<u8>, from: &[u8], to_come: u64) -> usize {
    let count = from.len().min(usize::try_from(to_come).unwrap_or(usize::MAX));
    let room = PROBE_BODY_BYTES_MAX - body.len();
    body.extend_from_slice(&from[..count.min(room)]);
    count
}

/// Where the body ends (RFC 9112 section 6.3).
fn framing(status: u16, headers: &[httparse::Header<'_>]) -> Result<Framing, Unreadable> {
    if matches!(status, 101 | 204 | 304) {
        return Ok(Framing::Complete);
    }
    let of = |name: &'static str| {
        headers.iter().filter(move |it| it.name.eq_ignore_ascii_case(name)).map(|it| it.value)
    };
    if let Some(coding) = of("transfer-encoding").next_back() {
        let chunked = coding.to_ascii_lowercase().ends_with(b"chunked");
        return Ok(if chunked { Framing::Chunk } else { Framing::Close });
    }
    let mut lengths = of("content-length").map(|value| {
        let text = std::str::from_utf8(value).unwrap_or_default().trim();
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| digits)
    });
    let Some(first) = lengths.next() else { return Ok(Framing::Close) };
    let bad = Unreadable::Body("bad Content-Length");
    let length = first.ok_or(bad.clone())?;
    if lengths.any(|other| other != Some(length)) {
        return Err(bad);
    }
    Ok(if length == 0 { Framing::Complete } else { Framing::Length(length) })
}

/// The first line of an answer that is not HTTP.
fn first_line(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(LINE_SHOWN_BYTES)]).trim_end().to_owned()
}

const LINE_SHOWN_BYTES: usize = 64;
