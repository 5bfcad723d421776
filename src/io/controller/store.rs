//! The controller's store on the disk: the objects of a cloud without a cluster, and the records of
//! what each node has.
//!
//! One SQLite file for this process alone; the changes of a turn are one transaction, synced before
//! anything reports them. So nothing that a node has acknowledged, or that was answered, is lost,
//! and no resourceVersion is used twice. **If we crash here** a turn is stored as a whole or not
//! at all.
//!
//! A damaged file is moved aside ([`quarantine`]). The CA is not in it: see [`super::authority`].

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, params};

use crate::controller::identity::Identity;
use crate::controller::local::{Change, Key, Print, Row};
use crate::io::clock;
use crate::io::disk::quarantine;
use crate::limits::{STORE_BUSY_MS, STORE_CHECK_MS};
use crate::model::api::Kind;
use crate::model::error::System;
use crate::model::router::{NodeRule, NodeRuleRow};
use crate::model::sync::{self, Record};

#[derive(Debug)]
pub struct Store {
    conn: Connection,
}

/// The content of the store.
#[derive(Debug, Default)]
pub struct Stored {
    /// There was no store, or nothing in it could be read.
    pub is_new: bool,
    /// All objects.
    pub objects: Vec<(Key, Row)>,
    /// The greatest resourceVersion that was ever used.
    pub version: u64,
    /// Records of what each node has.
    pub records: Vec<Record>,
    /// Records of the nodes' certificates.
    pub identities: Vec<Identity>,
    /// What nodes were told of rules.
    pub rules: Vec<NodeRuleRow>,
}

impl Store {
    /// Opens the file, makes it if it is absent, and reads it. A damaged one is moved aside, and
    /// the readable rows go into a new one.
    pub fn open(path: &Path) -> Result<(Self, Stored), System> {
        let at = |error: &dyn std::fmt::Display| System::at(path.display(), error);
        quarantine::prepare(path).map_err(|error| at(&error))?;
        // It has Secrets.
        let mode = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
        mode.map_err(|error| at(&error))?;
        match Self::ready(path) {
            Ok(open) => Ok(open),
            Err(Trouble::Damaged(why)) => Self::replace(path, &why),
            Err(Trouble::Failed(why)) => Err(at(&why)),
        }
    }

    fn ready(path: &Path) -> Result<(Self, Stored), Trouble> {
        let conn = Connection::open(path)?;
        let mut store = Self { conn };
        store.settle()?;
        store.check()?;
        let mut stored = store.read()?;
        stored.is_new =
            stored.version == 0 && stored.objects.is_empty() && stored.records.is_empty();
        Ok((store, stored))
    }

    /// Moves the damaged file aside, and starts a new one with the readable rows. Nodes register
    /// again: so they compare their objects with ours.
    fn replace(path: &Path, why: &str) -> Result<(Self, Stored), System> {
        let mut stored = Stored::default();
        let read = Connection::open(path).map(|conn| Self { conn }.salvage(&mut stored));
        stored.is_new = read.is_err() || stored.objects.is_empty() && stored.records.is_empty();
        stored.objects.retain(|(key, _)| key.kind != Kind::Node);
        let failed = |why: &dyn std::fmt::Display| {
            let path = path.display();
            System::new(format!("{path} is damaged, and a new one cannot be created: {why}"))
        };
        let aside = quarantine::replace_by(path, |new| {
            Ok(Connection::open(new).and_then(|conn| Self { conn }.fill(&stored))?)
        });
        let aside = aside.map_err(|why| failed(&why))?;
        let (count, records) = (stored.objects.len(), stored.records.len());
        log::error!(
            "{} was damaged ({why}): it is now {}; {count} objects and {records} records of what \
             nodes have could be read from it. Objects without a manifest are lost; nodes report \
             their statuses again. The CA and its key are separate files: nodes keep their \
             certificates",
            path.display(),
            aside.display()
        );
        let (store, read) = Self::ready(path).map_err(|trouble| match trouble {
            Trouble::Damaged(why) | Trouble::Failed(why) => failed(&why),
        })?;
        Ok((store, Stored { is_new: stored.is_new, ..read }))
    }

