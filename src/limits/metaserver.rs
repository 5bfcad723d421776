//! Limits of MetaServer: its clients, the objects that it keeps, and its waits.

/// Connections of clients at once: an agent of a mesh and some programs have a few watches each. A
/// connection that waits takes some 300 bytes here.
pub const METASERVER_CLIENTS_MAX: usize = 128;
/// Of these, how many are kept for loopback whatever pods do, and as many for pods.
pub const METASERVER_SIDE_MIN: usize = 32;
/// Of these, how many one address of a pod may have: the informers of a large agent, and room.
pub const METASERVER_ADDRESS_MAX: usize = 32;
/// Pods of one request for a restart: more than a gateway has of one namespace.
pub const METASERVER_RESTARTS_MAX: usize = 64;
/// Bytes of a log whose client gets it as one JSON text: `keadm ctl` keeps all of it in memory, on
/// the gateway. More than the log of a container has before it is rotated.
pub const METASERVER_LOG_BYTES_MAX: u64 = 16 << 20;
/// Connections that are accepted in one turn.
pub const METASERVER_TURN_ACCEPTS: usize = 16;
/// Bytes of a request's body: what etcd takes for one object, with room for its patch.
pub const METASERVER_BODY_BYTES_MAX: usize = 2 << 20;
/// Bytes of requests that are still arriving, of all clients together.
pub const METASERVER_READING_BYTES_MAX: usize = 4 << 20;
/// Milliseconds until a request must have arrived.
pub const METASERVER_REQUEST_MS: u64 = 10_000;
/// Milliseconds in which a client that has something to read reads none of it; then it is
/// disconnected.
pub const METASERVER_STALL_MS: u64 = 30_000;
/// Objects and events that wait for one client; one that falls further behind is disconnected, and
/// lists again. All objects that are kept fit in, with as many events again.
pub const METASERVER_QUEUE_MAX: usize = 2 * METASERVER_OBJECTS_MAX;
/// The same of all clients together: each takes 24 bytes, and shares the object.
pub const METASERVER_QUEUES_MAX: usize = 128 << 10;
/// Bytes that are written to one client in one turn, and of its buffer unless one object is larger.
pub const METASERVER_TURN_BYTES: usize = 32 << 10;

/// Objects that are kept: those of the scopes that are watched, and those of lists for a while.
pub const METASERVER_OBJECTS_MAX: usize = 4_096;
/// Bytes of their texts, on a gateway with memory to spare; a third of what the objects of the
/// cloud may take on a smaller one.
pub const METASERVER_OBJECT_BYTES_MAX: usize = 4 << 20;
/// Selections of objects that are tracked: each is a watch of the cloud while it is watched.
pub const METASERVER_SCOPES_MAX: usize = 64;
/// Deletions that are remembered for watches that go on from an older version, for each resource;
/// one that needs an older one gets 410 Gone.
pub const METASERVER_WINDOW: usize = 256;
/// Objects in one page of a list of the cloud: of 3 KiB each, in base64, 200 KiB.
pub const METASERVER_LIST_PAGE: u32 = 50;
/// Pages of one list: more objects than are kept.
pub const METASERVER_LIST_PAGES_MAX: usize = METASERVER_OBJECTS_MAX / 50 + 2;

/// Milliseconds that the cloud may take for an answer (EdgeCore's).
pub const METASERVER_ANSWER_MS: u64 = 10_000;
/// Milliseconds before a cloud that did not answer is asked again, or a refused watch is tried
/// again: most clouds that have no dynamic controller never will.
pub const METASERVER_RETRY_MS: u64 = 300_000;
/// Milliseconds that a selection is tracked after its last watch or list: a client that lists is
/// about to watch, and one that watches comes back when its watch has ended.
pub const METASERVER_GRACE_MS: u64 = 60_000;
/// Milliseconds between two bookmarks (the API server's).
pub const METASERVER_BOOKMARK_MS: u64 = 55_000;
/// Milliseconds that a watch lasts at least if its client names no time, and at most: between the
/// two, by chance (the API server's).
pub const METASERVER_WATCH_MS: (u64, u64) = (1_800_000, 3_600_000);
/// Seconds that a client may ask a watch to last.
pub const METASERVER_WATCH_S_MAX: u32 = 86_400;
/// Milliseconds between two saves of rows: what changes each second is written once a minute, and
/// what a power cut loses of it is listed again. A row costs 4 to 30 KiB of flash.
pub const METASERVER_SAVE_MS: u64 = 60_000;
/// Milliseconds before the first save after a change.
pub const METASERVER_SAVE_SOON_MS: u64 = 5_000;
/// Requests to the cloud that may wait for an answer at once, of the sixty-odd of the node.
pub const METASERVER_REQUESTS_MAX: usize = 8;
/// Rows in one save: a commit of some hundred kilobytes.
pub const METASERVER_SAVE_ROWS_MAX: usize = 128;
/// Bytes of a token that a client shows: with the names of all objects at their longest, 3 KiB.
pub const JWT_BYTES_MAX: usize = 8 << 10;
/// Seconds by which the clocks of the cloud and of the node may differ (the API server's).
pub const JWT_LEEWAY_S: i64 = 60;
/// Tokens before the current one that are remembered for each token of a pod: each was used for
/// four fifths of its life, so one of them is valid, unless the API server extends their lives.
pub const TOKENS_REPLACED_MAX: usize = 8;
/// Public keys that sign tokens: an API server has one or two, and while they are changed, four.
pub const JWT_KEYS_MAX: usize = 16;
/// Milliseconds after which the link for pods is looked at: somebody may have removed it by hand.
pub const METASERVER_LINK_MS: u64 = 60_000;
/// Resources that are served, with those of the configuration.
pub const METASERVER_RESOURCES_MAX: usize = 64;
