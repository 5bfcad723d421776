//! Every bound that is a choice: its name, its unit in the name, and why it is what it is.

#[cfg(feature = "cloud")]
mod cloud;
#[cfg(feature = "controller")]
mod controller;
#[cfg(feature = "controller")]
mod edge;
mod link;
mod local_api;
mod memory;
#[cfg(feature = "cloud")]
mod node;
mod pod;
mod probe;
#[cfg(feature = "watchdog")]
mod watchdog;

#[cfg(feature = "cloud")]
pub use cloud::*;
#[cfg(feature = "controller")]
pub use controller::*;
#[cfg(feature = "controller")]
pub use edge::*;
pub use link::*;
pub use local_api::*;
pub use memory::*;
#[cfg(feature = "cloud")]
pub use node::*;
pub use pod::*;
pub use probe::*;
#[cfg(feature = "watchdog")]
pub use watchdog::*;

// The manifest folder.

/// Files in the manifest folder that are read; the rest is named in the log. Ten times the pods
/// that a node runs, so only a mistaken folder meets it.
pub const MANIFEST_FILES_MAX: usize = 1_024;
/// Bytes of one manifest file: the kubelet's own bound.
pub const MANIFEST_BYTES_MAX: usize = 10 << 20;
/// Pods in the whole manifest folder; four times what a node runs.
pub const MANIFEST_PODS_MAX: usize = 512;
/// ConfigMaps and Secrets in one file, and in the whole manifest folder: as many as pods.
pub const MANIFEST_OBJECTS_MAX: usize = 512;
/// Bytes of the keys and values of one ConfigMap or Secret: the API server's own bound.
pub const OBJECT_BYTES_MAX: usize = 1 << 20;
/// Bytes of all of them in the manifest folder; they are kept in memory.
pub const MANIFEST_OBJECTS_BYTES_MAX: usize = 8 << 20;
/// How deep a manifest's values may nest. Pods need about 12; the bound keeps a hostile file from
/// the end of the stack.
pub const MANIFEST_DEPTH_MAX: usize = 64;
/// Values (texts, numbers, lists, maps) of one manifest file, those that aliases repeat included.
/// As many pods as a folder may hold, with 512 values each; some 20 MB at the worst.
pub const MANIFEST_NODES_MAX: usize = 1 << 18;
/// Bytes of one manifest file that may be made by repeating with aliases. Ten lines of aliases can
/// ask for more than any memory.
pub const MANIFEST_COPIED_BYTES_MAX: usize = 4 << 20;

// Runtime calls.

