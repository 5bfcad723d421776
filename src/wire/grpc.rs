//! gRPC over one HTTP/2 connection: unary calls and server streams, sans-IO.
//!
//! ```text
//!  unary · stream ─▶ waiting (bounded) ─▶ open ─▶ Reply │ Done │ Failed │ Lost      (exactly one)
//!                                          └─────▶ Message*            (before, of streams only)
//! ```
//!
//! **Intended behaviour.** The caller names each call with a [`CallKey`] of its own and gets, under
//! that name, exactly one last event, or none once it has called [`Client::cancel`]. A unary call
//! is a `Reply` only if one message and the status OK came. What the runtime said is `Failed`;
//! what happened to the connection is `Lost`, with whether the call may have begun. Calls beyond
//! what the server takes wait in order, in a queue with a bound; when it is full the call is
//! refused.
//!
//! **Deadlines** belong to the caller, who cancels. `grpc-timeout` is not sent: the server would
//! then end a call on its own clock, shortly before or after the caller gives up, and the same
//! fact would have two spellings (DEADLINE_EXCEEDED, or nothing). RST_STREAM says it as well.
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

/// The caller's name for a call; must not be used by two calls at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallKey(pub u64);

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A unary call succeeded; this is its message.
    Reply(CallKey, Vec<u8>),
    /// A message of a server stream. More may follow.
    Message(CallKey, Vec<u8>),
    /// A server stream ended well.
    Done(CallKey),
    /// The server said no, or something that is not an answer.
    Failed(CallKey, Status),
    /// There will be no answer, for a reason that is not the call's.
    Lost(CallKey, Lost),
}

impl Event {
    /// Whose it is.
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
    /// For people.
    pub why: String,
}

/// Whether a lost call may have had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Certainly not: it was never sent, or the server says it did not look at it.
    Never,
    /// It may have: look before acting.
    Perhaps,
}
