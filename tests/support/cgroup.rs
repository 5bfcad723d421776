//! The cgroups of this run's agents: below a cgroup of its own, separate from other runs.

use std::fs;
use std::path::{Path, PathBuf};

const TOP: &str = "/sys/fs/cgroup";

/// `cgroupRoot` of all agents of this run.
pub fn root() -> String {
    format!("/edged-test-{}", std::process::id())
}

/// The folders of a cgroup below it, in each hierarchy that has it.
pub fn all(path: &str) -> Vec<PathBuf> {
    let below = format!("{}/{path}", root());
    let below = below.trim_matches('/');
    let tops = fs::read_dir(TOP).into_iter().flatten().flatten().map(|top| top.path());
    let tops = tops.filter(|top| !top.is_symlink()).chain([PathBuf::from(TOP)]);
    tops.map(|top| top.join(below)).filter(|dir| dir.is_dir()).collect()
}

/// The first line of a file of a cgroup; `v1` and `v2` are its names in the two versions.
pub fn value(path: &str, v1: &str, v2: &str) -> Option<String> {
    let files = all(path).into_iter().flat_map(|dir| [dir.join(v1), dir.join(v2)]);
    let text = files.into_iter().find_map(|file| fs::read_to_string(file).ok())?;
    Some(text.lines().next().unwrap_or_default().to_owned())
}

/// Removes the run's leftovers: folders without a process.
pub fn sweep() {
    for dir in all("") {
        remove(&dir);
    }
}

fn remove(dir: &Path) {
    let children = fs::read_dir(dir).into_iter().flatten().flatten();
    children.map(|child| child.path()).filter(|path| path.is_dir()).for_each(|path| remove(&path));
    let _ = fs::remove_dir(dir);
}
