//! DNS messages (RFC 1035 section 4, EDNS of RFC 6891): the queries of pods, the answers about
//! Services, and as much of other servers' answers as an alias needs.
//!
//! One question of class IN per query; all else is refused with the code that RFC 1035 has for it.
//! What cannot even be answered (less than a header, or an answer) is dropped. A name is at most
//! 255 bytes, its pointers lead backwards only, and at most [`DNS_POINTERS_MAX`] are followed.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::limits::{DNS_POINTERS_MAX, DNS_RECORDS_MAX, DNS_UDP_BYTES, DNS_UDP_BYTES_MAX};
use crate::model::dns::{Answer, Data, Question, Rcode, Record, kind};

/// A question that can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub id: u16,
    pub question: Question,
    /// As the client wrote it: letters keep their case in the answer.
    written: Box<[u8]>,
    /// The client asks for recursion.
    recursive: bool,
    /// The client's EDNS: the bytes that it takes over UDP.
    edns: Option<u16>,
}

/// Why a message is no query to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is dropped.
    Drop,
    /// This is sent.
    Answer(Vec<u8>),
}

const HEADER: usize = 12;
const QR: u8 = 0x80;
const AA: u8 = 0x04;
const TC: u8 = 0x02;
const RD: u8 = 0x01;
const RA: u8 = 0x80;
const IN: u16 = 1;
const OPT: u16 = 41;
const OPT_BYTES: usize = 11;
const NAME_BYTES_MAX: usize = 255;
/// An extended code: BADVERS (RFC 6891 section 9).
const BAD_VERSION: u8 = 1;

/// Reads a query.
pub fn parse(bytes: &[u8]) -> Result<Query, Refusal> {
    let header = bytes.get(..HEADER).ok_or(Refusal::Drop)?;
    if header[2] & QR != 0 {
        return Err(Refusal::Drop);
    }
    let refused = |rcode: Rcode, ends_at: usize| {
        let mut answer = bytes[..ends_at].to_vec();
        answer[2] = QR | (header[2] & !(AA | TC));
        answer[3] = RA | rcode as u8;
        answer[4..HEADER].fill(0);
        answer[5] = u8::from(ends_at > HEADER);
        Refusal::Answer(answer)
    };
    let opcode = (header[2] >> 3) & 0x0f;
    if opcode != 0 {
        return Err(refused(Rcode::NotImp, HEADER));
    }
    let malformed = || refused(Rcode::FormErr, HEADER);
    let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    if count(4) != 1 {
        return Err(malformed());
    }
    let (name, at) = name(bytes, HEADER).ok_or_else(malformed)?;
    // Written in full: an answer points into it.
    if at - HEADER != if name.is_empty() { 1 } else { name.len() + 2 } {
        return Err(malformed());
    }
    let fixed = bytes.get(at..at + 4).ok_or_else(malformed)?;
    let kind = u16::from_be_bytes([fixed[0], fixed[1]]);
    if u16::from_be_bytes([fixed[2], fixed[3]]) != IN {
        return Err(refused(Rcode::Refused, at + 4));
    }
    let mut reader = Reader { bytes, at: at + 4 };
    let others = [count(6), count(8), count(10)].map(usize::from).iter().sum();
    let mut edns = None;
    for _ in 0..others {
        let record = reader.next().ok_or_else(malformed)?;
        if record.kind == OPT {
            if edns.is_some() {
                return Err(malformed());
            }
            edns = Some((record.class, record.ttl_s.to_be_bytes()[1]));
        }
    }
    let query = Query {
        id: count(0),
        question: Question { name, kind },
        written: bytes[HEADER..at + 4].into(),
        recursive: header[2] & RD != 0,
        edns: edns.map(|(size, _)| size),
    };
    match edns {
        Some((_, version)) if version != 0 => Err(Refusal::Answer(query.bad_version())),
        _ => Ok(query),
    }
}

impl Query {
    /// The bytes that the client takes over UDP.
    pub fn udp_bytes_max(&self) -> usize {
        let given = self.edns.map_or(DNS_UDP_BYTES, usize::from);
        given.clamp(DNS_UDP_BYTES, DNS_UDP_BYTES_MAX)
    }

