//! Counts failed assertions soon after the start, so that a stored row that trips one cannot stop
//! every start.
//!
//! ```text
//!  start ─▶ an assertion fails within a minute ─▶ the file counts one more ─▶ the next start
//!    │                                                                            │ after 3
//!    └─▶ a minute has passed ─▶ the file is removed        the store is moved aside, unread
//! ```
//!
//! Only failed assertions (Rust panics) count: a kill or a power cut says nothing about the store.
//! The file lies in `/run`, which each boot empties, and there is one for each root directory.
//!
//! **If we crash here** the crash is counted or not; one that is not counted needs one start more.

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

use crate::agent::time::Instant;
use crate::io::{clock, sys};
use crate::limits::{START_CRASHES_MAX, START_MS};

/// The crashes of the agent with one root directory.
#[derive(Clone, Debug)]
pub struct Crashes {
    /// `None`: the root directory cannot be read, so nothing is counted.
    path: Option<PathBuf>,
    started_at: Instant,
    /// The start has succeeded.
    is_over: bool,
}

impl Crashes {
    /// Counts the failed assertions of this process from now on.
    pub fn watch(root: &Path) -> Self {
        let crashes = Self::within(Path::new("/run"), root, clock::boot());
        let watched = crashes.clone();
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            watched.count(clock::boot());
            report(panic);
        }));
        crashes
    }

    pub(super) fn within(dir: &Path, root: &Path, started_at: Instant) -> Self {
        Self { path: sys::file_of_root(dir, "crashes", root), started_at, is_over: false }
    }

    /// Whether the starts before this one failed so often that the store must not be read.
    pub fn are_too_many(&self) -> bool {
        self.number() >= START_CRASHES_MAX
    }

    /// How many starts in a row have failed.
    fn number(&self) -> u32 {
        let text = self.path.as_ref().and_then(|path| fs::read_to_string(path).ok());
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// An assertion has failed now.
    pub(super) fn count(&self, now: Instant) {
        if let Some(path) = &self.path
            && now.since_ms(self.started_at) < START_MS
        {
            // Where this fails there is nothing left to do about it: the process ends.
            let _ = fs::write(path, format!("{}\n", self.number().saturating_add(1)));
        }
    }

    /// Forgets the crashes before once the start has succeeded.
    pub fn tick(&mut self, now: Instant) {
        if !self.is_over && now.since_ms(self.started_at) >= START_MS {
            self.is_over = true;
            self.forget();
        }
    }

    /// What made the starts fail is out of the way.
    pub fn forget(&self) {
        if let Some(path) = &self.path
            && let Err(error) = fs::remove_file(path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            log::warn!("{}: cannot be removed: {error}", path.display());
        }
    }
}
