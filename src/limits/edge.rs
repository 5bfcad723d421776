//! Limits of the controller's event loop: the ports that nodes dial, and what is kept of each.

/// Connections to the WebSocket port whose request is not known yet: each costs the memory of a
/// handshake, some 20 KiB. Beyond it the next waits: a storm of nodes is served in turn.
pub const EDGE_UNIDENTIFIED_MAX: usize = 1_024;
/// The same for the HTTPS port for certificates, which nodes need once a year.
pub const EDGE_UNIDENTIFIED_HTTPS_MAX: usize = 512;
/// The same for the port for stream tunnels: as many, since all nodes dial there when they come
/// back.
pub const EDGE_UNIDENTIFIED_TUNNELS_MAX: usize = 512;
/// The same for the port for kube-apiserver, of which a cluster has a few: twice as many as there
/// are requests at once.
pub const UNIDENTIFIED_API_SERVERS_MAX: usize = 512;
/// Milliseconds after which one of them makes room for the next of its kind, if there are so many:
/// a handshake over a slow link takes a few round trips.
pub const EDGE_UNIDENTIFIED_MS: u64 = 5_000;
/// The same if not a byte has come: a TLS client sends its first bytes right after the packet that
/// opens the connection; only a lost packet takes this long.
pub const EDGE_SILENT_MS: u64 = 1_000;
/// Milliseconds from a connection to its first byte, however few connections there are: TCP sends a
/// lost packet again after one second and after three, so both may be lost too.
pub const EDGE_FIRST_BYTE_MS: u64 = 5_000;
/// Connections to each port that wait for a place among those; for one address, half: thousands of
/// gateways behind one router come back at once. Each is a descriptor.
pub const EDGE_WAITING_MAX: usize = 4_096;
/// Milliseconds that one waits: a node gives up its dial after 15 s.
pub const EDGE_WAITING_MS: u64 = 10_000;
/// Connections to the HTTPS port at once, those with an answer in flight included: the rest is for
/// nodes that have joined.
pub const EDGE_HTTPS_CONNECTIONS_MAX: usize = 1_024;
/// Connections to both ports at once, those in a handshake included. Each is a descriptor and some
/// 10 KiB of TLS.
pub const EDGE_CONNECTIONS_MAX: usize = 16_384;
/// Connections accepted from each port in one turn; the rest waits in the kernel.
pub const EDGE_ACCEPTS_PER_TURN: usize = 64;
/// Connections that are served in one turn: a handshake takes some 0.3 ms, and a turn must be
/// short.
pub const EDGE_CONNECTIONS_PER_TURN: usize = 128;
/// Milliseconds from a port that could not be opened, or a lack of descriptors, to the next try.
pub const EDGE_LISTEN_RETRY_MS: u64 = 1_000;
/// Milliseconds from a connection to its whole request: TLS over a slow link takes several seconds,
/// and when all nodes come back at once each waits for those before it.
pub const EDGE_REQUEST_MS: u64 = 30_000;
/// Milliseconds for the core to decide, and for the client to read the answer.
pub const EDGE_ANSWER_MS: u64 = 30_000;
/// Milliseconds that a client may take to hang up after its answer.
pub const EDGE_CLOSE_MS: u64 = 1_000;
/// Milliseconds that a node may read nothing of what it is sent.
pub const EDGE_STALL_MS: u64 = 30_000;
/// Bytes of a request's body: a certificate request has some hundred; KubeEdge accepts 1 MiB.
pub const EDGE_REQUEST_BYTES_MAX: usize = 64 << 10;
/// Bytes that wait for one node: the largest message of the router, and one of the others. The core
/// stops sending long before.
pub const EDGE_OUTPUT_BYTES_MAX: usize = 24 << 20;

// Objects without a cluster.