    /// The answer in at most so many bytes. What does not fit is left out, and if it is more than
    /// an additional record, the answer says that it is truncated.
    pub fn answer(&self, answer: &Answer, bytes_max: usize) -> Vec<u8> {
        let mut writer = Writer::begin(self);
        let room = bytes_max - if self.edns.is_some() { OPT_BYTES } else { 0 };
        let sections = [&answer.answers, &answer.authority, &answer.additional];
        let mut truncated = false;
        'sections: for (section, records) in sections.into_iter().enumerate() {
            for record in records {
                let before = writer.bytes.len();
                writer.record(record);
                if writer.bytes.len() > room {
                    writer.bytes.truncate(before);
                    truncated = section < 2;
                    break 'sections;
                }
                writer.count(6 + 2 * section);
            }
        }
        if self.edns.is_some() {
            writer.opt(0);
        }
        let mut bytes = writer.bytes;
        bytes[2] |= if answer.authoritative { AA } else { 0 } | if truncated { TC } else { 0 };
        bytes[3] |= answer.rcode as u8;
        bytes
    }

    fn bad_version(&self) -> Vec<u8> {
        let mut writer = Writer::begin(self);
        writer.opt(BAD_VERSION);
        writer.bytes
    }

    /// Whether the bytes are an answer to this question under another id, as another server gives
    /// it.
    pub fn is_answered_by(&self, id: u16, bytes: &[u8]) -> bool {
        is_answer(id, &self.written, bytes)
    }
}

/// A query of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnQuery {
    pub bytes: Vec<u8>,
}

impl OwnQuery {
    /// About this name, with recursion.
    pub fn new(id: u16, name: &str, kind: u16) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[..2].copy_from_slice(&id.to_be_bytes());
        bytes[2] = RD;
        bytes[5] = 1;
        bytes[11] = 1;
        put_labels(name, &mut bytes);
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend(IN.to_be_bytes());
        put_opt(0, &mut bytes);
        Self { bytes }
    }

    /// Whether the bytes are an answer to it.
    pub fn is_answered_by(&self, id: u16, bytes: &[u8]) -> bool {
        is_answer(id, &self.bytes[HEADER..self.bytes.len() - OPT_BYTES], bytes)
    }
}

fn is_answer(id: u16, question: &[u8], bytes: &[u8]) -> bool {
    let Some(header) = bytes.get(..HEADER) else { return false };
    header[..2] == id.to_be_bytes()
        && header[2] & QR != 0
        && header[4..6] == [0, 1]
        && bytes[HEADER..].get(..question.len()).is_some_and(|it| it.eq_ignore_ascii_case(question))
}

/// Gives a message another id.
pub fn set_id(bytes: &mut [u8], id: u16) {
    if let Some(place) = bytes.get_mut(..2) {
        place.copy_from_slice(&id.to_be_bytes());
    }
}

/// Whether an answer says that it is truncated.
pub fn is_truncated(bytes: &[u8]) -> bool {
    bytes.get(2).is_some_and(|flags| flags & TC != 0)
}

/// The code of another server's answer and its addresses and aliases, in order. `None`: it cannot
/// be read.
pub fn records(bytes: &[u8]) -> Option<(Rcode, Vec<Record>)> {
    let header = bytes.get(..HEADER)?;
    let rcode = match header[3] & 0x0f {
        0 => Rcode::NoError,
        3 => Rcode::NxDomain,
        _ => Rcode::ServFail,
    };
    let (_, at) = name(bytes, HEADER)?;
    let mut reader = Reader { bytes, at: at + 4 };
    let mut found = Vec::new();
    let count = usize::from(u16::from_be_bytes([header[6], header[7]]));
    for _ in 0..count.min(DNS_RECORDS_MAX) {
        let raw = reader.next()?;
        let data = match raw.kind {
            kind::A => Data::A(Ipv4Addr::from(<[u8; 4]>::try_from(raw.data).ok()?)),
            kind::AAAA => Data::Aaaa(Ipv6Addr::from(<[u8; 16]>::try_from(raw.data).ok()?)),
            kind::CNAME => Data::Cname(name(bytes, raw.data_at)?.0),
            _ => continue,
        };
        if raw.class == IN {
            found.push(Record { name: raw.name, ttl_s: raw.ttl_s, data });
        }
    }
    Some((rcode, found))
}

struct Raw<'a> {
    name: Box<str>,
    kind: u16,
    class: u16,
    ttl_s: u32,
    data: &'a [u8],
    data_at: usize,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next record; `None`: it does not end in the message.
    fn next(&mut self) -> Option<Raw<'a>> {
        let (name, at) = name(self.bytes, self.at)?;
        let fixed = self.bytes.get(at..at + 10)?;
        let half = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let data_at = at + 10;
        let end = data_at + usize::from(half(8));
        let data = self.bytes.get(data_at..end)?;
        self.at = end;
        let ttl_s = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        Some(Raw { name, kind: half(0), class: half(2), ttl_s, data, data_at })
    }
}

