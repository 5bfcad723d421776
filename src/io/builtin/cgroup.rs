//! The cgroup of one container: what lives in it, the kernel's count of OOM kills, its removal.
//! The OCI runtime makes it.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::Pid;

use super::process::pause;
use crate::io::child;
use crate::io::sys::CGROUPS;
use crate::limits::{CGROUP_DEPTH_MAX, RUNTIME_KILL_PASSES_MAX, RUNTIME_KILL_PAUSE_MS};

/// A container's cgroup in each hierarchy in which it exists.
#[derive(Debug)]
pub struct Cgroup {
    folders: Vec<PathBuf>,
}

impl Cgroup {
    /// `path` is absolute in each hierarchy, and not a root: of a root everything would be killed.
    pub fn find(path: &str) -> io::Result<Self> {
        let inside = path.trim_matches('/');
        if !path.starts_with('/') || inside.split('/').any(|part| matches!(part, "" | "." | "..")) {
            let why = format!("got the cgroup {path:?}, expected an absolute path below the root");
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        // v2 is mounted on the top folder, v1 on a folder for each hierarchy there; of those some
        // are links to others.
        let top = Path::new(CGROUPS);
        let tops = if is_cgroup(top) { vec![top.to_owned()] } else { children(top) };
        // What only looks like one has files that say what somebody wrote, and not what is.
        Ok(Self::below(tops.into_iter().filter(|top| is_cgroup(top)), inside))
    }

    fn below(tops: impl Iterator<Item = PathBuf>, inside: &str) -> Self {
        let folders = tops.map(|top| top.join(inside));
        Self { folders: folders.filter(|folder| folder.is_dir()).collect() }
    }

    /// Whether no process is in it.
    pub fn is_empty(&self) -> bool {
        self.folders.iter().all(|folder| pids(folder, 0).is_empty())
    }

    /// How many processes of it the kernel has killed for memory. `None`: it does not say, or the
    /// cgroup is gone.
    pub fn oom_kills(&self) -> Option<u64> {
        let files = ["memory.events", "memory.oom_control"];
        let texts = self.folders.iter().flat_map(|folder| {
            files.iter().filter_map(|file| fs::read_to_string(folder.join(file)).ok())
        });
        texts.filter_map(|text| count_of(&text)).max()
    }

    /// Kills everything in it, again and again until nothing is left.
    pub fn kill(&self) -> io::Result<()> {
        for folder in &self.folders {
            // Since Linux 5.14, v2 alone: nothing escapes by forking.
            let _ = fs::write(folder.join("cgroup.kill"), "1");
            // In v1's freezer not even SIGKILL ends a process: an OCI runtime that was killed
            // while it had the container frozen leaves it so.
            let _ = fs::write(folder.join("freezer.state"), "THAWED");
        }
        let mut left = Vec::new();
        for _ in 0..RUNTIME_KILL_PASSES_MAX {
            left = self.folders.iter().flat_map(|folder| pids(folder, 0)).collect();
            if left.is_empty() {
                return Ok(());
            }
            for pid in &left {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            pause(RUNTIME_KILL_PAUSE_MS);
        }
        Err(io::Error::other(format!("process {} does not end after SIGKILL", left[0])))
    }

    /// Removes its folders, with those that the container made in them.
    pub fn remove(&self) -> io::Result<()> {
        self.folders.iter().try_for_each(|folder| remove(folder, 0))
    }
}

/// Moves this process into the cgroup in which it is.
///
/// A process that is put into a cgroup waits for a grace period of the kernel (RCU, 5 to 20 ms, on
/// v1 as on v2), but not if another one waits or has just waited. Whoever calls this before or as
/// soon as it has started an OCI runtime waits while that one reads its files, and spares it the
/// wait.
pub fn begin_grace_period() {
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut files = memberships.lines().flat_map(places);
    let file = files.find_map(|place| OpenOptions::new().write(true).open(place).ok());
    // What it says does not matter: the kernel has waited before it looks.
    let _ = file.map(|mut file| file.write_all(b"0"));
}

/// The same in a child, for a job that does not wait and comes before a container's start. Nobody
/// waits for the child; the server reaps it.
pub fn begin_grace_period_aside() {
    let _ = child::start(|| {
        begin_grace_period();
        0
    });
}

/// Where `cgroup.procs` may be of a line `4:memory:/a/b` of `/proc/PID/cgroup`.
fn places(line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(names), Some(inside)) = (parts.next(), parts.next()) else { return Vec::new() };
    let hierarchies: &[&str] = match names.trim_start_matches("name=") {
        "" => &["", "unified"],
        name => &[name],
    };
    let place = |name: &&str| {
        Path::new(CGROUPS).join(name).join(inside.trim_start_matches('/')).join("cgroup.procs")
    };
    hierarchies.iter().map(place).collect()
}

fn is_cgroup(path: &Path) -> bool {
    statfs(path).is_ok_and(|stat| {
        matches!(stat.filesystem_type(), CGROUP_SUPER_MAGIC | CGROUP2_SUPER_MAGIC)
    })
}

/// Line `oom_kill N`.
fn count_of(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Of a cgroup and of those in it.
fn pids(folder: &Path, depth: usize) -> Vec<i32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    // A process of another namespace is 0, and process 1 is init.
    let own = std::process::id() as i32;
    let named = text.lines().filter_map(|line| line.parse::<i32>().ok());
    let mut pids: Vec<i32> = named.filter(|pid| *pid > 1 && *pid != own).collect();
    if depth < CGROUP_DEPTH_MAX {
        for child in children(folder) {
            pids.extend(self::pids(&child, depth + 1));
        }
    }
    pids
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn remove(folder: &Path, depth: usize) -> io::Result<()> {
    if depth < CGROUP_DEPTH_MAX {
        for child in children(folder) {
            remove(&child, depth + 1)?;
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(io::Error::other(format!("rmdir {}: {error}", folder.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::test_folder::TestFolder;

    /// A cgroup in hierarchies that are folders of ours.
    fn cgroup(top: &TestFolder, tops: &[&str], inside: &str) -> Cgroup {
        Cgroup::below(tops.iter().map(|name| top.join(name)), inside)
    }

    #[test]
    fn a_process_stays_where_it_is_for_a_grace_period() {
        let places = |line| {
            let texts = places(line).into_iter().map(|place| place.display().to_string());
            texts.collect::<Vec<_>>().join(" ")
        };
        for (line, expected) in [
            ("4:memory:/a/b", "/sys/fs/cgroup/memory/a/b/cgroup.procs"),
            ("3:cpu,cpuacct:/", "/sys/fs/cgroup/cpu,cpuacct/cgroup.procs"),
            ("1:name=systemd:/a:b", "/sys/fs/cgroup/systemd/a:b/cgroup.procs"),
            ("0::/a", "/sys/fs/cgroup/a/cgroup.procs /sys/fs/cgroup/unified/a/cgroup.procs"),
            ("0:", ""),
            ("", ""),
        ] {
            assert_eq!(places(line), expected, "{line}");
        }
        let own = || fs::read_to_string("/proc/self/cgroup").expect("it is readable");
        let before = own();
        begin_grace_period();
        assert_eq!(own(), before);
    }

    #[test]
    fn a_path_that_is_a_root_or_leads_out_is_refused() {
        for path in ["", "/", "//", "a", "/a/../b", "/a//b", "/a/."] {
            let why = Cgroup::find(path).expect_err(path).to_string();
            assert!(why.starts_with("got the cgroup"), "{why}");
        }
        let none = Cgroup::find("/edged-test/none").expect("it is absent");
        assert!(none.is_empty() && none.oom_kills().is_none());
        none.kill().expect("nothing to kill");
        none.remove().expect("nothing to remove");
    }

    #[test]
    fn kills_for_memory_are_read_from_either_version() {
        let v2 = TestFolder::new("cgroup")
            .with("p/c/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
        assert_eq!(cgroup(&v2, &[""], "p/c").oom_kills(), Some(2));
        let v1 = TestFolder::new("cgroup")
            .with("memory/p/c/memory.oom_control", "oom_kill_disable 0\noom_kill 1\n")
            .with("pids/p/c/cgroup.procs", "");
        let cgroup = cgroup(&v1, &["memory", "pids", "cpu"], "p/c");
        assert_eq!((cgroup.oom_kills(), cgroup.folders.len()), (Some(1), 2));
        assert_eq!(count_of("oom 3\noom_group_kill 9\n"), None);
    }

    #[test]
    fn processes_of_inner_cgroups_count_and_those_that_are_not_ours_do_not() {
        let own = std::process::id();
        let top = TestFolder::new("cgroup").with("a/c/cgroup.procs", &format!("0\n1\n{own}\nx\n"));
        let cgroup = cgroup(&top, &["a"], "c");
        assert!(cgroup.is_empty());
        let deep = |depth: usize| "x/".repeat(depth);
        let top = top.with(&format!("a/c/{}cgroup.procs", deep(CGROUP_DEPTH_MAX)), "7\n");
        assert!(!cgroup.is_empty());
        let folder = top.join("a/c").join(deep(CGROUP_DEPTH_MAX));
        fs::remove_file(folder.join("cgroup.procs")).expect("ours");
        let _top = top.with(&format!("a/c/{}cgroup.procs", deep(CGROUP_DEPTH_MAX + 1)), "7\n");
        assert!(cgroup.is_empty(), "too deep");
    }

    #[test]
    fn version_2_kills_by_its_own_file_and_version_1_thaws_first() {
        let top = TestFolder::new("cgroup")
            .with("v2/p/c/cgroup.kill", "")
            .with("v1/p/c/freezer.state", "F");
        cgroup(&top, &["v2", "v1"], "p/c").kill().expect("nobody is in it");
        let says = |file: &str| fs::read_to_string(top.join(file)).expect("ours");
        assert_eq!(says("v2/p/c/cgroup.kill"), "1");
        assert_eq!(says("v1/p/c/freezer.state"), "THAWED");
    }

    #[test]
    fn a_frozen_process_is_killed() {
        let name = format!("edged-frozen-{}", std::process::id());
        let v1 = Path::new(CGROUPS).join("freezer");
        let (top, file, word) = if v1.is_dir() {
            (v1, "freezer.state", "FROZEN")
        } else {
            (CGROUPS.into(), "cgroup.freeze", "1")
        };
        let folder = top.join(&name);
        fs::create_dir(&folder).expect("root may");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a program");
        fs::write(folder.join("cgroup.procs"), child.id().to_string()).expect("root may");
        fs::write(folder.join(file), word).expect("root may");
        let cgroup = Cgroup::find(&format!("/{name}")).expect("it is there");
        let killed = cgroup.kill();
        let status = child.wait().expect("ours");
        cgroup.remove().expect("it is empty");
        assert!(killed.is_ok() && !status.success(), "{killed:?} {status:?}");
    }

    #[test]
    fn what_does_not_end_is_said_after_a_bounded_time() {
        // A number that is not in use: a file of ours stands for the kernel's.
        let top = TestFolder::new("cgroup").with("a/c/cgroup.procs", &format!("{}\n", i32::MAX));
        let began = crate::io::clock::precise();
        let why = cgroup(&top, &["a"], "c").kill().expect_err("it stays");
        assert!(why.to_string().contains("does not end after SIGKILL"), "{why}");
        let waited = RUNTIME_KILL_PASSES_MAX as u128 * u128::from(RUNTIME_KILL_PAUSE_MS);
        let took = crate::io::clock::precise().saturating_sub(began);
        assert!(took.as_millis() >= waited && waited <= 2_000);
    }
}
