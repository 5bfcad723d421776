//! Limits of the memory that others can fill: what a cloud and a runtime send, and what is stored
//! of it.
//!
//! Everything else that this process takes is its own: with a full node of 110 pods some 4 MiB, and
//! pages of its program, which the kernel takes back when memory is short. What others send has to
//! fit into the rest, in the worst case and all at once. So these limits are not constants: they
//! follow from what the process may use, which the event loop finds out at the start. That is the
//! least of its cgroups' limits, half of the machine's memory, and [`PROCESS_BYTES_FULL`], where
//! they are as wide as they ever get. From [`PROCESS_BYTES_LEAST`] on they grow linearly; a process
//! with less has the limits of that, and may run out of memory.
//!
//! | bound | at 16 MiB | at 96 MiB | what it costs at the worst |
//! |---|---|---|---|
//! | stored objects of the cloud | 2.5 MiB | 12 MiB | itself: counted in memory |
//! | objects not yet durable | 768 KiB | 6 MiB | itself |
//! | one message of the cloud | 512 KiB | 4 MiB | four times: buffer, content, text, row |
//! | its values | 8,192 | 65,536 | 160 bytes each while it is parsed: 1.3 and 10 MiB |
//! | variables and words of one container | 256 KiB | 2 MiB | four times: config, request, output |
//! | replies of the runtime that arrive | 2 MiB | 24 MiB | itself |
//! | one of them | 1.5 MiB | 16 MiB | its texts: of two lists, twice |
//! | items of a list | 2,048 | 16,384 | some 400 bytes each, twice: 1.6 and 12.5 MiB |
//!
//! A message and the lists are parsed one after the other. So with 16 MiB that is 2.5 + 0.75 + 2
//! and 4.6 for the lists, some 10 MiB beside the agent's own four; with 96 MiB it is 42 and 44.5.
//!
//! Memory that an allocator cannot give back comes on top.
//!
//! Not here: the content of the manifest folder. Whoever can write it controls the machine already.

use std::fmt;

/// From this size on the limits are as wide as they get: what all of them and the agent itself take
/// in the worst case.
pub const PROCESS_BYTES_FULL: u64 = 96 << 20;
/// With less, a full node may run out of memory.
pub const PROCESS_BYTES_LEAST: u64 = 16 << 20;

/// The limits of what others send. Plain data, passed to the core and to the event loop when they
/// are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What this process may use.
    pub process_bytes: u64,
    /// One message between edge and cloud: [`super::MESSAGE_BYTES_MAX`] or less.
    pub message_bytes_max: usize,
    /// Values in one message's content: elements of all its lists and maps, and these themselves. A
    /// ConfigMap of the largest size with a key for every twenty bytes passes.
    pub message_values_max: usize,
    /// Values of one pod without its managedFields, each of which may become a kilobyte before its
    /// size is checked: a hundred containers with eighty each pass, or twenty-five.
    pub pod_values_max: usize,
    /// Bytes in memory of all stored objects of the cloud. A real pod takes 7 to 17 KiB.
    pub meta_bytes_max: usize,
    /// Bytes, as text, of the objects that are not durable yet: one of the largest messages beside
    /// a smaller one.
    pub meta_waiting_bytes_max: usize,
    /// Bytes of one container's variables, command, arguments and subPathExpr after `$(NAME)` is
    /// replaced, and of the work to get there. At its widest what Linux accepts for a new process
    /// with the usual stack limit (`ARG_MAX`): with more nothing could be started.
    pub expanded_bytes_max: usize,
    /// The limits of the container runtime's replies.
    pub cri: CriBudget,
}

/// The limits of what the container runtime sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CriBudget {
    /// One reply: [`super::CRI_MESSAGE_BYTES_MAX`] or less. A list of a full node has less than
    /// one MiB.
    pub message_bytes_max: usize,
    /// All replies that are still arriving, together: one of the largest and room for the others,
    /// so that a runtime that answers everything at once cannot use up the gateway's memory.
    pub unfinished_bytes_max: usize,
    /// Fields inside one reply, except lists of pods and containers: an empty field costs two bytes
    /// on the wire and some hundred in memory.
    pub fields_max: usize,
    /// Items of one list of pods or containers. A full node has a few hundred.
    pub list_items_max: usize,
}

impl Budget {
    /// The widest.
    pub const FULL: Self = Self::of(PROCESS_BYTES_FULL);

    /// The limits for a process of so many bytes.
    pub const fn of(process_bytes: u64) -> Self {
        let room = Room(process_bytes);
        Self {
            process_bytes,
            message_bytes_max: room.part(512 << 10, super::MESSAGE_BYTES_MAX),
            message_values_max: room.part(1 << 13, 1 << 16),
            pod_values_max: room.part(1 << 11, super::POD_VALUES_MAX),
            meta_bytes_max: room.part(5 << 19, 12 << 20),
            meta_waiting_bytes_max: room.part(768 << 10, 6 << 20),
            expanded_bytes_max: room.part(256 << 10, 2 << 20),
            cri: CriBudget {
                message_bytes_max: room.part(3 << 19, super::CRI_MESSAGE_BYTES_MAX),
                unfinished_bytes_max: room.part(2 << 20, 24 << 20),
                fields_max: room.part(1 << 14, super::CRI_FIELDS_MAX),
                list_items_max: room.part(1 << 11, super::CRI_LIST_ITEMS_MAX),
            },
        }
    }

    /// Why a limit is no wider, to be appended to it in a message to the user; empty if it is the
    /// widest.
    pub fn why(&self) -> Why {
        Why((self.process_bytes < PROCESS_BYTES_FULL).then_some(self.process_bytes))
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::FULL
    }
}

impl Default for CriBudget {
    fn default() -> Self {
        Budget::FULL.cri
    }
}

/// See [`Budget::why`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why(Option<u64>);

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, ", because this process may use {bytes} bytes of memory"),
            None => Ok(()),
        }
    }
}

/// Bytes of the whole process.
struct Room(u64);

impl Room {
    /// Linear between `least` and `most`.
    const fn part(&self, least: usize, most: usize) -> usize {
        let (low, high) = (PROCESS_BYTES_LEAST, PROCESS_BYTES_FULL);
        let bytes = if self.0 < low { low } else { self.0 };
        let bytes = if bytes > high { high } else { bytes };
        // Of at most 2^25 times 2^27.
        let more = (most - least) as u64 * (bytes - low) / (high - low);
        least + more as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_grow_in_a_straight_line_between_two_ends() {
        let messages = |process: u64| Budget::of(process).message_bytes_max;
        assert_eq!(messages(1), 512 << 10);
        assert_eq!(messages(PROCESS_BYTES_LEAST), 512 << 10);
        assert_eq!(messages(56 << 20), (512 << 10) + (3_584 << 10) / 2);
        assert_eq!(messages(PROCESS_BYTES_FULL), super::super::MESSAGE_BYTES_MAX);
        assert_eq!(messages(u64::MAX), super::super::MESSAGE_BYTES_MAX);
        assert_eq!(Budget::of(u64::MAX).cri, CriBudget::default());
    }

    #[test]
    fn only_a_narrow_bound_is_explained() {
        assert_eq!(Budget::FULL.why().to_string(), "");
        let why = Budget::of(16 << 20).why().to_string();
        assert_eq!(why, ", because this process may use 16777216 bytes of memory");
    }
}
