//! The manifest folder: reports the content of its files at the start and after each change.
//!
//! A file is read when its writer has closed it, renamed it into place, linked it or removed it:
//! inotify reports this, and the file is read in the same turn. A scan of the whole folder every
//! 20 s finds what inotify does not see (targets of links, network file systems). A file that a
//! scan finds changed without a close may be half written: it is read after it has stayed the same
//! for a second.
//!
//! ```text
//!  inotify ─┐            changed, closed ──────────────────▶ todo ─▶ read, parse ─▶ Manifests
//!  20 s ────┴─▶ scan ──▶ changed, open? ──same for 1 s────▶──┘   256 KiB a turn
//!                   └──▶ unchanged: its pods stay, the file is not opened
//! ```
//!
//! If the folder is absent or cannot be read, its last content stays, because an empty set
//! would end every pod: the folder is reported as not read, and is tried again. The same holds for
//! an empty folder in the place of one that had manifests (`identity`), such as the mount point of
//! a partition that was unmounted. A removal is not reported while a file may be half written: it
//! may be the same file, renamed.
//! The folder must be on the node: a dead server of a network file system would block the loop.
//! Not here: what a manifest means (`wire::manifest`), and what follows from it (the core). After a
//! crash the folder is read again from the start.

mod file;
mod identity;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use file::{Key, is_absent, is_temporary, key_of, names_in, read};
use identity::{Identity, Trusted};
use mio::{Registry, Token};
use watch::{Change, Watch};

use super::log::Limit;
use crate::agent::time::Instant;
use crate::limits::{
    MANIFEST_FILES_MAX, MANIFEST_HOLD_MS, MANIFEST_OBJECTS_BYTES_MAX, MANIFEST_OBJECTS_MAX,
    MANIFEST_PODS_MAX, MANIFEST_RESCAN_MS, MANIFEST_SETTLE_MS, MANIFEST_TURN_BYTES,
};
use crate::model::error::Refusal;
use crate::model::manifest::{self, Content, Folder};

/// The file in the root directory that stores from which folder the manifests were read.
pub const RECORD: &str = "manifest-folder";

/// Parses one file's bytes: `wire::manifest::parse`.
pub type Parse<C> = fn(&[u8]) -> Result<C, Refusal>;

/// The content of a file, and how much of it a folder may have.
pub trait FileContent: Clone + PartialEq {
    /// The limits of a whole folder.
    const LIMITS: Room;

    /// How much of these limits it uses.
    fn weight(&self) -> Room;
}

impl FileContent for Content {
    const LIMITS: Room = Room {
        pods: MANIFEST_PODS_MAX,
        objects: MANIFEST_OBJECTS_MAX,
        object_bytes: MANIFEST_OBJECTS_BYTES_MAX,
    };

    fn weight(&self) -> Room {
        let object_bytes = self.objects.iter().map(|object| object.size_bytes()).sum();
        Room { pods: self.pods.len(), objects: self.objects.len(), object_bytes }
    }
}

/// The manifest folder and its content when it was last read.
#[derive(Debug)]
pub struct Manifests<C = Content> {
    path: PathBuf,
    parse: Parse<C>,
    watch: Watch,
    files: BTreeMap<OsString, FileEntry<C>>,
    /// Names of files that inotify reported as complete, until they are read.
    closed: BTreeSet<OsString>,
    todo: VecDeque<OsString>,
    scan_at: Instant,
    /// Whether a scan has succeeded. The first scan counts every file as complete.
    scanned: bool,
    /// The content differs from the last report; true until the first report.
    differs: bool,
    /// Since when a reported file is gone, or nothing has been reported yet.
    removed: Option<Instant>,
    /// Why the folder itself cannot be read.
    trouble: Option<String>,
    /// Since when the folder cannot be listed.
    failing: Option<Instant>,
    /// The folder of the last scan.
    found: Option<Identity>,
    /// The folder to which the pods belong.
    trusted: Trusted,
    /// Another folder was found at runtime: when, and when it is complete if nothing changes.
    replaced: Option<(Instant, Instant)>,
    count_limit: Limit,
}

/// A file as it was last observed and read.
#[derive(Debug)]
struct FileEntry<C> {
    observed: (Key, Instant),
    /// Its key when it was read; `None`: it could not be read, which each scan tries again.
    read: Option<Key>,
    /// `None`: not read yet.
    content: Option<Result<C, Refusal>>,
    /// It may be half written, or it was gone when it was due to be read.
    waits: bool,
}

