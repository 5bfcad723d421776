//! The records of sandboxes, containers and images: one file each in DATA.
//!
//! ```text
//!  edged record          12 bytes: what the file is
//!  1                     a byte, no digit: the version of this form
//!  message               protobuf: crate::wire::cri::record
//!  SHA-256               32 bytes: of everything before them
//! ```
//!
//! A record is written to `tmp/`, synced, renamed, and its folder is synced: after a crash or a
//! power cut the file is the old or the new one, whole. Those of one turn share the sync of their
//! folder.
//!
//! **Other versions of this program** read and write the same files: fields that one of them does
//! not know are skipped, and missing ones have their zero (`wire::cri::record`). What that cannot
//! express raises the version byte, and a file of another version is refused.
//!
//! **What may run has a copy of its record** in RUN, which is memory: a bad block of the flash does
//! not end a container. If the file cannot be read, or does not check, its copy counts and is saved
//! again. After a reboot there is none, and nothing runs.
//!
//! Without a copy such a file is renamed to `*.bad` and does not come back, and the server logs its
//! name; what it was about is found in RUN and cleaned, as anything without a record. An I/O error
//! of one file concerns no other: the server reads on. **If we crash here** between two records of
//! one turn, the first is durable and nobody was told so; a copy may be older than its record until
//! the next start, which makes them equal.
//!
//! That a sandbox is ready is written to its copy at once and to DATA within a second: a client
//! need not wait for the disk, because no sandbox survives a power cut. Where the record in DATA
//! says that the sandbox is being made, its copy counts.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

use super::fail_point::{self, Who};
use super::files::{self, at};
use super::layout::Layout;
use super::process;
use crate::core::time::Instant;
use crate::limits::{RECORD_BYTES_MAX, RECORD_LAZY_MS, RECORDS_BAD_MAX, RECORDS_MAX};
use crate::model::error::{Error, Peer, System};
use crate::model::image::is_sha256;
#[cfg(feature = "node-jobs")]
use crate::model::runtime::ImageId;
use crate::model::runtime::{Record, RecordKey, SandboxPhase, SandboxRecord};
use crate::runtime::event::{Durability, Stored};
use crate::wire::cri::record;

/// What is to be saved.
#[derive(Debug)]
pub struct Records {
    layout: Layout,
    /// In the order of requests; the next [`Records::commit`] writes them.
    now: Vec<Change>,
    /// Saved lazily, and by when.
    lazy: Vec<(Instant, Change)>,
}

#[derive(Debug)]
struct Change {
    key: RecordKey,
    /// `None`: it is erased.
    record: Option<Box<Record>>,
}

/// A file that could not be read, or did not check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// As it is called, or was before it was put aside.
    pub path: PathBuf,
    /// What is wrong with it, and why it could not be renamed if that failed as well.
    pub why: String,
    /// What its copy says, which counts and is to be saved again. `None`: there is none, and it is
    /// put aside.
    pub copy: Option<Box<Record>>,
}

impl Records {
    /// Makes its folders.
    pub fn open(layout: &Layout) -> Result<Self, System> {
        let folders = FOLDERS.into_iter().map(|it| layout.data().join(it));
        for folder in folders.chain([layout.tmp(), layout.copies()]) {
            files::make_dir(&folder)?;
        }
        Ok(Self { layout: layout.clone(), now: Vec::new(), lazy: Vec::new() })
    }

    /// To be written by the next [`Records::commit`], or within [`RECORD_LAZY_MS`]. Of one object
    /// the last one counts. What is to be in RUN is there afterwards, or durable if RUN takes no
    /// more.
    pub fn save(&mut self, now: Instant, record: Box<Record>, durability: Durability) {
        let change = Change { key: record.key(), record: Some(record) };
        let due = self.take_lazy(&change.key).unwrap_or(now.plus_ms(RECORD_LAZY_MS));
        self.now.retain(|earlier| durability == Durability::Lazily || earlier.key != change.key);
        if durability == Durability::InRun
            && let Some(record) = &change.record
            && let Err(why) =
                encode(record).and_then(|bytes| copy(&self.layout, &change.key, &bytes))
        {
            // If the disk takes it no more than RUN, a crash within the second loses the sandbox.
            let saved = write(&self.layout, std::slice::from_ref(&change));
            let what = saved.err().map_or_else(String::new, |fault| format!("; {fault}"));
            log::warn!("a record is saved to the disk at once: {why}{what}");
        }
        match durability {
            Durability::Now => self.now.push(change),
            Durability::Lazily | Durability::InRun => self.lazy.push((due, change)),
        }
    }