/// Looking calls at once: two lists, one of `Version` or `Status`, and the event stream.
pub const LOOK_CALLS_MAX: usize = 4;
/// `StopContainer` and `StopPodSandbox` at once. Each may wait out a grace period without costing
/// anything, so the bound is one for each of twice the pods of a node.
pub const STOP_CALLS_MAX: usize = 256;
/// Commands of probes at once. Each costs the runtime a process or two and some 30 ms of a core, so
/// more at once only make each other late; those that hang are over at their timeout.
pub const EXEC_CALLS_MAX: usize = 32;
/// Commands of hooks at once: apart from those of probes, since a hook may hang for the whole grace
/// period. Half as many as the pods of a node.
pub const HOOK_CALLS_MAX: usize = 64;
/// Milliseconds for a command without a timeout of its own. The kubelet waits for ever; a day is as
/// good, and a runtime that has forgotten the call does not keep its room.
pub const EXEC_DEADLINE_MS: u64 = 86_400_000;
/// Bytes of a command's output that a probe reads (the kubelet's).
pub const PROBE_OUTPUT_BYTES_MAX: usize = 10 << 10;
/// `PullImage` at once where `serializeImagePulls` is false: more than a gateway's link and memory
/// take, and few enough that with all other calls the runtime's streams suffice. By default it is
/// one, as the kubelet has it: two pulls over a thin link finish later than one after the other,
/// and need twice the memory in the runtime.
pub const PULL_CALLS_MAX: usize = 16;
/// Calls at once that make, start, inspect or remove. The runtime forks for most of them; more at
/// once on few cores only makes each slower, and its peak memory higher.
pub const WORK_CALLS_MAX: usize = 8;
/// Calls at once that keep the node in order: where images lie, one about images, one about logs,
/// one about usage.
pub const UPKEEP_CALLS_MAX: usize = 4;
/// Milliseconds for a call that does not wait for a workload (the kubelet's).
pub const CALL_DEADLINE_MS: u64 = 120_000;
/// Milliseconds that an agent which was told to end waits for what the runtime makes, starts or
/// removes for it: several times what these take on a busy gateway, and half of the shortest time
/// after which our scripts kill it.
pub const LEAVE_MS: u64 = 5_000;
/// Milliseconds for a list or a status: these read memory only, and one that hangs blinds us.
pub const LOOK_DEADLINE_MS: u64 = 30_000;
/// Milliseconds for a pull. It has to end some day, because the others wait for it; runtimes keep
/// the layers that arrived, so the next try goes on from there.
pub const PULL_DEADLINE_MS: u64 = 3_600_000;
/// Milliseconds between two lines of the log about a pull that goes on: often enough that nobody
/// takes it for stuck, seldom enough for a link over which it takes an hour.
pub const PULL_TOLD_MS: u64 = 30_000;
/// Milliseconds after which the event stream is opened anew: once a day, so that a stream which
/// died in silence does not stay dead.
pub const STREAM_DEADLINE_MS: u64 = 86_400_000;

/// 2024-01-01, milliseconds since 1970: a gateway whose clock shows less has not been told the time
/// yet.
pub const CLOCK_PLAUSIBLE_MS: i64 = 1_704_067_200_000;

// Looking at the runtime.

/// Milliseconds between lists (the kubelet's PLEG).
pub const RELIST_MS: u64 = 1_000;
/// Milliseconds between lists while the event stream tells of changes. The kubelet waits 300 s;
/// the streams of real runtimes drop events when they are slow, and a list costs well under a
/// millisecond.
pub const RELIST_EVENTED_MS: u64 = 30_000;
/// Milliseconds between lists while there is no pod. Nothing that we answer for can change; what
/// others leave in the runtime is found soon enough.
pub const RELIST_IDLE_MS: u64 = 10_000;
/// Such a look begins so many milliseconds early where something else has woken us: so it goes with
/// the `Status` call, and both cost one wake.
pub const RELIST_IDLE_EARLY_MS: u64 = 1_000;
/// A look that a pod waits for begins so many times what the last one took after that one began:
/// the runtime spends at most a quarter of its time on being looked at, unless a look takes longer
/// than a quarter of `RELIST_GAP_MAX_MS`.
pub const RELIST_GAP_TIMES: u64 = 4;
/// Milliseconds between two looks at the least.
pub const RELIST_GAP_MIN_MS: u64 = 5;
/// Milliseconds that a pod waits for a look at the most.
pub const RELIST_GAP_MAX_MS: u64 = 50;
/// Milliseconds from a failed list to the next.
pub const RELIST_RETRY_MS: u64 = 500;
/// Milliseconds without a believed list until the agent calls itself unhealthy (the kubelet's).
pub const RELIST_HEALTHY_MS: u64 = 180_000;
/// Milliseconds that an event stream must have lived before relisting becomes rare.
pub const STREAM_TRUSTED_MS: u64 = 5_000;
/// Tries of the event stream in a row that may fail before it is left alone until the runtime's
/// next start (the kubelet's).
pub const STREAM_FAILURES_MAX: u32 = 5;
/// Milliseconds from a broken event stream to the next try.
pub const STREAM_RETRY_MS: u64 = 2_000;
/// Milliseconds between two `Status` calls while all is well (the kubelet's); without pods they go
/// with the looks.
pub const STATUS_MS: u64 = 5_000;
/// Milliseconds between two `Status` calls while the runtime or its network is not ready: what
/// pods wait for is asked for often.
pub const STATUS_WAITING_MS: u64 = 200;
/// Milliseconds that the last good `Status` counts (the kubelet's).
pub const STATUS_VALID_MS: u64 = 30_000;

