//! The file system under the store: the machine's, or a simulated one of a test.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::limits::{STORE_BUSY_MS, STORE_BYTES_MAX, STORE_CACHE_KIB};

/// The VFS for SQLite's reads and writes.
#[derive(Clone, Debug)]
pub struct Vfs {
    /// An SQLite VFS by its name; `None`: the machine's own.
    vfs: Option<String>,
    /// How many bytes of rows the memory has room for; other rows are not read.
    pub(super) read_bytes_max: usize,
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

    /// A test's own file system: the SQLite VFS that it registered under this name.
    pub fn of_test(vfs: &str) -> Self {
        Self { vfs: Some(vfs.to_owned()), ..Self::default() }
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
            Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs.as_str())?,
        };
        configure(conn)
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
