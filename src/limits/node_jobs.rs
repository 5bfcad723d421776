//! Limits of jobs for the node itself.

/// Images of one pre-pull job: a rollout of some dozens of programs. Each may take minutes.
pub const NODE_JOB_IMAGES_MAX: usize = 64;
/// Bytes of one text in a job, and of one reason in a report: an image's name has 255 and a digest.
pub const NODE_JOB_TEXT_BYTES_MAX: usize = 1_024;
/// Bytes of the content of a report, for the controller: name and reason of each image, escaped.
pub const NODE_JOB_REPORT_BYTES_MAX: usize = 512 << 10;
