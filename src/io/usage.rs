//! Measures the machine's free resources: memory, processes, file systems. Quick reads; only the
//! kind of a path's file system is remembered.
//!
//! A network file system is not measured, because `statvfs` of one whose server is gone never
//! returns, and the whole agent would block. `io::mounts` finds the kind of a path's file system,
//! and is called again every few minutes.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::stat::stat;
use nix::sys::statvfs::statvfs;

use super::mounts;
use crate::agent::time::Instant;
use crate::limits::MOUNTS_VALID_MS;
use crate::model::cgroup::Hierarchy;
use crate::model::housekeeping::{Amount, MeasureRequest, Measures, Room};
use crate::model::map::Map;

#[derive(Debug)]
pub struct Meter {
    /// The root directory of the pods: `/var/lib/kubelet`.
    root: PathBuf,
    /// The mount point of the memory cgroups, and their version.
    cgroups: (PathBuf, Hierarchy),
    /// Whether a path may be measured, and until when that is valid.
    measurable: Map<PathBuf, (Instant, bool)>,
}

impl Meter {
    pub fn new(root: PathBuf, cgroups: &Path, hierarchy: Hierarchy) -> Self {
        let memory = match hierarchy {
            Hierarchy::V1 => cgroups.join("memory"),
            Hierarchy::None | Hierarchy::V2 => cgroups.to_owned(),
        };
        Self { root, cgroups: (memory, hierarchy), measurable: Map::new() }
    }

    pub fn read(&mut self, now: Instant, request: &MeasureRequest) -> Measures {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        // The folder is made later: until then its parent's file system is measured.
        let root = self.root.clone();
        let there = root.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
        let image_fs = request.image_fs.as_deref().map(Path::new);
        Measures {
            memory: memory(&text("/proc/meminfo")),
            pods_memory: request.pods_cgroup.as_deref().and_then(|path| self.working_set(path)),
            pids: request
                .pids
                .then(|| {
                    let bounds =
                        [text("/proc/sys/kernel/pid_max"), text("/proc/sys/kernel/threads-max")];
                    pids(&bounds, &text("/proc/loadavg"))
                })
                .flatten(),
            node_fs: self.room(now, there),
            image_fs: image_fs.and_then(|path| self.room(now, path)),
            ..Measures::default()
        }
    }

    /// Of a cgroup: the memory in use without the inactive pages of files.
    fn working_set(&self, path: &str) -> Option<u64> {
        let (top, hierarchy) = &self.cgroups;
        let (usage, inactive) = match hierarchy {
            Hierarchy::None => return None,
            Hierarchy::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
            Hierarchy::V2 => ("memory.current", "inactive_file"),
        };
        let dir = top.join(path.trim_start_matches('/'));
        let text = |file: &str| fs::read_to_string(dir.join(file)).ok();
        let used: u64 = text(usage)?.trim().parse().ok()?;
        Some(used.saturating_sub(entry(&text("memory.stat")?, inactive)?))
    }

    fn room(&mut self, now: Instant, path: &Path) -> Option<Room> {
        let known = self.measurable.get(path).filter(|(until, _)| *until > now);
        let may_measure = if let Some(&(_, may_measure)) = known {
            may_measure
        } else {
            let table = mounts::table().unwrap_or_default();
            let remote = mounts::remote(&table, path);
            let may_measure = remote.is_none() && !table.is_empty();
            if !may_measure {
                let kind = remote.map(|mount| mount.kind);
                log::warn!("path={} kind={kind:?} its free space is not monitored", path.display());
            }
            // Only two paths are ever requested, and an old one is forgotten.
            self.measurable.retain(|_, (until, _)| *until > now);
            self.measurable.insert(path.to_owned(), (now.plus_ms(MOUNTS_VALID_MS), may_measure));
            may_measure
        };
        if may_measure { room(path) } else { None }
    }
}

#[allow(clippy::unnecessary_cast, reason = "these have 32 bits on some machines, 64 on others")]
fn room(path: &Path) -> Option<Room> {
    let has = statvfs(path).ok()?;
    let block_bytes = has.fragment_size() as u64;
    let bytes = |blocks: u64| blocks.saturating_mul(block_bytes);
    Some(Room {
        bytes: Amount {
            capacity: bytes(has.blocks() as u64),
            available: bytes(has.blocks_available() as u64),
        },
        inodes: Amount { capacity: has.files() as u64, available: has.files_free() as u64 },
        device: stat(path).ok()?.st_dev as u64,
    })
}

