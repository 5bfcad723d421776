//! The real codecs and the real `io::runtime` over pipes and local sockets that split, join, stall
//! and die; and `io::job` with real children. Time is an argument: no test sleeps, and waiting is
//! only for the end of a child. Only commands, which wait by themselves, take real time
//! ([`patience`]), and so does the whole controller (`kubelet_port`).

mod alone;
#[cfg(feature = "api")]
mod api;
#[cfg(feature = "controller")]
#[expect(dead_code, reason = "the whole tests use more of it")]
#[expect(clippy::disallowed_methods, reason = "the API server runs beside the test")]
#[path = "../support/apiserver.rs"]
mod apiserver;
mod bench;
mod binary;
mod calls;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(feature = "controller")]
mod cluster;
mod commands;
#[cfg(feature = "cloud")]
mod crashes;
mod jobs;
#[cfg(feature = "controller")]
#[expect(clippy::disallowed_methods, reason = "the controller is a process, in real time")]
mod kubelet_port;
#[cfg(feature = "devices")]
#[expect(clippy::disallowed_methods, reason = "the mapper runs beside the test")]
#[path = "../support/mapper.rs"]
mod mapper;
#[cfg(feature = "devices")]
mod mappers;
#[cfg(feature = "controller")]
#[expect(clippy::disallowed_methods, reason = "certificates are valid in real time")]
#[path = "../support/node_key.rs"]
mod node_key;
#[cfg(all(feature = "api", feature = "cloud"))]
mod patience;
#[path = "../wire/peer.rs"]
#[expect(dead_code, reason = "the wire tests use more of it")]
mod peer;
#[cfg(feature = "controller")]
mod people;
#[cfg(any(feature = "api", feature = "controller"))]
#[path = "../support/port.rs"]
mod port;
#[path = "../support/program.rs"]
mod program;
mod server;
mod socket;
#[cfg(feature = "streams")]
mod streams;
#[cfg(feature = "cloud")]
#[path = "../support/cloud/mod.rs"]
mod stub;
mod trouble;
#[cfg(feature = "runtime")]
mod ttrpc;