    fn fill(mut self, stored: &Stored) -> rusqlite::Result<()> {
        self.conn.execute_batch(SCHEMA)?;
        let (version, event) = (stored.version, None);
        let put = |(key, row): &(Key, Row)| Change {
            key: key.clone(),
            version,
            row: Some(row.clone()),
            watch_event: event.clone(),
        };
        let objects: Vec<Change> = stored.objects.iter().map(put).collect();
        let records: Vec<sync::Change> =
            stored.records.iter().cloned().map(sync::Change::Put).collect();
        self.put_identities(&stored.identities)?;
        let rules = stored.rules.iter().map(|row| (row.clone(), true));
        self.put_rules(&rules.collect())?;
        self.write(&objects, &records)?;
        self.conn.close().map_err(|(_, error)| error)
    }

    /// Checks for damage, within a time limit: in a large file it may be found later.
    fn check(&mut self) -> Result<(), Trouble> {
        let until = clock::boot().plus_ms(STORE_CHECK_MS);
        self.conn.progress_handler(OPERATIONS, Some(move || clock::boot() > until))?;
        let found = self.conn.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        self.conn.progress_handler(OPERATIONS, None::<fn() -> bool>)?;
        match found {
            Ok(result) if result != "ok" => Err(Trouble::Damaged(result)),
            Err(error) if error.sqlite_error_code() != Some(ErrorCode::OperationInterrupted) => {
                Err(error.into())
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn settle(&self) -> rusqlite::Result<()> {
        self.conn.busy_timeout(Duration::from_millis(STORE_BUSY_MS))?;
        self.conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        self.conn.pragma_update(None, "journal_mode", "WAL")?;
        self.conn.pragma_update(None, "synchronous", "FULL")?;
        self.conn.execute_batch(SCHEMA)
    }

    fn read(&self) -> rusqlite::Result<Stored> {
        let mut stored = Stored::default();
        self.read_objects(&mut stored)?;
        let version = "SELECT ifnull(max(value), 0) FROM about WHERE key = 'version'";
        let version: i64 = self.conn.query_row(version, [], |row| row.get(0))?;
        stored.version = version.cast_unsigned();
        self.read_records(&mut stored)?;
        self.read_identities(&mut stored)?;
        self.read_rules(&mut stored)?;
        Ok(stored)
    }

    /// Reads as much as possible.
    fn salvage(&self, stored: &mut Stored) {
        // Revoked certificates first: each table as far as possible.
        let tables =
            [Self::read_identities, Self::read_objects, Self::read_records, Self::read_rules];
        for error in tables.iter().filter_map(|read| read(self, stored).err()) {
            log::warn!("the damaged store can be read up to here: {error}");
        }
        // A damaged text is no object.
        let is_whole = |row: &Row| serde_json::from_str::<serde_json::Value>(&row.text).is_ok();
        stored.objects.retain(|(_, row)| is_whole(row));
    }

    fn read_objects(&self, stored: &mut Stored) -> rusqlite::Result<()> {
        let mut objects =
            self.conn.prepare("SELECT kind, namespace, name, value, whole, fixed FROM objects")?;
        let mut rows = objects.query([])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            let Some(kind) = kind(&name) else {
                log::warn!("an object of the unknown kind {name} is ignored");
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
            stored.objects.push((key, Row { text: text.into(), made_of }));
        }
        Ok(())
    }

    fn read_records(&self, stored: &mut Stored) -> rusqlite::Result<()> {
        let mut records =
            self.conn.prepare("SELECT node, kind, namespace, name, uid, version FROM sync")?;
        let mut rows = records.query([])?;
        while let Some(row) = rows.next()? {
            let Some(kind) = kind(&row.get::<_, String>(1)?) else { continue };
            let text = |at: usize| row.get::<_, String>(at).map(Box::<str>::from);
            stored.records.push(Record {
                node: text(0)?,
                kind,
                namespace: text(2)?,
                name: text(3)?,
                uid: text(4)?,
                version: row.get::<_, i64>(5)?.cast_unsigned(),
            });
        }
        Ok(())
    }

    fn read_identities(&self, stored: &mut Stored) -> rusqlite::Result<()> {
        let mut identities =
            self.conn.prepare("SELECT node, revoked, connected FROM identities")?;
        let mut rows = identities.query([])?;
        while let Some(row) = rows.next()? {
            stored.identities.push(Identity {
                node: row.get::<_, String>(0)?.into(),
                revoked_s: row.get(1)?,
                connected_s: row.get(2)?,
            });
        }
        Ok(())
    }

    fn read_rules(&self, stored: &mut Stored) -> rusqlite::Result<()> {
        let mut rules = self.conn.prepare("SELECT node, kind, value FROM node_rules")?;
        let mut rows = rules.query([])?;
        while let Some(row) = rows.next()? {
            let value: Box<str> = row.get::<_, String>(2)?.into();
            let rule = match &*row.get::<_, String>(1)? {
                TOPIC => NodeRule::Topic(value),
                URL => NodeRule::Url(value),
                // Of a later version.
                _ => continue,
            };
            stored.rules.push(NodeRuleRow { node: row.get::<_, String>(0)?.into(), rule });
        }
        Ok(())
    }

    /// Saves what nodes were told of rules: whether there is each row.
    pub fn save_rules(&mut self, rows: &BTreeMap<NodeRuleRow, bool>) -> Result<(), System> {
        Ok(self.put_rules(rows)?)
    }

    fn put_rules(&mut self, rows: &BTreeMap<NodeRuleRow, bool>) -> rusqlite::Result<()> {
        let saving = self.conn.transaction()?;
        for (NodeRuleRow { node, rule }, exists) in rows {
            let (kind, value) = match rule {
                NodeRule::Topic(filter) => (TOPIC, filter),
                NodeRule::Url(url) => (URL, url),
            };
            let statement = if *exists { PUT_RULE } else { DELETE_RULE };
            saving.execute(statement, params![node, kind, value])?;
        }
        saving.commit()
    }

    /// Saves the records of nodes' certificates.
    pub fn save_identities(&mut self, all: &[Identity]) -> Result<(), System> {
        Ok(self.put_identities(all)?)
    }

    fn put_identities(&mut self, all: &[Identity]) -> rusqlite::Result<()> {
        let saving = self.conn.transaction()?;
        for Identity { node, revoked_s, connected_s } in all {
            saving.execute(PUT_IDENTITY, params![node, revoked_s, connected_s])?;
        }
        saving.commit()
    }

    /// Saves the changes of a turn, all or nothing.
    pub fn save(&mut self, objects: &[Change], records: &[sync::Change]) -> Result<(), System> {
        if objects.is_empty() && records.is_empty() {
            return Ok(());
        }
        Ok(self.write(objects, records)?)
    }

    /// Makes all writes fail, or ends that: for tests of failed saves.
    #[cfg(test)]
    pub(super) fn refuse(&self, refuse: bool) {
        self.conn.pragma_update(None, "query_only", refuse).expect("SQLite knows it");
    }

    fn write(&mut self, objects: &[Change], records: &[sync::Change]) -> rusqlite::Result<()> {
        let now_s = clock::now().timestamp().map_or(0, |at| at.0);
        let saving = self.conn.transaction()?;
        {
            let mut put = saving.prepare(PUT_OBJECT)?;
            let mut delete = saving.prepare(DELETE_OBJECT)?;
            for Change { key, row, .. } in objects {
                let name = (key.kind.name(), &key.namespace, &key.name);
                if let Some(Row { text, made_of }) = row {
                    let whole = made_of.map(|print| print.whole.cast_signed());
                    let fixed = made_of.map(|print| print.fixed.cast_signed());
                    put.execute(params![name.0, name.1, name.2, text, whole, fixed])?;
                    continue;
                }
                delete.execute(params![name.0, name.1, name.2])?;
                if key.kind == Kind::Node {
                    saving.execute(REVOKE, params![key.name, now_s])?;
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

/// Why a store cannot be opened.
#[derive(Debug)]
enum Trouble {
    Damaged(String),
    Failed(String),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        let message = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(message),
            Some(ErrorCode::DatabaseBusy) => {
                let why = "another edgecontroller uses it: stop that first, or use another --data";
                Self::Failed(why.to_owned())
            }
            _ => Self::Failed(message),
        }
    }
}

/// Operations of SQLite's virtual machine between two reads of the clock: well under a millisecond.
const OPERATIONS: i32 = 1_000;

fn kind(name: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.name() == name)
}

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS objects (kind TEXT, namespace TEXT, name TEXT, value TEXT NOT NULL,
    whole INTEGER, fixed INTEGER, PRIMARY KEY (kind, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sync (node TEXT, kind TEXT, namespace TEXT, name TEXT, uid TEXT NOT NULL,
    version INTEGER NOT NULL, PRIMARY KEY (node, kind, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS identities (node TEXT PRIMARY KEY, revoked INTEGER NOT NULL,
    connected INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS node_rules (node TEXT, kind TEXT, value TEXT,
    PRIMARY KEY (node, kind, value)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
";
const PUT_OBJECT: &str = "INSERT OR REPLACE INTO objects VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const DELETE_OBJECT: &str = "DELETE FROM objects WHERE kind = ?1 AND namespace = ?2 AND name = ?3";
const PUT_VERSION: &str = "INSERT OR REPLACE INTO about VALUES ('version', ?1)";
const PUT_IDENTITY: &str = "INSERT OR REPLACE INTO identities VALUES (?1, ?2, ?3)";
/// `kind` of [`NodeRule`].
const TOPIC: &str = "topic";
const URL: &str = "url";
const PUT_RULE: &str = "INSERT OR REPLACE INTO node_rules VALUES (?1, ?2, ?3)";
const DELETE_RULE: &str = "DELETE FROM node_rules WHERE node = ?1 AND kind = ?2 AND value = ?3";
/// With a node all its certificates up to now are revoked.
const REVOKE: &str = "INSERT INTO identities VALUES (?1, ?2, 0)
    ON CONFLICT (node) DO UPDATE SET revoked = max(revoked, excluded.revoked)";
const PUT_RECORD: &str = "INSERT OR REPLACE INTO sync VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const DELETE_RECORD: &str =
    "DELETE FROM sync WHERE node = ?1 AND kind = ?2 AND namespace = ?3 AND name = ?4";

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::controller::local::Objects;

    fn folder(name: &str) -> PathBuf {
        let folder = format!("edged-store-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder of ours");
        folder
    }

    fn change(kind: Kind, name: &str) -> Change {
        let key = Key { kind, namespace: "default".into(), name: name.into() };
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"u","resourceVersion":"7"}},"a":"{}"}}"#,
            "x".repeat(2_000)
        );
        let row = Some(Row { text: text.into(), made_of: None });
        Change { key, version: 7, row, watch_event: None }
    }

    #[test]
    fn a_store_is_new_once() {
        let path = folder("new").join("data").join("controller.db");
        let (mut store, stored) = Store::open(&path).expect("it is made");
        assert!(stored.is_new);
        store.save(&[change(Kind::Pod, "web")], &[]).expect("it is kept");
        drop(store);
        let (_store, stored) = Store::open(&path).expect("it is there");
        assert_eq!((stored.is_new, stored.version, stored.objects.len()), (false, 7, 1));
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_is_no_store_is_put_aside_and_a_new_one_begun() {
        let path = folder("none").join("controller.db");
        fs::write(&path, "this is no database, and never was one").expect("a file of ours");
        let (mut store, stored) = Store::open(&path).expect("a new one is made");
        assert!(stored.is_new && stored.objects.is_empty());
        store.save(&[change(Kind::Pod, "web")], &[]).expect("it is kept");
        let aside = path.with_file_name("controller.db.corrupt-1");
        assert!(fs::read(aside).expect("it is kept").starts_with(b"this is no database"));
    }

    #[test]
    fn what_can_be_read_of_a_damaged_store_is_kept_but_for_the_nodes() {
        let path = folder("damaged").join("controller.db");
        let (mut store, _) = Store::open(&path).expect("it is made");
        let mut all = vec![change(Kind::Node, "gw"), change(Kind::ConfigMap, "a")];
        all.extend((0..200).map(|at| change(Kind::Pod, &format!("web-{at:03}"))));
        let record = Record {
            node: "gw".into(),
            kind: Kind::Pod,
            namespace: "default".into(),
            name: "web-000".into(),
            uid: "u".into(),
            version: 7,
        };
        store.save(&all, &[sync::Change::Put(record)]).expect("it is kept");
        store.conn.close().map_err(|(_, error)| error).expect("it is written");
        let mut bytes = fs::read(&path).expect("a file of ours");
        let at = bytes.len() * 3 / 4;
        bytes[at..at + 8_192].fill(0xa5);
        fs::write(&path, bytes).expect("a file of ours");
        let (store, stored) = Store::open(&path).expect("it goes on");
        assert!(!stored.is_new);
        let names: Vec<&str> = stored.objects.iter().map(|(key, _)| &*key.name).collect();
        assert!(names.contains(&"a") && names.len() > 2 && names.len() < 202, "{names:?}");
        assert!(!names.contains(&"gw"), "it registers anew");
        drop(store);
        let (_store, again) = Store::open(&path).expect("it is sound");
        assert_eq!(again.objects, stored.objects);
        Objects::load(again.objects, again.version, 1);
    }

    #[test]
    fn what_nodes_were_told_of_rules_is_kept_and_forgotten() {
        let path = folder("rules").join("controller.db");
        let row = |rule: NodeRule| NodeRuleRow { node: "e1".into(), rule };
        let (topic, url) =
            (row(NodeRule::Topic("n/t".into())), row(NodeRule::Url("http://h/".into())));
        let (mut store, stored) = Store::open(&path).expect("it is made");
        assert_eq!(stored.rules, []);
        let both = BTreeMap::from([(topic.clone(), true), (url.clone(), true)]);
        store.save_rules(&both).expect("they are kept");
        drop(store);
        let (mut store, stored) = Store::open(&path).expect("it is there");
        assert_eq!(stored.rules, [topic.clone(), url.clone()]);
        store.save_rules(&BTreeMap::from([(topic, false)])).expect("it is kept");
        drop(store);
        assert_eq!(Store::open(&path).expect("it is there").1.rules, [url]);
    }

    #[test]
    fn with_a_node_go_its_certificates() {
        let folder = std::env::temp_dir().join(format!("edgecontroller-db-{}", std::process::id()));
        let path = folder.join("controller.db");
        let (mut store, stored) = Store::open(&path).expect("it is made");
        assert_eq!(stored.identities, []);
        let identity =
            |node: &str| Identity { node: node.into(), revoked_s: 5, connected_s: 7_000_000_000 };
        store.save_identities(&[identity("e1"), identity("e2")]).expect("it is kept");
        store.save_identities(&[identity("e2")]).expect("once more");
        let change = |kind: Kind, name: &str| {
            let key = Key { kind, namespace: "".into(), name: name.into() };
            Change { key, version: 1, row: None, watch_event: None }
        };
        let changes = ["e1", "e3"].map(|name| change(Kind::Node, name));
        store.save(&changes, &[]).expect("it is kept");
        store.save(&[change(Kind::Secret, "e2")], &[]).expect("it is kept");
        drop(store);
        let (_, stored) = Store::open(&path).expect("it is there");
        let found: Vec<_> = stored
            .identities
            .iter()
            .map(|it| (&*it.node, it.revoked_s > 1_700_000_000, it.connected_s))
            .collect();
        let expected = [("e1", true, 7_000_000_000), ("e2", false, 7_000_000_000), ("e3", true, 0)];
        assert_eq!(found, expected, "what is known of a node stays");
        fs::remove_dir_all(folder).expect("it was made");
    }
}
