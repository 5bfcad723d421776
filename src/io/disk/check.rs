//! Whether a store is sound, within a bound of time.

use rusqlite::{Connection, ErrorCode};

use super::{Trouble, clock};
use crate::limits::STORE_CHECK_MS;

/// Looks for damage: all pages of the file, then each row of `meta` against its index.
///
/// A file that is too large to be looked at in time passes, and the log says so: SQLite finds
/// damage that it meets later as well.
pub(super) fn sound(conn: &mut Connection) -> Result<(), Trouble> {
    let until = clock::boot().plus_ms(STORE_CHECK_MS);
    conn.progress_handler(OPERATIONS, Some(move || clock::boot() > until))?;
    let found = ["PRAGMA quick_check(1)", "PRAGMA integrity_check('meta')"]
        .into_iter()
        .try_for_each(|check| finding(conn, check));
    conn.progress_handler(OPERATIONS, None::<fn() -> bool>)?;
    found
}

/// Operations of SQLite's machine between two looks at the clock: well under a millisecond.
const OPERATIONS: i32 = 1_000;

fn finding(conn: &Connection, check: &str) -> Result<(), Trouble> {
    let said: rusqlite::Result<String> = conn.query_row(check, [], |row| row.get(0));
    match said {
        Ok(said) if said == "ok" => Ok(()),
        Ok(said) => Err(Trouble::Damaged(said)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            log::warn!("the store is too large to be looked at as a whole in {STORE_CHECK_MS} ms");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
