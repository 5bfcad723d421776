//! Limits of the node's reports to the cloud.

/// Milliseconds before the registration is retried; doubles with each.
pub const REGISTER_RETRY_MIN_MS: u64 = 1_000;
/// Milliseconds between registrations at the most: each sends a full status.
pub const REGISTER_RETRY_MAX_MS: u64 = 60_000;
/// Milliseconds before a refused lease is retried (the kubelet's); doubles with each, up to the
/// renewal interval.
pub const LEASE_RETRY_MIN_MS: u64 = 200;
/// Milliseconds after which an old cloud is asked again whether it knows leases.
pub const LEGACY_PROBE_MS: u64 = 300_000;
/// Milliseconds that a runtime may be down before its node is reported as not ready (the
/// kubelet's).
pub const RUNTIME_DOWN_MS: u64 = 30_000;
/// Bytes of a node's status from the cloud that are parsed: the parts that are ours have some 3
/// KiB. A larger one counts as unknown, and ours is reported as a whole.
pub const NODE_STATUS_BYTES_MAX: usize = 64 << 10;
/// Images in a node's status, whatever is configured: twice the kubelet's own default. Each takes
/// some 250 bytes, which the API server stores and sends to everybody who watches nodes.
pub const NODE_IMAGES_MAX: usize = 100;
/// Names of one of them (the kubelet's).
pub const NODE_IMAGE_NAMES_MAX: usize = 5;
