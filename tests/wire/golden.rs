//! Reads the captures under `tests/golden/cri`: the traffic of real servers, recorded by a raw
//! HTTP/2 client.
//!
//! Each frame is one line (`0.5 ms <- HEADERS flags=0x04 stream=1 len=16 hex=2088…`), decoded
//! header fields follow one per line. From these the bytes on the wire are reconstructed.

use std::fs;

use crate::peer;

/// The content of a frame line.
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
    /// Of HEADERS: the capture's own decoding.
    pub fields: Vec<(String, String)>,
}

impl Frame {
    pub fn bytes(&self) -> Vec<u8> {
        peer::frame(self.kind, self.flags, self.stream, &self.payload)
    }
}

/// The captures with one connection each: containerd 1.6, containerd 2.3, CRI-O.
pub const CONNECTIONS: [&str; 3] = ["h2-c16.txt", "h2-c23.txt", "h2-crio.txt"];
/// The captures with one connection per section: containerd 1.6 and 2.3.
pub const SECTIONS: [&str; 2] = ["h2b-c16.txt", "h2b-c23.txt"];

pub fn text(file: &str) -> String {
    let path = format!("{}/tests/golden/cri/{file}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The lines of one section, which begins with `== <name>.`.
pub fn section(file: &str, name: &str) -> String {
    let text = text(file);
    let start = text.find(&format!("== {name}.")).expect("the section exists");
    let section = &text[start..];
    let end = section[3..].find("\n==").map_or(section.len(), |end| end + 3);
    section[..end].to_owned()
}

/// All frames of a text, in order.
pub fn frames(text: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for line in text.lines() {
        if let Some((_, frame)) = line.split_once(" ms  <- ") {
            frames.push(parse_frame(frame));
        } else if let Some((name, rest)) = line.strip_prefix("        ").and_then(field) {
            let frame = frames.last_mut().expect("fields follow a frame");
            frame.fields.push((name, rest));
        }
    }
    assert!(!frames.is_empty(), "a capture without frames tests nothing");
    frames
}

fn parse_frame(line: &str) -> Frame {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap();
    let mut value = |key: &str| words.next().unwrap().strip_prefix(key).unwrap().to_owned();
    let flags = u8::from_str_radix(&value("flags=0x"), 16).unwrap();
    let stream = value("stream=").parse().unwrap();
    let length: usize = value("len=").parse().unwrap();
    let rest: Vec<&str> = words.collect();
    let (kind, payload) = match name {
        "SETTINGS" => {
            let known = rest.iter().filter_map(|word| word.strip_prefix("MAX_FRAME_SIZE="));
            let entry = |text: &str| (5u16, text.parse::<u32>().unwrap());
            let entries: Vec<_> = known.map(entry).collect();
            (peer::SETTINGS, peer::settings(&entries)[9..].to_vec())
        }
        "WINDOW_UPDATE" => {
            let increment: u32 = rest[0].strip_prefix('+').unwrap().parse().unwrap();
            (peer::WINDOW_UPDATE, increment.to_be_bytes().to_vec())
        }
        "RST_STREAM" => {
            let code: u32 = rest[0].strip_prefix("code=").unwrap().parse().unwrap();
            (peer::RST_STREAM, code.to_be_bytes().to_vec())
        }
        "PING" => (peer::PING, hex(rest[0])),
        "HEADERS" => (peer::HEADERS, hex(rest[0].strip_prefix("hex=").unwrap())),
        "DATA" => (peer::DATA, hex(rest[0])),
        other => panic!("a frame of a type the captures do not have: {other}"),
    };
    assert_eq!(payload.len(), length, "the capture has the whole frame: {line}");
    Frame { kind, flags, stream, payload, fields: Vec::new() }
}

/// `name: 'value'   [how]`, the value as Python's `repr` has it.
fn field(line: &str) -> Option<(String, String)> {
    let (name, rest) = line.split_once(": '")?;
    let (value, how) = rest.rsplit_once("'   [")?;
    if how.starts_with("table-size-update") {
        return None;
    }
    assert!(!name.is_empty(), "only size updates have no name");
    Some((name.to_owned(), value.replace("\\\\", "\\")))
}

pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap() as u8)
        .collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
