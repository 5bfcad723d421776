//! Bounds of the controller's hands: the ports that nodes dial, and what is kept of each.

/// Connections of both ports at once, those that still shake hands included. Each is a descriptor
/// and some 10 KiB of TLS.
pub const EDGE_CONNECTIONS_MAX: usize = 16_384;
/// Connections taken from each port in one turn; the rest waits in the kernel.
pub const EDGE_ACCEPTS_PER_TURN: usize = 64;
/// Connections that a turn works at: a handshake takes some 0.3 ms, and a turn is to stay short.
pub const EDGE_CONNECTIONS_PER_TURN: usize = 128;
/// Milliseconds from a port that could not be had, or no descriptors, to the next try.
pub const EDGE_LISTEN_RETRY_MS: u64 = 1_000;
/// Milliseconds from a connection to its whole request: TLS over a slow link takes several seconds,
/// and when all nodes come back at once each waits for those before it.
pub const EDGE_HELLO_MS: u64 = 30_000;
/// Milliseconds for the mind to decide, and for an answer to be taken.
pub const EDGE_ANSWER_MS: u64 = 30_000;
/// Milliseconds that a client may take to hang up after its answer.
pub const EDGE_LEAVE_MS: u64 = 1_000;
/// Milliseconds that a node may take nothing of what it is sent.
pub const EDGE_STALL_MS: u64 = 30_000;
/// Bytes of a request's body: an application has some hundred; KubeEdge takes 1 MiB.
pub const EDGE_REQUEST_BYTES_MAX: usize = 64 << 10;
/// Bytes that wait for one node: the largest message twice. The mind holds back long before.
pub const EDGE_OUTPUT_BYTES_MAX: usize = 8 << 20;

// Objects without a cluster.

/// Objects of all kinds: 5,000 nodes with ten pods each, and what these use.
pub const LOCAL_OBJECTS_MAX: usize = 200_000;
/// Changes that a watch may begin behind; one that is further behind lists anew.
pub const LOCAL_HISTORY_MAX: usize = 4_096;
/// Objects of a list in one turn.
pub const LOCAL_LIST_PER_TURN: usize = 500;
/// Milliseconds before what could not be kept is tried again.
pub const LOCAL_SAVE_RETRY_MS: u64 = 1_000;
/// Bytes of one request to the controller's own API: the largest object, and its manifest's words.
pub const FRONT_BODY_BYTES_MAX: usize = 4 << 20;
/// Connections of the controller's own API at once.
pub const FRONT_CONNECTIONS_MAX: usize = 16;
/// Objects in all manifests of the controller's folder.
pub const MANIFEST_ALL_OBJECTS_MAX: usize = 100_000;
/// Bytes of all these manifests as JSON.
pub const MANIFEST_ALL_BYTES_MAX: usize = 512 << 20;
/// Seconds for which a token lets nodes join (KubeEdge's).
pub const TOKEN_LIFE_S: i64 = 86_400;
