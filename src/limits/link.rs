//! Limits of the event loop's link to the cloud.

/// One message between edge and cloud. An object has 1.5 MiB at most in etcd; escapes, and the
/// managedFields that the cloud leaves in, make it larger on the wire. While one is parsed it is in
/// memory twice, and that is the most memory that a hostile cloud can take on a gateway. KubeEdge
/// has no limit here, and 32 MiB elsewhere, for lists that are never sent to a node.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Reads of the link's socket in one turn, of some 4 KiB each, empty records of TLS included.
pub const CLOUD_TURN_READS: usize = 64;
/// Bytes from the cloud that are read in one turn; the rest waits in the kernel, and in the cloud.
pub const CLOUD_TURN_BYTES: usize = 256 << 10;
/// Messages, pings and the like from the cloud in one turn: as many as the core handles at once.
pub const CLOUD_TURN_MESSAGES: usize = 32;
/// Bytes that wait to be sent. The core stops sending long before, by what has left; a node's whole
/// status with all its images has 50 KiB.
pub const CLOUD_OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Capacity that an emptied buffer may keep.
pub const CLOUD_BUFFER_KEPT_BYTES: usize = 16 << 10;
/// Addresses of one name that are tried.
pub const CLOUD_ADDRESSES_MAX: usize = 16;
/// Milliseconds for one address while there is another. The first packets of a lossy link take up
/// to 3 s.
pub const CLOUD_ADDRESS_MS: u64 = 4_000;
/// Lookups that hang in the resolver; beyond them no name is looked up.
pub const CLOUD_LOOKUPS_MAX: usize = 4;
/// Bytes of a certificate, a key, a token or an answer with one of them; real ones have some
/// hundred.
pub const CREDENTIALS_BYTES_MAX: u64 = 64 << 10;
/// Milliseconds for one request for a certificate: two of them fit into [`super::ENROL_MS`].
pub const ENROL_REQUEST_MS: u64 = 50_000;
/// Bytes of a refusal's body that are quoted in a message: a line.
pub const REFUSAL_BYTES_MAX: usize = 256;
/// Milliseconds that `edged check` waits for one address of the cloud.
pub const CHECK_DIAL_MS: u64 = 5_000;
