//! The store: what the cloud sent, on the disk, in KubeEdge's own SQLite file.
//!
//! Only the table `meta` is ours; the others of an EdgeCore that ran here before (`meta_v2`,
//! `device` …) stay as they are, and EdgeCore finds its file again when it comes back.
//!
//! ```text
//!  open ─▶ sound? ─▶ rows ─▶ Event::Loaded      save ─▶ one transaction ─▶ fsync ─▶ Event::Saved
//!           │ no                                         │ no room, damaged …
//!           └▶ put aside, keep the whole rows             └▶ Event::SaveFailed: nothing is kept
//! ```
//!
//! **Durable means durable**: the cloud never sends again what we said we have. So the write-ahead
//! log is synced at every commit (`synchronous` is FULL and more). One connection, which locks the
//! file for itself: that needs no shared memory file, and a second agent is refused.
//!
//! **If we crash here**, or power fails, every transaction is there as a whole or not at all, and
//! those that were answered are there; `tests/power` cuts the power 10,000 times. What it leaves is
//! a write-ahead log, which SQLite reads at the next start, ours or EdgeCore's. A clean end leaves
//! one plain file.
//!
//! **A store that cannot be used** stops no pod and no start: what can be read is told, and every
//! save fails with its reason.

mod check;
mod crashes;
mod inspect;
pub(in crate::io) mod quarantine;
mod rows;
mod store;
mod vfs;

#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::clock;
use crate::agent::event::Event;
use crate::limits::STORE_WAL_PAGES;
use crate::model::meta::{Change, DiskError, Revision, Row, Saved, StoreOrigin};
pub use inspect::{Inspection, State as Health, inspect};
use rows::{Found, Held};
pub use store::Store;
use vfs::Log;
pub use vfs::Vfs;

/// The open store.
#[derive(Debug)]
pub struct Disk {
    ground: Vfs,
    path: PathBuf,
    state: State,
    held: Held,
    /// The last save failed, and may have reached the log all the same.
    tainted: bool,
}

#[derive(Debug)]
enum State {
    /// Ours alone, and written to.
    Open(Connection),
    /// Not open. Opened again at a save if it holds just what it held; `None`: not before the next
    /// start, because what it holds is not known, and what is not known can be neither kept nor
    /// overwritten.
    Away { why: DiskError, known: Option<u64> },
}

/// The store belongs to someone else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(String);

