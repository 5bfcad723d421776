//! The server's end of a connection: streams that a client opens, with their headers.
//!
//! The header blocks of a connection are one zlib stream (RFC 1950), which may begin with SPDY's
//! dictionary; each ends with a flush, as the SPDY draft demands, so that it can be read alone. A
//! block is bounded before and after it is unpacked ([`SPDY_HEADERS_BYTES_MAX`]).

use std::fmt;
use std::io::Read;

use super::{
    CANCEL, Control, DataFrame, Frames, GOAWAY, PING, REFUSED_STREAM, RST_STREAM, SYN_REPLY,
    SYN_STREAM, Violation,
};
use crate::limits::SPDY_HEADERS_BYTES_MAX;
use crate::wire::inflate::{Inflate, Paused};

/// What a client did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// It has opened a stream; to be answered with [`Server::accept`] or [`Server::refuse`].
    Open(u32, Headers),
    /// Bytes of this stream; not empty.
    Data(u32, &'a [u8]),
    /// It sends no more on this stream.
    End(u32),
    /// It gave this stream up.
    Reset(u32),
}

impl<'a> From<DataFrame<'a>> for Incoming<'a> {
    fn from(frame: DataFrame<'a>) -> Self {
        match frame {
            DataFrame::Bytes(id, bytes) => Self::Data(id, bytes),
            DataFrame::End(id) => Self::End(id),
        }
    }
}

/// Names, in lower case, and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The first value of this name; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }
}

/// One connection.
pub struct Server {
    frames: Frames,
    opened: Opened,
}

/// The streams that the client has opened, and the zlib stream of their headers.
struct Opened {
    inflate: Inflate,
    /// The zlib stream has begun.
    has_begun: bool,
    /// The id of the stream that was opened last.
    last: u32,
    /// It was opened without anything to follow.
    ended: Option<u32>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("last", &self.opened.last).finish_non_exhaustive()
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            // One more, so that a longer one is noticed: the id, another one, priority and slot.
            frames: Frames::new(10 + SPDY_HEADERS_BYTES_MAX + 1),
            opened: Opened {
                inflate: Inflate::new(CHUNK, CHUNK),
                has_begun: false,
                last: 0,
                ended: None,
            },
        }
    }
}

/// Bytes of a header block that are read and unpacked at once.
const CHUNK: usize = 1 << 10;

impl Server {
    /// Takes these bytes up to the end of what they complete. Returns how many it took, and what
    /// they completed; call again with the rest, until all are taken and nothing comes.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(usize, Option<Incoming<'a>>), Violation> {
        let Self { frames, opened } = self;
        if let Some(id) = opened.ended.take() {
            return Ok((0, Some(Incoming::End(id))));
        }
        frames.receive(bytes, |frames, control| opened.control(frames, control))
    }

    /// Answers a stream that was opened.
    pub fn accept(&mut self, stream: u32) {
        let mut payload = stream.to_be_bytes().to_vec();
        self.frames.put_headers(&[], &mut payload);
        self.frames.control(SYN_REPLY, 0, &payload);
    }

    /// Likewise: it is for nothing here.
    pub fn refuse(&mut self, stream: u32) {
        self.frames.reset(stream, REFUSED_STREAM);
    }

    /// Sends bytes on a stream.
    pub fn data(&mut self, stream: u32, bytes: &[u8]) {
        self.frames.data(stream, bytes);
    }

    /// Sends that nothing follows on a stream.
    pub fn end(&mut self, stream: u32) {
        self.frames.end(stream);
    }

    /// Gives up a stream.
    pub fn cancel(&mut self, stream: u32) {
        self.frames.reset(stream, CANCEL);
    }

    /// Sends that all is done, and the connection ends.
    pub fn go_away(&mut self) {
        let done = 0_u32;
        self.frames.control(
            GOAWAY,
            0,
            &[self.opened.last.to_be_bytes(), done.to_be_bytes()].concat(),
        );
    }

    /// The bytes that are to be sent.
    pub fn output(&self) -> &[u8] {
        &self.frames.output
    }

    /// So many of them were sent.
    pub fn sent(&mut self, count: usize) {
        self.frames.output.drain(..count);
    }
}

