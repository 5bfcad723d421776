//! The manifest folder: what its files hold, told at start and whenever that differs.
//!
//! A file counts when whoever writes it has closed it, renamed it into place, linked it or removed
//! it: the kernel says so (inotify), and it is read in the same turn. A look at the whole folder
//! every 20 s finds what inotify does not see (targets of links, network file systems). A file that
//! such a look finds changed without a close is perhaps half written: it is read once it stayed the
//! same for a second.
//!
//! ```text
//!  inotify ─┐            changed, closed ──────────────────▶ todo ─▶ read, parse ─▶ Manifests
//!  20 s ────┴─▶ look ──▶ changed, open? ──same for 1 s────▶──┘   256 KiB a turn
//!                   └──▶ as it was read: its pods are kept, the file is not opened
//! ```
//!
//! A folder that is not there, or cannot be read, keeps what was read of it, because an empty set
//! would end every pod: it is reported as not read, and tried again. So is an empty folder in the
//! place of one that had manifests (`identity`), such as the mount point of a partition that was
//! unmounted. A removal is not reported while a file is perhaps half written: it may be the same
//! one, renamed.
//! The folder is to lie on the node: a dead server of a network file system would hang the loop.
//! Not here: what a manifest means (`wire::manifest`), and what follows from it (the mind). After a
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
use watch::{Seen, Watch};

use super::log::Limit;
use crate::agent::time::Instant;
use crate::limits::{
    MANIFEST_FILES_MAX, MANIFEST_HOLD_MS, MANIFEST_OBJECTS_BYTES_MAX, MANIFEST_OBJECTS_MAX,
    MANIFEST_PODS_MAX, MANIFEST_RESCAN_MS, MANIFEST_SETTLE_MS, MANIFEST_TURN_BYTES,
};
use crate::model::manifest::{self, Content, Folder, Refusal};

/// The file in the root directory that remembers which folder the manifests were read from.
pub const RECORD: &str = "manifest-folder";

/// Reads what one file's bytes hold: `wire::manifest::parse`.
pub type Parse<C> = fn(&[u8]) -> Result<C, Refusal>;

/// What a file holds, and how much of it a folder may have.
pub trait Held: Clone + PartialEq {
    /// The most of a whole folder.
    const MOST: Room;

    /// What it takes of that.
    fn weight(&self) -> Room;
}

impl Held for Content {
    const MOST: Room = Room {
        pods: MANIFEST_PODS_MAX,
        objects: MANIFEST_OBJECTS_MAX,
        object_bytes: MANIFEST_OBJECTS_BYTES_MAX,
    };

    fn weight(&self) -> Room {
        let object_bytes = self.objects.iter().map(|object| object.size_bytes()).sum();
        Room { pods: self.pods.len(), objects: self.objects.len(), object_bytes }
    }
}

/// The manifest folder and what was last read of it.
#[derive(Debug)]
pub struct Manifests<C = Content> {
    path: PathBuf,
    parse: Parse<C>,
    watch: Watch,
    files: BTreeMap<OsString, Kept<C>>,
    /// Names that the kernel said are complete, until they are read.
    closed: BTreeSet<OsString>,
    todo: VecDeque<OsString>,
    look_at: Instant,
    /// The first look counts every file as complete.
    looked: bool,
    /// Differs from what was told; true until the first telling.
    differs: bool,
    /// A file went that was told, or nothing was told yet: since then.
    removed: Option<Instant>,
    /// Why the folder itself cannot be read.
    trouble: Option<String>,
    /// Since when it cannot be listed.
    failing: Option<Instant>,
    /// The folder of the last look.
    found: Option<Identity>,
    /// The folder that the pods are of.
    trusted: Trusted,
    /// Another folder was found while we ran: when, and when it is complete if nothing changes.
    replaced: Option<(Instant, Instant)>,
    count_limit: Limit,
}

