//! Limits of the stream tunnel between a node and its cloud.

/// Bytes of one message's data: as much as KubeEdge reads of one; it drops the rest in silence.
pub const TUNNEL_DATA_BYTES_MAX: usize = 1 << 20;
/// Bytes of the JSON that opens a request. An argument of a command has at most 128 KiB on Linux,
/// and its bytes take three each in a query; the rest of the JSON has less than one KiB.
pub const TUNNEL_CONNECT_BYTES_MAX: usize = 512 << 10;
/// Values in that JSON, which each cost some 100 bytes of memory: kubectl's own headers make some
/// 50.
pub const TUNNEL_CONNECT_VALUES_MAX: usize = 512;
/// Milliseconds before the second dial, and the longest wait between two: KubeEdge's edge dials
/// every 2 s for ever, which a fleet behind a broken cloud should not.
pub const TUNNEL_BACKOFF_MIN_MS: u64 = 2_000;
/// See [`TUNNEL_BACKOFF_MIN_MS`].
pub const TUNNEL_BACKOFF_MAX_MS: u64 = 60_000;
/// Milliseconds after which a tunnel has held, and the next wait is the shortest again.
pub const TUNNEL_CALM_MS: u64 = 60_000;
/// Milliseconds of silence until a ping is sent: three times as long as KubeEdge's edge waits, for
/// metered links.
pub const TUNNEL_PING_MS: u64 = 15_000;
/// Milliseconds for its answer.
pub const TUNNEL_PONG_MS: u64 = 15_000;
/// Milliseconds from a tunnel's begin in which no answer is expected: CloudCore tries for two
/// minutes to note the tunnel in the node's object before it reads.
pub const TUNNEL_FIRST_PONG_MS: u64 = 150_000;
/// Bytes that wait to be sent to the cloud, of all requests together. Nothing more is read from
/// logs and the runtime meanwhile.
pub const TUNNEL_UNSENT_BYTES_MAX: usize = 64 << 10;
/// Bytes of one message to the cloud. KubeEdge's edge sends 256; larger ones cost less, and small
/// enough ones let requests take turns.
pub const TUNNEL_PIECE_BYTES: usize = 16 << 10;
/// Bytes from the cloud that wait for one request's runtime. When there are so many, the tunnel is
/// not read.
pub const TUNNEL_INPUT_BYTES_MAX: usize = 256 << 10;
/// Milliseconds in which the runtime of a request that keeps the tunnel from being read must take
/// [`TUNNEL_BLOCKED_BYTES`]; else the request ends, because the others wait. So slow is no flash.
pub const TUNNEL_BLOCKED_MS: u64 = 10_000;
/// See [`TUNNEL_BLOCKED_MS`].
pub const TUNNEL_BLOCKED_BYTES: usize = 64 << 10;
/// Requests through the tunnel at once, of [`STREAMS_MAX`](super::STREAMS_MAX): the others are for
/// people at the gateway.
pub const TUNNEL_STREAMS_MAX: usize = super::STREAMS_MAX - 8;
/// Milliseconds after which a request for which the cloud has sent nothing may be ended for a new
/// one, if there is no place: CloudCore does not say when its client's connection was reset.
pub const TUNNEL_SILENT_MS: u64 = 600_000;
/// Bytes of the API's answers that wait for room in the tunnel. One answer may be larger; while so
/// much waits, the next answer is not made.
pub const TUNNEL_ANSWERS_BYTES_MAX: usize = 1 << 20;
