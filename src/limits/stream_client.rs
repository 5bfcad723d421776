//! Limits of the commands that stream: logs, exec, attach, port-forward, cp.

/// Bytes read from a connection, from standard input or from a file at once.
pub const CLIENT_READ_BYTES: usize = 16 << 10;
/// Milliseconds that a command waits for what the runtime or a node must answer first: longer than
/// the agent and the controller wait themselves (60 s), so that theirs is the error that is shown.
pub const CLIENT_STREAM_WAIT_MS: u64 = 65_000;
/// Milliseconds between the two measurements of `top`: the CPU time between them is what is shown.
pub const TOP_WINDOW_MS: u64 = 1_000;
/// Bytes that wait to be sent while more is read: a few frames.
pub const CLIENT_UNSENT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a line that is kept until its end comes, where lines of several containers must not
/// mix: four times the length at which runtimes cut them.
pub const CLIENT_LINE_BYTES_MAX: usize = 64 << 10;
/// Containers whose logs are followed at once: as many as one pod may reasonably have.
pub const CLIENT_FOLLOWED_MAX: usize = 32;
/// Connections that `port-forward` serves at once; each is a descriptor and two buffers.
pub const FORWARD_CONNECTIONS_MAX: usize = 128;
/// Bytes that wait for one of them. While one has as many, nothing is read for any: the protocol
/// has no flow control of its own.
pub const FORWARD_UNREAD_BYTES_MAX: usize = 256 << 10;
/// Lines about what `cp` has left out; the rest is counted.
pub const COPY_NOTES_MAX: usize = 32;
/// Bytes of a name or of records before a member of an archive: the longest path, and room.
pub const COPY_RECORDS_BYTES_MAX: u64 = 64 << 10;
