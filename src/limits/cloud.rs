//! Limits of the agent's cloud side: timeouts, retries and queues.

/// Milliseconds for a dial: name, TCP, TLS and the upgrade. Over a satellite or a crowded cell
/// these take several seconds; a link that comes back meanwhile waits as long.
pub const DIAL_MS: u64 = 15_000;
/// Milliseconds before the first dial after a loss; doubles with each.
pub const LINK_BACKOFF_MIN_MS: u64 = 1_000;
/// Milliseconds between dials at the most: half of it is the median wait for a cloud that is back.
pub const LINK_BACKOFF_MAX_MS: u64 = 15_000;
/// Milliseconds between dials at the most while each is refused at once: the machine is there, and
/// may listen any moment. One packet each way; thousands of nodes spread theirs over half.
pub const LINK_REFUSED_MAX_MS: u64 = 2_000;
/// Milliseconds without a link after which refused dials are retried like any others: by then it is
/// no restart, and a metered line pays for each packet.
pub const LINK_REFUSED_MS: u64 = 600_000;
/// Milliseconds after a loss, or a dial that failed, after which the next loss counts as the first
/// one: a link that broke this much later has held, because the waits before it are far shorter.
pub const LINK_CALM_MS: u64 = 60_000;
/// Milliseconds of silence after which a ping is sent, and sent again.
pub const LINK_PING_MS: u64 = 15_000;
/// Milliseconds of silence after which the link is lost: two pings may get lost. The cloud declares
/// a node lost after 40 s without a lease.
pub const LINK_SILENCE_MS: u64 = 40_000;
/// Milliseconds after which a link is closed over which the cloud has sent no message, whatever it
/// was asked: dozens of requests by then. Slow clouds and those that have just started have
/// answered one of them, and dialling again is cheap at this pace.
pub const LINK_MUTE_MS: u64 = 300_000;
/// Messages handed to the link that have not left it: a few turns' worth; other reports wait where
/// a newer one replaces an older one.
pub const UNSENT_MAX: usize = 32;
/// Answers to the cloud that wait. It sends one message after another, so more is a flood.
pub const ANSWERS_MAX: usize = 256;
/// Open requests to the cloud: one for each pod of a node, and some more.
pub const REQUESTS_MAX: usize = 256;
/// Milliseconds before the cloud is told again of watches that it has refused, or not answered.
#[cfg(any(feature = "metaserver", feature = "services"))]
pub const WATCHES_RETRY_MS: u64 = 300_000;
/// Milliseconds before an object that the cloud did not send is requested again.
pub const QUERY_RETRY_MS: u64 = 10_000;
/// Milliseconds that the report of a starting pod is delayed: most run by then, and each report
/// costs the link the whole pod twice.
pub const REPORT_GATHER_MS: u64 = 1_000;
/// Milliseconds before a report that was refused is repeated (the kubelet's).
pub const REPORT_RETRY_MS: u64 = 10_000;
/// Milliseconds before a mirror that the API server has refused is sent again: the API server may
/// be away for a moment.
pub const MIRROR_POD_RETRY_MIN_MS: u64 = 10_000;
/// The longest such wait: what is missing, such as a namespace, has to be created by a user.
pub const MIRROR_POD_RETRY_MAX_MS: u64 = 600_000;
/// Milliseconds after which the deletion of a pod that the cloud has confirmed is requested again.
pub const DELETE_RETRY_MS: u64 = 60_000;
/// Milliseconds after which a pod that the API server did not have is reported again. The cloud
/// compares what a node has each 5 s, so a deletion that it knows of has come long before; an API
/// server that is being restored, or a wrong one, has some time to be repaired.
pub const MISSING_POD_RETRY_MS: u64 = 600_000;
/// Seconds after which a service account token is replaced at the latest (the kubelet's).
pub const TOKEN_AGE_MAX_S: i64 = 86_400;
/// Milliseconds between two tokens for one use: half of the shortest life that an API server gives.
/// With a clock that is ahead by a life, each new one is due at once.
pub const TOKEN_AGAIN_MS: u64 = 300_000;
/// Milliseconds for a certificate request: two HTTP requests over a slow link.
pub const ENROL_MS: u64 = 120_000;
/// Milliseconds before the second certificate request if the first failed; doubles with each.
pub const ENROL_RETRY_MIN_MS: u64 = 2_000;
/// Milliseconds between certificate requests at the most: a user may just be creating a new token.
pub const ENROL_RETRY_MAX_MS: u64 = 60_000;
/// Milliseconds before the next certificate request if the last one gave a certificate that was
/// refused as well; doubles with each. Each writes a key and a certificate to flash, and another
/// one like it does not help; dials go on, and notice when the cloud is repaired.
pub const ENROL_REFUSED_MIN_MS: u64 = 60_000;
/// Milliseconds between such requests at the most.
pub const ENROL_REFUSED_MAX_MS: u64 = 3_600_000;
/// Milliseconds between two certificates: each costs the session, and with a clock that is ahead by
/// a certificate's life each new one would be due for renewal.
pub const RENEW_AGAIN_MS: u64 = 3_600_000;

// What the cloud sent.

/// Stored objects: as many pods as a folder may hold, and the objects that they use.
pub const META_ROWS_MAX: usize = 4_096;
/// Received changes that are not durable yet. The cloud waits for one after another, so more come
/// only while nothing can be saved; the cloud sends again what is beyond.
pub const META_WAITING_MAX: usize = 64;
/// Milliseconds before a failed save is retried; doubles with each.
pub const SAVE_RETRY_MIN_MS: u64 = 1_000;
/// Milliseconds between such retries at the most.
pub const SAVE_RETRY_MAX_MS: u64 = 60_000;
/// Deleted objects whose uids are remembered: far more than the cloud has in flight at once.
pub const TOMBSTONES_MAX: usize = 1_024;
/// Deleted pods that a lost store does not know: twice as many as a node runs.
pub const UNSAVED_TOMBSTONES_MAX: usize = 256;
/// Pods in one page of the cloud's list: with their managedFields and in base64 ten of them have
/// some 200 KiB.
pub const RELIST_PAGE: u32 = 10;
/// Milliseconds before the list is requested again if it did not come; doubles with each. Most
/// clouds that do not answer never will.
pub const RELIST_RETRY_MIN_MS: u64 = 30_000;
/// Milliseconds between such requests at the most.
pub const RELIST_RETRY_MAX_MS: u64 = 3_600_000;
/// Pods in one message of the periodic report to old clouds: some 100 KiB.
pub const METASYNC_PODS_MAX: usize = 32;
/// Bytes of a program whose signature is checked, in memory at once: many times the largest.
pub const RELEASE_BYTES_MAX: usize = 64 << 20;
/// Bytes of the file with the keys of releases: each has some 120.
pub const RELEASE_KEYS_BYTES_MAX: usize = 64 << 10;

/// Rules of the cloud's router that name an entry on this node, of each kind: one row each.
#[cfg(any(feature = "devices", feature = "servicebus"))]
pub const RULE_ROWS_MAX: usize = 256;
/// Bytes of the URL or the topic of such a rule.
#[cfg(any(feature = "devices", feature = "servicebus"))]
pub const RULE_ROW_BYTES_MAX: usize = 2_048;
