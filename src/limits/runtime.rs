//! Limits of the built-in runtime.

// Records.

/// Bytes of one record with its checksum. A pod with 64 containers, each with forty variables and
/// ten mounts, has records of some 4 KiB; a variable may be large.
pub const RECORD_BYTES_MAX: usize = 64 << 10;
/// Records of one kind that are read at the start: as many as the core makes at most.
pub const RECORDS_MAX: usize = 1_024;
/// Records of one kind that did not check and are kept for a person to look at; further ones are
/// removed. Flash that wears out spoils more than one, and each is no more than a record's bytes.
pub const RECORDS_BAD_MAX: usize = 16;
/// Milliseconds for which a record that is saved lazily waits for others.
pub const RECORD_LAZY_MS: u64 = 1_000;

// Networks.

/// Bytes of one network configuration; a long one has 2 KiB.
pub const CNI_CONFIG_BYTES_MAX: usize = 64 << 10;
/// Plugins of one network: each is a program that is run for each sandbox. Four are many.
pub const CNI_PLUGINS_MAX: usize = 16;
/// Milliseconds for one run of a plugin (containerd and CRI-O have no less): DHCP may wait long.
pub const CNI_PLUGIN_MS: u64 = 60_000;

// Programs that are run to their end.

/// Bytes that are kept of each stream of a program: a CNI result has 2 KiB.
pub const PROGRAM_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Milliseconds after which the end of a program is noticed whose streams others hold open.
pub const PROGRAM_POLL_MS: u64 = 50;

// Sandboxes.

/// Bytes of `/dev/shm` of a pod, as other runtimes have it.
pub const SANDBOX_SHM_BYTES: u64 = 64 << 20;
/// Milliseconds until the holder of a process namespace is ready, or has left its cgroup.
pub const HOLDER_READY_MS: u16 = 10_000;
/// Bytes of the host's `/etc/hosts` and `/etc/resolv.conf` that a pod gets. They are copied into
/// memory for each pod; nobody needs more but for lists of blocked names.
pub const HOST_FILE_BYTES_MAX: usize = 256 << 10;

// The server's start.

/// Milliseconds for one run of nft or iptables, which wait for each other.
pub const MASQUERADE_MS: u64 = 10_000;
/// Milliseconds for `crun --version`.
pub const OCI_VERSION_MS: u64 = 10_000;
// Its socket, by ttrpc.

/// Bytes of one frame's data: the protocol's own limit.
pub const TTRPC_MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Calls open on one connection: more than the agent makes at once ([`super::CRI_STREAMS_MAX`]). A
/// call that waits costs some hundred bytes here; how much work is done at once is bounded by the
/// jobs.
pub const TTRPC_CALLS_MAX: usize = 512;
/// Bytes that wait to be written to one client before its requests are no longer read: three lists
/// of a full node.
pub const TTRPC_OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Items of one list or map in a request (environment variables, mounts, labels): an empty item has
/// two bytes on the wire and up to a hundred in memory.
pub const RUNTIME_ITEMS_MAX: usize = 4_096;
