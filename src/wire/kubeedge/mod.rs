//! The messages between a node and its cloud, typed, in the format of KubeEdge (wire spec sections
//! 2 to 6): the content of the envelopes that [`super::edge`] reads and writes.
//!
//! Not here: when something is sent, and what is done with what comes. That is `agent/cloud` and
//! `controller`.

mod application;
#[cfg(feature = "controller")]
mod cloud;
mod downstream;
#[cfg(feature = "controller")]
mod edge;
mod node_jobs;
#[cfg(feature = "controller")]
mod router;
mod upstream;

#[cfg(feature = "controller")]
pub use cloud::encode_cloud;
pub use downstream::decode;
#[cfg(feature = "controller")]
pub use edge::decode_edge;
#[cfg(feature = "controller")]
pub use node_jobs::{decode_report, encode_request};
pub use upstream::encode;
