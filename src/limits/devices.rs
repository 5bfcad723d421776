//! Limits of devices: their number, the sizes of what is kept of them, and how often it is saved
//! and sent.

/// Devices of a node, those without an object included. Each takes some kilobytes of memory.
pub const NODE_DEVICES_MAX: usize = 512;
/// Properties of one device, deleted ones included.
pub const DEVICE_PROPERTIES_MAX: usize = 64;
/// Properties of all devices: eight for each of as many devices as a node may have.
pub const TWINS_MAX: usize = 4_096;
/// Attributes of one device: as many as properties.
pub const DEVICE_ATTRIBUTES_MAX: usize = 64;
/// Attributes of all devices: two for each of as many devices as a node may have. Clouds since 1.15
/// send none.
pub const ATTRIBUTES_MAX: usize = 1_024;
/// Bytes of a property's or an attribute's name (`EdgeCore`'s).
pub const TWIN_NAME_BYTES_MAX: usize = 128;
/// Bytes of a value (`EdgeCore`'s).
pub const TWIN_VALUE_BYTES_MAX: usize = 512;
/// Bytes of a type's name, of a state, and of an event id that an answer repeats: many times those
/// in use.
pub const DEVICE_WORD_BYTES_MAX: usize = 128;
/// Bytes of a description: it is shown in lists of devices.
pub const DEVICE_DESCRIPTION_BYTES_MAX: usize = 512;
/// Bytes of the namespace and the name of a device together: as Kubernetes bounds them.
pub const DEVICE_ID_BYTES_MAX: usize = 320;
/// Bytes of an MQTT payload that is read as a request: all properties of a device, with the
/// longest names and values.
pub const DEVICE_PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// Values in such a payload: ten for each property.
pub const DEVICE_PAYLOAD_VALUES_MAX: usize = 1_024;
/// Bytes of a payload that an error text repeats.
pub const DEVICE_PAYLOAD_SHOWN: usize = 256;
/// Devices that somebody on the node has edited: by hand, one after the other.
pub const DEVICE_EDITS_MAX: usize = 64;
/// Bytes of an edited `spec`: all properties that a device may have, with a kilobyte for each.
pub const DEVICE_EDIT_BYTES_MAX: usize = 64 << 10;
/// Mappers that are known, reachable or not.
pub const MAPPERS_MAX: usize = 16;
/// Bytes of a mapper's socket path: what Linux allows (`sun_path`, without the zero at its end).
pub const MAPPER_SOCKET_BYTES_MAX: usize = 107;
/// Milliseconds for a call to a mapper (`EdgeCore`'s): drivers talk to slow hardware.
pub const MAPPER_CALL_MS: u64 = 10_000;
/// Milliseconds before a mapper is called again that could not be reached; doubles with each. A
/// mapper opens its socket shortly after it has registered.
pub const MAPPER_RETRY_MIN_MS: u64 = 1_000;
/// Milliseconds between such calls at the most.
pub const MAPPER_RETRY_MAX_MS: u64 = 30_000;
/// Milliseconds before a call is repeated that the mapper has refused; doubles with each.
pub const MAPPER_REFUSED_MIN_MS: u64 = 10_000;
/// Milliseconds between such calls at the most: what is wrong has to be changed by a user.
pub const MAPPER_REFUSED_MAX_MS: u64 = 600_000;
/// Refusals of a removal after which it counts as done: mappers refuse to remove a device that they
/// do not have.
pub const MAPPER_REMOVALS_MAX: u32 = 3;
/// Milliseconds between two checks whether a silent mapper's socket accepts connections.
pub const MAPPER_CHECK_MS: u64 = 30_000;
/// Milliseconds that a mapper cannot be reached before the state of its devices is unknown: it may
/// be restarting.
pub const MAPPER_LOST_MS: u64 = 60_000;
/// Milliseconds between two saves of actual values: flash wears out, and after a power cut devices
/// report again. The first change after a quiet time is saved at once.
pub const TWIN_SAVE_MS: u64 = 1_200_000;
/// Milliseconds between two saves of states, and of values that must be saved before the cloud may
/// get them: both may change each second.
pub const DEVICE_SAVE_MS: u64 = 10_000;
/// Versions of an actual value that a save reserves: more than the calls of mappers between two
/// saves. Values with these versions may be sent before they are saved.
pub const TWIN_VERSIONS_RESERVED: i64 = 2_000_000;
/// Milliseconds between two messages to the cloud about one device.
pub const DEVICE_MESSAGE_MS: u64 = 1_000;
/// Milliseconds that a message waits, at a new link, for what must be saved before it is sent: a
/// device has one message then. Longer than a save on slow flash; a full disk holds nothing up.
pub const DEVICE_GATHER_MS: u64 = 2_000;
/// Milliseconds that the cloud has to confirm a message before it is sent again (`EdgeCore`'s).
pub const DEVICE_CONFIRM_MS: u64 = 60_000;
/// Messages about one device without a confirmation, until it changes or the link is new: the
/// cloud confirms nothing about a device that it does not know.
pub const DEVICE_SENDS_MAX: u32 = 3;
/// Milliseconds after which the cloud is told again of a value that has not changed: that it is
/// still reported.
pub const TWIN_REFRESH_MS: u64 = 600_000;
/// Milliseconds after which it is saved that the cloud has a value, if nothing else is: until then
/// a restart costs one message more, which is cheaper than a write to flash.
pub const TWIN_MARK_MS: u64 = TWIN_SAVE_MS;
/// Calls of mappers in a second, on average and at once: a mapper calls for each property of each
/// device by itself, and 512 devices with two each are not too many.
pub const MANAGER_CALLS_MAX: u32 = 1_000;
/// Messages of MQTT clients that wait for the cloud (EdgeCore's); of more, the oldest is dropped.
pub const UPLOADS_MAX: usize = 1_024;
/// Bytes of these messages: a few minutes of telemetry, in a process that has 16 MiB.
pub const UPLOAD_BYTES_MAX: usize = 512 << 10;
/// Bytes of them that were handed to the link and have not left. A single one may be larger.
pub const UPLOADS_UNDER_WAY_BYTES: usize = 64 << 10;
/// Bytes of a report of EdgeCore about a device: more than all properties that it can have here,
/// with the longest names and values.
pub const DEVICE_REPORT_BYTES_MAX: usize = 1 << 20;
/// Properties in such a report: EdgeCore has no bound of its own.
pub const DEVICE_REPORT_PROPERTIES_MAX: usize = 1_024;