/// A file as it was last seen and read.
#[derive(Debug)]
struct Kept<C> {
    seen: (Key, Instant),
    /// As it was when it was read; `None` where it could not be, which is tried at each look.
    read: Option<Key>,
    /// `None`: not read yet.
    content: Option<Result<C, Refusal>>,
    /// It is perhaps half written, or was gone when it was to be read.
    waits: bool,
}

/// The regular files in the folder, with why one could not be looked at.
type Found = BTreeMap<OsString, Result<Key, Refusal>>;

impl<C: Held> Manifests<C> {
    /// Begins to watch; the first [`Manifests::tick`] reads.
    pub fn open(path: PathBuf, parse: Parse<C>, registry: &Registry, token: Token) -> Self {
        Self {
            watch: Watch::open(registry, token),
            path,
            parse,
            files: BTreeMap::new(),
            closed: BTreeSet::new(),
            todo: VecDeque::new(),
            look_at: Instant(0),
            looked: false,
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

    /// Remembers in this file, across restarts, which folder the manifests were read from.
    #[must_use]
    pub fn remembering(mut self, record: PathBuf) -> Self {
        self.trusted = Trusted::load(record);
        self
    }

    /// From now on another folder; what the old one held goes with the first reading of the new.
    pub fn follow(&mut self, path: PathBuf) {
        self.path = path;
        self.files.clear();
        self.todo.clear();
        self.closed.clear();
        self.looked = false;
        self.differs = true;
        self.removed = None;
        self.trouble = None;
        self.failing = None;
        self.found = None;
        self.replaced = None;
        self.look_at = Instant(0);
        self.watch.forget();
    }

    /// When to call [`Manifests::tick`].
    pub fn wake_at(&self) -> Instant {
        if self.todo.is_empty() { self.look_at } else { Instant(0) }
    }

    /// The watch is readable.
    pub fn ready(&mut self, now: Instant) {
        for seen in self.watch.read() {
            match seen {
                Seen::Complete(name) => {
                    // A ConfigMap's folder swaps `..data`, and with it what every link means.
                    if name.as_bytes().starts_with(b".") {
                        self.closed.extend(self.files.keys().cloned());
                    } else {
                        self.closed.insert(name);
                    }
                }
                Seen::Created(name) => {
                    // A regular file is announced again when it is closed; a link is not.
                    let linked = |meta: &Metadata| meta.is_symlink() || meta.nlink() > 1;
                    if !fs::symlink_metadata(self.path.join(&name)).is_ok_and(|m| linked(&m)) {
                        continue;
                    }
                    self.closed.insert(name);
                }
                Seen::Lost => self.closed.extend(self.files.keys().cloned()),
                Seen::Gone => {}
            }
            self.look_at = now;
        }
    }

    /// Does what is due; returns the folder when it is to be told.
    pub fn tick(&mut self, now: Instant) -> Option<Folder<C>> {
        if now >= self.look_at {
            self.look_at = now.plus_ms(MANIFEST_RESCAN_MS);
            self.watch.follow(&self.path);
            match self.look(now) {
                Ok(()) => self.failing = None,
                Err(error) => self.fails(&error, now),
            }
        }
        let before = self.todo.len();
        self.work(now);
        if !self.todo.is_empty() || !self.is_settled(now, before > 0) {
            return None;
        }
        if self.failing.is_none() {
            self.trouble_is(self.mistrust());
        }
        if !self.differs || !(self.looked || self.trouble.is_some()) || self.holds(now) {
            return None;
        }
        self.differs = false;
        self.removed = None;
        if self.trouble.is_none() {
            self.trusted.is(self.found.filter(|_| !self.files.is_empty()));
        }
        Some(self.folder())
    }

    /// The folder cannot be listed. Whoever replaces it by renaming is given a moment.
    fn fails(&mut self, error: &io::Error, now: Instant) {
        let since = *self.failing.get_or_insert(now);
        if self.looked && now.since_ms(since) < MANIFEST_SETTLE_MS {
            self.look_at = since.plus_ms(MANIFEST_SETTLE_MS);
            return;
        }
        self.trouble_is(Some(format!("the folder cannot be read: {error}")));
    }

    /// Whether what was found may be reported: a folder in the place of another is given the time
    /// to be filled.
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
            self.look_at = self.look_at.min(*until);
        }
        settled
    }

