//! Limits of jobs for the node itself.

/// Milliseconds between two reports of a job: CloudCore handles each message in a goroutine of its
/// own, and the last one that it writes says how far the node is.
pub const NODE_JOB_REPORT_MS: u64 = 1_000;
/// Images of one pre-pull job: a rollout of some dozens of programs. Each may take minutes.
pub const NODE_JOB_IMAGES_MAX: usize = 64;
/// Bytes of one text in a job, and of one reason in a report: an image's name has 255 and a digest.
pub const NODE_JOB_TEXT_BYTES_MAX: usize = 1_024;
/// Bytes of the content of a report, for the controller: name and reason of each image, escaped.
pub const NODE_JOB_REPORT_BYTES_MAX: usize = 512 << 10;
/// Further tries for an image, whatever the job asks for: each has the runtime's own retries
/// inside.
pub const NODE_JOB_RETRIES_MAX: u32 = 10;
/// Milliseconds between two rounds over the images that failed (`EdgeCore`'s).
pub const NODE_JOB_RETRY_MS: u64 = 500;
/// Milliseconds until the node's budget of pulls is asked again: it grows by some a second.
pub const NODE_JOB_BUDGET_MS: u64 = 1_000;
/// Milliseconds that a job waits for its pull secret, which the cloud is asked for: some tries.
pub const NODE_JOB_SECRET_MS: u64 = 120_000;
/// Jobs that are kept, finished ones included: a rollout has one or two at a time.
pub const NODE_JOBS_MAX: usize = 8;
/// Bytes of a reason in a report that the node writes: the end of a chain of errors is cut.
pub const NODE_JOB_REASON_BYTES_MAX: usize = 512;
/// Milliseconds that the images of a job stay, used or not, and that an abandoned job stays: a
/// service window is mostly once a week.
pub const NODE_JOB_KEPT_MS: u64 = 8 * 24 * 3_600_000;
/// The usage above which a check of a job fails (`EdgeCore`'s), hundredths of a per cent.
pub const NODE_JOB_USAGE_MAX: u32 = 8_000;
/// Milliseconds over which the load of the processors is measured (`EdgeCore`'s).
pub const NODE_JOB_CPU_MS: u64 = 100;
/// Bytes of a layer of an image with a new edged, uncompressed: such an image has little else.
pub const UPGRADE_LAYER_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a file of `edged-run` that are read: a word, or a reason.
pub const UPGRADE_STATE_BYTES_MAX: u64 = 1_024;
/// The space for an upgrade in the slots' file system, in programs: the one that is taken out of
/// the image, and its copy in the slot.
pub const UPGRADE_SPACE_PROGRAMS: u64 = 2;
/// Milliseconds between two looks at a trial, which takes a minute at least.
pub const UPGRADE_LOOK_MS: u64 = 5_000;
/// Looks at a trial that may fail one after another.
pub const UPGRADE_LOOKS_MAX: u32 = 12;
/// Milliseconds for edged to end after its trial was begun, before it is told to end once more.
pub const UPGRADE_RESTART_MS: u64 = 60_000;
/// Further tries for the image of an upgrade: those of a pod are without end.
pub const UPGRADE_RETRIES: i32 = 2;
/// Repositories of images of edged in the configuration: a fleet has one, and another while it
/// moves.
pub const UPGRADE_REPOSITORIES_MAX: usize = 16;
