//! What probes have found of running containers, in a file of `/run`: for the agent's next life.
//!
//! `/run` is memory on every gateway, and empty after each start of the machine; where it is not,
//! the boot's id in the first line tells. The file is written only where it differs, and never
//! synced. Each root directory has one of its own, named by its device and inode.
//!
//! ```text
//! 6a0f4d3e-…            the boot
//! sr 3f9c…              this container has started, and is ready
//! s- 77ab…              this one has started
//! ```
//!
//! If we crash here the file is as it was, or as it was to be.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::probe::Probes;
use super::sys;
use crate::agent::event::Event;
use crate::limits::PROVEN_BYTES_MAX;
use crate::model::cri::ContainerId;
use crate::model::probe::Proven;

impl Probes {
    /// Keeps what they find for the next life of the agent with this root directory, and tells what
    /// the one before has left.
    #[must_use]
    pub fn remembering(mut self, root: &Path, events: &mut Vec<Event>) -> Self {
        let remembered = Remembered::of(root);
        events.push(Event::Recalled(remembered.recall()));
        self.remembered = Some(remembered);
        self
    }

    /// Keeps this.
    pub fn remember(&self, all: &BTreeMap<ContainerId, Proven>) {
        if let Some(remembered) = &self.remembered {
            remembered.keep(all);
        }
    }
}

/// Where the file is.
const DIR: &str = "/run";

/// The file.
#[derive(Debug)]
pub struct Remembered {
    /// `None`: there is no way to have one.
    path: Option<PathBuf>,
    boot: String,
}

impl Remembered {
    fn of(root: &Path) -> Self {
        let boot = sys::kernel_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self::within(Path::new(DIR), root, boot.trim())
    }

    fn within(dir: &Path, root: &Path, boot: &str) -> Self {
        let name = |meta: fs::Metadata| format!("edged.proven-{:x}-{:x}", meta.dev(), meta.ino());
        let named = fs::metadata(root).ok().filter(|_| !boot.is_empty());
        Self { path: named.map(|meta| dir.join(name(meta))), boot: boot.to_owned() }
    }

    /// What an earlier life since the machine's start has left.
    fn recall(&self) -> BTreeMap<ContainerId, Proven> {
        let mut text = String::new();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let opened = self.path.as_ref().and_then(|path| options.open(path).ok());
        let Some(file) = opened else { return BTreeMap::new() };
        let most = u64::try_from(PROVEN_BYTES_MAX).expect("it is small");
        if file.take(most + 1).read_to_string(&mut text).is_err() {
            return BTreeMap::new();
        }
        self.parse(&text).unwrap_or_default()
    }

    /// `None`: it is of another start of the machine, or not whole.
    fn parse(&self, text: &str) -> Option<BTreeMap<ContainerId, Proven>> {
        let (boot, rest) = text.split_once('\n')?;
        if boot != self.boot || text.len() > PROVEN_BYTES_MAX || !text.ends_with('\n') {
            return None;
        }
        let line = |line: &str| {
            let (flags, id) = line.split_once(' ')?;
            let (started, ready) = match flags {
                "sr" => (true, true),
                "s-" => (true, false),
                _ => return None,
            };
            Some((ContainerId(id.into()), Proven { started, ready }))
        };
        rest.lines().map(line).collect()
    }

    /// Keeps this in the place of what was there.
    fn keep(&self, all: &BTreeMap<ContainerId, Proven>) {
        let Some(path) = &self.path else { return };
        let mut text = format!("{}\n", self.boot);
        for (id, proven) in all.iter().filter(|(_, proven)| proven.started) {
            let ready = if proven.ready { 'r' } else { '-' };
            writeln!(text, "s{ready} {id}").expect("a string grows");
        }
        let kept = if text.len() > PROVEN_BYTES_MAX {
            Err(io::Error::other("there is too much of it"))
        } else {
            write(path, &text)
        };
        if let Err(error) = kept {
            log::debug!("path={} not written: {error}", path.display());
            // What is there says what held before.
            let _ = fs::remove_file(path);
        }
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    // Of this root directory alone: agents with other ones write their own.
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

    fn all(ids: &[(&str, bool)]) -> BTreeMap<ContainerId, Proven> {
        let one =
            |&(id, ready): &(&str, bool)| (ContainerId(id.into()), Proven { started: true, ready });
        ids.iter().map(one).collect()
    }

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("edged-proven-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a temporary folder");
        dir
    }

    #[test]
    fn what_is_kept_is_recalled_until_the_machine_starts_anew() {
        let dir = dir("kept");
        let file = Remembered::within(&dir, &dir, "boot-1");
        assert_eq!(file.recall(), all(&[]), "there is no file");
        let two = all(&[("c1", true), ("c2", false)]);
        file.keep(&two);
        assert_eq!(Remembered::within(&dir, &dir, "boot-1").recall(), two);
        assert_eq!(Remembered::within(&dir, &dir, "boot-2").recall(), all(&[]));
        assert_eq!(Remembered::within(&dir, Path::new("/"), "boot-1").recall(), all(&[]));
        assert_eq!(Remembered::within(&dir, &dir, "").recall(), all(&[]), "no boot is known");
        file.keep(&all(&[("c2", true)]));
        assert_eq!(file.recall(), all(&[("c2", true)]));
        fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn what_cannot_be_kept_leaves_nothing_old() {
        let dir = dir("full");
        let file = Remembered::within(&dir, &dir, "boot-1");
        file.keep(&all(&[("c1", true)]));
        let long = "c".repeat(PROVEN_BYTES_MAX);
        file.keep(&all(&[(&long, true)]));
        assert_eq!(file.recall(), all(&[]));
        fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn agents_with_different_root_directories_do_not_share_the_file_that_is_written_first() {
        let dir = dir("two");
        let roots = [dir.join("a"), dir.join("b")];
        roots.iter().for_each(|root| fs::create_dir(root).expect("a new folder"));
        let [one, other] = roots.each_ref().map(|root| Remembered::within(&dir, root, "boot-1"));
        // As if the one were about to be written just now.
        let mut unfinished =
            one.path.clone().expect("its root directory is there").into_os_string();
        unfinished.push(".new");
        fs::create_dir(unfinished).expect("a new folder");
        one.keep(&all(&[("c1", true)]));
        assert_eq!(one.recall(), all(&[]), "it could not be written");
        other.keep(&all(&[("c2", true)]));
        assert_eq!(other.recall(), all(&[("c2", true)]));
        fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn of_a_file_that_is_not_whole_nothing_is_believed() {
        let file = Remembered { path: None, boot: "b".to_owned() };
        assert_eq!(file.parse("b\nsr c1\n"), Some(all(&[("c1", true)])));
        for text in ["", "b", "c\nsr c1\n", "b\nsr c1", "b\nsr c1\nrs c2\n", "b\nsr\n"] {
            assert_eq!(file.parse(text), None, "{text:?}");
        }
    }
}