/// The regular files in the folder; an error for a file whose metadata cannot be read.
type Found = BTreeMap<OsString, Result<Key, Refusal>>;

impl<C: FileContent> Manifests<C> {
    /// Starts to watch; the first [`Manifests::tick`] reads.
    pub fn open(path: PathBuf, parse: Parse<C>, registry: &Registry, token: Token) -> Self {
        Self {
            watch: Watch::open(registry, token),
            path,
            parse,
            files: BTreeMap::new(),
            closed: BTreeSet::new(),
            todo: VecDeque::new(),
            scan_at: Instant(0),
            scanned: false,
            differs: true,
            removed: None,
            trouble: None,
            failing: None,
            found: None,
            trusted: Trusted::default(),
            replaced: None,
            count_limit: Limit::default(),
        }
    }

    /// Stores in this file, across restarts, from which folder the manifests were read.
    #[must_use]
    pub fn remembering(mut self, record: PathBuf) -> Self {
        self.trusted = Trusted::load(record);
        self
    }

    /// Switches to another folder; the old content goes with the first read of the new folder.
    pub fn follow(&mut self, path: PathBuf) {
        self.path = path;
        self.files.clear();
        self.todo.clear();
        self.closed.clear();
        self.scanned = false;
        self.differs = true;
        self.removed = None;
        self.trouble = None;
        self.failing = None;
        self.found = None;
        self.replaced = None;
        self.scan_at = Instant(0);
        self.watch.forget();
    }

    /// When to call [`Manifests::tick`].
    pub fn wake_at(&self) -> Instant {
        if self.todo.is_empty() { self.scan_at } else { Instant(0) }
    }

    /// The watch is readable.
    pub fn ready(&mut self, now: Instant) {
        for change in self.watch.read() {
            match change {
                Change::Complete(name) => {
                    // A ConfigMap's folder swaps `..data`, and with it the targets of all links.
                    if name.as_bytes().starts_with(b".") {
                        self.closed.extend(self.files.keys().cloned());
                    } else {
                        self.closed.insert(name);
                    }
                }
                Change::Created(name) => {
                    // The kernel also reports the close of a regular file; for a link it does not.
                    let linked = |meta: &Metadata| meta.is_symlink() || meta.nlink() > 1;
                    if !fs::symlink_metadata(self.path.join(&name)).is_ok_and(|m| linked(&m)) {
                        continue;
                    }
                    self.closed.insert(name);
                }
                Change::Lost => self.closed.extend(self.files.keys().cloned()),
                Change::Gone => {}
            }
            self.scan_at = now;
        }
    }

    /// Does what is due; returns the folder when it is to be reported.
    pub fn tick(&mut self, now: Instant) -> Option<Folder<C>> {
        if now >= self.scan_at {
            self.scan_at = now.plus_ms(MANIFEST_RESCAN_MS);
            self.watch.follow(&self.path);
            match self.scan(now) {
                Ok(()) => self.failing = None,
                Err(error) => self.fails(&error, now),
            }
        }
        let before = self.todo.len();
        self.read_due(now);
        if !self.todo.is_empty() || !self.is_settled(now, before > 0) {
            return None;
        }
        if self.failing.is_none() {
            self.set_trouble(self.reason_to_distrust());
        }
        if !self.differs || !(self.scanned || self.trouble.is_some()) || self.holds_removal(now) {
            return None;
        }
        self.differs = false;
        self.removed = None;
        if self.trouble.is_none() {
            self.trusted.set(self.found.filter(|_| !self.files.is_empty()));
        }
        Some(self.folder())
    }

    /// The folder cannot be listed. One that is replaced by a rename gets a moment to come back.
    fn fails(&mut self, error: &io::Error, now: Instant) {
        let since = *self.failing.get_or_insert(now);
        if self.scanned && now.since_ms(since) < MANIFEST_SETTLE_MS {
            self.scan_at = since.plus_ms(MANIFEST_SETTLE_MS);
            return;
        }
        self.set_trouble(Some(format!("the folder cannot be read: {error}")));
    }

    /// Whether the observed content may be reported: a folder that replaced another one gets
    /// time to be filled.
    fn is_settled(&mut self, now: Instant, has_read: bool) -> bool {
        if self.failing.is_some() {
            return self.trouble.is_some();
        }
        let Some((since, until)) = &mut self.replaced else { return true };
        if has_read {
            *until = now.plus_ms(MANIFEST_SETTLE_MS).min(since.plus_ms(MANIFEST_HOLD_MS));
        }
        let settled = now >= *until;
        if settled {
            self.replaced = None;
        } else {
            self.scan_at = self.scan_at.min(*until);
        }
        settled
    }