/// The name at this place in lower case, and where what follows it begins.
fn name(bytes: &[u8], begin: usize) -> Option<(Box<str>, usize)> {
    let mut text = String::new();
    let (mut at, mut end, mut pointers, mut length) = (begin, None, 0, 1);
    loop {
        let first = usize::from(*bytes.get(at)?);
        match first >> 6 {
            0 if first == 0 => break,
            0 => {
                let label = bytes.get(at + 1..at + 1 + first)?;
                length += first + 1;
                if length > NAME_BYTES_MAX {
                    return None;
                }
                if !text.is_empty() {
                    text.push('.');
                }
                text.extend(label.iter().map(|byte| character(*byte)));
                at += 1 + first;
            }
            3 => {
                let to = (first & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
                pointers += 1;
                // Only backwards, so that it ends.
                if to >= at || pointers > DNS_POINTERS_MAX {
                    return None;
                }
                end.get_or_insert(at + 2);
                at = to;
            }
            _ => return None,
        }
    }
    Some((text.into(), end.unwrap_or(at + 1)))
}

/// What no name of Kubernetes has, a dot in a label above all, is no part of any.
fn character(byte: u8) -> char {
    match byte.to_ascii_lowercase() {
        byte @ (b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_') => char::from(byte),
        _ => '?',
    }
}

struct Writer<'a> {
    query: &'a Query,
    bytes: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn begin(query: &'a Query) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[..2].copy_from_slice(&query.id.to_be_bytes());
        bytes[2] = QR | if query.recursive { RD } else { 0 };
        bytes[3] = RA;
        bytes[5] = 1;
        bytes.extend_from_slice(&query.written);
        Self { query, bytes }
    }

    /// One record more in this section.
    fn count(&mut self, at: usize) {
        let count = u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]) + 1;
        self.bytes[at..at + 2].copy_from_slice(&count.to_be_bytes());
    }

    /// As a pointer to the question, or to the end of its name, where it is that.
    fn name(&mut self, name: &str) {
        let question = &self.query.question.name;
        let (mut rest, mut own) = (name, Vec::new());
        while !rest.is_empty() {
            if let Some(before) = question.strip_suffix(rest)
                && (before.is_empty() || before.ends_with('.'))
            {
                // Each character was one byte, and each dot is the length of a label.
                let at = (HEADER + before.len()) as u16 | 0xc000;
                own.extend(at.to_be_bytes());
                self.bytes.extend(own);
                return;
            }
            let (label, after) = rest.split_once('.').unwrap_or((rest, ""));
            put_labels(label, &mut own);
            rest = after;
        }
        own.push(0);
        self.bytes.extend(own);
    }

    fn record(&mut self, record: &Record) {
        self.name(&record.name);
        let kind = match &record.data {
            Data::A(_) => kind::A,
            Data::Aaaa(_) => kind::AAAA,
            Data::Cname(_) => kind::CNAME,
            Data::Ptr(_) => kind::PTR,
            Data::Srv { .. } => kind::SRV,
            Data::Soa { .. } => kind::SOA,
        };
        self.bytes.extend(kind.to_be_bytes());
        self.bytes.extend(IN.to_be_bytes());
        self.bytes.extend(record.ttl_s.to_be_bytes());
        let length_at = self.bytes.len();
        self.bytes.extend([0, 0]);
        match &record.data {
            Data::A(ip) => self.bytes.extend(ip.octets()),
            Data::Aaaa(ip) => self.bytes.extend(ip.octets()),
            Data::Cname(name) | Data::Ptr(name) => self.name(name),
            Data::Srv { port, target } => {
                // Priority, weight. The target is not compressed (RFC 2782).
                self.bytes.extend([0, 0, 0, 0]);
                self.bytes.extend(port.to_be_bytes());
                put_labels(target, &mut self.bytes);
                self.bytes.push(0);
            }
            Data::Soa { minimum_s } => {
                put_labels("ns.dns", &mut self.bytes);
                self.name(&record.name);
                put_labels("hostmaster", &mut self.bytes);
                self.name(&record.name);
                // Serial, refresh, retry, expire: nobody transfers the zone.
                for number in [1, 7_200, 1_800, 86_400, *minimum_s] {
                    self.bytes.extend(number.to_be_bytes());
                }
            }
        }
        let length = (self.bytes.len() - length_at - 2) as u16;
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }

    fn opt(&mut self, extended: u8) {
        put_opt(extended, &mut self.bytes);
        self.count(10);
    }
}

fn put_labels(name: &str, to: &mut Vec<u8>) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        // What is longer is no label, and no name that a server knows begins with it.
        let label = &label.as_bytes()[..label.len().min(63)];
        to.push(label.len() as u8);
        to.extend_from_slice(label);
    }
}

fn put_opt(extended: u8, to: &mut Vec<u8>) {
    to.push(0);
    to.extend(OPT.to_be_bytes());
    to.extend((DNS_UDP_BYTES_MAX as u16).to_be_bytes());
    to.extend([extended, 0, 0, 0, 0, 0]);
}

#[cfg(test)]
mod tests;