    /// To be removed by the next [`Records::commit`].
    pub fn erase(&mut self, key: RecordKey) {
        self.take_lazy(&key);
        self.now.retain(|earlier| earlier.key != key);
        self.now.push(Change { key, record: None });
    }

    /// When [`Records::commit`] has something to do, if nothing is saved until then.
    pub fn wake_at(&self) -> Option<Instant> {
        self.lazy.iter().map(|(due, _)| *due).min()
    }

    /// Makes durable what was to be saved or erased since the last time, and what has waited long
    /// enough. `None`: nothing was to be saved but lazily. After a failure some of it may be
    /// durable; none of it is tried again but what is saved lazily. The error names the file.
    pub fn commit(&mut self, now: Instant) -> Option<Result<(), System>> {
        let changes = std::mem::take(&mut self.now);
        let saved = (!changes.is_empty()).then(|| write(&self.layout, &changes));
        // What is saved lazily is newer than what was to be saved of the same object.
        let is_due = |(due, _): &mut (Instant, Change)| *due <= now;
        let due: Vec<Change> = self.lazy.extract_if(.., is_due).map(|(_, late)| late).collect();
        if write(&self.layout, &due).is_err() {
            self.write_each(due, now.plus_ms(RECORD_LAZY_MS));
        }
        saved
    }

    /// After they failed together, so that one that cannot be saved holds back no other. What fails
    /// is tried again at this moment.
    fn write_each(&mut self, due: Vec<Change>, again: Instant) {
        for late in due {
            if let Err(why) = write(&self.layout, std::slice::from_ref(&late)) {
                log::warn!("a record is saved later: {why}");
                self.lazy.push((again, late));
            }
        }
    }

    fn take_lazy(&mut self, key: &RecordKey) -> Option<Instant> {
        let at = self.lazy.iter().position(|(_, late)| late.key == *key)?;
        Some(self.lazy.remove(at).0)
    }
}

/// The folders of records, in the order of [`RecordKey`].
const FOLDERS: [&str; 3] = ["sb", "c", "images"];

/// All records, and the files that could not be read. The other fields of [`Stored`] are left
/// empty.
pub fn load(layout: &Layout) -> Result<(Stored, Vec<Unread>), System> {
    let boot = process::boot_id().map_err(|error| System::at("boot id", error))?;
    let (mut stored, mut unread) = (Stored { boot, ..Stored::default() }, Vec::new());
    for folder in FOLDERS {
        let folder = layout.data().join(folder);
        let mut left = RECORDS_MAX;
        for path in with_end(&folder, "rec")? {
            let (record, fault) = match read(layout, &path, &path) {
                Ok(record) => (Some(or_copy(layout, &path, record)), None),
                Err(why) => (read(layout, &copy_of(layout, &path), &path).ok(), Some(why)),
            };
            let Some(record) = record.filter(|_| left > 0) else {
                let why = match fault {
                    None => format!("got more than {RECORDS_MAX} records in one folder"),
                    Some(why) => match set_aside(&folder, &path) {
                        Ok(()) => why.to_string(),
                        Err(stays) => format!("{why}; it stays where it is: {stays}"),
                    },
                };
                unread.push(Unread { path, why, copy: None });
                continue;
            };
            left -= 1;
            match fault {
                // Of an earlier version, or of a server that was killed, it has none or an old one.
                None => keep_copy(layout, &record.key(), &encode(&record)?),
                Some(why) => {
                    let copy = Some(Box::new(record.clone()));
                    unread.push(Unread { path, why: why.to_string(), copy });
                }
            }
            match record {
                Record::Sandbox(record) => stored.sandboxes.push(record),
                Record::Container(record) => stored.containers.push(record),
                Record::Image(record) => stored.images.push(record),
            }
        }
    }
    Ok((stored, unread))
}

