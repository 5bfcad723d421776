//! Limits of what is computed for one pod.

/// Bytes that each variable and each word of a command costs beside its text, in lists and in the
/// allocator. They are charged to [`super::Budget::expanded_bytes_max`], so that many empty ones
/// take no more memory than a few long ones.
pub const EXPANDED_ITEM_BYTES: usize = 64;
/// Volumes of one pod that are set up at once; the others wait in the pod. A quarter of the jobs
/// that may wait for a child process, so that no pod blocks all others.
pub const VOLUME_JOBS_MAX: usize = 64;
/// Mount points of a pod inside one of its volumes that are created beforehand: their paths have to
/// fit into one message to a child process, and a runtime creates most of them itself.
pub const NESTED_MOUNTS_MAX: usize = 256;
/// Values (texts, numbers, lists, maps) of one pod: a hundred containers with eighty each pass. It
/// also limits every loop over one of its lists inside another.
pub const POD_VALUES_MAX: usize = 1 << 13;
/// Bytes of one object as JSON: what etcd accepts, so that no object of a real cluster is refused.
pub const OBJECT_JSON_BYTES_MAX: usize = 1_536 << 10;
