//! On what the store lies: the machine's file system, or one that a test made.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::limits::{STORE_BUSY_MS, STORE_BYTES_MAX, STORE_CACHE_KIB};

/// Where SQLite's reads and writes go.
#[derive(Clone, Debug)]
pub struct Vfs {
    /// An SQLite VFS by its name; `None`: the machine's own.
    vfs: Option<String>,
    /// Bytes of rows that there is memory to read; the others stay unread.
    pub(super) read_bytes_max: usize,
}

impl Default for Vfs {
    fn default() -> Self {
        Self { vfs: None, read_bytes_max: STORE_BYTES_MAX }
    }
}

impl Vfs {
    /// The machine's file system, with memory for so many bytes of rows.
    pub fn with_memory(read_bytes_max: usize) -> Self {
        Self { read_bytes_max, ..Self::default() }
    }

    /// A file system of a test's own: the SQLite VFS that it registered under this name.
    pub fn of_test(vfs: &str) -> Self {
        Self { vfs: Some(vfs.to_owned()), ..Self::default() }
    }

    /// Files can be renamed and made beside SQLite's back.
    pub(super) fn is_machine(&self) -> bool {
        self.vfs.is_none()
    }

    /// Opens the file for this connection alone. Nothing is read and nothing locked yet.
    pub(super) fn connect(&self, path: &Path) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = match &self.vfs {
            None => Connection::open_with_flags(path, flags)?,
            Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs.as_str())?,
        };
        dress(conn)
    }

    /// Opens a file for reading that nobody can write: no lock can be had on it, and where it has
    /// no write-ahead log none can be made.
    pub(super) fn connect_read_only(path: &Path, log: Log) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        dress(match log {
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

/// Whether a write-ahead log stands beside the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    Read,
    None,
}

/// What holds for each connection, before anything is read.
fn dress(conn: Connection) -> rusqlite::Result<Connection> {
    // A damaged file stays as it was found: nothing is moved when it is closed again.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.busy_timeout(Duration::from_millis(STORE_BUSY_MS))?;
    // The lock is never given back, and the index of the write-ahead log lies in our memory.
    conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // FULL, and the folder as well where a journal was removed: else it may come back.
    conn.pragma_update(None, "synchronous", "EXTRA")?;
    conn.pragma_update(None, "cache_size", -i64::from(STORE_CACHE_KIB))?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    // A file that someone else may have written runs no code of its own, and is not trusted to be
    // well formed.
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
        let conn = dress(Connection::open_in_memory().expect("memory")).expect("it is dressed");
        let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        assert_eq!(number("busy_timeout"), Ok(STORE_BUSY_MS as i64));
        // SQLite counts pages, and less than nothing is KiB.
        assert_eq!(number("cache_size"), Ok(-i64::from(STORE_CACHE_KIB)));
    }

    #[test]
    fn a_path_is_told_byte_by_byte() {
        assert_eq!(encoded(Path::new("/a b/c?d#é.db")), "/a%20b/c%3Fd%23%C3%A9.db");
    }
}
