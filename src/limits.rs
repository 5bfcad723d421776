//! Every limit that is a choice: its name, with its unit, and why it has this value.

#[cfg(feature = "cloud")]
mod cloud;
#[cfg(feature = "controller")]
mod controller;
#[cfg(any(feature = "controller", feature = "devices"))]
mod devices;
#[cfg(feature = "devices")]
mod dmi;
#[cfg(feature = "controller")]
mod dynamic;
#[cfg(feature = "controller")]
mod edge;
#[cfg(feature = "controller")]
mod job_controller;
mod link;
mod local_api;
mod memory;
#[cfg(feature = "metaserver")]
mod metaserver;
#[cfg(feature = "devices")]
mod mqtt;
#[cfg(feature = "cloud")]
mod node;
#[cfg(feature = "cloud")]
mod node_jobs;
mod pod;
#[cfg(any(feature = "controller", feature = "metaserver"))]
mod policy;
mod probe;
#[cfg(feature = "controller")]
mod router;
#[cfg(feature = "runtime")]
mod runtime;
#[cfg(feature = "servicebus")]
mod service_bus;
#[cfg(feature = "services")]
mod services;
#[cfg(feature = "streams")]
mod spdy;
#[cfg(feature = "streams")]
mod stream_client;
#[cfg(feature = "streams")]
mod streams;
#[cfg(feature = "streams")]
mod tunnel;
#[cfg(feature = "watchdog")]
mod watchdog;

#[cfg(feature = "cloud")]
pub use cloud::*;
#[cfg(feature = "controller")]
pub use controller::*;
#[cfg(any(feature = "controller", feature = "devices"))]
pub use devices::*;
#[cfg(feature = "devices")]
pub use dmi::*;
#[cfg(feature = "controller")]
pub use dynamic::*;
#[cfg(feature = "controller")]
pub use edge::*;
#[cfg(feature = "controller")]
pub use job_controller::*;
pub use link::*;
pub use local_api::*;
pub use memory::*;
#[cfg(feature = "metaserver")]
pub use metaserver::*;
#[cfg(feature = "devices")]
pub use mqtt::*;
#[cfg(feature = "cloud")]
pub use node::*;
#[cfg(feature = "cloud")]
pub use node_jobs::*;
pub use pod::*;
#[cfg(any(feature = "controller", feature = "metaserver"))]
pub use policy::*;
pub use probe::*;
#[cfg(feature = "controller")]
pub use router::*;
#[cfg(feature = "runtime")]
pub use runtime::*;
#[cfg(feature = "servicebus")]
pub use service_bus::*;
#[cfg(feature = "services")]
pub use services::*;
#[cfg(feature = "streams")]
pub use spdy::*;
#[cfg(feature = "streams")]
pub use stream_client::*;
#[cfg(feature = "streams")]
pub use streams::*;
#[cfg(feature = "streams")]
pub use tunnel::*;
#[cfg(feature = "watchdog")]
pub use watchdog::*;

// The manifest folder.

/// Files in the manifest folder that are read; the others are logged. Ten times the pods that a
/// node runs, so only a mistaken folder reaches it.
pub const MANIFEST_FILES_MAX: usize = 1_024;
/// Bytes of one manifest file: the kubelet's own limit.
pub const MANIFEST_BYTES_MAX: usize = 10 << 20;
/// Pods in the whole manifest folder; four times what a node runs.
pub const MANIFEST_PODS_MAX: usize = 512;
/// ConfigMaps and Secrets in one file, and in the whole manifest folder: as many as pods.
pub const MANIFEST_OBJECTS_MAX: usize = 512;
/// Bytes of the keys and values of one ConfigMap or Secret: the API server's own limit.
pub const OBJECT_BYTES_MAX: usize = 1 << 20;
/// Bytes of all of them in the manifest folder; they are kept in memory.
pub const MANIFEST_OBJECTS_BYTES_MAX: usize = 8 << 20;
/// How deep a manifest's values may nest. Pods need about 12; the limit keeps a hostile file from
/// overflowing the stack.
pub const MANIFEST_DEPTH_MAX: usize = 64;
/// Values (texts, numbers, lists, maps) in one manifest file, those that aliases repeat included.
/// As many pods as a folder may hold, with 512 values each; some 20 MB in the worst case.
pub const MANIFEST_NODES_MAX: usize = 1 << 18;
/// Bytes of one manifest file that may result from aliases. Ten lines of aliases can ask for more
/// than any memory.
pub const MANIFEST_COPIED_BYTES_MAX: usize = 4 << 20;

