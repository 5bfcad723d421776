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
/// Milliseconds that killed jobs are waited for before the server executes its program anew. One
/// that waits for a disk may need longer, and then ends beside the new program.
pub const RUNTIME_ANEW_MS: u64 = 1_000;

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

// Containers.

/// How often the processes of a cgroup are killed: a process may fork while the list is read.
pub const RUNTIME_KILL_PASSES_MAX: usize = 100;
/// Milliseconds between two of these.
pub const RUNTIME_KILL_PAUSE_MS: u16 = 10;
/// Milliseconds for one call of the OCI runtime. It takes some 30; on a machine that is short of
/// memory and reads its program again and again, a second.
pub const RUNTIME_OCI_CALL_MS_MAX: u64 = 30_000;
/// Bytes that are read of the end of an OCI runtime's log.
pub const RUNTIME_OCI_LOG_BYTES_MAX: u64 = 64 << 10;

// Monitors.

/// Bytes of a monitor's file `start`: two paths of 4,096 bytes, and those of the settings, each
/// byte of which takes six in JSON at most.
pub const MONITOR_START_BYTES_MAX: usize = 64 << 10;
/// Connections to one monitor: the server's, that of the server before it, and some of tools.
pub const MONITOR_CONNECTIONS_MAX: usize = 8;
/// Bytes of output that the kernel keeps for one that is attached, as long as it does not read.
pub const MONITOR_ATTACH_BYTES: usize = 512 << 10;
/// Milliseconds that the container's output waits for one that is attached and does not read; then
/// that one is hung up on.
pub const MONITOR_ATTACH_WAIT_MS: u16 = 100;
/// Bytes of one read of a stream: what a FIFO holds.
pub const MONITOR_READ_BYTES: usize = 64 << 10;
/// Milliseconds without output after which a stream is closed whose container has ended while
/// others may still write: a container in the machine's process namespace.
pub const MONITOR_DRAIN_QUIET_MS: u16 = 100;
/// Milliseconds that this lasts at most.
pub const MONITOR_DRAIN_MS_MAX: u64 = 500;
/// Milliseconds that an adopted process's exit code is waited for, which its parent or the kernel
/// tells: the server reaps it at once.
pub const MONITOR_EXIT_WAIT_MS: u64 = 1_000;
/// Bytes of the text of one line of a log: longer ones are cut (containerd's).
pub const LOG_LINE_BYTES_MAX: usize = 16 << 10;
/// Bytes of lines that are written at once.
pub const LOG_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes of one message of a monitor: an error text, in JSON, where each byte may become six.
pub const MONITOR_FACT_BYTES_MAX: usize = 64 << 10;
/// Folders of containers that are looked at when the server starts: twice what there may be.
pub const MONITORS_MAX: usize = 2_048;
/// Bytes of an image's `/etc/passwd` or `/etc/group`: some ten thousand entries.
pub const IMAGE_USERS_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a seccomp profile of the operator's: the default one has 8 KiB.
pub const SECCOMP_BYTES_MAX: u64 = 64 << 10;
/// Device nodes that a privileged container gets. A large server has some hundred.
pub const DEVICES_MAX: usize = 4_096;
/// How deep a tree is copied, because each level costs stack. Images are some thirty folders deep.
pub const COPY_DEPTH_MAX: usize = 256;
/// Files with several names that are remembered while a tree is copied, so that they stay one file;
/// of further ones each name gets a copy.
pub const COPY_LINKED_MAX: usize = 1 << 16;
/// Bytes of the extended attributes of one file, names or one value: the kernel's own limit.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Bytes that are kept of each stream of a command; what follows is read and dropped. The agent
/// keeps less.
pub const EXEC_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Milliseconds in which output is read that a command's children still write after its end.
pub const EXEC_DRAIN_MS: u64 = 100;

// Images.

/// Members of one layer. A system of a hundred thousand files is large for a gateway.
pub const LAYER_MEMBERS_MAX: usize = 1 << 20;
/// Bytes of the names of all folders of one layer, which are kept in memory until the layer is
/// unpacked: their times are set last. A hundred thousand folders have some 8 MB.
pub const LAYER_FOLDER_NAMES_BYTES_MAX: usize = 16 << 20;
/// Uncompressed bytes from which on a layer's compression is bounded. Less does no harm.
pub const LAYER_RATIO_FROM_BYTES: u64 = 100 << 20;
/// How many times more bytes a layer may have than its compressed form. Programs and texts have
/// less than 20; gzip can pack zeros 1,030 times.
pub const LAYER_RATIO_MAX: u64 = 200;
/// Bytes that remain free on the file system of the layers: room for records and for what
/// containers write.
pub const LAYER_SPARE_BYTES: u64 = 16 << 20;

