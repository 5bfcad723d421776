//! Remote calls as their caller sees them, whatever carries them: keys, results, the codes of gRPC.

use std::fmt;

use crate::limits::CRI_STATUS_TEXT_BYTES_MAX;

/// The caller's identifier of a call; must not be used by two calls at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallKey(pub u64);

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A unary call succeeded; this is its message.
    Reply(CallKey, Vec<u8>),
    /// A message of a server stream. More may follow.
    Message(CallKey, Vec<u8>),
    /// A server stream ended well.
    Done(CallKey),
    /// The server returned an error, or an invalid response.
    Failed(CallKey, Status),
    /// There will be no answer, for a reason outside of the call.
    Lost(CallKey, Lost),
}

impl Event {
    /// The call's key.
    pub fn key(&self) -> CallKey {
        match self {
            Event::Reply(key, _)
            | Event::Message(key, _)
            | Event::Done(key)
            | Event::Failed(key, _)
            | Event::Lost(key, _) => *key,
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Whether the server may have acted on it.
    pub begun: Begun,
    /// The reason, for the log.
    pub why: String,
}

/// Whether a lost call may have had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Certainly not: it was never sent, or the server reports that it did not process it.
    Never,
    /// It may have: check before acting.
    Perhaps,
}

/// Why a call was not accepted; nothing of it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many calls wait as may.
    Full { max: usize },
    /// The connection is ending: dial again.
    Closing,
    /// The request is larger than servers accept.
    TooLarge {
        /// Its size.
        got_bytes: usize,
        /// The bound.
        max_bytes: usize,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Full { max } => {
                write!(f, "{max} calls wait for the runtime, expected fewer")
            }
            Refused::Closing => write!(f, "the connection to the runtime is ending"),
            Refused::TooLarge { got_bytes, max_bytes } => {
                write!(f, "request has {got_bytes} bytes, expected at most {max_bytes}")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// The codes of gRPC, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// All codes, each at its number.
    pub const ALL: [Code; 17] = [
        Code::Ok,
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// The code of that number; `None` for numbers that gRPC has not assigned.
    pub fn from_u32(number: u32) -> Option<Code> {
        Code::ALL.get(number as usize).copied()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Code::Ok => "OK",
            Code::Cancelled => "CANCELLED",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
            Code::Unauthenticated => "UNAUTHENTICATED",
        })
    }
}

/// A code and the server's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: Code,
    /// `grpc-message`, percent-decoded, cut at its bound; or our own message about a response that
    /// is not gRPC.
    pub message: String,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl Status {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }
}

/// Cuts a text at its bound, with a mark.
pub(super) fn cut(mut text: String) -> String {
    let bytes = text.len();
    if bytes <= CRI_STATUS_TEXT_BYTES_MAX {
        return text;
    }
    let fits = |kept: &usize| text.is_char_boundary(*kept);
    let kept = (0..=CRI_STATUS_TEXT_BYTES_MAX).rev().find(fits).unwrap_or(0);
    text.truncate(kept);
    format!("{text}… ({} bytes cut)", bytes - kept)
}