// Runtime calls.

/// Reading calls at once: two lists, one of `Version` or `Status`, and the event stream.
pub const READ_CALLS_MAX: usize = 4;
/// `StopContainer` and `StopPodSandbox` at once. Each may wait for a grace period at no cost, so
/// the limit is one for each of twice the pods of a node.
pub const STOP_CALLS_MAX: usize = 256;
/// Commands of probes at once. Each costs the runtime a process or two and some 30 ms of a core, so
/// more at once only delay each other; those that hang end at their timeout.
pub const EXEC_CALLS_MAX: usize = 32;
/// Commands of hooks at once: separate from those of probes, because a hook may hang for the whole
/// grace period. Half as many as the pods of a node.
pub const HOOK_CALLS_MAX: usize = 64;
/// Milliseconds for a command without a timeout of its own. The kubelet waits for ever; a day is as
/// good, and a call that the runtime has forgotten does not stay open.
pub const EXEC_DEADLINE_MS: u64 = 86_400_000;
/// Bytes of a command's output that are kept of an answer of the runtime: sixteen such answers to
/// people are a megabyte.
pub const COMMAND_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a command's output that a probe reads (the kubelet's).
pub const PROBE_OUTPUT_BYTES_MAX: usize = 10 << 10;
/// `PullImage` at once if `serializeImagePulls` is false: more than a gateway's link and memory can
/// take, and few enough that with all other calls the runtime's streams suffice. By default it is
/// one, as in the kubelet: two pulls over a thin link finish later than one after the other, and
/// need twice the memory in the runtime.
pub const PULL_CALLS_MAX: usize = 16;
/// Calls at once that create, start, inspect or remove. The runtime forks for most of them; more at
/// once on few cores only makes each slower, and its peak memory higher.
pub const WORK_CALLS_MAX: usize = 8;
/// Housekeeping calls at once: where images are stored, one about images, one about logs, one about
/// usage.
pub const HOUSEKEEPING_CALLS_MAX: usize = 4;
/// Milliseconds for a call that does not wait for a workload (the kubelet's).
pub const CALL_DEADLINE_MS: u64 = 120_000;
/// Milliseconds that a stopping agent waits for calls that create, start or remove: several times
/// what these take on a busy gateway, and half of the shortest time after which our scripts kill
/// it.
pub const SHUTDOWN_MS: u64 = 5_000;
/// Milliseconds for a list or a status: these only read memory, and without their answers we see
/// nothing.
pub const READ_DEADLINE_MS: u64 = 30_000;
/// Milliseconds for a pull. It has to end some day, because the others wait for it; runtimes keep
/// the layers that arrived, so the next try continues from there.
pub const PULL_DEADLINE_MS: u64 = 3_600_000;
/// Milliseconds between two log lines about a running pull: often enough that it does not look
/// stuck, seldom enough for a link over which it takes an hour.
pub const PULL_LOG_MS: u64 = 30_000;
/// Milliseconds after which the event stream is opened again: once a day, so that a stream that
/// died silently does not stay dead.
pub const STREAM_DEADLINE_MS: u64 = 86_400_000;

/// 2024-01-01, milliseconds since 1970: an earlier clock was not set yet.
pub const CLOCK_PLAUSIBLE_MS: i64 = 1_704_067_200_000;