impl Refused {
    fn held(path: &Path) -> Self {
        Self(format!(
            "{} is in use: another edged or EdgeCore runs on this machine; stop it first",
            path.display()
        ))
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Disk {
    /// Opens the store at this absolute path, makes it where there is none, and reads it. Fails
    /// only where another process has it: whatever else is wrong is no reason not to run.
    pub fn open(path: &Path) -> Result<(Self, Saved), Refused> {
        Self::open_on(Vfs::default(), path)
    }

    /// The same on another ground.
    pub fn open_on(ground: Vfs, path: &Path) -> Result<(Self, Saved), Refused> {
        if ground.is_machine()
            && let Err(error) = quarantine::prepare(path)
        {
            log::warn!("{}: cannot be made: {error}", path.display());
        }
        match Self::ready(ground.clone(), path) {
            Ok(open) => Ok(open),
            Err(Trouble::Held) => Err(Refused::held(path)),
            Err(Trouble::Damaged(why)) => Ok(Self::replace(ground, path, &why)),
            Err(Trouble::Failed(why)) => Ok(Self::away(ground, path, why)),
        }
    }

    /// Looks at the file, takes it, and reads it.
    fn ready(ground: Vfs, path: &Path) -> Result<(Self, Saved), Trouble> {
        let mut conn = ground.connect(path)?;
        let (origin, rows, held) = if rows::are_there(&conn)? {
            check::sound(&mut conn)?;
            let mut found = rows::read(&conn, ground.read_bytes_max)?;
            (found.origin(), found.rows, found.held)
        } else {
            (StoreOrigin::New, Vec::new(), Held::default())
        };
        let path = path.to_owned();
        let settled = if conn.is_readonly("main")? {
            Err(DiskError::Failed("the file system is read-only".to_owned()))
        } else {
            match settle(&conn) {
                Ok(()) => Ok(conn),
                Err(error) => match Trouble::from(error) {
                    Trouble::Failed(why) => Err(why),
                    other => return Err(other),
                },
            }
        };
        // The connection goes with what failed: one that failed to go over to the log says that it
        // has it all the same, and does not use it.
        let state = settled.map_or_else(
            |why| {
                log::error!("{}: cannot be written to: {why}", path.display());
                State::Away { why, known: Some(digest(&rows)) }
            },
            State::Open,
        );
        Ok((Self { ground, path, state, held, tainted: false }, Saved { rows, origin }))
    }

    /// Puts the damaged file aside and begins anew with what could be read of it.
    fn replace(ground: Vfs, path: &Path, why: &str) -> (Self, Saved) {
        let rows = ground.connect(path).map(|conn| rows::salvage(&conn, ground.read_bytes_max));
        let rows = rows.unwrap_or_default();
        let (disk, aside) = Self::begin_anew(ground, path, &rows, why);
        let why = format!(
            "{} was damaged ({why}); {aside}; {} rows of it could be read",
            path.display(),
            rows.len()
        );
        log::error!("{why}");
        (disk, Saved { rows, origin: StoreOrigin::Lost(why) })
    }

    /// Sets the store aside without reading it, and begins with an empty one. `why` says what is
    /// wrong with it. Fails where another process has it.
    pub fn set_aside(ground: Vfs, path: &Path, why: &str) -> Result<(Self, Saved), Refused> {
        let look = || -> Result<bool, Trouble> { Ok(rows::are_there(&ground.connect(path)?)?) };
        if let Err(Trouble::Held) = look() {
            return Err(Refused::held(path));
        }
        let (disk, aside) = Self::begin_anew(ground, path, &[], why);
        let why = format!("{} was set aside unread ({why}); {aside}", path.display());
        log::error!("{why}");
        Ok((disk, Saved { rows: Vec::new(), origin: StoreOrigin::Lost(why) }))
    }

    /// Renames the file, and makes another with these rows. Says where the old one is, or why it is
    /// still in its place.
    fn begin_anew(ground: Vfs, path: &Path, rows: &[Row], why: &str) -> (Self, String) {
        let replaced = if ground.is_machine() {
            quarantine::replace(path, rows)
        } else {
            Err("files cannot be put aside here".to_owned())
        };
        let begun = replaced.and_then(|aside| match Self::ready(ground.clone(), path) {
            Ok((disk, saved)) if saved.rows == rows => Ok((disk, aside)),
            Ok(_) => Err("the new one does not hold what was written to it".to_owned()),
            Err(trouble) => Err(trouble.to_string()),
        });
        match begun {
            Ok((disk, aside)) => (disk, format!("it is now {}", aside.display())),
            Err(error) => {
                let why = DiskError::Corrupt(format!("{why}; {error}"));
                let state = State::Away { why, known: None };
                let held = Held::default();
                (Self { ground, path: path.to_owned(), state, held, tainted: false }, error)
            }
        }
    }

    /// Reads a file that cannot be taken; if not even that, there is nothing.
    fn away(ground: Vfs, path: &Path, why: DiskError) -> (Self, Saved) {
        let read = if ground.is_machine() { read_only(&ground, path) } else { None };
        let known = read.as_ref().map(|found| digest(&found.rows));
        let saved = if let Some(mut found) = read {
            log::error!("{}: can only be read: {why}", path.display());
            Saved { origin: found.origin(), rows: found.rows }
        } else {
            let why = format!("{}: cannot be opened: {why}", path.display());
            log::error!("{why}");
            Saved { rows: Vec::new(), origin: StoreOrigin::Lost(why) }
        };
        let state = State::Away { why, known };
        let held = Held::of(&saved.rows);
        (Self { ground, path: path.to_owned(), state, held, tainted: false }, saved)
    }

    /// Makes the changes in one transaction: all of them are durable when this returns, or none.
    /// What failed for the disk's sake may still be found, as a whole, after a power cut.
    pub fn save(&mut self, revision: Revision, changes: &[Change]) -> Event {
        let done = self.commit(changes);
        self.tainted = done.is_err();
        match done {
            Ok(held) => {
                self.held = held;
                Event::Saved(revision)
            }
            Err(why) => {
                // What is damaged is for the next start to replace: nothing is written any more.
                if let (DiskError::Corrupt(_), State::Open(_)) = (&why, &self.state) {
                    self.leave(why.clone());
                }
                Event::SaveFailed(revision, why)
            }
        }
    }

    fn commit(&mut self, changes: &[Change]) -> Result<Held, DiskError> {
        self.reopen();
        let held = self.held;
        let conn = match &mut self.state {
            State::Open(conn) => conn,
            State::Away { why, .. } => return Err(why.clone()),
        };
        let saving = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let held =
            changes.iter().try_fold(held, |held, change| rows::apply(&saving, change, held))?;
        if self.tainted {
            // Even if nothing changes: what failed lies in the log, to be found at the next start,
            // until something is written over it. Nobody reads this number.
            let version: i32 = saving.pragma_query_value(None, "user_version", |row| row.get(0))?;
            saving.pragma_update(None, "user_version", version ^ 1)?;
        }
        saving.commit()?;
        Ok(held)
    }

    /// Tries again what could not be had; only as long as it holds what was told to the mind.
    fn reopen(&mut self) {
        let State::Away { known: Some(known), .. } = self.state else { return };
        match Self::ready(self.ground.clone(), &self.path) {
            Ok((disk, saved)) if digest(&saved.rows) == known => {
                (self.state, self.held) = (disk.state, disk.held);
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Gives the file up as it is.
    fn leave(&mut self, why: DiskError) {
        if let State::Open(conn) = &self.state {
            let _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        self.state = State::Away { why, known: None };
    }

    /// Leaves one plain file without a log beside it, as EdgeCore does.
    pub fn close(self) {
        let State::Open(conn) = self.state else { return };
        let closed = plain(&conn).and_then(|()| conn.close().map_err(|(_, error)| error));
        if let Err(error) = closed {
            log::warn!("{}: left with its log: {error}", self.path.display());
        }
    }
}

/// Makes the file ours and ready for writing.
fn settle(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    let mode: String = answer(conn, "PRAGMA journal_mode = WAL")?;
    if mode != "wal" {
        let why = format!("got the journal mode {mode}, expected wal");
        return Err(rusqlite::Error::ToSqlConversionFailure(why.into()));
    }
    conn.pragma_update(None, "wal_autocheckpoint", STORE_WAL_PAGES)?;
    // A first list of many pods makes the log longer than it is to stay.
    conn.pragma_update(None, "journal_size_limit", STORE_WAL_PAGES * 4_096)?;
    // What is deleted, secrets among it, is overwritten where the page is written anyway.
    conn.pragma_update(None, "secure_delete", "FAST")?;
    conn.execute_batch(rows::SCHEMA)?;
    // A log that was left is what the kernel remembers of it, and a sync of it may have failed:
    // what was read of it is written and synced anew before anything is built on it.
    let busy: i64 = answer(conn, "PRAGMA wal_checkpoint(TRUNCATE)")?;
    if busy != 0 {
        let why = "the log that was left cannot be put to where it belongs";
        return Err(rusqlite::Error::ToSqlConversionFailure(why.into()));
    }
    Ok(())
}

fn plain(conn: &Connection) -> rusqlite::Result<()> {
    answer::<String>(conn, "PRAGMA journal_mode = DELETE")?;
    // Else an emptied journal stays.
    conn.pragma_update(None, "locking_mode", "NORMAL")?;
    answer::<i64>(conn, "SELECT count(*) FROM sqlite_schema").map(drop)
}

/// What the statement says first, once it is done as a whole: it says so before it commits.
fn answer<T: rusqlite::types::FromSql>(conn: &Connection, sql: &str) -> rusqlite::Result<T> {
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    let first = rows.next()?.ok_or(rusqlite::Error::QueryReturnedNoRows)?.get(0)?;
    while rows.next()?.is_some() {}
    Ok(first)
}

/// The rows of a file on which no lock can be had. Not without its log: that would go back.
fn read_only(ground: &Vfs, path: &Path) -> Option<Found> {
    let log = left_log(path);
    if left(path, "-journal") || !path.exists() {
        return None;
    }
    let read = || -> Result<Found, Trouble> {
        let mut conn = Vfs::connect_read_only(path, log)?;
        if !rows::are_there(&conn)? {
            return Ok(Found::default());
        }
        check::sound(&mut conn)?;
        rows::read(&conn, ground.read_bytes_max)
    };
    read().map_err(|trouble| log::warn!("{}: cannot be read: {trouble}", path.display())).ok()
}

/// The log that a crash has left beside the file.
fn left_log(path: &Path) -> Log {
    if left(path, "-wal") { Log::Read } else { Log::None }
}

fn left(path: &Path, end: &str) -> bool {
    quarantine::beside(path, end).metadata().is_ok_and(|about| about.len() > 0)
}

fn digest(rows: &[Row]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for row in rows {
        (&row.key, &row.kind, &row.value).hash(&mut hasher);
    }
    hasher.finish()
}

/// What is wrong with a file.
#[derive(Debug)]
enum Trouble {
    /// Another process has it.
    Held,
    /// It is not what it is to be.
    Damaged(String),
    /// It cannot be opened, read or written.
    Failed(DiskError),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        let said = error.to_string();
        if let rusqlite::Error::SqlInputError { .. } = error {
            // Our own words are right: the table is another one.
            return Self::Damaged(said);
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Held,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(said),
            Some(_) | None => Self::Failed(error.into()),
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Held => f.write_str("another process has it"),
            Self::Damaged(why) => f.write_str(why),
            Self::Failed(why) => write!(f, "{why}"),
        }
    }
}

impl From<rusqlite::Error> for DiskError {
    fn from(error: rusqlite::Error) -> Self {
        let said = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(said),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(said),
            Some(_) | None => Self::Failed(said),
        }
    }
}
