//! What the controller keeps on its disk: the objects of a cloud without a cluster, and what each
//! node has.
//!
//! One SQLite file for this process alone; every turn that changed something is one transaction,
//! synced before anybody is told of it. So nothing that a node has acknowledged, or that was
//! answered, is forgotten, and no resourceVersion is given twice. **If we crash here** a turn is
//! there as a whole or not at all.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};

use crate::controller::local::{Change, Key, Print, Row};
use crate::limits::STORE_BUSY_MS;
use crate::model::api::Kind;
use crate::model::sync::{self, Record};

/// The open file.
#[derive(Debug)]
pub struct Store {
    conn: Connection,
}

/// What it held.
#[derive(Debug, Default)]
pub struct Kept {
    /// All objects.
    pub objects: Vec<(Key, Row)>,
    /// The greatest resourceVersion that was ever given.
    pub version: u64,
    /// What each node has.
    pub records: Vec<Record>,
}

impl Store {
    /// Opens the file, makes it where there is none, and reads it.
    pub fn open(path: &Path) -> Result<(Self, Kept), String> {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| at(&error))?;
        }
        // Secrets are in it.
        let mut private = fs::OpenOptions::new();
        let private = private.create(true).append(true).mode(0o600).open(path);
        let mode = private.and_then(|file| file.set_permissions(fs::Permissions::from_mode(0o600)));
        mode.map_err(|error| at(&error))?;
        let conn = Connection::open(path).map_err(|error| at(&error))?;
        let store = Self { conn };
        store.settle().map_err(|error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseBusy) => {
                at(&"another edgecontroller has it: stop that first, or give another --data")
            }
            _ => at(&error),
        })?;
        let kept = store.read().map_err(|error| at(&error))?;
        Ok((store, kept))
    }

    fn settle(&self) -> rusqlite::Result<()> {
        self.conn.busy_timeout(Duration::from_millis(STORE_BUSY_MS))?;
        self.conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        self.conn.pragma_update(None, "journal_mode", "WAL")?;
        self.conn.pragma_update(None, "synchronous", "FULL")?;
        self.conn.execute_batch(SCHEMA)
    }

    fn read(&self) -> rusqlite::Result<Kept> {
        let mut kept = Kept::default();
        let mut objects =
            self.conn.prepare("SELECT kind, namespace, name, value, whole, fixed FROM objects")?;
        let mut rows = objects.query([])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            let Some(kind) = kind(&name) else {
                log::warn!("an object of kind {name} is left as it is: nobody knows it here");
                continue;
            };
            let (namespace, name, text): (String, String, String) =
                (row.get(1)?, row.get(2)?, row.get(3)?);
            let (whole, fixed): (Option<i64>, Option<i64>) = (row.get(4)?, row.get(5)?);
            let made_of = whole.zip(fixed).map(|(whole, fixed)| Print {
                whole: whole.cast_unsigned(),
                fixed: fixed.cast_unsigned(),
            });
            let key = Key { kind, namespace: namespace.into(), name: name.into() };
            kept.objects.push((key, Row { text: text.into(), made_of }));
        }
        let version = "SELECT ifnull(max(value), 0) FROM about WHERE key = 'version'";
        let version: i64 = self.conn.query_row(version, [], |row| row.get(0))?;
        kept.version = version.cast_unsigned();
        let mut records =
            self.conn.prepare("SELECT node, kind, namespace, name, uid, version FROM sync")?;
        let mut rows = records.query([])?;
        while let Some(row) = rows.next()? {
            let Some(kind) = kind(&row.get::<_, String>(1)?) else { continue };
            let text = |at: usize| row.get::<_, String>(at).map(Box::<str>::from);
            kept.records.push(Record {
                node: text(0)?,
                kind,
                namespace: text(2)?,
                name: text(3)?,
                uid: text(4)?,
                version: row.get::<_, i64>(5)?.cast_unsigned(),
            });
        }
        Ok(kept)
    }

    /// Keeps what a turn changed, all or nothing.
    pub fn save(&mut self, objects: &[Change], records: &[sync::Change]) -> Result<(), String> {
        if objects.is_empty() && records.is_empty() {
            return Ok(());
        }
        self.write(objects, records).map_err(|error| error.to_string())
    }

    fn write(&mut self, objects: &[Change], records: &[sync::Change]) -> rusqlite::Result<()> {
        let saving = self.conn.transaction()?;
        {
            let mut put = saving.prepare(PUT_OBJECT)?;
            let mut delete = saving.prepare(DELETE_OBJECT)?;
            for Change { key, row, .. } in objects {
                let name = (key.kind.name(), &key.namespace, &key.name);
                match row {
                    Some(Row { text, made_of }) => {
                        let whole = made_of.map(|print| print.whole.cast_signed());
                        let fixed = made_of.map(|print| print.fixed.cast_signed());
                        put.execute(params![name.0, name.1, name.2, text, whole, fixed])?;
                    }
                    None => drop(delete.execute(params![name.0, name.1, name.2])?),
                }
            }
            if let Some(last) = objects.last() {
                let version = last.version.cast_signed();
                saving.prepare(PUT_VERSION)?.execute(params![version])?;
            }
            let mut put = saving.prepare(PUT_RECORD)?;
            let mut delete = saving.prepare(DELETE_RECORD)?;
            for change in records {
                match change {
                    sync::Change::Put(it) => drop(put.execute(params![
                        it.node,
                        it.kind.name(),
                        it.namespace,
                        it.name,
                        it.uid,
                        it.version.cast_signed()
                    ])?),
                    sync::Change::Delete { node, kind, namespace, name } => {
                        delete.execute(params![node, kind.name(), namespace, name])?;
                    }
                }
            }
        }
        saving.commit()
    }
}

fn kind(name: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.name() == name)
}

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS objects (kind TEXT, namespace TEXT, name TEXT, value TEXT NOT NULL,
    whole INTEGER, fixed INTEGER, PRIMARY KEY (kind, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sync (node TEXT, kind TEXT, namespace TEXT, name TEXT, uid TEXT NOT NULL,
    version INTEGER NOT NULL, PRIMARY KEY (node, kind, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
";
const PUT_OBJECT: &str = "INSERT OR REPLACE INTO objects VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const DELETE_OBJECT: &str = "DELETE FROM objects WHERE kind = ?1 AND namespace = ?2 AND name = ?3";
const PUT_VERSION: &str = "INSERT OR REPLACE INTO about VALUES ('version', ?1)";
const PUT_RECORD: &str = "INSERT OR REPLACE INTO sync VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const DELETE_RECORD: &str =
    "DELETE FROM sync WHERE node = ?1 AND kind = ?2 AND namespace = ?3 AND name = ?4";
