//! Checks the store for damage, within a time limit.

use rusqlite::{Connection, ErrorCode};

use super::{Trouble, clock};
use crate::agent::time::Instant;
use crate::limits::STORE_CHECK_MS;

/// Checks all pages of the file, then each row of `meta` against its index.
///
/// A file that is too large to be checked in time passes, and this is logged: SQLite also reports
/// damage that it finds later.
pub(super) fn sound(conn: &mut Connection) -> Result<(), Trouble> {
    sound_by(clock::boot, conn)
}

fn sound_by(
    clock: impl Fn() -> Instant + Copy + Send + 'static,
    conn: &mut Connection,
) -> Result<(), Trouble> {
    let until = clock().plus_ms(STORE_CHECK_MS);
    conn.progress_handler(OPERATIONS, Some(move || clock() > until))?;
    let found = ["PRAGMA quick_check(1)", "PRAGMA integrity_check('meta')"]
        .into_iter()
        .try_for_each(|check| finding(conn, check));
    conn.progress_handler(OPERATIONS, None::<fn() -> bool>)?;
    found
}

/// Operations of SQLite's virtual machine between two reads of the clock: well under a millisecond.
const OPERATIONS: i32 = 1_000;

fn finding(conn: &Connection, check: &str) -> Result<(), Trouble> {
    let result: rusqlite::Result<String> = conn.query_row(check, [], |row| row.get(0));
    match result {
        Ok(result) if result == "ok" => Ok(()),
        Ok(result) => Err(Trouble::Damaged(result)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            log::warn!("the store is too large to be checked as a whole in {STORE_CHECK_MS} ms");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A file with many good rows before a bad one: a value that its column does not allow.
    const DAMAGED: &str = "
        CREATE TABLE meta (key TEXT PRIMARY KEY, type TEXT, value TEXT);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000)
            INSERT INTO meta SELECT 'a/pod/' || i, 'pod', '{}' FROM n;
        INSERT INTO meta VALUES ('z/pod/z', 'pod', NULL);
        PRAGMA writable_schema = 1;
        UPDATE sqlite_schema SET sql = replace(sql, 'value TEXT', 'value TEXT NOT NULL');";

    /// The check begins at 0, and from then on the clock shows `ms`.
    fn clock(ms: u64) -> impl Fn() -> Instant + Copy + Send + 'static {
        static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
        HAS_BEGUN.store(false, Ordering::Relaxed);
        move || Instant(if HAS_BEGUN.swap(true, Ordering::Relaxed) { ms } else { 0 })
    }

    #[test]
    fn a_store_that_cannot_be_looked_at_in_time_passes() {
        let path = std::env::temp_dir().join(format!("edged-check-{}.db", std::process::id()));
        let made = Connection::open(&path).expect("a new file");
        made.execute_batch(DAMAGED).expect(DAMAGED);
        drop(made);
        for (ms, passes) in [(STORE_CHECK_MS, false), (STORE_CHECK_MS + 1, true)] {
            let mut conn = Connection::open(&path).expect("ours");
            let found = sound_by(clock(ms), &mut conn);
            assert_eq!(found.is_ok(), passes, "{ms}");
        }
        fs::remove_file(&path).expect("ours");
    }
}
