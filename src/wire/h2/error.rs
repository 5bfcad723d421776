//! Errors that end a connection, and their HTTP/2 codes.

use std::fmt;

use super::frame::Kind;
use crate::wire::hpack;

/// An error code as RST_STREAM and GOAWAY carry it (RFC 9113 section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    pub const NO_ERROR: ErrorCode = ErrorCode(0);
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(1);
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(2);
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(3);
    pub const SETTINGS_TIMEOUT: ErrorCode = ErrorCode(4);
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(5);
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(6);
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(7);
    pub const CANCEL: ErrorCode = ErrorCode(8);
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(9);
    pub const CONNECT_ERROR: ErrorCode = ErrorCode(10);
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(11);
    pub const INADEQUATE_SECURITY: ErrorCode = ErrorCode(12);
    pub const HTTP_1_1_REQUIRED: ErrorCode = ErrorCode(13);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            ErrorCode::NO_ERROR => "NO_ERROR",
            ErrorCode::PROTOCOL_ERROR => "PROTOCOL_ERROR",
            ErrorCode::INTERNAL_ERROR => "INTERNAL_ERROR",
            ErrorCode::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            ErrorCode::SETTINGS_TIMEOUT => "SETTINGS_TIMEOUT",
            ErrorCode::STREAM_CLOSED => "STREAM_CLOSED",
            ErrorCode::FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
            ErrorCode::REFUSED_STREAM => "REFUSED_STREAM",
            ErrorCode::CANCEL => "CANCEL",
            ErrorCode::COMPRESSION_ERROR => "COMPRESSION_ERROR",
            ErrorCode::CONNECT_ERROR => "CONNECT_ERROR",
            ErrorCode::ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
            ErrorCode::INADEQUATE_SECURITY => "INADEQUATE_SECURITY",
            ErrorCode::HTTP_1_1_REQUIRED => "HTTP_1_1_REQUIRED",
            ErrorCode(other) => return write!(f, "error code {other}"),
        };
        f.write_str(name)
    }
}

/// The peer violated the protocol, or a limit of ours; the connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// `server` or `client`.
    pub peer: &'static str,
    /// The code of the GOAWAY that we queued.
    pub code: ErrorCode,
    /// The type of the faulty frame.
    pub frame: Kind,
    /// Its stream; zero is the connection.
    pub stream: u32,
    pub problem: Problem,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error { peer, code, frame, stream, problem } = self;
        write!(f, "{peer}'s {frame} on stream {stream}: {problem} ({code})")
    }
}

impl std::error::Error for Error {}

/// The problem: got, and expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The first frame must be SETTINGS, and a client's preface stands before it; text of another
    /// protocol ends up here.
    NotHttp2,
    /// A length beyond what we accept.
    FrameTooLarge {
        /// The announced length.
        got_bytes: u32,
        /// Our SETTINGS_MAX_FRAME_SIZE.
        max_bytes: u32,
    },
    /// A length that is invalid for the type.
    Length {
        /// The announced length.
        got_bytes: u32,
        /// The length that the type requires.
        expected: &'static str,
    },
    /// A frame of the connection on a stream.
    OnStream,
    /// A frame of streams on the connection.
    OnConnection,
    /// A stream that only a server could have opened.
    StreamOfServer,
    /// A stream that is not open yet.
    StreamIdle {
        /// The lowest one that could be opened.
        next: u32,
    },
    /// A stream whose request has ended.
    #[cfg(feature = "devices")]
    StreamEnded,
    /// We disabled push.
    PushDisabled,
    /// Padding longer than the frame.
    Padding {
        /// The announced padding.
        got_bytes: u32,
        /// What the frame can hold.
        max_bytes: u32,
    },
    /// Another frame inside a header block.
    BlockInterrupted {
        /// The stream whose CONTINUATION was due.
        expected_stream: u32,
    },
    /// CONTINUATION without HEADERS before it.
    BlockMissing,
    /// A header block beyond our bound.
    BlockTooLarge {
        /// Our bound.
        max_bytes: usize,
    },
    /// A header block that cannot be decompressed.
    Hpack(hpack::Error),
    /// A body before the response's headers.
    DataBeforeHeaders,
    /// A second header block that does not end the stream.
    TrailersWithoutEnd,
    /// A 1xx response that ends the stream.
    InformationalEnd,
    /// More data than our window allows.
    WindowExceeded {
        /// The frame's length.
        got_bytes: u32,
        /// The remaining window.
        window_bytes: i64,
        /// "stream" or "connection".
        window: &'static str,
    },
    /// A WINDOW_UPDATE of zero.
    WindowUpdateZero,
    /// A window beyond 2^31-1.
    WindowOverflow {
        /// What it would have become.
        got_bytes: i64,
    },
    /// A setting outside its range.
    Setting {
        /// Its name.
        name: &'static str,
        /// Its value.
        got: u32,
        /// The range.
        expected: &'static str,
    },
    /// The peer causes answers and does not read them.
    AnswersUnread {
        /// The bytes that wait to be written.
        got_bytes: usize,
        /// Our bound.
        max_bytes: usize,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NotHttp2 => {
                write!(f, "first frame is not the expected SETTINGS: does it speak HTTP/2?")
            }
            Problem::FrameTooLarge { got_bytes, max_bytes } => {
                write!(f, "length is {got_bytes}, expected at most {max_bytes}")
            }
            Problem::Length { got_bytes, expected } => {
                write!(f, "length is {got_bytes}, expected {expected}")
            }
            Problem::OnStream => write!(f, "expected on stream 0"),
            Problem::OnConnection => write!(f, "expected on a stream"),
            Problem::StreamOfServer => write!(f, "even stream, expected an odd one"),
            Problem::StreamIdle { next } => {
                write!(f, "stream not open yet, expected one below {next}")
            }
            #[cfg(feature = "devices")]
            Problem::StreamEnded => write!(f, "nothing is expected after END_STREAM"),
            Problem::PushDisabled => write!(f, "not expected: push is disabled"),
            Problem::Padding { got_bytes, max_bytes } => {
                write!(f, "padding is {got_bytes}, expected at most {max_bytes}")
            }
            Problem::BlockInterrupted { expected_stream } => {
                write!(f, "inside a header block, expected CONTINUATION on {expected_stream}")
            }
            Problem::BlockMissing => write!(f, "no header block to continue, expected HEADERS"),
            Problem::BlockTooLarge { max_bytes } => {
                write!(f, "header block is too large, expected at most {max_bytes} bytes")
            }
            Problem::Hpack(error) => error.fmt(f),
            Problem::DataBeforeHeaders => write!(f, "expected HEADERS first"),
            Problem::TrailersWithoutEnd => write!(f, "trailers without END_STREAM, expected it"),
            Problem::InformationalEnd => write!(f, "1xx with END_STREAM, expected a response"),
            Problem::WindowExceeded { got_bytes, window_bytes, window } => {
                write!(f, "length is {got_bytes}, expected at most the {window}'s {window_bytes}")
            }
            Problem::WindowUpdateZero => write!(f, "increment is 0, expected at least 1"),
            Problem::WindowOverflow { got_bytes } => {
                write!(f, "window becomes {got_bytes}, expected at most 2147483647")
            }
            Problem::Setting { name, got, expected } => {
                write!(f, "{name} is {got}, expected {expected}")
            }
            Problem::AnswersUnread { got_bytes, max_bytes } => {
                write!(f, "{got_bytes} bytes of answers unread, expected at most {max_bytes}")
            }
        }
    }
}
