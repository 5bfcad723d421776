//! HTTP/2 for gRPC on a local socket (RFC 9113): one connection, sans-IO, either end of it.
//!
//! ```text
//!  socket ──bytes──▶ Connection::receive ──▶ Event: Headers · Data · Trailers · Reset · Refused
//!  socket ◀─output── Connection::output  ◀── open │ respond · reset, and what the protocol demands
//! ```
//!
//! **Intended behaviour.** `receive` takes bytes split anywhere and returns one event at a time;
//! DATA is borrowed from the caller's bytes as it comes, never copied or stored here, and counts as
//! consumed at once, so windows are replenished and a long reply never stalls. Requests are sent as
//! far as both windows, the peer's frame size and the output's bound allow; the rest follows after
//! `sent` and WINDOW_UPDATEs. PING and SETTINGS are answered; we never send a PING, because grpc-go
//! answers the fourth in a row with GOAWAY "too_many_pings".
//!
//! **The two ends** have frames, windows, header blocks and errors in common. A client opens
//! streams, and a stream is closed once its response has ended. A server (feature `devices`)
//! reports a stream that the client opens as `Headers`; it is closed once `respond`'s answer is
//! written. More streams than announced are refused one by one. How often a client may open and
//! reset streams, or send frames that are only answered, is for the socket's owner to limit, by the
//! bytes that it reads in a second: nothing here has a clock.
//!
//! **What is not here.** Server push (disabled; PUSH_PROMISE is an error), 1xx responses,
//! priorities (ignored, as RFC 9113 section 5.3 requires), upgrade from HTTP/1.1, TLS, request
//! trailers, header blocks of ours that need CONTINUATION, time. Names and values of headers are
//! not checked.
//!
//! **Errors.** A violation by the peer ends the connection, also where RFC 9113 requires only the
//! stream's end (section 5.4.1 leaves that choice): it queues a GOAWAY with the reason for the peer
//! and returns an [`Error`] for us. Nothing on a closed stream is a violation: frames that
//! crossed our RST_STREAM or follow an early end are counted against the windows and dropped.
//!
//! **If we crash here** the socket closes and the peer cancels every stream; no state is stored.

mod connection;
mod error;
mod frame;
mod stream;

pub use connection::{Config, Connection, Refused};
pub use error::{Error, ErrorCode, Problem};
pub use frame::Kind;

use std::fmt;

use super::hpack::FieldList;

/// A stream of the client's: odd, rising with each request (RFC 9113 section 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub(super) u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An event of a connection. After an event with `end`, after `Trailers`, `Reset` and `Refused` the
/// stream is closed and never named again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The header block of a request, or of a response (1xx ones are skipped).
    Headers {
        stream: StreamId,
        /// Its fields, with `:path` or `:status`.
        fields: FieldList,
        /// The stream ends here.
        end: bool,
    },
    /// A part of the body, split where frames or reads were.
    Data {
        stream: StreamId,
        /// The bytes, padding removed; empty only with `end`.
        bytes: &'a [u8],
        /// The stream ends here.
        end: bool,
    },
    /// The header block that ends a request or response.
    Trailers { stream: StreamId, fields: FieldList },
    /// RST_STREAM from the peer.
    Reset { stream: StreamId, code: ErrorCode },
    /// Certainly not processed: the stream is above the last one of a GOAWAY.
    Refused { stream: StreamId },
    /// GOAWAY: no new streams on this connection; those not refused go on.
    GoAway {
        code: ErrorCode,
        /// The peer's debug data, lossily as text.
        debug: String,
    },
}
