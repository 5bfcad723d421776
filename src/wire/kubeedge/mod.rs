//! The messages between a node and its cloud, typed, in the format of KubeEdge (wire spec sections
//! 2 to 6): the content of the envelopes that [`super::edge`] reads and writes.
//!
//! Not here: when something is sent, and what is done with what comes. That is `agent/cloud`.

mod downstream;
mod upstream;

pub use downstream::decode;
pub use upstream::encode;