/// Objects of all kinds: 5,000 nodes with ten pods each, and the objects that these use.
pub const LOCAL_OBJECTS_MAX: usize = 200_000;
/// Nodes and Leases beyond these, so that a node can connect whatever others store: two for each
/// possible connection ([`EDGE_CONNECTIONS_MAX`]).
pub const LOCAL_NODES_MAX: usize = 2 * EDGE_CONNECTIONS_MAX;
/// Bytes of all objects as JSON, in memory and on the disk: what the manifests may have, and as
/// much for statuses.
pub const LOCAL_BYTES_MAX: usize = 1 << 30;
/// Bytes of one object that a node writes: etcd's bound on a request.
pub const LOCAL_OBJECT_BYTES_MAX: usize = 3 << 19;
/// Bytes of the Node, the Lease and the pods of one node: 500 pods of 20 KiB and the Node fit.
pub const LOCAL_NODE_BYTES_MAX: usize = 16 << 20;
/// Bytes of a Node or a Lease that are accepted whatever else is stored: without them no node can
/// connect. A Node with fifty images has some 30 KiB.
pub const LOCAL_NODE_RESERVE_BYTES: usize = 64 << 10;
/// Bytes of the annotations of one object that a node writes, and of its labels: the API server's
/// bound on annotations.
pub const LOCAL_ANNOTATIONS_BYTES_MAX: usize = 256 << 10;
/// How deep an object that a node writes may nest: statuses need about 8. A list of all objects
/// adds two, and JSON's reader ends at 128.
pub const LOCAL_DEPTH_MAX: usize = 64;
/// Elements of one list that a node writes: a status has 50 images and some tens of conditions.
pub const LOCAL_LIST_MAX: usize = 4_096;
/// Elements and keys that one patch may visit: twenty times the longest list.
pub const LOCAL_PATCH_STEPS_MAX: usize = 100_000;
/// Pods of a node by which its mirror pods are limited, at the most, whatever the node reports:
/// some four times the kubelet's own limit.
pub const LOCAL_NODE_PODS_MAX: usize = 500;
/// The same if the node reports nothing: the kubelet's own limit.
pub const LOCAL_NODE_PODS: usize = 110;
/// Milliseconds without a heartbeat of a node after which its state is unknown
/// (kube-controller-manager's `--node-monitor-grace-period` up to 1.31): four renewals of its Lease
/// may be lost on the way.
pub const NODE_MONITOR_GRACE_MS: u64 = 40_000;
/// Milliseconds between two checks of the nodes (`--node-monitor-period`).
pub const NODE_MONITOR_MS: u64 = 5_000;
/// Milliseconds that nodes have after our own start: they dial again after at most half a minute,
/// and handshakes are done one after the other (`--node-startup-grace-period`).
pub const NODE_STARTUP_GRACE_MS: u64 = 60_000;
/// Milliseconds between two checks after which we were suspended ourselves, and could receive
/// nothing.
pub const NODE_MONITOR_AWAY_MS: u64 = 20_000;
/// Nodes and pods that are marked in one turn: each is an object read and written, some 0.1 ms.
pub const NODE_MONITOR_PER_TURN: usize = 256;
/// Nodes that are logged by name when many are lost at once: a link that all of them share.
pub const NODE_MONITOR_LINES_MAX: usize = 16;
/// Changes in the history from which a watch may start; one that is further behind has to list
/// again.
pub const LOCAL_HISTORY_MAX: usize = 4_096;
/// Bytes of these changes: beside the objects themselves, and four of the largest.
pub const LOCAL_HISTORY_BYTES_MAX: usize = 16 << 20;
/// Events of all nodes that users can read: a cluster deletes them after an hour.
pub const LOCAL_EVENTS_MAX: usize = 4_096;
/// Bytes of these events: some 700 each; no node fills more with them.
pub const LOCAL_EVENTS_BYTES_MAX: usize = 4 << 20;
/// Objects of a list in one turn.
pub const LOCAL_LIST_PER_TURN: usize = 500;
/// Milliseconds before a failed save is retried.
pub const LOCAL_SAVE_RETRY_MS: u64 = 1_000;
/// Bytes of one request to the controller's own API: the largest object, and its manifest's text.
pub const CONTROLLER_API_BODY_BYTES_MAX: usize = 4 << 20;
/// Bytes of the name of an applied object's file: Linux's 255, less the `.new` that it has while it
/// is written.
pub const FILE_NAME_BYTES_MAX: usize = 251;
/// Connections of the controller's own API at once.
pub const CONTROLLER_API_CONNECTIONS_MAX: usize = 16;
/// Of these, how many are reserved for the unix socket: whatever other users do to the port, the
/// controller's commands are answered.
pub const CONTROLLER_API_PROTECTED_MIN: usize = 4;
/// Objects in all manifests of the controller's folder.
pub const MANIFEST_ALL_OBJECTS_MAX: usize = 100_000;
/// Bytes of all these manifests as JSON.
pub const MANIFEST_ALL_BYTES_MAX: usize = 512 << 20;
/// Seconds for which a token lets nodes join (KubeEdge's).
pub const TOKEN_LIFE_S: i64 = 86_400;

// A real API server.

