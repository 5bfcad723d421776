//! The runtime's side of a connection: parses requests, and builds a runtime's replies.

use edged::wire::cri::Rpc;
use edged::wire::cri::container::{Container, ListContainersResponse};
use edged::wire::cri::sandbox::{ListPodSandboxResponse, PodSandbox};
use edged::wire::hpack;
use prost::Message;

use crate::peer::{self, Frame};

/// The bytes that a client has written so far, and the calls in them.
#[derive(Default)]
pub struct Server {
    bytes: Vec<u8>,
    /// Every whole frame, in order.
    pub frames: Vec<Frame>,
    /// Every call, in order.
    pub calls: Vec<ServerCall>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCall {
    pub stream: u32,
    pub path: String,
    /// The received part of the body, with its prefix.
    pub body: Vec<u8>,
}

impl Server {
    pub fn receive(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        if self.bytes.len() >= preface.len() && self.bytes.starts_with(preface) {
            self.bytes.drain(..preface.len());
        }
        while let Some(whole) = frame_end(&self.bytes) {
            let rest = self.bytes.split_off(whole);
            let frame = peer::frames(&self.bytes).remove(0);
            self.bytes = rest;
            self.take(frame);
        }
    }

    fn take(&mut self, frame: Frame) {
        if frame.kind == peer::HEADERS {
            let fields = hpack::Decoder::new(0, 64 << 10).decode(&frame.payload);
            let fields = fields.expect("headers that can be decoded");
            let path = fields.first(":path").expect("a path").to_vec();
            let path = String::from_utf8(path).expect("text");
            self.calls.push(ServerCall { stream: frame.stream, path, body: Vec::new() });
        } else if frame.kind == peer::DATA {
            let calls = self.calls.iter_mut().find(|calls| calls.stream == frame.stream);
            calls.expect("headers come first").body.extend_from_slice(&frame.payload);
        }
        self.frames.push(frame);
    }

    /// The stream of the newest call of that method.
    pub fn stream_of(&self, rpc: Rpc) -> u32 {
        let newest = self.calls.iter().rev().find(|calls| calls.path == rpc.path());
        newest.unwrap_or_else(|| panic!("{rpc:?} was not asked: {:?}", self.calls)).stream
    }

    /// Streams that the client reset.
    pub fn resets(&self) -> Vec<u32> {
        let resets = self.frames.iter().filter(|frame| frame.kind == peer::RST_STREAM);
        resets.map(|frame| frame.stream).collect()
    }
}

/// The length of the first frame, if it is whole.
fn frame_end(bytes: &[u8]) -> Option<usize> {
    let [l0, l1, l2, ..] = bytes else { return None };
    let end = 9 + u32::from_be_bytes([0, *l0, *l1, *l2]) as usize;
    (bytes.len() >= end).then_some(end)
}

/// A server's first frames: its settings and the acknowledgement of ours.
pub fn greeting() -> Vec<u8> {
    [peer::settings(&[(5, 16_384)]), peer::frame(peer::SETTINGS, peer::ACK, 0, &[])].concat()
}

/// A response with a gRPC status and nothing else.
pub fn refusal(stream: u32, status: u32, message: &str) -> Vec<u8> {
    let mut fields = peer::HEAD_FIELDS.to_vec();
    let status = status.to_string();
    fields.extend([("grpc-status", status.as_str()), ("grpc-message", message)]);
    let flags = peer::END_HEADERS | peer::END_STREAM;
    peer::frame(peer::HEADERS, flags, stream, &peer::block(&fields))
}

/// A successful response whose message may be larger than a frame.
pub fn large_reply(stream: u32, message: &[u8]) -> Vec<u8> {
    let mut out = peer::head(stream);
    for piece in peer::message(message).chunks(16_384) {
        out.extend(peer::frame(peer::DATA, 0, stream, piece));
    }
    out.extend(peer::trailers(stream, "0", ""));
    out
}

/// A `ListPodSandboxResponse` with this many items, named `s0`, `s1` and so on.
pub fn sandboxes(count: usize) -> Vec<u8> {
    let item = |n| PodSandbox { id: format!("s{n}"), ..PodSandbox::default() };
    ListPodSandboxResponse { items: (0..count).map(item).collect() }.encode_to_vec()
}

/// The same for containers.
pub fn containers(count: usize) -> Vec<u8> {
    let item = |n| Container { id: format!("c{n}"), ..Container::default() };
    ListContainersResponse { containers: (0..count).map(item).collect() }.encode_to_vec()
}
