//! ttrpc over one local socket: unary calls and server streams, sans-IO, for both ends.
//!
//! ```text
//!  offset 0  length of the data, 4 bytes, big-endian: at most 4 MiB, so the first byte is 0
//!         4  stream, 4 bytes, big-endian: odd, ascending, never used again on a connection
//!         8  type: 1 request, 2 response, 3 data
//!         9  flags: 1 remote closed, 2 remote open, 4 no data
//!        10  data: of types 1 and 2 the messages Request and Response, of 3 the bare message
//! ```
//!
//! **Intended behaviour.** [`Client`] is to its caller what [`crate::wire::grpc::Client`] is: each
//! call ends with exactly one event, or none once it is cancelled. There is no queue, because the
//! protocol has no limit of streams: beyond [`crate::limits::CRI_STREAMS_MAX`] a call is refused.
//! [`Server`] reports each call once, and takes one answer to it; an answer to a call that was
//! cancelled is dropped. A frame that is longer than the protocol allows costs only its own call.
//!
//! **Cancellation** is not in the protocol: a client can only forget a call. Between our two ends
//! it is a unary call of a service of our own, `edged.runtime.v1.Calls/Cancel { stream = 1 uint32
//! }`. It is answered at once, and the cancelled call with CANCELLED, which the client, having
//! forgotten it, drops.
//!
//! **Deadlines**: `timeout_nano` is sent, so that the server can end the work soon after its caller
//! has given up; the caller's own clock decides.
//!
//! **What is not here.** Client streams, metadata, version or keep-alive: the protocol has neither
//! greeting nor ping. Nor a GOAWAY: a server that is replaced answers what it can and closes.
//!
//! **If we crash here** the socket closes, which cancels all open calls at both ends.
//!
//! Source: PROTOCOL.md and `request.proto` of containerd's project ttrpc, version 1.2.

mod client;
mod envelope;
mod frame;
mod server;

use std::fmt;

pub use client::Client;
pub use frame::{Assembler, DATA, Frame, HEAD_BYTES, Item, NO_DATA, REMOTE_CLOSED, REMOTE_OPEN};
pub use frame::{REQUEST, RESPONSE, put};
pub use server::{Call, Event, Server, StreamId};

/// The service of our own that cancels a call.
const CANCEL: (&str, &str) = ("edged.runtime.v1.Calls", "Cancel");

/// Why a connection cannot go on: the other end broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A frame of another type.
    Kind { got: u8, expected: &'static str },
    /// A frame of a stream that its sender may not use.
    Stream { got: u32, expected: &'static str },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Kind { got, expected } => {
                write!(f, "got a ttrpc frame of type {got}, expected {expected}")
            }
            Error::Stream { got, expected } => {
                write!(f, "got a ttrpc frame of stream {got}, expected {expected}")
            }
        }
    }
}

impl std::error::Error for Error {}
