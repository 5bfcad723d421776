//! Limits of the cloud's side of jobs for nodes: their number, how long a node may take, and how
//! often a status is written.

/// Jobs in memory, finished ones included, which make room: each has up to 1 MiB of status.
pub const CONTROLLER_JOBS_MAX: usize = 512;
/// Nodes of one job: with what each reports, a status of a megabyte, of which etcd stores 1.5.
pub const JOB_NODES_MAX: usize = 1_000;
/// Bytes of a job's list of nodes in its status. What is beyond is left out: first the results of
/// single images.
pub const JOB_STATUS_BYTES_MAX: usize = 1 << 20;
/// Characters of a reason in a status: the first line of an error, and where it comes from.
pub const JOB_REASON_CHARS_MAX: usize = 256;
/// Seconds that a node may take for an action, where the job says nothing: an image of 300 MB takes
/// 40 minutes on a link of 1 Mbit/s. KubeEdge then waits for ever.
pub const JOB_TIMEOUT_S: u64 = 3_600;
/// The same where somebody at the node has to confirm: they come on the next working day, at the
/// latest after a weekend.
pub const JOB_CONFIRM_S: u64 = 3 * 86_400;
/// Milliseconds between two writes of a job's status, and for each [`JOB_WRITE_BYTES`] of the
/// first.
pub const JOB_WRITE_MS: u64 = 1_000;
/// Bytes of a status that are written in a second: it goes to every replica and to the disk.
pub const JOB_WRITE_BYTES: usize = 48 << 10;
/// Milliseconds between two looks at the time-outs of a job, and at which of its nodes are there
/// (KubeEdge's).
pub const JOB_CHECK_MS: u64 = 10_000;
/// Milliseconds before a write that failed is tried again; doubles with each.
pub const JOB_RETRY_MIN_MS: u64 = 1_000;
/// Milliseconds between such tries at the most.
pub const JOB_RETRY_MAX_MS: u64 = 60_000;
/// Writes of statuses at once: few jobs run at a time.
pub const JOB_CALLS_MAX: usize = 8;
/// Jobs that are looked at in one step, of 1,000 nodes each: a few milliseconds.
pub const JOBS_PER_STEP: usize = 16;
/// Milliseconds after the start in which nodes connect again: a job that was made while no
/// controller ran does not take them for lost.
pub const JOB_SETTLE_MS: u64 = 60_000;
/// Finished jobs that commands have made and that are kept for people, in a folder's controller.
pub const JOBS_KEPT_MAX: usize = 100;