// Looking at the runtime.

/// Milliseconds between lists (the kubelet's PLEG).
pub const RELIST_MS: u64 = 1_000;
/// Milliseconds between lists while the event stream reports changes. The kubelet waits 300 s; the
/// streams of real runtimes drop events when they are slow, and a list costs well under a
/// millisecond.
pub const RELIST_EVENTED_MS: u64 = 30_000;
/// Milliseconds between lists while there is no pod. Nothing that we are responsible for can
/// change; what others leave in the runtime is found soon enough.
pub const RELIST_IDLE_MS: u64 = 10_000;
/// Such a relist begins so many milliseconds early if the agent is awake anyway: so it runs
/// together with the `Status` call, and both cost one wake.
pub const RELIST_IDLE_EARLY_MS: u64 = 1_000;
/// A relist that a pod waits for begins so many times the duration of the last one after that one
/// began: the runtime spends at most a quarter of its time on lists, unless a list takes longer
/// than a quarter of `RELIST_GAP_MAX_MS`.
pub const RELIST_GAP_TIMES: u64 = 4;
/// Milliseconds between two relists at the least.
pub const RELIST_GAP_MIN_MS: u64 = 5;
/// Milliseconds that a pod waits for a relist at the most.
pub const RELIST_GAP_MAX_MS: u64 = 50;
/// Milliseconds from a failed list to the next.
pub const RELIST_RETRY_MS: u64 = 500;
/// Milliseconds without a valid list until the agent reports itself unhealthy (the kubelet's).
pub const RELIST_HEALTHY_MS: u64 = 180_000;
/// Milliseconds that an event stream must have lived before relisting becomes rare.
pub const STREAM_TRUSTED_MS: u64 = 5_000;
/// Failures of the event stream in a row before it is not tried any more until the runtime restarts
/// (the kubelet's).
pub const STREAM_FAILURES_MAX: u32 = 5;
/// Milliseconds from a broken event stream to the next try.
pub const STREAM_RETRY_MS: u64 = 2_000;
/// Milliseconds between two `Status` calls while all is well (the kubelet's); without pods they run
/// with the relists.
pub const STATUS_MS: u64 = 5_000;
/// Milliseconds between two `Status` calls while the runtime or its network is not ready: pods wait
/// for it.
pub const STATUS_WAITING_MS: u64 = 200;
/// Milliseconds that the last good `Status` is valid (the kubelet's).
pub const STATUS_VALID_MS: u64 = 30_000;

// Pods.

