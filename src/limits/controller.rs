//! Limits of the controller's core: sessions, queues and requests.

/// Milliseconds without an acknowledgement after which a message is sent again (KubeEdge's).
pub const ACK_MS: u64 = 5_000;
/// Times that a message is sent before the next one is sent (KubeEdge's).
pub const ACK_TRIES: u32 = 5;
/// Milliseconds before a message that was never acknowledged is retried; doubles with each round.
pub const REFUSED_RETRY_MIN_MS: u64 = 30_000;
/// Milliseconds between such rounds at the most: each blocks the node's queue for 25 s.
pub const REFUSED_RETRY_MAX_MS: u64 = 600_000;
/// Unsent bytes to one node beyond which nothing is added: a slow node slows down itself and does
/// not use up the controller's memory. Some twenty pods; one message may be larger.
pub const EDGE_UNSENT_BYTES_MAX: usize = 64 << 10;
/// Answers to one node that wait for it to read them. The agent sends some 256 requests at once.
pub const EDGE_ANSWERS_MAX: usize = 512;
/// Bytes of these answers: beyond them the session ends, because the node sends requests and does
/// not read the answers.
pub const EDGE_ANSWERS_BYTES_MAX: usize = 4 << 20;
/// Requests of one node that wait for the API server; beyond them the next is refused.
pub const EDGE_REQUESTS_MAX: usize = 512;
/// Bytes of these requests.
pub const EDGE_REQUESTS_BYTES_MAX: usize = 4 << 20;
/// Requests of one node to the API server at once: no node may block the others.
pub const EDGE_CALLS_MAX: usize = 8;
/// Requests of all nodes to the API server at once.
pub const CALLS_MAX: usize = 256;
/// Objects that are fetched from the API server at once, beside these.
pub const FETCHES_MAX: usize = 32;
/// Milliseconds before an object is fetched again.
pub const FETCH_RETRY_MS: u64 = 5_000;
/// Refused messages of one session after which it ends: one about another node's object is a
/// mistake, a hundred are an attack or a bug that only a person can fix.
pub const EDGE_OFFENCES_MAX: u32 = 100;
/// Milliseconds before a node whose session ended so may connect again; doubles with each.
pub const EDGE_PENALTY_MIN_MS: u64 = 10_000;
/// Milliseconds of such a wait at the most: a repaired node must not wait for a person.
pub const EDGE_PENALTY_MAX_MS: u64 = 600_000;
/// Milliseconds after which the next such end counts as the first.
pub const EDGE_PENALTY_CALM_MS: u64 = 3_600_000;
/// Nodes that have such a wait; the one that is over first makes room.
pub const EDGE_PENALTIES_MAX: usize = 4_096;
/// Sessions of a node that replace each other before the next is refused: a link that breaks
/// unnoticed replaces one every few seconds.
pub const EDGE_REPLACED_MAX: u32 = 10;
/// How many of them are logged as a warning.
pub const EDGE_REPLACED_WARN: u32 = 5;
/// Milliseconds in which they are counted.
pub const EDGE_REPLACED_MS: u64 = 60_000;
/// Nodes with stored revocations: those that were deleted or got a token of their own, which only a
/// person does. Some hundred bytes each; the oldest is forgotten.
pub const IDENTITIES_MAX: usize = 65_536;
/// Nodes that are served in one step; the others in the next.
pub const NODES_PER_STEP: usize = 512;
/// Milliseconds in which every connected node is checked once (KubeEdge's).
pub const RECONCILE_MS: u64 = 5_000;
/// Milliseconds between two checks of some of the nodes.
pub const RECONCILE_SLICE_MS: u64 = 250;
/// Milliseconds that a node keeps an object that none of its pods uses any more: the next pod may
/// use it.
pub const UNUSED_MS: u64 = 600_000;
/// Rows in one save.
pub const SYNC_ROWS_MAX: usize = 8_192;
/// Milliseconds before a failed list or watch is begun again; doubles with each.
pub const WATCH_RETRY_MIN_MS: u64 = 500;
/// Milliseconds between such retries at the most.
pub const WATCH_RETRY_MAX_MS: u64 = 30_000;
/// Milliseconds that a watch must have held so that its end does not count as a failure.
pub const WATCH_CALM_MS: u64 = 10_000;
/// Objects that cannot be parsed and are logged, each once: there are few, or a whole release of
/// the API server is not understood.
pub const UNREAD_LOGGED_MAX: usize = 64;
/// Certificates that are signed at once; beyond them the next request is refused.
pub const SIGNATURES_MAX: usize = 64;
/// Objects that one node may claim to have although they are not known: as many as an agent stores.
/// It has to claim the others again after it has deleted these.
pub const NODE_ROWS_MAX: usize = 4_096;
/// ObjectSyncs that are written at once.
pub const SYNC_CALLS_MAX: usize = 64;
/// Milliseconds after which another replica may take over the Lease (client-go's).
pub const LEASE_MS: u64 = 15_000;
/// Milliseconds after the beginning of the last renewal for which a replica is the leader
/// (client-go's).
pub const LEASE_RENEW_MS: u64 = 10_000;
/// Milliseconds between renewals, and between reads of another's Lease (client-go's).
pub const LEASE_RETRY_MS: u64 = 2_000;
/// Milliseconds that a stopping replica takes to release the Lease.
pub const LEASE_RELEASE_MS: u64 = 2_000;
/// Milliseconds that a node without a Node object keeps its records: one that registers again takes
/// a few seconds, and does not get again what it has.
pub const GONE_NODE_MS: u64 = 30_000;
/// Records of earlier objects of one name that are remembered for a node, until they are known to
/// be deleted: a name is rarely reused while no controller runs.
pub const PREDECESSORS_MAX: usize = 8;
/// Records that were deleted here and whose deletion the watch has not shown yet: some 200 bytes
/// each, and a watch that works is a second behind.
pub const CLOSED_RECORDS_MAX: usize = 16_384;
/// Milliseconds before the ConfigMap `tunnelport` is read again after a failure.
pub const TUNNEL_PORT_RETRY_MS: u64 = 5_000;
/// Milliseconds between two reads of it: a person may have deleted it.
pub const TUNNEL_PORT_CHECK_MS: u64 = 300_000;
/// Nodes whose port is written at once: as many calls as there are connections to the API server.
pub const KUBELET_PORT_CALLS_MAX: usize = 16;
/// Milliseconds before the port of a node is written again after a failure.
pub const KUBELET_PORT_RETRY_MS: u64 = 5_000;
/// Addresses of a node by which requests for its usage may name it: a kubelet reports two to four.
pub const NODE_ADDRESSES_MAX: usize = 16;
/// Milliseconds before a kind is looked for again that the API server does not have: the CRDs of
/// devices are installed once, by a person who then waits.
pub const WATCH_UNSERVED_MS: u64 = 60_000;
/// Properties of a device whose values are recorded: with the longest names and values a status of
/// some 370 KiB, a quarter of what the API server stores.
pub const DEVICE_RECORDED_MAX: usize = 256;
/// Devices in a list that is sent to a node. A node with more gets none, because EdgeCore removes
/// those that are not in it.
pub const DEVICE_MEMBERS_MAX: usize = 4_096;
/// Messages of one node about devices that are done and not confirmed to it yet. Of more, the
/// oldest is sent again by the node.
pub const DEVICE_CONFIRMATIONS_MAX: usize = 1_024;
/// Messages about one device that wait to be recorded. Of more, the oldest is sent again by its
/// node.
pub const DEVICE_WAITING_MAX: usize = 256;
/// Milliseconds between two writes of what is reported of one device.
pub const DEVICE_WRITE_MS: u64 = 1_000;
/// Milliseconds before a write that failed is tried again; doubles with each.
pub const DEVICE_RETRY_MIN_MS: u64 = 1_000;
/// Milliseconds between such tries at the most.
pub const DEVICE_RETRY_MAX_MS: u64 = 60_000;
/// Calls about statuses of devices at once: an eighth of all that nodes may have.
pub const DEVICE_CALLS_MAX: usize = 32;
/// Statuses of devices in memory, some kilobytes each. Those that nothing waits for make room, and
/// are read again.
pub const DEVICE_STATUSES_MAX: usize = 50_000;
/// Milliseconds before the kind of statuses is looked for again that the API server does not have,
/// or does not show to us: a person installs it, or grants it.
pub const DEVICE_KIND_MS: u64 = 300_000;
/// Milliseconds before it is looked for again after a failure.
pub const DEVICE_KIND_RETRY_MS: u64 = 5_000;
