//! The server's side of HTTP/2 and gRPC, only as far as unary calls of the project's client need
//! it: no priorities, no CONTINUATION, no record of reset streams.

use std::collections::{BTreeMap, VecDeque};

use edged::wire::grpc::frame;
use edged::wire::hpack::{Decoder, encode};

const PREFACE: usize = 24;
const HEAD: usize = 9;
const FRAME_MAX: usize = 16_384;
const WINDOW_INITIAL: i64 = 65_535;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// gRPC's code and text.
pub type Refusal = (u32, &'static str);

pub struct Server {
    decoder: Decoder,
    input: Vec<u8>,
    greeted: bool,
    requests: BTreeMap<u32, Request>,
    output: Vec<u8>,
    /// Replies that wait for the client's window.
    replies: VecDeque<Reply>,
    window: i64,
}

#[derive(Default)]
struct Request {
    path: String,
    body: Vec<u8>,
}

struct Reply {
    stream: u32,
    body: Vec<u8>,
    sent: usize,
}

impl Server {
    /// For a new connection.
    pub fn new() -> Server {
        let mut server = Server {
            decoder: Decoder::new(4096, 64 << 10),
            input: Vec::new(),
            greeted: false,
            requests: BTreeMap::new(),
            output: Vec::new(),
            replies: VecDeque::new(),
            window: WINDOW_INITIAL,
        };
        server.put(4, 0, 0, &[]);
        server
    }

    /// Takes bytes; returns the complete calls: stream, path, message.
    pub fn receive(&mut self, bytes: &[u8]) -> Vec<(u32, String, Vec<u8>)> {
        self.input.extend_from_slice(bytes);
        let mut calls = Vec::new();
        let mut at = 0;
        if !self.greeted && self.input.len() >= PREFACE {
            (self.greeted, at) = (true, PREFACE);
        }
        let input = std::mem::take(&mut self.input);
        while self.greeted && input.len() - at >= HEAD {
            let head = &input[at..at + HEAD];
            let length =
                usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let Some(payload) = input.get(at + HEAD..at + HEAD + length) else { break };
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            if let Some(call) = self.frame(head[3], head[4], stream, payload) {
                calls.push(call);
            }
            at += HEAD + length;
        }
        self.input = input[at..].to_vec();
        self.pump();
        calls
    }

    fn frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> Option<(u32, String, Vec<u8>)> {
        match kind {
            0 => {
                self.requests.entry(stream).or_default().body.extend_from_slice(payload);
                // Returns the credit at once, for the connection; streams are short.
                if !payload.is_empty() {
                    self.put(8, 0, 0, &(payload.len() as u32).to_be_bytes());
                }
            }
            1 => {
                let fields = self.decoder.decode(payload).expect("our own client's headers");
                let path = fields.first(":path").map(String::from_utf8_lossy);
                self.requests.entry(stream).or_default().path =
                    path.expect("a request has a path").into_owned();
            }
            3 => {
                self.requests.remove(&stream);
                self.replies.retain(|reply| reply.stream != stream);
            }
            4 if flags & ACK == 0 => self.put(4, ACK, 0, &[]),
            6 if flags & ACK == 0 => self.put(6, ACK, 0, payload),
            8 if stream == 0 => {
                let credit = payload.first_chunk().expect("four bytes");
                self.window += i64::from(u32::from_be_bytes(*credit));
            }
            _ => {}
        }
        if kind > 1 || flags & END_STREAM == 0 {
            return None;
        }
        let request = self.requests.remove(&stream)?;
        let message = request.body.get(5..).unwrap_or_default().to_vec();
        Some((stream, request.path, message))
    }

    /// Answers a call.
    pub fn answer(&mut self, stream: u32, answer: Result<Vec<u8>, Refusal>) {
        let mut block = Vec::new();
        encode(":status", "200", &mut block);
        encode("content-type", "application/grpc", &mut block);
        match answer {
            Ok(message) => {
                self.put(1, END_HEADERS, stream, &block);
                self.replies.push_back(Reply { stream, body: frame(&message), sent: 0 });
                self.pump();
            }
            Err((code, why)) => {
                encode("grpc-status", &code.to_string(), &mut block);
                encode("grpc-message", why, &mut block);
                self.put(1, END_HEADERS | END_STREAM, stream, &block);
            }
        }
    }

    /// Writes replies as far as the window allows. The windows of streams, which the client opens
    /// to a megabyte, are larger than any reply here.
    fn pump(&mut self) {
        while let Some(mut reply) = self.replies.pop_front() {
            while reply.sent < reply.body.len() {
                let room = usize::try_from(self.window).unwrap_or(0);
                let count = (reply.body.len() - reply.sent).min(FRAME_MAX).min(room);
                if count == 0 {
                    self.replies.push_front(reply);
                    return;
                }
                let part = reply.body[reply.sent..reply.sent + count].to_vec();
                self.put(0, 0, reply.stream, &part);
                self.window -= count as i64;
                reply.sent += count;
            }
            let mut trailers = Vec::new();
            encode("grpc-status", "0", &mut trailers);
            self.put(1, END_HEADERS | END_STREAM, reply.stream, &trailers);
        }
    }

    fn put(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.output.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        self.output.extend_from_slice(&[kind, flags]);
        self.output.extend_from_slice(&stream.to_be_bytes());
        self.output.extend_from_slice(payload);
    }

    /// Begins an answer that announces more than these bytes, and stops there.
    pub fn begin(&mut self, stream: u32, bytes: usize) {
        let mut block = Vec::new();
        encode(":status", "200", &mut block);
        encode("content-type", "application/grpc", &mut block);
        self.put(1, END_HEADERS, stream, &block);
        let reported = (2 * bytes as u32).to_be_bytes();
        let mut part = [&[0], &reported[..]].concat();
        part.resize(FRAME_MAX, 0);
        for _ in 0..bytes / FRAME_MAX {
            self.put(0, 0, stream, &part);
        }
        self.window -= bytes as i64;
    }

    /// Sends this many pings.
    pub fn chatter(&mut self, count: usize) {
        for n in 0..count {
            self.put(6, 0, 0, &(n as u64).to_be_bytes());
        }
    }

    /// The bytes to write to the socket.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }
}
