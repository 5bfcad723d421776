//! The rows of table `meta`: reads all of them, changes single ones.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Trouble;
use crate::limits::{STORE_BYTES_MAX, STORE_KEY_BYTES_MAX, STORE_ROWS_MAX, STORE_VALUE_BYTES_MAX};
use crate::model::meta::{Change, DiskError, Row, StoreOrigin};

/// KubeEdge's own statement (gorm's since 1.23; beego's columns are the same).
pub(super) const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS `meta` \
                                 (`key` text,`type` text,`value` text,PRIMARY KEY (`key`))";

/// The total size of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    rows: usize,
    bytes: usize,
}

/// Whether the file has the table.
pub(super) fn are_there(conn: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'meta'";
    conn.query_row(sql, [], |row| row.get::<_, i64>(0)).map(|count| count > 0)
}

/// The rows that were read.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In the order of their keys.
    pub(super) rows: Vec<Row>,
    /// Totals of all rows.
    pub(super) totals: Totals,
    /// Keys and uids of rows that are too large, or exceed the memory.
    unread: Vec<(Box<str>, Box<str>)>,
}

impl Found {
    pub(super) fn origin(&mut self) -> StoreOrigin {
        let unread = std::mem::take(&mut self.unread);
        if unread.is_empty() { StoreOrigin::Kept } else { StoreOrigin::Part { unread } }
    }
}

/// All rows that fit into the memory. A row that is not KubeEdge's, or is larger than any object,
/// stays in the store and is logged.
pub(super) fn read(conn: &Connection, bytes_max: usize) -> Result<Found, Trouble> {
    let (mut totals, mut bytes) = (Totals::default(), 0);
    let mut rows: Vec<Row> = Vec::new();
    let (mut left, mut unread) = (Vec::new(), Vec::new());
    // Without the index: this must read the rows themselves.
    let mut statement = conn.prepare(ALL)?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let row = taken(row)?;
        totals.rows += 1;
        let size = row.as_ref().map_or(0, |row| row.key.len() + row.value.len());
        totals.bytes += size;
        match row {
            Some(row) if check(&row).is_ok() && totals.rows <= STORE_ROWS_MAX => {
                if bytes + size <= bytes_max {
                    bytes += size;
                    rows.push(row);
                } else {
                    unread.push((row.key, uid(&row.value)));
                }
            }
            Some(row) => left.push(row.key.chars().take(100).collect()),
            None => left.push("a row that is not text".to_owned()),
        }
    }
    rows.sort_by(|one, other| one.key.cmp(&other.key));
    if let Some(pair) = rows.windows(2).find(|pair| pair[0].key == pair[1].key) {
        return Err(Trouble::Damaged(format!("two rows with the key {}", pair[0].key)));
    }
    if !left.is_empty() {
        let (count, few) = (left.len(), &left[..left.len().min(5)]);
        log::warn!(
            "{count} rows of the store are not read, because they are too large or not text: \
             {few:?}"
        );
    }
    Ok(Found { rows, totals, unread })
}

/// `metadata.uid`; empty if it is absent.
fn uid(value: &str) -> Box<str> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: Box<str>,
    }
    serde_json::from_str::<Object>(value).map(|object| object.metadata.uid).unwrap_or_default()
}

const ALL: &str = "SELECT key, type, value FROM meta NOT INDEXED";

/// The intact rows of a damaged table. They are read from both ends, each as far as possible, and
/// rows that are read twice with different content are dropped.
pub(super) fn salvage(conn: &Connection, bytes_max: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for order in ["", " ORDER BY rowid DESC"] {
        if let Err(trouble) = reach(conn, order, bytes_max, &mut rows) {
            log::warn!("the damaged store could be read only in part: {trouble}");
        }
    }
    rows.sort_by(|one, other| one.key.cmp(&other.key));
    rows.dedup();
    let twice: Vec<Box<str>> = rows
        .windows(2)
        .filter(|pair| pair[0].key == pair[1].key)
        .map(|pair| pair[0].key.clone())
        .collect();
    rows.retain(|row| !twice.contains(&row.key));
    let mut totals = Totals::default();
    rows.retain(|row| {
        let next = totals.with(row);
        let fits = next.check().is_ok();
        totals = if fits { next } else { totals };
        fits
    });
    rows
}

fn reach(
    conn: &Connection,
    order: &str,
    bytes_max: usize,
    rows: &mut Vec<Row>,
) -> Result<(), Trouble> {
    let mut statement = conn.prepare(&format!("{ALL}{order}"))?;
    let mut found = statement.query([])?;
    let mut left = bytes_max;
    // A cycle of damaged pages has no end.
    for _ in 0..STORE_ROWS_MAX {
        let Some(row) = found.next()? else { break };
        let Some(row) = taken(row)?.filter(is_whole) else { continue };
        let size = row.key.len() + row.value.len();
        // Rows that exceed the memory stay in the file that is moved aside.
        let Some(rest) = left.checked_sub(size) else { break };
        left = rest;
        rows.push(row);
    }
    Ok(())
}