/// Milliseconds before a failed step is retried, up to half as much more (the kubelet's).
pub const RETRY_MS: u64 = 10_000;
/// Milliseconds from the SIGKILL of a task to its deletion, which is refused while its processes
/// live: many times what they need to end on an idle gateway. If it is too short, [`RETRY_MS`]
/// applies.
pub const TASK_END_MS: u64 = 200;
/// Milliseconds before the stop or status of a container is retried; doubles up to `RETRY_MS`. Most
/// such refusals pass when the runtime has finished its own work on it.
pub const RETRY_MIN_MS: u64 = 1_000;
/// Milliseconds before a container is inspected again that a list reported as ended in between;
/// doubles up to `RETRY_MS` while the runtime still answers otherwise.
pub const OLD_ANSWER_MS: u64 = 10;
/// Milliseconds at the most between two requests about an object that the runtime calls gone and
/// still lists; from `RETRY_MIN_MS` on each wait is twice the one before. Only the runtime's
/// restart changes that, and after it all are requested again.
pub const REMOVED_RETRY_MAX_MS: u64 = 3_600_000;
/// Milliseconds before a call is repeated that an earlier process left under way in the runtime;
/// each further try waits twice as long. The runtime cancels such calls when it notices that their
/// client is gone.
pub const RETRY_TAKEN_MS: u64 = 200;
/// Tries in a row that find a sandbox's name taken, before the name is left to its owner.
pub const NAME_TAKEN_MAX: u32 = 6;
/// Bytes at the end of a container's termination message file that are used (the kubelet's).
pub const TERMINATION_MESSAGE_BYTES_MAX: usize = 4_096;
/// Lines at the end of a container's log that replace its termination message (the kubelet's).
pub const TERMINATION_LOG_LINES_MAX: usize = 80;
/// Bytes of them (the kubelet's).
pub const TERMINATION_LOG_BYTES_MAX: usize = 2_048;
/// Bytes of the log that are read for them: the used ones, and times and tags of the lines.
pub const TERMINATION_LOG_READ_BYTES: usize = 8_192;
/// Bytes of the host's `resolv.conf` (the kubelet's).
pub const RESOLV_CONF_BYTES_MAX: u64 = 10 << 20;
/// Milliseconds between two reads of the node's addresses: reading them costs more than all else
/// that an idle agent does.
pub const ADDRESSES_MS: u64 = 60_000;
/// Milliseconds of the first back-off of a crashing container or a failing pull (the kubelet's).
pub const BACKOFF_MIN_MS: u64 = 10_000;
/// Milliseconds after which an image whose pull failed is looked up again, however long the
/// back-off: it may have been imported.
pub const IMAGE_RECHECK_MS: u64 = 30_000;
/// The back-off of a pull that exceeded the budget is extended by up to this part of it: the
/// kubelet's next sync is spread too.
pub const PULL_SPREAD_PART: u64 = 5;
/// Definitions of one container whose back-offs are remembered: the latest ones.
pub const CRASHES_MAX: usize = 4;
/// Milliseconds of the longest back-off (the kubelet's).
pub const BACKOFF_MAX_MS: u64 = 300_000;
/// Milliseconds that an image counts as absent without another lookup: longer than a pull waits for
/// its turn in a step, shorter than any pull that may bring it meanwhile.
pub const IMAGE_ABSENT_MS: u64 = 500;
/// Bytes of one set of credentials (`config.json`, or a secret of that kind): Kubernetes' limit of
/// a secret.
pub const KEYRING_BYTES_MAX: usize = 1 << 20;
/// Entries in the credentials of one pod or of the node: a few registries each. Every entry that
/// matches an image is tried.
pub const KEYRING_ENTRIES_MAX: usize = 256;
/// Milliseconds without a failure after which the back-off starts again (the kubelet's).
pub const BACKOFF_CALM_MS: u64 = 600_000;
/// Seconds between a container's stop signal and SIGKILL at the least (the kubelet's).
pub const STOP_GRACE_MIN_S: i64 = 2;
/// Seconds of grace for a pod without a value (the API's default).
pub const GRACE_DEFAULT_S: i64 = 30;
/// Seconds of grace for a pod that only the runtime knows (the kubelet's).
pub const GRACE_ORPHAN_S: i64 = 1;
/// Events that are kept for `edged events`; the oldest is dropped first. Enough for a night.
pub const EVENTS_MAX: usize = 256;
/// Of these, the events of one object: an eighth, so that those of others stay.
pub const EVENTS_OBJECT_MAX: usize = 32;
/// Messages of one object, type and reason that have an event each; further ones are combined into
/// one event (client-go's).
pub const EVENTS_SIMILAR_MAX: usize = 10;
/// Milliseconds without an event after which such a count starts again (client-go's).
pub const EVENTS_SIMILAR_MS: u64 = 600_000;
/// Events of one object that are logged and sent in a burst (client-go's).
pub const EVENTS_BURST: u64 = 25;
/// Milliseconds after which one more is allowed (client-go's).
pub const EVENTS_REFILL_MS: u64 = 300_000;
/// Bytes that the files of a secret, or of other volumes in memory, may take: twice what eight
/// objects may hold, because old and new exist at once while they change.
pub const FILES_VOLUME_BYTES_MAX: u64 = 16 << 20;
/// Milliseconds of the first wait after a volume could not be set up (the kubelet's).
pub const VOLUME_RETRY_MIN_MS: u64 = 500;
/// Milliseconds of the longest such wait (the kubelet's).
pub const VOLUME_RETRY_MAX_MS: u64 = 122_000;
/// Milliseconds that a pod waits for its volumes until that is reported, and reported again (the
/// kubelet's).
pub const VOLUME_WAIT_MS: u64 = 123_000;
/// Milliseconds that the cloud may take to send the objects that its pods use until they count as
/// missing: a round trip over a slow link.
pub const OBJECT_WAIT_MS: u64 = 2_000;
/// Milliseconds between checks of the cgroups of the QoS classes (the kubelet's).
pub const QOS_CGROUPS_MS: u64 = 60_000;
/// Depth of cgroups below a pod's: a container may run containers of its own.
pub const CGROUP_DEPTH_MAX: usize = 16;
/// Bytes that are read of the list of a cgroup's processes: some 8,000 of them.
pub const CGROUP_PROCS_BYTES_MAX: u64 = 64 << 10;
/// Milliseconds for a file system job.
pub const JOB_DEADLINE_MS: u64 = 120_000;
/// Orphaned pods in the runtime that are stopped at once; the others wait for their turn.
pub const ORPHANS_MAX: usize = 256;
/// Users of a pod with users of its own (`hostUsers: false`): as the kubelet has it, so that every
/// user an image may name exists.
pub const USERS_PER_POD: u32 = 65_536;
/// Ranges of users that can be lent: those below 2^31. Beyond it an id is negative to programs that
/// keep it as a signed number.
pub const USER_RANGES: u32 = 32_767;

