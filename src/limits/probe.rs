//! Limits of probes and hooks over the network.

/// Connections of probes and hooks at once; further ones wait for one to end. Each is a descriptor,
/// and ends within its timeout: twice the pods of a node.
pub const PROBE_CONNECTIONS_MAX: usize = 256;
/// Redirects of one GET that are followed, all to the same host (Go's).
pub const PROBE_REDIRECTS_MAX: usize = 10;
/// Bytes of an answer's body that are read (the kubelet's).
pub const PROBE_BODY_BYTES_MAX: usize = 10 << 10;
/// The flow-control window of a gRPC health check: the least that HTTP/2 allows, the answer has two
/// bytes.
pub const PROBE_GRPC_WINDOW_BYTES: u32 = 65_535;
/// Bytes of a probe's output in its event. The kubelet shows ten times as much; but events are kept
/// in memory and written to flash, and the first lines are enough.
pub const PROBE_SHOWN_BYTES_MAX: usize = 1 << 10;
/// Tries of a probe that meets an error, one after another (the kubelet's).
pub const PROBE_TRIES_MAX: u32 = 3;
/// Bytes of the file with the results of probes across a restart of the agent: some 900 containers.
#[cfg(feature = "probes")]
pub const PROBE_RESULTS_BYTES_MAX: usize = 64 << 10;
/// Bytes read of one probe's connection in one turn.
pub const PROBE_TURN_BYTES: usize = 64 << 10;
