//! Limits of the stream tunnel between a node and its cloud.

/// Bytes of one message's data: as much as KubeEdge reads of one; it drops the rest in silence.
pub const TUNNEL_DATA_BYTES_MAX: usize = 1 << 20;
/// Bytes of the JSON that opens a request. An argument of a command has at most 128 KiB on Linux,
/// and its bytes take three each in a query; the rest of the JSON has less than one KiB.
pub const TUNNEL_CONNECT_BYTES_MAX: usize = 512 << 10;
/// Values in that JSON, which each cost some 100 bytes of memory: kubectl's own headers make some
/// 50.
pub const TUNNEL_CONNECT_VALUES_MAX: usize = 512;
