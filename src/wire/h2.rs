//! HTTP/2 as a gRPC client on a local socket needs it (RFC 9113): one connection, sans-IO.
//!
//! ```text
//!  socket ──bytes──▶ Connection::receive ──▶ Event: Headers · Data · Trailers · Reset · Refused
//!  socket ◀─output── Connection::output  ◀── open · reset, and the answers the protocol demands
//! ```
//!
//! **Intended behaviour.** `receive` takes bytes split anywhere and hands out one event at a time;
//! DATA is lent from the caller's own bytes as it comes, never copied or held here, and counts as
//! consumed at once, so windows are replenished and a long reply never stalls. Requests leave as
//! far as both windows, the peer's frame size and the output's bound allow; `sent` and
//! WINDOW_UPDATEs let the rest follow. PING and SETTINGS are answered; a PING of our own is never
//! sent, since grpc-go answers the fourth in a row with GOAWAY "too_many_pings".
//!
//! **What is not here.** Server push (disabled; PUSH_PROMISE is an error), priorities (ignored, as
//! RFC 9113 section 5.3 has it), upgrade from HTTP/1.1, TLS, request trailers, header blocks of
//! ours that need CONTINUATION, time. Names and values of headers are not judged.
//!
//! **Errors.** A violation by the peer ends the connection, also where RFC 9113 asks only for the
//! stream's end (section 5.4.1 leaves that choice): it queues a GOAWAY that tells the peer why and
//! returns an [`Error`] that tells us. Nothing on a closed stream is a violation: frames that
//! crossed our RST_STREAM or follow an early end are counted against the windows and dropped.
//!
//! **If we crash here** the socket closes and the server cancels every stream; nothing is kept.

mod connection;
mod control;
mod error;
mod frame;
mod output;
mod receive;
mod stream;

pub use connection::{Config, Connection, Refused};
pub use error::{Error, ErrorCode, Problem};
pub use frame::Kind;

use std::fmt;

use super::hpack::FieldList;

/// A stream of ours: odd, rising by two with each request (RFC 9113 section 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub(super) u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a connection has to tell. After an event with `end`, after `Trailers`, `Reset` and
/// `Refused` the stream is closed and never named again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The response's header block (1xx ones are skipped).
    Headers {
        /// Whose.
        stream: StreamId,
        /// Its fields, `:status` among them.
        fields: FieldList,
        /// Nothing follows.
        end: bool,
    },
    /// A piece of the body, split where frames or reads were.
    Data {
        /// Whose.
        stream: StreamId,
        /// The bytes, padding removed; empty only with `end`.
        bytes: &'a [u8],
        /// Nothing follows.
        end: bool,
    },
    /// The header block that ends a response.
    Trailers {
        /// Whose.
        stream: StreamId,
        /// Its fields.
        fields: FieldList,
    },
    /// RST_STREAM from the peer.
    Reset {
        /// Whose.
        stream: StreamId,
        /// Why.
        code: ErrorCode,
    },
    /// Certainly not processed: the stream is above the last one of a GOAWAY.
    Refused {
        /// Whose.
        stream: StreamId,
    },
    /// GOAWAY: no new streams on this connection; those not refused go on.
    GoAway {
        /// Why.
        code: ErrorCode,
        /// The peer's debug data, lossily as text.
        debug: String,
    },
}
