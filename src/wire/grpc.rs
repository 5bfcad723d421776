//! gRPC over one HTTP/2 connection: unary calls and server streams, sans-IO.
//!
//! ```text
//!  unary · stream ─▶ waiting (bounded) ─▶ open ─▶ Reply │ Done │ Failed │ Lost      (exactly one)
//!                                          └─────▶ Message*            (before, of streams only)
//! ```
//!
//! **Intended behaviour.** The caller identifies each call by a [`CallKey`] and gets exactly one
//! last event for it, or none once it has called [`Client::cancel`]. A unary call ends with `Reply`
//! only if one message and the status OK came. An error of the runtime is `Failed`; an error of the
//! connection is `Lost`, with whether the call may have begun. Calls beyond the server's limit of
//! streams wait in order, in a bounded queue; when it is full the call is refused.
//!
//! **Deadlines** belong to the caller, which cancels. `grpc-timeout` is not sent: the server would
//! then end a call by its own clock, shortly before or after the caller gives up, and the same
//! event would have two forms (DEADLINE_EXCEEDED, or nothing). RST_STREAM has the same effect.
//!
//! **What is not here.** Compression, request metadata, client streams, authentication, retries.
//!
//! **If we crash here** the socket closes and the server cancels what it has not finished.
//!
//! Sources: «gRPC over HTTP2» (PROTOCOL-HTTP2) and «HTTP to gRPC Status Code Mapping» of the gRPC
//! project.

mod client;
mod message;
mod status;

pub use client::{Client, Names, Refused};
pub use message::{Assembler, PREFIX_BYTES, Unreadable, frame};
pub use status::{Code, Status};

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