    /// Why the folder that was found is not taken for what is wanted.
    fn mistrust(&self) -> Option<String> {
        let good = |kept: &Kept<C>| matches!(kept.content, Some(Ok(_)));
        let is_another = self.found.is_some_and(|found| self.trusted.is_another(found));
        (is_another && !self.files.values().any(good)).then(|| {
            "the folder is not the one that manifests were read from, and has none: got another \
             device or inode, expected the same folder or a manifest in it (one with only a \
             comment says that no pod is wanted)"
                .to_owned()
        })
    }

    /// Whether a file that went may be one that waits to be read.
    fn holds(&mut self, now: Instant) -> bool {
        let Some(removed) = self.removed else { return false };
        let until = removed.plus_ms(MANIFEST_HOLD_MS);
        let holds = now < until && self.files.values().any(|kept| kept.waits);
        if holds {
            self.look_at = self.look_at.min(until);
        }
        holds
    }

    fn trouble_is(&mut self, trouble: Option<String>) {
        self.differs |= self.trouble != trouble;
        self.trouble = trouble;
    }

    /// Finds out which files are to be read.
    fn look(&mut self, now: Instant) -> io::Result<()> {
        let (mut identity, mut found) = self.find(now)?;
        if self.files.keys().any(|name| !found.contains_key(name)) {
            // Of a file that is renamed meanwhile a listing may have neither name.
            let (again, second) = self.find(now)?;
            let first = mem::replace(&mut found, second);
            for (name, key) in first.into_iter().filter(|_| again == identity) {
                found.entry(name).or_insert_with(|| {
                    self.look_at = now;
                    key
                });
            }
            identity = again;
        }
        if self.found.replace(identity).is_some_and(|before| before != identity) {
            self.differs = true;
            self.replaced = Some((now, now.plus_ms(MANIFEST_SETTLE_MS)));
        }
        self.todo.clear();
        let before = self.files.len();
        self.files.retain(|name, _| found.contains_key(name));
        if self.files.len() != before || !self.looked {
            self.differs = true;
            self.removed.get_or_insert(now);
        }
        self.closed.retain(|name| found.contains_key(name));
        for (name, key) in found {
            match key {
                Ok(key) => self.weigh(name, key, now),
                Err(why) => self.miss(name, why, now),
            }
        }
        self.looked = true;
        Ok(())
    }

    /// What is in the folder, and which folder that is.
    fn find(&mut self, now: Instant) -> io::Result<(Identity, Found)> {
        let identity = identity::of(&self.path)?;
        let found = self.list(now)?;
        // Files of a folder that was renamed meanwhile seem to be gone.
        if identity::of(&self.path)? == identity {
            return Ok((identity, found));
        }
        Err(io::Error::other("another one took its place while it was read"))
    }

