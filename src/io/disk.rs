//! The store: what the cloud sent, on the disk, in KubeEdge's own SQLite file.
//!
//! Only the table `meta` is ours, those of devices where these are served, and `meta_v2` where
//! MetaServer is on; the others of an EdgeCore that ran here before stay as they are, and EdgeCore
//! finds its file again when it comes back.
//!
//! ```text
//!  open ─▶ sound? ─▶ rows ─▶ Event::Loaded      save ─▶ one transaction ─▶ fsync ─▶ Event::Saved
//!           │ no                                         │ no room, damaged …
//!           └▶ moved aside, intact rows kept             └▶ Event::SaveFailed: nothing is saved
//! ```
//!
//! **Durable means durable**: the cloud never sends an object again that the node has acknowledged.
//! So the write-ahead log is synced at every commit (`synchronous` is EXTRA). One connection locks
//! the file exclusively: that needs no shared memory file, and a second agent is refused.
//!
//! **If we crash here**, or power fails, every transaction is stored as a whole or not at all, and
//! all transactions that were answered are stored; `tests/power` cuts the power 10,000 times. A
//! write-ahead log remains, which SQLite reads at the next start, of edged or of EdgeCore. The
//! process before may have failed to sync it, and then it is complete only in the page cache: it is
//! written and synced again before anything depends on it. A clean stop leaves one plain file.
//!
//! **A store that cannot be used** stops neither pods nor the agent: whatever can be read is
//! reported, and every save fails with the reason.

mod check;
mod crashes;
#[cfg(feature = "devices")]
mod devices;
#[cfg(not(feature = "devices"))]
#[path = "disk/devices/absent.rs"]
mod devices;
mod inspect;
#[cfg(feature = "metaserver")]
mod items;
pub(in crate::io) mod quarantine;
mod rows;
#[cfg(any(feature = "devices", feature = "servicebus"))]
mod rule_rows;
#[cfg(not(any(feature = "devices", feature = "servicebus")))]
#[path = "disk/rule_rows/absent.rs"]
mod rule_rows;
mod store;
mod vfs;

#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::clock;
use crate::agent::event::Event;
use crate::limits::STORE_WAL_PAGES;
use crate::model::error::System;
use crate::model::meta::{Change, DiskError, Revision, Row, Saved, StoreOrigin};
#[cfg(feature = "metaserver")]
use crate::model::metaserver::{MetaServerSettings, StoredItem};
pub use inspect::{Inspection, State as Health, inspect};
use rows::{Found, Totals};
pub use store::Store;
use vfs::Log;
pub use vfs::{TestVfs, Vfs};

#[derive(Debug)]
pub struct Disk {
    vfs: Vfs,
    path: PathBuf,
    state: State,
    totals: Totals,
    /// The log that was left has been written again and synced: a retry writes flash only once.
    is_log_synced: bool,
    /// The last save failed, but may be in the log nevertheless.
    tainted: bool,
}

#[derive(Debug)]
enum State {
    /// Locked by this process, and writable.
    Open(Connection),
    /// Not open. A save opens it again if its content is unchanged. `None`: it is not opened before
    /// the next start, because its content is unknown, and so can be neither kept nor overwritten.
    Unavailable { why: DiskError, content: Option<u64> },
}

/// Another process uses the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(String);

