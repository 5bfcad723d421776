//! How much of the node is in use, for the check of a job of the cloud.

use std::fs;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::sys::statvfs::{Statvfs, fstatvfs, statvfs};

use crate::io::usage;
use crate::limits::NODE_JOB_CPU_MS;
use crate::model::job::NodeUsage;

/// Measures it; `pods` is the folder of the pods. Blocks on a file system whose server is gone: for
/// a child.
pub(super) fn measure(pods: BorrowedFd<'_>, image_fs: Option<&str>) -> NodeUsage {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let before = text("/proc/stat");
    #[expect(clippy::disallowed_methods, reason = "in a child, which does nothing else")]
    std::thread::sleep(Duration::from_millis(NODE_JOB_CPU_MS));
    let memory = usage::memory(&text("/proc/meminfo"))
        .and_then(|memory| share(memory.capacity - memory.available, memory.capacity));
    let of_pods = fstatvfs(pods).ok().and_then(|it| disk(&it));
    let of_images = image_fs.and_then(|path| statvfs(path).ok()).and_then(|it| disk(&it));
    NodeUsage { cpu: cpu(&before, &text("/proc/stat")), memory, disk: of_pods.max(of_images) }
}

/// Hundredths of a per cent.
fn share(used: u64, all: u64) -> Option<u32> {
    let hundredths = u128::from(used) * 10_000 / u128::from(Some(all).filter(|all| *all > 0)?);
    u32::try_from(hundredths).ok()
}

/// As `df` counts it: what only root may use is neither used nor free.
#[allow(clippy::unnecessary_cast, reason = "these have 32 bits on some machines, 64 on others")]
fn disk(has: &Statvfs) -> Option<u32> {
    let used = (has.blocks() as u64).saturating_sub(has.blocks_free() as u64);
    share(used, used + has.blocks_available() as u64)
}

/// Between two readings of `/proc/stat`: all time of all processors but idle and waiting for disks.
fn cpu(before: &str, after: &str) -> Option<u32> {
    let times = |stat: &str| {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        // user nice system idle iowait irq softirq steal; guests are counted in user.
        let all: Vec<u64> =
            line.split_whitespace().take(8).map(|it| it.parse().ok()).collect::<Option<_>>()?;
        let idle = all.get(3)? + all.get(4).unwrap_or(&0);
        Some((all.iter().sum::<u64>(), idle))
    };
    let ((all, idle), (all_then, idle_then)) = (times(after)?, times(before)?);
    let (all, idle) = (all.saturating_sub(all_then), idle.saturating_sub(idle_then));
    // So short that no tick fell into it: it has not worked.
    if all == 0 { Some(0) } else { share(all.saturating_sub(idle), all) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_load_is_what_was_not_idle() {
        let stat = |user: u32, idle: u32| format!("cpu  {user} 0 0 {idle} 0 0 0 0 9 9\ncpu0 1\n");
        assert_eq!(cpu(&stat(100, 100), &stat(175, 125)), Some(7_500));
        assert_eq!(cpu(&stat(100, 100), &stat(100, 101)), Some(0));
        assert_eq!(cpu(&stat(100, 100), &stat(100, 100)), Some(0), "less than a tick");
        assert_eq!(cpu(&stat(100, 100), ""), None);
        assert_eq!(cpu("cpu  x\n", "cpu  y\n"), None);
    }

    #[test]
    fn this_machine_has_a_usage_which_takes_a_moment() {
        let root = fs::File::open("/").expect("a folder");
        let began = crate::io::clock::boot();
        let NodeUsage { cpu, memory, disk } = measure(root.as_fd(), Some("/"));
        assert!(crate::io::clock::boot().since_ms(began) >= NODE_JOB_CPU_MS);
        for used in [cpu, memory, disk] {
            assert!(used.is_some_and(|used| used <= 10_000), "{used:?}");
        }
    }
}
