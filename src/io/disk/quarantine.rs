//! Moves a damaged store aside and replaces it by a new one.
//!
//! A damaged store is replaced in steps; a crash may come after each of them:
//!
//! ```text
//!  1 edgecore.db.new is made, with the rows that could be read, and synced
//!  2 edgecore.db becomes edgecore.db.corrupt-1, then its write-ahead log and its journal likewise
//!  3 edgecore.db.new becomes edgecore.db
//! ```
//!
//! Before step 2 the next start finds the damaged store again. After that there is no store, or a
//! new one, and the next start continues here: otherwise SQLite would read the logs of the old
//! store as those of the new one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::params;

use super::{Vfs, rows};
use crate::limits::STORE_QUARANTINED_MAX;
use crate::model::error::System;
use crate::model::meta::Row;

/// The files that SQLite keeps beside its database.
pub(super) const SIDECARS: [&str; 3] = ["-wal", "-journal", "-shm"];

/// Makes the folder and the file if they are absent, readable by their owner only; completes a
/// replacement that a crash interrupted.
pub(in crate::io) fn prepare(path: &Path) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let folder = folder_of(path);
    if !folder.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let new = beside(path, NEW);
    if new.exists() {
        return exchange(path);
    }
    // A log without its database belongs to no file.
    put_sidecars(path, None)?;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    sync(folder)
}

/// Replaces the damaged store by one with these rows; returns the new path of the damaged one.
pub(super) fn replace(path: &Path, rows: &[Row]) -> Result<PathBuf, System> {
    replace_by(path, |new| fill(new, rows))
}

/// The same with a store that the caller fills, in one file without a log beside it.
pub(in crate::io) fn replace_by(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<(), System>,
) -> Result<PathBuf, System> {
    let built = create(&beside(path, NEW)).map_err(System::from);
    let built = built.and_then(|()| fill(&beside(path, NEW)));
    built.map_err(|why| System::at("a new one cannot be created", why))?;
    exchange(path).map_err(|error| System::at("it cannot be moved aside", error))?;
    numbers(path).last().map(|number| aside(path, *number)).ok_or_else(|| System::new("it is gone"))
}

impl From<rusqlite::Error> for System {
    fn from(error: rusqlite::Error) -> Self {
        Self::new(error.to_string())
    }
}

const NEW: &str = ".new";

fn create(new: &Path) -> io::Result<()> {
    remove(new)?;
    for sidecar in SIDECARS {
        remove(&beside(new, sidecar))?;
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(new).map(drop)
}

fn fill(new: &Path, rows: &[Row]) -> Result<(), System> {
    let fill = || -> rusqlite::Result<()> {
        let mut conn = Vfs::default().connect(new)?;
        let filling = conn.transaction()?;
        filling.execute(rows::SCHEMA, [])?;
        for row in rows {
            let sql = "INSERT INTO meta (key, type, value) VALUES (?1, ?2, ?3)";
            filling.execute(sql, params![row.key, row.kind, row.value])?;
        }
        filling.commit()?;
        conn.close().map_err(|(_, error)| error)
    };
    Ok(fill()?)
}

/// Steps 2 and 3, from where they were interrupted.
fn exchange(path: &Path) -> io::Result<()> {
    let folder = folder_of(path);
    let last = numbers(path).last().copied();
    let number = if path.exists() {
        let number = last.unwrap_or(0) + 1;
        fs::rename(path, aside(path, number))?;
        sync(folder)?;
        Some(number)
    } else {
        last
    };
    put_sidecars(path, number)?;
    sync(folder)?;
    fs::rename(beside(path, NEW), path)?;
    sync(folder)?;
    let numbers = numbers(path);
    for old in numbers.iter().rev().skip(STORE_QUARANTINED_MAX) {
        let old = aside(path, *old);
        remove(&old)?;
        for sidecar in SIDECARS {
            remove(&beside(&old, sidecar))?;
        }
    }
    Ok(())
}

/// Moves logs and journals with their database, if its number is known.
fn put_sidecars(path: &Path, number: Option<u32>) -> io::Result<()> {
    for sidecar in SIDECARS {
        let from = beside(path, sidecar);
        match number {
            Some(number) if from.exists() => {
                fs::rename(&from, beside(&aside(path, number), sidecar))?;
            }
            _ => remove(&from)?,
        }
    }
    Ok(())
}

/// The numbers of the stores that were moved aside, the oldest first.
fn numbers(path: &Path) -> Vec<u32> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let start = format!("{name}{ASIDE}");
    let entries = fs::read_dir(folder_of(path)).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(&start)?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The stores that were moved aside, the oldest first.
pub(super) fn all(path: &Path) -> Vec<PathBuf> {
    numbers(path).into_iter().map(|number| aside(path, number)).collect()
}

const ASIDE: &str = ".corrupt-";

fn aside(path: &Path, number: u32) -> PathBuf {
    beside(path, &format!("{ASIDE}{number}"))
}

/// `edgecore.db` with a suffix.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Names in a folder are durable only after the folder itself is synced.
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
