//! Of the link to the cloud: what the hands take and keep of it.

/// One message between edge and cloud. An object has 1.5 MiB at most in etcd; escapes, and the
/// managedFields that the cloud leaves in, make it larger on the wire. While one is read it is
/// there twice, and that is all that a hostile cloud can make of a gateway's memory. KubeEdge has
/// no bound here, and 32 MiB elsewhere, for lists that nobody sends to a node.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Reads of the link's socket in one turn, of some 4 KiB each, empty records of TLS included.
pub const CLOUD_TURN_READS: usize = 64;
/// Bytes of the cloud's that are taken in one turn; the rest waits in the kernel, and in the cloud.
pub const CLOUD_TURN_BYTES: usize = 256 << 10;
/// Messages, pings and the like of the cloud's in one turn: as many as the mind is told at once.
pub const CLOUD_TURN_MESSAGES: usize = 32;
/// What waits to be sent. The mind holds back long before, by what has left; a node's whole status
/// with all its images has 50 KiB.
pub const CLOUD_OUTPUT_BYTES_MAX: usize = 1 << 20;
/// What an emptied buffer may keep.
pub const CLOUD_BUFFER_KEPT_BYTES: usize = 16 << 10;
/// Addresses of one name that are tried.
pub const CLOUD_ADDRESSES_MAX: usize = 16;
/// Milliseconds for one address while there is another. The first try of a lossy link takes up to
/// 3 s.
pub const CLOUD_ADDRESS_MS: u64 = 4_000;
/// Lookups that the kernel does not let go of; beyond them no name is looked up.
pub const CLOUD_LOOKUPS_MAX: usize = 4;
/// Bytes of a certificate, a key, a token or an answer with one of them; real ones have some
/// hundred.
pub const CREDENTIALS_BYTES_MAX: u64 = 64 << 10;
/// Milliseconds for one request for a certificate: two of them fit into [`super::ENROL_MS`].
pub const ENROL_REQUEST_MS: u64 = 50_000;
/// Bytes of a refusal's body that come into a message: a line.
pub const REFUSAL_BYTES_MAX: usize = 256;
/// Milliseconds that `edged check` waits for one address of the cloud's.
pub const CHECK_DIAL_MS: u64 = 5_000;
