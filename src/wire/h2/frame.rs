//! Frame heads, types and flags (RFC 9113 sections 4.1 and 6).

use std::fmt;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u8);

impl Kind {
    pub(super) const DATA: Kind = Kind(0);
    pub(super) const HEADERS: Kind = Kind(1);
    pub(super) const PRIORITY: Kind = Kind(2);
    pub(super) const RST_STREAM: Kind = Kind(3);
    pub(super) const SETTINGS: Kind = Kind(4);
    pub(super) const PUSH_PROMISE: Kind = Kind(5);
    pub(super) const PING: Kind = Kind(6);
    pub(super) const GOAWAY: Kind = Kind(7);
    pub(super) const WINDOW_UPDATE: Kind = Kind(8);
    pub(super) const CONTINUATION: Kind = Kind(9);
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Kind::DATA => "DATA",
            Kind::HEADERS => "HEADERS",
            Kind::PRIORITY => "PRIORITY",
            Kind::RST_STREAM => "RST_STREAM",
            Kind::SETTINGS => "SETTINGS",
            Kind::PUSH_PROMISE => "PUSH_PROMISE",
            Kind::PING => "PING",
            Kind::GOAWAY => "GOAWAY",
            Kind::WINDOW_UPDATE => "WINDOW_UPDATE",
            Kind::CONTINUATION => "CONTINUATION",
            Kind(other) => return write!(f, "frame of type {other:#04x}"),
        };
        f.write_str(name)
    }
}

/// On DATA and HEADERS.
pub(super) const END_STREAM: u8 = 0x01;
/// On SETTINGS and PING.
pub(super) const ACK: u8 = 0x01;
/// On HEADERS and CONTINUATION.
pub(super) const END_HEADERS: u8 = 0x04;
/// On DATA and HEADERS.
pub(super) const PADDED: u8 = 0x08;
/// On HEADERS: five bytes of priority come first.
pub(super) const PRIORITIZED: u8 = 0x20;

/// Identifiers in SETTINGS (RFC 9113 section 6.5.2).
pub(super) mod setting {
    pub(in super::super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(in super::super) const ENABLE_PUSH: u16 = 2;
    pub(in super::super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(in super::super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(in super::super) const MAX_FRAME_SIZE: u16 = 5;
    pub(in super::super) const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// The first bytes of a client (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length (3), type, flags, stream (4).
pub(super) const HEAD_BYTES: usize = 9;
/// The initial SETTINGS_MAX_FRAME_SIZE; we never announce another, so no frame may be larger.
pub(super) const FRAME_BYTES_MAX: u32 = 16_384;
/// The initial window of streams and of the connection.
pub(super) const WINDOW_BYTES_INITIAL: u32 = 65_535;
/// No window may exceed this.
pub(super) const WINDOW_BYTES_MAX: i64 = (1 << 31) - 1;

/// The nine bytes before every payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: u32,
    pub(super) kind: Kind,
    pub(super) flags: u8,
    /// Zero is the connection; the reserved bit is ignored, as section 4.1 demands.
    pub(super) stream: u32,
}

impl Head {
    pub(super) fn parse(bytes: [u8; HEAD_BYTES]) -> Head {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = bytes;
        Head {
            length: u32::from_be_bytes([0, l0, l1, l2]),
            kind: Kind(kind),
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
        }
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(self.length < 1 << 24, "a length has three bytes");
        out.extend_from_slice(&self.length.to_be_bytes()[1..]);
        out.extend_from_slice(&[self.kind.0, self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
    }
}

/// Appends a whole frame.
pub(super) fn put(kind: Kind, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    Head { length: payload.len() as u32, kind, flags, stream }.put(out);
    out.extend_from_slice(payload);
}

/// Reads the big-endian number at the start; the caller has checked the length.
pub(super) fn number(payload: &[u8]) -> u32 {
    let bytes = payload.first_chunk().expect("the caller has checked the frame's length");
    u32::from_be_bytes(*bytes)
}
