//! HTTP answers, parsed piece by piece: the answers of an API server, including watches without end
//! (RFC 9112). Bodies are passed on as they arrive; the receiver limits them.

use httparse::{EMPTY_HEADER, Status};

use crate::limits::{HTTP_HEADERS_MAX, RESPONSE_HEAD_BYTES_MAX};

/// A parsed piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The head: status, and whether the connection can be used again.
    Head(u16, bool),
    /// A part of the body.
    Body(Vec<u8>),
    /// The end of the answer.
    End,
}

/// Parses answers, one after the other.
#[derive(Debug, Default)]
pub struct Reader {
    /// Received and not yet parsed.
    rest: Vec<u8>,
    framing: Framing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Framing {
    /// The head is next.
    #[default]
    Head,
    /// Until the connection ends.
    Close,
    /// So many bytes remain.
    Length(u64),
    /// A chunk's size is next.
    Chunk,
    /// So many bytes of a chunk remain, and the end of its line.
    ChunkData(u64),
    /// After the last chunk: lines up to an empty one.
    Trailer,
}

impl Reader {
    /// Takes bytes; returns the completed pieces, in order.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Vec<Piece>, String> {
        self.rest.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        let mut at = 0;
        while self.step(&mut at, &mut pieces)? {}
        self.rest.drain(..at);
        if self.rest.is_empty() {
            self.rest = Vec::new();
        }
        Ok(pieces)
    }

    /// The other end has closed. Returns whether that is the end of an answer, or between two.
    pub fn closed(&self) -> bool {
        matches!(self.framing, Framing::Close)
            || self.framing == Framing::Head && self.rest.is_empty()
    }

    /// Whether an answer is incomplete.
    pub fn is_within(&self) -> bool {
        self.framing != Framing::Head || !self.rest.is_empty()
    }

    /// One step; `false`: more bytes are needed.
    fn step(&mut self, at: &mut usize, pieces: &mut Vec<Piece>) -> Result<bool, String> {
        let left = &self.rest[*at..];
        match self.framing {
            Framing::Head => {
                let Some((length, status, framing, reusable)) = head(left)? else {
                    return Ok(false);
                };
                *at += length;
                if let Some(framing) = framing {
                    self.framing = framing;
                    pieces.push(Piece::Head(status, reusable));
                    self.end_if_empty(pieces);
                }
            }
            Framing::Close | Framing::Length(_) | Framing::ChunkData(1..) => {
                let to_come = match self.framing {
                    Framing::Length(to_come) | Framing::ChunkData(to_come) => to_come,
                    _ => u64::MAX,
                };
                let count = left.len().min(usize::try_from(to_come).unwrap_or(usize::MAX));
                if count == 0 {
                    return Ok(false);
                }
                pieces.push(Piece::Body(left[..count].to_vec()));
                *at += count;
                match &mut self.framing {
                    Framing::Length(to_come) | Framing::ChunkData(to_come) => {
                        *to_come -= count as u64;
                    }
                    _ => {}
                }
                self.end_if_empty(pieces);
            }
            Framing::ChunkData(0) => match left {
                [b'\r', b'\n', ..] => {
                    *at += 2;
                    self.framing = Framing::Chunk;
                }
                [] | [b'\r'] => return Ok(false),
                _ => return Err("got a chunk without its end".to_owned()),
            },
            Framing::Chunk => match httparse::parse_chunk_size(left) {
                Ok(Status::Complete((line, size))) => {
                    *at += line;
                    let last = size == 0;
                    self.framing = if last { Framing::Trailer } else { Framing::ChunkData(size) };
                }
                Ok(Status::Partial) if left.len() < CHUNK_LINE_BYTES_MAX => return Ok(false),
                _ => return Err("got a chunk without a size".to_owned()),
            },
            Framing::Trailer => {
                let Some(end) = left.windows(2).position(|two| two == b"\r\n") else {
                    let long = left.len() > RESPONSE_HEAD_BYTES_MAX;
                    return if long { Err("got no end of trailers".to_owned()) } else { Ok(false) };
                };
                *at += end + 2;
                if end == 0 {
                    self.framing = Framing::Head;
                    pieces.push(Piece::End);
                }
            }
        }
        Ok(true)
    }

    fn end_if_empty(&mut self, pieces: &mut Vec<Piece>) {
        if self.framing == Framing::Length(0) {
            self.framing = Framing::Head;
            pieces.push(Piece::End);
        }
    }
}

type Head = (usize, u16, Option<Framing>, bool);

/// `None`: more bytes are needed. A head without a framing is an interim one.
fn head(bytes: &[u8]) -> Result<Option<Head>, String> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut headers = [EMPTY_HEADER; HTTP_HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if bytes.len() > RESPONSE_HEAD_BYTES_MAX => {
            return Err("got a head that does not end".to_owned());
        }
        Ok(Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("expected an HTTP answer: {error}")),
    };
    let status = response.code.unwrap_or_default();
    if (100..200).contains(&status) {
        return Ok(Some((length, status, None, true)));
    }
    let of = |name: &str| {
        let header = response.headers.iter().find(|it| it.name.eq_ignore_ascii_case(name));
        header.and_then(|it| str::from_utf8(it.value).ok()).unwrap_or_default().trim()
    };
    let reusable = response.version == Some(1) && !of("connection").eq_ignore_ascii_case("close");
    let framing = if matches!(status, 204 | 304) {
        Framing::Length(0)
    } else if of("transfer-encoding").to_ascii_lowercase().ends_with("chunked") {
        Framing::Chunk
    } else if of("content-length").is_empty() {
        Framing::Close
    } else {
        let length = of("content-length");
        Framing::Length(length.parse().map_err(|_| format!("got Content-Length {length:?}"))?)
    };
    Ok(Some((length, status, Some(framing), reusable && framing != Framing::Close)))
}

const CHUNK_LINE_BYTES_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: impl IntoIterator<Item = Vec<u8>>) -> Result<Vec<Piece>, String> {
        let mut reader = Reader::default();
        let mut found: Vec<Piece> = Vec::new();
        for bytes in pieces {
            for piece in reader.receive(&bytes)? {
                match (found.last_mut(), piece) {
                    (Some(Piece::Body(body)), Piece::Body(more)) => body.extend(more),
                    (_, piece) => found.push(piece),
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn answers_are_the_same_however_they_are_cut() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\
                      HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nde\r\n1\
                      \r\nf\r\n0\r\nA: b\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: \
                      close\r\n\r\n";
        let body = |text: &str| Piece::Body(text.as_bytes().to_vec());
        let expected = vec![
            Piece::Head(200, true),
            body("abc"),
            Piece::End,
            Piece::Head(404, true),
            body("def"),
            Piece::End,
            Piece::Head(204, false),
            Piece::End,
        ];
        for size in 1..bytes.len() {
            let pieces = bytes.chunks(size).map(<[u8]>::to_vec);
            assert_eq!(all(pieces), Ok(expected.clone()), "{size}");
        }
        let mut reader = Reader::default();
        assert!(reader.closed() && !reader.is_within());
        reader.receive(b"HTTP/1.1 200 OK\r\n\r\nabc").expect("an answer");
        assert!(reader.closed() && reader.is_within());
        reader = Reader::default();
        reader.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").expect("an answer");
        assert!(!reader.closed());
    }

    #[test]
    fn nonsense_is_told() {
        for bad in [
            &b"SSH-2.0\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            all([bad.to_vec()]).expect_err("nonsense");
        }
        all([vec![b'H'; RESPONSE_HEAD_BYTES_MAX + 1]]).expect_err("no answer");
    }
}
