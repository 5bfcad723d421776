//! gRPC over one HTTP/2 connection, sans-IO: unary calls and server streams of a client, and unary
//! calls of a server.
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
//! **The server's end** (`Server`, feature `devices`) reports each call once its request is
//! complete, and takes one answer to it. What is no call of gRPC is answered with an HTTP status,
//! what cannot be read with a status of gRPC; neither costs the connection. A call whose client has
//! given up is `Cancelled`. `grpc-timeout` is passed on with the call; time is its caller's.
//!
//! **What is not here.** Compression, request metadata, client streams, authentication, retries; of
//! the server, streams.
//!
//! **If we crash here** the socket closes, and the other end cancels what is not finished.
//!
//! Sources: «gRPC over HTTP2» (PROTOCOL-HTTP2) and «HTTP to gRPC Status Code Mapping» of the gRPC
//! project.

mod client;
mod message;
#[cfg(feature = "devices")]
mod server;
mod status;

pub use super::rpc::{Begun, CallKey, Code, Event, Lost, Refused, Status};
pub use client::{Client, Names};
pub use message::{Assembler, PREFIX_BYTES, Unreadable, frame};
#[cfg(feature = "devices")]
pub use server::{Call, Incoming, Server};
