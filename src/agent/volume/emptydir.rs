//! `emptyDir`: a directory of the pod, on the disk or in memory.

use super::Context;
use crate::agent::pod::memory_limit;
use crate::model::job::{Medium, Source};
use crate::model::pod::Volume;
use crate::model::quantity::Quantity;

#[expect(clippy::unnecessary_wraps, reason = "other kinds fail")]
pub(super) fn source(volume: &Volume, context: Context<'_>) -> Result<Source, String> {
    let of = volume.empty_dir.clone().unwrap_or_default();
    if of.medium != "Memory" {
        // Eviction checks its size; the file system does not limit it.
        return Ok(Source::EmptyDir(Medium::Disk));
    }
    // The smallest of all limits; the kernel's default would be half of the machine's memory.
    let limit = of.size_limit.as_ref().map(Quantity::whole).filter(|&bytes| bytes > 0);
    Ok(Source::EmptyDir(Medium::Memory { size_bytes: memory_bytes(limit, context) }))
}

/// The size of a file system in memory: no more than the machine's memory, the pod's limit and
/// `limit`.
pub(super) fn memory_bytes(limit: Option<i64>, context: Context<'_>) -> u64 {
    let of_pod = Some(memory_limit(&context.pod.spec)).filter(|&bytes| bytes > 0);
    let bounds = [limit, of_pod].into_iter().flatten().map(i64::unsigned_abs);
    bounds.fold(context.config.machine.memory_bytes, u64::min)
}