/// Bytes of a whole answer: a page of the largest objects.
pub const RESPONSE_BODY_BYTES_MAX: usize = 512 << 20;
/// Bytes of one line of a watch: the largest object, escapes and managed fields included.
pub const WATCH_LINE_BYTES_MAX: usize = 8 << 20;
/// Connections for calls and lists at once; each carries one after the other. Further ones wait.
pub const API_CONNECTIONS_MAX: usize = 16;
/// Objects of one page of a list (client-go's).
pub const API_PAGE: usize = 500;
/// Milliseconds for TCP and TLS to the API server.
pub const API_CONNECT_MS: u64 = 10_000;
/// Milliseconds for a call, from sending it to its whole answer.
pub const API_CALL_MS: u64 = 30_000;
/// Milliseconds for a page of a list.
pub const API_LIST_MS: u64 = 60_000;
/// Seconds after which the API server ends a watch; jitter comes on top.
pub const API_WATCH_S: u64 = 300;
/// Milliseconds beyond that until we end it.
pub const API_WATCH_LATE_MS: u64 = 30_000;
/// Seconds of silence on a connection before a keep-alive probe is sent.
pub const API_KEEPALIVE_IDLE_S: u32 = 15;
/// Seconds between such probes.
pub const API_KEEPALIVE_PROBE_S: u32 = 10;
/// Probes without an answer after which the connection is dead: two may be lost on the way.
pub const API_KEEPALIVE_PROBES: u32 = 3;
/// Milliseconds until the connection is dead, because it does not answer probes or does not accept
/// data: their sum. A node gets a change at most that much later; a load balancer that moves takes
/// some ten seconds.
pub const API_DEAD_MS: u32 =
    (API_KEEPALIVE_IDLE_S + API_KEEPALIVE_PROBES * API_KEEPALIVE_PROBE_S) * 1_000;
/// Milliseconds without any answer until the controller reports itself unhealthy: an API server
/// that is upgraded, or moved, is away for less.
pub const API_TROUBLE_MS: u64 = 180_000;
/// Milliseconds without any answer until the API server's name is looked up again, from one such
/// lookup to the next, and for one: resolvers give up after half a minute.
pub const API_LOOKUP_MS: u64 = 60_000;
/// Lookups that timed out and have not ended: beyond them none is begun.
pub const API_LOOKUPS_MAX: usize = 4;
/// Milliseconds that an unused connection is kept: less than servers keep one.
pub const API_IDLE_MS: u64 = 30_000;
/// Milliseconds between two reads of a token file: it may be replaced.
pub const API_TOKEN_MS: u64 = 60_000;
/// Milliseconds between two tokens for nodes in the Secret (KubeEdge's).
pub const TOKEN_SECRET_MS: u64 = 43_200_000;

// Stream tunnels.

/// Nodes of which the end of the last tunnel or session is remembered, as many as can be connected
/// (`--node-limit`); the oldest is forgotten.
pub const STREAM_NODES_SEEN_MAX: usize = 16_384;
/// Milliseconds of silence after which a tunnel ends: KubeEdge's edge pings every 5 s, ours every
/// 15 s, and a few of them may be lost.
pub const CLOUD_TUNNEL_SILENT_MS: u64 = 150_000;
/// Bytes that wait to be sent to a node. Nothing more is read from its clients meanwhile.
pub const CLOUD_TUNNEL_UNSENT_BYTES_MAX: usize = 64 << 10;
/// Requests of people at once: some followed logs for each of some dozens of people.
pub const CLOUD_STREAMS_MAX: usize = 256;
/// Bytes that wait for one client, and what one turn brings. Its node's tunnel is not read
/// meanwhile.
pub const CLOUD_STREAM_UNSENT_BYTES_MAX: usize = 64 << 10;
/// Milliseconds in which a client must take as many bytes as may wait for it. Otherwise its request
/// ends, because the others of its node wait.
pub const CLOUD_STREAM_SLOW_MS: u64 = 10_000;
/// Milliseconds until the first byte of an answer, except of a followed log, which has none until
/// its container writes: the agent answers within half of it.
pub const CLOUD_STREAM_ANSWER_MS: u64 = 60_000;
/// Milliseconds that a node has to confirm the end of a request.
pub const CLOUD_STREAM_REMOVE_MS: u64 = 5_000;
/// Bytes of one message to a node: small enough that requests take turns.
pub const CLOUD_STREAM_PIECE_BYTES: usize = 16 << 10;
/// Milliseconds between two reads of the cluster's CA for clients: an API server that has a new one
/// has both for a while.
pub const CLIENT_CA_CHECK_MS: u64 = 600_000;
/// Milliseconds before it is read again after a failure. Nobody is let in meanwhile.
pub const CLIENT_CA_RETRY_MS: u64 = 10_000;
/// Certificates between a client's own and its CA: clusters have one or none.
pub const CLIENT_CHAIN_MAX: usize = 4;