/// The record, or its copy where that is newer.
fn or_copy(layout: &Layout, path: &Path, record: Record) -> Record {
    let Record::Sandbox(SandboxRecord { phase: SandboxPhase::Making, boot, .. }) = &record else {
        return record;
    };
    match read(layout, &copy_of(layout, path), path) {
        Ok(Record::Sandbox(newer)) if newer.boot == *boot => Record::Sandbox(newer),
        _ => record,
    }
}

fn write(layout: &Layout, changes: &[Change]) -> Result<(), System> {
    let written = write_whole(layout, changes);
    if written.is_err() {
        // A full disk needs the room.
        for Change { key, .. } in changes {
            let _ = fs::remove_file(unfinished(layout, &layout.record(key)));
        }
    }
    written
}

/// Where a record is until it is renamed to this path.
fn unfinished(layout: &Layout, path: &Path) -> PathBuf {
    layout.tmp().join(path.file_name().expect("a record's path has a name"))
}

fn write_whole(layout: &Layout, changes: &[Change]) -> Result<(), System> {
    let mut written = Vec::new();
    for Change { key, record } in changes {
        let Some(record) = record else { continue };
        let path = layout.record(key);
        let tmp = unfinished(layout, &path);
        let bytes = encode(record).map_err(|why| System::at(path.display(), why))?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&tmp).map_err(|error| at("open", &tmp, &error))?;
        (&file).write_all(&bytes).map_err(|error| at("write", &tmp, &error))?;
        written.push((file, tmp, bytes));
    }
    let step = |what: &str| fail_point::step(layout.run(), Who::Server, what);
    step("records are written, and not synced");
    // The first sync often writes what the others wait for.
    for (file, tmp, _) in &written {
        file.sync_all().map_err(|error| at("sync", tmp, &error))?;
    }
    step("records are synced, and not renamed");
    let mut files = written.iter();
    let mut folders: Vec<PathBuf> = Vec::new();
    for Change { key, record } in changes {
        let path = layout.record(key);
        let done = if record.is_some() {
            fs::rename(&files.next().expect("one for each record").1, &path)
        } else {
            let _ = fs::remove_file(copy_of(layout, &path));
            match fs::remove_file(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                done => done,
            }
        };
        done.map_err(|error| at("write", &path, &error))?;
        step("a record is renamed or removed, and its folder not synced");
        let folder = path.parent().expect("a record lies in a folder");
        if !folders.iter().any(|known| known == folder) {
            folders.push(folder.to_owned());
        }
    }
    for folder in &folders {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| at("sync", folder, &error))?;
    }
    step("records are durable, and nobody knows");
    let saved = changes.iter().filter(|change| change.record.is_some());
    for (Change { key, .. }, (_, _, bytes)) in saved.zip(&written) {
        keep_copy(layout, key, bytes);
    }
    Ok(())
}

/// The copy of a record with this path.
fn copy_of(layout: &Layout, path: &Path) -> PathBuf {
    layout.copies().join(path.file_name().expect("a record's path has a name"))
}

/// Writes the copy of a record that is durable. Images need none: what runs goes on without its
/// image's record.
fn keep_copy(layout: &Layout, key: &RecordKey, bytes: &[u8]) {
    if matches!(key, RecordKey::Image(_)) {
        return;
    }
    if let Err(why) = copy(layout, key, bytes) {
        log::warn!("a record has no copy: {why}");
    }
}

/// Writes the copy of a record, or leaves none.
fn copy(layout: &Layout, key: &RecordKey, bytes: &[u8]) -> Result<(), System> {
    let copy = copy_of(layout, &layout.record(key));
    let new = copy.with_extension("new");
    files::replace(&new, &copy, bytes).inspect_err(|_| {
        // An old one would say what is no longer true.
        for path in [new, copy] {
            let _ = fs::remove_file(path);
        }
    })
}

const MAGIC: &[u8; 12] = b"edged record";
const VERSION: u8 = 1;
const SUM_BYTES: usize = 32;

fn encode(record: &Record) -> Result<Vec<u8>, System> {
    let bytes = with_sum(VERSION, &record::encode(record));
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(System::new(format!(
            "got a record of {} bytes, expected {RECORD_BYTES_MAX} at most: its configuration is \
             too large",
            bytes.len()
        )));
    }
    Ok(bytes)
}

fn with_sum(version: u8, message: &[u8]) -> Vec<u8> {
    let mut bytes = [MAGIC, &[version][..], message].concat();
    let sum = digest(&SHA256, &bytes);
    bytes.extend_from_slice(sum.as_ref());
    bytes
}