// Pulls.

/// Bytes of an answer of a token server, or of the text of a refusal.
pub const REGISTRY_ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Milliseconds without a byte after which a request has failed, as containerd.
pub const REGISTRY_SILENCE_MS: u64 = 60_000;
/// Milliseconds for a connection: the mirrors before a registry may be down.
pub const REGISTRY_CONNECT_MS: u64 = 10_000;
/// Failures in a row after which a pull has failed; the agent pulls again after its back-off.
pub const REGISTRY_TRIES_MAX: u32 = 5;
/// Tries of the registry of `imageFolders` before the next source is asked: the agent that serves
/// it may be about to start. They take a second and a half.
pub const REGISTRY_FOLDERS_TRIES_MAX: u32 = 3;
/// Milliseconds before the second try; each further one waits twice as long.
pub const REGISTRY_RETRY_MS: u64 = 500;
/// Milliseconds that a registry may tell us to wait before the next try.
pub const REGISTRY_RETRY_MAX_MS: u64 = 60_000;
/// Bytes after which a broken download counts as progress, so that its tries begin anew.
pub const REGISTRY_PROGRESS_BYTES: u64 = 64 << 10;
/// Redirects of one request.
pub const REGISTRY_REDIRECTS_MAX: usize = 5;
/// Registries that edgecore.yaml may name in one list: a gateway has one or two.
pub const REGISTRIES_MAX: usize = 64;
/// Mirrors of one registry: each is waited for before the next is asked.
pub const REGISTRY_MIRRORS_MAX: usize = 8;

// The server.

/// Clients of the built-in runtime at a time: the agent, a few tools, and tests.
pub const RUNTIME_CONNECTIONS_MAX: usize = 16;
/// Bytes of a job's request, and of its answer: a container's configuration is 64 KiB at most, and
/// the output of a command is 128 KiB, four characters of JSON for each byte.
pub const RUNTIME_JOB_BYTES_MAX: usize = 1 << 20;
/// Milliseconds between two looks at the network when somebody asks for the state, and between two
/// at the machine after containers could not be started.
pub const RUNTIME_CONDITIONS_MS: u64 = 5_000;
/// Calls open at once, beside event streams: more than an agent has under way
/// ([`CRI_STREAMS_MAX`](super::CRI_STREAMS_MAX)), so that only another client's mistake is refused.
pub const RUNTIME_CALLS_MAX: usize = 512;
/// Event streams at once: the agent's, the one of the agent before it, and some of tools.
pub const RUNTIME_STREAMS_MAX: usize = 8;
/// Events of one step of the core; a step with more ends the streams, and their clients list anew.
/// Twice as many as a full node has containers.
pub const RUNTIME_EVENTS_MAX: usize = 512;
/// Sandboxes with a record: twice the pods of a node, as ended ones are kept for a while.
pub const RUNTIME_SANDBOXES_MAX: usize = 256;
/// Containers with a record. A record is some kilobytes, and all are in memory.
pub const RUNTIME_CONTAINERS_MAX: usize = 1_024;
/// Images with a record.
pub const RUNTIME_IMAGES_MAX: usize = 512;
/// Sandboxes and containers that are made or started at once. Each costs a program of 3 to 10 MB
/// for some 30 ms; more at once on few cores only make each slower.
pub const RUNTIME_STARTS_MAX: usize = 2;
/// Sandboxes and containers that are ended at once: a bound of its own, so that no start that hangs
/// delays a stop.
pub const RUNTIME_ENDS_MAX: usize = 2;
/// Commands in containers at once: those that probes have under way on a full node.
pub const RUNTIME_EXECS_MAX: usize = 16;
/// Pulls and imports at once: two over a thin link finish later than one after the other.
pub const RUNTIME_PULLS_MAX: usize = 1;
/// Removals of files at once: they compete for one disk.
pub const RUNTIME_REMOVALS_MAX: usize = 1;
/// Measurements at once: the agent has one under way.
pub const RUNTIME_MEASURES_MAX: usize = 1;
/// Milliseconds to make or end a sandbox: CNI's plugins get 60 s for each direction.
pub const RUNTIME_SANDBOX_MS: u64 = 120_000;
/// Milliseconds for every other job on one object, and for a monitor to say that its container has
/// started: a thousand times what they take on an idle gateway.
pub const RUNTIME_JOB_MS: u64 = 60_000;
/// Milliseconds that a command's job may take beyond the command's own time.
pub const RUNTIME_EXEC_EXTRA_MS: u64 = 10_000;
/// Milliseconds for a monitor to open its log anew.
pub const RUNTIME_REOPEN_MS: u64 = 10_000;
/// Milliseconds between two SIGKILLs for a process that does not end: it may wait for a disk.
pub const RUNTIME_KILL_AGAIN_MS: u64 = 10_000;
/// Milliseconds before work that nobody waits for is tried again; doubles up to the maximum.
pub const RUNTIME_RETRY_MIN_MS: u64 = 1_000;
/// Milliseconds of the longest such wait.
pub const RUNTIME_RETRY_MAX_MS: u64 = 300_000;
/// Milliseconds that layers of a pull that failed are kept, so that the next try goes on from
/// there: twice the longest back-off of a pull, and an hour's rest of a slow link.
pub const RUNTIME_RESUME_MS: u64 = 3_600_000;
/// Containers whose cgroups the server itself reads, without a child: at some 60 µs each, 15 ms in
/// which it does nothing else, twice a full node.
pub const RUNTIME_QUICK_STATS_MAX: usize = 256;
/// Milliseconds between two walks over what a container has written.
pub const RUNTIME_LAYER_USAGE_MS: u64 = 60_000;

