//! Limits of logs, exec, attach, port forwarding and usage.

/// Calls to the runtime for people at once. Most are answered in milliseconds by a URL; a command
/// of `/run` may last, and then others are refused.
pub const STREAM_CALLS_MAX: usize = 16;
/// Milliseconds until the runtime must have answered such a call: the client waits for it.
pub const STREAM_CALL_MS: u64 = 30_000;
/// Seconds until the runtime ends a command whose client waits for all of its output (EdgeCore's).
pub const COMMAND_S: u32 = 10;
/// Bytes before the text of a line of a log: a time with a zone, the stream, and a few tags.
pub const LOG_HEAD_BYTES_MAX: usize = 128;

// Sessions.

/// Requests of people at once: a followed log for each container of a gateway, and some commands.
pub const STREAMS_MAX: usize = 64;
/// Bytes that wait for one client. Nothing more is read for it meanwhile: a slow client costs this,
/// and holds up nobody. With what waits for the runtime and the rest of a stream: 64 KiB.
pub const STREAM_UNSENT_BYTES_MAX: usize = 32 << 10;
/// Bytes of one client that wait for the runtime; a client that sends more waits.
pub const STREAM_INPUT_BYTES_MAX: usize = 16 << 10;
/// Bytes that the kernel keeps for the runtime, twice as many with its own overhead. By default it
/// keeps megabytes, and reports room only when a third of them has left: on a slow flash that takes
/// longer than a request may block the tunnel.
pub const STREAM_SOCKET_BYTES: usize = 128 << 10;
/// Bytes that one request moves in one turn of the loop: some 50 µs of work.
pub const STREAM_TURN_BYTES: usize = 128 << 10;
/// While objects of pods are being made or removed, requests of people get one part in so many of
/// a processor: still megabytes a second, and the runtime has the rest.
pub const STREAM_SHARE_BESIDE_PODS: u64 = 8;
/// Bytes of a log that one request reads at once. They wait for its client, who sends nothing: with
/// the rest of a stream 64 KiB. Larger pieces wake the client less often.
pub const LOG_TURN_BYTES: usize = 56 << 10;
/// Milliseconds that a client may leave its bytes unread: a paused terminal is noticed and resumed
/// sooner.
pub const STREAM_STALL_MS: u64 = 600_000;
/// Milliseconds until the core must have answered: its calls to the runtime end before.
pub const STREAM_ANSWER_MS: u64 = 60_000;
/// Milliseconds from the first change of a followed log to the look at it: 50 wakes a second,
/// however much is written.
pub const LOG_REST_MS: u64 = 20;
/// Milliseconds between two looks at followed logs without inotify (the kubelet's).
pub const LOG_LOOK_MS: u64 = 1_000;
/// Network interfaces of the node in its usage: those of VLANs and tunnels too.
pub const USAGE_INTERFACES_MAX: usize = 32;
/// Bytes of the token's file.
pub const STREAM_TOKEN_BYTES_MAX: u64 = 1_024;