/// The folders of an image's unpacked layers, the lowest first: for another process than the
/// server, which knows the folder DATA.
#[cfg(feature = "node-jobs")]
pub fn layers_of(data: &Path, image: &str) -> Result<Vec<PathBuf>, Error> {
    if !is_sha256(image) {
        return Err(Peer::new(format!("got the image {image:?}, expected its digest")).into());
    }
    let layout = Layout::new(PathBuf::new(), data.to_path_buf());
    let path = layout.record(&RecordKey::Image(ImageId(image.into())));
    match read(&layout, &path, &path)? {
        Record::Image(image) => {
            Ok(image.layers.iter().map(|id| layout.layer(id).join("fs")).collect())
        }
        Record::Sandbox(_) | Record::Container(_) => {
            let path = path.display();
            Err(Peer::new(format!("{path}: got another record, expected an image's")).into())
        }
    }
}

/// Reads a record, or the copy of one. `path`: where a record of this id lies.
fn read(layout: &Layout, file: &Path, path: &Path) -> Result<Record, Error> {
    let bytes = files::read(file, RECORD_BYTES_MAX).map_err(|error| at("read", file, &error))?;
    let record = decode(&bytes)?;
    let named = layout.record(&record.key());
    if named != path {
        return Err(Peer::new(format!("got the record of {}", named.display())).into());
    }
    Ok(record)
}

fn decode(bytes: &[u8]) -> Result<Record, Peer> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(Peer::new(format!("got more than {RECORD_BYTES_MAX} bytes")));
    }
    let Some((version, _)) = bytes.strip_prefix(MAGIC).and_then(<[u8]>::split_first) else {
        let begin = bytes[..bytes.len().min(MAGIC.len())].escape_ascii();
        let expected = MAGIC.escape_ascii();
        return Err(Peer::new(format!(
            "got a file that begins \"{begin}\", expected \"{expected}\""
        )));
    };
    if *version != VERSION {
        let why = format!("got version {version} of a record's form, expected {VERSION}");
        return Err(Peer::new(why));
    }
    let whole = bytes.split_last_chunk::<SUM_BYTES>().and_then(|(before, sum)| {
        let message = before.get(MAGIC.len() + 1..)?;
        (digest(&SHA256, before).as_ref() == sum).then_some(message)
    });
    let message = whole.ok_or_else(|| Peer::new("it is not whole: its checksum differs"))?;
    let record = record::decode(message).map_err(|error| Peer::at("not readable", error))?;
    sound(&record)?;
    Ok(record)
}

/// Every id becomes a part of a path.
fn sound(record: &Record) -> Result<(), Peer> {
    let (ids, digests): (Vec<&str>, Vec<&str>) = match record {
        Record::Sandbox(record) => (vec![&record.id.0], Vec::new()),
        Record::Container(record) => {
            let layers = record.layers.iter().map(|id| &*id.0);
            let digests = layers.chain([&*record.image.0]).collect();
            (vec![&record.id.0, &record.sandbox.0], digests)
        }
        Record::Image(record) => {
            let layers = record.layers.iter().map(|id| &*id.0);
            (Vec::new(), layers.chain([&*record.id.0]).collect())
        }
    };
    if let Some(id) = ids.into_iter().find(|id| !super::layout::is_id(id)) {
        return Err(Peer::new(format!("got the id {id:?}, expected 64 hex digits")));
    }
    match digests.into_iter().find(|digest| !is_sha256(digest)) {
        Some(digest) => Err(Peer::new(format!("got the digest {digest:?}, expected sha256:…"))),
        None => Ok(()),
    }
}

/// The files of a folder with this extension, by name.
fn with_end(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, System> {
    let failed = |error: io::Error| at("readdir", folder, &error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension() == Some(OsStr::new(extension)) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

fn set_aside(folder: &Path, path: &Path) -> Result<(), System> {
    let kept = with_end(folder, "bad")?.len() < RECORDS_BAD_MAX;
    let done =
        if kept { fs::rename(path, path.with_extension("bad")) } else { fs::remove_file(path) };
    done.map_err(|error| at("rename", path, &error))
}

#[cfg(test)]
mod tests;