    /// Why the folder that was found is not accepted as the manifest folder.
    fn reason_to_distrust(&self) -> Option<String> {
        let good = |entry: &FileEntry<C>| matches!(entry.content, Some(Ok(_)));
        let is_another = self.found.is_some_and(|found| self.trusted.is_another(found));
        (is_another && !self.files.values().any(good)).then(|| {
            "the folder is not the one that manifests were read from, and has none: got another \
             device or inode, expected the same folder or a manifest in it (one with only a \
             comment means that no pod is wanted)"
                .to_owned()
        })
    }

    /// Whether a file that is gone may be one that waits to be read.
    fn holds_removal(&mut self, now: Instant) -> bool {
        let Some(removed) = self.removed else { return false };
        let until = removed.plus_ms(MANIFEST_HOLD_MS);
        let holds = now < until && self.files.values().any(|entry| entry.waits);
        if holds {
            self.scan_at = self.scan_at.min(until);
        }
        holds
    }

    fn set_trouble(&mut self, trouble: Option<String>) {
        self.differs |= self.trouble != trouble;
        self.trouble = trouble;
    }

    /// Finds out which files must be read.
    fn scan(&mut self, now: Instant) -> io::Result<()> {
        let (mut identity, mut found) = self.find(now)?;
        if self.files.keys().any(|name| !found.contains_key(name)) {
            // A listing may have neither name of a file that is renamed meanwhile.
            let (identity_after, second) = self.find(now)?;
            let first = mem::replace(&mut found, second);
            for (name, key) in first.into_iter().filter(|_| identity_after == identity) {
                found.entry(name).or_insert_with(|| {
                    self.scan_at = now;
                    key
                });
            }
            identity = identity_after;
        }
        if self.found.replace(identity).is_some_and(|before| before != identity) {
            self.differs = true;
            self.replaced = Some((now, now.plus_ms(MANIFEST_SETTLE_MS)));
        }
        self.todo.clear();
        let before = self.files.len();
        self.files.retain(|name, _| found.contains_key(name));
        if self.files.len() != before || !self.scanned {
            self.differs = true;
            self.removed.get_or_insert(now);
        }
        self.closed.retain(|name| found.contains_key(name));
        for (name, key) in found {
            match key {
                Ok(key) => self.check(name, key, now),
                Err(why) => self.keep_unreadable(name, why, now),
            }
        }
        self.scanned = true;
        Ok(())
    }

    /// The files in the folder, and the identity of the folder.
    fn find(&mut self, now: Instant) -> io::Result<(Identity, Found)> {
        let identity = identity::of(&self.path)?;
        let found = self.list(now)?;
        // The files of a folder that was renamed meanwhile seem to be gone.
        if identity::of(&self.path)? == identity {
            return Ok((identity, found));
        }
        Err(io::Error::other("another folder replaced it while it was read"))
    }

    fn list(&mut self, now: Instant) -> io::Result<Found> {
        let names = names_in(&self.path)?;
        if names.len() > MANIFEST_FILES_MAX
            && let Some(repeats) = self.count_limit.pass(now)
        {
            let (all, path) = (names.len(), self.path.display());
            log::error!(
                "path={path} got {all} files, expected {MANIFEST_FILES_MAX} at most: the last by \
                 name are ignored; repeats={repeats}"
            );
        }
        let mut found = Found::new();
        for name in names.into_iter().take(MANIFEST_FILES_MAX) {
            match fs::metadata(self.path.join(&name)) {
                Ok(meta) if meta.is_file() => found.insert(name, Ok(key_of(&meta))),
                Ok(_) => None,
                Err(error) if is_absent(&error) => None,
                Err(error) => found.insert(name, Err(refusal(format!("cannot be read: {error}")))),
            };
        }
        Ok(found)
    }

    /// A file exists, but its metadata cannot be read: the receiver keeps what was reported of it.
    fn keep_unreadable(&mut self, name: OsString, why: Refusal, now: Instant) {
        self.closed.remove(&name);
        let new =
            FileEntry { observed: (Key::default(), now), read: None, content: None, waits: false };
        let entry = self.files.entry(name).or_insert(new);
        entry.read = None;
        entry.set(Err(why), &mut self.differs);
    }