// The CRI socket.

/// The largest CRI message either way, as kubelet and the runtimes have it: 16 MiB.
pub const CRI_MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Fields inside one reply: an empty field costs two bytes on the wire and some hundred in memory.
/// 110 pods with four containers each have about 30,000.
pub const CRI_FIELDS_MAX: usize = 1 << 17;
/// Items of one list of the runtime. A full node has a few hundred; at this many two lists take
/// some 13 MB, and what their texts take.
pub const CRI_LIST_ITEMS_MAX: usize = 1 << 14;
/// Messages inside messages: CRI v1 nests seven deep.
pub const CRI_DEPTH_MAX: usize = 16;
/// Bytes of a gRPC status text: it ends up in pod statuses and in the log, and runtimes quote whole
/// requests in it.
pub const CRI_STATUS_TEXT_BYTES_MAX: usize = 8 << 10;
/// Calls under way on one connection: more than all the call limits above together, so that stops
/// that wait for their grace period block no other calls. The servers, which announce no limit,
/// accepted 300 in tests; further calls wait.
pub const CRI_STREAMS_MAX: usize = 400;
/// Calls that wait for a free stream, if a server allows fewer: as many again.
pub const CRI_CALLS_WAITING_MAX: usize = 300;
/// Flow-control window, for each stream and for the connection: only a long list needs a
/// WINDOW_UPDATE.
pub const CRI_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of one header block on the wire, frame heads of its CONTINUATIONs included: an error text
/// of 40,000 characters took 70 KiB in a test.
pub const CRI_HEADER_BLOCK_BYTES_MAX: usize = 256 << 10;
/// Bytes of one decoded header list (RFC 9113 section 6.5.2 counts 32 per field). It is announced,
/// so that a server resets the stream of a longer error text; it is less than a block may have, so
/// no text that a server may send costs the connection.
pub const CRI_HEADER_LIST_BYTES_MAX: usize = 240 << 10;
/// Bytes that wait to be written to the socket: a socket buffer's worth of requests, and as much
/// again for answers to a server that sends PING or SETTINGS and does not read.
pub const CRI_OUTPUT_BYTES_MAX: usize = 128 << 10;
/// Capacity that an emptied buffer may keep: a long list must not cost memory until the next one.
pub const CRI_BUFFER_KEPT_BYTES: usize = 16 << 10;

