//! KubeEdge's tables with one text in each row: `target_urls`, the URLs of rules that applications
//! on the node may use, and `sub_topics`, the topics of MQTT clients that go to the cloud.

use rusqlite::{Connection, OptionalExtension};

use crate::limits::{RULE_ROW_BYTES_MAX, RULE_ROWS_MAX};
use crate::model::meta::{Change, DiskError, Saved};
use crate::model::rule_row::RuleRow;

/// A table and its column.
type Table = (&'static str, &'static str);

#[cfg(feature = "servicebus")]
const URLS: Table = ("target_urls", "url");
#[cfg(feature = "devices")]
const TOPICS: Table = ("sub_topics", "topic");

/// Reads the tables that are there.
pub(super) fn read(conn: &Connection, saved: &mut Saved) {
    #[cfg(feature = "servicebus")]
    {
        saved.target_urls = read_table(conn, URLS);
    }
    #[cfg(feature = "devices")]
    {
        saved.sub_topics = read_table(conn, TOPICS);
    }
}

/// One that cannot be read is logged and counts as empty.
fn read_table(conn: &Connection, (table, column): Table) -> Vec<Box<str>> {
    let read = || -> rusqlite::Result<Vec<Box<str>>> {
        let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        if conn.query_row(sql, [table], |_| Ok(())).optional()?.is_none() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT {column} FROM {table} WHERE typeof({column}) = 'text' AND \
             octet_length({column}) BETWEEN 1 AND ?1 LIMIT ?2"
        );
        let mut rows = conn.prepare(&sql)?;
        let most = (RULE_ROW_BYTES_MAX as i64, RULE_ROWS_MAX as i64);
        rows.query_map(most, |row| row.get::<_, String>(0).map(Into::into))?.collect()
    };
    read().unwrap_or_else(|error| {
        log::warn!("the store's table {table} cannot be read: {error}");
        Vec::new()
    })
}

/// Applies those changes that are about these tables.
pub(super) fn apply(conn: &Connection, changes: &[Change]) -> Result<(), DiskError> {
    for change in changes {
        match change {
            #[cfg(feature = "servicebus")]
            Change::TargetUrl(row) => write(conn, URLS, row)?,
            #[cfg(feature = "devices")]
            Change::SubTopic(row) => write(conn, TOPICS, row)?,
            _ => {}
        }
    }
    Ok(())
}

/// KubeEdge's own statement makes the table.
fn write(conn: &Connection, (table, column): Table, row: &RuleRow) -> rusqlite::Result<()> {
    conn.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS `{table}` (`{column}` text,PRIMARY KEY (`{column}`))"
    ))?;
    let sql = if row.exists {
        format!("INSERT OR REPLACE INTO {table} ({column}) VALUES (?1)")
    } else {
        format!("DELETE FROM {table} WHERE {column} = ?1")
    };
    conn.execute(&sql, [&*row.text]).map(drop)
}

#[cfg(test)]
mod tests {
    #[cfg(all(feature = "devices", feature = "servicebus"))]
    mod both {
        use super::super::*;

        fn changed(conn: &Connection, change: fn(RuleRow) -> Change, text: &str, exists: bool) {
            apply(conn, &[change(RuleRow { text: text.into(), exists })]).expect("it is saved");
        }

        fn rows(conn: &Connection) -> (Vec<Box<str>>, Vec<Box<str>>) {
            let mut saved = Saved::default();
            read(conn, &mut saved);
            (saved.target_urls, saved.sub_topics)
        }

        #[test]
        fn rules_are_rows_of_edgecores_tables() {
            let conn = Connection::open_in_memory().expect("a database");
            assert_eq!(rows(&conn), (Vec::new(), Vec::new()), "there is no table");
            for (text, exists) in
                [("http://a", true), ("http://b", true), ("http://a", true), ("http://b", false)]
            {
                changed(&conn, Change::TargetUrl, text, exists);
            }
            changed(&conn, Change::SubTopic, "default/a", true);
            changed(&conn, Change::SubTopic, "default/b", false);
            assert_eq!(rows(&conn), (vec!["http://a".into()], vec!["default/a".into()]));
            let sql = "SELECT group_concat(name || ' ' || sql, '; ') FROM (SELECT * FROM \
                   sqlite_schema \
                   WHERE type = 'table' ORDER BY name)";
            let schema: String = conn.query_row(sql, [], |row| row.get(0)).expect("tables");
            let edgecores = "sub_topics CREATE TABLE `sub_topics` (`topic` text,PRIMARY KEY \
                         (`topic`)); target_urls CREATE TABLE `target_urls` (`url` text,PRIMARY \
                         KEY (`url`))";
            assert_eq!(schema, edgecores);
        }

        #[test]
        fn rows_of_others_are_bounded() {
            let conn = Connection::open_in_memory().expect("a database");
            changed(&conn, Change::TargetUrl, "x", true);
            for url in ["", &"u".repeat(RULE_ROW_BYTES_MAX + 1)] {
                conn.execute("INSERT INTO target_urls VALUES (?1)", [url]).expect("a row");
            }
            conn.execute("INSERT INTO target_urls VALUES (x'00ff')", []).expect("a row");
            assert_eq!(rows(&conn).0, ["x".into()]);
            for at in 0..2 * RULE_ROWS_MAX {
                conn.execute("INSERT INTO target_urls VALUES (?1)", [at.to_string()])
                    .expect("a row");
            }
            assert_eq!(rows(&conn).0.len(), RULE_ROWS_MAX);
        }
    }
}
