//! Saves the results of probes in a file in `/run`, for the agent's next start.
//!
//! `/run` is memory on a gateway, and empty after each boot. Where it is a disk, the boot ID in the
//! first line shows whether the file is of this boot. The file is written only when results change,
//! and never synced. Each root directory has a file of its own, named by its device and inode.
//!
//! ```text
//! 6a0f4d3e-…            the boot ID
//! sr 3f9c…              the container with this ID has started and is ready
//! s- 77ab…              it has started and is not ready
//! ```
//!
//! If we crash here the file has its old or its new content.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::sys;
use crate::limits::PROBE_RESULTS_BYTES_MAX;
use crate::model::cri::ContainerId;
use crate::model::map::Map;
use crate::model::probe::ProbeResults;

/// The folder of the file.
const DIR: &str = "/run";

/// The file that holds the results.
#[derive(Debug)]
pub struct ResultsFile {
    /// `None`: the root directory or the boot ID cannot be read.
    path: Option<PathBuf>,
    boot: String,
}

impl ResultsFile {
    pub(super) fn of(root: &Path) -> Self {
        let boot = sys::kernel_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self::within(Path::new(DIR), root, boot.trim())
    }

    fn within(dir: &Path, root: &Path, boot: &str) -> Self {
        let path = sys::file_of_root(dir, "probes", root).filter(|_| !boot.is_empty());
        Self { path, boot: boot.to_owned() }
    }

    /// The results that were saved since the machine's boot.
    pub(super) fn load(&self) -> Map<ContainerId, ProbeResults> {
        let mut text = String::new();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let opened = self.path.as_ref().and_then(|path| options.open(path).ok());
        let Some(file) = opened else { return Map::new() };
        let most = u64::try_from(PROBE_RESULTS_BYTES_MAX).expect("it is small");
        if file.take(most + 1).read_to_string(&mut text).is_err() {
            return Map::new();
        }
        self.parse(&text).unwrap_or_default()
    }

    /// `None`: the text is of another boot, or not complete.
    fn parse(&self, text: &str) -> Option<Map<ContainerId, ProbeResults>> {
        let (boot, rest) = text.split_once('\n')?;
        if boot != self.boot || text.len() > PROBE_RESULTS_BYTES_MAX || !text.ends_with('\n') {
            return None;
        }
        let line = |line: &str| {
            let (flags, id) = line.split_once(' ')?;
            let (started, ready) = match flags {
                "sr" => (true, true),
                "s-" => (true, false),
                _ => return None,
            };
            Some((ContainerId(id.into()), ProbeResults { started, ready }))
        };
        rest.lines().map(line).collect()
    }

    /// Replaces the saved results by these.
    pub(super) fn save(&self, all: &Map<ContainerId, ProbeResults>) {
        let Some(path) = &self.path else { return };
        let mut text = format!("{}\n", self.boot);
        for (id, proven) in all.iter().filter(|(_, proven)| proven.started) {
            let ready = if proven.ready { 'r' } else { '-' };
            writeln!(text, "s{ready} {id}").expect("a string grows");
        }
        let saved = if text.len() > PROBE_RESULTS_BYTES_MAX {
            Err(io::Error::other("more than PROBE_RESULTS_BYTES_MAX"))
        } else {
            write(path, &text)
        };
        if let Err(error) = saved {
            log::debug!("path={} results of probes are not saved: {error}", path.display());
            // The old results no longer hold.
            let _ = fs::remove_file(path);
        }
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    // Named for this root directory: agents with other ones run beside this one.
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options.open(&new)?.write_all(text.as_bytes())?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ids: &[(&str, bool)]) -> Map<ContainerId, ProbeResults> {
        let one = |&(id, ready): &(&str, bool)| {
            (ContainerId(id.into()), ProbeResults { started: true, ready })
        };
        ids.iter().map(one).collect()
    }

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("edged-probes-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a temporary folder");
        dir
    }

    #[test]
    fn what_is_saved_is_loaded_until_the_machine_boots_again() {
        let dir = dir("kept");
        let file = ResultsFile::within(&dir, &dir, "boot-1");
        assert_eq!(file.load(), all(&[]), "there is no file");
        let two = all(&[("c1", true), ("c2", false)]);
        file.save(&two);
        assert_eq!(ResultsFile::within(&dir, &dir, "boot-1").load(), two);
        assert_eq!(ResultsFile::within(&dir, &dir, "boot-2").load(), all(&[]));
        assert_eq!(ResultsFile::within(&dir, Path::new("/"), "boot-1").load(), all(&[]));
        assert_eq!(ResultsFile::within(&dir, &dir, "").load(), all(&[]), "no boot is known");
        file.save(&all(&[("c2", true)]));
        assert_eq!(file.load(), all(&[("c2", true)]));
        fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn results_that_cannot_be_saved_leave_no_old_ones() {
        let dir = dir("full");
        let file = ResultsFile::within(&dir, &dir, "boot-1");
        file.save(&all(&[("c1", true)]));
        let long = "c".repeat(PROBE_RESULTS_BYTES_MAX);
        file.save(&all(&[(&long, true)]));
        assert_eq!(file.load(), all(&[]));
        fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn agents_with_different_root_directories_do_not_share_the_file_that_is_written_first() {
        let dir = dir("two");
        let roots = [dir.join("a"), dir.join("b")];
        for root in &roots {
            fs::create_dir(root).expect("a new folder");
        }
        let [one, other] = roots.each_ref().map(|root| ResultsFile::within(&dir, root, "boot-1"));
        // As if the one were about to be written just now.
        let mut unfinished =
            one.path.clone().expect("its root directory is there").into_os_string();
        unfinished.push(".new");
        fs::create_dir(unfinished).expect("a new folder");
        one.save(&all(&[("c1", true)]));
        assert_eq!(one.load(), all(&[]), "it could not be written");
        other.save(&all(&[("c2", true)]));
        assert_eq!(other.load(), all(&[("c2", true)]));
        fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn an_incomplete_file_is_not_loaded() {
        let file = ResultsFile { path: None, boot: "b".to_owned() };
        assert_eq!(file.parse("b\nsr c1\n"), Some(all(&[("c1", true)])));
        for text in ["", "b", "c\nsr c1\n", "b\nsr c1", "b\nsr c1\nrs c2\n", "b\nsr\n"] {
            assert_eq!(file.parse(text), None, "{text:?}");
        }
    }
}
