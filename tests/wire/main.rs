//! The codecs, each with the bytes of real peers and with hostile ones: golden bytes, truncation,
//! mutation.

#[cfg(all(feature = "controller", feature = "metaserver"))]
mod applications;
#[cfg(feature = "controller")]
mod controller_messages;
mod cri;
#[cfg(feature = "devices")]
mod dmi;
mod edge;
mod golden;
mod grpc;
#[cfg(feature = "devices")]
mod grpc_server;
mod h2_errors;
mod h2_flow;
mod h2_streams;
mod hpack;
#[cfg(feature = "api")]
mod http1;
#[cfg(feature = "controller")]
mod issue;
mod manifest;
#[cfg(feature = "api")]
mod metrics;
#[cfg(feature = "devices")]
mod mqtt;
mod mutation;
mod object;
mod peer;
#[cfg(feature = "probes")]
mod probe;
mod replay;
#[cfg(feature = "streams")]
mod spdy;
#[cfg(feature = "runtime")]
mod streaming;
#[cfg(feature = "runtime")]
mod ttrpc;
#[cfg(feature = "streams")]
mod tunnel;
#[cfg(feature = "cloud")]
mod ws;
#[cfg(feature = "cloud")]
mod x509;
