//! The request of an HTTP probe, and the part of its answer that a probe reads.

use std::fmt::Write;

use super::url::{escaped, host_port};
use crate::limits::PROBE_BODY_BYTES_MAX;
use crate::model::net::HttpQuery;
use crate::wire::http1::response::{self, Fault, Piece};

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
    /// 101, or 200–999.
    pub status: u16,
    /// The header of that name, as far as it is text; not empty.
    pub location: Option<String>,
    pub body: Vec<u8>,
}

/// Reads an answer as far as a probe does.
#[derive(Debug)]
pub struct Reader {
    answer: response::Reader,
    response: Option<Response>,
    complete: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self { answer: response::Reader::single(), response: None, complete: false }
    }
}

impl Reader {
    /// Takes received bytes. Returns whether everything that a probe reads is there.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        self.answer.receive(bytes);
        while !self.complete
            && let Some(piece) = self.answer.piece()?
        {
            let response = self.response.get_or_insert_default();
            match piece {
                Piece::Head(head) => {
                    (response.status, response.location) = (head.status, head.location);
                }
                Piece::Body(part) => {
                    let room = PROBE_BODY_BYTES_MAX - response.body.len();
                    response.body.extend_from_slice(&part[..part.len().min(room)]);
                    self.complete = part.len() >= room;
                }
                Piece::End => self.complete = true,
            }
        }
        Ok(self.complete)
    }

    /// The other end has closed. Returns whether that completes the answer.
    pub fn end(&mut self) -> bool {
        self.complete |= self.response.is_some() && self.answer.closed();
        self.complete
    }

    /// The answer, once its head is there.
    pub fn response(&self) -> Option<&Response> {
        self.response.as_ref()
    }

    /// Whether everything that a probe reads is there.
    pub fn is_complete(&self) -> bool {
        self.complete
    }
}