// Reviewing a pod.

/// Fields that a refusal, or the warning about unknown fields, lists; the number of further ones is
/// added. A status is read by people, and sent over thin links.
pub const ADMIT_NAMED_MAX: usize = 32;

// The configuration.

/// Bytes of edgecore.yaml; a full one has 10 KiB.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

// The event loop: one turn, and what each source may take of it.

/// A turn that took longer is logged with what took it.
pub const TURN_MS_MAX: u64 = 200;
/// How often the core is stepped again within one turn, after answers that came at once. More means
/// that it requests the same thing again and again.
pub const TURN_ROUNDS_MAX: usize = 16;
/// Ready sources that one poll may return; the others come with the next.
pub const POLL_EVENTS_MAX: usize = 32;
/// The longest sleep, milliseconds: the poll's clock stands still in suspend, ours does not.
pub const POLL_MS_MAX: u64 = 60_000;

// The manifest folder's watch.

/// Milliseconds between two full reads of the folder: the kubelet's `fileCheckFrequency`.
pub const MANIFEST_RESCAN_MS: u64 = 20_000;
/// Milliseconds that a file that was changed and not closed has to stay the same before it is read.
pub const MANIFEST_SETTLE_MS: u64 = 1_000;
/// Milliseconds that a removal waits for files that may be half written: one of them may be the
/// removed one, under another name. Ten times what a complete file takes to settle, and short
/// enough that a file that is written without end keeps no pod for long.
pub const MANIFEST_HOLD_MS: u64 = 10_000;
/// Bytes of manifests that are read and parsed in one turn, one file at least.
pub const MANIFEST_TURN_BYTES: usize = 256 << 10;

// The runtime's socket.

/// The first wait after a failed connect, milliseconds.
pub const CONNECT_BACKOFF_MIN_MS: u64 = 25;
/// The longest. A failed connect to a local socket costs microseconds, ten a second are nothing
/// beside a runtime, and pods wait for it after a reboot (bench `cloud.reboot`).
pub const CONNECT_BACKOFF_MAX_MS: u64 = 100;
/// The size of the one buffer into which replies are read.
pub const RUNTIME_READ_BYTES: usize = 16 << 10;
/// Reads of the runtime's socket in one turn; what is left is read in the next.
pub const RUNTIME_TURN_READS: usize = 64;
/// Milliseconds that a runtime has after GOAWAY to answer the calls under way.
pub const RUNTIME_GOODBYE_MS: u64 = 1_000;
/// Milliseconds that the answer to the runtime's PING waits for a request to be sent with: longer
/// than `RELIST_IDLE_MS`, so that it never costs a wake; shorter than the 20 s after which servers
/// close the connection.
pub const RUNTIME_PONG_MS: u64 = 12_000;

// Jobs.

/// Child processes at once: they walk and remove trees, and flash has one queue. As many again may
/// wait for other machines, which can last for ever.
pub const JOBS_MAX: usize = 2;
/// Jobs that wait for a child process; more are refused.
pub const JOB_QUEUE_MAX: usize = 256;
/// Bytes of one message between the agent and a child.
pub const JOB_FRAME_BYTES_MAX: usize = 16 << 10;
/// Bytes of the names of folders that one child process measures: what fits into one message both
/// ways.
pub const WALK_BYTES_MAX: usize = 12 << 10;
/// Files with several links that a child process remembers to count them once: some 2 MB.
pub const WALK_LINKED_MAX: usize = 1 << 16;
/// How deep a tree is entered at once, because each level costs a descriptor. Log folders are two
/// deep; in an emptyDir, deeper folders are moved up and removed from there, and are not measured.
pub const REMOVE_DEPTH_MAX: usize = 256;
/// Names that are removed at once, in the event loop; a larger tree is left to a child process. The
/// logs of most pods are fewer, and each takes some ten microseconds.
pub const REMOVE_AT_ONCE_MAX: usize = 32;
/// Mounts on top of each other at one place that are undone. There is one, unless an agent of
/// another kind died between two of them.
pub const MOUNTS_STACKED_MAX: usize = 8;
/// Symbolic links on the way to a volume or a part of it (the kernel's own limit).
pub const LINKS_MAX: usize = 40;
/// How often a folder is read again because something was added while it was removed.
pub const REMOVE_PASSES_MAX: usize = 4;