impl Refused {
    fn locked(path: &Path) -> Self {
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
    /// Opens the store at this absolute path, creates it if it is absent, and reads it. Fails
    /// only if another process uses it: no other error keeps the agent from running.
    pub fn open(path: &Path) -> Result<(Self, Saved), Refused> {
        Self::open_on(Vfs::default(), path)
    }

    /// The same on another VFS.
    pub fn open_on(vfs: Vfs, path: &Path) -> Result<(Self, Saved), Refused> {
        if vfs.is_machine()
            && let Err(error) = quarantine::prepare(path)
        {
            log::warn!("{}: cannot be made: {error}", path.display());
        }
        match Self::ready(vfs.clone(), path, false) {
            Ok(open) => Ok(open),
            Err(Trouble::Locked) => Err(Refused::locked(path)),
            Err(Trouble::Damaged(why)) => Ok(Self::replace(vfs, path, &why)),
            Err(Trouble::Failed(why)) => Ok(Self::open_read_only(vfs, path, why)),
        }
    }

    /// Checks the file, locks it, and reads it. `is_log_synced`: see [`Disk`].
    fn ready(vfs: Vfs, path: &Path, is_log_synced: bool) -> Result<(Self, Saved), Trouble> {
        let mut conn = vfs.connect(path)?;
        let mut saved = Saved::default();
        let (origin, rows, totals) = if rows::are_there(&conn)? {
            check::sound(&mut conn)?;
            devices::read(&conn, &mut saved);
            rule_rows::read(&conn, &mut saved);
            let mut found = rows::read(&conn, vfs.read_bytes_max)?;
            (found.origin(), found.rows, found.totals)
        } else {
            (StoreOrigin::New, Vec::new(), Totals::default())
        };
        let path = path.to_owned();
        // Before the log is written into the database, which a log with gaps would damage.
        let rewritten = if is_log_synced { Ok(()) } else { vfs.rewrite_log(&path) };
        let settled = if conn.is_readonly("main")? {
            Err(DiskError::Failed("the file system is read-only".to_owned()))
        } else if let Err(why) = &rewritten {
            Err(DiskError::Failed(format!("its log cannot be synced: {why}")))
        } else {
            match settle(&conn, || vfs.remove_journal(&path)) {
                Ok(()) => Ok(conn),
                Err(error) => match Trouble::from(error) {
                    Trouble::Failed(why) => Err(why),
                    other => return Err(other),
                },
            }
        };
        // The connection is dropped after an error: one that failed to switch to the log reports
        // nevertheless that it uses the log, and does not.
        let state = settled.map_or_else(
            |why| {
                log::error!("{}: cannot be written to: {why}", path.display());
                State::Unavailable { why, content: Some(digest(&rows)) }
            },
            State::Open,
        );
        let is_log_synced = rewritten.is_ok();
        (saved.rows, saved.origin, saved.is_unsynced) = (rows, origin, !is_log_synced);
        Ok((Self { vfs, path, state, totals, is_log_synced, tainted: false }, saved))
    }

    /// Moves the damaged file aside and starts a new one with the rows that could be read.
    fn replace(vfs: Vfs, path: &Path, why: &str) -> (Self, Saved) {
        let rows = vfs.connect(path).map(|conn| rows::salvage(&conn, vfs.read_bytes_max));
        let rows = rows.unwrap_or_default();
        let (disk, aside) = Self::begin_anew(vfs, path, &rows, why);
        let why = format!(
            "{} was damaged ({why}); {aside}; {} of its rows could be read",
            path.display(),
            rows.len()
        );
        log::error!("{why}");
        (disk, Saved::new(rows, StoreOrigin::Lost(why)))
    }

    /// Moves the store aside without reading it, and starts with an empty one. `why`: the reason.
    /// Fails if another process has locked the store.
    pub fn set_aside(vfs: Vfs, path: &Path, why: &str) -> Result<(Self, Saved), Refused> {
        let lock = || -> Result<bool, Trouble> { Ok(rows::are_there(&vfs.connect(path)?)?) };
        if let Err(Trouble::Locked) = lock() {
            return Err(Refused::locked(path));
        }
        let (disk, aside) = Self::begin_anew(vfs, path, &[], why);
        let why = format!("{} was moved aside unread ({why}); {aside}", path.display());
        log::error!("{why}");
        Ok((disk, Saved::new(Vec::new(), StoreOrigin::Lost(why))))
    }

    /// Renames the file, and creates another with these rows. Returns where the old one is, or why
    /// it is still in its place.
    fn begin_anew(vfs: Vfs, path: &Path, rows: &[Row], why: &str) -> (Self, String) {
        let replaced = if vfs.is_machine() {
            quarantine::replace(path, rows)
        } else {
            Err(System::new("files cannot be moved aside here"))
        };
        let begun = replaced.and_then(|aside| match Self::ready(vfs.clone(), path, false) {
            Ok((disk, saved)) if saved.rows == rows => Ok((disk, aside)),
            Ok(_) => Err(System::new("the new one does not contain what was written to it")),
            Err(trouble) => Err(System::new(trouble.to_string())),
        });
        match begun {
            Ok((disk, aside)) => (disk, format!("it is now {}", aside.display())),
            Err(error) => {
                let why = DiskError::Corrupt(format!("{why}; {error}"));
                let state = State::Unavailable { why, content: None };
                let totals = Totals::default();
                (Self::unavailable(vfs, path, state, totals), error.to_string())
            }
        }
    }

    fn unavailable(vfs: Vfs, path: &Path, state: State, totals: Totals) -> Self {
        Self { vfs, path: path.to_owned(), state, totals, is_log_synced: false, tainted: false }
    }

    /// Reads a file that cannot be locked; if that fails too, there are no rows.
    fn open_read_only(vfs: Vfs, path: &Path, why: DiskError) -> (Self, Saved) {
        let mut saved = Saved::default();
        let read = if vfs.is_machine() { read_only(&vfs, path, &mut saved) } else { None };
        let content = read.as_ref().map(|found| digest(&found.rows));
        if let Some(mut found) = read {
            log::error!("{}: can only be read: {why}", path.display());
            saved.is_unsynced = left_log(path) == Log::Read;
            saved.origin = found.origin();
            saved.rows = found.rows;
        } else {
            let why = format!("{}: cannot be opened: {why}", path.display());
            log::error!("{why}");
            saved = Saved::new(Vec::new(), StoreOrigin::Lost(why));
        }
        let state = State::Unavailable { why, content };
        let totals = Totals::of(&saved.rows);
        (Self::unavailable(vfs, path, state, totals), saved)
    }

    /// Applies the changes in one transaction: all of them are durable when this returns, or none.
    /// A save that failed because of the disk may still be found, as a whole, after a power
    /// failure.
    pub fn save(&mut self, revision: Revision, changes: &[Change]) -> Event {
        let done = self.commit(changes);
        self.tainted = done.is_err();
        match done {
            Ok(totals) => {
                self.totals = totals;
                Event::Saved(revision)
            }
            Err(why) => {
                // The next start replaces a damaged file: nothing is written to it any more.
                if let (DiskError::Corrupt(_), State::Open(_)) = (&why, &self.state) {
                    self.abandon(why.clone());
                }
                Event::SaveFailed(revision, why)
            }
        }
    }

    fn commit(&mut self, changes: &[Change]) -> Result<Totals, DiskError> {
        self.reopen();
        let totals = self.totals;
        let conn = match &mut self.state {
            State::Open(conn) => conn,
            State::Unavailable { why, .. } => return Err(why.clone()),
        };
        let saving = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let totals = changes
            .iter()
            .try_fold(totals, |totals, change| rows::apply(&saving, change, totals))?;
        devices::apply(&saving, changes)?;
        #[cfg(feature = "metaserver")]
        items::apply(&saving, changes)?;
        rule_rows::apply(&saving, changes)?;
        if self.tainted {
            // Even if nothing changes: the failed save is in the log, and the next start would find
            // it until something overwrites it. Nothing reads this number.
            let version: i32 = saving.pragma_query_value(None, "user_version", |row| row.get(0))?;
            saving.pragma_update(None, "user_version", version ^ 1)?;
        }
        saving.commit()?;
        Ok(totals)
    }

    /// Opens the store again, only if it still has the rows that were reported to the core.
    fn reopen(&mut self) {
        let State::Unavailable { content: Some(content), .. } = self.state else { return };
        match Self::ready(self.vfs.clone(), &self.path, self.is_log_synced) {
            Ok((disk, saved)) if digest(&saved.rows) == content => {
                *self = Self { tainted: self.tainted, ..disk };
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// The objects that MetaServer may serve, beside the rows that were read.
    #[cfg(feature = "metaserver")]
    pub(in crate::io) fn items(
        &self,
        rows: &[Row],
        settings: &MetaServerSettings,
        bytes_max: usize,
    ) -> Vec<StoredItem> {
        let State::Open(conn) = &self.state else { return items::of_meta(rows, settings) };
        let mut all = items::of_meta(rows, settings);
        all.extend(items::read(conn, settings, bytes_max));
        all
    }

    /// Closes the file and leaves it as it is.
    fn abandon(&mut self, why: DiskError) {
        if let State::Open(conn) = &self.state {
            let _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        self.state = State::Unavailable { why, content: None };
    }

    /// Leaves one plain file without a log, as EdgeCore does.
    pub fn close(self) {
        let State::Open(conn) = self.state else { return };
        let closed = plain(&conn).and_then(|()| conn.close().map_err(|(_, error)| error));
        if let Err(error) = closed {
            log::warn!("{}: cannot write its log into the database: {error}", self.path.display());
        }
    }
}

/// Locks the file and prepares it for writing.
fn settle(
    conn: &Connection,
    remove_journal: impl FnOnce() -> io::Result<()>,
) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    let mode: String = query(conn, "PRAGMA journal_mode = WAL")?;
    if mode != "wal" {
        let why = format!("got the journal mode {mode}, expected wal");
        return Err(rusqlite::Error::ToSqlConversionFailure(why.into()));
    }
    // SQLite has closed it. If a sync of its end failed, a power cut would bring it back.
    remove_journal().map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    conn.pragma_update(None, "wal_autocheckpoint", STORE_WAL_PAGES)?;
    // A first list of many pods makes the log longer than its normal size.
    conn.pragma_update(None, "journal_size_limit", STORE_WAL_PAGES * 4_096)?;
    // Deleted content, such as secrets, is overwritten when its page is written.
    conn.pragma_update(None, "secure_delete", "FAST")?;
    conn.execute_batch(rows::SCHEMA)?;
    let busy: i64 = query(conn, "PRAGMA wal_checkpoint(TRUNCATE)")?;
    if busy != 0 {
        let why = "the log of the last run cannot be written into the database";
        return Err(rusqlite::Error::ToSqlConversionFailure(why.into()));
    }
    Ok(())
}

fn plain(conn: &Connection) -> rusqlite::Result<()> {
    query::<String>(conn, "PRAGMA journal_mode = DELETE")?;
    // Otherwise an empty journal stays.
    conn.pragma_update(None, "locking_mode", "NORMAL")?;
    query::<i64>(conn, "SELECT count(*) FROM sqlite_schema").map(drop)
}

/// The first value of the result, after the whole statement is done: only then it has committed.
fn query<T: rusqlite::types::FromSql>(conn: &Connection, sql: &str) -> rusqlite::Result<T> {
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    let first = rows.next()?.ok_or(rusqlite::Error::QueryReturnedNoRows)?.get(0)?;
    while rows.next()?.is_some() {}
    Ok(first)
}

/// The rows of a file that cannot be locked. Not without its log: that would be an older state.
fn read_only(vfs: &Vfs, path: &Path, saved: &mut Saved) -> Option<Found> {
    let log = left_log(path);
    if left(path, "-journal") || !path.exists() {
        return None;
    }
    let mut read = || -> Result<Found, Trouble> {
        let mut conn = Vfs::connect_read_only(path, log)?;
        if !rows::are_there(&conn)? {
            return Ok(Found::default());
        }
        check::sound(&mut conn)?;
        devices::read(&conn, saved);
        rule_rows::read(&conn, saved);
        rows::read(&conn, vfs.read_bytes_max)
    };
    read().map_err(|trouble| log::warn!("{}: cannot be read: {trouble}", path.display())).ok()
}

/// The log that a crash left beside the file.
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

#[derive(Debug)]
enum Trouble {
    /// Another process has locked it.
    Locked,
    /// Its content is invalid.
    Damaged(String),
    /// It cannot be opened, read or written.
    Failed(DiskError),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        if let rusqlite::Error::SqlInputError { .. } = error {
            // Our own schema text is correct: the table is a different one.
            return Self::Damaged(text);
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(text),
            Some(_) | None => Self::Failed(error.into()),
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Locked => f.write_str("another process has locked it"),
            Self::Damaged(why) => f.write_str(why),
            Self::Failed(why) => write!(f, "{why}"),
        }
    }
}

impl From<rusqlite::Error> for DiskError {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(text),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(text),
            Some(_) | None => Self::Failed(text),
        }
    }
}
