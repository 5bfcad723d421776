//! The other end, for tests: builds frames and parses ours. Independent of the codec under test.

use edged::wire::grpc::{CallKey, Client, Event};
use edged::wire::{h2, hpack};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 0x1;
pub const ACK: u8 = 0x1;
pub const END_HEADERS: u8 = 0x4;
pub const PADDED: u8 = 0x8;
pub const PRIORITIZED: u8 = 0x20;

/// A frame as it is on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn is_end(&self) -> bool {
        self.flags & END_STREAM != 0
    }

    pub fn number(&self) -> u32 {
        u32::from_be_bytes(self.payload[..4].try_into().unwrap())
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

pub fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in entries {
        payload.extend(id.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

pub fn rst_stream(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub fn go_away(last: u32, code: u32, debug: &[u8]) -> Vec<u8> {
    let mut payload = last.to_be_bytes().to_vec();
    payload.extend(code.to_be_bytes());
    payload.extend(debug);
    frame(GOAWAY, 0, 0, &payload)
}

pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        hpack::encode(name, value, &mut out);
    }
    out
}

pub const HEAD_FIELDS: &[(&str, &str)] =
    &[(":status", "200"), ("content-type", "application/grpc")];

/// The header block that begins a successful response.
pub fn head(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(HEAD_FIELDS))
}

/// The trailers of a response.
pub fn trailers(stream: u32, status: &str, message: &str) -> Vec<u8> {
    let fields = block(&[("grpc-status", status), ("grpc-message", message)]);
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields)
}

pub fn message(bytes: &[u8]) -> Vec<u8> {
    edged::wire::grpc::frame(bytes)
}

/// A whole good response with one message.
pub fn reply(stream: u32, bytes: &[u8]) -> Vec<u8> {
    [head(stream), frame(DATA, 0, stream, &message(bytes)), trailers(stream, "0", "")].concat()
}

/// Parses the bytes of a client. `bytes` must be whole frames; a preface is skipped.
pub fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut rest = bytes.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap_or(bytes);
    let mut out = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        out.push(Frame {
            kind: rest[3],
            flags: rest[4],
            stream: u32::from_be_bytes(rest[5..9].try_into().unwrap()),
            payload: rest[9..9 + length].to_vec(),
        });
        rest = &rest[9 + length..];
    }
    out
}

/// Takes all output of a client.
pub fn written(client: &mut Client) -> Vec<Frame> {
    let mut bytes = Vec::new();
    while !client.output().is_empty() {
        let count = client.output().len();
        bytes.extend_from_slice(client.output());
        client.sent(count);
    }
    frames(&bytes)
}

pub fn events(client: &mut Client) -> Vec<Event> {
    std::iter::from_fn(|| client.poll_event()).collect()
}

/// A client whose preface is written and whose server has sent these settings.
pub fn client(entries: &[(u16, u32)]) -> Client {
    let mut client = Client::new(h2::Config::default());
    client.receive(&settings(entries)).unwrap();
    written(&mut client);
    client
}

/// A client with that many unary calls written; call n is on stream n.
pub fn client_with_calls(count: u64) -> Client {
    let mut client = client(&[]);
    for n in 0..count {
        client.unary(CallKey(2 * n + 1), "/test.Service/Method", b"question").unwrap();
    }
    written(&mut client);
    client
}
