//! Limits of the local HTTP API, of the commands that use it, and of every answer over HTTP.

/// Bytes of a request's head: ten times what curl or Prometheus send, and a command of some length
/// in its target.
pub const HTTP_HEAD_BYTES_MAX: usize = 24 << 10;
/// Header fields of a request; browsers send some twenty.
pub const HTTP_HEADERS_MAX: usize = 64;
/// Bytes of a request's target: a command for `exec`, percent-encoded.
pub const HTTP_TARGET_BYTES_MAX: usize = 16 << 10;
/// Connections at once: a scraper, a few users, and room. Each costs a descriptor.
pub const HTTP_CONNECTIONS_MAX: usize = 16;
/// Of these, how many are reserved for root's unix socket: whatever other users do to the port,
/// root is answered.
pub const HTTP_PROTECTED_MIN: usize = 4;
/// Connections accepted in one turn; the rest waits in the kernel.
pub const HTTP_ACCEPTS_PER_TURN: usize = 16;
/// Bytes of answers that wait to be read. One answer may be larger (all pods of a full folder);
/// while so much waits, other requests are refused with «try again».
pub const HTTP_UNSENT_BYTES_MAX: usize = 4 << 20;
/// Bytes written to one connection in one turn: more than a unix socket's buffer takes at once, and
/// a tenth of what one of TCP on loopback does.
pub const HTTP_TURN_BYTES: usize = 256 << 10;
/// Milliseconds from a connection to its whole request.
pub const HTTP_REQUEST_MS: u64 = 5_000;
/// Milliseconds that a client may leave its answer unread.
pub const HTTP_STALL_MS: u64 = 10_000;
/// Milliseconds for a whole answer, however steadily it is read.
pub const HTTP_ANSWER_MS: u64 = 60_000;
/// Milliseconds that a client may take to hang up after its answer.
pub const HTTP_CLOSE_MS: u64 = 1_000;
/// Bytes that a client may send after its request until it is cut.
pub const HTTP_CLOSE_BYTES_MAX: usize = 64 << 10;
/// Milliseconds from a port that could not be opened to the next try.
pub const HTTP_LISTEN_RETRY_MS: u64 = 20_000;

/// Bytes of the page's files, as they are in the program: what one look at it costs over a thin
/// link, and a hundredth of the flash that the program takes.
#[cfg(feature = "page")]
pub const PAGE_BYTES_MAX: usize = 21_000;
/// Nodes in one answer for the controller's page: as many as a person reads. Each is parsed anew.
#[cfg(feature = "controller")]
pub const PAGE_NODES_MAX: usize = 200;

// The commands.

/// Milliseconds for a connection to the agent on this machine.
pub const CLIENT_CONNECT_MS: u64 = 2_000;
/// Milliseconds in which an answer must make progress.
pub const CLIENT_WAIT_MS: u64 = 10_000;
/// Bytes of an answer: all pods of a full folder, or of a controller's.
pub const CLIENT_BYTES_MAX: u64 = 64 << 20;
/// Milliseconds between two requests of `edged pods --watch`.
pub const WATCH_MS: u64 = 500;
/// Milliseconds that a command waits for an answer of the runtime, other than to a pull.
pub const CHECK_RUNTIME_MS: u64 = 5_000;
/// Milliseconds between two looks at the clock of a command that waits for the runtime.
pub const CLI_WAIT_MS: u64 = 1_000;

// Answers over HTTP, whoever they are from: a pod, this API, an API server.

/// Bytes of an answer's head, and of a line after its last chunk. Cookies and policies of real
/// servers take some 4 KiB.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 32 << 10;
/// Header fields of an answer: four times what real servers send.
pub const RESPONSE_HEADERS_MAX: usize = 96;
/// Bytes of the line before a chunk, extensions included, which no known server sends.
pub const RESPONSE_CHUNK_LINE_BYTES_MAX: usize = 1 << 10;
