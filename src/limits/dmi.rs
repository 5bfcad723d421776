//! Limits of the gRPC with mappers on unix sockets (DMI).

/// Connections of mappers at a time. A mapper opens one for each report; when there is no room, the
/// one that has been idle for longest is closed.
pub const DMI_CONNECTIONS_MAX: usize = 32;
/// Calls under way on one connection: a mapper that reports all properties at once waits for some.
pub const DMI_STREAMS_MAX: usize = 16;
/// Flow-control window of a stream and of the connection: the initial one, so that a connection for
/// one report costs no WINDOW_UPDATE.
pub const DMI_WINDOW_BYTES: u32 = (1 << 16) - 1;
/// Bytes of one message from a mapper. A report of 64 properties with values of 512 bytes has less
/// than 64 KiB; an image as a value may be larger.
pub const DMI_MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of one message to a mapper, as grpc-go accepts it: 4 MiB. 512 devices have some 3 KiB each
/// with 16 properties.
pub const DMI_ANSWER_BYTES_MAX: usize = 4 << 20;
/// Bytes of requests and answers that are half received or half sent, on all connections together:
/// two of the largest answers. The connection that goes beyond is closed.
pub const DMI_HELD_BYTES_MAX: usize = 8 << 20;
/// Bytes of one decoded header list (RFC 9113 section 6.5.2 counts 32 per field). That of a call of
/// grpc-go has 450.
pub const DMI_HEADER_LIST_BYTES_MAX: usize = 8 << 10;
/// Bytes of one header block on the wire, frame heads of its CONTINUATIONs included.
pub const DMI_HEADER_BLOCK_BYTES_MAX: usize = 16 << 10;
/// Bytes that wait to be written to one socket: answers take half of it at most, and acknowledged
/// PINGs and SETTINGS the rest.
pub const DMI_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes of the text of an error: it is one frame's, also if each byte is encoded as three.
pub const DMI_STATUS_TEXT_BYTES_MAX: usize = 1 << 10;
/// Properties in one report: each takes some 50 bytes in memory, and two on the wire. Four times
/// those of a device.
pub const DMI_TWINS_MAX: usize = 256;
/// Bytes of a name: twice what Kubernetes allows for a namespace and a name.
pub const DMI_NAME_BYTES_MAX: usize = 512;
/// Calls of all mappers in one second, and at once; more are refused with RESOURCE_EXHAUSTED. Some
/// hundred properties that are reported each second are far below.
pub const DMI_CALLS_PER_S: u32 = 1_000;
/// Bytes of one read of a mapper's socket.
pub const DMI_READ_BYTES: usize = 4 << 10;
/// Reads of one connection in a second: 1 MiB. A mapper that sends more is read later; one that
/// floods its connection with PING, SETTINGS or RST_STREAM costs no more of the processor than
/// that.
pub const DMI_READS_PER_S: u32 = 256;
/// Reads of one connection after a quiet time: one of the largest messages, and as much again.
pub const DMI_READS_BURST: u32 = 512;
/// Reads of one connection in one turn, so that the others get their turn.
pub const DMI_TURN_READS: usize = 16;
/// Milliseconds for a call until it is answered with DEADLINE_EXCEEDED, unless the mapper gave it
/// less.
pub const DMI_ANSWER_MS: u64 = 10_000;
/// Milliseconds in which a mapper must complete what it began to send, or read what is sent to it.
pub const DMI_STALL_MS: u64 = 10_000;
/// Mappers that are called at a time; each gets one call after the other.
pub const DMI_CALLS_MAX: usize = 16;
/// Calls that wait for their mapper: a device and a model for each of 512 devices.
pub const DMI_CALLS_WAITING_MAX: usize = 1_024;
/// Bytes of a mapper's answer to one call, all frames included: real ones have some hundred.
pub const DMI_REPLY_BYTES_MAX: usize = 64 << 10;
