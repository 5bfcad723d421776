//! Limits of edgecontroller's router: rules, what clients, nodes and REST endpoints may hold of
//! it, and its waits.

/// Rules, and as many endpoints of them: a rule for each node of a large fleet. Each costs some
/// kilobytes.
pub const ROUTER_RULES_MAX: usize = 4_096;
/// Rules with one node as their source: twice as many as edged keeps.
pub const ROUTER_NODE_RULES_MAX: usize = 128;
/// What nodes were told of rules and has not been undone: some 100 bytes each, in memory and on
/// the disk. Beyond it a node that is away keeps what it was told.
pub const ROUTER_ROWS_MAX: usize = 65_536;
/// Milliseconds that a session must go on after a node was told that a rule is gone, until that
/// counts as done: nodes do not acknowledge it, and a dead link is noticed within this time.
pub const ROUTER_UNDO_MS: u64 = 60_000;
/// Elements of a rule's path.
pub const ROUTER_PATH_ELEMENTS_MAX: usize = 32;
/// Requests of clients that wait for a node's answer: as many as there are connections.
pub const ROUTER_REQUESTS_MAX: usize = ROUTER_CONNECTIONS_MAX;
/// Milliseconds until a client gets 504 (CloudCore's `restTimeout`): edged's own calls end after
/// ten seconds.
pub const ROUTER_ANSWER_MS: u64 = 60_000;
/// Bytes of the body of a client's request (CloudCore's).
pub const ROUTER_BODY_BYTES_MAX: usize = 12 << 20;
/// Bytes of the bodies of all requests of clients at once: four of the largest.
pub const ROUTER_BODIES_BYTES_MAX: usize = 48 << 20;
/// Bytes of a message to a node with such a body as base64, and what waits for one node of such
/// messages.
pub const ROUTER_MESSAGE_BYTES_MAX: usize = 17 << 20;
/// Such messages that wait for one node.
pub const ROUTER_NODE_MESSAGES_MAX: usize = 64;
/// Header fields of a service's answer that are passed on.
pub const ROUTER_HEADERS_MAX: usize = 128;
/// Uploads of one rule that wait for its REST endpoint; the oldest is dropped.
pub const ROUTER_QUEUE_MAX: usize = 256;
/// Bytes of these uploads: the largest message of a node fits.
pub const ROUTER_QUEUE_BYTES_MAX: usize = 5 << 20;
/// Bytes of the uploads of all rules; beyond them an upload is dropped.
pub const ROUTER_QUEUES_BYTES_MAX: usize = 64 << 20;
/// Requests to REST endpoints at once: each is a connection.
pub const ROUTER_POSTS_MAX: usize = 32;
/// Of these, for one rule whose source is servicebus: as many as edged has requests at once. A rule
/// whose source is eventbus has one, so that its messages stay in order.
pub const ROUTER_RULE_POSTS_MAX: usize = 4;
/// Milliseconds for a request to a REST endpoint, the look-up of its name included.
pub const ROUTER_POST_MS: u64 = 30_000;
/// Milliseconds that an application on a node waits for its answer (EdgeCore's and edged's
/// default): later nobody wants it.
pub const ROUTER_UPLOAD_MS: u64 = 60_000;
/// Bytes of the body of a REST endpoint's answer (CloudCore's).
pub const ROUTER_POST_BYTES_MAX: usize = 1 << 20;
/// Errors in a rule's status: the last ones.
pub const ROUTER_ERRORS_MAX: usize = 4;
/// Characters of one of them.
pub const ROUTER_ERROR_CHARS_MAX: usize = 256;
/// Milliseconds between two writes of a rule's status.
pub const ROUTER_STATUS_MS: u64 = 5_000;
/// Writes of statuses at once.
pub const ROUTER_STATUS_CALLS_MAX: usize = 8;
/// Milliseconds before a write that failed is tried again; doubles with each, up to the next.
pub const ROUTER_STATUS_RETRY_MIN_MS: u64 = 5_000;
/// Milliseconds between such tries at the most.
pub const ROUTER_STATUS_RETRY_MAX_MS: u64 = 300_000;

/// Connections of clients at once.
pub const ROUTER_CONNECTIONS_MAX: usize = 128;
/// Milliseconds from a connection to the head of its request.
pub const ROUTER_HEAD_MS: u64 = 10_000;
/// Milliseconds after which a connection without a head makes room for the next one.
pub const ROUTER_STRANGER_MS: u64 = 2_000;
/// Milliseconds for the body of a request, and for its client to read the answer: 12 MiB at some
/// 2 Mbit/s.
pub const ROUTER_CLIENT_MS: u64 = 60_000;
/// Bytes that one connection moves in a turn.
pub const ROUTER_TURN_BYTES: usize = 256 << 10;
/// Milliseconds for which the addresses of a REST endpoint's name are used.
pub const ROUTER_NAME_MS: u64 = 60_000;