// Pods.

/// Milliseconds before a failed step is tried again, up to half as much more (the kubelet's).
pub const RETRY_MS: u64 = 10_000;
/// Milliseconds from SIGKILL for a task to its deletion, which is refused while its processes live:
/// many times what they need to end on an idle gateway. Where it is too short, [`RETRY_MS`] holds.
pub const TASK_END_MS: u64 = 200;
/// Milliseconds before a container that could not be stopped or asked about is tried again; doubles
/// up to `RETRY_MS`. Most such refusals pass with the runtime's own work on it.
pub const RETRY_MIN_MS: u64 = 1_000;
/// Milliseconds before a container is inspected again of which a list said in between that it has
/// ended; doubles up to `RETRY_MS` where the runtime goes on to say otherwise.
pub const OLD_ANSWER_MS: u64 = 10;
/// Milliseconds at the most between two questions about what the runtime says is gone and lists all
/// the same; from `RETRY_MIN_MS` on each wait is twice the one before. Only the runtime's restart
/// changes that, and after it all are asked about again.
pub const REMOVED_RETRY_MAX_MS: u64 = 3_600_000;
/// Milliseconds before what an earlier life left under way in the runtime is asked for again; each
/// further try waits twice as long. The runtime gives such calls up when it misses their caller.
pub const RETRY_TAKEN_MS: u64 = 200;
/// Tries in a row that find a sandbox's name taken, before it is left to whoever holds it.
pub const NAME_TAKEN_MAX: u32 = 6;
/// Bytes of the end of a container's message file that count (the kubelet's).
pub const LAST_WORDS_BYTES_MAX: usize = 4_096;
/// Lines of the end of a container's log that stand in for its message (the kubelet's).
pub const LAST_WORDS_LINES_MAX: usize = 80;
/// Bytes of them (the kubelet's).
pub const LAST_WORDS_LOG_BYTES: usize = 2_048;
/// Bytes of the log that are read for them: what counts, and times and tags of the lines.
pub const LAST_WORDS_READ_BYTES: usize = 8_192;
/// Bytes of the host's `resolv.conf` (the kubelet's).
pub const RESOLV_CONF_BYTES_MAX: u64 = 10 << 20;
/// Milliseconds between two looks at the node's addresses: reading them is costlier than all else
/// that an idle agent does.
pub const ADDRESSES_MS: u64 = 60_000;
/// Milliseconds of the first back-off of a crashing container or a failing pull (the kubelet's).
pub const BACKOFF_MIN_MS: u64 = 10_000;
/// Milliseconds after which an image whose pull failed is looked for again, however long the
/// back-off: somebody may have imported it.
pub const IMAGE_RECHECK_MS: u64 = 30_000;
/// The back-off of a pull that was over the budget is made longer by up to this part of it: the
/// kubelet's next sync is spread too.
pub const PULL_SPREAD_PART: u64 = 5;
/// Definitions of one container whose back-offs are remembered: the last ones.
pub const CRASHES_MAX: usize = 4;
/// Milliseconds of the longest back-off (the kubelet's).
pub const BACKOFF_MAX_MS: u64 = 300_000;
/// Milliseconds that an image counts as absent without another look: longer than a pull waits for
/// nothing but its turn in a step, shorter than any pull that may bring it meanwhile.
pub const IMAGE_LOOKED_MS: u64 = 500;
/// Bytes of one set of credentials (`config.json`, or a secret of that kind): Kubernetes' bound of
/// a secret.
pub const KEYRING_BYTES_MAX: usize = 1 << 20;
/// Entries of the credentials that one pod or the node has: a few registries each. Every entry that
/// fits an image is tried.
pub const KEYRING_ENTRIES_MAX: usize = 256;
/// Milliseconds without a failure after which the back-off starts again (the kubelet's).
pub const BACKOFF_CALM_MS: u64 = 600_000;
/// Seconds a container has at the least between its stop signal and SIGKILL (the kubelet's).
pub const STOP_GRACE_MIN_S: i64 = 2;
/// Seconds of grace for a pod that names none (the API's default).
pub const GRACE_DEFAULT_S: i64 = 30;
/// Seconds of grace for a pod that only the runtime knows (the kubelet's).
pub const GRACE_ORPHAN_S: i64 = 1;
/// Events that are kept to be read back; the oldest goes first. Enough for the story of a night.
pub const NOTES_MAX: usize = 256;
/// Of these, those of one object: an eighth, so that the others' story stays.
pub const NOTES_OBJECT_MAX: usize = 32;
/// Messages of one object, kind and reason that have an event each; from the last on one event
/// stands for all (client-go's).
pub const NOTES_SIMILAR_MAX: usize = 10;
/// Milliseconds without one after which such a count begins anew (client-go's).
pub const NOTES_SIMILAR_MS: u64 = 600_000;
/// Events of one object that are logged and sent at once (client-go's).
pub const NOTES_BURST: u64 = 25;
/// Milliseconds after which one more is (client-go's).
pub const NOTES_REFILL_MS: u64 = 300_000;
/// Bytes that the files of a secret, or of other volumes that lie in memory, may take: twice what
/// eight objects may hold, since old and new are there at once while they change.
pub const FILES_VOLUME_BYTES_MAX: u64 = 16 << 20;
/// Milliseconds of the first wait after a volume could not be brought about (the kubelet's).
pub const VOLUME_RETRY_MIN_MS: u64 = 500;
/// Milliseconds of the longest such wait (the kubelet's).
pub const VOLUME_RETRY_MAX_MS: u64 = 122_000;
/// Milliseconds that a pod waits for its volumes until that is told, and told again (the
/// kubelet's).
pub const VOLUME_WAIT_MS: u64 = 123_000;
/// Milliseconds that the cloud may take to give what its pods use until that counts as missing: a
/// round trip over a slow link.
pub const OBJECT_WAIT_MS: u64 = 2_000;
/// Milliseconds between looks at the cgroups of the QoS classes (the kubelet's).
pub const QOS_CGROUPS_MS: u64 = 60_000;
/// Cgroups one in another below a pod's: a container that runs containers of its own.
pub const CGROUP_DEPTH_MAX: usize = 16;
/// Bytes of the list of a cgroup's processes that are read: some 8,000 of them.
pub const CGROUP_PROCS_BYTES_MAX: u64 = 64 << 10;
/// Milliseconds for a file system job.
pub const JOB_DEADLINE_MS: u64 = 120_000;
/// Pods in the runtime that no source wants and that are ended at once; the rest waits its turn.
pub const ORPHANS_MAX: usize = 256;

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
/// Of a gRPC status text: it ends up in pod statuses and in the log, and runtimes quote whole
/// requests in it.
pub const CRI_STATUS_TEXT_BYTES_MAX: usize = 8 << 10;
/// Calls under way on one connection: more than all the call bounds above together, so that stops
/// which wait out their grace hold up nobody. The servers, which name no bound, were seen to take
/// 300; what one does not take waits.
pub const CRI_STREAMS_MAX: usize = 400;
/// Calls that wait for a free stream, if a server allows fewer: as many again.
pub const CRI_CALLS_WAITING_MAX: usize = 300;
/// What a reply may be ahead of us, per stream and for the connection: nothing short of a long
/// list needs a WINDOW_UPDATE.
pub const CRI_WINDOW_BYTES: u32 = 1 << 20;
/// One header block on the wire, frame heads of its CONTINUATIONs included: an error text of
/// 40,000 characters has been seen to take 70 KiB.
pub const CRI_HEADER_BLOCK_BYTES_MAX: usize = 256 << 10;
/// One decoded header list (RFC 9113 section 6.5.2 counts 32 per field). It is announced, so that
/// a server resets the stream of a longer error text; since it is less than a block may have, no
/// text that a server may send costs the connection.
pub const CRI_HEADER_LIST_BYTES_MAX: usize = 240 << 10;
/// What waits to be written to the socket: a socket buffer's worth of requests, and as much again
/// for answers to a server that asks (PING, SETTINGS) and does not read.
pub const CRI_OUTPUT_BYTES_MAX: usize = 128 << 10;
/// What an emptied buffer may keep: a long list must not cost memory until the next one.
pub const CRI_BUFFER_KEPT_BYTES: usize = 16 << 10;