/// The memory that the kernel can give: all but the working set, which is the memory in use
/// without the inactive pages of files (spec section 9.4).
pub(super) fn memory(meminfo: &str) -> Option<Amount> {
    let kib = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let capacity = kib("MemTotal")? * 1_024;
    let available = (kib("MemFree")? + kib("Inactive(file)")?) * 1_024;
    Some(Amount { capacity, available: available.min(capacity) })
}

/// One line of a `memory.stat`: `inactive_file 4096`.
fn entry(stat: &str, name: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

/// `bounds`: the kernel's limits, one text each. `loadavg`: `0.00 0.01 0.05 1/234 5678`.
fn pids(bounds: &[String], loadavg: &str) -> Option<Amount> {
    let capacity = bounds.iter().filter_map(|text| text.trim().parse::<u64>().ok()).min()?;
    let (_, tasks) = loadavg.split(' ').nth(3)?.split_once('/')?;
    Some(Amount { capacity, available: capacity.saturating_sub(tasks.parse().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_can_be_had_is_what_is_free_and_what_files_left_behind() {
        let text = "MemTotal:         494000 kB\nMemFree:  1000 kB\nMemAvailable:  9 kB\n\
                    Active(file):      7 kB\nInactive(file):     500 kB\n";
        let want = Amount { capacity: 494_000 << 10, available: 1_500 << 10 };
        assert_eq!(memory(text), Some(want));
        assert_eq!(memory("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn processes_are_counted_against_the_lower_bound() {
        let bounds = ["32768\n".to_owned(), "4000\n".to_owned()];
        let want = Amount { capacity: 4_000, available: 3_766 };
        assert_eq!(pids(&bounds, "0.00 0.01 0.05 1/234 5678\n"), Some(want));
        assert_eq!(pids(&bounds, ""), None);
    }

    #[test]
    fn what_pods_use_is_read_by_either_interface() {
        let top = std::env::temp_dir().join(format!("edged-measure-{}", std::process::id()));
        let write = |dir: &str, files: [(&str, &str); 2]| {
            let dir = top.join(dir);
            fs::create_dir_all(&dir).expect("a folder");
            for (file, text) in files {
                fs::write(dir.join(file), text).expect("a file");
            }
        };
        let stat = "anon 5\ninactive_file 1000\nactive_file 7\ntotal_inactive_file 1500\n";
        write("a/kubepods", [("memory.current", "9000\n"), ("memory.stat", stat)]);
        write("memory/a/kubepods", [("memory.usage_in_bytes", "9000\n"), ("memory.stat", stat)]);
        let used = |hierarchy, path: &str| {
            let mut meter = Meter::new(PathBuf::from("/"), &top, hierarchy);
            let request =
                MeasureRequest { pods_cgroup: Some(path.into()), ..MeasureRequest::default() };
            meter.read(Instant(1), &request).pods_memory
        };
        assert_eq!(used(Hierarchy::V2, "/a/kubepods"), Some(8_000));
        assert_eq!(used(Hierarchy::V1, "/a/kubepods"), Some(7_500));
        assert_eq!(used(Hierarchy::None, "/a/kubepods"), None);
        assert_eq!(used(Hierarchy::V2, "/b/kubepods"), None, "no pod was there yet");
        fs::remove_dir_all(&top).expect("ours");
    }

    #[test]
    fn whether_a_path_may_be_asked_is_found_out_anew_after_a_while() {
        let root = PathBuf::from("/");
        let mut meter = Meter::new(root.clone(), &root, Hierarchy::V2);
        let now = Instant(1_000);
        let measured = meter.read(now, &MeasureRequest::default()).node_fs.is_some();
        // As if it had been of another kind when it was checked.
        let known = meter.measurable.get_mut(&root).expect("it was looked at");
        let may_measure = known.1;
        known.1 = !may_measure;
        assert_eq!(measured, may_measure);
        let mut at = |now| meter.read(now, &MeasureRequest::default()).node_fs.is_some();
        assert_eq!(at(now.plus_ms(MOUNTS_VALID_MS - 1)), !may_measure);
        assert_eq!(at(now.plus_ms(MOUNTS_VALID_MS)), may_measure);
    }

    #[test]
    fn this_machine_has_some_of_everything() {
        let nowhere = PathBuf::from("/nowhere/at/all");
        let mut meter = Meter::new(nowhere.clone(), &nowhere, Hierarchy::V2);
        let request =
            MeasureRequest { image_fs: Some("/".into()), pids: true, ..MeasureRequest::default() };
        let measures = meter.read(Instant(1), &request);
        let left = |amount: Option<Amount>| amount.is_some_and(|it| it.available > 0);
        assert!(left(measures.memory) && left(measures.pids), "{measures:?}");
        // The file system under this test may be of any kind.
        assert_eq!(measures.image_fs.is_some(), meter.measurable[Path::new("/")].1);
    }
}
