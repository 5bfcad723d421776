//! Bounds of the cloud's side of the mind: when to dial and ask, and what is kept.

/// Milliseconds for a dial: name, TCP, TLS and the upgrade. Over a satellite or a crowded cell
/// these take several seconds; a link that comes back meanwhile waits as long.
pub const DIAL_MS: u64 = 15_000;
/// Milliseconds before the first dial after a loss; doubles with each.
pub const LINK_BACKOFF_MIN_MS: u64 = 1_000;
/// Milliseconds between dials at the most: half of it is the median wait for a cloud that is back.
pub const LINK_BACKOFF_MAX_MS: u64 = 15_000;
/// Milliseconds between dials at the most while each is refused at once: whoever refuses is there,
/// and may listen any moment. One packet each way; thousands of nodes spread theirs over half.
pub const LINK_REFUSED_MAX_MS: u64 = 2_000;
/// Milliseconds without a link after which refusals are waited for as anything else: by then it is
/// no restart, and a metered line pays for each packet.
pub const LINK_REFUSED_MS: u64 = 600_000;
/// Milliseconds after a loss, or a dial that failed, after which the next loss counts as a first
/// one: a link that broke this much later has held, for the waits before it are far shorter.
pub const LINK_CALM_MS: u64 = 60_000;
/// Milliseconds of silence after which we ask for a sign of life, and ask again.
pub const LINK_PING_MS: u64 = 15_000;
/// Milliseconds of silence after which the link is lost: two signs of life may get lost. The cloud
/// gives a node up after 40 s without a lease.
pub const LINK_SILENCE_MS: u64 = 40_000;
/// Milliseconds after which a link is left over which the cloud has said nothing, whatever it was
/// asked: dozens of questions by then. Slow clouds and those that have just started have answered
/// one of them, and dialling again is cheap at this pace.
pub const LINK_MUTE_MS: u64 = 300_000;
/// Messages handed to the link that have not left it: a few turns' worth; the rest waits where the
/// newer takes the place of the older.
pub const UNSENT_MAX: usize = 32;
/// Answers to the cloud that wait. It sends one message after another, so more is a flood.
pub const ANSWERS_MAX: usize = 256;
/// Questions to the cloud at once: one for each pod of a node, and some.
pub const ASKS_MAX: usize = 256;
/// Milliseconds before an object that the cloud did not give is asked for again.
pub const QUERY_RETRY_MS: u64 = 10_000;
/// Milliseconds that a pod which is being started is not told of: most run by then, and each report
/// costs the link the whole pod twice over.
pub const REPORT_GATHER_MS: u64 = 1_000;
/// Milliseconds before a report that was not taken is made again (the kubelet's).
pub const REPORT_RETRY_MS: u64 = 10_000;
/// Milliseconds before a mirror that the API server has not taken is offered again: it may be away
/// for a moment.
pub const MIRROR_POD_RETRY_MIN_MS: u64 = 10_000;
/// The longest: what it lacks, such as a namespace, people have to make.
pub const MIRROR_POD_RETRY_MAX_MS: u64 = 600_000;
/// Milliseconds after which a pod that the cloud said it would delete is told of as gone again.
pub const DELETE_AGAIN_MS: u64 = 60_000;
/// Milliseconds after which a pod that the API server did not have is asked for again. The cloud
/// compares what a node has each 5 s, so a deletion that it knows of has come long before; an API
/// server that is being restored, or a wrong one, has some time to be put right.
pub const GONE_AGAIN_MS: u64 = 600_000;
/// Seconds after which a token of a service account is replaced at the latest (the kubelet's).
pub const TOKEN_AGE_MAX_S: i64 = 86_400;
/// Milliseconds between two tokens for one use: half of the shortest life that an API server gives.
/// By a clock that is ahead by a life each new one is due at once.
pub const TOKEN_AGAIN_MS: u64 = 300_000;
/// Milliseconds for an application for a certificate: two requests over a slow link.
pub const ENROL_MS: u64 = 120_000;
/// Milliseconds before the second application where the first failed; doubles with each.
pub const ENROL_RETRY_MIN_MS: u64 = 2_000;
/// Milliseconds between applications at the most: somebody may just be making a new token.
pub const ENROL_RETRY_MAX_MS: u64 = 60_000;
/// Milliseconds before the next application where the last gave a certificate, which was refused as
/// well; doubles with each. Each writes a key and a certificate to flash, and another one like it
/// mends nothing; dials go on, and find out when somebody has.
pub const ENROL_REFUSED_MIN_MS: u64 = 60_000;
/// Milliseconds between such applications at the most.
pub const ENROL_REFUSED_MAX_MS: u64 = 3_600_000;
/// Milliseconds between two certificates: each costs the session, and a clock that is ahead by a
/// certificate's life finds each new one due for renewal.
pub const RENEW_AGAIN_MS: u64 = 3_600_000;

// What the cloud sent.

/// Objects that are kept: as many pods as a folder may hold, and what they use.
pub const META_ROWS_MAX: usize = 4_096;
/// Objects heard that are not durable yet. The cloud waits for one after another, so more come
/// only while nothing can be saved; what is beyond is sent again.
pub const META_WAITING_MAX: usize = 64;
/// Milliseconds before a save that failed is tried again; doubles with each.
pub const SAVE_RETRY_MIN_MS: u64 = 1_000;
/// Milliseconds between such tries at the most.
pub const SAVE_RETRY_MAX_MS: u64 = 60_000;
/// Deleted objects whose uids are remembered: far more than the cloud has on their way at once.
pub const TOMBSTONES_MAX: usize = 1_024;
/// Pods that a store which was lost does not know, and of which the cloud says that they are gone:
/// twice as many as a node runs.
pub const DOOMED_MAX: usize = 256;
/// Pods of one answer when the cloud lists all that it wants here: with their managedFields and in
/// base64 ten of them have some 200 KiB.
pub const RELIST_PAGE: u32 = 10;
/// Milliseconds before the list is asked for again where it did not come; doubles with each. Most
/// clouds that do not answer never will.
pub const RELIST_RETRY_MIN_MS: u64 = 30_000;
/// Milliseconds between such questions at the most.
pub const RELIST_RETRY_MAX_MS: u64 = 3_600_000;
/// Pods of one message of the minute's report to old clouds: some 100 KiB.
pub const METASYNC_PODS_MAX: usize = 32;
/// Bytes of a program whose signature is checked, in memory at once: many times the largest.
pub const RELEASE_BYTES_MAX: usize = 64 << 20;
/// Bytes of the file with the keys of releases: each has some 120.
pub const RELEASE_KEYS_BYTES_MAX: usize = 64 << 10;