// Reviewing a pod.

/// Fields that a refusal, or the warning about unknown fields, names; how many more there are is
/// said. A status is read by people, and goes over thin links.
pub const ADMIT_NAMED_MAX: usize = 32;

// The configuration.

/// Bytes of edgecore.yaml; a full one has 10 KiB.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

// The hands: one turn of the loop, and what each source may take of it.

/// A turn that took longer is told in the log with what took it.
pub const TURN_MS_MAX: u64 = 200;
/// How often the mind is asked again within one turn, after answers that came at once. More means
/// that it asks for the same thing again and again.
pub const TURN_ROUNDS_MAX: usize = 16;
/// Ready sources that one poll may name; the rest comes with the next.
pub const POLL_EVENTS_MAX: usize = 32;
/// The longest sleep, milliseconds: the poll's clock stands still in suspend, ours does not.
pub const POLL_MS_MAX: u64 = 60_000;

// The manifest folder's watch.

/// Time between two full looks, milliseconds: the kubelet's `fileCheckFrequency`.
pub const MANIFEST_RESCAN_MS: u64 = 20_000;
/// A file that changed without having been closed is read when it stayed the same for so long.
pub const MANIFEST_SETTLE_MS: u64 = 1_000;
/// How long a removal waits for files that are perhaps half written, milliseconds: one of them may
/// be what was removed, under another name. Ten times what a file that is whole takes to settle,
/// and short enough that one that is written to without end keeps no pod for long.
pub const MANIFEST_HOLD_MS: u64 = 10_000;
/// Bytes of manifests that are read and parsed in one turn, one file at least.
pub const MANIFEST_TURN_BYTES: usize = 256 << 10;

