//! Limits of SPDY connections to a runtime's streaming server, and of what commands keep of them.

/// Bytes of one frame: thirty times what containerd and CRI-O send.
pub const SPDY_FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes of a data frame that is sent; kubectl sends as many.
pub const SPDY_DATA_BYTES: usize = 32 << 10;
/// Bytes of the status with which a command ends. It repeats the command, which may be as long as
/// Linux allows one argument to be.
pub const SPDY_STATUS_BYTES_MAX: usize = 256 << 10;
/// Bytes kept of the reason for which a connection to a pod's port failed; real ones have some 300.
pub const SPDY_REASON_BYTES_MAX: usize = 4 << 10;
/// Bytes of the headers of one stream that a client opens, packed and unpacked: kubectl's have 100.
#[cfg(feature = "runtime")]
pub const SPDY_HEADERS_BYTES_MAX: usize = 4 << 10;
