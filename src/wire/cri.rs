//! CRI v1, the messages between a node agent and its container runtime: protobuf package
//! `runtime.v1`, as far as this agent uses it.
//!
//! Written by hand from the field numbers, which are the contract, and not generated: the windows
//! half, the deprecated fields and unused RPCs are left out. Unknown fields are skipped by
//! decoding, so newer runtimes are understood; enums are open (`i32` with an accessor that maps an
//! unknown number to zero).
//!
//! Messages are grouped by topic: [`runtime`], [`sandbox`], [`container`], [`security`], [`image`],
//! [`stats`], [`events`]. [`Rpc`] lists the methods, and [`Request`] connects each
//! request with its method and reply.
//!
//! **Bounds.** [`decode`] checks before it decodes: the size, and the count of fields, because an
//! empty field of two bytes becomes a struct of hundreds.
//!
//! **Secrets.** Credentials and the values of environment variables are not in any `Debug`.

mod bounds;
pub mod container;
pub mod convert;
#[cfg(feature = "runtime")]
pub mod edged;
pub mod events;
pub mod image;
mod lists;
#[cfg(feature = "runtime")]
pub mod record;
mod resources;
mod rpc;
pub mod runtime;
pub mod sandbox;
mod sandbox_config;
pub mod security;
#[cfg(feature = "runtime")]
pub mod serve;
pub mod stats;
#[cfg(feature = "streams")]
pub mod streaming;
pub mod task;

pub use bounds::{DecodeError, decode};
pub use rpc::{Request, Rpc};

/// `Int64Value`: a number that can be absent.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Int64Value {
    /// The number.
    #[prost(int64, tag = "1")]
    pub value: i64,
}

/// `UInt64Value`: a count that can be absent.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct UInt64Value {
    /// The count.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}
