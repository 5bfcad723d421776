//! Bounds of the cloud's side: sessions, queues and questions.

/// Milliseconds without an acknowledgement after which a message is sent again (KubeEdge's).
pub const ACK_MS: u64 = 5_000;
/// Times that a message is sent before the next one has its turn (KubeEdge's).
pub const ACK_TRIES: u32 = 5;
/// Milliseconds before what was never acknowledged is tried again; doubles with each round.
pub const REFUSED_RETRY_MIN_MS: u64 = 30_000;
/// Milliseconds between such rounds at the most: each stops the node's queue for 25 s.
pub const REFUSED_RETRY_MAX_MS: u64 = 600_000;
/// Bytes on their way to one node beyond which nothing is added: a slow node holds back itself, not
/// the controller's memory. Some twenty pods; one message may be larger.
pub const EDGE_UNSENT_BYTES_MAX: usize = 64 << 10;
/// Answers to one node that wait for it to take them. The agent asks some 256 at once.
pub const EDGE_ANSWERS_MAX: usize = 512;
/// Bytes of these answers: beyond them the node is given up, since it asks and does not read.
pub const EDGE_ANSWERS_BYTES_MAX: usize = 4 << 20;
/// Questions of one node that wait for the API server; beyond them the next is refused.
pub const EDGE_ASKS_MAX: usize = 512;
/// Bytes of these questions.
pub const EDGE_ASKS_BYTES_MAX: usize = 4 << 20;
/// Questions of one node that the API server is asked at once: none may keep it for itself.
pub const EDGE_CALLS_MAX: usize = 8;
/// Questions of all nodes that the API server is asked at once.
pub const CALLS_MAX: usize = 256;
/// Objects that are fetched from the API server at once, beside these.
pub const FETCHES_MAX: usize = 32;
/// Milliseconds before an object is fetched again.
pub const FETCH_RETRY_MS: u64 = 5_000;
/// Refused messages of one session after which it ends: one of another node's objects is a mistake,
/// a hundred are an attack or a bug that only a person can end.
pub const EDGE_OFFENCES_MAX: u32 = 100;
/// Milliseconds before a node whose session ended so gets the next; doubles with each.
pub const EDGE_PENALTY_MIN_MS: u64 = 10_000;
/// Milliseconds of such a wait at the most: a mended node is not to wait for a person.
pub const EDGE_PENALTY_MAX_MS: u64 = 600_000;
/// Milliseconds after which the next such end counts as the first.
pub const EDGE_PENALTY_CALM_MS: u64 = 3_600_000;
/// Nodes that have such a wait; the one that is over first makes room.
pub const EDGE_PENALTIES_MAX: usize = 4_096;
/// Sessions of a node that are replaced, one by the next, before the next is refused: a link that
/// breaks unnoticed replaces one every few seconds.
pub const EDGE_REPLACED_MAX: u32 = 10;
/// How many of them it takes to tell a person.
pub const EDGE_REPLACED_TOLD: u32 = 5;
/// Milliseconds in which they are counted.
pub const EDGE_REPLACED_MS: u64 = 60_000;
/// Nodes of which it is kept that certificates are revoked: those that were deleted or got a token
/// of their own, which only a person does. Some hundred bytes each; the oldest is forgotten.
pub const IDENTITIES_MAX: usize = 65_536;
/// Nodes that are served in one step; the others have the next.
pub const NODES_PER_STEP: usize = 512;
/// Milliseconds in which every connected node is looked at once (KubeEdge's).
pub const RECONCILE_MS: u64 = 5_000;
/// Milliseconds between two looks at some of the nodes.
pub const RECONCILE_SLICE_MS: u64 = 250;
/// Milliseconds that a node keeps what none of its pods uses any more: the next pod may.
pub const UNUSED_MS: u64 = 600_000;
/// Rows in one save.
pub const SYNC_ROWS_MAX: usize = 8_192;
/// Milliseconds before a list or watch that failed is begun again; doubles with each.
pub const WATCH_RETRY_MIN_MS: u64 = 500;
/// Milliseconds between such beginnings at the most.
pub const WATCH_RETRY_MAX_MS: u64 = 30_000;
/// Milliseconds that a watch must have held for its end to be none of the server's trouble.
pub const WATCH_CALM_MS: u64 = 10_000;
/// Objects that cannot be read and are told of, each once: there are few, or a whole release of the
/// API server is not understood.
pub const UNREAD_TOLD_MAX: usize = 64;
/// Applications for certificates that are signed at once; beyond them the next is to come again.
pub const SIGNS_MAX: usize = 64;
/// Objects that one node may be said to have without that we know of them: as many as an agent
/// keeps. What is beyond it is to say again when it is rid of the others.
pub const NODE_ROWS_MAX: usize = 4_096;
/// Records that are written into objects of the API server at once.
pub const SYNC_CALLS_MAX: usize = 64;
/// Milliseconds after which another replica may take the Lease over (client-go's).
pub const LEASE_MS: u64 = 15_000;
/// Milliseconds after the beginning of the last renewal for which a replica leads (client-go's).
pub const LEASE_RENEW_MS: u64 = 10_000;
/// Milliseconds between renewals, and between looks at another's Lease (client-go's).
pub const LEASE_RETRY_MS: u64 = 2_000;
/// Milliseconds that a replica which stops takes to give the Lease back.
pub const LEASE_RELEASE_MS: u64 = 2_000;
/// Milliseconds that a node without a Node keeps its records: one that registers anew takes a few
/// seconds, and is not sent again what it has.
pub const GONE_NODE_MS: u64 = 30_000;
/// Records of earlier objects of one name that are remembered of a node, until it is known that
/// they are gone: a name is rarely given twice while no controller runs.
pub const PREDECESSORS_MAX: usize = 8;