// Exec, attach and port forwarding.

/// Sessions at once, those included whose client has left and whose command goes on: as many as the
/// agent has requests of people ([`STREAMS_MAX`](super::STREAMS_MAX)). Each is a process with some
/// 300 kB of its own.
pub const RUNTIME_SESSIONS_MAX: usize = 64;
/// Sessions that are opened at once: each is a process that forks.
pub const RUNTIME_SESSION_OPENS_MAX: usize = 4;
/// Milliseconds in which the client must connect to a session (containerd's).
pub const SESSION_ACCEPT_MS: u64 = 60_000;
/// Milliseconds in which it must send its request, and open its streams (containerd's).
pub const SESSION_OPEN_MS: u64 = 30_000;
/// Milliseconds for which the output of a command is read whose client has left. Then its outputs
/// are closed: it may go on, but can write no more.
pub const SESSION_ORPHAN_MS: u64 = 3_600_000;
/// Bytes of that output at most: one who writes on and on is not read for an hour.
pub const SESSION_ORPHAN_BYTES_MAX: usize = 1 << 20;
/// Milliseconds in which a client must take some of what is left once its command has ended.
pub const SESSION_STALL_MS: u64 = 60_000;
/// Bytes that wait for a client before its command is read no further.
pub const SESSION_UNSENT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a client that are read at once; they are written before more is read.
pub const SESSION_READ_BYTES: usize = 16 << 10;
/// Bytes of one message of a WebSocket: kubectl sends half as many.
pub const STREAM_MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a terminal's size in JSON.
pub const STREAM_SIZE_BYTES_MAX: usize = 256;
/// Connections to ports of a pod in one session: a browser opens six for each page.
pub const SESSION_CONNECTIONS_MAX: usize = 128;
/// Bytes that wait for the ports of a pod before the client is read no further.
pub const SESSION_FORWARD_BYTES_MAX: usize = 256 << 10;
/// Milliseconds in which a command that is cancelled, or whose server has died, is killed together
/// with its session; then its job is killed.
pub const RUNTIME_EXEC_KILL_MS: u64 = 2_000;
/// Handlers that the command line may name: each is a program that is run at the start.
pub const RUNTIME_HANDLERS_MAX: usize = 16;
/// Bytes of a seccomp filter: the kernel takes 4,096 instructions of 8 bytes.
pub const SECCOMP_FILTER_BYTES_MAX: u64 = 32 << 10;
/// Seccomp filters that are kept in memory, some 8 KiB each: one for each profile and each set of
/// capabilities. A node has a few.
pub const SECCOMP_FILTERS_MAX: usize = 32;
/// Bytes in RUN below which a failure of an OCI runtime is put down to that: crun and runc need
/// less for a start, and do not always say what they lacked.
pub const RUNTIME_RUN_BYTES_MIN: u64 = 64 << 10;