// The runtime's socket.

/// The first wait after a failed connect, milliseconds.
pub const CONNECT_BACKOFF_MIN_MS: u64 = 25;
/// The longest. A failed connect to a local socket costs microseconds, ten a second are nothing
/// beside a runtime, and it is what pods wait for in vain after a reboot (bench `cloud.reboot`).
pub const CONNECT_BACKOFF_MAX_MS: u64 = 100;
/// The one buffer that replies are read into.
pub const RUNTIME_READ_BYTES: usize = 16 << 10;
/// Reads of the runtime's socket in one turn; what is left is read in the next.
pub const RUNTIME_TURN_READS: usize = 64;
/// A runtime that says goodbye (GOAWAY) has so long to answer the calls under way, milliseconds.
pub const RUNTIME_GOODBYE_MS: u64 = 1_000;
/// The answer to the runtime's PING waits so long for a request to go with, milliseconds: longer
/// than `RELIST_IDLE_MS`, so that it never costs a wake; shorter than the 20 s after which servers
/// that ask whether we live give up.
pub const RUNTIME_PONG_MS: u64 = 12_000;

// Jobs.

/// Children at once: they walk and remove trees, and flash has one queue. As many again may wait
/// for other machines, which can last for ever.
pub const JOBS_MAX: usize = 2;
/// Jobs that wait for a child; more are refused.
pub const JOB_QUEUE_MAX: usize = 256;
/// Bytes of one message between the agent and a child.
pub const JOB_FRAME_BYTES_MAX: usize = 16 << 10;
/// Bytes of the names of folders that one child measures: what fits into one message both ways.
pub const WALK_BYTES_MAX: usize = 12 << 10;
/// Files of several names that a child remembers so as to count them once: some 2 MB.
pub const WALK_LINKED_MAX: usize = 1 << 16;
/// How deep a tree is gone down at once, as each step costs a descriptor. Log folders are two deep;
/// of what containers leave in an emptyDir, what is deeper is moved up and removed from there, and
/// is not measured.
pub const REMOVE_DEPTH_MAX: usize = 256;
/// Names that are removed at once, in the loop; a tree that has more is left to a child. The logs
/// of most pods are fewer, and each takes some ten microseconds.
pub const REMOVE_AT_ONCE_MAX: usize = 32;
/// Mounts one over the other at one place that are undone. There is one, unless an agent of
/// another kind died between two of them.
pub const MOUNTS_STACKED_MAX: usize = 8;
/// Links that the way to a volume or a part of it may go over (the kernel's own bound).
pub const LINKS_MAX: usize = 40;
/// How often a folder is read again because something appeared in it while it was removed.
pub const REMOVE_PASSES_MAX: usize = 4;

