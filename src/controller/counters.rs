//! What `/metrics` shows of the controller.

use crate::model::metrics::Histogram;

/// Counts since the start, and gauges as of the last step.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Sessions that are on.
    pub nodes_connected: usize,
    /// Messages to nodes.
    pub messages_down: u64,
    /// Bytes of their contents.
    pub bytes_down: u64,
    /// Messages from nodes.
    pub messages_up: u64,
    /// Bytes of their contents.
    pub bytes_up: u64,
    /// From the first time that something was sent until its acknowledgement.
    pub ack_latency: Histogram,
    /// Sent again because no acknowledgement came.
    pub resends: u64,
    /// Objects that wait for their node: not sent, or not acknowledged.
    pub queued: usize,
    /// Questions of nodes that wait for the API server.
    pub calls: usize,
    /// Sessions that were refused.
    pub sessions_refused: u64,
    /// Messages that were refused: malformed, too large, or about what is not the node's.
    pub messages_refused: u64,
    /// Messages to modules that are not here: MetaServer's cloud side, routers, devices, tasks.
    pub messages_unserved: u64,
    /// Certificates signed.
    pub certificates: u64,
    /// Lists that were begun.
    pub lists: u64,
    /// What only one replica is to do is ours.
    pub leads: bool,
    /// Records of nodes that are no more.
    pub records_removed: u64,
}