// Housekeeping.

/// A housekeeping task runs so many milliseconds early if the agent is awake anyway, so that it
/// costs no wake of its own.
pub const HOUSEKEEPING_EARLY_MS: u64 = 1_000;
/// A housekeeping task wakes the agent when it is so many milliseconds late: nothing else does
/// while the runtime's status is requested less often.
pub const HOUSEKEEPING_LATE_MS: u64 = 10_000;
/// Milliseconds between two searches for dead containers and for leftovers of pods (the kubelet's).
pub const GARBAGE_MS: u64 = 60_000;
/// Milliseconds between two lists of images, from which their age is known (the kubelet's).
pub const IMAGES_LIST_MS: u64 = 300_000;
/// Milliseconds before images are collected again if too little could be removed; twice as long
/// each further time, up to the kubelet's period.
pub const IMAGES_RETRY_MIN_MS: u64 = 30_000;
/// As above: the longest.
pub const IMAGES_RETRY_MAX_MS: u64 = 300_000;
/// Logs that wait to be rotated; others are found again. A full node has as many containers.
pub const LOGS_QUEUE_MAX: usize = 512;
/// The attempt number of a container or sandbox: one each second for thirty years. A greater number
/// from a runtime or a log's name counts as this, so that there is always a next one.
pub const ATTEMPT_MAX: u32 = 1 << 30;
/// Folders of pods that are checked, for logs and for all else; the others when these are removed.
/// Twice what a full manifest folder may have.
pub const LOG_DIRS_MAX: usize = 1_024;
/// Milliseconds for which the type of a path's file system is cached.
pub const MOUNTS_VALID_MS: u64 = 600_000;

/// Milliseconds between two checks of the node's resources for eviction (the kubelet's).
pub const EVICTION_MS: u64 = 10_000;
/// Milliseconds between two measurements of the folders of pods with a disk limit (the kubelet's):
/// a walk costs flash and processor.
pub const EVICTION_LIMITS_MS: u64 = 60_000;
/// Milliseconds for each kind of garbage to be reclaimed before pods are evicted.
pub const EVICTION_RECLAIM_MS: u64 = 60_000;
/// Milliseconds that the next cycle waits for an evicted pod to end (the kubelet's).
pub const EVICTION_CLEAN_MS: u64 = 30_000;

// The log.

/// Milliseconds after which a repeated line is logged again, with the number of repetitions.
pub const LOG_REPEAT_MS: u64 = 60_000;

// Images from files.