/// A value that lost a page in its middle is no valid JSON.
fn is_whole(row: &Row) -> bool {
    let named = !row.kind.is_empty() && row.kind.bytes().all(|byte| byte.is_ascii_graphic());
    named && check(row).is_ok() && serde_json::from_str::<IgnoredAny>(&row.value).is_ok()
}

fn taken(row: &rusqlite::Row<'_>) -> Result<Option<Row>, Trouble> {
    let text = |at: usize| -> Result<Option<Box<str>>, Trouble> {
        Ok(match row.get_ref(at)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                std::str::from_utf8(bytes).ok().map(Into::into)
            }
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
        })
    };
    let (key, kind, value) = (text(0)?, text(1)?, text(2)?);
    Ok(key.zip(kind).zip(value).map(|((key, kind), value)| Row { key, kind, value }))
}

/// Whether the store accepts the row.
fn check(row: &Row) -> Result<(), String> {
    let (key, value) = (row.key.len(), row.value.len());
    if row.key.is_empty() || row.kind.is_empty() {
        return Err(format!("got a row {row:?} of the kind {:?}, expected both", row.kind));
    }
    if key > STORE_KEY_BYTES_MAX {
        let start: String = row.key.chars().take(100).collect();
        return Err(format!(
            "{start}…: got a key of {key} bytes, expected {STORE_KEY_BYTES_MAX} at most"
        ));
    }
    if value > STORE_VALUE_BYTES_MAX {
        let key = &row.key;
        return Err(format!("{key}: got {value} bytes, expected {STORE_VALUE_BYTES_MAX} at most"));
    }
    Ok(())
}

/// Applies one change; unchanged content is not written again.
///
/// An update in place, not KubeEdge's INSERT OR REPLACE: that deletes the row and its key and
/// inserts both again, which writes more pages for the same result.
pub(super) fn apply(
    conn: &Connection,
    change: &Change,
    totals: Totals,
) -> Result<Totals, DiskError> {
    match change {
        Change::Put(row) => {
            check(row).map_err(DiskError::Failed)?;
            let before = size(conn, &row.key)?;
            let next = totals.without(before).with(row);
            if before.is_none() || next.bytes > totals.bytes {
                next.check().map_err(|why| DiskError::Failed(format!("{}: {why}", row.key)))?;
            }
            conn.execute(PUT, params![row.key, row.kind, row.value])?;
            Ok(next)
        }
        Change::Delete { key } => {
            let before = size(conn, key)?;
            if before.is_some() {
                conn.execute("DELETE FROM meta WHERE key = ?1", params![key])?;
            }
            Ok(totals.without(before))
        }
        #[cfg(feature = "devices")]
        Change::Device(_) => Ok(totals),
        #[cfg(feature = "metaserver")]
        Change::Item(_) => Ok(totals),
        #[cfg(feature = "devices")]
        Change::SubTopic(_) => Ok(totals),
        #[cfg(feature = "servicebus")]
        Change::TargetUrl(_) => Ok(totals),
    }
}

const PUT: &str = "INSERT INTO meta (key, type, value) VALUES (?1, ?2, ?3) \
                   ON CONFLICT (key) DO UPDATE SET type = excluded.type, value = excluded.value \
                   WHERE type IS NOT excluded.type OR value IS NOT excluded.value";

/// Bytes of the row, if it exists. This reads the row's header only, not the value.
fn size(conn: &Connection, key: &str) -> rusqlite::Result<Option<usize>> {
    let sql = "SELECT octet_length(key) + ifnull(octet_length(value), 0) FROM meta WHERE key = ?1";
    let bytes = conn.query_row(sql, params![key], |row| row.get::<_, i64>(0)).optional()?;
    Ok(bytes.map(|bytes| bytes as usize))
}

impl Totals {
    /// The totals of these rows.
    pub(super) fn of(rows: &[Row]) -> Self {
        rows.iter().fold(Self::default(), Self::with)
    }

    fn with(self, row: &Row) -> Self {
        Self { rows: self.rows + 1, bytes: self.bytes + row.key.len() + row.value.len() }
    }

    fn without(self, bytes: Option<usize>) -> Self {
        match bytes {
            None => self,
            Some(bytes) => {
                Self { rows: self.rows.saturating_sub(1), bytes: self.bytes.saturating_sub(bytes) }
            }
        }
    }

    fn check(self) -> Result<(), String> {
        if self.rows > STORE_ROWS_MAX {
            return Err(format!("the store may have {STORE_ROWS_MAX} rows at most"));
        }
        if self.bytes > STORE_BYTES_MAX {
            return Err(format!("the store may have {STORE_BYTES_MAX} bytes at most"));
        }
        Ok(())
    }
}
