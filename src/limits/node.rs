//! Bounds of what the node says of itself to the cloud.

/// Milliseconds before the node is registered again; doubles with each.
pub const REGISTER_RETRY_MIN_MS: u64 = 1_000;
/// Milliseconds between tries to register at the most: each is a status as a whole.
pub const REGISTER_RETRY_MAX_MS: u64 = 60_000;
/// Milliseconds before a lease that was refused is tried again (the kubelet's); doubles with each,
/// up to the time between renewals.
pub const LEASE_RETRY_MIN_MS: u64 = 200;
/// Milliseconds after which an old cloud is asked again whether it knows leases by now.
pub const LEGACY_PROBE_MS: u64 = 300_000;
/// Milliseconds that a runtime may be gone before its node is called not ready (the kubelet's).
pub const RUNTIME_DOWN_MS: u64 = 30_000;
/// Bytes of a node's status, as the cloud tells it, that are taken: those parts that are ours have
/// some 3 KiB. Of a larger one nothing is known, and ours is told as a whole.
pub const NODE_STATUS_BYTES_MAX: usize = 64 << 10;
/// Images that a node's status names, whatever is asked for: twice the kubelet's own choice. Each
/// takes some 250 bytes, which the API server keeps and sends to all who watch nodes.
pub const NODE_IMAGES_MAX: usize = 100;
/// Names of one of them (the kubelet's).
pub const NODE_IMAGE_NAMES_MAX: usize = 5;
