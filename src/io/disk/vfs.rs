//! The file system under the store: the machine's, or a simulated one of a test.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::quarantine;
use crate::limits::{STORE_BUSY_MS, STORE_BYTES_MAX, STORE_CACHE_KIB};

/// The VFS for SQLite's reads and writes.
#[derive(Clone, Debug)]
pub struct Vfs {
    /// The VFS of a test; `None`: the machine's own.
    vfs: Option<TestVfs>,
    /// How many bytes of rows the memory has room for; other rows are not read.
    pub(super) read_bytes_max: usize,
}

/// An SQLite VFS that a test has registered.
#[derive(Clone, Debug)]
pub struct TestVfs {
    pub name: &'static str,
    /// Writes the content of a file again, and syncs the file and its name.
    pub rewrite: fn(&Path) -> io::Result<()>,
    /// Removes a file, if there is one, and syncs its name.
    pub remove: fn(&Path) -> io::Result<()>,
}

impl Default for Vfs {
    fn default() -> Self {
        Self { vfs: None, read_bytes_max: STORE_BYTES_MAX }
    }
}

impl Vfs {
    /// The machine's file system, with room for this many bytes of rows.
    pub fn with_memory(read_bytes_max: usize) -> Self {
        Self { read_bytes_max, ..Self::default() }
    }

    /// A test's own file system.
    pub fn of_test(vfs: TestVfs) -> Self {
        Self { vfs: Some(vfs), ..Self::default() }
    }

    /// Whether files can be renamed and made without SQLite.
    pub(super) fn is_machine(&self) -> bool {
        self.vfs.is_none()
    }

    /// Opens the file for this connection alone. Nothing is read or locked yet.
    pub(super) fn connect(&self, path: &Path) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = match &self.vfs {
            None => Connection::open_with_flags(path, flags)?,
            Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs.name)?,
        };
        configure(conn)
    }

    /// Writes the write-ahead log again, if there is one, and syncs it. After a failed sync the
    /// page cache has content that the disk has not, and Linux does not write it by itself. The
    /// store must be locked.
    pub(super) fn rewrite_log(&self, path: &Path) -> io::Result<()> {
        let log = quarantine::beside(path, "-wal");
        match &self.vfs {
            None => rewrite(&log),
            Some(vfs) => (vfs.rewrite)(&log),
        }
    }

    /// Removes the rollback journal that a failed close has left. The store must be locked, and be
    /// in the mode that does not use it.
    pub(super) fn remove_journal(&self, path: &Path) -> io::Result<()> {
        let journal = quarantine::beside(path, "-journal");
        match &self.vfs {
            None if journal.exists() => {
                quarantine::remove(&journal)?;
                quarantine::sync(quarantine::folder_of(path))
            }
            None => Ok(()),
            Some(vfs) => (vfs.remove)(&journal),
        }
    }

    /// Opens a file that is not writable: it cannot be locked, and without a write-ahead log none
    /// can be made.
    pub(super) fn connect_read_only(path: &Path, log: Log) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        configure(match log {
            Log::Read => Connection::open_with_flags_and_vfs(path, flags, UNLOCKED)?,
            Log::None => {
                let uri = format!("file:{}?immutable=1", encoded(path));
                Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?
            }
        })
    }
}

fn rewrite(path: &Path) -> io::Result<()> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut block = [0; REWRITE_BLOCK];
    let mut at = 0;
    loop {
        let len = file.read_at(&mut block, at)?;
        if len == 0 {
            break;
        }
        file.write_all_at(&block[..len], at)?;
        at += len as u64;
    }
    file.sync_all()?;
    quarantine::sync(quarantine::folder_of(path))
}

/// Bytes that are written at once.
const REWRITE_BLOCK: usize = 16 << 10;

/// SQLite's own VFS without locks.
const UNLOCKED: &str = "unix-none";

/// Whether there is a write-ahead log beside the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    Read,
    None,
}

/// Configures a connection, before anything is read.
fn configure(conn: Connection) -> rusqlite::Result<Connection> {
    // A damaged file stays unchanged: closing it does not checkpoint its log.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.busy_timeout(Duration::from_millis(STORE_BUSY_MS))?;
    // The lock is never released, and the index of the write-ahead log is in our memory.
    conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // FULL, plus a sync of the folder after a journal is removed: otherwise it may come back.
    conn.pragma_update(None, "synchronous", "EXTRA")?;
    conn.pragma_update(None, "cache_size", -i64::from(STORE_CACHE_KIB))?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    // Another program may have written the file: its schema must not run code, and its pages may be
    // malformed.
    conn.pragma_update(None, "trusted_schema", false)?;
    conn.pragma_update(None, "cell_size_check", true)?;
    Ok(conn)
}

/// The path as a part of a URI.
fn encoded(path: &Path) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(byte);
    let bytes = path.as_os_str().as_encoded_bytes();
    let part = |byte: &u8| {
        if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
    };
    bytes.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_waits_and_remembers_within_its_bounds() {
        let conn = configure(Connection::open_in_memory().expect("memory")).expect("it is dressed");
        let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        assert_eq!(number("busy_timeout"), Ok(STORE_BUSY_MS as i64));
        // SQLite counts pages; a negative number means KiB.
        assert_eq!(number("cache_size"), Ok(-i64::from(STORE_CACHE_KIB)));
    }

    #[test]
    fn a_path_is_told_byte_by_byte() {
        assert_eq!(encoded(Path::new("/a b/c?d#é.db")), "/a%20b/c%3Fd%23%C3%A9.db");
    }
}