    /// Decides whether this file is read now, later or not.
    fn check(&mut self, name: OsString, key: Key, now: Instant) {
        let new = FileEntry { observed: (key, now), read: None, content: None, waits: false };
        let entry = self.files.entry(name.clone()).or_insert(new);
        if entry.read == Some(key) && !self.closed.contains(&name) {
            entry.waits = false;
            return;
        }
        if entry.observed.0 != key {
            entry.observed = (key, now);
        }
        let settled = now.since_ms(entry.observed.1) >= MANIFEST_SETTLE_MS;
        if !self.scanned || settled || self.closed.contains(&name) && !is_temporary(&name) {
            self.todo.push_back(name);
        } else {
            entry.waits = true;
            let settles_at = entry.observed.1.plus_ms(MANIFEST_SETTLE_MS);
            self.scan_at = self.scan_at.min(settles_at);
        }
    }

    /// Reads the files that are due, a bounded amount per turn.
    fn read_due(&mut self, now: Instant) {
        let mut budget = MANIFEST_TURN_BYTES;
        while budget > 0
            && let Some(name) = self.todo.pop_front()
        {
            self.closed.remove(&name);
            let path = self.path.join(&name);
            let (key, content, size) = match read(&path) {
                Ok(Some((key, text))) => (Some(key), (self.parse)(&text), text.len()),
                // Gone, or no regular file any more: the next scan finds that, and its new name.
                Ok(None) => {
                    self.scan_at = now;
                    if let Some(entry) = self.files.get_mut(&name) {
                        entry.waits = true;
                    }
                    continue;
                }
                Err(why) => (None, Err(refusal(why.to_string())), 0),
            };
            budget = budget.saturating_sub(size.max(4_096));
            let Some(entry) = self.files.get_mut(&name) else { continue };
            log::debug!("path={} read, bytes={size}", path.display());
            entry.read = key;
            entry.set(content, &mut self.differs);
        }
    }

    fn folder(&self) -> Folder<C> {
        let mut files = Vec::with_capacity(self.files.len());
        let mut room = C::LIMITS;
        for (name, entry) in &self.files {
            let Some(content) = &entry.content else { continue };
            let content = match content {
                Ok(content) => match room.take::<C>(content) {
                    Ok(()) => Ok(content.clone()),
                    Err(why) => Err(refusal(why)),
                },
                Err(why) => Err(why.clone()),
            };
            let path = self.path.join(name).to_string_lossy().into();
            let changed_ns = entry.read.map_or(0, |(.., changed_ns)| changed_ns as i64);
            files.push(manifest::File { path, changed_ns, content });
        }
        let trouble = self.trouble.as_ref();
        let trouble = trouble.map(|why| format!("{}: {why}", self.path.display()).into());
        Folder { trouble, files }
    }
}

impl<C: FileContent> FileEntry<C> {
    /// Stores the content; sets `differs` if it changed.
    fn set(&mut self, content: Result<C, Refusal>, differs: &mut bool) {
        self.waits = false;
        if self.content.as_ref() != Some(&content) {
            self.content = Some(content);
            *differs = true;
        }
    }
}

/// How much the whole folder may still have.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Pods.
    pub pods: usize,
    /// ConfigMaps, Secrets, and everything else.
    pub objects: usize,
    /// Bytes of these.
    pub object_bytes: usize,
}

impl Room {
    /// Takes the whole file, or nothing.
    fn take<C: FileContent>(&mut self, content: &C) -> Result<(), String> {
        let (weight, limits) = (content.weight(), C::LIMITS);
        let left_out = |got: &str| Err(format!("{got} in the whole folder: this file is ignored"));
        if weight.pods > self.pods {
            return left_out(&format!("got more than {} pods", limits.pods));
        }
        if weight.objects > self.objects {
            return left_out(&format!("got more than {} ConfigMaps and Secrets", limits.objects));
        }
        if weight.object_bytes > self.object_bytes {
            let limits = limits.object_bytes;
            return left_out(&format!("got more than {limits} bytes of ConfigMaps and Secrets"));
        }
        self.pods -= weight.pods;
        self.objects -= weight.objects;
        self.object_bytes -= weight.object_bytes;
        Ok(())
    }
}

/// Refuses a file as a whole.
fn refusal(why: String) -> Refusal {
    Refusal { line: 0, column: 0, why }
}

#[cfg(test)]
mod tests;