impl Opened {
    fn control<'a>(
        &mut self,
        frames: &mut Frames,
        control: &Control,
    ) -> Result<Option<Incoming<'a>>, Violation> {
        Ok(match control.kind {
            SYN_STREAM => {
                let id = control.id()?;
                if id % 2 == 0 || id <= self.last {
                    return Err(Violation::Id(id, self.last));
                }
                self.last = id;
                let short = Violation::Short(control.kind, control.payload.len());
                let headers = self.headers(control.payload.get(10..).ok_or(short)?)?;
                self.ended = control.ends().then_some(id);
                Some(Incoming::Open(id, headers))
            }
            RST_STREAM => Some(Incoming::Reset(control.id()?)),
            PING => {
                frames.pong(control.word(0)?, 1);
                None
            }
            // Also GOAWAY: the client opens no more streams, and closes when it has done.
            _ => None,
        })
    }

    fn headers(&mut self, block: &[u8]) -> Result<Headers, Violation> {
        if block.len() > SPDY_HEADERS_BYTES_MAX {
            return Err(too_long());
        }
        let plain = self.unpack(&mut &*block)?;
        parse(&plain).ok_or_else(|| Violation::Headers("got no list of names and values".into()))
    }

    fn unpack(&mut self, from: &mut dyn Read) -> Result<Vec<u8>, Violation> {
        let failed = |error: std::io::Error| Violation::Headers(error.to_string());
        let inflate = &mut self.inflate;
        if !self.has_begun {
            let mut byte = || inflate.byte(from).map_err(failed);
            let head = u16::from_be_bytes([byte()?, byte()?]);
            // Deflate, and the check of RFC 1950 section 2.2.
            if head >> 8 & 0xf != 8 || head % 31 != 0 {
                return Err(Violation::Headers(format!("got {head:#06x}, expected zlib's head")));
            }
            if head & HAS_DICTIONARY == 0 {
                inflate.begin(b"");
            } else {
                let id = u32::from_be_bytes([byte()?, byte()?, byte()?, byte()?]);
                if id != DICTIONARY_ID {
                    return Err(Violation::Headers(format!("got the dictionary {id:#x}")));
                }
                inflate.begin(&dictionary());
            }
            self.has_begun = true;
        }
        let mut plain = Vec::new();
        loop {
            inflate.make_room();
            let from_at = inflate.out().len();
            let paused = inflate.blocks(from).map_err(failed)?;
            plain.extend_from_slice(&inflate.out()[from_at..]);
            if plain.len() > SPDY_HEADERS_BYTES_MAX {
                return Err(too_long());
            }
            match paused {
                Paused::Full => {}
                Paused::Input => return Ok(plain),
                Paused::Last => {
                    return Err(Violation::Headers("got the end of their stream".into()));
                }
            }
        }
    }
}

fn too_long() -> Violation {
    let text = format!("got a block of more than {SPDY_HEADERS_BYTES_MAX} bytes");
    Violation::Headers(text)
}

/// A number of pairs; of each text its length, then its bytes.
fn parse(mut bytes: &[u8]) -> Option<Headers> {
    let count = number(&mut bytes)?;
    let mut pairs = Vec::new();
    // Each has eight bytes at least.
    for _ in 0..count {
        pairs.push((text(&mut bytes)?, text(&mut bytes)?));
    }
    bytes.is_empty().then_some(Headers(pairs))
}

fn text(bytes: &mut &[u8]) -> Option<String> {
    let length = number(bytes)?;
    let (text, rest) = bytes.split_at_checked(length as usize)?;
    *bytes = rest;
    Some(str::from_utf8(text).ok()?.to_owned())
}

fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (four, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_be_bytes(*four))
}

/// In zlib's head: the Adler-32 of a dictionary follows.
const HAS_DICTIONARY: u16 = 0x20;
const DICTIONARY_ID: u32 = 0xe3c6_a7c2;

/// SPDY/3 section 2.6.10.1: names with their lengths in front, then text.
fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in DICTIONARY_NAMES.split(',') {
        super::put_u32(name.len(), &mut bytes);
        bytes.extend_from_slice(name.as_bytes());
    }
    bytes.extend_from_slice(DICTIONARY_TEXT.as_bytes());
    bytes
}

const DICTIONARY_NAMES: &str = "options,head,post,put,delete,trace,accept,accept-charset,\
    accept-encoding,accept-language,accept-ranges,age,allow,authorization,cache-control,\
    connection,content-base,content-encoding,content-language,content-length,content-location,\
    content-md5,content-range,content-type,date,etag,expect,expires,from,host,if-match,\
    if-modified-since,if-none-match,if-range,if-unmodified-since,last-modified,location,\
    max-forwards,pragma,proxy-authenticate,proxy-authorization,range,referer,retry-after,server,\
    te,trailer,transfer-encoding,upgrade,user-agent,vary,via,warning,www-authenticate,method,get,\
    status,200 OK,version,HTTP/1.1,url,public,set-cookie,keep-alive,origin";

const DICTIONARY_TEXT: &str = "1001012012022052063003023033043053063074024054064074084094104114124\
    13414415416417502504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 \
    Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not \
    Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 \
    Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,\
    deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_spdys() {
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in dictionary() {
            a = (a + u32::from(byte)) % 65_521;
            b = (b + a) % 65_521;
        }
        assert_eq!(b << 16 | a, DICTIONARY_ID);
    }
}