// Keeping the node in order.

/// A chore is done so many milliseconds early where something else has woken us, so that it costs
/// no wake of its own.
pub const CHORES_EARLY_MS: u64 = 1_000;
/// A chore wakes us by itself when it is so many milliseconds late: nothing else does while the
/// runtime's health is asked for less often.
pub const CHORES_LATE_MS: u64 = 10_000;
/// Milliseconds between two looks for dead containers and for what pods left behind (the
/// kubelet's).
pub const GARBAGE_MS: u64 = 60_000;
/// Milliseconds between two lists of images, by which their age is known (the kubelet's).
pub const IMAGES_LIST_MS: u64 = 300_000;
/// Milliseconds before images are gone through again when too little could be removed; twice as
/// long each further time, up to the kubelet's period.
pub const IMAGES_RETRY_MIN_MS: u64 = 30_000;
/// As above: the longest.
pub const IMAGES_RETRY_MAX_MS: u64 = 300_000;
/// Logs that wait to be rotated; those that are left out are found again. A full node has as many
/// containers.
pub const LOGS_QUEUE_MAX: usize = 512;
/// The number of a container's or sandbox's instance: one each second for thirty years. What a
/// runtime or a log's name tells beyond counts as this, so that there is always a next one.
pub const ATTEMPT_MAX: u32 = 1 << 30;
/// Folders of pods that are looked at, of their logs and of all else; the rest when these are gone.
/// Twice what a full manifest folder may have.
pub const LOG_DIRS_MAX: usize = 1_024;
/// Milliseconds for which a path's file system is taken to be of the kind that it was.
pub const MOUNTS_VALID_MS: u64 = 600_000;

/// Milliseconds between two looks at what the node runs short of (the kubelet's).
pub const EVICTION_MS: u64 = 10_000;
/// Milliseconds between two walks through the folders of pods whose disk has a bound (the
/// kubelet's): a walk costs flash and processor.
pub const EVICTION_LIMITS_MS: u64 = 60_000;
/// Milliseconds for each kind of garbage to go before pods have to.
pub const EVICTION_RECLAIM_MS: u64 = 60_000;
/// Milliseconds that the next cycle waits for an evicted pod to be gone (the kubelet's).
pub const EVICTION_CLEAN_MS: u64 = 30_000;

// The log.

