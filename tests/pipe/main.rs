//! The real codecs and the real `io::runtime` over pipes and local sockets that split, join, stall
//! and die; and `io::job` with real children. Time is an argument: no test sleeps, and waiting is
//! only for the end of a child. Only commands, which wait by themselves, take real time
//! ([`patience`]).

mod alone;
#[cfg(feature = "api")]
mod api;
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
mod server;
mod socket;
#[cfg(feature = "streams")]
mod streams;
#[cfg(feature = "cloud")]
#[path = "../support/cloud/mod.rs"]
mod stub;
mod trouble;