    fn list(&mut self, now: Instant) -> io::Result<Found> {
        let names = names_in(&self.path)?;
        if names.len() > MANIFEST_FILES_MAX
            && let Some(kept) = self.count_limit.pass(now)
        {
            let (all, path) = (names.len(), self.path.display());
            log::error!(
                "path={path} got {all} files, expected {MANIFEST_FILES_MAX} at most: the last by \
                 name are left out; repeats={kept}"
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

    /// A file is there, but not what it is: what was read of it is kept by whom it was told.
    fn miss(&mut self, name: OsString, why: Refusal, now: Instant) {
        self.closed.remove(&name);
        let new = Kept { seen: (Key::default(), now), read: None, content: None, waits: false };
        let kept = self.files.entry(name).or_insert(new);
        kept.read = None;
        kept.is(Err(why), &mut self.differs);
    }

    /// Whether this file is to be read now, later or not.
    fn weigh(&mut self, name: OsString, key: Key, now: Instant) {
        let new = Kept { seen: (key, now), read: None, content: None, waits: false };
        let kept = self.files.entry(name.clone()).or_insert(new);
        if kept.read == Some(key) && !self.closed.contains(&name) {
            kept.waits = false;
            return;
        }
        if kept.seen.0 != key {
            kept.seen = (key, now);
        }
        let settled = now.since_ms(kept.seen.1) >= MANIFEST_SETTLE_MS;
        if !self.looked || settled || self.closed.contains(&name) && !is_temporary(&name) {
            self.todo.push_back(name);
        } else {
            kept.waits = true;
            let settles_at = kept.seen.1.plus_ms(MANIFEST_SETTLE_MS);
            self.look_at = self.look_at.min(settles_at);
        }
    }

    /// Reads what is to be read, a bounded part of it per turn.
    fn work(&mut self, now: Instant) {
        let mut budget = MANIFEST_TURN_BYTES;
        while budget > 0
            && let Some(name) = self.todo.pop_front()
        {
            self.closed.remove(&name);
            let path = self.path.join(&name);
            let (key, content, size) = match read(&path) {
                Ok(Some((key, text))) => (Some(key), (self.parse)(&text), text.len()),
                // Gone, or no regular file any more: the next look says so, and where it is now.
                Ok(None) => {
                    self.look_at = now;
                    if let Some(kept) = self.files.get_mut(&name) {
                        kept.waits = true;
                    }
                    continue;
                }
                Err(why) => (None, Err(refusal(why)), 0),
            };
            budget = budget.saturating_sub(size.max(4_096));
            let Some(kept) = self.files.get_mut(&name) else { continue };
            log::debug!("path={} read, bytes={size}", path.display());
            kept.read = key;
            kept.is(content, &mut self.differs);
        }
    }

    fn folder(&self) -> Folder<C> {
        let mut files = Vec::with_capacity(self.files.len());
        let mut room = C::MOST;
        for (name, kept) in &self.files {
            let Some(content) = &kept.content else { continue };
            let content = match content {
                Ok(content) => match room.take::<C>(content) {
                    Ok(()) => Ok(content.clone()),
                    Err(why) => Err(refusal(why)),
                },
                Err(why) => Err(why.clone()),
            };
            let path = self.path.join(name).to_string_lossy().into();
            let changed_ns = kept.read.map_or(0, |(.., changed_ns)| changed_ns as i64);
            files.push(manifest::File { path, changed_ns, content });
        }
        let trouble = self.trouble.as_ref();
        let trouble = trouble.map(|why| format!("{}: {why}", self.path.display()).into());
        Folder { trouble, files }
    }
}

impl<C: Held> Kept<C> {
    /// What it holds now; notes whether that differs from before.
    fn is(&mut self, content: Result<C, Refusal>, differs: &mut bool) {
        self.waits = false;
        if self.content.as_ref() != Some(&content) {
            self.content = Some(content);
            *differs = true;
        }
    }
}

/// What may still be taken of the whole folder.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Pods.
    pub pods: usize,
    /// Objects that pods use, and all else.
    pub objects: usize,
    /// Bytes of these.
    pub object_bytes: usize,
}

impl Room {
    /// All of a file, or why not.
    fn take<C: Held>(&mut self, content: &C) -> Result<(), String> {
        let (weight, most) = (content.weight(), C::MOST);
        let left_out = |got: &str| Err(format!("{got} in the whole folder: this file is left out"));
        if weight.pods > self.pods {
            return left_out(&format!("got more than {} pods", most.pods));
        }
        if weight.objects > self.objects {
            return left_out(&format!("got more than {} ConfigMaps and Secrets", most.objects));
        }
        if weight.object_bytes > self.object_bytes {
            let most = most.object_bytes;
            return left_out(&format!("got more than {most} bytes of ConfigMaps and Secrets"));
        }
        self.pods -= weight.pods;
        self.objects -= weight.objects;
        self.object_bytes -= weight.object_bytes;
        Ok(())
    }
}

/// Of a file as a whole.
fn refusal(why: String) -> Refusal {
    Refusal { line: 0, column: 0, why }
}

#[cfg(test)]
mod tests;