/// A line that repeats is told again after so long, with how often it came, milliseconds.
pub const LOG_REPEAT_MS: u64 = 60_000;

// Images from files.

/// Bytes of one JSON text of an image: containerd's own bound.
pub const IMAGE_JSON_BYTES_MAX: usize = 4 << 20;
/// Names that one archive or layout gives to images; a release of a whole site has some dozens.
pub const IMAGE_NAMES_MAX: usize = 512;
/// Layers of one image: overlayfs mounts no more than 500, Docker makes no more than 127.
pub const IMAGE_LAYERS_MAX: usize = 512;
/// Members of one archive. With 512 images of a hundred layers each there would be more; an archive
/// on a gateway's flash has hundreds.
pub const IMAGE_MEMBERS_MAX: usize = 1 << 15;
/// Bytes of what pax says of one member: its extended attributes, which Linux holds to 64 KiB each.
pub const IMAGE_PAX_BYTES_MAX: usize = 1 << 20;
/// Archives and layouts in all folders together; the rest is named in the log.
pub const IMAGE_SOURCES_MAX: usize = 256;
/// Milliseconds between two looks at the folders: a stick was put in or taken out.
pub const IMAGE_RESCAN_MS: u64 = 10_000;
/// Connections of the registry on loopback: a runtime fetches three layers of a pull at once.
pub const MIRROR_CONNECTIONS_MAX: usize = 64;
/// Bytes read from a file and written to a connection in one go.
pub const MIRROR_READ_BYTES: usize = 64 << 10;
/// Goes in one turn for one connection, so that the others get theirs.
pub const MIRROR_TURN_READS: usize = 8;
/// Milliseconds in which a connection must go on.
pub const MIRROR_STALL_MS: u64 = 60_000;
/// Milliseconds until a registry that has ended is started again; each further one waits twice as
/// long, up to a minute.
pub const MIRROR_RESTART_MS: u64 = 1_000;

// The store.

/// Bytes of one object in the store: what etcd takes, so that no object of a real cluster is
/// refused.
pub const STORE_VALUE_BYTES_MAX: usize = OBJECT_JSON_BYTES_MAX;
/// Bytes of a key: a service account token's names its audiences.
pub const STORE_KEY_BYTES_MAX: usize = 4 << 10;
/// Rows in the store: 32 for each of twice the pods of a node.
pub const STORE_ROWS_MAX: usize = 8_192;
/// Bytes of all keys and values in the store; they are read into memory at start.
pub const STORE_BYTES_MAX: usize = 16 << 20;
/// Milliseconds that the look for damage may take at start: pods wait for it. A store of 16 MiB
/// takes some 100 ms; only a file full of other tables' rows meets the bound.
pub const STORE_CHECK_MS: u64 = 1_000;
/// Milliseconds that another owner of the store has to let it go at start.
pub const STORE_BUSY_MS: u64 = 1_000;
/// Starts in a row that may end by a failed assertion before the store is set aside: one may be
/// chance, and each costs a gateway its pods' care for some seconds.
pub const START_CRASHES_MAX: u32 = 3;
/// Milliseconds after which a start has succeeded: by then every stored row has been acted on.
pub const START_MS: u64 = 60_000;
/// Damaged stores that are kept for whoever wants to look at them.
pub const STORE_ASIDE_MAX: usize = 2;
/// Pages of 4 KiB in the write-ahead log after which they go to where they belong. Each page that
/// was written several times until then is written there once: the longer the log, the less flash
/// is worn. At 1 MiB a day that is once a day; a log much longer only costs room and time at start.
pub const STORE_WAL_PAGES: u32 = 256;
/// KiB of pages that SQLite keeps in memory: the tree's inner pages and what one pod's creation
/// touches.
pub const STORE_CACHE_KIB: u32 = 256;
/// Milliseconds of a commit from which on it is told in the log.
pub const STORE_COMMIT_MS_MAX: u64 = 200;
