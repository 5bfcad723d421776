//! Limits of ServiceBus: what calls hold at once, and their waits.

/// Calls to services of the node at once; those beyond are answered with 503. Each holds a body
/// either way.
pub const SERVICE_BUS_CALLS_MAX: usize = 4;
/// Requests of applications at once, those that wait for the cloud included; as above.
pub const SERVICE_BUS_ENTRIES_MAX: usize = 4;
/// Connections of applications, those that only begin or end included.
pub const SERVICE_BUS_CONNECTIONS_MAX: usize = 16;
/// Bytes of a body either way (`EdgeCore`'s); less where one message to the cloud may not have as
/// much ([`crate::limits::Budget`]).
pub const SERVICE_BUS_BODY_BYTES_MAX: usize = 5_000_000;
/// Headers of a call that are passed on.
pub const SERVICE_BUS_HEADERS_MAX: usize = 64;
/// Bytes of the path and the query of a call.
pub const SERVICE_BUS_TARGET_BYTES_MAX: usize = 8_192;
/// Milliseconds for a call to a service of the node (`EdgeCore`'s): less than the caller waits.
pub const SERVICE_BUS_CALL_MS: u64 = 10_000;
/// Milliseconds for the answer of the cloud to an application, unless the configuration says so
/// (`serviceBus.timeout`, `EdgeCore`'s default).
pub const SERVICE_BUS_ENTRY_MS: u64 = 60_000;
/// Milliseconds for the whole request of an application, and for it to read its answer.
pub const SERVICE_BUS_CLIENT_MS: u64 = 20_000;
/// The first port that a call may have where the configuration names none: those below belong to
/// the system.
pub const SERVICE_BUS_PORT_MIN: u16 = 1_024;
/// Bytes that one connection moves in a turn.
pub const SERVICE_BUS_TURN_BYTES: usize = 256 << 10;