/// Bytes of one JSON text of an image: containerd's own limit.
pub const IMAGE_JSON_BYTES_MAX: usize = 4 << 20;
/// Values in one JSON text of an image, each of which may take some hundred bytes: an index of 512
/// entries has some ten thousand.
pub const IMAGE_JSON_VALUES_MAX: usize = 1 << 15;
/// Names of images in one archive or layout; a release of a whole site has some dozens.
pub const IMAGE_NAMES_MAX: usize = 512;
/// Names by digest of one image that are read: one for each repository that it was pulled from.
pub const IMAGE_DIGESTS_MAX: usize = 16;
/// Layers of one image: overlayfs mounts no more than 500, Docker makes no more than 127.
pub const IMAGE_LAYERS_MAX: usize = 512;
/// Members of one archive. With 512 images of a hundred layers each there would be more; an archive
/// on a gateway's flash has hundreds.
pub const IMAGE_MEMBERS_MAX: usize = 1 << 15;
/// Bytes of the pax headers of one member: its extended attributes, which Linux limits to 64 KiB
/// each.
pub const IMAGE_PAX_BYTES_MAX: usize = 1 << 20;
/// Bytes of memory that the process which reads a layer may use for itself, beyond those that it
/// is forked with.
pub const LAYER_MEMORY_BYTES_MAX: u64 = 64 << 20;
/// Indexes in indexes that lead to a manifest.
pub const IMAGE_INDEX_DEPTH_MAX: usize = 3;
/// Archives and layouts in all folders together; the others are logged.
pub const IMAGE_SOURCES_MAX: usize = 256;
/// Milliseconds between two reads of the folders: a USB stick may have been plugged in or out.
pub const IMAGE_RESCAN_MS: u64 = 10_000;
/// Connections of the registry on loopback: a runtime fetches three layers of a pull at once.
pub const MIRROR_CONNECTIONS_MAX: usize = 64;
/// Bytes read from a file and written to a connection in one go.
pub const MIRROR_READ_BYTES: usize = 64 << 10;
/// Reads in one turn for one connection, so that the others get their turn.
pub const MIRROR_TURN_READS: usize = 8;
/// Milliseconds in which a connection must make progress.
pub const MIRROR_STALL_MS: u64 = 60_000;
/// Milliseconds until a registry that has exited is started again; each further one waits twice as
/// long, up to a minute.
pub const MIRROR_RESTART_MS: u64 = 1_000;

// The store.

/// Bytes of one object in the store: what etcd accepts, so that no object of a real cluster is
/// refused.
pub const STORE_VALUE_BYTES_MAX: usize = OBJECT_JSON_BYTES_MAX;
/// Bytes of a key: that of a service account token contains its audiences.
pub const STORE_KEY_BYTES_MAX: usize = 4 << 10;
/// Rows in the store: 32 for each of twice the pods of a node.
pub const STORE_ROWS_MAX: usize = 8_192;
/// Bytes of all keys and values in the store; they are read into memory at start.
pub const STORE_BYTES_MAX: usize = 16 << 20;
/// Milliseconds that the integrity check may take at start: pods wait for it. A store of 16 MiB
/// takes some 100 ms; only a file full of other tables' rows reaches the limit.
pub const STORE_CHECK_MS: u64 = 1_000;
/// Milliseconds that another owner of the store has to release it at start.
pub const STORE_BUSY_MS: u64 = 1_000;
/// Starts in a row that may end by a failed assertion before the store is set aside: one may be
/// chance, and each costs a gateway its pods' care for some seconds.
pub const START_CRASHES_MAX: u32 = 3;
/// Milliseconds after which a start has succeeded: by then every stored row has been acted on.
pub const START_MS: u64 = 60_000;
/// Damaged stores that are kept for analysis.
pub const STORE_QUARANTINED_MAX: usize = 2;
/// Pages of 4 KiB in the write-ahead log after which it is checkpointed. Each page that was written
/// several times until then is written to the database once: the longer the log, the less flash is
/// worn. At 1 MiB a day that is once a day; a log much longer only costs room and time at start.
pub const STORE_WAL_PAGES: u32 = 256;
/// KiB of pages that SQLite caches: the tree's inner pages and what one pod's creation touches.
pub const STORE_CACHE_KIB: u32 = 256;
/// Milliseconds from which on a commit is logged as slow.
pub const STORE_COMMIT_MS_MAX: u64 = 200;

// Selectors of lists and watches, on the node and in the cloud.

/// Bytes of a selector, or of another parameter of a list: longer than any that a client writes,
/// and a part of a request's line.
pub const SELECTOR_BYTES_MAX: usize = 4_096;
/// Requirements of a selector: each is compared with every object.
pub const SELECTOR_REQUIREMENTS_MAX: usize = 64;
/// Values of one requirement: the label is compared with each of them.
pub const SELECTOR_VALUES_MAX: usize = 64;
